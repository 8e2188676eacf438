#include <fmt/format.h>

#include "cuda_calibrate/cuda/cudnn_library.hpp"
#include "cuda_calibrate/cuda/library.hpp"

namespace spillway::calibrate::gpu {
namespace {

class Loaded {
 public:
  Loaded() {
    load(functions_.version, "cudnnGetVersion");
    load(functions_.error_string, "cudnnGetErrorString");
    load(functions_.last_error_string, "cudnnGetLastErrorString");
    load(functions_.create, "cudnnCreate");
    load(functions_.destroy, "cudnnDestroy");
    load(functions_.set_stream, "cudnnSetStream");
    load(functions_.create_descriptor, "cudnnBackendCreateDescriptor");
    load(functions_.destroy_descriptor, "cudnnBackendDestroyDescriptor");
    load(functions_.set_attribute, "cudnnBackendSetAttribute");
    load(functions_.get_attribute, "cudnnBackendGetAttribute");
    load(functions_.finalize, "cudnnBackendFinalize");
    load(functions_.execute, "cudnnBackendExecute");
  }
  [[nodiscard]] const CudnnLibrary* functions() const { return complete_ ? &functions_ : nullptr; }

 private:
  template <typename Function>
  void load(Function*& to, const char* name) {
    to = library_.function<Function>(name);
    complete_ = complete_ && to != nullptr;
  }

  Library library_{fmt::format("libcudnn.so.{}", CUDNN_MAJOR).c_str()};
  CudnnLibrary functions_{};
  bool complete_ = true;
};

}  // namespace

const CudnnLibrary* find_cudnn() {
  static const Loaded kLoaded;
  return kLoaded.functions();
}

}  // namespace spillway::calibrate::gpu
