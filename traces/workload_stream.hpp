// The requests of a workload in order of arrival; later turns wait for the answer to the turn before.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "sim/api/request_source.hpp"
#include "traces/live_conversations.hpp"
#include "traces/turn_planner.hpp"

namespace spillway::traces {

/// Delivers the plan of a TurnPlanner.
///
///  * A request alone, or the first turn of a conversation, arrives when the arrival process says. Live conversations
///    come in between at their times.
///  * A later turn of a whole conversation arrives its think time after the end of the answer before.
///  * A row of a log arrives at its time, but not before the turn before is answered and its think time, if the row
///    states one, is over.
///  * A turn that is not answered (rejected, timed out) ends its conversation: see unsent.
///  * Of requests that are all due at 0, as in a closed loop, a later turn that is due comes before a new conversation.
///
/// Memory: the remaining turns of the conversations that have started. For a log: the rows that wait for an answer, and
/// some 300 bytes for each of the last TurnPlanner::kKnown conversations. Cost: O(log conversations) per turn, and
/// O(blocks of the context) to name its content.
class WorkloadStream final : public RequestSource {
 public:
  /// `live`: given if the plan is stationary.
  WorkloadStream(const StreamPlan& plan, std::optional<QuantileTable> table, std::unique_ptr<TraceReader> file,
                 std::unique_ptr<LiveConversations> live, std::int64_t seed, std::int64_t replication);

  [[nodiscard]] SimTime next_arrival() override;
  bool next(RequestSpec& request) override;
  void ended(const RequestRecord& record) override;
  /// Of a log, only a turn whose row has been read is known.
  [[nodiscard]] SimTime next_turn(std::int64_t conversation) const override;
  [[nodiscard]] std::int64_t expected() const override { return requests_; }
  [[nodiscard]] std::int64_t unsent() const override { return unsent_; }
  [[nodiscard]] std::int64_t shortened() const override { return shortened_; }

 private:
  struct Conversation {
    std::vector<PlannedTurn> turns;  // those from `next` on are still to come
    std::size_t next = 0;
    bool waits = false;                        // for an answer, or for the time of its next turn
    bool over = false;                         // a turn was not answered
    SimTime answered{};                        // end of the last answer
    SimTime due = kNever;                      // when the turn comes, or came, that follows the last answer
    std::list<std::int64_t>::iterator idle{};  // position in idle_; only of a log's conversation that does not wait
    [[nodiscard]] bool has_more() const { return next < turns.size(); }
  };
  struct Due {
    SimTime time{};
    std::int64_t sequence = 0;
    std::int64_t conversation = 0;
    /// For a priority queue whose top is the earliest.
    bool operator<(const Due& other) const {
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };

  bool look_ahead();
  [[nodiscard]] bool starts_next() const;
  bool take_ahead(RequestSpec& request);
  bool take_log_row(RequestSpec& request);
  void take_due(RequestSpec& request);
  void schedule(std::int64_t number, Conversation& conversation);
  void rest(std::int64_t number, Conversation& conversation);
  void deliver(PlannedTurn& turn, SimTime arrival, RequestSpec& request);

  std::unique_ptr<LiveConversations> live_;
  TurnPlanner planner_;
  ArrivalClock arrivals_;
  std::int64_t requests_;
  Tokens block_tokens_;
  bool whole_conversations_;
  bool all_due_;        // every start is due at 0
  PlannedTurns fresh_;  // the next conversation that starts in the run
  SimTime fresh_time_{};
  bool fresh_ready_ = false;
  PlannedTurns ahead_;  // that one or a live one
  SimTime ahead_time_{};
  bool ahead_ready_ = false;
  std::unordered_map<std::int64_t, Conversation> conversations_;  // by number
  std::priority_queue<Due> due_;
  std::list<std::int64_t> idle_;  // conversations of a log that wait for nothing, longest idle first
  std::int64_t scheduled_ = 0;
  std::int64_t delivered_ = 0;
  std::int64_t unsent_ = 0;
  std::int64_t shortened_ = 0;
  SimTime now_{};  // end of the last request that has ended
};

}  // namespace spillway::traces
