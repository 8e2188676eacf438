// Select-N's coordinator: intervals of GPUs on one bus.
#include "policies/parts/interval_coordinator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// 40 layers of 0.6 GB, iterations of 0.5 s: 1.2 GB/s for each layer on the host.
BusUser large(std::int32_t least = 1, std::int32_t most = 40) {
  return {.layers = 40, .layer = Bytes(600'000'000), .iteration = Duration(500'000'000), .least = least, .most = most};
}
constexpr BytesPerSecond kBus{24e9};

// Fewer than 20 layers in all. (4, 4) has 20; 19 is (3, 6) or (6, 3): 13 + 6 layers. The newcomer, the second, has the
// smaller one: intervals of 6 and 3. It loads 19 * 1.2 = 22.8 GB/s.
TEST(IntervalCoordinator, TwoEqualGpus_ShareTheBus) {
  const std::vector<BusUser> gpus{large(), large()};
  const BusChoice choice = coordinate_intervals(gpus, kBus);
  EXPECT_THAT(choice.intervals, ElementsAre(6, 3));
  EXPECT_DOUBLE_EQ(choice.rate.value(), 22.8e9);
}

// The paper's listing counts L / i layers where whole ones are streamed: of all pairs below the bus it takes that with
// the largest sum, (3, 7) with 19.05, because 40 / 3 + 40 / 6 are 20. There 13 + 5 layers are on the host, one fewer
// than at (3, 6).
TEST(IntervalCoordinator, TheListingOfThePaper_LeavesOneLayerMoreOnTheGpu) {
  std::pair<int, int> listing;
  double most = 0.0;
  for (int first = 1; first <= 40; ++first) {
    for (int second = first; second <= 40; ++second) {
      const double layers = 40.0 / first + 40.0 / second;
      if (layers * 1.2 >= 24.0 || layers <= most) continue;
      most = layers;
      listing = {first, second};
    }
  }
  EXPECT_EQ(listing, (std::pair{3, 7}));
  const BusChoice choice = coordinate_intervals(std::vector<BusUser>{large(), large()}, kBus);
  const double at_listing = streaming_rate(large(), 3).value() + streaming_rate(large(), 7).value();
  EXPECT_DOUBLE_EQ(choice.rate.value() - at_listing, 1.2e9);
}

// Alone, at most 19 layers: an interval of 3 leaves 13, one of 2 leaves 20.
TEST(IntervalCoordinator, AloneTheSmallestThatTheBusCarries) {
  const std::vector<BusUser> gpus{large()};
  EXPECT_THAT(coordinate_intervals(gpus, kBus).intervals, ElementsAre(3));
  EXPECT_THAT(coordinate_intervals(gpus, BytesPerSecond(100e9)).intervals, ElementsAre(1));
  const std::vector<BusUser> bounded{large(5, 8)};
  EXPECT_THAT(coordinate_intervals(bounded, kBus).intervals, ElementsAre(5));
}

// The first must stay at 8 to 10, so at 5 to 4 layers. The second may have 14 beside 5, so 13 at an interval of 3.
TEST(IntervalCoordinator, IntervalsStayWithinTheBoundsOfTheirRequests) {
  const std::vector<BusUser> gpus{large(8, 10), large()};
  EXPECT_THAT(coordinate_intervals(gpus, kBus).intervals, ElementsAre(8, 3));
}

// 4.6: two models of 13B on one bus need an interval of 21 at least, and memory allows 5.
TEST(IntervalCoordinator, NoChoice_NamesTheBus) {
  const std::vector<BusUser> gpus{large(1, 3), large(1, 3)};
  const BusChoice choice = coordinate_intervals(gpus, kBus);
  EXPECT_THAT(choice.intervals, IsEmpty());
  // 13 + 13 layers.
  EXPECT_DOUBLE_EQ(choice.rate.value(), 31.2e9);
  EXPECT_THAT(choice.refused, HasSubstr("need 31.20 GB/s even at their largest intervals, and it carries 24.00 GB/s"));
}

TEST(IntervalCoordinator, ARequestThatNeedsTooMuch_IsRefused) {
  const std::vector<BusUser> gpus{large(), large(6, 5)};
  const BusChoice choice = coordinate_intervals(gpus, kBus);
  EXPECT_THAT(choice.intervals, IsEmpty());
  EXPECT_THAT(choice.refused, HasSubstr("SLO needs an interval of 6 or more, its memory one of 5 or less"));
}

// An equal split goes before the smaller newcomer: 10 layers each, below 24.1 GB/s.
TEST(IntervalCoordinator, EqualSplitsGoFirst) {
  const std::vector<BusUser> gpus{large(), large()};
  EXPECT_THAT(coordinate_intervals(gpus, BytesPerSecond(24.1e9)).intervals, ElementsAre(4, 4));
}

/// Every combination, one after the other.
std::vector<std::int32_t> by_trial(const std::vector<BusUser>& gpus, double bus) {
  std::vector<std::int32_t> at;
  at.reserve(gpus.size());
  for (const BusUser& gpu : gpus) at.push_back(gpu.least);
  std::vector<std::int32_t> best;
  std::vector<std::int64_t> best_rank;
  for (;;) {
    double rate = 0.0;
    std::int64_t bytes = 0;
    bool smallest_of_their_kind = true;
    for (std::size_t g = 0; g < gpus.size(); ++g) {
      const std::int64_t layers = gpus[g].layers / at[g];
      rate +=
          static_cast<double>(layers * gpus[g].layer.count()) / (static_cast<double>(gpus[g].iteration.count()) * 1e-9);
      bytes += layers * gpus[g].layer.count();
      if (at[g] > gpus[g].least && gpus[g].layers / (at[g] - 1) == layers) smallest_of_their_kind = false;
    }
    if (rate < bus && smallest_of_their_kind) {
      std::vector<std::int64_t> rank{-bytes, *std::ranges::max_element(at) - *std::ranges::min_element(at)};
      rank.insert(rank.end(), at.rbegin(), at.rend());
      if (best.empty() || rank < best_rank) {
        best = at;
        best_rank = rank;
      }
    }
    std::size_t g = 0;
    while (g < gpus.size() && at[g] == gpus[g].most) at[g] = gpus[g].least, ++g;
    if (g == gpus.size()) return best;
    ++at[g];
  }
}

TEST(IntervalCoordinator, ChoosesAsATrialOfAllDoes) {
  std::mt19937_64 random(3);
  const auto between = [&random](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  std::int64_t refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<BusUser> gpus(static_cast<std::size_t>(between(1, 4)));
    const bool equal = between(0, 1) == 0;
    for (BusUser& gpu : gpus) {
      gpu.layers = equal ? 12 : static_cast<std::int32_t>(between(2, 14));
      gpu.layer = Bytes(equal ? 600 : between(1, 1'000));
      gpu.iteration = Duration(equal ? 500 : between(100, 1'000));
      gpu.least = static_cast<std::int32_t>(between(1, gpu.layers));
      gpu.most = static_cast<std::int32_t>(between(gpu.least, gpu.layers));
    }
    const double bus = static_cast<double>(between(1, 60)) * 1e9;
    const std::vector<std::int32_t> expected = by_trial(gpus, bus);
    ASSERT_EQ(coordinate_intervals(gpus, BytesPerSecond(bus)).intervals, expected) << "round " << round;
    refused += expected.empty() ? 1 : 0;
  }
  EXPECT_GT(refused, 20);
  EXPECT_LT(refused, 300);
}

}  // namespace
}  // namespace spillway
