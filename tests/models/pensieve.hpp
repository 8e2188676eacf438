// Pensieve in plain words, for tests alone.
#pragma once

#include <memory>

#include "sim/api/registry.hpp"

namespace spillway::oracle {

/// Where KV lives, as Pensieve says: every block has a state of its own, and each eviction sorts all chunks anew.
[[nodiscard]] std::unique_ptr<OffloadPolicy> plain_pensieve_space(const PolicyContext& context);
/// Its unified batches, over any space.
[[nodiscard]] std::unique_ptr<Scheduler> plain_pensieve_scheduler(const Settings& settings);

}  // namespace spillway::oracle
