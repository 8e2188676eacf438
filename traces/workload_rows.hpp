// A workload's requests as the rows of a trace that would bring them about again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/units.hpp"
#include "traces/readers/trace_reader.hpp"
#include "traces/workload.hpp"

namespace spillway::traces {

/// Reads the stream of a workload whose arrivals depend on no answer. Ids are those of the whole blocks of a run, so
/// that a run with other blocks can cut them anew. O(1) memory.
class WorkloadRows final : public TraceReader {
 public:
  /// `block_tokens` is the run's memory.block_tokens.
  WorkloadRows(Workload workload, Tokens block_tokens);

  /// Throws ConfigError when the stream waits for an answer: nothing answers here.
  bool next(TraceRow& row) override;
  [[nodiscard]] bool has_times() const override { return true; }
  [[nodiscard]] std::int64_t row() const override { return delivered_; }
  [[nodiscard]] std::vector<std::string> warnings() const override { return workload_.warnings; }

 private:
  Workload workload_;
  Tokens block_tokens_;
  RequestSpec request_;
  std::int64_t delivered_ = 0;
};

}  // namespace spillway::traces
