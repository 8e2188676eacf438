// Counts the calls of a kernel model inside and outside the range in which its fit was measured.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "hwmodels/fitted.hpp"
#include "sim/api/range_use.hpp"

namespace spillway::hwmodels {

/// One quantity of one fit. Where the fit does not state a range, every call is inside and nothing is reported.
class RangeTally {
 public:
  RangeTally() = default;  // of no fit
  /// `record` must be one of the records in `kernels`; its line names the op.
  RangeTally(const FittedKernels& kernels, const FitRecord& record, std::string_view quantity);

  /// Adds `calls` calls with values from `least` to `most`, which count as outside when any value is. O(1), a few ns.
  void add(double least, double most, std::int64_t calls) {
    use_.calls += calls;
    if (least < use_.low || most > use_.high) [[unlikely]] {
      use_.outside += calls;
      use_.reach(least);
      use_.reach(most);
    }
  }
  void add(double value, std::int64_t calls) { add(value, value, calls); }
  [[nodiscard]] std::int64_t calls() const { return use_.calls; }
  /// Appends nothing without a stated range, or without calls.
  void append_to(std::vector<RangeUse>& uses) const;

 private:
  RangeUse use_ = unbounded();
  static RangeUse unbounded();
};

}  // namespace spillway::hwmodels
