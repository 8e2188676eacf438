// Requests as a client measured them: checks and units that benchmark files share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// What a file says of one request. Stamps are in seconds on one clock of the client, with any zero.
struct MeasuredRequest {
  std::optional<double> input;  // tokens
  std::optional<double> output;
  std::optional<double> sent;
  std::optional<double> first_token;  // stamps
  std::optional<double> end;
  std::optional<double> ttft;  // seconds from the send
  std::optional<double> e2e;
};

/// How the file names what is wrong.
struct MeasuredNames {
  std::string input;
  std::string output;
  std::string sent;
  std::string first_token;
  std::string end;
};

/// Fills lengths and times of the cleared `row`; its arrival stays open. An output of 0 counts as 1. Returns what is
/// wrong, else an empty text: lengths that are no numbers of tokens; stamps that go back, which are of different
/// clocks; a first token after the last; more than a year.
[[nodiscard]] std::string fill(const MeasuredRequest& measured, const MeasuredNames& names, TraceRow& row);

}  // namespace spillway::traces
