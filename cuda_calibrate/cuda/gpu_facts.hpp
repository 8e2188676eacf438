// What the driver and the system say about GPUs, without a build that knows of them: NVML and cuDNN are looked for when
// the program runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cuda_calibrate/host/system_files.hpp"
#include "cuda_calibrate/measure/backend.hpp"

namespace spillway::calibrate::gpu {

/// Fills in clocks, power limit, temperature, throttling, ECC and PCIe, as far as NVML (libnvidia-ml.so.1, which comes
/// with the driver) is there and knows them; else leaves them null. The PCIe generation is the best that GPU and slot
/// have in common, because an idle link steps down; the width is the current one. `bus_id` as of cudaDeviceGetPCIBusId.
void add_nvml_facts(GpuFacts& facts, const std::string& bus_id);

/// "580.65.06"; empty without NVML.
[[nodiscard]] std::optional<std::string> driver_version();
/// "9.19.0" of the libcudnn that the program would load; empty when there is none.
[[nodiscard]] std::optional<std::string> cudnn_version();

/// Names of the bits of nvmlDeviceGetCurrentClocksThrottleReasons, "none" for 0; a bit without a name is "bit N".
[[nodiscard]] std::string throttle_text(std::uint64_t reasons);

/// Of a PCIe device; empty where the system does not say.
[[nodiscard]] std::optional<std::int64_t> numa_node_of(const std::string& bus_id, const SystemRoots& roots = {});

}  // namespace spillway::calibrate::gpu
