// A host's profile as a file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/fitted.hpp"

namespace spillway::hwmodels {

/// The values gemm_flops_<rows>_rows of a host's file, as host_gemm_rates() finds them; an empty object without rows. A
/// rate that is bound by memory is null, with the reason.
[[nodiscard]] nlohmann::ordered_json host_gemm_values(const Measurements& measurements);

/// The JSON text of the host on which CPU attention and reads of host memory were measured, for use in a server's file.
/// The DRAM bandwidth is that of the fastest number of threads. The efficiency of CPU attention is its fitted bandwidth
/// of all threads / the DRAM bandwidth, at most 1. Rates of products are those of host_gemm_values(). Cores, threads
/// and memory are as the measuring tool states them. The tool does not state the memory channels, so the peak is null.
/// Throws DataError, naming `path`, when rows or facts are missing.
[[nodiscard]] std::string host_text(const std::string& name, const std::string& path, const Measurements& measurements,
                                    const FittedKernels& fitted);

}  // namespace spillway::hwmodels
