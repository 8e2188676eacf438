// The requests of a real engine's log folder as a trace.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "traces/length.hpp"
#include "traces/readers/json_row.hpp"
#include "traces/readers/sorted_log.hpp"

namespace spillway::traces {

/// Reads requests.jsonl of a log folder in the file's order; traces/engine_log.hpp describes the folder.
///
///   input_toks   whole, 1 to 16777216 tokens
///   output_toks  whole, 0 to 16777216 tokens generated; 0 counts as 1, see zero_outputs
///   queued_ts    seconds on the engine's clock at which it queued the request: the arrival
///
/// Other keys are ignored, so requests that did not finish count with the tokens that they got. Rows and errors: see
/// JsonlReader.
class EngineLogRows final : public JsonlReader {
 public:
  /// Throws DataError when the file cannot be read.
  EngineLogRows(const std::string& path, const ReaderOptions& options);
  [[nodiscard]] bool has_times() const override { return true; }
  [[nodiscard]] std::int64_t zero_outputs() const override { return zero_outputs_; }
  [[nodiscard]] const LogKey& key() const { return key_; }

  /// True if the first object of the file has a stamp of an engine, such as queued_ts.
  static bool recognises(std::string_view head);

 private:
  enum Field : std::size_t { kInput, kOutput, kQueued, kFields };
  static constexpr std::int64_t kMaxStamp = 1'000'000'000'000;
  static constexpr std::array<JsonField, kFields> kFieldList{
      {{"input_toks", JsonField::Kind::whole, 1, kMaxTokens},
       {"output_toks", JsonField::Kind::whole, 0, kMaxTokens},
       {"queued_ts", JsonField::Kind::real, -kMaxStamp, kMaxStamp}}};
  void parse(JsonRow& values, TraceRow& row) override;

  LogKey key_;
  std::int64_t zero_outputs_ = 0;
};

using EngineLogReader = SortedLog<EngineLogRows>;

}  // namespace spillway::traces
