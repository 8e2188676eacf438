// The rates of matrix products that a host's file states.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hwmodels/calibration/measurements.hpp"

namespace spillway::hwmodels {

/// gemm_flops_<rows>_rows of a host.
struct HostGemmRate {
  std::int64_t rows = 0;
  std::optional<double> flops;  // FLOP/s; empty: all products of so many rows are bound by memory
  std::string citation;         // shapes, threads and files; or why there is no rate
};

/// A product that reads its weights at this share of the host's read bandwidth, or faster, is bound by memory.
inline constexpr double kBoundByMemory = 0.5;

/// One rate for each of HostProfile::kGemmRows that was measured, ascending: 2 rows inputs outputs / seconds, median
/// over the shapes. Products with 16-bit weights count, and those in fp32 where there are no others. Products that are
/// bound by memory are left out: a policy takes the time to read the weights or that of the arithmetic, whichever is
/// longer, so it needs the rate of the arithmetic, which is higher. The fastest host_stream row, divided by the
/// sockets, is the read bandwidth; without host_stream rows all products count. O(rows log rows).
[[nodiscard]] std::vector<HostGemmRate> host_gemm_rates(const Measurements& measurements);

/// Bytes/s of the fastest of these reads; 0 without rows.
[[nodiscard]] double fastest_read(const std::vector<HostStreamRow>& rows);

}  // namespace spillway::hwmodels
