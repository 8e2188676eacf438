#include "hwmodels/models/roofline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "hwmodels/models/elementwise_bytes.hpp"
#include "hwmodels/models/engine_model.hpp"
#include "hwmodels/models/latent_attention.hpp"
#include "hwmodels/models/layer_batch.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

/// Seconds of fixed + per_token * tokens.
struct Line {
  double fixed = 0.0;
  double per_token = 0.0;
  [[nodiscard]] double at(double tokens) const { return fixed + per_token * tokens; }
  void scale(double factor) {
    fixed *= factor;
    per_token *= factor;
  }
};

/// One GEMM with a fixed weight matrix and `tokens` rows.
struct Gemm {
  double overhead = 0.0;
  double compute_per_token = 0.0;
  Line memory{};

  void scale(double factor) {
    overhead *= factor;
    compute_per_token *= factor;
    memory.scale(factor);
  }
  void add_to(TimeShares& shares, double tokens) const {
    const double compute_seconds = compute_per_token * tokens;
    const double memory_seconds = memory.at(tokens);
    if (compute_seconds > memory_seconds) {
      shares.compute += overhead + compute_seconds;
    } else {
      shares.memory += overhead + memory_seconds;
    }
  }
};

/// Routed experts of one GPU: the weights of those that a batch picks, and the arithmetic of their rows.
struct ExpertWork {
  double overhead = 0.0;
  double weights_seconds = 0.0;  // of one expert
  double row_seconds = 0.0;      // arithmetic of one token-expert pair
  double row_memory = 0.0;       // its inputs and outputs
  MostLoadedRank load{};
  mutable std::map<std::int64_t, RankLoad> loads{};  // by tokens, as they were asked for

  void scale(double factor) {
    for (double* seconds : {&overhead, &weights_seconds, &row_seconds, &row_memory}) *seconds *= factor;
  }
  void add_to(TimeShares& shares, std::int64_t tokens) const {
    auto known = loads.find(tokens);
    if (known == loads.end()) known = loads.emplace(tokens, load.at(tokens)).first;
    const RankLoad& rank = known->second;
    const double compute = rank.rows * row_seconds;
    const double memory = rank.active * weights_seconds + rank.rows * row_memory;
    (compute > memory ? shares.compute : shares.memory) += overhead + std::max(compute, memory);
  }
};

class Roofline final : public EngineModel {
 public:
  Roofline(const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine, const Parallelism& parallelism,
           std::int64_t kv_dtype_bytes, const OpScales& scales, const ExpertSetting& experts)
      : EngineModel({gpu, engine, llm.layers, scales}, layer_kinds_of(llm)),
        groups_(parallelism.data),
        exchange_(gpu, llm, parallelism, experts.exchange, false),
        exchange_scale_(scales.gemm) {
    set_bodies(gpu, llm, parallelism);
    times_experts_ = llm.experts && experts.load.kind() != ExpertLoad::Kind::elsewhere;
    if (times_experts_) set_experts(gpu, llm, parallelism, experts.load);
    set_attention(gpu, llm, parallelism.tensor, kv_dtype_bytes);
    set_elementwise(gpu, llm);
    if (parallelism.tensor > 1) set_network(*gpu.all_reduce, llm, parallelism.tensor);
    scale(scales);
  }

  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    if (shape.empty()) return {};
    const BatchShape own = fullest_group(shape, groups_, group_chunks_);
    const double tokens = tokens_of(own);
    const double all = groups_ == 1 ? tokens : tokens_of(shape);
    std::array<EngineSide::KindTime, kMostLayerKinds> kinds{};
    for (std::size_t i = 0; i < layers_.size(); ++i) kinds[i] = layer_time(own, tokens, all, layers_[i]);
    return engine().iteration(own, tokens, {.memory = embedding_.at(tokens), .network = all_reduce_.at(tokens)},
                              std::span(kinds).first(layers_.size()), after_time(real(own.sampled_sequences), tokens));
  }

 private:
  /// What layers with the same MLP compute beside attention and routed experts.
  struct Body {
    bool routed = false;
    std::vector<Gemm> gemms{};
    Line elementwise{};
  };

  void set_bodies(const GpuProfile& gpu, const LlmModel& llm, const Parallelism& parallelism) {
    const double compute = gpu.gemm_compute_efficiency * gpu.peak_flops;
    const double memory = gpu.gemm_memory_efficiency * gpu.memory_bandwidth.value();
    const double element = real(llm.dtype_bytes);
    const auto gemm = [&](const Matrix& matrix, Bytes weights) {
      const double in = real(matrix.inputs);
      const double out = real(matrix.outputs);
      return Gemm{gpu.kernel_overhead_seconds,
                  2.0 * in * out / compute,
                  {real(weights.count()) / memory, element * (in + out) / memory}};
    };
    LayerPlan plan = layer_plan(llm);
    layers_ = std::move(plan.kinds);
    for (const LayerPlan::Body& planned : plan.bodies) {
      Body& added = bodies_.emplace_back(Body{.routed = planned.routed});
      for (const Matrix& matrix : llm.attention_projections(parallelism.tensor)) {
        added.gemms.push_back(gemm(matrix, llm.linear_bytes(matrix, LinearPart::attention)));
      }
      if (planned.routed) {
        const Matrix router = llm.router_matrix();
        added.gemms.push_back(gemm(router, Bytes(router.inputs * router.outputs * llm.dtype_bytes)));
      }
      const std::int64_t width = planned.routed ? llm.experts->shared_width : llm.ffn;
      if (width > 0) {
        for (const Matrix& matrix : llm.mlp_projections(width / parallelism.tensor)) {
          added.gemms.push_back(gemm(matrix, llm.linear_bytes(matrix)));
        }
      }
      const ElementwiseWork work = elementwise_work(llm, parallelism.tensor, width);
      added.elementwise = {work.kernels * gpu.kernel_overhead_seconds, work.bytes_per_token / memory};
    }
    const Matrix head = llm.head_matrix(parallelism.tensor);
    head_ = gemm(head, llm.head_bytes(head));
  }

  void set_experts(const GpuProfile& gpu, const LlmModel& llm, const Parallelism& parallelism, const ExpertLoad& load) {
    const double memory = gpu.gemm_memory_efficiency * gpu.memory_bandwidth.value();
    double numbers = 0.0;
    double weights = 0.0;
    for (const Matrix& matrix : llm.mlp_projections(llm.expert_width_per_gpu(parallelism))) {
      numbers += real(matrix.inputs) * real(matrix.outputs);
      weights += real(llm.linear_bytes(matrix, LinearPart::expert).count());
    }
    // Routing, two grouped multiplications, the activation between them, the weighted sum.
    constexpr double kKernels = 5.0;
    experts_ = {.overhead = kKernels * gpu.kernel_overhead_seconds,
                .weights_seconds = weights / memory,
                .row_seconds = 2.0 * numbers / (gpu.gemm_compute_efficiency * gpu.peak_flops),
                .row_memory = 2.0 * real(llm.hidden * llm.dtype_bytes) / memory,
                .load = {load, llm.experts->top_k, llm.experts->count, parallelism.expert}};
  }

  void set_attention(const GpuProfile& gpu, const LlmModel& llm, std::int64_t tensor_parallel,
                     std::int64_t kv_dtype_bytes) {
    const double memory = gpu.decode_attention_efficiency * gpu.memory_bandwidth.value();
    const double compute = gpu.prefill_attention_efficiency * gpu.peak_flops;
    if (llm.latent) {
      latent_.emplace(LatentAttentionModel{compute, memory, gpu.attention_overhead_seconds}, *llm.latent,
                      llm.heads / tensor_parallel, kv_dtype_bytes);
      return;
    }
    const double query = real(llm.heads / tensor_parallel * llm.head_dim);
    const double key = real(llm.kv_heads_per_gpu(tensor_parallel) * llm.head_dim);
    attention_overhead_ = gpu.attention_overhead_seconds;
    kv_seconds_ = 2.0 * key * real(kv_dtype_bytes) / memory;
    query_seconds_ = 2.0 * query * real(llm.dtype_bytes) / memory;
    pair_seconds_ = 4.0 * query / compute;
  }

  void set_elementwise(const GpuProfile& gpu, const LlmModel& llm) {
    const double element = real(llm.dtype_bytes) / (gpu.gemm_memory_efficiency * gpu.memory_bandwidth.value());
    const double hidden = real(llm.hidden);
    embedding_ = {gpu.kernel_overhead_seconds, element * 2.0 * hidden};
    final_norm_ = {gpu.kernel_overhead_seconds, element * 4.0 * hidden};
  }

  void set_network(const AllReduce& link, const LlmModel& llm, std::int64_t tensor_parallel) {
    const double others = real(tensor_parallel - 1) / real(tensor_parallel);
    const double element = real(llm.dtype_bytes) / link.bus_bandwidth.value();
    all_reduce_ = {link.latency_seconds, 2.0 * others * real(llm.hidden) * element};
    gather_ = {link.latency_seconds, others * real(llm.vocabulary) * element};
  }

  void scale(const OpScales& scales) {
    for (Body& body : bodies_) {
      for (Gemm& gemm : body.gemms) gemm.scale(scales.gemm);
      body.elementwise.scale(scales.gemm);
    }
    head_.scale(scales.gemm);
    experts_.scale(scales.gemm);
    for (Line* line : {&embedding_, &final_norm_, &all_reduce_, &gather_}) line->scale(scales.gemm);
    for (double* seconds : {&attention_overhead_, &kv_seconds_, &query_seconds_, &pair_seconds_}) {
      *seconds *= scales.attention;
    }
    attention_scale_ = scales.attention;
  }

  /// `own` tokens of this GPU's group, `all` of the replica.
  [[nodiscard]] EngineSide::KindTime layer_time(const BatchShape& shape, double own, double all,
                                                const LayerPlan::Kind& layers) const {
    const Body& body = bodies_[layers.body];
    TimeShares layer;
    for (const Gemm& gemm : body.gemms) gemm.add_to(layer, own);
    layer.memory += body.elementwise.at(own);
    if (body.routed && times_experts_) experts_.add_to(layer, static_cast<std::int64_t>(all));
    const double others = layer.compute + layer.memory;
    if (latent_) {
      add_latent(layer, shape, layers.window);
    } else {
      add_attention(layer, shape, layers.window);
    }
    const double attention = layer.compute + layer.memory - others;
    layer.network = 2.0 * all_reduce_.at(own);
    if (body.routed && groups_ > 1) {
      const double exchange = exchange_.seconds(static_cast<std::int64_t>(own), !shape.chunks.empty());
      layer.network = all_reduce_.at(own) + exchange_scale_ * exchange;
    }
    return {.layer = layer, .attention = attention, .layers = layers.layers};
  }

  void add_attention(TimeShares& layer, const BatchShape& shape, std::int64_t window) const {
    if (shape.decode_sequences > 0) {
      layer.memory += attention_overhead_ + kv_seconds_ * decode_reach(shape, window).context +
                      query_seconds_ * real(shape.decode_sequences);
    }
    if (!shape.chunks.empty()) layer.memory += attention_overhead_;
    for (const PrefillChunk& chunk : shape.chunks) add_prefill(layer, chunk, window);
  }

  void add_latent(TimeShares& layer, const BatchShape& shape, std::int64_t window) const {
    const auto add = [&](const KernelTime& time) {
      (time.compute_bound ? layer.compute : layer.memory) += attention_scale_ * time.seconds;
    };
    if (shape.decode_sequences > 0) add(latent_->decode(decode_reach(shape, window)));
    if (!shape.chunks.empty()) add(latent_->prefill(shape.chunks));
  }

  void add_prefill(TimeShares& layer, const PrefillChunk& chunk, std::int64_t window) const {
    const double fresh = real(chunk.new_tokens.count());
    const double context = real(chunk.context.count());
    const double seen = window == 0 ? context : std::min(context, real(window));
    const double pairs = window == 0 ? fresh * context + 0.5 * fresh * (fresh + 1.0) : attended_pairs(chunk, window);
    const double compute_seconds = pair_seconds_ * pairs;
    const double memory_seconds = kv_seconds_ * (seen + fresh) + query_seconds_ * fresh;
    if (compute_seconds > memory_seconds) {
      layer.compute += compute_seconds;
    } else {
      layer.memory += memory_seconds;
    }
  }

  [[nodiscard]] TimeShares after_time(double sampled, double tokens) const {
    TimeShares after{.memory = final_norm_.at(tokens)};
    if (sampled > 0.0) {
      head_.add_to(after, sampled);
      after.network = gather_.at(sampled);
    }
    return after;
  }

  std::int64_t groups_;
  LayerExchange exchange_;
  double exchange_scale_;
  std::vector<Body> bodies_;
  std::vector<LayerPlan::Kind> layers_;
  bool times_experts_ = false;
  ExpertWork experts_{};
  std::optional<LatentAttentionTime> latent_;
  double attention_scale_ = 1.0;  // of latent attention
  Gemm head_{};                   // per sampled sequence
  double attention_overhead_ = 0.0;
  double kv_seconds_ = 0.0;     // to read one token's keys and values
  double query_seconds_ = 0.0;  // to read one token's query and write its output
  double pair_seconds_ = 0.0;   // arithmetic of one query-key pair over all heads
  Line embedding_{};
  Line final_norm_{};
  Line all_reduce_{};  // over a tensor-parallel group
  Line gather_{};      // per sampled sequence
  mutable std::vector<PrefillChunk> group_chunks_;
};

}  // namespace

std::unique_ptr<ExecutionModel> make_roofline(const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine,
                                              const Parallelism& parallelism, std::int64_t kv_dtype_bytes,
                                              const OpScales& scales, const ExpertSetting& experts) {
  if (const auto problem = llm.parallelism_problem(parallelism)) throw ConfigError({*problem});
  if (const auto problem = exchange_problem(llm, parallelism, experts.exchange)) throw ConfigError({*problem});
  gpu.need({"peak_flops", "memory_bandwidth", "gemm_compute_efficiency", "gemm_memory_efficiency",
            "decode_attention_efficiency", "prefill_attention_efficiency", "kernel_overhead", "attention_overhead"},
           "latency_model=roofline");
  if (parallelism.gpus() > 1 && !gpu.all_reduce) {
    refuse_without_all_reduce(gpu.file.name);
  }
  return std::make_unique<Roofline>(gpu, llm, engine, parallelism, kv_dtype_bytes, scales, experts);
}

}  // namespace spillway::hwmodels
