// FlexGen's placement of weights, KV and hidden states, and the memory that it needs.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "policies/parts/flexgen_matrices.hpp"
#include "policies/parts/quantities.hpp"
#include "sim/api/padding.hpp"
#include "sim/api/registry.hpp"

namespace spillway {

/// The keys of a placement, in the order of FlexgenPlan's fields. A user gives all of them or none.
inline constexpr std::array<const char*, 5> kFlexgenPlacement{
    "policy.gpu_batch", "policy.batches", "policy.weights_host", "policy.cache_host", "policy.hidden_host"};

/// Bytes that attention on the CPU moves for each byte of KV. FlexGen converts the cache to single precision before it
/// multiplies (flexgen/pytorch_backend.py, mha_gen, `k.float(), v.float()`; recalled, not looked up). So it reads 2
/// bytes of every number, writes 4 and reads 4 again, where a dedicated kernel reads 2. FlexGen's own fit of 12.3
/// GFLOP/s, one per byte of KV, then means 62 GB/s of memory traffic on its machine.
inline constexpr double kFlexgenAttentionTraffic = 5.0;

/// Seconds that the CPU takes to attend to so many bytes of KV, in one call. The deployment must know its bandwidth.
[[nodiscard]] double flexgen_cpu_attention(const Deployment& deployment, double kv_bytes);

/// The lengths to which every request is padded. FlexGen always has both keys.
[[nodiscard]] Padding flexgen_padding(const Settings& settings);

/// A placement of request blocks of at most gpu_batch * batches requests.
struct FlexgenPlan {
  std::int64_t gpu_batch = 1;
  std::int64_t batches = 1;
  double weights_host = 0.0;  // shares; of the weights: as asked for (FlexgenMatrices)
  double cache_host = 0.0;
  double hidden_host = 0.0;

  /// From settings with a value for each key of kFlexgenPlacement.
  static FlexgenPlan of(const Settings& settings);
  void write(Settings& settings) const;
  [[nodiscard]] std::int64_t block() const { return gpu_batch * batches; }
};

/// Bytes that a plan needs. O(1).
class FlexgenNeeds {
 public:
  /// `deployment` must outlive this object.
  FlexgenNeeds(const Deployment& deployment, const Settings& settings, const FlexgenPlan& plan);

  /// The matrices of a layer that are on the host.
  [[nodiscard]] const FlexgenRung& weights_on_host() const { return on_host_; }
  /// Host memory for one layer's weights.
  [[nodiscard]] Bytes layer_on_host() const;
  [[nodiscard]] double host_weights() const;
  [[nodiscard]] double gpu_weights() const;
  /// KV of one token and one layer.
  [[nodiscard]] double token_cache() const;
  [[nodiscard]] double host_cache() const { return plan_.cache_host * cache(); }
  [[nodiscard]] double gpu_cache() const { return cache() - host_cache(); }
  /// Hidden state of one token.
  [[nodiscard]] double token_hidden() const;
  [[nodiscard]] double host_hidden() const { return hidden_share() * hidden(plan_.block()); }
  /// The GPU's share, and the host's share of the micro-batch that computes.
  [[nodiscard]] double gpu_hidden() const;
  /// The host's share of the weights of the layer that computes and of the next layer.
  [[nodiscard]] double weight_buffers() const { return 2.0 * bytes_of(layer_on_host()); }
  /// The host's share of the KV of two micro-batches, if the GPU attends to it.
  [[nodiscard]] double cache_buffers() const;
  [[nodiscard]] double gpu() const;
  [[nodiscard]] double host() const { return host_weights() + host_cache() + host_hidden(); }
  /// The hidden states of a single micro-batch stay on the GPU.
  [[nodiscard]] double hidden_share() const { return plan_.batches > 1 ? plan_.hidden_host : 0.0; }

  /// The share of `bytes`, rounded to whole bytes.
  [[nodiscard]] static Bytes part(double share, double bytes);

 private:
  [[nodiscard]] double layers() const { return real(deployment_.layers); }
  [[nodiscard]] double tokens() const { return real((padding_.input + padding_.output).count()); }
  [[nodiscard]] double cache() const { return real(plan_.block()) * tokens() * token_cache() * layers(); }
  [[nodiscard]] double hidden(std::int64_t requests) const;

  const Deployment& deployment_;
  const FlexgenPlan plan_;
  const FlexgenRung on_host_;
  const bool loads_cache_;
  const Padding padding_;
};

/// GPU memory for weights and KV.
[[nodiscard]] double flexgen_gpu_memory(const Deployment& deployment);
/// The key that sets flexgen_gpu_memory.
[[nodiscard]] std::string flexgen_gpu_key(const Deployment& deployment);
/// Throws ConfigError: `what` needs a figure of the host, which `key` would give.
[[noreturn]] void refuse_unknown_host(const std::string& what, const std::string& key);

}  // namespace spillway
