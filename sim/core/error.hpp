// The three errors that end a run.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace spillway {

/// Exit codes of the command line; users' scripts depend on them.
enum class ExitCode : int {
  ok = 0,
  usage = 2,       // usage or configuration
  data = 3,        // trace or profile data
  partial = 4,     // a sweep failed in part
  gate = 5,        // a gate or claim was not met
  invariant = 70,  // a broken invariant: a defect in Spillway or in a policy
  interrupted = 130
};

/// One error in the user's input.
struct Problem {
  std::string what;   // one sentence
  std::string where;  // file and line, JSON pointer, trace row, or command-line argument
  std::string fix;    // what to do; empty when `what` already says so
  /// The machine lacks what it takes: memory, or time within an SLO. `what` has the arithmetic.
  bool infeasible = false;
};

/// The user's input cannot be run. Holds every problem found, not only the first.
class UserError : public std::runtime_error {
 public:
  UserError(ExitCode code, std::vector<Problem> problems)
      : std::runtime_error(problems.empty() ? std::string("error") : problems.front().what),
        code_(code),
        problems_(std::move(problems)) {}
  [[nodiscard]] ExitCode code() const { return code_; }
  [[nodiscard]] const std::vector<Problem>& problems() const { return problems_; }

 private:
  ExitCode code_;
  std::vector<Problem> problems_;
};

/// Usage or configuration (exit 2).
class ConfigError : public UserError {
 public:
  explicit ConfigError(std::vector<Problem> problems) : UserError(ExitCode::usage, std::move(problems)) {}
  ConfigError(std::string what, std::string where, std::string fix = {})
      : ConfigError({Problem{std::move(what), std::move(where), std::move(fix)}}) {}
  [[nodiscard]] static ConfigError infeasible(std::string what, std::string where, std::string fix) {
    return ConfigError({Problem{std::move(what), std::move(where), std::move(fix), true}});
  }
};

/// A trace, profile or other data file (exit 3).
class DataError : public UserError {
 public:
  explicit DataError(std::vector<Problem> problems) : UserError(ExitCode::data, std::move(problems)) {}
  DataError(std::string what, std::string where, std::string fix = {})
      : DataError({Problem{std::move(what), std::move(where), std::move(fix)}}) {}
};

/// A policy or the simulator itself broke a promise (exit 70).
class InvariantError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// A policy broke a rule of sim/api (exit 70). The message names the policy, what it decided, when, and the rule.
class BrokenPromise : public InvariantError {
 public:
  using InvariantError::InvariantError;
};

[[noreturn]] inline void broken_invariant(const char* condition, const char* file, int line,
                                          const std::string& detail) {
  throw InvariantError(std::string(file) + ":" + std::to_string(line) + ": " + condition + ": " + detail);
}

/// Always on; for checks that cost O(1). `detail` is evaluated only on failure.
#define SPILLWAY_CHECK(condition, detail) \
  ((condition) ? void(0) : ::spillway::broken_invariant(#condition, __FILE__, __LINE__, (detail)))

}  // namespace spillway
