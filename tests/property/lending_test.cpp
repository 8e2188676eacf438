// An instance lends KV memory to another, wants it back and lends it again, while both serve requests and fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "policies/parts/queue_informer.hpp"
#include "sim/engine/simulation.hpp"
#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/support/cases.hpp"
#include "traces/mixed_source.hpp"

namespace spillway {
namespace {

using oracle::Dice;
using oracle::FollowingSource;
using oracle::NaiveConfig;
using oracle::WholeModel;

/// One instance and its traffic.
struct Side {
  WholeModel model;
  Settings settings;
  NaiveConfig config;
};

const PolicyInfo& policy(const std::string& name) { return *PolicyRegistry::instance().find(name); }

void draw(std::uint64_t seed, const PolicyInfo& of, Side& side) {
  side.model = WholeModel::of(of);
  oracle::draw_case(seed, of, side.model, 1, side.settings, side.config);
  side.config.request_timeout.reset();
  side.config.until.reset();
  side.config.front_end = Duration(0);
  side.config.links = {};
  side.config.host_cache_blocks = Blocks(0);  // what is stored there need not come back
}

/// The borrower has a tier of lent memory, and ways from it to the GPU and to the host.
void add_lent_tier(Blocks most, InstanceConfig& borrower) {
  constexpr TierId kPeer{2};
  borrower.kv.further = {{{kPeerTier, most, most}},
                         {{kPeer, kGpuTier, Stream::peer_in, 1},
                          {kGpuTier, kPeer, Stream::peer_out, 1},
                          {kHostTier, kPeer, Stream::h2d, 1},
                          {kPeer, kHostTier, Stream::d2h, 1}}};
}

struct Served {
  std::vector<RequestRecord> records;
  SimulationResult result;
};

Served run(SimulationConfig simulation, const Side& borrower, const Side& lender) {
  std::vector<traces::MixedPart> parts;
  parts.push_back(
      {std::make_unique<FollowingSource>(borrower.config.requests, borrower.config.follows), {{0, 1.0, {}}}});
  parts.push_back({std::make_unique<FollowingSource>(lender.config.requests, lender.config.follows), {{1, 1.0, {}}}});
  traces::MixedSource source(std::move(parts), 1, 0);
  simulation.source = &source;
  Served served;
  simulation.on_request = [&](const RequestRecord& record) { served.records.push_back(record); };
  served.result = simulate(simulation);
  std::ranges::sort(served.records, {}, &RequestRecord::index);
  return served;
}

SimulationConfig both(const Side& borrower, const Side& lender) {
  SimulationConfig simulation = oracle::simulation_of(borrower.config);
  simulation.instances.push_back(oracle::simulation_of(lender.config).instances.front());
  simulation.pools = {{1, {}, {}}, {1, {}, {}}};
  return simulation;
}

/// A borrower whose memory is short, and what it may do with lent memory.
void draw_borrower(std::uint64_t seed, Dice& dice, Side& borrower) {
  draw(seed, policy(dice.chance(50) ? "aqua" : "cfs"), borrower);
  borrower.settings.set("memory.lender", std::string("lender"));
  borrower.settings.set("policy.swap_tier", std::string("peer"));
  borrower.settings.set("policy.incremental_swap_out", std::string("false"));
  borrower.settings.set("policy.lender_poll", Duration(dice.between(0, 3'000)));
}

LendingThresholds draw_thresholds(Dice& dice, Blocks all) {
  const std::int64_t retained = dice.between(1, all.count());
  const std::int64_t offer_at = dice.between(0, 4);
  return {Blocks(retained), offer_at, dice.between(1, 6)};
}

Bytes bytes_of(const Side& side, Blocks blocks) { return side.config.block_bytes * blocks.count(); }

// What is counted on both sides agrees: copies to and from the lender; and each byte that goes to the host comes back,
// because every request finishes, whatever is reclaimed in between. The simulator itself checks that nothing is held
// beyond what is granted, that a tier does not overflow, and that links carry what iterations are charged with.
TEST(Lending, BytesBalanceInStormsOfReclaims) {
  std::int64_t reclaims = 0;
  std::int64_t returns = 0;
  std::int64_t to_host = 0;
  std::int64_t lent = 0;
  std::int64_t failures = 0;
  for (std::uint64_t seed = 1; seed <= random_cases(600); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed + 9'000'000);
    Side borrower;
    Side lender;
    draw_borrower(2 * seed, dice, borrower);
    draw(2 * seed + 1, policy(dice.chance(50) ? "vllm" : "vllm-v0"), lender);
    SimulationConfig simulation = both(borrower, lender);
    const Blocks all = lender.config.gpu_blocks;
    add_lent_tier(Blocks(bytes_of(lender, all) / borrower.config.block_bytes), simulation.instances.front());
    Loan loan{.borrower = 0, .lender = 1, .memory_bandwidth = BytesPerSecond(dice.chance(50) ? 1e10 : 0.0)};
    const LendingThresholds thresholds = draw_thresholds(dice, all);
    loan.informer = queue_informer(thresholds);
    simulation.loans.push_back(loan);
    if (dice.chance(40)) {
      const std::int64_t down = dice.between(0, 30'000);
      const auto replica = static_cast<std::size_t>(dice.between(0, 1));
      simulation.events = {{SimTime(down), replica, false}, {SimTime(down + dice.between(1, 20'000)), replica, true}};
      failures += 1;
    }
    const Served one = run(simulation, borrower, lender);
    const SimulationResult& result = one.result;
    const OutcomeCounts& counts = result.statistics.all;
    ASSERT_EQ(counts.submitted, counts.finished + counts.rejected);
    const LendingUse& use = result.statistics.lending.at(0);
    const EngineTotals& totals = result.instances.at(0);
    // A borrower that fails cuts an iteration short, and loses what it has elsewhere.
    const bool borrower_failed = !simulation.events.empty() && simulation.events.front().replica == 0;
    if (!borrower_failed) {
      ASSERT_EQ(use.figures.copied, totals.moved_peer_in + totals.moved_peer_out);
      // What went to the host from the GPU or the lender has come back from there to one of the two.
      ASSERT_EQ(totals.moved_d2h, totals.moved_h2d);
    }
    ASSERT_LE(use.figures.held_time, use.figures.offered_time * (1.0 + 1e-12));
    ASSERT_LE(use.figures.returns, use.figures.reclaims);
    ASSERT_LE(use.figures.reclaims, use.figures.returns + 1);
    ASSERT_LE(use.figures.peak_held, bytes_of(lender, all - thresholds.retained));
    reclaims += use.figures.reclaims;
    returns += use.figures.returns;
    lent += use.figures.copied.count();
    to_host += use.figures.copied > Bytes(0) && totals.moved_d2h > Bytes(0) ? 1 : 0;
  }
  EXPECT_GT(reclaims, more_than(100));
  EXPECT_GT(returns, more_than(100));
  EXPECT_GT(lent, more_than(0));
  EXPECT_GT(to_host, more_than(10));
  EXPECT_GT(failures, more_than(30));
}

// The consumer keeps contexts below its prefix cache, in lent memory or on the host. The simulator itself checks that
// the lender gets all of its memory back, and that a request finds a context only where it is.
TEST(Lending, ContextsFollowTheLender) {
  std::int64_t reclaims = 0;
  std::int64_t returns = 0;
  std::int64_t hits = 0;
  std::int64_t from_both = 0;
  for (std::uint64_t seed = 1; seed <= random_cases(300); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed + 9'400'000);
    Side borrower;
    Side lender;
    draw_borrower(2 * seed, dice, borrower);
    draw(2 * seed + 1, policy(dice.chance(50) ? "vllm" : "vllm-v0"), lender);
    borrower.config.prefix_caching = true;
    borrower.settings.set("policy.keep_prefixes", dice.chance(20));
    SimulationConfig simulation = both(borrower, lender);
    const Blocks all = lender.config.gpu_blocks;
    InstanceConfig& consumer = simulation.instances.front();
    add_lent_tier(Blocks(bytes_of(lender, all) / borrower.config.block_bytes), consumer);
    consumer.kv.host_cache_blocks = Blocks(dice.between(1, 20));
    consumer.kv.host_blocks += consumer.kv.host_cache_blocks;
    consumer.kv.cache_is_lent = false;
    consumer.kv.cache_moves = true;
    Loan loan{.borrower = 0, .lender = 1, .memory_bandwidth = BytesPerSecond(dice.chance(50) ? 1e10 : 0.0)};
    const LendingThresholds thresholds = draw_thresholds(dice, all);
    loan.informer = queue_informer(thresholds);
    simulation.loans.push_back(loan);
    const bool fails = dice.chance(30);
    if (fails) {
      const std::int64_t down = dice.between(0, 30'000);
      simulation.events = {{SimTime(down), 0, false}, {SimTime(down + dice.between(1, 20'000)), 0, true}};
    }
    const SimulationResult result = run(simulation, borrower, lender).result;
    const OutcomeCounts& counts = result.statistics.all;
    ASSERT_EQ(counts.submitted, counts.finished + counts.rejected);
    const LendingUse& use = result.statistics.lending.at(0);
    const EngineTotals& totals = result.instances.at(0);
    if (!fails) {
      ASSERT_EQ(use.figures.copied, totals.moved_peer_in + totals.moved_peer_out);
    }
    ASSERT_LE(use.figures.reclaims, use.figures.returns + 1);
    ASSERT_LE(use.figures.peak_held, bytes_of(lender, all - thresholds.retained));
    reclaims += use.figures.reclaims;
    returns += use.figures.returns;
    hits += totals.prefix_hit_host > Tokens(0) ? 1 : 0;
    from_both += totals.moved_peer_in > Bytes(0) && totals.moved_h2d > Bytes(0) ? 1 : 0;
  }
  EXPECT_GT(reclaims, more_than(50));
  EXPECT_GT(returns, more_than(50));
  EXPECT_GT(hits, more_than(30));
  EXPECT_GT(from_both, more_than(20));
}

// The same with a lender that generates the answers of prompts that another instance computes: KV is on its way to it
// while it lends and reclaims.
TEST(Lending, ADecodePoolLends) {
  std::int64_t reclaims = 0;
  std::int64_t returns = 0;
  std::int64_t lent = 0;
  std::int64_t handed_over = 0;
  for (std::uint64_t seed = 1; seed <= random_cases(300); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed + 9'200'000);
    Side borrower;
    Side lender;
    draw_borrower(2 * seed, dice, borrower);
    draw(2 * seed + 1, policy(dice.chance(50) ? "vllm" : "vllm-v0"), lender);
    SimulationConfig simulation = both(borrower, lender);
    simulation.instances.push_back(simulation.instances.back());
    simulation.pools = {{1, {}, {}}, {2, {}, {}}};
    for (InstanceConfig& one : std::span(simulation.instances).subspan(1)) {
      one.phases = &one == &simulation.instances.back() ? Phases::decode : Phases::prefill;
      one.hands_over = true;
    }
    Handover& handover = simulation.handover.emplace();
    handover.kind = 1;
    handover.prefill = 1;
    handover.by_layers = dice.chance(50);
    handover.first_token_at_prefill = dice.chance(50);
    handover.links = {BytesPerSecond(1e9)};
    handover.path = [](std::size_t, std::size_t) {
      return HandoverPath{Duration(10), BytesPerSecond(1e9), {{0, 1.0}}};
    };
    const Blocks all = lender.config.gpu_blocks;
    add_lent_tier(Blocks(bytes_of(lender, all) / borrower.config.block_bytes), simulation.instances.front());
    Loan loan{.borrower = 0, .lender = 2};
    const LendingThresholds thresholds = draw_thresholds(dice, all);
    loan.informer = queue_informer(thresholds);
    simulation.loans.push_back(loan);
    const SimulationResult result = run(simulation, borrower, lender).result;
    const OutcomeCounts& counts = result.statistics.all;
    ASSERT_EQ(counts.submitted, counts.finished + counts.rejected);
    const LendingUse& use = result.statistics.lending.at(0);
    ASSERT_EQ(use.figures.copied, result.instances.at(0).moved_peer_in + result.instances.at(0).moved_peer_out);
    ASSERT_LE(use.figures.peak_held, bytes_of(lender, all - thresholds.retained));
    reclaims += use.figures.reclaims;
    returns += use.figures.returns;
    lent += use.figures.copied.count();
    handed_over += result.statistics.handover->transfers;
  }
  EXPECT_GT(reclaims, more_than(20));
  EXPECT_GT(returns, more_than(20));
  EXPECT_GT(lent, more_than(0));
  EXPECT_GT(handed_over, more_than(100));
}

// GPUs that never want their memory back: then it is as if it were the borrower's.
TEST(Lending, WithoutReclaims_ItIsAsMemoryOfItsOwn) {
  std::int64_t moved = 0;
  for (std::uint64_t seed = 1; seed <= random_cases(200); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed + 9'100'000);
    Side borrower;
    Side other;
    draw(2 * seed, policy("aqua"), borrower);
    draw(2 * seed + 1, policy("vllm"), other);
    SimulationConfig simulation = both(borrower, other);
    const Blocks most(dice.between(1, 200));
    add_lent_tier(most, simulation.instances.front());
    const Served own = run(simulation, borrower, other);
    simulation.loans.push_back({.borrower = 0, .offered = bytes_of(borrower, most)});
    const Served lent = run(simulation, borrower, other);
    ASSERT_EQ(own.records.size(), lent.records.size());
    for (std::size_t i = 0; i < own.records.size(); ++i) ASSERT_EQ(own.records[i], lent.records[i]);
    moved += lent.result.statistics.lending.at(0).figures.copied.count();
  }
  EXPECT_GT(moved, more_than(0));
}

}  // namespace
}  // namespace spillway
