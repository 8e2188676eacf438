// How FlexGen finds its placement: given by the user, derived from an objective, or searched for.
#pragma once

#include <string>

#include "policies/parts/flexgen_plan.hpp"

namespace spillway {

struct FlexgenPlacement {
  FlexgenPlan plan{};
  std::string how;  // how it was found, a clause
};

/// The placement of kFlexgenPlacement's keys; with policy.slo_margin the placement that keeps the objective on a
/// layer's time; else the result of the policy search. Throws ConfigError when none fits, or when a figure of the
/// hardware that it needs is unknown.
[[nodiscard]] FlexgenPlacement choose_placement(const Deployment& deployment, const Settings& settings);

}  // namespace spillway
