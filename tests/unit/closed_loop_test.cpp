// A client that keeps a limited number of requests in flight.
#include "traces/closed_loop.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/oracle/replay.hpp"

namespace spillway::traces {
namespace {

class DueAt final : public RequestSource {
 public:
  explicit DueAt(std::vector<std::int64_t> times) : times_(std::move(times)) {}
  [[nodiscard]] SimTime next_arrival() override { return at_ < times_.size() ? SimTime(times_[at_]) : kNever; }
  bool next(RequestSpec& request) override {
    request = oracle::request(times_[at_++], 4, 2);
    return true;
  }

 private:
  std::vector<std::int64_t> times_;
  std::size_t at_ = 0;
};

std::unique_ptr<RequestSource> due_at(std::vector<std::int64_t> times) {
  return std::make_unique<DueAt>(std::move(times));
}

/// Sends the next request; returns when.
std::int64_t send(ClosedLoop& client) {
  const SimTime at = client.next_arrival();
  RequestSpec request;
  EXPECT_TRUE(client.next(request));
  EXPECT_EQ(request.arrival, at);
  return at.ns();
}

void end_at(ClosedLoop& client, std::int64_t time) {
  RequestRecord record;
  record.end = SimTime(time);
  client.ended(record);
}

TEST(ClosedLoop, TheNextRequestFollowsWhenOneHasEnded) {
  ClosedLoop client(due_at({0, 0, 0, 0}), 2, Duration{});
  EXPECT_EQ(send(client), 0);
  EXPECT_EQ(send(client), 0);
  EXPECT_EQ(client.next_arrival(), kNever);
  end_at(client, 5);
  EXPECT_EQ(send(client), 5);
  EXPECT_EQ(client.next_arrival(), kNever);
  end_at(client, 7);
  end_at(client, 9);
  EXPECT_EQ(send(client), 9) << "nobody asked at 7";
  EXPECT_EQ(client.next_arrival(), kNever) << "none is left";
}

TEST(ClosedLoop, ADueRequestWaitsAtItsClient) {
  ClosedLoop client(due_at({0, 10, 11, 40}), 1, Duration{});
  EXPECT_EQ(send(client), 0);
  end_at(client, 20);
  EXPECT_EQ(send(client), 20);
  end_at(client, 25);
  EXPECT_EQ(send(client), 25);
  end_at(client, 30);
  EXPECT_EQ(send(client), 40) << "not before it is due";
  // 10 and 14 ns late
  EXPECT_EQ(client.held_back().requests, 2);
  EXPECT_DOUBLE_EQ(client.held_back().seconds, 24e-9);
  EXPECT_EQ(client.held_back().longest, Duration(14));
}

TEST(ClosedLoop, TheRampSpreadsTheFirstRequests) {
  ClosedLoop client(due_at({0, 0, 0, 0, 0}), 4, Duration(8));
  EXPECT_EQ(send(client), 0);
  EXPECT_EQ(send(client), 2);
  end_at(client, 3);
  EXPECT_EQ(send(client), 4);
  EXPECT_EQ(send(client), 6);
  EXPECT_EQ(send(client), 6) << "the fifth is no part of the ramp, and three are in flight";
}

// Request k is sent when it is due, its predecessor has been sent, and k - N + 1 of those before it have ended.
TEST(ClosedLoop, EveryPolicy_GetsRequestsAsTheRuleSays) {
  std::int64_t held_back = 0;
  for (const PolicyInfo* const policy : PolicyRegistry::instance().all()) {
    const oracle::WholeModel model = oracle::WholeModel::of(*policy);
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      SCOPED_TRACE(policy->name + " seed " + std::to_string(seed));
      Settings settings;
      oracle::NaiveConfig config;
      oracle::draw_case(seed, *policy, model, 1, settings, config);
      config.until.reset();
      oracle::Dice dice(seed);
      const auto concurrency = static_cast<std::size_t>(dice.between(1, 12));
      std::vector<SimTime> due;
      for (const RequestSpec& request : config.requests) due.push_back(request.arrival);
      ClosedLoop source(std::make_unique<oracle::ListSource>(config.requests), static_cast<std::int64_t>(concurrency),
                        Duration{});
      SimulationConfig simulation = oracle::simulation_of(config);
      std::vector<RequestRecord> records(config.requests.size());
      simulation.source = &source;
      simulation.on_request = [&](const RequestRecord& record) { records[record.index] = record; };
      static_cast<void>(simulate(simulation));
      std::vector<SimTime> ends;  // of the requests before, ascending
      SimTime before{};
      for (std::size_t k = 0; k < records.size(); ++k) {
        SimTime expected = std::max(due[k], before);
        if (k >= concurrency) expected = std::max(expected, ends[k - concurrency]);
        ASSERT_EQ(records[k].arrival, expected) << k;
        before = expected;
        ends.insert(std::ranges::upper_bound(ends, records[k].end), records[k].end);
      }
      held_back += source.held_back().requests;
    }
  }
  EXPECT_GT(held_back, 1000);
}

}  // namespace
}  // namespace spillway::traces
