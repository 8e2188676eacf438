// Makes one policy out of the parts that fill its roles: who schedules, who streams KV, who streams weights.
#pragma once

#include <string>
#include <vector>

#include "sim/api/registry.hpp"

namespace spillway {

/// The policy `part`, which streams layers or decides where KV lives, under the scheduler of `host`; `host` may be
/// `part`, if it has a scheduler of its own. `schedulers`: the choices of policy.scheduler.
[[nodiscard]] PolicyInfo compose_scheduler(const PolicyInfo& part, const PolicyInfo& host,
                                           std::vector<std::string> schedulers);

/// Whether a policy may stream the weights of another.
[[nodiscard]] bool streams_weights_alone(const PolicyInfo& policy);

/// `policy` as it is beside another: its key policy.X is policy.weights.X, also in its texts and problems.
[[nodiscard]] PolicyInfo as_weights(const PolicyInfo& policy);

/// Why `weights` cannot stream the weights of `base`; empty: it can.
[[nodiscard]] std::string weights_conflict(const PolicyInfo& base, const PolicyInfo& weights);

/// The policy `base`, whose weights `weights`, a result of as_weights(), streams.
[[nodiscard]] PolicyInfo compose_weights(const PolicyInfo& base, const PolicyInfo& weights);

/// The figures of `weights` beside a policy that streams KV.
[[nodiscard]] std::vector<FigureDefinition> weights_figures(const PolicyInfo& weights);

}  // namespace spillway
