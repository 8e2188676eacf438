// Several replicas behind every registered router: the simulator against plain engines behind a plain router, and the
// rules of every run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/naive_cluster.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/oracle/random_cluster.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using oracle::Dice;
using oracle::FastRun;
using oracle::NaiveClusterConfig;
using oracle::NaiveClusterResult;
using oracle::NaiveConfig;
using oracle::NaiveFailure;
using oracle::NaiveResult;
using oracle::WholeModel;

/// A random case of one policy behind one router.
struct Case {
  Settings settings;
  NaiveClusterConfig config;
  std::int64_t seed = 0;
  std::int64_t warmup = 0;  // requests
};

void draw(std::uint64_t seed, const std::string& router, const PolicyInfo& policy, const WholeModel& model,
          Case& drawn) {
  NaiveConfig& config = drawn.config.engine;
  oracle::draw_case(seed, policy, model, 1, drawn.settings, config);
  Dice dice(seed + 2'000'000);
  drawn.seed = static_cast<std::int64_t>(seed);
  drawn.config.replicas = static_cast<std::size_t>(dice.between(2, 5));
  if (dice.chance(30)) {
    oracle::draw_conversations(seed, config);
  } else if (dice.chance(50)) {
    oracle::number_conversations(dice, config);
  }
  if (!config.prefix_caching && dice.chance(70)) oracle::name_prompts(dice, config);
  if (dice.chance(50)) oracle::make_bursts(dice, config);
  if (dice.chance(40)) oracle::meet_in_front_end(config);
  drawn.config.routing = oracle::draw_routing(dice, router);
}

/// `watched`: somebody looks at the instances now and then, so nothing that they do may be put off.
FastRun run_fast(const Case& drawn, std::size_t replicas, bool watched = false) {
  const NaiveConfig& config = drawn.config.engine;
  SimulationConfig simulation = oracle::simulation_of(config);
  simulation.instances.resize(replicas, simulation.instances.front());
  for (const NaiveFailure& one : drawn.config.failures) simulation.events.push_back({one.at, one.replica, one.up});
  simulation.retry = drawn.config.retry;
  simulation.router = oracle::router_of(drawn.config.routing, config.block_tokens, drawn.seed);
  if (drawn.warmup > 0) simulation.metrics.warmup = {.kind = Span::Kind::requests, .requests = drawn.warmup};
  if (watched) simulation.on_observation = [](const Observation&) {};
  return oracle::run_fast(std::move(simulation), config);
}

NaiveClusterResult run_naive(const Case& drawn) {
  NaiveClusterConfig config = drawn.config;
  oracle::draw_from(config.routing, drawn.seed);
  return oracle::run_naive_cluster(config);
}

/// Every request that a client has sent ends once.
void expect_nothing_lost(const NaiveClusterConfig& config, const FastRun& fast) {
  std::vector<bool> ended(fast.records.size());
  for (const RequestRecord& record : fast.records) {
    ASSERT_LT(record.index, ended.size());
    ASSERT_FALSE(ended[record.index]) << "request " << record.index << " ended twice";
    ended[record.index] = true;
  }
  const auto follows = [](const oracle::Follows& one) { return one.after >= 0; };
  const NaiveConfig& engine = config.engine;
  if (!engine.until && std::none_of(engine.follows.begin(), engine.follows.end(), follows)) {
    ASSERT_EQ(ended.size(), engine.requests.size());
  }
  const OutcomeCounts& all = fast.result.statistics.all;
  ASSERT_EQ(all.submitted, std::ssize(fast.records));
  ASSERT_EQ(all.finished + all.rejected + all.timed_out + all.unfinished + all.lost, all.submitted);
}

/// The sums of each replica are those of the records.
void expect_sums_of_replicas(const NaiveClusterConfig& config, const FastRun& fast) {
  std::vector<std::int64_t> sent(config.replicas);
  std::vector<std::int64_t> finished(config.replicas);
  for (const RequestRecord& record : fast.records) {
    ++sent.at(record.replica);
    finished.at(record.replica) += record.outcome == Outcome::finished ? 1 : 0;
  }
  const std::vector<ReplicaStatistics>& replicas = fast.result.statistics.replicas;
  ASSERT_EQ(replicas.size(), config.replicas);
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    ASSERT_EQ(replicas[i].finished, finished[i]);
    if (config.failures.empty()) {
      ASSERT_EQ(replicas[i].sent, sent[i]);
    }
  }
}

void expect_same_totals(const NaiveClusterResult& naive, const FastRun& fast) {
  for (std::size_t i = 0; i < naive.replicas.size(); ++i) {
    const NaiveResult& one = naive.replicas[i];
    const EngineTotals& totals = fast.result.instances[i];
    ASSERT_EQ(one.iterations, totals.iterations);
    ASSERT_EQ(one.moved_h2d, totals.moved_h2d);
    ASSERT_EQ(one.moved_d2h, totals.moved_d2h);
    ASSERT_EQ(one.prefix_hit, totals.prefix_hit);
    ASSERT_EQ(one.prefix_hit_host, totals.prefix_hit_host);
    ASSERT_EQ(one.preempted_recompute, totals.preempted_recompute);
    ASSERT_EQ(one.preempted_swap, totals.preempted_swap);
  }
}

/// Some replica is up when nothing changes any more.
bool comes_up_again(const NaiveClusterConfig& config) {
  std::vector<bool> up(config.replicas, true);
  for (const NaiveFailure& one : config.failures) up[one.replica] = one.up;
  return std::find(up.begin(), up.end(), true) != up.end();
}

class Cluster : public testing::TestWithParam<std::string> {};

TEST_P(Cluster, IsThatOfPlainEnginesBehindAPlainRouter) {
  std::uint64_t seed = 0;
  for (const PolicyInfo* const policy : PolicyRegistry::instance().all()) {
    const WholeModel model = WholeModel::of(*policy);
    for (std::uint64_t i = 0; i < random_cases(50); ++i) {
      ++seed;
      SCOPED_TRACE(policy->name + " seed " + std::to_string(seed));
      Case drawn;
      draw(seed, GetParam(), *policy, model, drawn);
      FastRun fast;
      ASSERT_NO_THROW(fast = run_fast(drawn, drawn.config.replicas));
      const NaiveClusterResult naive = run_naive(drawn);
      ASSERT_NO_FATAL_FAILURE(oracle::expect_same_records(naive.records, fast.records));
      ASSERT_NO_FATAL_FAILURE(expect_nothing_lost(drawn.config, fast));
      ASSERT_NO_FATAL_FAILURE(expect_sums_of_replicas(drawn.config, fast));
      ASSERT_NO_FATAL_FAILURE(expect_same_totals(naive, fast));
    }
  }
}

TEST_P(Cluster, IsTheSameWhenNothingIsPutOff) {
  std::uint64_t seed = 0;
  for (const PolicyInfo* const policy : PolicyRegistry::instance().all()) {
    const WholeModel model = WholeModel::of(*policy);
    for (std::uint64_t i = 0; i < random_cases(50); ++i) {
      ++seed;
      SCOPED_TRACE(policy->name + " seed " + std::to_string(seed));
      Case drawn;
      draw(seed, GetParam(), *policy, model, drawn);
      drawn.warmup = static_cast<std::int64_t>(seed % 4);
      const FastRun late = run_fast(drawn, drawn.config.replicas);
      const FastRun watched = run_fast(drawn, drawn.config.replicas, /*watched=*/true);
      ASSERT_NO_FATAL_FAILURE(oracle::expect_same_records(watched.records, late.records));
      const RunStatistics& statistics = late.result.statistics;
      ASSERT_EQ(statistics.engine.iterations, watched.result.statistics.engine.iterations);
      ASSERT_EQ(statistics.metrics.size(), watched.result.statistics.metrics.size());
      for (std::size_t m = 0; m < statistics.metrics.size(); ++m) {
        ASSERT_EQ(statistics.metrics[m].value, watched.result.statistics.metrics[m].value)
            << statistics.metrics[m].name;
      }
    }
  }
}

TEST_P(Cluster, WhoseReplicasGoDownIsThatOfPlainEngines) {
  std::uint64_t seed = 0;
  std::int64_t lost = 0;
  for (const PolicyInfo* const policy : PolicyRegistry::instance().all()) {
    const WholeModel model = WholeModel::of(*policy);
    for (std::uint64_t i = 0; i < random_cases(50); ++i) {
      ++seed;
      SCOPED_TRACE(policy->name + " seed " + std::to_string(seed));
      Case drawn;
      draw(seed, GetParam(), *policy, model, drawn);
      Dice dice(seed + 3'000'000);
      drawn.config.replicas = static_cast<std::size_t>(dice.between(1, 4));
      drawn.config.failures = oracle::draw_failures(dice, drawn.config.engine.requests, drawn.config.replicas);
      drawn.config.retry = dice.chance(70);
      FastRun fast;
      ASSERT_NO_THROW(fast = run_fast(drawn, drawn.config.replicas));
      const NaiveClusterResult naive = run_naive(drawn);
      ASSERT_NO_FATAL_FAILURE(oracle::expect_same_records(naive.records, fast.records));
      ASSERT_NO_FATAL_FAILURE(expect_nothing_lost(drawn.config, fast));
      if (drawn.config.replicas > 1) {
        ASSERT_NO_FATAL_FAILURE(expect_sums_of_replicas(drawn.config, fast));
      }
      const std::int64_t lost_now = fast.result.statistics.all.lost;
      if (drawn.config.retry && comes_up_again(drawn.config)) {
        ASSERT_EQ(lost_now, 0);
      }
      lost += lost_now;
    }
  }
  EXPECT_GT(lost, more_than(0));
}

TEST_P(Cluster, OfOneReplicaRunsAsWithoutARouter) {
  std::uint64_t seed = 0;
  for (const PolicyInfo* const policy : PolicyRegistry::instance().all()) {
    const WholeModel model = WholeModel::of(*policy);
    for (std::uint64_t i = 0; i < random_cases(10); ++i) {
      ++seed;
      SCOPED_TRACE(policy->name + " seed " + std::to_string(seed));
      Case drawn;
      draw(seed, GetParam(), *policy, model, drawn);
      const FastRun routed = run_fast(drawn, 1);
      const FastRun plain = oracle::run_fast(drawn.config.engine);
      ASSERT_NO_FATAL_FAILURE(oracle::expect_same_records(plain.records, routed.records));
      ASSERT_EQ(routed.result.statistics.engine.iterations, plain.result.statistics.engine.iterations);
      ASSERT_EQ(routed.result.statistics.span, plain.result.statistics.span);
    }
  }
}

std::vector<std::string> routers() {
  std::vector<std::string> names;
  for (const RouterInfo* const router : RouterRegistry::instance().all()) names.push_back(router->name);
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(EveryRouter, Cluster, testing::ValuesIn(routers()), test_name);

}  // namespace
}  // namespace spillway
