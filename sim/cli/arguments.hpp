// The command line's arguments -> the resolved configuration.
#pragma once

#include <string>
#include <vector>

#include "sim/cli/arguments.hpp"
#include "sim/config/config.hpp"

namespace spillway::cli {

/// Arguments of `run` and `config`: at most one configuration file and key=value pairs, in any order, and the texts of
/// --slo ("ttft_ms<500,p99_ttft_ms<1000"), which stand for `slo.*` keys; and the process's SPILLWAY_* variables,
/// between file and arguments. Throws ConfigError with every problem found, those in `problems` included.
[[nodiscard]] ResolvedConfig resolve_arguments(const std::vector<std::string>& arguments,
                                               const std::vector<std::string>& slos, std::vector<Problem> problems);

/// The same as they were given, not yet resolved.
[[nodiscard]] std::vector<Assignment> given_arguments(const std::vector<std::string>& arguments,
                                                      const std::vector<std::string>& slos,
                                                      std::vector<Problem>& problems);

}  // namespace spillway::cli
