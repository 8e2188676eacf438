// Pensieve on random conversations: the simulator against the naive engine.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/oracle/pensieve_case.hpp"
#include "tests/oracle/same_run.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using oracle::NaiveConfig;

struct Seen {
  Bytes to_gpu{};
  Bytes to_host{};
  std::int64_t found = 0;  // tokens of earlier turns
  std::int64_t on_host = 0;
  std::int64_t recomputed = 0;
  double suspensions = 0.0;
  std::int64_t unfinished = 0;
};

Seen match_naive(const PolicyInfo& policy, std::uint64_t cases) {
  const oracle::WholeModel model = oracle::WholeModel::of(policy);
  Seen seen;
  for (std::uint64_t seed = 1; seed <= random_cases(cases); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Settings settings;
    NaiveConfig config;
    oracle::draw_pensieve_case(seed, policy, model, settings, config);
    oracle::NaiveResult naive;
    oracle::FastRun fast;
    EXPECT_NO_THROW(fast = oracle::run_fast(config));
    EXPECT_NO_THROW(naive = oracle::run_naive(config));
    if (testing::Test::HasFailure()) return {};
    oracle::expect_same_run(naive, fast);
    const EngineTotals& totals = fast.result.statistics.engine;
    EXPECT_EQ(naive.history_asked, totals.history_asked);
    EXPECT_EQ(naive.history_on_gpu, totals.history_on_gpu);
    EXPECT_EQ(naive.history_on_host, totals.history_on_host);
    if (testing::Test::HasFailure()) return {};
    seen.to_gpu += naive.moved_h2d;
    seen.to_host += naive.moved_d2h;
    seen.found += naive.history_on_gpu.count();
    seen.on_host += naive.history_on_host.count();
    seen.recomputed += (naive.history_asked - naive.history_on_gpu - naive.history_on_host).count();
    if (!config.until) seen.unfinished += fast.result.statistics.all.unfinished;
    for (const PolicyFigure& figure : totals.figures) {
      if (figure.definition.name == "suspensions") seen.suspensions += figure.value.value_or(0.0);
    }
  }
  return seen;
}

TEST(Pensieve, MatchesTheNaiveEngine) {
  const Seen seen = match_naive(*PolicyRegistry::instance().find("pensieve"), 6000);
  EXPECT_GT(seen.to_gpu, Bytes(0));
  EXPECT_GT(seen.to_host, Bytes(0));
  EXPECT_GT(seen.found, more_than(0));
  EXPECT_GT(seen.on_host, more_than(0));
  EXPECT_GT(seen.recomputed, more_than(0));
  EXPECT_GT(seen.suspensions, more_than(0));
  EXPECT_EQ(seen.unfinished, 0);
}

TEST(Pensieve, MatchesTheNaiveEngineUnderEveryScheduler) {
  Seen all;
  int schedulers = 0;
  for (const PolicyInfo* const policy : oracle::pensieve_under_others()) {
    SCOPED_TRACE("under " + oracle::scheduler_of(*policy));
    const Seen seen = match_naive(*policy, policy->suspends ? 6000 : 1000);
    if (HasFailure()) return;
    EXPECT_GT(seen.to_gpu, Bytes(0));
    EXPECT_GT(seen.on_host, more_than(0));
    EXPECT_GT(seen.recomputed, more_than(0));
    EXPECT_EQ(seen.suspensions > 0.0, policy->preempts);
    EXPECT_EQ(seen.unfinished, 0);
    ++schedulers;
  }
  EXPECT_EQ(schedulers, 8) << "cfs, orca, sarathi, swiftllm, tensorrt-llm, vllm, vllm-v0, vtc";
}

// Layers wait for their weights and for KV that comes back, on the same link.
TEST(Pensieve, MatchesTheNaiveEngineOverStreamedWeights) {
  const PolicyRegistry& registry = PolicyRegistry::instance();
  for (const PolicyInfo* const weights : registry.weights()) {
    for (const char* scheduler : {"pensieve", "sarathi"}) {
      SCOPED_TRACE("weights of " + weights->name + " under " + scheduler);
      const PolicyInfo& composed = registry.with_weights(*registry.find("pensieve", scheduler), weights->name);
      const Seen seen = match_naive(composed, 400);
      if (HasFailure()) return;
      EXPECT_GT(seen.to_gpu, Bytes(0));
      EXPECT_GT(seen.on_host, more_than(0));
      EXPECT_GT(seen.suspensions, more_than(0));
      EXPECT_EQ(seen.unfinished, 0);
    }
  }
}

}  // namespace
}  // namespace spillway
