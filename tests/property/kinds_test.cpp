// Instances of several kinds on one clock: each kind does what it does alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/oracle/route_by.hpp"
#include "tests/support/cases.hpp"
#include "traces/mixed_source.hpp"

namespace spillway {
namespace {

using oracle::Dice;
using oracle::FollowingSource;
using oracle::NaiveConfig;
using oracle::WholeModel;

/// A kind of instances with private links, and its traffic.
struct Kind {
  WholeModel model;
  Settings settings;
  NaiveConfig config;
  std::size_t replicas = 1;
  std::vector<ReplicaEvent> events;  // of its replicas, from 0
};

void draw(std::uint64_t seed, const PolicyInfo& policy, Kind& kind) {
  kind.model = WholeModel::of(policy);
  oracle::draw_case(seed, policy, kind.model, 1, kind.settings, kind.config);
  Dice dice(seed + 4'000'000);
  if (dice.chance(30)) oracle::draw_conversations(seed, kind.config);
  kind.replicas = static_cast<std::size_t>(dice.between(1, 3));
}

/// Some replicas go down, and come up again.
void draw_failures(Dice& dice, Kind& kind) {
  const std::int64_t span = kind.config.requests.back().arrival.ns() + 3'000;
  for (std::size_t replica = 0; replica < kind.replicas; ++replica) {
    if (dice.chance(50)) continue;
    const std::int64_t down = dice.between(0, span);
    kind.events.push_back({SimTime(down), replica, false});
    kind.events.push_back({SimTime(down + dice.between(1, span)), replica, true});
  }
  std::ranges::stable_sort(kind.events, {}, &ReplicaEvent::at);
}

MakeRouter in_turn(std::size_t replicas) {
  return [replicas](const Replicas& all) {
    return std::make_unique<oracle::RouteBy>([&all, replicas, turn = std::size_t{0}](const RequestSpec&) mutable {
      while (!std::ranges::binary_search(all.up(), turn % replicas)) ++turn;
      return turn++ % replicas;
    });
  };
}

std::vector<InstanceConfig> instances_of(const Kind& kind, RequestSource& source) {
  InstanceConfig instance = oracle::simulation_of(kind.config).instances.front();
  instance.future = &source;
  return std::vector<InstanceConfig>(kind.replicas, instance);
}

/// What holds for the whole run is that of the first kind.
SimulationConfig run_of(const Kind& first, bool retry) {
  SimulationConfig simulation = oracle::simulation_of(first.config);
  simulation.instances.clear();
  simulation.retry = retry;
  return simulation;
}

struct Outcomes {
  std::vector<RequestRecord> records;  // by index
  RunStatistics statistics;
};

Outcomes alone(const Kind& kind, const Kind& first, bool retry) {
  SimulationConfig simulation = run_of(first, retry);
  FollowingSource source(kind.config.requests, kind.config.follows);
  simulation.source = &source;
  simulation.instances = instances_of(kind, source);
  simulation.router = in_turn(kind.replicas);
  simulation.front_end = simulation.metrics.front_end = kind.config.front_end;
  simulation.events = kind.events;
  Outcomes outcomes;
  simulation.on_request = [&](const RequestRecord& record) { outcomes.records.push_back(record); };
  outcomes.statistics = simulate(simulation).statistics;
  std::ranges::sort(outcomes.records, {}, &RequestRecord::index);
  return outcomes;
}

std::vector<Outcomes> together(const std::deque<Kind>& kinds, bool retry) {
  SimulationConfig simulation = run_of(kinds.front(), retry);
  std::vector<traces::MixedPart> parts;
  for (const Kind& kind : kinds) {
    const auto pool = static_cast<std::uint32_t>(parts.size());
    parts.push_back({std::make_unique<FollowingSource>(kind.config.requests, kind.config.follows), {{pool, 1.0, {}}}});
  }
  traces::MixedSource source(std::move(parts), 1, 0);
  simulation.source = &source;
  for (const Kind& kind : kinds) {
    const std::size_t first = simulation.instances.size();
    for (InstanceConfig& instance : instances_of(kind, source)) simulation.instances.push_back(std::move(instance));
    simulation.pools.push_back({kind.replicas, in_turn(kind.replicas), kind.config.front_end});
    for (ReplicaEvent event : kind.events) {
      event.replica += first;
      simulation.events.push_back(event);
    }
  }
  std::ranges::stable_sort(simulation.events, {}, &ReplicaEvent::at);
  std::vector<Outcomes> outcomes(kinds.size());
  simulation.on_request = [&](const RequestRecord& record) { outcomes[record.traits.pool].records.push_back(record); };
  SimulationResult result = simulate(simulation);
  EXPECT_EQ(result.statistics.all.submitted, result.statistics.all.ended());
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    std::ranges::sort(outcomes[i].records, {}, &RequestRecord::index);
    // Its own numbers: of requests, replicas and conversations.
    std::uint64_t index = 0;
    for (RequestRecord& record : outcomes[i].records) {
      record.index = index++;
      record.replica -= first;
      record.traits.pool = 0;
      if (record.traits.conversation >= 0) record.traits.conversation /= std::ssize(kinds);
    }
    first += static_cast<std::uint32_t>(kinds[i].replicas);
    outcomes[i].statistics = std::move(result.pools[i]);
  }
  return outcomes;
}

/// Latencies do not depend on when the run ends.
void expect_same_latencies(const RunStatistics& expected, const RunStatistics& actual) {
  std::int64_t compared = 0;
  for (const Metric& metric : expected.metrics) {
    const bool latency = metric.name.ends_with("_ttft_ms") || metric.name.ends_with("_tpot_ms") ||
                         metric.name.ends_with("_itl_ms") || metric.name.ends_with("_e2e_ms");
    if (!latency || metric.name.starts_with("worst")) continue;
    const Metric* const other = actual.find(metric.name);
    ASSERT_NE(other, nullptr);
    ASSERT_EQ(other->value, metric.value) << metric.name;
    ASSERT_EQ(other->n, metric.n) << metric.name;
    ++compared;
  }
  ASSERT_GE(compared, 4 * 9);  // mean, median, std, min, max and four percentiles of each
  ASSERT_EQ(expected.engine.iterations, actual.engine.iterations);
  ASSERT_EQ(expected.engine.preempted_swap, actual.engine.preempted_swap);
  ASSERT_EQ(expected.engine.prefix_hit, actual.engine.prefix_hit);
  ASSERT_EQ(expected.all.lost, actual.all.lost);
}

TEST(KindsOfInstances, DoWhatTheyDoAlone) {
  const auto policies = PolicyRegistry::instance().all();
  std::int64_t lost = 0;
  std::int64_t swapped = 0;
  for (std::uint64_t seed = 1; seed <= random_cases(400); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed + 5'000'000);
    std::deque<Kind> kinds(static_cast<std::size_t>(dice.between(2, 3)));
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const auto policy = static_cast<std::size_t>(dice.between(0, std::ssize(policies) - 1));
      draw(10 * seed + i, *policies[policy], kinds[i]);
    }
    const bool retry = dice.chance(60);
    if (dice.chance(40)) {
      for (Kind& kind : kinds) draw_failures(dice, kind);
    }
    const std::vector<Outcomes> mixed = together(kinds, retry);
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const Outcomes own = alone(kinds[i], kinds.front(), retry);
      ASSERT_EQ(own.records.size(), mixed[i].records.size());
      for (std::size_t r = 0; r < own.records.size(); ++r) {
        ASSERT_EQ(oracle::text(own.records[r]), oracle::text(mixed[i].records[r])) << "kind " << i;
        ASSERT_EQ(own.records[r], mixed[i].records[r]);
      }
      ASSERT_NO_FATAL_FAILURE(expect_same_latencies(own.statistics, mixed[i].statistics));
      lost += own.statistics.all.lost;
      swapped += own.statistics.engine.preempted_swap;
    }
  }
  EXPECT_GT(lost, more_than(0));
  EXPECT_GT(swapped, more_than(0));
}

}  // namespace
}  // namespace spillway
