// A decoder-only transformer: its shapes, and what its weights and its KV cache take.
//
// Dense models have one kind of layer. Others mix kinds: dense MLPs and routed experts (Mixtral, arXiv 2401.04088;
// DeepSeek-V3, arXiv 2412.19437), full attention and attention over a window (Gemma 3, gpt-oss). All layers of a model
// have the same projections of attention, so they differ in their MLP and in their window alone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hwmodels/data_file.hpp"
#include "hwmodels/gguf_types.hpp"
#include "hwmodels/quantization.hpp"
#include "sim/api/kv_window.hpp"
#include "sim/core/error.hpp"
#include "sim/core/units.hpp"

namespace spillway::hwmodels {

/// How the GPUs of one replica share a model. `tensor` GPUs share the heads and MLPs of every layer, as in vLLM's
/// tensor_parallel_size. `data` such groups attend for requests of their own and hold the KV of these alone
/// (data_parallel_size). Experts are spread over all GPUs: `expert` groups hold experts of their own, whose width the
/// GPUs of a group share.
struct Parallelism {
  std::int64_t tensor = 1;
  std::int64_t data = 1;
  std::int64_t expert = 1;

  constexpr Parallelism() = default;
  /// Tensor parallelism alone.
  constexpr Parallelism(std::int64_t of_tensors) : tensor(of_tensors) {}
  constexpr Parallelism(std::int64_t of_tensors, std::int64_t of_data, std::int64_t of_experts)
      : tensor(of_tensors), data(of_data), expert(of_experts) {}

  [[nodiscard]] constexpr std::int64_t gpus() const { return tensor * data; }
  /// GPUs that share the width of one expert.
  [[nodiscard]] constexpr std::int64_t expert_tensor() const { return gpus() / expert; }
};

/// The weights of one linear layer, or of several that one kernel multiplies with.
struct Matrix {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
};

/// Which linear layers add a bias vector.
struct Biases {
  bool qkv = false;
  bool output = false;  // of attention
  bool mlp = false;     // up, gate and down, of experts, too
  bool head = false;    // of the LM head

  bool operator==(const Biases&) const = default;
};

/// Norms of queries and keys before attention: none, one weight vector for all heads, or one for each head.
enum class QkNorm { none, shared, per_head };

/// What a linear layer belongs to.
enum class LinearPart : std::uint8_t { attention, mlp, expert };

/// How quantised linear layers are stored in GPU memory. A matrix takes
///   bits inputs outputs / 8 + ceil(inputs / group_inputs) ceil(outputs / group_outputs) group_bits / 8 bytes,
/// rounded up. hf_quantization.hpp has the figures of each method.
struct QuantizedLinear {
  std::string method;                        // as the checkpoint names it
  Quantization kernel = Quantization::none;  // whose kernels multiply with it; none: 16-bit kernels dequantise it
  std::int64_t bits = 0;                     // per weight
  std::int64_t group_inputs = 0;             // 0: all inputs share a scale
  std::int64_t group_outputs = 0;            // 0: all outputs share a scale
  double group_bits = 0.0;                   // of scale and zero point; not whole when scales are quantised themselves
  std::int64_t split_inputs = 0;             // each GPU's share of the inputs must be a multiple of this; 0: any share
  bool by_engine = false;                    // by engine.quantization, not in the model's file
  bool head = false;                         // the LM head is quantised too, when it is a matrix of its own
  bool attention = true;                     // so are the projections of attention
  bool mlp = true;                           // so are dense MLPs and shared experts; routed experts always are
  std::optional<GgufBits> gguf{};            // of a GGUF file: instead of bits and groups

  [[nodiscard]] Bytes bytes(const Matrix& matrix) const;
  [[nodiscard]] bool covers(LinearPart part) const {
    return part == LinearPart::expert || (part == LinearPart::attention ? attention : mlp);
  }
};

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, 2.1): the KV cache holds one latent vector and one
/// rotated key per token, which all heads share.
struct LatentAttention {
  std::int64_t query_rank = 0;  // width of the latent query; 0: queries are projected from the hidden state
  std::int64_t kv_rank = 0;     // width of the latent vector
  std::int64_t rotated = 0;     // width of the rotated part of a query head, and of the shared rotated key
  std::int64_t unrotated = 0;   // width of the rest of a query head
  std::int64_t value = 0;       // width of a value head

  /// Elements of KV per token and layer.
  [[nodiscard]] std::int64_t kv_width() const { return kv_rank + rotated; }
  [[nodiscard]] std::int64_t query_width() const { return unrotated + rotated; }
};

/// MLPs of which a router picks `top_k` for each token, beside shared ones that every token passes.
struct Experts {
  std::int64_t count = 0;  // routed experts of a layer
  std::int64_t top_k = 0;
  std::int64_t width = 0;         // of one routed expert
  std::int64_t shared_width = 0;  // of all shared experts together; 0: none
  bool shared_gate = false;       // the shared experts' output is scaled by a gate: hidden -> 1
  bool router_bias = false;       // a number per expert
};

/// Layers that cost the same.
struct LayerKind {
  bool routed = false;      // experts instead of the dense MLP
  std::int64_t window = 0;  // tokens that a token attends to, itself included; 0: all

  bool operator==(const LayerKind&) const = default;
};

/// Linear layers have shapes (hidden -> heads * head_dim), ..., (ffn -> hidden).
struct LlmModel {
  DataFile file;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn = 0;    // of a dense MLP; 0: no layer has one
  bool gated_mlp = false;  // gate and up projections beside down
  std::int64_t vocabulary = 0;
  std::int64_t max_positions = 0;
  bool tied_embeddings = false;            // the LM head is the embedding
  std::int64_t learned_position_rows = 0;  // 0: rotary positions, or ALiBi when rotary_dim is 0
  std::optional<std::int64_t> rotary_dim;  // rotated part of head_dim; empty: all of it, or none with learned positions
  Biases biases;
  bool attention_sinks = false;  // a learned logit per head
  std::int64_t layer_norms = 2;  // per layer, each over `hidden`
  std::int64_t outer_norms = 1;  // outside the layers: the final norm, and the norm of the embedding where there is one
  std::int64_t norm_vectors = 1;  // per norm: 2 with a bias, 1 without, 0 without weights
  QkNorm qk_norm = QkNorm::none;
  std::int64_t dtype_bytes = 0;  // of activations, embeddings, norms, biases, and of linear layers unless quantised
  std::optional<QuantizedLinear> quantized;
  std::optional<std::int64_t> kv_cache_bytes;  // per element, when the checkpoint asks for another than dtype_bytes
  std::optional<LatentAttention> latent;       // then kv_heads and head_dim are those of the expanded keys
  std::optional<Experts> experts;
  /// The kinds of layers, at most kMostKinds, and the kind of each layer. Both empty: all layers are of one kind, with
  /// experts if there are any, and full attention.
  std::vector<LayerKind> kinds;
  std::vector<std::uint8_t> kind_of_layer;

  static constexpr std::size_t kMostKinds = 4;

  /// Takes the kind of each layer. Leaves `kinds` empty when all layers are of the kind that an empty list means.
  void set_layers(std::span<const LayerKind> each);
  /// The kinds with the number of layers of each; never empty.
  struct CountedKind {
    LayerKind kind;
    std::int64_t layers = 0;
  };
  [[nodiscard]] std::vector<CountedKind> counted_kinds() const;
  [[nodiscard]] std::int64_t routed_layers() const;
  /// KV of a request of `tokens` as all layers hold it, over what layers with a window need: 1 without such layers.
  [[nodiscard]] double window_gain(Tokens tokens) const;
  /// The layers with a window, if they all have the same; empty: there are none, or windows differ.
  [[nodiscard]] std::optional<KvWindow> kv_window() const;
  /// What a result must say whose layers with a window keep all KV; empty without such layers.
  [[nodiscard]] std::string windows_text() const;
  /// The layers of one kind, "58 with experts": what the others are not. Empty when all layers hold equal weights.
  [[nodiscard]] std::string unequal_layers() const;

  /// Number of learned parameters, however they are stored.
  [[nodiscard]] std::int64_t parameters() const;
  /// Of these, the ones that a token passes: top_k of the routed experts.
  [[nodiscard]] std::int64_t active_parameters() const;
  /// The linear layers of a dense layer on each GPU: QKV, output, up (with the gate), down. For a model with one kind
  /// of layers, without experts and without latent attention.
  [[nodiscard]] std::array<Matrix, 4> layer_matrices(std::int64_t tensor_parallel) const;
  /// The projections of attention as kernels multiply with them, of one GPU: queries with keys and values, output.
  /// With latent attention: the latent query with the latent vector and the rotated key, queries, the expansion of the
  /// latent vector to keys and values, output. The first is on every GPU whole.
  [[nodiscard]] std::vector<Matrix> attention_projections(std::int64_t tensor_parallel) const;
  /// An MLP of `width`, of one GPU: up (with the gate), down.
  [[nodiscard]] std::array<Matrix, 2> mlp_projections(std::int64_t width) const;
  /// The same weights as a checkpoint has them, of one GPU: queries, keys, values and output of attention; gate if
  /// there is one, up and down of the MLP, or of every expert, the shared ones as one.
  [[nodiscard]] std::vector<Matrix> attention_matrices(std::int64_t tensor_parallel) const;
  [[nodiscard]] std::vector<Matrix> mlp_matrices(const Parallelism& parallelism) const;
  /// The router of a layer with experts, on every GPU whole and in 16 bits.
  [[nodiscard]] Matrix router_matrix() const;
  /// Routed experts that one GPU holds, and the width that it holds of each.
  [[nodiscard]] std::int64_t experts_per_gpu(const Parallelism& parallelism) const;
  [[nodiscard]] std::int64_t expert_width_per_gpu(const Parallelism& parallelism) const;
  /// The LM head on each GPU: its share of the vocabulary, rounded up.
  [[nodiscard]] Matrix head_matrix(std::int64_t tensor_parallel) const;
  /// Bytes of a linear layer's weights, quantised or not, without its bias.
  [[nodiscard]] Bytes linear_bytes(const Matrix& matrix, LinearPart part = LinearPart::mlp) const;
  /// Bytes of the LM head's weights. Only some quantised checkpoints quantise the head. A head that is tied to the
  /// embedding is never quantised.
  [[nodiscard]] Bytes head_bytes(const Matrix& matrix) const;
  /// How much of each head is rotated: 0 with learned positions and with ALiBi.
  [[nodiscard]] std::int64_t rotated_dim() const;
  /// KV heads that one of `tensor_parallel` GPUs holds: replicated when there are fewer heads than GPUs, as in vLLM.
  [[nodiscard]] std::int64_t kv_heads_per_gpu(std::int64_t tensor_parallel) const;
  /// The linear layers of a layer of a kind on each GPU.
  [[nodiscard]] Bytes layer_weights_per_gpu(const LayerKind& kind, const Parallelism& parallelism) const;
  /// Linear layers and embeddings split, norms, routers and learned positions replicated.
  [[nodiscard]] Bytes weights_per_gpu(const Parallelism& parallelism) const;
  /// 2 * layers * kv_heads * head_dim * dtype, over all GPUs when heads are not replicated. With latent attention
  /// layers * kv_width * dtype, on every GPU of a tensor-parallel group.
  [[nodiscard]] Bytes kv_bytes_per_token(std::int64_t kv_dtype_bytes) const;
  /// Mean over the data-parallel groups, of which one holds the token; rounded up.
  [[nodiscard]] Bytes kv_bytes_per_token_per_gpu(const Parallelism& parallelism, std::int64_t kv_dtype_bytes) const;
  /// Why tensor_parallel does not split the model by vLLM's rule: it divides heads and ffn, it divides the KV heads or
  /// is a multiple of them, and it cuts no group of quantised weights. Empty when it splits the model.
  [[nodiscard]] std::optional<Problem> tensor_parallel_problem(std::int64_t tensor_parallel) const;
  /// The same of all three: expert_parallel must divide experts and GPUs, and the GPUs of a group an expert's width.
  [[nodiscard]] std::optional<Problem> parallelism_problem(const Parallelism& parallelism) const;

 private:
  /// Norms, biases and learned positions on each GPU: all that is neither a linear layer nor the embedding.
  [[nodiscard]] std::int64_t vector_parameters(const Parallelism& parallelism) const;
  /// The linear layers of a layer of a kind, in numbers, of one GPU that holds all, with `experts` routed ones.
  [[nodiscard]] std::int64_t layer_parameters(const LayerKind& kind, std::int64_t routed_experts) const;
};

}  // namespace spillway::hwmodels
