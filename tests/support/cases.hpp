// The number of random cases that a test draws, and how often it wants to see what it is about.
#pragma once

#include <cstdint>

namespace spillway {

#if defined(__SANITIZE_ADDRESS__) || defined(SPILLWAY_FEWER_CASES)
inline constexpr bool kFewerCases = true;
#else
inline constexpr bool kFewerCases = false;
#endif

/// Returns `count`, or a twentieth of it under the sanitizers, which look for other faults and run several times
/// slower.
[[nodiscard]] constexpr std::uint64_t random_cases(std::uint64_t count) {
  return kFewerCases ? (count + 19) / 20 : count;
}

/// What a random test is about must occur in its cases: EXPECT_GT(met, more_than(50)). Returns `count`, or -1 under the
/// sanitizers, which run a twentieth of the cases.
[[nodiscard]] constexpr std::int64_t more_than(std::int64_t count) { return kFewerCases ? -1 : count; }

}  // namespace spillway
