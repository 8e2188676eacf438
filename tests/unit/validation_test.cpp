#include "sim/report/validation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway {
namespace {

TEST(RelativeError, OfZeros) {
  EXPECT_DOUBLE_EQ(*relative_error(4.0, 5.0), 0.25);
  EXPECT_DOUBLE_EQ(*relative_error(0.0, 0.0), 0.0);
  EXPECT_FALSE(relative_error(0.0, 1.0));
}

TEST(Compare, LatenciesAndRequests) {
  Validation validation;
  // Simulated / measured - 1 of TTFT is 0.5, 0 and -0.25. The last request has one token and so no TPOT.
  validation.requests = {{"a", {10.0, 2.0, 50.0}, {15.0, 1.0, 50.0}},
                         {"b", {20.0, 4.0, 60.0}, {20.0, 4.0, 66.0}},
                         {"c", {40.0, {}, 40.0}, {30.0, {}, 30.0}}};
  compare(validation);
  ASSERT_EQ(validation.latencies.size(), 15U);
  const ComparedFigure& mean = validation.latencies[0];
  EXPECT_EQ(mean.name, "mean_ttft_ms");
  EXPECT_DOUBLE_EQ(mean.measured, 70.0 / 3.0);
  EXPECT_DOUBLE_EQ(mean.simulated, 65.0 / 3.0);
  EXPECT_NEAR(*mean.error, -1.0 / 14.0, 1e-12);
  // The p90 lies at rank 0.9 * 2 = 1.8. Measured (10, 20, 40): 20 + 0.8 * 20 = 36. Simulated (15, 20, 30): 28.
  const ComparedFigure& p90 = validation.latencies[2];
  EXPECT_EQ(p90.name, "p90_ttft_ms");
  EXPECT_DOUBLE_EQ(p90.measured, 36.0);
  EXPECT_DOUBLE_EQ(p90.simulated, 28.0);
  EXPECT_EQ(validation.latencies[5].name, "mean_tpot_ms");
  EXPECT_DOUBLE_EQ(validation.latencies[5].measured, 3.0);
  EXPECT_DOUBLE_EQ(validation.latencies[5].simulated, 2.5);

  ASSERT_EQ(validation.per_request.size(), 3U);
  const ErrorDistribution& ttft = validation.per_request[0];
  EXPECT_EQ(ttft.n, 3);
  EXPECT_DOUBLE_EQ(ttft.median, 0.25);  // of 0, 0.25, 0.5
  EXPECT_DOUBLE_EQ(ttft.p90, 0.45);     // at rank 1.8
  EXPECT_DOUBLE_EQ(ttft.largest, 0.5);
  EXPECT_EQ(ttft.worst, "a");
  EXPECT_DOUBLE_EQ(ttft.bias, 0.25 / 3.0);
  EXPECT_EQ(validation.per_request[1].n, 2);
  EXPECT_DOUBLE_EQ(validation.per_request[1].bias, -0.25);  // -0.5 and 0
}

TEST(Compare, LoadIsAveragedOverTime) {
  Validation validation;
  // Measured: 2 running for 1 s, then 5 for 3 s, which is (2 + 15) / 4. The last value covers no time.
  validation.measured_load = {{0.0, 2.0, 0.0, 0.5}, {1.0, 5.0, 0.0, 0.5}, {4.0, 9.0, 0.0, 0.5}};
  validation.simulated_load = {{0.0, 4.0, 0.0, {}}, {2.0, 0.0, 0.0, {}}};
  compare(validation);
  ASSERT_EQ(validation.load.size(), 4U) << "KV is not known on both sides";
  EXPECT_EQ(validation.load[0].name, "mean_running_requests");
  EXPECT_DOUBLE_EQ(validation.load[0].measured, 17.0 / 4.0);
  EXPECT_DOUBLE_EQ(validation.load[0].simulated, 4.0);
  EXPECT_EQ(validation.load[1].name, "peak_running_requests");
  EXPECT_DOUBLE_EQ(validation.load[1].measured, 9.0);
  EXPECT_DOUBLE_EQ(*validation.load[2].error, 0.0) << "nothing waits on either side";
}

TEST(Compare, NothingToCompare) {
  Validation validation;
  compare(validation);
  EXPECT_TRUE(validation.latencies.empty());
  EXPECT_TRUE(validation.per_request.empty());
  EXPECT_TRUE(validation.load.empty());
}

TEST(LoadFromSpans, AtWholeSeconds) {
  // The requests are queued at 0, 0.5 and 1, scheduled at 0, 1.5 and 2, and end at 1, 2.5 and 2.2.
  const std::vector<RequestSpan> spans{{0.0, 0.0, 1.0}, {0.5, 1.5, 2.5}, {1.0, 2.0, 2.2}};
  const std::vector<LoadPoint> expected{
      {0.0, 1.0, 0.0, {}}, {1.0, 0.0, 2.0, {}}, {2.0, 2.0, 0.0, {}}, {3.0, 0.0, 0.0, {}}};
  EXPECT_EQ(load_from_spans(spans), expected);
  EXPECT_TRUE(load_from_spans({}).empty());
}

TEST(LoadFromSpans, LongRuns_StayWithinTheMostPoints) {
  // 250,000 s give points 3 s apart. The last point lies after the end.
  const std::vector<LoadPoint> points = load_from_spans(std::vector<RequestSpan>{{0.0, 100.0, 250'000.0}});
  EXPECT_EQ(points.size(), 83'335U);
  EXPECT_DOUBLE_EQ(points[1].seconds, 3.0);
  EXPECT_DOUBLE_EQ(points.back().running, 0.0);
}

}  // namespace
}  // namespace spillway
