// Select-N and DeepSpeed as policies: iterations, free memory, intervals from the record, phases and refusals, by hand.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <functional>

#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;

constexpr Duration ms(double count) { return Duration(static_cast<std::int64_t>(count * 1e6)); }
constexpr SimTime at_ms(double count) { return SimTime(static_cast<std::int64_t>(count * 1e6)); }

/// The time of a layer is a function of the batch; every copy takes the same time, whatever its size.
class LayeredModel final : public ExecutionModel {
 public:
  using Compute = std::function<Duration(const BatchShape&)>;
  LayeredModel(std::int32_t layers, Compute compute, Duration transfer)
      : layers_(layers), compute_(std::move(compute)), transfer_(transfer) {}
  [[nodiscard]] std::int32_t layers() const override { return layers_; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override { return {.layer = compute_(shape)}; }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes, CopyMechanism) const override { return {{}, transfer_}; }

 private:
  std::int32_t layers_;
  Compute compute_;
  Duration transfer_;
};

/// A constant number of milliseconds per layer, for any batch.
LayeredModel constant(std::int32_t layers, double compute, double transfer) {
  return {layers, [compute](const BatchShape&) { return ms(compute); }, ms(transfer)};
}

/// Four layers of 1,000 bytes, 500 bytes of other weights, blocks of 16 tokens and 100 bytes, 5,000 bytes in all.
Deployment small(const ExecutionModel& model) {
  return {.model = &model,
          .layers = 4,
          .memory = Bytes(5000),
          .weights = Bytes(4500),
          .layer_weights = Bytes(1000),
          .block_bytes = Bytes(100),
          .gpu_kv = Bytes(500)};
}

/// As many layers of one gigabyte as the model has, with enough memory for everything.
Deployment large(const ExecutionModel& model) {
  return {.model = &model,
          .layers = model.layers(),
          .memory = Bytes(1'100'000'000'000),
          .weights = Bytes(1'000'000'000) * model.layers(),
          .layer_weights = Bytes(1'000'000'000),
          .block_bytes = Bytes(1'000'000'000),
          .gpu_kv = Bytes(1'100'000'000'000) - Bytes(1'000'000'000) * model.layers()};
}

Settings settings(const std::string& policy, const Overrides& overrides) {
  Overrides all{{"engine.chunked_prefill", false}, {"engine.max_num_seqs", std::int64_t{8}}, {"policy.watermark", 0.0}};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return oracle::policy_settings(*PolicyRegistry::instance().find(policy), all);
}

Layout lay_out(const std::string& policy, const Overrides& overrides, const Deployment& deployment) {
  return PolicyRegistry::instance().find(policy)->layout(deployment, settings(policy, overrides));
}

Replay run(const std::string& policy, const Overrides& overrides, const Deployment& deployment,
           const std::vector<RequestSpec>& requests) {
  const Settings all = settings(policy, overrides);
  const PolicyInfo* info = PolicyRegistry::instance().find(policy);
  const Layout layout = info->layout(deployment, all);
  oracle::ListSource source(requests);
  Replay replay;
  SimulationConfig config;
  InstanceConfig& instance = config.instances.emplace_back();
  instance.model = deployment.model;
  instance.policy = info;
  instance.settings = &all;
  read_surroundings(all, instance);
  config.source = &source;
  instance.kv = {.gpu_blocks = layout.blocks,
                 .block_tokens = deployment.block_tokens,
                 .block_bytes = deployment.block_bytes,
                 .most_gpu_blocks = layout.most};
  instance.deployment = deployment;
  instance.max_model_len = deployment.block_tokens * layout.most.count();
  config.on_request = [&](const RequestRecord& record) { replay.records.push_back(record); };
  replay.result = simulate(config);
  return replay;
}

std::optional<double> figure(const Replay& replay, const std::string& name) {
  const Metric* found = replay.result.statistics.find(name);
  EXPECT_NE(found, nullptr) << name;
  return found != nullptr ? found->value : std::nullopt;
}

/// The policy's refusal of its settings; empty: accepted.
std::string refusals(const std::string& policy, const std::string& scheduler, Overrides overrides) {
  overrides.emplace_back(kSchedulerKey, scheduler);
  std::string all;
  const PolicyInfo* info = PolicyRegistry::instance().find(policy, scheduler);
  for (const Problem& problem : info->check(oracle::policy_settings(*info, overrides))) {
    all += problem.where + ": " + problem.what + "; ";
  }
  return all;
}

std::string layout_error(const std::string& policy, const Overrides& overrides, const Deployment& deployment) {
  try {
    static_cast<void>(lay_out(policy, overrides, deployment));
  } catch (const ConfigError& error) {
    const Problem& problem = error.problems().front();
    return problem.where + ": " + problem.what + " -> " + problem.fix;
  }
  return "";
}

const Overrides kDecode{{"policy.phase", std::string("decode")}};

Overrides decode(const std::string& key, Value value) {
  Overrides all = kDecode;
  all.emplace_back(key, std::move(value));
  return all;
}

// --- iterations

TEST(SelectN, IterationsOfThePapersExample) {
  // L = 32, t_c = 1 ms, t_x = 4: by interval 2: 16 * (4 + 1) = 80; 3: 10 * 5 + 2 = 52; 4: 8 * (4 + 1) = 40; 1: 4 +
  // 31 * 4 + 1 = 129; nothing offloaded: 32. With an SLO of +50%, 48 ms, exact is 4, and the paper's formula 2.
  const LayeredModel model = constant(32, 1, 4);
  const auto tokens = [&](const Overrides& overrides) {
    const Replay replay = run("select-n", overrides, large(model), {request(0, 64, 5)});
    EXPECT_EQ(replay.of(0).end - replay.of(0).first_token, 4 * (replay.of(0).first_token - SimTime{}));
    return replay.of(0).first_token;
  };
  EXPECT_EQ(tokens(decode("policy.interval", std::int64_t{0})), at_ms(32));
  EXPECT_EQ(tokens(decode("policy.interval", std::int64_t{1})), at_ms(129));
  EXPECT_EQ(tokens(decode("policy.interval", std::int64_t{2})), at_ms(80));
  EXPECT_EQ(tokens(decode("policy.interval", std::int64_t{3})), at_ms(52));
  EXPECT_EQ(tokens(decode("policy.interval", std::int64_t{4})), at_ms(40));
  EXPECT_EQ(tokens(kDecode), at_ms(40));
  EXPECT_EQ(tokens(decode("policy.slo", ms(48))), at_ms(40));
  EXPECT_EQ(tokens(decode("policy.slo", ms(53))), at_ms(52));
  EXPECT_EQ(tokens(decode("policy.slo_margin", 0.0)), at_ms(32 * 1));
  EXPECT_EQ(tokens(decode("policy.record", std::string("paper"))), at_ms(80));

  const Replay replay = run("select-n", kDecode, large(model), {request(0, 64, 5)});
  EXPECT_EQ(figure(replay, "mean_interval_layers"), 4.0);
  EXPECT_EQ(figure(replay, "slo_risk_fraction"), 0.0);
  EXPECT_EQ(figure(replay, "peak_host_layer_bytes"), 8e9);
  EXPECT_EQ(replay.result.statistics.engine.moved_h2d, Bytes(5 * 8'000'000'000));
}

TEST(SelectN, DoubleBuffer_StartsACopyAGroupAhead) {
  // L = 4, t_c = 1, t_x = 4, i = 2: the copies end at 4 and 8; layer 2 computes from 4 to 5, 3 to 6, 4 from 8 to 9.
  // Single buffer: 2 * (4 + 1) = 10.
  const LayeredModel model = constant(4, 1, 4);
  Overrides overrides = decode("policy.interval", std::int64_t{2});
  EXPECT_EQ(run("select-n", overrides, large(model), {request(0, 64, 1)}).of(0).end, at_ms(10));
  overrides.emplace_back("policy.double_buffer", true);
  EXPECT_EQ(run("select-n", overrides, large(model), {request(0, 64, 1)}).of(0).end, at_ms(9));
}

TEST(DeepSpeed, StreamsEveryLayer) {
  // L = 32, t_c = 2, t_x = 4: 4 + 31 * (max(2, 4 p) + 4 (1 - p)) + 2 is 130 for p = 1, 161 for 1/4, 192 for 0. ZeRO's
  // hooks take 8 ms more for the first layer, and for each other one unless all of it was prefetched.
  const LayeredModel model = constant(32, 2, 4);
  const auto token = [&](double fraction, Duration hooks) {
    const Overrides overrides{{"policy.prefetch_fraction", fraction}, {"policy.fetch_overhead", hooks}};
    return run("deepspeed", overrides, large(model), {request(0, 64, 1)}).of(0).end;
  };
  EXPECT_EQ(token(1.0, Duration(0)), at_ms(130));
  EXPECT_EQ(token(0.25, Duration(0)), at_ms(161));
  EXPECT_EQ(token(0.0, Duration(0)), at_ms(192));
  EXPECT_EQ(token(1.0, Duration(8'000'000)), at_ms(138));
  EXPECT_EQ(token(0.0, Duration(8'000'000)), at_ms(192 + 32 * 8));
  EXPECT_EQ(run("deepspeed", {}, large(model), {request(0, 64, 1)}).of(0).end, at_ms(138)) << "the default";
  const Replay replay = run("deepspeed", {}, large(model), {request(0, 64, 3)});
  EXPECT_EQ(figure(replay, "mean_interval_layers"), 1.0);
  EXPECT_EQ(figure(replay, "slo_risk_fraction"), std::nullopt);
  EXPECT_EQ(figure(replay, "peak_host_layer_bytes"), 32e9);
}

// --- room

TEST(SelectN, Room_GrowsWithTheWeightsThatLeave) {
  // Of 5,000 bytes: 4,500 of weights leave 5 blocks. i = 4: one layer leaves, its buffer stays: 5. i = 2: two leave for
  // one buffer: 15. i = 1: four leave for two buffers: 25. Two buffers at i = 2: 5.
  const LayeredModel model = constant(4, 1, 1);
  const std::array<std::pair<std::int64_t, std::int64_t>, 5> blocks{{{0, 5}, {4, 5}, {3, 5}, {2, 15}, {1, 25}}};
  for (const auto& [interval, expected] : blocks) {
    const Layout layout = lay_out("select-n", {{"policy.interval", interval}}, small(model));
    EXPECT_EQ(layout.blocks, Blocks(expected)) << interval;
    EXPECT_EQ(layout.most, Blocks(expected)) << interval;
    EXPECT_EQ(layout.host, Bytes(interval == 0 ? 0 : 4 / interval * 1000)) << interval;
    EXPECT_THAT(layout.terms, HasSubstr("maximum allocatable length " + std::to_string(16 * expected) + " tokens"));
  }
  const Layout doubled =
      lay_out("select-n", {{"policy.interval", std::int64_t{2}}, {"policy.double_buffer", true}}, small(model));
  EXPECT_EQ(doubled.blocks, Blocks(5));
  EXPECT_EQ(lay_out("deepspeed", {}, small(model)).blocks, Blocks(25));
}

/// Four layers whose compute takes a millisecond for every sequence, and copies of 8. With +50%:
///   1 sequence   SLO 6: not even i = 4 holds, max(3, 8) + 1 = 9
///   2            SLO 12: nor there, max(6, 8) + 2 = 10 <= 12 does: i = 4; i = 3: 10 + 2 = 12 holds as well; i = 2: 20
///   4            SLO 24: i = 2: 2 * (max(4, 8) + 4) = 24; i = 1: 8 + 3 * 8 + 4 = 36
///   8            SLO 48: i = 1: 8 + 3 * 8 + 8 = 40
LayeredModel by_batch() {
  return {4,
          [](const BatchShape& shape) {
            return ms(static_cast<double>(shape.decode_sequences + static_cast<std::int64_t>(shape.chunks.size())));
          },
          ms(8)};
}

TEST(SelectN, AStaticBatch_IsAdmittedInOneGo) {
  // Eight requests of 1 block: more than the 5 that there are beside all weights, but interval 1, which their own entry
  // allows, leaves 25.
  const LayeredModel model = by_batch();
  const Layout layout = lay_out("select-n", kDecode, small(model));
  EXPECT_EQ(layout.blocks, Blocks(5));
  EXPECT_EQ(layout.most, Blocks(25));
  EXPECT_EQ(layout.host, Bytes(4000));
  const Replay replay = run("select-n", kDecode, small(model), std::vector<RequestSpec>(8, request(0, 16, 1)));
  for (const RequestRecord& record : replay.records) EXPECT_EQ(record.end, at_ms(40));
}

TEST(SelectN, Interval_FollowsTheBatch) {
  // Four requests: interval 2, 24 ms an iteration, twice. Then one is left, which may not offload at all: its weights
  // come back in an iteration at interval 2, 2 * (max(1, 8) + 1) = 18, and then it takes 4 ms.
  const LayeredModel model = by_batch();
  std::vector<RequestSpec> requests(3, request(0, 16, 2));
  requests.push_back(request(0, 16, 5));
  const Replay replay = run("select-n", kDecode, small(model), requests);
  EXPECT_EQ(replay.of(3).first_token, at_ms(24));
  EXPECT_EQ(replay.of(0).end, at_ms(48));
  EXPECT_EQ(replay.of(3).end, at_ms(48 + 18 + 4 + 4));
  EXPECT_EQ(figure(replay, "mean_interval_layers"), 2.0);
  EXPECT_EQ(figure(replay, "slo_risk_fraction"), 0.2);
  EXPECT_EQ(figure(replay, "peak_host_layer_bytes"), 2000.0);
}

TEST(SelectN, Interval_ThatMemoryForcesIsCounted) {
  // 160 tokens take 10 blocks, which need interval 2: 2 * (8 + 1) = 18 ms, where the SLO of one sequence is 6.
  const LayeredModel model = by_batch();
  const Replay replay = run("select-n", kDecode, small(model), {request(0, 160, 4)});
  EXPECT_EQ(replay.of(0).end, at_ms(4 * 18));
  EXPECT_EQ(figure(replay, "slo_risk_fraction"), 1.0);
}

TEST(SelectN, LayersOfBothIntervals_StreamWhenKvNeedsRoomAtOnce) {
  // Two requests: interval 3, 12 ms. Then two more of 2 blocks: with them 8 blocks, more than the 5 of interval 3, and
  // four want interval 2. Layer 3 is not back yet, 2 and 4 are gone: all three stream, one after the other, each layer
  // of 4 ms after its copy of 8: 2 computes from 8 to 12, 3 from 20 to 24, 4 from 32 to 36. At last there are two
  // again, in an iteration at interval 2: 2 * (8 + 2) = 20.
  const LayeredModel model = by_batch();
  const std::vector<RequestSpec> requests{request(0, 16, 3), request(0, 16, 3), request(1'000'000, 30, 1),
                                          request(1'000'000, 30, 1)};
  Overrides overrides = kDecode;
  overrides.emplace_back("engine.chunked_prefill", true);  // decodes and what is new in one iteration
  const Replay replay = run("select-n", overrides, small(model), requests);
  EXPECT_EQ(replay.of(0).first_token, at_ms(12));
  EXPECT_EQ(replay.of(3).end, at_ms(12 + 36));
  EXPECT_EQ(replay.of(0).end, at_ms(12 + 36 + 20));
  EXPECT_EQ(replay.result.statistics.engine.moved_h2d, Bytes(1000 + 3000 + 2000));
  EXPECT_EQ(figure(replay, "mean_interval_layers"), (3.0 + 2.0 + 2.0) / 3.0);
  EXPECT_EQ(figure(replay, "slo_risk_fraction"), 2.0 / 3.0);
}

// A time as SLO: an entry of the record stands for the batches above half of its own, so entry 4 for 3 and 4 requests.
// Blocks of 100 bytes, of which 3 fit beside all weights, 13 at interval 2 (two layers leave, one buffer comes) and 23
// at interval 1 (four leave, two buffers come). Of 34 ms: 1 and 2 sequences may run at interval 1 (8 + 3 * 8 + 2 = 34
// ms), 4 need interval 2 (2 * (8 + 4) = 24; at interval 1 8 + 3 * 8 + 4 = 36), and so do 8 (2 * (8 + 8) = 32).
//   R1 and R2 take 5 blocks each (65 to 68 tokens). While they decode, entry 2 offers min(23, 2 * 5) = 10 blocks, and
//   entry 4 nothing, for 3 requests of their length need 15 of its 13. What is in use and one block more are 11: R3,
//   which needs 2 blocks, waits for the three iterations of R1 and R2.
TEST(SelectN, Room_IsThatOfBatchesAboveHalfAnEntry) {
  const LayeredModel model = by_batch();
  Deployment deployment = small(model);
  deployment.memory = Bytes(4500 + 300);
  deployment.gpu_kv = Bytes(300);
  const Replay replay = run("select-n", decode("policy.slo", ms(34)), deployment,
                            {request(0, 65, 3), request(0, 65, 3), request(1'000'000, 20, 1)});
  EXPECT_EQ(replay.of(0).first_token, at_ms(34));
  EXPECT_EQ(replay.of(0).end, at_ms(3 * 34));
  EXPECT_EQ(replay.of(1).end, at_ms(3 * 34));
  EXPECT_EQ(replay.of(2).first_scheduled, at_ms(3 * 34));
}

// --- phases

TEST(SelectN, Prefill_EndsARequestWithItsFirstToken) {
  const LayeredModel model = constant(4, 1, 1);
  const Replay replay =
      run("select-n", {{"policy.phase", std::string("prefill")}}, large(model), {request(0, 64, 5), request(0, 32, 1)});
  for (const RequestRecord& record : replay.records) {
    EXPECT_EQ(record.generated, Tokens(1));
    EXPECT_EQ(record.output, Tokens(1));
    EXPECT_EQ(record.end, record.first_token);
  }
}

// 119 blocks of 16 tokens: 1,904 tokens. A prefill instance needs capacity for the prompt and one token, so the length
// of the answer does not matter to it.
TEST(SelectN, Slo_IsLessTheTimeThatAPromptHasWaited) {
  // One prompt at a time. It takes 4 ms with every layer on the GPU; i = 3: 8 + 1 + 1 = 10; i = 2: 2 * (8 + 1) = 18;
  // i = 1: 8 + 3 * 8 + 1 = 33. An SLO of 20 ms allows i = 2. An iteration runs at the interval that the one before
  // wants.
  //   0   starts at 0, wants 2, takes 18
  //   1   has waited 18, so 2 ms are left: wants none, takes 18
  //   2   has waited 36, wants none, takes 4: ends at 40
  //   3   sent at 100, wants 2, takes 4
  //   4   sent at 100, waits 4, so 16 are left: wants 3, takes 18 and ends at 122
  //   5   sent at 117, waits 5, so 15, which the grid rounds to 14: wants 3, takes 10
  const LayeredModel model = by_batch();
  const std::vector<RequestSpec> requests{request(0, 16, 1),           request(0, 16, 1),
                                          request(0, 16, 1),           request(100'000'000, 16, 1),
                                          request(100'000'000, 16, 1), request(117'000'000, 16, 1)};
  const auto ends = [&](bool counts) {
    const Overrides overrides{{"policy.phase", std::string("prefill")},
                              {"policy.slo", ms(20)},
                              {"policy.slo_counts_waiting", counts},
                              {"engine.max_num_seqs", std::int64_t{1}}};
    const Replay replay = run("select-n", overrides, large(model), requests);
    EXPECT_EQ(figure(replay, "slo_risk_fraction"), counts ? 2.0 / 6.0 : 0.0);
    std::vector<SimTime> all;
    for (std::uint32_t i = 0; i < 6; ++i) all.push_back(replay.of(i).end);
    return all;
  };
  EXPECT_EQ(ends(true), (std::vector{at_ms(18), at_ms(36), at_ms(40), at_ms(104), at_ms(122), at_ms(132)}));
  EXPECT_EQ(ends(false), (std::vector{at_ms(18), at_ms(36), at_ms(54), at_ms(118), at_ms(136), at_ms(154)}));
}

TEST(SelectN, Slo_IsLessTheTimeSinceTheLastToken) {
  // Two sequences: 8 ms with every layer on the GPU; i = 3: 8 + 2 + 2 = 12; i = 1: 8 + 3 * 8 + 2 = 34. SLO: 40 ms.
  //   prompt of request 0   wants 1, takes 33
  //   prompt of request 1   sent at 10, waited 23, so 17 are left, 16 on the grid: wants 3, takes 33, ends at 66
  //   decode of both        request 0 has waited 33 since its token, so 7 are left: wants none, takes 12, ends at 78
  //   decode of both        wants 1 again, takes 8, then 34: ends at 120
  // Where waiting does not count, every iteration runs at 1: 33 + 33 + 3 * 34 = 168.
  const LayeredModel model = by_batch();
  const std::vector<RequestSpec> requests{request(0, 16, 4), request(10'000'000, 16, 4)};
  const auto last = [&](const Overrides& overrides) {
    Overrides all{{"policy.slo", ms(40)}};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return run("select-n", all, large(model), requests).of(0).end;
  };
  EXPECT_EQ(last({{"policy.slo_counts_waiting", true}}), at_ms(120));
  EXPECT_EQ(last({}), at_ms(120)) << "the default";
  EXPECT_EQ(last({{"policy.slo_counts_waiting", false}}), at_ms(168));
}

TEST(SelectN, Prefill_RejectsByThePromptAlone) {
  const LayeredModel model = constant(4, 1, 1);
  Deployment deployment = large(model);
  deployment.gpu_kv = Bytes(119'000'000'000);
  deployment.memory = deployment.weights + deployment.gpu_kv;
  const auto outcome = [&](const std::string& phase, std::int64_t input, std::int64_t output) {
    const Overrides overrides{{"policy.phase", phase}, {"policy.interval", std::int64_t{0}}};
    return run("select-n", overrides, deployment, {request(0, input, output)}).of(0).outcome;
  };
  EXPECT_EQ(outcome("prefill", 1500, 1000), Outcome::finished);
  EXPECT_EQ(outcome("both", 1500, 1000), Outcome::rejected);
  EXPECT_EQ(outcome("decode", 1500, 1000), Outcome::rejected);
  EXPECT_EQ(outcome("prefill", 1903, 1000), Outcome::finished);
  EXPECT_EQ(outcome("prefill", 1904, 1000), Outcome::rejected);
}

TEST(SelectN, Decode_FindsTheKvOfItsInputAndRecomputesItOncePreempted) {
  // Five blocks of 16. Requests of 32 and 33 tokens take 2 and 3 and decode at once: 32 + 33 tokens of context. The
  // first needs a third block for its 33rd token: the second is preempted, with the one token that it has. When the
  // first has its three tokens, the second computes all of its 34 tokens and goes on.
  std::vector<SeenIteration> seen;
  const LayeredModel model(
      4,
      [&](const BatchShape& shape) {
        SeenIteration one{shape.decode_sequences, shape.decode_context.count(), {}};
        for (const PrefillChunk& chunk : shape.chunks) {
          one.chunks.emplace_back(chunk.new_tokens.count(), chunk.context.count());
        }
        seen.push_back(one);
        return ms(1);
      },
      ms(1));
  const Replay replay =
      run("select-n", decode("policy.interval", std::int64_t{0}), small(model), {request(0, 32, 3), request(0, 33, 3)});
  const std::vector<SeenIteration> expected{{2, 65, {}}, {1, 33, {}}, {1, 34, {}}, {0, 0, {{34, 0}}}, {1, 35, {}}};
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(replay.of(1).preempted_recompute, 1);
  EXPECT_EQ(replay.of(1).first_token, at_ms(4));
  EXPECT_EQ(replay.of(1).end, at_ms(20));
}

// --- bad input

TEST(SelectN, Refuses_WithTheArithmetic) {
  const LayeredModel model = by_batch();
  EXPECT_EQ(layout_error("select-n", {{"policy.interval", std::int64_t{5}}}, small(model)),
            "policy.interval: policy.interval=5 is more than the model's 4 layers: 4 / 5 = 0 layers would be on the "
            "host -> use 1 to 4, or 0 to offload nothing");
  // The best time of a sequence is 4 ms.
  EXPECT_THAT(layout_error("select-n", decode("policy.slo", ms(3)), small(model)),
              HasSubstr("policy.slo: policy select-n cannot meet its SLO of 3 ms per iteration with any batch: the SLO "
                        "of 3.000 ms is below the 4.000 ms that an iteration of batch 1 and sequence 4 takes"));

  Deployment huge = small(model);
  huge.host_memory = Bytes(1'500);
  EXPECT_EQ(lay_out("select-n", {{"policy.interval", std::int64_t{3}}}, huge).host, Bytes(1000));
  EXPECT_THAT(layout_error("select-n", {{"policy.interval", std::int64_t{2}}}, huge),
              HasSubstr("policy.host_memory: offloading interval 2 keeps 2 of 4 layers on the host, 2 x 0.000 GB"));
  EXPECT_THAT(layout_error("select-n", {{"policy.interval", std::int64_t{2}}}, huge), HasSubstr("interval 3 fits"));

  huge.host_memory.reset();
  EXPECT_THAT(layout_error("select-n", {{"policy.host_memory", Bytes(999)}}, huge), HasSubstr("not one layer fits"));
  EXPECT_EQ(lay_out("select-n", {{"policy.host_memory", Bytes(2500)}}, huge).most, Blocks(15));

  const LayeredModel big = constant(4, 1, 8);
  Deployment gpu = large(big);
  gpu.memory = Bytes(3'500'000'000);
  // At interval 2 three layers' worth and a block take 4 GB; at 1, two and a block 3.
  EXPECT_EQ(layout_error("select-n", {{"policy.interval", std::int64_t{2}}}, gpu),
            "hardware: with offloading interval 2, 3 layers' worth of weights of 1.000 GB, 0.000 GB of weights outside "
            "the layers and one KV block of 1.000 GB take 4.00 GB of the 3.50 GB that the engine may use beside its "
            "activations -> offloading interval 1 fits; or raise tensor_parallel, or use hardware with more memory");
  EXPECT_EQ(layout_error("deepspeed", {}, gpu), "");
  gpu.host_memory = Bytes(3'000'000'000);
  EXPECT_THAT(layout_error("select-n", {{"policy.interval", std::int64_t{2}}}, gpu),
              HasSubstr("offloading interval 1 fits, with 4.00 GB on the host, which has 3.00 GB for it; or"));
  gpu.host_memory.reset();
  // +50% allows nothing there: at interval 1, 8 + 3 * 8 + 1 = 33 of 6 ms.
  EXPECT_THAT(
      layout_error("select-n", kDecode, gpu),
      HasSubstr("policy.slo_margin: policy select-n cannot meet its SLO of +50% with any batch: the SLO of 6.000 "
                "ms, 2.000 ms above the best time of batch 1 and sequence 4, needs all layers on the GPU, but "
                "the memory needs interval 1 or less"));
  gpu.memory = Bytes(2'900'000'000);
  EXPECT_THAT(layout_error("select-n", kDecode, gpu),
              HasSubstr("hardware: with offloading interval 1, 2 layers' worth"));
  EXPECT_THAT(layout_error("deepspeed", {}, gpu), HasSubstr("take 3.00 GB of the 2.90 GB"));
  // memory.gpu_kv has to fit as well.
  gpu.memory = Bytes(5'000'000'000);
  gpu.gpu_kv = Bytes(4'000'000'000);
  gpu.gpu_kv_given = true;
  EXPECT_THAT(layout_error("deepspeed", {}, gpu),
              HasSubstr("memory.gpu_kv: with offloading interval 1, 2 layers' worth"));
}

TEST(SelectN, Refuses_WhatMakesNoSense) {
  const std::string v0 = "vllm-v0";
  const Overrides fixed{{"policy.interval", std::int64_t{2}}};
  EXPECT_EQ(refusals("select-n", v0, {}), "");
  EXPECT_EQ(refusals("deepspeed", v0, {}), "");
  EXPECT_EQ(refusals("select-n", v0, {{"engine.preemption", std::string("swap")}}), "");
  EXPECT_EQ(refusals("deepspeed", v0, {{"memory.host_cache", Bytes(1)}}), "");
  EXPECT_THAT(refusals("select-n", v0, {{"policy.slo", ms(50)}, {"policy.slo_margin", 0.5}}),
              HasSubstr("policy.slo: policy.slo and policy.slo_margin are both given"));
  EXPECT_THAT(refusals("select-n", v0, {fixed[0], {"policy.slo_margin", 0.5}}),
              HasSubstr("policy.slo_margin: a fixed policy.interval follows no SLO"));
  EXPECT_THAT(refusals("select-n", v0, {{"policy.slo_counts_waiting", true}, {"policy.slo_margin", 0.5}}),
              HasSubstr("policy.slo_counts_waiting: policy.slo_counts_waiting has no effect without policy.slo"));
  EXPECT_EQ(refusals("select-n", v0, {{"policy.slo_counts_waiting", false}, {"policy.slo", ms(50)}}), "");
  EXPECT_EQ(refusals("select-n", v0, {{"engine.prefix_caching", std::string("true")}}), "");
  // Room that follows the batch needs a scheduler that can lose it; at a fixed interval it is constant.
  const Overrides unchunked{{"engine.chunked_prefill", false}};
  EXPECT_THAT(refusals("select-n", "orca", unchunked), HasSubstr("policy orca never preempts"));
  EXPECT_EQ(refusals("select-n", "orca", {unchunked[0], fixed[0]}), "");
  EXPECT_EQ(refusals("deepspeed", "vtc", unchunked), "");
}

}  // namespace
}  // namespace spillway
