// What every execution model adds to its kernels: the engine's host side, and the host link.
//
// Given     F, G        launch floor of a layer; iterations of up to G tokens replay a CUDA graph       EngineProfile
//           h_f, h_s    host time per iteration and per sequence                                        EngineProfile
//           before, layer, after   GPU time of the three parts of an iteration; L layers
//           B_i, D_i    bytes/s of direction i alone, and while the other is busy too (no figure: B_i)     GpuProfile
//           c           time of a layer beside a copy over its time alone (no figure: 1)                   GpuProfile
//           A_i, T      bytes/s that all GPUs of a server reach together: in direction i, and in both (no figure:
//                       without limit)                                                                  ServerProfile
//           g           GPUs that copy at once
// Computed
//   layer'   = max(layer, F), or layer when a graph is replayed
//   host     = h_f + h_s * sequences; seen is all of it, or, when the engine overlaps it,
//              max(0, host - (before + L layer' + after))
//   before'  = before + seen
//   B_i'     = min(B_i, A_i / g, T / g)
//   D_i'     = min(D_i, B_i'), both scaled down to a sum of T / g where it exceeds that
//   slowdown of i while both directions transfer = B_i' / D_i', of compute beside a copy = c; to a millionth
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "hwmodels/catalog.hpp"
#include "hwmodels/models/range_tally.hpp"
#include "sim/api/execution_model.hpp"
#include "sim/api/op_scales.hpp"

namespace spillway::hwmodels {

class EngineSide {
 public:
  /// F, h_f and h_s are multiplied by scales.host, copies by scales.copies.
  EngineSide(const GpuProfile& gpu, const EngineProfile& engine, std::int64_t layers, const OpScales& scales = {});

  [[nodiscard]] std::int64_t layers() const { return layers_; }
  /// Parts of an iteration of `tokens` tokens and `shape`, by what bounds them. Throws DataError, as does copy(), when
  /// it takes more than a day.
  [[nodiscard]] IterationTime iteration(const BatchShape& shape, double tokens, TimeShares before, TimeShares layer,
                                        const TimeShares& after) const;
  /// By the fitted mechanism where the profile has it, else launch + bytes / bandwidth of the direction. Throws
  /// ConfigError when the profile has neither.
  [[nodiscard]] CopyTime copy(Stream direction, std::int64_t copies, Bytes bytes, CopyMechanism mechanism) const;
  /// By the plain figures of the two directions, whatever the mechanism.
  [[nodiscard]] const CopySharing& copy_sharing() const { return sharing_; }
  /// Bytes of the copies so far, mechanism by mechanism, against what was measured of it.
  void append_range_uses(std::vector<RangeUse>& uses) const;

 private:
  /// Throws DataError for a time that would overflow a clock before long.
  void check_time(const char* what, double seconds) const;

  std::string gpu_;
  std::int64_t layers_;
  HostLink h2d_;
  HostLink d2h_;
  CopySharing sharing_;
  struct FittedCopy {
    CopyModel model;
    RangeTally bytes;  // of one copy
  };
  double copy_scale_;
  mutable std::vector<FittedCopy> copies_;  // the tallies change
  double launch_floor_;
  double graph_tokens_;
  bool graph_prefill_;
  double host_fixed_;
  double host_per_sequence_;
  bool host_overlapped_;
};

/// One GPU of a server while `copying` of them copy at once, as those of a tensor-parallel group do: B_i' and D_i'.
/// What a fitted mechanism reaches has the same limits, except between GPUs; each of its copies takes the longer by
/// what its bytes lose.
[[nodiscard]] GpuProfile with_server_limits(GpuProfile gpu, const ServerProfile& server, std::int64_t copying);

/// All tokens that a sub-batch computes.
[[nodiscard]] inline double tokens_of(const BatchShape& shape) {
  auto tokens = static_cast<double>(shape.decode_sequences);
  for (const PrefillChunk& chunk : shape.chunks) tokens += static_cast<double>(chunk.new_tokens.count());
  return tokens;
}

}  // namespace spillway::hwmodels
