// Calls of an instance that are put off while nobody but the sink would hear of what an iteration does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/engine/instance.hpp"
#include "sim/engine/simulation.hpp"
#include "tests/oracle/list_source.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/oracle/resting_policy.hpp"
#include "tests/oracle/route_by.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;

/// One layer: 1,000 ns for prompts; 100 ns for each decode, and 1 ns for each token that it attends to.
class AttendingLayer final : public ExecutionModel {
 public:
  explicit AttendingLayer(bool tells_attention_apart = true) : tells_(tells_attention_apart) {}
  [[nodiscard]] std::int32_t layers() const override { return 1; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    if (!shape.chunks.empty()) return {.layer = Duration(1'000)};
    const Duration attention(shape.decode_context.count());
    return {.layer = Duration(100 * shape.decode_sequences) + attention, .attention = tells_ ? attention : Duration{}};
  }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes bytes, CopyMechanism) const override {
    return {.transfer = Duration(bytes.count())};
  }

 private:
  bool tells_;
};

RequestSpec request(std::int64_t arrival, std::int64_t input, std::int64_t output) {
  RequestSpec spec;
  spec.arrival = SimTime(arrival);
  spec.input = Tokens(input);
  spec.output = spec.max_new_tokens = Tokens(output);
  return spec;
}

/// Hears of tokens and of ends.
class Listening final : public InstanceSink {
 public:
  void token_gap(Duration gap, std::int64_t tokens, SimTime now) override {
    if (tokens > 0) gaps.emplace_back(gap.count(), now.ns());
  }
  void ended(const RequestRecord& record) override { ends.push_back(record.end.ns()); }
  std::vector<std::pair<std::int64_t, std::int64_t>> gaps;
  std::vector<std::int64_t> ends;
};

/// Counts how often vLLM's scheduler is asked.
class Counting final : public Scheduler {
 public:
  Counting(std::unique_ptr<Scheduler> counted, std::int64_t& decisions)
      : counted_(std::move(counted)), decisions_(decisions) {}
  void arrived(const RequestView& request) override { counted_->arrived(request); }
  void ended(RequestId id, Outcome outcome) override { counted_->ended(id, outcome); }
  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    ++decisions_;
    counted_->decide(view, kv, decision);
  }

 private:
  std::unique_ptr<Scheduler> counted_;
  std::int64_t& decisions_;
};

const PolicyInfo& vllm() { return *PolicyRegistry::instance().find("vllm"); }
const AttendingLayer kAttendingLayer;

struct Setting {
  std::int64_t blocks = 100;
  const PolicyInfo& policy = vllm();
  const ExecutionModel& model = kAttendingLayer;
  InstanceObserver* observer = nullptr;
  std::int64_t most_at_once = 8;
};

/// An instance of vLLM with blocks of 16 tokens.
struct Bench {
  explicit Bench(const Setting& setting = {})
      : policy(setting.policy),
        settings(oracle::policy_settings(policy, {{"engine.max_num_seqs", setting.most_at_once}})),
        instance({.model = &setting.model,
                  .policy = &policy,
                  .settings = &settings,
                  .kv = {.gpu_blocks = Blocks(setting.blocks), .block_bytes = Bytes(1'000)},
                  .max_model_len = Tokens(1'000),
                  .observer = setting.observer},
                 sink) {}
  void submit(std::uint32_t number, std::int64_t input, std::int64_t output) {
    static_cast<void>(instance.submit(request(0, input, output), number, number, SimTime(0), SimTime(0)));
  }
  /// Computes the prompts, and starts the first decode step.
  void decode() {
    instance.start(SimTime(0));
    EXPECT_EQ(instance.advance(SimTime(1'000)), Instance::Advanced::iteration);
    instance.start(SimTime(1'000));
  }
  const PolicyInfo& policy;
  Settings settings;
  Listening sink;
  Instance instance;
};

// The prompt of 16 tokens ends at 1,000 ns with the first of 5 tokens. Four steps follow, which attend to 17, 18, 19
// and 20 tokens: they end at 1,117, 1,235, 1,354 and 1,474 ns. Without attention a step takes 100 ns, less 4 ns for
// rounding, so after the step in flight the other three end at 1,117 + 3 * 96 = 1,405 ns at the earliest.
TEST(LateCalls, AreOfDecodesThatGoOn) {
  Bench bench;
  bench.submit(0, 16, 5);
  bench.decode();
  EXPECT_EQ(bench.instance.next_call(), SimTime(1'117));
  bench.instance.put_off();
  EXPECT_TRUE(bench.instance.puts_off());
  EXPECT_EQ(bench.instance.next_call(), SimTime(1'405));
  EXPECT_EQ(bench.instance.catch_up(SimTime(1'235)), 1) << "the step that ends then is not over";
  EXPECT_THAT(bench.sink.gaps, ElementsAre(std::pair(117, 1'117)));
  EXPECT_EQ(bench.instance.next_call(), SimTime(1'405)) << "nothing has changed that counts";
  EXPECT_EQ(bench.instance.catch_up(SimTime(1'405)), 2);
  EXPECT_THAT(bench.sink.gaps, ElementsAre(std::pair(117, 1'117), std::pair(118, 1'235), std::pair(119, 1'354)));
  EXPECT_FALSE(bench.instance.puts_off());
  EXPECT_EQ(bench.instance.next_call(), SimTime(1'474));
  bench.instance.put_off();
  EXPECT_EQ(bench.instance.next_call(), SimTime(1'474)) << "a request ends in the step in flight";
  EXPECT_EQ(bench.instance.advance(SimTime(1'474)), Instance::Advanced::iteration);
  EXPECT_THAT(bench.sink.ends, ElementsAre(1'474));
}

TEST(LateCalls, EndWhenSomethingHappens) {
  Bench bench;
  bench.submit(0, 16, 5);
  bench.decode();
  bench.instance.put_off();
  bench.instance.catch_up(SimTime(1'200));
  bench.instance.stop_putting_off();
  EXPECT_FALSE(bench.instance.puts_off());
  EXPECT_EQ(bench.instance.next_call(), SimTime(1'235));
}

// As in the first test, with a prompt of 30 tokens: the steps attend to 31, 32, 33 and 34 tokens and end at 1,131,
// 1,263, 1,396 and 1,530 ns. The third needs a third block. The token before the first step was not of a step, so what
// follows that one is decided once.
TEST(LateCalls, AskAPolicyOnlyIfItsDecodesAreNotSteady) {
  for (const bool steady : {true, false}) {
    SCOPED_TRACE(steady);
    std::int64_t decisions = 0;
    PolicyInfo policy = vllm();
    ASSERT_TRUE(policy.steady_decodes);
    policy.steady_decodes = steady;
    policy.make = [make = policy.make, &decisions](const PolicyContext& context) {
      Policy made = make(context);
      made.scheduler = std::make_unique<Counting>(std::move(made.scheduler), decisions);
      return made;
    };
    Bench bench({.policy = policy});
    bench.submit(0, 30, 5);
    bench.decode();
    EXPECT_EQ(decisions, 2);
    EXPECT_EQ(bench.instance.gpu_blocks_used(), Blocks(2));
    bench.instance.put_off();
    EXPECT_EQ(bench.instance.catch_up(SimTime(1'264)), 2);
    EXPECT_EQ(bench.instance.gpu_blocks_used(), Blocks(3));
    const View& view = bench.instance;
    EXPECT_EQ(view.batch().decode_context, Tokens(33)) << "what the next decision is based on";
    EXPECT_EQ(bench.instance.catch_up(SimTime(1'397)), 1);
    EXPECT_EQ(decisions, steady ? 3 : 5);
    EXPECT_EQ(bench.instance.next_call(), SimTime(1'530));
    EXPECT_EQ(bench.instance.advance(SimTime(1'530)), Instance::Advanced::iteration);
    EXPECT_THAT(bench.sink.gaps, ElementsAre(std::pair(131, 1'131), std::pair(132, 1'263), std::pair(133, 1'396),
                                             std::pair(134, 1'530)));
    EXPECT_EQ(bench.instance.gpu_blocks_used(), Blocks(0));
  }
}

/// A decode step is 100 ns shorter with each token that it attends to, and only 10 ns of it are attention.
class ShrinkingSteps final : public ExecutionModel {
 public:
  [[nodiscard]] std::int32_t layers() const override { return 1; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    if (!shape.chunks.empty()) return {.layer = Duration(1'000)};
    return {.layer = Duration(10'000 - 100 * shape.decode_context.count()), .attention = Duration(10)};
  }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes bytes, CopyMechanism) const override {
    return {.transfer = Duration(bytes.count())};
  }
};

// The four steps take 8,300, 8,200, 8,100 and 8,000 ns. The first says that none is shorter than 8,300 - 10 - 4 ns, so
// the first request would not end before 9,300 + 3 * 8,286 ns; it ends at 33,600 ns.
TEST(LateCalls, OfAModelWhoseStepsAreShorterThanItSays_AreRefused) {
  const ShrinkingSteps model;
  Bench bench({.model = model});
  bench.submit(0, 16, 5);
  bench.decode();
  bench.instance.put_off();
  EXPECT_EQ(bench.instance.next_call(), SimTime(34'158));
  EXPECT_EQ(bench.instance.catch_up(SimTime(33'600)), 3);
  EXPECT_THAT([&] { bench.instance.catch_up(SimTime(34'158)); },
              testing::ThrowsMessage<InvariantError>(testing::HasSubstr("less time than ExecutionModel::least()")));
}

// Of 300 steps the search sees 255 that end nothing: 1,117 + 255 * 96.
TEST(LateCalls, LookAheadSoFar) {
  Bench bench;
  bench.submit(0, 16, 301);
  bench.decode();
  bench.instance.put_off();
  EXPECT_EQ(bench.instance.next_call(), SimTime(1'117 + 255 * 96));
}

TEST(LateCalls, AreNoneWhereOthersMustKnow) {
  const auto expect_none = [](Bench& bench, const std::string& why) {
    SCOPED_TRACE(why);
    bench.instance.put_off();
    EXPECT_FALSE(bench.instance.puts_off());
  };
  {
    Bench bench;
    bench.submit(0, 16, 5);
    bench.instance.start(SimTime(0));
    expect_none(bench, "a prompt is computed");
    EXPECT_EQ(bench.instance.next_call(), SimTime(1'000));
  }
  {
    Bench bench({.most_at_once = 1});
    bench.submit(0, 16, 5);
    bench.submit(1, 16, 5);
    bench.decode();
    expect_none(bench, "a request waits");
  }
  {
    const AttendingLayer silent(/*tells_attention_apart=*/false);
    Bench bench({.model = silent});
    bench.submit(0, 16, 5);
    bench.decode();
    expect_none(bench, "the model does not tell what attention takes");
  }
  {
    InstanceObserver observer;
    Bench bench({.observer = &observer});
    bench.submit(0, 16, 5);
    bench.decode();
    expect_none(bench, "somebody watches");
  }
  {
    Bench bench;
    bench.submit(0, 16, 5);
    bench.decode();
    static_cast<void>(bench.instance.advance(SimTime(1'117)));
    expect_none(bench, "nothing runs");
  }
}

// A prompt of 16 tokens and its first token hold 2 blocks. Its 33 further tokens may take as many as 4 blocks more (33
// tokens, 3 blocks, in whichever place of a block they begin).
TEST(LateCalls, NeedMemoryForAllTokens) {
  Bench enough({.blocks = 2 + 4});
  enough.submit(0, 16, 34);
  enough.decode();
  enough.instance.put_off();
  EXPECT_TRUE(enough.instance.puts_off());
  Bench short_of_it({.blocks = 2 + 3});
  short_of_it.submit(0, 16, 34);
  short_of_it.decode();
  short_of_it.instance.put_off();
  EXPECT_FALSE(short_of_it.instance.puts_off());
}

// Two requests of 5 and 8 tokens. Of three steps in turn, the first and the last are of one decode. From the second on
// the shorter request has 3 steps to go, which seem to take 196 ns at least, each but the first; the next ones take
// 100 + 19 and 200 + 20 + 18 ns.
TEST(LateCalls, OfAPolicyThatLetsDecodesRest_AreRefused) {
  PolicyInfo policy = oracle::resting_policy();
  const AttendingLayer model;
  const Settings settings = oracle::policy_settings(*PolicyRegistry::instance().find("vllm"), {});
  const std::vector<RequestSpec> requests{request(0, 16, 5), request(0, 16, 8)};
  const auto run = [&] {
    oracle::ListSource source(requests);
    return simulate({.instances = {{.model = &model,
                                    .policy = &policy,
                                    .settings = &settings,
                                    .kv = {.gpu_blocks = Blocks(100), .block_bytes = Bytes(1'000)},
                                    .max_model_len = Tokens(1'000)}},
                     .source = &source});
  };
  EXPECT_EQ(run().statistics.all.finished, 2);
  policy.rests_decodes = false;
  EXPECT_THAT(run, testing::ThrowsMessage<InvariantError>(testing::HasSubstr("PolicyInfo::rests_decodes must say")));
}

// Two requests that never fit arrive at the same instant, the first at replica 1. The replicas are asked in order of
// their numbers, whichever was woken first.
TEST(LateCalls, OfOneInstant_ComeInOrderOfReplicas) {
  const PolicyInfo& policy = *PolicyRegistry::instance().find("vllm");
  const AttendingLayer model;
  const Settings settings = oracle::policy_settings(policy, {});
  const std::vector<RequestSpec> requests{request(0, 500, 5), request(0, 500, 5)};
  oracle::ListSource source(requests);
  std::vector<std::uint32_t> replicas;
  const InstanceConfig instance{.model = &model,
                                .policy = &policy,
                                .settings = &settings,
                                .kv = {.gpu_blocks = Blocks(10), .block_bytes = Bytes(1'000)},
                                .max_model_len = Tokens(1'000)};
  static_cast<void>(simulate({.instances = {instance, instance},
                              .router = oracle::route_by([next = 1U](const RequestSpec&) mutable { return next--; }),
                              .source = &source,
                              .on_request = [&](const RequestRecord& record) {
                                EXPECT_EQ(record.outcome, Outcome::rejected);
                                replicas.push_back(record.replica);
                              }}));
  EXPECT_THAT(replicas, ElementsAre(0, 1));
}

// The second request begins the measured span at 1,235 ns. A step of the first one has ended at that instant, before;
// two more follow, of 119 and 120 ns.
TEST(LateCalls, AreNoneBeforeTheMeasuredSpan) {
  const PolicyInfo& policy = *PolicyRegistry::instance().find("vllm");
  const AttendingLayer model;
  const Settings settings = oracle::policy_settings(policy, {});
  const std::vector<RequestSpec> requests{request(0, 16, 5), request(1'235, 16, 1)};
  oracle::ListSource source(requests);
  const InstanceConfig instance{.model = &model,
                                .policy = &policy,
                                .settings = &settings,
                                .kv = {.gpu_blocks = Blocks(10), .block_bytes = Bytes(1'000)},
                                .max_model_len = Tokens(1'000)};
  const SimulationResult result =
      simulate({.instances = {instance, instance},
                .router = oracle::route_by([next = 0U](const RequestSpec&) mutable { return next++; }),
                .source = &source,
                .metrics = {.warmup = {.kind = Span::Kind::requests, .requests = 1}}});
  EXPECT_DOUBLE_EQ(result.statistics.find("mean_itl_ms")->value.value(), 1e-6 * 0.5 * (119 + 120));
}

// A step that ends at the horizon has given its token.
TEST(LateCalls, BeforeAHorizon) {
  const PolicyInfo& policy = *PolicyRegistry::instance().find("vllm");
  const AttendingLayer model;
  const Settings settings = oracle::policy_settings(policy, {});
  const std::vector<RequestSpec> requests{request(0, 16, 5)};
  for (const auto& [until, tokens, iterations] :
       {std::tuple(1'353, 3, 3), std::tuple(1'354, 4, 4), std::tuple(1'355, 4, 4)}) {
    SCOPED_TRACE(until);
    oracle::ListSource source(requests);
    std::vector<RequestRecord> records;
    SimulationConfig config{.instances = {{.model = &model,
                                           .policy = &policy,
                                           .settings = &settings,
                                           .kv = {.gpu_blocks = Blocks(100), .block_bytes = Bytes(1'000)},
                                           .max_model_len = Tokens(1'000)}},
                            .source = &source,
                            .until = SimTime(until),
                            .on_request = [&](const RequestRecord& record) { records.push_back(record); }};
    const SimulationResult result = simulate(config);
    ASSERT_EQ(records.size(), 1U);
    EXPECT_EQ(records.front().outcome, Outcome::unfinished);
    EXPECT_EQ(records.front().generated, Tokens(tokens));
    EXPECT_EQ(result.statistics.engine.iterations, iterations);
  }
}

}  // namespace
}  // namespace spillway
