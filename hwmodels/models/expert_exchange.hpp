// Time of sending tokens to the GPUs of their experts and of adding up what comes back.
//
// Given     T, k, h, e       tokens of one GPU, experts per token, hidden size, bytes per element
//           n                GPUs that exchange
//           t0, s_t, s_b, p  launches, seconds per token and per byte sent, exponent                ExchangeModel
// Computed, in seconds
//   copies  = k, or n (1 - (1 - 1 / n)^k), the number of GPUs among those of k random experts        ExchangeModel
//   seconds = (t0^p + (T (s_t + s_b copies h e))^p)^(1/p)
//
// Kernels of small batches (DeepEP low latency) send a copy per expert, those of large ones a copy per GPU. NCCL sends
// every token to every GPU.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace spillway::hwmodels {

/// Libraries of exchange kernels.
enum class ExchangeBackend : std::uint8_t {
  deepep_low_latency,  // DeepEP: fp8 with its scales there, bf16 back
  deepep_normal,       // DeepEP for prefills
  nvlink_one_sided,    // TensorRT-LLM
  nvlink_two_sided,    // TensorRT-LLM
  nccl,                // all-gather there, reduce-scatter back
};
/// Parts of an exchange, each a kernel.
enum class ExchangeStep : std::uint8_t {
  prepare,  // counts of tokens by GPU, where a library sends these first
  dispatch,
  combine,
};
[[nodiscard]] std::string_view exchange_name(ExchangeBackend backend);
[[nodiscard]] std::string_view exchange_name(ExchangeStep step);
/// Empty for any other word.
[[nodiscard]] std::optional<ExchangeBackend> exchange_backend_named(std::string_view name);
[[nodiscard]] std::optional<ExchangeStep> exchange_step_named(std::string_view name);

/// What one GPU sends.
struct ExchangeShape {
  std::int64_t tokens = 0;  // of this GPU, before the exchange
  std::int64_t hidden = 0;
  std::int64_t top_k = 0;
  double element_bytes = 2.0;
};

/// How many copies of a token a kernel sends.
enum class ExchangeCopies : std::uint8_t { per_expert, per_gpu, all_gpus };
[[nodiscard]] std::string_view exchange_name(ExchangeCopies copies);
[[nodiscard]] std::optional<ExchangeCopies> exchange_copies_named(std::string_view name);

/// One step of one library among a number of GPUs.
struct ExchangeModel {
  ExchangeBackend backend = ExchangeBackend::nccl;
  ExchangeStep step = ExchangeStep::dispatch;
  std::int64_t ranks = 2;  // n
  ExchangeCopies copies = ExchangeCopies::per_gpu;
  double launch_seconds = 0.0;
  double token_seconds = 0.0;
  double byte_seconds = 0.0;
  double norm_exponent = 2.0;  // p, one of kNormExponents

  [[nodiscard]] bool same_kernel(const ExchangeModel& other) const {
    return backend == other.backend && step == other.step && ranks == other.ranks;
  }
};

/// Copies of a token. top_k >= 1.
[[nodiscard]] double exchange_copies(const ExchangeModel& model, std::int64_t top_k);
/// Seconds of one call. O(top_k).
[[nodiscard]] double exchange_seconds(const ExchangeModel& model, const ExchangeShape& shape);

}  // namespace spillway::hwmodels
