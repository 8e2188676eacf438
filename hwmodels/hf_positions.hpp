// Positions of a model from a Hugging Face config.json: their kind, their number, and the sliding window.
#pragma once

#include <cstdint>
#include <vector>

#include "hwmodels/hf_fields.hpp"
#include "hwmodels/hf_identity.hpp"

namespace spillway::hwmodels {

/// Reads the kind of positions and the longest text, as hf_config.hpp describes it. Returns the window of each layer, 0
/// for full attention. Problems are recorded.
[[nodiscard]] std::vector<std::int64_t> read_positions(HfFields& fields, const HfLayerTypes& types);

}  // namespace spillway::hwmodels
