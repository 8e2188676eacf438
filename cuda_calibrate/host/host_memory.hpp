// Memory that a case works in, with random data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda_calibrate/host/host_backend.hpp"
#include "cuda_calibrate/host/thread_team.hpp"
#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate {

/// Pages of the system as they come, without asking for huge ones, untouched; aligned to a page. Throws OutOfMemory.
[[nodiscard]] HostBuffer ordinary_memory(std::int64_t bytes);

/// Throws OutOfMemory when `bytes` are more than nine tenths of what this process may still take.
void need_memory(std::int64_t bytes);

/// How many equal buffers of `bytes` it takes so that all of them together are larger than four times `cache_bytes`.
[[nodiscard]] std::int64_t buffers_beyond_cache(std::int64_t bytes, std::int64_t cache_bytes);

/// splitmix64: numbers that follow from a seed, on every machine the same.
class RandomBits {
 public:
  explicit RandomBits(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  /// In 0 .. count - 1, count >= 1; the low numbers are more likely by less than count 2^-64.
  std::uint64_t below(std::uint64_t count) { return next() % count; }

 private:
  std::uint64_t state_;
};

/// Multiples of 2^-7 in [-1, 1), which bf16, fp16 and fp32 all hold.
void fill_numbers(std::byte* to, std::int64_t count, Number number, RandomBits& random);
/// In [1, 2).
void fill_doubles(double* to, std::int64_t count, RandomBits& random);

}  // namespace spillway::calibrate
