// How far a key can be driven before an SLO breaks: a search per configuration, side by side.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/api/parameter.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/study/edge_search.hpp"
#include "sim/study/point_grid.hpp"
#include "sim/study/robustness.hpp"
#include "sim/study/trust.hpp"

namespace spillway {

/// One value that was tried.
struct TriedValue {
  double value = 0.0;  // in the unit in which the key's values are stored
  std::string text;    // as it was given
  std::string id{};    // of its result; empty when it could not be run
  bool holds = false;
  std::string reason{};          // why it does not hold: "p99_ttft_ms is 1034 +-20"
  std::optional<double> miss{};  // relative distance from the limit it misses by most; empty when it could not be run
  std::vector<Metric> metrics{};
  Trust trust{};
};

/// The search for one configuration.
struct FoundEdge {
  std::string label;                 // "policy=vllm"; empty when there is but one configuration
  std::vector<TriedValue> probes{};  // in the order in which they were tried
  std::optional<double> value{};     // the best that holds
  std::optional<double> beyond{};    // the nearest that does not; empty when it held up to the limit
  std::string noise{};               // what of the best value's figures might as well not hold; empty: nothing
  std::vector<std::optional<double>> perturbed{};  // best value, by perturbation
  /// The probe of `value`, or of `beyond`; null when there is none.
  [[nodiscard]] const TriedValue* probe(const std::optional<double>& at) const;
  /// The probe that misses its limits by the smallest share; null when none could be run.
  [[nodiscard]] const TriedValue* closest() const;
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

/// What a value must fulfil.
struct Criterion {
  std::vector<Condition> conditions;  // on the run
  bool single_requests = false;       // there are SLOs on single requests
  double attainment = 0.99;

  /// For people, one sentence each.
  [[nodiscard]] std::vector<std::string> texts() const;
  /// Why the outcome does not fulfil it; empty when it does.
  [[nodiscard]] std::string fault(const PointOutcome& outcome) const;
  /// By how much the outcome misses its worst limit, as a share of the limit; 1 for a metric without a value. Empty
  /// when the value could not be run.
  [[nodiscard]] std::optional<double> miss(const PointOutcome& outcome) const;
  /// Conditions whose limit lies within the interval of their metric; empty when there is none.
  [[nodiscard]] std::string noise(const std::vector<Metric>& metrics) const;
};

/// A search of `key` for every configuration of a grid, and again under every perturbation when the report asks for
/// them. Values that are next in all searches run side by side.
class Search {
 public:
  Search(PointGrid grid, Parameter key, Criterion criterion, SearchReport report, EdgeSearch::Settings settings,
         PointRunner& runner);

  /// Returns false when interrupted.
  bool run();

  [[nodiscard]] const SearchReport& report() const { return report_; }
  /// The outcome that explains why no configuration has a value; empty when one has, or when it is the SLO.
  [[nodiscard]] const std::optional<PointOutcome>& failure() const { return failure_; }

 private:
  /// One search that is under way.
  struct Running {
    std::size_t configuration = 0;
    std::optional<std::size_t> perturbation{};  // empty: the base search
    EdgeSearch search;
    bool ran = false;  // some value could be run
  };

  /// The same again from where the base search ended, in smaller steps.
  bool perturbed();
  /// Runs the next value of every search that has one, side by side, until none has.
  bool finish(std::vector<Running>& searches);
  [[nodiscard]] Point point(const Running& one) const;
  void take(Running& one, PointOutcome outcome);

  PointGrid grid_;
  Parameter key_;
  Criterion criterion_;
  SearchReport report_;
  EdgeSearch::Settings settings_;
  PointRunner& runner_;
  std::vector<OpScales> scales_;  // by perturbation
  std::optional<PointOutcome> failure_;
};

}  // namespace spillway
