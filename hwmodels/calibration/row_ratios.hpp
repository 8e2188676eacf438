// Predicted / measured, row by row.
#pragma once

#include <span>
#include <vector>

namespace spillway::hwmodels {

/// predict(row) / measured seconds of each row.
template <class Row, class Predict>
std::vector<double> row_ratios(std::span<const Row> rows, const Predict& predict) {
  std::vector<double> ratios;
  ratios.reserve(rows.size());
  for (const Row& row : rows) ratios.push_back(predict(row) / row.seconds);
  return ratios;
}

}  // namespace spillway::hwmodels
