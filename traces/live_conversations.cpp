#include "traces/live_conversations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway::traces {
namespace {

constexpr const char* kPurpose = "workload.live.";

[[noreturn]] void refuse(double conversations) {
  throw ConfigError(fmt::format("{:.3g} conversations would be in progress at time 0; a run can have at most {:.0e}",
                                conversations, static_cast<double>(LiveConversations::kMost)),
                    "workload.start", "lower workload.rate or workload.think_time, or use workload.start=empty");
}

StreamPlan without_limit(StreamPlan plan) {
  plan.requests = std::numeric_limits<std::int64_t>::max();
  return plan;
}

}  // namespace

LiveConversations::LiveConversations(StreamPlan plan, std::optional<QuantileTable> table,
                                     std::unique_ptr<TraceReader> file, std::int64_t seed, std::int64_t replication)
    : plan_(without_limit(std::move(plan))),
      table_(std::move(table)),
      planner_(plan_, table_, std::move(file), seed, replication, kPurpose),
      stream_(seed, replication, std::string(kPurpose) + "start") {
  if (table_) {
    draw_table(plan_.mean_turns, plan_.arrival.mean_gap_s);
  } else {
    read_file(plan_.arrival.mean_gap_s, plan_.starts);
  }
  std::ranges::stable_sort(waiting_, {}, &Waiting::time);
}

void LiveConversations::draw_table(double mean_turns, double mean_gap_s) {
  const double mean = (mean_turns - 1.0) * plan_.think.mean_seconds() / mean_gap_s;
  if (!(mean <= static_cast<double>(kMost))) refuse(mean);
  for (std::int64_t left = poisson(mean); left > 0; --left) add(plan_.think.sample_remainder(stream_), 0);
}

void LiveConversations::read_file(double mean_gap_s, std::int64_t starts) {
  const double seconds_between = mean_gap_s * static_cast<double>(starts);  // two starts of one conversation
  for (PlannedTurns planned; planner_.next(planned);) {
    double lifetime_s = 0.0;
    for (const PlannedTurn& turn : planned.turns) lifetime_s += to_seconds(turn.think);
    const double mean = lifetime_s / seconds_between;
    if (!(mean + static_cast<double>(count()) <= static_cast<double>(kMost))) {
      refuse(mean + static_cast<double>(count()));
    }
    for (std::int64_t copies = poisson(mean); copies > 0; --copies) {
      const Duration since = round_seconds(stream_.uniform() * lifetime_s);
      Duration until{};
      auto next = planned.turns.begin();
      while (until <= since && next + 1 != planned.turns.end()) until += (++next)->think;
      add(until - since, from_file_.size());
      from_file_.push_back({planned.conversation, {next, planned.turns.end()}});
    }
  }
}

void LiveConversations::add(Duration wait, std::size_t of_file) {
  if (count() == kMost) refuse(static_cast<double>(count() + 1));
  waiting_.push_back({SimTime{} + wait, of_file});
}

/// The number of events of a Poisson process of rate 1 within `mean`.
std::int64_t LiveConversations::poisson(double mean) {
  std::int64_t events = 0;
  for (double time = stream_.exponential(1.0); time < mean; time += stream_.exponential(1.0)) ++events;
  return events;
}

void LiveConversations::take(PlannedTurns& planned) {
  const auto number = static_cast<std::int64_t>(at_);
  if (table_) {
    // The number of turns is geometric, so it has no memory: before and after a think time drawn among all of them lie
    // as many turns as a conversation has.
    const std::int64_t past = table_->sample_turns(stream_);
    planner_.draw_conversation(past + table_->sample_turns(stream_), planned);
    planned.turns.erase(planned.turns.begin(), planned.turns.begin() + past);
  } else {
    planned = std::move(from_file_[waiting_[at_].of_file]);
    rename(planned, number);
  }
  ++at_;
}

}  // namespace spillway::traces
