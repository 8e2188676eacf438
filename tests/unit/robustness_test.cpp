// Perturbed runs: their list, their effects, and flips of a ranking, from numbers made by hand.
#include "sim/study/robustness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;

std::vector<double> factors(const OpScales& scales) {
  return {scales.gemm, scales.attention, scales.copies, scales.host, scales.cpu};
}

TEST(Perturbations, AreEachClassAloneAndEveryPairInOppositeDirections) {
  const std::vector<Perturbation> all = perturbations(0.05);
  ASSERT_EQ(all.size(), 30U);
  EXPECT_EQ(all[0].label, "GEMM +5%");
  EXPECT_THAT(factors(all[0].scales), ElementsAre(1.05, 1, 1, 1, 1));
  EXPECT_EQ(all[1].label, "GEMM -5%");
  EXPECT_THAT(factors(all[1].scales), ElementsAre(0.95, 1, 1, 1, 1));
  EXPECT_EQ(all[8].label, "CPU +5%");
  EXPECT_THAT(factors(all[8].scales), ElementsAre(1, 1, 1, 1, 1.05));
  EXPECT_EQ(all[10].label, "GEMM +5%, attention -5%");
  EXPECT_THAT(factors(all[10].scales), ElementsAre(1.05, 0.95, 1, 1, 1));
  EXPECT_EQ(all[11].label, "GEMM -5%, attention +5%");
  EXPECT_EQ(all[29].label, "host -5%, CPU +5%");
  EXPECT_THAT(factors(all[29].scales), ElementsAre(1, 1, 1, 0.95, 1.05));
  std::set<std::vector<double>> different;
  for (const Perturbation& one : all) different.insert(factors(one.scales));
  EXPECT_EQ(different.size(), 30U);
  EXPECT_EQ(perturbations(0.125)[3].label, "attention -12.5%");
  EXPECT_EQ(perturbations(0.15)[0].scales.gemm, 1.15);
}

RunStatistics run(std::optional<double> ttft, std::optional<double> tpot, double throughput) {
  RunStatistics statistics;
  statistics.metrics = {{"mean_ttft_ms", "ms", ttft},
                        {"mean_tpot_ms", "ms", tpot},
                        {"p99_itl_ms", "ms", 0.0},
                        {"request_throughput_per_s", "requests/s", throughput}};
  return statistics;
}

// 100 -> 110 is +10%, 4 -> 3 is -25%; p99_ttft_ms is in neither run, p99_itl_ms is 0 in both.
TEST(PerturbedMetrics, AreValuesAndChanges) {
  const std::vector<PerturbedMetric> metrics = perturbed_metrics(run(100.0, 4.0, 2.0), run(110.0, 3.0, 2.0));
  ASSERT_EQ(metrics.size(), 5U);
  for (std::size_t i = 0; i < metrics.size(); ++i) EXPECT_EQ(metrics[i].name, kComparedMetrics[i]);
  EXPECT_EQ(metrics[0].value, 110.0);
  EXPECT_NEAR(metrics[0].change.value(), 0.1, 1e-12);
  EXPECT_EQ(metrics[1].change, -0.25);
  EXPECT_FALSE(metrics[2].value.has_value());
  EXPECT_FALSE(metrics[2].change.has_value());
  EXPECT_EQ(metrics[3].change, 0.0);
  EXPECT_EQ(metrics[4].change, 0.0);
}

TEST(PerturbedMetrics, WithoutABaseHaveNoChange) {
  EXPECT_FALSE(perturbed_metrics(run(std::nullopt, 0.0, 1.0), run(5.0, 1.0, 1.0))[0].change.has_value());
  EXPECT_FALSE(perturbed_metrics(run(5.0, 0.0, 1.0), run(5.0, 1.0, 1.0))[1].change.has_value());
  EXPECT_FALSE(perturbed_metrics(run(5.0, 0.0, 1.0), run(std::nullopt, 1.0, 1.0))[0].change.has_value());
}

TEST(LargestChange, IsTheFirstOfTheLargestInSize) {
  Robustness robustness{0.05, {}};
  EXPECT_FALSE(largest_change(robustness).has_value());
  const auto add = [&](std::optional<double> a, std::optional<double> b) {
    robustness.runs.emplace_back().metrics = {{"a", 1.0, a}, {"b", 1.0, b}};
  };
  add(std::nullopt, std::nullopt);
  EXPECT_FALSE(largest_change(robustness).has_value());
  add(0.01, -0.02);
  add(0.04, -0.04);
  add(-0.04, 0.03);
  const LargestChange largest = largest_change(robustness).value();
  EXPECT_EQ(largest.run, 2U);
  EXPECT_EQ(largest.metric, 0U);
  EXPECT_EQ(largest.change, 0.04);
  add(std::nullopt, -0.05);
  EXPECT_EQ(largest_change(robustness).value().run, 4U);
  EXPECT_EQ(largest_change(robustness).value().change, -0.05);
}

// Policies 0 and 1 have 10 and 12, policy 2 has 11.
TEST(FirstFlip, NamesThePerturbationAndThePair) {
  const auto with = [](std::optional<double> first, std::optional<double> second, std::optional<double> third) {
    return std::vector<PolicyFigures>{{10.0, {10.5, first}}, {12.0, {12.5, second}}, {11.0, {11.5, third}}};
  };
  const auto flip = [&](const std::vector<PolicyFigures>& policies) { return first_flip(policies, Better::smaller); };
  EXPECT_EQ(flip(with(10.0, 12.0, 11.0)), std::nullopt);
  // The second perturbation: 1 overtakes 2, which was better.
  EXPECT_EQ(flip(with(10.0, 10.9, 11.0)), (RankingFlip{1, 2, 1}));
  // 1 overtakes both: the pair (0, 1) comes before (1, 2).
  EXPECT_EQ(flip(with(10.0, 9.0, 11.0)), (RankingFlip{1, 0, 1}));
  EXPECT_EQ(flip(with(10.0, 11.0, 11.0)), std::nullopt) << "a tie is no flip";
  EXPECT_EQ(flip(with(10.0, std::nullopt, 11.0)), std::nullopt) << "without a value there is no rank";
  // For a metric where more is better, the base order is 1, 2, 0.
  EXPECT_EQ(first_flip(with(10.0, 12.0, 12.5), Better::larger), (RankingFlip{1, 1, 2}));
}

TEST(FirstFlip, WhenTheBaseTies_ThenNothingFlips) {
  const std::vector<PolicyFigures> tied{{10.0, {1.0, 2.0}}, {10.0, {2.0, 1.0}}};
  EXPECT_EQ(first_flip(tied, Better::smaller), std::nullopt);
}

TEST(FirstFlip, IsTheFirstInTheListOfPerturbations) {
  const std::vector<PolicyFigures> policies{{1.0, {1.0, 1.0, 3.0, 4.0}}, {2.0, {2.0, 1.0, 2.0, 2.0}}};
  EXPECT_EQ(first_flip(policies, Better::smaller), (RankingFlip{2, 0, 1}));
}

TEST(FirstFlip, OfOnePolicyOrNone_IsNone) {
  EXPECT_EQ(first_flip({}, Better::smaller), std::nullopt);
  EXPECT_EQ(first_flip(std::vector<PolicyFigures>{{1.0, {2.0}}}, Better::smaller), std::nullopt);
  const std::vector<PolicyFigures> unequal{{1.0, {2.0}}, {1.0, {}}};
  EXPECT_THROW(static_cast<void>(first_flip(unequal, Better::smaller)), InvariantError);
}

}  // namespace
}  // namespace spillway
