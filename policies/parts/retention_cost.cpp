#include "policies/parts/retention_cost.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway {

RetentionCost::RetentionCost(std::vector<Sample> samples) : samples_(std::move(samples)) {
  SPILLWAY_CHECK(!samples_.empty(), "a chunk has no cost");
}

RetentionCost RetentionCost::profile(const ExecutionModel& model, Tokens chunk, Tokens longest, Tokens beside) {
  const auto gpu_seconds = [&](std::span<const PrefillChunk> chunks) {
    BatchShape shape;
    shape.chunks = chunks;
    const TimeShares shares = model.iteration(shape).shares;
    return shares.compute + shares.memory + shares.network;
  };
  const std::array<PrefillChunk, 1> others{PrefillChunk{beside, Tokens(0)}};
  const double without = beside > Tokens(0) ? gpu_seconds(others) : 0.0;
  std::vector<Sample> samples;
  const auto first = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(chunk.count())));
  for (std::int64_t context = first;; context *= 2) {
    std::vector<PrefillChunk> computed{PrefillChunk{chunk, Tokens(context) - chunk}};
    if (beside > Tokens(0)) computed.push_back(others.front());
    samples.push_back({Tokens(context), gpu_seconds(computed) - without});
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
