// `run --perturb`: the same what-if with scaled times for each class of work.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/study/replicated_run.hpp"
#include "sim/study/robustness.hpp"

namespace spillway {

/// "5%" or "0.05" -> 0.05. Unless the fraction is above 0 and at most 50%, appends a Problem with this rule and returns
/// nothing.
[[nodiscard]] std::optional<double> parse_perturbation(const std::string& text, std::vector<Problem>& problems);

/// The scales of the base run and, with a fraction, the scales of perturbations().
[[nodiscard]] std::vector<OpScales> perturbed_scales(std::optional<double> fraction);

/// The outcome of the runs of perturbed_scales(fraction). The base run comes first in `runs`.
[[nodiscard]] Robustness robustness_of(double fraction, const std::vector<ReplicationResults>& runs);

}  // namespace spillway
