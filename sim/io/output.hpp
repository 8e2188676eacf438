// What every command says in the same way.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway {

[[nodiscard]] std::string_view tool_version();
/// 16 hexadecimal digits that change with any source of the library or any data file inside it: two programs of the
/// same build give the same results.
[[nodiscard]] std::string_view tool_build();

/// "error: WHAT", "  at WHERE", "  FIX" for each, then "N errors; `outcome`." On stderr, control characters escaped.
void print_problems(const std::vector<Problem>& problems, std::string_view outcome);

/// Writes to stdout. Throws ConfigError when it cannot be written: a full disk is no silent loss.
void print_result(std::string_view text);

/// The exit codes, for the end of every --help.
[[nodiscard]] std::string exit_codes_help();

}  // namespace spillway
