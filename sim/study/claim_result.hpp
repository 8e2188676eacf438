// What came of a published claim: its values, whether they are accepted, and why not.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/study/claim_script.hpp"
#include "sim/study/experiment.hpp"

namespace spillway {

/// A claim, computed once.
struct ClaimFigures {
  nlohmann::ordered_json simulated;  // in the shape of the claim's values; null where there is none
  nlohmann::ordered_json interval;   // 95% t-interval [low, high] over the seeds, in the same shape; null without one
  std::optional<bool> accepted;      // empty: not computed, or nothing decides it (a report)
  std::string reason;                // why it is not accepted, or was not computed
};

/// How a claim looks at another value of what its source leaves open.
struct OtherValue {
  nlohmann::ordered_json value;
  ClaimFigures figures;
};
struct OpenOutcome {
  OpenItem item;
  std::vector<OtherValue> others;
};
struct ColumnOutcome {
  std::string name;
  ClaimFigures figures;
};

struct ClaimResult {
  Claim claim;
  ClaimFigures figures;
  std::vector<OpenOutcome> open{};
  std::vector<ColumnOutcome> columns{};
};

/// What came of some or all of an experiment's claims.
struct ExperimentResult {
  Experiment experiment;
  std::vector<ClaimResult> claims;
};

enum class ClaimVerdict : std::uint8_t {
  pass,
  fail,
  fitted,  // its figures entered a profile or a default: not counted
  report,  // shown, not counted
  skipped  // could not be computed here
};
[[nodiscard]] std::string_view verdict_name(ClaimVerdict verdict);
[[nodiscard]] ClaimVerdict verdict_of(const Claim& claim, const ClaimFigures& figures);

/// How many claims ended in each way. Those that pass or fail are counted.
struct ClaimCounts {
  std::int64_t passed = 0;
  std::int64_t failed = 0;
  std::int64_t fitted = 0;
  std::int64_t reported = 0;
  std::int64_t skipped = 0;
};
[[nodiscard]] ClaimCounts count_claims(const std::vector<ExperimentResult>& results);

/// Computes a claim's values from the run sets that `script` holds and holds them against the claim's bands and rules.
/// A value that does not exist is not accepted, with that as the reason. Throws DataError, naming the expression's
/// place in the experiment, for one that cannot be evaluated or gives something else than the claim expects.
[[nodiscard]] ClaimFigures judge_claim(const Experiment& experiment, const Claim& claim, ClaimScript& script);

/// The claim's values alone; nothing where one does not exist.
[[nodiscard]] nlohmann::ordered_json claim_values(const Experiment& experiment, const Claim& claim,
                                                  ClaimScript& script);

/// The 95% t-interval [low, high] of the mean of numbers, part by part; null for fewer than two, for what is no number,
/// and where one of them does not exist.
[[nodiscard]] nlohmann::ordered_json interval_of(const std::vector<nlohmann::ordered_json>& by_seed);

}  // namespace spillway
