// What every command says in the same way.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/error.hpp"

namespace spillway::cli {

[[nodiscard]] std::string_view tool_version();

/// "error: WHAT", "  at WHERE", "  FIX" for each, then "N errors; `outcome`." On stderr, control characters escaped.
void print_problems(const std::vector<Problem>& problems, std::string_view outcome);

/// Writes to stdout. Throws ConfigError when it cannot be written: a full disk is no silent loss.
void print_result(std::string_view text);

/// The exit codes, for the end of every --help.
[[nodiscard]] std::string exit_codes_help();

}  // namespace spillway::cli
