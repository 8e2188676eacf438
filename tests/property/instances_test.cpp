// Several instances on one clock: each does what it would do alone, except on a link that they share.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/random_case.hpp"

namespace spillway {
namespace {

using oracle::NaiveConfig;
using oracle::WholeModel;

constexpr std::size_t kInstances = 3;

std::size_t instance_of(std::int64_t position) { return static_cast<std::size_t>(position) % kInstances; }

/// The records of one instance in order of ending, each without its position in the whole workload.
std::vector<std::string> records_of(const std::vector<RequestRecord>& records, std::size_t instance) {
  std::vector<std::string> texts;
  for (RequestRecord record : records) {
    if (instance_of(record.traits.conversation) != instance) continue;
    record.index = 0;
    texts.push_back(oracle::text(record));
  }
  return texts;
}

/// `links`: capacities of links in and out that all instances cross; empty: none.
oracle::FastRun run(const NaiveConfig& config, std::size_t instances, const std::vector<BytesPerSecond>& links = {}) {
  SimulationConfig simulation = oracle::simulation_of(config);
  if (!links.empty()) simulation.instances.front().route = {.gpus = 1, .h2d = {0}, .d2h = {1}};
  simulation.links = links;
  simulation.instances.resize(instances, simulation.instances.front());
  if (instances > 1) {
    simulation.route = [](const RequestSpec& request) { return instance_of(request.traits.conversation); };
  }
  return oracle::run_fast(std::move(simulation), config);
}

// The instances share the clock and nothing else, so three of them are three runs, to the nanosecond.
TEST(Instances, ThatShareNothing_RunAsIfAlone) {
  for (const PolicyInfo* policy : PolicyRegistry::instance().all()) {
    const PolicyInfo& info = *PolicyRegistry::instance().find(policy->name);
    const WholeModel model = WholeModel::of(info);
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      SCOPED_TRACE(policy->name + " seed " + std::to_string(seed));
      Settings settings;
      NaiveConfig config;
      oracle::draw_case(seed, info, model, 1, settings, config);
      // A request that follows one of another instance would tie them together.
      std::fill(config.follows.begin(), config.follows.end(), oracle::Follows{});
      std::stable_sort(config.requests.begin(), config.requests.end(),
                       [](const RequestSpec& a, const RequestSpec& b) { return a.arrival < b.arrival; });
      // Stepped in half of the cases: links that they share, but that are wider than all of them.
      const bool stepped = seed % 2 == 0;
      const std::vector<BytesPerSecond> wide(stepped ? 2U : 0U, BytesPerSecond(1e15));
      const oracle::FastRun together = run(config, kInstances, wide);
      std::int64_t iterations = 0;
      for (std::size_t i = 0; i < kInstances; ++i) {
        NaiveConfig part = config;
        std::erase_if(part.requests,
                      [&](const RequestSpec& request) { return instance_of(request.traits.conversation) != i; });
        part.follows.resize(part.requests.size());
        const oracle::FastRun alone = run(part, 1);
        ASSERT_EQ(records_of(together.records, i), records_of(alone.records, i));
        const EngineTotals& a = together.result.instances[i];
        const EngineTotals& b = alone.result.instances[0];
        ASSERT_EQ(a.iterations, b.iterations);
        // Of an iteration that the horizon cuts, a stepped instance knows what was issued; else it counts in
        // proportion.
        if (!stepped || !config.until) {
          ASSERT_EQ(a.moved_h2d, b.moved_h2d);
          ASSERT_EQ(a.moved_d2h, b.moved_d2h);
        }
        ASSERT_EQ(a.peak_kv, b.peak_kv);
        ASSERT_EQ(a.preempted_recompute, b.preempted_recompute);
        ASSERT_EQ(a.prefix_hit, b.prefix_hit);
        iterations += a.iterations;
      }
      ASSERT_EQ(together.result.statistics.engine.iterations, iterations);
      ASSERT_EQ(together.result.statistics.all.submitted, std::ssize(together.records));
    }
  }
}

// --- a link that two instances share

/// 10 GB/s for every copy, and layers of 1 ns.
class TenGigabytes final : public ExecutionModel {
 public:
  [[nodiscard]] std::int32_t layers() const override { return 1; }
  [[nodiscard]] IterationTime iteration(const BatchShape&) const override { return {.layer = Duration(1)}; }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes bytes, CopyMechanism) const override {
    return {.transfer = Duration(bytes.count() / 10)};
  }
};

/// Each iteration waits for one copy in.
class OneCopy final : public LayerPolicy, private LayerRule {
 public:
  OneCopy(const ExecutionModel& model, Blocks blocks) : model_(model), blocks_(blocks) {}
  [[nodiscard]] Blocks capacity() const override { return blocks_; }
  [[nodiscard]] LayerRule* begin(const BatchShape&, Duration) override {
    there_ = false;
    return this;
  }

 private:
  void at_layer_start(std::int32_t, std::int32_t, CopySink& sink) override {
    const Bytes bytes(100'000'000);
    const CopyTime time = model_.copy(Stream::h2d, 1, bytes, CopyMechanism::single);
    sink.issue({.stream = Stream::h2d, .bytes = bytes, .launch = time.launch, .transfer = time.transfer});
  }
  void at_copy_done(const Copy&, CopySink&) override { there_ = true; }
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return there_; }

  const ExecutionModel& model_;
  const Blocks blocks_;
  bool there_ = false;
};

/// When requests that arrive at `arrivals`, each at an instance of its own, have their one token. The instances share a
/// link of 10 GB/s.
std::vector<std::int64_t> ends_on_one_link(const std::vector<std::int64_t>& arrivals,
                                           std::optional<SimTime> until = std::nullopt) {
  const TenGigabytes model;
  PolicyInfo policy = *PolicyRegistry::instance().find("vllm-v0");
  policy.make = [&model, make = policy.make](const PolicyContext& context) {
    Policy made = make(context);
    made.layers = std::make_unique<OneCopy>(model, Blocks(10));
    return made;
  };
  const Settings settings = oracle::policy_settings(policy, {});
  NaiveConfig config;
  config.model = &model;
  config.policy = &policy;
  config.settings = &settings;
  config.gpu_blocks = Blocks(10);
  config.block_bytes = Bytes(1);
  config.max_model_len = Tokens(100);
  for (const std::int64_t arrival : arrivals) {
    RequestSpec request;
    request.arrival = SimTime(arrival);
    request.input = Tokens(8);
    request.output = request.max_new_tokens = Tokens(1);
    request.traits.conversation = std::ssize(config.requests);
    config.requests.push_back(request);
  }
  config.follows.resize(config.requests.size());
  SimulationConfig simulation = oracle::simulation_of(config);
  simulation.instances.front().route = {.gpus = 1, .h2d = {0}};
  simulation.instances.resize(arrivals.size(), simulation.instances.front());
  simulation.links = {BytesPerSecond(10e9)};
  simulation.until = until;
  simulation.route = [](const RequestSpec& request) { return static_cast<std::size_t>(request.traits.conversation); };
  const oracle::FastRun ran = oracle::run_fast(std::move(simulation), config);
  std::vector<std::int64_t> ends(arrivals.size());
  for (const RequestRecord& record : ran.records) {
    ends[static_cast<std::size_t>(record.traits.conversation)] = record.end.ns();
  }
  // Every byte was carried once.
  Bytes moved;
  for (const EngineTotals& totals : ran.result.instances) moved += totals.moved_h2d;
  if (!until) {
    EXPECT_EQ(moved, Bytes(100'000'000 * std::ssize(arrivals)));
  }
  return ends;
}

constexpr std::int64_t kMs = 1'000'000;

TEST(Instances, ThatShareALink_DivideItWhileBothCopy) {
  using Ends = std::vector<std::int64_t>;
  EXPECT_EQ(ends_on_one_link({0}), Ends{10 * kMs + 1});
  // A copies 40 MB alone by 4 ms. 60 MB are left, at 5 GB/s until 16 ms. B has 40 MB left then: 20 ms.
  EXPECT_EQ(ends_on_one_link({0, 4 * kMs}), (Ends{16 * kMs + 1, 20 * kMs + 1}));
  EXPECT_EQ(ends_on_one_link({0, 10 * kMs}), (Ends{10 * kMs + 1, 20 * kMs + 1}));
  // A third each from 8 ms on. A: 40 MB by 4 ms, 20 by 8 ms, its last 40 by 20 ms. B: 20 and 40 by 20 ms, its last 40
  // by 28 ms at 5 GB/s. C: 40 by 20 ms, 40 by 28 ms, its last 20 alone by 30 ms.
  EXPECT_EQ(ends_on_one_link({0, 4 * kMs, 8 * kMs}), (Ends{20 * kMs + 1, 28 * kMs + 1, 30 * kMs + 1}));
  // The horizon cuts both.
  EXPECT_EQ(ends_on_one_link({0, 4 * kMs}, SimTime(12 * kMs)), (Ends{12 * kMs, 12 * kMs}));
}

}  // namespace
}  // namespace spillway
