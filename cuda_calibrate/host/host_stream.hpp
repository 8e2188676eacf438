// Measures the bandwidth of host memory.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda_calibrate/host/host_backend.hpp"

namespace spillway::calibrate {

/// Threads run on CPUs chosen by spread(), for the memory's NUMA node if given. Each thread has a share of every array;
/// it allocates and touches its share first, bound to that node. Each call uses a different part of the arrays. All
/// arrays together exceed four times the last-level cache, and 64 MiB each. Stores are ordinary stores of the
/// processor. The time is the time of the slowest thread.
/// Throws Unsupported or OutOfMemory.
[[nodiscard]] std::unique_ptr<Case> make_host_stream(const HostStream& point, std::uint64_t seed,
                                                     const HostHooks& hooks);

}  // namespace spillway::calibrate
