// What the GPUs of a replica exchange around the experts of a layer, and how long that takes.
//
// Attention in one group (data_parallel = 1): every GPU has every token, computes its experts or its share of their
// widths, and an all-reduce over all GPUs sums the outputs, whatever expert_parallel is. vLLM (FusedMoE, then
// tensor_model_parallel_all_reduce), SGLang and TensorRT-LLM do so. The execution models charge it as they charge the
// all-reduce after a dense MLP.
// Attention in several groups (data_parallel > 1): tokens are dispatched to the GPUs of their experts, and the outputs
// combined. Each token is dispatched by one GPU of its group (vLLM's sequence-parallel MoE), and where groups have
// several GPUs an all-gather within the group ends the layer. ExchangeChoice says by which kernels:
//   all_gather  every GPU gets the tokens of all, and a reduce-scatter sums the outputs (NCCL). Default of vLLM
//               (--all2all-backend allgather_reducescatter), of SGLang (--moe-a2a-backend none), and of TensorRT-LLM
//               where GPUs share no NVLink memory across servers
//   deepep      DeepEP, on request in vLLM and SGLang. Low-latency kernels for iterations without prompts and of at
//   most
//               128 tokens for each GPU, normal kernels for others (SGLang: --deepep-mode auto, 128 tokens)
//   nvlink      TensorRT-LLM on GPUs that share NVLink memory (NVL72): one-sided where it is fitted, else two-sided
// What engines do is recalled from their documentation and code, not looked up.
//
// Given     T, k, h       tokens of a group over its GPUs, rounded up; experts per token; hidden size
//           n, t          GPUs of the replica, of a group
//           e             bytes of a dispatched number: 16-bit ones in all_gather; with deepep fp8 and its scales where
//                         experts are in fp8; with nvlink those of the experts' inputs. Outputs are in 16 bits
//           a, W          latency and bus bandwidth of an all-reduce                                       GpuProfile
// Computed, in seconds: the sum over steps of the profile's fit of that step with the nearest number of GPUs
// (expert_exchange.hpp), for n GPUs. A step without a fit, and every step of the analytic model, takes
//   a + T copies (n - 1) / n h e / W;  copies = n in all_gather, else n (1 - (1 - 1 / n)^k)
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hwmodels/catalog.hpp"
#include "hwmodels/models/expert_exchange.hpp"
#include "hwmodels/models/range_tally.hpp"

namespace spillway::hwmodels {

enum class ExchangeChoice : std::uint8_t { automatic, all_gather, deepep, nvlink };
/// "auto", "all_gather", "deepep", "nvlink".
[[nodiscard]] std::string_view exchange_name(ExchangeChoice choice);
/// Empty for any other word.
[[nodiscard]] std::optional<ExchangeChoice> exchange_choice_named(std::string_view name);

/// How a run computes experts, beside its parallelism.
struct ExpertSetting {
  ExpertLoad load{};                                    // how routers spread tokens
  std::string kernel{};                                 // part of the name of a fitted kernel; empty: by shape
  ExchangeChoice exchange = ExchangeChoice::automatic;  // among data-parallel groups
};

/// Why this choice is impossible; nullopt when it is possible.
[[nodiscard]] std::optional<Problem> exchange_problem(const LlmModel& llm, const Parallelism& parallelism,
                                                      ExchangeChoice choice);

/// The exchange of one layer with experts among the data-parallel groups of a replica.
class LayerExchange {
 public:
  LayerExchange() = default;  // of one group: takes no time
  /// `fitted`: by the fits of the profile where it has them. Throws ConfigError where a step needs the profile's
  /// all-reduce figures and it has none.
  LayerExchange(const GpuProfile& gpu, const LlmModel& llm, const Parallelism& parallelism, ExchangeChoice choice,
                bool fitted);

  /// `tokens` >= 0 of the group with the most. O(steps).
  [[nodiscard]] double seconds(std::int64_t tokens, bool prompts) const;

  /// Adds the calls of an iteration of `layers` layers with experts.
  void count(std::int64_t tokens, bool prompts, std::int64_t layers) const;
  void append_to(std::vector<RangeUse>& uses) const;

  /// "all-gather and reduce-scatter over 8 GPUs: nccl dispatch, nccl combine fitted".
  [[nodiscard]] std::string text() const;

 private:
  struct Step {
    std::string name;    // "nccl dispatch"
    std::string source;  // "fitted", "borrowed from ...", "roofline"
    double launch = 0.0;
    double per_token = 0.0;  // of one GPU
    double exponent = 1.0;
    double bytes = 0.0;  // of a token, once
    RangeTally range{};
  };
  using Steps = std::vector<Step>;

  [[nodiscard]] std::size_t phase(std::int64_t tokens, bool prompts) const;
  [[nodiscard]] std::int64_t own(std::int64_t tokens) const { return (tokens + tensor_ - 1) / tensor_; }

  std::int64_t tensor_ = 1;
  std::int64_t gpus_ = 1;
  ExchangeChoice choice_ = ExchangeChoice::all_gather;
  mutable std::array<Steps, 2> steps_;  // of small batches without prompts, of others; mutable: tallies
};

/// Which exchange the layers with experts of a run are charged, and where its times come from; empty where there is
/// none: one GPU, or a model without experts.
[[nodiscard]] std::string exchange_text(const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine,
                                        const Parallelism& parallelism, ExchangeChoice choice, bool fitted);

}  // namespace spillway::hwmodels
