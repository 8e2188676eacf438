// GPUs, servers and their hosts, serving engines and language models: the JSON files of this folder, and files of the
// same form from a user.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hwmodels/data_file.hpp"
#include "hwmodels/fitted.hpp"
#include "hwmodels/quantization.hpp"
#include "hwmodels/topology.hpp"
#include "sim/core/error.hpp"
#include "sim/core/units.hpp"

namespace spillway::hwmodels {

/// One direction of a link: t = launch per copy + bytes / bandwidth.
struct HostLink {
  BytesPerSecond bandwidth{};
  double launch_seconds = 0.0;
};

/// Copies between host and GPU of one machine, by one mechanism.
struct CopyFigures {
  HostLink h2d{};
  HostLink d2h{};
  // Bandwidth of each direction while the other one is busy too; empty: no figure.
  std::optional<BytesPerSecond> h2d_duplex{};
  std::optional<BytesPerSecond> d2h_duplex{};
  // Time of a layer while a copy runs / its time alone, at least 1; empty: no figure, which counts as 1.
  std::optional<double> compute_slowdown{};
};

/// What a profile states of copies by SMs (CopyMechanism::kernel) beside the copy engine's figures. Empty: no figure.
struct KernelCopies {
  std::optional<BytesPerSecond> h2d{};
  std::optional<BytesPerSecond> d2h{};
  std::optional<double> h2d_launch_seconds{};
  std::optional<double> d2h_launch_seconds{};
  std::optional<BytesPerSecond> h2d_duplex{};
  std::optional<BytesPerSecond> d2h_duplex{};
  std::optional<double> compute_slowdown{};
};

/// t = latency + 2 (p - 1) / p * bytes / bus_bandwidth for an all-reduce of `bytes` over p GPUs (NCCL's bus bandwidth).
struct AllReduce {
  double latency_seconds = 0.0;
  BytesPerSecond bus_bandwidth{};
};

/// What a fitted profile took over from the profile of another GPU.
struct BorrowedParts {
  static constexpr std::string_view kFacts = "datasheet figures";
  std::string from;
  std::vector<std::string> parts;  // "gemm", "attention", "collectives", "links", "datasheet figures", ...
};

/// "borrowed from NAME, not calibrated: gemm, links".
[[nodiscard]] std::string borrowed_text(const BorrowedParts& borrowed);

/// One GPU and its kernels. Efficiencies are fractions of the datasheet's figures, in (0, 1].
struct GpuProfile {
  DataFile file;
  Bytes memory{};           // total memory as CUDA reports it
  double peak_flops = 0.0;  // dense bf16, or fp16 where a GPU has no bf16, FLOP/s
  BytesPerSecond memory_bandwidth{};
  double gemm_compute_efficiency = 0.0;
  double gemm_memory_efficiency = 0.0;
  double decode_attention_efficiency = 0.0;
  double prefill_attention_efficiency = 0.0;
  double kernel_overhead_seconds = 0.0;     // per GEMM or elementwise kernel
  double attention_overhead_seconds = 0.0;  // per attention call
  HostLink h2d{};
  HostLink d2h{};
  BytesPerSecond host_link_peak{};  // per direction
  // How fast the host's CPU copies within its memory, for CopyMechanism::relay; set by a run; empty: unknown.
  std::optional<BytesPerSecond> host_copy{};
  std::optional<HostLink> peer{};  // of its server (ServerProfile::peer); empty: no server, or no direct copies
  // Bandwidth of each direction while the other one is busy too; empty: no figure.
  std::optional<BytesPerSecond> h2d_bandwidth_duplex;
  std::optional<BytesPerSecond> d2h_bandwidth_duplex;
  // Time of a layer while a copy runs / its time alone, at least 1; empty: no figure, which counts as 1.
  std::optional<double> copy_compute_slowdown;
  KernelCopies kernel_copies{};
  /// How the run copies layers, set by a run: copies slow each other and compute as this mechanism's figures say.
  CopyMechanism layer_copies = CopyMechanism::single;
  std::optional<SustainedClock> sustained_clock;  // empty: no figure, so the clock stays
  std::optional<AllReduce> all_reduce;            // empty: no figure, so no tensor parallelism
  std::int64_t sm_count = 0;                      // streaming multiprocessors that CUDA offers
  Bytes l2_cache{};
  FittedKernels fitted;                   // empty: only the analytic model
  std::optional<BorrowedParts> borrowed;  // empty: nothing of another GPU, except as sources say
  std::string fitted_from;                // the profile that lends the kernels; empty: its own
  std::vector<std::string> unknown;       // fields that are null in the file, except the std::optional ones

  /// The plain figures of a mechanism between host and GPU. What the profile does not state of copies by SMs is the
  /// copy engine's figure, and no more than the direction reaches alone.
  [[nodiscard]] CopyFigures copy_figures(CopyMechanism mechanism) const;
  /// Whether the profile has a bandwidth of copies by SMs, stated or fitted.
  [[nodiscard]] bool has_kernel_copies() const;
  /// Throws ConfigError when one of these fields is null in the file. The message names the field and what needs it.
  void need(std::initializer_list<std::string_view> fields, std::string_view purpose) const;
};

/// What copies the layers of a run (GpuProfile::layer_copies), what it reaches, and the GPU that the figures are of:
/// "SMs: 372.3 GB/s in and 297* out alone, 204 and 204 together (gh200-96gb; *: of its copy engines)".
[[nodiscard]] std::string layer_copies_text(const GpuProfile& gpu);

/// CPU and memory of a server, or of the part of a larger machine that the file describes.
struct HostProfile {
  DataFile file;
  std::int64_t cores = 0;    // physical
  std::int64_t threads = 0;  // all hardware threads of these cores
  Bytes dram{};
  BytesPerSecond dram_bandwidth{};                          // reading, all threads together
  std::optional<BytesPerSecond> dram_bandwidth_per_thread;  // one thread alone; empty: no figure
  std::optional<BytesPerSecond> dram_peak;                  // of the memory channels; empty: no figure
  double cpu_attention_efficiency = 0.0;                    // share of dram_bandwidth, in (0, 1]
  double cpu_attention_launch_seconds = 0.0;                // fixed cost of a call, whatever KV it reads
  std::int64_t sockets = 1;  // they share dram_bandwidth equally: a process reads the memory of one
};

/// GPUs of one kind, their host and the links between them, or several such servers. The links of the topology limit
/// copies in addition to each GPU's own link.
struct ServerProfile {
  DataFile file;
  std::string gpu;               // a name of gpu_names(), or a file
  std::int64_t gpus = 0;         // of one server
  std::string host;              // a name of host_names(), or a file
  std::optional<HostLink> peer;  // from one GPU to another; empty: no direct copies
  Topology topology;             // of one server
  std::int64_t servers = 1;      // equal ones
  std::optional<DataFile> of;    // what `file` is several of, when it names another server's file
};

/// What `hardware=` names. A GPU stands for as many GPUs as a run requires, on an unknown host.
struct Hardware {
  GpuProfile gpu;
  std::optional<ServerProfile> server;
  std::optional<HostProfile> host;  // present when `server` is

  /// The file that was named.
  [[nodiscard]] const DataFile& file() const { return server ? server->file : gpu.file; }
};

/// CPU time of one serving engine, and the GPU memory that it uses besides weights and KV cache.
struct EngineProfile {
  DataFile file;
  double launch_floor_seconds = 0.0;       // per layer, when no CUDA graph is replayed
  std::int64_t cuda_graph_max_tokens = 0;  // iterations of up to this many tokens replay a graph; 0: always eager
  bool cuda_graph_prefill = false;         // also iterations that hold prefill
  double host_fixed_seconds = 0.0;         // per iteration
  double host_per_sequence_seconds = 0.0;  // per iteration and scheduled sequence
  bool host_overlapped = false;            // only CPU time beyond the GPU's time delays an iteration
  bool schedules_ahead = false;            // an iteration is decided on when the one before it starts
  bool custom_all_reduce = false;          // own kernels for small buffers instead of NCCL's
  bool fuses_quantisation = false;         // norms and activations write fp8; else a kernel of its own does
  bool splits_mixed_attention = false;     // attention of prompts and of decodes in launches of their own
  double non_attention_factor = 1.0;       // time of all kernels but attention, over that of the GPU profile's kernels
  double front_end_seconds = 0.0;          // per request, between its client and the scheduler, both ways together
  Bytes non_torch_memory{};                // per GPU
  Bytes non_torch_memory_tensor_parallel{};  // added per GPU when tensor_parallel > 1
  std::int64_t activation_hidden_copies = 0;
  std::int64_t sampler_bytes_per_logit = 0;
  double gpu_memory_utilization = 0.0;  // default of the engine
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
  bool mlp = false;     // up, gate and down
  bool head = false;    // of the LM head

  bool operator==(const Biases&) const = default;
};

/// Norms of queries and keys before attention: none, one weight vector for all heads, or one for each head.
enum class QkNorm { none, shared, per_head };

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

  [[nodiscard]] Bytes bytes(const Matrix& matrix) const;
};

/// A dense decoder-only transformer. Linear layers have shapes (hidden -> heads * head_dim), ..., (ffn -> hidden).
struct LlmModel {
  DataFile file;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn = 0;
  bool gated_mlp = false;  // gate and up projections beside down
  std::int64_t vocabulary = 0;
  std::int64_t max_positions = 0;
  std::int64_t sliding_window = 0;         // tokens that max_positions was lowered to; 0: no window lowers it
  bool tied_embeddings = false;            // the LM head is the embedding
  std::int64_t learned_position_rows = 0;  // 0: rotary positions, or ALiBi when rotary_dim is 0
  std::optional<std::int64_t> rotary_dim;  // rotated part of head_dim; empty: all of it, or none with learned positions
  Biases biases;
  std::int64_t layer_norms = 2;  // per layer, each over `hidden`
  std::int64_t outer_norms = 1;  // outside the layers: the final norm, and the norm of the embedding where there is one
  std::int64_t norm_vectors = 1;  // per norm: 2 with a bias, 1 without, 0 without weights
  QkNorm qk_norm = QkNorm::none;
  std::int64_t dtype_bytes = 0;  // of activations, embeddings, norms, biases, and of linear layers unless quantised
  std::optional<QuantizedLinear> quantized;
  std::optional<std::int64_t> kv_cache_bytes;  // per element, when the checkpoint asks for another than dtype_bytes

  /// Number of learned parameters, however they are stored.
  [[nodiscard]] std::int64_t parameters() const;
  /// The linear layers of one layer on each GPU: QKV, output, up (with the gate), down.
  [[nodiscard]] std::array<Matrix, 4> layer_matrices(std::int64_t tensor_parallel) const;
  /// The same weights as a checkpoint has them, of one GPU: queries, keys, values and output of attention; gate if
  /// there is one, up and down of the MLP.
  [[nodiscard]] std::vector<Matrix> attention_matrices(std::int64_t tensor_parallel) const;
  [[nodiscard]] std::vector<Matrix> mlp_matrices(std::int64_t tensor_parallel) const;
  /// The LM head on each GPU: its share of the vocabulary, rounded up.
  [[nodiscard]] Matrix head_matrix(std::int64_t tensor_parallel) const;
  /// Bytes of a linear layer's weights, quantised or not, without its bias.
  [[nodiscard]] Bytes linear_bytes(const Matrix& matrix) const;
  /// Bytes of the LM head's weights. Only some quantised checkpoints quantise the head. A head that is tied to the
  /// embedding is never quantised.
  [[nodiscard]] Bytes head_bytes(const Matrix& matrix) const;
  /// How much of each head is rotated: 0 with learned positions and with ALiBi.
  [[nodiscard]] std::int64_t rotated_dim() const;
  /// KV heads that one of `tensor_parallel` GPUs holds: replicated when there are fewer heads than GPUs, as in vLLM.
  [[nodiscard]] std::int64_t kv_heads_per_gpu(std::int64_t tensor_parallel) const;
  /// Linear layers and embeddings split, norms and learned positions replicated.
  [[nodiscard]] Bytes weights_per_gpu(std::int64_t tensor_parallel) const;
  /// 2 * layers * kv_heads * head_dim * dtype, over all GPUs when heads are not replicated.
  [[nodiscard]] Bytes kv_bytes_per_token(std::int64_t kv_dtype_bytes) const;
  [[nodiscard]] Bytes kv_bytes_per_token_per_gpu(std::int64_t tensor_parallel, std::int64_t kv_dtype_bytes) const;
  /// Why tensor_parallel does not split the model by vLLM's rule: it divides heads and ffn, it divides the KV heads or
  /// is a multiple of them, and it cuts no group of quantised weights. Empty when it splits the model.
  [[nodiscard]] std::optional<Problem> tensor_parallel_problem(std::int64_t tensor_parallel) const;

 private:
  /// Norms, biases and learned positions on each GPU: all that is neither a linear layer nor the embedding.
  [[nodiscard]] std::int64_t vector_parameters(std::int64_t tensor_parallel) const;
};

/// Names of the embedded files, sorted.
[[nodiscard]] std::vector<std::string> gpu_names();
[[nodiscard]] std::vector<std::string> server_names();
[[nodiscard]] std::vector<std::string> host_names();
/// What load_hardware() knows: GPUs and servers.
[[nodiscard]] std::vector<std::string> hardware_names();
[[nodiscard]] std::vector<std::string> engine_names();
[[nodiscard]] std::vector<std::string> llm_names();

/// The kind that a file states: gpu, server, host, engine or llm; empty for a file of another form. Throws DataError
/// when it cannot be read.
[[nodiscard]] std::string stated_kind(const std::string& path);

/// Load an embedded file by name, or a user's file when the argument contains '/' or ends in ".json". load_llm() also
/// reads a Hugging Face config.json, which it recognises by its content, or the folder that holds one. They throw
/// ConfigError for an unknown name (with the nearest one), and DataError with every problem of a file: unreadable, not
/// JSON, another schema version, fields missing, unknown or of the wrong type, values that are physically impossible.
[[nodiscard]] GpuProfile load_gpu(std::string_view name_or_file);
[[nodiscard]] HostProfile load_host(std::string_view name_or_file);
[[nodiscard]] EngineProfile load_engine(std::string_view name_or_file);
[[nodiscard]] LlmModel load_llm(std::string_view name_or_file);

/// The GPU and the host that the file names must exist, and so must the server when the file stands for several of
/// another server. A path in the file is relative to the folder of the file. A file without a topology may state
/// h2d_aggregate, d2h_aggregate and host_shared_bandwidth: limits of one link that the copies of all GPUs cross.
[[nodiscard]] ServerProfile load_server(std::string_view name_or_file);
/// A GPU, or a server with its GPU and host. The "kind" of a user's file says which one it is.
[[nodiscard]] Hardware load_hardware(std::string_view name_or_file);

}  // namespace spillway::hwmodels
