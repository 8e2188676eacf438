// Floats aligned to a cache line, so that no vector crosses two lines.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace spillway::calibrate {

template <class T>
struct LineAllocator {
  using value_type = T;

  LineAllocator() = default;
  template <class Other>
  explicit LineAllocator(const LineAllocator<Other>&) {}

  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* at, std::size_t) { ::operator delete (at, std::align_val_t{64}); }

  bool operator==(const LineAllocator&) const = default;
};

using LineFloats = std::vector<float, LineAllocator<float>>;

}  // namespace spillway::calibrate
