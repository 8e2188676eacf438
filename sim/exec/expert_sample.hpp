// The parts of a draw of experts: popularity by rank, a systematic sample, whole tokens by largest remainder.
//
// Madow's systematic sampling (Annals of Mathematical Statistics 20, 1949). Independent of the machine: chances are
// held in 32.32 fixed point while they are summed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spillway {

/// pi by rank: min(1, c p), whose sum is `top_k`, 1 <= top_k <= weights. Weights > 0. O(weights * those that reach 1).
[[nodiscard]] std::vector<double> water_filling(std::span<const double> weights, double top_k);
/// 1 - (1 - pi)^tokens, summed: distinct experts that independent tokens use.
[[nodiscard]] double distinct_experts(std::span<const double> pi, std::int64_t tokens);

/// base^exponent for base in [0, 1], exponent >= 0; the same bits on every machine.
[[nodiscard]] double portable_power(double base, double exponent);
/// `powers[i]` = portable_power(bases[i], exponent) for each i, to the same bits; up to 2^20, several times as fast. As
/// many of both.
void raise_to_power(std::span<const double> bases, std::int64_t exponent, std::span<double> powers);
/// A number whose powers are wanted again and again.
struct PowerBase {
  double base = 0.0;
  double log = 0.0;  // portable_log; 0 where base is 0
  [[nodiscard]] static PowerBase of(double base);
};
/// Many powers at once, several times as fast as one by one. An object, so that calls reuse its memory.
class PortablePowers {
 public:
  /// portable_power(bases[i].base, exponents[i]) for each i, to the same bits. As many bases, in [0, 1], as exponents,
  /// >= 0. Valid until the next call. O(n).
  [[nodiscard]] std::span<const double> operator()(std::span<const PowerBase> bases, std::span<const double> exponents);

 private:
  std::vector<double> powers_;
  std::vector<std::int32_t> whole_;  // the exponents that are whole; -1 for the others
};

/// One in 32.32 fixed point.
inline constexpr std::int64_t kFixedOne = std::int64_t{1} << 32;
/// A chance, at least 0 and at most 1.
[[nodiscard]] constexpr std::int64_t to_fixed(double chance) {
  return static_cast<std::int64_t>(std::min(std::max(chance, 0.0), 1.0) * static_cast<double>(kFixedOne) + 0.5);
}

/// The order in which a systematic sample visits `count` experts: (step j + first) mod count.
struct SampleOrder {
  std::uint32_t step = 1;  // coprime with count
  std::uint32_t first = 0;
  /// From a hash: a step that is coprime with count, and a start.
  [[nodiscard]] static SampleOrder of(std::uint64_t hash, std::int32_t count);
};

/// How many experts a systematic sample draws whose chances add up to `sum`.
[[nodiscard]] constexpr std::int64_t sample_size(std::int64_t sum, std::int64_t u) {
  return (kFixedOne - 1 - u + sum) >> 32U;
}

/// Of a count above 0.
[[nodiscard]] constexpr bool is_power_of_two(std::uint64_t count) {
  return (count & (count - 1)) == 0;  // std::has_single_bit() is a call where a processor may lack the instruction
}

/// Experts, as many as `room` is long, for which a point u, 1 + u, 2 + u, ... lies in their part of the running sum of
/// `chance(e)`, in the order of the visit. They are written to the start of `room`, the rest of which may be
/// overwritten. Chances, 0 to 1, and `u` < 1 in fixed point. O(experts), without a branch for each.
template <class Chance>
[[nodiscard]] std::span<std::int32_t> systematic_sample(const Chance& chance, std::int64_t u, const SampleOrder& order,
                                                        std::span<std::int32_t> room) {
  std::int32_t* const all = room.data();
  const auto size = static_cast<std::uint32_t>(room.size());
  // The running sum, shifted by 1 - u: its whole part is the number drawn so far.
  auto sum = static_cast<std::uint64_t>(kFixedOne - 1 - u);
  const auto visit = [&](std::uint32_t expert) {
    all[sum >> 32U] = static_cast<std::int32_t>(expert);  // overwritten unless the sum passes a whole number
    sum += static_cast<std::uint64_t>(chance(expert));
  };
  constexpr std::uint32_t kAtATime = 4;
  if (size >= kAtATime && is_power_of_two(size)) {
    std::uint32_t position = order.first;
    for (std::uint32_t j = 0; j < size; j += kAtATime) {
      for (std::uint32_t i = 0; i < kAtATime; ++i, position += order.step) visit(position & (size - 1));
    }
    return room.first(sum >> 32U);
  }
  const auto wrapped = [size](std::uint32_t expert) {
    const std::uint32_t less = expert - size;  // beyond 2^31 where nothing is to be wrapped
    return less < expert ? less : expert;
  };
  // Several at a time, so that the number of one need not wait for that of the one before.
  std::array<std::uint32_t, kAtATime> experts{order.first};
  for (std::uint32_t i = 1; i < kAtATime; ++i) experts[i] = wrapped(experts[i - 1] + order.step);
  const std::uint32_t leap = order.step * kAtATime % size;
  for (std::uint32_t j = kAtATime; j <= size; j += kAtATime) {
    for (std::uint32_t& expert : experts) {
      visit(expert);
      expert = wrapped(expert + leap);
    }
  }
  for (std::uint32_t i = 0; i < size % kAtATime; ++i) visit(experts[i]);
  return room.first(sum >> 32U);
}

/// Shares whole numbers by largest remainder. An object, so that calls reuse its memory.
class LargestRemainder {
 public:
  /// Whole numbers in the proportions of `weights` (> 0), whose sum is `total`, each from 1 to `most`:
  /// size <= total <= size * most, total < 2^31. Remainders are compared to a millionth; of equal ones the first
  /// counts. Returns whether that decided anything: if not, the weights in any order give each the same part. O(n).
  bool operator()(std::span<const double> weights, std::int64_t total, std::int64_t most, std::vector<double>& parts);

 private:
  // Numbers are doubles: every processor computes several of these at once.
  static constexpr double kOffset = 1 << 20;  // more than a million: in the first round, lacks_ are above 0
  static constexpr std::size_t kPlaces = 128;
  static constexpr double kPerPlace = 2.0 * kOffset / kPlaces;  // millionths
  struct Lack {
    double millionths = 0.0;
    std::size_t part = 0;
  };
  /// Puts each part in a place from 1 on, the last of which change by `by` first, and those at `bound` in 0.
  void line_up(std::span<const double> weights, double scale, std::span<const double> parts, double by, double bound);
  /// The first part from `from` on that is in `place`, or their number.
  [[nodiscard]] std::size_t next_at(std::size_t place, std::size_t from) const;

  // Of each part, where fractions of millionths and places do not count:
  std::vector<double> lacks_;  // what it lacks, or has too many for `by` < 0: millionths + kOffset
  std::vector<double> places_;
  std::vector<std::uint8_t> whole_places_;      // without fractions
  std::array<std::int64_t, kPlaces> counts_{};  // of parts, by place
  std::vector<Lack> last_;                      // of the place in which some change and some do not
};

}  // namespace spillway
