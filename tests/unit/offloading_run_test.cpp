// Runs with vLLM's offloading connector: times, and hits, loads, refusals and evictions to the block.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/oracle/replay.hpp"
#include "tests/unit/token_time_model.hpp"

namespace spillway {
namespace {

using oracle::replay;
using oracle::Replay;
using oracle::request;
using oracle::WatchingModel;

KvLayout layout(std::int64_t gpu, std::int64_t slots) {
  KvLayout kv{Blocks(gpu), Blocks(0), Tokens(16), Bytes(2000), 1, true, Blocks(slots)};
  kv.connector = ConnectorTimes{};
  return kv;
}

/// Whole blocks and one token.
RequestSpec prompt(std::int64_t arrival, std::vector<std::uint64_t> ids, std::int64_t output = 1) {
  RequestSpec spec = request(arrival, static_cast<std::int64_t>(ids.size()) * 16 + 1, output);
  spec.prefix_ids = std::move(ids);
  return spec;
}

const OffloadingCounts& counts(const Replay& run) { return run.result.statistics.engine.offloading; }

// 6 GPU blocks; A, then B, which takes the free block and 4 of A's 5, the end first, so A's first block stays. Then A
// again, and with it C of 10 tokens, one block.
//   t = 0        A computes 65 tokens: 65,001 ns. Its 4 blocks then go to the host in 8,000 ns.
//   t = 100,000  B the same.
//   t = 200,000  A loads 3 blocks, 6,000 ns, beside C, which computes 10 tokens in 10,001 ns. A joins when that ends
//   and
//                computes one token, 1,001 ns: 11,002 ns in all.
// The blocks of the third request are on the host, so 8 are stored in all.
TEST(OffloadingRun, ALoad_LetsTheBatchGoOn) {
  const TokenTimeModel model;
  const Replay run = replay(
      "vllm", {}, layout(6, 100),
      {prompt(0, {1, 2, 3, 4}), prompt(100'000, {5, 6, 7, 8}), prompt(200'000, {1, 2, 3, 4}), request(200'000, 10, 1)},
      model);
  for (const std::uint64_t index : {0U, 1U}) EXPECT_EQ(run.of(index).end - run.of(index).arrival, Duration(65'001));
  EXPECT_EQ(run.of(2).end - run.of(2).arrival, Duration(11'002));
  EXPECT_EQ(run.of(3).end - run.of(3).arrival, Duration(10'001));
  EXPECT_EQ(run.of(2).cached, Tokens(64));
  EXPECT_EQ(counts(run).loaded, Blocks(3));
  EXPECT_EQ(counts(run).lookups, 5 + 5 + 3);  // a miss and 4 blocks to store, the same, 3 hits and nothing to store
  EXPECT_EQ(counts(run).stored, Blocks(8));
  EXPECT_EQ(run.result.statistics.engine.prefix_hit_host, Tokens(48));
  EXPECT_EQ(run.result.statistics.engine.moved_h2d, Bytes(6'000));
  EXPECT_EQ(run.result.statistics.engine.moved_d2h, Bytes(16'000));
}

/// Three layers, of which the second takes 500 ns longer than the others.
class UnequalLayers final : public ExecutionModel {
 public:
  [[nodiscard]] std::int32_t layers() const override { return 3; }
  [[nodiscard]] const LayerKinds& layer_kinds() const override { return kinds_; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    IterationTime time = alone_.iteration(shape);
    time.kinds = {time.layer, time.layer + Duration(500)};
    time.layer += Duration(166);
    return time;
  }
  [[nodiscard]] CopyTime copy(Stream stream, std::int64_t copies, Bytes bytes, CopyMechanism mechanism) const override {
    return alone_.copy(stream, copies, bytes, mechanism);
  }

 private:
  TokenTimeModel alone_;
  LayerKinds kinds_{.of_layer = {0, 1, 0}, .layers = {2, 1}};
};

// The requests above, 300 us apart. A computes 65 tokens in 2 * 65,001 + 65,501 = 195,503 ns, without copies beside it.
// C computes 10 in 2 * 10,001 + 10,501 = 30,503 ns while A's blocks come in, so its layers run one by one. A's token
// takes 2 * 1,001 + 1,501 = 3,503 ns.
TEST(OffloadingRun, LayersOfTwoKinds_TakeTheirOwnTimes) {
  const UnequalLayers model;
  const Replay run = replay(
      "vllm", {}, layout(6, 100),
      {prompt(0, {1, 2, 3, 4}), prompt(300'000, {5, 6, 7, 8}), prompt(600'000, {1, 2, 3, 4}), request(600'000, 10, 1)},
      model);
  EXPECT_EQ(run.of(0).end, SimTime(195'503));
  EXPECT_EQ(run.of(3).end, SimTime(630'503));
  EXPECT_EQ(run.of(2).end, SimTime(634'006));
}

/// Starting a copy of a block keeps the CPU busy for 100 ns, and the connector's CPU time holds up an iteration.
class BusyWorker final : public ExecutionModel {
 public:
  explicit BusyWorker(bool runs_ahead, Duration start = Duration(100)) : runs_ahead_(runs_ahead), start_(start) {}
  [[nodiscard]] std::int32_t layers() const override { return 1; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    IterationTime time = alone_.iteration(shape);
    const double worker = runs_ahead_ ? shape.connector.worker_ahead : shape.connector.worker;
    time.before = round_seconds(shape.connector.scheduler + worker);
    return time;
  }
  [[nodiscard]] CopyTime copy(Stream stream, std::int64_t copies, Bytes bytes, CopyMechanism mechanism) const override {
    return alone_.copy(stream, copies, bytes, mechanism);
  }
  [[nodiscard]] Duration copy_start(Stream, std::int64_t copies, Bytes, CopyMechanism) const override {
    return start_ * copies;
  }
  [[nodiscard]] CopySharing copy_sharing() const override { return alone_.copy_sharing(); }

 private:
  TokenTimeModel alone_;
  bool runs_ahead_;
  Duration start_;
};

// 6 GPU blocks, 3 copies per block. In parentheses with the worker's thread busy for half of the time that copies take
// to start.
//   t = 0        A computes 65 tokens: 65,001 ns. Its 4 blocks start to leave with its second step, which takes 1 ns
//   and
//                12 x 100 ns before it: it ends at 66,202 (65,602).
//   t = 100,000  B computes 65 tokens in one step and takes the place of A's last 3 blocks. Its own 4 start to leave
//   when
//                it has ended, at 165,001, and hold nothing up.
//   t = 200,000  A again loads 3 blocks, 6,000 ns, beside C, which computes 10 tokens in 10,001 ns after the 9 x 100 ns
//                in which the load is started: it ends at 210,901 (210,451). A joins, computes one token in 1,001 ns,
//                and ends with its second step, at 211,903 (211,453).
// The worker's thread is busy for 12 + 12 + 9 copies: 3,300 ns (1,650).
TEST(OffloadingRun, StartingCopies_HoldsUpTheStep) {
  const BusyWorker model(false);
  for (const double share : {1.0, 0.5, 0.0}) {
    KvLayout kv = layout(6, 100);
    kv.host_cache_copies_per_block = 3;
    kv.connector->launches = share;
    const auto busy = [&](std::int64_t copies) { return Duration(static_cast<std::int64_t>(share * 100) * copies); };
    const Replay run = replay("vllm", {}, kv,
                              {prompt(0, {1, 2, 3, 4}, 2), prompt(100'000, {5, 6, 7, 8}),
                               prompt(200'000, {1, 2, 3, 4}, 2), request(200'000, 10, 1)},
                              model);
    EXPECT_EQ(run.of(0).end, SimTime(65'002) + busy(12)) << share;
    EXPECT_EQ(run.of(1).end, SimTime(165'001)) << share;
    EXPECT_EQ(run.of(3).end, SimTime(210'001) + busy(9)) << share;
    EXPECT_EQ(run.of(2).end, SimTime(211'003) + busy(9)) << share;
    EXPECT_NEAR(run.result.statistics.engine.connector_start_time, share * 3.3e-6, 1e-12);
    EXPECT_EQ(run.result.statistics.engine.connector_time, 0.0);
  }
}

// The same requests with an engine that runs one step ahead, and a third token for A's first request. A's first step
// hides what its stores need to start, and nothing of that is left for its third. Before the load nothing ran, so the
// load begins no earlier.
TEST(OffloadingRun, StartingCopies_IsHiddenByTheStepBefore) {
  const BusyWorker model(true);
  KvLayout kv = layout(6, 100);
  kv.host_cache_copies_per_block = 3;
  kv.connector->launches = 1.0;
  const Replay run = replay("vllm", {}, kv,
                            {prompt(0, {1, 2, 3, 4}, 3), prompt(100'000, {5, 6, 7, 8}),
                             prompt(200'000, {1, 2, 3, 4}, 2), request(200'000, 10, 1)},
                            model);
  EXPECT_EQ(run.of(0).end, SimTime(65'003));
  EXPECT_EQ(run.of(3).end, SimTime(210'901));
  EXPECT_EQ(run.of(2).end, SimTime(211'903));
}

// A prompt of two blocks, then another of two blocks of which one is new, that waits for the first. 10 copies per
// block.
//   step 1   A computes 33 tokens until 33,001.
//   step 2   A's second token, 1 ns; it starts 20 copies of A in 2,000 ns, hidden by step 1.
// B comes at 33,001, so step 2 computes its 33 tokens too: it ends at 33,001 + 33,001.
//   step 3   B's second token; 20 copies of B are hidden by step 2.
// With copies that take 10,000 ns each to start, 20 of them take 200,000 ns: those of step 2 begin at 0 and are done at
// 200,000, so step 2 waits for 166,999 ns and ends at 200,000 + 33,001. Those of step 3 begin at 200,000, when the
// thread is free, and are done at 400,000: step 3 ends 1 ns later.
TEST(OffloadingRun, StartingCopies_TakesTheThreadTheWholeTime) {
  const BusyWorker model(true, Duration(10'000));
  KvLayout kv = layout(20, 100);
  kv.host_cache_copies_per_block = 10;
  kv.connector->launches = 1.0;
  const Replay run = replay("vllm", {}, kv, {prompt(0, {1, 2}, 2), prompt(33'001, {3, 4}, 2)}, model);
  EXPECT_EQ(run.of(0).end, SimTime(233'001));
  EXPECT_EQ(run.of(1).end, SimTime(400'001));
}

// 5 GPU blocks. A ends at 65,001, and its blocks leave until 73,001: B, which arrives meanwhile, starts only then.
TEST(OffloadingRun, BlocksOfAFinishedRequest_StayUntilTheyAreStored) {
  const TokenTimeModel model;
  const Replay run = replay("vllm", {}, layout(5, 100), {prompt(0, {1, 2, 3, 4}), prompt(66'000, {5, 6, 7, 8})}, model);
  EXPECT_EQ(run.of(0).end, SimTime(65'001));
  EXPECT_EQ(run.of(1).end, SimTime(73'001 + 65'001));
}

// A tier of 2 slots; A and B of 2 blocks and a token start together, A for 5 steps, B for 10, each of 10,000 ns. A's
// blocks fill the tier, so B is refused in steps 1 to 5 and passes 2 entries each time. In step 6 A has finished, and B
// takes both slots.
//   visits    5 * 2 + 5                      = 15
//   lookups   1 + 1 when they are considered, 2 of A, 6 * 2 of B = 16
//   touched   2 + 2 when they are considered, 2 of A, 2 of B     = 8
TEST(OffloadingRun, AFullTier_RefusesInEveryStep) {
  const WatchingModel model(Duration(10'000));
  const Replay run = replay("vllm", {}, layout(20, 2), {prompt(0, {1, 2}, 5), prompt(0, {3, 4}, 10)}, model);
  const OffloadingCounts expected{.visits = 15,
                                  .lookups = 16,
                                  .touched = 8,
                                  .scanned = 10,
                                  .refused_stores = 5,
                                  .stored = Blocks(4),
                                  .evicted = Blocks(2),
                                  .loaded = Blocks(0)};
  EXPECT_EQ(counts(run), expected);
}

/// What a tier of `slots` does for prompts that come one after the other, each alone, when the GPU keeps only the last.
struct NaiveCycle {
  std::size_t slots;
  std::vector<std::uint64_t> tier{};  // least recently used first; all ready when a prompt comes
  std::int64_t stored = 0, evicted = 0, refused = 0, scanned = 0;

  /// Returns the blocks that the prompt loads. It takes part in `steps` steps.
  std::int64_t visit(const std::vector<std::uint64_t>& ids, std::int64_t steps) {
    const auto touch = [&] {
      std::for_each(ids.rbegin(), ids.rend(), [&](std::uint64_t id) {
        if (std::erase(tier, id) > 0) tier.push_back(id);
      });
    };
    touch();
    std::int64_t hits = 0;
    while (hits < std::ssize(ids) && std::ranges::count(tier, ids[static_cast<std::size_t>(hits)]) > 0) ++hits;
    std::vector<std::uint64_t> fresh;
    for (std::size_t i = static_cast<std::size_t>(hits); i < ids.size(); ++i) {
      if (std::ranges::count(tier, ids[i]) == 0) fresh.push_back(ids[i]);
    }
    if (hits == std::ssize(ids)) return hits;
    if (fresh.size() > slots) {
      refused += steps;
      return hits;
    }
    while (tier.size() + fresh.size() > slots) {
      tier.erase(tier.begin());
      ++evicted;
    }
    stored += std::ssize(fresh);
    tier.insert(tier.end(), fresh.begin(), fresh.end());
    touch();
    return hits;
  }
};

// A GPU of 3 blocks, a tier of 4 slots, prompts of 2 blocks: A and B fill the tier, A loads its blocks, C evicts B's
// and D then A's, which nobody loads any more.
TEST(OffloadingRun, LoadedBlocks_CanBeEvictedOnceTheyHaveArrived) {
  const TokenTimeModel model;
  const Replay run = replay("vllm", {}, layout(3, 4),
                            {prompt(0, {1, 2}), prompt(1'000'000, {3, 4}), prompt(2'000'000, {1, 2}),
                             prompt(3'000'000, {5, 6}), prompt(4'000'000, {7, 8}), prompt(5'000'000, {1, 2})},
                            model);
  EXPECT_EQ(counts(run).loaded, Blocks(2));
  EXPECT_EQ(counts(run).stored, Blocks(10));
  EXPECT_EQ(counts(run).evicted, Blocks(6));
  EXPECT_EQ(counts(run).refused_stores, 0);
}

// 4 prompts of 5 blocks, visited 6 times in turn, 1 ms apart, 3 steps each. Tiers below one prompt, below the working
// set of 20 blocks, at it and above it.
TEST(OffloadingRun, ACyclicWorkingSet_HitsAsTheRuleSays) {
  const TokenTimeModel model;
  std::vector<std::vector<std::uint64_t>> prompts(4);
  for (std::uint64_t p = 0; p < prompts.size(); ++p) {
    for (std::uint64_t b = 0; b < 5; ++b) prompts[p].push_back(100 * p + b);
  }
  std::vector<RequestSpec> requests;
  for (std::int64_t i = 0; i < 24; ++i) {
    requests.push_back(prompt(1'000'000 * i, prompts[static_cast<std::size_t>(i % 4)], 3));
  }
  for (const std::size_t slots : {1U, 4U, 5U, 7U, 12U, 18U, 19U, 20U, 30U}) {
    const Replay run = replay("vllm", {}, layout(6, static_cast<std::int64_t>(slots)), requests, model);
    NaiveCycle naive{.slots = slots};
    std::int64_t loaded = 0;
    for (std::uint64_t i = 0; i < requests.size(); ++i) {
      const std::int64_t hits = naive.visit(prompts[i % 4], 3);
      loaded += hits;
      EXPECT_EQ(run.of(i).cached, Tokens(16 * hits)) << slots << " slots, request " << i;
    }
    EXPECT_EQ(counts(run).loaded, Blocks(loaded)) << slots;
    EXPECT_EQ(counts(run).stored, Blocks(naive.stored)) << slots;
    EXPECT_EQ(counts(run).evicted, Blocks(naive.evicted)) << slots;
    EXPECT_EQ(counts(run).refused_stores, naive.refused) << slots;
    // A tier of the working set stores it once and hits ever after; one below a prompt stores nothing.
    if (slots >= 20) {
      EXPECT_EQ(loaded, 20 * 5);
    }
    if (slots < 5) {
      EXPECT_EQ(loaded, 0);
    }
  }
}

// 6 GPU blocks, 20 slots; A and B of 2 blocks and a token, 30 tokens each, steps of 10,000 ns.
//   step 1    Both are computed and store 2 blocks.
//   step 16   The 48th token fills the third block of both, which they store: the copies end by 164,000 ns.
//   step 17   A needs a fourth block. B is preempted, and A takes B's third block.
//   step 18   B's first 2 blocks are on the GPU, the third is ready on the host. But B needs 4 blocks, and A has 4.
//   300,000   A ends with step 30. B loads its third block in 2,000 ns, and computes its 49th token and 13 more.
//   visits    30 of A, 16 and 14 of B                                                    = 60
//   lookups   1 + 1 when they are considered, 2 + 2 and 1 + 1 to store, 14 of B again    = 22
//   touched   2 + 2 when they are considered, 2 + 2 and 3 + 3 stored, 14 times 3 of B    = 56
TEST(OffloadingRun, APreemptedRequest_LoadsWhatTheGpuLost) {
  const WatchingModel model(Duration(10'000));
  const Replay run = replay("vllm", {}, layout(6, 20), {prompt(0, {1, 2}, 30), prompt(0, {3, 4}, 30)}, model);
  EXPECT_EQ(run.of(0).end, SimTime(300'000));
  EXPECT_EQ(run.of(1).end, SimTime(442'000));
  EXPECT_EQ(run.of(1).preempted_recompute, 1);
  EXPECT_EQ(run.of(1).cached, Tokens(48));
  EXPECT_EQ(run.result.statistics.engine.prefix_hit_host, Tokens(16));
  const OffloadingCounts expected{
      .visits = 60, .lookups = 22, .touched = 56, .stored = Blocks(6), .evicted = Blocks(0), .loaded = Blocks(1)};
  EXPECT_EQ(counts(run), expected);
}

// The same with 4 slots, which the first blocks of both fill. In step 16 both are refused, and pass 4 entries each. In
// step 17 B has been preempted, so its blocks are ready: A stores its third block in the place of B's second. B's third
// block is nowhere when B is considered again, and B computes 17 tokens in its step at 300,000 ns. It then stores its
// third block in the place of A's, which is the least recently used one.
//   lookups   1 + 1 when they are considered, 2 + 2, 1 + 1, 1 of A and 1 of B to store, 14 of B again = 24
//   touched   2 + 2 when they are considered, 2 + 2, 3 of A and 3 of B stored, 14 times 3 of B         = 56
TEST(OffloadingRun, APreemptedRequest_GivesUpItsBlocksOnTheHost) {
  const WatchingModel model(Duration(10'000));
  const Replay run = replay("vllm", {}, layout(6, 4), {prompt(0, {1, 2}, 30), prompt(0, {3, 4}, 30)}, model);
  EXPECT_EQ(run.of(0).end, SimTime(300'000));
  EXPECT_EQ(run.of(1).end, SimTime(440'000));
  EXPECT_EQ(run.of(1).preempted_recompute, 1);
  EXPECT_EQ(run.of(1).cached, Tokens(32));
  const OffloadingCounts expected{.visits = 60,
                                  .lookups = 24,
                                  .touched = 56,
                                  .scanned = 8,
                                  .refused_stores = 2,
                                  .stored = Blocks(6),
                                  .evicted = Blocks(2),
                                  .loaded = Blocks(0)};
  EXPECT_EQ(counts(run), expected);
}

// 3 requests decode far beyond a GPU of 12 blocks, so some are preempted; prompts repeat, so some load. The run ends,
// and the links carried what was charged (simulate() checks it).
TEST(OffloadingRun, PreemptionsAndLoads_EndWell) {
  const WatchingModel model(Duration(1'000));
  std::vector<RequestSpec> requests;
  for (std::int64_t i = 0; i < 40; ++i) {
    const auto p = static_cast<std::uint64_t>(10 * (i % 5));
    requests.push_back(prompt(3'000 * i, {p, p + 1, p + 2}, 20 + i % 30));
  }
  for (const std::int64_t slots : {2, 6, 20}) {
    const Replay run = replay("vllm", {}, layout(12, slots), requests, model);
    EXPECT_EQ(run.records.size(), requests.size());
    EXPECT_GT(run.result.statistics.engine.preempted_recompute, 0);
    for (const RequestRecord& record : run.records) EXPECT_EQ(record.outcome, Outcome::finished);
    if (slots == 20) {
      EXPECT_GT(counts(run).loaded, Blocks(0));
    }
    if (slots == 2) {
      EXPECT_GT(counts(run).refused_stores, 0);
    }
  }
}

}  // namespace
}  // namespace spillway
