// The clock that a GPU holds while it computes for long, from runs of many seconds.
#pragma once

#include <optional>
#include <string>

#include "hwmodels/calibration/measurements.hpp"

namespace spillway::hwmodels {

/// What the sustained rows say about SustainedClock (sim/api/execution_model.hpp).
struct SustainedFit {
  /// The three values of a profile.
  struct Values {
    double share = 0.0;
    double slowdown = 1.0;
    double window_seconds = 0.0;
  };
  std::optional<Values> values;
  bool stays = false;    // the GEMM kept its rate, so there is no lower clock
  std::string why;       // why there are no values; empty with values
  std::string citation;  // files and readings; empty without values
};

/// From the GEMM's intervals and the attention's:
///   slowdown  median time of a call in the second half of the GEMM's run / the least time of an interval
///   share     (P_limit - P_attention) / (P_full - P_attention): of P_full, the highest power read until the first
///             interval that was slow began, so much fits the power limit beside attention, if power averages over
///             kernels. P_limit is the median power in the second half, P_attention the median of the attention's run
///   window    t / -ln(1 - share), where t is the time at which the GEMM had slowed down half of the way: the average
///             of ClockGovernor reaches the share then
/// A slowdown of less than 1% means that the clock stays. No values without a GEMM of at least 5 s and 10 intervals,
/// that was fast in its first interval, without power, or when P_full does not exceed P_limit by 5%, or P_limit not
/// P_attention: two runs of the same attention on an H200 read powers that differ by 4%, 97% and 101% of P_limit. Empty
/// without sustained rows.
[[nodiscard]] std::optional<SustainedFit> fit_sustained(const Measurements& in);

}  // namespace spillway::hwmodels
