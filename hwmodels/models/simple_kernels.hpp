// Time of what is described by a line or a measured curve: elementwise kernels, all-reduces, copies, CPU attention,
// host work, whole layers and iterations.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/api/execution_model.hpp"

namespace spillway::hwmodels {

/// Measured points of a curve, joined by straight lines; beyond the ends the line through the last two points goes on,
/// but never below 0 nor below the first point's value at its left. At least one point; sizes strictly ascending.
struct Curve {
  struct Point {
    double size = 0.0;
    double seconds = 0.0;
    bool operator==(const Point&) const = default;
  };
  std::vector<Point> points;
  /// O(log points).
  [[nodiscard]] double at(double size) const;
};

/// t = launch + bytes / bandwidth of norms, activations, rotations, sums, look-ups.
struct ElementwiseModel {
  double launch_seconds = 0.0;
  double bandwidth = 0.0;  // bytes/s
  [[nodiscard]] double seconds(double bytes) const;
};

/// Seconds by the bytes of one rank's buffer, for each number of ranks that was measured.
struct AllReduceModel {
  std::map<std::int64_t, Curve> by_ranks;
  /// For a number of ranks that was not measured: the nearest measured one above (else the largest), at a size scaled
  /// so that each rank moves the same bytes, 2 (p - 1) / p each. One rank has nothing to sum and takes no time.
  /// `by_ranks` holds at least one curve, all of 2 ranks or more. O(log points).
  [[nodiscard]] double seconds(std::int64_t ranks, double bytes) const;
};

/// t per copy = launch + bytes / bandwidth, or the measured curve up to its last point.
struct CopyModel {
  bool to_device = true;
  CopyMechanism mechanism = CopyMechanism::many;
  double launch_seconds = 0.0;
  double bandwidth = 0.0;  // bytes/s
  // Seconds of one copy by its bytes; may hold no point. Its last point lies on the line where larger sizes were
  // measured, so that time has no step between the two.
  Curve small;

  /// Of one copy of so many bytes.
  [[nodiscard]] double seconds(double block_bytes) const;
};

/// KV bytes / min(threads * per_thread, total) + launch.
struct CpuAttentionModel {
  double launch_seconds = 0.0;
  double bandwidth_per_thread = 0.0;  // bytes/s
  double bandwidth = 0.0;             // bytes/s of all threads together
  [[nodiscard]] double seconds(std::int64_t threads, double kv_bytes) const;
};

/// fixed + per_sequence * sequences.
struct HostModel {
  double fixed_seconds = 0.0;
  double per_sequence_seconds = 0.0;
  [[nodiscard]] double seconds(std::int64_t sequences) const;
};

/// The kernels that profilers of engines name, by the tokens of an iteration and by the sequences that are sampled.
inline constexpr std::array<std::string_view, 9> kLayersByTokens{"qkv_proj",   "o_proj",    "gate_up_proj",
                                                                 "down_proj",  "act_fn",    "layernorm",
                                                                 "rotary_emb", "embedding", "final_layernorm"};
inline constexpr std::array<std::string_view, 2> kLayersBySequences{"lm_head", "sampler"};

/// Measured kernels of one model, as an engine's profiler logs them.
struct LayerTables {
  std::string model;                          // which the tables were measured on; empty when no file says so
  std::map<std::string, Curve> per_token;     // kernel -> seconds by tokens
  std::map<std::string, Curve> per_sequence;  // kernel -> seconds by sampled sequences
  /// Attention on a grid over (chunk, chunk context, decodes, decode context), each axis ascending, those of the two
  /// counts starting at 0; seconds row by row, the last axis fastest. Where a count is 0, its context changes nothing.
  /// Where both are, nothing was measured and the value is negative.
  std::vector<double> chunk_axis;
  std::vector<double> chunk_context_axis;
  std::vector<double> decodes_axis;
  std::vector<double> decode_context_axis;
  std::vector<double> attention_seconds;

  /// Whether the grid has calls with chunks, or with decodes, where that is asked for.
  [[nodiscard]] bool holds(bool chunks, bool decodes) const;
  /// Multilinear between grid points; beyond the grid the last cell goes on linearly, never below 0. A context or a
  /// count (other than 0) below the smallest measured one counts as that: the first tile of a kernel costs the same
  /// however full it is, and between none and some the kernel changes. Nothing to do takes no time. O(16 + log points).
  [[nodiscard]] double attention(double chunk, double chunk_context, double decodes, double decode_context) const;
};

/// a + b tokens + c context + d chunk pairs, from an engine's log of whole iterations.
struct IterationModel {
  double fixed_seconds = 0.0;
  double token_seconds = 0.0;
  double context_seconds = 0.0;
  double pair_seconds = 0.0;
  std::string model{};  // whose iterations were logged; empty when no file says so
  [[nodiscard]] double seconds(double tokens, double context, double chunk_pairs) const;
};

}  // namespace spillway::hwmodels
