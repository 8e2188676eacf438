// Compares iterations that stream weights with Select-N's and DeepSpeed's formulas and with a simulation in steps of
// one nanosecond. Also tests the promises of the rule.
#include "policies/parts/weight_stream.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/exec/executor.hpp"

namespace spillway {
namespace {

constexpr Duration ns(std::int64_t count) { return Duration(count); }

Copy weights(std::int64_t transfer, std::int64_t launch = 0, std::int64_t bytes = 1200) {
  return {.bytes = Bytes(bytes), .launch = ns(launch), .transfer = ns(transfer)};
}

/// Runs one iteration, starting at the executor's time. Returns its duration.
Duration iterate(Executor& executor, WeightStream& rule, std::int32_t layers,
                 const std::vector<SubBatchTimes>& sub_batches) {
  const IterationPlan plan{layers, sub_batches, &rule};
  const SimTime start = executor.now();
  executor.begin(plan, start);
  return executor.run(plan, kNever).time - start;
}

Duration iterate(std::int32_t layers, const WeightStreaming& streaming, std::int64_t compute) {
  WeightStream rule(layers);
  rule.stream(streaming);
  Executor executor;
  return iterate(executor, rule, layers, {{.gpu = ns(compute)}});
}

/// Adds up the groups of layers in Select-N's Fig. 7. Interval 1 is DeepSpeed's pipeline.
std::int64_t group_by_group(std::int32_t layers, std::int32_t interval, std::int64_t c, std::int64_t x) {
  if (interval == 0 || interval > layers) return layers * c;
  std::int64_t now = 0;
  if (interval == 1) {
    now = x;
    for (std::int32_t layer = 0; layer + 1 < layers; ++layer) now += std::max(c, x);
    return now + c;
  }
  std::int32_t left = layers;
  for (; left >= interval; left -= interval) now = std::max(now + (interval - 1) * c, now + x) + c;
  return now + left * c;
}

// Every fourth of ten layers is on the host: layers 3 and 7. A group's first layer issues the copy of its last one.
TEST(WeightStream, LayersAheadOfTheOneOnTheHost_AreQuiet) {
  struct Ignored final : CopySink {
    void issue(const Copy&) override {}
  } sink;
  WeightStream rule(10);
  rule.stream({.interval = 4, .weights = weights(10)});
  EXPECT_EQ(rule.quiet(0), 0) << "the copy of layer 3";
  rule.at_layer_start(0, 0, sink);
  EXPECT_EQ(rule.quiet(1), 2);
  EXPECT_EQ(rule.quiet(2), 1);
  EXPECT_EQ(rule.quiet(3), 0) << "it may wait";
  EXPECT_EQ(rule.quiet(4), 0) << "the copy of layer 7";
  rule.at_layer_start(4, 0, sink);
  EXPECT_EQ(rule.quiet(5), 2);
  EXPECT_GE(rule.quiet(8), 2) << "no copy is left";
}

// A copy of one byte has no half: all of it, its time included, follows when its buffer is free.
TEST(WeightStream, Prefetch_OfLessThanAByte_IsNoPrefetch) {
  const auto length = [](double fraction) {
    return iterate(4, {.interval = 1, .weights = weights(10, 3, 1), .prefetch_fraction = fraction}, 6);
  };
  EXPECT_EQ(length(0.4), length(0.0));  // 0.4 of a byte rounds to none
}

TEST(WeightStream, Iteration_TakesSelectNsClosedForm) {
  for (const std::int32_t layers : {1, 2, 3, 7, 32, 40}) {
    for (std::int32_t interval = 0; interval <= layers + 1; ++interval) {
      for (const std::int64_t c : {0, 1, 5, 997}) {
        for (const std::int64_t x : {0, 1, 4, 31, 997, 12'345}) {
          const Duration expected = ns(group_by_group(layers, interval, c, x));
          EXPECT_EQ(streamed_iteration(layers, interval, ns(c), ns(x)), expected)
              << layers << " layers, interval " << interval << ", compute " << c << ", transfer " << x;
          EXPECT_EQ(iterate(layers, {.interval = interval, .weights = weights(x)}, c), expected)
              << layers << " layers, interval " << interval << ", compute " << c << ", transfer " << x;
        }
      }
    }
    EXPECT_EQ(streamed_iteration(layers, kAllResident, ns(7), ns(100)), 7 * ns(layers));
    EXPECT_EQ(iterate(layers, {.weights = weights(100)}, 7), 7 * ns(layers));
  }
}

TEST(WeightStream, Iteration_OfThePapersExample) {
  // L = 32, t_c = 1, t_x = 4. Interval 2: 16 * (max(1, 4) + 1) = 80. Interval 3: 10 groups of 4 + 1 and a tail of 2
  // layers, 52. Interval 4: 8 * (max(3, 4) + 1) = 40.
  const std::map<std::int32_t, std::int64_t> expected{{2, 80}, {3, 52}, {4, 40}};
  for (const auto& [interval, time] : expected) {
    EXPECT_EQ(streamed_iteration(32, interval, ns(1), ns(4)), ns(time));
    EXPECT_EQ(iterate(32, {.interval = interval, .weights = weights(4)}, 1), ns(time));
  }
}

TEST(WeightStream, ClosedForm_NeverRisesWithTheInterval) {
  for (std::int32_t layers = 1; layers <= 40; ++layers) {
    for (const std::int64_t c : {0, 1, 3, 10}) {
      for (std::int64_t x = 0; x <= 120; x += 7) {
        for (std::int32_t interval = 1; interval <= layers; ++interval) {
          EXPECT_GE(streamed_iteration(layers, interval, ns(c), ns(x)),
                    streamed_iteration(layers, interval + 1, ns(c), ns(x)));
        }
      }
    }
  }
}

TEST(WeightStream, Launch_CountsAsTransfer) {
  // i = 4: 8 groups of max(3 * 10, 5 + 40) + 10 = 440. i = 1: 45 + 31 * max(10, 45) + 10 = 1450.
  EXPECT_EQ(iterate(32, {.interval = 4, .weights = weights(40, 5)}, 10), ns(440));
  EXPECT_EQ(iterate(32, {.interval = 1, .weights = weights(40, 5)}, 10), ns(1450));
}

TEST(WeightStream, Weights_ServeEverySubBatchOfTheirLayer) {
  // Sub-batches take 3 and 4 ns, so a layer takes 7 ns. t_x = 20, L = 5. Interval 2: 2 * (20 + 7) + 7 = 61. Interval 1:
  // 20 + 4 * 20 + 7 = 107. Each layer is copied once, not once per sub-batch: 2 and 5 copies.
  const std::vector<SubBatchTimes> two{{.gpu = ns(3)}, {.gpu = ns(4)}};
  const auto expect = [&](std::int32_t interval, std::int64_t time, std::int64_t copies) {
    WeightStream rule(5);
    rule.stream({.interval = interval, .weights = weights(20)});
    Executor executor;
    EXPECT_EQ(iterate(executor, rule, 5, two), ns(time));
    EXPECT_EQ(executor.use(Stream::h2d).bytes, Bytes(1200 * copies));
    EXPECT_EQ(executor.use(Stream::d2h).bytes, Bytes(0));
  };
  expect(2, 61, 2);
  expect(1, 107, 5);
}

TEST(WeightStream, LayersOfTwoIntervals_StreamInOneIteration) {
  // L = 6, intervals 2 and 3, t_c = 10, t_x = 50, one buffer. Layers 2, 3, 4 and 6 are copied. Each copy starts when
  // the copied layer before it ends: 2 computes from 50 to 60, 3 from 110, 4 from 170 to 180, 6 from 230 to 240. With
  // interval 4 alone, layer 4 computes from 50 to 60, and two layers follow. Interval 1 streams all layers anyway, and
  // interval 2 includes all layers of interval 4.
  const auto time = [](std::int32_t interval, std::int32_t returning) {
    return iterate(6, {.interval = interval, .returning = returning, .weights = weights(50)}, 10);
  };
  EXPECT_EQ(time(2, 3), ns(240));
  EXPECT_EQ(time(3, 2), ns(240));
  EXPECT_EQ(time(4, kAllResident), ns(80));
  EXPECT_EQ(time(kAllResident, 4), ns(80));
  EXPECT_EQ(time(1, 4), time(1, kAllResident));
  EXPECT_EQ(time(2, 4), time(2, kAllResident));
}

TEST(WeightStream, NothingOutlivesAnIteration_AndChangesApplyToTheNextOne) {
  // L = 6, t_c = 10, t_x = 50. Interval 3: 2 * (50 + 10) = 120. Interval 1: 50 + 5 * 50 + 10 = 310. Interval 2 with
  // copies of half the time: 3 * (25 + 10) = 105. Interval 3 with two buffers: the copies end at 50 and 100, the second
  // group at 110, and later iterations are no shorter. No streaming: 60.
  WeightStream rule(6);
  Executor executor;
  const std::vector<SubBatchTimes> times{{.gpu = ns(10)}};
  const auto expect = [&](const WeightStreaming& streaming, std::int64_t time) {
    rule.stream(streaming);
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(iterate(executor, rule, 6, times), ns(time));
      EXPECT_EQ(executor.pending_copies(Stream::h2d), 0U);
    }
  };
  EXPECT_EQ(iterate(executor, rule, 6, times), ns(60));
  expect({.interval = 3, .weights = weights(50)}, 120);
  expect({.interval = 1, .weights = weights(50)}, 310);
  expect({.interval = 2, .weights = weights(25)}, 105);
  expect({.interval = 3, .weights = weights(50), .double_buffer = true}, 110);
  expect({.interval = 0}, 60);

  // A change in the middle of an iteration does not affect that iteration.
  const IterationPlan plan{6, times, &rule};
  rule.stream({.interval = 3, .weights = weights(50)});
  const SimTime start = executor.now();
  executor.begin(plan, start);
  EXPECT_FALSE(executor.run(plan, start + ns(55)).finished);
  rule.stream({.interval = 1, .weights = weights(50)});
  EXPECT_EQ(executor.run(plan, kNever).time, start + ns(120));
  EXPECT_EQ(iterate(executor, rule, 6, times), ns(310));
}

TEST(WeightStream, DeepSpeed_PrefetchesAFractionOfTheNextLayer) {
  // L = 32, t_x = 1200, prefetch fraction p. p = 1: 1200 + 31 * max(t_c, 1200) + t_c. p = 0: 32 * (t_c + 1200). p =
  // 1/12 copies 100 ahead and 1100 when the layer is about to start: 1200 + 31 * (max(t_c, 100) + 1100) + t_c.
  const auto time = [](double fraction, std::int64_t compute, std::int64_t launch = 0) {
    return iterate(32, {.interval = 1, .weights = weights(1200, launch), .prefetch_fraction = fraction}, compute);
  };
  EXPECT_EQ(time(1.0, 500), ns(38'900));         // 1200 + 31 * 1200 + 500
  EXPECT_EQ(time(1.0, 2000), ns(65'200));        // 1200 + 32 * 2000
  EXPECT_EQ(time(0.0, 500), ns(54'400));         // 32 * 1700
  EXPECT_EQ(time(0.0, 2000), ns(102'400));       // 32 * 3200
  EXPECT_EQ(time(1.0 / 12.0, 500), ns(51'300));  // 1200 + 31 * (500 + 1100) + 500
  EXPECT_EQ(time(1.0 / 12.0, 60), ns(38'460));   // 1200 + 31 * (100 + 1100) + 60: the link is always busy
  // Every copy has a launch: the first layer takes 7 more, and each other layer max(500, 7 + 100) + 7 + 1100.
  EXPECT_EQ(time(1.0 / 12.0, 500, 7), ns(51'300 + 7 + 31 * 7));
  EXPECT_EQ(time(1.0 / 12.0, 60, 7), ns(38'460 + 7 + 31 * 14));
  // A share that rounds to zero or to the whole leaves one copy.
  EXPECT_EQ(time(1e-9, 500, 7), ns(54'400 + 32 * 7));
  EXPECT_EQ(time(1.0 - 1e-9, 500, 7), ns(38'900 + 32 * 7));
}

// As above with 30 more for what is fetched on demand. p = 1: the first layer alone. p = 0: every layer. p = 1/12: 1200
// + 30 for the first, and for each of 31 others max(500, 100) + 30 + 1100, then the last one's 500.
TEST(WeightStream, Demand_IsPaidByWhatWasNotPrefetched) {
  const auto time = [](double fraction) {
    return iterate(32, {.interval = 1, .weights = weights(1200), .prefetch_fraction = fraction, .demand = ns(30)}, 500);
  };
  EXPECT_EQ(time(1.0), ns(38'900 + 30));
  EXPECT_EQ(time(0.0), ns(54'400 + 32 * 30));
  EXPECT_EQ(time(1.0 / 12.0), ns(51'300 + 32 * 30));
}

TEST(WeightStream, PrefetchFraction_AtLargerIntervals) {
  // L = 8, interval 4, t_c = 10, t_x = 60. A group's first layer issues half of the copy, which ends when the group's
  // last layer is about to start. That layer waits 30 for the other half: 2 * (30 + 30 + 10) = 140.
  EXPECT_EQ(iterate(8, {.interval = 4, .weights = weights(60), .prefetch_fraction = 0.5}, 10), ns(140));
}

/// Records the copies that a rule issues, in order.
class Issued final : public CopySink {
 public:
  void issue(const Copy& copy) override { copies.push_back(copy); }
  std::vector<Copy> copies{};
};

TEST(WeightStream, Parts_AddUpToTheWhole) {
  const Copy whole = weights(777, 3, 1001);
  for (const double fraction : {0.0, 1e-9, 1.0 / 12.0, 0.3, 0.5, 0.9, 1.0}) {
    WeightStream rule(4);
    rule.stream({.interval = 1, .weights = whole, .prefetch_fraction = fraction});
    Issued sink;
    std::size_t arrived = 0;
    for (std::int32_t layer = 0; layer < 4; ++layer) {
      rule.at_layer_start(layer, 0, sink);
      for (; arrived < sink.copies.size(); ++arrived) rule.at_copy_done(Copy(sink.copies[arrived]), sink);
      EXPECT_TRUE(rule.ready(layer, 0));
      EXPECT_TRUE(rule.ready(layer, 1));
      EXPECT_EQ(rule.ready(layer + 1, 0), layer < 3 && fraction > 0.999);
    }
    std::map<std::int32_t, Copy> sums;
    for (const Copy& copy : sink.copies) {
      EXPECT_EQ(copy.stream, Stream::h2d);
      EXPECT_EQ(copy.launch, ns(3));
      EXPECT_GT(copy.bytes, Bytes(0));
      sums[copy.layer].bytes += copy.bytes;
      sums[copy.layer].transfer += copy.transfer;
    }
    ASSERT_EQ(sums.size(), 4U);
    for (const auto& [layer, sum] : sums) {
      EXPECT_EQ(sum.bytes, Bytes(1001)) << "layer " << layer << ", fraction " << fraction;
      EXPECT_EQ(sum.transfer, ns(777)) << "layer " << layer << ", fraction " << fraction;
    }
  }
}

/// Simulates an iteration nanosecond by nanosecond. A link moves one layer at a time into a free buffer, in order and
/// as soon as it can. The GPU computes one layer after the other. Times must be at least 1.
std::int64_t stepwise(std::int32_t layers, std::int32_t interval, std::int64_t c, std::int64_t x, int buffers) {
  const std::int32_t groups = layers / interval;
  std::int32_t started = 0;  // copies
  std::int32_t copied = 0;
  std::int32_t layer = 0;
  std::int64_t link_left = 0;
  std::int64_t compute_left = 0;
  const auto offloaded = [&] { return (layer + 1) % interval == 0; };
  for (std::int64_t now = 0;; ++now) {
    if (link_left > 0 && --link_left == 0) ++copied;
    if (compute_left > 0 && --compute_left == 0) {
      if (offloaded()) ++buffers;
      ++layer;
    }
    if (layer == layers) return now;
    if (link_left == 0 && started < groups && buffers > 0) {
      --buffers;
      ++started;
      link_left = x;
    }
    if (compute_left == 0 && (!offloaded() || copied > layer / interval)) compute_left = c;
  }
}

TEST(WeightStream, DoubleBuffer_CopiesAheadWhileABufferIsFree) {
  // L = 12, interval 4, t_c = 10, t_x = 60. The copies end at 60, 120 and 180 (the third one's buffer is free from 70
  // on), the groups at 70, 130 and 190. One buffer takes 3 * (60 + 10) = 210.
  EXPECT_EQ(iterate(12, {.interval = 4, .weights = weights(60), .double_buffer = true}, 10), ns(190));
  EXPECT_EQ(iterate(12, {.interval = 4, .weights = weights(60)}, 10), ns(210));

  for (const std::int32_t layers : {1, 2, 3, 7, 12, 32}) {
    for (std::int32_t interval = 1; interval <= layers; ++interval) {
      for (const std::int64_t c : {1, 2, 5, 9}) {
        for (const std::int64_t x : {1, 4, 9, 26, 71}) {
          const auto time = [&](bool twice) {
            return iterate(layers, {.interval = interval, .weights = weights(x), .double_buffer = twice}, c);
          };
          EXPECT_EQ(time(true), ns(stepwise(layers, interval, c, x, 2)))
              << layers << " layers, interval " << interval << ", compute " << c << ", transfer " << x;
          EXPECT_EQ(time(false), ns(stepwise(layers, interval, c, x, interval == 1 ? 2 : 1)))
              << layers << " layers, interval " << interval << ", compute " << c << ", transfer " << x;
        }
      }
    }
  }
}

TEST(WeightStream, Buffers_AreNoMoreThanTheLayersOnTheHost) {
  EXPECT_EQ(host_layers(32, 5), 6);
  EXPECT_EQ(host_layers(32, 33), 0);
  EXPECT_EQ(host_layers(32, 0), 0);
  EXPECT_EQ(host_layers(32, kAllResident), 0);
  EXPECT_EQ(staging_buffers(32, 1, false), 2);
  EXPECT_EQ(staging_buffers(32, 2, false), 1);
  EXPECT_EQ(staging_buffers(32, 2, true), 2);
  EXPECT_EQ(staging_buffers(32, 17, true), 1);
  EXPECT_EQ(staging_buffers(1, 1, true), 1);
  EXPECT_EQ(staging_buffers(32, kAllResident, true), 0);
}

TEST(WeightStream, Values_OutOfRange) {
  EXPECT_THROW(WeightStream(0), InvariantError);
  WeightStream rule(4);
  EXPECT_THROW(rule.stream({.interval = -1}), InvariantError);
  EXPECT_THROW(rule.stream({.interval = 2}), InvariantError);
  EXPECT_THROW(rule.stream({.interval = 2, .weights = weights(-1)}), InvariantError);
  EXPECT_THROW(rule.stream({.interval = 2, .weights = weights(1), .prefetch_fraction = 1.1}), InvariantError);
}

}  // namespace
}  // namespace spillway
