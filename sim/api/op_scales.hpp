// How many times as long as predicted each class of work takes.
#pragma once

namespace spillway {

/// Factors on an execution model's times, above 0. All 1: the times as they are, to the last bit.
struct OpScales {
  double gemm = 1.0;  // multiplications with the LM head, and the data-moving kernels and all-reduces beside them
  double attention = 1.0;
  double copies = 1.0;  // between host and GPU
  double host = 1.0;    // the engine's host side: launch floor, time per iteration and per sequence
  double cpu = 1.0;     // attention on the CPU
  bool operator==(const OpScales&) const = default;
};

}  // namespace spillway
