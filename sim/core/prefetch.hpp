// Memory that will be read soon.
#pragma once

#include <cstddef>
#include <cstdint>

// GCC takes a function that only prefetches for one without effect, and drops calls of it: all such functions that are
// defined in headers are inlined.
#define SPILLWAY_PREFETCHES [[gnu::always_inline]] inline

namespace spillway {

/// Asks the caches for the lines of [first, first + bytes), which need not be valid memory. Changes nothing but speed.
SPILLWAY_PREFETCHES void prefetch(const void* first, std::size_t bytes) {
  constexpr std::uintptr_t kLine = 64;
  const auto begin = reinterpret_cast<std::uintptr_t>(first);
  const char* line = static_cast<const char*>(first) - begin % kLine;
  const char* const end = static_cast<const char*>(first) + bytes;
  for (; line < end; line += kLine) __builtin_prefetch(line);
}

}  // namespace spillway
