// Weights of some layers on the host: memory of GPU and host by offloading interval, and a layer policy with a fixed
// interval.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "policies/parts/performance_record.hpp"
#include "policies/parts/weight_stream.hpp"
#include "sim/api/layer_policy.hpp"
#include "sim/api/parameter.hpp"

namespace spillway {

/// `policy.host_memory` of policies whose weights live on the host.
[[nodiscard]] Parameter host_memory_parameter();

/// Where the weights of a deployment are.
struct WeightPlacement {
  Bytes gpu{};              // all weights on the GPU, buffers for others included
  Bytes host{};             // weights on the host
  std::string on_gpu{};     // what takes `gpu`: "24 experts of 9.4 MB on the GPU, 3.10 GB of other weights"
  std::string on_host{};    // what takes `host`: "104 experts of 9.4 MB"
  std::string terms{};      // of the layout, one line
  std::string less_host{};  // how to need less memory on the host
  std::string less_gpu{};   // and on the GPU
};

/// KV that a layout must leave on the GPU: memory.gpu_kv, or one block.
[[nodiscard]] Bytes least_kv_of(const Deployment& deployment);
/// KV that a default leaves on the GPU: memory.gpu_kv, or 32,768 tokens.
[[nodiscard]] Bytes default_kv_of(const Deployment& deployment);
/// The layout of a placement. Layout::chosen has the KV blocks. Throws ConfigError, with the arithmetic, when GPU or
/// host has too little memory.
[[nodiscard]] Layout lay_out_weights(const Deployment& deployment, const Settings& settings,
                                     const WeightPlacement& placement);
/// KV blocks of such a layout.
[[nodiscard]] Blocks laid_out_blocks(const Deployment& deployment);

/// Memory of one GPU and its host by offloading interval. Intervals are those of weight_stream.hpp. O(1) unless noted.
class WeightRoom {
 public:
  /// Host memory for weights is policy.host_memory, else the host's DRAM if known, else unlimited.
  WeightRoom(const Deployment& deployment, const Settings& settings, bool double_buffer);

  [[nodiscard]] std::int32_t layers() const { return memory_.layers; }
  [[nodiscard]] const WeightMemory& memory() const { return memory_; }
  [[nodiscard]] Bytes block_bytes() const { return block_bytes_; }
  /// Bytes of weights on the host.
  [[nodiscard]] Bytes host(std::int32_t interval) const { return host_layers(layers(), interval) * memory_.layer; }
  /// KV blocks that fit beside the weights on the GPU, at most those of memory.gpu_kv.
  [[nodiscard]] Blocks blocks(std::int32_t interval) const;
  /// GPU memory of the weights, staging buffers included.
  [[nodiscard]] Bytes gpu(std::int32_t interval) const { return memory_.gpu - memory_.room(interval); }
  /// Select-N's maximum allocatable length.
  [[nodiscard]] Tokens longest(std::int32_t interval) const { return block_tokens_ * blocks(interval).count(); }

  /// The smallest interval whose layers fit the host; kAllResident when no layer fits.
  [[nodiscard]] std::int32_t smallest() const { return smallest_; }
  /// The largest interval that leaves memory for `kv` blocks; empty when no interval from smallest() on does. O(1) for
  /// kAllResident, else O(layers).
  [[nodiscard]] std::optional<std::int32_t> largest(Blocks kv) const;

  /// The largest interval beside a part that holds the KV memory: it leaves all of memory.gpu_kv, if given, and a
  /// block. Only after check(smallest()). O(layers).
  [[nodiscard]] std::int32_t beside_held_kv() const { return *max_interval(memory_, least_kv()); }

  /// Throws ConfigError, with the arithmetic, when `interval` needs more than the host has, or leaves less than one
  /// block or less than memory.gpu_kv on the GPU.
  void check(std::int32_t interval) const;
  /// The layout of an instance with a fixed interval, which it checks.
  [[nodiscard]] Layout layout(std::int32_t interval) const;
  /// "8 of 32 layers of 402.7 MB live on the host (offloading interval 4)".
  [[nodiscard]] std::string placement(std::int32_t interval) const;
  /// "; maximum allocatable length 1000 tokens"; empty beside a part that holds the KV memory.
  [[nodiscard]] std::string length_text(std::int32_t interval) const;

 private:
  [[nodiscard]] Bytes least_kv() const { return std::max(block_bytes_, given_kv_.value_or(Bytes(0))); }

  WeightMemory memory_;
  Bytes block_bytes_;
  Tokens block_tokens_;
  std::optional<Bytes> given_kv_;
  bool held_kv_;  // another part holds the KV memory
  std::optional<Bytes> host_memory_;
  std::int32_t smallest_ = 1;
};

/// One copy of a layer's weights to the GPU.
[[nodiscard]] Copy weight_copy(const Deployment& deployment);

/// Runs the iterations of a WeightStream and keeps its figures.
class WeightStreamer {
 public:
  /// `how`: everything except the intervals and the copy.
  WeightStreamer(const Deployment& deployment, const WeightStreaming& how);

  /// The rule of an iteration at `interval` that also streams the layers of the interval `returning`; null when every
  /// layer is on the GPU.
  [[nodiscard]] LayerRule* iterate(std::int32_t interval, std::int32_t returning = kAllResident);
  /// The mean interval, and the peak of weights on the host.
  [[nodiscard]] Figures figures() const;

 private:
  std::int32_t layers_;
  WeightStreaming streaming_;
  WeightStream rule_;
  std::int64_t iterations_ = 0;  // that streamed
  std::int64_t intervals_ = 0;   // sum over them
  std::int32_t most_on_host_ = 0;
};

/// Runs every iteration at one interval.
class FixedInterval final : public LayerPolicy {
 public:
  FixedInterval(const Deployment& deployment, const WeightStreaming& how, Blocks capacity)
      : interval_(how.interval), capacity_(capacity), streamer_(deployment, how) {}

  [[nodiscard]] Blocks capacity() const override { return capacity_; }
  [[nodiscard]] LayerRule* begin(const BatchShape& /*shape*/, const LayerCompute& /*compute*/) override {
    return streamer_.iterate(interval_);
  }
  [[nodiscard]] Figures figures() const override { return streamer_.figures(); }

 private:
  std::int32_t interval_;
  Blocks capacity_;
  WeightStreamer streamer_;
};

}  // namespace spillway
