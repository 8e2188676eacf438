#include "hwmodels/hf_quantization.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "hwmodels/json_messages.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostGroup = 1'000'000;
constexpr double kHalf = 16.0;    // bits of an fp16 or bf16 scale
constexpr double kSingle = 32.0;  // bits of an fp32 scale

/// Fields that list layers which stay unquantised.
constexpr auto kIgnoreFields =
    std::to_array<std::string_view>({"modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules"});
/// Parts of the names of modules that are never quantised: norms, embeddings, and modules of multimodal models, which
/// quantisers list for every model.
constexpr auto kNeverQuantised =
    std::to_array<std::string_view>({"norm", "embed", "projector", "merger", "modality_projection", "vis", "audio"});
/// Fields that do not change the size of the weights.
constexpr std::string_view kHarmlessMethodFields =
    "_load_in_4bit _load_in_8bit activation_scheme backend batch_size block_name_to_quantize "
    "bnb_4bit_compute_dtype bnb_4bit_quant_storage cache_block_outputs checkpoint_format damp_auto_increment "
    "damp_percent dataset desc_act disable_exllama do_fuse exllama_config fmt fuse_max_seq_len "
    "global_compression_ratio group_count is_marlin_format kv_cache_scheme llm_int8_enable_fp32_cpu_offload "
    "llm_int8_has_fp16_weight llm_int8_threshold max_input_length meta model_file_base_name model_name_or_path "
    "model_seqlen module_name_preceding_first_block mse observed_modules pack_dtype pad_token_id quant_method "
    "quantization_status quantizer static_groups sym tokenizer true_sequential use_cuda_fp16 use_exllama version "
    "zero_point";

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool has_any(std::string_view text, std::span<const std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return contains(text, part); });
}

/// One quantization_config.
class QuantizationReader {
 public:
  QuantizationReader(HfObject& config, LlmModel& llm) : in_(config), llm_(llm) {}

  void read() {
    const std::string method = method_name();
    const std::array<std::pair<std::string_view, void (QuantizationReader::*)()>, 7> readers{
        {{"gptq", &QuantizationReader::read_gptq},
         {"awq", &QuantizationReader::read_awq},
         {"fp8", &QuantizationReader::read_fp8},
         {"modelopt", &QuantizationReader::read_modelopt},
         {"mxfp4", &QuantizationReader::read_mxfp4},
         {"compressed-tensors", &QuantizationReader::read_compressed},
         {"bitsandbytes", &QuantizationReader::read_bitsandbytes}}};
    const auto* row =
        std::find_if(readers.begin(), readers.end(), [&](const auto& one) { return one.first == method; });
    if (row == readers.end()) return refuse_method(method);
    linear_.method = method;
    (this->*row->second)();
    for (const std::string_view field : kIgnoreFields) {
      if (read_ignored(field)) linear_.head = false;
    }
    check_ignored_attention();
    read_kv_cache();
    in_.understood(kHarmlessMethodFields);
    in_.warn_of_the_rest();
    llm_.quantized = linear_;
  }

 private:
  std::string method_name() {
    if (const auto method = in_.text("quant_method")) return *method;
    // Before 2023-08 there was only one library, and it did not write its name.
    return in_.contains("load_in_4bit") || in_.contains("load_in_8bit") ? "bitsandbytes" : "";
  }

  void refuse_method(const std::string& method) {
    static const std::vector<std::string> kMethods{"awq",      "bitsandbytes", "compressed-tensors", "fp8", "gptq",
                                                   "modelopt", "mxfp4"};
    if (method.empty() && in_.document().contains("quant_method") && !in_.document()["quant_method"].is_null()) {
      if (!in_.document()["quant_method"].is_string()) return;  // its type has been refused
    }
    in_.fail("quant_method", method.empty() ? "missing" : fmt::format("quantisation by \"{}\" is not modelled", method),
             fmt::format("known: {}", fmt::join(kMethods, ", ")));
  }

  /// The field under its usual or its older name, else `absent`. Records a problem when the value is not in `allowed`.
  std::int64_t bits(std::string_view name, std::string_view older, std::int64_t absent,
                    const std::vector<std::int64_t>& allowed) {
    const std::string_view used = !older.empty() && in_.contains(older) ? older : name;
    const std::int64_t value = in_.integer(used, 1, 64).value_or(absent);
    if (value == 0 && in_.contains(used)) return value;  // refused already
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
      in_.fail(used, value == 0 ? "missing" : fmt::format("{} bits are not modelled for {}", value, linear_.method),
               fmt::format("known: {}", fmt::join(allowed, ", ")));
    }
    return value;
  }

  /// The number of inputs that share a scale; 0: all inputs, which the files write as -1.
  std::int64_t group_size(HfObject& from, std::string_view name, std::int64_t absent) {
    const std::int64_t size = from.integer(name, -1, kMostGroup).value_or(absent);
    if (size == 0) from.fail(name, "must be a number of weights, or -1 for all inputs, not 0");
    return std::max<std::int64_t>(size, 0);
  }

  void set_groups(std::int64_t inputs, std::int64_t outputs, double bits) {
    linear_.group_inputs = inputs;
    linear_.group_outputs = outputs;
    linear_.group_bits = bits;
    linear_.split_inputs = inputs;
  }

  void refuse_when_set(std::string_view name, std::string_view why) {
    in_.understood(name);
    if (in_.is_set(name)) in_.fail(name, fmt::format("{}, which is not modelled", why));
  }

  void read_gptq() {
    linear_.bits = bits("bits", "", 0, {2, 3, 4, 8});
    set_groups(group_size(in_, "group_size", 128), 1, kHalf + static_cast<double>(linear_.bits));
    if (linear_.bits == 4) linear_.kernel = Quantization::int4;
    linear_.head = in_.flag("lm_head").value_or(false);
    refuse_when_set("dynamic", "gives some layers other bits");
    refuse_when_set("modules_in_block_to_quantize", "quantises some layers only");
  }

  void read_awq() {
    linear_.bits = bits("bits", "w_bit", 4, {4});
    const std::string_view group = in_.contains("q_group_size") ? "q_group_size" : "group_size";
    set_groups(group_size(in_, group, 128), 1, kHalf + static_cast<double>(linear_.bits));
    linear_.kernel = Quantization::int4;
  }

  void read_fp8() {
    linear_.bits = 8;
    linear_.kernel = Quantization::fp8;
    set_groups(0, 0, kSingle);
    if (const json* block = in_.find("weight_block_size")) {
      if (const auto shape = block_shape(*block)) {
        set_groups((*shape)[1], (*shape)[0], kSingle);
        linear_.kernel = kernel_of_blocks(*shape);
      } else {
        in_.fail("weight_block_size", fmt::format("must be [rows, columns], not {}", shown(*block)));
      }
    }
  }

  /// Experts alone: gpt-oss.
  void read_mxfp4() {
    linear_.bits = 4;
    linear_.kernel = Quantization::mxfp4;
    set_groups(32, 1, 8.0);
    linear_.split_inputs = 0;  // kernels pad the width of an expert
    linear_.attention = linear_.mlp = false;
  }

  /// NVIDIA's ModelOpt.
  void read_modelopt() {
    const std::string algorithm = in_.text("quant_algo").value_or("");
    if (algorithm == "FP8") {
      linear_.bits = 8;
      linear_.kernel = Quantization::fp8;
      set_groups(0, 0, kSingle);
    } else if (algorithm == "NVFP4") {
      linear_.bits = 4;
      linear_.kernel = Quantization::nvfp4;
      set_groups(16, 1, 8.0);
    } else {
      in_.fail("quant_algo", algorithm.empty() ? "missing" : fmt::format("\"{}\" is not modelled", algorithm),
               "known: FP8, NVFP4");
    }
    linear_.head = true;
    for (const std::string_view field : {"ignore", "exclude_modules"}) {
      if (read_ignored(field)) linear_.head = false;
    }
    in_.understood("config_groups producer kv_cache_quant_algo");
  }

  void read_bitsandbytes() {
    const bool four = in_.flag("load_in_4bit").value_or(false);
    const bool eight = in_.flag("load_in_8bit").value_or(false);
    const std::string type = in_.text("bnb_4bit_quant_type").value_or("fp4");
    const bool twice = in_.flag("bnb_4bit_use_double_quant").value_or(false);
    if (four == eight) return in_.fail("load_in_4bit", "exactly one of load_in_4bit and load_in_8bit must be true");
    linear_.bits = four ? 4 : 8;
    if (eight) return set_groups(0, 1, kSingle);
    if (type != "nf4" && type != "fp4") {
      in_.fail("bnb_4bit_quant_type", fmt::format("\"{}\" is not modelled", type), "known: fp4, nf4");
    }
    set_groups(64, 1, twice ? 8.0 + kSingle / 256.0 : kSingle);
    linear_.split_inputs = 0;  // quantised after loading, each GPU's share on its own
  }

  void read_compressed() {
    const auto format = in_.text("format");
    if (format && (contains(*format, "marlin") || contains(*format, "sparse") || contains(*format, "fp4"))) {
      in_.fail("format", fmt::format("\"{}\" is not modelled", *format),
               "known: pack-quantized, int-quantized, float-quantized, naive-quantized");
    }
    if (const json* sparsity = in_.find("sparsity_config")) {
      if (sparsity->is_object() && !sparsity->empty() && sparsity->value("format", json()) != "dense") {
        in_.fail("sparsity_config", "sparse weights are not modelled");
      }
    }
    const json* groups = in_.find("config_groups");
    if (groups == nullptr || !groups->is_object() || groups->empty()) {
      return in_.fail("config_groups", groups == nullptr
                                           ? std::string("missing")
                                           : fmt::format("must be an object of groups, not {}", shown(*groups)));
    }
    linear_.head = !read_ignored("ignore");
    read_groups(*groups);
  }

  void read_groups(const json& groups) {
    const json& first = groups.begin().value();
    for (const auto& [name, group] : groups.items()) {
      const auto at = in_.pointer("config_groups") / name;
      if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object()) {
        in_.fail(at / "weights", "must be an object that says how weights are stored");
      } else if (&group != &first && (!first.is_object() || group["weights"] != first.value("weights", json()))) {
        in_.fail(at, "stores other layers in another way, which is not modelled");
      } else if (!quantises_all_linear_layers(group)) {
        in_.fail(at / "targets",
                 fmt::format("must name all layers as \"Linear\", not {}", shown(group.value("targets", json()))));
      } else if (&group == &first) {
        HfObject weights(group["weights"], at / "weights", in_.findings());
        read_weights(weights, group.contains("input_activations") && !group["input_activations"].is_null());
      }
    }
  }

  static bool quantises_all_linear_layers(const json& group) {
    const json targets = group.value("targets", json::array());
    return std::find(targets.begin(), targets.end(), "Linear") != targets.end();
  }

  void read_weights(HfObject& weights, bool activations_too) {
    const auto bits = weights.integer("num_bits", 1, 64);
    linear_.bits = bits.value_or(0);
    const bool refused = !bits && weights.contains("num_bits");
    if (!refused && linear_.bits != 4 && linear_.bits != 8) {
      weights.fail("num_bits", fmt::format("{} bits are not modelled for compressed-tensors", linear_.bits),
                   "known: 4, 8");
    }
    const bool symmetric = weights.flag("symmetric").value_or(true);
    const double scale = (activations_too ? kSingle : kHalf) + (symmetric ? 0.0 : static_cast<double>(linear_.bits));
    const std::int64_t group = group_size(weights, "group_size", -1);
    const std::string strategy = weights.text("strategy")
                                     .value_or(group > 0                        ? "group"
                                               : weights.contains("group_size") ? "channel"
                                                                                : "tensor");
    const bool floats = weights.text("type").value_or("int") == "float";
    const bool fp8 = floats && activations_too && linear_.bits == 8;
    if (fp8 && (strategy == "tensor" || strategy == "channel")) linear_.kernel = Quantization::fp8;
    if (!activations_too && !floats && linear_.bits == 4) linear_.kernel = Quantization::int4;
    if (strategy == "tensor") return set_groups(0, 0, scale);
    if (strategy == "channel") return set_groups(0, 1, scale);
    if (strategy == "group") return set_groups(group, 1, scale);
    const json* block = weights.find("block_structure");
    const auto shape = block == nullptr ? std::nullopt : block_shape(*block);
    if (strategy == "block" && shape) {
      if (fp8) linear_.kernel = kernel_of_blocks(*shape);
      return set_groups((*shape)[1], (*shape)[0], scale);
    }
    if (strategy == "block") return weights.fail("block_structure", "must be [rows, columns]");
    weights.fail("strategy", fmt::format("\"{}\" is not modelled", strategy), "known: tensor, channel, group, block");
  }

  /// Kernels are measured with the usual blocks only.
  static Quantization kernel_of_blocks(const std::array<std::int64_t, 2>& shape) {
    return shape == std::array<std::int64_t, 2>{128, 128} ? Quantization::fp8_block : Quantization::none;
  }

  /// [rows, columns]: outputs and inputs of a block. Empty when it is something else.
  static std::optional<std::array<std::int64_t, 2>> block_shape(const json& value) {
    const auto is_size = [](const json& size) { return size.is_number_integer() && size >= 1 && size <= kMostGroup; };
    if (!value.is_array() || value.size() != 2 || !is_size(value[0]) || !is_size(value[1])) return std::nullopt;
    return std::array{value[0].get<std::int64_t>(), value[1].get<std::int64_t>()};
  }

  /// A list of modules that stay unquantised. Returns whether the LM head is among them. Routers and the attention of
  /// all layers may be. Another linear layer is a problem: the others of the model have one size per weight.
  bool read_ignored(std::string_view field) {
    const json* list = in_.find(field);
    if (list == nullptr) return false;
    if (!list->is_array()) {
      in_.fail(field, fmt::format("must be a list of module names, not {}", shown(*list)));
      return false;
    }
    bool head = false;
    for (std::size_t i = 0; i < list->size(); ++i) {
      const std::string name = (*list)[i].is_string() ? (*list)[i].get<std::string>() : std::string();
      const bool is_head = contains(name, "lm_head") || contains(name, "embed_out");
      head = head || is_head;
      if (is_head || has_any(name, kNeverQuantised) || is_router(name)) continue;
      if (contains(name, "self_attn")) {
        if (const auto layer = layer_of(name)) {
          ignored_attention_.insert(*layer);
        } else {
          linear_.attention = false;
        }
        ignored_at_ = in_.pointer(field) / i;
        continue;
      }
      refuse_ignored(in_.pointer(field) / i, (*list)[i]);
      break;  // such lists name hundreds of layers
    }
    return head;
  }

  void refuse_ignored(const json::json_pointer& at, const json& name) {
    in_.fail(at, fmt::format("{} stays unquantised while other layers are not, which is not modelled", shown(name)));
  }

  /// The attention of every layer, or of none.
  void check_ignored_attention() {
    if (ignored_attention_.empty()) return;
    if (llm_.layers > 0 && std::ssize(ignored_attention_) >= llm_.layers) {
      linear_.attention = false;
    } else {
      in_.fail(ignored_at_, fmt::format("the attention of {} of {} layers stays unquantised, which is not modelled",
                                        ignored_attention_.size(), llm_.layers));
    }
  }

  /// "model.layers.3.mlp.gate", "gate", "model.layers.*.mlp.router": it picks experts, or gates shared ones.
  static bool is_router(std::string_view name) {
    return name == "gate" || name.ends_with(".gate") || name.ends_with("router") || name.ends_with("router*") ||
           name.ends_with("shared_expert_gate") || contains(name, "e_score_correction_bias");
  }
  /// The number between dots in the name of a module; empty: it means all layers.
  static std::optional<std::int64_t> layer_of(std::string_view name) {
    for (std::size_t at = name.find('.'); at != std::string_view::npos; at = name.find('.', at + 1)) {
      std::int64_t layer = 0;
      const char* const end = name.data() + name.size();
      const auto [rest, fault] = std::from_chars(name.data() + at + 1, end, layer);
      if (fault == std::errc() && (rest == end || *rest == '.')) return layer;
    }
    return std::nullopt;
  }

  void read_kv_cache() {
    const json* scheme = in_.find("kv_cache_scheme");
    if (scheme == nullptr) return;
    if (!scheme->is_object() || scheme->value("num_bits", json()) != 8) {
      return in_.fail("kv_cache_scheme", fmt::format("must be an object with num_bits 8, not {}", shown(*scheme)));
    }
    llm_.kv_cache_bytes = 1;
  }

  HfObject& in_;
  LlmModel& llm_;
  QuantizedLinear linear_;
  std::set<std::int64_t> ignored_attention_{};  // layers
  json::json_pointer ignored_at_{};
};

}  // namespace

void read_quantization(HfObject& root, LlmModel& llm) {
  const std::string_view field = !root.contains("quantization_config") && root.contains("compression_config")
                                     ? "compression_config"
                                     : "quantization_config";
  const json* config = root.find(field);
  if (config == nullptr) return;
  if (!config->is_object()) {
    return root.fail(field, fmt::format("must be an object, not {}", shown(*config)));
  }
  HfObject in(*config, root.pointer(field), root.findings());
  QuantizationReader(in, llm).read();
}

void describe_quantization(LlmModel& llm, HfFindings& findings) {
  if (!llm.quantized) return;
  const QuantizedLinear& linear = *llm.quantized;
  llm.file.error += fmt::format("; {} weights by the layout of their format, index tables left out", linear.method);
  if (linear.kernel == Quantization::none) {
    findings.warnings.push_back(
        fmt::format("{}: {} weights are read as {} bits with their scales, and multiplied at the GPU's bf16 speed: no "
                    "kernel of this method is calibrated",
                    findings.file, linear.method, linear.bits));
  }
  const auto add = [&](const char* key, std::string value, const char* unit) {
    llm.file.entries.push_back({key, std::move(value), unit, "datasheet", "config.json: quantization_config"});
  };
  const auto sharing = [](std::int64_t group) { return group == 0 ? std::string("all") : fmt::format("{}", group); };
  add("quantization", linear.method, "1");
  add("linear_weight_bits", fmt::format("{}", linear.bits), "bits");
  add("scale_group_inputs", sharing(linear.group_inputs), "1");
  add("scale_group_outputs", sharing(linear.group_outputs), "1");
  add("scale_group_bits", fmt::format("{}", linear.group_bits), "bits");
}

void read_quantization(LlmModel& llm, const nlohmann::json& stored) {
  HfFindings findings{llm.file.path, {}, {}};
  HfObject root(stored, json::json_pointer(), findings);
  read_quantization(root, llm);
  if (!findings.problems.empty()) throw DataError(std::move(findings.problems));
  describe_quantization(llm, findings);
  llm.file.warnings.insert(llm.file.warnings.end(), findings.warnings.begin(), findings.warnings.end());
}

}  // namespace spillway::hwmodels
