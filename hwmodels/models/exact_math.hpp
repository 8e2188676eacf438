// Elementary functions that give the same bits on every machine: IEEE + - * / and sqrt only.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace spillway::hwmodels {

/// log2 with straight lines between powers of two: exact there, at most 0.0861 below log2 between them. x > 0 and
/// normal. It only measures the distance of two shapes, for which a monotone scale is enough.
[[nodiscard]] inline double log2_line(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto exponent = static_cast<double>(static_cast<std::int64_t>(bits >> 52U) - 1023);
  const auto mantissa = std::bit_cast<double>((bits & 0x000F'FFFF'FFFF'FFFFU) | 0x3FF0'0000'0000'0000U);
  return exponent + (mantissa - 1.0);
}

/// e^x for x in [-2, 2], and e^-2 or e^2 outside: the fourth power of the [2/2] Pade approximant at x / 4, whose
/// relative error is below 2e-4.
[[nodiscard]] inline double exp_near_zero(double x) {
  const double y = std::clamp(x, -2.0, 2.0) / 4.0;
  const double even = 1.0 + y * y / 12.0;
  const double quarter = (even + y / 2.0) / (even - y / 2.0);
  return (quarter * quarter) * (quarter * quarter);
}

/// (a^p + b^p)^(1/p) for a, b >= 0 and p one of kNormExponents: the sum at p = 1, near the larger one at p = 8.
inline constexpr std::array<double, 5> kNormExponents{1.0, 1.5, 2.0, 4.0, 8.0};
[[nodiscard]] inline double p_norm(double a, double b, double p) {
  const double larger = std::max(a, b);
  if (larger <= 0.0) return 0.0;
  double power = std::min(a, b) / larger;
  if (p == 1.5) {
    power *= std::sqrt(power);
    // The cube root of a number in [1, 4]: a parabola within 1.2% of it, then two steps of Halley's method. Each step
    // reduces an error e to about 2/3 e^3.
    const double square = (1.0 + power) * (1.0 + power);
    double root = 1.0 + (square - 1.0) * (0.2805 - 0.02823 * (square - 1.0));
    for (int i = 0; i < 2; ++i) {
      const double cube = root * root * root;
      root *= (cube + 2.0 * square) / (2.0 * cube + square);
    }
    return larger * root;
  }
  for (double q = p; q > 1.0; q *= 0.5) power *= power;
  double root = 1.0 + power;
  for (double q = p; q > 1.0; q *= 0.5) root = std::sqrt(root);
  return larger * root;
}

}  // namespace spillway::hwmodels
