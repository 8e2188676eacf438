// The largest or smallest value at which a condition holds.
#pragma once

#include <cstdint>
#include <optional>

namespace spillway {

/// Searches the edge of a condition that is monotone in a positive number, or a whole number from 0 on. The first phase
/// multiplies `start` by `factor` until two values enclose the edge; bisection follows. The caller asks for the next
/// value, tries the value and reports whether the condition held.
class EdgeSearch {
 public:
  enum class Goal : std::uint8_t {
    largest,  // the condition holds at small values
    smallest  // the condition holds at large values
  };
  struct Settings {
    Goal goal = Goal::largest;
    double start = 1.0;       // between low and high
    double low = 0.0;         // least value to try; 0: no limit
    double high = 0.0;        // largest value to try; 0: no limit
    double factor = 2.0;      // above 1
    double tolerance = 0.01;  // largest final distance of the two values, as a share of the larger value
    bool whole = false;       // whole numbers only
    bool zero = false;        // and 0, beyond 1
  };
  explicit EdgeSearch(const Settings& settings);

  /// The value to try; empty when the search is over. Values have 6 digits, so they are easy to write.
  [[nodiscard]] std::optional<double> next() const { return next_; }
  /// Reports whether the condition held at the value of next().
  void tell(bool holds);
  /// Reports that the value of next() cannot be tried, and so none beyond it. When the condition has failed so far, it
  /// may still hold before that value: the search approaches it.
  void tell_impossible();

  /// The best value at which the condition held; empty when there is none.
  [[nodiscard]] std::optional<double> holds_at() const { return holds_; }
  /// The nearest value beyond holds_at() at which the condition failed; empty when the condition held up to the limit.
  [[nodiscard]] std::optional<double> fails_at() const { return fails_; }

 private:
  [[nodiscard]] std::optional<double> further();
  [[nodiscard]] std::optional<double> between(double a, double b) const;
  [[nodiscard]] double rounded(double value) const;
  [[nodiscard]] double within_limits(double value) const;

  Settings settings_;
  std::optional<double> next_;
  std::optional<double> holds_;
  std::optional<double> fails_;
  std::optional<double> impossible_;
  std::int64_t steps_ = 0;  // steps of the first phase
};

}  // namespace spillway
