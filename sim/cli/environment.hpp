// Environment variables that are not keys: those that stand for flags of `run`, and those of the tests.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}

namespace spillway::cli {

/// A flag and the variable that gives the same unless the flag is there.
struct FlagVariable {
  std::string flag;
  std::string variable;
};
[[nodiscard]] const std::vector<FlagVariable>& flag_variables();

/// Every SPILLWAY_* name that may be set although no key has it.
[[nodiscard]] std::vector<std::string> other_variables();

/// Gives the flags of `run` that the command line does not have the values of their variables. Appends a Problem for
/// each value that the flag would refuse.
void apply_flag_variables(CLI::App& run, std::vector<Problem>& problems);

/// How the environment sets keys and flags, for --help.
[[nodiscard]] std::string environment_help();

}  // namespace spillway::cli
