// The plain model of FlexGen: where a placement comes from.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/api/layer_policy.hpp"

namespace spillway::oracle {

struct FlexgenPlacement {
  std::int64_t gpu_batch = 1;  // requests of a micro-batch
  std::int64_t batches = 1;    // micro-batches of a block
  double weights_host = 0.0;   // shares; of the weights: as asked for
  double cache_host = 0.0;
  double hidden_host = 0.0;
};

/// What FlexGen makes of a share of the weights that is asked for on the host.
struct FlexgenWeights {
  double share = 0.0;
  std::int64_t matrices = 0;
};
[[nodiscard]] FlexgenWeights flexgen_weights(const Deployment& deployment, double asked);

/// As the settings, or a layout's choice, say.
[[nodiscard]] FlexgenPlacement flexgen_placement(const Settings& settings);

/// The user's, else what is known of the host.
[[nodiscard]] std::optional<Bytes> flexgen_host_memory(const Deployment& deployment, const Settings& settings);

/// What the cost model says of a placement.
struct FlexgenRating {
  double throughput = 0.0;  // tokens/s of full blocks
  bool fits = false;        // to one part in 10^7
};

[[nodiscard]] FlexgenRating rate_placement(const Deployment& deployment, const Settings& settings,
                                           const FlexgenPlacement& placement);

struct FlexgenFound {
  FlexgenPlacement placement{};
  double throughput = 0.0;
};

/// The fastest placement by the cost model; ConfigError when none fits or something that it takes is unknown.
[[nodiscard]] FlexgenFound fastest_placement(const Deployment& deployment, const Settings& settings);

/// One micro-batch of policy.gpu_batch, and as many weights on the host as policy.slo_margin allows.
[[nodiscard]] FlexgenPlacement keep_objective(const Deployment& deployment, const Settings& settings);

}  // namespace spillway::oracle
