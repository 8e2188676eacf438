// Loops that are bound by memory.
#pragma once

#include <cstdint>

namespace spillway::calibrate {

/// a[i] = b[i] + 3 c[i].
void stream_triad(double* a, const double* b, const double* c, std::int64_t count);
/// The sum in 32 parts, a different order of additions than the plain one.
[[nodiscard]] double stream_sum(const double* a, std::int64_t count);

}  // namespace spillway::calibrate
