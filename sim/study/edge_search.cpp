#include "sim/study/edge_search.hpp"

#include <algorithm>
#include <cmath>

namespace spillway {

namespace {

/// Enough for doublings from 1e-9 to 1e9. A condition that holds over this range counts as holding everywhere.
constexpr std::int64_t kMostSteps = 64;
constexpr double kDigits = 1e6;

}  // namespace

EdgeSearch::EdgeSearch(const Settings& settings) : settings_(settings), next_(within_limits(rounded(settings.start))) {}

double EdgeSearch::rounded(double value) const {
  double unit = std::pow(10.0, std::floor(std::log10(value))) * 10.0 / kDigits;
  if (settings_.whole) unit = std::max(1.0, std::round(unit));
  const double near = std::round(value / unit) * unit;
  return settings_.whole ? std::max(1.0, near) : near;
}

double EdgeSearch::within_limits(double value) const {
  if (settings_.high > 0.0) value = std::min(value, settings_.high);
  return std::max(value, settings_.low);
}

void EdgeSearch::tell(bool holds) {
  (holds ? holds_ : fails_) = next_;
  if (!holds_ && impossible_) {
    next_ = between(*fails_, *impossible_);
  } else {
    next_ = holds_ && fails_ ? between(*holds_, *fails_) : further();
  }
}

void EdgeSearch::tell_impossible() {
  if (holds_ || !fails_) return tell(false);
  impossible_ = next_;
  next_ = between(*fails_, *impossible_);
}

std::optional<double> EdgeSearch::further() {
  const bool up = holds_.has_value() == (settings_.goal == Goal::largest);
  const double from = holds_ ? *holds_ : *fails_;
  if (++steps_ > kMostSteps || from == 0.0) return std::nullopt;
  const double value = within_limits(rounded(up ? from * settings_.factor : from / settings_.factor));
  if (value != from) return value;
  return settings_.zero && !up && from == 1.0 ? std::optional(0.0) : std::nullopt;
}

std::optional<double> EdgeSearch::between(double a, double b) const {
  const double low = std::min(a, b);
  const double high = std::max(a, b);
  const double gap = high - low;
  if (gap <= settings_.tolerance * high || (settings_.whole && gap <= 1.0)) return std::nullopt;
  const double middle = rounded(low + gap / 2.0);
  return middle > low && middle < high ? std::optional(middle) : std::nullopt;
}

}  // namespace spillway
