// Published claims as text and JSON: expected, simulated, verdict.
#pragma once

#include <string>
#include <vector>

#include "sim/study/claim_result.hpp"

namespace spillway {

/// A table of the claims by experiment. Each claim has its text and the reason of a failure; open items of the source
/// follow. The last line is "N of M counted claims pass; ...".
[[nodiscard]] std::string to_claims_table(const std::vector<ExperimentResult>& results, bool quick);
/// {claims: [{id, experiment, system, where, kind, claim, expected, accept, simulated, interval, verdict, accepted,
/// reason, cause, fitted_on, open: [{name, what, value, reason, others: [{value, simulated, accepted}]}],
/// columns: [{name, simulated}]}], quick, summary: {counted, passed, failed, fitted, report, skipped}}
[[nodiscard]] std::string to_claims_json(const std::vector<ExperimentResult>& results, bool quick);

/// The claims without results: id, system, kind, expected, accepted.
[[nodiscard]] std::string to_claims_list(const std::vector<Experiment>& experiments);
/// {claims: [{id, experiment, system, where, kind, claim, expected, accept, fitted_on}]}
[[nodiscard]] std::string to_claims_list_json(const std::vector<Experiment>& experiments);

}  // namespace spillway
