// Random numbers that are the same on every machine: named streams and the distributions drawn from them.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

namespace spillway {

/// Natural logarithm by IEEE + - * / alone, within 2 ulp. glibc's `log` is not used because it picks a fused
/// multiply-add variant by CPU at run time, which changes last bits. log(0) = -inf; a negative number or NaN gives NaN.
[[nodiscard]] double portable_log(double x);
/// e^x computed in the same way, within 2 ulp (results below the smallest normal number: 1 unit of that number's last
/// place).
[[nodiscard]] double portable_exp(double x);
/// portable_exp of each number, in place, to the same bits. O(n); several times as fast if all are in [-700, 700].
void portable_exp(std::span<double> numbers);

/// One step of SplitMix64: advances `state` and returns the next output.
/// Source: Steele, Lea and Flood, OOPSLA 2014; constants of prng.di.unimi.it/splitmix64.c.
constexpr std::uint64_t split_mix(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15U;
  std::uint64_t z = state;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

/// 64-bit FNV-1a of the bytes of `text`: a hash that never changes with the standard library.
constexpr std::uint64_t fixed_hash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

/// xoshiro256**: period 2^256 - 1. Source: Blackman and Vigna, ACM TOMS 47(4), 2021;
/// prng.di.unimi.it/xoshiro256starstar.c.
class Xoshiro256 {
 public:
  /// At least one word of `state` must not be zero.
  constexpr explicit Xoshiro256(const std::array<std::uint64_t, 4>& state) : state_(state) {}
  constexpr std::uint64_t next() {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17U;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

 private:
  std::array<std::uint64_t, 4> state_;
};

/// The random numbers of one purpose. Streams of different (seed, replication, name) are independent: a purpose that
/// draws more or fewer numbers never shifts those of another purpose, so policies can be compared on the same traffic.
class RandomStream {
 public:
  /// `name` is the purpose, e.g. "workload.arrival".
  RandomStream(std::int64_t seed, std::int64_t replication, std::string_view name);

  std::uint64_t next_u64() { return engine_.next(); }
  /// Uniform in [0, 1), a multiple of 2^-53.
  double uniform() { return static_cast<double>(engine_.next() >> 11U) * 0x1p-53; }
  /// Exponential with this mean (>= 0), by inversion: one draw. At most 36.8 means.
  double exponential(double mean) { return -mean * portable_log(1.0 - uniform()); }
  /// Standard normal by Marsaglia's polar method; every second call returns the pair's other half.
  double normal();
  /// Gamma with this shape (> 0) and scale 1, mean `shape`: Marsaglia and Tsang, ACM TOMS 26(3), 2000. A varying number
  /// of draws. Below a shape of 0.05 results may be too small for a double and become 0.
  double gamma(double shape);
  /// e^N(mu, sigma^2).
  double lognormal(double mu, double sigma) { return portable_exp(mu + sigma * normal()); }

 private:
  Xoshiro256 engine_;
  double spare_ = 0.0;
  bool has_spare_ = false;
};

}  // namespace spillway
