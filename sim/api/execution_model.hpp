// How long an iteration or a copy takes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/api/layer_rule.hpp"
#include "sim/api/range_use.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// Part of one request's prompt that is computed in this iteration.
struct PrefillChunk {
  Tokens new_tokens{};  // computed now
  Tokens context{};     // already computed, attended to
};

/// CPU time that the engine's KV connector takes for one iteration, seconds.
struct ConnectorWork {
  double scheduler = 0.0;     // on the scheduler's thread
  double worker = 0.0;        // on the worker's thread, before it launches the iteration
  double worker_ahead = 0.0;  // what is left of that when the worker runs one iteration ahead of the GPU
};

/// What one sub-batch computes in one iteration, as sums. Decoding sequences contribute one new token each.
struct BatchShape {
  std::int64_t decode_sequences = 0;  // that attend on the GPU
  Tokens decode_context{};         // sum over decoding sequences of the tokens they attend to, the new token included
  Tokens decode_longest{};         // the largest of these numbers; 0: unknown, so the model uses their mean
  std::int64_t cpu_sequences = 0;  // decoding, too, but their KV is on the host, and so is their attention
  Tokens cpu_context{};            // as decode_context
  /// One entry per sequence in prefill, or several where parts of its context are computed again: they follow each
  /// other.
  std::span<const PrefillChunk> chunks{};
  std::int64_t continued_chunks = 0;   // chunks of the same sequence as the chunk before
  std::int64_t sampled_sequences = 0;  // sequences that emit a token, so they pass the LM head
  ConnectorWork connector{};
  [[nodiscard]] std::int64_t decodes() const { return decode_sequences + cpu_sequences; }
  [[nodiscard]] bool empty() const { return decodes() == 0 && chunks.empty(); }
  [[nodiscard]] std::int64_t sequences() const {
    return decodes() + static_cast<std::int64_t>(chunks.size()) - continued_chunks;
  }
};

/// Where an iteration's time goes when nothing overlaps it: seconds, summing to the iteration's length up to rounding.
struct TimeShares {
  double compute = 0.0;  // tensor-core bound
  double memory = 0.0;   // HBM bound
  double network = 0.0;  // GPU-to-GPU (tensor parallelism)
  double host = 0.0;     // CPU time of the engine: launch floor and overhead
};

/// Kinds of layers that a model may have: dense MLP or experts, full attention or a window.
inline constexpr std::size_t kMostLayerKinds = 4;

/// Which layers of a model take equal time.
struct LayerKinds {
  std::vector<std::uint8_t> of_layer{};                // the kind of each layer; empty: all are of one kind
  std::array<std::int32_t, kMostLayerKinds> layers{};  // of each kind
  [[nodiscard]] bool several() const { return !of_layer.empty(); }
};

/// Durations of one sub-batch, each rounded once. The iteration takes before + all layers + after, where all layers
/// take layers * layer, or the sum of their kinds'.
struct IterationTime {
  Duration before{};  // CPU time that nothing hides, embedding
  Duration layer{};   // one transformer layer; of several kinds the mean, rounded down
  Duration after{};   // final norm, LM head, sampling
  TimeShares shares{};
  Duration attention{};  // the part of `layer` in which the GPU attends; 0: the model does not tell it apart
  std::array<Duration, kMostLayerKinds> kinds{};  // a layer of each kind, where there are several
};

/// What all layers of an iteration take: sums of IterationTime over its sub-batches.
struct LayerCompute {
  std::array<Duration, kMostLayerKinds> kinds{};  // all layers of each kind; of a model with one kind, the first
  Duration attention{};  // the part in which the GPU attends, at the full clock; 0: the model does not tell it apart
};

/// Time of a copy: `launch` does not depend on the link's load, `transfer` is bytes / bandwidth of an idle link.
struct CopyTime {
  Duration launch{};
  Duration transfer{};
};

/// Attention on the CPU for the decoding sequences of one sub-batch, for one layer.
struct CpuAttentionTime {
  Duration launch{};     // fixed part
  Duration attention{};  // the CPU reads `kv` and computes
  Bytes kv{};
  Bytes queries{};  // that go to the CPU, with the new keys and values
  Bytes outputs{};  // that come back
};

/// How bytes are moved between host and GPU, or between GPUs.
enum class CopyMechanism : std::uint8_t {
  single,   // one DMA of contiguous bytes
  many,     // a loop of asynchronous DMAs, one per block
  batched,  // one call with many descriptors (cuMemcpyBatchAsync)
  kernel,   // SMs read and write the scattered blocks themselves
  gather,   // a kernel gathers the blocks into one buffer, then one DMA (or DMA, then scatter)
  peer,     // between GPUs
  relay,    // of memory that is not page-locked: the CPU copies each block to a buffer that is, then one DMA
};
inline constexpr std::size_t kCopyMechanisms = 7;

/// Factor num / den by which work takes longer: 1 <= den <= num < 2^31.
struct Slowdown {
  std::int64_t num = 1;
  std::int64_t den = 1;
  [[nodiscard]] bool none() const { return num == den; }
  bool operator==(const Slowdown&) const = default;
};

/// How much copies slow each other and compute. Launches share nothing.
struct CopySharing {
  Slowdown h2d{};      // of a transfer to the GPU during a transfer from it
  Slowdown d2h{};      // of a transfer from the GPU during a transfer to it
  Slowdown compute{};  // of a layer, or of the work after the layers, that starts while a copy is in flight
};

/// A GPU that computes for long would draw more power than it may, so it lowers its clock. Short kernels between idle
/// or memory-bound ones run at the full clock, as in most microbenchmarks.
struct SustainedClock {
  double share = 1.0;     // of the time in which compute-bound kernels run; the clock is lower while it is exceeded
  double slowdown = 1.0;  // >= 1, of compute-bound kernels then
  Duration window{};      // > 0: the share is an average over about so long
};

/// Predicts durations for one model on one GPU (per tensor-parallel rank) under one engine.
///
/// Contract
///  * Pure: the same arguments give the same value, on every machine (IEEE + - * / sqrt only).
///  * Every returned duration is >= 0 and rounded once to whole nanoseconds. O(chunks) per call.
///  * A later iteration of the same decodes, and of nothing else, takes at least what this one takes without its
///    IterationTime::attention (see least()).
///  * A model may cache results and count calls, so two threads must not share a model.
class ExecutionModel {
 public:
  virtual ~ExecutionModel() = default;
  [[nodiscard]] virtual std::int32_t layers() const = 0;
  /// Constant for a model, and refers to a part of it.
  [[nodiscard]] virtual const LayerKinds& layer_kinds() const;
  /// What all layers of an iteration take together. O(1).
  [[nodiscard]] Duration all_layers(const IterationTime& time) const {
    const LayerKinds& kinds = layer_kinds();
    if (!kinds.several()) return time.layer * layers();
    Duration sum{};
    for (std::size_t k = 0; k < kMostLayerKinds; ++k) sum += time.kinds[k] * kinds.layers[k];
    return sum;
  }
  [[nodiscard]] Duration length(const IterationTime& time) const { return time.before + all_layers(time) + time.after; }
  [[nodiscard]] virtual IterationTime iteration(const BatchShape& shape) const = 0;
  /// No later iteration is shorter that has the same decodes as the one that took `time`, and neither had chunks. 0:
  /// the model does not tell attention apart, so nothing is known.
  [[nodiscard]] Duration least(const IterationTime& time) const {
    if (time.attention == Duration{}) return {};
    constexpr std::int64_t kRounding = 2;  // ns, of each layer, and of what is around the layers
    const Duration attention = time.attention * layers() + Duration(kRounding * (layers() + 1));
    return std::max(Duration{}, length(time) - attention);
  }
  /// `copies` separate copies of `bytes` in total on one stream, neither compute nor cpu.
  [[nodiscard]] virtual CopyTime copy(Stream direction, std::int64_t copies, Bytes bytes,
                                      CopyMechanism mechanism) const = 0;
  /// For how long the thread is busy that starts such copies.
  [[nodiscard]] virtual Duration copy_start(Stream direction, std::int64_t copies, Bytes bytes,
                                            CopyMechanism mechanism) const {
    (void)direction, (void)copies, (void)bytes, (void)mechanism;
    return {};
  }
  /// Of BatchShape::cpu_sequences. Its GPU work is in iteration(). A model without such attention throws
  /// InvariantError.
  [[nodiscard]] virtual CpuAttentionTime cpu_attention(std::int64_t sequences, Tokens context) const;
  /// How much copies slow each other and compute. Constant for a model. copy() and iteration() return times without
  /// this slowdown.
  [[nodiscard]] virtual CopySharing copy_sharing() const { return {}; }
  /// Constant for a model; empty: the clock stays. iteration() returns times at the full clock.
  [[nodiscard]] virtual std::optional<SustainedClock> sustained_clock() const { return {}; }
  /// Every quantity with a measured range that calls of iteration() and copy() have used so far, inside the range or
  /// outside. The order does not depend on the calls. Empty for a model without measurements.
  [[nodiscard]] virtual std::vector<RangeUse> range_uses() const { return {}; }
};

}  // namespace spillway
