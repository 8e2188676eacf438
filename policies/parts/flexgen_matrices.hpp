// FlexGen's placement of weights: whole matrices, on the GPU or on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/api/layer_policy.hpp"

namespace spillway {

/// What FlexGen makes of a share of the weights that is asked for on the host.
struct FlexgenRung {
  double asked = 0.0;         // a share that leads here, as far as possible from those that do not
  double on_host = 0.0;       // of a layer's weights
  std::int64_t matrices = 0;  // of a layer, on the host
};

/// The attention block and the MLP block of a layer each place their matrices in order. A matrix goes to the host when
/// the middle of its place among the block's bytes lies below the share that is asked for, and stays on the GPU
/// otherwise. So a share leads to one of a few placements, the rungs. The parts of a layer that are not matrices are
/// negligible.
///
/// Example, OPT: queries, keys, values and output in the middle of 0.125, 0.375, 0.625 and 0.875 of the attention
/// block; the MLP's matrices at 0.25 and 0.75. A share of 0.8 leads to (3 + 8) / 12 of the layer.
/// Source: FMInference/FlexGen (19753bc), flexgen/flex_opt.py, init_weight_list.
class FlexgenMatrices {
 public:
  /// O(matrices^2). The deployment must have at least one matrix.
  explicit FlexgenMatrices(const Deployment& deployment);

  /// From none of the matrices on the host to all of them.
  [[nodiscard]] const std::vector<FlexgenRung>& rungs() const { return rungs_; }
  /// The rung to which this share, from 0 to 1, leads. O(matrices).
  [[nodiscard]] const FlexgenRung& of(double asked) const;

 private:
  std::vector<FlexgenRung> rungs_;
  std::vector<double> middles_;  // of the matrices that each rung but the first adds
};

}  // namespace spillway
