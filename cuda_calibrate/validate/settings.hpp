// The experiments that are both executed and predicted: five experiments with one struct of parameters each, and the
// held-out settings, which no calibration has measured.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "cuda_calibrate/measure/point.hpp"
#include "sim/api/execution_model.hpp"

namespace spillway::calibrate {

/// `calls` consecutive products y[m][n] = x[m][k] w[n][k] in 2-byte numbers: the compute of a layer. calls = 0 means no
/// compute.
struct Multiply {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t calls = 1;

  /// Total of all calls; each call has its own weights.
  [[nodiscard]] std::int64_t weight_bytes() const { return calls * n * k * 2; }
  bool operator==(const Multiply&) const = default;
};

/// (a) KV of single layers swapped out and in while other layers compute, by Pie's rule with checks at completion.
/// `on_host` of `layers` layers are on the host; `iterations` passes run through all layers.
struct LayerSwapping {
  std::int32_t layers = 0;
  std::int32_t on_host = 0;
  Multiply compute{};
  std::int64_t slot_bytes = 0;  // KV of one layer
  std::int32_t iterations = 1;
};

/// (b) Weights of every `interval`-th layer streamed from the host while the other layers compute, by Select-N's rule.
struct WeightPrefetch {
  std::int32_t layers = 0;
  std::int32_t interval = 1;
  bool double_buffer = false;
  Multiply compute{};  // its weights are streamed
  std::int32_t iterations = 1;
};

/// (c) KV of `layers` layers swapped in before attention: layer by layer while earlier layers compute (Pensieve), or
/// completely before the compute.
struct SwapIn {
  std::int32_t layers = 0;
  bool pipelined = true;
  Multiply compute{};
  CopyMechanism mechanism = CopyMechanism::single;
  std::int64_t blocks = 1;  // per layer
  std::int64_t block_bytes = 0;
};

/// (d) `blocks` scattered blocks copied to the host, `calls` times, on an otherwise idle machine.
struct PageOut {
  CopyMechanism mechanism = CopyMechanism::many;
  std::int64_t blocks = 0;
  std::int64_t block_bytes = 0;
  std::int32_t calls = 1;
};

/// (e) Two sub-batches take turns on the GPU (NEO). The CPU attends for one or both sub-batches while the GPU works for
/// the other. Q, K and V are copied to the host before the attention, the output to the GPU after it.
struct CpuOverlap {
  std::int32_t layers = 0;
  Multiply first{};                 // GPU work of a layer, first sub-batch
  Multiply second{};                // GPU work of a layer, second sub-batch
  HostAttention first_attention{};  // batch = 0: no CPU attention
  HostAttention second_attention{};
};

using Experiment = std::variant<LayerSwapping, WeightPrefetch, SwapIn, PageOut, CpuOverlap>;

/// "a" .. "e".
[[nodiscard]] std::string letter_of(const Experiment& experiment);
/// One line about an experiment.
[[nodiscard]] std::string title_of(const std::string& letter);

struct Setting {
  std::string name;  // "a07"
  Experiment experiment{};
};

/// The parameters of a setting on one line.
[[nodiscard]] std::string text_of(const Experiment& experiment);

/// Bytes that an attention call reads: K and V of all sequences.
[[nodiscard]] std::int64_t kv_bytes(const HostAttention& attention);
/// Q, K and V of the new tokens in the cache's format, and the output in fp32, as NEO sends them.
[[nodiscard]] std::int64_t query_bytes(const HostAttention& attention);
[[nodiscard]] std::int64_t output_bytes(const HostAttention& attention);

/// Sets of blocks that consecutive calls of a page-out use in turn.
inline constexpr std::int32_t kPageOutSlots = 4;

struct Footprint {
  std::int64_t gpu_bytes = 0;
  std::int64_t host_bytes = 0;
};
/// Memory for copies, streamed weights and the CPU's KV. Operands of products (below 2 GiB) are extra, and so are
/// copies of a KV cache that would fit the CPU's caches.
[[nodiscard]] Footprint footprint_of(const Experiment& experiment);

/// The machine that the settings are scaled to.
struct Scale {
  std::int64_t gpu_bytes = 0;   // limit for a setting
  std::int64_t host_bytes = 0;  // limit for a setting
  double swap_rate = 0.0;       // bytes/s of the slower direction while both are busy
  double h2d_rate = 0.0;        // bytes/s of H2D alone
  double attention_rate = 0.0;  // KV bytes/s of CPU attention
  std::int64_t threads = 1;     // for CPU attention
  std::function<double(const Multiply&)> multiply_seconds;
  std::function<double(const PageOut&)> page_out_seconds;
};

/// 64 settings: 24 of (a), 12 of (b), 10 of (c), 8 of (d), 10 of (e). Shapes, sizes and counts lie between the grid
/// points of the calibration. Copies and CPU work are scaled to the GPU's compute: some settings are bound by compute,
/// some by the rest, and most are near the balance, where errors show. Equal scales give equal settings.
[[nodiscard]] std::vector<Setting> held_out_settings(const Scale& scale);

}  // namespace spillway::calibrate
