#include "policies/parts/retention_cost.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway {

RetentionCost::RetentionCost(std::vector<Sample> samples) : samples_(std::move(samples)) {
  SPILLWAY_CHECK(!samples_.empty(), "a chunk has no cost");
}

RetentionCost RetentionCost::profile(const ExecutionModel& model, Tokens chunk, Tokens longest) {
  std::vector<Sample> samples;
  const auto first = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(chunk.count())));
  for (std::int64_t context = first;; context *= 2) {
    const std::array<PrefillChunk, 1> computed{PrefillChunk{chunk, Tokens(context) - chunk}};
    BatchShape shape;
    shape.chunks = computed;
    const TimeShares shares = model.iteration(shape).shares;
    samples.push_back({Tokens(context), shares.compute + shares.memory + shares.network});
    if (context >= longest.count()) return RetentionCost(std::move(samples));
  }
}

double RetentionCost::at(Tokens context) const {
  if (context <= samples_.front().context || samples_.size() == 1) return samples_.front().seconds;
  const auto above = std::ranges::lower_bound(samples_, context, {}, &Sample::context);
  const auto high = above == samples_.end() ? std::prev(above) : above;
  const auto low = std::prev(high);
  const double share = static_cast<double>((context - low->context).count()) /
                       static_cast<double>((high->context - low->context).count());
  return low->seconds + share * (high->seconds - low->seconds);
}

}  // namespace spillway
