// The key `events`: when replicas go down and come up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/engine/simulation.hpp"

namespace spillway {

/// Reads a JSON list of {"at": "60s", "replica": 2, "event": "down"}, or the file that has it, and adds every problem.
/// Replicas are numbered from 0. Returns the events in order of time.
[[nodiscard]] std::vector<ReplicaEvent> read_events(const std::string& list_or_file, std::int64_t replicas,
                                                    std::vector<Problem>& problems);

/// Whether the value of the key is a file, and no list.
[[nodiscard]] bool is_events_file(const std::string& list_or_file);

}  // namespace spillway
