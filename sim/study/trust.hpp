// How far to trust the figures of runs, for tables of many runs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/api/range_use.hpp"
#include "sim/io/lines.hpp"
#include "sim/study/trust.hpp"

namespace spillway {

/// The quantities with calls outside the measured range, the largest share of calls first: "decode attention: context
/// measured 2 to 32768, reached 98304 (12.3% of calls); ..."
[[nodiscard]] std::string range_text(std::vector<RangeUse> uses);

/// What a result.json states about its own error.
struct Trust {
  std::vector<std::string> validity{};  // "gpu: median / p95 of ...": the statement of each data file
  std::string expected_error{};         // Setup::expected_error
  std::vector<std::string> accuracy{};  // Setup::accuracy
  std::string outside_range{};          // text of range_text; empty: every call was inside the measured range
};

/// Adds two entries. "Range": how many runs left the measured range, and details of the first, at most two lines.
/// "Validity": how far TPOT and TTFT may be off on each GPU, one line each.
void add_trust(const std::vector<const Trust*>& runs, Lines& lines);

[[nodiscard]] nlohmann::ordered_json trust_json(const Trust& trust);

}  // namespace spillway
