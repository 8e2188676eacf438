#include "traces/arrivals.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/error.hpp"

namespace spillway::traces {

const std::vector<std::string>& arrival_names() {
  static const std::vector<std::string> kNames{"poisson", "gamma", "constant", "trace", "all-at-once", "burst"};
  return kNames;
}

Arrival arrival_of(const std::string& name) {
  const auto& names = arrival_names();
  const auto it = std::find(names.begin(), names.end(), name);
  SPILLWAY_CHECK(it != names.end(), "workload.arrival is not one of its choices: " + name);
  return static_cast<Arrival>(it - names.begin());
}

const std::string& name_of(Arrival arrival) { return arrival_names()[static_cast<std::size_t>(arrival)]; }

std::string ArrivalPlan::details() const {
  if (process == Arrival::gamma) return fmt::format("CV {:.6g}", cv);
  if (process != Arrival::burst) return {};
  return fmt::format("x{:.6g} for {:.6g} s after {} prompts", burst_factor, to_seconds(burst_time), burst_after);
}

ArrivalClock::ArrivalClock(const ArrivalPlan& plan, std::int64_t seed, std::int64_t replication)
    : plan_(plan), shape_(1.0 / (plan.cv * plan.cv)), stream_(seed, replication, "workload.arrival") {}

SimTime ArrivalClock::next(SimTime of_trace) {
  const std::int64_t index = delivered_++;
  switch (plan_.process) {
    case Arrival::poisson:
    case Arrival::gamma:
    case Arrival::burst:
      if (index > 0) previous_ = previous_ + round_seconds(gap());
      if (index + 1 == plan_.burst_after) burst_end_ = previous_ + plan_.burst_time;
      return previous_;
    case Arrival::constant:  // from the index, so that rounding errors do not accumulate
      return SimTime() + round_seconds(static_cast<double>(index) * plan_.mean_gap_s);
    case Arrival::trace:
      if (plan_.time_scale == 1.0) return of_trace;
      return SimTime() + round_seconds(to_seconds(of_trace) * plan_.time_scale);
    case Arrival::all_at_once:
      break;
  }
  return SimTime();
}

double ArrivalClock::gap() {
  if (plan_.process == Arrival::gamma) return stream_.gamma(shape_) / shape_ * plan_.mean_gap_s;
  if (plan_.process == Arrival::burst) return burst_gap();
  return stream_.exponential(plan_.mean_gap_s);
}

double ArrivalClock::burst_gap() {
  const double gap_s = stream_.exponential(plan_.mean_gap_s);
  if (!(previous_ < burst_end_)) return gap_s;
  // The rest of the burst, in seconds at the stable rate.
  const double left_s = to_seconds(burst_end_ - previous_);
  const double worth_s = left_s * plan_.burst_factor;
  return gap_s <= worth_s ? gap_s / plan_.burst_factor : left_s + (gap_s - worth_s);
}

}  // namespace spillway::traces
