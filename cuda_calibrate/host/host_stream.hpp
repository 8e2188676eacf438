// Bandwidth of host memory.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda_calibrate/host/host_backend.hpp"

namespace spillway::calibrate {

/// Threads on CPUs as spread() chooses them, for the memory's NUMA node where one is given. Each thread has a share of
/// every array, which it allocates and touches first, bound to that node; what a call goes over changes from call to
/// call, and all arrays together are larger than four times the last-level cache and than 64 MiB each. Stores are the
/// ordinary ones of the processor. The time is that of the slowest thread.
/// Throws Unsupported or OutOfMemory.
[[nodiscard]] std::unique_ptr<Case> make_host_stream(const HostStream& point, std::uint64_t seed,
                                                     const HostHooks& hooks);

}  // namespace spillway::calibrate
