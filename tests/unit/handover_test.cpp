// What the two replicas of a hand-over keep, lose and count: each step by hand.
//
// tests/oracle/small_cluster.hpp states the times of iterations, of two layers, and of transfers. A prompt of 33 tokens
// has 3 blocks; without its last token, as the decode replica gets it, 2.
#include <gtest/gtest.h>

#include <string>

#include "tests/oracle/replay.hpp"
#include "tests/oracle/small_cluster.hpp"

namespace spillway {
namespace {

using Cluster = oracle::SmallCluster;
using oracle::request;

// --- admission

// The decode replica has 5 blocks. 0 runs there from 3,100 to 23,100, with 2 blocks from 5,100 on. 1 takes 2 blocks at
// 5,100, and its KV is there at 7,200. At 9,100 it needs one block more, and one is free: it joins, and ends at 11,100.
TEST(Handover, BlocksThatARequestHasAreNotAskedForAgain) {
  for (const bool prefix_caching : {false, true}) {
    Cluster cluster(2, 2, prefix_caching);
    cluster.config.instances[1].kv.gpu_blocks = Blocks(5);
    cluster.split(1).run({request(0, 16, 10), request(2'000, 33, 1)});
    EXPECT_EQ(cluster.of(0).end, SimTime(23'100));
    EXPECT_EQ(cluster.of(1).end, SimTime(11'100));
  }
}

// Each request needs 4 blocks for its last token, all that the decode replica has, and takes 1 for its KV. TensorRT-LLM
// never evicts, so 1 may not take its block before 0 has ended: at 3,100 + 33 x 2,000. Its KV is there 1,100 later.
TEST(Handover, BlocksArePromisedWhileKvIsOnItsWay) {
  Cluster cluster(2, 2, false, "tensorrt-llm");
  cluster.config.instances[1].kv.gpu_blocks = Blocks(4);
  cluster.split(1).run({request(0, 17, 33), request(0, 17, 33)});
  EXPECT_EQ(cluster.of(0).end, SimTime(69'100));
  EXPECT_EQ(cluster.of(1).end, SimTime(69'100 + 1'100 + 66'000));
}

// The client of 0 gives up at 8,000, when its KV is on its way until 11,100 and all 10 blocks are promised to it. 1 is
// admitted at 10,000, as soon as its prompt has been computed, and its KV is there at 11,100.
TEST(Handover, APromiseEndsWithItsRequest) {
  Cluster cluster(2, 2, false, "tensorrt-llm");
  cluster.config.instances[1].kv.gpu_blocks = Blocks(10);
  cluster.config.request_timeout = Duration(8'000);
  cluster.split(1).run({request(0, 145, 15), request(8'000, 17, 1)});
  EXPECT_EQ(cluster.of(0).outcome, Outcome::timed_out);
  EXPECT_EQ(cluster.of(0).end, SimTime(8'000));
  EXPECT_EQ(cluster.of(1).outcome, Outcome::finished);
  EXPECT_EQ(cluster.of(1).end, SimTime(13'100));
}

// --- no second try

// The decode replica goes down at 3,000, during the transfer. What it loses is lost, though the KV is elsewhere. A
// first token that the prefill replica sampled at 2,000 counts.
TEST(Handover, WithoutRetryADecodeReplicaLosesWhatItAwaits) {
  for (const bool at_prefill : {false, true}) {
    Cluster cluster(3);
    cluster.config.retry = false;
    cluster.config.events = {{SimTime(3'000), 1, false}};
    cluster.split(1, false, at_prefill).run({request(0, 33, 3)});
    EXPECT_EQ(cluster.of(0).outcome, Outcome::lost);
    EXPECT_EQ(cluster.of(0).end, SimTime(3'000));
    EXPECT_EQ(cluster.of(0).first_scheduled, SimTime(0));
    EXPECT_EQ(cluster.of(0).first_token, at_prefill ? SimTime(2'000) : kNever);
    EXPECT_EQ(cluster.of(0).generated, Tokens(at_prefill ? 1 : 0));
    EXPECT_EQ(cluster.of(0).decode_replica, 1U);
    EXPECT_EQ(cluster.result.statistics.replicas[1].lost, 1);
    EXPECT_EQ(cluster.result.statistics.replicas[2].sent, 0);
  }
}

// The same of a prefill replica at 3,000, which has the KV.
TEST(Handover, WithoutRetryAPrefillReplicaLosesKvAndTheTokenCounts) {
  Cluster cluster(3);
  cluster.config.retry = false;
  cluster.config.events = {{SimTime(3'000), 0, false}};
  cluster.split(2, false, true).run({request(0, 33, 3)});
  EXPECT_EQ(cluster.of(0).outcome, Outcome::lost);
  EXPECT_EQ(cluster.of(0).end, SimTime(3'000));
  EXPECT_EQ(cluster.of(0).first_token, SimTime(2'000));
  EXPECT_EQ(cluster.of(0).generated, Tokens(1));
}

// Layer by layer, at 1,000: at once, not when the prompt has been computed. A client that gave up at 500, in the
// iteration in flight, hears of that when it ends.
TEST(Handover, WithoutRetryALostRequestDoesNotWaitForItsPrompt) {
  for (const bool gives_up : {false, true}) {
    Cluster cluster(3);
    cluster.config.retry = false;
    if (gives_up) cluster.config.request_timeout = Duration(500);
    cluster.config.events = {{SimTime(1'000), 1, false}};
    cluster.split(1, true).run({request(0, 33, 3)});
    EXPECT_EQ(cluster.of(0).outcome, gives_up ? Outcome::timed_out : Outcome::lost);
    EXPECT_EQ(cluster.of(0).end, SimTime(gives_up ? 2'000 : 1'000));
    EXPECT_EQ(cluster.result.statistics.replicas[2].sent, 0);
  }
}

// --- giving up

// The client gives up in the iteration that completes the prompt. The prefill replica may have sampled the first token;
// the decode replica samples none.
TEST(Handover, WhoGivesUpHasNoTokenOfTheOtherReplica) {
  for (const bool at_prefill : {false, true}) {
    Cluster cluster(2);
    cluster.config.request_timeout = Duration(1'500);
    cluster.split(1, false, at_prefill).run({request(0, 33, 3)});
    EXPECT_EQ(cluster.of(0).outcome, Outcome::timed_out);
    EXPECT_EQ(cluster.of(0).end, SimTime(2'000));
    EXPECT_EQ(cluster.of(0).first_token, at_prefill ? SimTime(2'000) : kNever);
    EXPECT_EQ(cluster.of(0).generated, Tokens(at_prefill ? 1 : 0));
    EXPECT_EQ(cluster.of(0).computing, Duration(2'000));
  }
}

// --- requests that come again

// The decode replica goes down at 7,000, after the hand-over. The prompt comes to the prefill replica again, which has
// its two full blocks in the prefix cache: a prompt without prefix_ids is equal to itself.
TEST(Handover, APromptThatComesAgainFindsItsBlocks) {
  Cluster cluster(3, 2, /*prefix_caching=*/true);
  cluster.decode_choices = {0, 1};
  cluster.config.events = {{SimTime(7'000), 1, false}};
  cluster.split(1).run({request(0, 33, 3)});
  EXPECT_EQ(cluster.of(0).first_scheduled, SimTime(7'000));
  EXPECT_EQ(cluster.of(0).cached, Tokens(32));
  EXPECT_EQ(cluster.of(0).end, SimTime(17'100));
}

// Prefill replica 0 goes down at 1,000, and both requests come to the decode replica again, 0 before 1. Layer by layer
// both transfers share its way in: 500 bytes of each from 1,100 to 2,100, and from 3,100 to 4,100. Both join then, with
// 2 of 4 blocks each. Each has 32 tokens there at 4,100 + 16 x 2,000. TensorRT-LLM pauses the one that arrived last: 1,
// whose 33 tokens fit when 0 has ended. 0 takes 33 iterations, and 1 another 17.
TEST(Handover, RequestsThatComeAgainKeepTheirOrder) {
  Cluster cluster(3, 2, false, "tensorrt-llm", {{"policy.batch_scheduler_policy", std::string("max_utilization")}});
  cluster.prefill_choices = {0, 0, 1};
  cluster.config.instances[2].kv.gpu_blocks = Blocks(4);
  cluster.config.events = {{SimTime(1'000), 0, false}};
  cluster.split(2, true).run({request(0, 17, 33), request(0, 17, 33)});
  EXPECT_EQ(cluster.of(0).preempted_recompute, 0);
  EXPECT_EQ(cluster.of(1).preempted_recompute, 1);
  EXPECT_EQ(cluster.of(0).end, SimTime(4'100 + 33 * 2'000));
  EXPECT_EQ(cluster.of(1).end, SimTime(4'100 + (33 + 17) * 2'000));
}

// --- memory

// The decode replica never comes up. The KV of 0, complete at 6,000, keeps 3 of the prefill replica's 4 blocks. 1 has
// room for a chunk of 16 tokens, is preempted for its second one, and begins again, until 64 iterations have passed
// without a token: at 134,000 the replica rests. Nothing is to come, so 0 is lost. Now 1 goes on behind its first 16
// tokens, and is lost when its prompt has been computed, at 138,000.
TEST(Handover, APrefillReplicaRestsWhenKvLeavesTooLittleMemory) {
  Cluster cluster(2, 2, false, "vllm",
                  {{"policy.reserve_full_input", false}, {"engine.max_num_batched_tokens", std::int64_t{16}}});
  cluster.config.instances[0].kv.gpu_blocks = Blocks(4);
  cluster.config.events = {{SimTime(0), 1, false}};
  cluster.split(1).run({request(0, 33, 3), request(6'000, 33, 3)});
  EXPECT_EQ(cluster.of(0).outcome, Outcome::lost);
  EXPECT_EQ(cluster.of(0).end, SimTime(134'000));
  EXPECT_EQ(cluster.of(1).outcome, Outcome::lost);
  EXPECT_EQ(cluster.of(1).end, SimTime(138'000));
}

// The KV of 1, complete at 7,000, keeps 3 of 4 blocks. 0 comes from a replica that went down, and the replica rests
// from 135,000 on, after 64 iterations without a token. The client of 0 gives up at 136,000, which leaves 2 a block: it
// runs at once, and not when the client of 1 gives up, at 137,000.
TEST(Handover, APrefillReplicaThatRestsGoesOnWhenARequestEnds) {
  Cluster cluster(3, 2, false, "vllm",
                  {{"policy.reserve_full_input", false}, {"engine.max_num_batched_tokens", std::int64_t{16}}});
  cluster.prefill_choices = {1, 0};
  cluster.config.instances[0].kv.gpu_blocks = Blocks(4);
  cluster.config.request_timeout = Duration(136'000);
  cluster.config.events = {{SimTime(0), 2, false}, {SimTime(5'000), 1, false}};
  cluster.split(2).run({request(0, 33, 3), request(1'000, 33, 3), request(100'000, 10, 3)});
  EXPECT_EQ(cluster.of(0).end, SimTime(136'000));
  EXPECT_EQ(cluster.of(1).end, SimTime(137'000));
  EXPECT_EQ(cluster.of(2).first_scheduled, SimTime(136'000));
}

// The KV of 0 and 1 keeps 2 blocks and 1 block of 4. 2 begins at 6,000, and the replica rests from 134,000 on. The
// client of 0 gives up at 140,000: 2 goes on behind its first 16 tokens at once, and not when the KV of 1 leaves, too.
TEST(Handover, APrefillReplicaThatRestsGoesOnWhenKvLeaves) {
  Cluster cluster(2, 2, false, "vllm",
                  {{"policy.reserve_full_input", false}, {"engine.max_num_batched_tokens", std::int64_t{16}}});
  cluster.config.instances[0].kv.gpu_blocks = Blocks(4);
  cluster.config.request_timeout = Duration(140'000);
  cluster.config.events = {{SimTime(0), 1, false}};
  cluster.split(1, false, true).run({request(0, 17, 3), request(1'000, 16, 3), request(5'000, 33, 3)});
  EXPECT_EQ(cluster.of(0).first_token, SimTime(4'000));
  EXPECT_EQ(cluster.of(1).first_token, SimTime(6'000));
  EXPECT_EQ(cluster.of(2).first_token, SimTime(144'000));
}

// --- transfers that are not wanted any more

// 0 is computed until 2,000, and 1 waits for that. At 1,000 the decode replica goes down that 1 was admitted to. When
// the prompt of 1 begins, none of its layers moves: the last layer of 0 has the way out for itself, from 2,100 to
// 3,100. 0 ends at 5,100. 1 starts anew at 4,000 and is admitted at 5,100; its prompt is computed by 7,100, its KV is
// there at 8,200.
TEST(Handover, NoLayersMoveToAReplicaThatIsDown) {
  Cluster cluster(3);
  cluster.decode_choices = {1, 0, 1};
  cluster.config.events = {{SimTime(1'000), 1, false}};
  cluster.split(1, true).run({request(0, 33, 1), request(500, 33, 1)});
  EXPECT_EQ(cluster.of(0).end, SimTime(5'100));
  EXPECT_EQ(cluster.of(1).end, SimTime(10'200));
  EXPECT_EQ(cluster.of(1).decode_replica, 2U);
}

// The only decode replica goes down at 3,000, when the transfer is to end at 4,100. Nothing is to come any more, so the
// request is lost then.
TEST(Handover, ACancelledTransferKeepsNobodyWaiting) {
  Cluster cluster(2);
  cluster.config.events = {{SimTime(3'000), 1, false}};
  cluster.split(1).run({request(0, 33, 1)});
  EXPECT_EQ(cluster.of(0).outcome, Outcome::lost);
  EXPECT_EQ(cluster.of(0).end, SimTime(3'000));
}

}  // namespace
}  // namespace spillway
