#include "hwmodels/kv_capacity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace spillway::hwmodels {
namespace {

/// Within these bounds, every product below fits int64.
void check_settings(const KvSettings& settings) {
  std::vector<Problem> problems;
  const auto expect = [&](bool holds, const char* key, const char* range) {
    if (!holds) problems.push_back({fmt::format("{} must be {}", key, range), key, {}});
  };
  const auto within = [](std::int64_t value, std::int64_t most) { return value >= 1 && value <= most; };
  const double utilization = settings.gpu_memory_utilization;
  expect(utilization > 0.0 && utilization <= 1.0, "engine.gpu_memory_utilization", "above 0 and at most 1");
  expect(within(settings.max_num_batched_tokens.count(), 1'000'000'000), "engine.max_num_batched_tokens", "1 to 1e9");
  expect(within(settings.max_num_seqs, 1'000'000'000), "engine.max_num_seqs", "1 to 1e9");
  expect(within(settings.block_tokens.count(), 1'000'000), "memory.block_tokens", "1 to 1e6");
  expect(within(settings.kv_dtype_bytes, 8), "memory.kv_dtype", "1 to 8 bytes");
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

Bytes peak_activations(const LlmModel& llm, const EngineProfile& engine, const KvSettings& settings) {
  const Parallelism& parallelism = settings.parallelism;
  const std::int64_t tokens = (settings.max_num_batched_tokens.count() + parallelism.data - 1) / parallelism.data;
  const std::int64_t gated = llm.gated_mlp ? 2 : 1;
  std::int64_t of_mlp = (gated + 1) * llm.ffn / parallelism.tensor;
  if (llm.experts) {
    const std::int64_t width = llm.expert_width_per_gpu(parallelism);
    of_mlp = std::max(of_mlp, llm.experts->top_k * (std::max(gated * width, llm.hidden) + width));
  }
  const std::int64_t per_token = engine.activation_hidden_copies * llm.hidden + of_mlp;
  const std::int64_t forward = tokens * llm.dtype_bytes * per_token;
  const std::int64_t sequences = std::min(settings.max_num_seqs, tokens);
  // Logits are gathered, so that one GPU samples over the whole vocabulary; vLLM sizes all caches by the fullest GPU.
  const std::int64_t sampler =
      tokens * llm.dtype_bytes * llm.hidden + sequences * llm.vocabulary * engine.sampler_bytes_per_logit;
  return Bytes(std::max(forward, sampler));
}

std::string size_text(Bytes bytes) {
  const double gigabytes = static_cast<double>(bytes.count()) * 1e-9;
  return std::abs(gigabytes) < 0.1 ? fmt::format("{:.2f} MB", gigabytes * 1e3) : fmt::format("{:.2f} GB", gigabytes);
}

/// The smallest larger degree that leaves memory for a block; 0 when there is none.
std::int64_t fitting_tensor_parallel(const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine,
                                     KvSettings settings) {
  const std::int64_t asked = settings.parallelism.tensor;
  for (const std::int64_t degree : {2, 4, 8, 16}) {
    settings.parallelism.tensor = degree;
    if (degree > asked && degree * settings.parallelism.data <= settings.most_tensor_parallel &&
        !llm.parallelism_problem(settings.parallelism) && kv_capacity(gpu, llm, engine, settings).blocks > Blocks(0)) {
      return degree;
    }
  }
  return 0;
}

}  // namespace

std::int64_t kv_dtype_bytes(const std::string& kv_dtype, const LlmModel& llm) {
  if (kv_dtype == "auto") return llm.kv_cache_bytes.value_or(llm.dtype_bytes);
  return kv_dtype == "fp8" ? 1 : 2;
}

KvCapacity kv_capacity(const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine,
                       const KvSettings& settings) {
  check_settings(settings);
  const Parallelism& parallelism = settings.parallelism;
  if (const auto problem = llm.parallelism_problem(parallelism)) throw ConfigError({*problem});
  const std::int64_t rotary_table = llm.max_positions * llm.rotated_dim() * llm.dtype_bytes;
  KvCapacity kv;
  kv.memory = gpu.memory;
  kv.budget = Bytes(
      static_cast<std::int64_t>(std::floor(static_cast<double>(gpu.memory.count()) * settings.gpu_memory_utilization)));
  kv.weights = llm.weights_per_gpu(parallelism) + Bytes(rotary_table);
  kv.activations = peak_activations(llm, engine, settings);
  kv.non_torch =
      engine.non_torch_memory + (parallelism.gpus() > 1 ? engine.non_torch_memory_tensor_parallel : Bytes(0));
  kv.available = kv.budget - kv.weights - kv.activations - kv.non_torch;
  kv.block_bytes = llm.kv_bytes_per_token_per_gpu(parallelism, settings.kv_dtype_bytes) * settings.block_tokens.count();
  kv.blocks = Blocks(std::max(kv.available, Bytes(0)) / kv.block_bytes);
  return kv;
}

KvCapacity fitting_kv_capacity(const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine,
                               const KvSettings& settings) {
  gpu.need({"memory"}, "the size of the KV cache");
  const KvCapacity kv = kv_capacity(gpu, llm, engine, settings);
  if (kv.blocks > Blocks(0)) return kv;
  const std::string what =
      kv.available < Bytes(0)
          ? fmt::format("{} does not fit {} with tensor_parallel={}: {} short before any KV cache", llm.file.name,
                        gpu.file.name, settings.parallelism.tensor, size_text(Bytes(0) - kv.available))
          : fmt::format("{} fits {} with tensor_parallel={} but leaves {}, less than one KV block of {}", llm.file.name,
                        gpu.file.name, settings.parallelism.tensor, size_text(kv.available), size_text(kv.block_bytes));
  const std::int64_t degree = fitting_tensor_parallel(gpu, llm, engine, settings);
  std::string fix = fmt::format("tensor_parallel={} fits", degree);
  if (degree == 0 && settings.most_tensor_parallel < 16) {
    fix = fmt::format("no tensor_parallel above {} fits within the {} GPU{} of the server", settings.parallelism.tensor,
                      settings.most_tensor_parallel, settings.most_tensor_parallel == 1 ? "" : "s");
  } else if (degree == 0) {
    fix = fmt::format("no tensor_parallel of 2, 4, 8 or 16 above {} fits", settings.parallelism.tensor);
  }
  if (degree != 0 && !gpu.all_reduce) fix += fmt::format(", but {} has no all-reduce figures for it", gpu.file.name);
  throw ConfigError::infeasible(fmt::format("{} ({})", what, kv_terms(kv)), "hardware", std::move(fix));
}

std::string kv_terms(const KvCapacity& kv) {
  return fmt::format("budget {} of {} - weights {} - activations {} - outside PyTorch {} = {}; one block takes {}",
                     size_text(kv.budget), size_text(kv.memory), size_text(kv.weights), size_text(kv.activations),
                     size_text(kv.non_torch), size_text(kv.available), size_text(kv.block_bytes));
}

std::string kv_estimate_warning(const KvCapacity& kv, const EngineProfile& engine) {
  return fmt::format(
      "{} KV blocks per GPU are an estimate for {}, not calibrated. In the one known check the estimate was 3.0% low, "
      "which changed mean TTFT by +2.5% and its median by +16% (LLMServingSim measured -20.7% TTFT with an unmatched "
      "block count). Set memory.gpu_kv to the engine's block count x {}B",
      kv.blocks.count(), engine.file.name, kv.block_bytes.count());
}

}  // namespace spillway::hwmodels
