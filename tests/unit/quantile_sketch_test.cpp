// The sketch is within 0.1% over its whole range, and merging equals adding.
#include "sim/core/quantile_sketch.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace spillway {
namespace {

double relative_error(double got, std::int64_t truth) {
  return std::abs(got - static_cast<double>(truth)) / static_cast<double>(truth);
}

TEST(QuantileSketch, SingleValue_OverTheWholeRange_IsWithinItsBound) {
  // Visits 1 ns .. 2^62 ns in steps of 0.7%, which is not a multiple of the bucket width of 0.1-0.2%.
  for (double x = 1.0; x < 4.6e18; x *= 1.007) {
    const auto value = static_cast<std::int64_t>(x);
    QuantileSketch sketch;
    sketch.add(Duration(value), 1);
    EXPECT_LE(relative_error(sketch.quantile(0.5), value), QuantileSketch::kRelativeError) << value;
  }
}

TEST(QuantileSketch, BucketEdges_AtEveryPowerOfTwo_AreWithinTheBound) {
  for (int bit = 0; bit < 62; ++bit) {
    const std::int64_t power = std::int64_t{1} << bit;
    for (const std::int64_t value : {power - 1, power, power + 1}) {
      if (value == 0) continue;
      QuantileSketch sketch;
      sketch.add(Duration(value), 3);
      EXPECT_LE(relative_error(sketch.quantile(1.0), value), QuantileSketch::kRelativeError) << value;
    }
  }
}

TEST(QuantileSketch, ValuesBelow1024_AreExact) {
  // Buckets are one nanosecond wide up to 2 * 512.
  for (std::int64_t value = 0; value < 1024; ++value) {
    QuantileSketch sketch;
    sketch.add(Duration(value), 1);
    EXPECT_EQ(sketch.quantile(0.0), static_cast<double>(value));
  }
}

TEST(QuantileSketch, LargestDuration_HasABucket) {
  QuantileSketch sketch;
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  sketch.add(Duration(largest), 1);
  EXPECT_LE(relative_error(sketch.quantile(0.99), largest), QuantileSketch::kRelativeError);
}

TEST(QuantileSketch, Quantile_BetweenTwoValues_InterpolatesAsNumpy) {
  // numpy.quantile([100, 200], 0.25) = 100 + 0.25 * 100.
  QuantileSketch sketch;
  sketch.add(Duration(100), 1);
  sketch.add(Duration(200), 1);
  EXPECT_DOUBLE_EQ(sketch.quantile(0.0), 100.0);
  EXPECT_DOUBLE_EQ(sketch.quantile(0.25), 125.0);
  EXPECT_DOUBLE_EQ(sketch.quantile(1.0), 200.0);
}

TEST(QuantileSketch, Weight_CountsAsSoManyValues) {
  // 100 three times and 200 once: rank 3 * 0.5 = 1.5 lies between two 100s; rank 3 * 0.9 = 2.7 is 100 + 0.7 * 100.
  QuantileSketch sketch;
  sketch.add(Duration(100), 3);
  sketch.add(Duration(200), 1);
  EXPECT_EQ(sketch.count(), 4);
  EXPECT_DOUBLE_EQ(sketch.quantile(0.5), 100.0);
  EXPECT_DOUBLE_EQ(sketch.quantile(0.9), 170.0);
}

TEST(QuantileSketch, UniformSample_QuantilesAreWithinTheBound) {
  // 1..100000 us, each once: the q-quantile is (1 + 99999 q) us.
  QuantileSketch sketch;
  for (std::int64_t i = 1; i <= 100'000; ++i) sketch.add(Duration(i * 1000), 1);
  for (const double q : {0.0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const double truth = (1.0 + 99'999.0 * q) * 1000.0;
    EXPECT_NEAR(sketch.quantile(q) / truth, 1.0, QuantileSketch::kRelativeError) << q;
  }
}

TEST(QuantileSketch, Merge_EqualsAddingEverythingToOne) {
  QuantileSketch all;
  QuantileSketch even;
  QuantileSketch odd;
  std::int64_t value = 1;
  for (int i = 0; i < 2000; ++i) {
    value = (value * 48271) % 2'147'483'647;  // a fixed scatter over nine decades
    const Duration duration(value);
    all.add(duration, 1 + i % 3);
    (i % 2 == 0 ? even : odd).add(duration, 1 + i % 3);
  }
  QuantileSketch merged = odd;
  merged.merge(even);
  even.merge(odd);
  EXPECT_EQ(merged.count(), all.count());
  for (int percent = 0; percent <= 100; ++percent) {
    const double q = static_cast<double>(percent) / 100.0;
    EXPECT_EQ(merged.quantile(q), all.quantile(q));
    EXPECT_EQ(even.quantile(q), all.quantile(q));
  }
}

}  // namespace
}  // namespace spillway
