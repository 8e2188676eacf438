// Memory in pages of 2 MiB.
#pragma once

#include <cstddef>
#include <memory_resource>

namespace spillway {

/// Gives blocks of 2 MiB and more as whole pages of this size, where the system has them to spare, and smaller blocks
/// as operator new does. What is read here and there in many MiB then misses the translation caches far less often.
/// Meant as the upstream of a resource that divides its blocks. Thread-safe. Throws std::bad_alloc.
class HugePages final : public std::pmr::memory_resource {
 public:
  static constexpr std::size_t kPage = std::size_t{2} << 20U;

  /// The memory around [first, last], from any other source, moves to huge pages now, if the system can do that.
  static void gather(const void* first, const void* last);

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return dynamic_cast<const HugePages*>(&other) != nullptr;
  }
};

}  // namespace spillway
