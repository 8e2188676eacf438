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
using oracle::NaiveRouting;
using oracle::WholeModel;

/// Few conversations, and some requests of none. No request follows an answer.
void number_conversations(Dice& dice, NaiveConfig& config) {
  for (RequestSpec& request : config.requests) {
    request.traits.conversation = dice.chance(20) ? -1 : dice.between(0, 9);
  }
  config.follows.assign(config.requests.size(), {.after = -2});
}

/// Prompts of few families: each begins as the others of its family do, and goes on as no other.
void name_prompts(Dice& dice, NaiveConfig& config) {
  const std::int64_t families = dice.between(1, 5);
  for (RequestSpec& request : config.requests) {
    if (dice.chance(20)) continue;
    const auto family = static_cast<std::uint64_t>(dice.between(1, families));
    const std::int64_t blocks = request.input.count() / config.block_tokens.count();
    const std::int64_t common = dice.between(0, blocks);
    const std::int64_t named = dice.chance(30) ? dice.between(0, blocks) : blocks;
    for (std::int64_t b = 0; b < named; ++b) {
      const auto number = static_cast<std::uint64_t>(b);
      request.prefix_ids.push_back(b < common ? 1000 * family + number : dice.roll());
    }
  }
}

/// Some requests come at once with others.
void make_bursts(Dice& dice, NaiveConfig& config) {
  std::int64_t left = 0;
  for (std::size_t i = 0; i < config.requests.size(); ++i) {
    if (left-- > 0) {
      config.requests[i].arrival = config.requests[i - 1].arrival;
    } else {
      left = dice.between(0, 12);
    }
  }
}

/// Requests are sent at the instants at which others have passed the front end.
void meet_in_front_end(NaiveConfig& config) {
  if (config.front_end == Duration{}) return;
  for (RequestSpec& request : config.requests) {
    request.arrival = SimTime(request.arrival.ns() / config.front_end.count() * config.front_end.count());
  }
}

NaiveRouting draw_routing(Dice& dice, const std::string& rule) {
  NaiveRouting routing{.rule = rule};
  if (dice.chance(70)) routing.balance_abs = dice.between(0, 10);
  if (dice.chance(70)) routing.balance_rel = 1.0 + 0.25 * static_cast<double>(dice.between(0, 8));
  if (dice.chance(50)) routing.cache_threshold = 0.125 * static_cast<double>(dice.between(0, 8));
  if (rule == "prefix" && dice.chance(50)) routing.staleness = Duration(dice.between(1, 3000));
  return routing;
}

/// Replicas go down, at times all of them and at the instant of an arrival, and mostly come up again.
void draw_failures(Dice& dice, NaiveClusterConfig& config) {
  const std::vector<RequestSpec>& requests = config.engine.requests;
  const std::int64_t span = requests.back().arrival.ns() + 3000;
  for (std::size_t replica = 0; replica < config.replicas; ++replica) {
    if (dice.chance(30)) continue;
    const auto any = static_cast<std::size_t>(dice.between(0, std::ssize(requests) - 1));
    std::int64_t now = dice.chance(20) ? requests[any].arrival.ns() : dice.between(0, span);
    for (std::int64_t left = dice.between(1, 3); left > 0; --left) {
      config.failures.push_back({.at = SimTime(now), .replica = replica, .up = false});
      if (dice.chance(20)) break;
      now += dice.between(1, span / 2);
      config.failures.push_back({.at = SimTime(now), .replica = replica, .up = true});
      now += dice.between(1, span / 2);
    }
  }
  std::stable_sort(config.failures.begin(), config.failures.end(),
                   [](const NaiveFailure& a, const NaiveFailure& b) { return a.at < b.at; });
  config.retry = dice.chance(70);
}

/// A random case of one policy behind one router.
struct Case {
  Settings settings;
  NaiveClusterConfig config;
  std::int64_t seed = 0;
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
    number_conversations(dice, config);
  }
  if (!config.prefix_caching && dice.chance(70)) name_prompts(dice, config);
  if (dice.chance(50)) make_bursts(dice, config);
  if (dice.chance(40)) meet_in_front_end(config);
  drawn.config.routing = draw_routing(dice, router);
}

RandomStream draws_of(const Case& drawn) { return {drawn.seed, 0, "router"}; }

FastRun run_fast(const Case& drawn, std::size_t replicas) {
  const NaiveConfig& config = drawn.config.engine;
  const NaiveRouting& routing = drawn.config.routing;
  const RouterInfo& router = *RouterRegistry::instance().find(routing.rule);
  Settings settings = drawn.settings;
  for (const Parameter& parameter : router.parameters) {
    settings.set(parameter.name, oracle::default_value(parameter));
  }
  if (routing.rule == "prefix") {
    settings.set("router.balance_abs", routing.balance_abs);
    settings.set("router.balance_rel", routing.balance_rel);
    settings.set("router.cache_threshold", routing.cache_threshold);
    settings.set("router.staleness", routing.staleness);
  }
  SimulationConfig simulation = oracle::simulation_of(config);
  simulation.instances.resize(replicas, simulation.instances.front());
  for (const NaiveFailure& one : drawn.config.failures) simulation.events.push_back({one.at, one.replica, one.up});
  simulation.retry = drawn.config.retry;
  simulation.router = [&](const Replicas& all) {
    return router.make(RouterContext{settings, all, config.block_tokens, draws_of(drawn)});
  };
  return oracle::run_fast(std::move(simulation), config);
}

NaiveClusterResult run_naive(const Case& drawn) {
  NaiveClusterConfig config = drawn.config;
  config.routing.uniform = [draws = draws_of(drawn)]() mutable { return draws.uniform(); };
  return oracle::run_naive_cluster(config);
}

std::string text(const RequestRecord& record) { return oracle::text(record) + "at " + std::to_string(record.replica); }

/// Fails the test unless every field of every record is the same. In which order requests end at one instant is not
/// compared, as replicas may end iterations at the same instant.
void expect_same_records(std::vector<RequestRecord> naive, std::vector<RequestRecord> fast) {
  for (std::vector<RequestRecord>* const records : {&naive, &fast}) {
    std::sort(records->begin(), records->end(), [](const RequestRecord& a, const RequestRecord& b) {
      return std::pair(a.end, a.index) < std::pair(b.end, b.index);
    });
  }
  ASSERT_EQ(naive.size(), fast.size());
  for (std::size_t i = 0; i < naive.size(); ++i) {
    ASSERT_EQ(text(naive[i]), text(fast[i]));
    ASSERT_EQ(naive[i], fast[i]);
  }
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
    for (std::uint64_t i = 0; i < random_cases(100); ++i) {
      ++seed;
      SCOPED_TRACE(policy->name + " seed " + std::to_string(seed));
      Case drawn;
      draw(seed, GetParam(), *policy, model, drawn);
      const FastRun fast = run_fast(drawn, drawn.config.replicas);
      const NaiveClusterResult naive = run_naive(drawn);
      ASSERT_NO_FATAL_FAILURE(expect_same_records(naive.records, fast.records));
      ASSERT_NO_FATAL_FAILURE(expect_nothing_lost(drawn.config, fast));
      ASSERT_NO_FATAL_FAILURE(expect_sums_of_replicas(drawn.config, fast));
      ASSERT_NO_FATAL_FAILURE(expect_same_totals(naive, fast));
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
      draw_failures(dice, drawn.config);
      const FastRun fast = run_fast(drawn, drawn.config.replicas);
      const NaiveClusterResult naive = run_naive(drawn);
      ASSERT_NO_FATAL_FAILURE(expect_same_records(naive.records, fast.records));
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
  EXPECT_GT(lost, 0);
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
      ASSERT_NO_FATAL_FAILURE(expect_same_records(plain.records, routed.records));
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
