// What copies cost each other and the GPU's work, from rows of both at once.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/fitted.hpp"

namespace spillway::hwmodels {

/// A single value of a profile.
struct MeasuredFigure {
  double value = 0.0;
  std::string citation;
};

/// Bytes/s of one direction while the other one is busy too: the bandwidth b of t = copies (launch + bytes / b) by
/// relative least squares over the duplex rows of single copies and of loops of them, with the launch of a copy alone,
/// as launches share nothing. Rows of 1 MiB and more where there are any: of smaller ones the launch is a large part.
/// Empty without such rows, or when they take no longer than launches.
[[nodiscard]] std::optional<MeasuredFigure> duplex_bandwidth(const Measurements& in,
                                                             std::span<const Fitted<CopyModel>> alone, bool to_device);

/// Time of compute beside copies over its time alone, at least 1: the median over all that was measured with both,
/// each with the same copies. Empty when nothing was.
[[nodiscard]] std::optional<MeasuredFigure> compute_slowdown(const Measurements& in);

}  // namespace spillway::hwmodels
