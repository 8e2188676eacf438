#include "traces/workload_survey.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/error.hpp"
#include "traces/readers/reader.hpp"
#include "traces/trace_statistics.hpp"
#include "traces/workload.hpp"

namespace spillway::traces {
namespace {

class Surveyor {
 public:
  explicit Surveyor(TraceSurvey& survey) : survey_(survey) {}

  void add(const TraceRow& row, std::int64_t line) {
    if (row.arrival != kNever) {
      survey_.sorted = survey_.sorted && (survey_.timed == 0 || row.arrival >= survey_.last);
      survey_.first = survey_.timed == 0 ? row.arrival : std::min(survey_.first, row.arrival);
      survey_.last = survey_.timed == 0 ? row.arrival : std::max(survey_.last, row.arrival);
      ++survey_.timed;
    }
    survey_.prefix_ids = survey_.prefix_ids || !row.prefix_ids.empty();
    if (row.conversation) add_turn(row, line);
    conversation_ = row.conversation;
    turn_ = row.turn;
    ++survey_.rows;
  }

 private:
  void add_turn(const TraceRow& row, std::int64_t line) {
    survey_.unnumbered_turns += row.turn == 0 ? 1 : 0;
    const bool goes_on = conversation_ == row.conversation && (row.turn == 0 || row.turn > turn_);
    const bool returns = !goes_on && row.turn != 1 && was_there(*row.conversation);
    if (!goes_on && !returns) {  // the first turn that the file has of the conversation
      if (row.turn == 1 && known_.size() < kMostKnown) (void)known_.insert(*row.conversation);
      return;
    }
    ++survey_.later_turns;
    survey_.later_timed += row.arrival != kNever ? 1 : 0;
    survey_.later_think += row.think ? 1 : 0;
    if (returns && survey_.torn_row == 0) survey_.torn_row = line;
  }
  static constexpr std::size_t kMostKnown = 1'000'000;  // 32 MB
  /// True if an earlier row has the conversation.
  bool was_there(std::uint64_t conversation) { return known_.size() < kMostKnown && !known_.insert(conversation); }

  TraceSurvey& survey_;
  std::optional<std::uint64_t> conversation_;
  std::int32_t turn_ = 0;
  IdSet known_;
};

}  // namespace

std::optional<double> TraceSurvey::rate() const {
  if (timed == 0 || !(last > first)) return std::nullopt;
  // Rows without a time come after an answer: they count at the pace of the others.
  const double per_timed = static_cast<double>(rows) / static_cast<double>(timed);
  return static_cast<double>(timed - 1) * per_timed / to_seconds(last - first);
}

double TraceSurvey::mean_turns() const {
  const std::int64_t starts = rows - later_turns;
  return starts > 0 ? static_cast<double>(rows) / static_cast<double>(starts) : 1.0;
}

TraceSurvey survey_trace(const std::string& path, const std::string& format, const ReaderOptions& options) {
  const OpenedTrace trace = open_trace(path, format, options);
  const TraceReader& reader = *trace.reader;
  TraceSurvey survey;
  Surveyor surveyor(survey);
  for (TraceRow row; trace.reader->next(row);) surveyor.add(row, reader.row());
  survey.format = trace.format;
  survey.has_times = reader.has_times();
  survey.has_inputs = reader.has_inputs();
  survey.has_texts = reader.has_texts();
  survey.zero_outputs = reader.zero_outputs();
  survey.skipped = reader.skipped();
  survey.first_skipped = reader.first_skipped();
  survey.warnings = reader.warnings();
  survey.files = reader.files();
  if (survey.rows == 0 && survey.skipped > 0) {
    throw DataError(fmt::format("all {} rows are bad; the first: {}", survey.skipped, survey.first_skipped), path,
                    "check workload.format");
  }
  if (survey.rows == 0) throw DataError("the trace holds no request", path, "check that it was copied whole");
  if (survey.rows > kMaxRequests) {
    throw DataError(fmt::format("the trace has {} requests; a run takes at most {}", survey.rows, kMaxRequests), path,
                    "split it");
  }
  return survey;
}

}  // namespace spillway::traces
