// A histogram of durations whose quantiles are off by at most 0.1%.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "sim/core/units.hpp"

namespace spillway {

/// Log-linear histogram of non-negative durations. It cuts each power of two into 512 equal buckets: a bucket is at
/// most 1/512 of its values wide, and its midpoint is within 1/1024 of each value. Below 512 ns it is exact. Merging
/// adds counts, so its order does not matter. 229 KB; O(1) to add, O(buckets) per quantile.
class QuantileSketch {
 public:
  static constexpr double kRelativeError = 0.001;

  QuantileSketch() : counts_(kBuckets) {}

  /// `weight` values of `duration` >= 0.
  void add(Duration duration, std::int64_t weight) {
    counts_[bucket(static_cast<std::uint64_t>(duration.count()))] += weight;
    count_ += weight;
  }
  void merge(const QuantileSketch& other) {
    for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
    count_ += other.count_;
  }
  [[nodiscard]] std::int64_t count() const { return count_; }

  /// The q-quantile in nanoseconds: linear interpolation at rank (count - 1) q, as for exact samples. Both neighbours
  /// are accurate to 0.1%. q in [0, 1], count > 0.
  [[nodiscard]] double quantile(double q) const {
    const double at = q * static_cast<double>(count_ - 1);
    const auto rank = static_cast<std::int64_t>(at);
    std::size_t i = 0;
    std::int64_t seen = counts_[0];
    while (seen <= rank) seen += counts_[++i];
    const double low = midpoint(i);
    if (rank + 1 >= count_) return low;
    while (seen <= rank + 1) seen += counts_[++i];
    return low + (midpoint(i) - low) * (at - static_cast<double>(rank));
  }

 private:
  static constexpr unsigned kSubBits = 9;
  static constexpr std::uint64_t kSub = 1U << kSubBits;
  static constexpr std::size_t kBuckets = (64 - kSubBits + 1) * kSub;

  /// Values below 512 are their own bucket; above, the exponent picks a run of 512 buckets and the top 9 bits below the
  /// leading one pick the bucket in it.
  static std::size_t bucket(std::uint64_t value) {
    if (value < kSub) return static_cast<std::size_t>(value);
    const auto shift = static_cast<unsigned>(std::bit_width(value)) - kSubBits - 1;
    return static_cast<std::size_t>((shift + 1) * kSub + ((value >> shift) - kSub));
  }
  static double midpoint(std::size_t index) {
    if (index < kSub) return static_cast<double>(index);
    const auto shift = static_cast<unsigned>(index / kSub - 1);
    const auto low = static_cast<double>((index % kSub + kSub) << shift);
    return low + 0.5 * (static_cast<double>(std::uint64_t{1} << shift) - 1.0);
  }

  std::vector<std::int64_t> counts_;
  std::int64_t count_ = 0;
};

}  // namespace spillway
