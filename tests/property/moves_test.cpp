// Policies that keep, move and drop KV, on random workloads: the simulator against the naive engine.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "tests/oracle/random_case.hpp"
#include "tests/oracle/same_run.hpp"
#include "tests/oracle/toy_policies.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using oracle::NaiveConfig;

/// A case without layers and without prefix cache; some requests are turns of a few conversations.
void draw(std::uint64_t seed, const PolicyInfo& policy, const ExecutionModel& model, Settings& settings,
          NaiveConfig& config) {
  oracle::draw_case(seed, policy, model, 1, settings, config);
  oracle::Dice dice(seed + 1'000'000);
  config.prefix_caching = false;
  config.host_cache_blocks = Blocks(0);
  config.max_model_len = config.block_tokens * config.gpu_blocks.count();
  config.follows.assign(config.requests.size(), {});
  for (RequestSpec& request : config.requests) {
    request.traits.conversation = dice.between(0, 5);
    request.prefix_ids.clear();
  }
  const Blocks peer(dice.between(0, 20));
  config.further = {{{"peer", peer, peer}},
                    {{TierId(2), kGpuTier, Stream::peer_in, 2}, {kGpuTier, TierId(2), Stream::peer_out, 2}}};
}

/// What the runs of all cases did together.
struct Seen {
  Bytes to_gpu{};
  Bytes to_peers{};
  std::int64_t finished = 0;
  std::int64_t swapped = 0;
};

Seen match_naive(const PolicyInfo& policy, std::uint64_t cases = 5000) {
  const oracle::WholeModel model;
  Seen seen;
  for (std::uint64_t seed = 1; seed <= random_cases(cases); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Settings settings;
    NaiveConfig config;
    draw(seed, policy, model, settings, config);
    const oracle::FastRun fast = oracle::run_fast(config);
    const oracle::NaiveResult naive = oracle::run_naive(config);
    oracle::expect_same_run(naive, fast);
    if (testing::Test::HasFatalFailure()) return {};
    seen.to_gpu += naive.moved_h2d;
    seen.to_peers += naive.moved_peer_out;
    seen.finished += fast.result.statistics.all.finished;
    seen.swapped += naive.preempted_swap;
  }
  return seen;
}

TEST(Moves, ToyRetention_MatchesTheNaiveEngine) {
  const Seen seen = match_naive(oracle::toy_policy<oracle::ToyFcfs, oracle::ToyRetention>("toy-retention"));
  EXPECT_GT(seen.to_gpu, Bytes(0));
  EXPECT_GT(seen.finished, more_than(0));
  EXPECT_GT(seen.swapped, more_than(0));
}

/// A published scheduler over the toy retention.
PolicyInfo retention_under(const std::string& scheduler) {
  PolicyInfo info = *PolicyRegistry::instance().find(scheduler);
  info.steady_decodes = false;  // the retention moves blocks while decodes go on
  info.make = [make = info.make](const PolicyContext& context) {
    Policy policy = make(context);
    policy.space = std::make_unique<oracle::ToyRetention>(context.view);
    return policy;
  };
  return info;
}

TEST(Moves, ToyRetentionUnderPublishedSchedulers_MatchesTheNaiveEngine) {
  for (const char* const scheduler : {"vllm", "vllm-v0", "swiftllm"}) {
    SCOPED_TRACE(scheduler);
    const Seen seen = match_naive(retention_under(scheduler), 1000);
    EXPECT_GT(seen.to_gpu, Bytes(0));
    EXPECT_GT(seen.finished, more_than(0));
  }
}

TEST(Moves, ToyCfs_MatchesTheNaiveEngine) {
  const Seen seen = match_naive(oracle::toy_policy<oracle::ToyCfs, oracle::ToyPeerSwap>("toy-cfs"));
  EXPECT_GT(seen.to_peers, Bytes(0));
  EXPECT_GT(seen.finished, more_than(0));
  EXPECT_GT(seen.swapped, more_than(0));
}

TEST(Moves, ToyCpuAttention_MatchesTheNaiveEngine) {
  const Seen seen = match_naive(oracle::toy_policy<oracle::ToyPipeline, oracle::ToyCpuSpace>("toy-cpu"));
  EXPECT_GT(seen.to_gpu, Bytes(0));
  EXPECT_GT(seen.finished, more_than(0));
  EXPECT_GT(seen.swapped, more_than(0));
}

}  // namespace
}  // namespace spillway
