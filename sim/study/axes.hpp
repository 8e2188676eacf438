// Grids of configurations: which values each key takes, and which combinations of them there are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/api/parameter.hpp"

namespace spillway {

/// Keys that take their values together: one key, or several that are zipped.
struct Axis {
  std::vector<std::string> keys;
  std::vector<std::vector<std::string>> values;  // by position, one text for each key
};

/// The values that `text` gives a key, in its order:
///   a,b,c       a list; commas within brackets, as in lognormal(1500,0.8), and those of keys that take lists part
///   nothing lo:hi:step  lo, lo + step, ... up to hi, that included when a whole number of steps leads there lo:hi:xK
///   lo, lo * K, lo * K^2, ... up to hi (K > 1)
/// Elements of a list may be ranges. A range takes numbers, with units where the key has them ("10GB:40GB:10GB"), and
/// its values are rounded to 12 digits (whole nanoseconds and bytes). Ranges are for keys with numbers or lengths; in
/// any other text a colon is a character like all others. Appends a Problem, and returns nothing, for an empty element,
/// a range without values or with more than kMostRangeValues, and a value that is there twice. The values themselves
/// are not checked against the key's own limits.
[[nodiscard]] std::vector<std::string> axis_values(const Parameter& parameter, const std::string& text,
                                                   const std::string& where, std::vector<Problem>& problems);
inline constexpr std::int64_t kMostRangeValues = 10'000'000;

/// Can the key be a range: is it a number, a size, a duration or a length in tokens?
[[nodiscard]] bool is_numeric(const Parameter& parameter);
/// The number that `text` stands for, in the unit in which the key's values are stored; empty when it is none.
[[nodiscard]] std::optional<double> numeric_value(const Parameter& parameter, std::string_view text);
/// The other way: 12 digits, or whole nanoseconds or bytes with a unit.
[[nodiscard]] std::string numeric_text(const Parameter& parameter, double value);

/// Joins the axes of `zip` ("model,tensor_parallel") into one, at the place of the first of them. Appends a Problem
/// when one of its keys is no axis, is zipped already, or has another number of values.
void zip_axes(const std::string& zip, const std::string& where, std::vector<Axis>& axes,
              std::vector<Problem>& problems);

/// All combinations of the axes' values; the last axis varies fastest. Without axes there is one combination, of
/// nothing.
class Grid {
 public:
  explicit Grid(std::vector<Axis> axes) : axes_(std::move(axes)) {}
  [[nodiscard]] const std::vector<Axis>& axes() const { return axes_; }
  /// Every key, axis by axis.
  [[nodiscard]] std::vector<std::string> keys() const;
  /// Number of combinations; INT64_MAX when there are more.
  [[nodiscard]] std::int64_t size() const;
  /// The texts of combination `index`, in the order of keys(). O(axes), whatever the size.
  [[nodiscard]] std::vector<std::string> values(std::int64_t index) const;
  /// "policy=vllm seed=2": combination `index` in words.
  [[nodiscard]] std::string label(std::int64_t index) const;

 private:
  std::vector<Axis> axes_;
};

/// The part of a grid that one of several machines runs: every count-th point, beginning with the index-th.
struct Shard {
  std::int64_t index = 1;  // from 1
  std::int64_t count = 1;
  [[nodiscard]] bool holds(std::int64_t point) const { return point % count == index - 1; }
  /// How many of `points` points it holds.
  [[nodiscard]] std::int64_t size(std::int64_t points) const {
    return points < index ? 0 : (points - index) / count + 1;
  }
};

}  // namespace spillway
