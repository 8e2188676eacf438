#include "cuda_calibrate/measure/section_points.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "cuda_calibrate/measure/cost.hpp"

namespace spillway::calibrate {
namespace {

constexpr std::int64_t kKib = 1024;
constexpr std::int64_t kMib = 1024 * kKib;
constexpr std::int64_t kGib = 1024 * kMib;

using Points = std::vector<Point>;
using Counts = std::vector<std::int64_t>;

/// low, low * factor, ..., up to high.
Counts geometric(std::int64_t low, std::int64_t high, std::int64_t factor) {
  Counts values;
  for (std::int64_t value = low; value <= high; value *= factor) values.push_back(value);
  return values;
}

/// The values in ascending order, without repeats.
Counts distinct(Counts values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

const std::array<Heads, 4> kHeads{{{32, 8, 128}, {64, 8, 128}, {8, 1, 128}, {32, 32, 128}}};
constexpr std::array<Direction, 2> kDirections{Direction::h2d, Direction::d2h};

std::int64_t kv_bytes(const Heads& heads, std::int64_t tokens) { return 4 * heads.kv * heads.size * tokens; }

/// The points of each section for one machine and level.
class SectionPoints {
 public:
  SectionPoints(const PlanOptions& options, const MachineFacts& facts, const GpuFacts* gpu)
      : options_(options), facts_(facts), gpu_(gpu) {}

  [[nodiscard]] Points contiguous() const {
    std::vector<HostMemory> memories{HostMemory::pinned, HostMemory::pageable};
    if (full()) memories.push_back(HostMemory::registered);
    Points points;
    for (const Direction direction : kDirections) {
      for (const HostMemory memory : memories) {
        for (const std::int64_t bytes : geometric(4 * kKib, kGib, full() ? 2 : 4)) {
          if (fits(bytes, bytes)) points.push_back(ContiguousCopy{direction, memory, bytes});
        }
      }
    }
    for (const std::int64_t bytes : geometric(64 * kKib, kGib, full() ? 2 : 4)) {
      if (fits(bytes, 2 * bytes)) points.push_back(RelayCopy{bytes, threads().back()});
    }
    return points;
  }

  [[nodiscard]] Points duplex() const {
    const Counts sizes = full() ? geometric(64 * kKib, kGib, 4) : Counts{64 * kKib, kMib, 16 * kMib, 256 * kMib};
    Points points;
    for (const std::int64_t bytes : sizes) {
      if (!fits(2 * bytes, 2 * bytes)) continue;
      points.push_back(DuplexCopy{bytes, bytes});
      if (quick()) continue;
      points.push_back(DuplexCopy{bytes / 4, bytes});
      points.push_back(DuplexCopy{bytes, bytes / 4});
    }
    return points;
  }

  [[nodiscard]] Points scattered() const {
    Points points;
    const std::array<Mechanism, 4> mechanisms{Mechanism::many, Mechanism::batched, Mechanism::gather,
                                              Mechanism::kernel};
    for (const Direction direction : kDirections) {
      for (const Mechanism mechanism : mechanisms) {
        const std::int64_t ctas = mechanism == Mechanism::kernel ? kUsualCtas : 0;
        for (const std::int64_t kib : quick() ? Counts{16, 128, 1024} : Counts{4, 16, 28, 32, 64, 256, 1024, 2048}) {
          for (const std::int64_t blocks : full() ? Counts{16, 256, 4096} : Counts{256}) {
            add_scattered(points, {direction, mechanism, kib * kKib, blocks, Order::random, ctas, 0});
          }
          if (full()) add_scattered(points, {direction, mechanism, kib * kKib, 256, Order::sequential, ctas, 0});
        }
      }
      for (const std::int64_t ctas : full() ? Counts{1, 2, 4, 16, 32} : Counts{}) {
        for (const std::int64_t kib : {4, 64, 1024}) {
          add_scattered(points, {direction, Mechanism::kernel, kib * kKib, 256, Order::random, ctas, 0});
        }
      }
    }
    return points;
  }

  [[nodiscard]] Points pools() const {
    Points points;
    for (const std::int64_t gib : full() ? Counts{1, 4, 16, 64} : Counts{}) {
      const ScatteredCopy point{Direction::h2d, Mechanism::many, 2 * kMib, 128, Order::random, 0, gib * kGib};
      // The section is about pools of this size, so they may use half of the free memory.
      if (gib * kGib <= facts_.host.available_bytes / 2 && fits(256 * kMib, 0)) points.push_back(point);
    }
    return points;
  }

  [[nodiscard]] Points all_gpus() const {
    const auto gpus = static_cast<std::int64_t>(facts_.gpus.size());
    Counts nodes{-1};
    if (full() && facts_.host.numa_nodes > 1) {
      for (std::int64_t node = 0; node < facts_.host.numa_nodes; ++node) nodes.push_back(node);
    }
    constexpr std::int64_t kBytes = 256 * kMib;
    Points points;
    for (const std::int64_t node : quick() || !fits(kBytes, gpus * kBytes) ? Counts{} : nodes) {
      for (const Traffic traffic : {Traffic::h2d, Traffic::d2h, Traffic::both}) {
        points.push_back(AllGpusCopy{traffic, kBytes, gpus, node});
      }
    }
    return points;
  }

  [[nodiscard]] Points peers() const {
    Points points;
    const auto gpus = static_cast<std::int64_t>(facts_.gpus.size());
    for (std::int64_t from = 0; from < gpus; ++from) {
      for (std::int64_t to = from + 1; to < gpus; ++to) {
        const bool own = from == options_.gpu || to == options_.gpu;
        // Pairs with this GPU: one pair in a quick run. A full run measures every pair.
        if (!full() && (!own || (quick() && !points.empty() && std::get<PeerCopy>(points.front()).to != to))) continue;
        for (const bool both_ways : {false, true}) {
          for (const std::int64_t bytes : {64 * kKib, kMib, 16 * kMib, 256 * kMib, kGib}) {
            if (fits(2 * bytes, 0)) points.push_back(PeerCopy{from, to, both_ways, bytes});
          }
        }
      }
    }
    return points;
  }

  [[nodiscard]] Points interference() const {
    std::vector<Compute> computes{Gemm{4096, 4096, 4096, number()}, Gemm{16, 8192, 8192, number()},
                                  DecodeAttention{kHeads[0], 32, 4096, 1.0, number()}};
    if (full()) computes.emplace_back(Gemm{1, 8192, 8192, number()});
    std::vector<Traffic> traffics{Traffic::h2d, Traffic::d2h};
    if (!quick()) traffics.push_back(Traffic::both);
    constexpr std::int64_t kBytes = 16 * kMib;
    Points points;
    if (!fits(kGib, 4 * kBytes)) return points;
    for (const Compute& compute : computes) {
      for (const Traffic traffic : traffics) {
        points.push_back(Interference{compute, traffic, false, kBytes});
        if (full()) points.push_back(Interference{compute, traffic, true, kBytes});
      }
    }
    return points;
  }

  [[nodiscard]] Points gemms() const {
    Points points;
    std::set<std::array<std::int64_t, 3>> seen;
    const auto add = [&](const WeightShape& shape, const Counts& tokens, Number of, std::int64_t best_of) {
      for (const std::int64_t m : tokens) {
        if (!fits(2 * (shape.n * shape.k + m * (shape.n + shape.k)), 0)) continue;
        // A model's shape may also be a designed shape.
        if (of == number() && best_of == 1 && !seen.insert({m, shape.n, shape.k}).second) continue;
        points.push_back(Gemm{m, shape.n, shape.k, of, best_of});
      }
    };
    const Counts few{1, 16, 128, 512, 2048, 8192};
    const Counts more{1, 4, 16, 32, 64, 128, 256, 512, 2048, 8192};
    const Counts all = geometric(1, 8192, 2);
    const Counts& tokens = quick() ? few : full() ? all : more;
    const std::int64_t pairs = quick() ? 8 : full() ? 32 : 16;
    // Weights take at most 1 GiB.
    const auto shapes = designed_shapes(full() ? pairs + 8 : pairs, std::min(kGib, gpu_memory() / 8) / 2);
    const auto first = [&](std::int64_t count) {
      return std::vector<WeightShape>(shapes.begin(),
                                      shapes.begin() + std::min(count, static_cast<std::int64_t>(shapes.size())));
    };
    for (const WeightShape& shape : options_.model_shapes) add(shape, tokens, number(), 1);
    for (const WeightShape& shape : first(pairs)) add(shape, tokens, number(), 1);
    if (!full()) return points;
    for (const WeightShape& shape : first(8)) add(shape, few, number(), 8);
    if (number() == Number::bf16) {
      // Use other shapes than for bf16: the fit for two-byte numbers uses the rows of both formats.
      for (std::size_t i = static_cast<std::size_t>(pairs); i < shapes.size(); ++i)
        add(shapes[i], few, Number::fp16, 1);
    }
    if (gpu_->fp8) {
      for (const WeightShape& shape : first(16)) add(shape, few, Number::fp8, 1);
    }
    return points;
  }

  [[nodiscard]] Points decodes() const {
    Points points;
    const auto add = [&](const Heads& heads, std::int64_t batch, std::int64_t context) {
      if (!fits(kv_bytes(heads, batch * context), 0)) return;
      points.push_back(DecodeAttention{heads, batch, context, 1.0, number()});
    };
    for (const Heads& heads : kHeads) {
      if (quick()) {
        for (const auto& [batch, context] :
             {std::pair(1, 1024), {1, 32768}, {8, 1024}, {8, 8192}, {64, 1024}, {256, 128}}) {
          add(heads, batch, context);
        }
        continue;
      }
      for (const std::int64_t batch : full() ? Counts{1, 4, 16, 64, 256} : Counts{1, 8, 64, 256}) {
        for (const std::int64_t context : full() ? Counts{128, 512, 2048, 8192, 32768} : Counts{128, 1024, 8192}) {
          add(heads, batch, context);
        }
      }
    }
    return points;
  }

  [[nodiscard]] Points prefills() const {
    Points points;
    const auto add = [&](const Heads& heads, std::int64_t batch, std::int64_t chunk, std::int64_t context) {
      if (!fits(kv_bytes(heads, batch * (chunk + context)), 0)) return;
      points.push_back(PrefillAttention{heads, batch, chunk, context, number()});
    };
    for (const Heads& heads : kHeads) {
      if (quick()) {
        // Six points for each of four heads: the fit's error is tested without one of the heads, and the fit needs 16
        // rows.
        for (const auto& [chunk, context] :
             {std::pair(128, 0), {128, 2048}, {512, 2048}, {512, 16384}, {2048, 0}, {2048, 16384}}) {
          add(heads, 1, chunk, context);
        }
        continue;
      }
      for (const std::int64_t chunk : full() ? Counts{128, 512, 2048, 8192} : Counts{128, 512, 2048}) {
        for (const std::int64_t context : {0, 2048, 16384}) add(heads, 1, chunk, context);
      }
    }
    for (const std::int64_t batch : full() ? Counts{4, 16} : Counts{}) {
      for (const std::int64_t chunk : {128, 512}) {
        for (const std::int64_t context : {0, 2048}) add(kHeads[0], batch, chunk, context);
      }
    }
    return points;
  }

  [[nodiscard]] Points mixed() const {
    Points points;
    if (quick()) return points;
    for (const std::int64_t chunk : {512, 2048}) {
      for (const std::int64_t before : {0, 8192}) {
        for (const std::int64_t decodes : full() ? Counts{8, 64, 256} : Counts{64}) {
          for (const std::int64_t context : {1024, 8192}) {
            if (!fits(kv_bytes(kHeads[0], chunk + before + decodes * context), 0)) continue;
            points.push_back(MixedAttention{kHeads[0], chunk, before, decodes, context, number()});
          }
        }
      }
    }
    for (const Heads& heads : {kHeads[0], kHeads[3]}) {
      for (const std::int64_t batch : full() ? Counts{8, 64} : Counts{64}) {
        for (const std::int64_t context : {1024, 8192}) {
          for (const double skew : {2.0, 4.0}) {
            if (!fits(kv_bytes(heads, batch * context), 0)) continue;
            points.push_back(DecodeAttention{heads, batch, context, skew, number()});
          }
        }
      }
    }
    return points;
  }

  [[nodiscard]] Points elementwise() const {
    std::vector<ElementwiseKind> kinds{ElementwiseKind::rms_norm, ElementwiseKind::silu_mul, ElementwiseKind::copy};
    if (!quick()) kinds.push_back(ElementwiseKind::rope);
    Points points;
    for (const ElementwiseKind kind : kinds) {
      for (const std::int64_t tokens : quick() ? Counts{256, 4096} : Counts{16, 256, 4096}) {
        for (const std::int64_t width : full() ? Counts{4096, 8192} : Counts{4096}) {
          points.push_back(Elementwise{kind, tokens, width});
        }
      }
    }
    return points;
  }

  /// Work that is bound by arithmetic, and work that is bound by memory: 8 GiB of KV where they fit.
  [[nodiscard]] Points sustained() const {
    constexpr std::int64_t kSide = 8192;
    constexpr std::int64_t kContext = 4096;
    const double seconds = quick() ? 2.0 : 20.0;
    std::int64_t batch = 512;
    while (batch > 1 && !fits(kv_bytes(kHeads[0], batch * kContext), 0)) batch /= 2;
    Points points;
    if (fits(6 * kSide * kSide, 0)) {
      points.push_back(Sustained{Gemm{kSide, kSide, kSide, number(), 1}, seconds});
    }
    if (fits(kv_bytes(kHeads[0], batch * kContext), 0)) {
      points.push_back(Sustained{DecodeAttention{kHeads[0], batch, kContext, 1.0, number()}, seconds});
    }
    return points;
  }

  [[nodiscard]] Points host_streams() const {
    // More than the caches can store, and a multiple of three arrays; at most a quarter of the host's free memory.
    const std::int64_t wanted = std::max(256 * kMib, 2 * facts_.host.last_level_cache_bytes);
    const std::int64_t bytes = std::min(wanted, facts_.host.available_bytes / 12) / kMib * 3 * kMib;
    Points points;
    if (bytes == 0) return points;
    constexpr std::int64_t kCopy = 64 * kMib;
    const auto add = [&](StreamKind kind, std::int64_t threads, std::int64_t node, bool pinned, Traffic copies) {
      const std::int64_t copied = copies == Traffic::none ? 0 : kCopy;
      points.push_back(HostStream{kind, threads, node, pinned, copies, bytes, copied});
    };
    const std::int64_t most = threads().back();
    for (const std::int64_t count : quick() ? few_threads() : threads()) {
      add(StreamKind::read, count, -1, false, Traffic::none);
      if (!quick() || count == most) add(StreamKind::triad, count, -1, false, Traffic::none);
    }
    if (gpu_ != nullptr) {
      add(StreamKind::read, most, -1, false, Traffic::h2d);
      add(StreamKind::read, most, -1, false, Traffic::d2h);
    }
    if (quick()) return points;
    if (facts_.host.numa_nodes > 1) {
      for (std::int64_t node = 0; node < std::min<std::int64_t>(facts_.host.numa_nodes, 4); ++node) {
        add(StreamKind::read, most, node, false, Traffic::none);
      }
    }
    if (gpu_ == nullptr) return points;
    add(StreamKind::read, most, -1, true, Traffic::none);
    add(StreamKind::triad, most, -1, true, Traffic::none);
    add(StreamKind::read, most, -1, false, Traffic::both);
    for (const std::int64_t count : full() ? few_threads() : Counts{}) {
      for (const Traffic traffic : {Traffic::h2d, Traffic::d2h, Traffic::both}) {
        add(StreamKind::triad, count, -1, false, traffic);
      }
    }
    return points;
  }

  [[nodiscard]] Points host_attention() const {
    Points points;
    const auto add = [&](Number of, std::int64_t count, std::int64_t batch, std::int64_t context) {
      const std::int64_t bytes = kv_bytes(kHeads[0], batch * context) * (of == Number::fp32 ? 2 : 1);
      if (bytes > facts_.host.available_bytes / 4) return;
      points.push_back(HostAttention{of, count, kHeads[0], batch, context});
    };
    const std::int64_t most = threads().back();
    const Counts counts = distinct(quick() ? Counts{1, most} : Counts{1, (most + 3) / 4, (most + 1) / 2, most});
    std::vector<std::pair<std::int64_t, std::int64_t>> shapes{{1, 8192}, {8, 1024}, {32, 4096}};
    if (quick()) shapes = {{1, 4096}, {4, 1024}, {16, 4096}};
    // A fit needs five rows on any CPU.
    if (counts.size() == 1) shapes.insert(shapes.end(), {{2, 1024}, {8, 4096}});
    for (const std::int64_t count : counts) {
      for (const auto& [batch, context] : shapes) add(Number::bf16, count, batch, context);
    }
    for (const Number of : full() ? std::vector{Number::fp16, Number::fp32} : std::vector<Number>{}) {
      for (const auto& [batch, context] : shapes) add(of, most, batch, context);
      if (most > 1) add(of, 1, 8, 1024);
    }
    return points;
  }

  [[nodiscard]] Points host_gemms() const {
    // An expert's inputs and outputs in Qwen3-30B-A3B, Mixtral-8x7B and DeepSeek-V3.
    const std::array<WeightShape, 3> shapes{{{768, 2048}, {14336, 4096}, {2048, 7168}}};
    constexpr double kMostSeconds = 0.7;  // of a call by the rule of cost.hpp: a point takes at least seven calls
    const HostFacts& host = facts_.host;
    const std::int64_t cores = std::min(std::max<std::int64_t>(host.physical_cores, 1), host.threads);
    const std::int64_t count = std::max<std::int64_t>(cores / std::max<std::int64_t>(host.sockets, 1), 1);
    const Speeds speeds = speeds_of(host, nullptr);
    Points points;
    for (std::size_t i = 0; i < (quick() ? 1U : full() ? 3U : 2U); ++i) {
      const auto& [outputs, inputs] = shapes.at(i);
      const std::int64_t matrix = 4 * inputs * outputs;
      // More than four times the caches, so that few rows read their weights from memory.
      const std::int64_t experts = 4 * host.last_level_cache_bytes / matrix + 1;
      for (const std::int64_t rows : quick() ? Counts{1, 64, 512, 4096} : Counts{1, 4, 16, 64, 512, 4096}) {
        const HostGemm point{rows, inputs, outputs, experts, count};
        const std::int64_t bytes = experts * matrix + 4 * rows * (inputs + outputs);
        if (bytes > host.available_bytes / 4 || cost_of(point, speeds).call_seconds > kMostSeconds) continue;
        points.emplace_back(point);
      }
    }
    return points;
  }

 private:
  static constexpr std::int64_t kUsualCtas = 8;

  [[nodiscard]] bool quick() const { return options_.level == Level::quick; }
  [[nodiscard]] bool full() const { return options_.level == Level::full; }
  [[nodiscard]] Number number() const { return gpu_->bf16 ? Number::bf16 : Number::fp16; }
  [[nodiscard]] std::int64_t gpu_memory() const { return gpu_->memory_bytes; }
  [[nodiscard]] bool fits(std::int64_t gpu_bytes, std::int64_t host_bytes) const {
    return gpu_bytes <= gpu_memory() / 2 && host_bytes <= facts_.host.available_bytes / 4;
  }

  /// Moves at most 1 GiB, from a pool of four times the moved bytes, between 256 MiB and 1 GiB.
  void add_scattered(Points& points, ScatteredCopy point) const {
    const std::int64_t moved = point.block_bytes * point.blocks;
    point.pool_bytes = std::clamp(4 * moved, 256 * kMib, kGib);
    if (moved <= kGib && fits(2 * moved, point.pool_bytes)) points.emplace_back(point);
  }

  /// Powers of two, all cores, and all hardware threads if there are more threads than cores; at most nine counts.
  [[nodiscard]] Counts threads() const {
    const std::int64_t all = std::max<std::int64_t>(facts_.host.threads, 1);
    const std::int64_t cores = std::clamp<std::int64_t>(facts_.host.physical_cores, 1, all);
    Counts counts = geometric(1, std::min<std::int64_t>(cores, 64), 2);
    counts.push_back(cores);
    counts.push_back(all);
    return distinct(std::move(counts));
  }
  [[nodiscard]] Counts few_threads() const {
    const std::int64_t most = threads().back();
    return distinct({1, (most + 1) / 2, most});
  }

  const PlanOptions& options_;
  const MachineFacts& facts_;
  const GpuFacts* gpu_;
};

Points launches() {
  return {Launch{LaunchKind::kernel, 1},   Launch{LaunchKind::graph, 1},       Launch{LaunchKind::graph, 100},
          Launch{LaunchKind::graph, 1000}, Launch{LaunchKind::synchronise, 1}, Launch{LaunchKind::host_gap, 1}};
}

template <Points (SectionPoints::*kPoints)() const>
Points points_of(const PlanOptions& options, const MachineFacts& facts, const GpuFacts* gpu) {
  return (SectionPoints(options, facts, gpu).*kPoints)();
}

}  // namespace

const std::array<SectionDefinition, 17>& section_definitions() {
  static const std::array<SectionDefinition, 17> kDefinitions{{
      {"copy.contig", "Contiguous copies by size, direction and host memory", "launch and bandwidth of each direction",
       true, 1, points_of<&SectionPoints::contiguous>},
      {"copy.duplex", "Both directions at once, by size and ratio",
       "bandwidth of one direction while the other one is busy", true, 1, points_of<&SectionPoints::duplex>},
      {"copy.scatter", "Blocks by mechanism, size, count and order", "KV blocks that lie scattered", true, 1,
       points_of<&SectionPoints::scattered>},
      {"copy.pool", "Blocks out of pinned pools of 1 to 64 GiB", "what address translation costs", true, 1,
       points_of<&SectionPoints::pools>},
      {"copy.multi", "All GPUs copy at once", "limits of the host, and of remote memory", true, 2,
       points_of<&SectionPoints::all_gpus>},
      {"copy.peer", "From one GPU to another", "tensor and pipeline parallelism, disaggregation", true, 2,
       points_of<&SectionPoints::peers>},
      {"interference", "Compute beside copies, each alone and both", "how far copies slow layers down", true, 1,
       points_of<&SectionPoints::interference>},
      {"gemm", "Matrix multiplications of designed shapes", "time of linear layers", true, 1,
       points_of<&SectionPoints::gemms>},
      {"attention.decode", "Paged decode attention by heads, batch and context", "time of decoding", true, 1,
       points_of<&SectionPoints::decodes>},
      {"attention.prefill", "Attention of prompt chunks behind a prefix", "time of prompts", true, 1,
       points_of<&SectionPoints::prefills>},
      {"attention.mixed", "Chunk and decodes in one call; skewed lengths", "batches that are not alike", true, 1,
       points_of<&SectionPoints::mixed>},
      {"launch", "Kernels, graphs, synchronisation", "fixed cost of an iteration", true, 1,
       [](const PlanOptions&, const MachineFacts&, const GpuFacts*) { return launches(); }},
      {"elementwise", "Norms, activations, rotations, copies on the GPU", "the rest of a layer", true, 1,
       points_of<&SectionPoints::elementwise>},
      {"sustained", "GEMM and attention for seconds, with clock and power", "the clock under load", true, 1,
       points_of<&SectionPoints::sustained>},
      {"host.stream", "Bandwidth of host memory by threads, beside copies", "attention on the CPU, shared limits",
       false, 0, points_of<&SectionPoints::host_streams>},
      {"host.attention", "Decode attention on the CPU by threads and size", "attention on the CPU", false, 0,
       points_of<&SectionPoints::host_attention>},
      {"host.gemm", "fp32 products of experts on one socket, by rows", "experts on the CPU", false, 0,
       points_of<&SectionPoints::host_gemms>},
  }};
  return kDefinitions;
}

}  // namespace spillway::calibrate
