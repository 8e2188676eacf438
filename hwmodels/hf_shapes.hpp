// Shapes, norms and biases of a model from a Hugging Face config.json.
#pragma once

#include "hwmodels/hf_fields.hpp"

namespace spillway::hwmodels {

/// Layers, widths, heads and vocabulary, with the rules of single architectures. Problems are recorded.
void read_shapes(HfFields& fields);
void read_norms_and_biases(HfFields& fields);
/// Records a problem for each shape that contradicts another. Does nothing when there are problems already: a field
/// that is wrong would be reported twice.
void check_shapes(HfFields& fields);

}  // namespace spillway::hwmodels
