// Points: configurations that run independently. Each point has its own identity.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "sim/api/op_scales.hpp"
#include "sim/config/config.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/study/result.hpp"
#include "sim/study/result_store.hpp"
#include "sim/study/trust.hpp"

namespace spillway {

/// One configuration to run.
struct Point {
  std::vector<Assignment> assignments;  // override the defaults, as resolve_config expects
  OpScales scales{};                    // scales of the latency model's times
  /// Run it also with half and twice of experts.locality, if a policy places experts and the result can depend on it.
  bool other_localities = false;
};

/// The outcome of a point: its result, or the reason for a missing result.
struct PointOutcome {
  std::string id;       // empty when the configuration was invalid
  std::string json;     // the point's result.json; empty after a failure
  bool stored = false;  // true: taken from the store, not run
  // Read from `json`, for new and stored results alike.
  std::vector<Metric> metrics{};
  std::map<std::string, std::vector<Metric>> instances{};  // by name, the metrics of each element of `instances`
  std::vector<std::string> warnings{};
  std::string engine{};             // its profile: "vllm-0.23"
  std::string steadiness{};         // "steady", "saturated", "unsteady"; empty: not judged
  std::string steadiness_reason{};  // why, unless steady
  std::int64_t requests = 0;        // of each replication
  std::string resource{};           // bottleneck: load, kv_capacity, compute, ...
  std::string bottleneck{};         // the bottleneck as a sentence
  Trust trust{};
  std::optional<ExpertLocality> locality{};         // that the run assumed, if it is one
  std::string assumed_text{};                       // the same, also of instances that assume different ones
  std::optional<LocalityCheck> other_localities{};  // half and twice of it; empty: not asked for
  OutcomeCounts measured{};
  // Reason for a failure.
  ExitCode code = ExitCode::ok;
  bool broken_promise = false;  // with ExitCode::invariant: the policy broke its contract, not the simulator
  std::vector<Problem> problems{};

  [[nodiscard]] bool failed() const { return code != ExitCode::ok; }
  /// The metric of that name; null when there is none.
  [[nodiscard]] const Metric* find(std::string_view name) const;
  /// The value of the metric; empty when there is no value.
  [[nodiscard]] std::optional<double> value(std::string_view name) const;
  /// All problems in one line: "unknown key "x"; ...". Empty without a failure.
  [[nodiscard]] std::string error() const;
};

/// Reads an outcome from a result.json. Throws DataError, naming `where`, when the text is not a complete result.
[[nodiscard]] PointOutcome outcome_from_json(std::string text, const std::string& where);

/// The identity of a run: a hash of the resolved configuration, all input files, scales, version and build, and of
/// whether the result has other localities. Equal runs have equal ids. An id has 32 hexadecimal digits.
[[nodiscard]] std::string point_id(const ResolvedConfig& config, const std::vector<InputFile>& inputs,
                                   const OpScales& scales, bool other_localities = false);
/// Progress of a batch of points.
struct PointsProgress {
  std::int64_t points = 0;  // total
  std::int64_t done = 0;    // ended in any way
  std::int64_t failed = 0;
  std::int64_t stored = 0;         // part of `done` that came from the store without a run
  double fraction = 0.0;           // finished share of the work to run, by size; includes running points
  double simulated_seconds = 0.0;  // simulated time of the points that ran
};

/// Runs points on several threads. The results do not depend on the number of threads.
class PointRunner {
 public:
  struct Options {
    int jobs = 1;
    const ResultStore* store = nullptr;                        // source of stored results; receives new results
    const std::atomic<bool>* stop = nullptr;                   // when true: drop running points and start no others
    std::function<void(const PointsProgress&)> on_progress{};  // called from any thread, one call at a time
  };
  explicit PointRunner(Options options);

  /// Runs the points `order[0]`, `order[1]`, ..., started in that order; `point_at` makes each point. `sizes` gives the
  /// work of each point, in the same order and in any unit. `done` receives every outcome as the point ends, one call
  /// at a time, in any order. A failed point, even with an InvariantError, is an outcome too. An error of the store (a
  /// full disk) ends the batch: run throws it after the other threads have stopped. Returns false when stopped early.
  bool run(const std::vector<std::int64_t>& order, const std::vector<double>& sizes,
           const std::function<Point(std::int64_t)>& point_at,
           const std::function<void(std::int64_t, PointOutcome)>& done);
  /// Runs all points of a list, in its order. Points that did not run because of `stop` have code interrupted.
  [[nodiscard]] std::vector<PointOutcome> run(const std::vector<Point>& points);

 private:
  class Tally;
  class Batch;
  [[nodiscard]] PointOutcome run_point(const Point& point, int jobs, Tally& tally, std::size_t worker);
  [[nodiscard]] PointOutcome simulate_point(const Point& point, int jobs, Tally& tally, std::size_t worker);
  [[nodiscard]] std::vector<InputFile> inputs_of(const ResolvedConfig& config);

  Options options_;
  std::vector<Parameter> table_;
  std::mutex inputs_mutex_;
  std::map<std::vector<std::string>, std::vector<InputFile>> inputs_;  // by the texts of keys that name files
};

}  // namespace spillway
