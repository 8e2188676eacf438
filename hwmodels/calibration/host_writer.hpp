// A host's profile as a file.
#pragma once

#include <string>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/fitted.hpp"

namespace spillway::hwmodels {

/// The JSON text of the host that CPU attention and reads of host memory were measured on, for a server's file to name:
/// the DRAM bandwidth is that of the number of threads which read fastest, that of one thread its own, and CPU
/// attention takes the share of it that the fit's bandwidth of all threads is, at most 1. Cores, threads and memory are
/// what the measuring tool states; of the memory channels it states nothing, so the peak is null. Throws DataError,
/// naming `path`, when rows or facts are missing, or no run would take the host.
[[nodiscard]] std::string host_text(const std::string& name, const std::string& path, const Measurements& measurements,
                                    const FittedKernels& fitted);

}  // namespace spillway::hwmodels
