// Computes a claim of an experiment: runs first, then figures.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "sim/study/claim_result.hpp"
#include "sim/study/experiments.hpp"
#include "sim/study/run_sets.hpp"

namespace spillway {

/// Computes a claim with the experiment's constants; `others` replaces some of them. Without `may_run`, only existing
/// runs are used. A missing run or input becomes the claim's reason.
[[nodiscard]] ClaimFigures compute_claim(const LoadedExperiment& experiment, const Claim& claim,
                                         const std::map<std::string, nlohmann::ordered_json>& others, RunSets& run_sets,
                                         bool may_run);

}  // namespace spillway
