// Comparing configurations that were run on the same traffic.
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

/// What the difference of a pair says.
enum class PairVerdict : std::uint8_t {
  better,       // the 95% interval of the difference lies on the better side of 0
  worse,        // on the other side
  different,    // it does not hold 0, and neither side is the better one
  noise,        // it holds 0
  same,         // there is no difference in any replication
  no_interval,  // there is a difference, but no two replications that differ: one run, or the same traffic in all
  no_value      // no replication in which both have a value
};
[[nodiscard]] std::string_view verdict_text(PairVerdict verdict);

/// One metric of two configurations under the same seeds, the difference taken replication by replication: what the
/// traffic does to both drops out.
struct PairedDifference {
  std::string metric;
  std::optional<double> base{};
  std::optional<double> value{};
  std::optional<double> difference{};  // value - base, mean over the replications in which both have a value
  std::optional<double> half_width{};  // 95% t-interval of the difference; empty for fewer than two of them
  std::optional<double> relative{};    // difference / base; empty for a base of 0
  std::int64_t n = 0;                  // replications in which both have a value
  PairVerdict verdict = PairVerdict::no_value;
};
/// `base` and `other` are the same metric of two runs with the same seeds and replications.
[[nodiscard]] PairedDifference paired_difference(const Metric& base, const Metric& other);

}  // namespace spillway
