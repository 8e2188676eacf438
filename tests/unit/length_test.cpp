#include "traces/length.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace spillway::traces {
namespace {

std::vector<Problem> problems_of_length(const std::string& text) {
  std::vector<Problem> problems;
  const auto length = parse_length(text, "workload.input_tokens", problems);
  EXPECT_EQ(length.has_value(), problems.empty()) << text;
  return problems;
}

TEST(Length, FixedIsAlwaysTheSame) {
  std::vector<Problem> problems;
  const auto length = parse_length(" 512 ", "workload.input_tokens", problems);
  ASSERT_TRUE(length.has_value());
  EXPECT_FALSE(length->random());
  RandomStream stream(1, 0, "x");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(length->sample(stream), Tokens(512));
  EXPECT_EQ(stream.next_u64(), RandomStream(1, 0, "x").next_u64()) << "a fixed length draws nothing";
}

TEST(Length, LognormalHasItsMeanAndVariation) {
  std::vector<Problem> problems;
  const auto length = parse_length("lognormal(512, 0.8)", "workload.input_tokens", problems);
  ASSERT_TRUE(length.has_value());
  EXPECT_TRUE(length->random());
  RandomStream stream(1, 0, "x");
  double sum = 0.0;
  double squares = 0.0;
  int below_median = 0;
  constexpr int kDraws = 400'000;
  for (int i = 0; i < kDraws; ++i) {
    const auto x = static_cast<double>(length->sample(stream).count());
    sum += x;
    squares += x * x;
    if (x < 400.0) ++below_median;
  }
  const double mean = sum / kDraws;
  const double deviation = std::sqrt(squares / kDraws - mean * mean);
  // Standard deviation of the mean: 0.8 * 512 / sqrt(400,000) = 0.65; four of them 2.6. The sample's variation is
  // itself heavy-tailed: 2% is ample. Median = mean / sqrt(1 + cv^2) = 512 / 1.2806 = 399.8, so half the whole numbers
  // are below 400, to four deviations of 316.
  EXPECT_NEAR(mean, 512.0, 2.6);
  EXPECT_NEAR(deviation / mean, 0.8, 0.016);
  EXPECT_NEAR(below_median, 0.5 * kDraws, 1265);
}

TEST(Length, LognormalStaysWithinItsBounds) {
  RandomStream stream(1, 0, "x");
  const LengthDistribution small = LengthDistribution::lognormal(1.0, 100.0);
  const LengthDistribution large = LengthDistribution::lognormal(16777216.0, 10.0);
  Tokens largest{};
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_GE(small.sample(stream), Tokens(1));
    const Tokens x = large.sample(stream);
    ASSERT_LE(x, Tokens(kMaxTokens));
    largest = std::max(largest, x);
  }
  EXPECT_EQ(largest, Tokens(kMaxTokens));
}

TEST(Length, WithoutVariationLognormalIsItsMean) {
  RandomStream stream(1, 0, "x");
  const LengthDistribution length = LengthDistribution::lognormal(512.0, 0.0);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(length.sample(stream), Tokens(512));
}

std::map<std::int64_t, int> counts_of(const LengthDistribution& length, int draws) {
  RandomStream stream(1, 0, "x");
  std::map<std::int64_t, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[length.sample(stream).count()];
  return counts;
}

TEST(Length, UniformTakesEveryLengthOfItsRangeAsOften) {
  std::vector<Problem> problems;
  const auto length = parse_length("uniform(200, 0.1)", "workload.input_tokens", problems);
  ASSERT_TRUE(length.has_value());
  EXPECT_TRUE(length->random());
  const auto counts = counts_of(*length, 410'000);
  ASSERT_EQ(counts.size(), 41U);
  EXPECT_EQ(counts.begin()->first, 180);
  EXPECT_EQ(counts.rbegin()->first, 220);
  // 10,000 each, deviation 99: five of them, as there are 41.
  for (const auto& [tokens, count] : counts) EXPECT_NEAR(count, 10'000, 494) << tokens;
}

TEST(Length, UniformHasWholeEnds) {
  const auto ends = [](std::int64_t middle, double spread) {
    const auto counts = counts_of(LengthDistribution::uniform(Tokens(middle), spread), 2000);
    return std::pair(counts.begin()->first, counts.rbegin()->first);
  };
  EXPECT_EQ(ends(5, 0.1), std::pair(std::int64_t{5}, std::int64_t{5}));
  EXPECT_EQ(ends(100, 0.29), std::pair(std::int64_t{71}, std::int64_t{129})) << "0.29 * 100 is just below 29";
  EXPECT_EQ(ends(3, 0.9999999999), std::pair(std::int64_t{1}, std::int64_t{5})) << "never 0 tokens";
  EXPECT_EQ(ends(200, 0.0), std::pair(std::int64_t{200}, std::int64_t{200}));
}

TEST(Length, WithASpreadANumberIsTheMiddle) {
  std::vector<Problem> problems;
  const auto length = parse_length("1000", "workload.input_tokens", problems, 0.1);
  ASSERT_TRUE(length.has_value());
  const auto counts = counts_of(*length, 20'000);
  EXPECT_EQ(counts.begin()->first, 900);
  EXPECT_EQ(counts.rbegin()->first, 1100);
  EXPECT_TRUE(problems.empty());
  EXPECT_FALSE(parse_length("8388609", "workload.input_tokens", problems, 0.1).has_value());
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].what, "8388609 tokens: a length is from 1 to 8388608 tokens");
}

TEST(Length, RefusesWhatIsNoLength) {
  const std::string fix =
      "use a whole number of tokens (512), uniform(MIDDLE,SPREAD), e.g. uniform(512,0.1), or lognormal(MEAN,CV), e.g. "
      "lognormal(512,0.8)";
  struct Case {
    std::string text;
    std::string what;
  };
  const std::vector<Case> cases{
      {"", "\"\" is not a length"},
      {"abc", "\"abc\" is not a length"},
      {"12.5", "\"12.5\" is not a length"},
      {"nan", "\"nan\" is not a length"},
      {"normal(5,1)", "\"normal(5,1)\" is not a length"},
      {"0", "0 tokens: a length is from 1 to 16777216 tokens"},
      {"-5", "-5 tokens: a length is from 1 to 16777216 tokens"},
      {"16777217", "16777217 tokens: a length is from 1 to 16777216 tokens"},
      {"lognormal(0.5,1)", "\"lognormal(0.5,1)\": MEAN must be a number from 1 to 16777216 tokens"},
      {"lognormal(nan,1)", "\"lognormal(nan,1)\": MEAN must be a number from 1 to 16777216 tokens"},
      {"lognormal(512)", "\"lognormal(512)\": CV (standard deviation over mean) must be a number from 0 to 100"},
      {"lognormal(512,-1)", "\"lognormal(512,-1)\": CV (standard deviation over mean) must be a number from 0 to 100"},
      {"uniform", "\"uniform\" is not a length"},
      {"uniform(0,0.1)", "\"uniform(0,0.1)\": MIDDLE must be a whole number from 1 to 8388608 tokens"},
      {"uniform(8388609,0.1)", "\"uniform(8388609,0.1)\": MIDDLE must be a whole number from 1 to 8388608 tokens"},
      {"uniform(200.5,0.1)", "\"uniform(200.5,0.1)\": MIDDLE must be a whole number from 1 to 8388608 tokens"},
      {"uniform(200)", "\"uniform(200)\": SPREAD must be a share of the middle, from 0 to below 1"},
      {"uniform(200,1)", "\"uniform(200,1)\": SPREAD must be a share of the middle, from 0 to below 1"},
      {"uniform(200,-0.1)", "\"uniform(200,-0.1)\": SPREAD must be a share of the middle, from 0 to below 1"},
      {"lognormal(5,1,2)", "\"lognormal(5,1,2)\": CV (standard deviation over mean) must be a number from 0 to 100"}};
  for (const Case& c : cases) {
    const auto problems = problems_of_length(c.text);
    ASSERT_EQ(problems.size(), 1U) << c.text;
    EXPECT_EQ(problems[0].what, c.what);
    EXPECT_EQ(problems[0].where, "workload.input_tokens");
    EXPECT_EQ(problems[0].fix, fix);
  }
  EXPECT_EQ(problems_of_length("lognormal(,)").size(), 2U) << "both arguments are wrong, and both are told";
}

}  // namespace
}  // namespace spillway::traces
