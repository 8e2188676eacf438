#include "sim/io/problem_text.hpp"

#include <fmt/format.h>

#include "sim/core/printable.hpp"

namespace spillway {

std::string problem_text(const std::vector<Problem>& problems) {
  constexpr std::size_t kMost = 3000;  // for quotes that are not brief; lists of names are shorter
  std::string text;
  for (const Problem& problem : problems) {
    text += fmt::format("error: {}\n", printable(brief(problem.what, kMost)));
    if (!problem.where.empty()) text += fmt::format("  at {}\n", printable(brief(problem.where, kMost)));
    if (!problem.fix.empty()) text += fmt::format("  {}\n", printable(brief(problem.fix, kMost)));
  }
  return text;
}

}  // namespace spillway
