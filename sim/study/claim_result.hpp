// The outcome of a published claim: the values, the verdict and the reason.
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

/// The figures of a claim, computed once.
struct ClaimFigures {
  nlohmann::ordered_json simulated;  // same shape as the claim's values; null for a missing value
  nlohmann::ordered_json
      interval;                  // 95% t-interval [low, high] over the seeds, same shape; null for a missing interval
  std::optional<bool> accepted;  // empty: not computed, or a report without a criterion
  std::string reason;            // why the claim is not accepted, or was not computed
  bool infeasible = false;       // as printed; `reason` has the arithmetic
};

/// The claim's figures with another value of an open item.
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

/// The outcome of some or all claims of an experiment.
struct ExperimentResult {
  Experiment experiment;
  std::vector<ClaimResult> claims;
};

enum class ClaimVerdict : std::uint8_t {
  pass,
  fail,
  fitted,  // a profile or a default was fitted to its figures: not counted
  report,  // shown, not counted
  /// The machine of the claim cannot do what is printed: a limit of the claim is exceeded, or a set-up does not fit.
  /// Not counted.
  infeasible,
  skipped  // not computable in this build or on this machine
};
[[nodiscard]] std::string_view verdict_name(ClaimVerdict verdict);
[[nodiscard]] ClaimVerdict verdict_of(const Claim& claim, const ClaimFigures& figures);

/// The number of claims by verdict. Only passed and failed claims count.
struct ClaimCounts {
  std::int64_t passed = 0;
  std::int64_t failed = 0;
  std::int64_t fitted = 0;
  std::int64_t reported = 0;
  std::int64_t infeasible = 0;
  std::int64_t skipped = 0;
};
[[nodiscard]] ClaimCounts count_claims(const std::vector<ExperimentResult>& results);

/// Computes a claim's values from the run sets in `script` and compares them with the claim's bands and rules. A
/// missing value is not accepted; the reason names the value. A claim that exceeds one of its limits is infeasible.
/// Throws DataError with the expression's location in the experiment when an expression cannot be evaluated or has the
/// wrong type.
[[nodiscard]] ClaimFigures judge_claim(const Experiment& experiment, const Claim& claim, ClaimScript& script);

/// The claim's values without a verdict; nothing if a value is missing.
[[nodiscard]] nlohmann::ordered_json claim_values(const Experiment& experiment, const Claim& claim,
                                                  ClaimScript& script);

/// The 95% t-interval [low, high] of the mean, for each part. Null for fewer than two numbers, for a part that is not a
/// number, and if a number is missing.
[[nodiscard]] nlohmann::ordered_json interval_of(const std::vector<nlohmann::ordered_json>& by_seed);

}  // namespace spillway
