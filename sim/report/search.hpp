// What `search` found.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/metrics/metrics.hpp"
#include "sim/study/robustness.hpp"
#include "sim/study/trust.hpp"

namespace spillway {

/// One value that was tried.
struct Probe {
  double value = 0.0;  // in the unit in which the key's values are stored
  std::string text;    // as it was given
  std::string id{};    // of its result; empty when it could not be run
  bool holds = false;
  std::string reason{};  // why it does not hold: "p99_ttft_ms<1000 is not met (1034 +-20)"
  std::vector<Metric> metrics{};
  Trust trust{};
};

/// The search for one configuration.
struct FoundEdge {
  std::string label;               // "policy=vllm"; empty when there is but one configuration
  std::vector<Probe> probes{};     // in the order in which they were tried
  std::optional<double> value{};   // the best that holds
  std::optional<double> beyond{};  // the nearest that does not; empty when it held up to the limit
  std::string noise{};             // what of the best value's figures might as well not hold; empty: nothing
  std::vector<std::optional<double>> perturbed{};  // best value, by perturbation
  /// The probe of `value`, or of `beyond`; null when there is none.
  [[nodiscard]] const Probe* probe(const std::optional<double>& at) const;
};

struct SearchReport {
  std::string key;
  std::string unit;
  bool largest = true;
  double tolerance = 0.0;
  std::int64_t replications = 1;
  std::vector<std::string> conditions{};  // that must hold
  std::vector<std::string> metrics{};     // of the table
  std::vector<FoundEdge> edges{};
  std::optional<double> perturbation{};
  std::vector<std::string> perturbations{};  // labels

  /// Where the order of the configurations by what they reach first changes; values within the tolerance have no order.
  [[nodiscard]] std::optional<RankingFlip> flip() const;
};

[[nodiscard]] std::string to_search_table(const SearchReport& report);
[[nodiscard]] std::string to_search_json(const SearchReport& report);
/// A row per probe: configuration, value, holds, reason, and the table's metrics.
[[nodiscard]] std::string to_search_csv(const SearchReport& report);

}  // namespace spillway
