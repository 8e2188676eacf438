// The table of the engine-level keys.
#include <string>
#include <utility>
#include <vector>

#include "sim/config/config.hpp"

namespace spillway {
namespace {

// Bounds that no machine reaches, small enough that products of them with a model's shapes stay in 64 bits.
constexpr double kMostTokens = 1e9;
constexpr double kMostRequests = 1e6;  // in one batch
constexpr double kMostBlockTokens = 1e6;
constexpr double kMostBytes = 1e15;
constexpr double kLongestMs = 1000.0 * 86400.0 * 1e3;  // 1000 days
constexpr double kLongestNs = kLongestMs * 1e6;

Parameter flag(std::string name, std::string default_value, std::string doc, std::string source) {
  return {.name = std::move(name),
          .type = ParameterType::boolean,
          .unit = "-",
          .default_value = std::move(default_value),
          .doc = std::move(doc),
          .source = std::move(source)};
}

/// A whole number of at least 1.
Parameter count(std::string name, std::string unit, std::string default_value, double maximum, std::string doc,
                std::string source) {
  return {.name = std::move(name),
          .type = ParameterType::integer,
          .unit = std::move(unit),
          .default_value = std::move(default_value),
          .minimum = 1.0,
          .maximum = maximum,
          .doc = std::move(doc),
          .source = std::move(source)};
}

Parameter choice(std::string name, std::string default_value, std::vector<std::string> choices, std::string doc,
                 std::string source) {
  return {.name = std::move(name),
          .type = ParameterType::choice,
          .unit = "-",
          .default_value = std::move(default_value),
          .choices = std::move(choices),
          .doc = std::move(doc),
          .source = std::move(source)};
}

Parameter name_or_file(std::string name, std::string default_value, std::vector<std::string> names, std::string doc,
                       std::string source) {
  return {.name = std::move(name),
          .type = ParameterType::text,
          .unit = "-",
          .default_value = std::move(default_value),
          .choices = std::move(names),
          .doc = std::move(doc),
          .source = std::move(source)};
}

Parameter optional_time(std::string name, std::string doc, std::string source) {
  return {.name = std::move(name),
          .type = ParameterType::duration,
          .unit = "ns",
          .default_value = "",
          .minimum = 0.0,
          .maximum = kLongestNs,
          .above_minimum = true,
          .doc = std::move(doc),
          .source = std::move(source)};
}

Parameter optional_bytes(std::string name, std::string default_value, std::string doc, std::string source) {
  return {.name = std::move(name),
          .type = ParameterType::bytes,
          .unit = "bytes",
          .default_value = std::move(default_value),
          .minimum = 0.0,
          .maximum = kMostBytes,
          .doc = std::move(doc),
          .source = std::move(source)};
}

void add_engine(std::vector<Parameter>& table, const std::vector<std::string>& engines) {
  const std::string vllm = "vLLM engine argument of the same name; the default differs by policy";
  table.push_back(choice("latency_model", "auto", {"auto", "fitted", "tables", "iterations", "roofline"},
                         "What tells how long an iteration takes: kernels fitted to measurements, an engine's measured "
                         "layers, a line through its logged iterations, or datasheet figures; auto: tables where the "
                         "profile has them for this model, else fitted, else iterations, else roofline",
                         "Spillway: the profile's own measurements come before the analytic model"));
  table.push_back(
      name_or_file("engine", "", engines,
                   "Host side of the serving engine: a name, a file, or none for no host overhead; default: "
                   "the policy's own engine",
                   "Spillway: by default the engine and version whose scheduler the policy follows"));
  table.push_back(count("engine.max_num_seqs", "requests", "256", kMostRequests, "Most requests in one batch", vllm));
  table.push_back(count("engine.max_num_batched_tokens", "tokens", "2048", kMostTokens,
                        "Most tokens computed in one iteration", vllm));
  table.push_back(count("engine.max_model_len", "tokens", "", kMostTokens,
                        "Longest request, prompt and answer together; default: the model's, or what the KV cache holds",
                        "vLLM engine argument of the same name"));
  table.push_back({.name = "engine.gpu_memory_utilization",
                   .type = ParameterType::real,
                   .unit = "fraction",
                   .default_value = "0.9",
                   .minimum = 0.0,
                   .maximum = 1.0,
                   .above_minimum = true,
                   .doc = "Share of GPU memory that weights, activations and KV cache may take together",
                   .source = "vLLM engine argument of the same name"});
  table.push_back(flag("engine.chunked_prefill", "true",
                       "Prompts are computed in pieces, beside decodes, within the token budget",
                       "vLLM enable_chunked_prefill; the default differs by policy"));
  table.push_back(choice("engine.preemption", "recompute", {"recompute", "swap"},
                         "What becomes of a preempted request's KV: dropped and computed again, or kept on the host",
                         "vLLM preemption_mode, until its V1 engine; recompute is what it does to single sequences"));
  table.push_back(choice("engine.prefix_caching", "auto", {"auto", "true", "false"},
                         "KV blocks of equal prefixes are shared; auto: on when the workload says which prompts share "
                         "a prefix",
                         "vLLM enable_prefix_caching; auto is Spillway's, as most traces do not tell prefixes"));
  table.push_back(optional_time("engine.request_timeout", "Clients give up this long after arrival; default: never",
                                "Spillway: by default never, as a hidden timeout would flatter throughput"));
  table.push_back(flag("engine.overheads", "true", "false ignores the engine's host overheads, as an ideal engine",
                       "Spillway: on, as real engines pay them"));
}

void add_memory(std::vector<Parameter>& table) {
  table.push_back(
      optional_bytes("memory.gpu_kv", "",
                     "GPU memory for KV, per GPU; default: what gpu_memory_utilization leaves beside weights "
                     "and activations",
                     "vLLM num_gpu_blocks_override, in bytes; the default follows the rule of vLLM's profiling run"));
  table.push_back(optional_bytes("memory.host_kv", "4GiB", "Host memory for swapped KV, per GPU",
                                 "vLLM swap_space, 4 GiB by default"));
  table.push_back(optional_bytes("memory.host_cache", "0B",
                                 "Host memory, per GPU, that keeps a copy of the prefix cache's blocks and gives them "
                                 "back when the GPU has dropped them; 0B: none",
                                 "vLLM kv_offloading_size and LMCache max_local_cpu_size; off by default as there"));
  table.push_back(count("memory.block_tokens", "tokens", "16", kMostBlockTokens, "Tokens in one KV block",
                        "vLLM block_size, 16 by default"));
  table.push_back(choice("memory.kv_dtype", "auto", {"auto", "fp16", "bf16", "fp8"},
                         "Number format of the KV cache; auto: the model's", "vLLM kv_cache_dtype, auto by default"));
}

void add_slos(std::vector<Parameter>& table) {
  const std::string goodput = "Goodput as in vLLM's serving benchmark (--goodput); no limit by default";
  const std::vector<std::pair<std::string, std::string>> latencies{
      {"ttft_ms", "time to first token"},
      {"tpot_ms", "time per output token"},
      {"e2e_ms", "end-to-end latency"},
      {"normalised_ms_per_token", "normalised latency"},
      {"queueing_ms_per_token", "queueing latency per token"},
      {"compute_ms_per_token", "compute latency per token"}};
  for (const auto& [name, meaning] : latencies) {
    table.push_back({.name = "slo." + name,
                     .type = ParameterType::real,
                     .unit = name.ends_with("token") ? "ms/token" : "ms",
                     .default_value = "",
                     .minimum = 0.0,
                     .maximum = kLongestMs,
                     .above_minimum = true,
                     .doc = "A request is good when its " + meaning + " is below this; goodput counts good requests",
                     .source = goodput});
  }
  table.push_back({.name = "slo.run",
                   .type = ParameterType::text,
                   .unit = "-",
                   .default_value = "",
                   .takes_list = true,
                   .doc = "Conditions on the whole run, separated by commas, such as p99_ttft_ms<1000",
                   .source = "Spillway: service-level objectives are often stated as percentiles; none by default"});
}

void add_run(std::vector<Parameter>& table) {
  table.push_back({.name = "seed",
                   .type = ParameterType::integer,
                   .unit = "-",
                   .default_value = "1",
                   .minimum = 0.0,
                   .maximum = 9007199254740992.0,  // 2^53: exact in JSON readers that know only doubles
                   .doc = "Seed of every random stream",
                   .source = "Spillway: fixed, so that the same command gives the same bytes"});
  table.push_back(count("replications", "runs", "1", 10000,
                        "Independent repetitions; metrics become means with 95% t-intervals",
                        "Spillway: one, as a first answer needs no interval"));
  table.push_back({.name = "warmup",
                   .type = ParameterType::span,
                   .unit = "share, requests or time",
                   .default_value = "",
                   .doc = "Requests submitted in it are not measured: 10%, 500req or 60s; default: none",
                   .source = "Spillway: by default none, so that every request of a trace counts"});
  table.push_back(optional_time("until", "Simulated time at which the run ends; default: when every request has ended",
                                "Spillway: by default no horizon, so that no request is cut off"));
}

}  // namespace

std::vector<Parameter> config_parameters(const ConfigNames& names, const std::vector<Parameter>& workload) {
  std::vector<std::string> policies;
  for (const PolicyInfo* info : PolicyRegistry::instance().all()) policies.push_back(info->name);
  std::vector<Parameter> table;
  Parameter model =
      name_or_file("model", "llama-3.1-8b", names.models,
                   "Language model: a name, a file, or a folder with a Hugging Face config.json",
                   "Spillway: by default a widely served model that fits one GPU of the default hardware");
  model.takes_folder = true;
  table.push_back(std::move(model));
  table.push_back(
      name_or_file("hardware", "h100-80gb-sxm", names.hardware,
                   "GPU or server: a name or a file; of a GPU there are as many as tensor_parallel asks for",
                   "Spillway: by default the GPU whose profile is best supported by measurements"));
  table.push_back(count("tensor_parallel", "GPUs", "1", 64, "GPUs that share every layer of the model",
                        "vLLM tensor_parallel_size, 1 by default"));
  table.push_back(choice("policy", "vllm", std::move(policies), "Scheduling and offloading policy",
                         "Spillway: by default the scheduler of today's vLLM"));
  add_engine(table, names.engines);
  add_memory(table);
  table.insert(table.end(), workload.begin(), workload.end());
  add_slos(table);
  add_run(table);
  return table;
}

}  // namespace spillway
