#include "traces/turn_planner.hpp"

#include <algorithm>
#include <string>

#include "traces/history.hpp"
#include "traces/readers/prefix_blocks.hpp"

namespace spillway::traces {
namespace {

RandomStream stream_of(std::int64_t seed, std::int64_t replication, std::string_view purpose, std::string_view name) {
  return {seed, replication, std::string(purpose).append(name)};
}

}  // namespace

void rename(PlannedTurns& planned, std::int64_t number) {
  planned.conversation = number;
  auto salt = static_cast<std::uint64_t>(number);
  salt = split_mix(salt);
  for (PlannedTurn& turn : planned.turns) {
    turn.request.traits.conversation = number;
    for (auto& [from, name] : turn.content) {
      std::uint64_t mixed = name ^ salt;
      name = split_mix(mixed);
    }
  }
}

TurnPlanner::TurnPlanner(const StreamPlan& plan, std::optional<QuantileTable> table, std::unique_ptr<TraceReader> file,
                         std::int64_t seed, std::int64_t replication, std::string_view purpose)
    : plan_(plan),
      table_(std::move(table)),
      file_(std::move(file)),
      lengths_(stream_of(seed, replication, purpose, "workload.lengths")),
      inputs_(stream_of(seed, replication, purpose, "workload.input_tokens")),
      outputs_(stream_of(seed, replication, purpose, "workload.output_tokens")),
      clients_(stream_of(seed, replication, purpose, "workload.clients")),
      turns_(stream_of(seed, replication, purpose, "workload.turns")),
      thinks_(stream_of(seed, replication, purpose, "workload.think_time")),
      drops_(stream_of(seed, replication, purpose, "workload.drop_history")) {
  if (file_ && !plan_.sorted) sorted_.emplace(std::move(file_));
}

bool TurnPlanner::read_row() {
  if (row_ready_) return true;
  row_ready_ = sorted_ ? sorted_->next(row_) : file_->next(row_);
  if (row_ready_ && row_.arrival != kNever) time_ = row_.arrival - (plan_.origin - SimTime());
  return row_ready_;
}

bool TurnPlanner::next(PlannedTurns& planned) {
  planned.conversation = -1;
  planned.turns.clear();
  if (planned_ == plan_.requests) return false;
  if (table_) {
    draw_conversation(plan_.conversations ? table_->sample_turns(turns_) : 1, planned);
    return true;
  }
  if (!read_row()) return false;
  if (!plan_.conversations || !row_.conversation) {
    start(alone_, false);
    plan_row(alone_, planned);
  } else if (plan_.whole_conversations) {
    plan_whole_conversation(planned);
  } else {
    Context& context = context_of(*row_.conversation);
    planned.conversation = context.number;
    plan_row(context, planned);
  }
  return true;
}

void TurnPlanner::draw_conversation(std::int64_t turns, PlannedTurns& planned) {
  planned.turns.clear();
  row_.clear();
  start(alone_, plan_.conversations);
  planned.conversation = alone_.number;
  for (std::int64_t t = 0; t < turns && planned_ < plan_.requests; ++t) {
    const Lengths lengths = table_->sample(lengths_);
    row_.output = row_.max_new_tokens = lengths.output;
    plan_turn(alone_, alone_.prompt + alone_.answer, lengths.input, planned);
  }
}

void TurnPlanner::plan_whole_conversation(PlannedTurns& planned) {
  const std::uint64_t conversation = *row_.conversation;
  start(alone_, true);
  planned.conversation = alone_.number;
  std::int32_t turn = -1;
  while (planned_ < plan_.requests && read_row() && row_.conversation == conversation &&
         (row_.turn == 0 || row_.turn > turn)) {
    turn = row_.turn;
    plan_row(alone_, planned);
  }
}

void TurnPlanner::start(Context& context, bool conversation) {
  context.number = conversation ? conversations_++ : -1;
  context.turns = 0;
  context.client = plan_.clients > 0 ? draw_client() : row_.client;
  context.parts = 0;
  context.prompt = context.answer = context.prompt_said = context.answer_said = Tokens();
  context.content.clear();
}

std::uint32_t TurnPlanner::draw_client() {
  const double u = clients_.uniform();
  if (plan_.client_shares.empty()) return static_cast<std::uint32_t>(u * static_cast<double>(plan_.clients));
  double sum = 0.0;
  std::uint32_t client = 0;
  for (const double share : plan_.client_shares) {
    sum += share;
    if (u < sum) return client;
    ++client;
  }
  return client - 1;  // rounding can leave the sum of the shares below 1
}

TurnPlanner::Context& TurnPlanner::context_of(std::uint64_t conversation) {
  const auto [it, is_new] = known_.try_emplace(conversation);
  Known& known = it->second;
  if (is_new) {
    start(known.context, true);
    known.use = order_.insert(order_.end(), conversation);
    if (order_.size() > kKnown) {
      known_.erase(order_.front());
      order_.pop_front();
    }
  } else {
    order_.splice(order_.end(), order_, known.use);
  }
  return known.context;
}

/// Plans the current row, the next turn of `context`.
void TurnPlanner::plan_row(Context& context, PlannedTurns& planned) {
  const Tokens said = repeated_tokens(row_.input, context.prompt_said, context.answer_said);
  Tokens repeated;  // in the run
  if (said > Tokens(0)) repeated = said == context.prompt_said ? context.prompt : context.prompt + context.answer;
  plan_turn(context, repeated, row_.input - said, planned);
  context.prompt_said = row_.input;
  context.answer_said = row_.output;
  row_ready_ = false;
}

void TurnPlanner::plan_turn(Context& context, Tokens repeated, Tokens fresh, PlannedTurns& planned) {
  const bool later = context.turns > 0;
  if (plan_.input) fresh = plan_.input->sample(inputs_);
  if (later && plan_.drop_history > 0.0 && drops_.uniform() < plan_.drop_history) {
    repeated = Tokens();
    fresh = std::max(fresh, Tokens(1));
  }
  PlannedTurn& turn = planned.turns.emplace_back();
  RequestSpec& request = turn.request;
  request.arrival = time_;  // a single turn without a time arrives with the row before
  request.client = context.client;
  request.output = row_.output;
  request.max_new_tokens = row_.max_new_tokens;
  if (plan_.output) request.output = request.max_new_tokens = plan_.output->sample(outputs_);
  if (plan_.max_new_tokens > 0) {
    request.max_new_tokens = Tokens(plan_.max_new_tokens);
    request.output = std::min(request.output, request.max_new_tokens);
  }
  request.input = repeated + fresh;
  request.traits.service_class = row_.service_class;
  request.traits.slo = row_.slo;
  if (context.number >= 0) {
    request.traits.conversation = context.number;
    request.traits.turn = ++context.turns;
    fit_context(turn, repeated, fresh);
    request.traits.repeats = repeated;
    if (later && plan_.whole_conversations && !plan_.think.from_trace()) {
      turn.think = plan_.think.sample(thinks_);
    } else if (later) {
      turn.think = row_.think.value_or(Duration());
    }
  }
  block_ids(row_, request.input, plan_.block_tokens, request.prefix_ids);
  if (context.number >= 0 && request.prefix_ids.empty()) {
    set_content(context, repeated);
    turn.content = context.content;
  }
  context.prompt = request.input;
  context.answer = request.output;
  ++planned_;
}

void TurnPlanner::fit_context(PlannedTurn& turn, Tokens& repeated, Tokens fresh) {
  RequestSpec& request = turn.request;
  const Tokens most = plan_.max_context;
  const Tokens input = request.input;
  const Tokens output = request.output;
  if (plan_.strict_context) {
    request.max_new_tokens = std::min(request.max_new_tokens, most - Tokens(1));
    request.output = std::min(request.output, request.max_new_tokens);
  }
  if (input + request.max_new_tokens > most) {
    request.input = std::max(most - request.max_new_tokens, plan_.strict_context ? Tokens(1) : fresh);
    if (request.input < input) repeated = Tokens();
  }
  turn.shortened = request.input < input || request.output < output;
}

/// Content keeps its name as long as a turn repeats all of the turn before.
void TurnPlanner::set_content(Context& context, Tokens repeated) {
  auto& content = context.content;
  if (!content.empty() && repeated == context.prompt + context.answer) return;
  const std::int64_t kept = repeated / plan_.block_tokens;
  while (!content.empty() && content.back().first >= kept) content.pop_back();
  if (content.size() > kMostSeams) content.clear();
  std::uint64_t name = static_cast<std::uint64_t>(context.number);
  name = split_mix(name) ^ context.parts++;
  content.emplace_back(content.empty() ? 0 : kept, split_mix(name));
}

}  // namespace spillway::traces
