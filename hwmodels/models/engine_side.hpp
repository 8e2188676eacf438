// What every execution model adds to its kernels: the engine's CPU time, and the links to host and other GPUs.
//
// Given     F, G        launch floor of a layer; iterations of up to G tokens replay a CUDA graph       EngineProfile
//           h_f, h_s    CPU time per iteration and per sequence                                         EngineProfile
//           before, layer, after   GPU time of the three parts of an iteration; L layers
//           B_i, D_i    bytes/s of direction i alone, and while the other is busy too (no figure: B_i)    CopyFigures
//           c           time of a layer while a copy runs / its time alone (no figure: 1)                CopyFigures
// Computed
//   layer'   = max(layer, F), or layer when a graph is replayed
//   host     = h_f + h_s * sequences; seen = host, or when the engine overlaps it with the GPU,
//              max(0, host - (before + L layer' + after))
//   before'  = before + seen
//   slowdown of i while both directions transfer = B_i / D_i, of compute beside a copy = c; to a millionth
// B_i and D_i are those of one GPU, also on a server: what a run's GPUs copy beyond the server's totals shows when they
// copy (sim/exec/copy_links.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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
  /// Parts of an iteration of `tokens` tokens and `shape`, by what bounds them. `attention`: seconds of `layer` in
  /// which the GPU attends. Like copy(), throws DataError when the time exceeds a day.
  [[nodiscard]] IterationTime iteration(const BatchShape& shape, double tokens, TimeShares before, TimeShares layer,
                                        const TimeShares& after, double attention) const;
  /// Layers of one kind.
  struct KindTime {
    TimeShares layer{};
    double attention = 0.0;   // seconds of `layer`
    std::int64_t layers = 0;  // of this kind
  };
  /// The same of layers of several kinds, whose numbers sum to layers(). Changes `kinds`.
  [[nodiscard]] IterationTime iteration(const BatchShape& shape, double tokens, TimeShares before,
                                        std::span<KindTime> kinds, const TimeShares& after) const;
  /// Uses the fitted mechanism where the profile has it, else launch + bytes / bandwidth of the stream: by SMs for
  /// CopyMechanism::kernel, by the copy engine for any other, and where the profile states nothing of SMs. Between GPUs
  /// the mechanism is CopyMechanism::peer, whatever gathers the blocks. What was not fitted and is gathered, or
  /// scattered, by a kernel reads and writes the GPU's memory once more, before or after it is on the link. A relay
  /// that was not fitted is a copy by the host's CPU and CopyMechanism::single after it; only the latter is on the
  /// link. Throws ConfigError when the profile does not have what a copy needs.
  [[nodiscard]] CopyTime copy(Stream direction, std::int64_t copies, Bytes bytes, CopyMechanism mechanism) const;
  /// The CPU issues a loop of copies (CopyMechanism::many, batched) one by one. A copy without bytes takes as long as
  /// that, its launch, and no loop is faster. Other mechanisms: 0. Not scaled by scales.copies.
  [[nodiscard]] Duration copy_start(Stream direction, std::int64_t copies, Bytes bytes, CopyMechanism mechanism) const;
  /// Uses the plain figures of GpuProfile::layer_copies for the two directions, whatever the mechanism of a copy.
  [[nodiscard]] const CopySharing& copy_sharing() const { return sharing_; }
  [[nodiscard]] const std::optional<SustainedClock>& sustained_clock() const { return sustained_clock_; }
  /// Block sizes of the copies so far compared with the measured range, for each mechanism.
  void append_range_uses(std::vector<RangeUse>& uses) const;

 private:
  struct FittedCopy;
  /// Null: the profile has no fit of it.
  [[nodiscard]] FittedCopy* fitted_copy(Stream direction, CopyMechanism mechanism) const;
  /// The link of copies that were not fitted.
  [[nodiscard]] const HostLink& link_of(Stream direction, CopyMechanism mechanism) const;
  /// Seconds in which a kernel gathers or scatters blocks; 0 for other mechanisms, and where nothing says how fast the
  /// GPU's memory is.
  [[nodiscard]] double gathering(Bytes bytes, CopyMechanism mechanism) const;
  [[nodiscard]] CopyTime relay(Stream direction, std::int64_t copies, Bytes bytes) const;
  [[nodiscard]] CopyTime copy_by_figures(Stream direction, std::int64_t copies, Bytes bytes,
                                         CopyMechanism mechanism) const;
  [[nodiscard]] CopyTime copy_by_fit(FittedCopy& fitted, Stream direction, std::int64_t copies, Bytes bytes,
                                     CopyMechanism mechanism) const;
  static void tally(FittedCopy& fitted, std::int64_t copies, Bytes bytes);
  /// Throws DataError for a time of more than a day, which would soon overflow the clock.
  void check_time(const char* what, double seconds) const;

  std::string gpu_;
  std::int64_t layers_;
  CopyFigures by_engine_;
  CopyFigures by_kernel_;
  HostLink peer_;  // no bandwidth: no direct copies
  std::optional<BytesPerSecond> host_copy_;
  double cpu_scale_;
  CopySharing sharing_;
  std::optional<SustainedClock> sustained_clock_;
  struct FittedCopy {
    CopyModel model;
    RangeTally bytes;  // of one copy
  };
  BytesPerSecond memory_bandwidth_;
  double copy_scale_;
  mutable std::vector<FittedCopy> copies_;  // the tallies change
  /// The last copy of a stream and mechanism.
  struct Asked {
    std::int64_t copies = -1;
    Bytes bytes{};
    CopyTime time{};
    std::optional<std::size_t> fitted{};  // in copies_
  };
  mutable std::array<std::array<Asked, kCopyMechanisms>, kStreams> last_{};
  double launch_floor_;
  double graph_tokens_;
  bool graph_prefill_;
  double host_fixed_;
  double host_per_sequence_;
  double host_scale_;
  bool host_overlapped_;
};

/// All tokens that a sub-batch computes.
[[nodiscard]] inline double tokens_of(const BatchShape& shape) {
  auto tokens = static_cast<double>(shape.decodes());
  for (const PrefillChunk& chunk : shape.chunks) tokens += static_cast<double>(chunk.new_tokens.count());
  return tokens;
}

}  // namespace spillway::hwmodels
