// Several instances on one clock: each does what it would do alone.
#include <gtest/gtest.h>

#include <algorithm>
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

oracle::FastRun run(const NaiveConfig& config, std::size_t instances) {
  SimulationConfig simulation = oracle::simulation_of(config);
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
      const oracle::FastRun together = run(config, kInstances);
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
        ASSERT_EQ(a.moved_h2d, b.moved_h2d);
        ASSERT_EQ(a.moved_d2h, b.moved_d2h);
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

}  // namespace
}  // namespace spillway
