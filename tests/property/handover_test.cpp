// Prefill and decode pools: the simulator against plain engines and a plain account of what moves between them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/naive_pools.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/oracle/random_cluster.hpp"
#include "tests/support/cases.hpp"
#include "traces/mixed_source.hpp"

namespace spillway {
namespace {

using oracle::Dice;
using oracle::FastRun;
using oracle::NaiveConfig;
using oracle::NaiveFailure;
using oracle::NaivePoolsConfig;
using oracle::NaivePoolsResult;
using oracle::NaiveWay;
using oracle::WholeModel;

std::string draw_router(Dice& dice) {
  const std::vector<const RouterInfo*> all = RouterRegistry::instance().all();
  return all[static_cast<std::size_t>(dice.between(0, std::ssize(all) - 1))]->name;
}

/// Every engine has a link of its own, and some transfers cross one that all share. A byte takes whole nanoseconds, and
/// each of up to three layers has whole bytes.
void draw_ways(Dice& dice, NaivePoolsConfig& config) {
  const std::size_t engines = config.gpu_blocks.size();
  config.engine.block_bytes = Bytes(96 * dice.between(1, 6));
  config.gpus = dice.between(1, 2);
  const double rate = 1e9 / static_cast<double>(dice.between(1, dice.chance(50) ? 3 : 20));
  config.links.assign(engines + 1, rate);
  const Duration launch(dice.chance(50) ? 0 : dice.between(1, 500));
  const bool shared = dice.chance(50);
  const std::size_t prefill = config.prefill;
  config.way = [launch, rate, shared, prefill, engines](std::size_t from, std::size_t to) {
    NaiveWay way{launch, rate, {{from}, {prefill + to}}};
    if (shared) way.crossings.push_back({engines, 0.5});
    return way;
  };
}

/// Of one to three layers, or of as many as a policy that streams them needs.
WholeModel model_of(const PolicyInfo& policy, std::uint64_t seed) {
  return policy.layout ? WholeModel::of(policy) : WholeModel(1, 1, {}, static_cast<std::int32_t>(1 + seed % 3));
}

/// Pools of a policy that lays out the memory for the phase which its settings name: each has its own settings and
/// blocks. A layout may not fit in some phase; then both pools have those that the case has drawn.
void tell_pools_apart(const PolicyInfo& policy, const Settings& settings, NaivePoolsConfig& config) {
  if (!settings.has("policy.phase") || !policy.layout) return;
  NaiveConfig& engine = config.engine;
  try {
    for (const char* const phase : {"prefill", "decode"}) {
      Settings own = settings;
      own.set("policy.phase", std::string(phase));
      Layout layout = policy.layout(engine.deployment, own);
      if (layout.blocks == Blocks(0)) throw ConfigError("no block fits", "", "");
      config.of_pool.push_back({std::move(own), std::move(layout)});
    }
  } catch (const ConfigError&) {
    config.of_pool.clear();
    return;
  }
  for (std::size_t i = 0; i < config.gpu_blocks.size(); ++i) {
    config.gpu_blocks[i] = config.of_pool[i < config.prefill ? 0 : 1].layout.blocks;
  }
  for (const oracle::NaivePool& pool : config.of_pool) {
    engine.max_model_len = std::min(engine.max_model_len, engine.block_tokens * pool.layout.most.count());
  }
}

/// A random case of one policy.
struct Case {
  Settings settings;
  NaivePoolsConfig config;
  std::int64_t seed = 0;
};

void draw(std::uint64_t seed, const PolicyInfo& policy, const WholeModel& model, Case& drawn) {
  NaiveConfig& engine = drawn.config.engine;
  oracle::draw_case(seed, policy, model, 1, drawn.settings, engine);
  engine.phases = Phases::both;
  engine.host_cache_blocks = Blocks(0);
  engine.padding.reset();
  Dice dice(seed + 4'000'000);
  drawn.seed = static_cast<std::int64_t>(seed);
  NaivePoolsConfig& config = drawn.config;
  config.prefill = static_cast<std::size_t>(dice.between(1, 3));
  const std::size_t engines = config.prefill + static_cast<std::size_t>(dice.between(1, 3));
  config.gpu_blocks.assign(engines, engine.gpu_blocks);
  for (Blocks& blocks : config.gpu_blocks) {
    const std::int64_t most = engine.gpu_blocks.count();
    // The policy knows how many blocks there are if it laid them out.
    if (!policy.layout && dice.chance(30)) blocks = Blocks(dice.between((most + 1) / 2, most));
    // A policy may count on room for the longest request.
    engine.max_model_len = std::min(engine.max_model_len, engine.block_tokens * blocks.count());
  }
  tell_pools_apart(policy, drawn.settings, config);
  config.by_layers = dice.chance(50);
  config.first_token_at_prefill = dice.chance(50);
  draw_ways(dice, config);
  if (engine.prefix_caching && dice.chance(50)) {
    for (RequestSpec& request : engine.requests) request.prefix_ids.clear();
    oracle::name_prompts(dice, engine);
  }
  if (dice.chance(50)) oracle::make_bursts(dice, engine);
  if (dice.chance(40)) oracle::meet_in_front_end(engine);
  config.prompts = oracle::draw_routing(dice, draw_router(dice));
  config.answers = oracle::draw_routing(dice, draw_router(dice));
}

/// `drawn` and the simulation's source must outlive it.
SimulationConfig simulation_of(const Case& drawn) {
  const NaivePoolsConfig& config = drawn.config;
  SimulationConfig simulation = oracle::simulation_of(config.engine);
  simulation.instances.resize(config.gpu_blocks.size(), simulation.instances.front());
  for (std::size_t i = 0; i < simulation.instances.size(); ++i) {
    InstanceConfig& instance = simulation.instances[i];
    instance.kv.gpu_blocks = config.gpu_blocks[i];
    instance.phases = i < config.prefill ? Phases::prefill : Phases::decode;
    instance.hands_over = true;
    if (config.of_pool.empty()) continue;
    const oracle::NaivePool& own = config.of_pool[i < config.prefill ? 0 : 1];
    instance.settings = &own.settings;
    instance.kv.most_gpu_blocks = own.layout.most;
  }
  Handover& handover = simulation.handover.emplace();
  handover.prefill = config.prefill;
  handover.by_layers = config.by_layers;
  handover.first_token_at_prefill = config.first_token_at_prefill;
  handover.gpus = config.gpus;
  for (const double link : config.links) handover.links.emplace_back(link);
  handover.path = [&config](std::size_t from, std::size_t to) {
    const NaiveWay way = config.way(from, to);
    HandoverPath path{way.launch, BytesPerSecond(way.bytes_per_second)};
    for (const auto& [link, share] : way.crossings) path.crossings.push_back({link, share});
    return path;
  };
  const Tokens block = config.engine.block_tokens;
  simulation.router = oracle::router_of(config.prompts, block, drawn.seed);
  handover.decode_router = oracle::router_of(config.answers, block, drawn.seed + 1);
  for (const NaiveFailure& one : config.failures) simulation.events.push_back({one.at, one.replica, one.up});
  simulation.retry = config.retry;
  return simulation;
}

FastRun run_fast(const Case& drawn) { return oracle::run_fast(simulation_of(drawn), drawn.config.engine); }

/// The same pools beside an instance of another kind, which has requests and links of its own. The records of what the
/// pools served, numbered as if they were alone.
std::vector<RequestRecord> run_beside(const Case& drawn, const NaiveConfig& other, bool pools_first) {
  SimulationConfig simulation = simulation_of(drawn);
  const std::size_t replicas = simulation.instances.size();
  const InstanceConfig beside = oracle::simulation_of(other).instances.front();
  const NaiveConfig& engine = drawn.config.engine;
  const PoolConfig kind{replicas, std::move(simulation.router), engine.front_end};
  const std::size_t number = pools_first ? 0 : 1;
  simulation.instances.insert(pools_first ? simulation.instances.end() : simulation.instances.begin(), beside);
  simulation.pools = {PoolConfig{}};
  simulation.pools.insert(pools_first ? simulation.pools.begin() : simulation.pools.end(), kind);
  simulation.handover->kind = number;
  std::vector<traces::MixedPart> parts;
  parts.push_back({std::make_unique<oracle::FollowingSource>(engine.requests, engine.follows),
                   {{static_cast<std::uint32_t>(number), 1.0, {}}}});
  parts.push_back({std::make_unique<oracle::FollowingSource>(other.requests, other.follows),
                   {{static_cast<std::uint32_t>(1 - number), 1.0, {}}}});
  traces::MixedSource source(std::move(parts), 1, 0);
  simulation.source = &source;
  std::vector<RequestRecord> records;
  simulation.on_request = [&](const RequestRecord& record) {
    if (record.traits.pool != number) return;
    records.push_back(record);
    records.back().traits = {};  // conversations have other numbers
    const std::uint32_t before = pools_first ? 0 : 1;
    records.back().replica -= before;
    if (record.decode_replica != RequestRecord::kNoReplica) records.back().decode_replica -= before;
  };
  const SimulationResult result = simulate(simulation);
  EXPECT_EQ(std::ssize(records), result.pools.at(number).all.submitted);
  std::ranges::sort(records, {}, &RequestRecord::index);
  for (std::size_t i = 0; i < records.size(); ++i) records[i].index = i;
  return records;
}

NaivePoolsResult run_naive(const Case& drawn) {
  NaivePoolsConfig config = drawn.config;
  oracle::draw_from(config.prompts, drawn.seed);
  oracle::draw_from(config.answers, drawn.seed + 1);
  return oracle::run_naive_pools(config);
}

void expect_same_replicas(const NaivePoolsResult& naive, const FastRun& fast) {
  const std::vector<ReplicaStatistics>& replicas = fast.result.statistics.replicas;
  ASSERT_EQ(replicas.size(), naive.sent.size());
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    SCOPED_TRACE("replica " + std::to_string(i));
    ASSERT_EQ(naive.sent[i], replicas[i].sent);
    ASSERT_EQ(naive.finished[i], replicas[i].finished);
    ASSERT_EQ(naive.lost[i], replicas[i].lost);
  }
}

void expect_same_handovers(const NaivePoolsResult& naive, const FastRun& fast) {
  const HandoverTotals& totals = fast.result.statistics.handover.value();
  ASSERT_EQ(naive.transfers, totals.transfers);
  ASSERT_EQ(naive.bytes, totals.bytes);
  ASSERT_NEAR(to_seconds(naive.waited), totals.waited, 1e-12);
  ASSERT_NEAR(to_seconds(naive.moved), totals.moved, 1e-12);
  const std::vector<LinkUse>& links = fast.result.statistics.links;
  ASSERT_EQ(naive.link_bytes.size(), links.size());
  for (std::size_t i = 0; i < links.size(); ++i) ASSERT_NEAR(naive.link_bytes[i], links[i].bytes, 1e-3);
}

void expect_same_totals(const NaivePoolsResult& naive, const FastRun& fast) {
  for (std::size_t i = 0; i < naive.engines.size(); ++i) {
    SCOPED_TRACE("replica " + std::to_string(i));
    const EngineTotals& totals = fast.result.instances[i];
    ASSERT_EQ(naive.engines[i].iterations, totals.iterations);
    ASSERT_EQ(naive.engines[i].prefix_hit, totals.prefix_hit);
    ASSERT_EQ(naive.engines[i].preempted_recompute, totals.preempted_recompute);
    ASSERT_EQ(naive.engines[i].preempted_swap, totals.preempted_swap);
    ASSERT_EQ(naive.engines[i].moved_h2d, totals.moved_h2d);
    ASSERT_EQ(naive.engines[i].moved_d2h, totals.moved_d2h);
  }
}

/// What the random cases have come to, so that the test can say that they reached it.
struct Reached {
  std::int64_t by_layers = 0;
  std::int64_t whole = 0;
  std::int64_t timed_out = 0;
  std::int64_t cut = 0;
  std::int64_t lost = 0;   // for good
  std::int64_t again = 0;  // lost by a replica and not for good
  std::int64_t apart = 0;  // cases whose pools follow an SLO of their own phase
};

void count(const NaivePoolsConfig& config, const NaivePoolsResult& naive, Reached& reached) {
  (config.by_layers ? reached.by_layers : reached.whole) += naive.transfers;
  std::int64_t lost = 0;
  reached.apart += !config.of_pool.empty() && !config.of_pool.front().settings.has("policy.interval") ? 1 : 0;
  for (const RequestRecord& record : naive.records) {
    reached.timed_out += record.outcome == Outcome::timed_out ? 1 : 0;
    reached.cut += record.outcome == Outcome::unfinished ? 1 : 0;
    lost += record.outcome == Outcome::lost ? 1 : 0;
  }
  reached.lost += lost;
  for (const std::int64_t by_replica : naive.lost) reached.again += by_replica;
}

class Handovers : public testing::TestWithParam<std::string> {
 protected:
  void compare(std::uint64_t cases, bool fail) {
    const PolicyInfo& policy = *PolicyRegistry::instance().find(GetParam());
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
      SCOPED_TRACE(GetParam() + " seed " + std::to_string(seed));
      const WholeModel model = model_of(policy, seed);
      Case drawn;
      draw(seed, policy, model, drawn);
      NaivePoolsConfig& config = drawn.config;
      Dice dice(seed + 5'000'000);
      if (fail) config.failures = oracle::draw_failures(dice, config.engine.requests, config.gpu_blocks.size());
      config.retry = dice.chance(70);
      FastRun fast;
      ASSERT_NO_THROW(fast = run_fast(drawn));
      const NaivePoolsResult naive = run_naive(drawn);
      ASSERT_NO_FATAL_FAILURE(oracle::expect_same_records(naive.records, fast.records));
      ASSERT_NO_FATAL_FAILURE(expect_same_replicas(naive, fast));
      ASSERT_NO_FATAL_FAILURE(expect_same_handovers(naive, fast));
      if (!fail) {
        ASSERT_NO_FATAL_FAILURE(expect_same_totals(naive, fast));
      }
      count(config, naive, reached_);
    }
  }

  Reached reached_{};
};

TEST_P(Handovers, AreThoseOfAPlainModel) {
  ASSERT_NO_FATAL_FAILURE(compare(random_cases(500), /*fail=*/false));
  EXPECT_GT(reached_.by_layers, more_than(0));
  EXPECT_GT(reached_.whole, more_than(0));
  EXPECT_GT(reached_.timed_out, more_than(0));
  EXPECT_GT(reached_.cut, more_than(0));
  if (GetParam() == "select-n") {
    EXPECT_GT(reached_.apart, more_than(20));
  }
}

TEST_P(Handovers, BetweenReplicasThatGoDownAreThoseOfAPlainModel) {
  ASSERT_NO_FATAL_FAILURE(compare(random_cases(500), /*fail=*/true));
  EXPECT_GT(reached_.by_layers, more_than(0));
  EXPECT_GT(reached_.whole, more_than(0));
  EXPECT_GT(reached_.lost, more_than(0));
  EXPECT_GT(reached_.again, more_than(0));
}

// One replica computes prompts and one answers: which of several comes first at one instant is left open.
TEST_P(Handovers, BesideInstancesOfAnotherKind_AreAsAlone) {
  const PolicyInfo& policy = *PolicyRegistry::instance().find(GetParam());
  for (std::uint64_t seed = 1; seed <= random_cases(100); ++seed) {
    SCOPED_TRACE(GetParam() + " seed " + std::to_string(seed));
    const WholeModel model = model_of(policy, seed);
    Case drawn;
    draw(seed, policy, model, drawn);
    Dice dice(seed + 6'000'000);
    drawn.config.prefill = 1;
    drawn.config.gpu_blocks.resize(2);
    Settings settings;
    NaiveConfig other;
    oracle::draw_case(seed + 500, *PolicyRegistry::instance().find("vllm"), model, 1, settings, other);
    other.phases = Phases::both;
    other.padding.reset();
    // Those that follow an answer would be numbered among those of the other kind.
    for (NaiveConfig* const one : {&drawn.config.engine, &other})
      one->follows.assign(one->requests.size(), {.after = -2});
    FastRun alone = run_fast(drawn);
    std::ranges::sort(alone.records, {}, &RequestRecord::index);
    for (RequestRecord& record : alone.records) record.traits = {};
    ASSERT_NO_FATAL_FAILURE(oracle::expect_same_records(run_beside(drawn, other, dice.chance(50)), alone.records));
  }
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

INSTANTIATE_TEST_SUITE_P(EveryPolicy, Handovers, testing::ValuesIn(policies()), test_name);

}  // namespace
}  // namespace spillway
