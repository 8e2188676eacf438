#include "hwmodels/models/fitted_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hwmodels/engine_quantization.hpp"
#include "hwmodels/models/elementwise_bytes.hpp"
#include "hwmodels/models/engine_model.hpp"
#include "hwmodels/models/latent_attention.hpp"
#include "hwmodels/models/layer_batch.hpp"
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

/// GEMM of the linear layers of a part: quantised kernels where both model and profile have them. Else quantised
/// weights are multiplied by the unquantised kernels, which read fewer bytes.
const FittedGemm& linear_gemm(const FittedKernels& kernels, const LlmModel& llm, LinearPart part) {
  const bool quantised = llm.quantized && llm.quantized->covers(part);
  const FittedGemm* own = quantised ? kernels.gemm_in(2, llm.quantized->kernel) : nullptr;
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
  [[nodiscard]] std::int64_t ranks() const { return ranks_; }
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

/// The layers of a model with experts on the GPUs of one replica.
struct Deployed {
  const GpuProfile& gpu;
  const LlmModel& llm;
  const EngineProfile& engine;
  const Parallelism& parallelism;
  const ExpertSetting& experts;
};

/// Attention of one GPU over keys and values of every head.
class HeadAttention {
 public:
  HeadAttention(const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine, std::int64_t tensor_parallel,
                std::int64_t kv_dtype_bytes)
      : heads_{llm.heads / tensor_parallel, llm.kv_heads_per_gpu(tensor_parallel), llm.head_dim, real(llm.dtype_bytes),
               real(kv_dtype_bytes)},
        mixed_(gpu.fitted.mixed_attention && !engine.splits_mixed_attention ? gpu.fitted.mixed_attention->model
                                                                            : MixedAttentionModel{}),
        decode_(attention_for(kv_dtype_bytes, gpu.fitted.decode_attention, gpu.fitted.decode_attention_fp8_kv).model,
                heads_),
        prefill_(attention_for(kv_dtype_bytes, gpu.fitted.prefill_attention, gpu.fitted.prefill_attention_fp8_kv).model,
                 heads_,
                 {attention_for(kv_dtype_bytes, gpu.fitted.decode_attention, gpu.fitted.decode_attention_fp8_kv)
                      .model.bandwidth,
                  real(gpu.l2_cache.count())}),
        ranges_(gpu.fitted, kv_dtype_bytes, full_layers(llm), engine.splits_mixed_attention) {}

  /// Counts a call of the layers with full attention.
  void count(const BatchShape& shape) const {
    const DecodeReach reach = decode_reach(shape, 0);
    ranges_.add(shape.chunks, reach.sequences, reach.longest);
  }

  /// Calls add(share, time) for each launch of a batch that is not empty. Over a window, decodes are those of full
  /// attention over fewer tokens. Prompts take their launch, and of the rest the share of the pairs that the window
  /// leaves: no kernel over a window is measured.
  template <class Add>
  void times(const BatchShape& shape, std::int64_t window, const Add& add) const {
    const DecodeReach reach = decode_reach(shape, window);
    const auto decode = [&] { return decode_.at(reach.sequences, reach.context, reach.longest); };
    if (shape.chunks.empty()) return add(1.0, decode());
    if (reach.sequences == 0.0) return add(1.0, prefill(shape.chunks, window));
    const double fused = window == 0 ? mixed_.fused_share : 0.0;
    if (fused < 1.0) {
      add(1.0 - fused, decode());
      add(1.0 - fused, prefill(shape.chunks, window));
    }
    if (fused > 0.0) {
      add(fused, prefill_.fused(shape.chunks, reach.sequences, reach.context, reach.longest, mixed_.decodes));
    }
  }

  void append_to(std::vector<RangeUse>& uses) const { ranges_.append_to(uses, heads_); }

 private:
  /// Prefill attention of a single chunk, cached: most iterations with prefill have one chunk, and lengths repeat.
  struct KeptChunk {
    PrefillChunk chunk{};  // new_tokens 0: none
    KernelTime time{};
  };

  static std::int64_t full_layers(const LlmModel& llm) {
    std::int64_t full = 0;
    for (const LlmModel::CountedKind& counted : llm.counted_kinds()) {
      full += counted.kind.window == 0 ? counted.layers : 0;
    }
    return full;
  }

  KernelTime prefill(std::span<const PrefillChunk> chunks, std::int64_t window) const {
    KernelTime time = prefill(chunks);
    const double share = window_share(chunks, window);
    if (share == 1.0) return time;
    const double launch = std::min(time.seconds, prefill_.equal(1.0, {Tokens(1), Tokens(0)}).seconds);
    time.seconds = launch + share * (time.seconds - launch);
    return time;
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

  AttentionShape heads_;
  MixedAttentionModel mixed_;
  DecodeAttentionTime decode_;
  PrefillAttentionTime prefill_;
  mutable AttentionRanges ranges_;
  mutable std::array<KeptChunk, 4096> chunks_{};  // by a hash of the chunk; the latest chunk with each hash
};

class FittedModel final : public EngineModel {
 public:
  FittedModel(const Deployed& on, std::int64_t kv_dtype_bytes, const OpScales& scales)
      : EngineModel({on.gpu, on.engine, on.llm.layers, scales}, layer_kinds_of(on.llm)),
        scales_(with_engine(scales, on.engine)),
        elementwise_(elementwise_of(on.gpu, plain_gemm(on.gpu.fitted, on.llm).model)),
        groups_(on.parallelism.data),
        reduction_(on.gpu, on.engine, on.parallelism.tensor),
        exchange_(on.gpu, on.llm, on.parallelism, on.experts.exchange, true),
        hidden_bytes_(real(on.llm.hidden * on.llm.dtype_bytes)),
        logits_(real(on.llm.head_matrix(on.parallelism.tensor).outputs)),
        logit_bytes_(real(on.llm.vocabulary * on.llm.dtype_bytes)),
        head_matrix_(on.llm.head_matrix(on.parallelism.tensor)) {
    if (on.llm.latent) {
      latent_.emplace(latent_model(on.gpu), *on.llm.latent, on.llm.heads / on.parallelism.tensor, kv_dtype_bytes);
    } else {
      attention_ = std::make_unique<HeadAttention>(on.gpu, on.llm, on.engine, on.parallelism.tensor, kv_dtype_bytes);
    }
    LayerPlan plan = layer_plan(on.llm);
    layers_ = std::move(plan.kinds);
    for (const LayerPlan::Body& body : plan.bodies) add_body(on, body);
    add_head(on);
    const auto& reduction = reduction_of(on.gpu.fitted, on.engine);
    ranges_ = {tally_of(on.gpu.fitted, on.gpu.fitted.elementwise, "bytes"), tally_of(on.gpu.fitted, reduction, "ranks"),
               tally_of(on.gpu.fitted, reduction, "bytes")};
  }

  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    if (shape.empty()) return {};
    if (groups_ == 1) return iteration(shape, tokens_in(shape));
    return iteration(fullest_group(shape, groups_, group_chunks_), tokens_in(shape));
  }

  void append_kernel_uses(std::vector<RangeUse>& uses) const override {
    Counted counted = count_calls();
    for (const GemmRanges& gemm : counted.gemms) {
      for (const RangeTally* tally : {&gemm.m, &gemm.n, &gemm.k}) tally->append_to(uses);
    }
    if (attention_ != nullptr) attention_->append_to(uses);
    for (const RangeTally& tally : counted.experts) tally.append_to(uses);
    exchange_.append_to(uses);
    for (const RangeTally* tally :
         {&counted.others.elementwise_bytes, &counted.others.reduced_ranks, &counted.others.reduced_bytes}) {
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
  struct OtherRanges {
    RangeTally elementwise_bytes;
    RangeTally reduced_ranks;
    RangeTally reduced_bytes;
  };
  struct Counted {
    std::vector<GemmRanges> gemms;
    std::vector<RangeTally> experts;
    OtherRanges others;
  };
  /// A linear layer.
  struct Linear {
    Matrix matrix{};
    GemmTime time{};
    std::size_t fit = 0;  // index in gemm_ranges_
  };
  /// What layers with the same MLP compute beside attention.
  struct Body {
    LayerPlan::Body plan{};
    std::vector<Linear> linears{};
    ElementwiseWork work{};
    std::optional<MoeTime> experts{};  // empty where they are timed elsewhere
  };

  static LatentAttentionModel latent_model(const GpuProfile& gpu) {
    return {.flops = gpu.prefill_attention_efficiency * gpu.peak_flops,
            .bandwidth = gpu.decode_attention_efficiency * gpu.memory_bandwidth.value(),
            .overhead_seconds = gpu.attention_overhead_seconds};
  }

  static std::int64_t tokens_in(const BatchShape& shape) {
    std::int64_t tokens = shape.decodes();
    for (const PrefillChunk& chunk : shape.chunks) tokens += chunk.new_tokens.count();
    return tokens;
  }

  /// `own`: what this GPU's group computes of an iteration of `all` tokens.
  [[nodiscard]] IterationTime iteration(const BatchShape& own, std::int64_t all) const {
    const std::int64_t tokens = groups_ == 1 ? all : tokens_in(own);
    const ByTokens& fixed = by_tokens(tokens);
    const BySamples& sampled = by_samples(own.sampled_sequences);
    const bool attends = !own.chunks.empty() || own.decode_sequences > 0;  // else all of it is on the CPU
    if (attends && attention_ != nullptr) attention_->count(own);
    const double exchange = groups_ > 1 ? exchanged(tokens, !own.chunks.empty()) : 0.0;
    std::array<EngineSide::KindTime, kMostLayerKinds> kinds{};
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const LayerPlan::Kind& layers = layers_[i];
      EngineSide::KindTime& kind = kinds[i];
      kind.layer = layers.body == 0 ? fixed.layer : more_bodies_[fixed.more + layers.body - 1];
      if (bodies_[layers.body].plan.routed) add_experts(kind.layer, bodies_[layers.body], all, exchange);
      const double others = kind.layer.compute + kind.layer.memory;
      if (attends) add_attention(kind.layer, own, layers.window);
      kind.attention = kind.layer.compute + kind.layer.memory - others;
      kind.layers = layers.layers;
    }
    const TimeShares after{.compute = sampled.shares.compute,
                           .memory = fixed.final_norm + sampled.shares.memory,
                           .network = sampled.shares.network};
    return engine().iteration(own, real(tokens), fixed.before, std::span(kinds).first(layers_.size()), after);
  }

  /// The index of a fit's ranges.
  std::size_t fit_index(const FittedKernels& kernels, const FittedGemm& gemm) {
    const std::pair format(gemm.dtype_bytes, gemm.quantization);
    const auto known = std::ranges::find(fits_, format);
    if (known != fits_.end()) return static_cast<std::size_t>(known - fits_.begin());
    fits_.push_back(format);
    gemm_ranges_.push_back({RangeTally(kernels, gemm.record, "m"), RangeTally(kernels, gemm.record, "n"),
                            RangeTally(kernels, gemm.record, "k")});
    return fits_.size() - 1;
  }

  void add_linear(Body& body, const Deployed& on, const Matrix& matrix, LinearPart part, bool after_attention) {
    const FittedGemm& gemm = linear_gemm(on.gpu.fitted, on.llm, part);
    // The output projection follows attention, which writes 16 bits.
    const bool fused = on.engine.fuses_quantisation && gemm.quantization == Quantization::fp8 && !after_attention;
    body.linears.push_back({matrix, time_of(gemm, matrix, on.llm.linear_bytes(matrix, part), on.llm.dtype_bytes, fused),
                            fit_index(on.gpu.fitted, gemm)});
  }

  void add_mlp(Body& body, const Deployed& on, std::int64_t width) {
    for (const Matrix& matrix : on.llm.mlp_projections(width)) add_linear(body, on, matrix, LinearPart::mlp, false);
  }

  void add_router(Body& body, const Deployed& on) {
    const FittedGemm& gemm = plain_gemm(on.gpu.fitted, on.llm);
    const Matrix router = on.llm.router_matrix();
    const Bytes weights(router.inputs * router.outputs * on.llm.dtype_bytes);
    body.linears.push_back(
        {router, time_of(gemm, router, weights, on.llm.dtype_bytes, false), fit_index(on.gpu.fitted, gemm)});
  }

  void add_body(const Deployed& on, const LayerPlan::Body& plan) {
    const bool routed = plan.routed;
    Body& body = bodies_.emplace_back(Body{.plan = plan});
    const std::vector<Matrix> attention = on.llm.attention_projections(on.parallelism.tensor);
    for (std::size_t i = 0; i < attention.size(); ++i) {
      add_linear(body, on, attention[i], LinearPart::attention, i + 1 == attention.size());
    }
    const std::int64_t dense = routed ? on.llm.experts->shared_width : on.llm.ffn;
    if (routed) add_router(body, on);
    if (dense > 0) add_mlp(body, on, dense / on.parallelism.tensor);
    body.work = elementwise_work(on.llm, on.parallelism.tensor, dense);
    if (!routed || on.experts.load.kind() == ExpertLoad::Kind::elsewhere) return;
    const MoeShape shape = expert_shape(on.llm, on.parallelism);
    const FittedMoe& moe = *expert_kernels(on.gpu, on.llm, on.parallelism, on.experts.kernel);
    body.experts = MoeTime(moe.model, shape, on.experts.load);
    expert_ranges_.emplace_back(on.gpu.fitted, moe.record, "tokens");
  }

  void add_head(const Deployed& on) {
    const bool quantised = on.llm.quantized && on.llm.quantized->head && !on.llm.tied_embeddings;
    const FittedGemm& gemm =
        quantised ? linear_gemm(on.gpu.fitted, on.llm, LinearPart::expert) : plain_gemm(on.gpu.fitted, on.llm);
    head_ = time_of(gemm, head_matrix_, on.llm.head_bytes(head_matrix_), on.llm.dtype_bytes, false);
    head_fit_ = fit_index(on.gpu.fitted, gemm);
  }

  [[nodiscard]] Counted count_calls() const {
    Counted counted{gemm_ranges_, expert_ranges_, ranges_};
    by_tokens_.each([&](std::int64_t tokens, std::int64_t iterations) {
      const double n = real(tokens);
      for (const Body& body : bodies_) {
        const std::int64_t layers = body.plan.layers * iterations;
        for (const Linear& linear : body.linears) add_gemm(counted.gemms[linear.fit], linear.matrix, n, layers);
        add_moves(counted.others, body.work.kernels, n * body.work.bytes_per_token, layers);
        add_reductions(counted.others, n * hidden_bytes_, (body.plan.routed && groups_ > 1 ? 1 : 2) * layers);
      }
      add_moves(counted.others, 1.0, 2.0 * n * hidden_bytes_, iterations);
      add_moves(counted.others, 1.0, 4.0 * n * hidden_bytes_, iterations);
      add_reductions(counted.others, n * hidden_bytes_, iterations);
    });
    by_experts_.each([&](std::int64_t tokens, std::int64_t layers) {
      for (RangeTally& tally : counted.experts) tally.add(real(tokens), layers);
    });
    by_samples_.each([&](std::int64_t sampled, std::int64_t iterations) {
      if (sampled == 0) return;
      add_gemm(counted.gemms[head_fit_], head_matrix_, real(sampled), iterations);
      add_moves(counted.others, kSamplingKernels, sampling_bytes(sampled), iterations);
      add_reductions(counted.others, real(sampled) * logit_bytes_, iterations);
    });
    return counted;
  }
  static void add_gemm(GemmRanges& ranges, const Matrix& matrix, double tokens, std::int64_t calls) {
    ranges.m.add(tokens, calls);
    ranges.n.add(real(matrix.outputs), calls);
    ranges.k.add(real(matrix.inputs), calls);
  }
  static void add_moves(OtherRanges& ranges, double kernels, double bytes, std::int64_t times) {
    ranges.elementwise_bytes.add(bytes / kernels, static_cast<std::int64_t>(kernels) * times);
  }
  void add_reductions(OtherRanges& ranges, double bytes, std::int64_t calls) const {
    if (reduction_.ranks() == 1) return;
    ranges.reduced_ranks.add(real(reduction_.ranks()), calls);
    ranges.reduced_bytes.add(bytes, calls);
  }

  /// Times that depend on the number of tokens alone.
  struct ByTokens {
    std::int64_t iterations = 0;  // with this number of tokens
    TimeShares before{};
    TimeShares layer{};  // of the first body: all but attention and experts
    double final_norm = 0.0;
    std::size_t more = 0;  // where more_bodies_ has the other bodies
  };
  struct BySamples {
    std::int64_t iterations = 0;
    TimeShares shares{};
  };
  /// The experts of a layer, by the tokens of all groups.
  struct ByExperts {
    std::int64_t iterations = 0;
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
      entry.layer = scaled(of_body(bodies_.front(), tokens), scales_.gemm);
      entry.more = more_bodies_.size();
      for (std::size_t i = 1; i < bodies_.size(); ++i) {
        more_bodies_.push_back(scaled(of_body(bodies_[i], tokens), scales_.gemm));
      }
      entry.before.memory = moving(1.0, 2.0 * n * hidden_bytes_);
      entry.before.network = reduction_.seconds(n * hidden_bytes_);
      entry.final_norm = scales_.gemm * moving(1.0, 4.0 * n * hidden_bytes_);
      entry.before = scaled(entry.before, scales_.gemm);
      return entry;
    });
  }

  [[nodiscard]] TimeShares of_body(const Body& body, std::int64_t tokens) const {
    TimeShares layer;
    const double n = real(tokens);
    for (const Linear& linear : body.linears) add(layer, linear.time.at(tokens));
    layer.memory += moving(body.work.kernels, n * body.work.bytes_per_token);
    // Groups exchange what experts compute by other kernels than an all-reduce.
    const double reductions = body.plan.routed && groups_ > 1 ? 1.0 : 2.0;
    layer.network = reductions * reduction_.seconds(n * hidden_bytes_);
    return layer;
  }

  /// The experts of a layer of `body`, for `tokens` of all groups, and `exchange` seconds between groups.
  void add_experts(TimeShares& layer, const Body& body, std::int64_t tokens, double exchange) const {
    const ByExperts& experts = by_experts_.use(tokens, [&](std::int64_t count) {
      ByExperts entry;
      if (body.experts) entry.time = body.experts->at(count);
      entry.time.seconds *= scales_.gemm;
      return entry;
    });
    add(layer, experts.time);
    layer.network += exchange;
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

  /// Seconds that a layer with experts exchanges among groups; counts the calls of an iteration.
  [[nodiscard]] double exchanged(std::int64_t tokens, bool prompts) const {
    for (const Body& body : bodies_) {
      if (body.plan.routed) exchange_.count(tokens, prompts, body.plan.layers);
    }
    return scales_.gemm * exchange_.seconds(tokens, prompts);
  }

  static OpScales with_engine(OpScales scales, const EngineProfile& engine) {
    scales.gemm *= engine.non_attention_factor;
    return scales;
  }

  void add_attention(TimeShares& layer, const BatchShape& shape, std::int64_t window) const {
    const auto add_share = [&](double share, KernelTime time) {
      time.seconds *= scales_.attention * share;
      add(layer, time);
    };
    if (attention_ != nullptr) return attention_->times(shape, window, add_share);
    if (shape.decode_sequences > 0) add_share(1.0, latent_->decode(decode_reach(shape, window)));
    if (!shape.chunks.empty()) add_share(1.0, latent_->prefill(shape.chunks));
  }

  OpScales scales_;
  ElementwiseModel elementwise_;
  std::int64_t groups_;
  Reduction reduction_;     // over a tensor-parallel group
  LayerExchange exchange_;  // among groups
  double hidden_bytes_;     // of one token
  double logits_;           // of one sequence on one GPU
  double logit_bytes_;      // of one sequence, all GPUs together
  Matrix head_matrix_;
  GemmTime head_{};
  std::size_t head_fit_ = 0;
  std::unique_ptr<HeadAttention> attention_;  // null with latent attention
  std::optional<LatentAttentionTime> latent_;
  std::vector<Body> bodies_;
  std::vector<LayerPlan::Kind> layers_;
  std::vector<std::pair<std::int64_t, Quantization>> fits_;  // formats of the GEMMs, by dtype and quantisation
  std::vector<GemmRanges> gemm_ranges_;                      // without calls; by fit
  std::vector<RangeTally> expert_ranges_;                    // without calls
  OtherRanges ranges_{};                                     // without calls
  mutable Kept<ByTokens> by_tokens_{};
  mutable Kept<BySamples> by_samples_{};
  mutable Kept<ByExperts> by_experts_{};
  mutable std::vector<TimeShares> more_bodies_;
  mutable std::vector<PrefillChunk> group_chunks_;
};

}  // namespace

std::unique_ptr<ExecutionModel> make_fitted_model(const GpuProfile& gpu, const LlmModel& llm,
                                                  const EngineProfile& engine, const Parallelism& parallelism,
                                                  std::int64_t kv_dtype_bytes, const OpScales& scales,
                                                  const ExpertSetting& experts) {
  if (const auto problem = llm.parallelism_problem(parallelism)) throw ConfigError({*problem});
  if (const auto problem = exchange_problem(llm, parallelism, experts.exchange)) throw ConfigError({*problem});
  if (!gpu.fitted.complete()) {
    throw ConfigError(fmt::format("latency_model=fitted needs fitted {1}; {0} has none", gpu.file.name,
                                  !gpu.fitted.two_byte_gemm()    ? "gemm in 2-byte numbers"
                                  : !gpu.fitted.decode_attention ? "decode_attention"
                                                                 : "prefill_attention"),
                      "latency_model", "use latency_model=auto, or fit the missing kernels with calibrate fit");
  }
  const bool times_experts = llm.experts && experts.load.kind() != ExpertLoad::Kind::elsewhere;
  if (times_experts && expert_kernels(gpu, llm, parallelism, experts.kernel) == nullptr) {
    throw ConfigError({no_expert_kernels(gpu, llm, experts.kernel)});
  }
  if (parallelism.gpus() > 1 && !reduction_of(gpu.fitted, engine) && !gpu.all_reduce) {
    refuse_without_all_reduce(gpu.file.name);
  }
  if (!gpu.fitted.elementwise) gpu.need({"kernel_overhead"}, "the time of elementwise kernels");
  if (llm.latent) {
    gpu.need({"peak_flops", "memory_bandwidth", "decode_attention_efficiency", "prefill_attention_efficiency",
              "attention_overhead"},
             "latent attention, which is a roofline");
  }
  const Deployed on{gpu, llm, engine, parallelism, experts};
  return std::make_unique<FittedModel>(on, kv_dtype_bytes, scales);
}

}  // namespace spillway::hwmodels
