// Replicas that fail, and prefill and decode pools: each step by hand.
//
// tests/oracle/small_cluster.hpp states the times of iterations, of two layers unless a case says otherwise, and of
// transfers. A prompt of 33 tokens has 3 blocks; without its last token 2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/replay.hpp"
#include "tests/oracle/small_cluster.hpp"

namespace spillway {
namespace {

using Cluster = oracle::SmallCluster;
using oracle::request;
using testing::DoubleEq;
using testing::ElementsAre;

// --- failures

// Down at 3,000, in the second iteration: its one token is lost with the replica. The other replica computes the prompt
// from 3,000 to 5,000, then two tokens.
TEST(Failures, ARequestIsComputedAgainElsewhere) {
  Cluster cluster(2);
  cluster.prefill_choices = {0, 1};
  cluster.config.events = {{SimTime(3'000), 0, false}};
  cluster.run({request(0, 33, 3)});
  const RequestRecord& record = cluster.of(0);
  EXPECT_EQ(record.outcome, Outcome::finished);
  EXPECT_EQ(record.arrival, SimTime(0));
  EXPECT_EQ(record.first_scheduled, SimTime(3'000));
  EXPECT_EQ(record.first_token, SimTime(5'000));
  EXPECT_EQ(record.end, SimTime(9'000));
  EXPECT_EQ(record.generated, Tokens(3));
  EXPECT_EQ(record.computing, Duration(6'000));
  EXPECT_EQ(record.replica, 1U);
  const std::vector<ReplicaStatistics>& replicas = cluster.result.statistics.replicas;
  EXPECT_EQ(replicas[0].sent, 1);
  EXPECT_EQ(replicas[0].lost, 1);
  EXPECT_EQ(replicas[0].finished, 0);
  EXPECT_DOUBLE_EQ(replicas[0].down_time, 6e-6);  // of 9,000 ns
  EXPECT_EQ(replicas[1].sent, 1);
  EXPECT_EQ(replicas[1].finished, 1);
  EXPECT_EQ(replicas[1].lost, 0);
}

TEST(Failures, WithoutRetryRequestsAreLost) {
  Cluster cluster(2);
  cluster.config.retry = false;
  cluster.config.events = {{SimTime(3'000), 0, false}};
  cluster.run({request(0, 33, 3)});
  EXPECT_EQ(cluster.of(0).outcome, Outcome::lost);
  EXPECT_EQ(cluster.of(0).end, SimTime(3'000));
  EXPECT_EQ(cluster.result.statistics.all.lost, 1);
}

// Two requests wait from 3,000 and 4,000 on until the replica is up at 10,000: both prompts by 12,000. The busy time
// counts what the failure cut: 3,000 + 2,000.
TEST(Failures, RequestsWaitUntilAReplicaIsUp) {
  Cluster cluster(1);
  cluster.config.events = {{SimTime(3'000), 0, false}, {SimTime(10'000), 0, true}};
  cluster.run({request(0, 33, 3), request(4'000, 20, 1)});
  EXPECT_EQ(cluster.of(0).first_token, SimTime(12'000));
  EXPECT_EQ(cluster.of(0).end, SimTime(16'000));
  EXPECT_EQ(cluster.of(1).end, SimTime(12'000));
  EXPECT_EQ(cluster.of(1).first_scheduled, SimTime(10'000));
  EXPECT_DOUBLE_EQ(cluster.result.statistics.replicas[0].engine.busy_time, 9e-6);
  EXPECT_DOUBLE_EQ(cluster.result.statistics.replicas[0].down_time, 7e-6);
  EXPECT_DOUBLE_EQ(cluster.result.statistics.replica_time(), 9e-6);  // of 16,000 ns
  const auto& time = cluster.result.statistics.engine.resource_time;
  EXPECT_NEAR(time[static_cast<std::size_t>(Resource::load)], 0.0, 1e-15);
}

TEST(Failures, WithoutAnyReplicaRequestsAreLostOrTimeOut) {
  Cluster lost(1);
  lost.config.events = {{SimTime(3'000), 0, false}};
  lost.run({request(0, 33, 3), request(4'000, 20, 1)});
  EXPECT_EQ(lost.result.statistics.all.lost, 2);
  Cluster given_up(1);
  given_up.config.events = {{SimTime(3'000), 0, false}, {SimTime(20'000), 0, true}};
  given_up.config.request_timeout = Duration(8'000);
  given_up.run({request(0, 33, 3), request(19'000, 20, 1)});
  EXPECT_EQ(given_up.of(0).outcome, Outcome::timed_out);
  EXPECT_EQ(given_up.of(0).end, SimTime(8'000));
  EXPECT_EQ(given_up.of(1).end, SimTime(22'000));
}

// The time-out counts from the first send: 9,000 is in the last iteration of the second attempt, which it ends with.
TEST(Failures, TimeOutsCountFromTheFirstSend) {
  Cluster cluster(2);
  cluster.prefill_choices = {0, 1};
  cluster.config.events = {{SimTime(3'000), 0, false}};
  cluster.config.request_timeout = Duration(8'500);
  cluster.run({request(0, 33, 4)});
  EXPECT_EQ(cluster.of(0).outcome, Outcome::timed_out);
  EXPECT_EQ(cluster.of(0).end, SimTime(9'000));
}

// 0 reaches the replica, which is down, at 5,000, when 1 has waited at the router since 1,000. It gives up first.
TEST(Failures, TimeOutsComeInTheOrderOfSending) {
  Cluster cluster(1);
  cluster.config.front_end = Duration(5'000);
  cluster.config.request_timeout = Duration(6'000);
  cluster.config.events = {{SimTime(500), 0, false}, {SimTime(20'000), 0, true}};
  cluster.run({request(0, 33, 1), request(1'000, 33, 1)});
  EXPECT_EQ(cluster.of(0).end, SimTime(6'000));
  EXPECT_EQ(cluster.of(1).end, SimTime(7'000));
}

// Sent to replica 0, which goes down while the request is in the front end of 5,000 ns: routed anew when it has passed
// it, and passes it again.
TEST(Failures, ARequestInTheFrontEndIsRoutedAnew) {
  Cluster cluster(2);
  cluster.prefill_choices = {0, 1};
  cluster.config.front_end = Duration(5'000);
  cluster.config.events = {{SimTime(3'000), 0, false}};
  cluster.run({request(0, 33, 1)});
  EXPECT_EQ(cluster.of(0).end, SimTime(12'000));
  EXPECT_EQ(cluster.of(0).replica, 1U);
  EXPECT_EQ(cluster.result.statistics.replicas[0].sent, 1);
}

// Cut at 4,000 while it waits.
TEST(Failures, TheHorizonCutsWhatWaits) {
  Cluster cluster(1);
  cluster.config.events = {{SimTime(3'000), 0, false}, {SimTime(10'000), 0, true}};
  cluster.config.until = SimTime(4'000);
  cluster.run({request(0, 33, 3)});
  EXPECT_EQ(cluster.of(0).outcome, Outcome::unfinished);
  EXPECT_EQ(cluster.of(0).end, SimTime(4'000));
}

// --- pools

// The prompt by 2,000. The decode replica admits the request then and gets 2 blocks by 2,000 + 100 + 2,000 = 4,100. It
// computes the last token of the prompt by 6,100, then two more tokens.
TEST(Pools, HandKvOverAsAWhole) {
  Cluster cluster(2);
  cluster.split(1).run({request(0, 33, 3)});
  const RequestRecord& record = cluster.of(0);
  EXPECT_EQ(record.outcome, Outcome::finished);
  EXPECT_EQ(record.first_scheduled, SimTime(0));
  EXPECT_EQ(record.first_token, SimTime(6'100));
  EXPECT_EQ(record.end, SimTime(10'100));
  EXPECT_EQ(record.generated, Tokens(3));
  EXPECT_EQ(record.computing, Duration(8'000));
  EXPECT_EQ(record.input, Tokens(33));
  EXPECT_EQ(record.output, Tokens(3));
  EXPECT_EQ(record.replica, 0U);
  EXPECT_EQ(record.decode_replica, 1U);
}

// Its KV is 33 tokens then, in 3 blocks: there by 5,100. The second token comes at 7,100, 5,100 ns after the first.
TEST(Pools, ThePrefillReplicaMaySampleTheFirstToken) {
  Cluster cluster(2);
  cluster.split(1, false, true).run({request(0, 33, 3), request(20'000, 33, 1)});
  EXPECT_EQ(cluster.of(0).first_token, SimTime(2'000));
  EXPECT_EQ(cluster.of(0).end, SimTime(9'100));
  EXPECT_EQ(cluster.of(0).generated, Tokens(3));
  EXPECT_EQ(cluster.of(0).output, Tokens(3));
  const Metric* const longest = cluster.result.statistics.find("max_itl_ms");
  ASSERT_NE(longest, nullptr);
  EXPECT_DOUBLE_EQ(longest->value.value_or(0.0), 5'100e-6);
  EXPECT_EQ(longest->n, 2);
  // An answer of one token needs no decode replica.
  EXPECT_EQ(cluster.of(1).end, SimTime(22'000));
  EXPECT_EQ(cluster.of(1).decode_replica, RequestRecord::kNoReplica);
  EXPECT_EQ(cluster.result.statistics.replicas[1].sent, 1);
}

// Admitted at 0, computed from 0 to 2,000. The first of two layers moves from 0 to 100 + 1,500, the other from 2,000
// on: there by 3,600. Over a slower link the first one takes until 3,100 and the other until 6,200.
TEST(Pools, HandKvOverLayerByLayer) {
  Cluster cluster(2);
  cluster.split(1, true, true).run({request(0, 33, 3)});
  EXPECT_EQ(cluster.of(0).first_token, SimTime(2'000));
  EXPECT_EQ(cluster.of(0).end, SimTime(7'600));
  const std::optional<HandoverTotals>& totals = cluster.result.statistics.handover;
  ASSERT_TRUE(totals.has_value());
  EXPECT_EQ(totals->transfers, 1);
  EXPECT_EQ(totals->bytes, Bytes(3'000));
  EXPECT_DOUBLE_EQ(totals->waited, 0.0);
  EXPECT_DOUBLE_EQ(totals->moved, 3'600e-9);
  Cluster slow(2);
  slow.split(1, true, true);
  slow.config.handover->path = [](std::size_t from, std::size_t to) {
    return HandoverPath{Duration(100), BytesPerSecond(0.5e9), {{from}, {1 + to}}};
  };
  slow.run({request(0, 33, 3)});
  EXPECT_EQ(slow.of(0).end, SimTime(10'200));
}

// Three of four layers move from 0 to 100 + 2,250, beyond the end of the prompt, and the last one to 3,200.
TEST(Pools, AllLayersButTheLastMoveFirst) {
  Cluster cluster(2, 4);
  cluster.split(1, true, true).run({request(0, 33, 2)});
  EXPECT_EQ(cluster.of(0).end, SimTime(5'200));
}

// Two prompts at once, and one way in of 1 byte/ns: 1,500 bytes of each in 3,000 ns, then again: by 6,200, however
// early the layers leave.
TEST(Pools, LayersTakeTheirTimeOnTheLink) {
  Cluster cluster(3);
  cluster.prefill_choices = {0, 1};
  cluster.split(2, true, true).run({request(0, 33, 2), request(0, 33, 2)});
  EXPECT_EQ(cluster.of(0).end, SimTime(8'200));
  EXPECT_EQ(cluster.of(1).end, SimTime(8'200));
}

// The decode replica goes down at 1,000, while the prompt is computed: at 2,000 all starts anew. The prompt is computed
// by 4,000, the first layer moves from 2,000 to 3,600, the other from 4,000 to 5,600.
TEST(Pools, AFailureDuringTheLayersStartsThemAnew) {
  Cluster cluster(3);
  cluster.decode_choices = {0, 1};
  cluster.config.events = {{SimTime(1'000), 1, false}};
  cluster.split(1, true, true).run({request(0, 33, 2)});
  EXPECT_EQ(cluster.of(0).first_token, SimTime(4'000));
  EXPECT_EQ(cluster.of(0).end, SimTime(7'600));
  EXPECT_EQ(cluster.of(0).decode_replica, 2U);
  EXPECT_EQ(cluster.result.statistics.replicas[0].sent, 2);
  // At 3,000, while the other layer moves: at once.
  Cluster later(3);
  later.decode_choices = {0, 1};
  later.config.events = {{SimTime(3'000), 1, false}};
  later.split(1, true, true).run({request(0, 33, 2)});
  EXPECT_EQ(later.of(0).end, SimTime(8'600));
}

// The prefill replica goes down at 1,000, and layer by layer the request was withdrawn from the decode replica, which
// is chosen again: it starts anew at another prefill replica, and has not timed out.
TEST(Pools, AFailureOfThePromptLayerByLayer) {
  Cluster cluster(3);
  cluster.prefill_choices = {0, 1};
  cluster.config.events = {{SimTime(1'000), 0, false}};
  cluster.split(2, true, true).run({request(0, 33, 2)});
  EXPECT_EQ(cluster.of(0).outcome, Outcome::finished);
  EXPECT_EQ(cluster.of(0).end, SimTime(6'600));
  EXPECT_EQ(cluster.of(0).replica, 1U);
}

// The second request waits until the decode replica has room. Its prefill replica goes down meanwhile, so it is sent to
// another one.
TEST(Pools, APromptThatWaitsForRoomIsNotSentToAReplicaThatIsDown) {
  Cluster cluster(3);
  cluster.prefill_choices = {1, 0, 1};
  cluster.config.instances[2].kv.gpu_blocks = Blocks(4);
  cluster.config.events = {{SimTime(1'500), 0, false}};
  cluster.split(2, true, true).run({request(0, 33, 3), request(1'000, 33, 2)});
  EXPECT_EQ(cluster.of(1).outcome, Outcome::finished);
  EXPECT_EQ(cluster.of(1).replica, 1U);
  const std::vector<ReplicaStatistics>& replicas = cluster.result.statistics.replicas;
  EXPECT_EQ(replicas[0].sent, 1);
  EXPECT_EQ(replicas[1].finished, 2);
}

// Layer by layer, 1 is sent to replica 0 at 3,000 and waits for the room that 0 takes at the decode replica. When that
// goes down, replica 0 has nothing outstanding any more, so 0 goes there again, and 1 to replica 1.
TEST(Pools, AReplicaThatNeverSawARequestDoesNotCountIt) {
  Cluster cluster(3);
  cluster.config.router = [](const Replicas& replicas) {
    return RouterRegistry::instance()
        .find("least-outstanding")
        ->make({{}, replicas, Tokens(16), RandomStream(1, 0, "r")});
  };
  cluster.config.instances[2].kv.gpu_blocks = Blocks(4);
  cluster.config.events = {{SimTime(3'500), 2, false}, {SimTime(5'000), 2, true}};
  cluster.split(2, true, true).run({request(0, 33, 10), request(3'000, 33, 2)});
  EXPECT_EQ(cluster.of(0).replica, 0U);
  EXPECT_EQ(cluster.of(1).replica, 1U);
  EXPECT_EQ(cluster.of(1).outcome, Outcome::finished);
}

// The client gives up in the iteration that completes the prompt: its answer is not generated.
TEST(Pools, AClientGivesUpWhileThePromptIsComputed) {
  Cluster cluster(2);
  cluster.config.request_timeout = Duration(1'500);
  cluster.split(1).run({request(0, 33, 3)});
  EXPECT_EQ(cluster.of(0).outcome, Outcome::timed_out);
  EXPECT_EQ(cluster.of(0).end, SimTime(2'000));
}

// The decode replica never comes up: each prompt is computed, and then lost, and lets the next one go on.
TEST(Pools, WithoutADecodeReplicaEverythingIsLost) {
  for (const bool by_layers : {false, true}) {
    Cluster cluster(2);
    cluster.config.instances[0].kv.gpu_blocks = Blocks(3);
    cluster.config.events = {{SimTime(0), 1, false}};
    cluster.split(1, by_layers).run({request(0, 33, 3), request(100, 33, 3), request(200, 33, 3)});
    EXPECT_EQ(cluster.result.statistics.all.lost, 3);
  }
}

// Both prompts by 2,000, in one iteration. The transfers share the way out of the one prefill replica: 2 blocks each in
// 4,000 ns.
TEST(Pools, TransfersOfOneReplicaShareItsWayOut) {
  Cluster cluster(3);
  cluster.decode_choices = {0, 1};
  cluster.split(1).run({request(0, 33, 1), request(0, 33, 1)});
  EXPECT_EQ(cluster.of(0).end, SimTime(8'100));
  EXPECT_EQ(cluster.of(1).end, SimTime(8'100));
  // Ways of their own.
  Cluster apart(4);
  apart.prefill_choices = apart.decode_choices = {0, 1};
  apart.split(2).run({request(0, 33, 1), request(0, 33, 1)});
  EXPECT_EQ(apart.of(0).end, SimTime(6'100));
  EXPECT_EQ(apart.of(1).end, SimTime(6'100));
  EXPECT_EQ(apart.of(1).replica, 1U);
  EXPECT_EQ(apart.of(1).decode_replica, 3U);
}

// The decode replica has 4 blocks, and each request needs 3. The second is admitted when the first has ended, at
// 10,100: its transfer starts then. Until 12,200 its KV stays at the prefill replica, which has blocks for one more
// prompt: the third waits until then.
TEST(Pools, KvStaysUntilTheDecodeReplicaHasRoom) {
  Cluster cluster(2);
  cluster.split(1);
  cluster.config.instances[0].kv.gpu_blocks = Blocks(6);
  cluster.config.instances[1].kv.gpu_blocks = Blocks(4);
  cluster.run({request(0, 33, 3), request(2'000, 33, 1), request(4'500, 49, 1)});
  EXPECT_EQ(cluster.of(0).end, SimTime(10'100));
  EXPECT_EQ(cluster.of(1).end, SimTime(14'200));
  // Its prompt from 12,200 to 14,200; 3 blocks by 17,300; its token by 19,300.
  EXPECT_EQ(cluster.of(2).first_scheduled, SimTime(12'200));
  EXPECT_EQ(cluster.of(2).end, SimTime(19'300));
}

// The second turn finds 2 blocks of its prompt in the decode replica's cache: 1 block of 3 has to come. The prefill
// replica's cache has them, too.
TEST(Pools, WhatTheDecodeReplicaHasDoesNotCome) {
  Cluster cluster(2, 2, /*prefix_caching=*/true);
  RequestSpec first = request(0, 33, 1);
  first.prefix_ids = {1, 2};
  RequestSpec second = request(20'000, 49, 1);
  second.prefix_ids = {1, 2, 3};
  cluster.split(1).run({first, second});
  EXPECT_EQ(cluster.of(0).end, SimTime(6'100));
  EXPECT_EQ(cluster.of(1).end, SimTime(20'000 + 2'000 + 1'100 + 2'000));
  EXPECT_EQ(cluster.of(1).cached, Tokens(32));
}

// The client gives up while the KV is on its way: all blocks are free at once.
TEST(Pools, AClientGivesUpDuringTheTransfer) {
  Cluster cluster(2);
  cluster.config.request_timeout = Duration(3'000);
  cluster.config.instances[0].kv.gpu_blocks = Blocks(3);
  cluster.split(1).run({request(0, 33, 3), request(3'000, 33, 1)});
  EXPECT_EQ(cluster.of(0).outcome, Outcome::timed_out);
  EXPECT_EQ(cluster.of(0).end, SimTime(3'000));
  EXPECT_EQ(cluster.of(1).first_scheduled, SimTime(3'000));
}

// The prefill replica goes down at 3,000, during the transfer: another one computes the prompt by 5,000, and its KV is
// there by 7,100.
TEST(Pools, AFailureBeforeTheHandoverEnds_CostsThePrompt) {
  Cluster cluster(3);
  cluster.prefill_choices = {0, 1};
  cluster.config.events = {{SimTime(3'000), 0, false}};
  cluster.split(2).run({request(0, 33, 1)});
  EXPECT_EQ(cluster.of(0).end, SimTime(9'100));
  EXPECT_EQ(cluster.of(0).replica, 1U);
  EXPECT_EQ(cluster.of(0).first_scheduled, SimTime(3'000));
}

// The decode replica goes down at 3,000, during the transfer: the KV is still where it was computed, and goes to
// another one by 5,100.
TEST(Pools, AFailureOfTheDecodeReplicaBefore_CostsTheTransfer) {
  Cluster cluster(3);
  cluster.decode_choices = {0, 1};
  cluster.config.events = {{SimTime(3'000), 1, false}};
  cluster.split(1).run({request(0, 33, 1)});
  EXPECT_EQ(cluster.of(0).end, SimTime(7'100));
  EXPECT_EQ(cluster.of(0).decode_replica, 2U);
}

// Down at 7,000, after the hand-over: from the start.
TEST(Pools, AFailureOfTheDecodeReplicaAfter_CostsEverything) {
  Cluster cluster(3);
  cluster.decode_choices = {0, 1};
  cluster.config.events = {{SimTime(7'000), 1, false}};
  cluster.split(1).run({request(0, 33, 3)});
  EXPECT_EQ(cluster.of(0).first_scheduled, SimTime(7'000));
  EXPECT_EQ(cluster.of(0).first_token, SimTime(13'100));
  EXPECT_EQ(cluster.of(0).end, SimTime(17'100));
}

TEST(Pools, WithoutRetryWhatIsLostIsLost) {
  Cluster cluster(3);
  cluster.config.retry = false;
  cluster.config.events = {{SimTime(3'000), 0, false}};
  cluster.split(2).run({request(0, 33, 1)});
  EXPECT_EQ(cluster.of(0).outcome, Outcome::lost);
  EXPECT_EQ(cluster.of(0).end, SimTime(3'000));
}

// Cut during the transfer, and while it waits for a decode replica.
TEST(Pools, TheHorizonCutsAHandover) {
  for (const bool down : {false, true}) {
    Cluster cluster(2);
    cluster.config.until = SimTime(3'000);
    if (down) cluster.config.events = {{SimTime(1'000), 1, false}};
    cluster.split(1, false, true).run({request(0, 33, 3)});
    EXPECT_EQ(cluster.of(0).outcome, Outcome::unfinished);
    EXPECT_EQ(cluster.of(0).end, SimTime(3'000));
    EXPECT_EQ(cluster.of(0).first_token, SimTime(2'000));
    EXPECT_EQ(cluster.of(0).generated, Tokens(1));
  }
}

// --- transfers

TEST(KvTransfers, ShareLinksAndEndExactly) {
  const std::vector<BytesPerSecond> links(2, BytesPerSecond(1e9));
  KvTransfers transfers(links);
  EXPECT_EQ(transfers.next(), kNever);
  const HandoverPath path{Duration(100), BytesPerSecond(1e9), {{0}}};
  transfers.start(7, path, Duration(1'000), SimTime(0));
  EXPECT_EQ(transfers.next(), SimTime(100));
  EXPECT_THAT(transfers.collect(SimTime(100), true), ElementsAre());
  EXPECT_EQ(transfers.next(), SimTime(1'100));
  // Alone for 400; then two share the link: 600 of the first take 1,200.
  transfers.start(8, {Duration(0), BytesPerSecond(1e9), {{0}}}, Duration(1'000), SimTime(500));
  transfers.start(9, {Duration(0), BytesPerSecond(1e9), {{1}}}, Duration(5'000), SimTime(500));
  EXPECT_EQ(transfers.next(), SimTime(1'700));
  EXPECT_THAT(transfers.collect(SimTime(1'700), true), ElementsAre(7));
  EXPECT_EQ(transfers.next(), SimTime(2'100));  // 400 of 1,000 are left, alone
  transfers.cancel(8, SimTime(1'800));
  EXPECT_EQ(transfers.next(), SimTime(5'500));
  EXPECT_THAT(transfers.collect(SimTime(5'500), false), ElementsAre(9));
  EXPECT_EQ(transfers.next(), kNever);
  // The first one moved 1,000 bytes; the second was cancelled, and the third is not measured.
  EXPECT_THAT(transfers.moved(), ElementsAre(DoubleEq(1'000.0), 0.0));
}

// A copy that crosses a link with half of its bytes.
TEST(KvTransfers, CountWhatCrossesEachLink) {
  const std::vector<BytesPerSecond> links(2, BytesPerSecond(1e9));
  KvTransfers transfers(links);
  transfers.start(0, {Duration(0), BytesPerSecond(0.5e9), {{0}, {1, 0.5}}}, Duration(4'000), SimTime(0));
  EXPECT_THAT(transfers.collect(SimTime(4'000), true), ElementsAre(0));
  EXPECT_THAT(transfers.moved(), ElementsAre(DoubleEq(2'000.0), DoubleEq(1'000.0)));
}

// Two blocks of 1,000 bytes leave replica 0 and reach replica 1; with a warm-up until they are there, none is measured.
TEST(Pools, LinksCountWhatCrossesThem) {
  for (const bool warm : {false, true}) {
    Cluster cluster(2);
    if (warm) cluster.config.metrics.warmup = {.kind = Span::Kind::time, .time = Duration(4'101)};
    cluster.split(1).run({request(0, 33, 3)});
    const std::vector<LinkUse>& links = cluster.result.statistics.links;
    ASSERT_EQ(links.size(), 2U);
    for (const LinkUse& link : links) {
      EXPECT_EQ(link.capacity, 1e9);
      EXPECT_DOUBLE_EQ(link.bytes, warm ? 0.0 : 2'000.0);
    }
  }
}

}  // namespace
}  // namespace spillway
