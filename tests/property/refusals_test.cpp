// Replicas of Select-N on one bus, whose coordinator refuses requests: each refusal is counted, and no request is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/oracle/random_cluster.hpp"
#include "tests/oracle/replay.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using oracle::Dice;

/// Layers whose time grows with the batch, so that an SLO asks more of large batches.
class GrowingModel final : public ExecutionModel {
 public:
  GrowingModel(std::int32_t layers, Duration transfer) : layers_(layers), transfer_(transfer) {}
  [[nodiscard]] std::int32_t layers() const override { return layers_; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    return {.layer = Duration(1'000) + Duration(200) * shape.decode_sequences};
  }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes, CopyMechanism) const override { return {{}, transfer_}; }

 private:
  std::int32_t layers_;
  Duration transfer_;
};

/// Random replicas that are alike, and what becomes of random requests.
class OnABus {
 public:
  explicit OnABus(Dice& dice)
      : layers_(static_cast<std::int32_t>(dice.between(4, 16))),
        model_(layers_, Duration(dice.between(2, 12) * 1'000)) {
    const std::int64_t best = std::int64_t{layers_} * 1'200;
    settings_ = oracle::policy_settings(info_, {{"engine.chunked_prefill", false},
                                                {"engine.max_num_seqs", dice.between(1, 8)},
                                                {"policy.watermark", 0.0},
                                                {"policy.slo", Duration(best * dice.between(150, 400) / 100 + 2'000)},
                                                {"policy.slo_counts_waiting", false}});
    deployment_ = {.model = &model_,
                   .layers = layers_,
                   .memory = kLayer * dice.between(layers_ / 2, layers_) + kBlock * dice.between(4, 30),
                   .weights = kLayer * layers_,
                   .layer_weights = kLayer,
                   .block_bytes = kBlock};
    deployment_.gpu_kv = deployment_.memory - deployment_.weights;
  }
  /// False: no batch meets the SLO.
  [[nodiscard]] bool add_replicas(std::int64_t count) {
    try {
      layout_ = info_.layout(deployment_, settings_);
    } catch (const ConfigError&) {
      return false;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      InstanceConfig& one = config.instances.emplace_back();
      one.model = &model_;
      one.policy = &info_;
      one.settings = &settings_;
      read_surroundings(settings_, one);
      one.kv = {.gpu_blocks = layout_.blocks,
                .block_tokens = deployment_.block_tokens,
                .block_bytes = kBlock,
                .most_gpu_blocks = layout_.most};
      one.deployment = deployment_;
      one.max_model_len = deployment_.block_tokens * layout_.most.count();
      one.route.h2d = {{.link = 0, .gpus = 1}};
    }
    return true;
  }
  void draw_requests(Dice& dice) {
    const std::int64_t most = std::min<std::int64_t>(120, (deployment_.block_tokens * layout_.most.count()).count());
    std::int64_t now = 0;
    for (std::int64_t left = dice.between(5, 60); left > 0; --left) {
      now += dice.between(0, dice.chance(20) ? 2'000'000 : 60'000);
      requests_.push_back(oracle::request(now, dice.between(1, std::max<std::int64_t>(1, most / 2)),
                                          dice.between(1, std::max<std::int64_t>(1, most / 2))));
    }
  }
  void run() {
    oracle::ListSource source(requests_);
    config.source = &source;
    config.on_request = [this](const RequestRecord& record) { records.push_back(record); };
    result = simulate(config);
  }
  [[nodiscard]] std::int64_t submitted() const { return std::ssize(requests_); }
  /// A figure of all instances together; 0: no instance has it.
  [[nodiscard]] std::int64_t sum_of(const std::string& name) const {
    double sum = 0.0;
    for (const EngineTotals& instance : result.instances) {
      for (const PolicyFigure& figure : instance.figures) {
        if (figure.definition.name == name) sum += figure.value.value_or(0.0);
      }
    }
    return static_cast<std::int64_t>(sum);
  }

  SimulationConfig config;
  SimulationResult result;
  std::vector<RequestRecord> records;

 private:
  static constexpr Bytes kLayer{6'000};
  static constexpr Bytes kBlock{1'000};
  const PolicyInfo& info_ = *PolicyRegistry::instance().find("select-n");
  std::int32_t layers_;
  GrowingModel model_;
  Settings settings_;
  Deployment deployment_;
  Layout layout_;
  std::vector<RequestSpec> requests_;
};

void expect_each_ends_once(const OnABus& bus) {
  std::vector<bool> ended(static_cast<std::size_t>(bus.submitted()));
  for (const RequestRecord& record : bus.records) {
    ASSERT_LT(record.index, ended.size());
    ASSERT_FALSE(ended[record.index]) << "request " << record.index << " ended twice";
    ended[record.index] = true;
  }
  ASSERT_EQ(std::ssize(bus.records), bus.submitted());
}

MakeRouter draw_router(Dice& dice, std::uint64_t seed) {
  const std::vector<const RouterInfo*> all = RouterRegistry::instance().all();
  const auto& name = all[static_cast<std::size_t>(dice.between(0, std::ssize(all) - 1))]->name;
  return oracle::router_of(oracle::draw_routing(dice, name), Tokens(16), static_cast<std::int64_t>(seed));
}

// A request is sent once when it arrives, once more for each refusal that is sent on, and once more for each replica
// that loses it. It is rejected for a refusal only when every replica has refused it.
TEST(Refusals, AreSentOnOrCounted) {
  std::int64_t refused = 0;
  std::int64_t rerouted = 0;
  std::int64_t rescued = 0;
  std::int64_t failures = 0;
  std::int64_t cases = 0;
  for (std::uint64_t seed = 1; seed <= random_cases(600); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed + 9'700'000);
    OnABus bus(dice);
    const std::int64_t replicas = dice.between(2, 4);
    if (!bus.add_replicas(replicas)) continue;
    bus.draw_requests(dice);
    bus.config.links = {BytesPerSecond(static_cast<double>(dice.between(1, 40)) * 1e8)};
    bus.config.router = draw_router(dice, seed);
    const bool fails = dice.chance(30);
    if (fails) {
      const std::int64_t down = dice.between(0, 2'000'000);
      bus.config.events = {{SimTime(down), 0, false}, {SimTime(down + dice.between(1, 1'000'000)), 0, true}};
    } else if (dice.chance(30)) {
      bus.config.front_end = Duration(dice.between(1, 100'000));
    }
    if (dice.chance(30)) bus.config.request_timeout = Duration(dice.between(1'000, 3'000'000));
    bus.run();
    expect_each_ends_once(bus);
    const OutcomeCounts& counts = bus.result.statistics.all;
    ASSERT_EQ(counts.submitted, counts.finished + counts.rejected + counts.timed_out);
    std::int64_t sent = 0;
    std::int64_t lost = 0;
    for (const ReplicaStatistics& one : bus.result.statistics.replicas) {
      sent += one.sent;
      lost += one.lost;
    }
    const std::int64_t on_instances = bus.sum_of("refused_requests");
    const std::int64_t again = bus.sum_of("rerouted_requests");
    if (!fails) {
      ASSERT_EQ(sent, bus.submitted() + again);
      ASSERT_EQ(lost, 0);
      ASSERT_EQ(on_instances, bus.result.refused);
      ASSERT_GE(again, bus.result.refused * (replicas - 1));
      rescued += again - bus.result.refused * (replicas - 1);
    }
    for (const RequestRecord& record : bus.records) {
      ASSERT_TRUE(!record.refused || record.outcome == Outcome::rejected);
    }
    ASSERT_EQ(std::ranges::count_if(bus.records, &RequestRecord::refused), bus.result.refused);
    refused += bus.result.refused;
    rerouted += again;
    failures += fails ? 1 : 0;
    ++cases;
  }
  EXPECT_GT(cases, more_than(200));
  EXPECT_GT(refused, more_than(100));
  EXPECT_GT(rerouted, more_than(400));
  EXPECT_GT(rescued, more_than(200));
  EXPECT_GT(failures, more_than(50));
}

// The same with pools: a prompt goes to another replica of its pool, and so does an answer until blocks wait for its
// KV.
TEST(Refusals, OfPromptsAndAnswers) {
  std::int64_t rerouted_prompts = 0;
  std::int64_t rerouted_answers = 0;
  for (std::uint64_t seed = 1; seed <= random_cases(600); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed + 9'800'000);
    OnABus bus(dice);
    const std::size_t prefill = dice.chance(30) ? 1 : 2;
    if (!bus.add_replicas(static_cast<std::int64_t>(prefill) + 2)) continue;
    bus.draw_requests(dice);
    bus.config.links = {BytesPerSecond(static_cast<double>(dice.between(1, 40)) * 1e8)};
    bus.config.router = draw_router(dice, seed);
    for (InstanceConfig& one : bus.config.instances) {
      const bool prompts = &one < &bus.config.instances[prefill];
      one.phases = prompts ? Phases::prefill : Phases::decode;
      one.hands_over = true;
    }
    Handover& handover = bus.config.handover.emplace();
    handover.prefill = prefill;
    handover.decode_router = draw_router(dice, seed + 1);
    handover.by_layers = dice.chance(50);
    handover.first_token_at_prefill = dice.chance(50);
    handover.links = {BytesPerSecond(1e9)};
    handover.path = [](std::size_t, std::size_t) {
      return HandoverPath{Duration(10), BytesPerSecond(1e9), {{0, 1.0}}};
    };
    if (dice.chance(30)) bus.config.request_timeout = Duration(dice.between(1'000, 3'000'000));
    bus.run();
    expect_each_ends_once(bus);
    const OutcomeCounts& counts = bus.result.statistics.all;
    ASSERT_EQ(counts.submitted, counts.finished + counts.rejected + counts.timed_out);
    ASSERT_EQ(std::ranges::count_if(bus.records, &RequestRecord::refused), bus.result.refused);
    ASSERT_EQ(bus.sum_of("refused_requests"), bus.result.refused);
    std::int64_t prompts_sent = 0;
    for (const ReplicaStatistics& one : bus.result.statistics.replicas) prompts_sent += one.pool == 0 ? one.sent : 0;
    std::int64_t rerouted = bus.sum_of("rerouted_requests");
    // A prompt may wait for its answer's replica, which rejects it.
    if (!handover.by_layers) {
      ASSERT_GE(prompts_sent, bus.submitted());
      rerouted_prompts += prompts_sent - bus.submitted();
      rerouted -= prompts_sent - bus.submitted();
    }
    rerouted_answers += rerouted;
  }
  EXPECT_GT(rerouted_prompts, more_than(20));
  EXPECT_GT(rerouted_answers, more_than(50));
}

}  // namespace
}  // namespace spillway
