// Problems of a configuration, collected so that the user sees all of them at once.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/config/config.hpp"
#include "sim/core/error.hpp"

namespace spillway {

/// A problem at a key becomes one at the place of its value. `config` must outlive the list.
class Problems {
 public:
  explicit Problems(const ResolvedConfig& config) : config_(config) {}

  /// Runs a step, whether or not an earlier one failed. Returns true when it threw no UserError. `part`, if not empty,
  /// begins what its problems say.
  template <class Step>
  bool attempt(const Step& step, const std::string& part = {}) {
    try {
      step();
      return true;
    } catch (const UserError& error) {
      for (Problem problem : error.problems()) {
        if (!part.empty()) problem.what = part + ": " + problem.what;
        keep(std::move(problem), error.code() == ExitCode::data ? data_ : config_problems_);
      }
      return false;
    }
  }
  void add(Problem problem) { keep(std::move(problem), config_problems_); }
  void add(const std::string& what, const std::string& key, const std::string& fix) { add(Problem{what, key, fix}); }
  /// The machine lacks what it takes (Problem::infeasible).
  void add_infeasible(const std::string& what, const std::string& key, const std::string& fix) {
    add(Problem{what, key, fix, true});
  }
  /// Returns true when there was none.
  bool add_all(const std::vector<Problem>& problems) {
    for (const Problem& problem : problems) add(problem);
    return problems.empty();
  }
  [[nodiscard]] bool empty() const { return config_problems_.empty() && data_.empty(); }
  /// Throws ConfigError, or DataError when only files are at fault.
  void throw_if_any() {
    if (!config_problems_.empty()) {
      config_problems_.insert(config_problems_.end(), data_.begin(), data_.end());
      throw ConfigError(std::move(config_problems_));
    }
    if (!data_.empty()) throw DataError(std::move(data_));
  }

 private:
  void keep(Problem problem, std::vector<Problem>& list) const {
    problem.where = config_.place(problem.where);
    list.push_back(std::move(problem));
  }

  const ResolvedConfig& config_;
  std::vector<Problem> config_problems_;
  std::vector<Problem> data_;
};

}  // namespace spillway
