// An engine's log as the traffic of a run.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "sim/io/file_reader.hpp"
#include "traces/complaints.hpp"
#include "traces/engine_log.hpp"
#include "traces/readers/prefix_blocks.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

constexpr double kSecondsPerNs = 1e-9;

class LogSource final : public RequestSource {
 public:
  LogSource(const EngineLog& log, std::vector<std::vector<std::uint64_t>> prefix_ids)
      : requests_(log.requests), prefix_ids_(std::move(prefix_ids)) {}

  [[nodiscard]] SimTime next_arrival() override {
    return at_ < requests_.size() ? SimTime(std::llround(requests_[at_].queued / kSecondsPerNs)) : kNever;
  }
  bool next(RequestSpec& request) override {
    const LoggedRequest& logged = requests_[at_];
    request = {};
    request.arrival = next_arrival();
    request.input = logged.input;
    request.output = request.max_new_tokens = logged.output;
    if (!prefix_ids_.empty()) request.prefix_ids = prefix_ids_[at_];
    ++at_;
    return true;
  }
  [[nodiscard]] std::int64_t expected() const override { return static_cast<std::int64_t>(requests_.size()); }

 private:
  std::vector<LoggedRequest> requests_;
  std::vector<std::vector<std::uint64_t>> prefix_ids_;
  std::size_t at_ = 0;
};

/// The number at the end of "bench-12".
std::optional<std::size_t> number_of(std::string_view id) {
  const std::size_t digits = id.find_last_not_of("0123456789") + 1;
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(id.data() + digits, id.data() + id.size(), number);
  return error == std::errc() && digits < id.size() ? std::optional(number) : std::nullopt;
}

}  // namespace

std::vector<std::vector<std::uint64_t>> prefix_ids_from(const EngineLog& log, const std::string& path,
                                                        const std::string& format, Tokens block_tokens) {
  OpenedTrace trace = open_trace(path, format);
  std::vector<Tokens> inputs;
  std::vector<std::vector<std::uint64_t>> by_row;
  bool any = false;
  for (TraceRow row; trace.reader->next(row);) {
    inputs.push_back(row.input);
    by_row.emplace_back();
    block_ids(row, row.input, block_tokens, by_row.back());
    any = any || !by_row.back().empty();
  }
  if (!any) {
    throw DataError("names no token ids and no prefixes", path, "give the trace whose prompts the engine was sent");
  }
  Complaints complaints;
  std::vector<std::vector<std::uint64_t>> ids;
  for (const LoggedRequest& request : log.requests) {
    const std::string where = fmt::format("{} line {}", log.requests_file, request.line);
    const auto number = number_of(request.id);
    if (!number || *number >= by_row.size()) {
      complaints.add(number ? fmt::format("request {} would be row {} of {}, which has {}", excerpt(request.id),
                                          *number, path, by_row.size())
                            : fmt::format("request \"{}\" has no number", excerpt(request.id)),
                     where, "row i of the trace, from 0, belongs to the request whose id ends in i");
    } else if (inputs[*number] != request.input) {
      complaints.add(fmt::format("request {} has {} input tokens, row {} of {} has {}", excerpt(request.id),
                                 request.input.count(), *number, path, inputs[*number].count()),
                     where, "give the trace whose prompts the engine was sent");
    } else {
      ids.push_back(by_row[*number]);
    }
    if (complaints.full()) break;
  }
  complaints.raise();
  return ids;
}

std::unique_ptr<RequestSource> replay(const EngineLog& log, std::vector<std::vector<std::uint64_t>> prefix_ids) {
  return std::make_unique<LogSource>(log, std::move(prefix_ids));
}

}  // namespace spillway::traces
