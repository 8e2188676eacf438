// How far a run left the measured range of an execution model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace spillway {

/// One quantity of one kind of call: its measured range, and the values of a run. A call is one kernel launch, one copy
/// or one whole iteration, as in the measurements.
struct RangeUse {
  std::string op;        // as `calibrate check` names it: "gemm", "decode_attention", "copy_h2d many", ...
  std::string quantity;  // as the profile names it: "m", "context", "block_bytes", ...
  double low = 0.0;      // smallest measured value
  double high = 0.0;     // largest measured value
  double reached = 0.0;  // the value furthest outside; `low` when no call was outside
  std::int64_t outside = 0;
  std::int64_t calls = 0;
  std::string beyond{};  // how well the op is known outside the range; empty: that is not known

  /// 0 inside the measured range, else the distance to its nearer end.
  [[nodiscard]] double distance(double value) const { return std::max({0.0, low - value, value - high}); }
  /// Keeps the larger of two values equally far outside, so that the order of calls does not matter.
  void reach(double value) {
    const double further = distance(value) - distance(reached);
    if (further > 0.0 || (further == 0.0 && distance(value) > 0.0 && value > reached)) reached = value;
  }
  /// Adds the use of the same quantity of the same op in another run.
  void add(const RangeUse& other) {
    reach(other.reached);
    outside += other.outside;
    calls += other.calls;
  }
  [[nodiscard]] double fraction_outside() const {
    return calls > 0 ? static_cast<double>(outside) / static_cast<double>(calls) : 0.0;
  }
};

}  // namespace spillway
