// What can be asked of a machine that is to be measured: facts about it, and the timing of one point at a time. The
// CUDA backend is one, the host without a GPU another, and tests have one whose times follow from known parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate {

/// This machine cannot do that (no peer access, no bf16, a CUDA without batched copies): the point is skipped with the
/// reason.
class Unsupported : public std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// GPU or host memory does not suffice: the point is skipped with the reason, which names the bytes.
class OutOfMemory : public std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Anything else that CUDA reports: the rest of the section is given up, and after a sticky error that of the run.
class DeviceError : public std::runtime_error {
 public:
  DeviceError(const std::string& what, bool sticky) : std::runtime_error(what), sticky_(sticky) {}
  /// The context is lost: every later call fails as well.
  [[nodiscard]] bool sticky() const { return sticky_; }

 private:
  bool sticky_;
};

/// Null where the system does not say.
struct GpuFacts {
  std::string name;
  std::int64_t index = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t sm_count = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t compute_capability = 0;  // 90 for sm_90
  bool bf16 = false;
  bool fp8 = false;
  std::optional<std::int64_t> sm_clock_mhz;
  std::optional<std::int64_t> max_sm_clock_mhz;
  std::optional<std::int64_t> memory_clock_mhz;
  std::optional<double> power_limit_w;
  std::optional<std::int64_t> temperature_c;
  std::optional<std::string> throttle_reasons;
  std::optional<bool> ecc;
  std::optional<std::int64_t> pcie_generation;
  std::optional<std::int64_t> pcie_width;
  std::optional<std::int64_t> numa_node;
};

struct HostFacts {
  std::string cpu_model;
  std::string architecture;  // x86_64, aarch64
  std::int64_t physical_cores = 0;
  std::int64_t threads = 0;  // that this process may run on
  std::int64_t memory_bytes = 0;
  std::int64_t available_bytes = 0;
  std::int64_t last_level_cache_bytes = 0;
  std::int64_t numa_nodes = 1;
  std::string vector_extension;  // avx512, avx2, sve, neon, scalar: what CPU attention is compiled for and runs
  std::optional<std::string> transparent_huge_pages;
  std::string kernel;  // of the operating system
};

struct MachineFacts {
  HostFacts host{};
  std::vector<GpuFacts> gpus;  // empty: none, or built without CUDA
  std::string gpu_reason;      // why there is none
  std::optional<std::string> driver;
  std::optional<std::string> cuda_runtime;
  std::optional<std::string> cublas;
  std::optional<std::string> cudnn;
};

/// One point, its buffers allocated and filled with random data.
class Case {
 public:
  Case() = default;
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;
  virtual ~Case() = default;

  /// Runs the measured operation `calls` times behind each other, on other buffers than the last time where that
  /// matters (over more than four times L2), and returns seconds per call, one for each row of the point (rows.hpp), in
  /// their order. calls >= 1. Throws what the backend throws.
  [[nodiscard]] virtual std::vector<double> sample(std::int64_t calls) = 0;
  /// The most calls that one sample may have: what can be enqueued behind a gate.
  [[nodiscard]] virtual std::int64_t most_calls() const = 0;
  /// Library and name of what ran, e.g. "cublaslt", "cudnn", "spillway"; the rows' `kernel`.
  [[nodiscard]] virtual std::string kernel() const = 0;
  /// Why that ran and not what engines run; else empty.
  [[nodiscard]] virtual std::string note() const { return {}; }
};

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// As they are now; clocks, temperature and throttling are asked again at every call.
  [[nodiscard]] virtual MachineFacts facts() = 0;
  /// Throws Unsupported, OutOfMemory or DeviceError.
  [[nodiscard]] virtual std::unique_ptr<Case> prepare(const Point& point) = 0;
  /// Computes small cases with every kernel of its own and compares them with their definitions; a few seconds. Throws
  /// DeviceError with the first number that differs, and Unsupported when there is no GPU. Returns lines to be told.
  virtual std::vector<std::string> self_test() { throw Unsupported("there is no GPU whose kernels could be tested"); }
};

/// The machine's GPU `gpu` and its host: from cuda/ where that is compiled in, else host sections only. `seed` is that
/// of the random data. Throws DeviceError when there is no GPU of that index although there are others.
[[nodiscard]] std::unique_ptr<Backend> make_backend(std::int64_t gpu, std::uint64_t seed);

}  // namespace spillway::calibrate
