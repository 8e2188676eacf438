#include "hwmodels/models/fitted_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <vector>

#include "hwmodels/models/elementwise_bytes.hpp"
#include "hwmodels/models/engine_model.hpp"
#include "hwmodels/models/range_tally.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

TimeShares scaled(const TimeShares& shares, double factor) {
  return {.compute = factor * shares.compute,
          .memory = factor * shares.memory,
          .network = factor * shares.network,
          .host = factor * shares.host};
}

void add(TimeShares& shares, const KernelTime& time) {
  (time.compute_bound ? shares.compute : shares.memory) += time.seconds;
}

/// GEMM of unquantised matrices in the model's own number format, else in 2 bytes, which complete() requires.
const FittedGemm& plain_gemm(const FittedKernels& kernels, const LlmModel& llm) {
  const FittedGemm* own = kernels.gemm_in(llm.dtype_bytes, Quantization::none);
  return own != nullptr ? *own : *kernels.gemm_in(2, Quantization::none);
}

/// GEMM of the linear layers: quantised kernels where both model and profile have them. Else quantised weights are
/// multiplied by the unquantised kernels, which read fewer bytes.
const FittedGemm& linear_gemm(const FittedKernels& kernels, const LlmModel& llm) {
  const FittedGemm* own = llm.quantized ? kernels.gemm_in(2, llm.quantized->kernel) : nullptr;
  return own != nullptr && own->quantization != Quantization::none ? *own : plain_gemm(kernels, llm);
}

/// The times of one matrix. `fused`: the kernel before it writes a quantised x.
GemmTime time_of(const FittedGemm& gemm, const Matrix& matrix, Bytes weights, std::int64_t dtype_bytes, bool fused) {
  const bool quantised = gemm.quantization != Quantization::none;
  return {gemm.model,
          matrix.outputs,
          matrix.inputs,
          real(weights.count()),
          quantised ? format_of(gemm.quantization).input_bytes : real(dtype_bytes),
          real(dtype_bytes),
          !fused};
}

const std::optional<Fitted<AllReduceModel>>& reduction_of(const FittedKernels& kernels, const EngineProfile& engine) {
  return engine.custom_all_reduce && kernels.all_reduce_custom ? kernels.all_reduce_custom : kernels.all_reduce;
}

/// Attention with KV of this size: the profile's fit for it, else the one for two bytes.
template <class Model>
const Fitted<Model>& attention_for(std::int64_t kv_dtype_bytes, const std::optional<Fitted<Model>>& two_bytes,
                                   const std::optional<Fitted<Model>>& one_byte) {
  return kv_dtype_bytes == 1 && one_byte ? *one_byte : *two_bytes;
}

/// Time of an all-reduce over the ranks of one tensor-parallel group; 0 for one rank.
class Reduction {
 public:
  Reduction(const GpuProfile& gpu, const EngineProfile& engine, std::int64_t ranks)
      : ranks_(ranks), analytic_(gpu.all_reduce) {
    if (const auto& fit = reduction_of(gpu.fitted, engine)) fitted_ = fit->model;
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

/// The tally of an op, for which the profile may have no fit.
template <class Model>
RangeTally tally_of(const FittedKernels& kernels, const std::optional<Fitted<Model>>& fit, std::string_view quantity) {
  return fit ? RangeTally(kernels, fit->record, quantity) : RangeTally();
}

/// Attention calls compared with the measured ranges; an iteration has one launch for each of `layers` layers.
class AttentionRanges {
 public:
  AttentionRanges(const FittedKernels& kernels, std::int64_t kv_dtype_bytes, std::int64_t layers, bool never_mixed)
      : AttentionRanges(
            kernels, attention_for(kv_dtype_bytes, kernels.decode_attention, kernels.decode_attention_fp8_kv).record,
            attention_for(kv_dtype_bytes, kernels.prefill_attention, kernels.prefill_attention_fp8_kv).record, layers) {
    never_mixed_ = never_mixed;
  }
  AttentionRanges(const FittedKernels& kernels, const FitRecord& decode, const FitRecord& prefill, std::int64_t layers)
      : layers_(layers),
        decode_batch_(kernels, decode, "batch"),
        decode_context_(kernels, decode, "context"),
        decode_q_heads_(kernels, decode, "q_heads"),
        decode_kv_heads_(kernels, decode, "kv_heads"),
        prefill_batch_(kernels, prefill, "batch"),
        prefill_new_tokens_(kernels, prefill, "new_tokens"),
        prefill_context_(kernels, prefill, "context"),
        prefill_q_heads_(kernels, prefill, "q_heads"),
        prefill_kv_heads_(kernels, prefill, "kv_heads"),
        mixed_chunk_(tally_of(kernels, kernels.mixed_attention, "chunk")),
        mixed_decodes_(tally_of(kernels, kernels.mixed_attention, "decodes")),
        mixed_context_(tally_of(kernels, kernels.mixed_attention, "context")) {}

  /// `longest`: the tokens that the longest decode attends to, including the new one.
  void add(std::span<const PrefillChunk> chunks, double decodes, double longest) {
    if (decodes > 0.0) {
      decode_batch_.add(decodes, layers_);
      decode_context_.add(longest - 1.0, layers_);
    }
    if (!chunks.empty()) add_chunks(chunks, decodes, longest);
  }

  void append_to(std::vector<RangeUse>& uses, const AttentionShape& heads) const {
    const auto fixed = [&](RangeTally tally, std::int64_t value, const RangeTally& calls) {
      tally.add(real(value), calls.calls());
      tally.append_to(uses);
    };
    decode_batch_.append_to(uses);
    decode_context_.append_to(uses);
    fixed(decode_q_heads_, heads.q_heads, decode_batch_);
    fixed(decode_kv_heads_, heads.kv_heads, decode_batch_);
    prefill_batch_.append_to(uses);
    prefill_new_tokens_.append_to(uses);
    prefill_context_.append_to(uses);
    fixed(prefill_q_heads_, heads.q_heads, prefill_batch_);
    fixed(prefill_kv_heads_, heads.kv_heads, prefill_batch_);
    for (const RangeTally* tally : {&mixed_chunk_, &mixed_decodes_, &mixed_context_}) tally->append_to(uses);
  }

 private:
  void add_chunks(std::span<const PrefillChunk> chunks, double decodes, double longest) {
    const auto [short_chunk, long_chunk] =
        std::minmax_element(chunks.begin(), chunks.end(),
                            [](const PrefillChunk& a, const PrefillChunk& b) { return a.new_tokens < b.new_tokens; });
    const auto [short_context, long_context] =
        std::minmax_element(chunks.begin(), chunks.end(),
                            [](const PrefillChunk& a, const PrefillChunk& b) { return a.context < b.context; });
    const double least = real(short_chunk->new_tokens.count());
    const double most = real(long_chunk->new_tokens.count());
    prefill_batch_.add(static_cast<double>(chunks.size()), layers_);
    prefill_new_tokens_.add(least, most, layers_);
    prefill_context_.add(real(short_context->context.count()), real(long_context->context.count()), layers_);
    if (decodes == 0.0 || never_mixed_) return;
    mixed_chunk_.add(least, most, layers_);
    mixed_decodes_.add(decodes, layers_);
    mixed_context_.add(longest, layers_);
  }

  std::int64_t layers_;
  bool never_mixed_ = false;
  RangeTally decode_batch_;
  RangeTally decode_context_;
  RangeTally decode_q_heads_;
  RangeTally decode_kv_heads_;
  RangeTally prefill_batch_;
  RangeTally prefill_new_tokens_;
  RangeTally prefill_context_;
  RangeTally prefill_q_heads_;
  RangeTally prefill_kv_heads_;
  RangeTally mixed_chunk_;
  RangeTally mixed_decodes_;
  RangeTally mixed_context_;
};

/// A cache of values that depend on a count alone. Each entry counts the iterations that used it; 0: not computed yet.
template <class Entry>
class Kept {
 public:
  /// Returns the entry of `count`, computes it when it is new, and adds one iteration.
  template <class Compute>
  const Entry& use(std::int64_t count, const Compute& compute) {
    Entry& entry = of(count);
    if (entry.iterations == 0) entry = compute(count);
    ++entry.iterations;
    return entry;
  }
  /// Calls visit(count, iterations) for each count that was used.
  template <class Visit>
  void each(const Visit& visit) const {
    for (std::size_t i = 0; i < few_.size(); ++i) {
      if (few_[i].iterations > 0) visit(static_cast<std::int64_t>(i), few_[i].iterations);
    }
    for (const auto& [count, entry] : many_) visit(count, entry.iterations);
  }

 private:
  // Above every engine's token budget, so larger counts are rare and a tree suffices.
  static constexpr std::int64_t kFew = 1 << 16;

  Entry& of(std::int64_t count) {
    if (count >= kFew) return many_[count];
    const auto index = static_cast<std::size_t>(count);
    if (index >= few_.size()) few_.resize(std::max<std::size_t>(2 * few_.size(), index + 1));
    return few_[index];
  }

  std::vector<Entry> few_{};
  std::map<std::int64_t, Entry> many_{};
};

ElementwiseModel elementwise_of(const GpuProfile& gpu, const GemmModel& gemm) {
  if (gpu.fitted.elementwise) return gpu.fitted.elementwise->model;
  return {gpu.kernel_overhead_seconds, gemm.bandwidth};
}

class FittedModel final : public EngineModel {
 public:
  FittedModel(const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine, std::int64_t tensor_parallel,
              std::int64_t kv_dtype_bytes, const OpScales& scales)
      : EngineModel({gpu, engine, llm.layers, scales}),
        scales_(with_engine(scales, engine)),
        elementwise_(elementwise_of(gpu, plain_gemm(gpu.fitted, llm).model)),
        work_(elementwise_work(llm, tensor_parallel)),
        reduction_(gpu, engine, tensor_parallel),
        hidden_bytes_(real(llm.hidden * llm.dtype_bytes)),
        logits_(real(llm.head_matrix(tensor_parallel).outputs)),
        logit_bytes_(real(llm.vocabulary * llm.dtype_bytes)),
        mixed_(gpu.fitted.mixed_attention && !engine.splits_mixed_attention ? gpu.fitted.mixed_attention->model
                                                                            : MixedAttentionModel{}),
        ranks_(tensor_parallel),
        matrices_(llm.layer_matrices(tensor_parallel)),
        head_matrix_(llm.head_matrix(tensor_parallel)),
        heads_{llm.heads / tensor_parallel, llm.kv_heads_per_gpu(tensor_parallel), llm.head_dim, real(llm.dtype_bytes),
               real(kv_dtype_bytes)},
        decode_(attention_for(kv_dtype_bytes, gpu.fitted.decode_attention, gpu.fitted.decode_attention_fp8_kv).model,
                heads_),
        prefill_(attention_for(kv_dtype_bytes, gpu.fitted.prefill_attention, gpu.fitted.prefill_attention_fp8_kv).model,
                 heads_,
                 {attention_for(kv_dtype_bytes, gpu.fitted.decode_attention, gpu.fitted.decode_attention_fp8_kv)
                      .model.bandwidth,
                  real(gpu.l2_cache.count())}),
        attention_ranges_(gpu.fitted, kv_dtype_bytes, llm.layers, engine.splits_mixed_attention) {
    const FittedGemm& linear = linear_gemm(gpu.fitted, llm);
    const FittedGemm& plain = plain_gemm(gpu.fitted, llm);
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      // The output projection follows attention, which writes 16 bits.
      const bool fused = engine.fuses_quantisation && linear.quantization == Quantization::fp8 && i != kOutput;
      gemms_[i] = time_of(linear, matrices_[i], llm.linear_bytes(matrices_[i]), llm.dtype_bytes, fused);
    }
    const bool quantised_head = llm.quantized && llm.quantized->head && !llm.tied_embeddings;
    const FittedGemm& head = quantised_head ? linear : plain;
    head_ = time_of(head, head_matrix_, llm.head_bytes(head_matrix_), llm.dtype_bytes, false);
    const auto ranges_of = [&](const FittedGemm& gemm) {
      return GemmRanges{RangeTally(gpu.fitted, gemm.record, "m"), RangeTally(gpu.fitted, gemm.record, "n"),
                        RangeTally(gpu.fitted, gemm.record, "k")};
    };
    same_kernels_ = &head == &linear;
    const auto& reduction = reduction_of(gpu.fitted, engine);
    ranges_ = {ranges_of(linear), ranges_of(head), tally_of(gpu.fitted, gpu.fitted.elementwise, "bytes"),
               tally_of(gpu.fitted, reduction, "ranks"), tally_of(gpu.fitted, reduction, "bytes")};
  }

  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    if (shape.empty()) return {};
    std::int64_t tokens = shape.decodes();
    for (const PrefillChunk& chunk : shape.chunks) tokens += chunk.new_tokens.count();
    const ByTokens& fixed = by_tokens(tokens);
    const BySamples& sampled = by_samples(shape.sampled_sequences);
    TimeShares layer = fixed.layer;
    const double others = layer.compute + layer.memory;
    add_attention(layer, shape);
    const double attention = layer.compute + layer.memory - others;
    const TimeShares after{.compute = sampled.shares.compute,
                           .memory = fixed.final_norm + sampled.shares.memory,
                           .network = sampled.shares.network};
    return engine().iteration(shape, real(tokens), fixed.before, layer, after, attention);
  }

  void append_kernel_uses(std::vector<RangeUse>& uses) const override {
    KernelRanges ranges = counted();
    for (const GemmRanges* gemm : {&ranges.linear, &ranges.head}) {
      if (gemm == &ranges.head && same_kernels_) continue;
      for (const RangeTally* tally : {&gemm->m, &gemm->n, &gemm->k}) tally->append_to(uses);
    }
    attention_ranges_.append_to(uses, heads_);
    for (const RangeTally* tally : {&ranges.elementwise_bytes, &ranges.reduced_ranks, &ranges.reduced_bytes}) {
      tally->append_to(uses);
    }
  }

 private:
  /// Ranges of kernels whose calls follow from the numbers of tokens and samples. The iterations are counted, and
  /// compared with the ranges only on request.
  struct GemmRanges {
    RangeTally m;
    RangeTally n;
    RangeTally k;
  };
  struct KernelRanges {
    GemmRanges linear;
    GemmRanges head;  // not used where its kernels are those of the linear layers
    RangeTally elementwise_bytes;
    RangeTally reduced_ranks;
    RangeTally reduced_bytes;
  };

  [[nodiscard]] KernelRanges counted() const {
    KernelRanges ranges = ranges_;
    by_tokens_.each([&](std::int64_t tokens, std::int64_t iterations) {
      const std::int64_t layers = engine().layers() * iterations;
      const double n = real(tokens);
      add_gemms(ranges.linear, matrices_, n, layers);
      add_moves(ranges, work_.kernels, n * work_.bytes_per_token, layers);
      add_moves(ranges, 1.0, 2.0 * n * hidden_bytes_, iterations);
      add_moves(ranges, 1.0, 4.0 * n * hidden_bytes_, iterations);
      add_reductions(ranges, n * hidden_bytes_, 2 * layers + iterations);
    });
    by_samples_.each([&](std::int64_t sampled, std::int64_t iterations) {
      if (sampled == 0) return;
      add_gemms(same_kernels_ ? ranges.linear : ranges.head, std::span(&head_matrix_, 1), real(sampled), iterations);
      add_moves(ranges, kSamplingKernels, sampling_bytes(sampled), iterations);
      add_reductions(ranges, real(sampled) * logit_bytes_, iterations);
    });
    return ranges;
  }
  static void add_gemms(GemmRanges& ranges, std::span<const Matrix> matrices, double tokens, std::int64_t calls) {
    for (const Matrix& matrix : matrices) {
      ranges.m.add(tokens, calls);
      ranges.n.add(real(matrix.outputs), calls);
      ranges.k.add(real(matrix.inputs), calls);
    }
  }
  static void add_moves(KernelRanges& ranges, double kernels, double bytes, std::int64_t times) {
    ranges.elementwise_bytes.add(bytes / kernels, static_cast<std::int64_t>(kernels) * times);
  }
  void add_reductions(KernelRanges& ranges, double bytes, std::int64_t calls) const {
    if (ranks_ == 1) return;
    ranges.reduced_ranks.add(real(ranks_), calls);
    ranges.reduced_bytes.add(bytes, calls);
  }

  /// Times that depend on the number of tokens alone.
  struct ByTokens {
    std::int64_t iterations = 0;  // with this number of tokens
    TimeShares before{};
    TimeShares layer{};  // all but attention
    double final_norm = 0.0;
  };
  struct BySamples {
    std::int64_t iterations = 0;
    TimeShares shares{};
  };
  /// Prefill attention of a single chunk, cached: most iterations with prefill have one chunk, and lengths repeat.
  struct KeptChunk {
    PrefillChunk chunk{};  // new_tokens 0: none
    KernelTime time{};
  };
  // Logits to fp32, softmax, draw.
  static constexpr double kSamplingKernels = 3.0;
  [[nodiscard]] double sampling_bytes(std::int64_t sampled) const {
    constexpr double kBytesPerLogit = 12.0;
    return kBytesPerLogit * real(sampled) * logits_;
  }

  [[nodiscard]] double moving(double kernels, double bytes) const {
    return kernels * elementwise_.launch_seconds + bytes / elementwise_.bandwidth;
  }

  const ByTokens& by_tokens(std::int64_t count) const {
    return by_tokens_.use(count, [this](std::int64_t tokens) {
      ByTokens entry;
      const double n = real(tokens);
      for (const GemmTime& gemm : gemms_) add(entry.layer, gemm.at(tokens));
      entry.layer.memory += moving(work_.kernels, n * work_.bytes_per_token);
      entry.layer.network = 2.0 * reduction_.seconds(n * hidden_bytes_);
      entry.before.memory = moving(1.0, 2.0 * n * hidden_bytes_);
      entry.before.network = reduction_.seconds(n * hidden_bytes_);
      entry.final_norm = scales_.gemm * moving(1.0, 4.0 * n * hidden_bytes_);
      entry.before = scaled(entry.before, scales_.gemm);
      entry.layer = scaled(entry.layer, scales_.gemm);
      return entry;
    });
  }

  const BySamples& by_samples(std::int64_t count) const {
    return by_samples_.use(count, [this](std::int64_t sampled) {
      BySamples entry;
      if (sampled == 0) return entry;
      add(entry.shares, head_.at(sampled));
      entry.shares.memory += moving(kSamplingKernels, sampling_bytes(sampled));
      entry.shares.network = 0.5 * reduction_.seconds(real(sampled) * logit_bytes_);
      entry.shares = scaled(entry.shares, scales_.gemm);
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

  static OpScales with_engine(OpScales scales, const EngineProfile& engine) {
    scales.gemm *= engine.non_attention_factor;
    return scales;
  }

  void add_attention(TimeShares& layer, const BatchShape& shape) const {
    if (shape.chunks.empty() && shape.decode_sequences == 0) return;  // all of it on the CPU
    const double decodes = real(shape.decode_sequences);
    const double context = real(shape.decode_context.count());
    const double mean = decodes > 0.0 ? context / decodes : 0.0;
    const double longest = std::max(mean, real(shape.decode_longest.count()));
    attention_ranges_.add(shape.chunks, decodes, longest);
    const auto add_share = [&](double share, KernelTime time) {
      time.seconds *= scales_.attention * share;
      add(layer, time);
    };
    if (shape.chunks.empty()) return add_share(1.0, decode_.at(decodes, context, longest));
    if (decodes == 0.0) return add_share(1.0, prefill(shape.chunks));
    const double fused = mixed_.fused_share;
    if (fused < 1.0) {
      add_share(1.0 - fused, decode_.at(decodes, context, longest));
      add_share(1.0 - fused, prefill(shape.chunks));
    }
    if (fused > 0.0) add_share(fused, prefill_.fused(shape.chunks, decodes, context, longest, mixed_.decodes));
  }

  OpScales scales_;
  ElementwiseModel elementwise_;
  ElementwiseWork work_;
  Reduction reduction_;
  double hidden_bytes_;  // of one token
  double logits_;        // of one sequence on one GPU
  double logit_bytes_;   // of one sequence, all GPUs together
  MixedAttentionModel mixed_;
  std::int64_t ranks_;
  static constexpr std::size_t kOutput = 1;
  std::array<Matrix, 4> matrices_;  // QKV, output, up, down
  Matrix head_matrix_;
  AttentionShape heads_;
  std::array<GemmTime, 4> gemms_{};  // of matrices_
  GemmTime head_{};
  DecodeAttentionTime decode_;
  PrefillAttentionTime prefill_;
  KernelRanges ranges_{};     // without calls
  bool same_kernels_ = true;  // LM head and linear layers
  mutable Kept<ByTokens> by_tokens_{};
  mutable Kept<BySamples> by_samples_{};
  mutable AttentionRanges attention_ranges_;
  mutable std::array<KeptChunk, 4096> chunks_{};  // by a hash of the chunk; the latest chunk with each hash
};

}  // namespace

std::unique_ptr<ExecutionModel> make_fitted_model(const GpuProfile& gpu, const LlmModel& llm,
                                                  const EngineProfile& engine, std::int64_t tensor_parallel,
                                                  std::int64_t kv_dtype_bytes, const OpScales& scales) {
  if (const auto problem = llm.tensor_parallel_problem(tensor_parallel)) throw ConfigError({*problem});
  if (!gpu.fitted.complete()) {
    throw ConfigError(fmt::format("latency_model=fitted needs fitted {1}; {0} has none", gpu.file.name,
                                  !gpu.fitted.two_byte_gemm()    ? "gemm in 2-byte numbers"
                                  : !gpu.fitted.decode_attention ? "decode_attention"
                                                                 : "prefill_attention"),
                      "latency_model", "use latency_model=auto, or fit the missing kernels with calibrate fit");
  }
  if (tensor_parallel > 1 && !reduction_of(gpu.fitted, engine) && !gpu.all_reduce) {
    refuse_without_all_reduce(gpu.file.name, tensor_parallel);
  }
  if (!gpu.fitted.elementwise) gpu.need({"kernel_overhead"}, "the time of elementwise kernels");
  return std::make_unique<FittedModel>(gpu, llm, engine, tensor_parallel, kv_dtype_bytes, scales);
}

}  // namespace spillway::hwmodels
