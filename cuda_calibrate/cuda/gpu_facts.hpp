// Facts about GPUs from the driver and the system. The build needs neither NVML nor cuDNN: the program searches for
// both at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cuda_calibrate/host/system_files.hpp"
#include "cuda_calibrate/measure/backend.hpp"

namespace spillway::calibrate::gpu {

/// Fills in UUID, clocks, power limit, temperature, throttling, ECC and PCIe, as far as NVML (libnvidia-ml.so.1, part
/// of the driver) is present and knows them; other facts stay null. The PCIe generation is the best that GPU and slot
/// both support, because an idle link slows down; the width is the current width. `bus_id` has the format of
/// cudaDeviceGetPCIBusId; `library` is what dlopen() searches for.
void add_nvml_facts(GpuFacts& facts, const std::string& bus_id, const char* library = "libnvidia-ml.so.1");

/// The sensors of one GPU. Loads NVML once, because a run reads them many times.
class NvmlSensors {
 public:
  /// `library` is what dlopen() searches for.
  explicit NvmlSensors(const std::string& bus_id, const char* library = "libnvidia-ml.so.1");
  NvmlSensors(const NvmlSensors&) = delete;
  NvmlSensors& operator=(const NvmlSensors&) = delete;
  ~NvmlSensors();
  /// Empty without NVML, or when it does not know the GPU. Power is the present draw where the GPU states it, else the
  /// average of NVML, over up to a second.
  [[nodiscard]] std::optional<GpuSensors> read() const;

 private:
  struct Session;
  std::unique_ptr<Session> session_;
};

/// "580.65.06"; empty without NVML.
[[nodiscard]] std::optional<std::string> driver_version();
/// The version of the libcudnn that the program would load, "9.19.0"; empty without libcudnn.
[[nodiscard]] std::optional<std::string> cudnn_version();

/// Names of the bits of nvmlDeviceGetCurrentClocksThrottleReasons, "none" for 0; a bit without a name is "bit N".
[[nodiscard]] std::string throttle_text(std::uint64_t reasons);

/// The NUMA node of a PCIe device; empty if the system does not state it.
[[nodiscard]] std::optional<std::int64_t> numa_node_of(const std::string& bus_id, const SystemRoots& roots = {});

}  // namespace spillway::calibrate::gpu
