#include "cuda_calibrate/host/stream_kernels.hpp"

#include <array>

namespace spillway::calibrate {
namespace {

using Triad = void (*)(double*, const double*, const double*, std::int64_t);
using Sum = double (*)(const double*, std::int64_t);

// Each loop is written once and inlined into one function per instruction set.

[[gnu::always_inline]] inline void triad(double* __restrict a, const double* __restrict b, const double* __restrict c,
                                         std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) a[i] = b[i] + 3.0 * c[i];
}

[[gnu::always_inline]] inline double sum(const double* a, std::int64_t count) {
  constexpr std::int64_t kParts = 32;  // enough parallel additions for any processor
  std::array<double, kParts> parts{};
  std::int64_t i = 0;
  for (; i + kParts <= count; i += kParts) {
    for (std::int64_t part = 0; part < kParts; ++part) parts[static_cast<std::size_t>(part)] += a[i + part];
  }
  double all = 0.0;
  for (const double part : parts) all += part;
  for (; i < count; ++i) all += a[i];
  return all;
}

void plain_triad(double* a, const double* b, const double* c, std::int64_t count) { triad(a, b, c, count); }
double plain_sum(const double* a, std::int64_t count) { return sum(a, count); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) void avx2_triad(double* a, const double* b, const double* c, std::int64_t count) {
  triad(a, b, c, count);
}
__attribute__((target("avx2"))) double avx2_sum(const double* a, std::int64_t count) { return sum(a, count); }

bool has_avx2() { return __builtin_cpu_supports("avx2") != 0; }
Triad best_triad() { return has_avx2() ? avx2_triad : plain_triad; }
Sum best_sum() { return has_avx2() ? avx2_sum : plain_sum; }
#else
Triad best_triad() { return plain_triad; }
Sum best_sum() { return plain_sum; }
#endif

}  // namespace

void stream_triad(double* a, const double* b, const double* c, std::int64_t count) {
  static const Triad kBest = best_triad();
  kBest(a, b, c, count);
}

double stream_sum(const double* a, std::int64_t count) {
  static const Sum kBest = best_sum();
  return kBest(a, count);
}

}  // namespace spillway::calibrate
