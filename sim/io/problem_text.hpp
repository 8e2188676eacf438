// Problems in the user's input as text.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway {

/// "error: WHAT", "  at WHERE", "  FIX" for each problem, a line each. Control characters are escaped, and long texts
/// are cut.
[[nodiscard]] std::string problem_text(const std::vector<Problem>& problems);

}  // namespace spillway
