// Memory for a case, filled with random data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda_calibrate/host/host_backend.hpp"
#include "cuda_calibrate/host/thread_team.hpp"
#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate {

/// Untouched memory in the system's default pages, aligned to a page. Does not request huge pages. Throws OutOfMemory.
[[nodiscard]] HostBuffer ordinary_memory(std::int64_t bytes);

/// Throws OutOfMemory when `bytes` exceed nine tenths of the memory that this process may still allocate.
void need_memory(std::int64_t bytes);

/// The number of equal buffers of `bytes` that together exceed four times `cache_bytes`.
[[nodiscard]] std::int64_t buffers_beyond_cache(std::int64_t bytes, std::int64_t cache_bytes);

/// splitmix64: a seed determines the numbers, equally on every machine.
class RandomBits {
 public:
  explicit RandomBits(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  /// A number in 0 .. count - 1, count >= 1. Low numbers are more likely by less than count 2^-64.
  std::uint64_t below(std::uint64_t count) { return next() % count; }

 private:
  std::uint64_t state_;
};

/// Fills with multiples of 2^-7 in [-1, 1), which bf16, fp16 and fp32 represent exactly.
void fill_numbers(std::byte* to, std::int64_t count, Number number, RandomBits& random);
/// Fills with numbers in [1, 2).
void fill_doubles(double* to, std::int64_t count, RandomBits& random);

}  // namespace spillway::calibrate
