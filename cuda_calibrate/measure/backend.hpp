// The interface to a measured machine: facts, and the timing of one point at a time. Implementations are the CUDA
// backend, the host without a GPU, and a test backend whose times follow from known parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate {

/// The machine cannot run the point (no peer access, no bf16, a CUDA version without batched copies). The point is
/// skipped with the reason.
class Unsupported : public std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// GPU or host memory is too small. The point is skipped with the reason, which names the bytes.
class OutOfMemory : public std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Any other CUDA error. The rest of the section is skipped; after a sticky error, the rest of the run.
class DeviceError : public std::runtime_error {
 public:
  DeviceError(const std::string& what, bool sticky) : std::runtime_error(what), sticky_(sticky) {}
  /// The context is lost: every later call fails too.
  [[nodiscard]] bool sticky() const { return sticky_; }

 private:
  bool sticky_;
};

/// Null if the system does not state the fact.
struct GpuFacts {
  std::string name;
  std::optional<std::string> uuid;  // which one of equal GPUs, as nvidia-smi -L prints it
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

/// A reading of the GPU's sensors; null if the system does not state the figure.
struct GpuSensors {
  std::optional<std::int64_t> sm_clock_mhz;
  std::optional<double> power_w;
  std::optional<std::int64_t> temperature_c;
  std::optional<std::string> throttle_reasons;
};

struct HostFacts {
  std::string cpu_model;
  std::string architecture;  // x86_64, aarch64
  std::int64_t physical_cores = 0;
  std::int64_t threads = 0;  // usable by this process
  std::int64_t memory_bytes = 0;
  std::int64_t available_bytes = 0;
  std::int64_t last_level_cache_bytes = 0;
  std::int64_t numa_nodes = 1;
  std::int64_t sockets = 1;
  std::string vector_extension;  // avx512, avx2, sve, neon, scalar: the extension that CPU attention uses
  std::optional<std::string> transparent_huge_pages;
  std::string kernel;  // version of the operating system's kernel
};

struct MachineFacts {
  HostFacts host{};
  bool gpus_assumed = false;   // by --assume; else those of this machine
  bool host_assumed = false;   // likewise; the GPUs are then assumed too
  std::vector<GpuFacts> gpus;  // empty: no GPU, or built without CUDA
  std::string gpu_reason;      // why there is no GPU
  std::optional<std::string> driver;
  std::optional<std::string> cuda_runtime;
  std::optional<std::string> cublas;
  std::optional<std::string> cudnn;
};

/// One point with its buffers allocated and filled with random data.
class Case {
 public:
  Case() = default;
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;
  virtual ~Case() = default;

  /// Runs the measured operation `calls` times in sequence. Where caching matters, the buffers differ from the last
  /// calls' (over more than four times L2). Returns seconds per call for each row of the point, in the order of
  /// rows.hpp. Requires calls >= 1. Throws the backend's exceptions.
  [[nodiscard]] virtual std::vector<double> sample(std::int64_t calls) = 0;
  /// The largest number of calls in one sample: as many as fit behind a gate.
  [[nodiscard]] virtual std::int64_t most_calls() const = 0;
  /// The library that ran, e.g. "cublaslt", "cudnn", "spillway"; the `kernel` of the rows.
  [[nodiscard]] virtual std::string kernel() const = 0;
  /// Why this kernel ran instead of the engines' kernel; else empty.
  [[nodiscard]] virtual std::string note() const { return {}; }
};

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// The current facts: each call reads clocks, temperature and throttling again.
  [[nodiscard]] virtual MachineFacts facts() = 0;
  /// Throws Unsupported, OutOfMemory or DeviceError.
  [[nodiscard]] virtual std::unique_ptr<Case> prepare(const Point& point) = 0;
  /// Reads the sensors of the measured GPU in about a millisecond. Empty without sensors. May be called from another
  /// thread while a case is timed.
  [[nodiscard]] virtual std::optional<GpuSensors> sensors() { return std::nullopt; }
  /// Computes small cases with every kernel of the backend and compares the results with the definitions. Takes a few
  /// seconds. Throws DeviceError with the first wrong number, and Unsupported without a GPU. Returns lines for the
  /// user.
  virtual std::vector<std::string> self_test() { throw Unsupported("the self-test needs a GPU"); }
};

/// The machine's GPU `gpu` and its host. The backend is from cuda/ if compiled in; otherwise it measures host sections
/// only. `seed` determines the random data. Throws DeviceError when GPU `gpu` does not exist but others do.
[[nodiscard]] std::unique_ptr<Backend> make_backend(std::int64_t gpu, std::uint64_t seed);

}  // namespace spillway::calibrate
