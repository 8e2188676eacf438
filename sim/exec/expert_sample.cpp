#include "sim/exec/expert_sample.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
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

/// The largest whole number that is at most x, |x| < 2^51 and not -0. Without a conversion, so that several are
/// computed at once.
double whole_below(double x) {
  constexpr double kNoFractions = 0x1.8p52;  // added to a smaller number, it leaves no bits for a fraction
  const double nearest = x + kNoFractions - kNoFractions;
  return nearest + (std::copysign(0.5, x - nearest) - 0.5);
}

/// In four sums, none of which waits for the others. Rounded on the way, so it depends on the order a little.
double sum_of(std::span<const double> numbers) {
  std::array<double, 4> sums{};
  std::size_t i = 0;
  for (; i + sums.size() <= numbers.size(); i += sums.size()) {
    for (std::size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += numbers[i + lane];
  }
  for (std::size_t lane = 0; i < numbers.size(); ++i, ++lane) sums[lane] += numbers[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

}  // namespace

double portable_power(double base, double exponent) {
  if (exponent == 0.0) return 1.0;
  if (base <= 0.0) return 0.0;
  if (exponent <= kMostWholePower && exponent == std::floor(exponent)) {
    return whole_power(base, static_cast<std::int64_t>(exponent));
  }
  return portable_exp(exponent * portable_log(base));
}

void raise_to_power(std::span<const double> bases, std::int64_t exponent, std::span<double> powers) {
  if (real(exponent) > kMostWholePower) {
    for (std::size_t i = 0; i < bases.size(); ++i) powers[i] = portable_power(bases[i], real(exponent));
    return;
  }
  // As whole_power(), factor by factor, of as many bases at once as a processor has registers for.
  constexpr std::size_t kAtOnce = 8;
  std::size_t first = 0;
  for (; first + kAtOnce <= bases.size(); first += kAtOnce) {
    std::array<double, kAtOnce> base{};
    std::array<double, kAtOnce> power{};
    for (std::size_t i = 0; i < kAtOnce; ++i) base[i] = bases[first + i];
    power.fill(1.0);
    for (std::int64_t left = exponent; left > 0; left >>= 1U) {
      if ((left & 1) != 0) {
        for (std::size_t i = 0; i < kAtOnce; ++i) power[i] *= base[i];
      }
      for (std::size_t i = 0; i < kAtOnce; ++i) base[i] *= base[i];
    }
    for (std::size_t i = 0; i < kAtOnce; ++i) powers[first + i] = power[i];
  }
  for (; first < bases.size(); ++first) powers[first] = whole_power(bases[first], exponent);
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
                                  std::vector<double>& parts) {
  SPILLWAY_CHECK(real(total) >= real(std::ssize(weights)),
                 "parts of at least 1 cannot add up to less than their number");
  const double scale = real(total) / sum_of(weights);
  const double highest = real(most);
  const std::size_t count = weights.size();
  parts.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    parts[i] = std::min(std::max(whole_below(weights[i] * scale), 1.0), highest);
  }
  auto left = total - static_cast<std::int64_t>(sum_of(parts));
  bool by_position = false;
  while (left != 0) {
    const double by = left > 0 ? 1.0 : -1.0;
    line_up(weights, scale, parts, by, left > 0 ? highest : 1.0);
    const std::int64_t open = std::ssize(parts) - counts_[0];
    SPILLWAY_CHECK(open > 0, "parts of 1 to " + std::to_string(most) + " cannot add up to " + std::to_string(total));
    const std::int64_t taken = std::min(open, std::abs(left));
    std::size_t last_place = kPlaces - 1;
    std::int64_t before = 0;
    for (; before + counts_[last_place] < taken; --last_place) before += counts_[last_place];
    const double beyond = static_cast<double>(last_place) + 1.0;
    for (std::size_t i = 0; i < count; ++i) parts[i] += by * (0.5 + std::copysign(0.5, places_[i] - beyond));
    last_.clear();
    for (std::size_t i = 0; (i = next_at(last_place, i)) < count; ++i) last_.push_back({whole_below(lacks_[i]), i});
    std::ranges::sort(last_, [](const Lack& a, const Lack& b) {
      return a.millionths != b.millionths ? a.millionths > b.millionths : a.part < b.part;
    });
    const auto of_last = static_cast<std::size_t>(taken - before);
    by_position |= of_last < last_.size() && last_[of_last - 1].millionths == last_[of_last].millionths;
    for (const Lack& one : std::span(last_).first(of_last)) parts[one.part] += by;
    left = left > 0 ? left - taken : left + taken;
  }
  return by_position;
}

void LargestRemainder::line_up(std::span<const double> weights, double scale, std::span<const double> parts, double by,
                               double bound) {
  const std::size_t count = weights.size();
  lacks_.resize(count);
  places_.resize(count);
  whole_places_.resize(count);
  // Rounded to a millionth, halves up: remainders that are equal but for the rounding on their way are equal.
  constexpr double kMillion = 1e6;
  for (std::size_t i = 0; i < count; ++i) {
    lacks_[i] = (weights[i] * scale - parts[i]) * kMillion + (kOffset + 0.5);
  }
  if (by < 0.0) {
    // The part that has the most too many gives up one first.
    for (double& lack : lacks_) lack = 2.0 * kOffset - whole_below(lack);
  }
  // A place holds a power of two of millionths, so the division rounds nothing: no fraction of a millionth changes it.
  for (std::size_t i = 0; i < count; ++i) {
    places_[i] = std::min(std::max(lacks_[i] / kPerPlace, 1.0), kPlaces - 1.0);
  }
  for (std::size_t i = 0; i < count; ++i) places_[i] *= std::min(std::abs(parts[i] - bound), 1.0);
  counts_.fill(0);
  std::uint8_t* whole_place = whole_places_.data();
  for (const double each : places_) {
    const auto place = static_cast<std::int32_t>(each);
    *whole_place++ = static_cast<std::uint8_t>(place);
    ++counts_[static_cast<std::size_t>(place)];
  }
}

std::size_t LargestRemainder::next_at(std::size_t place, std::size_t from) const {
  const auto* const at = static_cast<const std::uint8_t*>(
      std::memchr(whole_places_.data() + from, static_cast<int>(place), whole_places_.size() - from));
  return at == nullptr ? whole_places_.size() : static_cast<std::size_t>(at - whole_places_.data());
}

}  // namespace spillway
