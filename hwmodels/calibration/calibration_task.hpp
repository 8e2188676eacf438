// What all parts of a calibration need: the rows, the base profile, and the record that goes with each fit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hwmodels/calibration/calibration.hpp"
#include "hwmodels/calibration/citation.hpp"
#include "hwmodels/calibration/held_out.hpp"
#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/calibration/roofline_ratios.hpp"

namespace spillway::hwmodels {

// Fewest rows that are fitted, well above the number of parameters.
inline constexpr std::size_t kFewestGemms = 24;
inline constexpr std::size_t kFewestAttention = 16;
inline constexpr std::size_t kFewestMoe = 24;  // of all kernels together
inline constexpr std::size_t kFewestElementwise = 4;
inline constexpr std::size_t kFewestCpuAttention = 4;

/// The smallest and the largest value of a quantity in the rows.
template <class Row, class Value>
MeasuredRange range_of(const char* quantity, const std::vector<Row>& rows, const Value& value) {
  MeasuredRange range{quantity, std::numeric_limits<double>::infinity(), 0.0};
  for (const Row& row : rows) {
    range.low = std::min(range.low, static_cast<double>(value(row)));
    range.high = std::max(range.high, static_cast<double>(value(row)));
  }
  return range;
}

class CalibrationTask {
 public:
  /// All arguments must outlive the task.
  CalibrationTask(const Measurements& measurements, const CalibrationContext& context,
                  const std::function<void(std::string_view op)>& progress)
      : in_(measurements), context_(context), progress_(progress) {}

  [[nodiscard]] const Measurements& in() const { return in_; }
  /// The base profile; null without one.
  [[nodiscard]] const GpuProfile* base() const { return context_.base; }
  /// Name or file of the model whose layers were measured; empty: unknown.
  [[nodiscard]] const std::string& layer_model() const { return context_.layer_model; }
  /// The same model, by the name that runs use.
  [[nodiscard]] std::string model_name() const;
  /// Whether the base states all figures of the analytic model.
  [[nodiscard]] bool has_analytic() const { return base() != nullptr && base()->unknown.empty(); }

  /// Reports progress: `op` is fitted next.
  void begin(Op op) const;

  /// Throws DataError when fewer than `fewest` rows were measured. `rows` holds at least one.
  template <class Row>
  void require_rows(Op op, const std::vector<Row>& rows, std::size_t fewest) const {
    if (rows.size() < fewest) refuse_few(op, rows.size(), fewest, rows.front().place);
  }

  /// What `fit` returns. A DataError that it throws is completed with the files that the rows come from.
  template <class Row, class Fit>
  auto fitted_to(const std::vector<Row>& rows, const Fit& fit) const {
    try {
      return fit(rows);
    } catch (const DataError& error) {
      std::set<std::string> files;
      for (const Row& row : rows) files.insert(in_.files.at(static_cast<std::size_t>(row.place.file)).path);
      throw DataError(with_files(error.problems(), files));
    }
  }

  template <class Row>
  FitRecord record(const std::vector<Row>& rows, std::vector<double> held_out, std::string by,
                   std::vector<MeasuredRange> ranges) const {
    return {"measured",    citation(in_, rows), summary_of_predicted(std::move(held_out)),
            std::move(by), std::nullopt,        std::move(ranges)};
  }

  /// Predicted / measured under the analytic model; zeros without one.
  template <class Row>
  std::vector<double> analytic_ratios(const std::vector<Row>& rows) const {
    return has_analytic() ? roofline_ratios(*base(), rows) : std::vector<double>(rows.size());
  }
  /// The analytic model's error; empty without one.
  template <class Row>
  std::optional<ErrorSummary> roofline(const std::vector<Row>& rows) const {
    if (!has_analytic()) return std::nullopt;
    return summarise(roofline_ratios(*base(), rows));
  }

 private:
  [[noreturn]] void refuse_few(Op op, std::size_t rows, std::size_t fewest, const RowPlace& first) const;
  static std::vector<Problem> with_files(std::vector<Problem> problems, const std::set<std::string>& files);

  const Measurements& in_;
  const CalibrationContext& context_;
  const std::function<void(std::string_view)>& progress_;
};

}  // namespace spillway::hwmodels
