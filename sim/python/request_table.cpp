#include "sim/python/request_table.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "sim/report/requests.hpp"

namespace spillway::python {
namespace {

using Integers = std::vector<std::int64_t>;
using Reals = std::vector<double>;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double nanoseconds(SimTime time) { return time == kNever ? kNone : static_cast<double>(time.ns()); }

double milliseconds(const std::optional<double>& ns) { return ns ? *ns / 1e6 : kNone; }

double number(std::int64_t value, bool exists) { return exists ? static_cast<double>(value) : kNone; }

/// Fills the columns of one row, in their order.
class RowWriter {
 public:
  explicit RowWriter(std::vector<RequestTable::Column>& columns) : next_(columns.begin()) {}
  void integer(std::int64_t value) { std::get<Integers>((next_++)->values).push_back(value); }
  void real(double value) { std::get<Reals>((next_++)->values).push_back(value); }

 private:
  std::vector<RequestTable::Column>::iterator next_;
};

}  // namespace

RequestTable::RequestTable(std::vector<std::string> instances) : has_instances_(!instances.empty()) {
  const auto integers = [this](const char* name) { columns_.push_back({name, Integers()}); };
  const auto reals = [this](const char* name) { columns_.push_back({name, Reals()}); };
  for (const char* name : {"replication", "index", "client", "outcome", "arrival_ns"}) integers(name);
  columns_[3].texts.assign(outcome_names().begin(), outcome_names().end());
  for (const char* name : {"first_scheduled_ns", "first_token_ns", "end_ns", "ttft_ms", "tpot_ms", "e2e_ms",
                           "normalised_ms_per_token", "queueing_ms_per_token", "compute_ms_per_token"}) {
    reals(name);
  }
  for (const char* name : {"input_tokens", "output_tokens", "generated_tokens", "cached_tokens", "preempted_recompute",
                           "preempted_swap"}) {
    integers(name);
  }
  for (const char* name : {"conversation", "turn", "class"}) reals(name);
  integers("replica");
  reals("decode_replica");
  if (!has_instances_) return;
  integers("instance");
  columns_.back().texts = std::move(instances);
}

void RequestTable::add(std::int64_t replication, const RequestRecord& record) {
  RowWriter row(columns_);
  row.integer(replication);
  row.integer(static_cast<std::int64_t>(record.index));
  row.integer(record.client);
  row.integer(static_cast<std::int64_t>(record.outcome));
  row.integer(record.arrival.ns());
  row.real(nanoseconds(record.first_scheduled));
  row.real(nanoseconds(record.first_token));
  row.real(nanoseconds(record.end));
  const RowLatencies latencies = row_latencies(record);
  row.real(milliseconds(latencies.ttft));
  row.real(milliseconds(latencies.tpot));
  row.real(milliseconds(latencies.e2e));
  row.real(milliseconds(latencies.normalised));
  row.real(milliseconds(latencies.queueing));
  row.real(milliseconds(latencies.computing));
  row.integer(record.input.count());
  row.integer(record.output.count());
  row.integer(record.generated.count());
  row.integer(record.cached.count());
  row.integer(record.preempted_recompute);
  row.integer(record.preempted_swap);
  row.real(number(record.traits.conversation, record.traits.conversation >= 0));
  row.real(number(record.traits.turn, record.traits.turn > 0));
  row.real(number(record.traits.service_class, record.traits.service_class > 0));
  row.integer(record.replica);
  row.real(number(record.decode_replica, record.decode_replica != RequestRecord::kNoReplica));
  if (has_instances_) row.integer(record.traits.pool);
}

void RequestTable::append(RequestTable& other) {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::visit(
        [&](auto& values) {
          auto& added = std::get<std::remove_reference_t<decltype(values)>>(other.columns_[i].values);
          if (values.empty()) {
            values = std::move(added);
          } else {
            values.insert(values.end(), added.begin(), added.end());
          }
          added = {};
        },
        columns_[i].values);
  }
}

}  // namespace spillway::python
