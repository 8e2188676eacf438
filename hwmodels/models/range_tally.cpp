#include "hwmodels/models/range_tally.hpp"

#include <algorithm>
#include <limits>

#include "sim/core/error.hpp"

namespace spillway::hwmodels {

RangeUse RangeTally::unbounded() {
  constexpr double kAnything = std::numeric_limits<double>::infinity();
  return {.op = {}, .quantity = {}, .low = -kAnything, .high = kAnything, .reached = -kAnything};
}

RangeTally::RangeTally(const FittedKernels& kernels, const FitRecord& record, std::string_view quantity) {
  const auto range = std::find_if(record.ranges.begin(), record.ranges.end(),
                                  [&](const MeasuredRange& one) { return one.quantity == quantity; });
  if (range == record.ranges.end()) return;
  const std::vector<FitLine> lines = fit_lines(kernels);
  const auto line = std::find_if(lines.begin(), lines.end(), [&](const FitLine& one) { return one.record == &record; });
  SPILLWAY_CHECK(line != lines.end(), "the record of a tally belongs to the kernels");
  use_ = {.op = line->op,
          .quantity = range->quantity,
          .low = range->low,
          .high = range->high,
          .reached = range->low,
          .beyond = std::string(known_beyond(line->op, *range, record))};
}

void RangeTally::append_to(std::vector<RangeUse>& uses) const {
  if (!use_.op.empty() && use_.calls > 0) uses.push_back(use_);
}

}  // namespace spillway::hwmodels
