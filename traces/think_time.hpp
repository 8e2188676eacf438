// How long a user thinks before the next turn of a conversation.
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

/// The longest mean, and the longest single, think time: a year.
inline constexpr double kMaxThinkSeconds = 31'536'000.0;

/// A distribution of think times, each from the end of a response to the arrival of the next turn.
class ThinkTime {
 public:
  /// The trace states think times.
  static ThinkTime of_trace();
  static ThinkTime constant(double seconds);
  static ThinkTime exponential(double mean_seconds);
  /// With this mean and coefficient of variation, see lognormal_of.
  static ThinkTime lognormal(double mean_seconds, double cv);

  [[nodiscard]] bool from_trace() const { return kind_ == Kind::of_trace; }
  /// False if sampling draws nothing: think times are constant or the trace's.
  [[nodiscard]] bool random() const { return kind_ == Kind::exponential || kind_ == Kind::lognormal; }
  /// 0 when the trace states them.
  [[nodiscard]] double mean_seconds() const;
  /// What is left of the think time that holds an instant drawn evenly over many of them: a share, drawn evenly, of a
  /// think time drawn in proportion to its length. For exponential think times it is exponential again.
  [[nodiscard]] Duration sample_remainder(RandomStream& stream) const;
  /// At most kMaxThinkSeconds, in whole nanoseconds; 0 when the trace states them.
  [[nodiscard]] Duration sample(RandomStream& stream) const;

 private:
  enum class Kind : std::uint8_t { of_trace, constant, exponential, lognormal };
  Kind kind_ = Kind::of_trace;
  double mean_s_ = 0.0;
  Lognormal lognormal_{};
};

/// Reads "trace", "constant(10s)", "exponential(60s)", a duration alone ("60s": exponential with this mean) or
/// "lognormal(MEAN,CV)", e.g. "lognormal(120s,2)" (CV in [0, 100]). When `text` is none of these, adds to `problems`
/// (where: `key`) and returns nothing.
[[nodiscard]] std::optional<ThinkTime> parse_think_time(std::string_view text, const std::string& key,
                                                        std::vector<Problem>& problems);

}  // namespace spillway::traces
