// How long an iteration or a copy takes.
#pragma once

#include <cstdint>
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

/// What one sub-batch computes in one iteration, as sums. Decoding sequences contribute one new token each.
struct BatchShape {
  std::int64_t decode_sequences = 0;
  Tokens decode_context{};  // sum over decoding sequences of the tokens they attend to, the new one included
  Tokens decode_longest{};  // the largest of these; 0: unknown, so taken as their mean
  std::span<const PrefillChunk> chunks{};  // one entry per sequence in prefill
  std::int64_t sampled_sequences = 0;      // sequences that emit a token: they pass the LM head
  [[nodiscard]] bool empty() const { return decode_sequences == 0 && chunks.empty(); }
};

/// Where an iteration's time goes when nothing overlaps it: seconds, summing to the iteration's length up to rounding.
struct TimeShares {
  double compute = 0.0;  // tensor-core bound
  double memory = 0.0;   // HBM bound
  double network = 0.0;  // GPU-to-GPU (tensor parallelism)
  double host = 0.0;     // launch floor and engine overhead
};

/// Durations of one sub-batch, each rounded once. The iteration takes before + layers * layer + after.
struct IterationTime {
  Duration before{};  // host work that nothing hides, embedding
  Duration layer{};   // one transformer layer
  Duration after{};   // final norm, LM head, sampling
  TimeShares shares{};
};

/// Time of a copy: `launch` does not depend on the link's load, `transfer` is bytes / bandwidth of an idle link.
struct CopyTime {
  Duration launch{};
  Duration transfer{};
};

/// How bytes are moved between host and GPU, or between GPUs.
enum class CopyMechanism : std::uint8_t {
  single,   // one DMA of contiguous bytes
  many,     // a loop of asynchronous DMAs, one per block
  batched,  // one call with many descriptors (cuMemcpyBatchAsync)
  kernel,   // SMs read and write the scattered blocks themselves
  gather,   // a kernel gathers the blocks into one buffer, then one DMA (or DMA, then scatter)
  peer,     // between GPUs
};

/// num / den, how many times as long something takes: 1 <= den <= num < 2^31.
struct Slowdown {
  std::int64_t num = 1;
  std::int64_t den = 1;
  [[nodiscard]] bool none() const { return num == den; }
};

/// What copies cost each other and the GPU's work.
struct CopySharing {
  Slowdown h2d{};      // of a transfer to the GPU while one from it is under way; launches share nothing
  Slowdown d2h{};      // the same the other way round
  Slowdown compute{};  // of a layer, or of what follows the layers, that starts while a copy is in flight
};

/// Predicts durations for one model on one GPU (per tensor-parallel rank) under one engine.
///
/// Contract
///  * Pure: the same arguments give the same value, on every machine (IEEE + - * / sqrt only).
///  * Every returned duration is >= 0 and rounded once to whole nanoseconds. O(chunks) per call.
///  * A model may keep what it has computed and count what it was asked, so two threads must not share one.
class ExecutionModel {
 public:
  virtual ~ExecutionModel() = default;
  [[nodiscard]] virtual std::int32_t layers() const = 0;
  [[nodiscard]] virtual IterationTime iteration(const BatchShape& shape) const = 0;
  /// `copies` separate host-side copies of `bytes` in total, one direction (Stream::h2d or Stream::d2h).
  [[nodiscard]] virtual CopyTime copy(Stream direction, std::int64_t copies, Bytes bytes,
                                      CopyMechanism mechanism) const = 0;
  /// The same at every call. copy() and iteration() state times without it.
  [[nodiscard]] virtual CopySharing copy_sharing() const { return {}; }
  /// Of all calls of iteration() and copy() so far: every quantity that the model knows a measured range of and was
  /// asked for, inside or outside. In an order that does not depend on the calls. Empty for a model without
  /// measurements.
  [[nodiscard]] virtual std::vector<RangeUse> range_uses() const { return {}; }
};

}  // namespace spillway
