// Predicted against measured: what a validation found, as a table, as Markdown and as JSON.
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

/// What became of one setting.
struct Outcome {
  Setting setting;
  std::optional<double> predicted{};  // seconds; empty: the profile says nothing of it
  std::optional<Spread> measured{};   // seconds; empty: not measured
  std::string reason{};               // why it was not predicted, or not measured; empty without a machine

  /// predicted / measured - 1, by the median.
  [[nodiscard]] std::optional<double> error() const;
};

/// The goal of the simulator: |error| over all settings.
inline constexpr double kMedianGoal = 0.05;
inline constexpr double kP95Goal = 0.15;

/// Of the settings of one experiment, or of all, that were measured.
struct ErrorLine {
  std::string experiment;  // "a" .. "e", or "all"
  hwmodels::ErrorSummary error{};
  std::int64_t settings = 0;  // measured or not
  std::string worst{};        // name of the setting with the largest |error|; the first of several; empty: none
  double worst_error = 0.0;
};

/// One line for each experiment that has a setting, in their order, then one for all.
[[nodiscard]] std::vector<ErrorLine> error_lines(const std::vector<Outcome>& outcomes);
/// Both goals are met, by at least one setting.
[[nodiscard]] bool goal_met(const ErrorLine& all);

struct ValidationReport {
  std::string profile;                // its name
  std::string profile_path;           // as given
  std::string profile_sha256;         // of the file's bytes
  std::string profile_error;          // what it says of itself
  std::vector<std::string> notes;     // what a reader should know of profile and machine, one sentence each
  std::string gpu;                    // that the settings ran on; empty: none did
  nlohmann::ordered_json provenance;  // of the machine, as in measurements; null without one
  std::vector<Outcome> outcomes;
};

/// For a terminal: one line per setting, then the errors.
[[nodiscard]] std::string text_of(const ValidationReport& report);
/// The same as two Markdown tables, errors first.
[[nodiscard]] std::string markdown_of(const ValidationReport& report);
/// {"schema_version": 1, "kind": "validation", "goal", "profile", "notes", "provenance", "errors", "settings"}; null
/// where nothing was measured.
[[nodiscard]] nlohmann::ordered_json json_of(const ValidationReport& report);
/// "a07: predicted 61.20 ms, measured 63.00 ms, -2.9%", or why not.
[[nodiscard]] std::string line_of(const Outcome& outcome);

}  // namespace spillway::calibrate
