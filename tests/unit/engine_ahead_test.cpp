// What an engine does besides computing, by hand: decisions made one iteration ahead, and a front end.
#include <gtest/gtest.h>

#include <vector>

#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/replay.hpp"

namespace spillway {
namespace {

using oracle::request;

struct Setup {
  bool ahead = false;
  std::int64_t front_end = 0;
  std::optional<Duration> timeout{};
  std::optional<SimTime> until{};
};

/// Records by position of the request. Every iteration takes 100 ns.
std::vector<RequestRecord> run(const Setup& setup, const std::vector<RequestSpec>& requests) {
  const oracle::WatchingModel model(Duration(100));
  const PolicyInfo& policy = *PolicyRegistry::instance().find("vllm");
  const Settings settings = oracle::policy_settings(policy, {});
  oracle::ListSource source(requests);
  SimulationConfig config;
  InstanceConfig& instance = config.instances.emplace_back();
  instance.model = &model;
  instance.policy = &policy;
  instance.settings = &settings;
  instance.kv = KvLayout{Blocks(100), Blocks(0), Tokens(4), Bytes(1), 1, false};
  instance.max_model_len = Tokens(400);
  instance.schedules_ahead = setup.ahead;
  config.front_end = Duration(setup.front_end);
  config.request_timeout = setup.timeout;
  config.until = setup.until;
  config.source = &source;
  std::vector<RequestRecord> records(requests.size());
  config.on_request = [&](const RequestRecord& record) { records[record.index] = record; };
  static_cast<void>(simulate(config));
  return records;
}

// The first request computes from 0 to 1000. The second arrives in the iteration from 200 to 300, the third when the
// one from 500 to 600 ends, the fourth when nothing runs.
const std::vector<RequestSpec> kArrivals{request(0, 4, 10), request(250, 4, 2), request(600, 4, 2),
                                         request(5000, 4, 2)};

TEST(EngineAhead, WithoutIt_RequestsJoinTheNextIteration) {
  const auto records = run({}, kArrivals);
  EXPECT_EQ(records[1].first_token, SimTime(400));
  EXPECT_EQ(records[2].first_token, SimTime(700));
  EXPECT_EQ(records[3].first_token, SimTime(5100));
}

TEST(EngineAhead, RequestsJoinTheIterationAfterTheNext) {
  const auto records = run({.ahead = true}, kArrivals);
  // 300 to 400 was decided on at 200, 600 to 700 at 500.
  EXPECT_EQ(records[1].first_token, SimTime(500));
  EXPECT_EQ(records[2].first_token, SimTime(800));
  EXPECT_EQ(records[3].first_token, SimTime(5100)) << "an idle engine decides at once";
  EXPECT_EQ(records[0].end, SimTime(1000)) << "those that run do not wait";
}

TEST(EngineAhead, WhenNothingIsLeftToRun_TheNextIterationTakesThem) {
  const auto records = run({.ahead = true}, {request(0, 4, 3), request(250, 4, 2)});
  EXPECT_EQ(records[0].end, SimTime(300));
  EXPECT_EQ(records[1].first_token, SimTime(400));
}

TEST(EngineAhead, AClientGivesUpBeforeTheSchedulerKnows) {
  const auto records = run({.ahead = true, .timeout = Duration(40)}, {request(0, 4, 1), request(50, 4, 2)});
  EXPECT_EQ(records[1].outcome, Outcome::timed_out);
  EXPECT_EQ(records[1].end, SimTime(90));
}

TEST(FrontEnd, LatenciesCountFromTheSend) {
  const auto records = run({.front_end = 30}, {request(0, 4, 2), request(10, 4, 2)});
  EXPECT_EQ(records[0].arrival, SimTime(0));
  EXPECT_EQ(records[0].first_scheduled, SimTime(30));
  EXPECT_EQ(records[0].first_token, SimTime(130));
  EXPECT_EQ(records[0].end, SimTime(230));
  EXPECT_EQ(records[1].arrival, SimTime(10));
  EXPECT_EQ(records[1].first_scheduled, SimTime(130)) << "it reached the scheduler at 40, within an iteration";
}

TEST(FrontEnd, ARequestThatHasNotPassedWhenTheRunEnds_IsUnfinished) {
  const auto records = run({.front_end = 30, .until = SimTime(45)}, {request(0, 4, 2), request(20, 5, 3)});
  EXPECT_EQ(records[0].outcome, Outcome::unfinished);
  EXPECT_EQ(records[1].outcome, Outcome::unfinished);
  EXPECT_EQ(records[1].arrival, SimTime(20));
  EXPECT_EQ(records[1].end, SimTime(45));
  EXPECT_EQ(records[1].input, Tokens(5));
  EXPECT_EQ(records[1].output, Tokens(3));
}

TEST(FrontEnd, AClientGivesUpOnceItsRequestHasPassed) {
  const auto records = run({.front_end = 30, .timeout = Duration(20)}, {request(0, 4, 2)});
  EXPECT_EQ(records[0].outcome, Outcome::timed_out);
  EXPECT_EQ(records[0].end, SimTime(30));
}

}  // namespace
}  // namespace spillway
