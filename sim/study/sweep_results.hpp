// From outcomes of points to what a sweep prints and keeps.
#pragma once

#include <string>
#include <vector>

#include "sim/report/sweep.hpp"
#include "sim/study/points.hpp"

namespace spillway {

/// Adds a row, of which point and values are filled in, with what came of it.
void add_outcome(Sweep& sweep, SweepRow row, const PointOutcome& outcome);

/// `format`: table, csv or json; `metrics` are those of the table.
[[nodiscard]] std::string render(const Sweep& sweep, const std::string& format,
                                 const std::vector<std::string>& metrics);

/// sweep.csv and sweep.json of a sweep, or a shard, that has ended.
void write_results(const ResultStore& store, const Sweep& sweep);

}  // namespace spillway
