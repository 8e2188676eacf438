// The result of a run: the one struct that every writer reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/api/range_use.hpp"
#include "sim/config/config.hpp"
#include "sim/core/units.hpp"
#include "sim/engine/simulation.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/study/robustness.hpp"

namespace spillway {

/// A data file that the run read, and what it says about itself.
struct InputFile {
  std::string role;        // gpu | server | host | engine | model | workload | tokenizer
  std::string name;        // path in the repository when it travels in the binary, else as the user gave it
  std::string sha256;      // of its bytes
  std::string stands_for;  // what it describes
  std::string error;       // its own statement of how far off results may be; empty for a workload
};

/// What the configuration came to: figures that were computed, not given.
struct Setup {
  std::string model;
  std::string hardware;  // as it was named: a GPU or a server
  std::string gpu;
  std::string latency_model;  // fitted | tables | iterations | roofline
  std::string engine;
  bool engine_calibrated = true;  // false: a warning says what is known of its error
  std::string policy;
  std::string workload;  // "azure-conv, poisson at 4 requests/s"
  std::int64_t tensor_parallel = 1;
  std::int64_t requests = 0;      // per replication
  std::int64_t skipped_rows = 0;  // of the trace, because they are no requests
  KvLayout kv{};
  Deployment deployment{};   // of a policy that streams layers
  Bytes host_layer_bytes{};  // that such a policy takes on the host, at most
  std::string layer_terms;   // how it came to that, one line
  Bytes weights{};           // per GPU
  bool kv_computed = false;  // false: memory.gpu_kv was given
  std::string kv_terms;      // how the size of the KV cache came about, one line
  Tokens model_positions{};  // the longest request that the model itself takes
  Tokens max_model_len{};
  [[nodiscard]] Tokens kv_capacity() const { return kv.block_tokens * kv.most().count(); }
};

/// A condition on the whole run and how it came out. No value: the metric does not exist, so the condition is not met.
struct Verdict {
  Condition condition;
  std::optional<double> value{};
  bool met = false;
};

struct Result {
  std::string tool_version;
  std::string tool_build;
  bool complete = true;  // false: interrupted
  ResolvedConfig config;
  Setup setup;
  std::vector<InputFile> inputs;
  std::vector<std::string> warnings;
  OpScales scales{};        // of the latency model's times, when they were changed
  std::int64_t unsent = 0;  // later turns of conversations in which a turn was not answered
  RunStatistics statistics;
  std::vector<RangeUse> outside_range;     // of which some calls left what was measured for the profile
  std::optional<Robustness> perturbation;  // with --perturb, unless interrupted; without runs when nothing was run
  std::vector<Condition> request_slos;
  std::vector<Verdict> run_slos;
};

/// How many simulations a run with these settings takes: its replications, for the base and each perturbation.
[[nodiscard]] std::int64_t planned_runs(const Result& result);

/// The `most` clients with the largest mean TTFT, largest first, then those without one; equal ones by number.
[[nodiscard]] std::vector<ClientStatistics> worst_clients(const RunStatistics& statistics, std::size_t most);

/// The metric of that name; null when there is none.
[[nodiscard]] const Metric* find_metric(const std::vector<Metric>& metrics, std::string_view name);
/// The same; a metric without value when there is none.
[[nodiscard]] const Metric& metric_or_none(const std::vector<Metric>& metrics, std::string_view name);

/// How a condition on the run came out.
[[nodiscard]] Verdict judge(const Condition& condition, const RunStatistics& statistics);

}  // namespace spillway
