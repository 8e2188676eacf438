// Compares configurations on the same traffic.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/metrics/metrics.hpp"
#include "sim/study/robustness.hpp"

namespace spillway {

/// What the difference of a pair shows.
enum class PairVerdict : std::uint8_t {
  better,       // the 95% interval of the difference lies on the better side of 0
  worse,        // the interval lies on the worse side of 0
  different,    // the interval excludes 0, and neither direction of the metric is better
  noise,        // the interval includes 0
  same,         // no replication has a difference
  no_interval,  // runs differ, but no interval exists: one replication, or equal traffic in all
  no_value      // no replication in which both runs have a value
};
[[nodiscard]] std::string_view verdict_text(PairVerdict verdict);

/// One metric of two configurations under the same seeds. Differences per replication cancel the traffic's effect on
/// both.
struct PairedDifference {
  std::string metric;
  std::optional<double> base{};
  std::optional<double> value{};
  std::optional<double> difference{};  // value - base, mean over the replications in which both have a value
  std::optional<double> half_width{};  // 95% t-interval of the difference; empty for fewer than two replications
  std::optional<double> relative{};    // difference / base; empty if base is 0
  std::int64_t n = 0;                  // replications in which both have a value
  PairVerdict verdict = PairVerdict::no_value;
};
/// `base` and `other` are the same metric of two runs with equal seeds and replications.
[[nodiscard]] PairedDifference paired_difference(const Metric& base, const Metric& other);

}  // namespace spillway
