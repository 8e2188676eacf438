// A host's profile as a file.
#pragma once

#include <string>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/fitted.hpp"

namespace spillway::hwmodels {

/// The JSON text of the host on which CPU attention and reads of host memory were measured, for use in a server's file.
/// The DRAM bandwidth is that of the fastest number of threads. The efficiency of CPU attention is its fitted bandwidth
/// of all threads / the DRAM bandwidth, at most 1. Cores, threads and memory are as the measuring tool states them. The
/// tool does not state the memory channels, so the peak is null. Throws DataError, naming `path`, when rows or facts
/// are missing.
[[nodiscard]] std::string host_text(const std::string& name, const std::string& path, const Measurements& measurements,
                                    const FittedKernels& fitted);

}  // namespace spillway::hwmodels
