// Every registered policy on random workloads: the simulator against its naive oracle, and the rules of every run.
// PolicyInfo determines the expectations for a policy, so a new policy needs no change here.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/naive_engine.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/oracle/resting_policy.hpp"
#include "tests/oracle/same_run.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using oracle::FastRun;
using oracle::NaiveConfig;
using oracle::NaiveResult;
using oracle::run_fast;
using oracle::text;
using oracle::WholeModel;

double metric(const RunStatistics& statistics, const std::string& name) {
  const Metric* found = statistics.find(name);
  EXPECT_NE(found, nullptr) << name;
  return found != nullptr && found->value ? *found->value : -1.0;
}

void expect_same_fairness(const NaiveResult& naive, const FastRun& fast) {
  const RunStatistics& statistics = fast.result.statistics;
  const Metric* jain = statistics.find("jain_index");
  const Metric* difference = statistics.find("max_service_difference_tokens");
  ASSERT_NE(jain, nullptr);
  ASSERT_NE(difference, nullptr);
  ASSERT_EQ(naive.jain_index.has_value(), jain->value.has_value());
  if (naive.jain_index) {
    ASSERT_NEAR(*naive.jain_index, *jain->value, 1e-12 * *naive.jain_index);
  }
  ASSERT_EQ(naive.service_observations, difference->n);
  ASSERT_EQ(naive.max_service_difference.has_value(), difference->value.has_value());
  if (naive.max_service_difference) {
    ASSERT_EQ(static_cast<double>(*naive.max_service_difference), *difference->value);
  }
  for (const ClientStatistics& client : statistics.clients) {
    const auto served = naive.service.find(client.client);
    ASSERT_EQ(client.service_tokens, served == naive.service.end() ? 0.0 : static_cast<double>(served->second));
  }
}

/// Compares sums over the measured span, including events that its boundaries cut.
void expect_same_books(const NaiveResult& naive, const EngineTotals& totals) {
  ASSERT_EQ(naive.iterations, totals.iterations);
  ASSERT_EQ(naive.moved_h2d, totals.moved_h2d);
  ASSERT_EQ(naive.moved_d2h, totals.moved_d2h);
  ASSERT_EQ(naive.moved_peer_in, totals.moved_peer_in);
  ASSERT_EQ(naive.moved_peer_out, totals.moved_peer_out);
  oracle::expect_same_kv_copies(naive, totals);
  oracle::expect_same_conversations(naive, totals);
  ASSERT_EQ(naive.peak_batch, totals.peak_batch);
  ASSERT_EQ(naive.peak_waiting, totals.peak_waiting);
  if (!totals.layers) return;
  ASSERT_NEAR(to_seconds(naive.stall), totals.layers->stall_time, 1e-12 * std::max(1.0, totals.layers->stall_time));
  ASSERT_EQ(naive.copying[0], totals.layers->h2d_busy);
  ASSERT_EQ(naive.copying[1], totals.layers->d2h_busy);
}

void expect_equal(const NaiveResult& naive, const FastRun& fast) {
  ASSERT_EQ(naive.records.size(), fast.records.size());
  for (std::size_t i = 0; i < naive.records.size(); ++i) ASSERT_EQ(text(naive.records[i]), text(fast.records[i]));
  const EngineTotals& totals = fast.result.statistics.engine;
  expect_same_books(naive, totals);
  ASSERT_EQ(naive.prefix_hit, totals.prefix_hit);
  ASSERT_EQ(naive.prefix_hit_host, totals.prefix_hit_host);
  ASSERT_EQ(naive.preempted_recompute, totals.preempted_recompute);
  ASSERT_EQ(naive.preempted_swap, totals.preempted_swap);
  expect_same_fairness(naive, fast);
  // The policy's own figures tell what it was told.
  for (const PolicyFigure& figure : totals.figures) {
    const auto found = naive.layers.find(figure.definition.name);
    ASSERT_EQ(found != naive.layers.end(), figure.value.has_value()) << figure.definition.name;
    if (figure.value) {
      ASSERT_EQ(found->second, *figure.value) << figure.definition.name;
    }
  }
  // Throughput counts every token, also those of requests that did not finish.
  std::int64_t generated = 0;
  for (const RequestRecord& record : naive.records) generated += record.generated.count();
  if (const double span = metric(fast.result.statistics, "duration_s"); span > 0.0) {
    const double tokens = metric(fast.result.statistics, "output_throughput_tokens_per_s") * span;
    ASSERT_NEAR(tokens, static_cast<double>(generated), 1e-9 * static_cast<double>(generated));
  }
  // Gaps between tokens: number, mean and extremes exactly, quantiles within the sketch's error.
  const RunStatistics& statistics = fast.result.statistics;
  const Metric* mean = statistics.find("mean_itl_ms");
  ASSERT_NE(mean, nullptr);
  ASSERT_EQ(mean->n, static_cast<std::int64_t>(naive.token_gaps.size()));
  if (naive.token_gaps.empty()) return;
  std::vector<Duration> gaps = naive.token_gaps;
  std::sort(gaps.begin(), gaps.end());
  const std::int64_t sum = std::accumulate(gaps.begin(), gaps.end(), Duration{}).count();
  const double expected = static_cast<double>(sum) / static_cast<double>(gaps.size()) * 1e-6;
  ASSERT_NEAR(*mean->value, expected, 1e-15 * std::max(1.0, expected));
  ASSERT_DOUBLE_EQ(metric(statistics, "min_itl_ms"), static_cast<double>(gaps.front().count()) * 1e-6);
  ASSERT_DOUBLE_EQ(metric(statistics, "max_itl_ms"), static_cast<double>(gaps.back().count()) * 1e-6);
  const double position = 0.9 * static_cast<double>(gaps.size() - 1);
  const auto rank = static_cast<std::size_t>(position);
  const double p90 = metric(statistics, "p90_itl_ms");
  ASSERT_GE(p90, 0.999 * static_cast<double>(gaps[rank].count()) * 1e-6);
  ASSERT_LE(p90, 1.001 * static_cast<double>(gaps[std::min(rank + 1, gaps.size() - 1)].count()) * 1e-6);
}

/// Counts requests that arrive at their own time, or after a request that was answered.
std::int64_t answerable(const NaiveConfig& config, const std::vector<RequestRecord>& records) {
  std::vector<bool> answered(config.requests.size(), false);
  for (const RequestRecord& r : records) {
    if (r.outcome == Outcome::finished) answered[static_cast<std::size_t>(r.traits.conversation)] = true;
  }
  return std::count_if(config.follows.begin(), config.follows.end(), [&](const oracle::Follows& follows) {
    return follows.after < 0 || answered[static_cast<std::size_t>(follows.after)];
  });
}

/// The rules of every run, under any policy.
void expect_sound(const NaiveConfig& config, const FastRun& run) {
  std::vector<bool> seen(config.requests.size(), false);
  SimTime last;
  std::vector<SimTime> answered(config.requests.size(), kNever);
  for (const RequestRecord& r : run.records) {
    const auto position = static_cast<std::size_t>(r.traits.conversation);
    const oracle::Follows& follows = config.follows[position];
    if (follows.after >= 0) {
      const SimTime answer = answered[static_cast<std::size_t>(follows.after)];
      ASSERT_NE(answer, kNever) << "request " << r.index << " came before the answer that it follows";
      ASSERT_EQ(r.arrival, answer + follows.think);
    }
    if (r.outcome == Outcome::finished) answered[position] = r.end;
    ASSERT_FALSE(seen[r.index]) << "request " << r.index << " ended twice";
    seen[r.index] = true;
    ASSERT_LE(last, r.end) << "the clock went back";
    last = r.end;
    ASSERT_LE(r.arrival, r.end);
    if (r.first_token != kNever) {
      ASSERT_LE(r.arrival, r.first_scheduled);
      ASSERT_LT(r.first_scheduled, r.first_token);
      ASSERT_LE(r.first_token, r.end);
    }
    ASSERT_LE(r.computing, r.end - r.arrival);
    ASSERT_LE(r.generated, r.output);
    if (r.outcome == Outcome::finished) {
      ASSERT_EQ(r.generated, r.output);
    }
    if (config.request_timeout && r.outcome != Outcome::timed_out && r.first_token == kNever) {
      // A client gives up only once its request has reached the scheduler.
      ASSERT_LE(r.end - r.arrival, std::max(*config.request_timeout, config.front_end));
    }
  }
  const RunStatistics& statistics = run.result.statistics;
  const auto& spent = statistics.engine.resource_time;
  // The times of all resources add up to the measured span.
  const double span = to_seconds(statistics.span);
  ASSERT_NEAR(std::accumulate(spent.begin(), spent.end(), 0.0), span, 1e-12 * std::max(1.0, span));
  // No stream works longer than the span, wherever the span cuts.
  if (const auto& layers = statistics.engine.layers) {
    ASSERT_LE(layers->h2d_busy, statistics.span);
    ASSERT_LE(layers->d2h_busy, statistics.span);
    ASSERT_LE(layers->stall_time, statistics.engine.busy_time * (1.0 + 1e-12));
  }
  const OutcomeCounts& all = statistics.all;
  ASSERT_EQ(all.submitted, all.finished + all.rejected + all.timed_out + all.unfinished);
  ASSERT_EQ(all.submitted, static_cast<std::int64_t>(run.records.size()));
  if (!config.until) {
    ASSERT_EQ(all.submitted, answerable(config, run.records));
  }
}

/// Whether KV or weights of the policy ever move.
bool moves_state(const PolicyInfo& policy) {
  return policy.layout || policy.make_space || policy.shares_prefixes || oracle::swaps(policy);
}

class EveryPolicy : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] const PolicyInfo& policy() const { return *PolicyRegistry::instance().find(GetParam()); }
};

constexpr std::uint64_t kCases = random_cases(2000);

TEST_P(EveryPolicy, MatchesTheNaiveEngineAndUsesEveryPath) {
  const WholeModel model = WholeModel::of(policy());
  std::int64_t recomputed = 0;
  std::int64_t swapped = 0;
  double suspended = 0.0;
  std::int64_t full_gpu = 0;
  std::int64_t full_host = 0;
  std::int64_t cached = 0;
  std::int64_t from_host = 0;
  std::int64_t host_evictions = 0;
  OutcomeCounts outcomes;
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    SCOPED_TRACE(GetParam() + " seed " + std::to_string(seed));
    Settings settings;
    NaiveConfig config;
    oracle::draw_case(seed, policy(), model, 1, settings, config);
    const NaiveResult naive = oracle::run_naive(config);
    const FastRun fast = run_fast(config);
    expect_equal(naive, fast);
    expect_sound(config, fast);
    if (HasFatalFailure()) return;
    recomputed += naive.preempted_recompute;
    swapped += naive.preempted_swap;
    // A policy that never preempts may keep some tokens free, as VTC's pool does.
    full_gpu += naive.peak_gpu.count() * 10 >= config.gpu_blocks.count() * (policy().preempts ? 10 : 9) ? 1 : 0;
    full_host += config.host_blocks > Blocks(0) && naive.peak_host == config.host_blocks ? 1 : 0;
    cached += naive.prefix_hit.count();
    from_host += naive.prefix_hit_host.count();
    host_evictions += naive.host_evictions;
    for (const char* const name : {"suspensions", "page_outs", "cpu_rests"}) {
      if (const auto figure = naive.layers.find(name); figure != naive.layers.end()) suspended += figure->second;
    }
    const OutcomeCounts& all = fast.result.statistics.all;
    outcomes.finished += all.finished;
    outcomes.rejected += all.rejected;
    outcomes.timed_out += all.timed_out;
    outcomes.unfinished += all.unfinished;
  }
  const std::string who = "policy " + GetParam() + " ";
  if (!policy().preempts) {
    EXPECT_EQ(recomputed + swapped, 0) << who << "declares PolicyInfo::preempts = false, but it preempted";
  } else if (policy().own_scheduler) {
    EXPECT_GT(suspended, more_than(0)) << who
                                       << "declares PolicyInfo::preempts = true, but no request ever left the batch";
  } else if (oracle::accepts_preemption(policy(), "recompute")) {
    EXPECT_GT(recomputed, more_than(0)) << who << "declares PolicyInfo::preempts = true, but it never recomputed";
  } else {
    EXPECT_GT(recomputed + swapped, 0) << who << "declares PolicyInfo::preempts = true, but it never preempted";
  }
  if (policy().suspends) {
    EXPECT_GT(suspended, more_than(0)) << who << "declares PolicyInfo::suspends = true, but no request left by plan";
  }
  // Where the CPU attends, the GPU may keep no KV at all.
  EXPECT_GT(full_gpu + (policy().cpu_attention ? full_host : 0), 0) << who << "never filled the GPU's KV blocks";
  EXPECT_EQ(cached > 0, policy().shares_prefixes)
      << who << "declares PolicyInfo::shares_prefixes = " << policy().shares_prefixes << ", but " << cached
      << " tokens came from the prefix cache";
  if (policy().shares_prefixes) {
    EXPECT_GT(from_host, more_than(0));
    EXPECT_GT(host_evictions, more_than(0));
  }
  EXPECT_GT(outcomes.finished, more_than(0));
  EXPECT_GT(outcomes.rejected, more_than(0));
  EXPECT_GT(outcomes.timed_out, more_than(0));
  EXPECT_GT(outcomes.unfinished, more_than(0));
  if (!oracle::swaps(policy())) return;
  EXPECT_GT(swapped, more_than(0))
      << who
      << "accepts engine.preemption=swap, but it never swapped: if it cannot, its check must refuse "
         "that value (refuse_swap in policies/parts/refusals.hpp)";
  EXPECT_GT(full_host, more_than(0)) << who << "never filled the host's KV blocks";
}

/// The end of the last request; the start if a run ended before the first arrival.
SimTime last_end(const FastRun& run) {
  SimTime last{};
  for (const RequestRecord& record : run.records) last = std::max(last, record.end);
  return last;
}

// Copies slow down each other and the GPU: the books account for every nanosecond and charge every byte.
TEST_P(EveryPolicy, SharedLinksKeepTheBooks) {
  const WholeModel alone = WholeModel::of(policy());
  const WholeModel sharing = WholeModel::of(policy(), 1, 1, {.h2d = {7, 4}, .d2h = {3, 2}, .compute = {9, 8}});
  std::int64_t later = 0;
  for (std::uint64_t seed = 1; seed <= random_cases(500); ++seed) {
    SCOPED_TRACE(GetParam() + " seed " + std::to_string(seed));
    Settings settings;
    NaiveConfig config;
    oracle::draw_case(seed, policy(), alone, 1, settings, config);
    const SimTime end = last_end(run_fast(config));
    config.model = &sharing;
    const FastRun run = run_fast(config);
    expect_sound(config, run);
    if (HasFatalFailure()) return;
    later += last_end(run) > end ? 1 : 0;
  }
  if (moves_state(policy())) {
    EXPECT_GT(later, more_than(0));
  } else {
    EXPECT_EQ(later, 0);
  }
}

// Duplex caps, a server's totals and other traffic, all at once: to the nanosecond.
TEST_P(EveryPolicy, SharedLinksMatchTheNaiveEngine) {
  std::int64_t slowed = 0;
  for (std::uint64_t seed = 1; seed <= random_cases(500); ++seed) {
    SCOPED_TRACE(GetParam() + " seed " + std::to_string(seed));
    oracle::Dice dice(seed);
    const auto ratio = [&]() -> Slowdown { return {dice.between(4, 12), 4}; };
    const WholeModel model = WholeModel::of(policy(), 1, 1, {.h2d = ratio(), .d2h = ratio()});
    Settings settings;
    NaiveConfig config;
    oracle::draw_case(seed, policy(), model, 1, settings, config);
    // The model copies 32 GB/s in and 64 / 3 GB/s out.
    const std::int64_t gpus = dice.between(1, 4);  // of the group; some or all of them cross a link
    for (std::int64_t n = dice.between(0, 2); n > 0; --n) {
      const std::int64_t ways = dice.between(1, 3);
      const auto crossing = [&](bool crosses) { return crosses ? dice.between(1, gpus) : 0; };
      config.links.totals.push_back({1e9 * static_cast<double>(dice.between(4, 160)),
                                     {crossing(ways != 1), crossing(ways != 2), 0, 0, crossing(dice.chance(50))}});
    }
    for (std::int64_t n = dice.between(0, 2); n > 0; --n) {
      const SimTime from(dice.between(0, 20'000));
      const SimTime until = dice.chance(50) ? kNever : from + Duration(dice.between(1, 20'000));
      config.traffic.push_back({0.01 * static_cast<double>(dice.between(1, 100)), from, until});
    }
    const NaiveResult naive = oracle::run_naive(config);
    const FastRun fast = run_fast(config);
    expect_equal(naive, fast);
    expect_sound(config, fast);
    if (HasFatalFailure()) return;
    const WholeModel alone = WholeModel::of(policy());
    config.model = &alone;
    config.traffic.clear();
    config.links = {};
    slowed += last_end(run_fast(config)) < last_end(fast) ? 1 : 0;
  }
  EXPECT_EQ(slowed > 0, moves_state(policy()));
}

// A clock that falls under load, to the nanosecond.
TEST_P(EveryPolicy, ClockMatchesTheNaiveEngine) {
  std::int64_t slowed = 0;
  for (std::uint64_t seed = 1; seed <= random_cases(500); ++seed) {
    SCOPED_TRACE(GetParam() + " seed " + std::to_string(seed));
    oracle::Dice dice(seed);
    const WholeModel steady = WholeModel::of(policy());
    const WholeModel model = steady.with_clock({.share = 0.01 * static_cast<double>(dice.between(1, 99)),
                                                .slowdown = 1.0 + 0.01 * static_cast<double>(dice.between(1, 300)),
                                                .window = Duration(dice.between(10, 20'000))});
    Settings settings;
    NaiveConfig config;
    oracle::draw_case(seed, policy(), model, 1, settings, config);
    const NaiveResult naive = oracle::run_naive(config);
    const FastRun fast = run_fast(config);
    expect_equal(naive, fast);
    expect_sound(config, fast);
    if (HasFatalFailure()) return;
    config.model = &steady;
    slowed += last_end(run_fast(config)) < last_end(fast) ? 1 : 0;
  }
  // A guard that the clock is not without effect: simple-offload, bound by the CPU, slows in a fifth of the cases, and
  // policies whose experts take most of the time, which they state themselves, in a twentieth.
  EXPECT_GT(slowed, more_than(policy().places_experts ? 10 : 50));
}

TEST_P(EveryPolicy, FiguresAreThoseOfTheMeasuredSpan) {
  const WholeModel model = WholeModel::of(policy());
  std::int64_t observed = 0;
  for (std::uint64_t seed = 1; seed <= random_cases(500); ++seed) {
    SCOPED_TRACE(GetParam() + " seed " + std::to_string(seed));
    Settings settings;
    NaiveConfig config;
    oracle::draw_case(seed, policy(), model, 1, settings, config);
    const Duration warmup(static_cast<std::int64_t>(1 + seed * 97 % 20'000));
    config.measured_from = SimTime{} + warmup;
    const NaiveResult naive = oracle::run_naive(config);
    const FastRun fast = run_fast(config, warmup);
    expect_same_fairness(naive, fast);
    if (naive.last_completion > config.measured_from) expect_same_books(naive, fast.result.statistics.engine);
    if (HasFatalFailure()) return;
    observed += naive.service_observations;
  }
  EXPECT_GT(observed, more_than(0));
}

TEST_P(EveryPolicy, TwoRunsGiveTheSameRecords) {
  const WholeModel model = WholeModel::of(policy());
  for (std::uint64_t seed = 1; seed <= random_cases(200); ++seed) {
    Settings settings;
    NaiveConfig config;
    oracle::draw_case(seed, policy(), model, 1, settings, config);
    const FastRun a = run_fast(config);
    const FastRun b = run_fast(config);
    ASSERT_EQ(a.records, b.records);
  }
}

/// Times of experts in whole nanoseconds: a byte takes one, times `scale`, and arithmetic none.
void in_whole_nanoseconds(std::int64_t scale, NaiveConfig& config) {
  if (!config.deployment.experts) return;
  ExpertDeployment& experts = *config.deployment.experts;
  experts.gpu_bandwidth = experts.dram_peak = 1e9 / static_cast<double>(scale);
  experts.gpu_flops = 1e18;
  experts.cpu_flops = RateByRows({{1, 1e18}});
}

// If arrivals, costs, time-outs, horizon and durations in the settings are k times longer, every instant is k times
// later and nothing else changes.
TEST_P(EveryPolicy, ScalingTimeScalesTheRun) {
  constexpr std::int64_t kScale = 7;
  const WholeModel model = WholeModel::of(policy());
  const WholeModel slow = WholeModel::of(policy(), kScale);
  for (std::uint64_t seed = 1; seed <= random_cases(300); ++seed) {
    SCOPED_TRACE(seed);
    Settings settings;
    NaiveConfig config;
    // Rates that are shares of others would give times that do not scale exactly.
    const auto whole = [](oracle::Dice&, Settings& drawn) {
      for (const char* const key : {"policy.cpu_efficiency", "policy.pageable", "policy.uva_efficiency"}) {
        if (drawn.has(key)) drawn.set(key, 1.0);
      }
    };
    oracle::draw_case(seed, policy(), model, 1, settings, config, whole);
    in_whole_nanoseconds(1, config);
    const FastRun base = run_fast(config);
    Settings slow_settings;
    NaiveConfig slow_config;
    oracle::draw_case(seed, policy(), slow, kScale, slow_settings, slow_config, whole);
    in_whole_nanoseconds(kScale, slow_config);
    const FastRun scaled = run_fast(slow_config);
    ASSERT_EQ(base.records.size(), scaled.records.size());
    for (std::size_t i = 0; i < base.records.size(); ++i) {
      RequestRecord expected = base.records[i];
      const auto stretch = [](SimTime t) { return t == kNever ? t : SimTime(t.ns() * kScale); };
      expected.arrival = stretch(expected.arrival);
      expected.first_scheduled = stretch(expected.first_scheduled);
      expected.first_token = stretch(expected.first_token);
      expected.end = stretch(expected.end);
      expected.computing = expected.computing * kScale;
      ASSERT_EQ(text(expected), text(scaled.records[i]));
    }
  }
}

// The times of the other random cases are far below the grid of a record's SLOs. Here they are not, so the offloading
// interval changes from one iteration to the next, and so does the capacity for KV.
TEST(RecordedIntervals, MatchTheNaiveEngine) {
  constexpr std::int64_t kScale = 100'000;
  const PolicyInfo& policy = *PolicyRegistry::instance().find("select-n");
  const WholeModel model = WholeModel::of(policy, kScale);
  std::int64_t streamed = 0;
  std::int64_t at_risk = 0;
  std::int64_t grown = 0;
  for (std::uint64_t seed = 1; seed <= random_cases(3000); ++seed) {
    SCOPED_TRACE(seed);
    Settings settings;
    NaiveConfig config;
    oracle::draw_case(seed, policy, model, kScale, settings, config);
    if (settings.has("policy.interval")) continue;
    const NaiveResult naive = oracle::run_naive(config);
    const FastRun fast = run_fast(config);
    expect_equal(naive, fast);
    expect_sound(config, fast);
    if (HasFatalFailure()) return;
    const auto positive = [&](const char* name) {
      const Metric* found = fast.result.statistics.find(name);
      return found != nullptr && found->value.value_or(0.0) > 0.0 ? 1 : 0;
    };
    streamed += positive("mean_interval_layers");
    at_risk += positive("slo_risk_fraction");
    const auto& layers = fast.result.statistics.engine.layers;
    grown += layers && layers->peak_capacity > config.gpu_blocks ? 1 : 0;
  }
  EXPECT_GT(streamed, more_than(100));
  EXPECT_GT(at_risk, more_than(10));
  EXPECT_GT(grown, more_than(100));
}

/// `composed` with `scheduler` as its only one: random settings name no other.
PolicyInfo under(const PolicyInfo& composed, const std::string& scheduler) {
  PolicyInfo policy = composed;
  for (Parameter& parameter : policy.parameters) {
    if (parameter.name != kSchedulerKey) continue;
    parameter.default_value = scheduler;
    parameter.choices = {scheduler};
  }
  return policy;
}

// Layers stream under every scheduler that does not use the links itself.
TEST(StreamedWeights, MatchTheNaiveEngineUnderEveryScheduler) {
  std::int64_t combinations = 0;
  for (const char* const name : {"deepspeed", "select-n"}) {
    for (const PolicyInfo* const host : PolicyRegistry::instance().all()) {
      const PolicyInfo* const composed = PolicyRegistry::instance().find(name, host->name);
      if (composed == nullptr || !oracle::accepts_preemption(*host, "recompute")) continue;
      const PolicyInfo policy = under(*composed, host->name);
      const WholeModel model = WholeModel::of(policy);
      ++combinations;
      for (std::uint64_t seed = 1; seed <= random_cases(100); ++seed) {
        SCOPED_TRACE(std::string(name) + " over " + host->name + " seed " + std::to_string(seed));
        Settings settings;
        NaiveConfig config;
        oracle::draw_case(seed, policy, model, 1, settings, config);
        const NaiveResult naive = oracle::run_naive(config);
        const FastRun fast = run_fast(config);
        expect_equal(naive, fast);
        expect_sound(config, fast);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GE(combinations, 12);
}

/// What happened in the random runs of a combination.
struct Coverage {
  std::int64_t weights = 0;  // runs with weights on the host
  std::int64_t kv = 0;       // runs with KV slots on the host beside them
  std::int64_t grown = 0;    // runs in which the KV capacity grew beside them
  std::int64_t swapped = 0;
  std::int64_t from_host = 0;
};

/// Random cases of a policy whose weights another part streams. `scale`: nanoseconds in a unit of time.
void match_naive(const PolicyInfo& policy, std::uint64_t cases, std::int64_t scale, Coverage& seen,
                 const std::function<void(oracle::Dice&, Settings&)>& vary = {}) {
  const WholeModel model = WholeModel::of(policy, scale);
  for (std::uint64_t seed = 1; seed <= cases; ++seed) {
    SCOPED_TRACE(policy.name + " seed " + std::to_string(seed));
    Settings settings;
    NaiveConfig config;
    oracle::draw_case(seed, policy, model, scale, settings, config, vary);
    const NaiveResult naive = oracle::run_naive(config);
    const FastRun fast = run_fast(config);
    expect_equal(naive, fast);
    expect_sound(config, fast);
    if (testing::Test::HasFatalFailure()) return;
    const auto used = [&](const std::string& name) {
      const auto figure = naive.layers.find(name);
      return figure != naive.layers.end() && figure->second > 0.0;
    };
    const bool beside = policy.streams.kv;
    const std::string of_weights = beside ? "weights_" : "";
    const bool streamed = used(of_weights + "peak_host_layer_bytes");
    const bool placed = used(of_weights + "demanded_expert_bytes") || used(of_weights + "cpu_expert_bytes");
    if (!streamed && !placed) continue;
    ++seen.weights;
    seen.kv += beside && used("peak_host_layer_bytes") ? 1 : 0;
    seen.grown += beside && fast.result.statistics.engine.layers->peak_capacity > config.gpu_blocks ? 1 : 0;
    seen.swapped += naive.preempted_swap;
    seen.from_host += naive.prefix_hit_host.count();
  }
}

// The bytes that the links carry are checked at the end of every run (Instance::settle_links).
TEST(WeightsRole, MatchesTheNaiveEngineBesideEveryPolicy) {
  const PolicyRegistry& registry = PolicyRegistry::instance();
  std::int64_t combinations = 0;
  Coverage seen;
  for (const PolicyInfo* const weights : registry.weights()) {
    for (const PolicyInfo* const base : registry.all()) {
      if (base->streams.weights || base->cpu_attention) continue;
      SCOPED_TRACE("weights of " + weights->name);
      ++combinations;
      const PolicyInfo& composed = registry.with_weights(*base, weights->name);
      match_naive(under(composed, base->default_scheduler), random_cases(60), 1, seen);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GE(combinations, 16);
  EXPECT_GT(seen.weights, more_than(200));
  EXPECT_GT(seen.kv, more_than(10));
}

TEST(WeightsRole, MatchesTheNaiveEngineBesideKvSlotsUnderSeveralSchedulers) {
  const PolicyRegistry& registry = PolicyRegistry::instance();
  for (const PolicyInfo* const weights : registry.weights()) {
    Coverage seen;
    for (const char* const scheduler : {"vllm", "vllm-v0", "sarathi"}) {
      SCOPED_TRACE("weights of " + weights->name + " over " + scheduler);
      const PolicyInfo& composed = registry.with_weights(*registry.find("pie", scheduler), weights->name);
      // vLLM admits a request with its first piece, so an expansion that adapts may fall below what a request needs
      // again and again.
      const auto vary = [&](oracle::Dice& dice, Settings& settings) {
        if (scheduler == std::string("vllm")) settings.set("policy.expansion", dice.chance(50) ? 1.25 : 2.0);
      };
      match_naive(under(composed, scheduler), random_cases(100), 1, seen, vary);
      // Times above the grid of a record's SLOs: the interval follows the batch.
      match_naive(under(composed, scheduler), random_cases(30), 100'000, seen, vary);
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(seen.kv, more_than(50));
    EXPECT_GT(seen.grown, more_than(5));
    EXPECT_GT(seen.swapped, more_than(5));
    EXPECT_GT(seen.from_host, more_than(10));
  }
}

// policy=X policy.weights=Y is policy=Y policy.scheduler=X.
TEST(WeightsRole, AloneIsThePolicyOverTheScheduler) {
  const PolicyRegistry& registry = PolicyRegistry::instance();
  std::int64_t combinations = 0;
  for (const PolicyInfo* const weights : registry.weights()) {
    const PolicyInfo& raw = *registry.find(weights->name);
    for (const PolicyInfo* const base : registry.all()) {
      const PolicyInfo* const over = registry.find(weights->name, base->name);
      if (over == nullptr) continue;
      ++combinations;
      const PolicyInfo policy = registry.with_weights(*base, weights->name);
      const WholeModel model = WholeModel::of(policy, 1000);
      for (std::uint64_t seed = 1; seed <= random_cases(50); ++seed) {
        SCOPED_TRACE(weights->name + " beside " + base->name + " seed " + std::to_string(seed));
        Settings settings;
        NaiveConfig config;
        oracle::draw_case(seed, policy, model, 1000, settings, config);
        const FastRun beside = run_fast(config);
        Settings same = settings;
        for (std::size_t i = 0; i < weights->parameters.size(); ++i) {
          same.set(raw.parameters[i].name, settings.all().at(weights->parameters[i].name));
        }
        same.set(kSchedulerKey, base->name);
        config.policy = over;
        config.settings = &same;
        const Layout layout = over->layout(config.deployment, same);
        ASSERT_EQ(layout.blocks, config.gpu_blocks);
        ASSERT_EQ(layout.most, config.most_gpu_blocks);
        const FastRun alone = run_fast(config);
        ASSERT_EQ(beside.records, alone.records);
        const std::vector<Metric>& metrics = beside.result.statistics.metrics;
        ASSERT_EQ(metrics.size(), alone.result.statistics.metrics.size());
        for (const Metric& one : metrics) {
          const Metric* other = alone.result.statistics.find(one.name);
          ASSERT_NE(other, nullptr) << one.name;
          ASSERT_EQ(one.value, other->value) << one.name;
        }
      }
    }
  }
  EXPECT_GE(combinations, 14);
}

// No registered policy lets some decoding requests rest while others run.
TEST(RestingDecodes, MatchTheNaiveEngine) {
  const WholeModel model;
  const PolicyInfo policy = oracle::resting_policy();
  std::int64_t recomputed = 0;
  for (std::uint64_t seed = 1; seed <= random_cases(2000); ++seed) {
    SCOPED_TRACE(seed);
    Settings settings;
    NaiveConfig config;
    oracle::draw_case(seed, policy, model, 1, settings, config);
    const NaiveResult naive = oracle::run_naive(config);
    const FastRun fast = run_fast(config);
    expect_equal(naive, fast);
    expect_sound(config, fast);
    if (HasFatalFailure()) return;
    recomputed += naive.preempted_recompute;
  }
  EXPECT_GT(recomputed, more_than(0));
}

std::vector<std::string> names() {
  std::vector<std::string> list;
  for (const PolicyInfo* info : PolicyRegistry::instance().all()) list.push_back(info->name);
  return list;
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryPolicy, testing::ValuesIn(names()), [](const auto& param) {
  std::string name = param.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace spillway
