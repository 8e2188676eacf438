// A library that is loaded at run time.
#pragma once

#include <dlfcn.h>

namespace spillway::calibrate::gpu {

class Library {
 public:
  explicit Library(const char* name) : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {}
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  /// Null if the library or the function does not exist.
  template <typename Function>
  [[nodiscard]] Function* function(const char* name) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};

}  // namespace spillway::calibrate::gpu
