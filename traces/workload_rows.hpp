// A workload's requests as the rows of a trace that repeats them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "traces/readers/trace_reader.hpp"
#include "traces/turn_planner.hpp"

namespace spillway::traces {

/// Delivers the plan of a TurnPlanner: single requests and first turns with their arrival, then the later turns of the
/// conversation with their think times; rows of a log with their times. Prefix ids stand for whole blocks of the run; a
/// run with another block size cuts them again. Memory: that of the planner, and one conversation.
///
/// A run on these rows has requests of equal lengths and think times. As in any trace, lengths alone show what a prompt
/// repeats. A dropped or cut history is missed if the prompt is long enough to hold it: a prefix cache then finds more
/// than in the original run, and answers and later turns come sooner.
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
  bool shortened_ = false;
  PlannedTurns planned_;
  std::size_t at_ = 0;
  std::int64_t delivered_ = 0;
  std::vector<std::string> warnings_;
};

}  // namespace spillway::traces
