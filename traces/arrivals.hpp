// Arrival processes of a workload.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/random.hpp"
#include "sim/core/units.hpp"

namespace spillway::traces {

/// The choices of `workload.arrival`.
enum class Arrival : std::uint8_t { poisson, gamma, constant, trace, all_at_once, burst };

/// The names of the processes, in the order of Arrival.
[[nodiscard]] const std::vector<std::string>& arrival_names();
/// `name` must be one of arrival_names().
[[nodiscard]] Arrival arrival_of(const std::string& name);
[[nodiscard]] const std::string& name_of(Arrival arrival);

/// An arrival process, decided before its first request.
struct ArrivalPlan {
  Arrival process = Arrival::poisson;
  double mean_gap_s = 0.0;       // poisson, gamma, constant; burst: outside the burst
  double cv = 1.0;               // gamma: standard deviation of the gaps over their mean
  std::int64_t burst_after = 0;  // burst: the burst begins with the arrival of this prompt, counted from 1
  double burst_factor = 1.0;     // burst: rate during the burst over the rate outside
  Duration burst_time{};         // burst: length of the burst
  double time_scale = 1.0;       // trace: factor for the times of the file

  /// True if the arrivals of two replications differ.
  [[nodiscard]] bool random() const {
    return process == Arrival::poisson || process == Arrival::gamma || process == Arrival::burst;
  }
  /// The parameters beside the rate ("CV 2"); empty if there are none.
  [[nodiscard]] std::string details() const;
};

/// Delivers the arrivals of one run. The first drawn arrival is at 0.
///
///  * poisson: exponential gaps.
///  * gamma: gamma gaps of shape 1 / cv^2: cv 1 is poisson, below 1 is smoother, above 1 is burstier.
///  * burst: a Poisson process whose rate is multiplied by burst_factor from the arrival of prompt burst_after on, for
///    burst_time. Each gap is drawn once, in units of the mean gap, and passes at the current rate: a gap across the
///    end of the burst has the right distribution, too.
class ArrivalClock {
 public:
  /// Draws from the stream "workload.arrival".
  ArrivalClock(const ArrivalPlan& plan, std::int64_t seed, std::int64_t replication);
  /// Arrival of the next request; `of_trace` is its time in the file, if it has one.
  SimTime next(SimTime of_trace);

 private:
  /// Seconds from the previous arrival to the next one.
  double gap();
  double burst_gap();

  ArrivalPlan plan_;
  double shape_ = 1.0;  // of the gamma gaps
  RandomStream stream_;
  std::int64_t delivered_ = 0;
  SimTime previous_{};
  SimTime burst_end_{};
};

}  // namespace spillway::traces
