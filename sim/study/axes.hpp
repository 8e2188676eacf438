// Grids of configurations: the values of each key, and their combinations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/api/parameter.hpp"

namespace spillway {

/// Keys that change their values together: one key, or several zipped keys.
struct Axis {
  std::vector<std::string> keys;
  std::vector<std::vector<std::string>> values;  // by position: one text for each key
};

/// The values that `text` gives a key, in its order:
///
/// a,b,c: a list. Commas in brackets, as in lognormal(1500,0.8), or in keys that take lists, do not separate values.
///
/// lo:hi:step: lo, lo + step, ... up to hi; includes hi if a whole number of steps reaches hi.
///
/// lo:hi:xK: lo, lo * K, lo * K^2, ... up to hi (K > 1).
///
/// Elements of a list may be ranges. Ranges are for keys with numbers or lengths, with units if the key has units
/// ("10GB:40GB:10GB"). Range values are rounded to 12 digits, or to whole nanoseconds and bytes. In all other keys a
/// colon has no meaning. Appends a Problem and returns nothing for an empty element, a range without values, a range
/// with more than kMostRangeValues, and a repeated value. The limits of the key are not checked here.
[[nodiscard]] std::vector<std::string> axis_values(const Parameter& parameter, const std::string& text,
                                                   const std::string& where, std::vector<Problem>& problems);
inline constexpr std::int64_t kMostRangeValues = 10'000'000;
/// The number of values that axis_values would return, without making the values; 1 for a text that axis_values
/// refuses.
[[nodiscard]] std::int64_t axis_size(const Parameter& parameter, const std::string& text);
/// The product `a` * `b` of positive numbers, at most INT64_MAX.
[[nodiscard]] std::int64_t saturating_product(std::int64_t a, std::int64_t b);

/// Whether the key takes ranges: a number, a size, a duration or a length in tokens.
[[nodiscard]] bool is_numeric(const Parameter& parameter);
/// The number in `text`, in the unit in which the key is stored; empty when `text` is not a number.
[[nodiscard]] std::optional<double> numeric_value(const Parameter& parameter, std::string_view text);
/// The text of a number: 12 digits, or whole nanoseconds or bytes with a unit.
[[nodiscard]] std::string numeric_text(const Parameter& parameter, double value);

/// Joins the axes of `zip` ("model,tensor_parallel") into one axis, at the position of the first key. Appends a Problem
/// when a key is not an axis, is already zipped, or has a different number of values.
void zip_axes(const std::string& zip, const std::string& where, std::vector<Axis>& axes,
              std::vector<Problem>& problems);

/// All combinations of the axes' values; the last axis varies fastest. A grid without axes has one empty combination.
class Grid {
 public:
  explicit Grid(std::vector<Axis> axes) : axes_(std::move(axes)) {}
  [[nodiscard]] const std::vector<Axis>& axes() const { return axes_; }
  /// All keys, in the order of the axes.
  [[nodiscard]] std::vector<std::string> keys() const;
  /// The number of combinations, at most INT64_MAX.
  [[nodiscard]] std::int64_t size() const;
  /// The texts of combination `index`, in the order of keys(). O(axes).
  [[nodiscard]] std::vector<std::string> values(std::int64_t index) const;
  /// Combination `index` as text: "policy=vllm seed=2".
  [[nodiscard]] std::string label(std::int64_t index) const;

 private:
  std::vector<Axis> axes_;
};

/// The points of a grid that one of several machines runs: every count-th point, starting at the index-th.
struct Shard {
  std::int64_t index = 1;  // from 1
  std::int64_t count = 1;
  [[nodiscard]] bool holds(std::int64_t point) const { return point % count == index - 1; }
  /// The number of points in the shard, out of `points`.
  [[nodiscard]] std::int64_t size(std::int64_t points) const {
    return points < index ? 0 : (points - index) / count + 1;
  }
};

}  // namespace spillway
