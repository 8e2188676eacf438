// What a pool of replicas is built from.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "sim/api/router.hpp"
#include "sim/core/units.hpp"
#include "sim/metrics/steady_state.hpp"

namespace spillway {

/// Makes the router of a pool.
using MakeRouter = std::function<std::unique_ptr<Router>(const Replicas&)>;

/// The size of a pool, and its router.
struct PoolConfig {
  std::size_t replicas = 1;
  MakeRouter router{};
  Duration front_end{};                  // as SimulationConfig::front_end, of what this pool serves
  std::optional<OfferedLoad> offered{};  // to judge whether it was steady; empty: it is not judged
};

}  // namespace spillway
