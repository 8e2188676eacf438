// The result of a run. Every writer reads this struct.
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
#include "sim/study/locality.hpp"
#include "sim/study/robustness.hpp"

namespace spillway {

/// A data file that the run read, and its own description.
struct InputFile {
  std::string role;        // gpu | server | topology | host | engine | model | workload | tokenizer | events
  std::string name;        // path in the repository for bundled files, else as the user wrote it
  std::string sha256;      // of its bytes
  std::string stands_for;  // what the file describes
  std::string error;       // error of results, as the file states it; empty for a workload
};

/// Prompt tokens whose KV only the host has: what it takes to load them, and to compute them, each alone.
struct HostTierHit {
  Tokens tokens{};
  double load_seconds = 0.0;
  double compute_seconds = 0.0;
};

/// Computed properties of the configuration.
struct Setup {
  std::string model;
  std::string resolved_model;  // which bundled model an id of Hugging Face is, and how its weights are stored; or empty
  std::string hardware;        // GPU or server, as the user named it
  std::string gpu;
  std::string latency_model;    // fitted | tables | iterations | roofline
  std::string expert_exchange;  // what GPUs exchange around experts, and from where its time is; empty: nothing
  std::string engine;
  bool engine_calibrated = true;        // false: a warning states the known error
  std::string expected_error;           // how far TPOT and TTFT may be off, one line
  std::vector<std::string> accuracy{};  // the warnings that say what is estimated, and how well, but not what to change
  std::string policy;
  std::string knows_future;  // what the policy knows that no real system does; empty: nothing
  std::string workload;      // "azure-conv, poisson at 4 requests/s"
  std::int64_t tensor_parallel = 1;
  std::int64_t replicas = 1;
  std::int64_t prefill_replicas = 0;  // of these; 0: there are no pools
  std::string handover{};             // with pools: the links that KV crosses between them
  std::int64_t servers = 0;           // 0: each replica has a host and links of its own
  std::int64_t requests = 0;          // per replication
  std::int64_t skipped_rows = 0;      // invalid rows of the trace
  KvLayout kv{};
  std::vector<HostTierHit> host_tier_hits;          // for prompts of some lengths; empty: no host tier keeps KV
  Deployment deployment{};                          // only for policies that stream layers
  Bytes host_layer_bytes{};                         // host memory that such a policy uses, at most
  bool pools_differ = false;                        // in their KV blocks: `kv` has those of the pool with fewer
  std::optional<ExpertLocality> expert_locality{};  // of policies that place experts, where it is the same for all
  std::string layer_terms;                          // how the policy chose the deployment, one line
  std::optional<EngineFlags> engine_flags{};        // the engine's command line that does the same
  std::string layer_copies;  // what copies the layers, and the figures of which GPU; empty: the policy has no choice
  std::string price{};       // "2.5 per GPU and hour, 8 GPUs"; empty: the run has no price
  std::optional<double> power_watts{};  // of each GPU
  Bytes weights{};                      // per GPU
  bool kv_computed = false;             // false: memory.gpu_kv was given
  std::string kv_terms;                 // how the size of the KV cache was computed, one line
  Tokens model_positions{};             // the longest request of the model itself
  Tokens max_model_len{};
  [[nodiscard]] Tokens kv_capacity() const { return kv.block_tokens * kv.most().count(); }
};

/// What became of instances of one kind, an element of the key `instances`.
struct KindResult {
  std::string name;
  std::vector<std::int64_t> gpus;  // of the server
  std::optional<double> share;     // of the common workload; empty: its workload is its own
  ResolvedConfig config;
  Setup setup;
  std::vector<Condition> request_slos{};  // of each of its requests
  RunStatistics statistics;
};

/// The two sides of RunStatistics::lending.
struct LoanSides {
  std::string borrower{};        // an element of instances; empty: the run has none
  std::string lender{};          // likewise; empty: GPUs that do nothing else
  std::optional<double> busy{};  // share of a lending GPU's memory bandwidth that its own model uses, if stated
};

/// A condition on the whole run and its outcome. A missing metric does not meet the condition.
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
  OpScales scales{};        // scales of the latency model's times, if changed
  std::int64_t unsent = 0;  // later turns of conversations with an unanswered turn
  RunStatistics statistics;
  std::vector<std::string> links{};         // names of RunStatistics::links
  std::vector<LoanSides> loans{};           // of each of RunStatistics::lending
  std::vector<KindResult> kinds{};          // of which `setup` says only what all have in common
  std::vector<RangeUse> outside_range;      // quantities with calls outside the measured range
  std::optional<Robustness> perturbation;   // with --perturb, unless interrupted; no runs inside if nothing ran
  std::optional<LocalityCheck> locality{};  // half and twice of the locality; likewise
  std::vector<Condition> request_slos;
  std::vector<Verdict> run_slos;
};

/// The number of simulations for these settings: the replications of the base run and of each perturbation.
[[nodiscard]] std::int64_t planned_runs(const Result& result);

/// The `most` clients with the largest mean TTFT, largest first. Clients without a TTFT come last; ties are ordered by
/// client number.
[[nodiscard]] std::vector<ClientStatistics> worst_clients(const RunStatistics& statistics, std::size_t most);

/// The metric `name`; null when there is no such metric.
[[nodiscard]] const Metric* find_metric(const std::vector<Metric>& metrics, std::string_view name);
/// The metric `name`; a metric without a value when there is no such metric.
[[nodiscard]] const Metric& metric_or_none(const std::vector<Metric>& metrics, std::string_view name);

/// Evaluates a condition on the run.
[[nodiscard]] Verdict judge(const Condition& condition, const RunStatistics& statistics);

}  // namespace spillway
