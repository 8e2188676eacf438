// What is executed for real and predicted by the simulator: five experiments with one struct of parameters each, and
// the settings of them that no calibration has seen.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "cuda_calibrate/measure/point.hpp"
#include "sim/api/execution_model.hpp"

namespace spillway::calibrate {

/// `calls` products y[m][n] = x[m][k] w[n][k] in 2-byte numbers, one behind another: the compute of a layer. With
/// calls = 0 there is nothing to compute.
struct Multiply {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t calls = 1;

  /// Of all calls, each with weights of its own.
  [[nodiscard]] std::int64_t weight_bytes() const { return calls * n * k * 2; }
  bool operator==(const Multiply&) const = default;
};

/// (a) KV of single layers swapped out and in while others compute, Pie's rule with checks at completion: `on_host` of
/// `layers` layers are on the host, `iterations` passes through all layers.
struct LayerSwapping {
  std::int32_t layers = 0;
  std::int32_t on_host = 0;
  Multiply compute{};
  std::int64_t slot_bytes = 0;  // KV of one layer
  std::int32_t iterations = 1;
};

/// (b) The weights of every `interval`-th layer streamed from the host while the others compute, Select-N's rule.
struct WeightPrefetch {
  std::int32_t layers = 0;
  std::int32_t interval = 1;
  bool double_buffer = false;
  Multiply compute{};  // whose weights are what is streamed
  std::int32_t iterations = 1;
};

/// (c) KV of `layers` layers swapped in before attention: layer by layer while earlier ones compute (Pensieve), or all
/// of it first.
struct SwapIn {
  std::int32_t layers = 0;
  bool pipelined = true;
  Multiply compute{};
  CopyMechanism mechanism = CopyMechanism::single;
  std::int64_t blocks = 1;  // of one layer
  std::int64_t block_bytes = 0;
};

/// (d) `blocks` scattered blocks copied to the host, `calls` times, with nothing beside it.
struct PageOut {
  CopyMechanism mechanism = CopyMechanism::many;
  std::int64_t blocks = 0;
  std::int64_t block_bytes = 0;
  std::int32_t calls = 1;
};

/// (e) Two sub-batches that take turns on the GPU; the CPU attends for one of them, or for both, while the GPU works
/// for the other (NEO). Q, K and V come to the host before, the output goes back behind it.
struct CpuOverlap {
  std::int32_t layers = 0;
  Multiply first{};                 // GPU work of a layer, first sub-batch
  Multiply second{};                // the same of the second
  HostAttention first_attention{};  // batch = 0: none
  HostAttention second_attention{};
};

using Experiment = std::variant<LayerSwapping, WeightPrefetch, SwapIn, PageOut, CpuOverlap>;

/// "a" .. "e".
[[nodiscard]] std::string letter_of(const Experiment& experiment);
/// What an experiment is, one line.
[[nodiscard]] std::string title_of(const std::string& letter);

struct Setting {
  std::string name;  // "a07"
  Experiment experiment{};
};

/// The parameters of a setting on one line.
[[nodiscard]] std::string text_of(const Experiment& experiment);

/// Bytes that an attention call reads: K and V of every sequence.
[[nodiscard]] std::int64_t kv_bytes(const HostAttention& attention);
/// Q, K and V of the new tokens, in the cache's format; the output in fp32, as NEO sends them.
[[nodiscard]] std::int64_t query_bytes(const HostAttention& attention);
[[nodiscard]] std::int64_t output_bytes(const HostAttention& attention);

/// Sets of blocks that the calls of a page-out take in turns.
inline constexpr std::int32_t kPageOutSlots = 4;

struct Footprint {
  std::int64_t gpu_bytes = 0;
  std::int64_t host_bytes = 0;
};
/// What copies, streamed weights and the CPU's KV take. The operands of products come on top, below 2 GiB, and copies
/// of a KV cache that the CPU's caches would hold.
[[nodiscard]] Footprint footprint_of(const Experiment& experiment);

/// The machine that settings are made for.
struct Scale {
  std::int64_t gpu_bytes = 0;   // that a setting may take at most
  std::int64_t host_bytes = 0;  // likewise
  double swap_rate = 0.0;       // bytes/s of the slower direction while both are busy
  double h2d_rate = 0.0;        // bytes/s of that direction alone
  double attention_rate = 0.0;  // bytes/s of KV that the CPU attends to
  std::int64_t threads = 1;     // of CPU attention
  std::function<double(const Multiply&)> multiply_seconds;
  std::function<double(const PageOut&)> page_out_seconds;
};

/// 64 settings: 24 of (a), 12 of (b), 10 of (c), 8 of (d), 10 of (e). Shapes, sizes and counts lie between those of the
/// calibration's grids. Copies and the CPU's work are sized against the GPU's compute: some settings are bound by
/// compute, some by the rest, and most are near the balance, where an error shows. The same scale gives the same
/// settings.
[[nodiscard]] std::vector<Setting> held_out_settings(const Scale& scale);

}  // namespace spillway::calibrate
