// A libcudnn without a GPU: it holds every call against what the header says of descriptors and attributes, computes
// attention at once from nothing but the tensors' dimensions, strides and pointers, and fails where a test says so.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <map>
#include <vector>

namespace spillway::emulated {

inline constexpr double kCudnnAttention = 12e-6;  // seconds

/// What cuDNN is to do, and what it has seen. A test sets it up before the first attention on a backend.
struct Cudnn {
  bool found = false;
  bool handles = true;
  bool engine_with_pages = true;
  bool engine_without_pages = true;
  int failing_plans = 0;          // configurations of engines, of two, for which there is no plan
  int refused = -1;               // cudnnBackendDescriptorType_t that cannot be finalised
  bool wrong_with_pages = false;  // results
  bool wrong_without_pages = false;
  bool execution_fails = false;

  std::int64_t executions = 0;
  std::int64_t tensors = 0;                                      // of the last execution
  std::map<std::int64_t, std::vector<std::int64_t>> dimensions;  // of them, by unique id
  std::map<std::int64_t, std::vector<std::int64_t>> strides;
  std::map<std::int64_t, cudnnDataType_t> types;
};
Cudnn& cudnn();

}  // namespace spillway::emulated
