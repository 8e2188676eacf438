// Lengths that a user states in place of those of a table or a trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/core/random.hpp"
#include "sim/core/units.hpp"
#include "traces/lognormal.hpp"

namespace spillway::traces {

/// The longest input or output that any workload may hold: above the longest context window on offer (10 million
/// tokens, Llama 4 Scout), and small enough that sums over a batch stay far from overflow.
inline constexpr std::int64_t kMaxTokens = 16'777'216;

/// A distribution of whole numbers of tokens, at least 1 and at most kMaxTokens.
class LengthDistribution {
 public:
  /// Every length is `tokens`.
  static LengthDistribution fixed(Tokens tokens);
  /// Lognormal with this mean and coefficient of variation, see lognormal_of. Rounded to whole tokens, then limited to
  /// [1, kMaxTokens]; the limits move the mean only when it is within a few standard deviations of them.
  static LengthDistribution lognormal(double mean, double cv);

  /// Uniform over the whole numbers from `middle` - h to `middle` + h, with h = `spread` * `middle`, rounded down.
  /// `spread` in [0, 1).
  static LengthDistribution uniform(Tokens middle, double spread);

  [[nodiscard]] Tokens sample(RandomStream& stream) const;
  /// False for a fixed length: sampling it draws nothing.
  [[nodiscard]] bool random() const { return kind_ != Kind::fixed; }

 private:
  enum class Kind : std::uint8_t { fixed, lognormal, uniform };
  Kind kind_ = Kind::fixed;
  Lognormal lognormal_{};
  std::int64_t least_ = 0;   // fixed: the length
  std::int64_t values_ = 1;  // uniform: how many lengths there are from least_ on
};

/// Reads "512", "uniform(MIDDLE,SPREAD)" (MIDDLE a whole number in [1, kMaxTokens / 2] tokens, SPREAD in [0, 1)) or
/// "lognormal(MEAN,CV)" (MEAN in [1, kMaxTokens] tokens, CV in [0, 100]). With `spread`, a number is the MIDDLE of
/// uniform(MIDDLE,spread). When `text` is none of these, adds to `problems` (where: `key`) and returns nothing.
[[nodiscard]] std::optional<LengthDistribution> parse_length(std::string_view text, const std::string& key,
                                                             std::vector<Problem>& problems,
                                                             std::optional<double> spread = {});

}  // namespace spillway::traces
