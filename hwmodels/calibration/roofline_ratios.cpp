#include "hwmodels/calibration/roofline_ratios.hpp"

#include <algorithm>

#include "hwmodels/calibration/row_ratios.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {

std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const GemmRow> rows) {
  return row_ratios(rows, [&](const GemmRow& row) {
    const double m = real(row.m);
    const double n = real(row.n);
    const double k = real(row.k);
    const double compute = 2.0 * m * n * k / (gpu.gemm_compute_efficiency * gpu.peak_flops);
    const double bytes = real(row.dtype_bytes) * (n * k + m * k + m * n);
    const double memory = bytes / (gpu.gemm_memory_efficiency * gpu.memory_bandwidth.value());
    return gpu.kernel_overhead_seconds + std::max(compute, memory);
  });
}

std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const AttentionRow> rows) {
  return row_ratios(rows, [&](const AttentionRow& row) {
    const double fresh = real(row.new_tokens);
    const double context = real(row.context);
    const double batch = real(row.batch);
    const double kv = 4.0 * real(row.kv_heads * row.head_dim) * (context + fresh);  // 2 bytes, K and V
    const double query = 4.0 * real(row.q_heads * row.head_dim) * fresh;            // 2 bytes, in and out
    const double memory = batch * (kv + query) / (gpu.decode_attention_efficiency * gpu.memory_bandwidth.value());
    if (row.decode()) return gpu.attention_overhead_seconds + memory;
    const double pairs = batch * (fresh * context + 0.5 * fresh * (fresh + 1.0));
    const double compute =
        4.0 * real(row.q_heads * row.head_dim) * pairs / (gpu.prefill_attention_efficiency * gpu.peak_flops);
    return gpu.attention_overhead_seconds + std::max(compute, memory);
  });
}

std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const ElementwiseRow> rows) {
  return row_ratios(rows, [&](const ElementwiseRow& row) {
    return gpu.kernel_overhead_seconds + row.bytes / (gpu.gemm_memory_efficiency * gpu.memory_bandwidth.value());
  });
}

std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const CopyRow> rows) {
  return row_ratios(rows, [&](const CopyRow& row) {
    const HostLink& link = row.to_device ? gpu.h2d : gpu.d2h;
    return real(row.copies) * (link.launch_seconds + real(row.block_bytes) / link.bandwidth.value());
  });
}

std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const AllReduceRow> rows) {
  return row_ratios(rows, [&](const AllReduceRow& row) {
    const double moved = 2.0 * real(row.ranks - 1) / real(row.ranks) * real(row.bytes);
    return gpu.all_reduce->latency_seconds + moved / gpu.all_reduce->bus_bandwidth.value();
  });
}

}  // namespace spillway::hwmodels
