// Every policy against its plain model, on random workloads: the policy in the engine, the model in the naive engine.
// Neither the engines nor the policies share code, so a wrong line in either shows up.
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <stdexcept>

#include "tests/models/decision_log.hpp"
#include "tests/models/plain_policy.hpp"
#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/naive_engine.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using oracle::DecisionLog;
using oracle::FastRun;
using oracle::NaiveConfig;
using oracle::NaiveResult;
using oracle::PlainPolicy;

/// One random case, run by both.
struct Pair {
  Settings settings;
  NaiveConfig config;
  NaiveResult plain;
  FastRun real;
  DecisionLog plain_log;
  DecisionLog real_log;
  std::string failure;  // of a run that threw
};

/// The layout that policy and model agree on; throws what they throw when both refuse.
Layout agreed(const PolicyInfo& policy, const PlainPolicy& model, const Deployment& deployment,
              const Settings& settings, Settings& chosen_by_the_policy) {
  const auto ask = [&](const auto& layout, std::exception_ptr& refusal) {
    Layout answer;
    try {
      answer = layout(deployment, settings);
    } catch (const ConfigError&) {
      refusal = std::current_exception();
    }
    return answer;
  };
  std::exception_ptr real_refusal;
  std::exception_ptr plain_refusal;
  const Layout real = ask(policy.layout, real_refusal);
  Layout plain = ask(model.layout, plain_refusal);
  if (real_refusal && plain_refusal) std::rethrow_exception(plain_refusal);
  if (bool(real_refusal) != bool(plain_refusal)) {
    throw std::logic_error(std::string("only the ") + (real_refusal ? "policy" : "model") + " refuses the layout");
  }
  const auto figures = [](const Layout& layout) {
    return std::to_string(layout.blocks.count()) + " blocks, at most " + std::to_string(layout.most.count()) + ", " +
           std::to_string(layout.host.count()) + " bytes on the host";
  };
  if (figures(real) != figures(plain)) {
    throw std::logic_error("layouts differ: plain " + figures(plain) + "; real " + figures(real));
  }
  chosen_by_the_policy = real.chosen;
  return plain;
}

void run_pair(std::uint64_t seed, const PolicyInfo& policy, const PlainPolicy& model, bool verbose, Pair& pair) {
  const oracle::WholeModel times = oracle::WholeModel::of(policy);
  PolicyInfo real = oracle::logged(policy, policy.make, pair.real_log);
  PolicyInfo plain = oracle::logged(policy, model.make, pair.plain_log);
  Settings chosen;
  if (model.layout) {
    plain.layout = [&](const Deployment& deployment, const Settings& settings) {
      return agreed(policy, model, deployment, settings, chosen);
    };
  }
  pair.real_log.verbose = pair.plain_log.verbose = verbose;
  try {
    oracle::draw_case(seed, plain, times, 1, pair.settings, pair.config, model.vary);
    pair.failure = "the plain model: ";
    pair.plain = oracle::run_naive(pair.config);
    pair.failure = "the policy: ";
    if (model.layout) pair.config.deployment.chosen = chosen;
    pair.config.policy = &real;
    pair.real = oracle::run_fast(pair.config);
    pair.failure.clear();
  } catch (const std::exception& error) {
    pair.failure += error.what();
  }
}

/// The first record of two runs that differs; records are named by their request's place in the workload.
std::string first_difference(const std::vector<RequestRecord>& plain, const std::vector<RequestRecord>& real) {
  const auto sorted = [](std::vector<RequestRecord> records) {
    std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
    return records;
  };
  const std::vector<RequestRecord> left = sorted(plain);
  const std::vector<RequestRecord> right = sorted(real);
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (oracle::text(left[i]) == oracle::text(right[i])) continue;
    return "first differing record\n  plain " + oracle::text(left[i]) + "\n  real  " + oracle::text(right[i]);
  }
  return left.size() == right.size() ? "" : "numbers of records differ";
}

/// What differs between the two runs; empty: nothing.
std::string difference(const Pair& pair, const PlainPolicy& model) {
  if (!pair.failure.empty()) return pair.failure;
  std::string text = first_difference(pair.plain.records, pair.real.records);
  const EngineTotals& totals = pair.real.result.statistics.engine;
  const auto compare = [&](const char* what, std::int64_t plain, std::int64_t real) {
    if (plain == real) return;
    text += std::string("\n") + what + ": plain " + std::to_string(plain) + ", real " + std::to_string(real);
  };
  compare("iterations", pair.plain.iterations, totals.iterations);
  compare("bytes moved in", pair.plain.moved_h2d.count(), totals.moved_h2d.count());
  compare("bytes moved out", pair.plain.moved_d2h.count(), totals.moved_d2h.count());
  compare("tokens hit", pair.plain.prefix_hit.count(), totals.prefix_hit.count());
  compare("preempted to recompute", pair.plain.preempted_recompute, totals.preempted_recompute);
  compare("preempted to swap", pair.plain.preempted_swap, totals.preempted_swap);
  if (model.explains_waiting && pair.plain_log.waiting != pair.real_log.waiting) text += "\nreasons to wait differ";
  return text;
}

/// The last decisions before two runs part.
std::string first_decisions_apart(std::uint64_t seed, const PolicyInfo& policy, const PlainPolicy& model) {
  Pair pair;
  run_pair(seed, policy, model, /*verbose=*/true, pair);
  using Steps = std::vector<std::string>;
  const std::vector<Steps>& plain = pair.plain_log.steps;
  const std::vector<Steps>& real = pair.real_log.steps;
  // In which order a decision is staged says nothing.
  const auto alike = [](Steps a, Steps b) {
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    return a == b;
  };
  std::size_t i = 0;
  while (i < std::min(plain.size(), real.size()) && alike(plain[i], real[i])) ++i;
  std::string text = "decisions part here";
  const auto show = [&](const char* whose, const std::vector<Steps>& decisions, std::size_t at) {
    if (at >= decisions.size()) return;
    text += whose;
    for (const std::string& step : decisions[at]) text += step + "; ";
  };
  for (std::size_t j = i < 3 ? 0 : i - 3; j < i; ++j) show("\n  both  ", real, j);
  show("\n  plain ", plain, i);
  show("\n  real  ", real, i);
  text += "\nsettings:";
  for (const auto& [key, value] : pair.settings.all()) {
    text += " " + key + "=";
    std::visit(
        [&](const auto& v) {
          using Held = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<Held, std::string>) text += v;
          if constexpr (std::is_arithmetic_v<Held>) text += std::to_string(v);
        },
        value);
  }
  return text;
}

class PlainModel : public testing::TestWithParam<std::string> {};

constexpr std::uint64_t kCases = random_cases(5000);

TEST_P(PlainModel, DecidesAsThePolicy) {
  const PolicyInfo& policy = *PolicyRegistry::instance().find(GetParam());
  const PlainPolicy& model = *oracle::find_plain(GetParam());
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    Pair pair;
    run_pair(seed, policy, model, /*verbose=*/false, pair);
    const std::string differs = difference(pair, model);
    ASSERT_TRUE(differs.empty()) << GetParam() << " seed " << seed << ": " << differs << "\n"
                                 << first_decisions_apart(seed, policy, model);
  }
}

INSTANTIATE_TEST_SUITE_P(Plain, PlainModel, testing::ValuesIn(oracle::plain_names()), [](const auto& param) {
  std::string name = param.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(PlainModels, EveryPolicyHasOne) {
  for (const char* const name : {"vllm", "vllm-v0", "sarathi", "orca", "tensorrt-llm", "swiftllm", "vtc", "pie",
                                 "select-n", "deepspeed", "flexgen", "pensieve"}) {
    EXPECT_NE(oracle::find_plain(name), nullptr) << name << " has no plain model in tests/models";
  }
}

}  // namespace
}  // namespace spillway
