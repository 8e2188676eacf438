// The citation of a fitted value.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hwmodels/calibration/measurements.hpp"

namespace spillway::hwmodels {

/// The files that rows came from, with how many of each: "gemm.csv (384 rows, sha256 0123456789ab)".
template <class Row>
std::string citation(const Measurements& measurements, const std::vector<Row>& rows) {
  std::map<std::int32_t, std::int64_t> counts;
  for (const Row& row : rows) ++counts[row.place.file];
  std::string text;
  for (const auto& [file, count] : counts) {
    const MeasurementFile& from = measurements.files.at(static_cast<std::size_t>(file));
    const std::string name = from.path.substr(from.path.find_last_of('/') + 1);
    text += fmt::format("{}{} ({} rows, sha256 {})", text.empty() ? "" : "; ", name, count, from.sha256.substr(0, 12));
  }
  return text;
}

}  // namespace spillway::hwmodels
