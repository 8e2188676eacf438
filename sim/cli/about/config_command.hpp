// `spillway config check|show|schema` and `spillway schema`.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::cli {

/// Performs every check that `run` performs before the simulation. Throws UserError with every problem.
[[nodiscard]] ExitCode config_check(const std::vector<std::string>& arguments);
/// Prints every value with its origin.
[[nodiscard]] ExitCode config_show(const std::vector<std::string>& arguments, bool json);
/// Prints the JSON Schema of configuration files.
[[nodiscard]] ExitCode config_schema_command();
/// Prints the JSON Schema of results of `run`.
[[nodiscard]] ExitCode result_schema_command();

}  // namespace spillway::cli
