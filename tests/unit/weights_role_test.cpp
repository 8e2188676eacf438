// Weights that one part streams beside the KV slots of another (policy=pie policy.weights=...), by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <vector>

#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;

/// Four layers of 10 units of time, or of 20 for several sequences if `slower`. A copy takes one unit per byte and no
/// launch.
class FourLayers final : public ExecutionModel {
 public:
  explicit FourLayers(Duration unit = Duration(1), bool slower = false) : unit_(unit), slower_(slower) {}
  [[nodiscard]] std::int32_t layers() const override { return 4; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    const bool several = shape.decode_sequences + std::ssize(shape.chunks) > 1;
    const Duration layer = (slower_ && several ? 20 : 10) * unit_;
    return {.layer = layer, .shares = {.compute = to_seconds(4 * layer)}};
  }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes bytes, CopyMechanism) const override {
    return {Duration(0), unit_ * bytes.count()};
  }

 private:
  Duration unit_;
  bool slower_;
};

/// 115 bytes for four layers of 15 bytes, 10 bytes of other weights and KV in blocks of 16 tokens and 10 bytes.
Deployment deployment(const ExecutionModel& model) {
  return {.model = &model,
          .layers = 4,
          .memory = Bytes(115),
          .weights = Bytes(70),
          .layer_weights = Bytes(15),
          .block_bytes = Bytes(10),
          .gpu_kv = Bytes(45)};
}

const PolicyInfo& pie_with(const std::string& weights) {
  const PolicyRegistry& registry = PolicyRegistry::instance();
  return registry.with_weights(*registry.find("pie"), weights);
}

Settings settings(const PolicyInfo& policy, Overrides overrides) {
  overrides.emplace_back("policy.watermark", 0.0);
  return oracle::policy_settings(policy, overrides);
}

Layout lay_out(const PolicyInfo& policy, const Overrides& overrides, const Deployment& one) {
  return policy.layout(one, settings(policy, overrides));
}

Replay run(const PolicyInfo& policy, const Overrides& overrides, const Deployment& one,
           const std::vector<RequestSpec>& requests) {
  const Settings all = settings(policy, overrides);
  const Layout layout = policy.layout(one, all);
  oracle::ListSource source(requests);
  Replay replay;
  SimulationConfig config;
  InstanceConfig& instance = config.instances.emplace_back();
  instance.model = one.model;
  instance.policy = &policy;
  instance.settings = &all;
  read_surroundings(all, instance);
  config.source = &source;
  instance.kv = {.gpu_blocks = layout.blocks,
                 .block_tokens = one.block_tokens,
                 .block_bytes = one.block_bytes,
                 .most_gpu_blocks = layout.most};
  instance.deployment = one;
  instance.deployment.chosen = layout.chosen;
  instance.max_model_len = one.block_tokens * layout.most.count();
  config.on_request = [&](const RequestRecord& record) { replay.records.push_back(record); };
  replay.result = simulate(config);
  return replay;
}

double figure(const Replay& replay, const std::string& name) {
  const Metric* found = replay.result.statistics.find(name);
  return found != nullptr ? found->value.value_or(-1.0) : -2.0;
}

const Overrides kSlots{{"policy.expansion", 4.0 / 3.0}};

Overrides with(Overrides overrides, const std::string& key, Value value) {
  overrides.emplace_back(key, std::move(value));
  return overrides;
}

// Interval 2: layers 2 and 4 leave, one buffer comes: 10 + 3 * 15 = 55 bytes of weights, 60 for KV. One of four layers
// on the host: three slots of 20 bytes on the GPU, three on the host, 4 * 20 / 10 = 8 blocks.
TEST(WeightsRole, KvIsCutFromWhatTheWeightsLeave) {
  const FourLayers model;
  const Overrides overrides = with(kSlots, "policy.weights.interval", std::int64_t{2});
  const Layout layout = lay_out(pie_with("select-n"), overrides, deployment(model));
  EXPECT_EQ(layout.blocks, Blocks(8));
  EXPECT_EQ(layout.host, Bytes(2 * 15LL + 3 * 20LL));
  EXPECT_EQ(layout.host_kv, Bytes(3 * 20LL));
  EXPECT_THAT(layout.terms, HasSubstr("2 of 4 layers of 0.0 MB live on the host (offloading interval 2)"));
  EXPECT_THAT(layout.terms, HasSubstr("Pie keeps 1 of 4 layers on the host"));
  EXPECT_THAT(layout.terms, testing::Not(HasSubstr("maximum allocatable")));
  // DeepSpeed: all four leave, two buffers come: 40 bytes of weights, 75 for KV, slots of 25.
  EXPECT_EQ(lay_out(pie_with("deepspeed"), kSlots, deployment(model)).blocks, Blocks(10));
  // memory.gpu_kv is for KV, whatever the weights leave: 30 bytes, slots of 10.
  Deployment given = deployment(model);
  given.gpu_kv = Bytes(30);
  given.gpu_kv_given = true;
  EXPECT_EQ(lay_out(pie_with("deepspeed"), kSlots, given).blocks, Blocks(4));
  // The host: 30 bytes of weights first, then 60 of KV.
  Deployment small = deployment(model);
  small.host_memory = Bytes(90);
  EXPECT_EQ(lay_out(pie_with("select-n"), overrides, small).blocks, Blocks(8));
  small.host_memory = Bytes(89);
  EXPECT_THROW(static_cast<void>(lay_out(pie_with("select-n"), overrides, small)), ConfigError);
}

// The layers, from 1. Weights W2 and W4 (15 ns) come in when layers 1 and 3 start. Slots S (20 ns) go out when the
// layer after theirs has started, and come in when there is room. Both come in over one link, in the order of issue; at
// one instant weights go first. Iteration 1, with slot 4 on the host:
//     0  layer 1 computes to 10             W2 in  0..15
//    10  layer 2 waits for W2 to 15         S1 out 10..30
//    25  layer 3 computes to 35             W4 in 25..40
//    30  S1 is out: S4 may come in          S4 in 40..60, behind W4; S2 out 30..50
//    35  layer 4 waits for W4 to 40, then for S4 to 60, and computes to 70
//    60  S4 is in: S3 may go out            S3 out 60..80, S1 in 60..80
// Iteration 2:
//    70  layer 1 waits for S1 to 80         W2 in 80..95, behind S1; S4 out 80..100, S2 in 95..115, behind W2
//    90  layer 2 waits for W2 to 95, then for S2 to 115
//   115  S2 is in                           S1 out 115..135, S3 in 115..135
//   125  layer 3 waits for S3 to 135        W4 in 135..150, behind S3; S2 out 135..155, S4 in 150..170, behind W4
//   145  layer 4 waits for W4 to 150, then for S4 to 170, and computes to 180
//   170  S4 is in                           S3 out 170..190, S1 in 170..190
// Of 180 ns layers compute 80 and wait 100. In come four weights and six slots, out go seven slots.
TEST(WeightsRole, WeightsAndSlotsShareTheWayIn) {
  const FourLayers model;
  const Overrides overrides = with(kSlots, "policy.weights.interval", std::int64_t{2});
  const Replay replay = run(pie_with("select-n"), overrides, deployment(model), {request(0, 16, 2)});
  EXPECT_EQ(replay.of(0).first_token, SimTime(70));
  EXPECT_EQ(replay.of(0).end, SimTime(180));
  EXPECT_DOUBLE_EQ(figure(replay, "layer_stall_fraction"), 100.0 / 180.0);
  EXPECT_EQ(replay.result.statistics.engine.moved_h2d, Bytes(4 * 15LL + 6 * 20LL));
  EXPECT_EQ(replay.result.statistics.engine.moved_d2h, Bytes(7 * 20LL));
  EXPECT_EQ(figure(replay, "weights_mean_interval_layers"), 2.0);
  EXPECT_EQ(figure(replay, "weights_peak_host_layer_bytes"), 30.0);
  EXPECT_EQ(figure(replay, "mean_interval_layers"), -1.0) << "Pie has no interval";
}

// The phases of the instance follow the key of the part that streams the weights.
TEST(WeightsRole, ItsPhaseIsThatOfTheInstance) {
  const FourLayers model;
  const auto generated = [&](const std::string& phase) {
    const Overrides overrides = with(with(kSlots, "policy.weights.interval", std::int64_t{2}), kWeightsPhaseKey, phase);
    return run(pie_with("select-n"), overrides, deployment(model), {request(0, 16, 3)}).of(0).generated;
  };
  EXPECT_EQ(generated("prefill"), Tokens(1));
  EXPECT_EQ(generated("both"), Tokens(3));
}

// Without slots on the host only weights are waited for: with interval 1, layer 1 until 15, and each later layer for 5
// more, 15 + 3 * 15 + 10 = 70. Pie hears of none of these waits: else it would never raise its expansion.
TEST(WeightsRole, PieIsNotToldOfWaitsForWeights) {
  const FourLayers model;
  const PolicyInfo& policy = pie_with("deepspeed");
  const Overrides no_hooks{{"policy.weights.fetch_overhead", Duration(0)}};
  const Replay still = run(policy, with(no_hooks, "policy.expansion", 1.0), deployment(model), {request(0, 16, 2)});
  EXPECT_EQ(still.of(0).first_token, SimTime(70));
  EXPECT_EQ(still.of(0).end, SimTime(140));
  const Replay adaptive = run(policy, no_hooks, deployment(model), std::vector<RequestSpec>(40, request(0, 16, 40)));
  EXPECT_GT(figure(adaptive, "peak_expansion_ratio"), figure(adaptive, "mean_expansion_ratio"));
  EXPECT_GT(figure(adaptive, "peak_host_layer_bytes"), 0.0);
}

// Select-N by its record, beside Pie. An iteration takes 15 + 3 * 15 + 10 = 70 ms at interval 1, 2 * (15 + 10) = 50 at
// interval 2, and 40 at interval 3 and above.
TEST(WeightsRole, SelectNFollowsItsRecordWithinTheMemoryThatKvLeaves) {
  constexpr Duration kMillisecond(1'000'000);  // SLOs are multiples of 2 ms
  const FourLayers model(kMillisecond);
  const PolicyInfo& policy = pie_with("select-n");
  const auto margin = [](double slo) {
    return Overrides{{"policy.expansion", 1.0}, {"policy.weights.slo_margin", slo}};
  };
  // +75% allows interval 1. All weights fit beside a block, so KV has 115 - 70 = 45 bytes in the whole run, although
  // the weights leave the GPU: 4 * 11 / 10 = 4 blocks.
  const Layout free = lay_out(policy, margin(0.75), deployment(model));
  EXPECT_EQ(free.blocks, Blocks(4));
  EXPECT_EQ(free.most, Blocks(4));
  EXPECT_EQ(free.host, Bytes(4 * 15LL));
  const Replay one = run(policy, margin(0.75), deployment(model), {request(0, 16, 2)});
  EXPECT_EQ(one.of(0).end, SimTime{} + 140 * kMillisecond);
  EXPECT_EQ(figure(one, "weights_mean_interval_layers"), 1.0);
  EXPECT_EQ(figure(one, "weights_slo_risk_fraction"), 0.0);
  // +25% allows interval 2, whose 55 bytes leave 60 for KV, and no more: 4 * 15 / 10 = 6 blocks.
  Deployment given = deployment(model);
  given.gpu_kv = Bytes(60);
  given.gpu_kv_given = true;
  EXPECT_EQ(lay_out(policy, margin(0.25), given).blocks, Blocks(6));
  EXPECT_EQ(lay_out(policy, margin(0.25), given).host, Bytes(2 * 15LL));
  const Replay two = run(policy, margin(0.25), given, {request(0, 16, 2)});
  EXPECT_EQ(two.of(0).end, SimTime{} + 100 * kMillisecond);
  EXPECT_EQ(figure(two, "weights_slo_risk_fraction"), 0.0);
  // +20% allows interval 3, which does not leave so much.
  EXPECT_THROW(static_cast<void>(lay_out(policy, margin(0.2), given)), ConfigError);
  // Layers of 20 ms hide the copies of interval 2 in batches of several. One request alone takes its 50 ms as well, at
  // the risk of its SLO: with interval 3 the weights would take memory that KV holds.
  const FourLayers slower(kMillisecond, true);
  given.model = &slower;
  const Replay risky = run(policy, margin(0.2), given, {request(0, 16, 2)});
  EXPECT_EQ(risky.of(0).end, SimTime{} + 100 * kMillisecond);
  EXPECT_EQ(figure(risky, "weights_slo_risk_fraction"), 1.0);
}

// The weights make room where Pie alone has none.
TEST(WeightsRole, MakesAModelFitThatPieAloneCannotServe) {
  const FourLayers model;
  Deployment small = deployment(model);
  small.memory = Bytes(60);
  small.gpu_kv = Bytes(-10);
  const PolicyInfo& pie = *PolicyRegistry::instance().find("pie");
  EXPECT_THROW(static_cast<void>(lay_out(pie, kSlots, small)), ConfigError);
  // 40 bytes of weights leave 20, slots of 6: 4 * 6 / 10 = 2 blocks.
  EXPECT_EQ(lay_out(pie_with("deepspeed"), kSlots, small).blocks, Blocks(2));
}

}  // namespace
}  // namespace spillway
