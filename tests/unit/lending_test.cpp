// Lent memory: the coordinator between a lender and its borrower, and what both sides do in a run.
#include "sim/engine/lending.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "policies/parts/queue_informer.hpp"
#include "sim/core/error.hpp"
#include "sim/engine/iteration_runner.hpp"
#include "sim/engine/simulation.hpp"
#include "tests/oracle/list_source.hpp"
#include "tests/oracle/replay.hpp"

namespace spillway {
namespace {

SimTime at(double seconds) { return SimTime{} + round_seconds(seconds); }

LentMemory lent_from(SimTime begin, Bytes offered = Bytes(0)) {
  LentMemory lent(Loan{.offered = offered, .memory_bandwidth = BytesPerSecond(2e9)});
  lent.measure_from(begin);
  return lent;
}

TEST(LentMemory, NothingIsGrantedOfWhatIsReclaimed) {
  LentMemory lent = lent_from(SimTime{});
  EXPECT_EQ(lent.available(), Bytes(0));
  lent.offer(Bytes(100), at(1));
  EXPECT_EQ(lent.available(), Bytes(100));
  lent.hold(Bytes(60), at(2));
  lent.reclaim(at(3));
  EXPECT_TRUE(lent.reclaimed());
  EXPECT_EQ(lent.available(), Bytes(0));
  EXPECT_EQ(lent.offered(), Bytes(100));
}

TEST(LentMemory, ReturnsOnlyAsAWhole) {
  LentMemory lent = lent_from(SimTime{});
  lent.offer(Bytes(100), at(0));
  lent.hold(Bytes(60), at(1));
  lent.reclaim(at(2));
  EXPECT_FALSE(lent.take_back(at(3)));
  lent.hold(Bytes(1), at(4));
  EXPECT_FALSE(lent.take_back(at(5)));
  lent.hold(Bytes(0), at(6));
  EXPECT_TRUE(lent.take_back(at(7)));
  EXPECT_EQ(lent.offered(), Bytes(0));
  EXPECT_FALSE(lent.reclaimed());
  lent.offer(Bytes(80), at(8));
  EXPECT_EQ(lent.available(), Bytes(80));
}

TEST(LentMemory, BrokenPromisesAreTold) {
  LentMemory lent = lent_from(SimTime{});
  EXPECT_THROW(lent.reclaim(at(0)), InvariantError);
  lent.offer(Bytes(100), at(0));
  EXPECT_THROW(lent.offer(Bytes(100), at(0)), InvariantError);
  EXPECT_THROW(lent.hold(Bytes(101), at(0)), InvariantError);
  EXPECT_THROW(static_cast<void>(lent.take_back(at(0))), InvariantError);
  lent.hold(Bytes(50), at(0));
  lent.reclaim(at(1));
  EXPECT_THROW(lent.hold(Bytes(51), at(1)), InvariantError);
}

// The span begins at 10. Offered 100 from 0 on, held 40 from 5 to 12 and 70 until 13, reclaimed at 13, empty at 14,
// back at 16: in the span 6 s of 100 bytes; 2 s of 40, 1 s of 70, and 1 s of 20. Taken back 3 s after the reclaim.
TEST(LentMemory, FiguresAreThoseOfTheSpan) {
  LentMemory lent = lent_from(at(10));
  lent.offer(Bytes(100), at(0));
  lent.hold(Bytes(90), at(1));
  lent.hold(Bytes(40), at(5));
  lent.copied(Bytes(1'000), at(6));
  lent.hold(Bytes(70), at(12));
  lent.copied(Bytes(3'000), at(12));
  lent.reclaim(at(13));
  lent.hold(Bytes(20), at(13));
  lent.hold(Bytes(0), at(14));
  EXPECT_TRUE(lent.take_back(at(16)));
  const LendingFigures figures = lent.figures(at(20));
  EXPECT_DOUBLE_EQ(figures.offered_time, 600.0);
  EXPECT_DOUBLE_EQ(figures.held_time, 80.0 + 70.0 + 20.0);
  EXPECT_EQ(figures.peak_held, Bytes(70));
  EXPECT_EQ(figures.offers, 0);
  EXPECT_EQ(figures.reclaims, 1);
  EXPECT_EQ(figures.returns, 1);
  EXPECT_DOUBLE_EQ(figures.return_time, 3.0);
  EXPECT_DOUBLE_EQ(figures.longest_return, 3.0);
  EXPECT_EQ(figures.copied, Bytes(3'000));
}

// Asked for at 15, nothing has changed since 12: the state has lasted.
TEST(LentMemory, FiguresReachToTheEndOfTheSpan) {
  LentMemory lent = lent_from(SimTime{}, Bytes(100));
  lent.hold(Bytes(10), at(12));
  EXPECT_DOUBLE_EQ(lent.figures(at(15)).offered_time, 1'500.0);
  EXPECT_DOUBLE_EQ(lent.figures(at(15)).held_time, 30.0);
}

// 4,000 bytes at 2 GB/s keep the memory busy for 2 us, which the lender hears of once.
TEST(LentMemory, TheLendersMemoryIsBusyWithTheCopies) {
  LentMemory lent = lent_from(SimTime{}, Bytes(100));
  lent.copied(Bytes(1'000), at(1));
  lent.copied(Bytes(3'000), at(2));
  EXPECT_EQ(lent.take_busy(), Duration(2'000));
  EXPECT_EQ(lent.take_busy(), Duration(0));
}

TEST(LentMemory, MemoryOfUnknownBandwidthIsNeverBusy) {
  LentMemory lent(Loan{.offered = Bytes(100)});
  lent.copied(Bytes(1'000), at(1));
  EXPECT_EQ(lent.take_busy(), Duration(0));
}

// A plain account in another form: who holds how much of the memory that the lender has in all.
TEST(LentMemory, BytesBalanceInRandomStorms) {
  constexpr std::int64_t kAll = 1'000;
  std::mt19937_64 random(7);
  const auto below = [&random](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
  };
  LentMemory lent = lent_from(SimTime{});
  std::int64_t with_lender = kAll;
  std::int64_t idle = 0;  // lent, not held
  std::int64_t held = 0;
  bool wanted = false;
  std::int64_t returns = 0;
  for (int step = 1; step <= 20'000; ++step) {
    const SimTime now = at(step * 0.25);
    const std::int64_t act = below(4);
    if (act == 0 && with_lender == kAll) {
      idle = 1 + below(kAll);
      with_lender -= idle;
      lent.offer(Bytes(idle), now);
    } else if (act == 1 && with_lender < kAll) {
      lent.reclaim(now);
      wanted = true;
    } else if (act == 2) {
      // More may be held only of what is granted.
      const std::int64_t next = below(1 + (wanted ? held : held + idle));
      idle += held - next;
      held = next;
      lent.hold(Bytes(held), now);
    } else if (wanted) {
      const bool free = held == 0;
      EXPECT_EQ(lent.take_back(now), free);
      if (free) {
        with_lender += idle;
        idle = 0;
        wanted = false;
        ++returns;
      }
    }
    ASSERT_EQ(with_lender + idle + held, kAll);
    ASSERT_EQ(lent.offered(), Bytes(idle + held)) << "step " << step;
    ASSERT_EQ(lent.held(), Bytes(held));
    ASSERT_EQ(lent.available(), Bytes(wanted ? 0 : idle + held));
  }
  EXPECT_GT(returns, 500);
  EXPECT_EQ(lent.figures(at(6'000)).returns, returns);
}

const PolicyInfo& policy(const std::string& name) { return *PolicyRegistry::instance().find(name); }

/// Of a lender with one seat.
Settings one_seat() {
  return oracle::policy_settings(policy("vllm"), {{"engine.max_num_seqs", std::int64_t{1}},
                                                  {"engine.max_num_batched_tokens", std::int64_t{1'000}}});
}

InstanceConfig lender_with(const ExecutionModel& model, const Settings& settings) {
  InstanceConfig lender;
  lender.model = &model;
  lender.policy = &policy("vllm");
  lender.settings = &settings;
  lender.kv = {.gpu_blocks = Blocks(10), .block_tokens = Tokens(16), .block_bytes = Bytes(64)};
  lender.max_model_len = Tokens(160);
  return lender;
}

/// The first instance lends to the second: it offers while at most 2 wait and reclaims at 4.
Loan lends(Blocks retained = Blocks(4)) {
  return {
      .borrower = 1, .lender = 0, .informer = queue_informer({.retained = retained, .offer_at = 2, .reclaim_at = 4})};
}

/// A lender with one seat and 10 blocks of 16 tokens, of which it retains 4, beside a borrower without requests. It
/// offers while at most 2 wait and reclaims at 4. Every iteration takes 100 ns. A prompt of 16 tokens with an answer of
/// one token is one iteration and one block.
struct Lone {
  oracle::WatchingModel model{};
  std::vector<RequestRecord> records;
  SimulationResult result;

  explicit Lone(const std::vector<RequestSpec>& requests, Blocks retained = Blocks(4)) {
    const PolicyInfo& borrowing = policy("aqua");
    const Settings settings = one_seat();
    const Settings of_borrower = oracle::policy_settings(borrowing, {{"memory.lender", std::string("lender")}});
    oracle::ListSource source(requests);
    SimulationConfig config;
    config.source = &source;
    const InstanceConfig lender = lender_with(model, settings);
    InstanceConfig borrower = lender;
    borrower.policy = &borrowing;
    borrower.settings = &of_borrower;
    borrower.kv.further = {{{kPeerTier, Blocks(10), Blocks(10)}}, {}};
    config.instances = {lender, borrower};
    config.loans.push_back(lends(retained));
    config.on_request = [this](const RequestRecord& record) { records.push_back(record); };
    result = simulate(config);
  }
  [[nodiscard]] const LendingFigures& figures() const { return result.statistics.lending.at(0).figures; }
  [[nodiscard]] std::int64_t end_of(std::uint64_t index) const {
    for (const RequestRecord& record : records) {
      if (record.index == index) return record.end.ns();
    }
    return -1;
  }
};

std::vector<RequestSpec> burst(std::int64_t at_ns, std::size_t count) {
  return std::vector<RequestSpec>(count, oracle::request(at_ns, 16, 1));
}

// Six at once: 5, 4, 3 wait at the ends of the first iterations, and 2 at the end of the fourth, at 400 ns. So 6 blocks
// are offered until the last iteration ends at 600 ns.
TEST(Informer, OffersWhileFewWait) {
  const Lone run(burst(0, 6));
  EXPECT_EQ(run.figures().offers, 1);
  EXPECT_EQ(run.figures().reclaims, 0);
  EXPECT_NEAR(run.figures().offered_time, 6 * 64 * 200e-9, 1e-15);
}

// A second burst, of 5 at 1,000 ns: 4 wait at 1,100 ns, so it reclaims, and has its memory back at once. It offers
// again at 1,300 ns, when 2 wait.
TEST(Informer, ReclaimsWhenManyWait) {
  std::vector<RequestSpec> requests = burst(0, 6);
  for (const RequestSpec& request : burst(1'000, 5)) requests.push_back(request);
  const Lone run(requests);
  EXPECT_EQ(run.figures().offers, 2);
  EXPECT_EQ(run.figures().reclaims, 1);
  EXPECT_EQ(run.figures().returns, 1);
  EXPECT_NEAR(run.figures().offered_time, 6 * 64 * (1'100 - 400 + 1'500 - 1'300) * 1e-9, 1e-15);
}

// 96 tokens need 6 blocks, and 4 are retained: nothing runs, so it takes the others back, at once. It ends at 1,100 ns,
// and what it used is no reason not to offer again.
TEST(Informer, ReclaimsForARequestThatNeedsMore) {
  std::vector<RequestSpec> requests = burst(0, 1);
  requests.push_back(oracle::request(1'000, 96, 1));
  const Lone run(requests);
  EXPECT_EQ(run.end_of(1), 1'100);
  EXPECT_EQ(run.figures().offers, 2);
  EXPECT_EQ(run.figures().reclaims, 1);
}

// A prompt of 64 tokens uses all that is retained, and its answer of two tokens one block more. Nothing is offered
// before it has ended, at 200 ns; nor is anything that is retained.
TEST(Informer, OffersNothingWhileWhatItRetainsIsInUse) {
  const Lone run({oracle::request(0, 64, 2), oracle::request(500, 16, 1)});
  EXPECT_EQ(run.figures().offers, 1);
  EXPECT_NEAR(run.figures().offered_time, 6 * 64 * 400e-9, 1e-15);
  const Lone all(burst(0, 3), Blocks(10));
  EXPECT_EQ(all.figures().offers, 0);
}

/// The same lender beside FlexGen with one prompt of 16 tokens at 150 ns and an answer of 8. Its KV, 4 bytes per token,
/// is not on the GPU: 96 bytes of tensors, which it asks about before each iteration. Copies take 1 ns per byte. The
/// lender has offered 6 blocks of 64 bytes when its first request has ended, at 100 ns. `bursts`: when 5 requests come
/// to the lender.
struct LongPrompt {
  oracle::WatchingModel model{};
  std::vector<RequestRecord> records{};
  SimulationResult result{};

  explicit LongPrompt(const std::vector<std::int64_t>& bursts, Duration poll = {},
                      const std::vector<ReplicaEvent>& events = {}) {
    const PolicyInfo& flexgen = policy("flexgen");
    const Settings settings = one_seat();
    Settings of_borrower = oracle::policy_settings(flexgen, {{"policy.gpu_batch", std::int64_t{1}},
                                                             {"policy.batches", std::int64_t{1}},
                                                             {"policy.weights_host", 0.0},
                                                             {"policy.cache_host", 1.0},
                                                             {"policy.hidden_host", 0.0},
                                                             {"policy.pad_input", std::int64_t{16}},
                                                             {"policy.pad_output", std::int64_t{8}},
                                                             {"policy.cpu_attention", false},
                                                             {"policy.swap_tier", std::string("peer")},
                                                             {"policy.lender_poll", poll},
                                                             {"engine.chunked_prefill", false}});
    std::vector<RequestSpec> requests = burst(0, 1);
    requests.push_back(oracle::request(150, 16, 8));
    requests.back().traits.pool = 1;
    for (const std::int64_t at_ns : bursts) {
      for (const RequestSpec& request : burst(at_ns, 5)) requests.push_back(request);
    }
    oracle::ListSource source(requests);
    SimulationConfig config;
    config.source = &source;
    const InstanceConfig lender = lender_with(model, settings);
    InstanceConfig borrower = lender;
    borrower.policy = &flexgen;
    borrower.settings = &of_borrower;
    borrower.kv.further = {{{kPeerTier, Blocks(10), Blocks(10)}}, {}};
    borrower.deployment = oracle::snug_deployment(model, Blocks(1'000), Bytes(64), Tokens(16), Bytes(1'000));
    const Layout layout = flexgen.layout(borrower.deployment, of_borrower);
    borrower.deployment.chosen = layout.chosen;
    borrower.kv.gpu_blocks = layout.blocks;
    read_surroundings(of_borrower, borrower);
    config.instances = {lender, borrower};
    config.pools = {PoolConfig{}, PoolConfig{}};
    config.events = events;
    config.loans.push_back(lends());
    config.on_request = [this](const RequestRecord& record) { records.push_back(record); };
    result = simulate(config);
  }
  [[nodiscard]] const LendingFigures& figures() const { return result.statistics.lending.at(0).figures; }
  [[nodiscard]] const EngineTotals& borrower() const { return result.instances.at(1); }
  [[nodiscard]] SimTime end() const {
    for (const RequestRecord& record : records) {
      if (record.index == 1) return record.end;
    }
    return SimTime{};
  }
};

// The lender reclaims at 500 ns, when 4 of 5 requests wait. FlexGen's iterations take 100 ns, and the fifth begins at
// 550: the KV of the token before is stored there, 4 ns, then all 96 bytes go to the host, and it computes from 650 to
// 750. Two more end at 950. The lender, whose iterations end at 600, 700 and 800, has its memory back after the third,
// and offers it again at 900, when nobody waits: at 950 the KV of the token before is stored on the host, 4 ns, the
// tensors come back, 96 ns, and the last iteration ends at 1,150. Its token is never read, so it is not stored: there,
// the prompt's 64 bytes and three tokens; on the host the tensors and three tokens. Loads cost no time. Those of the
// second to fifth iteration come from the lender, 16 to 19 tokens; those of the sixth to eighth from the host, 20
// to 22.
TEST(Tensors, OfALongPrompt_GoToTheHostWhenReclaimed) {
  const LongPrompt run({400});
  EXPECT_EQ(run.end(), SimTime(1'150));
  EXPECT_EQ(run.figures().offers, 2);
  EXPECT_EQ(run.figures().reclaims, 1);
  EXPECT_EQ(run.figures().returns, 1);
  EXPECT_NEAR(run.figures().return_time, 300e-9, 1e-15);
  EXPECT_EQ(run.figures().peak_held, Bytes(96));
  EXPECT_EQ(run.borrower().moved_peer_out, Bytes(64 + 3 * 4));
  EXPECT_EQ(run.borrower().moved_d2h, Bytes(96 + 3 * 4));
  EXPECT_EQ(run.borrower().moved_peer_in, Bytes(4LL * (16 + 17 + 18 + 19)));
  EXPECT_EQ(run.borrower().moved_h2d, Bytes(4 * (20 + 21 + 22) + 96));
}

// The request block has ended at 950 ns, when the lender reclaims: nothing is held, so it has its memory at once.
TEST(Tensors, OfARequestBlockThatHasEnded_AreGone) {
  const LongPrompt run({2'000});
  EXPECT_EQ(run.end(), SimTime(950));
  EXPECT_EQ(run.figures().reclaims, 1);
  EXPECT_EQ(run.figures().return_time, 0.0);
  EXPECT_EQ(run.borrower().moved_d2h, Bytes(0));
  EXPECT_NEAR(run.figures().held_time, 96 * 800e-9, 1e-15);
}

// The lender reclaims at 500 ns, and at 900 ns it has nothing left to run. The consumer does not ask: its tensors are
// on the lender until its request block ends, at 950 ns. The lender has its memory then, and not at its next request.
TEST(Tensors, ThatAreReleased_ReturnToALenderWithNothingToRun) {
  const LongPrompt run({400, 5'000}, Duration(1'000'000));
  EXPECT_EQ(run.end(), SimTime(950));
  EXPECT_EQ(run.figures().reclaims, 1);
  EXPECT_EQ(run.figures().returns, 1);
  EXPECT_NEAR(run.figures().longest_return, 450e-9, 1e-15);
  EXPECT_NEAR(run.figures().held_time, 96 * 800e-9, 1e-15);
}

// The same, but the consumer fails at 930 ns: what it held is the lender's from then on.
TEST(Tensors, OfAConsumerThatFails_ReturnAtThatTime) {
  const LongPrompt run({400, 5'000}, Duration(1'000'000), {{SimTime(930), 1, false}});
  EXPECT_EQ(run.figures().returns, 1);
  EXPECT_NEAR(run.figures().longest_return, 430e-9, 1e-15);
  EXPECT_NEAR(run.figures().held_time, 96 * 780e-9, 1e-15);
}

/// The same lender beside a consumer whose GPU keeps no prefix: contexts of up to 5 blocks of 64 bytes are in lent
/// memory, or on the host, and the consumer asks every ms.
struct Contexts {
  oracle::WatchingModel model{};
  std::vector<RequestRecord> records{};
  SimulationResult result{};

  explicit Contexts(const std::vector<ReplicaEvent>& events = {}, const std::string& rules = "paper") {
    const PolicyInfo& aqua = policy("aqua");
    const Settings settings = one_seat();
    const Settings of_borrower = oracle::policy_settings(aqua, {{"memory.lender", std::string("lender")},
                                                                {"policy.keep_prefixes", false},
                                                                {"policy.lender_poll", Duration(1'000'000)},
                                                                {"policy.rules", rules},
                                                                {"policy.incremental_swap_out", std::string("false")},
                                                                {"engine.chunked_prefill", rules == "paper"}});
    std::vector<RequestSpec> requests = burst(0, 1);
    const auto prompt = [&](std::int64_t at_ns, std::vector<std::uint64_t> ids) {
      requests.push_back(oracle::request(at_ns, std::ssize(ids) * 16 + 1, 1));
      requests.back().prefix_ids = std::move(ids);
      requests.back().traits.pool = 1;
    };
    prompt(150, {1, 2});
    prompt(300, {7});
    prompt(500, {1, 2});
    for (const RequestSpec& request : burst(800, 5)) requests.push_back(request);
    prompt(2'000, {1, 2});
    prompt(2'000'000, {1, 2});
    prompt(2'500'000, {1, 2});
    oracle::ListSource source(requests);
    SimulationConfig config;
    config.source = &source;
    const InstanceConfig lender = lender_with(model, settings);
    InstanceConfig borrower = lender;
    borrower.policy = &aqua;
    borrower.settings = &of_borrower;
    borrower.kv.host_blocks = Blocks(10);
    borrower.kv.prefix_caching = true;
    borrower.kv.host_cache_blocks = Blocks(5);
    borrower.kv.cache_moves = true;
    borrower.kv.further = {{{kPeerTier, Blocks(10), Blocks(10)}},
                           {{TierId(2), kGpuTier, Stream::peer_in, 1},
                            {kGpuTier, TierId(2), Stream::peer_out, 1},
                            {kHostTier, TierId(2), Stream::h2d, 1},
                            {TierId(2), kHostTier, Stream::d2h, 1}}};
    config.instances = {lender, borrower};
    config.pools = {PoolConfig{}, PoolConfig{}};
    config.events = events;
    config.loans.push_back(lends());
    config.on_request = [this](const RequestRecord& record) { records.push_back(record); };
    result = simulate(config);
  }
  [[nodiscard]] const LendingFigures& figures() const { return result.statistics.lending.at(0).figures; }
  [[nodiscard]] const EngineTotals& borrower() const { return result.instances.at(1); }
  /// From arrival to end of the request that came then, ns.
  [[nodiscard]] std::int64_t time_of(std::int64_t arrival) const {
    for (const RequestRecord& record : records) {
      if (record.arrival == SimTime(arrival)) return (record.end - record.arrival).count();
    }
    return -1;
  }
};

// The lender offers 6 blocks at 100 ns, so the consumer takes 5 there at 150. The context of two blocks goes there with
// the second prompt, 128 bytes, and the second prompt's own block, 64 bytes, with the third prompt, which loads the
// context: 128 ns and 100 of compute. At 900 ns 4 requests wait, so the lender reclaims. The consumer has nothing to
// run and gives up all 320 bytes at once; the lender, whose iteration has begun, sees it at 1,000 ns. It offers again
// at 1,100, but the consumer asks next at 1,000,900. So the prompt at 2,000 waits until the 3 blocks of contexts are on
// the host, 192 ns, while its own come from there. The one at 2,000,000 loads 128 bytes from the host, behind which the
// contexts go to the lender: 320 ns. The last one has them from the lender.
TEST(Tensors, OfContexts_GoToTheHostWhenReclaimed) {
  const Contexts run;
  EXPECT_EQ(run.time_of(150), 100);
  EXPECT_EQ(run.time_of(500), 128 + 100);
  EXPECT_EQ(run.time_of(2'000), 192 + 100);
  EXPECT_EQ(run.time_of(2'000'000), 128 + 192 + 100);
  EXPECT_EQ(run.time_of(2'500'000), 128 + 100);
  EXPECT_EQ(run.figures().offers, 2);
  EXPECT_EQ(run.figures().reclaims, 1);
  EXPECT_NEAR(run.figures().longest_return, 100e-9, 1e-15);
  EXPECT_EQ(run.figures().peak_held, Bytes(320));
  EXPECT_EQ(run.borrower().moved_peer_out, Bytes(128 + 64));
  EXPECT_EQ(run.borrower().moved_peer_in, Bytes(128 + 128));
  EXPECT_EQ(run.borrower().moved_d2h, Bytes(192));
  EXPECT_EQ(run.borrower().moved_h2d, Bytes(128 + 128 + 192));
}

// The public code copies the whole tensor, 320 bytes, however little is in it.
TEST(Tensors, OfContexts_MoveWholeInThePublicCode) {
  const Contexts run({}, "code");
  EXPECT_EQ(run.time_of(500), 128 + 100);
  EXPECT_EQ(run.time_of(2'000), 320 + 100);
  EXPECT_EQ(run.time_of(2'000'000), 128 + 320 + 100);
  EXPECT_EQ(run.figures().peak_held, Bytes(320));
  EXPECT_EQ(run.borrower().moved_d2h, Bytes(320));
  EXPECT_EQ(run.borrower().moved_h2d, Bytes(128 + 128 + 320));
}

// The consumer fails at 850 ns, before anything is reclaimed, and comes up at 1,500 ns. Meanwhile it holds nothing: the
// lender has its memory back when it asks, at 900 ns, and offers it again at 1,100. At 2,000 ns the consumer takes
// memory there, and has no context: 100 ns.
TEST(Tensors, OfContexts_AreGoneWhileTheirConsumerIsDown) {
  const Contexts run({{SimTime(850), 1, false}, {SimTime(1'500), 1, true}});
  EXPECT_EQ(run.figures().reclaims, 1);
  EXPECT_EQ(run.figures().longest_return, 0.0);
  EXPECT_EQ(run.time_of(2'000), 100);
  EXPECT_EQ(run.time_of(2'500'000), 128 + 100);
  EXPECT_EQ(run.borrower().moved_d2h, Bytes(0));
}

// Copies of others took 70 ns of the memory's time: the next iteration takes as much longer, and the one after it not.
TEST(Informer, CopiesOfOthersLengthenTheNextIteration) {
  const oracle::WatchingModel model;
  const KvLayout kv{.gpu_blocks = Blocks(10), .block_tokens = Tokens(16), .block_bytes = Bytes(64)};
  const TierGraph graph = kv.graph();
  IterationRunner runner(model, kv, graph, {});
  const BatchShape shape{.decode_sequences = 1, .decode_context = Tokens(5), .sampled_sequences = 1};
  runner.share_memory(Duration(30));
  runner.share_memory(Duration(40));
  const ExecutedIteration first = runner.run({&shape, 1}, SimTime(0), Blocks(0));
  EXPECT_EQ(first.end, SimTime(170));
  EXPECT_NEAR(first.shares.memory, 70e-9, 1e-15);
  EXPECT_EQ(runner.run({&shape, 1}, SimTime(170), Blocks(0)).end, SimTime(270));
}

}  // namespace
}  // namespace spillway
