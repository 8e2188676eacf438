#include "traces/workload_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/error.hpp"

namespace spillway::traces {

WorkloadRows::WorkloadRows(Workload workload, Tokens block_tokens)
    : workload_(std::move(workload)), block_tokens_(block_tokens) {}

bool WorkloadRows::next(TraceRow& row) {
  if (workload_.stream->next_arrival() == kNever) {
    if (delivered_ == workload_.requests) return false;
    throw ConfigError(
        fmt::format("request {} of {} comes only when an earlier one is answered, and nothing is run here",
                    delivered_ + 1, workload_.requests),
        "workload.trace", "use a workload whose requests all have arrival times");
  }
  workload_.stream->next(request_);
  ++delivered_;
  row.clear();
  row.arrival = request_.arrival;
  row.input = request_.input;
  row.output = request_.output;
  row.max_new_tokens = request_.max_new_tokens;
  row.client = request_.client;
  row.service_class = request_.traits.service_class;
  row.slo = request_.traits.slo;
  if (request_.prefix_ids.empty()) return true;
  const auto blocks = static_cast<std::size_t>(request_.input / block_tokens_);  // ids may go on into the answer
  const auto end =
      request_.prefix_ids.begin() + static_cast<std::ptrdiff_t>(std::min(blocks, request_.prefix_ids.size()));
  row.prefix_ids.assign(request_.prefix_ids.begin(), end);
  row.prefix_id_tokens = block_tokens_.count();
  return true;
}

}  // namespace spillway::traces
