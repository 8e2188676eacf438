#include "hwmodels/hf_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <utility>

#include "hwmodels/hf_architectures.hpp"
#include "hwmodels/hf_object.hpp"
#include "hwmodels/hf_quantization.hpp"
#include "sim/core/text.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

// Bounds that keep every product of shapes within int64.
constexpr std::int64_t kMostLayers = 1000;
constexpr std::int64_t kMostWidth = 1'000'000;
constexpr std::int64_t kMostRows = 10'000'000;
constexpr std::int64_t kMostPositions = 1'000'000'000;

/// Other files that lie beside a config.json, by a field that only they have.
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

/// Fields that make a model something else than a dense decoder. A name that ends in '_' stands for all that start so.
struct Refused {
  std::string_view field;
  std::string_view why;
};
constexpr std::string_view kExperts = "mixture-of-experts models are not modelled";
constexpr std::string_view kLatent = "multi-head latent attention is not modelled";
constexpr std::string_view kMultimodal =
    "multimodal models are not modelled; give a config.json of the language model alone";
constexpr std::string_view kEncoder = "encoders and cross-attention are not modelled";
constexpr std::string_view kHybrid = "state-space, linear-attention and hybrid layers are not modelled";
constexpr std::string_view kVaried = "layers of different shapes, or that share KV, are not modelled";
constexpr auto kRefused = std::to_array<Refused>({{"num_local_experts", kExperts},
                                                  {"num_experts", kExperts},
                                                  {"n_routed_experts", kExperts},
                                                  {"moe_", kExperts},
                                                  {"q_lora_rank", kLatent},
                                                  {"kv_lora_rank", kLatent},
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
                                                  {"state_size", kHybrid},
                                                  {"lru_width", kHybrid},
                                                  {"block_types", kHybrid},
                                                  {"layers_block_type", kHybrid},
                                                  {"hybrid_override_pattern", kHybrid},
                                                  {"full_attention_interval", kHybrid},
                                                  {"attn_layer_period", kHybrid},
                                                  {"block_configs", kVaried},
                                                  {"num_kv_shared_layers", kVaried},
                                                  {"pruned_heads", kVaried}});
/// Change the weights where an architecture knows them; refused where it does not.
constexpr std::array<std::string_view, 3> kQkNormFields{"qk_layernorm", "use_qk_norm", "qk_norm"};

/// Fields that change neither shapes nor memory; generation settings of old files among them.
constexpr std::string_view kHarmless =
    "_attn_implementation _attn_implementation_autoset _commit_hash _name_or_path _remove_final_layer_norm "
    "activation_dropout activation_function alibi_bias_max apply_residual_connection_post_layernorm architectures "
    "attention_dropout attention_multiplier attention_probs_dropout_prob attention_softmax_in_fp32 "
    "attn_implementation attn_logit_softcapping attn_pdrop auto_map bad_words_ids begin_suppress_tokens "
    "bias_dropout_fusion bos_token_id cache_implementation chunk_size_feed_forward classifier_dropout clip_qkv "
    "cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample dropout "
    "early_stopping emb_pdrop embd_pdrop embedding_dropout embedding_fraction embedding_multiplier "
    "encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty final_logit_softcapping "
    "finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing head_dropout hidden_act "
    "hidden_activation hidden_dropout hidden_dropout_prob id2label inference_runner init_config init_device "
    "initializer_range is_decoder keys_to_ignore_at_inference label2id language layer_norm_eps layer_norm_epsilon "
    "layerdrop layernorm_epsilon learned_pos_emb length_penalty logit_scale logits_scaling masked_softmax_fusion "
    "max_length max_sequence_length max_window_layers min_length mlp_type model_type n_ctx n_embed "
    "no_repeat_ngram_size norm_epsilon norm_type num_beam_groups num_beams "
    "num_return_sequences offset_alibi original_max_position_embeddings output_attentions output_hidden_states "
    "output_scores pad_token_id pre_weights prefix pretraining_tp problem_type query_pre_attn_scalar "
    "remove_invalid_values reorder_and_upcast_attn repetition_penalty resid_pdrop residual_dropout "
    "residual_multiplier return_dict return_dict_in_generate rms_norm_eps rope_interleaved rope_local_base_freq "
    "rope_theta rotary rotary_emb_base runner_max_sequence_length scale_attention_softmax_in_fp32 "
    "scale_attn_by_inverse_layer_idx scale_attn_weights sep_token_id skip_bias_add skip_bias_add_qkv "
    "sliding_window_pattern slow_but_exact summary_activation summary_first_dropout summary_proj_to_labels "
    "summary_type summary_use_proj suppress_tokens task_specific_params temperature tf_legacy_loss "
    "tie_encoder_decoder tokenizer_class tokenizer_name top_k top_p torchscript transformers_version "
    "type_vocab_size typical_p unk_token_id use_bfloat16 use_cache use_parallel_residual validate_runner_input "
    "verbose";

bool same_but_for_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

/// Families of their own whose names are near those that are understood, in small letters and without '_'.
constexpr auto kOtherFamilies = std::to_array<std::string_view>(
    {"bloomz", "gemma3n", "gemma3ntext", "gptneo", "internlm2ve", "llamba", "llava", "ministral", "mixtral", "olmoe",
     "phi3v", "phimoe", "qwen2moe", "qwen2vl", "qwen3moe", "qwen3vl"});

/// "LlamaForCausalLM" and "llama" -> "llama": what tells one class or model_type from another.
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

/// The name that `name` is a misspelling of; empty when it may well be another model. Another number is another
/// version.
std::string meant_architecture(std::string_view name, const std::vector<std::string>& known) {
  const std::string stem = stem_of(name);
  if (std::find(kOtherFamilies.begin(), kOtherFamilies.end(), stem) != kOtherFamilies.end()) return {};
  std::string nearest;
  std::size_t best = std::min<std::size_t>(2, stem.size() / 3) + 1;
  for (const std::string& candidate : known) {
    if (digits_of(candidate) != digits_of(name)) continue;
    // The ending may be misspelt, too.
    const std::size_t distance = std::min(edit_distance(stem, stem_of(candidate)), edit_distance(name, candidate));
    if (distance >= best) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

/// The name of a model on the hub, "organisation/model" or "model", and no path on somebody's disk.
bool is_hub_name(std::string_view text) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  };
  return !text.empty() && std::isalnum(static_cast<unsigned char>(text.front())) != 0 && text.back() != '/' &&
         std::count(text.begin(), text.end(), '/') <= 1 && std::all_of(text.begin(), text.end(), allowed);
}

/// The folder of a config.json, whichever way the path is written: "." and "config.json" have a folder, too.
std::string name_of_file(const std::filesystem::path& path) {
  std::error_code none;
  const std::string folder = std::filesystem::absolute(path, none).lexically_normal().parent_path().filename().string();
  return path.filename() == "config.json" && !folder.empty() ? folder : path.stem().string();
}

/// Biases by name, for `explain`.
std::string biases_text(const Biases& biases) {
  std::vector<std::string> names;
  if (biases.qkv) names.emplace_back("qkv");
  if (biases.output) names.emplace_back("attention output");
  if (biases.mlp) names.emplace_back("mlp");
  if (biases.head) names.emplace_back("lm head");
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

class Reader {
 public:
  Reader(const std::string& path, std::string_view content, const json& document)
      : findings_{path, {}, {}}, root_(document, json::json_pointer(), findings_) {
    llm_.file.path = path;
    llm_.file.sha256 = sha256_hex(content);
  }

  LlmModel read() {
    find_architecture();
    refuse_other_models();
    llm_.dtype_bytes = read_dtype();
    read_quantization(root_, llm_);
    if (architecture_ != nullptr) read_fields();
    if (!findings_.problems.empty()) throw DataError(std::move(findings_.problems));
    describe();
    llm_.file.warnings = std::move(findings_.warnings);
    return std::move(llm_);
  }

 private:
  void read_fields() {
    const HfArchitecture& row = *architecture_;
    llm_.layer_norms = row.layer_norms;
    llm_.outer_norms = row.outer_norms;
    read_shapes(row);
    read_special(row);
    read_positions(row);
    read_norms_and_biases(row);
    check_shapes(row);
    root_.understood(kHarmless);
    // Parts that are there in one architecture and not known in another.
    for (const std::string_view name : kQkNormFields) {
      const bool known = name == row.qk_norm.name;
      if (!known && root_.is_set(name)) root_.fail(name, fmt::format("is not modelled for {}", row.name));
    }
    root_.warn_of_the_rest();
  }

  // ---- What the model is

  void find_architecture() {
    const json* list = root_.find("architectures");
    const bool listed = list != nullptr && !(list->is_array() && list->empty());
    if (listed && (!list->is_array() || !list->front().is_string())) {
      return root_.fail("architectures", fmt::format("must be a list of class names, not {}", shown(*list)));
    }
    const auto type = root_.text("model_type");
    if (!listed && !type) {
      if (root_.find("model_type") == nullptr) root_.fail("architectures", "missing, and so is model_type");
      return;
    }
    const std::string name = listed ? list->front().get<std::string>() : *type;
    const auto key = [&](const HfArchitecture& row) { return listed ? row.name : row.model_type; };
    const auto rows = hf_architectures();
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const HfArchitecture& one) { return same_but_for_case(key(one), name); });
    if (row != rows.end()) {
      architecture_ = &*row;
      return;
    }
    std::vector<std::string> known;
    known.reserve(rows.size());
    for (const HfArchitecture& one : rows) known.emplace_back(key(one));
    const std::string near = meant_architecture(name, known);
    root_.fail(listed ? root_.pointer("architectures") / 0 : root_.pointer("model_type"),
               fmt::format("\"{}\" is not an architecture that is understood", name),
               (near.empty() ? std::string() : fmt::format("did you mean \"{}\"? ", near)) +
                   fmt::format("known: {}", fmt::join(known, ", ")));
  }

  void refuse_other_models() {
    for (const Refused& refused : kRefused) {
      for (const auto& [name, value] : root_.document().items()) {
        const bool match = refused.field.ends_with('_') ? name.starts_with(refused.field) : name == refused.field;
        if (!match) continue;
        root_.understood(name);
        if (root_.is_set(name)) root_.fail(name, std::string(refused.why));
      }
    }
    read_layer_types();
  }

  void read_layer_types() {
    const json* types = root_.find("layer_types");
    if (types == nullptr) return;
    if (!types->is_array()) {
      return root_.fail("layer_types", fmt::format("must be a list, not {}", shown(*types)));
    }
    has_layer_types_ = !types->empty();
    only_full_attention_ = has_layer_types_;
    for (std::size_t i = 0; i < types->size(); ++i) {
      if ((*types)[i] == "full_attention") continue;
      only_full_attention_ = false;
      if ((*types)[i] == "sliding_attention") continue;
      return root_.fail(root_.pointer("layer_types") / i, fmt::format("{}: {}", shown((*types)[i]), kHybrid));
    }
  }

  // ---- Values with their source

  void note(const char* key, std::string value, const char* unit, std::string_view field) {
    note_from(key, std::move(value), unit,
              !field.empty() && root_.contains(field) ? fmt::format("config.json: {}", field)
                                                      : fmt::format("transformers default of {}", architecture_->name));
  }
  void note_from(const char* key, std::string value, const char* unit, std::string citation,
                 const char* kind = "datasheet") {
    llm_.file.entries.push_back({key, std::move(value), unit, kind, std::move(citation)});
  }

  [[nodiscard]] std::string_view used(const HfShape& shape) const {
    return !shape.alias.empty() && !root_.contains(shape.name) ? shape.alias : shape.name;
  }

  /// `derived` is what null stands for, and a class without a default of its own; 0 when there is no such thing.
  std::int64_t count(const char* key, const HfShape& shape, std::int64_t most, std::int64_t derived,
                     const char* unit = "1") {
    std::string_view field = used(shape);
    std::int64_t value = shape.absent > 0 ? shape.absent : derived;
    if (!field.empty() && root_.contains(field)) {
      value = root_.integer(field, 1, most, derived > 0 ? Null::absent : Null::refused).value_or(derived);
    } else if (!field.empty() && shape.absent > 0) {
      findings_.warnings.push_back(fmt::format("{} does not say {}: {} is taken, the default of {} in transformers",
                                               findings_.file, shape.name, value, architecture_->name));
    }
    note(key, fmt::format("{}", value), unit, field);
    return value;
  }

  bool choice(const HfFlag& flag) {
    const bool value = flag.name.empty() ? flag.absent : root_.flag(flag.name).value_or(flag.absent);
    return value != flag.negated;
  }

  // ---- Shapes

  void read_shapes(const HfArchitecture& row) {
    llm_.layers = count("layers", row.layers, kMostLayers, 0);
    llm_.hidden = count("hidden", row.hidden, kMostWidth, 0);
    llm_.heads = count("heads", row.heads, kMostLayers, 0);
    llm_.kv_heads = count("kv_heads", row.kv_heads, kMostLayers, std::max<std::int64_t>(1, llm_.heads));
    if (choice(row.one_kv_head)) set_kv_heads(1, row.one_kv_head.name);
    const std::int64_t split = llm_.heads > 0 ? llm_.hidden / llm_.heads : 0;
    llm_.head_dim = count("head_dim", row.head_dim, kMostLayers, std::max<std::int64_t>(1, split));
    llm_.ffn = count("ffn", row.ffn, kMostWidth, std::max<std::int64_t>(1, 4 * llm_.hidden));
    llm_.vocabulary = count("vocabulary", row.vocabulary, kMostRows, 0, "tokens");
    llm_.gated_mlp = row.gated;
    note("gated_mlp", row.gated ? "true" : "false", "bool", "");
    llm_.tied_embeddings = choice(row.tied);
    note("tied_embeddings", llm_.tied_embeddings ? "true" : "false", "bool", row.tied.name);
  }

  /// For a field that decides over num_key_value_heads.
  void set_kv_heads(std::int64_t heads, std::string_view field) {
    llm_.kv_heads = heads;
    std::erase_if(llm_.file.entries, [](const Entry& entry) { return entry.key == "kv_heads"; });
    note("kv_heads", fmt::format("{}", heads), "1", field);
  }

  void read_norms_and_biases(const HfArchitecture& row) {
    llm_.biases = {.qkv = choice(row.qkv_bias),
                   .output = choice(row.output_bias),
                   .mlp = choice(row.mlp_bias),
                   .head = choice(row.head_bias)};
    note("biases", biases_text(llm_.biases), "1", row.qkv_bias.name);
    llm_.norm_vectors = choice(row.norm_weights) ? (choice(row.norm_bias) ? 2 : 1) : 0;
    note("norm_vectors", fmt::format("{}", llm_.norm_vectors), "1", row.norm_bias.name);
    if (choice(row.parallel)) llm_.layer_norms = 1;
    note("layer_norms", fmt::format("{}", llm_.layer_norms), "1", row.parallel.name);
    if (row.qk_norm_kind != QkNorm::none && choice(row.qk_norm)) llm_.qk_norm = row.qk_norm_kind;
    note("qk_norm", llm_.qk_norm == QkNorm::none ? "false" : "true", "bool", row.qk_norm.name);
  }

  void read_special(const HfArchitecture& row) {
    if (row.special == HfSpecial::opt) read_opt();
    if (row.special == HfSpecial::falcon) read_falcon();
    if (row.special == HfSpecial::mpt) read_mpt();
  }

  void read_opt() {
    const auto projected = root_.integer("word_embed_proj_dim", 1, kMostWidth);
    if (projected && *projected != llm_.hidden) {
      root_.fail("word_embed_proj_dim", fmt::format("embeddings of width {} that are projected to hidden_size {} are "
                                                    "not modelled",
                                                    *projected, llm_.hidden));
    }
    if (!root_.flag("do_layer_norm_before").value_or(true)) llm_.outer_norms = 0;
  }

  void read_falcon() {
    const bool grouped = root_.flag("new_decoder_architecture").value_or(false);
    const bool multi_query = root_.flag("multi_query").value_or(true);
    const bool parallel = root_.flag("parallel_attn").value_or(true);
    // num_kv_heads holds for the new architecture only.
    if (!grouped) set_kv_heads(multi_query ? 1 : llm_.heads, "multi_query");
    const std::int64_t parallel_norms = root_.integer("num_ln_in_parallel_attn", 1, 2).value_or(grouped ? 2 : 1);
    llm_.layer_norms = parallel ? parallel_norms : 2;
  }

  void read_mpt() {
    const std::int64_t ratio = root_.integer("expansion_ratio", 1, 100).value_or(4);
    llm_.ffn = ratio * llm_.hidden;
    std::erase_if(llm_.file.entries, [](const Entry& entry) { return entry.key == "ffn"; });
    note("ffn", fmt::format("{}", llm_.ffn), "1", "expansion_ratio");
    const json* config = root_.find("attn_config");
    if (config == nullptr) return;
    if (!config->is_object()) return root_.fail("attn_config", "must be an object");
    HfObject attention(*config, root_.pointer("attn_config"), findings_);
    const std::string type = attention.text("attn_type").value_or("multihead_attention");
    if (type != "multihead_attention") {
      attention.fail("attn_type", fmt::format("\"{}\" is not modelled", type), "known: multihead_attention");
    }
    if (!attention.flag("alibi").value_or(true)) attention.fail("alibi", "positions other than ALiBi are not modelled");
    if (attention.flag("qk_ln").value_or(false)) attention.fail("qk_ln", "is not modelled for MPTForCausalLM");
    attention.understood("alibi_bias_max attn_impl attn_pdrop clip_qkv model_type softmax_scale");
    attention.warn_of_the_rest();
  }

  // ---- Positions

  void read_positions(const HfArchitecture& row) {
    llm_.max_positions = count("max_positions", row.positions, kMostPositions, 0, "tokens");
    if (row.position_kind == HfPositions::learned) {
      llm_.learned_position_rows = llm_.max_positions + row.extra_position_rows;
      note("learned_position_rows", fmt::format("{}", llm_.learned_position_rows), "1", used(row.positions));
    }
    const bool alibi = row.position_kind == HfPositions::alibi || choice(row.alibi);
    if (alibi) {
      llm_.rotary_dim = 0;
    } else if (row.position_kind == HfPositions::rotary) {
      read_rotation(row);
    }
    note("rotated_dim", fmt::format("{}", llm_.rotated_dim()), "1",
         row.rotary_dim.name.empty() ? row.rotary_fraction : row.rotary_dim.name);
    root_.understood("rope_scaling rope_parameters");
    if (!row.positions_scaled) scale_positions();
    apply_window(row);
  }

  void read_rotation(const HfArchitecture& row) {
    if (!row.rotary_dim.name.empty()) {
      llm_.rotary_dim =
          std::min(llm_.head_dim, root_.integer(row.rotary_dim.name, 1, kMostLayers).value_or(row.rotary_dim.absent));
    } else if (!row.rotary_fraction.empty()) {
      const double fraction = root_.number(row.rotary_fraction, 0.0, 1.0).value_or(row.rotary_fraction_absent);
      llm_.rotary_dim = static_cast<std::int64_t>(std::floor(fraction * static_cast<double>(llm_.head_dim)));
    }
  }

  /// vLLM's rule. transformers 5 writes rope_parameters, always; before, there was rope_scaling when positions scale.
  void scale_positions() {
    const std::string_view field = root_.is_set("rope_scaling") ? "rope_scaling" : "rope_parameters";
    if (!root_.is_set(field)) return;
    const json* value = root_.find(field);
    if (!value->is_object()) return root_.fail(field, fmt::format("must be an object, not {}", shown(*value)));
    HfObject scaling(*value, root_.pointer(field), findings_);
    const std::string_view type_field = scaling.contains("rope_type") ? "rope_type" : "type";
    const std::string type = scaling.text(type_field).value_or("default");
    static const std::vector<std::string> kKept{"default", "llama3", "longrope", "su"};
    static const std::vector<std::string> kScaled{"linear", "dynamic", "yarn"};
    if (std::find(kKept.begin(), kKept.end(), type) != kKept.end()) return;
    if (std::find(kScaled.begin(), kScaled.end(), type) == kScaled.end()) {
      return scaling.fail(type_field, fmt::format("\"{}\" is not understood", type),
                          fmt::format("known: {}, {}", fmt::join(kKept, ", "), fmt::join(kScaled, ", ")));
    }
    if (scaling.find("factor") == nullptr) return scaling.fail("factor", "missing");
    const double factor = scaling.number("factor", 1.0, 1000.0).value_or(1.0);
    const auto original = scaling.integer("original_max_position_embeddings", 1, kMostPositions);
    const std::int64_t base = type == "yarn" ? original.value_or(llm_.max_positions) : llm_.max_positions;
    set_positions(std::min(kMostPositions, static_cast<std::int64_t>(static_cast<double>(base) * factor)),
                  fmt::format("config.json: {}, {} of factor {}", field, type, factor));
  }

  /// Qwen's rule: without layer_types, the first max_window_layers attend to everything.
  bool no_layer_has_a_window(const HfArchitecture& row) {
    if (has_layer_types_) return only_full_attention_;
    if (row.full_layers == 0) return false;
    return root_.integer("max_window_layers", 0, kMostPositions).value_or(row.full_layers) >= llm_.layers;
  }

  void apply_window(const HfArchitecture& row) {
    std::int64_t window = row.window;
    if (root_.contains("sliding_window")) window = root_.integer("sliding_window", 0, kMostPositions).value_or(0);
    const bool on = root_.flag("use_sliding_window").value_or(row.window_used);
    if (!on || no_layer_has_a_window(row) || window == 0 || window >= llm_.max_positions) return;
    findings_.warnings.push_back(
        fmt::format("{}: the longest request is lowered from {} to {} tokens, the model's sliding window: attention "
                    "over a window is not modelled",
                    findings_.file, llm_.max_positions, window));
    llm_.sliding_window = window;
    set_positions(window, root_.contains("sliding_window")
                              ? std::string("config.json: sliding_window")
                              : fmt::format("transformers default of {}: sliding_window", row.name));
  }

  void set_positions(std::int64_t positions, std::string citation) {
    llm_.max_positions = positions;
    std::erase_if(llm_.file.entries, [](const Entry& entry) { return entry.key == "max_positions"; });
    note_from("max_positions", fmt::format("{}", positions), "tokens", std::move(citation));
  }

  // ---- Element size

  std::int64_t read_dtype() {
    const std::string_view field = root_.contains("dtype") ? "dtype" : "torch_dtype";
    root_.understood("torch_dtype");
    const bool wrong = root_.find(field) != nullptr && !root_.find(field)->is_string();
    std::string type = root_.text(field).value_or("");
    if (type.starts_with("torch.")) type = type.substr(6);
    const bool half = type == "bfloat16" || type == "float16" || type == "half";
    const bool single = type == "float32" || type == "float";
    if (!half && !single && !type.empty()) {
      root_.fail(field, fmt::format("\"{}\" is not understood", type), "known: bfloat16, float16, float32");
    }
    if (single) {
      findings_.warnings.push_back(
          fmt::format("{}: {} weights are taken as 2 bytes each, as vLLM serves them", findings_.file, type));
    }
    if (type.empty() && !wrong) {
      findings_.warnings.push_back(
          fmt::format("{} does not say torch_dtype: 2 bytes per weight are assumed", findings_.file));
      note_from("dtype_bytes", "2", "bytes", "config.json says no torch_dtype", "assumed");
    } else {
      note_from("dtype_bytes", "2", "bytes", fmt::format("config.json: {}, in 16 bits", field));
    }
    return 2;
  }

  // ---- The whole

  /// Conditions between fields; judged only while the fields themselves are right.
  void check_shapes(const HfArchitecture& row) {
    if (!findings_.problems.empty()) return;
    const bool derived = row.head_dim.name.empty() || root_.find(row.head_dim.name) == nullptr;
    if (derived && row.head_dim.absent == 0 && llm_.hidden % llm_.heads != 0) {
      root_.fail(used(row.hidden), fmt::format("{} is not divisible by the {} heads", llm_.hidden, llm_.heads));
    } else if (llm_.head_dim > kMostLayers) {
      root_.fail(used(row.heads), fmt::format("heads of width {} are not modelled", llm_.head_dim),
                 fmt::format("use at most {}", kMostLayers));
    }
    if (llm_.heads % llm_.kv_heads != 0) {
      root_.fail(used(row.kv_heads), fmt::format("{} must divide the {} heads", llm_.kv_heads, llm_.heads));
    }
    if (llm_.ffn > kMostWidth) {
      root_.fail(used(row.hidden), fmt::format("an MLP of width {} is not modelled", llm_.ffn));
    }
  }

  void describe() {
    DataFile& file = llm_.file;
    const std::string hub = root_.text("_name_or_path").value_or("");
    file.name = is_hub_name(hub) ? hub : name_of_file(file.path);
    file.stands_for = fmt::format("{}, {} of Hugging Face", file.name, architecture_->name);
    file.error = "shapes of the file; parameters are counted from them";
    if (llm_.quantized) describe_quantization(*llm_.quantized);
    note_from("parameters", fmt::format("{}", llm_.parameters()), "1", "counted from the shapes");
    note_from("weights", fmt::format("{}", llm_.weights_per_gpu(1).count()), "bytes",
              "counted from the shapes, on one GPU");
    const std::int64_t element = llm_.kv_cache_bytes.value_or(llm_.dtype_bytes);
    note_from("kv_per_token", fmt::format("{}", llm_.kv_bytes_per_token(element).count()), "bytes",
              llm_.kv_cache_bytes ? "config.json: quantization_config.kv_cache_scheme" : "counted from the shapes");
  }

  void describe_quantization(const QuantizedLinear& linear) {
    file_error_for(linear);
    const auto add = [&](const char* key, std::string value, const char* unit) {
      note_from(key, std::move(value), unit, "config.json: quantization_config");
    };
    add("quantization", linear.method, "1");
    add("linear_weight_bits", fmt::format("{}", linear.bits), "bits");
    add("scale_group_inputs", linear.group_inputs == 0 ? "all" : fmt::format("{}", linear.group_inputs), "1");
    add("scale_group_outputs", linear.group_outputs == 0 ? "all" : fmt::format("{}", linear.group_outputs), "1");
    add("scale_group_bits", fmt::format("{}", linear.group_bits), "bits");
  }

  void file_error_for(const QuantizedLinear& linear) {
    llm_.file.error += fmt::format("; {} weights by the layout of their format, index tables left out", linear.method);
    findings_.warnings.push_back(
        fmt::format("{}: {} weights are read as {} bits with their scales, and multiplied at the GPU's bf16 speed: no "
                    "kernel of this method is calibrated",
                    llm_.file.path, linear.method, linear.bits));
  }

  HfFindings findings_;
  HfObject root_;
  LlmModel llm_;
  const HfArchitecture* architecture_ = nullptr;
  bool has_layer_types_ = false;
  bool only_full_attention_ = false;
};

json parse(const std::string& path, std::string_view content) {
  if (content.empty()) throw DataError("the file is empty", path);
  // Comparing, copying and printing values recurse.
  const auto not_too_deep = [&](int depth, json::parse_event_t, const json&) {
    if (depth > 50) throw DataError("objects or lists nested more than 50 deep", path);
    return true;
  };
  json document;
  try {
    document = json::parse(content, not_too_deep);
  } catch (const json::exception& error) {
    throw DataError(fmt::format("not a JSON document: {}", json_fault(error)), path);
  }
  if (!document.is_object()) {
    const std::string article = document.is_null() ? "" : document.is_array() ? "an " : "a ";
    throw DataError(fmt::format("must hold a JSON object, not {}{}", article, document.type_name()), path);
  }
  return document;
}

/// Its own name for the file is more help than all the fields that it lacks.
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

}  // namespace

LlmModel read_hf_config(const std::string& path, std::string_view content) {
  const json document = parse(path, content);
  refuse_other_files(path, document);
  return Reader(path, content, document).read();
}

}  // namespace spillway::hwmodels
