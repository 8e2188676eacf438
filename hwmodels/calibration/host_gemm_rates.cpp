#include "hwmodels/calibration/host_gemm_rates.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "hwmodels/calibration/citation.hpp"
#include "hwmodels/catalog.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

constexpr std::int64_t kBytesOf16Bits = 2;

/// Bytes/s at which a product reads its weights.
double weight_rate(const HostGemmRow& row) {
  return real(row.dtype_bytes) * real(row.inputs) * real(row.outputs) / row.seconds;
}

double flops_of(const HostGemmRow& row) { return 2.0 * product({row.rows, row.inputs, row.outputs}) / row.seconds; }

std::vector<double> all_of(const std::vector<HostGemmRow>& rows, double (*value)(const HostGemmRow&)) {
  std::vector<double> values;
  values.reserve(rows.size());
  std::transform(rows.begin(), rows.end(), std::back_inserter(values), value);
  return values;
}

/// The products of so many rows, with 16-bit weights where there are some.
std::vector<HostGemmRow> products_of(const Measurements& in, std::int64_t rows) {
  std::vector<HostGemmRow> kept;
  std::copy_if(in.host_gemms.begin(), in.host_gemms.end(), std::back_inserter(kept),
               [&](const HostGemmRow& row) { return row.rows == rows; });
  const auto half = [](const HostGemmRow& row) { return row.dtype_bytes == kBytesOf16Bits; };
  if (std::any_of(kept.begin(), kept.end(), half)) std::erase_if(kept, [&](const auto& row) { return !half(row); });
  return kept;
}

std::string about(const Measurements& in, const std::vector<HostGemmRow>& rows) {
  std::set<std::string> shapes;
  std::set<std::int64_t> threads;
  for (const HostGemmRow& row : rows) {
    shapes.insert(fmt::format("{} x {}", row.inputs, row.outputs));
    if (row.threads > 0) threads.insert(row.threads);
  }
  const bool half = rows.front().dtype_bytes == kBytesOf16Bits;
  return fmt::format("products of {} rows with weights of {} in {}{}: {}", rows.front().rows, fmt::join(shapes, ", "),
                     half ? "16 bits" : "fp32, slower than kernels for 16-bit weights",
                     threads.empty() ? "" : fmt::format(", {} threads", fmt::join(threads, " and ")),
                     citation(in, rows));
}

}  // namespace

double fastest_read(const std::vector<HostStreamRow>& rows) {
  double most = 0.0;
  for (const HostStreamRow& row : rows) most = std::max(most, real(row.bytes) / row.seconds);
  return most;
}

std::vector<HostGemmRate> host_gemm_rates(const Measurements& in) {
  const double bandwidth = fastest_read(in.host_streams) / real(in.machine.sockets.value_or(1));
  std::vector<HostGemmRate> rates;
  for (const std::int64_t count : HostProfile::kGemmRows) {
    const std::vector<HostGemmRow> all = products_of(in, count);
    if (all.empty()) continue;
    std::vector<HostGemmRow> bound = all;
    std::erase_if(bound, [&](const HostGemmRow& row) {
      return bandwidth > 0.0 && weight_rate(row) >= kBoundByMemory * bandwidth;
    });
    if (!bound.empty()) {
      rates.push_back({count, median(all_of(bound, flops_of)), "median of " + about(in, bound)});
      continue;
    }
    const double read = median(all_of(all, weight_rate));
    rates.push_back(
        {count, std::nullopt,
         fmt::format("bound by memory: weights are read at {:.4g} bytes/s, {:.0f}% of what the threads of a "
                     "socket read; {}",
                     read, 100.0 * read / bandwidth, about(in, all))});
  }
  return rates;
}

}  // namespace spillway::hwmodels
