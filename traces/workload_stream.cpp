#include "traces/workload_stream.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway::traces {
namespace {

/// 250 years after the start. No turn arrives later: hundreds of think times of a year would overflow the clock.
constexpr SimTime kLatest{7'900'000'000'000'000'000};

SimTime after(SimTime answered, Duration think) {
  return answered >= kLatest || think > kLatest - answered ? std::max(answered, kLatest) : answered + think;
}

/// The stream ends a plan in balance, not the planner.
StreamPlan endless_if_stationary(StreamPlan plan) {
  if (plan.stationary) plan.requests = std::numeric_limits<std::int64_t>::max();
  return plan;
}

}  // namespace

WorkloadStream::WorkloadStream(const StreamPlan& plan, std::optional<QuantileTable> table,
                               std::unique_ptr<TraceReader> file, std::unique_ptr<LiveConversations> live,
                               std::int64_t seed, std::int64_t replication)
    : live_(std::move(live)),
      planner_(endless_if_stationary(plan), std::move(table), std::move(file), seed, replication),
      arrivals_(plan.arrival, seed, replication),
      requests_(plan.requests),
      block_tokens_(plan.block_tokens),
      whole_conversations_(plan.whole_conversations),
      all_due_(plan.arrival.process == Arrival::all_at_once) {
  SPILLWAY_CHECK(plan.stationary == (live_ != nullptr), "live conversations without a balance");
  if (live_) planner_.number_from(live_->count());
}

bool WorkloadStream::look_ahead() {
  if (ahead_ready_) return true;
  if (!fresh_ready_) {
    fresh_ready_ = planner_.next(fresh_);
    fresh_time_ = fresh_ready_ ? arrivals_.next(fresh_.turns.front().request.arrival) : kNever;
  }
  const SimTime live = live_ ? live_->next_time() : kNever;
  if (live < fresh_time_) {
    ahead_ready_ = true;
    ahead_time_ = live;
    live_->take(ahead_);
  } else if (fresh_ready_) {
    ahead_ready_ = true;
    ahead_time_ = fresh_time_;
    std::swap(ahead_, fresh_);
    fresh_ready_ = false;
  }
  return ahead_ready_;
}

SimTime WorkloadStream::next_arrival() {
  if (delivered_ == requests_) return kNever;
  const SimTime start = look_ahead() ? ahead_time_ : kNever;
  return due_.empty() ? start : std::min(start, due_.top().time);
}

bool WorkloadStream::next(RequestSpec& request) {
  if (look_ahead() && starts_next()) return take_ahead(request);
  SPILLWAY_CHECK(!due_.empty(), "no request is left");
  take_due(request);
  return true;
}

/// True if a start is delivered before the later turns.
bool WorkloadStream::starts_next() const {
  if (due_.empty()) return true;
  const SimTime due = due_.top().time;
  return ahead_time_ < due && !(all_due_ && due <= now_);
}

bool WorkloadStream::take_ahead(RequestSpec& request) {
  ahead_ready_ = false;
  if (!whole_conversations_ && ahead_.conversation >= 0) return take_log_row(request);
  deliver(ahead_.turns.front(), ahead_time_, request);
  if (ahead_.turns.size() < 2) return true;
  Conversation& conversation = conversations_[ahead_.conversation];
  conversation.waits = true;
  conversation.turns = std::move(ahead_.turns);
  conversation.next = 1;
  return true;
}

/// Sends a row of a log whose time has come, or lets it wait for the answer to the turn before.
bool WorkloadStream::take_log_row(RequestSpec& request) {
  const auto [it, is_new] = conversations_.try_emplace(ahead_.conversation);
  Conversation& conversation = it->second;
  if (conversation.over) {
    ++unsent_;
    return false;
  }
  PlannedTurn& turn = ahead_.turns.front();
  if (!is_new && (conversation.waits || after(conversation.answered, turn.think) > ahead_time_)) {
    turn.request.arrival = ahead_time_;
    conversation.turns.push_back(std::move(turn));
    if (!conversation.waits) {
      idle_.erase(conversation.idle);
      schedule(ahead_.conversation, conversation);
    }
    return false;
  }
  if (!is_new) idle_.erase(conversation.idle);
  conversation.waits = true;
  deliver(turn, ahead_time_, request);
  return true;
}

void WorkloadStream::take_due(RequestSpec& request) {
  const Due due = due_.top();
  due_.pop();
  Conversation& conversation = conversations_.at(due.conversation);
  deliver(conversation.turns[conversation.next++], due.time, request);
  if (conversation.has_more() || whole_conversations_) return;
  conversation.turns.clear();
  conversation.next = 0;
}

void WorkloadStream::deliver(PlannedTurn& turn, SimTime arrival, RequestSpec& request) {
  ++delivered_;
  shortened_ += turn.shortened ? 1 : 0;
  std::swap(request, turn.request);
  if (request.prefix_ids.empty()) {
    // The memory of the ids of the request before.
    std::swap(request.prefix_ids, turn.request.prefix_ids);
    request.prefix_ids.clear();
  }
  request.arrival = arrival;
  const std::int64_t blocks = (request.input + request.output) / block_tokens_;
  for (std::size_t part = 0; part < turn.content.size(); ++part) {
    const auto& [from, name] = turn.content[part];
    const std::int64_t to = part + 1 < turn.content.size() ? turn.content[part + 1].first : blocks;
    for (std::int64_t b = from; b < std::min(to, blocks); ++b) {
      request.prefix_ids.push_back(name + static_cast<std::uint64_t>(b));
    }
  }
}

void WorkloadStream::schedule(std::int64_t number, Conversation& conversation) {
  const PlannedTurn& turn = conversation.turns[conversation.next];
  const SimTime ready = after(conversation.answered, turn.think);
  conversation.waits = true;
  conversation.due = whole_conversations_ ? ready : std::max(turn.request.arrival, ready);
  due_.push({conversation.due, scheduled_++, number});
}

/// Keeps a conversation of a log that waits for nothing, as more of its rows may come.
void WorkloadStream::rest(std::int64_t number, Conversation& conversation) {
  conversation.waits = false;
  conversation.idle = idle_.insert(idle_.end(), number);
  if (idle_.size() <= TurnPlanner::kKnown) return;
  conversations_.erase(idle_.front());
  idle_.pop_front();
}

SimTime WorkloadStream::next_turn(std::int64_t conversation) const {
  const auto found = conversations_.find(conversation);
  return found == conversations_.end() ? kNever : found->second.due;
}

void WorkloadStream::ended(const RequestRecord& record) {
  now_ = record.end;
  const std::int64_t number = record.traits.conversation;
  const auto found = number < 0 ? conversations_.end() : conversations_.find(number);
  if (found == conversations_.end()) return;
  Conversation& conversation = found->second;
  conversation.answered = record.end;
  conversation.due = kNever;
  if (record.outcome != Outcome::finished) {
    const auto lost = static_cast<std::int64_t>(conversation.turns.size() - conversation.next);
    unsent_ += record.outcome == Outcome::unfinished ? 0 : lost;
    conversation.turns.clear();
    conversation.next = 0;
    conversation.over = true;
    if (whole_conversations_) {
      conversations_.erase(found);
    } else {
      rest(number, conversation);
    }
  } else if (conversation.has_more()) {
    schedule(number, conversation);
  } else if (whole_conversations_) {
    conversations_.erase(found);
  } else {
    rest(number, conversation);
  }
}

}  // namespace spillway::traces
