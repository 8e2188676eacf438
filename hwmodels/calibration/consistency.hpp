// Measurements that cannot be true: rows that contradict each other, and rows that beat the hardware.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/catalog.hpp"
#include "sim/core/error.hpp"

namespace spillway::hwmodels {

/// What a datasheet says of one GPU; null where it is not known. Limits that no GPU of 2026 reaches then take its
/// place.
struct DeviceLimits {
  std::optional<double> peak_flops;        // FLOP/s, dense, of 16-bit values; 8-bit ones may have twice as much
  std::optional<double> memory_bandwidth;  // bytes/s
  std::optional<double> l2_bytes;
  std::optional<double> link_peak;  // bytes/s, host link, one direction
  std::string name;                 // as messages call the GPU
};

/// All that cannot be true, at most 20 problems of a kind and then how many there are more:
/// - rows of one key: "duplicate" when their times agree within 1e-6, else "contradictory"; iterations are not judged
/// so,
///   as a log has many of one size;
/// - GEMM or prefill attention (causal, without padding) above 1.1 times the peak FLOP/s: the datasheet's is at its
/// boost
///   clock, beyond which a GPU may go (measured: 166.0 of an RTX 4090's 165.2 TFLOP/s; an H100 SXM at its highest
///   clock, 1.98 GHz, has 1.08 times the datasheet's);
/// - GEMM weights, or the KV of decode attention, read faster than the memory's bandwidth: "L2-resident" when they fit
///   the L2, in which case an engine, whose other layers evict them, would be slower; else impossible. KV is taken as
///   of 16 bit. Activations may come from the L2: of all bytes of a GEMM only what exceeds it is held against the
///   bandwidth;
/// - elementwise kernels that move more than the bandwidth beyond what the L2 holds: a kernel whose working set is
/// little
///   larger finds most of it there (measured: 1.04 of an A100's bandwidth for a sum of two tensors of 1.01 L2 in all);
/// - host copies above the link's peak; copies between GPUs, all-reduce (bus bandwidth, 2 (p - 1) / p bytes / time),
/// CPU
///   attention and reads of host memory above 2e12 bytes/s, whatever the hardware;
/// - with the model whose layers they are: matrix multiplications of layer tables above the peak FLOP/s, and decodes
/// and
///   chunks of mixed tables above both limits. Weights and KV within the L2 may have come from it, as an engine's
///   profiler repeats one layer;
/// - such a multiplication, and any other GEMM, slower than a millisecond and 100 times what its operations and bytes
///   take at the datasheet's figures: the unit is wrong. Only where these are known.
/// `layers_of` is the model whose layers the layer and mixed tables tell; null: not known.
[[nodiscard]] std::vector<Problem> inconsistencies(const Measurements& measurements, const DeviceLimits& limits,
                                                   const LlmModel* layers_of = nullptr);

/// Replaces rows of one key from different files, whose times lie within 20% of their median, by one row with the
/// median: runs that were repeated, as the noise between runs is of that size (latency study of 2026-11-20, section 1).
/// Rows of one file, and of a file that was given twice, are left for inconsistencies() to judge. Notes it with the
/// files.
void merge_repeats(Measurements& measurements);

/// Leaves out every row that a problem is about, both rows of a contradiction included, and all but the first of
/// duplicates. Returns how many.
[[nodiscard]] std::int64_t drop_inconsistent(Measurements& measurements, const DeviceLimits& limits,
                                             const LlmModel* layers_of = nullptr);

}  // namespace spillway::hwmodels
