#include "hwmodels/models/fitted_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "hwmodels/models/elementwise_bytes.hpp"
#include "hwmodels/models/engine_side.hpp"

namespace spillway::hwmodels {
namespace {

double real(std::int64_t count) { return static_cast<double>(count); }

void add(TimeShares& shares, const KernelTime& time) {
  (time.compute_bound ? shares.compute : shares.memory) += time.seconds;
}

/// The matrix multiplications in the model's own number format, else in 2 bytes, which complete() has asked for.
const GemmModel& gemm_for(const FittedKernels& kernels, std::int64_t dtype_bytes) {
  const auto of = [&](std::int64_t bytes) {
    return std::find_if(kernels.gemm.begin(), kernels.gemm.end(),
                        [bytes](const FittedGemm& gemm) { return gemm.dtype_bytes == bytes; });
  };
  const auto own = of(dtype_bytes);
  return (own != kernels.gemm.end() ? own : of(2))->model;
}

/// Seconds by tokens over the ranks of one tensor-parallel group; 0 for one rank.
class Reduction {
 public:
  Reduction(const GpuProfile& gpu, std::int64_t ranks) : ranks_(ranks), analytic_(gpu.all_reduce) {
    if (gpu.fitted.all_reduce) fitted_ = gpu.fitted.all_reduce->model;
  }
  [[nodiscard]] double seconds(double bytes) const {
    if (ranks_ == 1) return 0.0;
    if (fitted_) return fitted_->seconds(ranks_, bytes);
    const double moved = 2.0 * real(ranks_ - 1) / real(ranks_) * bytes;
    return analytic_->latency_seconds + moved / analytic_->bus_bandwidth.value();
  }

 private:
  std::int64_t ranks_;
  std::optional<AllReduce> analytic_;
  std::optional<AllReduceModel> fitted_;
};

ElementwiseModel elementwise_of(const GpuProfile& gpu, const GemmModel& gemm) {
  if (gpu.fitted.elementwise) return gpu.fitted.elementwise->model;
  return {gpu.kernel_overhead_seconds, gemm.bandwidth};
}

class FittedModel final : public ExecutionModel {
 public:
  FittedModel(const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine, std::int64_t tensor_parallel,
              std::int64_t kv_dtype_bytes)
      : engine_(gpu, engine, llm.layers),
        elementwise_(elementwise_of(gpu, gemm_for(gpu.fitted, llm.dtype_bytes))),
        work_(elementwise_work(llm, tensor_parallel)),
        reduction_(gpu, tensor_parallel),
        hidden_bytes_(real(llm.hidden * llm.dtype_bytes)),
        logits_(real(llm.head_matrix(tensor_parallel).outputs)),
        logit_bytes_(real(llm.vocabulary * llm.dtype_bytes)),
        fused_share_(gpu.fitted.mixed_attention ? gpu.fitted.mixed_attention->model.fused_share : 0.0) {
    const GemmModel& gemm = gemm_for(gpu.fitted, llm.dtype_bytes);
    const auto time = [&](const Matrix& matrix, Bytes weights) {
      return GemmTime(gemm, matrix.outputs, matrix.inputs, real(weights.count()), real(llm.dtype_bytes));
    };
    const auto matrices = llm.layer_matrices(tensor_parallel);
    std::transform(matrices.begin(), matrices.end(), gemms_.begin(),
                   [&](const Matrix& matrix) { return time(matrix, llm.linear_bytes(matrix)); });
    const Matrix head = llm.head_matrix(tensor_parallel);
    head_ = time(head, llm.head_bytes(head));
    const AttentionShape shape{llm.heads / tensor_parallel, llm.kv_heads_per_gpu(tensor_parallel), llm.head_dim,
                               real(llm.dtype_bytes), real(kv_dtype_bytes)};
    decode_ = DecodeAttentionTime(gpu.fitted.decode_attention->model, shape);
    prefill_ = PrefillAttentionTime(gpu.fitted.prefill_attention->model, shape);
  }

  [[nodiscard]] std::int32_t layers() const override { return static_cast<std::int32_t>(engine_.layers()); }

  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    if (shape.empty()) return {};
    std::int64_t tokens = shape.decode_sequences;
    for (const PrefillChunk& chunk : shape.chunks) tokens += chunk.new_tokens.count();
    const ByTokens& fixed = by_tokens(tokens);
    const BySamples& sampled = by_samples(shape.sampled_sequences);
    TimeShares layer = fixed.layer;
    add_attention(layer, shape);
    const TimeShares after{.compute = sampled.shares.compute,
                           .memory = fixed.final_norm + sampled.shares.memory,
                           .network = sampled.shares.network};
    return engine_.iteration(shape, real(tokens), fixed.before, layer, after);
  }

  [[nodiscard]] CopyTime copy(Stream direction, std::int64_t copies, Bytes bytes,
                              CopyMechanism mechanism) const override {
    return engine_.copy(direction, copies, bytes, mechanism);
  }
  [[nodiscard]] CopySharing copy_sharing() const override { return engine_.copy_sharing(); }

 private:
  /// What the number of tokens determines.
  struct ByTokens {
    bool known = false;
    TimeShares before{};
    TimeShares layer{};  // all but attention
    double final_norm = 0.0;
  };
  struct BySamples {
    bool known = false;
    TimeShares shares{};
  };
  /// A single chunk, which is what most iterations with a chunk have; prompts of one length come again and again.
  struct KeptChunk {
    PrefillChunk chunk{};  // new_tokens 0: none
    KernelTime time{};
  };
  // Iterations beyond this many tokens are computed anew each time; no engine's token budget comes near it.
  static constexpr std::int64_t kMostKept = 1 << 16;

  [[nodiscard]] double moving(double kernels, double bytes) const {
    return kernels * elementwise_.launch_seconds + bytes / elementwise_.bandwidth;
  }

  /// Looks `count` up in `kept`, computing it first where it is new.
  template <class Entry, class Compute>
  static const Entry& keep(std::vector<Entry>& kept, Entry& beyond, std::int64_t count, const Compute& compute) {
    if (count >= kMostKept) return beyond = compute(count);
    const auto index = static_cast<std::size_t>(count);
    if (index >= kept.size()) kept.resize(std::max<std::size_t>(2 * kept.size(), index + 1));
    if (!kept[index].known) kept[index] = compute(count);
    return kept[index];
  }

  const ByTokens& by_tokens(std::int64_t count) const {
    return keep(by_tokens_, many_tokens_, count, [this](std::int64_t tokens) {
      ByTokens entry{.known = true};
      const double n = real(tokens);
      for (const GemmTime& gemm : gemms_) add(entry.layer, gemm.at(tokens));
      entry.layer.memory += moving(work_.kernels, n * work_.bytes_per_token);
      entry.layer.network = 2.0 * reduction_.seconds(n * hidden_bytes_);
      entry.before.memory = moving(1.0, 2.0 * n * hidden_bytes_);
      entry.before.network = reduction_.seconds(n * hidden_bytes_);
      entry.final_norm = moving(1.0, 4.0 * n * hidden_bytes_);
      return entry;
    });
  }

  const BySamples& by_samples(std::int64_t count) const {
    return keep(by_samples_, many_samples_, count, [this](std::int64_t sampled) {
      constexpr double kBytesPerLogit = 12.0;
      constexpr double kKernels = 3.0;
      BySamples entry{.known = true};
      if (sampled == 0) return entry;
      add(entry.shares, head_.at(sampled));
      entry.shares.memory += moving(kKernels, kBytesPerLogit * real(sampled) * logits_);
      entry.shares.network = 0.5 * reduction_.seconds(real(sampled) * logit_bytes_);
      return entry;
    });
  }

  KernelTime prefill(std::span<const PrefillChunk> chunks) const {
    if (chunks.size() != 1) return prefill_.at(chunks);
    const PrefillChunk& chunk = chunks.front();
    KeptChunk& kept =
        chunks_[static_cast<std::size_t>(chunk.new_tokens.count() + 61 * chunk.context.count()) % chunks_.size()];
    if (kept.chunk.new_tokens != chunk.new_tokens || kept.chunk.context != chunk.context) {
      kept = {chunk, prefill_.at(chunks)};
    }
    return kept.time;
  }

  void add_attention(TimeShares& layer, const BatchShape& shape) const {
    const double decodes = real(shape.decode_sequences);
    const double context = real(shape.decode_context.count());
    const double mean = decodes > 0.0 ? context / decodes : 0.0;
    const double longest = std::max(mean, real(shape.decode_longest.count()));
    if (shape.chunks.empty()) return add(layer, decode_.at(decodes, context, longest));
    if (decodes == 0.0) return add(layer, prefill(shape.chunks));
    const auto add_share = [&](double share, KernelTime time) {
      time.seconds *= share;
      add(layer, time);
    };
    if (fused_share_ < 1.0) {
      add_share(1.0 - fused_share_, decode_.at(decodes, context, longest));
      add_share(1.0 - fused_share_, prefill(shape.chunks));
    }
    if (fused_share_ > 0.0) add_share(fused_share_, prefill_.at(shape.chunks, decodes, context, longest));
  }

  EngineSide engine_;
  ElementwiseModel elementwise_;
  ElementwiseWork work_;
  Reduction reduction_;
  double hidden_bytes_;  // of one token
  double logits_;        // of one sequence on one GPU
  double logit_bytes_;   // of one sequence, all GPUs together
  double fused_share_;
  std::array<GemmTime, 4> gemms_{};  // QKV, output, up, down
  GemmTime head_{};
  DecodeAttentionTime decode_{};
  PrefillAttentionTime prefill_{};
  mutable std::vector<ByTokens> by_tokens_{};
  mutable std::vector<BySamples> by_samples_{};
  mutable std::array<KeptChunk, 4096> chunks_{};  // by a hash of the chunk, the latest with each
  mutable ByTokens many_tokens_{};
  mutable BySamples many_samples_{};
};

}  // namespace

std::unique_ptr<ExecutionModel> make_fitted_model(const GpuProfile& gpu, const LlmModel& llm,
                                                  const EngineProfile& engine, std::int64_t tensor_parallel,
                                                  std::int64_t kv_dtype_bytes) {
  if (const auto problem = llm.tensor_parallel_problem(tensor_parallel)) throw ConfigError({*problem});
  if (!gpu.fitted.complete()) {
    throw ConfigError(fmt::format("{} has no fitted {}, which latency_model=fitted takes", gpu.file.name,
                                  !gpu.fitted.two_byte_gemm()    ? "gemm in 2-byte numbers"
                                  : !gpu.fitted.decode_attention ? "decode_attention"
                                                                 : "prefill_attention"),
                      "latency_model", "use latency_model=auto, or fit the missing kernels with calibrate fit");
  }
  if (tensor_parallel > 1 && !gpu.fitted.all_reduce && !gpu.all_reduce) {
    throw ConfigError(
        fmt::format("{} has no figures for all-reduce, which tensor_parallel={} needs", gpu.file.name, tensor_parallel),
        "tensor_parallel", "use tensor_parallel=1, or a profile with all_reduce_latency and all_reduce_bandwidth");
  }
  if (!gpu.fitted.elementwise) gpu.need({"kernel_overhead"}, "time of elementwise kernels");
  return std::make_unique<FittedModel>(gpu, llm, engine, tensor_parallel, kv_dtype_bytes);
}

}  // namespace spillway::hwmodels
