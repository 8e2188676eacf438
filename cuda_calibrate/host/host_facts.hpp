// The CPU and memory of this machine.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda_calibrate/host/system_files.hpp"
#include "cuda_calibrate/measure/backend.hpp"

namespace spillway::calibrate {

/// A hardware thread that this process may use.
struct Cpu {
  int id = 0;    // the system's number
  int core = 0;  // lowest id in the physical core
  int node = 0;  // NUMA node
  int socket = 0;
};

/// Sorted by id. If the system does not report cores, each CPU counts as a core.
[[nodiscard]] std::vector<Cpu> usable_cpus(const SystemRoots& roots = {});

/// Chooses `count` CPUs: one of each physical core before second hardware threads, alternating between NUMA nodes. With
/// a `node` of 0 or more, the CPUs of that node come first. Throws Unsupported when there are fewer CPUs, or none on
/// that node.
[[nodiscard]] std::vector<Cpu> spread(const std::vector<Cpu>& cpus, std::int64_t count, std::int64_t node = -1);

/// Memory that this process may still allocate: the system's available memory, or what the control group leaves.
[[nodiscard]] std::int64_t available_bytes(const SystemRoots& roots = {});

/// The total size of all last-level caches; 0 if the system does not state it.
[[nodiscard]] std::int64_t last_level_cache_bytes(const SystemRoots& roots = {});

/// Physical cores and caches are those of the machine. Threads are the hardware threads that this process may use at
/// once: the CPUs of its affinity, or the control group's quota if that is less (rounded down, at least 1). NUMA nodes
/// without a CPU, such as a GPU's memory, do not count.
[[nodiscard]] HostFacts host_facts(const SystemRoots& roots = {});

}  // namespace spillway::calibrate
