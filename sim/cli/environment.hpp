// Environment variables that do not set keys: variables for flags, and variables for tests.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}

namespace spillway::cli {

/// A flag, and the variable that provides its value when the flag is not given.
struct FlagVariable {
  std::string flag;
  std::string variable;
};
[[nodiscard]] const std::vector<FlagVariable>& flag_variables();

/// Every allowed SPILLWAY_* name that does not set a key.
[[nodiscard]] std::vector<std::string> other_variables();

/// Sets each flag that is missing on the command line from its variable. Appends a Problem for each value that a flag
/// refuses.
void apply_flag_variables(CLI::App& run, std::vector<Problem>& problems);

/// The part of --help about environment variables.
[[nodiscard]] std::string environment_help();

}  // namespace spillway::cli
