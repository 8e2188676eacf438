// Turns the simulations of a configuration into its result, with all warnings for the user.
#pragma once

#include "sim/study/assemble.hpp"
#include "sim/study/replicated_run.hpp"
#include "sim/study/result.hpp"

namespace spillway {

/// The result without figures: set-up, inputs, and warnings known before the run.
[[nodiscard]] Result setup_result(const Assembly& assembly);

/// The result of all replications. Throws DataError or ConfigError when no request ran at all: all were rejected, or
/// none arrived before the end.
[[nodiscard]] Result run_result(const Assembly& assembly, ReplicationResults runs);

}  // namespace spillway
