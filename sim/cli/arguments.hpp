// The command line's arguments -> the resolved configuration.
#pragma once

#include <string>
#include <vector>

#include "sim/config/config.hpp"

namespace spillway::cli {

/// Resolves the arguments of `run` and `config`: at most one configuration file and key=value pairs, in any order; the
/// texts of --slo ("ttft_ms<500,p99_ttft_ms<1000"), which stand for `slo.*` keys; and the SPILLWAY_* variables, which
/// override the file and give way to arguments. Throws ConfigError with every problem, including those in `problems`.
[[nodiscard]] ResolvedConfig resolve_arguments(const std::vector<std::string>& arguments,
                                               const std::vector<std::string>& slos, std::vector<Problem> problems);

/// The assignments that these arguments and variables make, unresolved.
[[nodiscard]] std::vector<Assignment> given_arguments(const std::vector<std::string>& arguments,
                                                      const std::vector<std::string>& slos,
                                                      std::vector<Problem>& problems);

}  // namespace spillway::cli
