// The figures of many configurations beside each other.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/metrics/metrics.hpp"
#include "sim/study/axes.hpp"
#include "sim/study/points.hpp"
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

/// Adds a row, of which point and values are filled in, with what came of it.
void add_outcome(Sweep& sweep, SweepRow row, const PointOutcome& outcome);

/// sweep.json: what the folder holds. `complete`: every point of it has ended.
[[nodiscard]] std::string to_sweep_manifest(const Sweep& sweep, bool complete);
/// What sweep.json says, without figures. Throws DataError, naming `where`, when it is none.
struct SweepManifest {
  Sweep sweep;
  bool complete = false;
};
[[nodiscard]] SweepManifest parse_sweep_manifest(const std::string& text, const std::string& where);

/// What every JSON form of a sweep begins with: versions, definition, shard, points, failed, axes.
[[nodiscard]] nlohmann::ordered_json sweep_head_json(const Sweep& sweep);
/// What they hold of every point: point, values, id or error.
[[nodiscard]] nlohmann::ordered_json sweep_row_json(const Sweep& sweep, const SweepRow& row);

}  // namespace spillway
