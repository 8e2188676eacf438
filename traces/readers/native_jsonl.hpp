// Spillway's own trace format: one JSON object per line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "traces/readers/json_cursor.hpp"
#include "traces/readers/line_reader.hpp"
#include "traces/readers/row_checks.hpp"
#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// Reads lines such as
///   {"arrival_s": 0.25, "input_tokens": 812, "output_tokens": 96, "client": "search", "prefix_ids": [7, 8],
///    "prefix_block_tokens": 256}
/// (on one line each; traces/samples/native.jsonl shows them all).
///
///   key                  value                    meaning
///   input_tokens         whole, 1 to 16777216     length of the prompt
///   output_tokens        whole, 1 to 16777216     tokens that the request generates when nothing stops it
///   arrival_s            real, 0 to 100 million   seconds since the start of the run; in all rows or in none; must not
///                                                 fall. Exact to the nanosecond up to 52 days, to 8 ns beyond
///   max_new_tokens       whole, >= output_tokens  what the client asks for; without it, output_tokens
///   client               whole < 2^32, or text    who sends it; without it, client 0. One kind per file; texts are
///                                                 numbered from 1 in order of appearance and compared as written
///   prefix_ids           list of whole < 2^64     content of the prompt's first blocks: equal ids at equal positions
///                                                 after equal prefixes mean equal tokens; the last may be partial
///   prefix_block_tokens  whole                    tokens per id; by default an id is a block of the run
///
/// Keys but the first two are optional, and null means absent. An unknown or repeated key is an error. Empty lines are
/// skipped; rows are numbered as lines of the file. An id that covers n > 1 blocks of the run is split into n ids that
/// depend on it and on the position within it alone. A bad row is reported together with those after it, up to ten.
/// Memory: a window of the file, one row, and the distinct client names. Measured: 3.3 million rows/s of three keys on
/// one core of a 2.5 GHz Xeon.
class NativeJsonlReader final : public TraceReader {
 public:
  /// Throws DataError when the file cannot be read; its first row is read here, to know whether the file has times.
  explicit NativeJsonlReader(const std::string& path, const ReaderOptions& options = {});

  bool next(TraceRow& row) override;
  [[nodiscard]] bool has_times() const override { return has_times_; }
  [[nodiscard]] std::int64_t row() const override { return lines_.row(); }
  [[nodiscard]] std::int64_t skipped() const override { return bad_.skipped(); }
  [[nodiscard]] std::string first_skipped() const override { return bad_.first_skipped(); }

  /// Does the start of a file begin a JSON object?
  static bool recognises(std::string_view head);

 private:
  /// One line's values as they stand there.
  struct Row {
    std::optional<double> arrival_s;
    std::optional<std::int64_t> input;
    std::optional<std::int64_t> output;
    std::optional<std::int64_t> max_new_tokens;
    std::optional<std::int64_t> client;
    std::optional<std::string_view> client_name;
    std::optional<std::int64_t> prefix_block_tokens;
    std::vector<std::uint64_t> prefix_ids;
    std::uint32_t keys_seen = 0;
    void clear();
  };

  bool read_row();
  bool scan(std::string_view line);
  std::string_view scan_value(JsonCursor& cursor, std::size_t key);
  void read_number(std::size_t key, std::string_view word);
  void check();
  void check_arrival();
  void check_client();
  void check_prefix();
  void fill(TraceRow& row);
  void bad(std::string_view key, std::string what, std::string fix);

  LineReader lines_;
  BadRows bad_;
  Row row_;
  bool pending_ = false;  // row_ holds the first row, not yet delivered
  bool started_ = false;
  bool ended_ = false;
  bool has_times_ = false;
  ArrivalOrder order_;
  std::uint32_t client_ = 0;
  ClientNames clients_;
};

}  // namespace spillway::traces
