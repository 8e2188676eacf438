// Measurements of a GPU or its host: rows of kernels, copies, layers and iterations, each with its location in a file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hwmodels/models/expert_exchange.hpp"
#include "hwmodels/quantization.hpp"
#include "sim/api/execution_model.hpp"

namespace spillway::hwmodels {

/// The kinds of things that are timed. The names are those of `calibrate check`.
enum class Op : std::uint8_t {
  gemm,
  decode_attention,
  prefill_attention,
  mixed_attention,
  elementwise,
  all_reduce,
  copy_h2d,
  copy_d2h,
  cpu_attention,
  host,
  layer,
  iteration,
  interference,
  host_stream,
  sustained,
  moe,
  expert_exchange,
  host_gemm,
};
[[nodiscard]] std::string_view op_name(Op op);
/// Empty for any other word.
[[nodiscard]] std::optional<Op> op_named(std::string_view name);
[[nodiscard]] std::span<const Op> all_ops();

/// The location of a row.
struct RowPlace {
  std::int32_t file = 0;  // index in Measurements::files
  std::int64_t row = 0;   // line of a text file, the first being 1; index in `measurements` of a JSON file
};

/// y[m][n] = x[m][k] w[n][k]; 2 m n k FLOPs.
struct GemmRow {
  std::int64_t m = 0;  // tokens
  std::int64_t n = 0;  // outputs
  std::int64_t k = 0;  // inputs
  std::int64_t dtype_bytes = 2;
  double seconds = 0.0;
  RowPlace place{};
  Quantization quantization = Quantization::none;  // else the time includes quantising x
};

/// `batch` equal sequences, each with `new_tokens` queries that attend causally to `context` earlier tokens and to
/// themselves. Decode when new_tokens = 1 and context > 0, else prefill.
struct AttentionRow {
  std::int64_t batch = 0;
  std::int64_t q_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t new_tokens = 0;
  std::int64_t context = 0;
  double seconds = 0.0;
  RowPlace place{};
  bool stand_in = false;  // of cuDNN, which no engine runs: rows of an engine replace it
  bool fp8_kv = false;    // keys and values in one byte, else in two
  [[nodiscard]] bool decode() const { return new_tokens == 1 && context > 0; }
};

/// One call with at most one prefill chunk and `decodes` decoding sequences. The heads are those of the file's model.
struct MixedRow {
  std::int64_t chunk = 0;           // new tokens of the prefill; 0: none
  std::int64_t chunk_context = 0;   // tokens of its sequence before the chunk
  std::int64_t decodes = 0;         // sequences
  std::int64_t decode_context = 0;  // tokens of each of them
  double seconds = 0.0;
  RowPlace place{};
};

/// A kernel that only moves data: norms, activations, rotations, sums, embedding look-ups.
struct ElementwiseRow {
  std::string kernel;       // as the file names it
  std::int64_t tokens = 0;  // rows
  double bytes = 0.0;       // read and written, all tokens together
  double seconds = 0.0;
  RowPlace place{};
};

struct AllReduceRow {
  std::int64_t ranks = 0;
  std::int64_t bytes = 0;  // of one rank's buffer
  double seconds = 0.0;
  RowPlace place{};
  bool custom = false;  // kernels of an engine for small buffers, inside a CUDA graph; else NCCL
};

[[nodiscard]] std::string_view mechanism_name(CopyMechanism mechanism);
[[nodiscard]] std::optional<CopyMechanism> mechanism_named(std::string_view name);

/// `copies` copies of `block_bytes` each, timed together.
struct CopyRow {
  bool to_device = true;  // H2D; else D2H
  CopyMechanism mechanism = CopyMechanism::many;
  bool duplex = false;  // while the other direction is busy too
  std::int64_t block_bytes = 0;
  std::int64_t copies = 1;
  double seconds = 0.0;
  RowPlace place{};
  std::int64_t beside_bytes = 0;  // duplex: bytes of one copy in the other direction; 0: not stated
};

/// Decode attention on the CPU: KV bytes read for `batch` sequences of `context` tokens each.
struct CpuAttentionRow {
  std::int64_t threads = 0;
  std::int64_t batch = 0;
  std::int64_t context = 0;
  double kv_bytes = 0.0;
  double seconds = 0.0;
  RowPlace place{};
};

/// CPU time per iteration during which the GPU waits.
struct HostRow {
  std::int64_t sequences = 0;
  std::int64_t tensor_parallel = 1;
  double seconds = 0.0;
  RowPlace place{};
};

/// One kernel of one model, by the tokens of the iteration or, with `per_sequence`, by the sampled sequences.
struct LayerRow {
  std::string
      kernel;  // by tokens any other name as well: a kernel that runs once in every layer. Known: qkv_proj, o_proj,
               // gate_up_proj, down_proj, act_fn, layernorm, rotary_emb, embedding, final_layernorm, lm_head, sampler
  bool per_sequence = false;
  std::int64_t count = 0;  // tokens or sequences
  double seconds = 0.0;
  RowPlace place{};
};

/// A whole iteration as an engine logged it.
struct IterationRow {
  std::int64_t tokens = 0;   // computed in the iteration, all sequences together
  std::int64_t context = 0;  // KV tokens that they attend to, all sequences together
  double chunk_pairs = 0.0;  // sum over prefill chunks of new tokens times (context + half of the new tokens)
  double seconds = 0.0;
  RowPlace place{};
};

/// Compute alone, or while the DMA engines copy.
struct InterferenceRow {
  std::string compute;          // what is computed, one text per kind
  std::string traffic;          // directions of the copies: h2d, d2h, both
  std::int64_t copy_bytes = 0;  // of one copy; copies follow each other
  bool beside = false;          // while the copies run; false: alone
  double seconds = 0.0;         // of one call
  RowPlace place{};
  bool by_kernel = false;  // the copies are by SMs, not by the copy engine
};

/// Threads that read `bytes` of host memory once.
struct HostStreamRow {
  std::int64_t threads = 0;
  std::int64_t bytes = 0;
  double seconds = 0.0;
  RowPlace place{};
};

/// y[rows][outputs] = x[rows][inputs] W on the CPU, with weights that were not in its caches.
struct HostGemmRow {
  std::int64_t rows = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int64_t threads = 0;      // 0: not stated
  std::int64_t dtype_bytes = 2;  // of a weight
  double seconds = 0.0;
  RowPlace place{};
};

/// An interval of work that ran for many seconds.
struct SustainedRow {
  std::string compute;       // what is computed, one text per kind
  bool gemm = false;         // bound by arithmetic; else attention
  double end_seconds = 0.0;  // of the interval, since the work began
  std::optional<std::int64_t> sm_clock_mhz;
  std::optional<double> power_w;
  double seconds = 0.0;  // of one call
  RowPlace place{};
};

/// One fused MoE module on one GPU: the most loaded one of an expert-parallel group.
struct MoeRow {
  Quantization quantization = Quantization::none;  // of the weights
  std::string kernel;                              // as the file names it
  std::int64_t tokens = 0;                         // of the group
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;  // width of an expert, all tensor-parallel GPUs together
  std::int64_t top_k = 0;
  std::int64_t experts = 0;  // of the layer
  std::int64_t tensor_parallel = 1;
  std::int64_t expert_parallel = 1;
  std::optional<double> power_law;  // the exponent; empty: balanced
  double seconds = 0.0;
  RowPlace place{};
};

/// One step of an exchange of tokens between the GPUs of an expert-parallel group.
struct ExchangeRow {
  ExchangeBackend backend = ExchangeBackend::nccl;
  ExchangeStep step = ExchangeStep::dispatch;
  std::int64_t ranks = 0;
  ExchangeShape shape;
  std::int64_t experts = 0;  // of the layer; 0: not stated
  double seconds = 0.0;
  RowPlace place{};
};

/// A file with measured rows.
struct MeasurementFile {
  std::string path;
  std::string sha256;  // of the file as stored
  std::string format;  // ops-gemm-csv, ops-attention-csv, vidur-mlp-csv, ...
  std::int64_t rows = 0;
  std::vector<std::string> notes;  // rows that were merged or left out, and why
};

/// Facts of the GPU, as the measuring tool states them; empty: not stated.
struct MeasuredDevice {
  std::optional<std::string> name;
  std::optional<std::int64_t> memory_bytes;
  std::optional<std::int64_t> sm_count;
  std::optional<std::int64_t> l2_bytes;
};

/// Facts of the machine, as the measuring tool states them; empty: not stated.
struct MeasuredHost {
  std::optional<std::string> cpu_model;
  std::optional<std::int64_t> physical_cores;
  std::optional<std::int64_t> threads;  // available to the tool
  std::optional<std::int64_t> memory_bytes;
  std::optional<std::int64_t> sockets;
};

struct Measurements {
  std::vector<MeasurementFile> files;
  MeasuredDevice device;
  MeasuredHost machine;
  std::vector<GemmRow> gemm;
  std::vector<AttentionRow> attention;  // decode and prefill
  std::vector<MixedRow> mixed;
  std::vector<ElementwiseRow> elementwise;
  std::vector<AllReduceRow> all_reduce;
  std::vector<CopyRow> copies;
  std::vector<CpuAttentionRow> cpu_attention;
  std::vector<HostRow> host;
  std::vector<LayerRow> layers;
  std::vector<IterationRow> iterations;
  std::vector<InterferenceRow> interference;
  std::vector<HostStreamRow> host_streams;
  std::vector<SustainedRow> sustained;
  std::vector<MoeRow> moe;
  std::vector<ExchangeRow> exchanges;
  std::vector<HostGemmRow> host_gemms;
};

/// A file to read, and optionally the only op to use from it.
struct MeasurementInput {
  std::string path;
  std::optional<Op> only;
};

/// Reads files and recognises their format by the header (CSV, plain or gzip) or by "kind": "measurements" (JSON).
/// Throws DataError with every problem of every file, with line and column: unreadable, unknown header, a missing
/// column, a field that is not a number, a count below 1, a latency that is not above 0, no row, another schema
/// version, an unknown unit. The header states units (latency_us, time_us); Vidur's files are in ms. Decode or prefill
/// attention of cuDNN is left out when any file has the same op of an engine; the notes of the files say so.
[[nodiscard]] Measurements read_measurements(std::span<const MeasurementInput> inputs);

/// The decode rows of `attention`, or its prefill rows, with KV in two bytes or in one.
[[nodiscard]] std::vector<AttentionRow> attention_rows(const Measurements& measurements, bool decode,
                                                       bool fp8_kv = false);

/// "gemm.csv.gz line 12".
[[nodiscard]] std::string place_text(const Measurements& measurements, const RowPlace& place);
/// "file 1 row 12", where the name of the file is not known.
[[nodiscard]] std::string row_text(const RowPlace& place);

}  // namespace spillway::hwmodels
