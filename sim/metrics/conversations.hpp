// Conversations over time: how many are live, and how many have their KV kept after a turn.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sim/core/number_map.hpp"
#include "sim/core/units.hpp"
#include "sim/metrics/sample_series.hpp"

namespace spillway {

/// Counts live conversations: a conversation lives from the arrival of its first turn until a turn ends and no other
/// one is to come. Averages them over the measured span. O(1) per call; memory O(live conversations).
class ConversationMeter {
 public:
  /// The measured span begins then, not before the last call; kNever, as at first: not known yet.
  void measure_from(SimTime begin) { begin_ = begin; }
  /// A turn arrives. Numbers below 0 are requests of no conversation.
  void arrived(std::int64_t conversation, SimTime now) {
    if (conversation < 0) return;
    advance(now);
    ++live_turns_[conversation];
  }
  /// A turn has ended. `goes_on`: another one is to come.
  void ended(std::int64_t conversation, bool goes_on, SimTime now) {
    std::int64_t* const turns = live_turns_.find(conversation);
    if (turns == nullptr) return;
    advance(now);
    if (--*turns == 0 && !goes_on) live_turns_.erase(conversation);
  }
  /// The measured span reaches up to `now` at least.
  void reached(SimTime now) {
    advance(now);
    in_span_ = so_far_;
  }

  [[nodiscard]] std::int64_t live() const { return static_cast<std::int64_t>(live_turns_.size()); }
  /// Integral over the measured span up to the last reached() in conversation-seconds, and the most at once. States
  /// that do not last are not seen.
  [[nodiscard]] double live_time() const { return static_cast<double>(in_span_.nanoseconds) * 1e-9; }
  [[nodiscard]] std::int64_t peak() const { return in_span_.peak; }

 private:
  __extension__ using Wide = __int128;  // holds a million conversations over a century in nanoseconds
  struct Sums {
    Wide nanoseconds = 0;
    std::int64_t peak = 0;
  };
  void advance(SimTime now) {
    const SimTime from = std::max(advanced_, begin_);
    advanced_ = std::max(advanced_, now);
    if (now <= from) return;
    so_far_.nanoseconds += Wide{live()} * (now - from).count();
    so_far_.peak = std::max(so_far_.peak, live());
  }

  NumberMap<std::int64_t> live_turns_;  // turns in flight of each live conversation
  SimTime begin_ = kNever;
  SimTime advanced_{};
  Sums so_far_{};
  Sums in_span_{};
};

/// Conversations at one instant. One whose KV is on the GPU and on the host counts as both.
struct ConversationCounts {
  std::int64_t live = 0;
  std::int64_t cached = 0;  // some KV of them is kept, and no request holds it
  std::int64_t cached_on_gpu = 0;
  std::int64_t cached_on_host = 0;
};
using ConversationSeries = SampleSeries<ConversationCounts>;
using ConversationSample = ConversationSeries::Sample;

}  // namespace spillway
