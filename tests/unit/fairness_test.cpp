// Fairness figures against values worked out by hand.
#include "sim/metrics/fairness.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/oracle/replay.hpp"

namespace spillway {
namespace {

using oracle::Replay;
using oracle::replay;
using oracle::WatchingModel;

RequestSpec of_client(std::uint32_t client, RequestSpec request) {
  request.client = client;
  return request;
}

double value_of(const RunStatistics& statistics, const std::string& name) {
  const Metric* metric = statistics.find(name);
  EXPECT_NE(metric, nullptr) << name;
  return metric != nullptr && metric->value ? *metric->value : -1.0;
}

const ClientStatistics& row_of(const RunStatistics& statistics, std::uint32_t client) {
  for (const ClientStatistics& row : statistics.clients) {
    if (row.client == client) return row;
  }
  throw std::out_of_range("no such client");
}

const KvLayout kRoomy{Blocks(100), Blocks(0), Tokens(16), Bytes(1), 1, false};

TEST(JainIndex, OfEqualSharesIsOneAndOfOneShareIsOneNth) {
  EXPECT_EQ(jain_index(std::vector<double>{2.0, 2.0, 2.0}), 1.0);
  EXPECT_EQ(jain_index(std::vector<double>{0.0, 7.0, 0.0, 0.0}), 0.25);
  EXPECT_EQ(jain_index(std::vector<double>{3.0, 1.0}), 0.8);  // 16 / (2 * 10)
  EXPECT_FALSE(jain_index(std::vector<double>{5.0}).has_value());
  EXPECT_FALSE(jain_index(std::vector<double>{}).has_value());
  EXPECT_FALSE(jain_index(std::vector<double>{0.0, 0.0}).has_value());
}

// Client 0 sends three requests before the one of client 1; the batch holds one request; an iteration takes 100 ns. A
// request of 4 + 3 tokens is one iteration of prefill, which gives its first token, and two of decode: 300 ns.
//   client 0: 0-300, 300-600, 600-900; client 1: 900-1200.
// Counter of client 0 at the ends of iterations: joining charges 4, a token 2, so 6, 8, 10 | 16, 18, 20 | 26, 28, 30;
// that of client 1 is 0 until 900. Both wait at 100, ..., 600 (the third request of client 0 joins at 600, after the
// iteration that ends there): the difference is at most 20, looked at 6 times.
// Client 0 gets 3 * (4 + 2 * 3) = 30 in 900 ns, client 1 gets 10 in 1200 ns: rates as 4 : 1, Jain 25 / (2 * 17).
// TTFT: client 0 100, 400, 700 ns, client 1 1000 ns. p99 of the former: rank 1.98, so 400 + 0.98 * 300 = 694.
TEST(Fairness, AFloodUnderFirstComeFirstServed_HasTheFiguresWorkedOutByHand) {
  const WatchingModel model;
  const Replay run = replay("vllm", {{"engine.max_num_seqs", std::int64_t{1}}}, kRoomy,
                            {of_client(0, oracle::request(0, 4, 3)), of_client(0, oracle::request(0, 4, 3)),
                             of_client(0, oracle::request(0, 4, 3)), of_client(1, oracle::request(0, 4, 3))},
                            model);
  const RunStatistics& s = run.result.statistics;
  EXPECT_EQ(value_of(s, "max_service_difference_tokens"), 20.0);
  EXPECT_EQ(s.find("max_service_difference_tokens")->n, 6);
  EXPECT_DOUBLE_EQ(value_of(s, "jain_index"), 25.0 / 34.0);
  EXPECT_EQ(s.find("jain_index")->n, 2);
  ASSERT_EQ(s.clients.size(), 2U);
  const ClientStatistics& flood = s.clients[0];
  EXPECT_EQ(flood.client, 0U);
  EXPECT_EQ(flood.submitted, 3.0);
  EXPECT_EQ(flood.finished, 3.0);
  EXPECT_DOUBLE_EQ(flood.mean_ttft_ms.value(), 400e-6);
  EXPECT_DOUBLE_EQ(flood.p50_ttft_ms.value(), 400e-6);
  EXPECT_DOUBLE_EQ(flood.p99_ttft_ms.value(), 694e-6);
  EXPECT_EQ(flood.output_tokens, 9.0);
  EXPECT_EQ(flood.service_tokens, 30.0);
  EXPECT_EQ(s.clients[1].service_tokens, 10.0);
  EXPECT_EQ(s.clients[1].p99_ttft_ms, 0.001);
  EXPECT_EQ(value_of(s, "worst_client_mean_ttft_ms"), 0.001);
  EXPECT_EQ(value_of(s, "worst_client_p99_ttft_ms"), 0.001);
}

// The same requests, all of one client: there is no client to compare with.
TEST(Fairness, OfOneClient_IsNull) {
  const WatchingModel model;
  const Replay run = replay("vllm", {{"engine.max_num_seqs", std::int64_t{1}}}, kRoomy,
                            {oracle::request(0, 4, 3), oracle::request(0, 4, 3)}, model);
  const RunStatistics& s = run.result.statistics;
  for (const char* name :
       {"jain_index", "max_service_difference_tokens", "worst_client_mean_ttft_ms", "worst_client_p99_ttft_ms"}) {
    EXPECT_FALSE(s.find(name)->value.has_value()) << name;
  }
  EXPECT_TRUE(s.clients.empty());
}

// Two requests of 6 + 6 tokens need 3 blocks of 4 tokens each at their end; there are 4. The second is preempted and
// computed again, which is not service: each client gets 6 + 2 * 6.
TEST(Fairness, RecomputedTokens_AreNoService) {
  const WatchingModel model;
  const Replay run = replay("vllm", {}, KvLayout{Blocks(4), Blocks(0), Tokens(4), Bytes(1), 1, false},
                            {of_client(3, oracle::request(0, 6, 6)), of_client(5, oracle::request(0, 6, 6))}, model);
  ASSERT_GT(run.of(1).preempted_recompute, 0);
  EXPECT_EQ(row_of(run.result.statistics, 3).service_tokens, 18.0);
  EXPECT_EQ(row_of(run.result.statistics, 5).service_tokens, 18.0);
}

// 1600 tokens fit. The request of client 1 never waits, so no difference can be observed, but the client is listed.
TEST(Fairness, AClientWhoseRequestsAreRejected_IsListedWithoutFigures) {
  const WatchingModel model;
  const Replay run = replay("vllm", {}, kRoomy,
                            {of_client(0, oracle::request(0, 4, 3)), of_client(1, oracle::request(0, 1600, 1))}, model);
  const RunStatistics& s = run.result.statistics;
  const ClientStatistics& rejected = row_of(s, 1);
  EXPECT_EQ(rejected.submitted, 1.0);
  EXPECT_EQ(rejected.finished, 0.0);
  EXPECT_FALSE(rejected.mean_ttft_ms.has_value());
  EXPECT_EQ(rejected.service_tokens, 0.0);
  EXPECT_FALSE(s.find("jain_index")->value.has_value());
  EXPECT_EQ(value_of(s, "worst_client_mean_ttft_ms"), 100e-6);
  EXPECT_EQ(s.find("worst_client_mean_ttft_ms")->n, 1);
}

/// A client with a request in the batch, whose prompt of `served` tokens was charged, and one that waits.
std::int32_t waiting_client(FairnessMeter& meter, std::uint32_t client, std::int64_t served) {
  const std::int32_t number = meter.arrived(client, SimTime(0));
  meter.joined(number, Tokens(served));
  EXPECT_EQ(meter.arrived(client, SimTime(0)), number);
  return number;
}

/// Ends all requests: `in_batch` and `waiting` of each client.
void end_all(FairnessMeter& meter, const std::vector<std::int32_t>& clients, int in_batch, int waiting, SimTime now) {
  for (const std::int32_t client : clients) {
    for (int i = 0; i < in_batch; ++i) meter.ended(client, true, now);
    for (int i = 0; i < waiting; ++i) meter.ended(client, false, now);
  }
}

// The first counter is 40; the second client is lifted to it and served 60, so its counter is 100. The newcomer starts
// at 40. Then the first is served 200: 240 against 100 and 40. Had the newcomer started at 0, the difference would be
// 240.
TEST(FairnessMeter, ANewcomerStartsAtTheLeastCounterOfThoseThatWait) {
  FairnessMeter meter;
  meter.begin(SimTime(0));
  const std::int32_t b = waiting_client(meter, 9, 40);
  const std::int32_t a = waiting_client(meter, 7, 60);
  const std::int32_t c = meter.arrived(2, SimTime(0));
  meter.iteration_ended();
  meter.joined(b, Tokens(200));
  meter.left(b);
  meter.iteration_ended();
  end_all(meter, {a, b}, 1, 1, SimTime(10));
  end_all(meter, {c}, 0, 1, SimTime(10));
  const FairnessTotals totals = meter.totals();
  EXPECT_EQ(totals.max_service_difference, 200);
  EXPECT_EQ(totals.observations, 2);
  ASSERT_EQ(totals.clients.size(), 3U);
  EXPECT_EQ(totals.clients[0].client, 9U);
  EXPECT_EQ(totals.clients[0].service, 240);
  EXPECT_EQ(totals.clients[1].service, 60);
  EXPECT_EQ(totals.clients[2].service, 0) << "a lift is no service";
}

// A client was idle while another one got 500 tokens. Comparison starts after that; its own larger counter stays.
TEST(FairnessMeter, IdleTimeEarnsNoCreditAndServiceIsNotForgotten) {
  FairnessMeter meter;
  meter.begin(SimTime(0));
  const std::int32_t a = waiting_client(meter, 0, 500);
  const std::int32_t b = meter.arrived(1, SimTime(0));  // lifted to 500
  meter.iteration_ended();
  meter.joined(b, Tokens(30));  // 530, and no other client waits beside a
  meter.left(b);                // back: 530 is more than 500
  meter.iteration_ended();
  end_all(meter, {a}, 1, 1, SimTime(1));
  end_all(meter, {b}, 0, 1, SimTime(1));
  EXPECT_EQ(meter.totals().max_service_difference, 30);
}

// a decodes two requests (4 tokens of service per step), b one (2), and c none. From 0, 10 and 30, after one step the
// counters are 4, 12, 30, after 20 they are 80, 50, 30: the order has turned round. A newcomer then starts at 30.
TEST(FairnessMeter, DecodesGrowTheirClientsCountersAtTheirOwnRates) {
  FairnessMeter meter;
  meter.begin(SimTime(0));
  const std::int32_t a = waiting_client(meter, 0, 0);
  const std::int32_t b = waiting_client(meter, 1, 10);
  const std::int32_t c = waiting_client(meter, 2, 30);
  for (const std::int32_t client : {a, a, b}) meter.started_decoding(client);
  meter.stepped();
  meter.iteration_ended();  // 4, 12, 30: 26
  for (int step = 2; step <= 20; ++step) meter.stepped();
  meter.iteration_ended();  // 80, 50, 30: 50
  const std::int32_t d = meter.arrived(3, SimTime(0));
  for (const std::int32_t client : {a, a, b}) meter.stopped_decoding(client);
  meter.stepped();   // no client emits
  meter.emitted(a);  // 82, 50, 30, 30: 52
  meter.iteration_ended();
  end_all(meter, {a, b, c}, 1, 1, SimTime(1));
  end_all(meter, {d}, 0, 1, SimTime(1));
  const FairnessTotals totals = meter.totals();
  EXPECT_EQ(totals.max_service_difference, 52);
  EXPECT_EQ(totals.clients[0].service, 82);
  EXPECT_EQ(totals.clients[1].service, 50);
}

// With 23 clients the meter observes every second iteration, with 24 every third.
TEST(FairnessMeter, LooksAfterEveryEighthOfTheClientsIterations) {
  FairnessMeter meter;
  meter.begin(SimTime(0));
  std::vector<std::int32_t> clients;
  for (std::uint32_t client = 0; client < 23; ++client) clients.push_back(meter.arrived(client, SimTime(0)));
  for (int i = 0; i < 5; ++i) meter.iteration_ended();  // looks at the 2nd and the 4th
  clients.push_back(meter.arrived(23, SimTime(0)));
  for (int i = 0; i < 5; ++i) meter.iteration_ended();  // observes the 2nd (third since the last) and the 5th
  end_all(meter, clients, 0, 1, SimTime(1));
  EXPECT_EQ(meter.totals().observations, 4);
  EXPECT_EQ(meter.totals().max_service_difference, 0);
}

// Before 1000 ns: not measured (70 tokens of service). Client 0 has a request from 200 to 1500 and one from 1400 to
// 1800, so it is active for 800 ns of the span; client 1 from 1100 to 1200.
TEST(FairnessMeter, OnlyTheMeasuredSpanCounts) {
  FairnessMeter meter;
  const std::int32_t a = meter.arrived(0, SimTime(200));
  meter.joined(a, Tokens(50));
  meter.started_decoding(a);
  for (int step = 0; step < 10; ++step) meter.stepped();
  meter.iteration_ended();
  meter.begin(SimTime(1000));
  meter.stepped();
  const std::int32_t b = meter.arrived(1, SimTime(1100));
  meter.joined(b, Tokens(8));
  meter.ended(b, true, SimTime(1200));
  EXPECT_EQ(meter.arrived(0, SimTime(1400)), a);
  meter.stopped_decoding(a);
  meter.ended(a, true, SimTime(1500));
  meter.ended(a, false, SimTime(1800));
  const FairnessTotals totals = meter.totals();
  EXPECT_EQ(totals.clients[0].service, 2);
  EXPECT_EQ(totals.clients[0].active, Duration(800));
  EXPECT_EQ(totals.clients[1].service, 8);
  EXPECT_EQ(totals.clients[1].active, Duration(100));
  EXPECT_FALSE(totals.max_service_difference.has_value());
  // 2 / 800 and 8 / 100, as 1 : 32: 33^2 / (2 * 1025).
  EXPECT_DOUBLE_EQ(jain_index(totals).value(), 1089.0 / 2050.0);
}

TEST(FairnessMeter, ASpanThatNeverBegan_HasNoClients) {
  FairnessMeter meter;
  meter.ended(meter.arrived(0, SimTime(0)), false, SimTime(5));
  EXPECT_TRUE(meter.totals().clients.empty());
}

TEST(FairnessTotals, OfTwoInstancesAddUp) {
  FairnessTotals sum{.max_service_difference = 5, .observations = 2, .clients = {{1, 10, Duration(100)}}};
  sum.add({.max_service_difference = 9, .observations = 3, .clients = {{2, 7, Duration(50)}, {1, 5, Duration(30)}}});
  sum.add({.max_service_difference = {}, .observations = 0, .clients = {}});
  EXPECT_EQ(sum.max_service_difference, 9);
  EXPECT_EQ(sum.observations, 5);
  ASSERT_EQ(sum.clients.size(), 2U);
  EXPECT_EQ(sum.clients[0].client, 1U);
  EXPECT_EQ(sum.clients[0].service, 15);
  EXPECT_EQ(sum.clients[0].active, Duration(130));
  EXPECT_EQ(sum.clients[1].service, 7);
}

}  // namespace
}  // namespace spillway
