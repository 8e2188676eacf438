// How many random cases a test draws.
#pragma once

#include <cstdint>

namespace spillway {

/// `count`, or a fifth of it under the sanitizers: they look for other faults, and take several times as long.
[[nodiscard]] constexpr std::uint64_t random_cases(std::uint64_t count) {
#ifdef __SANITIZE_ADDRESS__
  return count / 5;
#else
  return count;
#endif
}

}  // namespace spillway
