// Factors by which each class of work takes longer than predicted.
#pragma once

namespace spillway {

/// Factors on an execution model's times, above 0. With all factors 1 the times stay the same, to the last bit.
struct OpScales {
  double gemm = 1.0;  // matrix multiplications, the LM head included, data-moving kernels and all-reduces
  double attention = 1.0;
  double copies = 1.0;  // between host and GPU
  double host = 1.0;    // CPU time of the engine: launch floor, time per iteration and per sequence
  double cpu = 1.0;     // attention and copies by the CPU
  bool operator==(const OpScales&) const = default;
};

}  // namespace spillway
