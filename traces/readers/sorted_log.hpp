// Logs of served requests as traces: their rows stand in the order in which requests ended.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"
#include "traces/readers/row_checks.hpp"
#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// What a log says of a request beside its TraceRow.
struct LogKey {
  std::int64_t replication = 0;
  std::int64_t index = 0;  // names the request within its replication
  double seconds = 0.0;    // arrival on the log's own clock; only of rows without TraceRow::arrival
};

/// Delivers the rows of a log in order of arrival, equal times by index. `Rows` is a TraceReader that delivers them in
/// the file's order; its key() belongs to the last row.
///
/// Times on the log's own clock are made relative to the earliest. Requests of other replications than the first row's
/// are left out, with a warning. Memory: some 170 bytes per row, as the last row may be the first to arrive.
template <class Rows>
class SortedLog final : public TraceReader {
 public:
  explicit SortedLog(const std::string& path, const ReaderOptions& options = {}) : path_(path), rows_(path, options) {}

  /// The first call reads the file. Throws DataError as Rows does, for a request that appears twice, and for a span of
  /// more than kMaxTraceSeconds.
  bool next(TraceRow& row) override {
    if (!std::exchange(read_, true)) read();
    if (at_ == log_.size()) return false;
    row = log_[at_++].row;
    return true;
  }
  [[nodiscard]] bool has_times() const override { return rows_.has_times(); }
  [[nodiscard]] std::int64_t zero_outputs() const override { return rows_.zero_outputs(); }
  [[nodiscard]] std::int64_t row() const override { return at_ == 0 ? 0 : log_[at_ - 1].line; }
  [[nodiscard]] std::int64_t skipped() const override { return rows_.skipped(); }
  [[nodiscard]] std::string first_skipped() const override { return rows_.first_skipped(); }
  [[nodiscard]] std::vector<std::string> warnings() const override {
    std::vector<std::string> warnings = rows_.warnings();
    if (of_others_ > 0) {
      warnings.push_back(std::to_string(of_others_) + " requests of other replications than " +
                         std::to_string(log_.front().key.replication) + " are left out: a trace holds one run");
    }
    return warnings;
  }

  static bool recognises(std::string_view head) { return Rows::recognises(head); }

 private:
  struct Entry {
    TraceRow row;
    LogKey key;
    std::int64_t line = 0;
  };

  void read() {
    std::vector<Entry> log;
    for (TraceRow row; rows_.next(row);) {
      const LogKey key = rows_.key();
      if (log.empty() || key.replication == log.front().key.replication) {
        log.push_back({row, key, rows_.row()});
      } else {
        ++of_others_;
      }
    }
    refuse_repeats(log);
    std::sort(log.begin(), log.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.row.arrival, a.key.seconds, a.key.index) < std::tie(b.row.arrival, b.key.seconds, b.key.index);
    });
    for (Entry& entry : log) {
      if (entry.row.arrival == kNever && has_times()) entry.row.arrival = since(log.front(), entry);
    }
    log_ = std::move(log);
  }

  void refuse_repeats(const std::vector<Entry>& log) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> lines;  // by index
    lines.reserve(log.size());
    for (const Entry& entry : log) lines.emplace_back(entry.key.index, entry.line);
    std::sort(lines.begin(), lines.end());
    const auto twice =
        std::adjacent_find(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
    if (twice == lines.end()) return;
    throw DataError("request " + std::to_string(twice->first) + " is also on line " + std::to_string(twice->second),
                    path_ + ", row " + std::to_string((twice + 1)->second), "give the requests of one run");
  }

  [[nodiscard]] SimTime since(const Entry& first, const Entry& entry) const {
    constexpr double kSecondsPerNs = 1e-9;
    const double seconds = entry.key.seconds - first.key.seconds;
    if (seconds <= kMaxTraceSeconds) return SimTime(std::llround(seconds / kSecondsPerNs));
    throw DataError("the request comes more than three years after the earliest one",
                    path_ + ", row " + std::to_string(entry.line), "take all times from one clock, in seconds");
  }

  std::string path_;
  Rows rows_;
  bool read_ = false;
  std::vector<Entry> log_;
  std::size_t at_ = 0;
  std::int64_t of_others_ = 0;
};

}  // namespace spillway::traces
