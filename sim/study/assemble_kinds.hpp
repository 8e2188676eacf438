// Several kinds of instances on one server: the key `instances`.
#pragma once

#include <cstdint>

#include "sim/study/assemble.hpp"

namespace spillway {

/// As assemble(), for a configuration that has the key. Each kind is assembled as if it were alone on its GPUs, but for
/// the host, whose memory and CPU all GPUs share. Throws as assemble(), with every problem of every kind.
[[nodiscard]] Assembly assemble_kinds(ResolvedConfig config);

/// The traffic of all kinds: the common workload for those that have a share of it, and those that kinds have of their
/// own.
[[nodiscard]] traces::Workload open_workload_of_kinds(const Assembly& assembly, std::int64_t replication);

}  // namespace spillway
