// Conversations from rows to requests: repeated prompts, the times of turns, and possible prefix-cache hits.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/trace_test_files.hpp"
#include "traces/closed_loop.hpp"
#include "traces/generators/quantile_table.hpp"
#include "traces/live_conversations.hpp"
#include "traces/readers/sorted_rows.hpp"
#include "traces/think_time.hpp"
#include "traces/workload_rows.hpp"
#include "traces/workload_stream.hpp"

namespace spillway::traces {
namespace {

/// Rows from a list.
class ListReader final : public TraceReader {
 public:
  explicit ListReader(std::vector<TraceRow> rows) : rows_(std::move(rows)) {}
  bool next(TraceRow& row) override {
    if (at_ == rows_.size()) return false;
    row = rows_[at_++];
    return true;
  }
  [[nodiscard]] bool has_times() const override { return true; }
  [[nodiscard]] std::int64_t row() const override { return static_cast<std::int64_t>(at_); }

 private:
  std::vector<TraceRow> rows_;
  std::size_t at_ = 0;
};

TraceRow row(std::int64_t input, std::int64_t output) {
  TraceRow row;
  row.input = Tokens(input);
  row.output = row.max_new_tokens = Tokens(output);
  return row;
}

TraceRow turn(std::uint64_t conversation, std::int32_t number, std::int64_t input, std::int64_t output,
              std::optional<std::int64_t> think = {}) {
  TraceRow result = row(input, output);
  result.conversation = conversation;
  result.turn = number;
  if (think) result.think = Duration(*think);
  return result;
}

TraceRow at(std::int64_t ns, TraceRow row) {
  row.arrival = SimTime(ns);
  return row;
}

StreamPlan plan_for(std::size_t rows) {
  StreamPlan plan;
  plan.requests = static_cast<std::int64_t>(rows);
  plan.arrival.process = Arrival::trace;
  plan.conversations = true;
  plan.think = ThinkTime::of_trace();
  return plan;
}

WorkloadStream stream_of(const StreamPlan& plan, const std::vector<TraceRow>& rows) {
  return WorkloadStream(plan, std::nullopt, std::make_unique<ListReader>(rows), nullptr, 1, 0);
}

/// The outcome of a request: answered `service` ns after its arrival, or not at all.
RequestRecord record_of(const RequestSpec& request, std::int64_t service, Outcome outcome = Outcome::finished) {
  RequestRecord record;
  record.traits = request.traits;
  record.arrival = request.arrival;
  record.end = request.arrival + Duration(service);
  record.outcome = outcome;
  return record;
}

/// Plays the stream with an engine that answers every request after `service` ns. Answers come before arrivals of the
/// same instant.
std::vector<RequestSpec> play(WorkloadStream& stream, std::int64_t service) {
  std::vector<RequestSpec> delivered;
  std::multimap<SimTime, RequestRecord> answers;
  while (true) {
    const SimTime next = stream.next_arrival();
    if (!answers.empty() && answers.begin()->first <= next) {
      const RequestRecord record = answers.begin()->second;
      answers.erase(answers.begin());
      stream.ended(record);
      continue;
    }
    if (next == kNever) return delivered;
    RequestSpec request;
    if (!stream.next(request)) continue;
    EXPECT_EQ(request.arrival, next);
    const RequestRecord record = record_of(request, service);
    answers.emplace(record.end, record);
    delivered.push_back(request);
  }
}

std::vector<std::int64_t> inputs_of(const std::vector<RequestSpec>& requests) {
  std::vector<std::int64_t> inputs;
  inputs.reserve(requests.size());
  for (const RequestSpec& request : requests) inputs.push_back(request.input.count());
  return inputs;
}

std::vector<std::int64_t> arrivals_of(const std::vector<RequestSpec>& requests) {
  std::vector<std::int64_t> arrivals;
  arrivals.reserve(requests.size());
  for (const RequestSpec& request : requests) arrivals.push_back(request.arrival.ns());
  return arrivals;
}

/// Blocks at the start of both requests that have the same content.
std::int64_t shared_blocks(const RequestSpec& a, const RequestSpec& b) {
  std::size_t n = 0;
  while (n < a.prefix_ids.size() && n < b.prefix_ids.size() && a.prefix_ids[n] == b.prefix_ids[n]) ++n;
  return static_cast<std::int64_t>(n);
}

// Turn 1 of conversation 1 comes at 0 and is answered at 100; turn 2 comes 50 later, at 150, is answered at 250, and so
// on. Conversation 2 starts at 120 in between.
TEST(Conversations, ALaterTurnComesAThinkTimeAfterTheAnswer) {
  const std::vector<TraceRow> rows{at(0, turn(7, 1, 10, 5)), turn(7, 2, 20, 5, 50), turn(7, 3, 40, 5, 0),
                                   at(120, turn(8, 1, 10, 5)), turn(8, 2, 16, 5, 30)};
  auto stream = stream_of(plan_for(rows.size()), rows);
  const auto requests = play(stream, 100);
  EXPECT_EQ(arrivals_of(requests), (std::vector<std::int64_t>{0, 120, 150, 250, 250}));
  std::vector<std::pair<std::int64_t, std::int32_t>> turns;
  turns.reserve(requests.size());
  for (const RequestSpec& request : requests) {
    turns.emplace_back(request.traits.conversation, request.traits.turn);
  }
  EXPECT_EQ(turns, (std::vector<std::pair<std::int64_t, std::int32_t>>{{0, 1}, {1, 1}, {0, 2}, {1, 2}, {0, 3}}))
      << "at 250 conversation 2 is answered at 220 and thinks for 30: it was known first";
  EXPECT_EQ(stream.unsent(), 0);
}

// The next turn is known from the answer on, also while it waits for its own answer, and through a closed loop.
TEST(Conversations, TheNextTurnIsKnownOnceTheOneBeforeIsAnswered) {
  StreamPlan plan = plan_for(3);
  plan.whole_conversations = true;
  auto inner = std::make_unique<WorkloadStream>(
      plan, std::nullopt,
      std::make_unique<ListReader>(std::vector<TraceRow>{at(10, turn(1, 1, 5, 5)), at(10, turn(1, 2, 15, 5, 70)),
                                                         at(10, turn(1, 3, 25, 5, 30))}),
      nullptr, 1, 0);
  ClosedLoop stream(std::move(inner), 4, Duration(0));
  RequestSpec request;
  ASSERT_NE(stream.next_arrival(), kNever);
  ASSERT_TRUE(stream.next(request));
  const std::int64_t conversation = request.traits.conversation;
  EXPECT_EQ(stream.next_turn(conversation), kNever);
  stream.ended(record_of(request, 100));
  const SimTime due = request.arrival + Duration(100 + 70);
  EXPECT_EQ(stream.next_turn(conversation), due);
  EXPECT_EQ(stream.next_arrival(), due);
  ASSERT_TRUE(stream.next(request));
  EXPECT_EQ(stream.next_turn(conversation), due);
  stream.ended(record_of(request, 100));
  EXPECT_EQ(stream.next_turn(conversation), due + Duration(100 + 30));
  ASSERT_TRUE(stream.next(request));
  stream.ended(record_of(request, 100));
  EXPECT_EQ(stream.next_turn(conversation), kNever);
  EXPECT_EQ(stream.next_turn(conversation + 1), kNever);
}

TEST(Conversations, TheNextTurnOfALogIsKnownWhileItsRowIs) {
  StreamPlan plan = plan_for(2);
  plan.whole_conversations = false;
  WorkloadStream stream = stream_of(plan, {at(10, turn(1, 1, 5, 5)), at(50, turn(1, 2, 15, 5))});
  RequestSpec request;
  ASSERT_EQ(stream.next_arrival(), SimTime(10));
  ASSERT_TRUE(stream.next(request));
  const std::int64_t conversation = request.traits.conversation;
  const RequestRecord first = record_of(request, 100);
  EXPECT_EQ(stream.next_arrival(), SimTime(50));
  EXPECT_FALSE(stream.next(request)) << "the row waits for the answer";
  stream.ended(first);
  EXPECT_EQ(stream.next_turn(conversation), SimTime(110));
  ASSERT_EQ(stream.next_arrival(), SimTime(110));
  ASSERT_TRUE(stream.next(request));
  stream.ended(record_of(request, 100));
  EXPECT_EQ(stream.next_turn(conversation), kNever);
}

TEST(Conversations, ATurnThatIsNotAnsweredEndsItsConversation) {
  const std::vector<TraceRow> rows{at(0, turn(7, 1, 10, 5)), turn(7, 2, 20, 5, 50), turn(7, 3, 40, 5, 0),
                                   at(9, row(1, 1))};
  auto stream = stream_of(plan_for(rows.size()), rows);
  RequestSpec request;
  ASSERT_TRUE(stream.next(request));
  stream.ended(record_of(request, 5, Outcome::rejected));
  EXPECT_EQ(stream.unsent(), 2);
  EXPECT_EQ(stream.next_arrival(), SimTime(9)) << "the request alone";
  ASSERT_TRUE(stream.next(request));
  EXPECT_EQ(request.traits.conversation, -1);
  stream.ended(record_of(request, 1));
  EXPECT_EQ(stream.next_arrival(), kNever);
}

// Rows with times keep them: turn 2 comes at 150 although the answer came at 100. Turn 3 is due at 200, but turn 2 is
// answered at 250 and the row needs 20 more. Turn 4 is due at 260 but thinks for 40 after the answer at 370.
TEST(Conversations, ALogKeepsItsTimesUnlessTheAnswerIsLater) {
  const std::vector<TraceRow> rows{
      at(0, turn(7, 1, 10, 5)),       at(150, turn(7, 2, 20, 5)),     at(190, row(1, 1)),
      at(200, turn(7, 3, 40, 5, 20)), at(260, turn(7, 4, 50, 5, 40)), at(900, turn(7, 5, 60, 5, 40))};
  StreamPlan plan = plan_for(rows.size());
  plan.whole_conversations = false;
  auto stream = stream_of(plan, rows);
  EXPECT_EQ(arrivals_of(play(stream, 100)), (std::vector<std::int64_t>{0, 150, 190, 270, 410, 900}));
}

TEST(Conversations, RowsOfALogBehindATurnThatWasNotAnsweredAreNotSent) {
  const std::vector<TraceRow> rows{at(0, turn(7, 1, 10, 5)), at(10, turn(7, 2, 20, 5)), at(500, turn(7, 3, 40, 5)),
                                   at(600, row(1, 1))};
  StreamPlan plan = plan_for(rows.size());
  plan.whole_conversations = false;
  auto stream = stream_of(plan, rows);
  RequestSpec request;
  ASSERT_TRUE(stream.next(request));
  const RequestRecord lost = record_of(request, 50, Outcome::timed_out);
  EXPECT_EQ(stream.next_arrival(), SimTime(10));
  EXPECT_FALSE(stream.next(request)) << "turn 2 waits for the answer";
  stream.ended(lost);
  EXPECT_EQ(stream.unsent(), 1);
  EXPECT_EQ(stream.next_arrival(), SimTime(500));
  EXPECT_FALSE(stream.next(request));
  EXPECT_EQ(stream.unsent(), 2);
  EXPECT_EQ(stream.next_arrival(), SimTime(600));
  EXPECT_TRUE(stream.next(request));
}

// A row of conversation 9 that lies far in the future does not cause further reading.
TEST(Conversations, ALogIsReadNoFurtherThanItsTime) {
  std::vector<TraceRow> rows;
  rows.reserve(1400);
  for (std::int32_t i = 0; i < 1000; ++i) rows.push_back(at(1000LL * i, turn(9, i + 1, 10 + 10LL * i, 5)));
  StreamPlan plan = plan_for(rows.size());
  plan.whole_conversations = false;
  auto reader = std::make_unique<ListReader>(rows);
  const ListReader& read = *reader;
  WorkloadStream stream(plan, std::nullopt, std::move(reader), nullptr, 1, 0);
  RequestSpec request;
  ASSERT_EQ(stream.next_arrival(), SimTime(0));
  ASSERT_TRUE(stream.next(request));
  EXPECT_EQ(stream.next_arrival(), SimTime(1000));
  EXPECT_FALSE(stream.next(request)) << "turn 1 is not answered";
  EXPECT_EQ(stream.next_arrival(), SimTime(2000));
  EXPECT_LE(read.row(), 3);
}

// The file says 10 + 5, then 20 (5 new), then 40 (15 new). Played with answers of 8 tokens instead of 5:
// 10; 10 + 8 + 5 = 23; 23 + 8 + 15 = 46. With prompts whose new part is 3 tokens: 3; 3 + 5 + 3 = 11; 11 + 5 + 3 = 19.
TEST(Conversations, ReplacedLengthsAddUpToAnotherContext) {
  const std::vector<TraceRow> rows{at(0, turn(7, 1, 10, 5)), turn(7, 2, 20, 5, 0), turn(7, 3, 40, 5, 0)};
  auto as_stated = stream_of(plan_for(3), rows);
  EXPECT_EQ(inputs_of(play(as_stated, 1)), (std::vector<std::int64_t>{10, 20, 40}));
  StreamPlan plan = plan_for(3);
  plan.output = LengthDistribution::fixed(Tokens(8));
  auto longer = stream_of(plan, rows);
  EXPECT_EQ(inputs_of(play(longer, 1)), (std::vector<std::int64_t>{10, 23, 46}));
  plan = plan_for(3);
  plan.input = LengthDistribution::fixed(Tokens(3));
  auto shorter = stream_of(plan, rows);
  EXPECT_EQ(inputs_of(play(shorter, 1)), (std::vector<std::int64_t>{3, 11, 19}));
}

// Blocks of 4 tokens. Turn 1 holds 10 + 6 = 16 tokens, 4 blocks; turn 2 repeats all of them. Turn 3's prompt of 30 is
// below 26 + 6 = 32 and at least 26: it repeats the prompt of turn 2 alone, 6 whole blocks. Turn 4's prompt is shorter:
// nothing. Turn 5 repeats turn 4: 12 + 2 = 14 tokens, 3 whole blocks.
TEST(Conversations, ContentIsSharedAsFarAsAPromptRepeatsTheTurnBefore) {
  const std::vector<TraceRow> rows{at(0, turn(7, 1, 10, 6)), turn(7, 2, 26, 6, 0), turn(7, 3, 30, 6, 0),
                                   turn(7, 4, 12, 2, 0),     turn(7, 5, 40, 1, 0), at(1000, turn(8, 1, 10, 6)),
                                   turn(8, 2, 26, 6, 0)};
  StreamPlan plan = plan_for(rows.size());
  plan.block_tokens = Tokens(4);
  auto stream = stream_of(plan, rows);
  const auto requests = play(stream, 1);
  ASSERT_EQ(requests.size(), 7U);
  EXPECT_EQ(requests[0].prefix_ids.size(), 4U) << "prompt and answer";
  EXPECT_EQ(shared_blocks(requests[0], requests[1]), 4);
  EXPECT_EQ(shared_blocks(requests[1], requests[2]), 6);
  EXPECT_EQ(shared_blocks(requests[2], requests[3]), 0);
  EXPECT_EQ(shared_blocks(requests[3], requests[4]), 3);
  EXPECT_EQ(shared_blocks(requests[0], requests[5]), 0) << "another conversation";
}

// At most 30 tokens for prompt and answer: turn 2 needs 20 + 5, turn 3 would be 40 + 5 and keeps the last 25 tokens of
// its prompt, so nothing of it is where the cache looks. Turn 4 has 15 new tokens: 25 + 5 + 15, cut again.
TEST(Conversations, AContextThatIsTooLongLosesItsOldestPart) {
  const std::vector<TraceRow> rows{at(0, turn(7, 1, 10, 5)), turn(7, 2, 20, 5, 0), turn(7, 3, 40, 5, 0),
                                   turn(7, 4, 60, 5, 0), at(1000, row(500, 5))};
  StreamPlan plan = plan_for(rows.size());
  plan.block_tokens = Tokens(4);
  plan.max_context = Tokens(30);
  auto stream = stream_of(plan, rows);
  const auto requests = play(stream, 1);
  EXPECT_EQ(inputs_of(requests), (std::vector<std::int64_t>{10, 20, 25, 25, 500})) << "a request alone is not cut";
  EXPECT_EQ(shared_blocks(requests[0], requests[1]), 3);
  EXPECT_EQ(shared_blocks(requests[1], requests[2]), 0);
  EXPECT_EQ(shared_blocks(requests[2], requests[3]), 0);
}

// At most 30: of 60 new tokens the last 25 fit in front of an answer of 5; an answer of 40 is cut to 29.
TEST(Conversations, AStrictContextCutsWhatIsNewAndTheAnswerToo) {
  const std::vector<TraceRow> rows{at(0, turn(7, 1, 60, 5)), turn(7, 2, 75, 40, 0), turn(7, 3, 500, 5, 0)};
  StreamPlan plan = plan_for(rows.size());
  plan.max_context = Tokens(30);
  plan.strict_context = true;
  auto stream = stream_of(plan, rows);
  const auto requests = play(stream, 1);
  EXPECT_EQ(inputs_of(requests), (std::vector<std::int64_t>{25, 1, 25}));
  EXPECT_EQ(requests[1].output, Tokens(29));
  EXPECT_EQ(requests[1].max_new_tokens, Tokens(29));
  EXPECT_EQ(stream.shortened(), 3);
}

TEST(Conversations, AThinkTimeBeyondTheClockEndsWithIt) {
  std::vector<TraceRow> rows{at(0, turn(7, 1, 10, 5))};
  for (std::int32_t t = 2; t < 400; ++t) rows.push_back(turn(7, t, 10LL * t, 5, 100'000'000'000'000'000));
  auto stream = stream_of(plan_for(rows.size()), rows);
  const auto requests = play(stream, 1'000'000'000);
  ASSERT_EQ(requests.size(), rows.size());
  for (std::size_t i = 1; i < requests.size(); ++i) ASSERT_GE(requests[i].arrival, requests[i - 1].arrival);
  EXPECT_GE(requests.back().arrival, SimTime(7'900'000'000'000'000'000));
}

TEST(SortedRows, NeverPutATurnBeforeAnEarlierOne) {
  const std::vector<TraceRow> rows{at(500'000'000, turn(1, 1, 100, 5)), at(450'000'000, row(1, 1)),
                                   at(400'000'000, turn(1, 2, 300, 5)), at(3'000'000'000, row(1, 1))};
  SortedRows sorted(std::make_unique<ListReader>(rows));
  std::vector<std::pair<std::int64_t, std::int64_t>> got;
  for (TraceRow next; sorted.next(next);) got.emplace_back(next.arrival.ns() / 1'000'000, next.input.count());
  EXPECT_EQ(got, (std::vector<std::pair<std::int64_t, std::int64_t>>{{450, 1}, {500, 100}, {500, 300}, {3000, 1}}));
}

TEST(Conversations, ATurnPlayedAloneWithoutATimeComesWithTheRowBefore) {
  const std::vector<TraceRow> rows{at(7, turn(7, 1, 10, 5)), turn(7, 2, 20, 5, 50), at(9, row(1, 1))};
  StreamPlan plan = plan_for(rows.size());
  plan.conversations = false;
  auto stream = stream_of(plan, rows);
  EXPECT_EQ(arrivals_of(play(stream, 1)), (std::vector<std::int64_t>{7, 7, 9}));
}

TEST(Conversations, AClientMayDropTheHistory) {
  std::vector<TraceRow> rows;
  for (std::uint64_t c = 0; c < 4000; ++c) {
    rows.push_back(at(static_cast<std::int64_t>(c) * 1000, turn(c, 1, 100, 50)));
    rows.push_back(turn(c, 2, 170, 50, 0));
  }
  StreamPlan plan = plan_for(rows.size());
  plan.drop_history = 0.25;
  auto stream = stream_of(plan, rows);
  std::int64_t dropped = 0;
  for (const RequestSpec& request : play(stream, 1)) {
    if (request.traits.turn != 2) continue;
    ASSERT_TRUE(request.input == Tokens(170) || request.input == Tokens(20)) << request.input.count();
    dropped += request.input == Tokens(20) ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(dropped), 1000.0, 110.0);  // 4 * sqrt(4000 * 0.25 * 0.75) = 110
}

TEST(Conversations, WithoutThemEveryTurnIsARequestAlone) {
  const std::vector<TraceRow> rows{at(0, turn(7, 1, 10, 5)), at(3, turn(7, 2, 20, 5))};
  StreamPlan plan = plan_for(rows.size());
  plan.conversations = false;
  auto stream = stream_of(plan, rows);
  const auto requests = play(stream, 1'000'000);
  EXPECT_EQ(arrivals_of(requests), (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(requests[1].traits.conversation, -1);
  EXPECT_TRUE(requests[1].prefix_ids.empty());
}

// For every policy: lengths, clients and think times are drawn per row, so slower answers only move arrivals.
TEST(Conversations, WhatIsDrawnDoesNotDependOnTheAnswers) {
  std::vector<TraceRow> rows;
  for (std::uint64_t c = 0; c < 50; ++c) {
    rows.push_back(at(static_cast<std::int64_t>(c) * 500, turn(c, 1, 100, 50)));
    for (std::int32_t t = 2; t < 5; ++t) rows.push_back(turn(c, t, 100LL * t, 50));
  }
  StreamPlan plan = plan_for(rows.size());
  plan.think = ThinkTime::exponential(1e-5);
  plan.clients = 3;
  plan.client_shares = {0.5, 0.25, 0.25};
  plan.output = LengthDistribution::lognormal(50.0, 1.0);
  const auto by_turn = [&](std::int64_t service) {
    std::map<std::pair<std::int64_t, std::int32_t>, std::vector<std::int64_t>> turns;
    std::map<std::int64_t, std::int64_t> answered;
    auto stream = stream_of(plan, rows);
    for (const RequestSpec& request : play(stream, service)) {
      const std::int64_t conversation = request.traits.conversation;
      const std::int64_t think = request.traits.turn > 1 ? request.arrival.ns() - answered[conversation] : 0;
      EXPECT_GE(think, 0) << "a turn came before the answer to the one before";
      answered[conversation] = request.arrival.ns() + service;
      turns[{conversation, request.traits.turn}] = {request.input.count(), request.output.count(), request.client,
                                                    think};
    }
    return turns;
  };
  const auto fast = by_turn(10);
  EXPECT_EQ(fast.size(), rows.size());
  EXPECT_EQ(fast, by_turn(90'000));
}

TEST(Conversations, RowsOfAWorkloadBringTheSameRequestsAbout) {
  const std::vector<TraceRow> rows{at(0, turn(7, 1, 10, 5)), turn(7, 2, 20, 5),           turn(7, 3, 40, 5),
                                   at(9, row(70, 3)),        at(2000, turn(8, 1, 10, 6)), turn(8, 2, 26, 6)};
  StreamPlan plan = plan_for(rows.size());
  plan.think = ThinkTime::lognormal(1e-6, 1.0);
  WorkloadRows written(plan, std::nullopt, std::make_unique<ListReader>(rows), 1, 0, {"told"});
  EXPECT_EQ(written.warnings(), std::vector<std::string>{"told"});
  const auto copied = drain(written);
  ASSERT_EQ(copied.size(), rows.size());
  EXPECT_EQ(copied[1].arrival, kNever);
  EXPECT_TRUE(copied[1].think.has_value());
  auto stream = stream_of(plan, rows);
  auto again = stream_of(plan_for(rows.size()), copied);
  const auto expected = play(stream, 33);
  const auto requests = play(again, 33);
  EXPECT_EQ(arrivals_of(requests), arrivals_of(expected));
  EXPECT_EQ(inputs_of(requests), inputs_of(expected));
  for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(requests[i].prefix_ids, expected[i].prefix_ids);
}

/// A plan of conversations in balance, of which one starts every `gap_s` on average.
StreamPlan balanced(std::int64_t requests, double gap_s, const ThinkTime& think) {
  StreamPlan plan;
  plan.requests = requests;
  plan.conversations = plan.stationary = true;
  plan.arrival.mean_gap_s = gap_s;
  plan.think = think;
  return plan;
}

WorkloadStream balanced_stream(const StreamPlan& plan, const std::vector<TraceRow>& rows) {
  auto live = std::make_unique<LiveConversations>(plan, std::nullopt, std::make_unique<ListReader>(rows), 1, 0);
  return WorkloadStream(plan, std::nullopt, std::make_unique<ListReader>(rows), std::move(live), 1, 0);
}

// sharegpt-chat: m = 5.56 turns, geometric; a turn brings 37.79 tokens in and 204.58 out. At a rate of 400 turns/s,
// each tenth of 100 s has 4,000. In balance turn k comes as often as conversations reach it, so a turn is the k-th with
// probability (1 - 1/m)^(k-1) / m. Its prompt is k inputs and k - 1 answers: m x 37.79 + (m - 1) x 204.58 = 1,143
// tokens on average, as k has mean m.
TEST(LiveConversations, OfferTheRateFromTheBeginning) {
  constexpr double kTurns = 5.56;
  const EmbeddedFile* file = bundled_file("sharegpt-chat");
  const auto table = QuantileTable::parse(file->content, std::string(file->path));
  for (const ThinkTime& think :
       {ThinkTime::exponential(60.0), ThinkTime::constant(60.0), ThinkTime::lognormal(60.0, 2.0)}) {
    StreamPlan plan = balanced(40'000, kTurns / 400.0, think);
    plan.mean_turns = kTurns;
    auto live = std::make_unique<LiveConversations>(plan, table, nullptr, 1, 0);
    // Poisson with mean 400 / m x (m - 1) x 60 = 19,683, whose standard deviation is 140.
    EXPECT_NEAR(static_cast<double>(live->count()), 19'683.0, 5 * 140.0);
    WorkloadStream stream(plan, table, nullptr, std::move(live), 1, 0);
    const auto requests = play(stream, 0);
    ASSERT_EQ(requests.size(), 40'000U);
    std::vector<double> tenths(10);
    double first = 0.0;
    double late = 0.0;
    double input = 0.0;
    for (const RequestSpec& request : requests) {
      tenths[std::min<std::size_t>(9, static_cast<std::size_t>(to_seconds(request.arrival - SimTime{}) / 10.0))] += 1.0;
      first += request.traits.turn == 1 ? 1.0 : 0.0;
      late += request.traits.turn >= 10 ? 1.0 : 0.0;
      input += static_cast<double>(request.input.count());
    }
    for (std::size_t i = 0; i < 9; ++i) EXPECT_NEAR(tenths[i], 4000.0, 5 * 63.0) << i;
    // A conversation has some turns of the 40,000, so the shares spread twice as wide as those of independent turns.
    const auto share = [](double p) { return 2.0 * 4.0 * std::sqrt(p * (1.0 - p) / 40'000.0); };
    EXPECT_NEAR(first / 40'000.0, 1.0 / kTurns, share(1.0 / kTurns));
    const double tenth_or_later = std::pow(1.0 - 1.0 / kTurns, 9);
    EXPECT_NEAR(late / 40'000.0, tenth_or_later, share(tenth_or_later));
    EXPECT_NEAR(input / 40'000.0, 1143.0, 0.05 * 1143.0);
  }
}

// Two conversations start every 2 ms, each in turn: one every 4 ms of each kind. Think times of 8 s and of 4 + 12 s
// hold 2,000, 1,000 and 3,000 conversations, and what is left of them is even between 0 and their length. After 100
// requests at 4 ms / 5 turns x 2 a request, all is over: requests of the live ones come before the file has ended.
TEST(LiveConversations, OfAFileAreWhereTheirThinkTimesAreLong) {
  const std::int64_t s = 1'000'000'000;
  const std::vector<TraceRow> rows{turn(1, 1, 10, 5), turn(1, 2, 20, 5, 8 * s), turn(2, 1, 100, 50),
                                   turn(2, 2, 200, 50, 4 * s), turn(2, 3, 300, 50, 12 * s)};
  StreamPlan plan = balanced(5, 0.002, ThinkTime::of_trace());
  plan.starts = 2;
  LiveConversations live(plan, std::nullopt, std::make_unique<ListReader>(rows), 1, 0);
  std::map<std::int64_t, std::vector<double>> waits;  // by length of the next prompt
  SimTime before{};
  PlannedTurns planned;
  for (std::int64_t number = 0; live.next_time() != kNever; ++number) {
    const SimTime time = live.next_time();
    EXPECT_GE(time, before);
    before = time;
    live.take(planned);
    EXPECT_EQ(planned.conversation, number);
    const RequestSpec& next = planned.turns.front().request;
    EXPECT_EQ(next.traits.conversation, number);
    EXPECT_EQ(planned.turns.size(), next.input == Tokens(200) ? 2U : 1U);
    EXPECT_EQ(next.traits.turn, next.input == Tokens(300) ? 3 : 2);
    waits[next.input.count()].push_back(to_seconds(time - SimTime{}));
  }
  ASSERT_EQ(waits.size(), 3U);
  for (const auto& [input, expected, length] :
       {std::tuple(20, 2000.0, 8.0), std::tuple(200, 1000.0, 4.0), std::tuple(300, 3000.0, 12.0)}) {
    const std::vector<double>& all = waits[input];
    const auto n = static_cast<double>(all.size());
    EXPECT_NEAR(n, expected, 5.0 * std::sqrt(expected)) << input;
    double sum = 0.0;
    for (const double wait : all) sum += wait;
    EXPECT_NEAR(sum / n, length / 2.0, 5.0 * length / std::sqrt(12.0 * n)) << input;
    EXPECT_LE(all.back(), length);
  }
}

// Of one conversation in the file come many live ones. Two of them share nothing; the turns of one share all blocks.
TEST(LiveConversations, HaveContentOfTheirOwn) {
  const std::vector<TraceRow> rows{turn(1, 1, 100, 50), turn(1, 2, 200, 50), turn(1, 3, 400, 50)};
  StreamPlan plan = balanced(400, 0.5, ThinkTime::constant(60.0));
  plan.starts = 1;
  auto stream = balanced_stream(plan, rows);
  const auto requests = play(stream, 1000);
  ASSERT_GT(requests.size(), 100U) << "2 x 120 live conversations, and one that starts";
  std::map<std::int64_t, RequestSpec> last;
  std::int64_t repeated = 0;
  for (const RequestSpec& request : requests) {
    const auto [known, is_new] = last.try_emplace(request.traits.conversation, request);
    if (!is_new) {
      EXPECT_EQ(request.traits.turn, known->second.traits.turn + 1);
      EXPECT_EQ(shared_blocks(request, known->second), (known->second.input + known->second.output) / Tokens(16));
      known->second = request;
      ++repeated;
    } else if (last.size() > 1) {
      for (const auto& [number, other] : last) {
        EXPECT_EQ(number == request.traits.conversation ? 0 : shared_blocks(request, other), 0);
      }
    }
  }
  EXPECT_GT(repeated, 10);
}

TEST(LiveConversations, AreRefusedWhereTooManyWouldLive) {
  const std::vector<TraceRow> rows{turn(1, 1, 10, 5), turn(1, 2, 20, 5)};
  StreamPlan plan = balanced(2, 1e-6, ThinkTime::constant(60.0));
  plan.starts = 1;
  EXPECT_THROW(balanced_stream(plan, rows), ConfigError) << "60 million";
}

// One request in flight; each is answered after 100. Conversation 1 thinks for 30, so its second turn is due at 130:
// the slot that is free at 100 goes to conversation 2, the one at 200 to the turn that waits, before conversation 3.
TEST(Conversations, InAClosedLoopATurnThatIsDueComesBeforeANewConversation) {
  const std::vector<TraceRow> rows{turn(1, 1, 10, 5), turn(1, 2, 20, 5, 30), turn(2, 1, 11, 5), turn(3, 1, 12, 5)};
  StreamPlan plan = plan_for(rows.size());
  plan.arrival.process = Arrival::all_at_once;
  ClosedLoop client(std::make_unique<WorkloadStream>(stream_of(plan, rows)), 1, Duration{});
  std::vector<std::int64_t> inputs;
  while (client.next_arrival() != kNever) {
    RequestSpec request;
    ASSERT_TRUE(client.next(request));
    inputs.push_back(request.input.count());
    client.ended(record_of(request, 100));
  }
  EXPECT_EQ(inputs, (std::vector<std::int64_t>{10, 11, 20, 12}));
}

TEST(SortedRows, AreInOrderOfTime) {
  const std::vector<TraceRow> rows{at(5'000'000'000, row(1, 1)), at(4'500'000'000, row(2, 1)),
                                   at(5'000'000'000, row(3, 1)), row(4, 1),
                                   at(7'000'000'000, row(5, 1)), at(6'000'000'000, row(6, 1))};
  SortedRows sorted(std::make_unique<ListReader>(rows));
  std::vector<std::int64_t> inputs;
  for (TraceRow next; sorted.next(next);) inputs.push_back(next.input.count());
  EXPECT_EQ(inputs, (std::vector<std::int64_t>{2, 1, 3, 4, 6, 5})) << "row 4 states no time and stays behind row 3";
}

TEST(ThinkTimes, HaveTheirMeans) {
  RandomStream stream(1, 0, "think");
  constexpr int kDraws = 200'000;
  const auto mean_of = [&](const ThinkTime& think) {
    double sum = 0.0;
    for (int i = 0; i < kDraws; ++i) sum += to_seconds(think.sample(stream));
    return sum / kDraws;
  };
  EXPECT_EQ(mean_of(ThinkTime::constant(10.0)), 10.0);
  EXPECT_NEAR(mean_of(ThinkTime::exponential(60.0)), 60.0, 4 * 60.0 / std::sqrt(kDraws));
  EXPECT_NEAR(mean_of(ThinkTime::lognormal(120.0, 2.0)), 120.0, 4 * 240.0 / std::sqrt(kDraws));
  EXPECT_EQ(ThinkTime::lognormal(0.0, 2.0).sample(stream), Duration(0));
  EXPECT_EQ(ThinkTime::constant(10.0).mean_seconds(), 10.0);
  EXPECT_EQ(ThinkTime::exponential(60.0).mean_seconds(), 60.0);
  EXPECT_NEAR(ThinkTime::lognormal(120.0, 2.0).mean_seconds(), 120.0, 1e-9);
}

// The mean of what is left is E[T^2] / (2 E[T]): 5 for 10 s, 60 for exponential 60 s (E[T^2] = 2 x 60^2), and
// 10 x (1 + 0.5^2) / 2 = 6.25 for lognormal(10 s, 0.5). Its own deviation is about its mean.
TEST(ThinkTimes, HaveALongerRemainderThanHalfTheirMean) {
  RandomStream stream(1, 0, "think");
  constexpr int kDraws = 200'000;
  for (const auto& [think, mean] :
       {std::pair(ThinkTime::constant(10.0), 5.0), std::pair(ThinkTime::exponential(60.0), 60.0),
        std::pair(ThinkTime::lognormal(10.0, 0.5), 6.25)}) {
    double sum = 0.0;
    for (int i = 0; i < kDraws; ++i) sum += to_seconds(think.sample_remainder(stream));
    EXPECT_NEAR(sum / kDraws, mean, 4 * mean / std::sqrt(kDraws));
  }
}

// A mean at the limit of a year puts about 37% of the draws above it (e^-1).
TEST(ThinkTimes, AreCutAtAYear) {
  RandomStream stream(1, 0, "think");
  const ThinkTime think = ThinkTime::exponential(kMaxThinkSeconds);
  constexpr int kDraws = 1000;
  const Duration year(31'536'000'000'000'000);
  int at_the_limit = 0;
  for (int i = 0; i < kDraws; ++i) {
    const Duration drawn = think.sample(stream);
    EXPECT_LE(drawn, year);
    if (drawn == year) ++at_the_limit;
  }
  EXPECT_NEAR(at_the_limit, 368, 4 * 15);  // the standard deviation is sqrt(1000 x 0.368 x 0.632) = 15
}

TEST(ThinkTimes, AreReadAsUsersWriteThem) {
  const auto read = [](const std::string& text) {
    std::vector<Problem> problems;
    RandomStream stream(1, 0, "think");
    const auto think = parse_think_time(text, "workload.think_time", problems);
    EXPECT_EQ(think.has_value(), problems.empty()) << text;
    if (!think) return std::string("refused");
    return think->from_trace() ? std::string("trace") : std::to_string(think->sample(stream).count());
  };
  EXPECT_EQ(read("trace"), "trace");
  EXPECT_EQ(read("constant(10s)"), "10000000000");
  EXPECT_EQ(read(" constant( 500ms ) "), "500000000");
  EXPECT_EQ(read("60s"), read("exponential(60s)"));
  EXPECT_NE(read("lognormal(120s, 2)"), "refused");
  EXPECT_EQ(read("0s"), "0");
  for (const char* bad : {"", "60", "-1s", "exponential()", "exponential(60)", "lognormal(120s)", "lognormal(120s,-1)",
                          "lognormal(120s,101)", "normal(1s,1)", "nan", "400d", "constant(10s", "exponential(1s,2)"}) {
    EXPECT_EQ(read(bad), "refused") << bad;
  }
}

}  // namespace
}  // namespace spillway::traces
