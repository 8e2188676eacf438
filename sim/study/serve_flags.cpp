#include "sim/study/serve_flags.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace spillway {
namespace {

/// An option of an engine for a key. The option is left out where the key has the value that the engine starts with.
struct Option {
  const char* key;
  const char* option;
  const char* by_itself;  // the engine's own value; empty: the option is always given
};

struct Engine {
  const char* name;
  const char* start;
  const char* source;
  std::array<Option, 8> options;
};

constexpr Engine kVllm{"vLLM",
                       "vllm serve MODEL",
                       "vLLM 0.19, options not checked",
                       {{{"tensor_parallel", "--tensor-parallel-size", "1"},
                         {"data_parallel", "--data-parallel-size", "1"},
                         {"engine.max_num_batched_tokens", "--max-num-batched-tokens", ""},
                         {"engine.max_num_seqs", "--max-num-seqs", ""},
                         {"engine.max_model_len", "--max-model-len", "null"},
                         {"engine.gpu_memory_utilization", "--gpu-memory-utilization", "0.9"},
                         {"memory.block_tokens", "--block-size", "16"},
                         {"memory.kv_dtype", "--kv-cache-dtype", "auto"}}}};
constexpr Engine kTensorRt{"TensorRT-LLM",
                           "trtllm-serve MODEL",
                           "TensorRT-LLM 1.0, options not checked",
                           {{{"tensor_parallel", "--tp_size", "1"},
                             {"expert_parallel", "--ep_size", "1"},
                             {"engine.max_num_batched_tokens", "--max_num_tokens", ""},
                             {"engine.max_num_seqs", "--max_batch_size", ""},
                             {"engine.max_model_len", "--max_seq_len", "null"},
                             {"", "", ""},
                             {"", "", ""},
                             {"", "", ""}}}};

std::string text_of(const nlohmann::json& config, const char* key) {
  const auto value = config.find(key);
  if (value == config.end() || value->is_null()) return "null";
  return value->is_string() ? value->get<std::string>() : value->dump();
}

const Engine* engine_of(std::string_view policy, std::string_view engine) {
  if (policy == "tensorrt-llm") return &kTensorRt;
  const bool on_vllm = policy == "vllm" || policy == "vllm-v0" || policy == "vllm-uva" || policy == "vllm-prefetch";
  return on_vllm && engine.starts_with("vllm-") ? &kVllm : nullptr;
}

}  // namespace

std::optional<ServeFlags> serve_flags(const nlohmann::json& result) {
  const nlohmann::json& config = result.at("config");
  const nlohmann::json& setup = result.at("setup");
  const Engine* const engine = engine_of(setup.at("policy").get<std::string>(), setup.at("engine").get<std::string>());
  const auto own = setup.find("engine_flags");
  const bool placed = own != setup.end() && own->is_object();
  if (engine == nullptr) {
    if (!placed) return std::nullopt;
    return ServeFlags{own->at("engine").get<std::string>(), own->at("flags").get<std::string>(),
                      own->at("version").get<std::string>()};
  }
  ServeFlags flags{engine->name, engine->start, engine->source};
  for (const Option& option : engine->options) {
    if (*option.key == '\0') continue;
    const std::string text = text_of(config, option.key);
    if (text != option.by_itself) flags.command += fmt::format(" {} {}", option.option, text);
  }
  if (engine != &kVllm) return flags;
  const bool experts = text_of(config, "expert_parallel") != "1" && text_of(config, "expert_parallel") != "null";
  if (experts) flags.command += " --enable-expert-parallel";
  if (const std::string quantization = text_of(config, "engine.quantization");
      quantization != "auto" && quantization != "null" && quantization != "none") {
    flags.command += " --quantization " + quantization;
  }
  if (!setup.at("prefix_caching").get<bool>()) flags.command += " --no-enable-prefix-caching";
  const double blocks = setup.at("host_cache_blocks").get<double>();
  if (blocks > 0.0) {
    const double ranks = setup.at("tensor_parallel_gpus").get<double>();
    constexpr double kGibibyte = 1073741824.0;
    flags.command += fmt::format(" --kv-offloading-backend native --kv-offloading-size {:.4g}",
                                 blocks * setup.at("block_bytes_per_gpu").get<double>() * ranks / kGibibyte);
  }
  if (placed) {
    flags.command += " " + own->at("flags").get<std::string>();
    flags.source += "; " + own->at("version").get<std::string>();
  }
  return flags;
}

}  // namespace spillway
