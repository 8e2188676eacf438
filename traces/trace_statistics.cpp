#include "traces/trace_statistics.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

#include "sim/core/random.hpp"
#include "traces/history.hpp"
#include "traces/readers/prefix_blocks.hpp"

namespace spillway::traces {
namespace {

std::uint64_t scrambled(std::uint64_t id) { return split_mix(id); }

void add_length(Tokens length, ValueSummary& summary, TraceStatistics::Histogram& histogram) {
  summary.add(length.count());
  ++histogram[static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(length.count()))) - 1];
}

}  // namespace

void ValueSummary::add(std::int64_t value) {
  sketch_.add(Duration(value), 1);
  sum_ += static_cast<double>(value);
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
}

std::size_t IdSet::slot_of(std::uint64_t id) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = scrambled(id) & mask;
  while (slots_[slot] != 0 && slots_[slot] != id) slot = (slot + 1) & mask;
  return slot;
}

bool IdSet::insert(std::uint64_t id) {
  if (id == 0) return !std::exchange(has_zero_, true);
  std::size_t slot = slot_of(id);
  if (slots_[slot] == id) return false;
  if (2 * (size_ + 1) > slots_.size()) {
    std::vector<std::uint64_t> old(2 * slots_.size());
    old.swap(slots_);
    for (const std::uint64_t one : old) {
      if (one != 0) slots_[slot_of(one)] = one;
    }
    slot = slot_of(id);
  }
  slots_[slot] = id;
  ++size_;
  return true;
}

void TraceStatistics::add(const TraceRow& row) {
  add_length(row.input, input_, input_histogram_);
  add_length(row.output, output_, output_histogram_);
  if (row.arrival != kNever) add_arrival(row.arrival);
  if (row.conversation) add_turn(row);
  if (row.think) think_.add(row.think->count());
  if (!clients_cut()) clients_.insert(row.client);
  if (classes_.size() < kMostNames || classes_.contains(row.service_class)) ++classes_[row.service_class];
  if (!blocks_.full()) add_blocks(row);
}

void TraceStatistics::add_arrival(SimTime arrival) {
  ++timed_;
  first_ = std::min(first_, arrival);
  last_ = std::max(last_, arrival);
  ++waiting_[arrival.ns()];
  take_gaps_until((last_ - kReorderWindow).ns());  // no earlier row can follow
}

void TraceStatistics::take_gaps_until(std::int64_t ns) {
  while (!waiting_.empty() && waiting_.begin()->first < ns) {
    const auto [time, rows] = *waiting_.begin();
    for (std::int64_t i = 0; i < rows; ++i) {
      if (gap_begin_) {
        const auto gap = static_cast<double>(time - *gap_begin_);
        const double from_old_mean = gap - gap_mean_;
        gap_mean_ += from_old_mean / static_cast<double>(++gaps_);
        gap_squares_ += from_old_mean * (gap - gap_mean_);
      }
      gap_begin_ = time;
    }
    waiting_.erase(waiting_.begin());
  }
}

void TraceStatistics::finish() { take_gaps_until(INT64_MAX); }

void TraceStatistics::add_turn(const TraceRow& row) {
  const bool full = turns_by_conversation_.size() >= kMostNames;
  const auto at = full ? turns_by_conversation_.find(*row.conversation)
                       : turns_by_conversation_.try_emplace(*row.conversation).first;
  if (at == turns_by_conversation_.end()) {
    conversations_cut_ = true;
    return;
  }
  ++conversation_rows_;
  Conversation& conversation = at->second;
  const std::int64_t had = conversation.rows++;
  if (had > 0) {
    const Tokens repeated = traces::repeated_tokens(row.input, conversation.prompt, conversation.answer);
    repeated_ += repeated;
    dropped_histories_ += repeated == Tokens(0) ? 1 : 0;
    if (--turn_counts_[had] == 0) turn_counts_.erase(had);
  }
  ++turn_counts_[had + 1];
  conversation.prompt = row.input;
  conversation.answer = row.output;
}

void TraceStatistics::add_blocks(const TraceRow& row) {
  ++reuse_rows_;
  prompt_blocks_ += row.input.count() / kBlockTokens;
  if (row.prefix_ids.empty()) return;
  block_ids(row, row.input, Tokens(kBlockTokens), row_blocks_);
  named_blocks_ += static_cast<std::int64_t>(row_blocks_.size());
  std::uint64_t chain = 0;
  for (const std::uint64_t block : row_blocks_) {
    chain = scrambled(chain ^ block);  // equal blocks need equal blocks before them
    if (!blocks_.full() && !blocks_.insert(chain)) ++reused_blocks_;
  }
}

std::optional<double> TraceStatistics::mean_rate() const {
  if (timed_ < 2 || !(last_ > first_)) return std::nullopt;
  return static_cast<double>(timed_ - 1) / to_seconds(last_ - first_);
}

std::optional<double> TraceStatistics::gap_cv() const {
  if (gaps_ < 1 || !(gap_mean_ > 0.0)) return std::nullopt;
  return std::sqrt(gap_squares_ / static_cast<double>(gaps_)) / gap_mean_;
}

double quantile_of(const std::map<std::int64_t, std::int64_t>& counts, double q) {
  std::int64_t total = 0;
  for (const auto& [value, count] : counts) total += count;
  const double at = q * static_cast<double>(total - 1);
  const auto rank = static_cast<std::int64_t>(at);
  std::int64_t seen = 0;
  for (auto one = counts.begin(); one != counts.end(); ++one) {
    seen += one->second;
    if (seen <= rank) continue;
    const auto low = static_cast<double>(one->first);
    const auto next = std::next(one);
    if (seen > rank + 1 || next == counts.end()) return low;
    return low + (static_cast<double>(next->first) - low) * (at - static_cast<double>(rank));
  }
  return 0.0;
}

}  // namespace spillway::traces
