#include "sim/io/output.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "sim/core/printable.hpp"

namespace spillway {

std::string_view tool_version() { return SPILLWAY_VERSION; }

void print_problems(const std::vector<Problem>& problems, std::string_view outcome) {
  for (const Problem& problem : problems) {
    fmt::print(stderr, "error: {}\n", printable(problem.what));
    if (!problem.where.empty()) fmt::print(stderr, "  at {}\n", printable(problem.where));
    if (!problem.fix.empty()) fmt::print(stderr, "  {}\n", printable(problem.fix));
  }
  fmt::print(stderr, "{} error{}; {}.\n", problems.size(), problems.size() == 1 ? "" : "s", outcome);
}

void print_result(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) {
    throw ConfigError(fmt::format("cannot write the result: {}", std::strerror(errno)), "standard output",
                      "check where it is redirected to");
  }
}

std::string exit_codes_help() {
  return "Exit codes: 0 ok, 2 usage or configuration, 3 trace or profile data, 4 a sweep failed in part, 5 a gate\n"
         "            or claim not met, 70 broken invariant (a defect of Spillway or a policy), 130 interrupted\n";
}

}  // namespace spillway
