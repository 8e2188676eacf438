// Quantities as types. Only dimensionally valid operators compile.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>

namespace spillway {

/// An int64 count of one unit. `Tag` names the unit; different tags do not mix.
template <class Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t count) : count_(count) {}
  [[nodiscard]] constexpr std::int64_t count() const { return count_; }
  constexpr auto operator<=>(const Quantity&) const = default;

  constexpr Quantity& operator+=(Quantity other) {
    count_ += other.count_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    count_ -= other.count_;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.count_ + b.count_); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.count_ - b.count_); }
  friend constexpr Quantity operator*(Quantity a, std::int64_t n) { return Quantity(a.count_ * n); }
  friend constexpr Quantity operator*(std::int64_t n, Quantity a) { return a * n; }
  /// How many whole times `b` fits into `a`; b must not be zero.
  friend constexpr std::int64_t operator/(Quantity a, Quantity b) { return a.count_ / b.count_; }

 private:
  std::int64_t count_ = 0;
};

using Bytes = Quantity<struct BytesTag>;
using Tokens = Quantity<struct TokensTag>;
using Blocks = Quantity<struct BlocksTag>;
/// Nanoseconds between two instants.
using Duration = Quantity<struct DurationTag>;

/// An instant of simulated time: nanoseconds since the start of the run (292 years fit).
class SimTime {
 public:
  constexpr SimTime() = default;
  constexpr explicit SimTime(std::int64_t ns) : ns_(ns) {}
  [[nodiscard]] constexpr std::int64_t ns() const { return ns_; }
  constexpr auto operator<=>(const SimTime&) const = default;
  friend constexpr SimTime operator+(SimTime t, Duration d) { return SimTime(t.ns_ + d.count()); }
  friend constexpr SimTime operator-(SimTime t, Duration d) { return SimTime(t.ns_ - d.count()); }
  friend constexpr Duration operator-(SimTime a, SimTime b) { return Duration(a.ns_ - b.ns_); }

 private:
  std::int64_t ns_ = 0;
};

inline constexpr SimTime kNever{INT64_MAX};

/// Bytes per second; a rate is a measured or published figure, hence real.
class BytesPerSecond {
 public:
  constexpr BytesPerSecond() = default;
  constexpr explicit BytesPerSecond(double value) : value_(value) {}
  [[nodiscard]] constexpr double value() const { return value_; }
  constexpr auto operator<=>(const BytesPerSecond&) const = default;

 private:
  double value_ = 0.0;
};

/// A count in floating point.
[[nodiscard]] inline constexpr double real(std::int64_t count) { return static_cast<double>(count); }

/// Rounds a model's real seconds, once, to the nearest nanosecond (halves up). seconds >= 0.
inline Duration round_seconds(double seconds) {
  return Duration(static_cast<std::int64_t>(std::floor(seconds * 1e9 + 0.5)));
}
inline constexpr double to_seconds(Duration d) { return static_cast<double>(d.count()) * 1e-9; }
inline constexpr double to_seconds(SimTime t) { return static_cast<double>(t.ns()) * 1e-9; }
/// Time to move `bytes` at `rate`, unrounded seconds.
inline constexpr double operator/(Bytes bytes, BytesPerSecond rate) {
  return static_cast<double>(bytes.count()) / rate.value();
}

/// a / b for 0 <= a and 0 < b. A 64-bit division costs up to 90 cycles on CPUs of 2019, a 32-bit division 26.
inline constexpr std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}
/// Blocks that `tokens` occupy when one block holds `per_block` tokens; tokens >= 0.
inline constexpr Blocks blocks_for(Tokens tokens, Tokens per_block) {
  return Blocks(quotient(tokens.count() + per_block.count() - 1, per_block.count()));
}

}  // namespace spillway
