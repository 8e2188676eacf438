// Spillway's own trace format: one JSON object per line.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/io/line_reader.hpp"
#include "traces/readers/json_cursor.hpp"
#include "traces/readers/native_fields.hpp"
#include "traces/readers/row_checks.hpp"
#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// Reads lines such as
///   {"arrival_s": 0.25, "input_tokens": 812, "output_tokens": 96, "client": "search", "prefix_ids": [7, 8],
///    "prefix_block_tokens": 256}
/// (on one line each; traces/samples/native.jsonl shows them all).
///
///   key                  value                    meaning
///   input_tokens         whole, 1 to 16777216     length of the whole prompt, history included
///   output_tokens        whole, 1 to 16777216     tokens that the request generates when nothing stops it
///   arrival_s            real, 0 to 100 million   seconds since the start of the run, at most 1 s before an earlier
///                                                 row's; in all rows or in none. A turn >= 2 may always lack it: it
///                                                 then arrives after the answer to the turn before.
///                                                 Exact to the nanosecond up to 52 days, to 8 ns beyond
///   max_new_tokens       whole, >= output_tokens  what the client asks for; without it, output_tokens
///   client               whole < 2^32, or text    who sends it; without it, client 0. One kind per file; texts are
///                                                 numbered from 1 in order of appearance and compared as written
///   conversation         whole < 2^64, or text    the conversation that the request is a turn of; a text is kept as a
///                                                 hash
///   turn                 whole >= 1               its turn; must rise where rows of a conversation follow one another
///   think_s              real, 0 to 100 million   seconds from the end of the answer before to this request
///   class                whole, 1 to 1000 | text  service class. One kind per file, which the first class decides;
///                                                 texts are numbered from 1 in order of appearance: see class_names
///   slo_ttft_ms          real > 0                 limit of this request's TTFT, in place of the run's; likewise
///   slo_tpot_ms, slo_e2e_ms                       of its TPOT and its E2E
///   prefix_ids           list of whole < 2^64     content of the prompt's first pieces: equal ids at equal positions
///                                                 after equal ids mean equal tokens; the last piece may be partial
///   prefix_block_tokens  whole                    tokens per id; by default an id is a block of the run
///
/// Keys but the first two are optional, and null means absent. `turn` and `think_s` need a `conversation`. An unknown
/// or repeated key is an error. Empty lines are skipped; rows are numbered as lines of the file. A bad row is reported
/// together with those after it, up to ten. Memory: a window of the file, one row, and the distinct names of clients
/// and classes. Measured: 3.3 million rows/s of three keys on one core of a 2.5 GHz Xeon.
class NativeJsonlReader final : public TraceReader {
 public:
  /// Throws DataError when the file cannot be read; its first row is read here, to know whether the file has times.
  explicit NativeJsonlReader(const std::string& path, const ReaderOptions& options = {});

  bool next(TraceRow& row) override;
  [[nodiscard]] bool has_times() const override { return has_times_; }
  [[nodiscard]] std::int64_t row() const override { return lines_.row(); }
  [[nodiscard]] std::int64_t skipped() const override { return bad_.skipped(); }
  [[nodiscard]] std::string first_skipped() const override { return bad_.first_skipped(); }
  [[nodiscard]] std::vector<std::string> class_names() const override { return extras_.class_names(); }

  /// True if the file begins with a JSON object.
  static bool recognises(std::string_view head);

 private:
  enum Key : std::size_t { kArrival, kInput, kOutput, kMaxNew, kClient, kPrefixIds, kPrefixBlock };
  static constexpr std::size_t kFirstField = kPrefixBlock + 1;  // NativeFields's follow
  static constexpr std::size_t kKeys = kFirstField + NativeFields::kFields;
  static constexpr std::array<std::string_view, kKeys> kNames{"arrival_s",
                                                              "input_tokens",
                                                              "output_tokens",
                                                              "max_new_tokens",
                                                              "client",
                                                              "prefix_ids",
                                                              "prefix_block_tokens",
                                                              NativeFields::kNames[0],
                                                              NativeFields::kNames[1],
                                                              NativeFields::kNames[2],
                                                              NativeFields::kNames[3],
                                                              NativeFields::kNames[4],
                                                              NativeFields::kNames[5],
                                                              NativeFields::kNames[6]};
  static NativeFields::Field field_of(std::size_t key) { return static_cast<NativeFields::Field>(key - kFirstField); }
  static bool takes_text(std::size_t key);
  /// kKeys: no key has this name.
  static std::size_t key_index(std::string_view name);

  /// The values of one line, as written.
  struct Row {
    std::optional<double> arrival_s;
    std::optional<std::int64_t> input;
    std::optional<std::int64_t> output;
    std::optional<std::int64_t> max_new_tokens;
    std::optional<std::int64_t> client;
    std::optional<std::string_view> client_name;
    std::optional<std::int64_t> prefix_block_tokens;
    std::vector<std::uint64_t> prefix_ids;
    TraceRow fields;  // those of NativeFields
    std::uint32_t keys_seen = 0;
    void clear();
  };

  bool read_row();
  bool scan(std::string_view line);
  std::string_view scan_value(JsonCursor& cursor, std::size_t key);
  std::string_view scan_text(JsonCursor& cursor, std::size_t key);
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
  NativeFields extras_;
};

}  // namespace spillway::traces
