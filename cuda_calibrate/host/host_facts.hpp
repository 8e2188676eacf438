// The CPU and memory of this machine.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda_calibrate/host/system_files.hpp"
#include "cuda_calibrate/measure/backend.hpp"

namespace spillway::calibrate {

/// A hardware thread that this process may run on.
struct Cpu {
  int id = 0;    // as the system counts
  int core = 0;  // the lowest id of its physical core
  int node = 0;  // NUMA
};

/// By id. Where the system does not tell cores apart, each CPU is one.
[[nodiscard]] std::vector<Cpu> usable_cpus(const SystemRoots& roots = {});

/// `count` of the CPUs: one of each physical core before the second ones, the cores of NUMA nodes in turns; with a
/// `node` of 0 or more, those of that node before all others. Throws Unsupported when there are fewer CPUs, or none on
/// that node.
[[nodiscard]] std::vector<Cpu> spread(const std::vector<Cpu>& cpus, std::int64_t count, std::int64_t node = -1);

/// Memory that this process may still take: what the system has available, or what its control group leaves it.
[[nodiscard]] std::int64_t available_bytes(const SystemRoots& roots = {});

/// Of all last-level caches together; 0 where the system does not say.
[[nodiscard]] std::int64_t last_level_cache_bytes(const SystemRoots& roots = {});

/// Physical cores and caches are those of the machine, threads those that this process may use at once: the CPUs of its
/// affinity, or what its control group's quota comes to when that is less (rounded down, at least 1). NUMA nodes
/// without a CPU, such as a GPU's memory, do not count.
[[nodiscard]] HostFacts host_facts(const SystemRoots& roots = {});

}  // namespace spillway::calibrate
