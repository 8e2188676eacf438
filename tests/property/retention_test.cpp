// Policies that order the free blocks of the prefix cache, on random workloads: the simulator against the naive engine.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "policies/parts/paged_space.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/oracle/same_run.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using oracle::NaiveConfig;

/// `policy` with another order of the free blocks.
PolicyInfo retaining(const PolicyInfo& policy, const Retention& retention) {
  PolicyInfo info = policy;
  info.make = [make = policy.make, retention](const PolicyContext& context) {
    Policy made = make(context);
    PagedSpaceOptions options;
    options.swap = context.settings.get<std::string>("engine.preemption") == "swap";
    options.retention = retention;
    made.space = std::make_unique<PagedSpace>(context.view, options);
    return made;
  };
  return info;
}

double least_frequently_used(const View&, const FreedBlock& block) { return static_cast<double>(block.hits); }
double deepest_first(const View&, const FreedBlock& block) { return -static_cast<double>(block.position.count()); }
double one_client_last(const View&, const FreedBlock& block) { return block.request.client == 1 ? 1.0 : 0.0; }

/// Depends on all that a retention may know, and gives many blocks the same value.
double everything(const View& view, const FreedBlock& block) {
  const RequestView& last = block.request;
  const bool preempted = last.phase == Phase::waiting || last.phase == Phase::swapped;
  const std::int64_t sum = 3 * block.hits - block.position.count() + (preempted ? 2 : 0) + last.held.count() / 2 +
                           (last.known - last.computed).count() + (last.computed - last.input).count() / 8 +
                           last.max_new_tokens.count() % 3 + (view.now() - last.arrival).count() / 1000;
  return static_cast<double>(sum % 7);
}

struct Seen {
  std::int64_t hits = 0;       // tokens
  std::int64_t otherwise = 0;  // cases in which LRU finds another number of them
  std::int64_t swapped = 0;
  std::int64_t resized = 0;  // cases in which the capacity changes
};

Seen match_naive(const std::string& name, const Retention& retention, std::uint64_t cases) {
  const PolicyInfo& lru = *PolicyRegistry::instance().find(name);
  const PolicyInfo policy = retaining(lru, retention);
  const oracle::WholeModel model = oracle::WholeModel::of(policy);
  Seen seen;
  for (std::uint64_t seed = 1; seed <= random_cases(cases); ++seed) {
    SCOPED_TRACE(name + " seed " + std::to_string(seed));
    Settings settings;
    NaiveConfig config;
    oracle::draw_case(seed, policy, model, 1, settings, config);
    if (!config.prefix_caching) continue;
    const oracle::NaiveResult naive = oracle::run_naive(config);
    const oracle::FastRun fast = oracle::run_fast(config);
    oracle::expect_same_run(naive, fast);
    if (testing::Test::HasFatalFailure()) return {};
    config.policy = &lru;
    seen.hits += naive.prefix_hit.count();
    seen.otherwise += oracle::run_fast(config).result.statistics.engine.prefix_hit != naive.prefix_hit ? 1 : 0;
    seen.swapped += naive.preempted_swap;
    const auto& layers = fast.result.statistics.engine.layers;
    seen.resized += layers && layers->changes.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(seen.hits, more_than(0));
  EXPECT_GT(seen.otherwise, more_than(0));
  return seen;
}

TEST(Retention, LeastFrequentlyUsed_MatchesTheNaiveEngine) { match_naive("vllm", least_frequently_used, 2000); }

TEST(Retention, DeepestFirst_MatchesTheNaiveEngine) { match_naive("vllm", deepest_first, 2000); }

TEST(Retention, OneClientLast_MatchesTheNaiveEngine) { match_naive("vllm", one_client_last, 2000); }

TEST(Retention, OfAllThatIsKnown_MatchesTheNaiveEngine) {
  EXPECT_GT(match_naive("vllm-v0", everything, 4000).swapped, 0);
}

TEST(Retention, UnderAChangingCapacity_MatchesTheNaiveEngine) {
  EXPECT_GT(match_naive("pie", everything, 3000).resized, 10);
}

}  // namespace
}  // namespace spillway
