#include "hwmodels/hf_identity.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "hwmodels/json_messages.hpp"
#include "sim/core/error.hpp"
#include "sim/core/text.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

/// Other files in the folder of a config.json, each recognised by a field that only this file has.
struct OtherFile {
  std::string_view field;
  std::string_view what;
};
constexpr auto kOtherFiles = std::to_array<OtherFile>({{"tokenizer_class", "a tokenizer_config.json"},
                                                       {"added_tokens_decoder", "a tokenizer_config.json"},
                                                       {"chat_template", "a tokenizer_config.json"},
                                                       {"added_tokens", "a tokenizer.json"},
                                                       {"_from_model_config", "a generation_config.json"},
                                                       {"max_new_tokens", "a generation_config.json"},
                                                       {"do_sample", "a generation_config.json"},
                                                       {"weight_map", "an index of weight files"},
                                                       {"peft_type", "a LoRA adapter's configuration"},
                                                       {"damp_percent", "a quantize_config.json"},
                                                       {"processor_class", "a preprocessor_config.json"},
                                                       {"norm_eps", "a params.json of the original release"},
                                                       {"transformers_version", "a generation_config.json"}});

/// Fields that make a model something that is not modelled. A name that ends in '_' is a prefix.
struct Refused {
  std::string_view field;
  std::string_view why;
};
constexpr std::string_view kMultimodal =
    "multimodal models are not modelled; give a config.json of the language model alone";
constexpr std::string_view kIndexed = "sparse attention over tokens that an index selects is not modelled";
constexpr std::string_view kEncoder = "encoders and cross-attention are not modelled";
constexpr std::string_view kHybrid = "state-space, linear-attention and hybrid layers are not modelled";
constexpr std::string_view kVaried = "layers of different shapes, or that share KV, are not modelled";
constexpr auto kRefused = std::to_array<Refused>({{"index_topk", kIndexed},
                                                  {"index_n_heads", kIndexed},
                                                  {"index_head_dim", kIndexed},
                                                  {"vision_config", kMultimodal},
                                                  {"audio_config", kMultimodal},
                                                  {"text_config", kMultimodal},
                                                  {"is_encoder_decoder", kEncoder},
                                                  {"add_cross_attention", kEncoder},
                                                  {"cross_attention_layers", kEncoder},
                                                  {"num_encoder_layers", kEncoder},
                                                  {"mamba_", kHybrid},
                                                  {"ssm_", kHybrid},
                                                  {"linear_num_", kHybrid},
                                                  {"linear_conv_", kHybrid},
                                                  {"linear_attn_config", kHybrid},
                                                  {"attn_type_list", kHybrid},
                                                  {"state_size", kHybrid},
                                                  {"lru_width", kHybrid},
                                                  {"block_types", kHybrid},
                                                  {"layers_block_type", kHybrid},
                                                  {"hybrid_override_pattern", kHybrid},
                                                  {"full_attention_interval", kHybrid},
                                                  {"attn_layer_period", kHybrid},
                                                  {"block_configs", kVaried},
                                                  {"num_kv_shared_layers", kVaried},
                                                  {"use_cla", kVaried},
                                                  {"pruned_heads", kVaried}});
bool same_but_for_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

/// Other families whose names resemble an understood one, in small letters and without '_'.
constexpr auto kOtherFamilies =
    std::to_array<std::string_view>({"bloomz", "gemma3n", "gemma3ntext", "gptneo", "internlm2ve", "llamba", "llava",
                                     "ministral", "phi3v", "qwen2vl", "qwen3vl"});

/// "LlamaForCausalLM" and "llama" -> "llama": the part of a name that identifies the family.
std::string stem_of(std::string_view name) {
  for (const std::string_view suffix : {"ForCausalLM", "LMHeadModel"}) {
    if (name.size() > suffix.size() && name.ends_with(suffix)) name.remove_suffix(suffix.size());
  }
  std::string stem;
  for (const char c : name) {
    if (c != '_') stem += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return stem;
}

std::string digits_of(std::string_view text) {
  std::string digits;
  std::copy_if(text.begin(), text.end(), std::back_inserter(digits), [](char c) { return c >= '0' && c <= '9'; });
  return digits;
}

/// The known name of which `name` is probably a misspelling; empty when `name` may be another model. Names with
/// different numbers are different versions.
std::string meant_architecture(std::string_view name, const std::vector<std::string>& known) {
  const std::string stem = stem_of(name);
  if (std::find(kOtherFamilies.begin(), kOtherFamilies.end(), stem) != kOtherFamilies.end()) return {};
  std::string nearest;
  std::size_t best = std::min<std::size_t>(2, stem.size() / 3) + 1;
  for (const std::string& candidate : known) {
    if (digits_of(candidate) != digits_of(name)) continue;
    // The ending may be misspelt as well.
    const std::size_t distance = std::min(edit_distance(stem, stem_of(candidate)), edit_distance(name, candidate));
    if (distance >= best) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

HfLayerTypes read_layer_types(HfObject& root) {
  HfLayerTypes windows;
  const json* list = root.find("layer_types");
  if (list == nullptr) return windows;
  if (!list->is_array()) {
    root.fail("layer_types", fmt::format("must be a list, not {}", shown(*list)));
    return windows;
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    const json& type = (*list)[i];
    const bool window = type == "sliding_attention" || type == "chunked_attention";
    if (!window && type != "full_attention") {
      root.fail(root.pointer("layer_types") / i, fmt::format("{}: {}", shown(type), kHybrid));
      return windows;
    }
    windows.push_back(window);
  }
  return windows;
}

}  // namespace

void refuse_other_files(const std::string& path, const json& document) {
  if (document.contains("model_type") || document.contains("architectures")) return;
  const std::string fix = "give the config.json beside it, or a model in Spillway's own form";
  for (const auto& [field, what] : kOtherFiles) {
    if (!document.contains(field)) continue;
    throw DataError(fmt::format("looks like {}, not like a model's config.json", what),
                    fmt::format("{} at /{}", path, field), fix);
  }
  throw DataError(
      "neither a Hugging Face config.json (no model_type, no architectures) nor a model of Spillway's own "
      "form (no schema_version)",
      path, fix);
}

const HfArchitecture* find_architecture(HfObject& root) {
  const json* list = root.find("architectures");
  const bool listed = list != nullptr && !(list->is_array() && list->empty());
  if (listed && (!list->is_array() || !list->front().is_string())) {
    root.fail("architectures", fmt::format("must be a list of class names, not {}", shown(*list)));
    return nullptr;
  }
  const auto type = root.text("model_type");
  if (!listed && !type) {
    if (root.find("model_type") == nullptr) root.fail("architectures", "missing, and so is model_type");
    return nullptr;
  }
  const std::string name = listed ? list->front().get<std::string>() : *type;
  const auto key = [&](const HfArchitecture& row) { return listed ? row.name : row.model_type; };
  const auto rows = hf_architectures();
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const HfArchitecture& one) { return same_but_for_case(key(one), name); });
  if (row != rows.end()) return &*row;
  std::vector<std::string> known;
  known.reserve(rows.size());
  for (const HfArchitecture& one : rows) known.emplace_back(key(one));
  const std::string near = meant_architecture(name, known);
  root.fail(listed ? root.pointer("architectures") / 0 : root.pointer("model_type"),
            fmt::format("\"{}\" is not an architecture that is understood", name),
            (near.empty() ? std::string() : fmt::format("did you mean \"{}\"? ", near)) +
                fmt::format("known: {}", fmt::join(known, ", ")));
  return nullptr;
}

HfLayerTypes refuse_other_models(HfObject& root) {
  for (const Refused& refused : kRefused) {
    for (const auto& [name, value] : root.document().items()) {
      const bool match = refused.field.ends_with('_') ? name.starts_with(refused.field) : name == refused.field;
      if (!match) continue;
      root.understood(name);
      if (root.is_set(name)) root.fail(name, std::string(refused.why));
    }
  }
  return read_layer_types(root);
}

}  // namespace spillway::hwmodels
