// A host link on which copies of several instances meet: what their policies share to divide it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <typeindex>

#include "sim/core/units.hpp"

namespace spillway {

/// A link to GPUs that copies of several instances cross, for one run. The engine executes copies and divides the link
/// among them; whether the instances agree on what they copy is up to their policies.
class HostBus {
 public:
  explicit HostBus(BytesPerSecond rate) : rate_(rate) {}
  HostBus(const HostBus&) = delete;
  HostBus& operator=(const HostBus&) = delete;

  /// What the link carries towards GPUs, > 0.
  [[nodiscard]] BytesPerSecond rate() const { return rate_; }
  /// The one object of type T that the instances on the bus share. The first call makes it from rate(). An instance is
  /// made before the first event, or when its replica comes up again, so the order of the calls is always the same.
  template <class T>
  [[nodiscard]] std::shared_ptr<T> shared() {
    std::shared_ptr<void>& object = objects_[typeid(T)];
    if (!object) object = std::make_shared<T>(rate_);
    return std::static_pointer_cast<T>(object);
  }

 private:
  BytesPerSecond rate_;
  std::map<std::type_index, std::shared_ptr<void>> objects_;
};

/// An instance on a bus.
struct OnBus {
  HostBus* bus = nullptr;  // null: its copies to the GPU meet no others
  std::int64_t gpus = 1;   // of the instance, whose copies cross the bus at the same time
};

}  // namespace spillway
