// Held-out evaluation: a fit is judged on rows that it has not seen.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "hwmodels/calibration/least_squares.hpp"
#include "hwmodels/error_summary.hpp"
#include "sim/core/error.hpp"

namespace spillway::hwmodels {

inline constexpr std::size_t kFolds = 5;

/// The fold of each row. Rows with equal keys share a fold. Keys are dealt out in an order that is unrelated to their
/// size, so that no fold holds a whole corner of the range.
template <class Row, class Key>
std::vector<std::size_t> folds_of(const std::vector<Row>& rows, const Key& key) {
  std::map<decltype(key(rows[0])), std::size_t> fold;
  for (const Row& row : rows) fold[key(row)] = 0;
  std::vector<std::size_t*> by_key;
  by_key.reserve(fold.size());
  for (auto& [k, value] : fold) by_key.push_back(&value);
  const std::vector<std::size_t> order = scattered(by_key.size());
  for (std::size_t i = 0; i < order.size(); ++i) *by_key[order[i]] = i % kFolds;
  std::vector<std::size_t> folds;
  folds.reserve(rows.size());
  for (const Row& row : rows) folds.push_back(fold[key(row)]);
  return folds;
}

/// What `predict` returns; nothing when the remaining rows do not determine every parameter.
template <class Predict>
std::vector<double> unless_open(const Predict& predict) {
  try {
    return predict();
  } catch (const DataError&) {
    return {};
  }
}

/// Predicted / measured of every row, by a model that was fitted to the other folds; 0 where the other folds hold fewer
/// than `fewest` rows or do not determine every parameter.
template <class Row, class Fit, class Ratios>
std::vector<double> held_out_ratios(const std::vector<Row>& rows, const std::vector<std::size_t>& folds,
                                    std::size_t fewest, const Fit& fit, const Ratios& ratios) {
  std::vector<double> all(rows.size());
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    std::vector<Row> fitted;
    std::vector<Row> held;
    for (std::size_t i = 0; i < rows.size(); ++i) (folds[i] == fold ? held : fitted).push_back(rows[i]);
    if (held.empty() || fitted.size() < fewest) continue;
    const std::vector<double> some = unless_open([&] { return ratios(fit(fitted), held); });
    std::size_t next = 0;
    for (std::size_t i = 0; i < rows.size() && !some.empty(); ++i) {
      if (folds[i] == fold) all[i] = some[next++];
    }
  }
  return all;
}

/// The error on the rows that were predicted; a ratio of 0 marks the others.
[[nodiscard]] inline ErrorSummary summary_of_predicted(std::vector<double> ratios) {
  std::erase(ratios, 0.0);
  return summarise(std::move(ratios));
}

/// For a curve: the rows to fit and, second, the rows of every second size, to predict. The two ends are never held
/// out, because no curve is judged beyond what was measured.
template <class Row, class Size>
std::pair<std::vector<Row>, std::vector<Row>> every_second(const std::vector<Row>& rows, const Size& size) {
  std::set<double> sizes;
  for (const Row& row : rows) sizes.insert(size(row));
  std::set<double> held;
  std::size_t index = 0;
  for (const double s : sizes) {
    if (index % 2 == 1 && index + 1 < sizes.size()) held.insert(s);
    ++index;
  }
  std::pair<std::vector<Row>, std::vector<Row>> split;
  for (const Row& row : rows) (held.contains(size(row)) ? split.second : split.first).push_back(row);
  return split;
}

}  // namespace spillway::hwmodels
