// Decode attention by cuDNN where it is installed and computes what it should.
#pragma once

#include <memory>

#include "cuda_calibrate/cuda/attention_op.hpp"

namespace spillway::calibrate::gpu {

/// The calls of `own`, of one query token in each sequence, by cuDNN over the same memory. At the first call with such
/// heads and numbers on this GPU each of cuDNN's forms computes a small case, which is compared with the definition.
/// Where none is right, or none takes this case, `own` is returned, and its note says why. Throws DeviceError when the
/// context is lost.
[[nodiscard]] std::unique_ptr<ComputeOp> by_cudnn(Gpu& gpu, std::unique_ptr<AttentionOp> own);

}  // namespace spillway::calibrate::gpu
