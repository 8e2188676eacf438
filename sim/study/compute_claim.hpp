// A claim of an experiment, from its runs to its figures.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "sim/study/claim_result.hpp"
#include "sim/study/experiments.hpp"
#include "sim/study/run_sets.hpp"

namespace spillway {

/// Computes a claim with its experiment's constants, of which `others` replace some. What was not run and, without
/// `may_run`, may not be, is said as the reason, as is what is missing.
[[nodiscard]] ClaimFigures compute_claim(const LoadedExperiment& experiment, const Claim& claim,
                                         const std::map<std::string, nlohmann::ordered_json>& others, RunSets& run_sets,
                                         bool may_run);

}  // namespace spillway
