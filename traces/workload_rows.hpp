// A workload's requests as the rows of a trace that would bring them about again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "traces/readers/trace_reader.hpp"
#include "traces/turn_planner.hpp"

namespace spillway::traces {

/// Writes down what a TurnPlanner plans: a request alone and the first turn of a conversation with its arrival, the
/// later turns behind it with their think times; those of a log with their times. Ids are those of the whole blocks of
/// a run, so that a run with other blocks can cut them anew. Memory: that of the planner, and one conversation.
///
/// A run on such rows has requests of the same lengths and think times. What a prompt repeats is told from the lengths,
/// as in any trace, so a history that was dropped or cut goes unnoticed where the prompt is long enough to hold it: a
/// prefix cache then finds more than in the run that the rows come from, and answers, and turns after them, come
/// sooner.
class WorkloadRows final : public TraceReader {
 public:
  /// As WorkloadStream; `warnings` are the workload's.
  WorkloadRows(const StreamPlan& plan, std::optional<QuantileTable> table, std::unique_ptr<TraceReader> file,
               std::int64_t seed, std::int64_t replication, std::vector<std::string> warnings);

  bool next(TraceRow& row) override;
  [[nodiscard]] bool has_times() const override { return true; }
  [[nodiscard]] std::int64_t row() const override { return delivered_; }
  [[nodiscard]] std::vector<std::string> warnings() const override;

 private:
  TurnPlanner planner_;
  ArrivalClock arrivals_;
  Tokens block_tokens_;
  bool whole_conversations_;
  bool drops_history_;
  PlannedTurns planned_;
  std::size_t at_ = 0;
  std::int64_t delivered_ = 0;
  std::vector<std::string> warnings_;
};

}  // namespace spillway::traces
