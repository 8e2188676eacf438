// From the simulations of a configuration to its result, with what the user must be told of it.
#pragma once

#include "sim/study/assemble.hpp"
#include "sim/study/replicated_run.hpp"
#include "sim/study/result.hpp"

namespace spillway {

/// The result without figures: set-up, inputs and the warnings that are known before the run.
[[nodiscard]] Result setup_result(const Assembly& assembly);

/// The result of all replications. Throws DataError or ConfigError when no request was run at all: all were rejected,
/// or none arrives before the end.
[[nodiscard]] Result run_result(const Assembly& assembly, ReplicationResults runs);

}  // namespace spillway
