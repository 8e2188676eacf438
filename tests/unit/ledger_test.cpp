// The books of an instance, figure by figure, and the errors that they must detect.
#include "sim/engine/ledger.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "policies/parts/paged_space.hpp"
#include "sim/core/error.hpp"
#include "sim/engine/simulation.hpp"
#include "tests/oracle/list_source.hpp"
#include "tests/oracle/replay.hpp"
#include "tests/oracle/resting_policy.hpp"

namespace spillway {
namespace {

constexpr SimTime at_s(std::int64_t seconds) { return SimTime(seconds * 1'000'000'000); }
constexpr Duration secs(std::int64_t seconds) { return Duration(seconds * 1'000'000'000); }

double spent(const EngineTotals& totals, Resource resource) {
  return totals.resource_time[static_cast<std::size_t>(resource)];
}

/// An iteration from 0 to 10 s: 8 s of stalls, 1,001 bytes to the GPU that took 9 s, 500 bytes from it that took 5 s.
ExecutedIteration ten_seconds() {
  return {.start = at_s(0),
          .end = at_s(10),
          .alone = secs(2),
          .shares = {.compute = 2.0},
          .layer_stall = secs(8),
          .issued = {Bytes(1001), Bytes(500)},
          .copying = {secs(9), secs(5)}};
}

/// An iteration that is executed ahead of time.
void start(Ledger& ledger, const ExecutedIteration& iteration, bool short_of_kv) {
  ledger.started(iteration.start);
  ledger.executed(iteration, short_of_kv);
}

// Nothing runs from 0 to 10 s. The span begins at 5 s: only the second half is idle time of it.
TEST(Ledger, IdleTimeBeforeTheSpan_IsForgotten) {
  Ledger ledger;
  EXPECT_FALSE(ledger.advance(at_s(2), at_s(5), {}));
  EXPECT_TRUE(ledger.advance(at_s(10), at_s(5), {}));
  start(ledger, {.start = at_s(10), .end = at_s(11), .alone = secs(1), .shares = {.memory = 1.0}}, false);
  EXPECT_FALSE(ledger.advance(at_s(11), at_s(5), {.running = 1}));
  ledger.ended();
  EXPECT_EQ(spent(ledger.totals(), Resource::load), 5.0);
  EXPECT_EQ(spent(ledger.totals(), Resource::memory), 1.0);
  EXPECT_EQ(ledger.totals().iterations, 1);
}

// The same through a run: the only request before the end of the warm-up is too long and rejected, so that nothing runs
// until 10 s. 5 s of the span are idle.
TEST(Ledger, IdleTimeOfTheWarmUp_IsNotLoadOfTheRun) {
  const oracle::WatchingModel model(secs(1));
  const std::vector<RequestSpec> requests{oracle::request(at_s(2).ns(), 1000, 1000),
                                          oracle::request(at_s(10).ns(), 16, 5)};
  const PolicyInfo* policy = PolicyRegistry::instance().find("vllm");
  const Settings settings = oracle::policy_settings(*policy, {});
  oracle::ListSource source(requests);
  SimulationConfig config;
  InstanceConfig& instance = config.instances.emplace_back();
  instance.model = &model;
  instance.policy = policy;
  instance.settings = &settings;
  config.source = &source;
  instance.kv = KvLayout{Blocks(10), Blocks(0), Tokens(16), Bytes(640)};
  instance.max_model_len = Tokens(160);
  config.metrics.warmup.kind = Span::Kind::time;
  config.metrics.warmup.time = secs(5);
  const RunStatistics statistics = simulate(config).statistics;
  EXPECT_EQ(statistics.all.rejected, 1);
  EXPECT_EQ(statistics.span, secs(10)) << "from 5 s to 10 s + 5 iterations";
  EXPECT_EQ(statistics.find("load_time_fraction")->value, 0.5);
}

// At 4 s of 10 the span ends: floor(1001 * 0.4) bytes, 8 * 0.4 s of stalls, 9 * 0.4 s of copies. The iteration has not
// ended.
TEST(Ledger, AnIterationThatTheHorizonCuts_CountsInPart) {
  Ledger ledger;
  ledger.stream_layers(Blocks(7));
  EXPECT_TRUE(ledger.advance(at_s(0), at_s(0), {}));
  start(ledger, ten_seconds(), false);
  ledger.advance(at_s(4), at_s(0), {.running = 3});
  ledger.stop(at_s(4), {});
  const EngineTotals totals = ledger.totals();
  EXPECT_EQ(totals.iterations, 0);
  EXPECT_EQ(totals.moved_h2d, Bytes(400));
  EXPECT_EQ(totals.moved_d2h, Bytes(200));
  EXPECT_DOUBLE_EQ(totals.layers->stall_time, 3.2);
  EXPECT_EQ(totals.layers->h2d_busy, Duration(3'600'000'000));
  EXPECT_EQ(totals.layers->d2h_busy, secs(2));
  EXPECT_EQ(totals.busy_time, 4.0);
  EXPECT_DOUBLE_EQ(spent(totals, Resource::h2d), 3.2);
  EXPECT_EQ(totals.peak_batch, 3);
}

// The span begins at 4 s of 10: the rest counts, and the iteration ended in the span.
TEST(Ledger, AnIterationInWhichTheSpanBegins_CountsInPart) {
  Ledger ledger;
  ledger.stream_layers(Blocks(7));
  ledger.advance(at_s(0), at_s(4), {});
  start(ledger, ten_seconds(), false);
  EXPECT_TRUE(ledger.advance(at_s(10), at_s(4), {.running = 3, .waiting = 2}));
  ledger.ended();
  const EngineTotals totals = ledger.totals();
  EXPECT_EQ(totals.iterations, 1);
  EXPECT_EQ(totals.moved_h2d, Bytes(600));
  EXPECT_DOUBLE_EQ(totals.layers->stall_time, 4.8);
  EXPECT_EQ(totals.layers->d2h_busy, secs(3));
  EXPECT_EQ(totals.busy_time, 6.0);
  EXPECT_EQ(totals.peak_batch, 3);
  EXPECT_EQ(totals.peak_waiting, 2);
}

// Half of the batch leaves at 4 s of 10. The 8 s of stalls are not also time that copies slowed compute down.
TEST(Ledger, TheLargestBatchAndNothingTwice) {
  Ledger ledger;
  EXPECT_TRUE(ledger.advance(at_s(0), at_s(0), {}));
  start(ledger, ten_seconds(), false);
  ledger.advance(at_s(4), at_s(0), {.running = 6});
  ledger.advance(at_s(10), at_s(0), {.running = 3});
  ledger.ended();
  const EngineTotals totals = ledger.totals();
  EXPECT_EQ(totals.peak_batch, 6);
  EXPECT_EQ(totals.batch_time, 4.0 * 6 + 6.0 * 3);
  EXPECT_EQ(spent(totals, Resource::memory), 0.0);
}

// Copies go on from 10 s to 14 s, 3 s of it, before the next iteration; the span begins at 12 s, or the run ends there.
TEST(Ledger, CopiesBetweenIterations_CountInPart) {
  const auto run = [](std::int64_t span_begin) {
    Ledger ledger;
    ledger.stream_layers(Blocks(7));
    ledger.advance(at_s(0), at_s(span_begin), {});
    start(ledger, ten_seconds(), false);
    ledger.advance(at_s(10), at_s(span_begin), {.running = 1});
    ledger.ended();
    ledger.advance(at_s(14), at_s(span_begin), {});
    start(ledger, {.start = at_s(14), .end = at_s(15), .alone = secs(1), .copied_before = {secs(3), {}}}, false);
    return ledger.totals().layers->h2d_busy;
  };
  EXPECT_EQ(run(0), secs(9 + 3));
  EXPECT_EQ(run(12), Duration(1'500'000'000)) << "2 of 4 s, in which 3 s of copies are spread evenly";
  Ledger idle;
  idle.stream_layers(Blocks(7));
  idle.advance(at_s(2), at_s(0), {});
  idle.stop(at_s(2), {secs(1), {}});
  EXPECT_EQ(idle.totals().layers->h2d_busy, secs(1));
  EXPECT_EQ(spent(idle.totals(), Resource::load), 2.0);
}

// KV is on its way for 6 s of an iteration of 10 s, which waits 2 s for it, and for 3 s of the 4 s before the next one.
TEST(Ledger, TimeOfKvCopies_IsHiddenExposedOrIdle) {
  const auto run = [](std::int64_t span_begin, std::int64_t last) {
    Ledger ledger;
    ledger.advance(at_s(0), at_s(span_begin), {});
    start(ledger, {.end = at_s(10), .alone = secs(8), .request_stall = secs(2), .copying = {.kv = secs(6)}}, false);
    ledger.advance(at_s(std::min<std::int64_t>(10, last)), at_s(span_begin), {.running = 1});
    if (last < 10) {
      ledger.stop(at_s(last), {});
    } else {
      ledger.ended();
      ledger.advance(at_s(14), at_s(span_begin), {});
      start(ledger, {.start = at_s(14), .end = at_s(15), .copied_before = {.kv = secs(3)}}, false);
    }
    const EngineTotals totals = ledger.totals();
    return std::vector{totals.kv_copied_beside, totals.kv_waited_for, totals.kv_copied_idle};
  };
  EXPECT_EQ(run(0, 15), (std::vector{secs(6), secs(2), secs(3)}));
  EXPECT_EQ(run(5, 15), (std::vector{secs(3), secs(1), secs(3)})) << "5 of 10 s";
  EXPECT_EQ(run(12, 15), (std::vector{secs(0), secs(0), Duration(1'500'000'000)})) << "2 of 4 s";
  EXPECT_EQ(run(0, 5), (std::vector{secs(3), secs(1), secs(0)})) << "the horizon is at 5 s";
}

// KV of 2 conversations is kept during an iteration of 10 s, of 3 for 4 s until the next one, of 1 during that one,
// which takes 2 s: 20 + 12 + 2. What comes after the last iteration is not in the span.
TEST(Ledger, ConversationsCount_UpToTheLastCompletion) {
  Ledger ledger;
  ledger.advance(at_s(0), at_s(0), {});
  start(ledger, {.end = at_s(10), .alone = secs(10)}, false);
  ledger.advance(at_s(10), at_s(0), {.running = 1, .cached = 2});
  ledger.ended();
  ledger.advance(at_s(14), at_s(0), {.cached = 3});
  start(ledger, {.start = at_s(14), .end = at_s(16), .alone = secs(2)}, false);
  ledger.advance(at_s(16), at_s(0), {.running = 1, .cached = 1});
  ledger.ended();
  ledger.advance(at_s(20), at_s(0), {.cached = 9});
  EXPECT_EQ(ledger.totals().cached_time, 34.0);
  EXPECT_EQ(ledger.totals().peak_cached, 3);
}

// 10 s: 2 of stalls, 8 alone: 5 of arithmetic, 3 in which the GPU waits for attention on the CPU.
TEST(Ledger, AttentionOnTheCpu_HasAShareOfItsOwn) {
  const auto spent_on = [](Resource resource, bool short_of_kv) {
    Ledger ledger;
    ledger.advance(at_s(0), at_s(0), {});
    start(ledger,
          {.end = at_s(10),
           .alone = secs(8),
           .shares = {.compute = 5.0},
           .cpu_attention = secs(3),
           .layer_stall = secs(2),
           .layers_wait_for = Resource::d2h},
          short_of_kv);
    ledger.advance(at_s(10), at_s(0), {});
    return spent(ledger.totals(), resource);
  };
  EXPECT_DOUBLE_EQ(spent_on(Resource::compute, false), 5.0);
  EXPECT_DOUBLE_EQ(spent_on(Resource::cpu_attention, false), 3.0);
  EXPECT_DOUBLE_EQ(spent_on(Resource::d2h, false), 2.0);
  EXPECT_EQ(spent_on(Resource::host, false), 0.0);
  EXPECT_DOUBLE_EQ(spent_on(Resource::kv_capacity, true), 8.0);
  EXPECT_EQ(spent_on(Resource::cpu_attention, true), 0.0);
}

// Two iterations of 10 s: 6 of arithmetic and 4 of memory, then 10 of memory, of which 5 are in the span. Requests wait
// for KV memory in the second: 5 s, all of them of memory.
TEST(Ledger, TimeShortOfKv_IsAlsoThatOfItsStreams) {
  Ledger ledger;
  ledger.advance(at_s(0), at_s(0), {});
  start(ledger, {.end = at_s(10), .alone = secs(10), .shares = {.compute = 6.0, .memory = 4.0}}, false);
  ledger.advance(at_s(10), at_s(0), {});
  ledger.ended();
  start(ledger, {.start = at_s(10), .end = at_s(20), .alone = secs(10), .shares = {.memory = 10.0}}, true);
  ledger.advance(at_s(15), at_s(0), {});
  EXPECT_DOUBLE_EQ(spent(ledger.totals(), Resource::kv_capacity), 5.0);
  EXPECT_DOUBLE_EQ(spent(ledger.totals(), Resource::memory), 4.0);
  const auto& meanwhile = ledger.totals().time_short_of_kv;
  EXPECT_DOUBLE_EQ(meanwhile[static_cast<std::size_t>(Resource::memory)], 5.0);
  EXPECT_EQ(meanwhile[static_cast<std::size_t>(Resource::compute)], 0.0);
}

// 10 s, of which 4 are in the span: 8 alone, 1.5 of them CPU time of the engine and 1 before and after the layers; 2 of
// waits for the CPU, which attends for 5. The GPU works for 8 - 1.5 s, the layers take 10 - 1.
TEST(Ledger, TimeOfGpuLayersAndCpu_CountsInPart) {
  Ledger ledger;
  ledger.advance(at_s(0), at_s(0), {});
  start(ledger,
        {.end = at_s(10),
         .alone = secs(8),
         .around = secs(1),
         .shares = {.compute = 6.5, .host = 1.5},
         .cpu_stall = {.attention = secs(2)},
         .bubbles = {Duration(500'000'000), Duration(1'500'000'000)},
         .cpu_busy = secs(5),
         .issued = {.d2h = Bytes(10)}},
        false);
  ledger.advance(at_s(4), at_s(0), {});
  ledger.stop(at_s(4), {});
  const EngineTotals totals = ledger.totals();
  EXPECT_DOUBLE_EQ(totals.gpu_time, 0.4 * 6.5);
  EXPECT_DOUBLE_EQ(totals.layer_time, 0.4 * 9.0);
  ASSERT_TRUE(totals.on_cpu.has_value());
  EXPECT_EQ(totals.on_cpu->busy, secs(2));
  EXPECT_EQ(totals.on_cpu->bubbles[0], Duration(200'000'000));
  EXPECT_EQ(totals.on_cpu->bubbles[1], Duration(600'000'000));
  EngineTotals both = totals;
  both.add(totals);
  EXPECT_DOUBLE_EQ(both.gpu_time, 0.8 * 6.5);
  EXPECT_DOUBLE_EQ(both.layer_time, 0.8 * 9.0);
  EXPECT_EQ(both.on_cpu->busy, secs(4));
  EXPECT_EQ(both.on_cpu->bubbles[1], Duration(1'200'000'000));
}

TEST(Ledger, BytesThatNoIterationWasChargedWith_AreABrokenInvariant) {
  Ledger ledger;
  EXPECT_NO_THROW(ledger.check_links({}, {}));
  start(ledger, ten_seconds(), false);
  EXPECT_NO_THROW(ledger.check_links({Bytes(1001), Bytes(500)}, {}));
  EXPECT_THROW(ledger.check_links({Bytes(1000), Bytes(500)}, {}), InvariantError);
  EXPECT_THROW(ledger.check_links({Bytes(1001), Bytes(501)}, {}), InvariantError);
  // Copies that were issued after the last iteration belong to none.
  EXPECT_NO_THROW(ledger.check_links({Bytes(1011), Bytes(502)}, {Bytes(10), Bytes(2)}));
}

// Iterations of 100 ns. A request alone is scheduled as it arrives; the second arrives within an iteration and waits.
TEST(Ledger, WaitingIsCountedAfterTheDecisionsOfAnInstant) {
  const oracle::WatchingModel model;
  const KvLayout kv{Blocks(100), Blocks(0), Tokens(16), Bytes(640)};
  const auto peak = [&](const std::vector<RequestSpec>& requests) {
    return oracle::replay("vllm", {}, kv, requests, model).result.statistics.find("peak_waiting_requests")->value;
  };
  EXPECT_EQ(peak({oracle::request(0, 16, 3)}), 0.0);
  EXPECT_EQ(peak({oracle::request(0, 16, 3), oracle::request(0, 16, 3)}), 0.0) << "both at once";
  EXPECT_EQ(peak({oracle::request(0, 16, 3), oracle::request(50, 16, 3)}), 1.0);
  EXPECT_EQ(peak({oracle::request(0, 16, 3), oracle::request(100, 16, 3)}), 0.0) << "as an iteration ends";
}

/// A policy over the resting scheduler with the layers of `Layers`.
template <class Layers>
PolicyInfo streaming(const std::string& name) {
  PolicyInfo info;
  info.name = name;
  info.make = [](const PolicyContext& context) {
    Policy policy{std::make_unique<oracle::RestingScheduler>(context.settings),
                  std::make_unique<PagedSpace>(context.view, PagedSpaceOptions{})};
    policy.layers = std::make_unique<Layers>();
    return policy;
  };
  return info;
}

/// Layers that never wait, and 100 blocks.
class Layers : public LayerPolicy, protected LayerRule {
 public:
  [[nodiscard]] Blocks capacity() const override { return Blocks(100); }
  [[nodiscard]] LayerRule* begin(const BatchShape&, const LayerCompute&) override { return this; }
  void at_layer_start(std::int32_t layer, std::int32_t, CopySink& sink) override {
    sink.issue({.stream = Stream::h2d, .layer = layer, .bytes = Bytes(10), .transfer = Duration(5)});
    sink_ = &sink;
  }
  void at_copy_done(const Copy&, CopySink&) override {}
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return true; }

 protected:
  CopySink* sink_ = nullptr;
};

/// Copies that the simulator does not see: issued after the iteration whose copies were charged.
class Smuggler final : public Layers {
 public:
  void iteration_ended(const LayerReport&) override { sink_->issue({.stream = Stream::d2h, .bytes = Bytes(3)}); }
};

/// Issues copies of zero duration for ever.
class Fidget final : public Layers {
 public:
  void at_copy_done(const Copy& done, CopySink& sink) override {
    sink.issue({.stream = Stream::h2d, .layer = done.layer + 1});
  }
};

/// A request of 40 tokens that generates 3.
void serve_one(const PolicyInfo& policy, const ExecutionModel& model) {
  const std::vector<RequestSpec> requests{oracle::request(40, 16, 3)};
  const Settings settings = oracle::policy_settings(policy, {});
  oracle::ListSource source(requests);
  SimulationConfig config;
  InstanceConfig& instance = config.instances.emplace_back();
  instance.model = &model;
  instance.policy = &policy;
  instance.settings = &settings;
  config.source = &source;
  instance.kv = KvLayout{Blocks(100), Blocks(0), Tokens(16), Bytes(640)};
  instance.deployment.block_bytes = Bytes(640);
  instance.max_model_len = Tokens(1600);
  static_cast<void>(simulate(config));
}

std::string error_of(const PolicyInfo& policy) {
  try {
    serve_one(policy, oracle::WatchingModel());
  } catch (const InvariantError& error) {
    return error.what();
  }
  return {};
}

TEST(Ledger, ARuleThatCopiesOutsideItsIterations_IsFound) {
  EXPECT_EQ(error_of(streaming<Layers>("honest")), "");
  const std::string error = error_of(streaming<Smuggler>("smuggler"));
  // 3 iterations of a layer each: 3 x 10 bytes in, and 3 x 3 bytes out that nothing was charged with.
  EXPECT_NE(error.find("policy smuggler"), std::string::npos) << error;
  EXPECT_NE(error.find("carried 30 bytes from the host, 9 to it"), std::string::npos) << error;
  EXPECT_NE(error.find("charged with 30 bytes from the host, 0 to it"), std::string::npos) << error;
}

/// Notes what it is told that each iteration computes.
class Listener : public Layers {
 public:
  [[nodiscard]] LayerRule* begin(const BatchShape& shape, const LayerCompute& compute) override {
    heard().push_back(compute);
    return Layers::begin(shape, compute);
  }
  static std::vector<LayerCompute>& heard() {
    static std::vector<LayerCompute> heard;
    return heard;
  }
};

/// The same of two sub-batches, each like the whole.
class TwiceAsMuch final : public Listener {
 public:
  [[nodiscard]] std::span<const SubBatchShape> split(const BatchShape& shape) override {
    parts_.assign(2, {.shape = shape});
    return parts_;
  }

 private:
  std::vector<SubBatchShape> parts_;
};

/// Four layers, of which the GPU attends for 4 ns in each: of one kind 10 ns, or of two kinds 10, 30, 10 and 10 ns.
class FourLayers final : public ExecutionModel {
 public:
  explicit FourLayers(bool several) {
    if (several) kinds_ = {.of_layer = {0, 1, 0, 0}, .layers = {3, 1}};
  }
  [[nodiscard]] std::int32_t layers() const override { return 4; }
  [[nodiscard]] const LayerKinds& layer_kinds() const override { return kinds_; }
  [[nodiscard]] IterationTime iteration(const BatchShape&) const override {
    if (!kinds_.several()) return {.layer = Duration(10), .attention = Duration(4)};
    return {.layer = Duration(15), .attention = Duration(4), .kinds = {Duration(10), Duration(30)}};
  }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes, CopyMechanism) const override { return {}; }

 private:
  LayerKinds kinds_{};
};

TEST(Ledger, APolicyIsToldWhatTheLayersOfEachKindCompute) {
  for (const bool several : {false, true}) {
    for (const std::int64_t sub_batches : {1, 2}) {
      Listener::heard().clear();
      serve_one(sub_batches == 1 ? streaming<Listener>("listener") : streaming<TwiceAsMuch>("twice"),
                FourLayers(several));
      ASSERT_EQ(Listener::heard().size(), 3U) << "iterations";
      for (const LayerCompute& compute : Listener::heard()) {
        EXPECT_EQ(compute.kinds[0], Duration((several ? 30 : 40) * sub_batches));
        EXPECT_EQ(compute.kinds[1], Duration((several ? 30 : 0) * sub_batches));
        EXPECT_EQ(compute.attention, Duration(16 * sub_batches));
      }
    }
  }
}

TEST(Ledger, ARuleThatCopiesForEverWithoutTime_IsFound) {
  const std::string error = error_of(streaming<Fidget>("fidget"));
  EXPECT_NE(error.find("policy fidget at 40 ns"), std::string::npos) << error;
  EXPECT_NE(error.find("for ever"), std::string::npos) << error;
  EXPECT_NE(error.find("layer "), std::string::npos) << error;
}

}  // namespace
}  // namespace spillway
