#include "traces/mixed_source.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "tests/oracle/replay.hpp"

namespace spillway::traces {
namespace {

using testing::ElementsAre;

/// Delivers given requests, and says what it is told.
class Told final : public RequestSource {
 public:
  struct Heard {
    std::vector<std::pair<std::uint64_t, std::int64_t>> ended;  // index, conversation
    std::vector<std::int64_t> asked;                            // conversations
  };
  Told(std::vector<RequestSpec> requests, Heard& heard) : requests_(std::move(requests)), heard_(heard) {}
  [[nodiscard]] SimTime next_arrival() override { return at_ < requests_.size() ? requests_[at_].arrival : kNever; }
  bool next(RequestSpec& request) override {
    request = requests_[at_++];
    return request.output > Tokens(0);  // one without an answer does not come after all
  }
  void ended(const RequestRecord& record) override {
    EXPECT_EQ(record.traits.pool, 0U);
    heard_.ended.emplace_back(record.index, record.traits.conversation);
  }
  [[nodiscard]] SimTime next_turn(std::int64_t conversation) const override {
    heard_.asked.push_back(conversation);
    return SimTime(1000 + conversation);
  }
  [[nodiscard]] std::int64_t unsent() const override { return 3; }
  [[nodiscard]] std::int64_t shortened() const override { return 4; }
  [[nodiscard]] HeldBack held_back() const override { return {2, 1.5, Duration(std::ssize(requests_))}; }
  [[nodiscard]] std::int64_t expected() const override { return requests_.empty() ? -1 : std::ssize(requests_); }

 private:
  std::vector<RequestSpec> requests_;
  Heard& heard_;
  std::size_t at_ = 0;
};

RequestSpec at(std::int64_t ns, std::int64_t conversation = -1) {
  RequestSpec request = oracle::request(ns, 10, 5);
  request.traits.conversation = conversation;
  return request;
}

std::vector<MixedPart> parts_of(std::vector<std::unique_ptr<RequestSource>> streams,
                                std::vector<std::vector<Receiver>> receivers) {
  std::vector<MixedPart> parts;
  for (std::size_t i = 0; i < streams.size(); ++i) parts.push_back({std::move(streams[i]), std::move(receivers[i])});
  return parts;
}

/// Two streams, of pools 1 and 0: requests at 10 (conversation 4), 30 and 40, and at 20 and 30 (conversation 4).
class TwoStreams : public testing::Test {
 protected:
  MixedSource make() {
    std::vector<std::unique_ptr<RequestSource>> streams;
    streams.push_back(std::make_unique<Told>(std::vector{at(10, 4), at(30), at(40)}, first_));
    streams.push_back(std::make_unique<Told>(std::vector{at(20), at(30, 4)}, second_));
    const RequestSlo slo{.ttft = Duration(7), .e2e = Duration(9)};
    return {parts_of(std::move(streams), {{{1, 1.0, {}}}, {{0, 1.0, slo}}}), 1, 0};
  }
  Told::Heard first_;
  Told::Heard second_;
};

// At 30 the first stream comes first.
TEST_F(TwoStreams, MergeByArrival) {
  MixedSource source = make();
  std::vector<std::pair<std::int64_t, std::uint32_t>> seen;
  RequestSpec request;
  while (source.next_arrival() != kNever) {
    const SimTime due = source.next_arrival();
    ASSERT_TRUE(source.next(request));
    ASSERT_EQ(request.arrival, due);
    seen.emplace_back(due.ns(), request.traits.pool);
  }
  EXPECT_THAT(
      seen, ElementsAre(std::pair(10, 1U), std::pair(20, 0U), std::pair(30, 1U), std::pair(30, 0U), std::pair(40, 1U)));
}

// Conversation 4 of the first stream is 4 * 2 + 0 = 8, that of the second 4 * 2 + 1 = 9. Each stream hears of its own
// requests, by its own numbers: the requests of the run 0 to 4 are 0, 1 and 2 of the first and 0 and 1 of the second.
TEST_F(TwoStreams, HearOfTheirOwnRequests) {
  MixedSource source = make();
  std::vector<RequestSpec> all(5);
  for (RequestSpec& request : all) ASSERT_TRUE(source.next(request));
  EXPECT_EQ(all[0].traits.conversation, 8);
  EXPECT_EQ(all[3].traits.conversation, 9);
  EXPECT_EQ(all[1].traits.conversation, -1);
  for (const std::uint64_t index : {3U, 4U, 0U, 1U, 2U}) {
    RequestRecord record;
    record.index = index;
    record.traits = all[index].traits;
    source.ended(record);
  }
  EXPECT_THAT(first_.ended, ElementsAre(std::pair(2U, -1), std::pair(0U, 4), std::pair(1U, -1)));
  EXPECT_THAT(second_.ended, ElementsAre(std::pair(1U, 4), std::pair(0U, -1)));
  EXPECT_EQ(source.next_turn(8), SimTime(1004));
  EXPECT_EQ(source.next_turn(11), SimTime(1005));
  EXPECT_THAT(first_.asked, ElementsAre(4));
  EXPECT_THAT(second_.asked, ElementsAre(5));
  RequestRecord again;
  again.index = 3;
  EXPECT_THROW(source.ended(again), InvariantError);
}

// Limits of the receiver hold where the request has none.
TEST_F(TwoStreams, RequestsKeepTheLimitsThatTheyHave) {
  std::vector<std::unique_ptr<RequestSource>> streams;
  RequestSpec own = at(0);
  own.traits.slo = {.ttft = Duration(100), .tpot = Duration(50)};
  streams.push_back(std::make_unique<Told>(std::vector{own, at(1)}, first_));
  MixedSource source(parts_of(std::move(streams), {{{0, 1.0, {Duration(7), Duration(8), Duration(9)}}}}), 1, 0);
  RequestSpec request;
  ASSERT_TRUE(source.next(request));
  EXPECT_EQ(request.traits.slo, (RequestSlo{Duration(100), Duration(50), Duration(9)}));
  ASSERT_TRUE(source.next(request));
  EXPECT_EQ(request.traits.slo, (RequestSlo{Duration(7), Duration(8), Duration(9)}));
}

TEST_F(TwoStreams, CountsAddUp) {
  MixedSource source = make();
  EXPECT_EQ(source.unsent(), 6);
  EXPECT_EQ(source.shortened(), 8);
  EXPECT_EQ(source.held_back().requests, 4);
  EXPECT_EQ(source.held_back().seconds, 3.0);
  EXPECT_EQ(source.held_back().longest, Duration(3));
  EXPECT_EQ(source.expected(), 5);
}

// One that does not come after all has no number: the next one is request 0 of the run, and of its stream.
TEST_F(TwoStreams, WhatDoesNotComeHasNoNumber) {
  std::vector<std::unique_ptr<RequestSource>> streams;
  RequestSpec none = at(5);
  none.output = Tokens(0);
  streams.push_back(std::make_unique<Told>(std::vector{none, at(6)}, first_));
  MixedSource source(parts_of(std::move(streams), {{{0, 1.0, {}}}}), 1, 0);
  RequestSpec request;
  EXPECT_FALSE(source.next(request));
  ASSERT_TRUE(source.next(request));
  RequestRecord record;
  source.ended(record);
  EXPECT_THAT(first_.ended, ElementsAre(std::pair(0U, -1)));
}

/// The pool of each of 20,000 requests, by conversation if they have one.
std::vector<std::uint32_t> pools(double first_share, bool conversations, std::int64_t seed = 1) {
  std::vector<RequestSpec> requests;
  for (std::int64_t i = 0; i < 20'000; ++i) requests.push_back(at(i, conversations ? i / 4 : -1));
  Told::Heard heard;
  std::vector<std::unique_ptr<RequestSource>> streams;
  streams.push_back(std::make_unique<Told>(requests, heard));
  MixedSource source(parts_of(std::move(streams), {{{0, first_share, {}}, {1, 0.5 - first_share, {}}, {2, 0.5, {}}}}),
                     seed, 0);
  std::vector<std::uint32_t> pools;
  RequestSpec request;
  while (source.next_arrival() != kNever) {
    EXPECT_TRUE(source.next(request));
    pools.push_back(request.traits.pool);
  }
  return pools;
}

// Shares 0.2, 0.3 and 0.5 of n = 20,000 draws: a count is np +- 5 sqrt(np(1 - p)) but once in a million. Conversations
// of four turns are 5,000 draws.
TEST(MixedShares, AreMet) {
  for (const bool conversations : {false, true}) {
    std::map<std::uint32_t, double> counts;
    for (const std::uint32_t pool : pools(0.2, conversations)) counts[pool] += conversations ? 0.25 : 1.0;
    const double n = conversations ? 5'000.0 : 20'000.0;
    const std::vector<double> shares{0.2, 0.3, 0.5};
    for (std::uint32_t pool = 0; pool < shares.size(); ++pool) {
      const double p = shares[pool];
      EXPECT_NEAR(counts[pool], n * p, 5.0 * std::sqrt(n * p * (1.0 - p))) << pool;
    }
  }
}

TEST(MixedShares, AConversationStaysWhereItIs) {
  const std::vector<std::uint32_t> all = pools(0.2, true);
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], all[i / 4 * 4]);
}

// From 0.2 to 0.3 of the first: a tenth of all go from the second to the first, and no other one moves.
TEST(MixedShares, WhenTheyChange_FewRequestsMove) {
  const std::vector<std::uint32_t> before = pools(0.2, false);
  const std::vector<std::uint32_t> after = pools(0.3, false);
  double moved = 0.0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i]) continue;
    ASSERT_EQ(before[i], 1U);
    ASSERT_EQ(after[i], 0U);
    moved += 1.0;
  }
  EXPECT_NEAR(moved, 2'000.0, 5.0 * std::sqrt(20'000.0 * 0.1 * 0.9));
  EXPECT_NE(pools(0.2, false, 2), before);
}

}  // namespace
}  // namespace spillway::traces
