#include "hwmodels/models/roofline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "hwmodels/models/elementwise_bytes.hpp"
#include "hwmodels/models/engine_model.hpp"
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

class Roofline final : public EngineModel {
 public:
  Roofline(const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine, std::int64_t tensor_parallel,
           std::int64_t kv_dtype_bytes, const OpScales& scales)
      : EngineModel({gpu, engine, llm.layers, scales}) {
    set_gemms(gpu, llm, tensor_parallel);
    set_attention(gpu, llm, tensor_parallel, kv_dtype_bytes);
    set_elementwise(gpu, llm, tensor_parallel);
    if (tensor_parallel > 1) set_network(*gpu.all_reduce, llm, tensor_parallel);
    scale(scales);
  }

  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    if (shape.empty()) return {};
    const double tokens = tokens_of(shape);
    double attention = 0.0;
    const TimeShares layer = layer_time(shape, tokens, attention);
    return engine().iteration(shape, tokens, {.memory = embedding_.at(tokens), .network = all_reduce_.at(tokens)},
                              layer, after_time(real(shape.sampled_sequences), tokens), attention);
  }

 private:
  void set_gemms(const GpuProfile& gpu, const LlmModel& llm, std::int64_t tensor_parallel) {
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
    const auto matrices = llm.layer_matrices(tensor_parallel);
    std::transform(matrices.begin(), matrices.end(), layer_gemms_.begin(),
                   [&](const Matrix& matrix) { return gemm(matrix, llm.linear_bytes(matrix)); });
    const Matrix head = llm.head_matrix(tensor_parallel);
    head_ = gemm(head, llm.head_bytes(head));
  }

  void set_attention(const GpuProfile& gpu, const LlmModel& llm, std::int64_t tensor_parallel,
                     std::int64_t kv_dtype_bytes) {
    const double memory = gpu.decode_attention_efficiency * gpu.memory_bandwidth.value();
    const double query = real(llm.heads / tensor_parallel * llm.head_dim);
    const double key = real(llm.kv_heads_per_gpu(tensor_parallel) * llm.head_dim);
    attention_overhead_ = gpu.attention_overhead_seconds;
    kv_seconds_ = 2.0 * key * real(kv_dtype_bytes) / memory;
    query_seconds_ = 2.0 * query * real(llm.dtype_bytes) / memory;
    pair_seconds_ = 4.0 * query / (gpu.prefill_attention_efficiency * gpu.peak_flops);
  }

  void set_elementwise(const GpuProfile& gpu, const LlmModel& llm, std::int64_t tensor_parallel) {
    const double element = real(llm.dtype_bytes) / (gpu.gemm_memory_efficiency * gpu.memory_bandwidth.value());
    const double hidden = real(llm.hidden);
    const ElementwiseWork work = elementwise_work(llm, tensor_parallel);
    elementwise_ = {work.kernels * gpu.kernel_overhead_seconds,
                    work.bytes_per_token / (gpu.gemm_memory_efficiency * gpu.memory_bandwidth.value())};
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
    for (Gemm& gemm : layer_gemms_) gemm.scale(scales.gemm);
    head_.scale(scales.gemm);
    for (Line* line : {&elementwise_, &embedding_, &final_norm_, &all_reduce_, &gather_}) line->scale(scales.gemm);
    for (double* seconds : {&attention_overhead_, &kv_seconds_, &query_seconds_, &pair_seconds_}) {
      *seconds *= scales.attention;
    }
  }

  /// `attention`: its seconds of attention.
  [[nodiscard]] TimeShares layer_time(const BatchShape& shape, double tokens, double& attention) const {
    TimeShares layer;
    for (const Gemm& gemm : layer_gemms_) gemm.add_to(layer, tokens);
    layer.memory += elementwise_.at(tokens);
    const double others = layer.compute + layer.memory;
    if (shape.decode_sequences > 0) {
      layer.memory += attention_overhead_ + kv_seconds_ * real(shape.decode_context.count()) +
                      query_seconds_ * real(shape.decode_sequences);
    }
    if (!shape.chunks.empty()) layer.memory += attention_overhead_;
    for (const PrefillChunk& chunk : shape.chunks) add_prefill(layer, chunk);
    attention = layer.compute + layer.memory - others;
    layer.network = 2.0 * all_reduce_.at(tokens);
    return layer;
  }

  void add_prefill(TimeShares& layer, const PrefillChunk& chunk) const {
    const double fresh = real(chunk.new_tokens.count());
    const double context = real(chunk.context.count());
    const double compute_seconds = pair_seconds_ * (fresh * context + 0.5 * fresh * (fresh + 1.0));
    const double memory_seconds = kv_seconds_ * (context + fresh) + query_seconds_ * fresh;
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

  std::array<Gemm, 4> layer_gemms_{};  // QKV, output, up, down
  Gemm head_{};                        // per sampled sequence
  double attention_overhead_ = 0.0;
  double kv_seconds_ = 0.0;     // to read one token's keys and values
  double query_seconds_ = 0.0;  // to read one token's query and write its output
  double pair_seconds_ = 0.0;   // arithmetic of one query-key pair over all heads
  Line elementwise_{};
  Line embedding_{};
  Line final_norm_{};
  Line all_reduce_{};
  Line gather_{};  // per sampled sequence
};

}  // namespace

std::unique_ptr<ExecutionModel> make_roofline(const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine,
                                              std::int64_t tensor_parallel, std::int64_t kv_dtype_bytes,
                                              const OpScales& scales) {
  if (const auto problem = llm.tensor_parallel_problem(tensor_parallel)) throw ConfigError({*problem});
  gpu.need({"peak_flops", "memory_bandwidth", "gemm_compute_efficiency", "gemm_memory_efficiency",
            "decode_attention_efficiency", "prefill_attention_efficiency", "kernel_overhead", "attention_overhead"},
           "latency_model=roofline");
  if (tensor_parallel > 1 && !gpu.all_reduce) {
    refuse_without_all_reduce(gpu.file.name, tensor_parallel);
  }
  return std::make_unique<Roofline>(gpu, llm, engine, tensor_parallel, kv_dtype_bytes, scales);
}

}  // namespace spillway::hwmodels
