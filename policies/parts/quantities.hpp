// Whole quantities as real numbers, for arithmetic that does not round and for messages.
#pragma once

#include <cstdint>

#include "sim/core/units.hpp"

namespace spillway {

[[nodiscard]] inline double bytes_of(Bytes bytes) { return real(bytes.count()); }
[[nodiscard]] inline double gigabytes(double bytes) { return bytes * 1e-9; }
[[nodiscard]] inline double gigabytes(Bytes bytes) { return gigabytes(bytes_of(bytes)); }
[[nodiscard]] inline double megabytes(Bytes bytes) { return bytes_of(bytes) * 1e-6; }

}  // namespace spillway
