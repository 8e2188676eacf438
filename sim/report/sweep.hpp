// The figures of many configurations beside each other, and their writers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/metrics/metrics.hpp"
#include "sim/study/axes.hpp"
#include "sim/study/trust.hpp"

namespace spillway {

struct SweepFigure {
  std::optional<double> value{};
  std::optional<double> half_width{};
};

/// One point of a grid, or why it has no figures.
struct SweepRow {
  std::int64_t point = 0;                                   // from 0, in the order of the grid
  std::vector<std::string> values{};                        // by key
  std::string id{};                                         // names its file; empty when it failed
  std::string sha256{};                                     // of that file
  std::vector<SweepFigure> figures{};                       // by name
  std::shared_ptr<const std::vector<std::string>> names{};  // of its metrics; rows that have the same share them
  std::string bottleneck{};                                 // load, kv_capacity, compute, ...
  std::vector<std::string> warnings{};
  Trust trust{};
  std::string error{};  // empty: it did not fail
};

/// A sweep, or one machine's part of it.
struct Sweep {
  std::string tool_version;
  std::string tool_build;
  std::string definition;  // hash of axes and shared settings: parts of one sweep have the same
  std::vector<Axis> axes;
  std::optional<Shard> shard{};     // empty: all of it
  std::int64_t points = 0;          // of the whole sweep
  std::vector<std::string> keys{};  // of the axes, one by one
  std::vector<SweepRow> rows{};

  /// Adds a row with the figures of these metrics.
  void add(SweepRow row, const std::vector<Metric>& metrics);
  /// Puts the rows in the order of their points: what is written then does not depend on which was added first.
  void sort();
  [[nodiscard]] std::int64_t failed() const;
};
/// The row's figure; empty when it has none.
[[nodiscard]] SweepFigure figure_of(const SweepRow& row, std::string_view metric);

/// For people: the axes and `metrics` of each point, then what failed and what is to be known.
[[nodiscard]] std::string to_sweep_table(const Sweep& sweep, const std::vector<std::string>& metrics);
/// A row per point: point, the keys, bottleneck, every metric with its 95% half-width (half_width_NAME), the error and
/// the id. What does not exist is empty, which is not 0.
[[nodiscard]] std::string to_sweep_csv(const Sweep& sweep);
/// The same as JSON, with warnings.
[[nodiscard]] std::string to_sweep_json(const Sweep& sweep);

/// sweep.json: what the folder holds. `complete`: every point of it has ended.
[[nodiscard]] std::string to_sweep_manifest(const Sweep& sweep, bool complete);
/// What sweep.json says, without figures. Throws DataError, naming `where`, when it is none.
struct SweepManifest {
  Sweep sweep;
  bool complete = false;
};
[[nodiscard]] SweepManifest parse_sweep_manifest(const std::string& text, const std::string& where);

}  // namespace spillway
