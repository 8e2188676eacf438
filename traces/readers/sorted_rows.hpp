// Rows of a log in order of time, where the file's times go back a little.
#pragma once

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// Delivers a reader's rows by time, rows of equal time in their order. A row without a time stays behind the row
/// before it. A turn with an earlier time than the turn before it gets the time of that turn. Memory: the rows of one
/// kReorderWindow.
class SortedRows {
 public:
  explicit SortedRows(std::unique_ptr<TraceReader> reader) : reader_(std::move(reader)) {}

  bool next(TraceRow& row) {
    while (!ended_ && (waiting_.empty() || waiting_.front().time + kReorderWindow >= latest_)) read();
    if (waiting_.empty()) return false;
    std::pop_heap(waiting_.begin(), waiting_.end(), later);
    std::swap(row, waiting_.back().row);
    const SimTime time = waiting_.back().time;
    waiting_.pop_back();
    if (row.conversation) {
      const auto found = conversations_.find(*row.conversation);
      if (found != conversations_.end() && found->second <= time) conversations_.erase(found);
    }
    return true;
  }

 private:
  struct Waiting {
    SimTime time{};
    std::int64_t sequence = 0;
    TraceRow row;
  };
  static bool later(const Waiting& a, const Waiting& b) {
    return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
  }
  void read() {
    Waiting next;
    ended_ = !reader_->next(next.row);
    if (ended_) return;
    if (next.row.arrival != kNever) last_ = next.row.arrival;
    next.time = last_;
    if (next.row.conversation) {
      SimTime& latest = conversations_.try_emplace(*next.row.conversation, last_).first->second;
      next.time = latest = std::max(latest, last_);
      if (next.row.arrival != kNever) next.row.arrival = next.time;
    }
    next.sequence = rows_++;
    latest_ = std::max(latest_, last_);
    waiting_.push_back(std::move(next));
    std::push_heap(waiting_.begin(), waiting_.end(), later);
  }

  std::unique_ptr<TraceReader> reader_;
  std::vector<Waiting> waiting_;                              // a heap, the earliest on top
  std::unordered_map<std::uint64_t, SimTime> conversations_;  // latest time of those that wait
  SimTime last_{INT64_MIN / 2};
  SimTime latest_{INT64_MIN / 2};
  std::int64_t rows_ = 0;
  bool ended_ = false;
};

}  // namespace spillway::traces
