// Positions of a model from a Hugging Face config.json: their kind, their number, and the sliding window.
#pragma once

#include "hwmodels/hf_fields.hpp"
#include "hwmodels/hf_identity.hpp"

namespace spillway::hwmodels {

/// Reads the kind of positions and the longest text, as hf_config.hpp describes it. Problems are recorded.
void read_positions(HfFields& fields, const HfLayerTypes& types);

}  // namespace spillway::hwmodels
