#include "sim/io/output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "sim/core/printable.hpp"
#include "sim/io/problem_text.hpp"

namespace spillway {

std::string_view tool_version() { return SPILLWAY_VERSION; }

void print_problems(const std::vector<Problem>& problems, std::string_view outcome) {
  fmt::print(stderr, "{}", problem_text(problems));
  fmt::print(stderr, "{} error{}; {}.\n", problems.size(), problems.size() == 1 ? "" : "s", outcome);
}

void print_warning(std::string_view text) {
  constexpr std::string_view kClearLine = "\r\x1b[K";
  fmt::print(stderr, "{}warning: {}\n", ::isatty(STDERR_FILENO) == 1 ? kClearLine : "", printable(text));
}

void print_result(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) {
    throw ConfigError(fmt::format("cannot write the result: {}", std::strerror(errno)), "standard output",
                      "check where standard output is redirected to");
  }
}

std::string exit_codes_help() {
  return "Exit codes: 0 ok, 2 usage or configuration, 3 trace or profile data, 4 a sweep failed in part, 5 a gate\n"
         "            or claim not met, 70 broken invariant (a defect in Spillway or in a policy), 130 interrupted\n";
}

}  // namespace spillway
