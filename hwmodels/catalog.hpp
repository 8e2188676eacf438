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
#include "hwmodels/llm_model.hpp"
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
  /// Whether layers are copied by SMs unless the run says otherwise: the profile has figures of such copies, and does
  /// not say that they slow computation down more than copies by the copy engine.
  [[nodiscard]] bool prefers_kernel_copies() const;
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
  /// FLOP/s of products of x[rows, k] with 16-bit weights on the cores of one socket: gemm_flops_<rows>_rows for some
  /// of kGemmRows, ascending; empty: no figure.
  struct GemmRate {
    std::int64_t rows = 0;
    double flops = 0.0;
  };
  static constexpr std::array<std::int64_t, 4> kGemmRows{1, 64, 512, 4096};
  std::vector<GemmRate> gemm_flops{};
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

/// Names of the embedded files, sorted.
[[nodiscard]] std::vector<std::string> gpu_names();
[[nodiscard]] std::vector<std::string> server_names();
[[nodiscard]] std::vector<std::string> host_names();
/// What load_hardware() knows: GPUs and servers.
[[nodiscard]] std::vector<std::string> hardware_names();
[[nodiscard]] std::vector<std::string> engine_names();
[[nodiscard]] std::vector<std::string> llm_names();

/// The bytes of the embedded file of one of llm_names().
[[nodiscard]] std::string_view llm_file(std::string_view name);

/// The kind that a file states: gpu, server, host, engine or llm; empty for a file of another form. Throws DataError
/// when it cannot be read.
[[nodiscard]] std::string stated_kind(const std::string& path);

/// Load an embedded file by name, or a user's file when the argument contains '/' or ends in ".json". load_llm() also
/// reads a Hugging Face config.json, which it recognises by its content, or the folder that holds one, and resolves ids
/// of the hub, such as Qwen/Qwen3-30B-A3B-FP8 (llm_of_hub_id()). They throw
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
