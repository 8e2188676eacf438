// Pie's expansion follows the load: random bursts raise it, and it comes down after them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/list_source.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using oracle::Dice;

/// Layers slow down with the tokens in the batch, and swaps take as long as their bytes.
class BurstModel final : public ExecutionModel {
 public:
  struct Times {
    std::int32_t layers = 4;
    std::int64_t layer = 1000;  // ns, of an empty batch
    std::int64_t prompt = 0;    // ns per prompt token
    std::int64_t member = 0;    // ns per decoding request
    double copy = 0.0;          // ns per byte
  };
  explicit BurstModel(const Times& times) : times_(times) {}
  [[nodiscard]] std::int32_t layers() const override { return times_.layers; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    std::int64_t layer = times_.layer + times_.member * shape.decodes();
    for (const PrefillChunk& chunk : shape.chunks) layer += times_.prompt * chunk.new_tokens.count();
    return {Duration(0), Duration(layer), Duration(0), {.compute = to_seconds(Duration(layer * times_.layers))}};
  }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes bytes, CopyMechanism) const override {
    return {Duration(0), Duration(1 + static_cast<std::int64_t>(times_.copy * static_cast<double>(bytes.count())))};
  }

 private:
  Times times_;
};

struct Burst {
  BurstModel::Times times;
  std::vector<RequestSpec> requests;
  std::string check_at;
  std::int64_t blocks = 0;  // without expansion
};

/// Up to three bursts, each of several times what fits, and a last request with a third of the memory. It is admitted
/// last and decodes alone for 512 iterations, and for so long after them that every layer has more than the window of 8
/// iterations in which it may come back, and the iterations in which its slots change.
Burst draw(std::uint64_t seed) {
  Dice dice(seed);
  Burst burst;
  burst.times.layers = static_cast<std::int32_t>(dice.between(4, 48));
  burst.times.prompt = dice.between(0, 20);
  burst.times.member = dice.between(0, 20);
  const std::int64_t iteration = burst.times.layer * burst.times.layers;
  const std::int64_t alone = 60 * burst.times.layers + 800;
  burst.blocks = 3 * (alone / 16 + 2);
  // One swap takes 0.2 to 3 layers, with no layer on the host. A block has 1,000 bytes.
  const double slot = 1000.0 * static_cast<double>(burst.blocks) / burst.times.layers;
  burst.times.copy = static_cast<double>(dice.between(200, 3000)) / slot;
  burst.check_at = dice.chance(50) ? "completion" : "layer-start";
  std::int64_t now = 0;
  for (std::int64_t left = dice.between(1, 3); left > 0; --left) {
    now += dice.between(0, 300 * iteration);
    const std::int64_t input = dice.between(1, 400);
    const std::int64_t output = dice.between(20, 200);
    const std::int64_t held = (input + output) / 16 + 1;
    const std::int64_t count = burst.blocks / held * dice.between(2, 5);
    for (std::int64_t i = 0; i < count; ++i) {
      RequestSpec& request = burst.requests.emplace_back();
      request.arrival = SimTime(now + i * dice.between(0, iteration / 20));
      request.input = Tokens(dice.between(1, 2 * input));
      request.output = request.max_new_tokens = Tokens(dice.between(1, 2 * output));
    }
  }
  std::sort(burst.requests.begin(), burst.requests.end(),
            [](const RequestSpec& a, const RequestSpec& b) { return a.arrival < b.arrival; });
  RequestSpec& last = burst.requests.emplace_back();
  last.arrival = burst.requests[burst.requests.size() - 2].arrival + Duration(1);
  last.input = Tokens(1);
  last.output = last.max_new_tokens = Tokens(alone);
  return burst;
}

TEST(Bursts, RaiseTheExpansion_AndItComesDownAfterThem) {
  const PolicyInfo& pie = *PolicyRegistry::instance().find("pie");
  std::uint64_t raised = 0;
  const std::uint64_t cases = random_cases(300);
  for (std::uint64_t seed = 1; seed <= cases; ++seed) {
    SCOPED_TRACE(seed);
    const Burst burst = draw(seed);
    const BurstModel model(burst.times);
    const Settings settings = oracle::policy_settings(pie, {{"policy.check_at", burst.check_at}});
    oracle::ListSource source(burst.requests);
    SimulationConfig config;
    InstanceConfig& instance = config.instances.emplace_back();
    instance.model = &model;
    instance.policy = &pie;
    instance.settings = &settings;
    read_surroundings(settings, instance);
    config.source = &source;
    instance.deployment = oracle::snug_deployment(model, Blocks(burst.blocks), Bytes(1000), Tokens(16), Bytes(1000));
    const Layout layout = pie.layout(instance.deployment, settings);
    instance.kv = KvLayout{.gpu_blocks = layout.blocks, .block_tokens = Tokens(16), .block_bytes = Bytes(1000)};
    instance.kv.most_gpu_blocks = layout.most;
    instance.max_model_len = Tokens(16 * layout.most.count());
    SimTime before_last{};  // the end of the last request but one
    SimTime end{};
    config.on_request = [&](const RequestRecord& record) {
      before_last = end;
      end = record.end;
    };
    const RunStatistics statistics = simulate(config).statistics;
    ASSERT_EQ(statistics.all.finished, static_cast<std::int64_t>(burst.requests.size()));
    const LayerTotals& layers = *statistics.engine.layers;
    if (layers.peak_capacity > layout.blocks) ++raised;
    ASSERT_EQ(layers.last_capacity, layout.blocks);
    // A raise under way may end after the burst: 8 iterations have room for a round of swaps.
    const SimTime quiet =
        before_last + Duration(std::int64_t{30} * burst.times.layers * (burst.times.layer + burst.times.member));
    for (std::size_t i = 1; i < layers.changes.size(); ++i) {
      if (layers.changes[i].at < quiet) continue;
      ASSERT_LT(layers.changes[i].capacity, layers.changes[i - 1].capacity) << "nothing needs a raise any more";
    }
  }
  EXPECT_GT(raised, cases * 9 / 10);
}

}  // namespace
}  // namespace spillway
