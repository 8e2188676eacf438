// Environment variables that set no key: variables for flags, and variables of the tests.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}

namespace spillway::cli {

/// A flag and the variable that replaces it when the flag is not given.
struct FlagVariable {
  std::string flag;
  std::string variable;
};
[[nodiscard]] const std::vector<FlagVariable>& flag_variables();

/// Every allowed SPILLWAY_* name that sets no key.
[[nodiscard]] std::vector<std::string> other_variables();

/// Gives each flag that is not on the command line the value of its variable. Appends a Problem for each value that the
/// flag refuses.
void apply_flag_variables(CLI::App& run, std::vector<Problem>& problems);

/// The part of --help about environment variables.
[[nodiscard]] std::string environment_help();

}  // namespace spillway::cli
