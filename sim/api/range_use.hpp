// How far an execution model was asked beyond what was measured.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace spillway {

/// One quantity of one kind of call: what was measured of it, and what a run asked for. A call is one kernel launch,
/// one copy or one whole iteration, as the measurements count them.
struct RangeUse {
  std::string op;        // as `calibrate check` names it: "gemm", "decode_attention", "copy_h2d many", ...
  std::string quantity;  // as the profile names it: "m", "context", "block_bytes", ...
  double low = 0.0;      // measured, from the smallest to the largest
  double high = 0.0;
  double reached = 0.0;  // the value furthest outside; low when no call was
  std::int64_t outside = 0;
  std::int64_t calls = 0;

  /// 0 inside what was measured, else the distance to its nearer end.
  [[nodiscard]] double distance(double value) const { return std::max({0.0, low - value, value - high}); }
  /// Of two values equally far outside the larger one is kept, so that the order of calls does not matter.
  void reach(double value) {
    const double further = distance(value) - distance(reached);
    if (further > 0.0 || (further == 0.0 && distance(value) > 0.0 && value > reached)) reached = value;
  }
  /// The same quantity of the same op, as another run used it.
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
