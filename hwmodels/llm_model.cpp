#include "hwmodels/llm_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace spillway::hwmodels {
namespace {

std::int64_t numbers(std::span<const Matrix> matrices) {
  std::int64_t sum = 0;
  for (const Matrix& matrix : matrices) sum += matrix.inputs * matrix.outputs;
  return sum;
}

std::int64_t outputs(std::span<const Matrix> matrices) {
  std::int64_t sum = 0;
  for (const Matrix& matrix : matrices) sum += matrix.outputs;
  return sum;
}

}  // namespace

Bytes QuantizedLinear::bytes(const Matrix& matrix) const {
  const auto groups = [](std::int64_t size, std::int64_t group) { return group == 0 ? 1 : (size + group - 1) / group; };
  const std::int64_t scales = groups(matrix.inputs, group_inputs) * groups(matrix.outputs, group_outputs);
  const double stored = static_cast<double>(matrix.inputs * matrix.outputs) * static_cast<double>(bits) +
                        static_cast<double>(scales) * group_bits;
  return Bytes(static_cast<std::int64_t>(std::ceil(stored / 8.0)));
}

void LlmModel::set_layers(std::span<const LayerKind> each) {
  SPILLWAY_CHECK(std::ssize(each) == layers, "as many kinds as layers");
  kinds.clear();
  kind_of_layer.clear();
  for (const LayerKind& kind : each) {
    auto known = std::ranges::find(kinds, kind);
    if (known == kinds.end()) {
      SPILLWAY_CHECK(kinds.size() < kMostKinds, "more kinds of layers than a model may have");
      known = kinds.insert(kinds.end(), kind);
    }
    kind_of_layer.push_back(static_cast<std::uint8_t>(known - kinds.begin()));
  }
  if (kinds.size() == 1 && kinds.front() == LayerKind{experts.has_value(), 0}) {
    kinds.clear();
    kind_of_layer.clear();
  }
}

std::vector<LlmModel::CountedKind> LlmModel::counted_kinds() const {
  if (kinds.empty()) return {{{experts.has_value(), 0}, layers}};
  std::vector<CountedKind> counted;
  counted.reserve(kinds.size());
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    counted.push_back({kinds[k], std::ranges::count(kind_of_layer, static_cast<std::uint8_t>(k))});
  }
  return counted;
}

std::int64_t LlmModel::routed_layers() const {
  std::int64_t routed = 0;
  for (const CountedKind& counted : counted_kinds()) routed += counted.kind.routed ? counted.layers : 0;
  return routed;
}

double LlmModel::window_gain(Tokens tokens) const {
  std::int64_t needed = 0;
  for (const auto& [kind, count] : counted_kinds()) {
    needed += count * (kind.window == 0 ? tokens.count() : std::min(tokens.count(), kind.window));
  }
  return static_cast<double>(layers * tokens.count()) / static_cast<double>(needed);
}

std::optional<KvWindow> LlmModel::kv_window() const {
  KvWindow found{.of = layers};
  for (const auto& [kind, count] : counted_kinds()) {
    if (kind.window == 0) continue;
    if (found.layers > 0 && found.tokens != Tokens(kind.window)) return std::nullopt;
    found.tokens = Tokens(kind.window);
    found.layers += count;
  }
  return found.layers > 0 ? std::optional(found) : std::nullopt;
}

std::string LlmModel::windows_text() const {
  const std::vector<CountedKind> counted = counted_kinds();
  std::int64_t windowed = 0;
  std::int64_t window = 0;
  for (const auto& [kind, count] : counted) {
    if (kind.window == 0) continue;
    windowed += count;
    window = kind.window;
  }
  if (windowed == 0) return {};
  return fmt::format(
      "{} of {} layers attend over {} tokens, but this run keeps the KV of all tokens. Engines that free the KV beyond "
      "the window hold up to {:.2f} times as many requests of {} tokens",
      windowed, layers, window, window_gain(Tokens(max_positions)), max_positions);
}

std::string LlmModel::unequal_layers() const {
  const std::int64_t routed = routed_layers();
  if (routed == 0 || routed == layers) return {};
  return fmt::format("{} layers with a dense MLP and {} with experts", layers - routed, routed);
}

std::array<Matrix, 4> LlmModel::layer_matrices(std::int64_t tensor_parallel) const {
  const std::vector<Matrix> attention = attention_projections(tensor_parallel);
  const std::array<Matrix, 2> mlp = mlp_projections(ffn / tensor_parallel);
  return {{attention.front(), attention.back(), mlp[0], mlp[1]}};
}

std::vector<Matrix> LlmModel::attention_projections(std::int64_t tensor_parallel) const {
  const std::int64_t own_heads = heads / tensor_parallel;
  if (latent) {
    const std::int64_t queries = own_heads * latent->query_width();
    const std::int64_t expanded = own_heads * (latent->unrotated + latent->value);
    const bool direct = latent->query_rank == 0;
    return {{hidden, latent->query_rank + latent->kv_width()},
            {direct ? hidden : latent->query_rank, queries},
            {latent->kv_rank, expanded},
            {own_heads * latent->value, hidden}};
  }
  const std::int64_t query = own_heads * head_dim;
  const std::int64_t key = kv_heads_per_gpu(tensor_parallel) * head_dim;
  return {{hidden, query + 2 * key}, {query, hidden}};
}

std::array<Matrix, 2> LlmModel::mlp_projections(std::int64_t width) const {
  return {{{hidden, (gated_mlp ? 2 : 1) * width}, {width, hidden}}};
}

std::vector<Matrix> LlmModel::attention_matrices(std::int64_t tensor_parallel) const {
  if (latent) return attention_projections(tensor_parallel);
  const std::int64_t query = heads / tensor_parallel * head_dim;
  const std::int64_t key = kv_heads_per_gpu(tensor_parallel) * head_dim;
  return {{hidden, query}, {hidden, key}, {hidden, key}, {query, hidden}};
}

std::vector<Matrix> LlmModel::mlp_matrices(const Parallelism& parallelism) const {
  std::vector<Matrix> matrices;
  const auto add = [&](std::int64_t width) {
    matrices.insert(matrices.end(), gated_mlp ? 2 : 1, Matrix{hidden, width});
    matrices.push_back({width, hidden});
  };
  if (!experts) {
    add(ffn / parallelism.tensor);
    return matrices;
  }
  if (experts->shared_width > 0) add(experts->shared_width / parallelism.tensor);
  for (std::int64_t i = 0; i < experts_per_gpu(parallelism); ++i) add(expert_width_per_gpu(parallelism));
  return matrices;
}

Matrix LlmModel::router_matrix() const { return {hidden, experts->count}; }

std::int64_t LlmModel::experts_per_gpu(const Parallelism& parallelism) const {
  return experts->count / parallelism.expert;
}

std::int64_t LlmModel::expert_width_per_gpu(const Parallelism& parallelism) const {
  return experts->width / parallelism.expert_tensor();
}

Matrix LlmModel::head_matrix(std::int64_t tensor_parallel) const {
  return {hidden, (vocabulary + tensor_parallel - 1) / tensor_parallel};
}

namespace {

Bytes bytes_of(const Matrix& matrix, double bits) {
  const auto weights = static_cast<double>(matrix.inputs * matrix.outputs);
  return Bytes(static_cast<std::int64_t>(std::ceil(weights * bits / 8.0)));
}

}  // namespace

Bytes LlmModel::linear_bytes(const Matrix& matrix, LinearPart part) const {
  const bool in_fewer_bits = quantized && quantized->covers(part);
  if (in_fewer_bits && quantized->gguf) {
    const GgufBits& bits = *quantized->gguf;
    return bytes_of(matrix, part == LinearPart::expert ? bits.expert
                            : part == LinearPart::mlp  ? bits.mlp
                                                       : bits.attention);
  }
  return in_fewer_bits ? quantized->bytes(matrix) : Bytes(matrix.inputs * matrix.outputs * dtype_bytes);
}

Bytes LlmModel::head_bytes(const Matrix& matrix) const {
  const bool quantised = quantized && quantized->head && !tied_embeddings;
  if (quantised && quantized->gguf) return bytes_of(matrix, quantized->gguf->head);
  return quantised ? quantized->bytes(matrix) : Bytes(matrix.inputs * matrix.outputs * dtype_bytes);
}

std::int64_t LlmModel::rotated_dim() const {
  if (latent) return latent->rotated;
  return learned_position_rows > 0 ? 0 : rotary_dim.value_or(head_dim);
}

std::int64_t LlmModel::vector_parameters(const Parallelism& parallelism) const {
  const Matrix head = head_matrix(parallelism.tensor);
  const std::int64_t norm = norm_vectors * hidden;
  std::int64_t layer = layer_norms * norm;
  if (latent) layer += latent->query_rank + latent->kv_rank;  // norms of the two latent vectors
  if (qk_norm == QkNorm::shared) layer += 2 * head_dim;
  if (qk_norm == QkNorm::per_head) layer += (heads + kv_heads) * head_dim;
  if (attention_sinks) layer += heads / parallelism.tensor;
  // Biases of column-parallel layers are split; those of row-parallel layers are added once, on every GPU's copy.
  if (biases.qkv) layer += attention_projections(parallelism.tensor).front().outputs;
  if (biases.output) layer += hidden;
  std::int64_t sum = layers * layer + outer_norms * norm + learned_position_rows * hidden;
  const auto mlp_bias = [&](std::int64_t width) { return outputs(mlp_projections(width)); };
  const std::int64_t routed = routed_layers();
  if (biases.mlp) sum += (layers - routed) * mlp_bias(ffn / parallelism.tensor);
  if (routed > 0) {
    const std::int64_t each = biases.mlp ? mlp_bias(expert_width_per_gpu(parallelism)) : 0;
    sum += routed * ((experts->router_bias ? experts->count : 0) + experts_per_gpu(parallelism) * each);
  }
  return sum + (biases.head ? head.outputs : 0);
}

std::int64_t LlmModel::layer_parameters(const LayerKind& kind, std::int64_t routed_experts) const {
  std::int64_t sum = numbers(attention_projections(1));
  if (!kind.routed) return sum + numbers(mlp_projections(ffn));
  sum += routed_experts * numbers(mlp_projections(experts->width)) + numbers(mlp_projections(experts->shared_width));
  return sum + numbers(std::array{router_matrix()}) + (experts->shared_gate ? hidden : 0);
}

std::int64_t LlmModel::parameters() const {
  std::int64_t sum = (tied_embeddings ? 1 : 2) * vocabulary * hidden + vector_parameters(1);
  for (const CountedKind& counted : counted_kinds()) {
    sum += counted.layers * layer_parameters(counted.kind, experts ? experts->count : 0);
  }
  return sum;
}

std::int64_t LlmModel::active_parameters() const {
  if (!experts) return parameters();
  const std::int64_t idle = experts->count - experts->top_k;
  const std::int64_t bias = biases.mlp ? outputs(mlp_projections(experts->width)) : 0;
  return parameters() - routed_layers() * idle * (numbers(mlp_projections(experts->width)) + bias);
}

std::int64_t LlmModel::kv_heads_per_gpu(std::int64_t tensor_parallel) const {
  return std::max<std::int64_t>(1, kv_heads / tensor_parallel);
}

Bytes LlmModel::layer_weights_per_gpu(const LayerKind& kind, const Parallelism& parallelism) const {
  Bytes sum{};
  for (const Matrix& matrix : attention_projections(parallelism.tensor)) {
    sum += linear_bytes(matrix, LinearPart::attention);
  }
  const auto add_mlp = [&](std::int64_t width, std::int64_t times, LinearPart part) {
    for (const Matrix& matrix : mlp_projections(width)) sum += linear_bytes(matrix, part) * times;
  };
  if (!kind.routed) {
    add_mlp(ffn / parallelism.tensor, 1, LinearPart::mlp);
    return sum;
  }
  add_mlp(expert_width_per_gpu(parallelism), experts_per_gpu(parallelism), LinearPart::expert);
  if (experts->shared_width > 0) add_mlp(experts->shared_width / parallelism.tensor, 1, LinearPart::mlp);
  const std::int64_t plain = hidden * experts->count + (experts->shared_gate ? hidden : 0);
  return sum + Bytes(plain * dtype_bytes);
}

Bytes LlmModel::weights_per_gpu(const Parallelism& parallelism) const {
  const Matrix head = head_matrix(parallelism.tensor);
  Bytes sum{};
  for (const CountedKind& counted : counted_kinds()) {
    sum += layer_weights_per_gpu(counted.kind, parallelism) * counted.layers;
  }
  // The embedding has the shape of the LM head, but is looked up, not multiplied with: it is never quantised.
  const Bytes embedding(head.inputs * head.outputs * dtype_bytes);
  return sum + embedding + (tied_embeddings ? Bytes(0) : head_bytes(head)) +
         Bytes(vector_parameters(parallelism) * dtype_bytes);
}

Bytes LlmModel::kv_bytes_per_token(std::int64_t kv_dtype_bytes) const {
  return kv_bytes_per_token_per_gpu(1, kv_dtype_bytes);
}

Bytes LlmModel::kv_bytes_per_token_per_gpu(const Parallelism& parallelism, std::int64_t kv_dtype_bytes) const {
  const std::int64_t width = latent ? latent->kv_width() : 2 * kv_heads_per_gpu(parallelism.tensor) * head_dim;
  return Bytes((layers * width * kv_dtype_bytes + parallelism.data - 1) / parallelism.data);
}

std::optional<Problem> LlmModel::tensor_parallel_problem(std::int64_t tensor_parallel) const {
  const auto problem = [&](std::string why) {
    return Problem{fmt::format("tensor_parallel={} does not split {}: {}", tensor_parallel, file.name, why),
                   "tensor_parallel",
                   {}};
  };
  if (tensor_parallel < 1) return problem("it must be at least 1");
  if (heads % tensor_parallel != 0) return problem(fmt::format("it must divide the {} attention heads", heads));
  if (ffn % tensor_parallel != 0) return problem(fmt::format("it must divide the MLP width {}", ffn));
  if (experts && experts->shared_width % tensor_parallel != 0) {
    return problem(fmt::format("it must divide the {} columns of the shared experts", experts->shared_width));
  }
  if (!latent && kv_heads % tensor_parallel != 0 && tensor_parallel % kv_heads != 0) {
    return problem(fmt::format("it must divide the {} KV heads or be a multiple of them", kv_heads));
  }
  if (tensor_parallel == 1 || !quantized || quantized->split_inputs == 0) return std::nullopt;
  const auto cut = [&](const Matrix& matrix) { return matrix.inputs % quantized->split_inputs != 0; };
  const auto cut_inputs = [&]() -> std::optional<std::int64_t> {
    if (quantized->attention) {
      for (const Matrix& matrix : attention_projections(tensor_parallel)) {
        if (cut(matrix)) return matrix.inputs;
      }
    }
    if (!quantized->mlp) return std::nullopt;
    for (const std::int64_t width : {ffn, experts ? experts->shared_width : 0}) {
      if (width > 0 && cut(mlp_projections(width / tensor_parallel)[1])) return width / tensor_parallel;
      if (width > 0 && cut({hidden, 1})) return hidden;
    }
    return std::nullopt;
  }();
  if (!cut_inputs) return std::nullopt;
  return problem(
      fmt::format("a GPU's {} inputs of a linear layer are not a multiple of the {} weights that share a scale",
                  *cut_inputs, quantized->split_inputs));
}

std::optional<Problem> LlmModel::parallelism_problem(const Parallelism& parallelism) const {
  if (auto problem = tensor_parallel_problem(parallelism.tensor)) return problem;
  const std::int64_t gpus = parallelism.gpus();
  const auto problem = [&](std::string why, std::string fix = {}) {
    return Problem{fmt::format("expert_parallel={} does not split {}: {}", parallelism.expert, file.name, why),
                   "expert_parallel", std::move(fix)};
  };
  if (parallelism.expert < 1) return problem("it must be at least 1");
  if (!experts) {
    if (parallelism.expert == 1) return std::nullopt;
    return problem("it has no experts", "leave expert_parallel out");
  }
  if (gpus % parallelism.expert != 0) {
    return problem(fmt::format("it must divide the {} GPU{} of a replica (tensor_parallel times data_parallel)", gpus,
                               gpus == 1 ? "" : "s"));
  }
  if (experts->count % parallelism.expert != 0) {
    return problem(fmt::format("it must divide the {} experts of a layer", experts->count));
  }
  const std::int64_t sharing = parallelism.expert_tensor();
  if (experts->width % sharing != 0) {
    return problem(
        fmt::format("the {} GPUs that then share an expert do not divide its width {}", sharing, experts->width),
        fmt::format("use expert_parallel={}, so that each GPU holds whole experts", gpus));
  }
  return std::nullopt;
}

}  // namespace spillway::hwmodels
