#include "sim/core/random.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace spillway {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// ln 2 in two parts (Cody and Waite, 1980): the upper one ends in 21 zero bits, so that k * upper is exact for |k| <
// 2^21.
constexpr double kLn2Upper = 0x1.62e42feep-1;
constexpr double kLn2Lower = 0x1.a39ef35793c76p-33;
constexpr double kLog2E = 0x1.71547652b82fep+0;

/// c[0] + c[1] x + c[2] x^2 + ..., even and odd powers apart: two half-length chains of operations that a CPU overlaps.
template <std::size_t N>
double polynomial(const std::array<double, N>& c, double x) {
  static_assert(N % 2 == 0);
  const double square = x * x;
  double even = c[N - 2];
  double odd = c[N - 1];
  for (std::size_t i = N - 2; i > 0; i -= 2) {
    even = even * square + c[i - 2];
    odd = odd * square + c[i - 1];
  }
  return even + x * odd;
}

// 2 / 3, 2 / 5, ...: 2 atanh s = 2 s + s (2 s^2 / 3 + 2 s^4 / 5 + ...).
constexpr std::array<double, 10> kAtanh{2.0 / 3.0,  2.0 / 5.0,  2.0 / 7.0,  2.0 / 9.0,  2.0 / 11.0,
                                        2.0 / 13.0, 2.0 / 15.0, 2.0 / 17.0, 2.0 / 19.0, 2.0 / 21.0};
// 1 / 2!, 1 / 3!, ..., 1 / 13!.
constexpr std::array<double, 12> kExp{1.0 / 2,       1.0 / 6,        1.0 / 24,        1.0 / 120,
                                      1.0 / 720,     1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                                      1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};

// x = k ln 2 + r with |r| <= 0.347; e^r by its Taylor series to r^13 (0.347^14 / 14! < 2^-57), then scaled by 2^k.
struct ExpParts {
  int k = 0;
  double rest = 0.0;  // e^r
};
ExpParts exp_parts(double x) {
  const auto k = static_cast<int>(x * kLog2E + (x < 0.0 ? -0.5 : 0.5));
  const double r = (x - k * kLn2Upper) - k * kLn2Lower;
  return {k, 1.0 + (r + r * r * polynomial(kExp, r))};
}
constexpr double kNormalExponent = 700.0;  // up to here, e^x and e^-x are normal numbers
double normal_exp(const ExpParts& parts) {
  return parts.rest * std::bit_cast<double>(static_cast<std::uint64_t>(parts.k + 1023) << 52U);
}

std::array<std::uint64_t, 4> seeded_state(std::int64_t seed, std::int64_t replication, std::string_view name) {
  // Each part is scrambled before the next one is added, so that neighbouring seeds and replications end up far apart.
  auto key = static_cast<std::uint64_t>(seed);
  key = split_mix(key) + static_cast<std::uint64_t>(replication);
  key = split_mix(key) + fixed_hash(name);
  std::array<std::uint64_t, 4> state{};
  for (std::uint64_t& word : state) word = split_mix(key);
  return state;
}

}  // namespace

// x = 2^k m with m in [sqrt(1/2), sqrt(2)). With f = m - 1 (exact) and s = f / (2 + f), |s| < 0.172,
//   log m = 2 atanh s = 2 s + s R,  R = 2 (s^2/3 + s^4/5 + s^6/7 + ...)
//         = f - s (f - R),
// where f has no error and the rest is at most a fifth of it. The series stops at s^20: 0.172^22 / 23 < 2^-59.
double portable_log(double x) {
  if (!(x > 0.0) || x == kInfinity) return x == 0.0 ? -kInfinity : (x == kInfinity ? kInfinity : kNaN);
  std::int64_t k = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    k = -54;
  }
  constexpr std::uint64_t kMantissa = 0x000fffffffffffffU;
  constexpr std::uint64_t kSqrtTwoMantissa = 0x0006a09e667f3bcdU;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t mantissa = bits & kMantissa;
  const bool upper_half = mantissa >= kSqrtTwoMantissa;
  k += static_cast<std::int64_t>(bits >> 52U) - 1023 + (upper_half ? 1 : 0);
  const double m = std::bit_cast<double>(mantissa | (upper_half ? 0x3fe0000000000000U : 0x3ff0000000000000U));

  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double r = z * polynomial(kAtanh, z);
  const auto exponent = static_cast<double>(k);
  return exponent * kLn2Upper - ((s * (f - r) - exponent * kLn2Lower) - f);
}

double portable_exp(double x) {
  if (std::isnan(x)) return x;
  if (x > 709.79) return kInfinity;  // log of the largest double is 709.7827
  if (x < -745.14) return 0.0;       // log of half the smallest double is -745.1332
  const ExpParts parts = exp_parts(x);
  if (parts.k < -1021 || parts.k > 1023) return std::ldexp(parts.rest, parts.k);  // subnormal or nearly infinite
  return normal_exp(parts);
}

void portable_exp(std::span<double> numbers) {
  if (std::ranges::all_of(numbers, [](double x) { return std::abs(x) <= kNormalExponent; })) {
    // Without a branch, so that compilers compute several at once.
    for (double& x : numbers) x = normal_exp(exp_parts(x));
  } else {
    for (double& x : numbers) x = portable_exp(x);
  }
}

RandomStream::RandomStream(std::int64_t seed, std::int64_t replication, std::string_view name)
    : engine_(seeded_state(seed, replication, name)) {}

double RandomStream::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  double u = 0.0;
  double v = 0.0;
  double s = 0.0;
  do {
    u = 2.0 * uniform() - 1.0;
    v = 2.0 * uniform() - 1.0;
    s = u * u + v * v;
  } while (s >= 1.0 || s == 0.0);
  const double scale = std::sqrt(-2.0 * portable_log(s) / s);  // IEEE 754 fixes the square root's last bit
  spare_ = v * scale;
  has_spare_ = true;
  return u * scale;
}

// For shape >= 1, d v with v = (1 + c z)^3 is nearly gamma: rejection makes it exact, and more than 95% are accepted.
// Below that, gamma(shape) = gamma(shape + 1) u^(1 / shape).
double RandomStream::gamma(double shape) {
  const bool boosted = shape < 1.0;
  const double d = (boosted ? shape + 1.0 : shape) - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  double v = 0.0;
  for (bool accepted = false; !accepted;) {
    const double z = normal();
    const double root = 1.0 + c * z;
    if (root <= 0.0) continue;
    v = root * root * root;
    const double log_u = portable_log(1.0 - uniform());
    accepted = log_u < 0.5 * z * z + d * (1.0 - v + portable_log(v));
  }
  if (!boosted) return d * v;
  return d * v * portable_exp(portable_log(1.0 - uniform()) / shape);
}

}  // namespace spillway
