// Instances of several kinds in one simulation: each step by hand.
//
// Every iteration of the first kind takes 2,000 ns, of the second 3,000. A prompt is one iteration, and each token
// after the first one more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/list_source.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/oracle/replay.hpp"
#include "tests/oracle/route_by.hpp"

namespace spillway {
namespace {

class FixedTime final : public ExecutionModel {
 public:
  explicit FixedTime(std::int64_t ns) : ns_(ns) {}
  [[nodiscard]] std::int32_t layers() const override { return 1; }
  [[nodiscard]] IterationTime iteration(const BatchShape&) const override { return {.layer = Duration(ns_)}; }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes bytes, CopyMechanism) const override {
    return {.transfer = Duration(bytes.count())};
  }

 private:
  std::int64_t ns_;
};

class Kinds : public testing::Test {
 protected:
  /// `first` and `second` instances of each kind. Each router takes turns.
  explicit Kinds(std::size_t first = 1, std::size_t second = 1)
      : policy_(*PolicyRegistry::instance().find("vllm")), settings_(oracle::policy_settings(policy_, {})) {
    InstanceConfig instance;
    instance.policy = &policy_;
    instance.settings = &settings_;
    instance.kv = {.gpu_blocks = Blocks(100), .block_bytes = Bytes(1'000)};
    instance.max_model_len = Tokens(1'000);
    instance.model = &quick_;
    config_.instances.assign(first, instance);
    instance.model = &slow_;
    instance.kv.gpu_blocks = Blocks(50);
    config_.instances.resize(first + second, instance);
    for (const std::size_t size : {first, second}) {
      config_.pools.push_back(
          {size,
           oracle::route_by([turn = std::size_t{0}, size](const RequestSpec&) mutable { return turn++ % size; }),
           {}});
    }
  }

  static RequestSpec request(std::uint32_t pool, std::int64_t arrival, std::int64_t output = 2) {
    RequestSpec request = oracle::request(arrival, 20, output);
    request.traits.pool = pool;
    return request;
  }

  void run(const std::vector<RequestSpec>& requests) {
    oracle::ListSource source(requests);
    config_.source = &source;
    records_.resize(requests.size());
    config_.on_request = [this](const RequestRecord& record) { records_.at(record.index) = record; };
    result_ = simulate(config_);
  }

  SimulationConfig config_;
  std::vector<RequestRecord> records_{};  // by index
  SimulationResult result_{};

 private:
  FixedTime quick_{2'000};
  FixedTime slow_{3'000};
  const PolicyInfo& policy_;
  const Settings settings_;
};

// The first: tokens at 2,000 and 4,000. The second: at 3,000 and 6,000. The third joins the first kind at 6,000: it is
// idle since 4,000.
TEST_F(Kinds, ServeTheirOwnRequests) {
  run({request(0, 0), request(1, 0), request(0, 6'000, 1)});
  EXPECT_EQ(records_[0].first_token, SimTime(2'000));
  EXPECT_EQ(records_[0].end, SimTime(4'000));
  EXPECT_EQ(records_[1].first_token, SimTime(3'000));
  EXPECT_EQ(records_[1].end, SimTime(6'000));
  EXPECT_EQ(records_[2].end, SimTime(8'000));
  EXPECT_EQ(records_[1].replica, 1U);
  EXPECT_EQ(records_[2].replica, 0U);
}

// Means of TTFT: (2,000 + 2,000) / 2 and 3,000 ns; of all (2,000 + 3,000 + 2,000) / 3. The span ends at 8,000 for all.
// Iterations: 3 and 2. ITL: one gap of each. Blocks: 100 and 50.
TEST_F(Kinds, HaveStatisticsOfTheirOwn) {
  run({request(0, 0), request(1, 0), request(0, 6'000, 1)});
  ASSERT_EQ(result_.pools.size(), 2U);
  const RunStatistics& first = result_.pools[0];
  const RunStatistics& second = result_.pools[1];
  EXPECT_EQ(first.all.finished, 2);
  EXPECT_EQ(second.all.finished, 1);
  EXPECT_EQ(result_.statistics.all.finished, 3);
  EXPECT_DOUBLE_EQ(*first.find("mean_ttft_ms")->value, 0.002);
  EXPECT_DOUBLE_EQ(*second.find("mean_ttft_ms")->value, 0.003);
  EXPECT_DOUBLE_EQ(*result_.statistics.find("mean_ttft_ms")->value, 0.007 / 3.0);
  EXPECT_DOUBLE_EQ(*first.find("mean_itl_ms")->value, 0.002);
  EXPECT_DOUBLE_EQ(*second.find("mean_itl_ms")->value, 0.003);
  EXPECT_EQ(first.span, Duration(8'000));
  EXPECT_EQ(second.span, Duration(8'000));
  EXPECT_EQ(first.engine.iterations, 3);
  EXPECT_EQ(second.engine.iterations, 2);
  EXPECT_EQ(first.gpu_blocks, Blocks(100));
  EXPECT_EQ(second.gpu_blocks, Blocks(50));
  EXPECT_EQ(result_.statistics.gpu_blocks, Blocks(150));
}

// A warm-up of two requests of the run drops the first two, of different kinds: the span begins for both with the
// third, at 6,500, though the second kind sends none in it.
TEST_F(Kinds, MeasureTheSameSpan) {
  config_.metrics.warmup = {.kind = Span::Kind::requests, .requests = 2};
  run({request(0, 0), request(1, 0, 4), request(0, 6'500, 1)});
  EXPECT_EQ(result_.pools[0].measured.submitted, 1);
  EXPECT_EQ(result_.pools[1].measured.submitted, 0);
  // The last token of the second request comes at 12,000.
  EXPECT_EQ(result_.pools[0].span, Duration(5'500));
  EXPECT_EQ(result_.pools[1].span, Duration(5'500));
  // Of its gaps, those that end at 9,000 and 12,000, not the one that ends at 6,000.
  EXPECT_EQ(result_.pools[1].find("mean_itl_ms")->n, 2);
}

// Front ends of 10,000 and 1,000 ns. The first request is sent first and reaches its scheduler last.
TEST_F(Kinds, HaveFrontEndsOfTheirOwn) {
  config_.pools[0].front_end = Duration(10'000);
  config_.pools[1].front_end = Duration(1'000);
  run({request(0, 0), request(1, 500), request(1, 600), request(0, 700)});
  EXPECT_EQ(records_[0].first_scheduled, SimTime(10'000));
  EXPECT_EQ(records_[1].first_scheduled, SimTime(1'500));
  EXPECT_EQ(records_[1].first_token, SimTime(4'500));
  // At 1,600, while the first iteration runs until 4,500.
  EXPECT_EQ(records_[2].first_scheduled, SimTime(4'500));
  // At 10,700, while the iteration of 10,000 to 12,000 runs.
  EXPECT_EQ(records_[3].first_scheduled, SimTime(12'000));
  EXPECT_DOUBLE_EQ(*result_.pools[1].find("mean_ttft_ms")->value, ((4'500.0 - 500.0) + (7'500.0 - 600.0)) / 2.0 / 1e6);
  // Without the front ends: 12,000 - 0 and 14,000 - 700, each 10,000 less, and these two, 1,000 less.
  const double server = (2'000.0 + 3'300.0 + 3'000.0 + 5'900.0) / 4.0 / 1e6;
  EXPECT_DOUBLE_EQ(*result_.statistics.find("mean_server_ttft_ms")->value, server);
  EXPECT_DOUBLE_EQ(*result_.pools[1].find("mean_server_ttft_ms")->value, (3'000.0 + 5'900.0) / 2.0 / 1e6);
}

// The horizon cuts a request that is still on its way.
TEST_F(Kinds, AreCutInTheFrontEnd) {
  config_.pools[0].front_end = Duration(10'000);
  config_.until = SimTime(5'000);
  run({request(0, 0), request(1, 0, 1)});
  EXPECT_EQ(records_[0].outcome, Outcome::unfinished);
  EXPECT_EQ(result_.pools[0].all.unfinished, 1);
  EXPECT_EQ(result_.pools[1].all.finished, 1);
}

TEST_F(Kinds, ARequestForAKindThatIsNotThere_IsAnError) { EXPECT_THROW(run({request(2, 0)}), InvariantError); }

TEST_F(Kinds, PoolsAreAllInstances) {
  config_.pools.pop_back();
  EXPECT_THROW(run({request(0, 0)}), InvariantError);
}

// Two instances of the first kind, one of the second.
class Several : public Kinds {
 protected:
  Several() : Kinds(2, 1) {}
};

// Each kind's router knows its own instances from 0.
TEST_F(Several, RouteAmongThemselves) {
  run({request(0, 0), request(1, 0), request(0, 0), request(1, 0)});
  EXPECT_EQ(records_[0].replica, 0U);
  EXPECT_EQ(records_[2].replica, 1U);
  EXPECT_EQ(records_[1].replica, 2U);
  EXPECT_EQ(records_[3].replica, 2U);
  ASSERT_EQ(result_.pools[0].replicas.size(), 2U);
  EXPECT_TRUE(result_.pools[1].replicas.empty());
  ASSERT_EQ(result_.statistics.replicas.size(), 3U);
  EXPECT_EQ(result_.statistics.replicas[2].sent, 2);
}

// Instance 0 has a request of each client. That of client 0 gets 20 + 2 * 2 weighted tokens in 4,000 ns, that of client
// 1 20 + 2 in 2,000: 6 and 11 a microsecond, so 17^2 / (2 (6^2 + 11^2)). Instance 1 has one client.
TEST_F(Several, SayHowFairEachIs) {
  std::vector<RequestSpec> requests{request(0, 0), request(0, 0), request(0, 0, 1)};
  requests[2].client = 1;
  run(requests);
  const std::vector<ReplicaStatistics>& replicas = result_.statistics.replicas;
  ASSERT_EQ(replicas.size(), 3U);
  EXPECT_DOUBLE_EQ(replicas[0].jain_index.value(), 289.0 / 314.0);
  EXPECT_FALSE(replicas[1].jain_index.has_value());
  EXPECT_FALSE(replicas[2].jain_index.has_value());
  EXPECT_FALSE(replicas[0].max_service_difference.has_value());
}

// The only instance of the second kind is down from 1,000 to 9,000. Its request waits, though others are up: it is
// computed from 9,000 on.
TEST_F(Several, WhenAllOfAKindAreDown_ItsRequestsWait) {
  config_.events = {{SimTime(1'000), 2, false}, {SimTime(9'000), 2, true}};
  run({request(1, 0), request(0, 0), request(1, 2'000, 1)});
  EXPECT_EQ(records_[0].first_token, SimTime(12'000));
  EXPECT_EQ(records_[2].first_token, SimTime(12'000));
  EXPECT_EQ(records_[1].end, SimTime(4'000));
  EXPECT_EQ(result_.pools[1].all.finished, 2);
}

// It never comes up again: both are lost, of its own kind, the second without having been sent anywhere.
TEST_F(Several, WhenAKindStaysDown_ItsRequestsAreLost) {
  config_.events = {{SimTime(1'000), 2, false}};
  run({request(1, 0), request(0, 0), request(1, 2'000, 1)});
  EXPECT_EQ(result_.pools[0].all.lost, 0);
  EXPECT_EQ(result_.pools[1].all.lost, 2);
  EXPECT_EQ(result_.pools[0].all.finished, 1);
  EXPECT_EQ(records_[2].outcome, Outcome::lost);
  EXPECT_EQ(records_[2].replica, 2U);
}

}  // namespace
}  // namespace spillway
