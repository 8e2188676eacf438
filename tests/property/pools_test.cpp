// Prefill and decode pools over random cases: policies, routers, links, failures, time-outs, horizons. Nothing is lost
// without a count, nothing is kept for ever, and every time of a request is in order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using oracle::Dice;
using oracle::FastRun;
using oracle::NaiveConfig;
using oracle::WholeModel;

/// What the random cases have come to, so that a test can say that they reached it.
struct Reached {
  std::int64_t handed_over = 0;
  std::int64_t of_layers = 0;
  std::int64_t lost = 0;
  std::int64_t again = 0;  // requests that a replica lost and that were answered
  std::int64_t timed_out = 0;
  std::int64_t cut = 0;
  std::int64_t rejected = 0;
};

MakeRouter router_of(Dice& dice) {
  const std::vector<const RouterInfo*> all = RouterRegistry::instance().all();
  const RouterInfo* const info = all[static_cast<std::size_t>(dice.between(0, std::ssize(all) - 1))];
  return [info](const Replicas& replicas) {
    Settings settings;
    settings.set("router.balance_abs", std::int64_t{4});
    settings.set("router.balance_rel", 1.5);
    settings.set("router.cache_threshold", 0.3);
    settings.set("router.staleness", Duration(50));
    return info->make({settings, replicas, Tokens(16), RandomStream(1, 0, "router")});
  };
}

/// Transfers between all pairs over ports of one rate, and some over a link that all share.
Handover draw_handover(Dice& dice, std::size_t replicas) {
  Handover handover;
  handover.prefill = static_cast<std::size_t>(dice.between(1, static_cast<std::int64_t>(replicas) - 1));
  handover.decode_router = router_of(dice);
  handover.first_token_at_prefill = dice.chance(50);
  handover.by_layers = dice.chance(50);
  const double rate = 1e6 * static_cast<double>(dice.between(1, 4000));
  handover.links.assign(replicas + 1, BytesPerSecond(rate));
  const Duration launch(dice.chance(50) ? 0 : dice.between(1, 500));
  const bool shared = dice.chance(50);
  const std::size_t prefill = handover.prefill;
  handover.path = [launch, rate, shared, prefill, replicas](std::size_t from, std::size_t to) {
    HandoverPath path{launch, BytesPerSecond(rate), {{from}, {prefill + to}}};
    if (shared) path.crossings.push_back({replicas, 0.5});
    return path;
  };
  return handover;
}

/// Copies of the instances and hand-overs cross a link that carries little more than one of them.
void share_with_copies(Dice& dice, SimulationConfig& simulation) {
  const BytesPerSecond link(1e6 * static_cast<double>(dice.between(1'000, 4'000)));
  simulation.links = {link};
  for (InstanceConfig& instance : simulation.instances) {
    if (dice.chance(70)) instance.route = {.h2d = {{0, 1}}, .d2h = {{0, 1}}};
  }
  Handover& handover = *simulation.handover;
  handover.links.insert(handover.links.begin(), link);
  handover.path = [path = std::move(handover.path), share = dice.chance(50) ? 1.0 : 0.5](std::size_t from,
                                                                                         std::size_t to) {
    HandoverPath all = path(from, to);
    for (HandoverPath::Crossing& crossing : all.crossings) ++crossing.link;
    if ((from + to) % 3 < 2) all.crossings.push_back({0, share});
    return all;
  };
}

std::vector<ReplicaEvent> draw_events(Dice& dice, std::size_t replicas, std::int64_t span) {
  std::vector<ReplicaEvent> events;
  for (std::size_t replica = 0; replica < replicas; ++replica) {
    if (dice.chance(50)) continue;
    std::int64_t now = dice.between(0, span);
    for (std::int64_t left = dice.between(1, 3); left > 0; --left) {
      events.push_back({SimTime(now), replica, false});
      if (dice.chance(20)) break;
      now += dice.between(1, span / 2);
      events.push_back({SimTime(now), replica, true});
      now += dice.between(1, span / 2);
    }
  }
  std::ranges::stable_sort(events, {}, &ReplicaEvent::at);
  return events;
}

void check(const SimulationConfig& simulation, const FastRun& run, std::size_t requests, Reached& reached) {
  std::set<std::uint64_t> seen;
  const std::size_t prefill = simulation.handover->prefill;
  std::vector<std::int64_t> finished(simulation.instances.size());
  for (const RequestRecord& record : run.records) {
    ASSERT_TRUE(seen.insert(record.index).second) << "request " << record.index << " ended twice";
    ASSERT_LE(record.arrival, record.end);
    if (simulation.until) {
      ASSERT_LE(record.end, *simulation.until);
    }
    ASSERT_LT(record.replica, prefill);
    if (record.decode_replica != RequestRecord::kNoReplica) {
      ASSERT_GE(record.decode_replica, prefill);
      ASSERT_LT(record.decode_replica, simulation.instances.size());
    }
    reached.timed_out += record.outcome == Outcome::timed_out ? 1 : 0;
    reached.cut += record.outcome == Outcome::unfinished ? 1 : 0;
    reached.rejected += record.outcome == Outcome::rejected ? 1 : 0;
    reached.lost += record.outcome == Outcome::lost ? 1 : 0;
    if (record.outcome != Outcome::finished) continue;
    ASSERT_EQ(record.generated, record.output);
    ASSERT_LE(record.arrival, record.first_scheduled);
    ASSERT_LE(record.first_scheduled, record.first_token);
    ASSERT_LE(record.first_token, record.end);
    ASSERT_LE(record.computing, record.end - record.first_scheduled);
    const bool alone = simulation.handover->first_token_at_prefill && record.output == Tokens(1);
    ASSERT_EQ(record.decode_replica == RequestRecord::kNoReplica, alone);
    ++finished[alone ? record.replica : record.decode_replica];
  }
  if (!simulation.until) {
    ASSERT_EQ(seen.size(), requests);
  }
  const RunStatistics& statistics = run.result.statistics;
  ASSERT_EQ(statistics.all.submitted, std::ssize(run.records));
  ASSERT_EQ(statistics.all.ended(), std::ssize(run.records));
  std::int64_t lost = 0;
  for (std::size_t i = 0; i < statistics.replicas.size(); ++i) {
    const ReplicaStatistics& one = statistics.replicas[i];
    ASSERT_EQ(one.pool, i < prefill ? 0 : 1);
    ASSERT_GE(one.sent, one.finished + one.lost);
    if (i >= prefill) {
      ASSERT_EQ(one.finished, finished[i]);
    }
    lost += one.lost;
  }
  if (simulation.retry && lost > 0) reached.again += statistics.all.finished;
  ASSERT_TRUE(statistics.handover.has_value());
  reached.handed_over += statistics.handover->transfers;
  if (simulation.handover->by_layers) reached.of_layers += statistics.handover->transfers;
  ASSERT_GE(statistics.handover->waited, 0.0);
  ASSERT_GE(statistics.handover->moved, 0.0);
}

class Pools : public testing::TestWithParam<std::string> {};

TEST_P(Pools, LoseNothingWithoutACount) {
  const PolicyInfo& info = *PolicyRegistry::instance().find(GetParam());
  const WholeModel model = WholeModel::of(info);
  Reached reached;
  for (std::uint64_t seed = 1; seed <= 800; ++seed) {
    SCOPED_TRACE(GetParam() + " seed " + std::to_string(seed));
    Settings settings;
    NaiveConfig config;
    oracle::draw_case(seed, info, model, 1, settings, config);
    config.phases = Phases::both;
    config.host_cache_blocks = Blocks(0);
    config.padding.reset();
    std::ranges::fill(config.follows, oracle::Follows{});
    std::ranges::stable_sort(config.requests, {}, &RequestSpec::arrival);
    Dice dice(seed + 7'000'000);
    SimulationConfig simulation = oracle::simulation_of(config);
    const auto replicas = static_cast<std::size_t>(dice.between(2, 5));
    simulation.instances.resize(replicas, simulation.instances.front());
    simulation.handover = draw_handover(dice, replicas);
    simulation.router = router_of(dice);
    for (std::size_t i = 0; i < replicas; ++i) {
      simulation.instances[i].phases = i < simulation.handover->prefill ? Phases::prefill : Phases::decode;
      simulation.instances[i].hands_over = true;
    }
    const std::int64_t span = config.requests.back().arrival.ns() + 3000;
    if (dice.chance(50)) simulation.events = draw_events(dice, replicas, span);
    simulation.retry = dice.chance(70);
    if (dice.chance(40)) share_with_copies(dice, simulation);
    FastRun run;
    ASSERT_NO_THROW(run = oracle::run_fast(simulation, config));
    check(simulation, run, config.requests.size(), reached);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(reached.handed_over, 500);
  EXPECT_GT(reached.of_layers, 200);
  EXPECT_GT(reached.lost, 20);
  EXPECT_GT(reached.again, 200);
}

std::vector<std::string> policies() {
  std::vector<std::string> names;
  for (const PolicyInfo* const policy : PolicyRegistry::instance().all()) {
    if (policy->takes_kv_over && !policy->streams.kv && !policy->keeps_conversations) names.push_back(policy->name);
  }
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(EveryPolicy, Pools, testing::ValuesIn(policies()), test_name);

}  // namespace
}  // namespace spillway
