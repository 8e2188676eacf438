// A libcudnn without a GPU. It checks every call against the header's rules for descriptors and attributes, computes
// attention at once from the tensors' dimensions, strides and pointers alone, and fails on a test's request.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <map>
#include <vector>

namespace spillway::emulated {

inline constexpr double kCudnnAttention = 12e-6;  // seconds

/// Settings and observations of cuDNN. Tests set them up before a backend's first attention.
struct Cudnn {
  bool found = false;
  bool handles = true;
  bool engine_with_pages = true;
  bool engine_without_pages = true;
  int failing_plans = 0;          // number of engine configurations, out of two, without a plan
  int refused = -1;               // cudnnBackendDescriptorType_t that cannot be finalised
  bool wrong_with_pages = false;  // results
  bool wrong_without_pages = false;
  bool execution_fails = false;

  std::int64_t executions = 0;
  std::int64_t tensors = 0;                                      // tensors of the last execution
  std::map<std::int64_t, std::vector<std::int64_t>> dimensions;  // dimensions of the tensors, by unique id
  std::map<std::int64_t, std::vector<std::int64_t>> strides;
  std::map<std::int64_t, cudnnDataType_t> types;
};
Cudnn& cudnn();

}  // namespace spillway::emulated
