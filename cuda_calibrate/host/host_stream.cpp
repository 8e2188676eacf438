#include "cuda_calibrate/host/host_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "cuda_calibrate/host/host_facts.hpp"
#include "cuda_calibrate/host/host_memory.hpp"
#include "cuda_calibrate/host/stream_kernels.hpp"
#include "cuda_calibrate/host/thread_team.hpp"

namespace spillway::calibrate {
namespace {

constexpr std::int64_t kWidth = sizeof(double);
constexpr std::int64_t kLine = 64 / kWidth;
constexpr std::int64_t kLeastArray = std::int64_t{64} << 20U;
constexpr double kLeastBesideCopies = 0.05;  // seconds; the minimum of BackgroundCopies

std::int64_t arrays_of(StreamKind kind) { return kind == StreamKind::triad ? 3 : 1; }

std::vector<Cpu> on_node(const std::vector<Cpu>& cpus, std::int64_t node) {
  std::vector<Cpu> kept;
  std::copy_if(cpus.begin(), cpus.end(), std::back_inserter(kept), [&](const Cpu& cpu) { return cpu.node == node; });
  return kept;
}

/// One thread's part of the arrays. Each call uses one window of the part.
struct alignas(64) Share {
  std::int64_t count = 0;   // numbers in one window of one array
  std::int64_t stride = 0;  // distance between windows, in whole cache lines
  std::vector<HostBuffer> arrays;
  double sum = 0.0;  // sum of the numbers read, so that the compiler keeps the reads

  [[nodiscard]] double* window(std::size_t array, std::int64_t index) const {
    return reinterpret_cast<double*>(arrays[array].get()) + index * stride;
  }
};

class HostStreamCase final : public Case {
 public:
  HostStreamCase(const HostStream& point, std::uint64_t seed, const HostHooks& hooks)
      : kind_(point.kind), team_(spread(usable_cpus(), point.threads, point.numa_node)), shares_(team_.size()) {
    const std::int64_t arrays = arrays_of(kind_);
    const std::int64_t numbers = point.bytes / (arrays * kWidth);  // per array and call
    const auto threads = static_cast<std::int64_t>(team_.size());
    if (numbers < threads) {
      throw Unsupported(fmt::format("{} bytes are too few for {} threads", point.bytes, point.threads));
    }
    windows_ = std::max(buffers_beyond_cache(point.bytes, last_level_cache_bytes()),
                        (kLeastArray + numbers * kWidth - 1) / (numbers * kWidth));
    need_memory(windows_ * point.bytes);
    if (point.copies != Traffic::none) copies_ = hooks.copies(point.copies, point.copy_bytes);
    const std::vector<Cpu> home = point.numa_node < 0 ? std::vector<Cpu>{} : on_node(usable_cpus(), point.numa_node);
    team_.run([&](std::size_t thread) {
      const auto i = static_cast<std::int64_t>(thread);
      Share& share = shares_[thread];
      share.count = (i + 1) * numbers / threads - i * numbers / threads;
      share.stride = (share.count + kLine - 1) / kLine * kLine;
      RandomBits random(seed + thread);
      if (!home.empty()) bind_thread(home);
      for (std::int64_t array = 0; array < arrays; ++array) {
        const std::int64_t bytes = share.stride * windows_ * kWidth;
        share.arrays.push_back(point.pinned ? hooks.page_locked(bytes) : ordinary_memory(bytes));
        fill_doubles(share.window(static_cast<std::size_t>(array), 0), share.stride * windows_, random);
      }
      bind_thread({team_.cpu(thread)});
    });
  }

  std::vector<double> sample(std::int64_t calls) override {
    double seconds = 0.0;
    std::int64_t done = 0;
    if (!copies_) {
      seconds = pass(calls);
      return {seconds / static_cast<double>(calls)};
    }
    const auto start = std::chrono::steady_clock::now();
    copies_->start();
    do {
      seconds += pass(calls);
      done += calls;
    } while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < kLeastBesideCopies);
    std::vector<double> all{seconds / static_cast<double>(done)};
    for (const double copy : copies_->stop()) all.push_back(copy);
    return all;
  }

  [[nodiscard]] std::int64_t most_calls() const override { return std::int64_t{1} << 20U; }
  [[nodiscard]] std::string kernel() const override { return "spillway"; }
  [[nodiscard]] std::string note() const override { return team_.note(); }

 private:
  /// Seconds of `calls` consecutive calls.
  double pass(std::int64_t calls) {
    const double seconds = team_.timed([&](std::size_t thread) {
      Share& share = shares_[thread];
      for (std::int64_t call = 0; call < calls; ++call) {
        const std::int64_t index = (next_ + call) % windows_;
        if (kind_ == StreamKind::triad) {
          stream_triad(share.window(0, index), share.window(1, index), share.window(2, index), share.count);
        } else {
          share.sum += stream_sum(share.window(0, index), share.count);
        }
      }
    });
    next_ = (next_ + calls) % windows_;
    return seconds;
  }

  StreamKind kind_;
  ThreadTeam team_;
  std::vector<Share> shares_;
  std::int64_t windows_ = 1;
  std::int64_t next_ = 0;  // next window
  std::unique_ptr<BackgroundCopies> copies_;
};

}  // namespace

std::unique_ptr<Case> make_host_stream(const HostStream& point, std::uint64_t seed, const HostHooks& hooks) {
  if (point.pinned && !hooks.page_locked) throw Unsupported("page-locked memory needs CUDA");
  if (point.copies != Traffic::none && !hooks.copies) throw Unsupported("copies need a GPU");
  return std::make_unique<HostStreamCase>(point, seed, hooks);
}

}  // namespace spillway::calibrate
