// What every reader of a trace file offers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/request.hpp"
#include "sim/core/units.hpp"

namespace spillway::traces {

/// One row of a trace: a request, and whatever else its file says of it.
struct TraceRow {
  SimTime arrival = kNever;  // since the start of the trace; kNever: not stated. See TraceReader for the order
  Tokens input{};            // of the whole prompt, what it repeats of earlier turns included
  Tokens output{};
  Tokens max_new_tokens{};
  std::uint32_t client = 0;
  std::uint32_t service_class = 0;              // 0: none named
  std::optional<std::uint64_t> conversation{};  // names the conversation that the request is a turn of
  std::int32_t turn = 0;                        // in its conversation, from 1; 0: not stated
  std::optional<Duration> think{};              // from the end of the turn before to this request
  RequestSlo slo{};
  /// Content identity of the prompt's first pieces of `prefix_id_tokens` tokens each; the last piece may be partial.
  /// Equal ids at equal positions after equal ids mean equal tokens. 0: each id stands for a block of the run.
  std::vector<std::uint64_t> prefix_ids;
  std::int64_t prefix_id_tokens = 0;

  bool operator==(const TraceRow&) const = default;
  /// Back to a row that says nothing; keeps the memory of the ids.
  void clear() {
    arrival = kNever;
    input = output = max_new_tokens = Tokens();
    client = service_class = 0;
    conversation.reset();
    turn = 0;
    think.reset();
    slo = RequestSlo();
    prefix_ids.clear();
    prefix_id_tokens = 0;
  }
};

struct ReaderOptions {
  std::string tokenizer = "estimate";  // for formats that hold texts: see open_tokenizer
  bool skip_bad_rows = false;          // leave rows out that are no request, and count them
};

/// How far the time of a row may lie before the latest one so far: logs are written by several threads. Beyond, the row
/// is bad.
inline constexpr Duration kReorderWindow{1'000'000'000};

/// Rows of one file in its order, through a window of memory that does not depend on the file's size.
///
/// Contract: `next` fills every field of `row` and returns true, or returns false for ever after. Rows are good: their
/// lengths are within [1, kMaxTokens], max_new_tokens >= output, times go back by at most kReorderWindow (and so may
/// lie that much before a start that the first row sets). Throws DataError (file, row, column) on what cannot be read,
/// except for rows that are skipped.
class TraceReader {
 public:
  TraceReader() = default;
  virtual ~TraceReader() = default;
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;

  virtual bool next(TraceRow& row) = 0;
  /// Do its requests have arrival times? Those of later turns may lack one nevertheless: they come when the turn before
  /// is answered.
  [[nodiscard]] virtual bool has_times() const = 0;
  /// Do its requests have input lengths? Without, every input is 1 and must be replaced.
  [[nodiscard]] virtual bool has_inputs() const { return true; }
  /// Are its lengths counted in texts, by the tokenizer?
  [[nodiscard]] virtual bool has_texts() const { return false; }
  /// Requests delivered so far whose output of 0 tokens was raised to 1.
  [[nodiscard]] virtual std::int64_t zero_outputs() const { return 0; }
  /// Line of the file that the last row came from, from 1.
  [[nodiscard]] virtual std::int64_t row() const = 0;
  /// Rows left out so far because they are no requests, and what was wrong with the first of them.
  [[nodiscard]] virtual std::int64_t skipped() const { return 0; }
  [[nodiscard]] virtual std::string first_skipped() const { return {}; }
  /// What a user of the rows must be told, other than of zero outputs and skipped rows.
  [[nodiscard]] virtual std::vector<std::string> warnings() const { return {}; }
  /// The files beside the trace on which the rows depend, such as those of the tokenizer.
  [[nodiscard]] virtual std::vector<std::string> files() const { return {}; }
  /// Names of the service classes that the file names by texts: class i + 1 has name i. Of the rows so far.
  [[nodiscard]] virtual std::vector<std::string> class_names() const { return {}; }
};

}  // namespace spillway::traces
