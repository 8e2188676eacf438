#include "traces/workload_rows.hpp"

#include <utility>

namespace spillway::traces {

WorkloadRows::WorkloadRows(const StreamPlan& plan, std::optional<QuantileTable> table,
                           std::unique_ptr<TraceReader> file, std::int64_t seed, std::int64_t replication,
                           std::vector<std::string> warnings)
    : planner_(plan, std::move(table), std::move(file), seed, replication),
      arrivals_(plan.arrival, seed, replication),
      block_tokens_(plan.block_tokens),
      whole_conversations_(plan.whole_conversations),
      drops_history_(plan.drop_history > 0.0),
      warnings_(std::move(warnings)) {}

std::vector<std::string> WorkloadRows::warnings() const {
  std::vector<std::string> warnings = warnings_;
  if (drops_history_ || shortened_) {
    warnings.emplace_back(
        "histories were dropped or cut, which lengths do not always show: a run on these rows may get more "
        "prefix-cache "
        "hits than the original run");
  }
  return warnings;
}

bool WorkloadRows::next(TraceRow& row) {
  if (at_ == planned_.turns.size()) {
    at_ = 0;
    if (!planner_.next(planned_)) return false;
  }
  const PlannedTurn& turn = planned_.turns[at_];
  const RequestSpec& request = turn.request;
  shortened_ = shortened_ || turn.shortened;
  row.clear();
  if (at_ == 0) row.arrival = arrivals_.next(request.arrival);
  row.input = request.input;
  row.output = request.output;
  row.max_new_tokens = request.max_new_tokens;
  row.client = request.client;
  row.service_class = request.traits.service_class;
  row.slo = request.traits.slo;
  if (planned_.conversation >= 0) {
    row.conversation = static_cast<std::uint64_t>(planned_.conversation);
    row.turn = request.traits.turn;
    if (row.turn > 1 && (whole_conversations_ || turn.think > Duration(0))) row.think = turn.think;
  }
  row.prefix_ids = request.prefix_ids;
  if (!row.prefix_ids.empty()) row.prefix_id_tokens = block_tokens_.count();
  ++at_;
  ++delivered_;
  return true;
}

}  // namespace spillway::traces
