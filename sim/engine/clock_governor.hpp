// The clock of a GPU that computes for long.
#pragma once

#include <optional>

#include "sim/api/execution_model.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// Follows the share of the time in which compute-bound kernels run, and slows them down while it is too high.
///
/// The share is an exponential average, by one implicit Euler step from the start of each iteration to the start of the
/// next one: with c seconds of compute-bound kernels in dt seconds and a window of w seconds,
///
///   share <- (share + c / w) / (1 + dt / w)
///
/// so it needs no exponential function and stays within [0, 1]. O(1).
class ClockGovernor {
 public:
  explicit ClockGovernor(const std::optional<SustainedClock>& clock) : clock_(clock) {}

  /// An iteration starts at `now`, which never decreases.
  void start(SimTime now) {
    if (!clock_) return;
    const double window = to_seconds(clock_->window);
    share_ = (share_ + computed_ / window) / (1.0 + to_seconds(now - start_) / window);
    start_ = now;
    computed_ = 0.0;
  }
  /// Work of that iteration at the clock of its start. Its layers take what its compute-bound kernels take longer.
  void slow(IterationTime& time, std::int32_t layers) {
    if (!clock_) return;
    if (share_ > clock_->share) {
      const Duration longer = round_seconds((clock_->slowdown - 1.0) * time.shares.compute / layers);
      time.layer += longer;
      for (Duration& kind : time.kinds) kind += longer;
      time.shares.compute += to_seconds(longer * layers);
    }
    computed_ += time.shares.compute;
  }

 private:
  std::optional<SustainedClock> clock_;
  double share_ = 0.0;
  double computed_ = 0.0;  // seconds of compute-bound kernels since start_
  SimTime start_{};
};

}  // namespace spillway
