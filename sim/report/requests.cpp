#include "sim/report/requests.hpp"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <optional>
#include <string_view>

namespace spillway {
namespace {

constexpr std::size_t kFlushBytes = 1U << 16U;

/// Writes one request as a JSON object or a CSV row.
class RowWriter {
 public:
  RowWriter(std::string& out, bool csv) : out_(out), csv_(csv) {}

  void text(std::string_view key, std::string_view value) {
    begin(key);
    const std::string_view quote = csv_ ? "" : "\"";
    fmt::format_to(std::back_inserter(out_), "{}{}{}", quote, value, quote);
  }
  void number(std::string_view key, std::int64_t value) {
    begin(key);
    fmt::format_to(std::back_inserter(out_), "{}", value);
  }
  void number_or_null(std::string_view key, std::int64_t value, bool exists) {
    exists ? number(key, value) : null(key);
  }
  void time(std::string_view key, SimTime value) {
    if (value == kNever) return null(key);
    number(key, value.ns());
  }
  void milliseconds(std::string_view key, const std::optional<double>& ns) {
    if (!ns) return null(key);
    begin(key);
    fmt::format_to(std::back_inserter(out_), "{}", *ns / 1e6);
  }
  void end() { out_ += csv_ ? "\n" : "}\n"; }

 private:
  void null(std::string_view key) {
    begin(key);
    if (!csv_) out_ += "null";
  }
  void begin(std::string_view key) {
    if (csv_) {
      if (!first_) out_ += ',';
    } else {
      out_ += first_ ? "{\"" : ",\"";
      out_ += key;
      out_ += "\":";
    }
    first_ = false;
  }

  std::string& out_;
  bool csv_;
  bool first_ = true;
};

constexpr std::string_view kCsvHeader =
    "replication,index,client,outcome,arrival_ns,first_scheduled_ns,first_token_ns,end_ns,ttft_ms,tpot_ms,e2e_ms,"
    "normalised_ms_per_token,queueing_ms_per_token,compute_ms_per_token,input_tokens,output_tokens,generated_tokens,"
    "cached_tokens,preempted_recompute,preempted_swap,conversation,turn,class,replica,decode_replica";

void write_latencies(RowWriter& row, const RequestRecord& record) {
  const RowLatencies latencies = row_latencies(record);
  row.milliseconds("ttft_ms", latencies.ttft);
  row.milliseconds("tpot_ms", latencies.tpot);
  row.milliseconds("e2e_ms", latencies.e2e);
  row.milliseconds("normalised_ms_per_token", latencies.normalised);
  row.milliseconds("queueing_ms_per_token", latencies.queueing);
  row.milliseconds("compute_ms_per_token", latencies.computing);
}

void append_row(std::string& out, bool csv, std::int64_t replication, const RequestRecord& record,
                const std::vector<std::string>& instances) {
  RowWriter row(out, csv);
  row.number("replication", replication);
  row.number("index", static_cast<std::int64_t>(record.index));
  row.number("client", record.client);
  row.text("outcome", outcome_names()[static_cast<std::size_t>(record.outcome)]);
  row.time("arrival_ns", record.arrival);
  row.time("first_scheduled_ns", record.first_scheduled);
  row.time("first_token_ns", record.first_token);
  row.time("end_ns", record.end);
  write_latencies(row, record);
  row.number("input_tokens", record.input.count());
  row.number("output_tokens", record.output.count());
  row.number("generated_tokens", record.generated.count());
  row.number("cached_tokens", record.cached.count());
  row.number("preempted_recompute", record.preempted_recompute);
  row.number("preempted_swap", record.preempted_swap);
  row.number_or_null("conversation", record.traits.conversation, record.traits.conversation >= 0);
  row.number_or_null("turn", record.traits.turn, record.traits.turn > 0);
  row.number_or_null("class", record.traits.service_class, record.traits.service_class > 0);
  row.number("replica", record.replica);
  row.number_or_null("decode_replica", record.decode_replica, record.decode_replica != RequestRecord::kNoReplica);
  if (!instances.empty()) row.text("instance", instances[record.traits.pool]);
  row.end();
}

}  // namespace

RowLatencies row_latencies(const RequestRecord& record) {
  RowLatencies latencies;
  const auto ns = [](Duration duration) { return static_cast<double>(duration.count()); };
  if (record.first_token != kNever) latencies.ttft = ns(record.first_token - record.arrival);
  if (record.outcome == Outcome::finished) {
    const auto tokens = static_cast<double>(record.generated.count());
    latencies.e2e = ns(record.end - record.arrival);
    latencies.normalised = *latencies.e2e / tokens;
    latencies.queueing = (*latencies.e2e - ns(record.computing)) / tokens;
    latencies.computing = ns(record.computing) / tokens;
    if (record.generated > Tokens(1)) latencies.tpot = (*latencies.e2e - *latencies.ttft) / (tokens - 1.0);
  }
  return latencies;
}

std::span<const std::string_view> outcome_names() {
  static constexpr std::array<std::string_view, 5> kNames{"finished", "rejected", "timed_out", "unfinished", "lost"};
  return kNames;
}

RequestsFile::RequestsFile(const std::string& path, std::vector<std::string> instances)
    : file_(path), csv_(path.ends_with(".csv")), instances_(std::move(instances)) {
  if (!csv_) return;
  file_.write(kCsvHeader);
  file_.write(instances_.empty() ? "\n" : ",instance\n");
}

void RequestsFile::write(std::int64_t replication, const RequestRecord& record) {
  const std::lock_guard lock(mutex_);
  std::string& rows = pending_[replication].rows;
  append_row(rows, csv_, replication, record, instances_);
  if (replication == current_ && rows.size() >= kFlushBytes) flush_current();
}

void RequestsFile::finish(std::int64_t replication) {
  const std::lock_guard lock(mutex_);
  pending_[replication].finished = true;
  while (pending_[current_].finished) {
    flush_current();
    pending_.erase(current_++);
  }
}

void RequestsFile::flush_current() {
  std::string& rows = pending_[current_].rows;
  file_.write(rows);
  rows.clear();
}

void RequestsFile::commit() {
  for (const auto& [replication, pending] : pending_) file_.write(pending.rows);
  file_.commit();
}

}  // namespace spillway
