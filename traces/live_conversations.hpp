// Conversations that have started before the run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sim/core/random.hpp"
#include "traces/turn_planner.hpp"

namespace spillway::traces {

/// The conversations between two turns at time 0, as if conversations had always started at the plan's mean rate and
/// every answer took no time. Each is somewhere in the think time before its next turn.
///
/// With Poisson starts these are the customers of an M/G/infinity queue in balance: a conversation whose think times
/// add up to L is there with Poisson(rate of such conversations x L) copies, and time 0 falls evenly into its L. So the
/// think time that holds time 0 is drawn in proportion to its length (Cox, Renewal Theory, 1962, section 5.4). Other
/// arrival processes get the same number. Turns before the next one are not played, but the next prompt repeats them.
///
/// Conversations of a table are drawn when they are asked for: 8 bytes each before. Those of a file are kept from the
/// beginning.
class LiveConversations {
 public:
  /// The most conversations: the memory of a run stays small.
  static constexpr std::int64_t kMost = 10'000'000;

  /// As TurnPlanner; `plan` is one of whole conversations with plan.starts and a mean gap. Reads the whole file. Draws
  /// from the streams of TurnPlanner and from "start", each named "workload.live.". Throws ConfigError when more than
  /// kMost would live.
  LiveConversations(StreamPlan plan, std::optional<QuantileTable> table, std::unique_ptr<TraceReader> file,
                    std::int64_t seed, std::int64_t replication);

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(waiting_.size()); }
  /// When the next conversation sends its next turn; kNever when each has been taken.
  [[nodiscard]] SimTime next_time() const { return at_ < waiting_.size() ? waiting_[at_].time : kNever; }
  /// Takes that conversation, with its next turn first. Their numbers are 0, 1, ... in this order.
  void take(PlannedTurns& planned);

 private:
  struct Waiting {
    SimTime time{};
    std::size_t of_file = 0;  // index in from_file_
  };

  void draw_table(double mean_turns, double mean_gap_s);
  void read_file(double mean_gap_s, std::int64_t starts);
  void add(Duration wait, std::size_t of_file);
  [[nodiscard]] std::int64_t poisson(double mean);

  StreamPlan plan_;
  std::optional<QuantileTable> table_;
  TurnPlanner planner_;
  RandomStream stream_;
  std::vector<Waiting> waiting_;  // in order of time
  std::vector<PlannedTurns> from_file_;
  std::size_t at_ = 0;
};

}  // namespace spillway::traces
