// ProductKernel::multiply by Eigen. Eigen chooses its instructions when it is compiled. A source that is compiled for a
// vector extension defines the macro Eigen as another name before it includes this file: else the linker would keep one
// extension's copy of Eigen's functions for all sources.
#pragma once

#include <Eigen/Core>
#include <cstdint>

namespace spillway::calibrate {

/// `Extension` is a type of the including source, so that each source has its own function.
template <class Extension>
void eigen_product(const float* x, const float* weights, std::int64_t rows, std::int64_t inputs, std::int64_t outputs,
                   float* y, std::int64_t stride) {
  using Numbers = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const Numbers> left(x, rows, inputs);
  const Eigen::Map<const Numbers> right(weights, outputs, inputs);
  Eigen::Map<Numbers, Eigen::Unaligned, Eigen::OuterStride<>> result(y, rows, outputs, Eigen::OuterStride<>(stride));
  result.noalias() = left * right.transpose();
}

}  // namespace spillway::calibrate
