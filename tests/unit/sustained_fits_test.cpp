#include "hwmodels/calibration/sustained_fits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

namespace spillway::hwmodels {
namespace {

using testing::HasSubstr;

/// Time of a call, and watts, at the end of an interval.
struct Reading {
  double seconds = 0.0;
  double watts = 0.0;
};

/// Rows of a tenth of a second each.
void add_run(Measurements& in, bool gemm, double run_seconds, const std::function<Reading(double)>& at) {
  const auto count = static_cast<std::int64_t>(std::lround(run_seconds / 0.1));
  for (std::int64_t i = 1; i <= count; ++i) {
    const double end = 0.1 * static_cast<double>(i);
    const Reading now = at(end);
    in.sustained.push_back({gemm ? "gemm" : "attention",
                            gemm,
                            end,
                            1410,
                            now.watts,
                            now.seconds,
                            {0, static_cast<std::int64_t>(in.sustained.size())}});
  }
}

/// A GEMM of 1 ms at 900 W for half a second, then of 1.25 ms at 700 W; attention at 400 W.
Measurements measured(double run_seconds = 20.0) {
  Measurements in;
  in.files = {{"rows.json", std::string(64, 'a'), "measurements-json", 0, {}}};
  add_run(in, true, run_seconds, [](double end) {
    return end < 0.55 ? Reading{1e-3, 900.0} : Reading{1.25e-3, 700.0};
  });
  add_run(in, false, run_seconds, [](double) { return Reading{2e-3, 400.0}; });
  return in;
}

// The GEMM takes 1.25 times as long. Of the 500 W that it draws above attention, 300 W fit: a share of 0.6. The average
// of the governor, 1 - exp(-t / w), is 0.6 after 0.5 s for w = 0.5 / -ln 0.4 = 0.545678.
TEST(SustainedFit, Values_WhenTheGemmSlowsDown_ThenFollowFromTimePowerAndOnset) {
  const auto fit = fit_sustained(measured());
  ASSERT_TRUE(fit && fit->values);
  EXPECT_NEAR(fit->values->slowdown, 1.25, 1e-12);
  EXPECT_NEAR(fit->values->share, 0.6, 1e-12);
  EXPECT_NEAR(fit->values->window_seconds, 0.545678, 1e-6);
  EXPECT_FALSE(fit->stays);
  EXPECT_EQ(fit->why, "");
  EXPECT_EQ(fit->citation,
            "GEMM and attention of 20 s: 900 W at the full clock, 700 W after 0.5 s, attention 400 W: rows.json (400 "
            "rows, sha256 aaaaaaaaaaaa)");
}

// Sensors are read as an interval begins: the first one shows a GPU that was idle, the second one what the first one
// drew. The share is that of the case above; half of the way was gone after 0.1 s, so w = 0.1 / -ln 0.4 = 0.109136.
TEST(SustainedFit, FullPower_WhenOneIntervalIsFast_ThenIsReadAfterIt) {
  Measurements in = measured();
  in.sustained[0].power_w = 450.0;
  for (std::size_t i = 1; i < 5; ++i) in.sustained[i].seconds = 1.25e-3;
  for (std::size_t i = 2; i < 5; ++i) in.sustained[i].power_w = 700.0;
  const auto fit = fit_sustained(in);
  ASSERT_TRUE(fit && fit->values) << fit->why;
  EXPECT_NEAR(fit->values->share, 0.6, 1e-12);
  EXPECT_NEAR(fit->values->window_seconds, 0.109136, 1e-6);
}

// The order of the rows does not matter.
TEST(SustainedFit, Values_WhenRowsAreShuffled_ThenAreTheSame) {
  Measurements in = measured();
  std::reverse(in.sustained.begin(), in.sustained.end());
  EXPECT_NEAR(fit_sustained(in)->values->window_seconds, 0.545678, 1e-6);
}

TEST(SustainedFit, Nothing_WhenThereAreNoRows) { EXPECT_FALSE(fit_sustained({})); }

TEST(SustainedFit, Stays_WhenTheGemmKeepsItsRateWithinAPercent) {
  Measurements in = measured();
  for (SustainedRow& row : in.sustained) {
    if (row.seconds > 1e-3 && row.gemm) row.seconds = 1.009e-3;
  }
  const auto fit = fit_sustained(in);
  EXPECT_FALSE(fit->values);
  EXPECT_TRUE(fit->stays);
  EXPECT_EQ(fit->why, "the GEMM kept its rate for 20 s");
}

TEST(SustainedFit, Why_WhenTheRowsDoNotTell) {
  EXPECT_THAT(fit_sustained(measured(2.0))->why, HasSubstr("the GEMM ran for 2 s, and its clock needs 5 s"));
  Measurements in = measured();
  for (SustainedRow& row : in.sustained) {
    if (!row.gemm) row.power_w.reset();
  }
  EXPECT_THAT(fit_sustained(in)->why, HasSubstr("is missing"));
  // Slow from the first interval on but one: what it draws at the full clock was not seen.
  in = measured();
  in.sustained[0].power_w.reset();
  in.sustained[1].power_w.reset();
  for (std::size_t i = 1; i < 5; ++i) in.sustained[i].seconds = 1.25e-3;
  EXPECT_THAT(fit_sustained(in)->why, HasSubstr("is missing"));
  in = measured();
  for (SustainedRow& row : in.sustained) {
    if (row.gemm && row.end_seconds < 0.55) row.power_w = 705.0;
  }
  EXPECT_THAT(fit_sustained(in)->why, HasSubstr("the GEMM drew 705 W before it slowed down and 700 W after"));
  EXPECT_FALSE(fit_sustained(in)->stays);
  in = measured();
  in.sustained[0].seconds = 1.25e-3;  // at a low clock, as after other work; the second interval is fast
  EXPECT_EQ(fit_sustained(in)->why, "the GEMM was slow from its first interval on");
  // A limit of 700 W, and attention within 5% of it: 670 W, but not 660 W.
  in = measured();
  const auto attention = [&](double watts) {
    for (SustainedRow& row : in.sustained) {
      if (!row.gemm) row.power_w = watts;
    }
    return fit_sustained(in)->why;
  };
  EXPECT_THAT(attention(670.0),
              HasSubstr("the GEMM drew 900 W before it slowed down and 700 W after, the attention 670"));
  EXPECT_EQ(attention(660.0), "");
}

}  // namespace
}  // namespace spillway::hwmodels
