// The interface of every reader of a trace file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/request.hpp"
#include "sim/core/units.hpp"

namespace spillway::traces {

/// One row of a trace: a request, and what else its file says of it.
struct TraceRow {
  SimTime arrival = kNever;  // since the start of the trace; kNever: not stated. See TraceReader for the order
  Tokens input{};            // of the whole prompt, history included
  Tokens output{};
  Tokens max_new_tokens{};
  std::uint32_t client = 0;
  std::uint32_t service_class = 0;              // 0: none named
  std::optional<std::uint64_t> conversation{};  // conversation that the request is a turn of
  std::int32_t turn = 0;                        // in its conversation, from 1; 0: not stated
  std::optional<Duration> think{};              // from the end of the turn before to this request
  RequestSlo slo{};
  std::optional<Duration> ttft{};  // as a client measured them, from the arrival; for comparison only
  std::optional<Duration> e2e{};
  /// Content identity of the prompt's first pieces of `prefix_id_tokens` tokens each; the last piece may be partial.
  /// Equal ids at equal positions after equal ids mean equal tokens. 0: each id stands for a block of the run.
  std::vector<std::uint64_t> prefix_ids;
  std::int64_t prefix_id_tokens = 0;

  bool operator==(const TraceRow&) const = default;
  /// Resets all fields; keeps the memory of the ids.
  void clear() {
    arrival = kNever;
    input = output = max_new_tokens = Tokens();
    client = service_class = 0;
    conversation.reset();
    turn = 0;
    think.reset();
    slo = RequestSlo();
    ttft.reset();
    e2e.reset();
    prefix_ids.clear();
    prefix_id_tokens = 0;
  }
};

struct ReaderOptions {
  std::string tokenizer = "estimate";  // for formats with texts: see open_tokenizer
  bool skip_bad_rows = false;          // skip rows that are not requests, and count them
  std::string columns{};               // workload.columns: see column_map.hpp; empty: the file has a known format
  bool prefix_sessions = false;        // workload.sessions=prefix: see PrefixSessions
};

/// How far the time of a row may be before the latest time so far, as several threads write a log. Earlier rows are
/// bad.
inline constexpr Duration kReorderWindow{1'000'000'000};

/// Rows of one file in its order (SortedLog: in order of arrival), in memory that does not depend on the file's size
/// unless the reader says so.
///
/// Contract: `next` fills every field of `row` and returns true, or returns false for ever after. Lengths are within
/// [1, kMaxTokens], max_new_tokens >= output, and times go back by at most kReorderWindow (so they may be that much
/// before time 0 if the first row sets it). Throws DataError (file, row, column) on bad input, except for skipped rows.
class TraceReader {
 public:
  TraceReader() = default;
  virtual ~TraceReader() = default;
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;

  virtual bool next(TraceRow& row) = 0;
  /// True if requests have arrival times. Later turns may still lack one: they arrive after the answer to the turn
  /// before.
  [[nodiscard]] virtual bool has_times() const = 0;
  /// True if requests have input lengths; else every input is 1 and must be replaced.
  [[nodiscard]] virtual bool has_inputs() const { return true; }
  /// True if the tokenizer counts the lengths in texts.
  [[nodiscard]] virtual bool has_texts() const { return false; }
  /// Requests delivered so far whose output of 0 tokens was raised to 1.
  [[nodiscard]] virtual std::int64_t zero_outputs() const { return 0; }
  /// Line of the last row in the file, from 1.
  [[nodiscard]] virtual std::int64_t row() const = 0;
  /// Rows skipped so far because they are not requests, and the problem of the first.
  [[nodiscard]] virtual std::int64_t skipped() const { return 0; }
  [[nodiscard]] virtual std::string first_skipped() const { return {}; }
  /// Warnings for the user, other than of zero outputs and skipped rows.
  [[nodiscard]] virtual std::vector<std::string> warnings() const { return {}; }
  /// Files beside the trace on which the rows depend, such as those of the tokenizer.
  [[nodiscard]] virtual std::vector<std::string> files() const { return {}; }
  /// Names of the service classes so far, if the file names them by texts: class i + 1 has name i.
  [[nodiscard]] virtual std::vector<std::string> class_names() const { return {}; }
};

}  // namespace spillway::traces
