#include "hwmodels/models/logged_models.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "hwmodels/models/engine_model.hpp"
#include "hwmodels/models/range_tally.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

/// All chunks of an iteration as one: all new tokens, and the mean over them of the tokens before their chunk.
struct MergedChunk {
  double tokens = 0.0;
  double context = 0.0;
};

MergedChunk merged(std::span<const PrefillChunk> chunks) {
  MergedChunk all;
  double pairs = 0.0;
  for (const PrefillChunk& chunk : chunks) {
    const double fresh = real(chunk.new_tokens.count());
    all.tokens += fresh;
    pairs += fresh * real(chunk.context.count());
  }
  if (all.tokens > 0.0) all.context = pairs / all.tokens;
  return all;
}

/// The shortest time; negative cells were not measured.
double least_of(const std::vector<double>& seconds) {
  double least = std::numeric_limits<double>::infinity();
  for (const double one : seconds) least = one >= 0.0 ? std::min(least, one) : least;
  return least;
}

/// The points at which tables are read, compared with the measured ranges.
class TableRanges {
 public:
  explicit TableRanges(const FittedKernels& kernels)
      : tokens_(kernels, kernels.layers->record, "tokens"),
        chunk_(kernels, kernels.layers->record, "chunk"),
        decodes_(kernels, kernels.layers->record, "decodes"),
        context_(kernels, kernels.layers->record, "context") {}

  /// Kernels by tokens or by sequences.
  void add_kernels(double count, std::int64_t calls) { tokens_.add(count, calls); }
  /// Adds a call at each chunk alone and at all of them together; `context` is the mean context of the decodes.
  void add_attention(std::span<const PrefillChunk> chunks, const MergedChunk& all, double decodes, double context,
                     std::int64_t calls) {
    double least = all.tokens;
    double longest = context;
    for (const PrefillChunk& chunk : chunks) {
      least = std::min(least, real(chunk.new_tokens.count()));
      longest = std::max(longest, real(chunk.context.count()));
    }
    if (!chunks.empty()) chunk_.add(least, all.tokens, calls);
    if (decodes > 0.0) decodes_.add(decodes, calls);
    context_.add(longest, calls);
  }
  void append_to(std::vector<RangeUse>& uses) const {
    for (const RangeTally* tally : {&chunk_, &decodes_, &context_, &tokens_}) tally->append_to(uses);
  }

 private:
  RangeTally tokens_;
  RangeTally chunk_;
  RangeTally decodes_;
  RangeTally context_;
};

bool is_known_layer(std::string_view kernel) {
  return std::find(kLayersByTokens.begin(), kLayersByTokens.end(), kernel) != kLayersByTokens.end();
}

class TableModel final : public EngineModel {
 public:
  TableModel(const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine, const OpScales& scales)
      : EngineModel({gpu, engine, llm.layers, scales}),
        scales_(scales),
        tables_(gpu.fitted.layers->model),
        norms_(real(llm.layer_norms)),
        least_call_(least_of(tables_.attention_seconds)),
        ranges_(gpu.fitted) {}

  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    if (shape.empty()) return {};
    const double tokens = tokens_of(shape);
    const ByTokens& fixed = by_tokens(tokens);
    ranges_.add_kernels(tokens, engine().layers());
    TimeShares layer = fixed.layer;
    const double attended = scales_.attention * attention(shape);
    layer.memory += attended;
    TimeShares after{.memory = fixed.final_norm};
    if (shape.sampled_sequences > 0) {
      ranges_.add_kernels(real(shape.sampled_sequences), 1);
      for (const char* kernel : {"lm_head", "sampler"}) {
        after.memory += scales_.gemm * at(tables_.per_sequence, kernel, real(shape.sampled_sequences));
      }
    }
    return engine().iteration(shape, tokens, {.memory = fixed.embedding}, layer, after, attended);
  }

  void append_kernel_uses(std::vector<RangeUse>& uses) const override { ranges_.append_to(uses); }

 private:
  /// What the number of tokens determines.
  struct ByTokens {
    TimeShares layer{};
    double embedding = 0.0;
    double final_norm = 0.0;
  };

  static double at(const std::map<std::string, Curve>& curves, const char* kernel, double size) {
    const auto it = curves.find(kernel);
    return it == curves.end() ? 0.0 : it->second.at(size);
  }

  /// Tables hold calls with one chunk. For several chunks, the decodes add what they add to one chunk of all their
  /// tokens. Each chunk adds its time alone beyond the shortest call, which stands for the launch that they share.
  [[nodiscard]] double attention(const BatchShape& shape) const {
    if (shape.chunks.empty() && shape.decode_sequences == 0) return 0.0;  // all of it on the CPU
    const double decodes = real(shape.decode_sequences);
    const double context = decodes > 0.0 ? real(shape.decode_context.count()) / decodes : 0.0;
    const MergedChunk all = merged(shape.chunks);
    ranges_.add_attention(shape.chunks, all, decodes, context, engine().layers());
    const double together = tables_.attention(all.tokens, all.context, decodes, context);
    if (shape.chunks.size() < 2) return together;
    double alone = least_call_;
    for (const PrefillChunk& chunk : shape.chunks) {
      const double seconds = tables_.attention(real(chunk.new_tokens.count()), real(chunk.context.count()), 0.0, 0.0);
      alone += std::max(0.0, seconds - least_call_);
    }
    return alone + std::max(0.0, together - tables_.attention(all.tokens, all.context, 0.0, 0.0));
  }

  /// Cached from the last call, because decode iterations repeat their number of tokens.
  const ByTokens& by_tokens(double tokens) const {
    if (tokens == last_tokens_) return last_;
    last_tokens_ = tokens;
    last_ = {};
    for (const char* kernel : {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}) {
      const double seconds = at(tables_.per_token, kernel, tokens);
      // A GEMM that takes over 1.5 times as long for twice the tokens is not bound by reading its weights.
      const bool compute_bound = at(tables_.per_token, kernel, 2.0 * tokens) > 1.5 * seconds;
      (compute_bound ? last_.layer.compute : last_.layer.memory) += scales_.gemm * seconds;
    }
    last_.layer.memory +=
        scales_.gemm * (norms_ * at(tables_.per_token, "layernorm", tokens) +
                        at(tables_.per_token, "rotary_emb", tokens) + at(tables_.per_token, "act_fn", tokens));
    for (const auto& [kernel, curve] : tables_.per_token) {
      if (!is_known_layer(kernel)) last_.layer.memory += scales_.gemm * curve.at(tokens);
    }
    last_.embedding = scales_.gemm * at(tables_.per_token, "embedding", tokens);
    last_.final_norm = scales_.gemm * at(tables_.per_token, "final_layernorm", tokens);
    return last_;
  }

  OpScales scales_;
  LayerTables tables_;
  double norms_;
  double least_call_;  // the shortest of the attention table
  mutable TableRanges ranges_;
  mutable double last_tokens_ = -1.0;
  mutable ByTokens last_{};
};

class LoggedIterations final : public EngineModel {
 public:
  LoggedIterations(const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine, const OpScales& scales)
      : EngineModel({gpu, without_host(engine), llm.layers, scales}),
        model_(scaled(gpu.fitted.iteration->model, scales)),
        tokens_(gpu.fitted, gpu.fitted.iteration->record, "tokens"),
        context_(gpu.fitted, gpu.fitted.iteration->record, "context") {}

  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    if (shape.empty()) return {};
    const double tokens = tokens_of(shape);
    double context = real(shape.decode_context.count());
    double pairs = 0.0;
    for (const PrefillChunk& chunk : shape.chunks) {
      const double fresh = real(chunk.new_tokens.count());
      const double before = real(chunk.context.count());
      context += before + fresh;
      pairs += fresh * (before + 0.5 * fresh);
    }
    tokens_.add(tokens, 1);
    context_.add(context, 1);
    const double layers = real(engine().layers());
    const TimeShares layer{
        .compute = model_.pair_seconds * pairs / layers,
        .memory = (model_.fixed_seconds + model_.token_seconds * tokens + model_.context_seconds * context) / layers};
    const double attention = model_.pair_seconds * pairs + model_.context_seconds * context;
    return engine().iteration(shape, tokens, {}, layer, {}, attention / layers);
  }

  void append_kernel_uses(std::vector<RangeUse>& uses) const override {
    tokens_.append_to(uses);
    context_.append_to(uses);
  }

 private:
  static EngineProfile without_host(EngineProfile engine) {
    engine.launch_floor_seconds = engine.host_fixed_seconds = engine.host_per_sequence_seconds = 0.0;
    return engine;
  }

  static IterationModel scaled(IterationModel model, const OpScales& scales) {
    model.fixed_seconds *= scales.gemm;
    model.token_seconds *= scales.gemm;
    model.context_seconds *= scales.attention;
    model.pair_seconds *= scales.attention;
    return model;
  }

  IterationModel model_;
  mutable RangeTally tokens_;
  mutable RangeTally context_;
};

}  // namespace

std::vector<std::string> unknown_layers(const LayerTables& tables) {
  std::vector<std::string> names;
  for (const auto& [kernel, curve] : tables.per_token) {
    if (!is_known_layer(kernel)) names.push_back(kernel);
  }
  return names;
}

std::string missing_from(const LayerTables& tables) {
  for (const char* kernel : {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}) {
    if (!tables.per_token.contains(kernel)) return kernel;
  }
  if (tables.attention_seconds.empty()) return "attention";
  if (!tables.holds(true, false)) return "attention of chunks";
  return tables.holds(false, true) ? std::string() : "attention of decodes";
}

std::optional<Problem> table_model_problem(const GpuProfile& gpu, const LlmModel& llm, std::int64_t tensor_parallel) {
  if (!gpu.fitted.layers) {
    return Problem{fmt::format("latency_model=tables needs layer tables; {} has none", gpu.file.name), "latency_model",
                   "use latency_model=auto, or fit dense.csv, attention.csv and per_sequence.csv"};
  }
  const LayerTables& tables = gpu.fitted.layers->model;
  if (const std::string missing = missing_from(tables); !missing.empty()) {
    return Problem{
        fmt::format("the layer tables of {} lack {}", gpu.file.name, missing), "latency_model",
        fmt::format("fit the engine's {}.csv as well", missing.starts_with("attention") ? "attention" : "dense")};
  }
  if (!tables.model.empty() && tables.model != llm.file.name) {
    return Problem{fmt::format("the layer tables of {} were measured on {}, not on {}", gpu.file.name, tables.model,
                               llm.file.name),
                   "model", fmt::format("use model={}, or another latency_model", tables.model)};
  }
  if (llm.quantized && llm.quantized->by_engine) {
    return Problem{fmt::format("the layer tables of {} are of the weights in {}'s file, not of {}", gpu.file.name,
                               llm.file.name, llm.quantized->method),
                   "engine.quantization", "use another latency_model"};
  }
  if (tensor_parallel != 1) {
    return Problem{
        fmt::format("the layer tables of {} are of one GPU, not of tensor_parallel={}", gpu.file.name, tensor_parallel),
        "tensor_parallel", "use tensor_parallel=1, or another latency_model"};
  }
  return std::nullopt;
}

std::unique_ptr<ExecutionModel> make_table_model(const GpuProfile& gpu, const LlmModel& llm,
                                                 const EngineProfile& engine, std::int64_t tensor_parallel,
                                                 const OpScales& scales) {
  if (const auto problem = table_model_problem(gpu, llm, tensor_parallel)) throw ConfigError({*problem});
  return std::make_unique<TableModel>(gpu, llm, engine, scales);
}

std::unique_ptr<ExecutionModel> make_iteration_model(const GpuProfile& gpu, const LlmModel& llm,
                                                     const EngineProfile& engine, const OpScales& scales) {
  if (!gpu.fitted.iteration) {
    throw ConfigError(
        fmt::format("latency_model=iterations needs a fit of logged iterations; {} has none", gpu.file.name),
        "latency_model", "use latency_model=auto, or fit a log of tokens, context and time_ms");
  }
  return std::make_unique<LoggedIterations>(gpu, llm, engine, scales);
}

}  // namespace spillway::hwmodels
