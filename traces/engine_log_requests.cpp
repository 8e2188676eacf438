// requests.jsonl of a log folder: what the engine was asked and when it answered.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "sim/io/line_reader.hpp"
#include "traces/engine_log_parts.hpp"
#include "traces/length.hpp"

namespace spillway::traces {
namespace {

using nlohmann::json;

/// Keys of a request's row.
struct RowKeys {
  const char* id;
  const char* input;
  const char* output;
  std::array<const char*, 4> stamps;  // queued, scheduled, first token, last token
  double seconds;                     // of one unit of the stamps
  const char* unit;
  const char* fix;  // how to get rows with all keys
};
constexpr RowKeys kEngineKeys{
    "request_id",
    "input_toks",
    "output_toks",
    {"queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts"},
    1.0,
    "seconds",
    "log queued_ts, scheduled_ts, first_token_ts and last_token_ts of every request, in seconds"};
constexpr RowKeys kRunKeys{"index",
                           "input_tokens",
                           "generated_tokens",
                           {"arrival_ns", "first_scheduled_ns", "first_token_ns", "end_ns"},
                           1e-9,
                           "nanoseconds",
                           "write the file with spillway run --requests-out, all keys included"};

bool is_run_row(const json& row) { return row.contains("arrival_ns") && row.contains("outcome"); }

/// Calls `on_row(row, line)` for every line that is not blank, until it returns false. A row may be no object.
template <class OnRow>
void for_each_row(const std::string& path, OnRow on_row) {
  LineReader lines(path, kLogWords);
  std::string_view line;
  while (lines.next(line)) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (!on_row(json::parse(line, nullptr, false), lines.row())) return;
  }
}

class RequestsReader {
 public:
  RequestsReader(EngineLog& log, const EngineLogOptions& options) : log_(log), options_(options) {}

  void read() {
    for_each_row(log_.requests_file, [this](const json& row, std::int64_t line) {
      line_ = line;
      read_row(row);
      return !complaints_.full();
    });
    complaints_.raise();
    if (log_.requests.empty()) {
      throw DataError(unfinished_ > 0 ? "no request finished" : "the log holds no request", log_.requests_file,
                      "log at least one finished request");
    }
    warn();
    sort_and_shift();
    compare_clocks();
  }
  /// The first request's arrival on the client's clock.
  [[nodiscard]] std::optional<double> first_arrival() const { return arrivals_.front(); }

 private:
  [[nodiscard]] std::string where() const { return fmt::format("{} line {}", log_.requests_file, line_); }
  void complain(std::string what, std::string fix) { complaints_.add(std::move(what), where(), std::move(fix)); }

  void warn() {
    if (unfinished_ > 0) {
      log_.warnings.push_back(
          fmt::format("{} requests that did not finish are left out of both sides: the simulation lacks the work that "
                      "the engine did for them",
                      unfinished_));
    }
    if (of_other_runs_ > 0) {
      log_.warnings.push_back(fmt::format("{} requests of other replications than {} are left out", of_other_runs_,
                                          replication_ ? replication_->dump() : "the first"));
    }
  }

  /// The first row decides whose rows these are.
  void choose_keys(const json& row) {
    if (std::exchange(keys_chosen_, true)) return;
    if (is_run_row(row)) {
      keys_ = &kRunKeys;
      log_.engine = "Spillway";
      log_.client_stamps = true;
      if (row.contains("replication")) replication_ = row["replication"];
      return;
    }
    const auto has = [&row](const char* key) { return row.contains(key); };
    if (std::any_of(keys_->stamps.begin(), keys_->stamps.end(), has) || row.contains("finish_reason")) return;
    throw DataError(
        fmt::format("the requests have no time stamps: {} are missing", fmt::join(keys_->stamps, ", ")), where(),
        "log the four stamps of every request in seconds on one clock, or give rows of spillway run --requests-out");
  }

  void read_row(const json& row) {
    if (!row.is_object()) return complain("the line is not a JSON object", "write one finished request per line");
    choose_keys(row);
    if (replication_ && row.contains("replication") && row["replication"] != *replication_) {
      ++of_other_runs_;
      return;
    }
    LoggedRequest request;
    request.line = line_;
    const auto id = row.find(keys_->id);
    request.id = id == row.end()   ? fmt::format("line {}", line_)
                 : id->is_string() ? id->get<std::string>()
                                   : id->dump();
    const std::string unfinished = why_unfinished(row);
    if (!unfinished.empty()) {
      ++unfinished_;
      if (options_.drop_unfinished) return;
      return complain(fmt::format("request {} {}", excerpt(request.id), unfinished),
                      "only latencies of finished requests are compared; --drop-unfinished leaves the others out");
    }
    const auto input = length(row, keys_->input);
    const auto output = length(row, keys_->output);
    std::array<std::optional<double>, 4> stamps;
    for (std::size_t i = 0; i < stamps.size(); ++i) stamps[i] = stamp(row, keys_->stamps[i]);
    if (!input || !output || !std::all_of(stamps.begin(), stamps.end(), [](const auto& s) { return s.has_value(); })) {
      return;
    }
    request.input = Tokens(*input);
    request.output = Tokens(*output);
    request.queued = *stamps[0];
    request.scheduled = *stamps[1];
    request.first_token = *stamps[2];
    request.last_token = *stamps[3];
    if (!in_order(request)) return;
    const auto arrival = row.find("arrival_time");
    arrivals_.push_back(arrival != row.end() && arrival->is_number() ? std::optional(arrival->get<double>())
                                                                     : std::nullopt);
    if (const auto cached = row.find("cached_tokens"); keys_ == &kRunKeys && cached != row.end() && *cached > 0) {
      log_.prefix_caching = true;
    }
    log_.requests.push_back(std::move(request));
  }

  [[nodiscard]] std::string why_unfinished(const json& row) const {
    if (const auto outcome = row.find("outcome"); keys_ == &kRunKeys && outcome != row.end()) {
      if (*outcome != "finished") return fmt::format("did not finish: its outcome is {}", outcome->dump());
    }
    const auto reason = row.find("finish_reason");
    if (reason != row.end() && reason->is_string()) {
      const auto text = reason->get<std::string>();
      for (const char* bad : {"abort", "aborted", "cancelled", "error"}) {
        if (text == bad) return fmt::format("did not finish: its finish_reason is \"{}\"", text);
      }
    }
    if (const auto output = row.find(keys_->output); output != row.end() && *output == 0) {
      return "did not finish: it has no output token";
    }
    for (const char* name : {keys_->stamps[2], keys_->stamps[3]}) {
      const auto value = row.find(name);
      if (value == row.end() || value->is_null())
        return fmt::format("did not finish, or was cut off: it has no {}", name);
    }
    return {};
  }

  std::optional<std::int64_t> length(const json& row, const char* name) {
    const auto value = row.find(name);
    const bool good = value != row.end() && value->is_number_integer() && *value >= 1 && *value <= kMaxTokens;
    if (good) return value->get<std::int64_t>();
    complain(value == row.end()
                 ? fmt::format("the request has no {}", name)
                 : fmt::format("{} is not a whole number from 1 to {}: {}", name, kMaxTokens, value->dump()),
             "log the tokens of prompt and answer");
    return std::nullopt;
  }

  std::optional<double> stamp(const json& row, const char* name) {
    const auto value = row.find(name);
    if (value != row.end() && value->is_number()) {
      const double seconds = value->get<double>() * keys_->seconds;
      if (std::isfinite(seconds)) return seconds;
    }
    complain(value == row.end() || value->is_null()
                 ? fmt::format("the request has no {}", name)
                 : fmt::format("{} is not a number of {}: {}", name, keys_->unit, excerpt(value->dump())),
             keys_->fix);
    return std::nullopt;
  }

  bool in_order(const LoggedRequest& r) {
    const std::array<double, 4> stamps{r.queued, r.scheduled, r.first_token, r.last_token};
    for (std::size_t i = 1; i < stamps.size(); ++i) {
      if (stamps[i] >= stamps[i - 1]) continue;
      complain(fmt::format("{} {:.6f} is before {} {:.6f}", keys_->stamps[i], stamps[i] / keys_->seconds,
                           keys_->stamps[i - 1], stamps[i - 1] / keys_->seconds),
               fmt::format("take all stamps of a request from one clock, in {}", keys_->unit));
      return false;
    }
    if (r.output > Tokens(1) && r.last_token == r.first_token) {
      complain(fmt::format("the first and the last of {} output tokens have the same time, {:.6f} s", r.output.count(),
                           r.first_token),
               fmt::format("{} must be the time of the last token", keys_->stamps[3]));
      return false;
    }
    constexpr double kYear = 365.0 * 86400.0;
    if (r.last_token - r.queued > kYear) {
      complain(fmt::format("the request took {:.3g} s, more than a year", r.last_token - r.queued),
               fmt::format("give the stamps in {}; their unit is probably wrong", keys_->unit));
      return false;
    }
    return true;
  }

  void sort_and_shift() {
    std::vector<std::size_t> order(log_.requests.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return log_.requests[a].queued < log_.requests[b].queued; });
    std::vector<LoggedRequest> sorted;
    std::vector<std::optional<double>> arrivals;
    sorted.reserve(order.size());
    for (const std::size_t i : order) {
      sorted.push_back(std::move(log_.requests[i]));
      arrivals.push_back(arrivals_[i]);
    }
    const double zero = sorted.front().queued;
    for (LoggedRequest& r : sorted) {
      for (double* seconds : {&r.queued, &r.scheduled, &r.first_token, &r.last_token}) *seconds -= zero;
    }
    log_.requests = std::move(sorted);
    arrivals_ = std::move(arrivals);
  }

  /// The clocks of client and engine may have different zeros, but not different units.
  void compare_clocks() {
    if (!std::all_of(arrivals_.begin(), arrivals_.end(), [](const auto& a) { return a.has_value(); })) return;
    const auto [first, last] = std::minmax_element(arrivals_.begin(), arrivals_.end());
    const double sent = **last - **first;
    const double queued = log_.requests.back().queued;
    constexpr double kSlack = 5.0;
    if (std::abs(sent - queued) <= 0.1 * std::max(sent, queued) + kSlack) return;
    throw DataError(
        fmt::format("the clocks disagree: the requests span {:.6g} s by arrival_time, {:.6g} s by queued_ts", sent,
                    queued),
        log_.requests_file, "log both in seconds, or leave arrival_time out");
  }

  EngineLog& log_;
  const EngineLogOptions& options_;
  Complaints complaints_;
  const RowKeys* keys_ = &kEngineKeys;
  bool keys_chosen_ = false;
  std::optional<json> replication_{};            // of a run's rows: that of the first row
  std::vector<std::optional<double>> arrivals_;  // of log_.requests, on the client's clock
  std::int64_t line_ = 0;
  std::int64_t unfinished_ = 0;
  std::int64_t of_other_runs_ = 0;
};

}  // namespace

bool is_run_log(const std::string& path) {
  bool is_run = false;
  try {
    for_each_row(path, [&is_run](const json& row, std::int64_t) {
      is_run = row.is_object() && is_run_row(row);
      return false;
    });
  } catch (const DataError&) {
    return false;  // reported when the file is read
  }
  return is_run;
}

std::optional<double> read_log_requests(EngineLog& log, const EngineLogOptions& options) {
  RequestsReader reader(log, options);
  reader.read();
  return reader.first_arrival();
}

}  // namespace spillway::traces
