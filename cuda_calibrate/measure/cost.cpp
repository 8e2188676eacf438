#include "cuda_calibrate/measure/cost.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace spillway::calibrate {
namespace {

// Approximate shares of the figures above that engines and libraries reach, and the cost of starting work.
constexpr double kReachedFlops = 0.6;
constexpr double kReachedAttentionFlops = 0.2;
constexpr double kReachedMemory = 0.6;
constexpr double kLaunch = 10e-6;
constexpr double kPerCopy = 4e-6;
constexpr double kDuplexShare = 0.6;
constexpr double kPageableShare = 0.4;
constexpr double kCtaBytesPerSecond = 2e9;
// Rates of page-locking and filling host memory, and of filling GPU memory.
constexpr double kLocking = 3e9;
constexpr double kFilling = 200e9;
constexpr double kFillingByThread = 0.8e9;  // random numbers into untouched host memory
constexpr double kFixedPreparation = 3e-3;

double real(std::int64_t count) { return static_cast<double>(count); }

class Rules {
 public:
  explicit Rules(const Speeds& speeds) : speeds_(speeds) {}

  Cost operator()(const ContiguousCopy& point) const {
    const double share = point.memory == HostMemory::pageable ? kPageableShare : 1.0;
    // Small copies use many buffers, so that the next copy misses the cache.
    const double buffers = std::max(real(point.bytes), 4.0 * speeds_.l2_bytes);
    return {kLaunch + real(point.bytes) / (share * speeds_.link), 2.0, prepared(buffers, buffers)};
  }
  Cost operator()(const RelayCopy& point) const {
    const double by_cpu = 3.0 * real(point.bytes) / host(point.threads);  // read, fetched and written
    const double buffers = real(point.bytes) + beyond_caches(real(point.bytes));
    return {kLaunch + by_cpu + real(point.bytes) / speeds_.link, 1.0, prepared(real(point.bytes), buffers)};
  }
  Cost operator()(const DuplexCopy& point) const {
    const double bytes = real(std::max(point.h2d_bytes, point.d2h_bytes));
    const double both = real(point.h2d_bytes + point.d2h_bytes);
    return {kLaunch + bytes / (kDuplexShare * speeds_.link), 1.5, prepared(both, both)};
  }
  Cost operator()(const ScatteredCopy& point) const {
    const double bytes = real(point.block_bytes * point.blocks);
    double call = kLaunch + bytes / speeds_.link;
    if (point.mechanism == Mechanism::many) call = std::max(call, real(point.blocks) * kPerCopy);
    if (point.mechanism == Mechanism::kernel) {
      call = std::max(call, bytes / (real(point.ctas) * kCtaBytesPerSecond));
    }
    return {call, 1.0, prepared(2.0 * bytes, real(point.pool_bytes))};
  }
  Cost operator()(const AllGpusCopy& point) const {
    const double all = real(point.bytes * point.gpus);
    return {kLaunch + real(point.bytes) / (0.5 * speeds_.link), 1.0, prepared(all, all)};
  }
  Cost operator()(const PeerCopy& point) const {
    return {kLaunch + real(point.bytes) / speeds_.link, 1.0, prepared(2.0 * real(point.bytes), 0.0)};
  }
  Cost operator()(const Gemm& point) const {
    const double size = point.number == Number::fp8 ? 1.0 : 2.0;
    const double flops = 2.0 * real(point.m) * real(point.n) * real(point.k);
    const double bytes = size * (real(point.n) * real(point.k) + real(point.m) * (real(point.n) + real(point.k)));
    const double call =
        kLaunch + std::max(flops * size / (2.0 * kReachedFlops * speeds_.flops), bytes / reached_memory());
    // Each additional algorithm runs once.
    return {call, 1.0, prepared(std::max(bytes, 4.0 * speeds_.l2_bytes), 0.0) + real(point.best_of - 1) * 4.0 * call};
  }
  Cost operator()(const DecodeAttention& point) const {
    const double bytes = 4.0 * real(point.batch) * real(point.context) * real(point.heads.kv * point.heads.size);
    return {kLaunch + bytes / reached_memory(), 1.0,
            speeds_.plan_seconds + prepared(std::max(bytes, 4.0 * speeds_.l2_bytes), 0.0)};
  }
  Cost operator()(const PrefillAttention& point) const {
    const double fresh = real(point.new_tokens);
    const double pairs = real(point.batch) * fresh * (real(point.context) + 0.5 * fresh);
    const double call = kLaunch + 4.0 * pairs * real(point.heads.query * point.heads.size) / attention_flops();
    return {call, 1.0, prepared(4.0 * speeds_.l2_bytes, 0.0)};
  }
  Cost operator()(const MixedAttention& point) const {
    Cost chunk = (*this)(PrefillAttention{point.heads, 1, point.chunk, point.chunk_context, point.number});
    const Cost decodes = (*this)(DecodeAttention{point.heads, point.decodes, point.decode_context, 1.0, point.number});
    chunk.call_seconds += decodes.call_seconds;
    chunk.prepare_seconds += decodes.prepare_seconds - speeds_.plan_seconds;  // by the tool's own kernel
    return chunk;
  }
  Cost operator()(const Interference& point) const {
    const Cost compute = std::visit(*this, point.compute);
    const double share = point.traffic == Traffic::both ? kDuplexShare : 1.0;
    const double copy = kLaunch + real(point.copy_bytes) / (share * speeds_.link);
    // Each operation alone, then both until the slower one ends.
    return {std::max(compute.call_seconds, copy), 4.0,
            compute.prepare_seconds + prepared(2.0 * real(point.copy_bytes), 2.0 * real(point.copy_bytes))};
  }
  Cost operator()(const Sustained& point) const {
    Cost cost = std::visit(*this, point.compute);
    cost.run_seconds = point.seconds;
    return cost;
  }
  Cost operator()(const Launch& point) const { return {kLaunch + 1.5e-6 * real(point.nodes), 1.0, kFixedPreparation}; }
  Cost operator()(const Elementwise& point) const {
    const double bytes = 6.0 * real(point.tokens * point.width);
    return {kLaunch + bytes / reached_memory(), 1.0, prepared(std::max(bytes, 4.0 * speeds_.l2_bytes), 0.0)};
  }
  Cost operator()(const HostStream& point) const {
    const double pass = real(point.bytes) / host(point.threads);
    const double copy = point.copy_bytes > 0 ? real(point.copy_bytes) / speeds_.link : 0.0;
    return {std::max(pass, copy), 1.0,
            prepared(real(point.copy_bytes), 2.0 * real(point.copy_bytes)) +
                filled(beyond_caches(real(point.bytes)), point.threads) +
                (point.pinned ? beyond_caches(real(point.bytes)) / kLocking : 0.0)};
  }
  Cost operator()(const HostAttention& point) const {
    const double size = point.number == Number::fp32 ? 4.0 : 2.0;
    const double bytes = 2.0 * size * real(point.batch * point.context) * real(point.heads.kv * point.heads.size);
    return {kLaunch + bytes / (0.5 * host(point.threads)), 1.0,
            kFixedPreparation + filled(beyond_caches(bytes), point.threads)};
  }
  Cost operator()(const HostGemm& point) const {
    const double matrix = real(point.inputs) * real(point.outputs);
    const double call = std::max(2.0 * real(point.rows) * matrix / (real(point.threads) * speeds_.host_thread_flops),
                                 4.0 * matrix / host(point.threads));
    const double vectors = real(point.rows) * real(point.inputs + point.outputs);
    return {kLaunch + call, 1.0, prepared(0.0, 4.0 * (real(point.experts) * matrix + vectors))};
  }

 private:
  [[nodiscard]] double reached_memory() const { return kReachedMemory * speeds_.memory; }
  [[nodiscard]] double attention_flops() const { return kReachedAttentionFlops * speeds_.flops; }
  [[nodiscard]] double host(std::int64_t threads) const {
    return std::min(real(threads) * speeds_.host_thread, speeds_.host);
  }
  /// The buffers of a point that uses `bytes` of host memory in a call.
  [[nodiscard]] double beyond_caches(double bytes) const { return bytes + 4.0 * speeds_.last_level_bytes; }
  static double filled(double bytes, std::int64_t threads) { return bytes / (kFillingByThread * real(threads)); }
  static double prepared(double gpu_bytes, double host_bytes) {
    return kFixedPreparation + gpu_bytes / kFilling + host_bytes / kLocking;
  }

  const Speeds& speeds_;
};

/// The figure of the newest generation that is not newer than the GPU.
template <std::size_t N>
double by_capability(const std::array<std::pair<std::int64_t, double>, N>& table, std::int64_t capability) {
  double value = table.front().second;
  for (const auto& [from, figure] : table) {
    if (capability >= from) value = figure;
  }
  return value;
}

double link_of(const GpuFacts& gpu) {
  constexpr double kLane = 0.8e9;  // PCIe 3
  constexpr double kNoFigure = 12e9;
  constexpr double kChipToChip = 300e9;
  for (const std::string_view name : {"GH200", "GB200"}) {
    if (gpu.name.find(name) != std::string::npos) return kChipToChip;
  }
  if (!gpu.pcie_generation || !gpu.pcie_width) return kNoFigure;
  return kLane * std::exp2(real(*gpu.pcie_generation) - 3.0) * real(*gpu.pcie_width);
}

}  // namespace

Speeds speeds_of(const HostFacts& host, const GpuFacts* gpu) {
  constexpr std::array<std::pair<std::int64_t, double>, 5> kFlopsPerClock{
      {{75, 1024.0}, {80, 2048.0}, {86, 1024.0}, {89, 1024.0}, {90, 4096.0}}};
  constexpr std::array<std::pair<std::int64_t, double>, 5> kMemory{
      {{75, 300e9}, {80, 1800e9}, {86, 600e9}, {89, 850e9}, {90, 3200e9}}};
  constexpr double kThread = 8e9;
  constexpr double kNode = 80e9;
  constexpr double kThreadFlops = 30e9;
  constexpr std::int64_t kClockMhz = 1500;
  Speeds speeds;
  speeds.host_thread = kThread;
  speeds.host_thread_flops = kThreadFlops;
  speeds.host = kNode * real(std::max<std::int64_t>(host.numa_nodes, 1));
  speeds.last_level_bytes = real(host.last_level_cache_bytes);
  if (gpu == nullptr) return speeds;
  speeds.flops = real(gpu->sm_count) * real(gpu->max_sm_clock_mhz.value_or(kClockMhz)) * 1e6 *
                 by_capability(kFlopsPerClock, gpu->compute_capability);
  speeds.memory = by_capability(kMemory, gpu->compute_capability);
  speeds.link = link_of(*gpu);
  speeds.l2_bytes = real(gpu->l2_bytes);
  constexpr double kPlan = 0.1;
  if (gpu->compute_capability >= 80) speeds.plan_seconds = kPlan;
  return speeds;
}

Cost cost_of(const Point& point, const Speeds& speeds) { return std::visit(Rules(speeds), point); }

double estimated_seconds(const Cost& cost, const SamplingRule& rule) {
  constexpr std::int64_t kMostCalls = 128;
  constexpr double kBeside = 100e-6;
  if (cost.run_seconds > 0.0) return cost.prepare_seconds + cost.run_seconds;
  const std::int64_t calls = calls_per_timing(cost.call_seconds, kMostCalls, rule);
  const double measured = cost.call_seconds * real(calls);
  const double timing = measured * cost.repeats + kBeside;
  const double warm_up = real(rule.warm_up) * (cost.call_seconds * cost.repeats + kBeside);
  const double timings = std::max(real(rule.least_timings), std::ceil(rule.least_seconds / measured));
  const double uncapped = warm_up + timings * timing;
  const double least = warm_up + real(kFewestTimings) * timing;
  return cost.prepare_seconds + std::min(uncapped, std::max(rule.most_seconds, least));
}

}  // namespace spillway::calibrate
