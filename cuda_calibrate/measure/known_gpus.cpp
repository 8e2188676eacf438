#include "cuda_calibrate/measure/known_gpus.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "hwmodels/catalog.hpp"
#include "sim/core/error.hpp"

namespace spillway::calibrate {
namespace {

struct KnownGpu {
  std::string_view profile;
  std::string_view name;            // CUDA's name
  std::int64_t compute_capability;  // developer.nvidia.com/cuda-gpus
  std::int64_t pcie_generation;     // generation for 16 lanes, from the datasheet; 0: NVLink-C2C
};

constexpr std::array<KnownGpu, 8> kKnown{{{"gh200-96gb", "NVIDIA GH200 480GB", 90, 0},
                                          {"h100-80gb-sxm", "NVIDIA H100 80GB HBM3", 90, 5},
                                          {"h200-141gb", "NVIDIA H200", 90, 5},
                                          {"a100-80gb-sxm", "NVIDIA A100-SXM4-80GB", 80, 4},
                                          {"a100-80gb-pcie", "NVIDIA A100 80GB PCIe", 80, 4},
                                          {"a10-24gb", "NVIDIA A10", 86, 4},
                                          {"a10g-24gb", "NVIDIA A10G", 86, 4},
                                          {"t4-16gb", "Tesla T4", 75, 3}}};
constexpr std::int64_t kFirstWithBf16 = 80;
constexpr std::int64_t kFirstWithFp8 = 89;
constexpr std::int64_t kLanes = 16;

}  // namespace

MachineFacts assumed_facts(std::string_view name_or_file, const HostFacts& host) {
  const hwmodels::Hardware hardware = hwmodels::load_hardware(name_or_file);
  const auto known = std::find_if(kKnown.begin(), kKnown.end(),
                                  [&](const KnownGpu& one) { return one.profile == hardware.gpu.file.name; });
  if (known == kKnown.end()) {
    std::vector<std::string_view> names;
    names.reserve(kKnown.size());
    for (const KnownGpu& one : kKnown) names.push_back(one.profile);
    throw ConfigError(fmt::format("the compute capability of {} is not known", hardware.gpu.file.name), "--assume",
                      fmt::format("GPUs: {}, or a server with one of them", fmt::join(names, ", ")));
  }
  hardware.gpu.need({"memory", "sm_count", "l2_cache"}, "a plan");
  GpuFacts gpu;
  gpu.name = known->name;
  gpu.memory_bytes = hardware.gpu.memory.count();
  gpu.sm_count = hardware.gpu.sm_count;
  gpu.l2_bytes = hardware.gpu.l2_cache.count();
  gpu.compute_capability = known->compute_capability;
  gpu.bf16 = known->compute_capability >= kFirstWithBf16;
  gpu.fp8 = known->compute_capability >= kFirstWithFp8;
  if (known->pcie_generation > 0) {
    gpu.pcie_generation = known->pcie_generation;
    gpu.pcie_width = kLanes;
  }
  MachineFacts facts;
  facts.host = host;
  facts.gpus_assumed = true;
  const std::int64_t gpus = hardware.server ? hardware.server->gpus : 1;
  for (gpu.index = 0; gpu.index < gpus; ++gpu.index) facts.gpus.push_back(gpu);
  if (hardware.host) {
    facts.host_assumed = true;
    facts.host.cpu_model = hardware.host->file.name;
    facts.host.physical_cores = hardware.host->cores;
    facts.host.threads = hardware.host->threads;
    facts.host.memory_bytes = hardware.host->dram.count();
    facts.host.available_bytes = facts.host.memory_bytes;
  }
  return facts;
}

}  // namespace spillway::calibrate
