// Searches the limit of a key: the last value that meets the SLOs. One search per configuration, in parallel.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/api/parameter.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/study/edge_search.hpp"
#include "sim/study/locality.hpp"
#include "sim/study/point_grid.hpp"
#include "sim/study/robustness.hpp"
#include "sim/study/trust.hpp"

namespace spillway {

/// One tried value.
struct TriedValue {
  double value = 0.0;         // in the unit in which the key is stored
  std::string text;           // as written
  std::string id{};           // ID of the result; empty when the value could not run
  std::int64_t requests = 0;  // of each replication that decided
  bool holds = false;
  std::string reason{};          // why the value fails: "p99_ttft_ms is 1034 +-20"
  std::optional<double> miss{};  // largest relative distance from a missed limit; empty when the value could not run
  std::vector<Metric> metrics{};
  Trust trust{};
};

/// What is found where sequences keep another share of their experts.
struct OtherLocalityEdge {
  double locality = 0.0;
  std::optional<double> value{};  // the best one, in the unit in which the key is stored
  std::string text{};             // as written
};

/// The search for one configuration.
struct FoundEdge {
  std::string label;                       // "policy=vllm"; empty for a single configuration
  std::vector<std::string> axis_values{};  // of SearchReport::axes
  std::vector<TriedValue> probes{};        // in the order of the trials
  std::optional<double> value{};           // the best value that meets the SLOs
  std::optional<double> beyond{};  // the nearest value that fails; empty when all values up to the limit meet the SLOs
  std::string noise{};             // figures of the best value whose interval includes the limit; empty: none
  std::vector<std::optional<double>> perturbed{};     // best value for each perturbation
  std::optional<ExpertLocality> locality{};           // that the runs assumed, if it is one
  std::vector<OtherLocalityEdge> other_localities{};  // half and twice of it; empty: not searched
  /// The probe of `value` or of `beyond`; null when there is no such probe.
  [[nodiscard]] const TriedValue* probe(const std::optional<double>& at) const;
  /// The probe that misses its limits by the smallest share; null when no value could run.
  [[nodiscard]] const TriedValue* closest() const;
};

struct SearchReport {
  std::string key;
  std::string unit;
  std::vector<std::string> axes{};  // keys with several values
  bool largest = true;
  double tolerance = 0.0;
  std::int64_t replications = 1;
  std::int64_t most_requests = 0;         // to which runs grew where they had to; 0: none did
  bool limit_reached = false;             // at which a value could not be told from one that is steady
  std::vector<std::string> conditions{};  // the SLOs
  std::vector<std::string> metrics{};     // columns of the table
  std::vector<FoundEdge> edges{};
  std::optional<double> perturbation{};
  std::vector<std::string> perturbations{};  // labels
  bool other_localities = false;             // searches again with half and twice of each assumed locality

  /// The first change of the configurations' order by best value. Values within the tolerance have no order.
  [[nodiscard]] std::optional<RankingFlip> flip() const;
};

/// The criterion for a value.
struct Criterion {
  std::vector<Condition> conditions;  // conditions on the run
  bool single_requests = false;       // true: the user set SLOs on single requests
  double attainment = 0.99;
  bool steady = true;  // a run that has not settled fails; false: only one that is saturated does

  /// The criterion in words, one sentence per condition.
  [[nodiscard]] std::vector<std::string> texts() const;
  /// A longer run may change what is said of the outcome: it was unsteady, or too close to a limit.
  [[nodiscard]] bool undecided(const PointOutcome& outcome) const;
  /// Why the outcome fails the criterion; empty when the outcome meets it.
  [[nodiscard]] std::string fault(const PointOutcome& outcome) const;
  /// The distance from the worst missed limit, as a share of the limit; 1 for a metric without a value. Empty when the
  /// value could not run.
  [[nodiscard]] std::optional<double> miss(const PointOutcome& outcome) const;
  /// Conditions whose limit lies within the interval of their metric; empty: none.
  [[nodiscard]] std::string noise(const std::vector<Metric>& metrics) const;
};

/// A search lengthens no run beyond so many requests, and iterations in the mean of its replications. The first bounds
/// the traffic. The second bounds the time that a value takes: where requests are few and long, 65,536 of them take
/// millions of iterations. Runs that are as long as the configuration says may be longer.
inline constexpr std::int64_t kLongestSearchRun = 65'536;
inline constexpr std::int64_t kMostSearchIterations = 300'000;

/// What a search runs next, in words: "policy.slots=9, 1920 requests; 10 meets the SLOs, 8 misses them".
using SearchProgress = std::function<void(const std::string& step)>;

/// A configuration whose edge is searched.
struct SearchedConfiguration {
  std::string label{};                     // "policy=vllm"; empty for a single configuration
  std::vector<std::string> axis_values{};  // as SearchReport::axes
  Point point{};                           // without the searched key
  std::optional<double> start{};           // empty: as the settings say
  std::optional<double> low{};             // likewise
};
/// All configurations of a grid.
[[nodiscard]] std::vector<SearchedConfiguration> configurations_of(const PointGrid& grid);

/// A search of `key` for every configuration, and under every perturbation if the report requests perturbations. The
/// next values of all searches run in parallel.
class Search {
 public:
  Search(std::vector<SearchedConfiguration> configurations, Parameter key, Criterion criterion, SearchReport report,
         EdgeSearch::Settings settings, PointRunner& runner, SearchProgress progress = {});

  /// Returns false when interrupted.
  bool run();

  [[nodiscard]] const SearchReport& report() const { return report_; }
  /// The outcome that explains why no configuration has a value. Empty when a configuration has a value, or when the
  /// SLO is the reason.
  [[nodiscard]] const std::optional<PointOutcome>& failure() const { return failure_; }

 private:
  /// A running search.
  struct Running {
    std::size_t configuration = 0;
    EdgeSearch search;
    std::optional<std::size_t> perturbation{};  // empty: times as they are
    std::optional<double> locality{};           // empty: as configured
    bool ran = false;                           // at least one value could run
    std::int64_t requests = 0;                  // of the runs at the next value; 0: as the configuration says
    std::int64_t before = 0;                    // requests of the run before at this value; 0: none
    std::int64_t first = 0;                     // requests of the first run
  };

  /// Repeats the searches under every perturbation, in smaller steps, starting at the result of the base search.
  bool perturbed();
  /// Repeats the searches with half and twice of the assumed locality, likewise.
  bool with_other_localities();
  /// Runs the next value of every open search in parallel until all searches end.
  bool finish(std::vector<Running>& searches);
  [[nodiscard]] Point point(const Running& one) const;
  /// The next values of these open searches, of `all`, as progress.
  [[nodiscard]] std::string step(const std::vector<Running*>& open, std::size_t all) const;
  void take(Running& one, PointOutcome outcome);
  /// Lengthens the runs at this value, unless that cannot help. Returns whether it did.
  bool lengthen(Running& one, const PointOutcome& outcome);

  std::vector<SearchedConfiguration> configurations_;
  Parameter key_;
  Criterion criterion_;
  SearchReport report_;
  EdgeSearch::Settings settings_;
  PointRunner& runner_;
  SearchProgress progress_;       // may be empty
  std::vector<OpScales> scales_;  // one entry per perturbation
  std::optional<PointOutcome> failure_;
};

}  // namespace spillway
