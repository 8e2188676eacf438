// meta.json of a log folder: the engine's settings, under vLLM's names.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "traces/engine_log_parts.hpp"

namespace spillway::traces {
namespace {

using nlohmann::json;

std::string content_of(const std::string& path) {
  FileReader file(path, kLogWords);
  std::string text;
  std::array<char, 1 << 16> buffer{};
  while (const std::size_t n = file.read(buffer.data(), buffer.size())) text.append(buffer.data(), n);
  return text;
}

/// meta.json, read by JSON pointers. Engines write a setting in several places; the first one counts.
class Meta {
 public:
  Meta(std::string path, Complaints& complaints) : path_(std::move(path)), complaints_(complaints) {
    const std::string text = content_of(path_);
    document_ = json::parse(text, nullptr, false);
    if (document_.is_object()) return;
    throw DataError(document_.is_discarded() ? "is not valid JSON" : "is not a JSON object", path_,
                    "meta.json must describe the engine: {\"model\": ..., \"engine_kwargs\": {...}}");
  }

  [[nodiscard]] std::string where(const std::string& pointer) const { return fmt::format("{} ({})", path_, pointer); }

  /// The first of these values that exists and is not null, with its pointer; null if there is none.
  [[nodiscard]] std::pair<const json*, std::string> find(std::initializer_list<const char*> pointers) const {
    for (const char* pointer : pointers) {
      const json::json_pointer at(pointer);
      if (document_.contains(at) && !document_[at].is_null()) return {&document_[at], pointer};
    }
    return {nullptr, {}};
  }
  [[nodiscard]] bool has(std::initializer_list<const char*> pointers) const { return find(pointers).first != nullptr; }

  [[nodiscard]] std::string text(std::initializer_list<const char*> pointers) const {
    const auto [value, at] = find(pointers);
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    complaints_.add(fmt::format("must be a text, not {}", value->dump()), where(at), {});
    return {};
  }
  [[nodiscard]] std::optional<std::int64_t> whole(std::initializer_list<const char*> pointers) const {
    const auto [value, at] = find(pointers);
    if (value == nullptr) return std::nullopt;
    if (value->is_number_integer() && *value > 0) return value->get<std::int64_t>();
    complaints_.add(fmt::format("must be a whole number above 0, not {}", value->dump()), where(at), {});
    return std::nullopt;
  }
  [[nodiscard]] std::optional<bool> flag(std::initializer_list<const char*> pointers) const {
    const auto [value, at] = find(pointers);
    if (value == nullptr) return std::nullopt;
    if (value->is_boolean()) return value->get<bool>();
    complaints_.add(fmt::format("must be true or false, not {}", value->dump()), where(at), {});
    return std::nullopt;
  }

 private:
  std::string path_;
  Complaints& complaints_;
  json document_;
};

struct Version {
  int major = 0;
  int minor = 0;
};
std::optional<Version> version_of(const std::string& text) {
  Version version;
  if (std::sscanf(text.c_str(), "%d.%d", &version.major, &version.minor) == 2) return version;  // NOLINT(cert-err34-c)
  return std::nullopt;
}

/// memory.kv_dtype for vLLM's name of a number format.
std::string kv_dtype_of(const std::string& format) {
  if (format.starts_with("fp8")) return "fp8";
  if (format == "float16") return "fp16";
  return format == "bfloat16" ? "bf16" : format;
}

class MetaReader {
 public:
  MetaReader(EngineLog& log, const Meta& meta) : log_(log), meta_(meta) {}

  void read(Complaints& complaints) {
    log_.model = meta_.text({"/model", "/engine_kwargs/model", "/resolved_config/model_config/model"});
    log_.version = meta_.text({"/vllm_version"});
    log_.engine = log_.version.empty() ? "vLLM" : "vLLM " + log_.version;
    log_.device = meta_.text({"/hardware/device_name"});
    read_engine();
    read_memory();
    refuse_several(complaints);
    warn_of_what_is_not_modelled();
  }

 private:
  void set(const char* key, std::string text, const std::string& pointer) {
    log_.settings.push_back({key, std::move(text), meta_.where(pointer)});
  }
  void take_whole(const char* key, std::initializer_list<const char*> pointers) {
    if (const auto value = meta_.whole(pointers)) set(key, fmt::format("{}", *value), meta_.find(pointers).second);
  }
  void take_flag(const char* key, std::initializer_list<const char*> pointers) {
    if (const auto value = meta_.flag(pointers)) set(key, *value ? "true" : "false", meta_.find(pointers).second);
  }

  void read_engine() {
    const std::optional<Version> version = version_of(log_.version);
    // The V1 scheduler is the default since 0.8.0.
    const bool v0 = version && version->major == 0 && version->minor < 8;
    set("policy", v0 ? "vllm-v0" : "vllm", "/vllm_version");
    if (!v0) {
      // The nearer of the two that have a file; without a version, the older one.
      const bool newer = version && (version->major > 0 || version->minor > 21);
      const int minor = newer ? 23 : 19;
      set("engine", fmt::format("vllm-0.{}", minor), "/vllm_version");
      if (version && (version->major != 0 || version->minor != minor)) {
        log_.warnings.push_back(fmt::format(
            "the log is of vLLM {}: its CPU time and scheduler are assumed to be those of 0.{}", log_.version, minor));
      }
      take_flag("policy.reserve_full_input", {"/resolved_config/scheduler_config/scheduler_reserve_full_isl",
                                              "/engine_kwargs/scheduler_reserve_full_isl"});
    }
    take_whole("tensor_parallel",
               {"/resolved_config/parallel_config/tensor_parallel_size", "/engine_kwargs/tensor_parallel_size"});
    take_whole("engine.max_num_seqs",
               {"/resolved_config/scheduler_config/max_num_seqs", "/engine_kwargs/max_num_seqs"});
    take_whole("engine.max_num_batched_tokens",
               {"/resolved_config/scheduler_config/max_num_batched_tokens", "/engine_kwargs/max_num_batched_tokens"});
    take_whole("engine.max_model_len", {"/resolved_config/model_config/max_model_len", "/engine_kwargs/max_model_len"});
    take_flag("engine.chunked_prefill",
              {"/resolved_config/scheduler_config/enable_chunked_prefill", "/engine_kwargs/enable_chunked_prefill"});
  }

  void read_memory() {
    if (const auto blocks = meta_.whole({"/kv_cache/num_gpu_blocks", "/resolved_config/cache_config/num_gpu_blocks"})) {
      log_.gpu_blocks = Blocks(*blocks);
    }
    take_whole("memory.block_tokens",
               {"/kv_cache/block_size", "/resolved_config/cache_config/block_size", "/engine_kwargs/block_size"});
    const std::initializer_list<const char*> utilization{"/kv_cache/gpu_memory_utilization",
                                                         "/resolved_config/cache_config/gpu_memory_utilization",
                                                         "/engine_kwargs/gpu_memory_utilization"};
    if (const auto [value, at] = meta_.find(utilization); value != nullptr) {
      set("engine.gpu_memory_utilization", value->dump(), at);
    }
    const std::initializer_list<const char*> format_at{"/resolved_config/cache_config/cache_dtype",
                                                       "/engine_kwargs/kv_cache_dtype"};
    if (const std::string format = meta_.text(format_at); !format.empty()) {
      set("memory.kv_dtype", kv_dtype_of(format), meta_.find(format_at).second);
    }
    log_.prefix_caching =
        meta_
            .flag({"/kv_cache/enable_prefix_caching", "/resolved_config/cache_config/enable_prefix_caching",
                   "/engine_kwargs/enable_prefix_caching"})
            .value_or(false);
  }

  void refuse_several(Complaints& complaints) {
    for (const auto& pointers :
         {std::array{"/resolved_config/parallel_config/pipeline_parallel_size",
                     "/engine_kwargs/pipeline_parallel_size"},
          std::array{"/resolved_config/parallel_config/data_parallel_size", "/engine_kwargs/data_parallel_size"}}) {
      const auto size = meta_.whole({pointers[0], pointers[1]});
      if (size.value_or(1) == 1) continue;
      complaints.add(fmt::format("{} is not modelled", *size),
                     meta_.where(meta_.find({pointers[0], pointers[1]}).second),
                     "log an engine of one replica and one pipeline stage");
    }
  }

  void warn_of_what_is_not_modelled() {
    struct Feature {
      const char* pointer;
      const char* what;
    };
    for (const Feature& feature : {Feature{"/resolved_config/speculative_config", "speculative decoding"},
                                   Feature{"/resolved_config/lora_config", "LoRA"},
                                   Feature{"/resolved_config/kv_transfer_config", "KV transfer"},
                                   Feature{"/resolved_config/quant_config", "quantised weights"}}) {
      if (!meta_.has({feature.pointer})) continue;
      log_.warnings.push_back(fmt::format("the engine ran with {}, which the simulation leaves out: {}", feature.what,
                                          meta_.where(feature.pointer)));
    }
    const std::string order = meta_.text({"/resolved_config/scheduler_config/policy"});
    if (!order.empty() && order != "fcfs") {
      log_.warnings.push_back(
          fmt::format("the engine scheduled by \"{}\"; the simulation schedules first come, first served", order));
    }
    if (meta_.flag({"/resolved_config/model_config/enforce_eager", "/engine_kwargs/enforce_eager"}).value_or(false)) {
      log_.warnings.emplace_back(
          "the engine ran in eager mode, without CUDA graphs. Write its launch time per layer as launch_floor into an "
          "engine file and set engine=FILE");
    }
  }

  EngineLog& log_;
  const Meta& meta_;
};

}  // namespace

std::string read_log_meta(EngineLog& log, const std::string& path, Complaints& complaints) {
  const Meta meta(path, complaints);
  MetaReader(log, meta).read(complaints);
  return meta.text({"/started_at"});
}

}  // namespace spillway::traces
