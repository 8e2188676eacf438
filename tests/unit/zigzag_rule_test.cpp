// Compares FlexGen's steps in the executor with the schedule written as plain sums and maxima.
#include "policies/parts/zigzag_rule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/core/units.hpp"
#include "sim/exec/executor.hpp"

namespace spillway {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAreArray;

constexpr Duration ns(std::int64_t count) { return Duration(count); }

/// A copy with as many bytes as nanoseconds, so that a copy of 0 ns has no bytes and is not made. `tag` identifies it.
Copy copy(Stream stream, std::int64_t time, std::int32_t tag = 0) {
  const std::int64_t launch = time / 3;
  return {.stream = stream, .bytes = Bytes(time), .launch = ns(launch), .transfer = ns(time - launch), .tag = tag};
}

ZigzagCopies copies(std::int64_t weights, std::int64_t kv_load, std::int64_t hidden_load, std::int64_t kv_store,
                    std::int64_t hidden_store, std::int32_t tag = 0) {
  return {.weights = copy(Stream::h2d, weights, tag),
          .kv_load = copy(Stream::h2d, kv_load, tag + 1),
          .hidden_load = copy(Stream::h2d, hidden_load, tag + 2),
          .kv_store = copy(Stream::d2h, kv_store, tag + 3),
          .hidden_store = copy(Stream::d2h, hidden_store, tag + 4)};
}

/// Records (time, tag) of every copy issued, and the times at which steps may start.
class Recorder final : public LayerRule, private CopySink {
 public:
  explicit Recorder(LayerRule& rule) : rule_(rule) {}
  void watch(const Executor& clock) { clock_ = &clock; }

  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    sink_ = &sink;
    rule_.at_layer_start(layer, sub_batch, *this);
    note_start(layer, sub_batch, true);
  }
  void at_copy_done(const Copy& done, CopySink& sink) override {
    sink_ = &sink;
    rule_.at_copy_done(done, *this);
    note_start(layer_, sub_batch_, false);
  }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t sub_batch) const override {
    return rule_.ready(layer, sub_batch);
  }

  std::vector<std::pair<std::int64_t, std::int32_t>> issued{};
  std::vector<std::int64_t> starts{};

 private:
  void issue(const Copy& copy) override {
    issued.emplace_back(clock_->now().ns(), copy.tag);
    sink_->issue(copy);
  }
  void note_start(std::int32_t layer, std::int32_t sub_batch, bool reached) {
    layer_ = layer;
    sub_batch_ = sub_batch;
    waits_ = waits_ || reached;
    if (!waits_ || !rule_.ready(layer, sub_batch)) return;
    waits_ = false;
    starts.push_back(clock_->now().ns());
  }

  LayerRule& rule_;
  const Executor* clock_ = nullptr;
  CopySink* sink_ = nullptr;
  std::int32_t layer_ = 0;
  std::int32_t sub_batch_ = 0;
  bool waits_ = false;
};

/// Runs an iteration that begins at `start`. Returns the time at which it finishes.
std::int64_t iterate(Executor& executor, const IterationPlan& plan, std::int64_t start) {
  executor.begin(plan, SimTime(start));
  const RunOutcome outcome = executor.run(plan, kNever);
  EXPECT_TRUE(outcome.finished);
  return outcome.time.ns();
}

struct Example {
  // Two layers with two micro-batches. Each step has 10 ns of compute.
  const std::vector<ZigzagCopies> steps{copies(8, 3, 1, 7, 2), copies(0, 4, 1, 11, 2),  //
                                        copies(25, 5, 1, 7, 2), copies(0, 6, 1, 7, 2)};
  const std::vector<SubBatchTimes> sub_batches = std::vector<SubBatchTimes>(2, {.gpu = ns(10)});
  ZigzagRule rule{};
  Recorder recorder{rule};
  Executor executor{};
  const IterationPlan plan{2, sub_batches, &recorder};

  Example() { recorder.watch(executor); }
};

TEST(ZigzagRule, TwoLayersOfTwoMicroBatches) {
  // Before the first step, (0,0) loads weights 8, KV 3 and hidden states 1: 12 ns.
  //   (0,0) from 12: H2D weights of layer 1, KV and hidden of (0,1) = 25 + 4 + 1 = 30         -> 42
  //   (0,1) from 42: H2D 5 + 1, D2H stores of (0,0) = 7 + 2 = 9, compute 10                   -> 52
  //   (1,0) from 52: H2D 6 + 1, D2H 11 + 2 = 13                                               -> 65
  //   (1,1) from 65: D2H 9, compute 10                                                        -> 75
  // The next iteration loads H2D 12 beside D2H 7 + 2 of (1,1), so its first step starts at 75 + 12 = 87.
  Example e;
  e.rule.begin_iteration(2, 2, e.steps);
  EXPECT_EQ(iterate(e.executor, e.plan, 0), 75);
  EXPECT_THAT(e.recorder.starts, ElementsAre(12, 42, 52, 65));
  EXPECT_EQ(e.executor.use(Stream::compute).stall, ns(12 + 20 + 0 + 3));
  e.rule.begin_iteration(2, 2, e.steps);
  EXPECT_EQ(iterate(e.executor, e.plan, 75), 150);
  EXPECT_THAT(e.recorder.starts, ElementsAre(12, 42, 52, 65, 87, 117, 127, 140));
  EXPECT_EQ(e.executor.use(Stream::h2d).bytes, 2 * Bytes(8 + 25 + 3 + 4 + 5 + 6 + 4));
  EXPECT_EQ(e.executor.use(Stream::d2h).bytes, 2 * Bytes(7 + 11 + 7 + 3 * 2) + Bytes(7 + 2));
}

TEST(ZigzagRule, AnIterationThatIsKnownToFollow_IsLoadedByTheLastLayer) {
  // The steps are as above up to 52. There (1,0) also loads layer 0's weights of 8: 8 + 6 + 1 = 15 -> 67. (1,1) from
  // 67: H2D 3 + 1, D2H 9, compute 10 -> 77. The next (0,0) starts at once, with D2H 9 beside H2D 30 -> 107. The rest is
  // as above, because no iteration follows: (0,1) from 107, (1,0) from 117, (1,1) from 130, finish at 140.
  Example e;
  e.rule.begin_iteration(2, 2, e.steps, e.steps[0]);
  EXPECT_EQ(iterate(e.executor, e.plan, 0), 77);
  e.rule.begin_iteration(2, 2, e.steps);
  EXPECT_EQ(iterate(e.executor, e.plan, 77), 140);
  EXPECT_THAT(e.recorder.starts, ElementsAre(12, 42, 52, 67, 77, 107, 117, 130));
}

// The example of TwoLayersOfTwoMicroBatches, 20 ns later: KV of 20 ns moves to the host before everything else.
TEST(ZigzagRule, KvThatMoves_GoesBeforeTheFirstStep) {
  Example plain;
  plain.rule.begin_iteration(2, 2, plain.steps);
  const std::int64_t end = iterate(plain.executor, plain.plan, 0);
  Example moved;
  moved.rule.begin_iteration(2, 2, moved.steps, std::nullopt, false, copy(Stream::d2h, 20, 99));
  EXPECT_EQ(iterate(moved.executor, moved.plan, 0), end + 20);
  std::vector<std::pair<std::int64_t, std::int32_t>> later{{0, 99}};
  for (const auto& [time, tag] : plain.recorder.issued) later.emplace_back(time + 20, tag);
  EXPECT_EQ(moved.recorder.issued, later);
}

// KV of another GPU has links of its own. One layer, one micro-batch, two iterations. The first computes from 9, when
// weights of 9 ns and KV of 5 ns are there, until 19; meanwhile the next weights come, until 18, and the next KV, until
// 14. The second computes from 19 until 29, and the KV of the first step is stored, 12 ns on peer_out.
TEST(ZigzagRule, KvOfAnotherGpu_CrossesItsOwnLinks) {
  ZigzagCopies step{.weights = copy(Stream::h2d, 9, 1),
                    .kv_load = copy(Stream::peer_in, 5, 2),
                    .kv_store = copy(Stream::peer_out, 12, 3)};
  const std::vector<ZigzagCopies> steps{step};
  const std::vector<SubBatchTimes> compute(1, {.gpu = ns(10)});
  ZigzagRule rule;
  Recorder recorder(rule);
  Executor executor;
  recorder.watch(executor);
  const IterationPlan plan{1, compute, &recorder};
  rule.begin_iteration(1, 1, steps, step);
  EXPECT_EQ(iterate(executor, plan, 0), 19);
  rule.begin_iteration(1, 1, steps);
  EXPECT_EQ(iterate(executor, plan, 19), 29);
  const std::vector<std::pair<std::int64_t, std::int32_t>> issued{{0, 1}, {0, 2}, {9, 1}, {9, 2}, {19, 3}};
  EXPECT_EQ(recorder.issued, issued);
}

TEST(ZigzagRule, EndOfABlock_DropsWhatTheLastStepWouldStore) {
  Example e;
  e.rule.begin_iteration(2, 2, e.steps);
  iterate(e.executor, e.plan, 0);
  e.rule.end_block();
  const std::vector<ZigzagCopies> none(4);
  e.rule.begin_iteration(2, 2, none);
  EXPECT_EQ(iterate(e.executor, e.plan, 75), 75 + 4 * 10);
  EXPECT_EQ(e.executor.use(Stream::d2h).bytes, Bytes(7 + 11 + 7 + 3 * 2));
}

TEST(ZigzagRule, TrailingCopies_HoldTheNextFirstStep) {
  // One layer with two micro-batches, compute 10. From 10 to 50, beside (0,1), the 40 of (0,0) are stored. The
  // iteration ends at 20. The next iteration has nothing to load before its first step, but still waits until 50. If it
  // begins at 60, it does not wait.
  const std::vector<ZigzagCopies> steps{copies(0, 0, 0, 40, 0), {}};
  const std::vector<SubBatchTimes> sub_batches(2, {.gpu = ns(10)});
  for (const auto& [begin, start] : {std::pair<std::int64_t, std::int64_t>{20, 50}, {60, 60}}) {
    ZigzagRule rule;
    Executor executor;
    const IterationPlan plan{1, sub_batches, &rule};
    rule.begin_iteration(1, 2, steps);
    EXPECT_EQ(iterate(executor, plan, 0), 20);
    rule.begin_iteration(1, 2, steps);
    EXPECT_EQ(iterate(executor, plan, begin), start + 20);
  }
}

TEST(ZigzagRule, RandomBlocks_TakeSumsAndMaxima) {
  std::mt19937_64 random(20230723);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  const auto time = [&] { return draw(0, 2) == 0 ? 0 : draw(1, 40); };
  std::int32_t tag = 0;
  const auto draw_copies = [&] { return copies(time(), time(), time(), time(), time(), tag += 5); };

  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const auto layers = static_cast<std::int32_t>(draw(1, 5));
    const auto micro_batches = static_cast<std::int32_t>(draw(1, 4));
    const auto per_layer = static_cast<std::size_t>(micro_batches);
    const std::size_t count = static_cast<std::size_t>(layers) * per_layer;
    ZigzagRule rule;
    Recorder recorder(rule);
    Executor executor;
    recorder.watch(executor);

    // The schedule in plain arithmetic: `synchronised` is when all copies so far have ended, `to_store` what the last
    // step has yet to store.
    std::vector<std::pair<std::int64_t, std::int32_t>> issued;
    std::vector<std::int64_t> starts;
    std::int64_t synchronised = 0;
    std::vector<Copy> to_store;
    std::optional<ZigzagCopies> promised;
    // Returns when the last of the copies that start at t ends.
    const auto move = [&](std::int64_t t, const std::vector<Copy>& all) {
      std::int64_t h2d = 0;
      std::int64_t d2h = 0;
      for (const Copy& c : all) {
        if (c.bytes == Bytes(0)) continue;
        issued.emplace_back(t, c.tag);
        (c.stream == Stream::h2d ? h2d : d2h) += c.bytes.count();
      }
      return t + std::max(h2d, d2h);
    };

    std::int64_t finish = 0;
    const auto iterations = draw(1, 4);
    for (std::int64_t iteration = 0; iteration < iterations; ++iteration) {
      std::vector<ZigzagCopies> steps(count);
      for (ZigzagCopies& step : steps) step = draw_copies();
      if (promised) steps[0] = *promised;
      const bool loaded = promised.has_value();
      promised.reset();
      if (iteration + 1 < iterations && draw(0, 1) == 0) promised = draw_copies();

      std::vector<std::vector<Duration>> compute(per_layer);
      std::vector<SubBatchTimes> sub_batches(per_layer);
      for (std::size_t k = 0; k < per_layer; ++k) {
        for (std::int32_t j = 0; j < layers; ++j) compute[k].push_back(ns(time()));
        sub_batches[k] = {.before = ns(time()), .gpu = std::span<const Duration>(compute[k]), .after = ns(time())};
      }

      const std::int64_t begin = finish + time();
      std::int64_t now = begin;
      for (const SubBatchTimes& sub : sub_batches) now += sub.before.count();
      now = std::max(now, synchronised);
      if (!loaded) {
        std::vector<Copy> first{steps[0].weights, steps[0].kv_load, steps[0].hidden_load};
        first.insert(first.end(), to_store.begin(), to_store.end());
        to_store.clear();
        now = move(now, first);
      }
      for (std::size_t step = 0; step < count; ++step) {
        starts.push_back(now);
        std::vector<Copy> beside = std::exchange(to_store, {steps[step].kv_store, steps[step].hidden_store});
        if (step % per_layer == 0) {
          if (step + per_layer < count) beside.push_back(steps[step + per_layer].weights);
          if (step + per_layer == count && promised) beside.push_back(promised->weights);
        }
        const ZigzagCopies* after = step + 1 < count ? &steps[step + 1] : promised ? &*promised : nullptr;
        if (after != nullptr) beside.insert(beside.end(), {after->kv_load, after->hidden_load});
        synchronised = move(now, beside);
        finish = now + compute[step % per_layer][step / per_layer].count();
        now = std::max(finish, synchronised);
      }
      for (const SubBatchTimes& sub : sub_batches) finish += sub.after.count();

      rule.begin_iteration(layers, micro_batches, steps, promised);
      EXPECT_EQ(iterate(executor, {layers, sub_batches, &recorder}, begin), finish);
      if (!promised && draw(0, 2) == 0) {
        rule.end_block();
        to_store.clear();
      }
    }
    EXPECT_EQ(recorder.starts, starts);
    EXPECT_THAT(recorder.issued, UnorderedElementsAreArray(issued));
  }
}

TEST(ZigzagRule, Misuse_IsABrokenInvariant) {
  Example e;
  EXPECT_THROW(e.rule.begin_iteration(2, 3, e.steps), InvariantError);
  e.rule.begin_iteration(2, 2, e.steps);
  EXPECT_THROW(e.rule.begin_iteration(2, 2, e.steps), InvariantError);
  EXPECT_THROW(e.rule.end_block(), InvariantError);
  Example wrong;
  std::vector<ZigzagCopies> steps = wrong.steps;
  steps[0].kv_load.stream = Stream::d2h;
  wrong.rule.begin_iteration(2, 2, steps);
  EXPECT_THROW(iterate(wrong.executor, wrong.plan, 0), InvariantError);
}

}  // namespace
}  // namespace spillway
