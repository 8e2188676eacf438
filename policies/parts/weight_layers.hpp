// Weights of some layers on the host: what an offloading interval takes and leaves on a GPU, and a layer policy that
// keeps to one interval.
#pragma once

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

/// Memory of one GPU and its host by offloading interval. Intervals as in weight_stream.hpp; O(1) unless said
/// otherwise.
class WeightRoom {
 public:
  /// Weights may take policy.host_memory of the host, else what it has where that is known.
  WeightRoom(const Deployment& deployment, const Settings& settings, bool double_buffer);

  [[nodiscard]] std::int32_t layers() const { return memory_.layers; }
  [[nodiscard]] const WeightMemory& memory() const { return memory_; }
  [[nodiscard]] Bytes block_bytes() const { return block_bytes_; }
  /// Weights on the host.
  [[nodiscard]] Bytes host(std::int32_t interval) const { return host_layers(layers(), interval) * memory_.layer; }
  /// KV blocks beside the weights that stay on the GPU: all that fit, or as many as memory.gpu_kv holds.
  [[nodiscard]] Blocks blocks(std::int32_t interval) const;
  /// Select-N's maximum allocatable length.
  [[nodiscard]] Tokens longest(std::int32_t interval) const { return block_tokens_ * blocks(interval).count(); }

  /// The smallest interval whose layers fit the host; kAllResident when not one layer does.
  [[nodiscard]] std::int32_t smallest() const { return smallest_; }
  /// The largest interval that leaves room for so many blocks; empty when none from smallest() on does. O(1) when it is
  /// kAllResident, else O(layers).
  [[nodiscard]] std::optional<std::int32_t> largest(Blocks kv) const;

  /// Throws ConfigError, with the arithmetic, when `interval` takes more than the host has, or leaves less than one
  /// block or than memory.gpu_kv on the GPU.
  void check(std::int32_t interval) const;
  /// Of an instance that keeps to one interval; checks it.
  [[nodiscard]] Layout layout(std::int32_t interval) const;
  /// "8 of 32 layers of 402.7 MB live on the host (offloading interval 4)".
  [[nodiscard]] std::string placement(std::int32_t interval) const;

 private:
  WeightMemory memory_;
  Bytes block_bytes_;
  Tokens block_tokens_;
  std::optional<Bytes> given_kv_;
  std::optional<Bytes> host_memory_;
  std::int32_t smallest_ = 1;
};

/// One copy of a layer's weights to the GPU.
[[nodiscard]] Copy weight_copy(const Deployment& deployment);

/// Runs the iterations of a WeightStream and keeps its figures.
class WeightStreamer {
 public:
  /// `how`: all but the intervals and the copy.
  WeightStreamer(const Deployment& deployment, const WeightStreaming& how);

  /// The rule of an iteration at `interval`, into which the layers of the interval `returning` come as well; null when
  /// every layer is on the GPU.
  [[nodiscard]] LayerRule* iterate(std::int32_t interval, std::int32_t returning = kAllResident);
  /// The mean interval, and the most that was on the host.
  [[nodiscard]] LayerFigures figures() const;

 private:
  std::int32_t layers_;
  WeightStreaming streaming_;
  WeightStream rule_;
  std::int64_t iterations_ = 0;  // that streamed
  std::int64_t intervals_ = 0;   // sum over them
  std::int32_t most_on_host_ = 0;
};

/// Keeps to one interval.
class FixedInterval final : public LayerPolicy {
 public:
  FixedInterval(const Deployment& deployment, const WeightStreaming& how, Blocks capacity)
      : interval_(how.interval), capacity_(capacity), streamer_(deployment, how) {}

  [[nodiscard]] Blocks capacity() const override { return capacity_; }
  [[nodiscard]] LayerRule* begin(const BatchShape& /*shape*/, Duration /*layer*/) override {
    return streamer_.iterate(interval_);
  }
  [[nodiscard]] LayerFigures figures() const override { return streamer_.figures(); }

 private:
  std::int32_t interval_;
  Blocks capacity_;
  WeightStreamer streamer_;
};

}  // namespace spillway
