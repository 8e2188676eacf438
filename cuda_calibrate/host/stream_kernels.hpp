// Memory-bound loops.
#pragma once

#include <cstdint>

namespace spillway::calibrate {

/// a[i] = b[i] + 3 c[i].
void stream_triad(double* a, const double* b, const double* c, std::int64_t count);
/// The sum, added in 32 parts: the order of additions differs from a plain loop.
[[nodiscard]] double stream_sum(const double* a, std::int64_t count);

}  // namespace spillway::calibrate
