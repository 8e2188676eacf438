#include "sim/core/huge_pages.hpp"

#include <algorithm>
#include <cstdint>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace spillway {
namespace {

std::align_val_t alignment_of(std::size_t bytes, std::size_t alignment) {
  return std::align_val_t(bytes < HugePages::kPage ? alignment : std::max(alignment, HugePages::kPage));
}

}  // namespace

void* HugePages::do_allocate(std::size_t bytes, std::size_t alignment) {
  void* const block = ::operator new(bytes, alignment_of(bytes, alignment));
#ifdef __linux__
  // Only advice: without huge pages the memory is as good, but slower. The rest of the last page stays small.
  if (bytes >= kPage) static_cast<void>(madvise(block, bytes / kPage * kPage, MADV_HUGEPAGE));
#endif
  return block;
}

void HugePages::gather(const void* first, const void* last) {
#ifdef __linux__
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, since Linux 6.1; older headers lack it, and older systems refuse it
  const auto begin = reinterpret_cast<std::uintptr_t>(first);
  auto* const page = static_cast<char*>(const_cast<void*>(first)) - begin % kPage;
  const auto bytes = static_cast<std::size_t>(static_cast<const char*>(last) - page);
  static_cast<void>(madvise(page, (bytes / kPage + 1) * kPage, kCollapse));
#else
  static_cast<void>(first);
  static_cast<void>(last);
#endif
}

void HugePages::do_deallocate(void* block, std::size_t bytes, std::size_t alignment) {
  ::operator delete(block, bytes, alignment_of(bytes, alignment));
}

}  // namespace spillway
