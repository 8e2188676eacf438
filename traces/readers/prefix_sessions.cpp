#include "traces/readers/prefix_sessions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "sim/core/error.hpp"
#include "sim/core/random.hpp"

namespace spillway::traces {

PrefixSessions::PrefixSessions(const std::string& path, std::unique_ptr<TraceReader> reader)
    : ChangedRows(std::move(reader)), path_(path) {
  if (has_times()) return;
  refuse("has no times, so no request is known to come after another", "use a trace with times and prefix ids");
}

void PrefixSessions::refuse(const char* what, const char* fix) const {
  throw ConfigError(fmt::format("{} {}", path_, what), "workload.sessions", fix);
}

void PrefixSessions::check(const TraceRow& row) const {
  if (row.conversation) refuse("names its conversations itself", "leave workload.sessions out");
  if (row.prefix_ids.empty() || row.prefix_id_tokens > 0) return;
  refuse("does not say how many tokens a prefix id stands for", "state prefix_block_tokens in its rows");
}

bool PrefixSessions::next(TraceRow& row) {
  if (!reader().next(row)) {
    if (rows_ > 0 && !any_ids_) {
      refuse("has no prefix ids that tell which prompt extends another",
             "use a trace with them, such as mooncake-jsonl (hash_ids), or leave workload.sessions out");
    }
    return false;
  }
  check(row);
  any_ids_ = any_ids_ || !row.prefix_ids.empty();
  const std::int64_t whole = row.prefix_id_tokens > 0 ? row.input.count() / row.prefix_id_tokens : 0;
  const auto named = std::min(static_cast<std::size_t>(whole), row.prefix_ids.size());
  prefixes_.clear();
  for (std::size_t i = 0; i < named; ++i) {
    const std::uint64_t before = i == 0 ? static_cast<std::uint64_t>(row.prefix_id_tokens) : prefixes_.back();
    std::uint64_t state = before ^ row.prefix_ids[i];
    prefixes_.push_back(split_mix(state));
  }
  Last turn = take_latest(row);
  if (turn.turn == 0) turn.conversation = conversations_++;
  ++turn.turn;
  turn.row = rows_++;
  row.conversation = turn.conversation;
  row.turn = turn.turn;
  if (whole > 0 && prefixes_.size() == static_cast<std::size_t>(whole)) {
    open_[prefixes_.back()][row.input].push_back(turn);
  }
  return true;
}

/// Takes the turn that `row` continues from those that may be continued. Its turn is 0 if there is none.
PrefixSessions::Last PrefixSessions::take_latest(const TraceRow& row) {
  std::optional<Match> latest;
  for (const std::uint64_t prefix : prefixes_) {
    const auto key = open_.find(prefix);
    if (key == open_.end()) continue;
    const auto end = key->second.lower_bound(row.input);
    for (auto at = key->second.begin(); at != end; ++at) {
      if (!latest || at->second.back().row > latest->length->second.back().row) latest = {key, at};
    }
  }
  if (!latest) return {};
  const Last turn = latest->length->second.back();
  latest->length->second.pop_back();
  if (latest->length->second.empty()) latest->key->second.erase(latest->length);
  if (latest->key->second.empty()) open_.erase(latest->key);
  return turn;
}

}  // namespace spillway::traces
