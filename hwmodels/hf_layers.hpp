// Routed experts, latent attention and the kind of each layer of a Hugging Face config.json.
#pragma once

#include <cstdint>
#include <vector>

#include "hwmodels/hf_fields.hpp"

namespace spillway::hwmodels {

/// Reads latent attention, where the architecture has it. After read_shapes().
void read_latent_attention(HfFields& fields);

/// Reads the experts, and gives each layer its kind. `windows`: the window of each layer, 0 for full attention. After
/// read_shapes() and read_positions(). Problems are recorded.
void read_layers(HfFields& fields, const std::vector<std::int64_t>& windows);

}  // namespace spillway::hwmodels
