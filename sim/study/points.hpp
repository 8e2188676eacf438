// Points: configurations that are run independently of each other, each with an identity of its own.
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
  std::vector<Assignment> assignments;  // over the defaults, as resolve_config takes them
  OpScales scales{};                    // of the latency model's times
};

/// What came of a point: its result, or why there is none.
struct PointOutcome {
  std::string id;       // empty when the configuration could not be run at all
  std::string json;     // the point's result.json; empty when it failed
  bool stored = false;  // the store held it already: nothing was run
  // Read back from `json`, whether it was run now or long ago.
  std::vector<Metric> metrics{};
  std::vector<std::string> warnings{};
  std::string resource{};    // the bottleneck: one of load, kv_capacity, compute, ...
  std::string bottleneck{};  // and its sentence
  Trust trust{};
  OutcomeCounts measured{};
  // Why it failed.
  ExitCode code = ExitCode::ok;
  bool broken_promise = false;  // with ExitCode::invariant: by the policy, not by the simulator
  std::vector<Problem> problems{};

  [[nodiscard]] bool failed() const { return code != ExitCode::ok; }
  /// The metric of that name; null when there is none.
  [[nodiscard]] const Metric* find(std::string_view name) const;
  /// Its value; empty when there is none.
  [[nodiscard]] std::optional<double> value(std::string_view name) const;
  /// "unknown key "x"; ...": the problems in one line; empty when it did not fail.
  [[nodiscard]] std::string error() const;
};

/// Reads an outcome from a result.json. Throws DataError, naming `where`, when it is none that is complete.
[[nodiscard]] PointOutcome outcome_from_json(std::string text, const std::string& where);

/// What makes two runs the same: resolved configuration, hashes of all input files, scales, version and build. 32
/// hexadecimal digits.
[[nodiscard]] std::string point_id(const ResolvedConfig& config, const std::vector<InputFile>& inputs,
                                   const OpScales& scales);
/// How far a batch of points is.
struct PointsProgress {
  std::int64_t points = 0;  // all
  std::int64_t done = 0;    // of these, ended in any way
  std::int64_t failed = 0;
  std::int64_t stored = 0;         // of those done: not run, as the store held them
  double fraction = 0.0;           // of the work that is to be run, by size, those that are running included
  double simulated_seconds = 0.0;  // by what was run
};

/// Runs points on several threads. What is done is the same for any number of threads.
class PointRunner {
 public:
  struct Options {
    int jobs = 1;
    const ResultStore* store = nullptr;       // takes results over from here, and keeps new ones there
    const std::atomic<bool>* stop = nullptr;  // becomes true: what is running is dropped, nothing else begins
    std::function<void(const PointsProgress&)> on_progress{};  // from any thread, one at a time
  };
  explicit PointRunner(Options options);

  /// Runs the points `order[0]`, `order[1]`, ..., each made by `point_at`, begun in that order; `sizes` says, in the
  /// same order, how much work each is, in any unit. `done` gets every outcome as it ends, one at a time, in any order.
  /// A point that fails is an outcome too; an InvariantError is one of them. What the store says (a full disk) ends
  /// everything: it is thrown here once the other threads have stopped. Returns false when stopped early.
  bool run(const std::vector<std::int64_t>& order, const std::vector<double>& sizes,
           const std::function<Point(std::int64_t)>& point_at,
           const std::function<void(std::int64_t, PointOutcome)>& done);
  /// All of a list, in its order; outcomes of those that were not run for being stopped have code interrupted.
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
  std::map<std::vector<std::string>, std::vector<InputFile>> inputs_;  // by the texts of the keys that name files
};

}  // namespace spillway
