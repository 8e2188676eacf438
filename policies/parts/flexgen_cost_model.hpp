// FlexGen's cost model and its search for the fastest placement of weights, KV cache and activations.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace spillway {

/// Sources: FMInference/FlexGen (19753bc), experimental/cost_model.py; Sheng et al., ICML 2023, section 4.3 and the
/// appendix on the cost model. All quantities are real numbers: seconds, bytes, bytes per second, FLOP/s, with 2 bytes
/// per number. Nothing is rounded. Results depend on the arguments only.
///
/// The published model is for OPT: four square projections, an MLP of two matrices, and as many KV heads as heads. Here
/// queries have one width, and keys and values have another, which covers grouped queries. If both widths equal the
/// hidden size, the model is the published one. One request block of batches * gpu_batch requests, all padded to one
/// length, runs to completion. In decode, the CPU attends to the part of the cache that is not on the GPU, so cache
/// never travels from the CPU to the GPU. In prefill, the GPU computes all attention.
struct FlexgenModel {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;  // h1
  std::int64_t ffn = 0;     // h2
  std::int64_t heads = 0;
  std::int64_t query = 0;  // q, heads * head_dim
  std::int64_t kv = 0;     // k, kv_heads * head_dim

  /// Bytes of one layer's weights, wi = 4 h1 (q + k + h2): queries and output, keys and values, MLP.
  [[nodiscard]] double layer_bytes() const {
    return 4.0 * static_cast<double>(hidden) * static_cast<double>(query + kv + ffn);
  }
};

struct FlexgenWorkload {
  std::int64_t prompt = 0;     // s, tokens; every prompt is padded to this length
  std::int64_t generated = 0;  // n, tokens per request; prefill generates the first one
};

struct FlexgenHardware {
  // Bytes per second.
  double h2d = 0.0;        // weights and hidden states
  double d2h_cache = 0.0;  // slower than d2h_hidden, because the cache is strided
  double d2h_hidden = 0.0;
  double disk_read = 0.0;  // all reads
  double disk_write_cache_prefill = 0.0;
  double disk_write_hidden_prefill = 0.0;
  double disk_write_decode = 0.0;  // cache and hidden states
  // FLOP/s.
  double gemm_prefill = 0.0;
  double gemm_decode = 0.0;
  double attention_prefill = 0.0;
  double attention_decode = 0.0;  // on the GPU
  double cpu_attention = 0.0;     // peak; see cpu_attention_rate
  // Fitted penalties of small GPU batches and small models on the CPU.
  double cpu_batch_and_hidden = 0.0;
  double cpu_batch = 0.0;
  double cpu_hidden = 0.0;
  // Bytes. A disk of 0 bytes means no disk: its share of everything is 0.
  double gpu_memory = 0.0;
  double cpu_memory = 0.0;
  double disk_memory = 0.0;
  double usable = 0.0;  // share of each memory that a policy may use at its peak, in (0, 1]
};

/// The published defaults, which FlexGen fitted to a T4 on Google Cloud.
[[nodiscard]] FlexgenHardware t4_constants();

/// Shares of one kind of data, each in [0, 1]. The shares add up to 1.
struct FlexgenShares {
  double gpu = 0.0;
  double cpu = 0.0;
  double disk = 0.0;
};

struct FlexgenPolicy {
  std::int64_t gpu_batch = 1;  // gbs, requests that the GPU computes at once
  std::int64_t batches = 1;    // GPU batches in a request block
  FlexgenShares weights{};
  FlexgenShares cache{};
  FlexgenShares hidden{};

  /// bls, the requests of a request block.
  [[nodiscard]] double block() const { return static_cast<double>(gpu_batch) * static_cast<double>(batches); }
};

/// Seconds that one layer occupies each part of the machine with the whole request block.
struct FlexgenTerms {
  double h2d = 0.0;
  double d2h = 0.0;
  double disk_read = 0.0;
  double disk_write = 0.0;
  double compute = 0.0;  // including CPU attention
};

struct FlexgenEstimate {
  FlexgenTerms prefill{};
  FlexgenTerms decode{};       // per generated token, at the mean context of s + n / 2
  double prefill_layer = 0.0;  // T_pre = max(H2D + disk read, D2H + disk write, compute)
  double decode_layer = 0.0;   // T_gen = H2D + max(D2H, disk read, disk write, compute)
  double total = 0.0;          // L T_pre + L (n - 1) T_gen, seconds for the request block
  double throughput = 0.0;     // generated tokens per second
  double gpu_peak = 0.0;       // bytes
  double cpu_peak = 0.0;
  double disk_peak = 0.0;
  bool fits = false;  // every peak within the usable share of its memory, to 1 part in 10^7
};

/// FLOP/s of the CPU's attention with this GPU batch and hidden size, the published fit:
/// cpu_attention * max(0.1, 1 + c1 a b - c2 a - c3 b) with a = max(0, log2(64 / gbs)) and b = max(0, log2(4096 / h1)).
[[nodiscard]] double cpu_attention_rate(const FlexgenHardware& hardware, std::int64_t gpu_batch, std::int64_t hidden);

/// The time and memory of a policy, whether or not the policy fits. Throws ConfigError with every problem when an
/// argument is out of range. O(1).
[[nodiscard]] FlexgenEstimate flexgen_estimate(const FlexgenModel& model, const FlexgenWorkload& workload,
                                               const FlexgenHardware& hardware, const FlexgenPolicy& policy);

struct FlexgenChoice {
  FlexgenPolicy policy{};
  FlexgenEstimate estimate{};
};

/// The nine shares that make a request block of this form fastest, by linear programming; nothing when no placement
/// fits. Throws ConfigError as flexgen_estimate, and InvariantError when the solver gives up. One linear program of 11
/// variables and at most 15 rows in exact arithmetic takes about 0.2 ms.
///
/// Resolution: among equally fast placements, chooses the smallest shares off the GPU, with disk shares counted twice.
/// The published search uses whichever placement its solver finds.
[[nodiscard]] std::optional<FlexgenChoice> flexgen_place(const FlexgenModel& model, const FlexgenWorkload& workload,
                                                         const FlexgenHardware& hardware, std::int64_t gpu_batch,
                                                         std::int64_t batches);

/// The policy of the highest throughput. Tries GPU batches of 1, 2, 3, 4, 8, 16, ... as long as one of them fits, each
/// with the number of batches at which throughput stops rising. Nothing when not even one request fits. Errors as
/// flexgen_place.
///
/// Resolution: among equals, chooses the largest GPU batch, and thus the fewest batches. The model charges the GPU only
/// for the work of the requests, not per batch, so with everything on the GPU all batch sizes are equally fast. Real
/// GPUs are faster with larger batches.
///
/// For one GPU batch, the least time T of a request block is a convex function of its size, because the program is
/// linear in the size and the requests' worth of data on each tier together. So size / T rises, may be level at its
/// maximum, and falls. Doubling and halving finds the last rise, with O(log batches) linear programs per GPU batch.
[[nodiscard]] std::optional<FlexgenChoice> flexgen_search(const FlexgenModel& model, const FlexgenWorkload& workload,
                                                          const FlexgenHardware& hardware);

/// The search for speeds that depend on the GPU batch: `hardware(gbs)` has the speeds for gbs requests. Its memory must
/// not grow with gbs. With `weights_on_host`, in rising order, only these shares of the weights are tried there, each
/// with linear programs of its own.
[[nodiscard]] std::optional<FlexgenChoice> flexgen_search(
    const FlexgenModel& model, const FlexgenWorkload& workload,
    const std::function<FlexgenHardware(std::int64_t gpu_batch)>& hardware, std::span<const double> weights_on_host);

/// FlexGen modified to meet an objective on the time of a layer. Returns the largest share f in [0, 1] of every layer's
/// weights on the host with max(t, f weight_bytes / (bandwidth / gpus_on_bus)) <= (1 + delta) t. t = `compute` is the
/// estimated time of a layer's compute in seconds. The bus is shared as in the worst case.
///
/// Resolution: Select-N's comparison does not state how its authors modified FlexGen.
///
/// t >= 0 s, delta >= 0, weight_bytes >= 0, bandwidth > 0 B/s, gpus_on_bus >= 1, else ConfigError. O(1).
[[nodiscard]] double slo_aware_host_fraction(double compute, double delta, double weight_bytes, double bandwidth,
                                             std::int64_t gpus_on_bus);

}  // namespace spillway
