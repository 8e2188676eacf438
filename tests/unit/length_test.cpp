#include "traces/length.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
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
  EXPECT_NEAR(below_median, kDraws / 2, 1265);
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

TEST(Length, RefusesWhatIsNoLength) {
  const std::string fix = "use a whole number of tokens (512) or lognormal(MEAN,CV), e.g. lognormal(512,0.8)";
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
