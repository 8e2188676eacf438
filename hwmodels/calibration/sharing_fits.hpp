// How much simultaneous copies slow each other and compute, from rows that measured both at once.
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

/// Bytes/s of one direction while the other one is busy too: the bandwidth b of t = copies (launch + bytes / b), by
/// relative least squares over the duplex rows of single copies and loops of copies. The launch is that of a copy
/// alone, because launches share no resource. Uses rows of 1 MiB and more where there are any: in smaller copies the
/// launch is a large part. Empty without such rows, or when they take no longer than their launches.
[[nodiscard]] std::optional<MeasuredFigure> duplex_bandwidth(const Measurements& in,
                                                             std::span<const Fitted<CopyModel>> alone, bool to_device);

/// Time of compute beside copies / its time alone, at least 1: the median over all pairs of rows with the same compute
/// and copies. Empty without pairs.
[[nodiscard]] std::optional<MeasuredFigure> compute_slowdown(const Measurements& in);

}  // namespace spillway::hwmodels
