// Functions of cuDNN's backend, from the library found at run time.
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

/// Loads the library at the first call and keeps it loaded. Null if there is no libcudnn of the headers' major version,
/// or if a function is missing.
[[nodiscard]] const CudnnLibrary* find_cudnn();

}  // namespace spillway::calibrate::gpu
