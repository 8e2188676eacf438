// `run --perturb`: the same what-if with other times of each class of work.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/study/replicated_run.hpp"
#include "sim/study/robustness.hpp"

namespace spillway {

/// "5%" or "0.05" -> 0.05. Appends a Problem that names the rule, and returns nothing, unless the fraction is above 0
/// and at most 50%.
[[nodiscard]] std::optional<double> parse_perturbation(const std::string& text, std::vector<Problem>& problems);

/// The scales of the base run and, with a fraction, of those that perturbations() lists.
[[nodiscard]] std::vector<OpScales> perturbed_scales(std::optional<double> fraction);

/// What the runs of perturbed_scales(fraction) came to, the base run first.
[[nodiscard]] Robustness robustness_of(double fraction, const std::vector<ReplicationResults>& runs);

}  // namespace spillway
