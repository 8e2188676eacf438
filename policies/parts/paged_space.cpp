#include "policies/parts/paged_space.hpp"

#include <algorithm>
#include <utility>

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
  const Blocks whole = blocks_for(upto, view_.block_tokens());
  if (gpu.most - whole < watermark(gpu.most)) return Fit::never;
  if (options_.guarantee_completion) {
    const Blocks at_most = blocks_for(request.input + request.max_new_tokens, view_.block_tokens());
    if (view_.batch().promised + at_most > gpu.total) return Fit::later;
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

Fit PagedSpace::resumes(const RequestView& request) const {
  // The next tokens of the running requests come first. The request's own next token needs memory too.
  const Blocks free = view_.tier(kGpuTier).free - view_.batch().decode_growth;
  return free - swap_in_blocks(request) >= watermark(view_.tier(kGpuTier).total) ? Fit::now : Fit::later;
}

Blocks PagedSpace::swap_in_blocks(const RequestView& request) const {
  if (options_.exact_swap_in) return std::max(request.held, blocks_for(request.known, view_.block_tokens()));
  return request.held + Blocks(1);
}

Leave PagedSpace::preempts(const RequestView& request) const {
  const bool room = request.held <= view_.tier(kHostTier).free;
  const bool can_return = view_.tier(kGpuTier).total - swap_in_blocks(request) >= watermark(view_.tier(kGpuTier).total);
  return options_.swap && room && can_return ? Leave::preempt_swap : Leave::preempt_recompute;
}

}  // namespace spillway
