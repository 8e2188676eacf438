// How far the figures of a run can be trusted, where many runs are shown beside each other.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/api/range_use.hpp"
#include "sim/io/lines.hpp"
#include "sim/study/trust.hpp"

namespace spillway {

/// What of a run left the measured range, the largest share of calls first: "12.3% of decode attention calls had
/// context up to 98304, measured up to 32768; ..."
[[nodiscard]] std::string range_text(std::vector<RangeUse> uses);

/// What a result.json says of its own error.
struct Trust {
  std::vector<std::string> validity{};  // "gpu: median / p95 of ...": what each data file states of itself
  std::string outside_range{};          // how much left the measured range, as range_text says it; empty: nothing
};

/// "Range": how many runs left the measured range, and how the first did; "Validity": what the GPUs' profiles state of
/// their error, each once. Two lines of each at most.
void add_trust(const std::vector<const Trust*>& runs, Lines& lines);

[[nodiscard]] nlohmann::ordered_json trust_json(const Trust& trust);

}  // namespace spillway
