// Statistics of the rows of a trace, from one pass with bounded memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "sim/core/quantile_sketch.hpp"
#include "traces/length.hpp"
#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// Whole numbers >= 0. Count, mean and maximum are exact; quantiles are exact below 512 and off by at most 0.1% above,
/// and never outside the range of the values. 229 KB.
class ValueSummary {
 public:
  void add(std::int64_t value);
  [[nodiscard]] std::int64_t count() const { return sketch_.count(); }
  [[nodiscard]] double mean() const { return sum_ / static_cast<double>(count()); }
  [[nodiscard]] double quantile(double q) const {
    return std::clamp(sketch_.quantile(q), static_cast<double>(min_), static_cast<double>(max_));
  }
  [[nodiscard]] std::int64_t max() const { return max_; }

 private:
  QuantileSketch sketch_;
  double sum_ = 0.0;  // exact up to 2^53
  std::int64_t min_ = INT64_MAX;
  std::int64_t max_ = 0;
};

/// A set of at most kMost 64-bit ids. 16 bytes per id, at most 64 MiB.
class IdSet {
 public:
  static constexpr std::size_t kMost = std::size_t{1} << 22U;

  IdSet() : slots_(1024) {}
  /// True when the id is new. Needs !full().
  bool insert(std::uint64_t id);
  [[nodiscard]] std::size_t size() const { return size_ + (has_zero_ ? 1U : 0U); }
  [[nodiscard]] bool full() const { return size_ >= kMost; }

 private:
  [[nodiscard]] std::size_t slot_of(std::uint64_t id) const;

  std::vector<std::uint64_t> slots_;  // 0: free; twice as many as ids, at least
  std::size_t size_ = 0;
  bool has_zero_ = false;
};

/// Everything that `trace info` reports about the rows.
class TraceStatistics {
 public:
  /// Block size for counting reuse: that of most engines.
  static constexpr std::int64_t kBlockTokens = 16;
  /// The most conversations and clients to distinguish; 100 MB at most.
  static constexpr std::size_t kMostNames = 1'000'000;
  /// Lengths from 2^i to 2^(i+1) - 1 are in bucket i.
  using Histogram = std::array<std::int64_t, 25>;

  /// O(1) without prefix ids, else O(input / 16).
  void add(const TraceRow& row);
  /// Counts the last gaps. Call it once, after the last row.
  void finish();

  [[nodiscard]] std::int64_t rows() const { return input_.count(); }
  [[nodiscard]] const ValueSummary& input() const { return input_; }
  [[nodiscard]] const ValueSummary& output() const { return output_; }
  [[nodiscard]] const Histogram& input_histogram() const { return input_histogram_; }
  [[nodiscard]] const Histogram& output_histogram() const { return output_histogram_; }

  /// Rows that state an arrival, and the first and last arrival.
  [[nodiscard]] std::int64_t timed_rows() const { return timed_; }
  [[nodiscard]] SimTime first() const { return first_; }
  [[nodiscard]] SimTime last() const { return last_; }
  /// Stated arrivals per second: (arrivals - 1) / (last - first).
  [[nodiscard]] std::optional<double> mean_rate() const;
  /// Standard deviation of the gaps between arrivals in order of time, over their mean.
  [[nodiscard]] std::optional<double> gap_cv() const;

  /// Rows in conversations, the number of conversations, and how many conversations have n rows, by n. Beyond
  /// kMostNames conversations, later ones are ignored.
  [[nodiscard]] std::int64_t conversation_rows() const { return conversation_rows_; }
  [[nodiscard]] std::int64_t conversations() const { return static_cast<std::int64_t>(turns_by_conversation_.size()); }
  [[nodiscard]] const std::map<std::int64_t, std::int64_t>& turns() const { return turn_counts_; }
  [[nodiscard]] bool conversations_cut() const { return conversations_cut_; }
  /// Prompt tokens that later turns repeat from the turn before (see traces/history.hpp), and the number of later turns
  /// that repeat nothing because the history was dropped.
  [[nodiscard]] Tokens repeated_tokens() const { return repeated_; }
  [[nodiscard]] std::int64_t dropped_histories() const { return dropped_histories_; }
  /// Nanoseconds.
  [[nodiscard]] const ValueSummary& think() const { return think_; }

  /// Distinct clients, at most kMostNames.
  [[nodiscard]] std::size_t clients() const { return clients_.size(); }
  [[nodiscard]] bool clients_cut() const { return clients_.size() >= kMostNames; }
  /// Rows by service class; 0: rows without a class. Beyond kMostNames classes, later ones are not counted.
  [[nodiscard]] const std::map<std::uint32_t, std::int64_t>& classes() const { return classes_; }

  /// Whole blocks of the prompts; blocks with named content; and named blocks that an earlier prompt had after the same
  /// blocks. Only the first reuse_rows() rows count: counting ends when an IdSet of blocks is full.
  [[nodiscard]] std::int64_t prompt_blocks() const { return prompt_blocks_; }
  [[nodiscard]] std::int64_t named_blocks() const { return named_blocks_; }
  [[nodiscard]] std::int64_t reused_blocks() const { return reused_blocks_; }
  [[nodiscard]] std::int64_t reuse_rows() const { return reuse_rows_; }

 private:
  void add_arrival(SimTime arrival);
  void take_gaps_until(std::int64_t ns);
  void add_turn(const TraceRow& row);
  void add_blocks(const TraceRow& row);

  ValueSummary input_;
  ValueSummary output_;
  Histogram input_histogram_{};
  Histogram output_histogram_{};

  std::int64_t timed_ = 0;
  SimTime first_ = kNever;
  SimTime last_{};
  std::map<std::int64_t, std::int64_t> waiting_;  // rows by time, within the window in which times may go back
  std::optional<std::int64_t> gap_begin_;
  std::int64_t gaps_ = 0;  // mean and sum of squared deviations follow Welford's recurrence
  double gap_mean_ = 0.0;
  double gap_squares_ = 0.0;

  struct Conversation {
    std::int64_t rows = 0;
    Tokens prompt{};  // of the last one
    Tokens answer{};
  };
  std::unordered_map<std::uint64_t, Conversation> turns_by_conversation_;
  std::map<std::int64_t, std::int64_t> turn_counts_;
  std::int64_t conversation_rows_ = 0;
  bool conversations_cut_ = false;
  Tokens repeated_{};
  std::int64_t dropped_histories_ = 0;
  ValueSummary think_;

  IdSet clients_;
  std::map<std::uint32_t, std::int64_t> classes_;

  IdSet blocks_;
  std::vector<std::uint64_t> row_blocks_;
  std::int64_t prompt_blocks_ = 0;
  std::int64_t named_blocks_ = 0;
  std::int64_t reused_blocks_ = 0;
  std::int64_t reuse_rows_ = 0;
};

/// The q-quantile of values with the given counts, by linear interpolation at rank (count - 1) q. q in [0, 1]; `counts`
/// is not empty. O(distinct values).
[[nodiscard]] double quantile_of(const std::map<std::int64_t, std::int64_t>& counts, double q);

}  // namespace spillway::traces
