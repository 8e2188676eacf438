// The number of random cases that a test draws.
#pragma once

#include <cstdint>

namespace spillway {

/// Returns `count`, or a fifth of it under the sanitizers, which look for other faults and run several times slower.
[[nodiscard]] constexpr std::uint64_t random_cases(std::uint64_t count) {
#if defined(__SANITIZE_ADDRESS__) || defined(SPILLWAY_FEWER_CASES)
  return count / 5;
#else
  return count;
#endif
}

}  // namespace spillway
