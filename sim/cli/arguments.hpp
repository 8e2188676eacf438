// Resolves the command line's arguments to a configuration.
#pragma once

#include <string>
#include <vector>

#include "sim/config/config.hpp"

namespace spillway::cli {

/// Resolves the arguments of `run` and `config`: at most one configuration file, and key=value pairs, in any order.
/// --slo texts ("ttft_ms<500,p99_ttft_ms<1000") set `slo.*` keys. SPILLWAY_* variables override the file; arguments
/// override the variables. Throws ConfigError with every problem, including the entries of `problems`.
[[nodiscard]] ResolvedConfig resolve_arguments(const std::vector<std::string>& arguments,
                                               const std::vector<std::string>& slos, std::vector<Problem> problems);

/// The assignments of these arguments and variables, unresolved.
[[nodiscard]] std::vector<Assignment> given_arguments(const std::vector<std::string>& arguments,
                                                      const std::vector<std::string>& slos,
                                                      std::vector<Problem>& problems);

/// SLO texts as assignments of `slo.*` keys. Problems are located at `flag` and the text.
[[nodiscard]] std::vector<Assignment> slo_assignments(const std::vector<std::string>& slos, const std::string& flag,
                                                      std::vector<Problem>& problems);

}  // namespace spillway::cli
