// Output that all commands have in common.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway {

[[nodiscard]] std::string_view tool_version();
/// 16 hexadecimal digits that change with any source file of the library and any data file inside it. Programs of the
/// same build give the same results.
[[nodiscard]] std::string_view tool_build();

/// Prints "error: WHAT", "  at WHERE", "  FIX" for each problem, then "N errors; `outcome`.", on stderr. Control
/// characters are escaped.
void print_problems(const std::vector<Problem>& problems, std::string_view outcome);

/// Prints "warning: TEXT" on stderr, above a progress line if one is shown. Control characters are escaped.
void print_warning(std::string_view text);

/// Writes to stdout. Throws ConfigError when stdout cannot be written, for example on a full disk.
void print_result(std::string_view text);

/// The exit codes, for the end of every --help.
[[nodiscard]] std::string exit_codes_help();

}  // namespace spillway
