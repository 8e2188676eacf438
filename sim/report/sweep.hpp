// Sweeps as text, CSV and JSON.
#pragma once

#include <string>
#include <vector>

#include "sim/study/result_store.hpp"
#include "sim/study/sweep.hpp"

namespace spillway {

/// For people: the axes and `metrics` of each point, then failures and notes.
[[nodiscard]] std::string to_sweep_table(const Sweep& sweep, const std::vector<std::string>& metrics);
/// One row per point: point, keys, bottleneck, every metric with its 95% half-width (half_width_NAME), error and id. A
/// missing value is empty, which is not 0.
[[nodiscard]] std::string to_sweep_csv(const Sweep& sweep);
/// The contents of the CSV as JSON, with warnings.
[[nodiscard]] std::string to_sweep_json(const Sweep& sweep);
/// The sweep as table, csv or json, according to `format`. The table shows `metrics`.
[[nodiscard]] std::string render(const Sweep& sweep, const std::string& format,
                                 const std::vector<std::string>& metrics);

/// Writes sweep.csv and sweep.json of a finished sweep or shard.
void write_results(const ResultStore& store, const Sweep& sweep);

}  // namespace spillway
