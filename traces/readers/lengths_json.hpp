// Lists of lengths as JSON: prompts and limits (NEO's OSC workload), or outputs alone (Sequence Scheduling's Alpaca).
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "traces/length.hpp"
#include "traces/readers/json_array.hpp"
#include "traces/readers/json_row.hpp"

namespace spillway::traces {

/// Reads one of
///   [{"prompt": 269, "max_tokens": 42}, ...]              source: NEO-MLSys25/NEO, evaluation
///   [{"id": "5", "L_gt": 160, "L_t0.7": 220, ...}, ...]   source: zhengzangw/Sequence-Scheduling, data/
/// The first item decides which.
///
///   prompt      whole, 1 to 16777216 tokens
///   max_tokens  whole, 1 to 16777216 tokens: what the client asks for and, as these benchmarks ignore the end of the
///               text, what is generated
///   L_gt        whole, 1 to 16777216 tokens generated (the ground truth; the L_t... are other sampling temperatures).
///               Such a file has no input lengths: see has_inputs
///
/// No times. Other keys are ignored. Rows are the lines on which items begin. A bad item is reported together with
/// those after it, up to ten. Memory: see JsonArray.
class LengthsJsonReader final : public TraceReader {
 public:
  /// Reads the first item. Throws DataError when the file cannot be read.
  explicit LengthsJsonReader(const std::string& path, const ReaderOptions& options = {});

  bool next(TraceRow& row) override;
  [[nodiscard]] bool has_times() const override { return false; }
  [[nodiscard]] bool has_inputs() const override { return has_inputs_; }
  [[nodiscard]] std::int64_t row() const override { return items_.row(); }
  [[nodiscard]] std::int64_t skipped() const override { return bad_.skipped(); }
  [[nodiscard]] std::string first_skipped() const override { return bad_.first_skipped(); }

  /// True if the file is a list whose first object has max_tokens or L_gt.
  static bool recognises(std::string_view head);

 private:
  enum Field : std::size_t { kPrompt, kLimit, kTruth, kFields };
  static constexpr std::array<JsonField, kFields> kFieldList{
      {{"prompt", JsonField::Kind::whole, 1, kMaxTokens, false},
       {"max_tokens", JsonField::Kind::whole, 1, kMaxTokens, false},
       {"L_gt", JsonField::Kind::whole, 1, kMaxTokens, false}}};
  bool read_item();
  void check();

  JsonArray items_;
  BadRows bad_;
  JsonRow values_;
  bool has_inputs_ = true;
  bool pending_ = false;  // values_ holds the first item, not yet delivered
  bool ended_ = false;
};

}  // namespace spillway::traces
