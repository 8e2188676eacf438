// The table of the engine-level keys.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "sim/api/key_owners.hpp"
#include "sim/api/registry.hpp"
#include "sim/api/router.hpp"
#include "sim/config/config.hpp"
#include "sim/config/expert_defaults.hpp"

namespace spillway {
namespace {

// Bounds that no machine reaches. Their products with the shapes of a model fit 64 bits.
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

Parameter nanoseconds(std::string name, std::string default_value, std::string doc, std::string source) {
  return {.name = std::move(name),
          .type = ParameterType::real,
          .unit = "ns",
          .default_value = std::move(default_value),
          .minimum = 0.0,
          .maximum = 1e9,
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

Parameter memory_size(std::string name, std::string default_value, std::string doc, std::string source) {
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
  table.push_back(
      choice("latency_model", "auto", {"auto", "fitted", "tables", "iterations", "roofline"},
             "How iteration times are computed: tables (an engine's measured layers), fitted (kernels fitted "
             "to measurements), iterations (a fit to logged iterations) or roofline (datasheet figures); "
             "auto: the first of these that the profile has for the model",
             "Spillway: measurements come before the analytic model"));
  table.push_back(
      name_or_file("engine", "", engines,
                   "CPU time of the serving engine: a name, a file, or none for no CPU time; default: the policy's "
                   "own engine",
                   "Spillway: by default the engine and version whose scheduler the policy follows"));
  table.push_back(count("engine.max_num_seqs", "requests", "256", kMostRequests, "Most requests in one batch", vllm));
  table.push_back(count("engine.max_num_batched_tokens", "tokens", "2048", kMostTokens,
                        "Most tokens computed in one iteration", vllm));
  table.push_back(count("engine.max_model_len", "tokens", "", kMostTokens,
                        "Longest request, prompt and answer together; default: the smaller of the model's limit and "
                        "the KV cache's capacity",
                        "vLLM engine argument of the same name"));
  table.push_back({.name = "engine.gpu_memory_utilization",
                   .type = ParameterType::real,
                   .unit = "fraction",
                   .default_value = "0.9",
                   .minimum = 0.0,
                   .maximum = 1.0,
                   .above_minimum = true,
                   .doc = "Share of GPU memory for weights, activations and KV cache together",
                   .source = "vLLM engine argument of the same name"});
  table.push_back(flag("engine.chunked_prefill", "true",
                       "Prompts are computed in chunks, together with decodes, within the token budget",
                       "vLLM enable_chunked_prefill; the default differs by policy"));
  table.push_back(choice("engine.preemption", "recompute", {"recompute", "swap"},
                         "KV of a preempted request: dropped and computed again, or swapped to the host",
                         "vLLM preemption_mode, before its V1 engine; recompute is its choice for single sequences"));
  table.push_back(
      choice("engine.prefix_caching", "auto", {"auto", "true", "false"},
             "Requests share the KV blocks of equal prefixes; auto: on when the workload says which prompts "
             "share a prefix, and under vllm-offloading, which stores the blocks of every request",
             "vLLM enable_prefix_caching; auto is Spillway's, because most traces hold no prefixes"));
  table.push_back(
      choice("engine.hybrid_kv_cache", "auto", {"auto", "true", "false"},
             "Layers with a sliding window free the KV that no later token attends to; auto: where the policy's engine "
             "does so, all KV is on the GPU, and there is no prefix cache; true: no prefix cache where "
             "engine.prefix_caching is auto",
             "vLLM's hybrid KV cache manager (--disable-hybrid-kv-cache-manager); auto is Spillway's, because freed "
             "blocks of shared prefixes are not modelled"));
  table.push_back(
      choice("engine.quantization", "auto",
             {"auto", "none", "fp8", "fp8_block", "nvfp4", "mxfp4", "int4", "q4_0", "q5_0", "q8_0", "q2_k", "q3_k_m",
              "q4_k_m", "q5_k_m", "q6_k", "iq4_xs", "mxfp4_moe"},
             "Number format of the linear layers: auto, as the model's file says; another format quantises a 16-bit "
             "model, and needs a GPU whose kernels of that format were measured (explain NAME); the LM head stays in "
             "16 bits. q4_0 and the values after it are types of GGUF files. They include the LM head and need no "
             "measured kernels: the GPU reads their bytes and multiplies as fast as with 16-bit weights",
             "vLLM --quantization; auto as there. GGUF types: ggml's block layouts and llama.cpp's llama-quantize"));
  table.push_back(optional_time("engine.request_timeout",
                                "Time after arrival at which a client gives up; default: never",
                                "Spillway: by default never, because a hidden timeout would flatter throughput"));
  table.push_back(
      {.name = "engine.moe_kernel",
       .type = ParameterType::text,
       .unit = "-",
       .default_value = "auto",
       .doc =
           "Kernel of routed experts: part of its name in the GPU profile, such as triton; auto: the kernel with the "
           "nearest measured shape",
       .source = "vLLM chooses by number format, shape and environment (VLLM_USE_FLASHINFER_MOE_*)"});
  table.push_back(choice(
      "engine.expert_exchange", "auto", {"auto", "all_gather", "deepep", "nvlink"},
      "Kernels by which data-parallel groups exchange tokens and the outputs of experts: all_gather, an all-gather "
      "and a reduce-scatter of NCCL; deepep, DeepEP in one server; nvlink, TensorRT-LLM's all-to-all; auto: "
      "all_gather. One group sums outputs in an all-reduce",
      "vLLM --all2all-backend, SGLang --moe-a2a-backend (recalled): by default both gather all tokens"));
  table.push_back(
      choice("engine.kv_connector", "auto", {"auto", "none", "vllm-offloading", "lmcache", "hicache"},
             "How the prefix cache's blocks reach memory.host_cache and come back: none, an ideal write-through tier; "
             "vllm-offloading, vLLM's own connector of 0.11 to 0.13; auto: vllm-offloading under policy=vllm, else "
             "none. lmcache and hicache are not modelled",
             "vLLM --kv-transfer-config; auto is Spillway's, because vLLM 0.11 to 0.13 has no other tier of its own"));
  table.push_back(
      choice("engine.kv_connector_layout", "per-layer", {"per-layer", "cross-layer"},
             "Copies of vllm-offloading: one per block, layer, and K or V; or one per block, when the KV of "
             "all layers of a block is contiguous",
             "vLLM 0.11 to 0.13 allocates KV per layer"));
  const std::string loop =
      "measured: a loop of CPython 3.11.7 on an Intel Xeon (family 6, model 167), ordered map of 100,000 entries, "
      "median of 7 (tests/bench/connector_operations.py); not from a serving result";
  table.push_back(
      nanoseconds("engine.kv_connector_visit_ns", "185", "CPU time of vllm-offloading per request of a step", loop));
  table.push_back(nanoseconds("engine.kv_connector_lookup_ns", "70",
                              "CPU time of vllm-offloading per block that it searches in its tier", loop));
  table.push_back(nanoseconds("engine.kv_connector_touch_ns", "139",
                              "CPU time of vllm-offloading per block that it moves to the most recent end", loop));
  table.push_back(nanoseconds("engine.kv_connector_scan_ns", "115",
                              "CPU time of vllm-offloading per entry that a refused store scans", loop));
  table.push_back(nanoseconds("engine.kv_connector_warning_ns", "7000",
                              "CPU time of vllm-offloading per refused store, for its line in the log", loop));
  table.push_back(
      {.name = "engine.kv_connector_launches",
       .type = ParameterType::real,
       .unit = "fraction",
       .default_value = "1",
       .minimum = 0.0,
       .maximum = 1.0,
       .doc = "Share of the launch time of vllm-offloading's copies that the worker's thread spends before it "
              "launches the step's kernels. An engine that runs one step ahead starts the copies while the GPU "
              "computes the previous step. 0: another thread starts the copies",
       .source = "vLLM 0.11 to 0.13 starts them on the worker's thread, by a loop of cudaMemcpyAsync. A loop "
                 "of small copies is as fast as the CPU issues it: the launch time of the GPU's profile"});
  table.push_back(flag("engine.overheads", "true", "false: the engine takes no CPU time, as an ideal engine",
                       "Spillway: on, because real engines take CPU time"));
}

void add_disk(std::vector<Parameter>& table) {
  table.push_back(memory_size("memory.disk_cache", "0B",
                              "Disk, per GPU, for the prefix cache's blocks that memory.host_cache evicts; 0B: none. A "
                              "request whose blocks are on the disk waits until they are on the GPU. The key needs "
                              "engine.kv_connector=vllm-offloading",
                              "Spillway: off by default, because vLLM 0.11 to 0.13 has no disk tier of its own"));
  const std::string nvme = "Samsung PM9A3 (NVMe, PCIe 4.0 x4), datasheet, recalled, not looked up: up to ";
  const auto rate = [&](const char* direction, const char* default_value, const std::string& source) {
    table.push_back({.name = std::string("memory.disk_") + direction + "_bandwidth",
                     .type = ParameterType::real,
                     .unit = "GB/s",
                     .default_value = default_value,
                     .minimum = 0.0,
                     .maximum = 1e6,
                     .above_minimum = true,
                     .doc = std::string("Bytes per second that memory.disk_cache can ") + direction +
                            ", per GPU. All transfers share it",
                     .source = nvme + source});
  };
  rate("read", "6.9", "6,900 MB/s, sequential reads");
  rate("write", "4.1", "4,100 MB/s, sequential writes");
  const auto operations = [&](const char* direction, const char* default_value, const std::string& source) {
    table.push_back(count(std::string("memory.disk_") + direction + "_iops", "operations/s", default_value, 1e9,
                          std::string("Operations per second that memory.disk_cache can ") + direction +
                              ", per GPU; one KV block is one operation",
                          nvme + source));
  };
  operations("read", "1100000", "1,100,000 random reads of 4 KB per second");
  operations("write", "200000", "200,000 random writes of 4 KB per second");
  table.push_back(
      count("memory.disk_queue_depth", "transfers", "16", 16,
            "Transfers of memory.disk_cache in progress at once, which share the disk evenly; others wait, "
            "first come, first served. A transfer is all blocks that a request reads, or that a store "
            "evicts from the host",
            "assumed: an NVMe queue holds up to 65,536 commands, so it does not limit a transfer of many blocks"));
}

void add_memory(std::vector<Parameter>& table) {
  Parameter gpu_kv = memory_size("memory.gpu_kv", "",
                                 "GPU memory for KV, per GPU, in bytes or as the block count that an engine reports; "
                                 "default: the memory that engine.gpu_memory_utilization leaves beside weights and "
                                 "activations",
                                 "vLLM num_gpu_blocks_override; the default follows the rule of vLLM's profiling run");
  gpu_kv.takes_blocks = true;
  table.push_back(std::move(gpu_kv));
  Parameter host_kv =
      memory_size("memory.host_kv", "4GiB",
                  "Host memory for swapped KV, per GPU, in bytes or as a block count. A policy that keeps the KV "
                  "of layers on the host takes it first, and requests swap to the rest. Where it has no value, as by "
                  "default under policies that attend on the CPU: half of the host's DRAM, shared by its GPUs",
                  "vLLM swap_space, 4 GiB by default; NEO's evaluation gives 120 GB of 256 GiB");
  host_kv.takes_blocks = true;
  table.push_back(std::move(host_kv));
  table.push_back(memory_size(
      "memory.host_cache", "0B",
      "Host memory, per GPU, for copies of blocks of the prefix cache. A prompt finds blocks there that the GPU has "
      "dropped. 0B: no tier. Policy pensieve keeps the KV of conversations there. A tier pays if prompts repeat, if it "
      "holds all repeated prompts, and if loading a hit takes less time than computing it. Bandwidth: the link must "
      "carry more than KV bytes per token x prompt tokens/s of the GPU (8B model on an A100: a little above 2 GB/s). "
      "Hit rate and context: with an 8B model on an H100, mean latency falls by 1 to 6% if 25% of the prompts repeat, "
      "by 8 to 33% if 75% do; more for long prompts (1,024 to 16,384 tokens). Size: a tier for half of the repeated "
      "prompts gains less. Under vllm-offloading, copies per layer take much of that away "
      "(engine.kv_connector_layout), and a tier that is smaller than the KV of the running requests costs time. A run "
      "prints what a hit saves (Host tier); experiments/offload has the map",
      "vLLM kv_offloading_size and LMCache max_local_cpu_size; off by default as there"));
  add_disk(table);
  table.push_back(memory_size(
      "memory.peer", "0B",
      "Memory that another GPU of the server lends to each GPU of a replica, for KV (policy=aqua); 0B: none. The "
      "lenders are GPUs beside those of the replicas, and do nothing else",
      "AQUA (arXiv 2407.21255), section 4: a consumer has one producer; off by default"));
  table.push_back(memory_size(
      "memory.peer_cache", "0B",
      "Part of lent memory, for each GPU of a replica, that is the tier below the prefix cache in place of "
      "memory.host_cache; 0B: none. With memory.lender, the tier is a part of memory.host_kv while no memory is lent. "
      "With policy.keep_prefixes=false contexts are in this tier alone, not in the prefix cache of the GPU",
      "AQUA (arXiv 2407.21255), section 9.3: contexts of prompts in its tensors; off by default"));
  table.push_back({.name = "memory.lender",
                   .type = ParameterType::text,
                   .unit = "-",
                   .default_value = "",
                   .doc =
                       "Element of instances whose GPUs lend memory for KV, each to one GPU (policy=aqua): an LLM that "
                       "lends what it does not need, or GPUs with free_memory",
                   .source = "AQUA (arXiv 2407.21255), section 4: a consumer has one producer; by default none"});
  const std::string informer = "aquaml/aqua (0ed7c15), informers/llm.py; beside memory.lender";
  table.push_back(memory_size("memory.lend_retain", "5GB",
                              "KV memory, per GPU, that an instance keeps while it lends the rest to another",
                              informer + "; AQUA's site: a producer retains 5 GB"));
  Parameter offer_at =
      count("memory.lend_offer_at", "requests", "2", kMostRequests,
            "An instance offers memory while at most so many requests wait at the end of an iteration, "
            "and its requests use less than memory.lend_retain",
            informer);
  offer_at.minimum = 0.0;
  table.push_back(std::move(offer_at));
  table.push_back(count("memory.lend_reclaim_at", "requests", "10", kMostRequests,
                        "An instance reclaims the memory that it lends as soon as this many requests wait", informer));
  table.push_back(count("memory.block_tokens", "tokens", "16", kMostBlockTokens, "Tokens in one KV block",
                        "vLLM block_size, 16 by default"));
  table.push_back(choice("memory.kv_dtype", "auto", {"auto", "fp16", "bf16", "fp8"},
                         "Number format of the KV cache; auto: the format of the model",
                         "vLLM kv_cache_dtype, auto by default"));
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
                     .doc = "Goodput counts the requests whose " + meaning + " is below this limit",
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
                   .maximum = 9007199254740992.0,  // 2^53: exact in JSON readers that only have doubles
                   .doc = "Seed of every random stream",
                   .source = "Spillway: fixed, so that the same command gives the same bytes"});
  table.push_back(count("replications", "runs", "1", 10000,
                        "Independent repetitions; metrics are then means with 95% t-intervals",
                        "Spillway: one, because a first answer needs no interval"));
  table.push_back({.name = "warmup",
                   .type = ParameterType::span,
                   .unit = "share, requests or time",
                   .default_value = "",
                   .doc = "Warm-up, whose requests are not measured: 10%, 500req or 60s; default: none",
                   .source = "Spillway: by default none, so that every request of a trace counts"});
  table.push_back(optional_time("until", "Simulated time at which the run ends; default: when every request has ended",
                                "Spillway: by default no horizon, so that no request is cut off"));
}

Parameter weights_key() {
  std::vector<std::string> names{kNoWeights};
  for (const PolicyInfo* info : PolicyRegistry::instance().weights()) names.push_back(info->name);
  Parameter key = choice(kWeightsKey, kNoWeights, std::move(names),
                         "Policy that streams weights from the host beside a policy that leaves them on the GPU; its "
                         "keys follow as policy.weights.*",
                         "Spillway: by default the policy alone decides where the weights live");
  key.quiet_default = true;
  return key;
}

/// How routers choose experts, for policies that place them.
void add_experts(std::vector<Parameter>& table) {
  const auto add = [&table](const char* name, std::string default_value, double maximum, std::string doc,
                            std::string source) {
    Parameter key{.name = name,
                  .type = ParameterType::real,
                  .unit = "1",
                  .default_value = std::move(default_value),
                  .minimum = 0.0,
                  .maximum = maximum,
                  .doc = std::move(doc),
                  .source = std::move(source)};
    key.quiet_default = true;
    table.push_back(std::move(key));
  };
  const auto sources = [](const ExpertDefault& few, const ExpertDefault& many) {
    return fmt::format("{:g}: {}; {:g}: {}", few.value, few.source, many.value, many.source);
  };
  add("experts.skew", "", 4.0,
      "Popularity of a layer's experts: the one of rank r is used in proportion to r^-skew. Default: 0.3 with up to 16 "
      "experts, else 0.65",
      sources(kSkewOfFew, kSkewOfMany));
  add("experts.locality", "", 1.0,
      "Share of its experts that a sequence keeps from one token to the next, beyond chance. Results "
      "also show half and twice this value (not with --fixed-locality). Default: 0.2 with up to 16 "
      "experts, else 0.4",
      sources(kLocalityOfFew, kLocalityOfMany));
  add("experts.lookahead", "0.8", 1.0,
      "Accuracy of prediction: share of a layer's experts that its gate predicts correctly from the hidden state of "
      "the layer before, when it predicts as many experts as a token uses",
      "Eliseev and Mazur, arXiv 2312.17238, Fig. 2: 80 to 90%, as summaries quote it");
  Parameter patterns{
      .name = "experts.patterns",
      .type = ParameterType::integer,
      .unit = "1",
      .default_value = "",
      .minimum = 1.0,
      .maximum = 64.0,
      .doc =
          "Kinds of requests, each of which has popular experts of its own. A request's kind follows "
          "from its number at its instance. Default: what the policy assumes (8 where it tells requests apart), else 1",
      .source = "8: assumed (hwmodels/README.md, Experts); no measurement was found"};
  patterns.quiet_default = true;
  table.push_back(std::move(patterns));
}

Parameter hit_curve_key() {
  return {.name = "experts.hit_curve",
          .type = ParameterType::text,
          .unit = "slots:share",
          .default_value = "",
          .takes_list = true,
          .quiet_default = true,
          .doc =
              "Measured hit curve of a policy with slots for the experts of each layer: slots, and the share of uses "
              "that find their expert in a slot, as 64:0.67,128:0.81. The curve is linear between points, 0 at 0 "
              "slots, 1 at a "
              "slot for every expert. The curve then decides which uses hit. Default: the policy does; it evicts the "
              "least recently used expert",
          .source = "Example: llama.cpp PR 27861, a model of 512 experts"};
}

void add_replicas(std::vector<Parameter>& table) {
  const auto add = [&table](Parameter key) {
    key.quiet_default = true;
    table.push_back(std::move(key));
  };
  add(count("replicas", "replicas", "1", 100'000,
            "Copies of this configuration that serve the workload together, each on tensor_parallel GPUs",
            "vLLM data_parallel_size, 1 by default"));
  add(count("servers", "servers", "", 100'000,
            "Servers that the replicas fill one after the other; default: as many as the server's file "
            "states, if it is several, else as few as fit. A GPU's name as hardware gives each replica "
            "a host and links of its own",
            "Spillway: by default no server is idle"));
  add({.name = "topology",
       .type = ParameterType::text,
       .unit = std::string(kFileUnit),
       .default_value = "",
       .doc = "File with the links of one server, in place of the topology that the server's file states: which links "
              "the copies of each GPU cross, and what each carries",
       .source = "Spillway: by default the server's own (spillway explain SERVER draws it)"});
  std::vector<std::string> routers;
  for (const RouterInfo* const info : RouterRegistry::instance().all()) routers.push_back(info->name);
  add(choice(kRouterKey, "least-outstanding", routers, "Which replica serves a request",
             "Spillway: by default the load is balanced by what a gateway knows itself"));
  add(flag("router.retry", "true",
           "The router resends the requests that are lost when a replica goes down (events); false: they stay lost",
           "Spillway: gateways retry by default (vllm-router: 5 times)"));
  add({.name = kInstancesKey,
       .type = ParameterType::text,
       .unit = std::string(kListUnit),
       .default_value = "",
       .doc = "Several models or settings on one server, in a configuration: a list of "
              "{\"name\": \"chat\", \"gpus\": \"0-3\", \"share\": 0.5, ...} with any keys of a run but those that "
              "apply to the whole run, such as hardware. gpus: the GPUs of the server that the instance uses. share: "
              "its part of the "
              "workload. An instance with workload.* keys has a workload of its own, drawn with seed + its position in "
              "the list",
       .source = "Spillway: by default all instances of a run are replicas"});
  add({.name = "events",
       .type = ParameterType::text,
       .unit = std::string(kListUnit),
       .default_value = "",
       .doc =
           "Replicas that go down and come up: a file, or in a configuration a list, of "
           "{\"at\": \"60s\", \"replica\": 2, \"event\": \"down\"}; events are down and up. A replica that goes down "
           "loses its KV and its requests",
       .source = "Spillway: by default nothing fails"});
  add(count("prefill_replicas", "replicas", "", 100'000,
            "Replicas that compute prompts and hand the KV over to the decode_replicas; default: every replica does "
            "both",
            "DistServe, OSDI 2024; vLLM, SGLang and Dynamo: prefill and decode instances"));
  add(count("decode_replicas", "replicas", "", 100'000,
            "Replicas that generate answers from the KV that the prefill_replicas hand over",
            "as prefill_replicas; each of the two keys needs the other"));
  add(choice(
      "decode_router", "least-outstanding", std::move(routers),
      "Which of the decode_replicas generates an answer; its router.* keys are those of router=, or the defaults",
      "Spillway: as router"));
  add(choice("handover.mode", "whole", {"whole", "layers"},
             "KV goes from a prefill to a decode replica as a whole, once the prompt has been computed, or layer by "
             "layer while it is computed. With layers, the decode replica has to admit the request first",
             "vLLM nixl_connector: whole"));
  add(choice("handover.first_token", "auto", {"auto", "prefill", "decode"},
             "The replica that samples the first token. decode: it computes the last token of the prompt again. auto: "
             "decode for engines of vLLM, else prefill",
             "vLLM nixl_connector: the client gets the decode instance's tokens; SGLang and TensorRT-LLM: the prefill "
             "instance samples"));
  add(choice("handover.link", "auto", {"auto", "nvlink", "pcie", "network"},
             "Link over which KV goes from one replica to another. auto: nvlink within a server whose GPUs copy to "
             "each other, "
             "pcie within other servers, network between servers, and where hardware names a GPU",
             "Spillway: by default the fastest way that the hardware has"));
  add({.name = "handover.network_bandwidth",
       .type = ParameterType::real,
       .unit = "GB/s",
       .default_value = "50",
       .minimum = 1e-6,
       .maximum = 1e6,
       .doc = "Bandwidth of each GPU's link to the network, in each direction",
       .source = "NVIDIA ConnectX-7 data sheet: 400 Gb/s, one for each GPU of a DGX H100; what a transfer reaches is "
                 "less"});
  add({.name = "handover.network_launch",
       .type = ParameterType::duration,
       .unit = "ns",
       .default_value = "100us",
       .minimum = 0,
       .maximum = kLongestNs,
       .doc = "Time from the start of a hand-over over the network to its first byte",
       .source = "assumed: a notification and a read over RDMA; no measurement was found"});
}

}  // namespace

std::vector<Parameter> config_parameters(const ConfigNames& names, const std::vector<Parameter>& workload) {
  std::vector<std::string> policies;
  for (const PolicyInfo* info : PolicyRegistry::instance().all()) policies.push_back(info->name);
  std::vector<Parameter> table;
  Parameter model =
      name_or_file("model", "llama-3.1-8b", names.models,
                   "Language model: a name, an id of Hugging Face, a file, or a folder with a config.json",
                   "Spillway: by default a widely served model that fits one GPU of the default hardware");
  model.takes_folder = true;
  model.accepts = names.accepts_model;
  model.advice = names.advice_on_model;
  table.push_back(std::move(model));
  table.push_back(name_or_file("hardware", "h100-80gb-sxm", names.hardware,
                               "GPU or server: a name, also as nvidia-smi prints it, or a file; with a GPU, the run "
                               "uses tensor_parallel of them",
                               "Spillway: by default the GPU whose profile has the most measurements"));
  table.back().known_elsewhere = names.hardware_known_elsewhere;
  table.back().advice = names.advice_on_hardware;
  table.push_back({.name = "hardware.price_per_hour",
                   .type = ParameterType::text,
                   .unit = "price of one GPU, or file",
                   .default_value = "",
                   .quiet_default = true,
                   .doc =
                       "Price of one GPU for an hour, in any currency, or a file {\"prices\": [{\"hardware\": "
                       "\"h100-80gb-sxm\", \"price_per_hour\": 2.5, \"date\": \"2026-11-01\", \"source\": \"...\"}]} "
                       "that has the price of one GPU for each GPU or server name; the latest date counts. It gives "
                       "cost_per_million_output_tokens",
                   .source = "Spillway: no default, because prices differ by provider, contract and day"});
  table.push_back({.name = "hardware.power_watts",
                   .type = ParameterType::real,
                   .unit = "W",
                   .default_value = "",
                   .minimum = 0.0,
                   .maximum = 1e5,
                   .above_minimum = true,
                   .quiet_default = true,
                   .doc = "Power of one GPU while it serves, its share of the server included if you wish. It gives "
                          "energy_kwh_per_million_output_tokens",
                   .source = "Spillway: no default, because no bundled profile states a measured power"});
  table.push_back(count("tensor_parallel", "GPUs", "1", 64, "GPUs that share every layer of the model",
                        "vLLM tensor_parallel_size, 1 by default"));
  table.push_back(
      count("data_parallel", "groups", "1", 64,
            "Groups of tensor_parallel GPUs in a replica: each computes the attention of its own requests, and "
            "experts are spread over all of them",
            "vLLM data_parallel_size, 1 by default"));
  table.push_back(count("expert_parallel", "groups", "1", 4096,
                        "Groups of a replica's GPUs that hold experts of their own; the GPUs of a group share the "
                        "width of an expert",
                        "vLLM --enable-expert-parallel, off by default: then every expert is split over all GPUs"));
  table.push_back({.name = "expert_load",
                   .type = ParameterType::text,
                   .unit = "-",
                   .default_value = "balanced",
                   .doc = "How routers spread tokens over experts: balanced (each token chooses at random, all experts "
                          "alike), dealt (evenly, as microbenchmarks do), power_law:ALPHA, or a JSON file with a share "
                          "for each expert of a layer",
                   .source = "Spillway: balanced by default, as training with a load-balancing loss aims at; dealt and "
                             "power_law: the collector of ai-dynamo/aiconfigurator, which measures 1.01 and 1.2"});
  add_experts(table);
  table.push_back(hit_curve_key());
  add_replicas(table);
  table.push_back(choice("policy", "vllm", std::move(policies), "Scheduling and offloading policy",
                         "Spillway: by default the scheduler of today's vLLM"));
  table.push_back(weights_key());
  add_engine(table, names.engines);
  add_memory(table);
  table.insert(table.end(), workload.begin(), workload.end());
  add_slos(table);
  add_run(table);
  return table;
}

}  // namespace spillway
