// Pensieve against its plain model, on random conversations: the policy in the engine, the model in the naive engine.
// Neither the engines nor the policies share code.
#include "tests/models/pensieve.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/oracle/pensieve_case.hpp"
#include "tests/oracle/same_run.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using oracle::NaiveConfig;

struct Seen {
  std::int64_t on_gpu = 0;  // tokens of earlier turns
  std::int64_t on_host = 0;
  std::int64_t recomputed = 0;
};

/// `how` sets what the case must be. `own`: under its own scheduler, which has a plain model as well. The others ask
/// both spaces.
Seen match_plain(const PolicyInfo& policy, std::uint64_t cases,
                 const std::function<void(oracle::Dice&, Settings&, NaiveConfig&)>& how, bool own = true) {
  PolicyInfo plain = policy;
  plain.make = [&policy, own](const PolicyContext& context) {
    Policy made = policy.make(context);
    made.space = oracle::plain_pensieve_space(context);
    if (own) made.scheduler = oracle::plain_pensieve_scheduler(context.settings);
    return made;
  };
  const oracle::WholeModel model = oracle::WholeModel::of(policy);
  Seen seen;
  for (std::uint64_t seed = 1; seed <= random_cases(cases); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Settings settings;
    NaiveConfig config;
    oracle::draw_pensieve_case(seed, policy, model, settings, config);
    oracle::Dice dice(seed + 2'000'000);
    how(dice, settings, config);
    config.policy = &plain;
    const oracle::NaiveResult naive = oracle::run_naive(config);
    config.policy = &policy;
    const oracle::FastRun fast = oracle::run_fast(config);
    oracle::expect_same_run(naive, fast);
    const EngineTotals& totals = fast.result.statistics.engine;
    EXPECT_EQ(naive.history_on_gpu, totals.history_on_gpu);
    EXPECT_EQ(naive.history_on_host, totals.history_on_host);
    if (testing::Test::HasFailure()) return {};
    seen.on_gpu += naive.history_on_gpu.count();
    seen.on_host += naive.history_on_host.count();
    seen.recomputed += (naive.history_asked - naive.history_on_gpu - naive.history_on_host).count();
  }
  return seen;
}

const PolicyInfo& pensieve() { return *PolicyRegistry::instance().find("pensieve"); }

TEST(PlainPensieve, DecidesAsThePolicy) {
  const Seen seen = match_plain(pensieve(), 5000, [](oracle::Dice&, Settings&, NaiveConfig&) {});
  EXPECT_GT(seen.on_gpu, more_than(0));
  EXPECT_GT(seen.on_host, more_than(0));
  EXPECT_GT(seen.recomputed, more_than(0));
}

TEST(PlainPensieve, DecidesAsThePolicyUnderEveryScheduler) {
  for (const PolicyInfo* const policy : oracle::pensieve_under_others()) {
    SCOPED_TRACE("under " + oracle::scheduler_of(*policy));
    const Seen seen = match_plain(
        *policy, 500, [](oracle::Dice&, Settings&, NaiveConfig&) {}, /*own=*/false);
    if (HasFailure()) return;
    EXPECT_GT(seen.on_gpu, more_than(0));
    EXPECT_GT(seen.on_host, more_than(0));
    EXPECT_GT(seen.recomputed, more_than(0));
  }
}

// A prompt in the batch whose next part finds no memory waits for it. In three of the first 5,000 such cases it would
// leave, find its place free, come back, and leave for ever: its own KV fills the host while it is away, so that what
// rests on the GPU may be dropped.
TEST(PlainPensieve, PartsOfPromptsWaitForMemoryUnderVllm) {
  const PolicyInfo& under_vllm = *PolicyRegistry::instance().find("pensieve", "vllm");
  const Seen seen = match_plain(
      under_vllm, 500,
      [](oracle::Dice& dice, Settings& settings, NaiveConfig& config) {
        settings.set("engine.max_num_batched_tokens", dice.between(8, 40));
        settings.set("engine.chunked_prefill", true);
        config.host_blocks = Blocks(dice.between(1, 1 + config.gpu_blocks.count() / 2));
      },
      /*own=*/false);
  EXPECT_GT(seen.on_host, more_than(0));
  EXPECT_GT(seen.recomputed, more_than(0));
}

TEST(PlainPensieve, DecidesAsThePolicyWithoutAHost) {
  const Seen seen = match_plain(pensieve(), 1500,
                                [](oracle::Dice&, Settings&, NaiveConfig& config) { config.host_blocks = Blocks(0); });
  EXPECT_GT(seen.on_gpu, more_than(0));
  EXPECT_EQ(seen.on_host, 0);
  EXPECT_GT(seen.recomputed, more_than(0));
}

// No request is rejected or gives up, so that the next turn of a conversation at rest stays the next one.
TEST(PlainPensieve, DecidesAsThePolicyThatKnowsTheNextTurns) {
  const Seen seen = match_plain(pensieve(), 3000, [](oracle::Dice& dice, Settings& settings, NaiveConfig& config) {
    settings.set("policy.eviction", std::string("farthest-next-use"));
    settings.set("policy.decode_reserve", 0.1);
    if (dice.chance(50)) config.host_blocks = Blocks(dice.between(0, 6));
    config.request_timeout.reset();
    config.gpu_blocks = std::max(config.gpu_blocks, Blocks(4));
    const std::int64_t without_reserve = config.gpu_blocks.count() * 9 / 10 * config.block_tokens.count();
    const std::int64_t most = std::min(without_reserve, config.max_model_len.count());
    for (RequestSpec& request : config.requests) {
      const Tokens half(std::max<std::int64_t>(1, most / 2));
      request.input = std::min(request.input, half);
      request.output = std::min(request.output, half);
      request.max_new_tokens = request.output;
    }
  });
  EXPECT_GT(seen.on_gpu, more_than(0));
  EXPECT_GT(seen.on_host, more_than(0));
  EXPECT_GT(seen.recomputed, more_than(0));
}

TEST(PlainPensieve, DecidesAsThePolicyOnATinyHost) {
  const Seen seen = match_plain(pensieve(), 1500, [](oracle::Dice& dice, Settings&, NaiveConfig& config) {
    config.host_blocks = Blocks(dice.between(1, 6));
  });
  EXPECT_GT(seen.on_host, more_than(0));
  EXPECT_GT(seen.recomputed, more_than(0));
}

}  // namespace
}  // namespace spillway
