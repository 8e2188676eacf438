#include "policies/parts/paged_space.hpp"

#include <algorithm>
#include <utility>

#include "sim/api/runs.hpp"

namespace spillway {

Parameter watermark_parameter(std::string source) {
  return {.name = "policy.watermark",
          .type = ParameterType::real,
          .unit = "fraction",
          .default_value = "0.01",
          .minimum = 0.0,
          .maximum = 1.0,
          .doc = "Share of the GPU blocks kept free at admission, rounded down to whole blocks",
          .source = std::move(source)};
}

Blocks PagedSpace::watermark(Blocks total) const {
  return Blocks(static_cast<std::int64_t>(options_.watermark * static_cast<double>(total.count())));
}

Fit PagedSpace::admits(const RequestView& request, Tokens upto) const {
  const TierState& gpu = view_.tier(kGpuTier);
  const Blocks whole = view_.blocks_to_compute(upto);
  if (gpu.most - whole < watermark(gpu.most)) return Fit::never;
  // A request whose KV came before it joins has blocks already, and what it may need is promised.
  const bool has_blocks = request.held > Blocks(0);
  if (options_.guarantee_completion && !has_blocks) {
    const Blocks at_most = blocks_for(request.input + request.max_new_tokens, view_.block_tokens());
    if (view_.batch().promised + at_most > gpu.total) return Fit::later;
  }
  if (has_blocks) {
    const Blocks missing = std::max(whole - request.held, Blocks(0));
    return gpu.free - missing >= watermark(gpu.total) ? Fit::now : Fit::later;
  }
  const View::CachedPrefix cached = view_.cached_prefix(request.id);
  const Blocks there = blocks_for(cached.tokens, view_.block_tokens()) - cached.host_blocks;
  // An unused cached block counts as free until a request takes it.
  const Blocks taken = std::max(whole - there, Blocks(0)) + cached.idle_blocks;
  return gpu.free - taken >= watermark(gpu.total) ? Fit::now : Fit::later;
}

Fit PagedSpace::grows(const RequestView& request, Tokens upto) const {
  const Blocks missing = blocks_for(upto, view_.block_tokens()) - request.held;
  return missing <= view_.tier(kGpuTier).free ? Fit::now : Fit::later;
}

Fit PagedSpace::decodes(std::int64_t count) const {
  Blocks needed = view_.decode_growth(count);
  if (options_.spare_block_per_decode && count > 0 && !view_.grows_next(view_.last_decoding())) needed += Blocks(1);
  return needed <= view_.tier(kGpuTier).free ? Fit::now : Fit::later;
}

Fit PagedSpace::resumes(const RequestView& request, Tokens upto) const {
  // The next tokens of the running requests come first. The request's own next token needs memory too.
  const Blocks free = view_.tier(kGpuTier).free - view_.batch().decode_growth;
  return free - swap_in_blocks(request, upto) >= watermark(view_.tier(kGpuTier).total) ? Fit::now : Fit::later;
}

Blocks PagedSpace::swap_in_blocks(const RequestView& request, Tokens upto) const {
  if (options_.exact_swap_in) return std::max(request.held, blocks_for(upto, view_.block_tokens()));
  return request.held + Blocks(1);
}

TierId PagedSpace::way_out(const RequestView& request) const {
  Blocks needed = request.held;
  if (keeps_copies()) {
    for (const PlacedRun& run : placed_runs(view_, holder(request.id))) {
      if (run.copy != kNoTier) needed -= run.blocks;
    }
  }
  for (const TierId tier : options_.swapping.tiers) {
    if (needed <= view_.tier(tier).free) return tier;
  }
  return kNoTier;
}

Leave PagedSpace::preempts(const RequestView& request) const {
  const Blocks total = view_.tier(kGpuTier).total;
  const bool can_return = total - swap_in_blocks(request, request.known) >= watermark(total);
  const bool swaps = options_.swap && can_return && way_out(request) != kNoTier;
  return swaps ? Leave::preempt_swap : Leave::preempt_recompute;
}

bool PagedSpace::suspends_whole(const RequestView& request) const {
  if (options_.swapping.stay_off_host && way_out(request) == kHostTier) return false;
  return OffloadPolicy::suspends_whole(request);
}

std::int64_t PagedSpace::together(const View& view, const std::function<RequestId()>& next) const {
  const Blocks spare(options_.spare_block_per_decode ? 1 : 0);
  Blocks left = view.tier(kGpuTier).total;
  std::int64_t fit = 0;
  for (RequestId id = next(); id.valid(); id = next(), ++fit) {
    left -= blocks_for(view.request(id).known, view.block_tokens()) + spare;
    if (left < Blocks(0)) break;
  }
  return fit;
}

void PagedSpace::leaves(const View& view, const RequestView& request, Placement& placement) {
  const TierId room = way_out(request);
  const Move how{
      .to = room == kNoTier ? kHostTier : room, .mechanism = options_.swapping.mechanism, .waits = Waits::iteration};
  send_from_gpu(view, holder(request.id), how, placement);
}

void PagedSpace::returns(const View& view, const RequestView& request, Placement& placement) {
  const Move how{.keep = keeps_copies(),
                 .mechanism = options_.swapping.mechanism,
                 .waits = Waits::iteration,
                 .in_turn = options_.swapping.in_turn};
  bring_to_gpu(view, holder(request.id), kWholeContext, how, placement);
}

}  // namespace spillway
