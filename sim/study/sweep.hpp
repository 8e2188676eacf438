// The figures of many configurations in one table.
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
#include "sim/study/locality.hpp"
#include "sim/study/points.hpp"
#include "sim/study/trust.hpp"

namespace spillway {

struct SweepFigure {
  std::optional<double> value{};
  std::optional<double> half_width{};
};

/// One point of a grid: its figures, or the reason for missing figures.
struct SweepRow {
  std::int64_t point = 0;                                   // position in the grid, from 0
  std::vector<std::string> values{};                        // one text per key
  std::string id{};                                         // name of the point's file; empty after a failure
  std::string sha256{};                                     // of the point's file
  std::vector<SweepFigure> figures{};                       // in the order of `names`
  std::shared_ptr<const std::vector<std::string>> names{};  // names of the metrics; rows with equal names share them
  std::string bottleneck{};                                 // load, kv_capacity, compute, ...
  std::string steadiness{};                                 // steady, saturated, unsteady; empty: not judged
  std::vector<std::string> warnings{};
  Trust trust{};
  std::optional<double> locality{};                 // experts.locality that the run assumed, if it is one
  std::optional<LocalityCheck> other_localities{};  // half and twice of it
  std::string error{};                              // empty: no failure
};

/// A sweep, or the part that one machine ran.
struct Sweep {
  std::string tool_version;
  std::string tool_build;
  std::string definition;  // hash of axes and common settings: equal for all parts of one sweep
  std::vector<Axis> axes;
  std::optional<Shard> shard{};     // empty: the whole sweep
  std::int64_t points = 0;          // points of the whole sweep
  std::vector<std::string> keys{};  // keys of the axes, one by one
  std::vector<SweepRow> rows{};

  /// Adds a row with the figures of these metrics.
  void add(SweepRow row, const std::vector<Metric>& metrics);
  /// Sorts the rows by point, so that the output does not depend on the order of add().
  void sort();
  [[nodiscard]] std::int64_t failed() const;
};
/// The row's figure; empty when the row has no such figure.
[[nodiscard]] SweepFigure figure_of(const SweepRow& row, std::string_view metric);

/// Adds `row`, which has point and values, with the outcome's figures.
void add_outcome(Sweep& sweep, SweepRow row, const PointOutcome& outcome);

/// The text of sweep.json: the contents of the folder. `complete`: every point has ended.
[[nodiscard]] std::string to_sweep_manifest(const Sweep& sweep, bool complete);
/// The contents of sweep.json, without figures. Throws DataError, naming `where`, for any other text.
struct SweepManifest {
  Sweep sweep;
  bool complete = false;
};
[[nodiscard]] SweepManifest parse_sweep_manifest(const std::string& text, const std::string& where);

/// The head of every JSON form of a sweep: versions, definition, shard, points, failed, axes.
[[nodiscard]] nlohmann::ordered_json sweep_head_json(const Sweep& sweep);
/// The entry of a point in every JSON form: point, values, id or error.
[[nodiscard]] nlohmann::ordered_json sweep_row_json(const Sweep& sweep, const SweepRow& row);

}  // namespace spillway
