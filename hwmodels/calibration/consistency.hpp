// Measurements that cannot be true: rows that contradict each other, and rows that are faster than the hardware.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/catalog.hpp"
#include "sim/core/error.hpp"

namespace spillway::hwmodels {

/// Datasheet figures of one GPU; empty: unknown, and then limits apply that no GPU of 2026 reaches.
struct DeviceLimits {
  std::optional<double> peak_flops;        // FLOP/s, dense, of 16-bit values; 8-bit ones may have twice as much
  std::optional<double> memory_bandwidth;  // bytes/s
  std::optional<double> l2_bytes;
  std::optional<double> link_peak;  // bytes/s, host link, one direction
  std::string name;                 // as messages call the GPU
};

/// All rows that cannot be true: at most 20 problems of a kind, then the number of others.
/// - Rows with the same key are a "duplicate" when their times agree within 1e-6, else "contradictory". Iterations are
///   exempt, because a log has many iterations of one size.
/// - GEMM or prefill attention (causal, without padding) above 1.1 times the peak FLOP/s. The datasheet's peak is at
/// its
///   boost clock, which a GPU may exceed: an RTX 4090 measured 166.0 of 165.2 TFLOP/s, and an H100 SXM at its highest
///   clock, 1.98 GHz, has 1.08 times the datasheet's peak.
/// - GEMM weights, or KV of decode attention, read faster than the memory's bandwidth. The row is "L2-resident" when
/// they
///   fit the L2 (an engine would be slower, because its other layers evict them), else impossible. KV counts as 16 bit.
///   Activations may come from the L2: of all bytes of a GEMM, only those beyond the L2's size are compared with the
///   bandwidth.
/// - Elementwise kernels that move the bytes beyond the L2's size faster than the bandwidth. A kernel whose working set
///   is a little larger than the L2 finds most of it there: a sum of two tensors, 1.01 times the L2 in total, measured
///   1.04 times an A100's bandwidth.
/// - Host copies above the link's peak.
/// - Products on the CPU above 1.1 times 2e15 FLOP/s.
/// - Copies between GPUs, all-reduce (bus bandwidth, 2 (p - 1) / p bytes / time), CPU attention, reads of host
/// memory
///   and of the weights of products on the CPU above 2e12 bytes/s, whatever the hardware.
/// - Where the model of the layers is known: GEMMs of layer tables above the peak FLOP/s, and decodes and chunks of
/// mixed
///   tables above both limits. Weights and KV within the L2 may come from it, because an engine's profiler repeats one
///   layer.
/// - Such a GEMM, and any other GEMM, slower than a millisecond + 100 times its time at the datasheet's figures: the
/// unit
///   is wrong. This applies only where the datasheet is known.
/// `layers_of` is the model of the layer and mixed tables; null: unknown.
[[nodiscard]] std::vector<Problem> inconsistencies(const Measurements& measurements, const DeviceLimits& limits,
                                                   const LlmModel* layers_of = nullptr);

/// Merges repeated runs: rows with the same key from different files, whose times lie within 20% of their median,
/// become one row with the median. The noise between runs has that size: for the same bf16 GEMMs on the same GPU model,
/// the SGLang 0.5.9 and 0.5.10 tables of ai-dynamo/aiconfigurator differ by 16% (H100) to 33% (L40S) at the p95. Rows
/// of one file, or of a file that was given twice, stay for inconsistencies() to judge. Each file gets a note.
void merge_repeats(Measurements& measurements);

/// Leaves out every row with a problem: both rows of a contradiction, and all duplicates except the first. Returns the
/// number of rows left out.
[[nodiscard]] std::int64_t drop_inconsistent(Measurements& measurements, const DeviceLimits& limits,
                                             const LlmModel* layers_of = nullptr);

}  // namespace spillway::hwmodels
