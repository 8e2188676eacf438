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
/// relative least squares over the duplex rows of single copies and loops of copies. The launch is fitted with it,
/// because it can be longer than that of a copy alone: on an H200, copies to the host take 8 us to start while copies
/// to the GPU run, and 2 us alone. If the rows determine no such line (all have one size), the launch is that of a copy
/// alone. Uses rows of 1 MiB and more where there are any: in smaller copies the launch is a large part. Empty without
/// such rows, or when they take no longer than their launches.
[[nodiscard]] std::optional<MeasuredFigure> duplex_bandwidth(const Measurements& in,
                                                             std::span<const Fitted<CopyModel>> alone, bool to_device);

/// Time of compute beside copies by the copy engine, or by SMs, / its time alone, at least 1: the median over all pairs
/// of rows with the same compute and copies. Empty without pairs.
[[nodiscard]] std::optional<MeasuredFigure> compute_slowdown(const Measurements& in, bool by_kernel);
/// The value of a profile that it gives.
[[nodiscard]] constexpr const char* slowdown_key(bool by_kernel) {
  return by_kernel ? "copy_compute_slowdown_kernel" : "copy_compute_slowdown";
}

}  // namespace spillway::hwmodels
