// The outcome of a validation, predicted against measured, as a table, Markdown and JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cuda_calibrate/measure/statistics.hpp"
#include "cuda_calibrate/validate/settings.hpp"
#include "hwmodels/error_summary.hpp"

namespace spillway::calibrate {

/// The outcome of one setting.
struct Outcome {
  Setting setting;
  std::optional<double> predicted{};  // seconds; empty: the profile cannot predict the setting
  std::optional<Spread> measured{};   // seconds; empty: not measured
  std::string reason{};               // why the prediction or measurement is missing; empty without a machine

  /// predicted / measured - 1, from the median.
  [[nodiscard]] std::optional<double> error() const;
};

/// The goal of the simulator: |error| over all settings.
inline constexpr double kMedianGoal = 0.05;
inline constexpr double kP95Goal = 0.15;

/// Errors of the measured settings of one experiment, or of all experiments.
struct ErrorLine {
  std::string experiment;  // "a" .. "e", or "all"
  hwmodels::ErrorSummary error{};
  std::int64_t settings = 0;  // measured or not
  std::string worst{};        // setting with the largest |error|, the first in a tie; empty: none
  double worst_error = 0.0;
};

/// One line per experiment with a setting, in order, then one line for all.
[[nodiscard]] std::vector<ErrorLine> error_lines(const std::vector<Outcome>& outcomes);
/// Whether at least one setting was measured and both goals are met.
[[nodiscard]] bool goal_met(const ErrorLine& all);

struct ValidationReport {
  std::string profile;                // name of the profile
  std::string profile_path;           // path as given
  std::string profile_sha256;         // of the file's bytes
  std::string profile_error;          // the error that the profile states
  std::vector<std::string> notes;     // remarks on profile and machine, one sentence each
  std::string gpu;                    // GPU that ran the settings; empty: none
  nlohmann::ordered_json provenance;  // as in measurements, of the machine; null without a machine
  std::vector<Outcome> outcomes;
};

/// For a terminal: one line per setting, then the errors.
[[nodiscard]] std::string text_of(const ValidationReport& report);
/// The report as two Markdown tables, errors first.
[[nodiscard]] std::string markdown_of(const ValidationReport& report);
/// {"schema_version": 1, "kind": "validation", "goal", "profile", "notes", "provenance", "errors", "settings"}; null
/// for missing measurements.
[[nodiscard]] nlohmann::ordered_json json_of(const ValidationReport& report);
/// "a07: predicted 61.20 ms, measured 63.00 ms, -2.9%", or the reason of a missing figure.
[[nodiscard]] std::string line_of(const Outcome& outcome);

}  // namespace spillway::calibrate
