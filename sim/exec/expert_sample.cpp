#include "sim/exec/expert_sample.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string>

#include "sim/core/error.hpp"
#include "sim/core/random.hpp"
#include "sim/core/units.hpp"

namespace spillway {
namespace {

constexpr double kMostWholePower = 1 << 20;

double whole_power(double base, std::int64_t exponent) {
  double power = 1.0;
  for (; exponent > 0; exponent >>= 1U, base *= base) power *= (exponent & 1) != 0 ? base : 1.0;
  return power;
}

/// Remainders that are equal but for the rounding on their way are equal.
std::int64_t to_millionths(double x) {
  const double rounded = x * 1e6 + 0.5;
  const auto whole = static_cast<std::int64_t>(rounded);
  return whole - static_cast<std::int64_t>(real(whole) > rounded);  // the floor of negative ones, too
}

/// Where the largest of many numbers end: by a count over ranges of them, which most lie in.
class LargestOf {
 public:
  void clear() { counts_.fill(0); }
  /// Without a branch: a number that is not `wanted` counts for nothing. The others are at most a million.
  void add(std::int64_t number, bool wanted) { counts_[range(number)] += static_cast<std::int32_t>(wanted); }
  /// The range in which number `taken` of the largest ones lies, and how many are above that range.
  struct End {
    std::int64_t lowest = 0;  // number of the range
    std::int64_t beyond = 0;  // the next number above it
    std::int64_t above = 0;
  };
  [[nodiscard]] End end_of(std::int64_t taken) const {
    End end;
    std::int64_t range = kRanges - 1;
    const auto count = [this, &range] { return counts_[static_cast<std::size_t>(range)]; };
    for (; end.above + count() < taken; --range) end.above += count();
    end.lowest = range == 0 ? std::numeric_limits<std::int64_t>::min() : range << kShift;
    end.beyond = (range + 1) << kShift;
    return end;
  }

 private:
  /// Ascends with the number.
  [[nodiscard]] static std::size_t range(std::int64_t number) {
    return static_cast<std::size_t>(std::clamp<std::int64_t>(number >> kShift, 0, kRanges - 1));
  }
  static constexpr unsigned kShift = 14;
  static constexpr std::int64_t kRanges = 64;  // a million >> kShift, and some more
  std::array<std::int32_t, kRanges> counts_{};
};

}  // namespace

double portable_power(double base, double exponent) {
  if (exponent == 0.0) return 1.0;
  if (base <= 0.0) return 0.0;
  if (exponent <= kMostWholePower && exponent == std::floor(exponent)) {
    return whole_power(base, static_cast<std::int64_t>(exponent));
  }
  return portable_exp(exponent * portable_log(base));
}

void raise_to_power(std::span<double> bases, std::int64_t exponent, std::span<double> powers) {
  if (real(exponent) > kMostWholePower) {
    for (std::size_t i = 0; i < bases.size(); ++i) powers[i] = portable_power(bases[i], real(exponent));
    return;
  }
  // As whole_power(), factor by factor, so that all bases are multiplied at once.
  std::ranges::fill(powers, 1.0);
  for (; exponent > 0; exponent >>= 1U) {
    if ((exponent & 1) != 0) {
      for (std::size_t i = 0; i < bases.size(); ++i) powers[i] *= bases[i];
    }
    for (double& base : bases) base *= base;
  }
}

PowerBase PowerBase::of(double base) { return {base, base > 0.0 ? portable_log(base) : 0.0}; }

std::span<const double> PortablePowers::operator()(std::span<const PowerBase> bases,
                                                   std::span<const double> exponents) {
  const std::size_t count = bases.size();
  powers_.resize(count);
  whole_.resize(count);
  bool any = false;
  bool all = true;
  for (std::size_t i = 0; i < count; ++i) {
    const auto whole = static_cast<std::int32_t>(std::min(exponents[i], kMostWholePower));
    const bool is_whole = real(whole) == exponents[i];
    whole_[i] = is_whole ? whole : -1;
    any |= is_whole;
    all &= is_whole;
  }
  if (!all) {
    for (std::size_t i = 0; i < count; ++i) powers_[i] = exponents[i] * bases[i].log;
    portable_exp(powers_);
    for (std::size_t i = 0; i < count; ++i) powers_[i] = bases[i].base > 0.0 ? powers_[i] : 0.0;
  }
  for (std::size_t i = 0; any && i < count; ++i) {
    if (whole_[i] >= 0) powers_[i] = whole_power(bases[i].base, whole_[i]);
  }
  return powers_;
}

std::vector<double> water_filling(std::span<const double> weights, double top_k) {
  std::vector<double> pi(weights.size(), 0.0);
  double open = std::accumulate(weights.begin(), weights.end(), 0.0);
  double left = top_k;
  for (bool filled = true; filled;) {
    filled = false;
    const double c = open > 0.0 ? left / open : 0.0;
    for (std::size_t e = 0; e < weights.size(); ++e) {
      if (pi[e] == 1.0 || weights[e] * c < 1.0) continue;
      pi[e] = 1.0;
      open -= weights[e];
      left -= 1.0;
      filled = true;
    }
  }
  for (std::size_t e = 0; e < weights.size(); ++e) {
    if (pi[e] < 1.0) pi[e] = std::min(1.0, weights[e] * (left / open));
  }
  return pi;
}

double distinct_experts(std::span<const double> pi, std::int64_t tokens) {
  return std::accumulate(pi.begin(), pi.end(), 0.0, [tokens](double sum, double one) {
    return sum + 1.0 - portable_power(1.0 - one, real(tokens));
  });
}

SampleOrder SampleOrder::of(std::uint64_t hash, std::int32_t count) {
  const auto size = static_cast<std::uint64_t>(count);
  if (is_power_of_two(size)) {
    const std::uint64_t last = size - 1;
    return {static_cast<std::uint32_t>((hash | 1U) & last), static_cast<std::uint32_t>((hash >> 32U) & last)};
  }
  std::uint64_t step = (hash % size) | 1U;
  while (std::gcd(step, size) != 1) step += 2;
  return {static_cast<std::uint32_t>(step % size), static_cast<std::uint32_t>((hash >> 32U) % size)};
}

bool LargestRemainder::operator()(std::span<const double> weights, std::int64_t total, std::int64_t most,
                                  std::vector<std::int64_t>& parts) {
  const double scale = real(total) / std::accumulate(weights.begin(), weights.end(), 0.0);
  const std::size_t count = weights.size();
  parts.resize(count);
  lacks_.resize(count);
  last_.resize(count);
  std::int64_t left = total;
  LargestOf largest;  // counted in this loop already: most often, some parts must grow
  std::int64_t candidates = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double share = weights[i] * scale;
    parts[i] = std::min(std::max(static_cast<std::int64_t>(share), std::int64_t{1}), most);
    lacks_[i] = to_millionths(share - real(parts[i]));
    left -= parts[i];
    largest.add(lacks_[i], parts[i] != most);
    candidates += static_cast<std::int64_t>(parts[i] != most);
  }
  bool by_position = false;
  for (bool counted = left > 0; left != 0; counted = false) {
    const std::int64_t by = left > 0 ? 1 : -1;
    // A part that gives up one is the one that has most of what it should not have.
    const std::int64_t bound = by > 0 ? most : 1;
    if (!counted) {
      largest.clear();
      candidates = 0;
      for (std::size_t i = 0; i < count; ++i) {
        lacks_[i] = to_millionths(weights[i] * scale - real(parts[i]));
        largest.add(by * lacks_[i], parts[i] != bound);
        candidates += static_cast<std::int64_t>(parts[i] != bound);
      }
    }
    SPILLWAY_CHECK(candidates > 0,
                   "parts of 1 to " + std::to_string(most) + " cannot add up to " + std::to_string(total));
    const std::int64_t taken = std::min(candidates, std::abs(left));
    const LargestOf::End end = largest.end_of(taken);
    std::size_t of_range = 0;
    for (std::size_t i = 0; i < count; ++i) {
      // Without a branch: no processor can predict these.
      const std::int64_t lack = by * lacks_[i];
      const auto open = static_cast<std::size_t>(parts[i] != bound);
      const auto above = static_cast<std::size_t>(lack >= end.beyond);
      last_[of_range] = i;
      of_range += open & ~above & static_cast<std::size_t>(lack >= end.lowest);
      parts[i] += by * static_cast<std::int64_t>(open & above);
    }
    const std::span<std::size_t> last = std::span(last_).first(of_range);
    std::ranges::sort(last, [this, by](std::size_t a, std::size_t b) {
      return lacks_[a] != lacks_[b] ? by * lacks_[a] > by * lacks_[b] : a < b;
    });
    const auto of_last = static_cast<std::size_t>(taken - end.above);
    by_position |= of_last < last.size() && lacks_[last[of_last - 1]] == lacks_[last[of_last]];
    for (const std::size_t i : last.first(of_last)) parts[i] += by;
    left -= by * taken;
  }
  return by_position;
}

}  // namespace spillway
