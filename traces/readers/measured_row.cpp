#include "traces/readers/measured_row.hpp"

#include <fmt/format.h>

#include <cmath>

#include "traces/length.hpp"
#include "traces/readers/row_checks.hpp"

namespace spillway::traces {
namespace {

constexpr double kYear = 365.0 * 86400.0;

bool is_tokens(const std::optional<double>& value, double least) {
  return value && *value >= least && *value <= static_cast<double>(kMaxTokens) && std::floor(*value) == *value;
}

std::string not_tokens(const std::string& name, const std::optional<double>& value, int least) {
  if (!value) return fmt::format("the request has no {}", name);
  return fmt::format("{} is not a whole number from {} to {}: {}", name, least, kMaxTokens, *value);
}

/// Seconds from the send, by the duration or the stamp. Adds what is wrong to `problem`.
std::optional<double> since_send(const MeasuredRequest& request, const std::optional<double>& duration,
                                 const std::optional<double>& stamp, const std::string& name,
                                 const MeasuredNames& names, std::string& problem) {
  std::optional<double> seconds = duration;
  if (!seconds && stamp && request.sent) seconds = *stamp - *request.sent;
  if (!seconds) return std::nullopt;
  if (*seconds < 0.0) {
    problem = duration ? fmt::format("{} is negative: {} s", name, *seconds)
                       : fmt::format("{} {:.6f} is before {} {:.6f}: the two are of different clocks", name, *stamp,
                                     names.sent, *request.sent);
  } else if (!(*seconds <= kYear)) {
    problem = duration ? fmt::format("{} is {:.3g} s, more than a year: its unit is probably wrong", name, *seconds)
                       : fmt::format("{} {:.6f} is more than a year after {} {:.6f}: the two are of different clocks",
                                     name, *stamp, names.sent, *request.sent);
  }
  return seconds;
}

}  // namespace

std::string fill(const MeasuredRequest& measured, const MeasuredNames& names, TraceRow& row) {
  if (!is_tokens(measured.input, 1.0)) return not_tokens(names.input, measured.input, 1);
  if (!is_tokens(measured.output, 0.0)) return not_tokens(names.output, measured.output, 0);
  set_lengths(row, std::llround(*measured.input), std::llround(*measured.output));
  std::string problem;
  const auto ttft = since_send(measured, measured.ttft, measured.first_token, names.first_token, names, problem);
  if (!problem.empty()) return problem;
  const auto e2e = since_send(measured, measured.e2e, measured.end, names.end, names, problem);
  if (!problem.empty()) return problem;
  if (ttft && e2e && *e2e < *ttft) {
    return fmt::format("{} is before {}: {:.6f} s and {:.6f} s after the send", names.end, names.first_token, *e2e,
                       *ttft);
  }
  if (ttft) row.ttft = round_seconds(*ttft);
  if (e2e) row.e2e = round_seconds(*e2e);
  return {};
}

}  // namespace spillway::traces
