// Layers with a sliding window that free the KV beyond it, on random workloads: the simulator against the naive engine,
// which looks at every block of every request.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/oracle/random_case.hpp"
#include "tests/oracle/resting_policy.hpp"
#include "tests/oracle/same_run.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using oracle::NaiveConfig;

/// The longest request that always fits alone. Before its last piece a context of `tokens` has computed all but a piece
/// of them, and has freed what these have passed.
Tokens longest_alone(const NaiveConfig& config, std::int64_t at_most) {
  const KvWindow& window = *config.window;
  const std::int64_t block = config.block_tokens.count();
  std::int64_t longest = 0;
  for (std::int64_t tokens = 1; tokens <= at_most; ++tokens) {
    const std::int64_t all = (tokens + block - 1) / block;
    std::int64_t parts = 0;
    for (std::int64_t b = 0; b < all; ++b) {
      const std::int64_t last = b * block + block - 1;
      if (last < tokens - window.piece.count() - window.tokens.count() + 1) parts += window.layers;
    }
    if (all - parts / window.of > config.gpu_blocks.count()) break;
    longest = tokens;
  }
  return Tokens(longest);
}

struct Seen {
  std::int64_t longer = 0;     // requests finished that would not fit without freeing
  std::int64_t otherwise = 0;  // cases that take another number of iterations without freeing
  std::int64_t preempted = 0;
};

/// `in_pieces`: the policy computes prompts in chunks of the budget where the settings say so.
Seen match_naive(const PolicyInfo& policy, std::uint64_t cases, bool in_pieces = true) {
  const oracle::WholeModel model = oracle::WholeModel::of(policy);
  Seen seen;
  for (std::uint64_t seed = 1; seed <= cases; ++seed) {
    SCOPED_TRACE(policy.name + " seed " + std::to_string(seed));
    Settings settings;
    NaiveConfig config;
    oracle::draw_case(seed, policy, model, 1, settings, config);
    config.prefix_caching = false;
    config.host_cache_blocks = Blocks(0);
    oracle::Dice dice(seed + 500'000);
    const std::int64_t capacity = config.gpu_blocks.count() * config.block_tokens.count();
    const std::int64_t layers = dice.between(2, 12);
    const std::int64_t budget = settings.get<std::int64_t>("engine.max_num_batched_tokens");
    const bool chunked = in_pieces && settings.get<bool>("engine.chunked_prefill");
    config.window = KvWindow{Tokens(dice.between(1, 1 + capacity / 2)), dice.between(1, layers), layers,
                             Tokens(chunked ? budget : 10 * capacity)};
    config.max_model_len = longest_alone(config, 10 * capacity);
    for (RequestSpec& request : config.requests) {
      request.prefix_ids.clear();
      if (dice.chance(30)) request.input = request.input * dice.between(1, 6);
    }
    const oracle::NaiveResult naive = oracle::run_naive(config);
    const oracle::FastRun fast = oracle::run_fast(config);
    oracle::expect_same_run(naive, fast);
    if (testing::Test::HasFatalFailure()) return {};
    for (const RequestRecord& record : naive.records) {
      const bool fits = record.input + record.output <= Tokens(capacity);
      seen.longer += record.outcome == Outcome::finished && !fits ? 1 : 0;
    }
    seen.preempted += naive.preempted_recompute;
    config.window.reset();
    config.max_model_len = std::min(config.max_model_len, Tokens(capacity));
    seen.otherwise += oracle::run_fast(config).result.statistics.engine.iterations != naive.iterations ? 1 : 0;
  }
  return seen;
}

const PolicyInfo& policy_of(const std::string& name) { return *PolicyRegistry::instance().find(name); }

TEST(Windows, FreeWhatTheNaiveEngineFrees) {
  const Seen seen = match_naive(policy_of("vllm"), random_cases(3000));
  EXPECT_GT(seen.longer, more_than(200));
  EXPECT_GT(seen.otherwise, more_than(300));
  EXPECT_GT(seen.preempted, more_than(300));
}

TEST(Windows, FreeTheSameWhereExpertsAreOffloaded) {
  const Seen seen = match_naive(policy_of("llama-cpp-moe"), random_cases(600));
  EXPECT_GT(seen.longer, more_than(30));
}

TEST(Windows, FreeTheSameWhereDecodesRest) {
  const Seen seen = match_naive(oracle::resting_policy(), random_cases(2000), /*in_pieces=*/false);
  EXPECT_GT(seen.otherwise, more_than(200));
  EXPECT_GT(seen.preempted, more_than(200));
}

}  // namespace
}  // namespace spillway
