// A machine for tests of cuda_calibrate. The test sets times and failures; only measurements move its clock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/measure/rows.hpp"
#include "cuda_calibrate/measure/runner.hpp"

namespace spillway::calibrate {

/// Seconds per call of each row of a point. May throw a backend's exceptions.
using TrueTimes = std::function<std::vector<double>(const Point& point)>;

class FakeCase : public Case {
 public:
  FakeCase(std::vector<double> times, std::string kernel, double& now, std::function<void()> on_sample)
      : times_(std::move(times)), kernel_(std::move(kernel)), now_(now), on_sample_(std::move(on_sample)) {}

  /// Every timing deviates by up to this fraction in either direction.
  double jitter = 0.0;
  std::string said{};

  std::vector<double> sample(std::int64_t calls) override {
    if (on_sample_) on_sample_();
    std::vector<double> timed = times_;
    for (double& time : timed) {
      time *= 1.0 + jitter * std::uniform_real_distribution<double>(-1.0, 1.0)(random_);
      now_ += time * static_cast<double>(calls);
    }
    return timed;
  }
  [[nodiscard]] std::int64_t most_calls() const override { return 128; }
  [[nodiscard]] std::string kernel() const override { return kernel_; }
  [[nodiscard]] std::string note() const override { return said; }

 private:
  std::vector<double> times_;
  std::string kernel_;
  double& now_;
  std::function<void()> on_sample_;
  std::mt19937_64 random_{1};
};

class FakeBackend : public Backend {
 public:
  FakeBackend(MachineFacts facts, TrueTimes times) : facts_(std::move(facts)), times_(std::move(times)) {}

  [[nodiscard]] MachineFacts facts() override { return facts_; }
  [[nodiscard]] std::unique_ptr<Case> prepare(const Point& point) override {
    ++prepared;
    auto one = std::make_unique<FakeCase>(times_(point), kernel, now, on_sample);
    one->jitter = jitter;
    if (note) one->said = note(point);
    return one;
  }

  /// The answers in order, the last one for ever; empty: no sensors.
  [[nodiscard]] std::optional<GpuSensors> sensors() override {
    if (readings.empty()) return std::nullopt;
    return readings[std::min(next_reading_++, readings.size() - 1)];
  }

  std::vector<GpuSensors> readings{{1980, 300.0, 41, "none"}};
  double now = 0.0;  // of the clock, seconds
  std::int64_t prepared = 0;
  std::string kernel = "fake";
  double jitter = 0.0;  // of every case
  std::function<std::string(const Point&)> note{};
  std::function<void()> on_sample{};

 private:
  MachineFacts facts_;
  TrueTimes times_;
  std::size_t next_reading_ = 0;
};

/// 64 cores, 256 GiB of memory and `gpus` H100-like GPUs.
inline MachineFacts fake_machine(std::int64_t gpus) {
  MachineFacts facts;
  facts.host.cpu_model = "Fake CPU";
  facts.host.architecture = "x86_64";
  facts.host.physical_cores = 64;
  facts.host.threads = 128;
  facts.host.memory_bytes = std::int64_t{256} << 30U;
  facts.host.available_bytes = facts.host.memory_bytes;
  facts.host.last_level_cache_bytes = std::int64_t{32} << 20U;
  facts.host.numa_nodes = 2;
  facts.host.vector_extension = "avx512";
  facts.host.kernel = "Linux";
  GpuFacts gpu;
  gpu.name = "Fake GPU";
  gpu.uuid = "GPU-1";
  gpu.memory_bytes = std::int64_t{80} << 30U;
  gpu.sm_count = 132;
  gpu.l2_bytes = std::int64_t{50} << 20U;
  gpu.compute_capability = 90;
  gpu.bf16 = true;
  gpu.fp8 = true;
  gpu.sm_clock_mhz = 1980;
  gpu.temperature_c = 41;
  for (gpu.index = 0; gpu.index < gpus; ++gpu.index) facts.gpus.push_back(gpu);
  if (gpus == 0) facts.gpu_reason = "no CUDA device was found";
  return facts;
}

/// A millisecond for each row.
inline std::vector<double> millisecond_each(const Point& point) {
  return std::vector<double>(rows_of(point).size(), 1e-3);
}

/// What a run asks of the outside, with the backend's clock. Keeps the last document that was saved, as text.
struct FakeOutside {
  explicit FakeOutside(FakeBackend& backend) {
    hooks.clock = [&backend] { return backend.now; };
    hooks.utc = [] { return std::string("2026-01-31T12:00:00Z"); };
    hooks.progress = [](const RunProgress&) {};
    hooks.save = [this](const Document& document) {
      ++saves;
      saved = document.text();
    };
    hooks.stop = &stop;
  }
  FakeOutside(const FakeOutside&) = delete;
  FakeOutside& operator=(const FakeOutside&) = delete;

  std::atomic<bool> stop{false};
  std::int64_t saves = 0;
  std::string saved{};
  RunHooks hooks{};
};

}  // namespace spillway::calibrate
