// The measured points: one struct per kind of measurement. A plan is a list of points; a backend times each kind.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace spillway::calibrate {

enum class Direction : std::uint8_t { h2d, d2h };
enum class Traffic : std::uint8_t { none, h2d, d2h, both };
enum class HostMemory : std::uint8_t { pinned, pageable, registered };
enum class Number : std::uint8_t { bf16, fp16, fp8, fp32 };

/// One copy of contiguous bytes by a DMA engine. Timed on the GPU, and on the CPU from the call to the return of a
/// synchronisation.
struct ContiguousCopy {
  Direction direction = Direction::h2d;
  HostMemory memory = HostMemory::pinned;
  std::int64_t bytes = 0;
};

/// One copy to the GPU of contiguous bytes that are not page-locked: `threads` threads copy them to a page-locked
/// buffer, then a DMA engine. Timed on the CPU, from the first to the return of a synchronisation.
struct RelayCopy {
  std::int64_t bytes = 0;
  std::int64_t threads = 1;
};

/// Copies in both directions until the shorter one ends. Each direction's time covers the span in which both ran.
struct DuplexCopy {
  std::int64_t h2d_bytes = 0;  // bytes of one copy; each side repeats its copies
  std::int64_t d2h_bytes = 0;
};

enum class Mechanism : std::uint8_t {
  many,     // a loop of asynchronous copies
  batched,  // cudaMemcpyBatchAsync, available from CUDA 12.8
  gather,   // H2D: one copy, then a kernel scatters; D2H: a kernel gathers into a GPU buffer, then one copy
  kernel,   // SMs read and write host memory directly
};
enum class Order : std::uint8_t { sequential, random };

/// `blocks` blocks of a pinned pool, copied to or from a pool on the GPU.
struct ScatteredCopy {
  Direction direction = Direction::h2d;
  Mechanism mechanism = Mechanism::many;
  std::int64_t block_bytes = 0;
  std::int64_t blocks = 0;
  Order order = Order::random;
  std::int64_t ctas = 0;        // thread blocks of `kernel`; 0 for the others
  std::int64_t pool_bytes = 0;  // size of the host pool with the blocks
};

/// All GPUs of the machine copy at once. The time is that of one GPU's copy, averaged over GPUs.
struct AllGpusCopy {
  Traffic traffic = Traffic::h2d;
  std::int64_t bytes = 0;
  std::int64_t gpus = 0;
  std::int64_t numa_node = -1;  // of the host memory; -1: each GPU's own node
};

/// A copy from one GPU to another, directly, or through the host without peer access.
struct PeerCopy {
  std::int64_t from = 0;
  std::int64_t to = 1;
  bool duplex = false;  // the other direction is busy too
  std::int64_t bytes = 0;
};

/// y[m][n] = x[m][k] w[n][k] by cuBLASLt, with its first heuristic choice. `best_of` > 1 tries that many choices and
/// keeps the fastest, unlike engines.
struct Gemm {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Number number = Number::bf16;
  std::int64_t best_of = 1;
};

struct Heads {
  std::int64_t query = 32;
  std::int64_t kv = 8;
  std::int64_t size = 128;
};

/// One new token after `context` tokens in each sequence; KV in pages of 16 tokens.
struct DecodeAttention {
  Heads heads{};
  std::int64_t batch = 0;
  std::int64_t context = 0;
  /// The longest sequence has `skew` times the mean; the others share the rest evenly. 1: all equal.
  double skew = 1.0;
  Number number = Number::bf16;  // of queries, keys and values: bf16, or fp16 without bf16
};

/// `new_tokens` queries after `context` tokens in each sequence.
struct PrefillAttention {
  Heads heads{};
  std::int64_t batch = 1;
  std::int64_t new_tokens = 0;
  std::int64_t context = 0;
  Number number = Number::bf16;  // as in DecodeAttention
};

/// A prefill chunk and decodes in one call.
struct MixedAttention {
  Heads heads{};
  std::int64_t chunk = 0;
  std::int64_t chunk_context = 0;
  std::int64_t decodes = 0;
  std::int64_t decode_context = 0;
  Number number = Number::bf16;  // as in DecodeAttention
};

/// The computation beside copies.
using Compute = std::variant<Gemm, DecodeAttention>;

/// Compute and copies, each alone and both together. Dividing the times gives the slowdown of either.
struct Interference {
  Compute compute{};
  Traffic traffic = Traffic::h2d;
  bool by_kernel = false;  // SMs copy, not DMA engines
  std::int64_t copy_bytes = 0;
};

/// The same work for `seconds` without a pause, in timings of `interval` seconds. Clock and power are read in each.
struct Sustained {
  Compute compute{};
  double seconds = 20.0;
  double interval = 0.1;
};

enum class LaunchKind : std::uint8_t {
  kernel,       // consecutive empty kernels on a stream
  graph,        // a graph of `nodes` empty kernels
  synchronise,  // CPU: record an event and wait for it on an empty stream
  host_gap,     // from the end of a graph to the start of the next; the CPU waits, then launches
};
struct Launch {
  LaunchKind kind = LaunchKind::kernel;
  std::int64_t nodes = 1;
};

enum class ElementwiseKind : std::uint8_t { rms_norm, silu_mul, rope, copy };
/// A kernel that only moves data, over rows of `width` 2-byte numbers.
struct Elementwise {
  ElementwiseKind kind = ElementwiseKind::rms_norm;
  std::int64_t tokens = 0;
  std::int64_t width = 0;
};

enum class StreamKind : std::uint8_t { triad, read };
/// Host DRAM bandwidth.
struct HostStream {
  StreamKind kind = StreamKind::triad;
  std::int64_t threads = 1;
  std::int64_t numa_node = -1;     // of the memory; -1: the threads' node
  bool pinned = false;             // page-locked by CUDA
  Traffic copies = Traffic::none;  // concurrent copies, one after another in each direction
  std::int64_t bytes = 0;       // read and written in one pass, which is a call: three arrays for triad, one for read
  std::int64_t copy_bytes = 0;  // of one copy from or to pinned memory; 0 without copies
};

/// Decode attention on the CPU over a KV cache in host memory.
struct HostAttention {
  Number number = Number::bf16;  // of the cache; arithmetic is fp32
  std::int64_t threads = 1;
  Heads heads{};
  std::int64_t batch = 0;
  std::int64_t context = 0;
};

/// y[rows][outputs] = x[rows][inputs] W in fp32 on the CPU, by Eigen, where W is each of `experts` matrices in turn.
/// Engines compute with 16-bit or smaller weights, and with AMX or bf16 instructions where the CPU has them: the rate
/// of such a kernel is higher. Few rows are bound by reading W, of which 16-bit weights have half the bytes.
struct HostGemm {
  std::int64_t rows = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int64_t experts = 1;
  std::int64_t threads = 1;  // of one socket
};

using Point = std::variant<ContiguousCopy, RelayCopy, DuplexCopy, ScatteredCopy, AllGpusCopy, PeerCopy, Gemm,
                           DecodeAttention, PrefillAttention, MixedAttention, Interference, Sustained, Launch,
                           Elementwise, HostStream, HostAttention, HostGemm>;

}  // namespace spillway::calibrate
