#include "sim/metrics/lending.hpp"

#include <algorithm>

namespace spillway {

void LendingFigures::add(const LendingFigures& other) {
  offered_time += other.offered_time;
  held_time += other.held_time;
  peak_held = std::max(peak_held, other.peak_held);
  offers += other.offers;
  reclaims += other.reclaims;
  returns += other.returns;
  return_time += other.return_time;
  longest_return = std::max(longest_return, other.longest_return);
  copied += other.copied;
}

std::optional<double> LendingUse::memory_share(double span) const {
  if (memory_bandwidth <= 0.0 || span <= 0.0) return std::nullopt;
  return static_cast<double>(figures.copied.count()) / memory_bandwidth / span;
}

}  // namespace spillway
