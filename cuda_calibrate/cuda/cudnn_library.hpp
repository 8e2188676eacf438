// The functions of cuDNN's backend that are called, of the library that is found when the program runs.
#pragma once

#include <cudnn_graph.h>

#include <cstddef>

namespace spillway::calibrate::gpu {

struct CudnnLibrary {
  decltype(&cudnnGetVersion) version;
  decltype(&cudnnGetErrorString) error_string;
  decltype(&cudnnGetLastErrorString) last_error_string;
  decltype(&cudnnCreate) create;
  decltype(&cudnnDestroy) destroy;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&cudnnBackendSetAttribute) set_attribute;
  decltype(&cudnnBackendGetAttribute) get_attribute;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;
};

/// Loaded at the first call, and for good. Null when there is no libcudnn of the headers' major version, or it lacks
/// one of these functions.
[[nodiscard]] const CudnnLibrary* find_cudnn();

}  // namespace spillway::calibrate::gpu
