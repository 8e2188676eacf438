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
  std::size_t sample = 0;
  for (std::size_t bits = 0; bits < first_.size(); ++bits) {
    while (sample + 1 < samples_.size() && magnitude(samples_[sample].context) < bits) ++sample;
    first_[bits] = sample;
  }
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
  std::size_t above = first_[magnitude(context)];
  while (above + 1 < samples_.size() && samples_[above].context < context) ++above;
  const Sample* const high = &samples_[above];
  const Sample* const low = high - 1;
  const double share = static_cast<double>((context - low->context).count()) /
                       static_cast<double>((high->context - low->context).count());
  return low->seconds + share * (high->seconds - low->seconds);
}

}  // namespace spillway
