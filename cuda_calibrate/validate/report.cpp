#include "cuda_calibrate/validate/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "hwmodels/calibration/least_squares.hpp"

namespace spillway::calibrate {
namespace {

using Json = nlohmann::ordered_json;

std::string milliseconds(double seconds) { return fmt::format("{:.2f} ms", seconds * 1e3); }
std::string signed_percent(double share) { return fmt::format("{:+.1f}%", share * 100.0); }
std::string percent(double share) { return fmt::format("{:.1f}%", share * 100.0); }

ErrorLine error_line(std::string name, const std::vector<Outcome>& outcomes) {
  ErrorLine line;
  line.experiment = std::move(name);
  std::vector<double> ratios;
  ratios.reserve(outcomes.size());
  for (const Outcome& outcome : outcomes) {
    if (line.experiment != "all" && letter_of(outcome.setting.experiment) != line.experiment) continue;
    ++line.settings;
    const std::optional<double> error = outcome.error();
    if (!error) continue;
    ratios.push_back(1.0 + *error);
    if (!line.worst.empty() && std::abs(*error) <= std::abs(line.worst_error)) continue;
    line.worst = outcome.setting.name;
    line.worst_error = *error;
  }
  line.error = hwmodels::summarise(std::move(ratios));
  return line;
}

std::string title_of_line(const ErrorLine& line) {
  return line.experiment == "all" ? "all" : fmt::format("({}) {}", line.experiment, title_of(line.experiment));
}

/// "goal 5% / 15%: met".
std::string goal_text(const ErrorLine& all) {
  const std::string goal = fmt::format("goal: median {:.0f}%, p95 {:.0f}%", kMedianGoal * 100.0, kP95Goal * 100.0);
  if (all.error.n == 0) return fmt::format("{}; nothing was measured", goal);
  return fmt::format("{}; {}", goal, goal_met(all) ? "met" : "not met");
}

bool measured_any(const ValidationReport& report) {
  return std::ranges::any_of(report.outcomes, [](const Outcome& outcome) { return outcome.measured.has_value(); });
}

std::string machine_text(const ValidationReport& report) {
  return fmt::format("profile {} ({:.12}), {}", report.profile, report.profile_sha256,
                     report.gpu.empty() ? "no machine" : "on " + report.gpu);
}

}  // namespace

std::optional<double> Outcome::error() const {
  if (!predicted || !measured) return std::nullopt;
  return *predicted / measured->median - 1.0;
}

std::vector<ErrorLine> error_lines(const std::vector<Outcome>& outcomes) {
  std::set<std::string> letters;
  for (const Outcome& outcome : outcomes) letters.insert(letter_of(outcome.setting.experiment));
  std::vector<ErrorLine> lines;
  lines.reserve(letters.size() + 1);
  for (const std::string& letter : letters) lines.push_back(error_line(letter, outcomes));
  lines.push_back(error_line("all", outcomes));
  return lines;
}

bool goal_met(const ErrorLine& all) {
  return all.error.n > 0 && all.error.median <= kMedianGoal && all.error.p95 <= kP95Goal;
}

std::string line_of(const Outcome& outcome) {
  const std::string& name = outcome.setting.name;
  if (!outcome.predicted) return fmt::format("{}: not predicted: {}", name, outcome.reason);
  const std::string predicted = fmt::format("{}: predicted {}", name, milliseconds(*outcome.predicted));
  if (outcome.measured) {
    return fmt::format("{}, measured {}, {}", predicted, milliseconds(outcome.measured->median),
                       signed_percent(*outcome.error()));
  }
  return outcome.reason.empty() ? predicted : fmt::format("{}, not measured: {}", predicted, outcome.reason);
}

std::string text_of(const ValidationReport& report) {
  std::string text = machine_text(report) + "\n";
  for (const std::string& note : report.notes) text += fmt::format("note: {}\n", note);
  std::string experiment;
  for (const Outcome& outcome : report.outcomes) {
    const std::string letter = letter_of(outcome.setting.experiment);
    if (letter != experiment) {
      text += fmt::format("\n({}) {}\n{:<5}{:>12} {:>12} {:>8}  {}\n", letter, title_of(letter), "", "predicted",
                          "measured", "error", "setting");
    }
    experiment = letter;
    const std::optional<double> error = outcome.error();
    text += fmt::format("{:<5}{:>12} {:>12} {:>8}  {}{}\n", outcome.setting.name,
                        outcome.predicted ? milliseconds(*outcome.predicted) : "-",
                        outcome.measured ? milliseconds(outcome.measured->median) : "-",
                        error ? signed_percent(*error) : "-", text_of(outcome.setting.experiment),
                        outcome.reason.empty() ? "" : fmt::format(" [{}]", outcome.reason));
  }
  if (!measured_any(report)) return text;
  text += fmt::format("\n{:<56}{:>8} {:>8} {:>8} {:>8}  {}\n", "|error|", "settings", "median", "p95", "bias", "worst");
  const std::vector<ErrorLine> lines = error_lines(report.outcomes);
  for (const ErrorLine& line : lines) {
    if (line.error.n == 0) {
      text += fmt::format("{:<56}{:>8}\n", title_of_line(line), fmt::format("0/{}", line.settings));
      continue;
    }
    text += fmt::format("{:<56}{:>8} {:>8} {:>8} {:>8}  {} of {}\n", title_of_line(line),
                        fmt::format("{}/{}", line.error.n, line.settings), percent(line.error.median),
                        percent(line.error.p95), signed_percent(line.error.bias), signed_percent(line.worst_error),
                        line.worst);
  }
  return text + goal_text(lines.back()) + "\n";
}

std::string markdown_of(const ValidationReport& report) {
  std::string text = fmt::format("Predicted against measured: {}.\n\n", machine_text(report));
  for (const std::string& note : report.notes) text += fmt::format("* {}\n", note);
  if (!report.notes.empty()) text += "\n";
  const std::vector<ErrorLine> lines = error_lines(report.outcomes);
  text += "| experiment | settings | median | p95 | bias | worst |\n|---|---:|---:|---:|---:|---|\n";
  for (const ErrorLine& line : lines) {
    const bool any = line.error.n > 0;
    text += fmt::format("| {} | {} of {} | {} | {} | {} | {} |\n", title_of_line(line), line.error.n, line.settings,
                        any ? percent(line.error.median) : "-", any ? percent(line.error.p95) : "-",
                        any ? signed_percent(line.error.bias) : "-",
                        any ? fmt::format("{} ({})", signed_percent(line.worst_error), line.worst) : "-");
  }
  text += fmt::format("\n{}.\n\n| | setting | predicted | measured | error |\n|---|---|---:|---:|---:|\n",
                      goal_text(lines.back()));
  for (const Outcome& outcome : report.outcomes) {
    const std::optional<double> error = outcome.error();
    text += fmt::format("| {} | {} | {} | {} | {} |\n", outcome.setting.name, text_of(outcome.setting.experiment),
                        outcome.predicted ? milliseconds(*outcome.predicted) : "-",
                        outcome.measured         ? milliseconds(outcome.measured->median)
                        : outcome.reason.empty() ? "-"
                                                 : outcome.reason,
                        error ? signed_percent(*error) : "-");
  }
  return text;
}

Json json_of(const ValidationReport& report) {
  const auto or_null = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
  const std::vector<ErrorLine> lines = error_lines(report.outcomes);
  Json errors = Json::array();
  for (const ErrorLine& line : lines) {
    const bool any = line.error.n > 0;
    const auto measured = [any](const Json& value) { return any ? value : Json(); };
    errors.push_back({{"experiment", line.experiment},
                      {"settings", line.settings},
                      {"n", line.error.n},
                      {"median", measured(line.error.median)},
                      {"p95", measured(line.error.p95)},
                      {"bias", measured(line.error.bias)},
                      {"worst", measured(line.worst)},
                      {"worst_error", measured(line.worst_error)}});
  }
  Json settings = Json::array();
  for (const Outcome& outcome : report.outcomes) {
    const std::optional<Spread>& spread = outcome.measured;
    settings.push_back({{"name", outcome.setting.name},
                        {"experiment", letter_of(outcome.setting.experiment)},
                        {"setting", text_of(outcome.setting.experiment)},
                        {"predicted_s", or_null(outcome.predicted)},
                        {"measured_s", spread ? Json(spread->median) : Json()},
                        {"p10_s", spread ? Json(spread->p10) : Json()},
                        {"p90_s", spread ? Json(spread->p90) : Json()},
                        {"n", spread ? spread->n : 0},
                        {"error", or_null(outcome.error())},
                        {"reason", outcome.reason.empty() ? Json() : Json(outcome.reason)}});
  }
  const bool any = lines.back().error.n > 0;
  return {{"schema_version", 1},
          {"kind", "validation"},
          {"goal", {{"median", kMedianGoal}, {"p95", kP95Goal}, {"met", any ? Json(goal_met(lines.back())) : Json()}}},
          {"profile",
           {{"name", report.profile},
            {"path", report.profile_path},
            {"sha256", report.profile_sha256},
            {"error", report.profile_error}}},
          {"notes", report.notes},
          {"provenance", report.provenance},
          {"errors", std::move(errors)},
          {"settings", std::move(settings)}};
}

}  // namespace spillway::calibrate
