// The run sets of an experiment, simulated or replayed, in the form that expressions see.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/io/temporary_folder.hpp"
#include "sim/study/axes.hpp"
#include "sim/study/claim_script.hpp"
#include "sim/study/experiments.hpp"
#include "sim/study/points.hpp"

namespace spillway {

/// An input of a run set is missing: a file or a policy. The message names the input and the searched location.
class MissingInput : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A set-up of a run set is beyond its machine. The message has the arithmetic, and the point.
class Infeasible : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The user ended the command.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

/// The points of a run set.
struct RunSetPoints {
  std::vector<ScriptPoint> mean;                  // means over the replications
  std::vector<std::vector<ScriptPoint>> by_seed;  // one entry per replication; empty for one replication
};

struct RunSetOptions {
  bool quick = false;
  int jobs = 1;
  const std::atomic<bool>* stop = nullptr;
  std::function<void(const std::string& run_set, const PointsProgress&)> on_progress{};  // called from any thread
};

/// Runs the run sets of one experiment, each at most once for equal settings.
class RunSets {
 public:
  /// Throws DataError for unknown keys in any run set, so that such errors appear before the first run.
  RunSets(const LoadedExperiment& experiment, RunSetOptions options);

  [[nodiscard]] bool quick() const { return options_.quick; }

  /// The points of a run set; `script` contains the constants and the earlier run sets. Null when the run set still has
  /// to run and `may_run` is false. Throws MissingInput, Infeasible, NoValue when a setting has no value, Interrupted,
  /// DataError for invalid settings, and InvariantError when a simulation broke an invariant.
  [[nodiscard]] const RunSetPoints* points(const RunSet& run, ClaimScript& script, bool may_run);

  /// The folder of the experiment's files. Files of bundled experiments are written to a temporary folder.
  [[nodiscard]] std::string folder();

 private:
  /// Settings with one value, and an axis for each setting with several.
  struct Settings {
    std::vector<Assignment> shared;
    std::vector<Axis> axes;
    std::map<std::string, std::string> places;  // by key
  };
  void check_keys() const;
  /// The parameter for a key of a run set; null for an unknown key.
  [[nodiscard]] const Parameter* parameter_of(const RunSet& run, const std::string& key) const;
  /// Every point of the grid, with the values of its axes.
  [[nodiscard]] std::vector<ScriptPoint> grid_points(const RunSet& run, const Settings& settings) const;
  [[nodiscard]] static std::vector<Assignment> assignments_of(const ScriptPoint& point, const Settings& settings);
  [[nodiscard]] Settings settings_of(const RunSet& run, ClaimScript& script);
  void add_setting(const RunSet& run, const RunSetting& setting, ClaimScript& script, Settings& settings,
                   std::vector<Problem>& problems) const;
  void add_config(const RunSet& run, Settings& settings, std::vector<Problem>& problems) const;
  [[nodiscard]] std::vector<std::optional<std::string>> texts_of(const RunSet& run, const RunSetting& setting,
                                                                 ClaimScript& script,
                                                                 std::vector<Problem>& problems) const;
  [[nodiscard]] RunSetPoints simulate(const RunSet& run, const Settings& settings);
  [[nodiscard]] RunSetPoints compute(const RunSet& run, const Settings& settings);
  [[nodiscard]] RunSetPoints replay(const RunSet& run, const Settings& settings);
  [[nodiscard]] ScriptPoint axes_of(const RunSet& run, const Grid& grid, std::int64_t index) const;

  const LoadedExperiment& experiment_;
  RunSetOptions options_;
  std::vector<Parameter> table_;
  std::map<std::string, RunSetPoints> done_;  // by run set and settings
  std::unique_ptr<TemporaryFolder> temporary_;
};

}  // namespace spillway
