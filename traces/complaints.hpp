// The problems of one input, collected until there are enough of them.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::traces {

class Complaints {
 public:
  void add(std::string what, std::string where, std::string fix) {
    if (!full()) problems_.push_back({std::move(what), std::move(where), std::move(fix)});
  }
  [[nodiscard]] bool full() const { return problems_.size() >= kMost; }
  /// Throws DataError with all problems, if there are any.
  void raise() {
    if (!problems_.empty()) throw DataError(std::exchange(problems_, {}));
  }
  /// Adds the problems of a DataError that `step` throws.
  template <class Step>
  void collect(const Step& step) {
    try {
      step();
    } catch (const DataError& error) {
      for (const Problem& problem : error.problems()) add(problem.what, problem.where, problem.fix);
    }
  }

 private:
  static constexpr std::size_t kMost = 10;
  std::vector<Problem> problems_;
};

}  // namespace spillway::traces
