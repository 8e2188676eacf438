// The largest, or smallest, value at which something holds.
#pragma once

#include <cstdint>
#include <optional>

namespace spillway {

/// Searches the edge of a condition that is monotone in a positive number: from `start` by multiples of `factor` until
/// it is between two values, then by halving. The caller asks for the next value, tries it and tells whether the
/// condition held there.
class EdgeSearch {
 public:
  enum class Goal : std::uint8_t {
    largest,  // holds at small values
    smallest  // holds at large values
  };
  struct Settings {
    Goal goal = Goal::largest;
    double start = 1.0;       // within low and high
    double low = 0.0;         // no value below is tried; above 0, or 0 for no limit
    double high = 0.0;        // no value above is tried; 0 for no limit
    double factor = 2.0;      // above 1
    double tolerance = 0.01;  // the two values end at most this share of the larger one apart
    bool whole = false;       // whole numbers only
  };
  explicit EdgeSearch(const Settings& settings);

  /// The value to try; empty when the search is over. Values have 6 digits, so that they can be written down.
  [[nodiscard]] std::optional<double> next() const { return next_; }
  /// What came of it.
  void tell(bool holds);

  /// The best value at which the condition held; empty when there was none.
  [[nodiscard]] std::optional<double> holds_at() const { return holds_; }
  /// The nearest value beyond it at which it did not; empty when it held up to the limit.
  [[nodiscard]] std::optional<double> fails_at() const { return fails_; }

 private:
  [[nodiscard]] std::optional<double> further();
  [[nodiscard]] std::optional<double> between() const;
  [[nodiscard]] double rounded(double value) const;

  Settings settings_;
  std::optional<double> next_;
  std::optional<double> holds_;
  std::optional<double> fails_;
  std::int64_t steps_ = 0;  // of the first phase
};

}  // namespace spillway
