// Times that a line or a measured curve describes: elementwise kernels, all-reduces, copies, CPU attention, CPU time of
// the engine, whole layers and iterations.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/api/execution_model.hpp"

namespace spillway::hwmodels {

/// Measured points of a curve, joined by straight lines. Beyond each end the line through the two outermost points
/// continues, but not below 0, and left of the first point not below its value. At least one point; sizes strictly
/// ascending.
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
  /// A number of ranks p that was not measured uses the next larger measured number (else the largest), at a size
  /// scaled so that each rank moves the same bytes, 2 (p - 1) / p of its buffer. One rank takes no time. `by_ranks`
  /// holds at least one curve, each of 2 ranks or more. O(log points).
  [[nodiscard]] double seconds(std::int64_t ranks, double bytes) const;
};

/// t per copy = launch + bytes / bandwidth, or the measured curve up to its last point.
struct CopyModel {
  bool to_device = true;
  CopyMechanism mechanism = CopyMechanism::many;
  double launch_seconds = 0.0;
  double bandwidth = 0.0;  // bytes/s
  // Seconds of one copy by its bytes; may be empty. Where larger sizes were measured, its last point lies on the line,
  // so that the time has no step between curve and line.
  Curve small;

  /// Seconds of one copy.
  [[nodiscard]] double seconds(double block_bytes) const;
};

/// t = launch + KV bytes / min(threads * per_thread, total).
struct CpuAttentionModel {
  double launch_seconds = 0.0;
  double bandwidth_per_thread = 0.0;  // bytes/s
  double bandwidth = 0.0;             // bytes/s of all threads together
  [[nodiscard]] double seconds(std::int64_t threads, double kv_bytes) const;
};

/// CPU time of the engine per iteration: t = fixed + per_sequence * sequences.
struct HostModel {
  double fixed_seconds = 0.0;
  double per_sequence_seconds = 0.0;
  [[nodiscard]] double seconds(std::int64_t sequences) const;
};

/// Kernels, as profilers of engines name them: by the tokens of an iteration, and by the sampled sequences.
inline constexpr std::array<std::string_view, 9> kLayersByTokens{"qkv_proj",   "o_proj",    "gate_up_proj",
                                                                 "down_proj",  "act_fn",    "layernorm",
                                                                 "rotary_emb", "embedding", "final_layernorm"};
inline constexpr std::array<std::string_view, 2> kLayersBySequences{"lm_head", "sampler"};

/// Measured kernels of one model, as an engine's profiler logs them.
struct LayerTables {
  std::string model;                          // that the tables were measured on; empty: not stated
  std::map<std::string, Curve> per_token;     // kernel -> seconds by tokens
  std::map<std::string, Curve> per_sequence;  // kernel -> seconds by sampled sequences
  /// Attention on a grid over (chunk, chunk context, decodes, decode context). Each axis ascends; the axes of the two
  /// counts start at 0. Seconds are stored row by row, the last axis fastest. Where a count is 0, its context does not
  /// matter. Where both counts are 0, nothing was measured and the value is negative.
  std::vector<double> chunk_axis;
  std::vector<double> chunk_context_axis;
  std::vector<double> decodes_axis;
  std::vector<double> decode_context_axis;
  std::vector<double> attention_seconds;

  /// Whether the grid has calls with chunks (if `chunks`) and with decodes (if `decodes`).
  [[nodiscard]] bool holds(bool chunks, bool decodes) const;
  /// Multilinear between grid points; beyond the grid the last cell continues linearly, but not below 0. A context or a
  /// count above 0 is raised to the smallest measured one: the first tile of a kernel costs the same however full it
  /// is, and another kernel runs when a count is 0. An empty call takes no time. O(16 + log points).
  [[nodiscard]] double attention(double chunk, double chunk_context, double decodes, double decode_context) const;
};

/// a + b tokens + c context + d chunk pairs, from an engine's log of whole iterations.
struct IterationModel {
  double fixed_seconds = 0.0;
  double token_seconds = 0.0;
  double context_seconds = 0.0;
  double pair_seconds = 0.0;
  std::string model{};  // whose iterations were logged; empty: not stated
  [[nodiscard]] double seconds(double tokens, double context, double chunk_pairs) const;
};

}  // namespace spillway::hwmodels
