// The host tier of the prefix cache: the stored blocks, and the time that a hit saves.
#include "sim/kv/host_cache.hpp"

#include <gtest/gtest.h>

#include "tests/oracle/replay.hpp"
#include "tests/unit/token_time_model.hpp"

namespace spillway {
namespace {

using oracle::replay;
using oracle::Replay;
using oracle::request;

/// Stores `hash` and completes its copy.
void keep(HostCache& cache, BlockHash hash) {
  cache.store(hash);
  if (cache.take_stores() > Blocks(0)) cache.stored();
}

TEST(HostCache, Block_WhenItsCopyHasEnded_ThenFound) {
  HostCache cache(Blocks(4));
  cache.store(1);
  cache.store(2);
  EXPECT_EQ(cache.take_stores(), Blocks(2));
  cache.store(3);
  EXPECT_EQ(cache.take_stores(), Blocks(1));
  EXPECT_FALSE(cache.holds(1));
  cache.stored();  // of the first copy
  EXPECT_TRUE(cache.holds(1));
  EXPECT_TRUE(cache.holds(2));
  EXPECT_FALSE(cache.holds(3));
  cache.stored();
  EXPECT_TRUE(cache.holds(3));
}

// A block that is in the host's memory already is found at once, and no copy takes it. Two blocks fit. Block 1 is put
// again, so block 2 leaves for block 3. Block 4 is on its way and 3 is used, so 1 leaves.
TEST(HostCache, WhatIsOnTheHost_IsPutWithoutACopy) {
  HostCache cache(Blocks(2));
  cache.put(1);
  EXPECT_TRUE(cache.holds(1));
  EXPECT_EQ(cache.take_stores(), Blocks(0));
  cache.put(2);
  cache.put(1);
  cache.put(3);
  EXPECT_TRUE(cache.holds(1) && cache.holds(3));
  EXPECT_FALSE(cache.holds(2));
  cache.store(4);
  EXPECT_FALSE(cache.holds(1));
  cache.put(4);
  EXPECT_FALSE(cache.holds(4)) << "it is still on its way";
  EXPECT_EQ(cache.take_stores(), Blocks(1));
  cache.stored();
  EXPECT_TRUE(cache.holds(4));
}

// Blocks on their way count, those that are stored again do not, and the third makes room by the first.
TEST(HostCache, WhatIsFilled) {
  HostCache cache(Blocks(2));
  EXPECT_EQ(cache.filled(), Blocks(0));
  cache.store(1);
  EXPECT_EQ(cache.filled(), Blocks(1));
  EXPECT_EQ(cache.take_stores(), Blocks(1));
  cache.stored();
  cache.store(1);
  EXPECT_EQ(cache.filled(), Blocks(1));
  cache.put(2);
  cache.put(3);
  EXPECT_EQ(cache.filled(), Blocks(2));
}

// Three blocks fit: 1, 2, 3. Block 1 is loaded and block 2 stored again, so block 3 is the least recently used.
TEST(HostCache, Room_IsMadeByTheLeastRecentlyUsed) {
  HostCache cache(Blocks(3));
  for (const BlockHash hash : {1U, 2U, 3U}) keep(cache, hash);
  cache.touch(1);
  keep(cache, 2);
  keep(cache, 4);
  EXPECT_TRUE(cache.holds(1));
  EXPECT_TRUE(cache.holds(2));
  EXPECT_FALSE(cache.holds(3));
  EXPECT_TRUE(cache.holds(4));
}

TEST(HostCache, Block_IsCopiedOnce) {
  HostCache cache(Blocks(3));
  cache.store(1);
  cache.store(1);  // on its way
  EXPECT_EQ(cache.take_stores(), Blocks(1));
  cache.stored();
  cache.store(1);  // there
  EXPECT_EQ(cache.take_stores(), Blocks(0));
}

TEST(HostCache, Room_WhenAllIsOnItsWay_ThenNothingIsStored) {
  HostCache cache(Blocks(1));
  cache.store(1);
  cache.store(2);
  EXPECT_EQ(cache.take_stores(), Blocks(1));
  cache.stored();
  EXPECT_TRUE(cache.holds(1));
  EXPECT_FALSE(cache.holds(2));
}

KvLayout layout(std::int64_t gpu, std::int64_t host_cache) {
  return KvLayout{Blocks(gpu), Blocks(0), Tokens(16), Bytes(2000), 1, true, Blocks(host_cache)};
}

RequestSpec prompt(std::int64_t arrival, std::vector<std::uint64_t> ids) {
  RequestSpec spec = request(arrival, static_cast<std::int64_t>(ids.size()) * 16 + 1, 1);
  spec.prefix_ids = std::move(ids);
  return spec;
}

// 5 GPU blocks, prompts of 4 blocks and one token: A, then B, which replaces A, then A again.
//   1  t = 0        A computes 65 tokens: 65,001 ns. Its 4 full blocks go to the host with the next iteration.
//   2  t = 100,000  B the same, over A's blocks; A's copy runs beside it: 8,000 ns. B's 4 blocks are queued.
//   3  t = 200,000  A again. Without a host tier: 65,001 ns. With it 4 blocks are loaded, 8,000 ns, and one token is
//      computed, 1,001 ns: 9,001 ns.
// So the higher hit rate saves exactly 56,000 ns of the third request's TTFT, and nothing else.
TEST(HostCacheRun, AHit_ShowsInTimeToFirstToken) {
  const TokenTimeModel model;
  const std::vector<RequestSpec> requests{prompt(0, {1, 2, 3, 4}), prompt(100'000, {5, 6, 7, 8}),
                                          prompt(200'000, {1, 2, 3, 4})};
  const Replay without = replay("vllm", {}, layout(5, 0), requests, model);
  const Replay with = replay("vllm", {}, layout(5, 100), requests, model);
  for (const std::uint64_t index : {0U, 1U}) {
    EXPECT_EQ(without.of(index).end - without.of(index).arrival, Duration(65'001));
    EXPECT_EQ(with.of(index).end - with.of(index).arrival, Duration(65'001));
  }
  EXPECT_EQ(without.of(2).end - without.of(2).arrival, Duration(65'001));
  EXPECT_EQ(with.of(2).end - with.of(2).arrival, Duration(9'001));
  EXPECT_EQ(without.of(2).cached, Tokens(0));
  EXPECT_EQ(with.of(2).cached, Tokens(64));

  const RunStatistics& statistics = with.result.statistics;
  EXPECT_EQ(statistics.engine.prefix_hit_host, Tokens(64));
  EXPECT_DOUBLE_EQ(*statistics.find("prefix_cache_hit_fraction")->value, 64.0 / 195.0);
  EXPECT_DOUBLE_EQ(*statistics.find("host_cache_hit_fraction")->value, 64.0 / 195.0);
  EXPECT_EQ(statistics.engine.moved_h2d, Bytes(8'000));
  // A's blocks leave with iteration 2, B's with iteration 3. The third request's blocks are on the host already.
  EXPECT_EQ(statistics.engine.moved_d2h, Bytes(16'000));
}

// The same three prompts. Beside A's way to the host B takes half as long again, 65,001 * 3 / 2 rounded up. In the
// third iteration A's blocks come while B's leave, 8,000 ns each alone: at 8,000 the way out is done and 8,000 * 4 / 5
// of the way in; the other 1,600 come alone, and only then is the token computed.
TEST(HostCacheRun, CopiesShareTheLinkAndSlowDownWhatRunsBesideThem) {
  const TokenTimeModel model(CopySharing{.h2d = {5, 4}, .compute = {3, 2}});
  const std::vector<RequestSpec> requests{prompt(0, {1, 2, 3, 4}), prompt(100'000, {5, 6, 7, 8}),
                                          prompt(200'000, {1, 2, 3, 4})};
  const Replay run = replay("vllm", {}, layout(5, 100), requests, model);
  EXPECT_EQ(run.of(0).end - run.of(0).arrival, Duration(65'001));
  EXPECT_EQ(run.of(1).end - run.of(1).arrival, Duration(97'502));
  EXPECT_EQ(run.of(2).end - run.of(2).arrival, Duration(9'600 + 1'001));
}

// A block that is still on the GPU is not loaded, although the host has it too.
TEST(HostCacheRun, AHitOnTheGpu_IsNotLoaded) {
  const TokenTimeModel model;
  const Replay run =
      replay("vllm", {}, layout(20, 100), {prompt(0, {1, 2}), prompt(100'000, {7}), prompt(200'000, {1, 2})}, model);
  EXPECT_EQ(run.of(2).cached, Tokens(32));
  EXPECT_EQ(run.result.statistics.engine.prefix_hit_host, Tokens(0));
  EXPECT_EQ(run.result.statistics.engine.moved_h2d, Bytes(0));
}

// A prefix partly on the GPU, partly on the host. 5 GPU blocks, used in the order in which they were freed; a request
// frees its table from the end. A fills blocks 0, 1, 2 with {1, 2, 3} and uses 3 for its last token; then the order is
// 4, 3, 2, 1, 0. B ({9} and a token) takes 4 and 3 and frees 3, 4: 2, 1, 0, 3, 4. C ({8} and a token) takes 2 and 1. So
// A again finds {1} on the GPU and loads {2, 3} in 4,000 ns, and computes one token.
TEST(HostCacheRun, AHit_MayBeOnBothTiers) {
  const TokenTimeModel model;
  const Replay run =
      replay("vllm", {}, layout(5, 100),
             {prompt(0, {1, 2, 3}), prompt(100'000, {9}), prompt(200'000, {8}), prompt(300'000, {1, 2, 3})}, model);
  EXPECT_EQ(run.of(3).cached, Tokens(48));
  EXPECT_EQ(run.result.statistics.engine.prefix_hit_host, Tokens(32));
  EXPECT_EQ(run.of(3).end - run.of(3).arrival, Duration(4'000 + 1'001));
}

// Copies to the host go on beside later iterations: nothing waits for them. With a slow link (2,000 ns per block, 4
// blocks from each of 10 different prompts that follow one another every 100 ns of queueing) the run is as long as
// without.
TEST(HostCacheRun, Stores_DelayNoIteration) {
  const TokenTimeModel model;
  std::vector<RequestSpec> requests;
  for (std::uint64_t i = 0; i < 10; ++i)
    requests.push_back(prompt(static_cast<std::int64_t>(i) * 100, {4 * i, 4 * i + 1}));
  const Replay without = replay("vllm", {}, layout(200, 0), requests, model);
  const Replay with = replay("vllm", {}, layout(200, 100), requests, model);
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(with.of(i).end, without.of(i).end);
  EXPECT_GT(with.result.statistics.engine.moved_d2h, Bytes(0));
}

// A GPU that keeps no prefixes has the third prompt's 2 blocks loaded, which it would have found. Where the tier is
// lent, they come from another GPU, and all 3 blocks went there.
TEST(HostCacheRun, AGpuThatKeepsNoPrefixes_LoadsThemEachTime) {
  const std::vector<RequestSpec> requests{prompt(0, {1, 2}), prompt(100'000, {7}), prompt(200'000, {1, 2})};
  const auto run = [&](bool keeps, bool lent) {
    const TokenTimeModel model;
    KvLayout kv = layout(20, 100);
    kv.cache_is_lent = lent;
    return replay("cfs", {{"policy.keep_prefixes", keeps}, {"engine.chunked_prefill", true}}, kv, requests, model);
  };
  const Replay keeps = run(true, false);
  EXPECT_EQ(keeps.of(2).cached, Tokens(32));
  EXPECT_EQ(keeps.result.statistics.engine.prefix_hit_host, Tokens(0));
  for (const bool lent : {false, true}) {
    SCOPED_TRACE(lent);
    const Replay forgets = run(false, lent);
    EXPECT_EQ(forgets.of(2).cached, Tokens(32));
    const EngineTotals& totals = forgets.result.statistics.engine;
    EXPECT_EQ(totals.prefix_hit_host, Tokens(32));
    EXPECT_EQ(totals.moved_h2d, Bytes(lent ? 0 : 4'000));
    EXPECT_EQ(totals.moved_peer_in, Bytes(lent ? 4'000 : 0));
    EXPECT_EQ(totals.moved_d2h, Bytes(lent ? 0 : 6'000));
    EXPECT_EQ(totals.moved_peer_out, Bytes(lent ? 6'000 : 0));
  }
}

}  // namespace
}  // namespace spillway
