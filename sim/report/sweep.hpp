// Sweeps as text, CSV and JSON.
#pragma once

#include <string>
#include <vector>

#include "sim/study/result_store.hpp"
#include "sim/study/sweep.hpp"

namespace spillway {

/// For people: the axes and `metrics` of each point, then what failed and what is to be known.
[[nodiscard]] std::string to_sweep_table(const Sweep& sweep, const std::vector<std::string>& metrics);
/// A row per point: point, the keys, bottleneck, every metric with its 95% half-width (half_width_NAME), the error and
/// the id. What does not exist is empty, which is not 0.
[[nodiscard]] std::string to_sweep_csv(const Sweep& sweep);
/// The same as JSON, with warnings.
[[nodiscard]] std::string to_sweep_json(const Sweep& sweep);
/// One of these, by `format`: table, csv or json; `metrics` are those of the table.
[[nodiscard]] std::string render(const Sweep& sweep, const std::string& format,
                                 const std::vector<std::string>& metrics);

/// sweep.csv and sweep.json of a sweep, or a shard, that has ended.
void write_results(const ResultStore& store, const Sweep& sweep);

}  // namespace spillway
