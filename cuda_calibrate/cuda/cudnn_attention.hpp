// Decode attention by cuDNN, if cuDNN is installed and computes correct results.
#pragma once

#include <memory>

#include "cuda_calibrate/cuda/attention_op.hpp"

namespace spillway::calibrate::gpu {

/// Runs the calls of `own`, with one query token per sequence, by cuDNN over the same memory. The first call with these
/// heads and numbers on a GPU makes each of cuDNN's forms compute a small case and compares the result with the
/// definition. If no form is right, or none supports this case, returns `own` with the reason in its note. Throws
/// DeviceError when the context is lost.
[[nodiscard]] std::unique_ptr<ComputeOp> by_cudnn(Gpu& gpu, std::unique_ptr<AttentionOp> own);

}  // namespace spillway::calibrate::gpu
