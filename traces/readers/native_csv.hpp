// Spillway's own trace format as CSV: like native JSONL, with named prefixes in place of prefix ids.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "traces/readers/csv_reader.hpp"
#include "traces/readers/native_fields.hpp"
#include "traces/readers/row_checks.hpp"

namespace spillway::traces {

/// Tokens per id of a shared prefix: a block of most engines.
inline constexpr std::int64_t kPrefixPieceTokens = 16;

/// Reads CSV with these columns; the first two are required:
///
///   column          value                    meaning
///   input_tokens    whole, 1 to 16777216     length of the whole prompt; of a later turn the history is part of it
///   output_tokens   whole, 1 to 16777216     tokens that the request generates when nothing stops it
///   arrival_s       real, 0 to 100 million   seconds since the start of the run, at most 1 s before an earlier row's.
///                                            Empty: in a turn >= 2, which comes when the turn before is answered.
///                                            Exact to the nanosecond up to 52 days, to 8 ns beyond
///   max_new_tokens  whole, >= output_tokens  what the client asks for; empty: output_tokens
///   client          whole < 2^32, or text    who sends it; empty: client 0. One kind per file, which the first client
///                                            decides; texts are numbered from 1 in order of appearance
///   conversation    whole < 2^64, or text    the conversation that the request is a turn of; a text is kept as a hash
///   turn            whole >= 1               its turn; must rise where rows of a conversation follow one another
///   think_s         real, 0 to 100 million   seconds from the end of the answer before to this request
///   class           whole, 1 to 1000 | text  service class. One kind per file, which the first class decides; texts
///                                            are numbered from 1 in order of appearance: see class_names
///   slo_ttft_ms     real > 0                 limit of this request's TTFT, in place of the run's; likewise
///   slo_tpot_ms, slo_e2e_ms                  of its TPOT and its E2E
///   prefix          whole < 2^64, or text    names a text that the prompt begins with
///   prefix_tokens   whole, <= input_tokens   number of tokens of that text in the prompt
///
/// An empty field counts as absent. `turn` and `think_s` need a `conversation`; `prefix` and `prefix_tokens` need each
/// other. Prompts with the same prefix have the smaller of their prefix_tokens in common, in whole pieces of 16 tokens:
/// the id of piece i depends only on the prefix's name and on i. Tokens after the last whole piece are not shared.
///
/// A column of another name is an error. Rows, fields and errors: see CsvReader. Memory beside it: the distinct names
/// of clients and classes, and the ids of one row. Measured: 6.7 million rows/s of the first five columns on one core
/// of a 2.5 GHz Xeon.
class NativeCsvReader final : public CsvReader {
 public:
  /// Throws DataError as CsvReader does.
  explicit NativeCsvReader(const std::string& path, const ReaderOptions& options = {});

  [[nodiscard]] bool has_times() const override;
  [[nodiscard]] std::vector<std::string> class_names() const override { return extras_.class_names(); }

  /// True if the first line of the file names one of the first two columns.
  static bool recognises(std::string_view head);

 private:
  enum Column : std::size_t { kInput, kOutput, kArrival, kMaxNew, kClient, kPrefix, kPrefixTokens };
  static constexpr std::size_t kFirstField = kPrefixTokens + 1;  // NativeFields's follow
  static constexpr std::size_t kColumns = kFirstField + NativeFields::kFields;
  static constexpr std::array<CsvColumn, kColumns> kColumnNames{{{"input_tokens"},
                                                                 {"output_tokens"},
                                                                 {"arrival_s", false},
                                                                 {"max_new_tokens", false},
                                                                 {"client", false},
                                                                 {"prefix", false},
                                                                 {"prefix_tokens", false},
                                                                 {NativeFields::kNames[0], false},
                                                                 {NativeFields::kNames[1], false},
                                                                 {NativeFields::kNames[2], false},
                                                                 {NativeFields::kNames[3], false},
                                                                 {NativeFields::kNames[4], false},
                                                                 {NativeFields::kNames[5], false},
                                                                 {NativeFields::kNames[6], false}}};
  static constexpr const char* kFix =
      "the first row must name the columns input_tokens and output_tokens, and may name arrival_s, max_new_tokens, "
      "client, conversation, turn, think_s, class, slo_ttft_ms, slo_tpot_ms, slo_e2e_ms, prefix and prefix_tokens";
  void parse(TraceRow& row) override;
  /// The limit that the client asked for; nothing after a complaint.
  std::optional<std::int64_t> limit(std::optional<std::int64_t> output);
  void read_client(std::uint32_t& client);
  void read_extras(TraceRow& row);
  void read_arrival(TraceRow& row);
  void read_prefix(std::optional<std::int64_t> input, TraceRow& row);

  ArrivalOrder order_;
  ClientNames clients_;
  NativeFields extras_;
  bool has_extras_ = false;  // the file has a column of theirs
};

}  // namespace spillway::traces
