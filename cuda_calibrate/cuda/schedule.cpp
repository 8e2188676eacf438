#include "cuda_calibrate/cuda/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <unordered_set>
#include <utility>

namespace spillway::calibrate::gpu {

std::int64_t rotation(std::int64_t bytes, std::int64_t l2_bytes) { return 4 * l2_bytes / bytes + 1; }

std::vector<std::int64_t> block_slots(Order order, std::int64_t blocks, std::int64_t slots, std::int64_t set,
                                      std::uint64_t seed) {
  std::vector<std::int64_t> chosen(static_cast<std::size_t>(blocks));
  if (order == Order::sequential) {
    const std::int64_t runs = slots / blocks;
    std::iota(chosen.begin(), chosen.end(), set % runs * blocks);
    return chosen;
  }
  std::seed_seq sequence{seed, seed >> 32U, static_cast<std::uint64_t>(set)};
  std::mt19937_64 random(sequence);
  // Floyd's algorithm draws without repetition. Time and memory depend on the number of blocks, not on the pool size.
  std::unordered_set<std::int64_t> taken;
  std::size_t at = 0;
  for (std::int64_t last = slots - blocks; last < slots; ++last) {
    std::int64_t slot = std::uniform_int_distribution<std::int64_t>(0, last)(random);
    if (!taken.insert(slot).second) {
      slot = last;
      taken.insert(slot);
    }
    chosen[at++] = slot;
  }
  std::shuffle(chosen.begin(), chosen.end(), random);
  return chosen;
}

std::vector<std::int64_t> marks(std::int64_t count, std::int64_t most) {
  const std::int64_t n = std::min(count, most);
  std::vector<std::int64_t> positions;
  positions.reserve(static_cast<std::size_t>(n));
  for (std::int64_t i = 1; i <= n; ++i) positions.push_back((count * i + n - 1) / n);
  return positions;
}

std::vector<LaneShare> overlapped(std::span<const LaneTimes> lanes) {
  double end = std::numeric_limits<double>::infinity();
  for (const LaneTimes& lane : lanes) end = std::min(end, lane.seconds.back());
  std::vector<LaneShare> shares;
  shares.reserve(lanes.size());
  for (const LaneTimes& lane : lanes) {
    LaneShare share{};
    for (std::size_t i = 0; i < lane.seconds.size() && lane.seconds[i] <= end; ++i) {
      share = {lane.done[i], lane.seconds[i]};
    }
    shares.push_back(share);
  }
  return shares;
}

std::vector<std::int64_t> balanced(std::int64_t calls, std::span<const double> seconds) {
  const double span = static_cast<double>(calls + 1) * *std::max_element(seconds.begin(), seconds.end());
  std::vector<std::int64_t> counts;
  counts.reserve(seconds.size());
  for (const double each : seconds) {
    const double count = std::min(std::ceil(span / each), static_cast<double>(kMostOperations));
    counts.push_back(std::max<std::int64_t>(2, static_cast<std::int64_t>(count)));
  }
  return counts;
}

std::int64_t most_balanced_calls(std::span<const double> seconds) {
  const auto [fastest, slowest] = std::minmax_element(seconds.begin(), seconds.end());
  const double calls = static_cast<double>(kMostOperations) * *fastest / *slowest - 1.0;
  return static_cast<std::int64_t>(std::clamp(calls, 1.0, static_cast<double>(kMostBehindGate)));
}

}  // namespace spillway::calibrate::gpu
