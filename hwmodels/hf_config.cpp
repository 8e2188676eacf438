#include "hwmodels/hf_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "hwmodels/hf_fields.hpp"
#include "hwmodels/hf_identity.hpp"
#include "hwmodels/hf_layers.hpp"
#include "hwmodels/hf_positions.hpp"
#include "hwmodels/hf_quantization.hpp"
#include "hwmodels/hf_shapes.hpp"
#include "hwmodels/json_messages.hpp"
#include "sim/core/text.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

/// Fields that add weights in the architectures that have them. Other architectures refuse them.
constexpr std::array<std::string_view, 3> kQkNormFields{"qk_layernorm", "use_qk_norm", "qk_norm"};

/// Fields that change neither shapes nor memory; generation settings of old files among them.
constexpr std::string_view kHarmless =
    "_attn_implementation _attn_implementation_autoset _commit_hash _name_or_path _remove_final_layer_norm "
    "activation_dropout activation_function alibi_bias_max apply_residual_connection_post_layernorm architectures "
    "attention_dropout attention_multiplier attention_probs_dropout_prob attention_softmax_in_fp32 "
    "attn_implementation attn_logit_softcapping attn_pdrop attn_scale attn_temperature_tuning auto_map aux_loss_alpha "
    "bad_words_ids begin_suppress_tokens "
    "bias_dropout_fusion bos_token_id cache_implementation chunk_size_feed_forward classifier_dropout clip_qkv "
    "cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample dropout "
    "early_stopping emb_pdrop embd_pdrop embedding_dropout embedding_fraction embedding_multiplier "
    "encoder_no_repeat_ngram_size eos_token_id ep_size experts_per_token exponential_decay_length_penalty "
    "final_logit_softcapping "
    "finetuning_task floor_scale for_llm_compressor forced_bos_token_id forced_eos_token_id gradient_checkpointing "
    "head_dropout hidden_act "
    "hidden_activation hidden_dropout hidden_dropout_prob id2label image_token_id image_token_index "
    "inference_runner init_config init_device input_jitter_noise "
    "initial_context_length initializer_range is_decoder keys_to_ignore_at_inference label2id language layer_norm_eps "
    "layer_norm_epsilon "
    "layerdrop layernorm_epsilon learned_pos_emb length_penalty logit_scale logits_scaling masked_softmax_fusion "
    "max_length max_sequence_length max_window_layers min_length mlp_type model_type moe_aux_loss_coef moe_capacity "
    "moe_capacity_factor moe_gate moe_jitter_eps moe_loss_weight moe_z_loss_coef mtp_transformer_layers n_ctx "
    "n_embed "
    "n_group no_rope_layer_interval no_rope_layers norm_topk_prob num_mtp_modules num_nextn_predict_layers "
    "no_repeat_ngram_size norm_epsilon norm_type num_beam_groups num_beams "
    "num_return_sequences offset_alibi original_max_position_embeddings output_attentions output_hidden_states "
    "output_router_logits "
    "output_scores pad_token_id pre_weights prefix pretraining_tp problem_type qk_norm_type "
    "query_pre_attn_scalar "
    "remove_invalid_values reorder_and_upcast_attn repetition_penalty resid_pdrop residual_dropout "
    "residual_multiplier return_dict return_dict_in_generate rms_norm_eps rope_interleaved rope_local_base_freq "
    "rope_theta rotary rotary_emb_base routed_scaling_factor router_aux_loss_coef router_jitter_noise "
    "runner_max_sequence_length scoring_func seq_aux scale_attention_softmax_in_fp32 "
    "scale_attn_by_inverse_layer_idx scale_attn_weights sep_token_id skip_bias_add skip_bias_add_qkv "
    "sliding_window_size slow_but_exact summary_activation summary_first_dropout summary_proj_to_labels "
    "summary_type summary_use_proj suppress_tokens swiglu_limit task_specific_params temperature tf_legacy_loss "
    "tie_encoder_decoder tokenizer_class tokenizer_name top_k top_p topk_group topk_method torchscript "
    "transformers_version "
    "type_vocab_size typical_p unk_token_id use_bfloat16 use_cache use_mtp use_parallel_residual validate_runner_input "
    "verbose";

/// Parts of the names of fields that change what a model computes: such a field that is not understood is refused.
constexpr auto kChanging = std::to_array<std::string_view>(
    {"expert", "moe", "lora_rank", "window", "sparse", "linear_", "mamba", "ssm_", "conv", "index_", "latent",
     "compress", "recurrent", "kv_shared", "hybrid", "chunk_size", "layer_freq", "layer_interval"});

/// Whether `text` is the name of a model on the hub, "organisation/model" or "model", and not a path on a disk.
bool is_hub_name(std::string_view text) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  };
  return !text.empty() && std::isalnum(static_cast<unsigned char>(text.front())) != 0 && text.back() != '/' &&
         std::count(text.begin(), text.end(), '/') <= 1 && std::all_of(text.begin(), text.end(), allowed);
}

/// The folder of a config.json, also for a path without a folder, such as "config.json"; else the name of the file.
std::string name_of_file(const std::filesystem::path& path) {
  std::error_code none;
  const std::string folder = std::filesystem::absolute(path, none).lexically_normal().parent_path().filename().string();
  return path.filename() == "config.json" && !folder.empty() ? folder : path.stem().string();
}

/// The language model of a document: itself, or the `text_config` of a model that also reads pictures, with what the
/// outer document says of the weights.
struct LanguageModel {
  json document;
  json::json_pointer at;
  bool of_pictures = false;
  HfObject::Names at_root{};  // fields of the outer document
};

LanguageModel language_model(const json& document) {
  const auto text = document.find("text_config");
  const auto classes = document.find("architectures");
  const bool wraps = classes != document.end() && classes->is_array() && !classes->empty() &&
                     classes->front().is_string() &&
                     classes->front().get_ref<const std::string&>().ends_with("ForConditionalGeneration");
  if (!wraps || text == document.end() || !text->is_object() || text->empty()) return {document, json::json_pointer()};
  LanguageModel model{*text, json::json_pointer("/text_config"), true};
  for (const char* name :
       {"architectures", "quantization_config", "dtype", "torch_dtype", "tie_word_embeddings", "_name_or_path"}) {
    if (document.contains(name) && (!text->contains(name) || name == std::string_view("architectures"))) {
      model.document[name] = document[name];
      model.at_root.emplace(name);
    }
  }
  return model;
}

class ConfigReader {
 public:
  ConfigReader(const std::string& path, std::string_view content, const LanguageModel& model)
      : findings_{path, {}, {}},
        root_(model.document, model.at, findings_, model.at_root),
        architecture_(find_architecture(root_)),
        fields_(root_, architecture_, llm_) {
    if (model.of_pictures) {
      findings_.warnings.push_back(fmt::format(
          "{}: only the language model is simulated. The vision encoder is left out: it takes neither memory nor time",
          path));
    }
    llm_.file.path = path;
    llm_.file.sha256 = sha256_hex(content);
  }

  LlmModel read() {
    const HfLayerTypes types = refuse_other_models(root_);
    llm_.dtype_bytes = read_dtype();
    if (architecture_ != nullptr) {
      read_fields(types);
    } else {
      read_quantization(root_, llm_);
    }
    if (!findings_.problems.empty()) throw DataError(std::move(findings_.problems));
    describe();
    llm_.file.warnings = std::move(findings_.warnings);
    return std::move(llm_);
  }

 private:
  void read_fields(const HfLayerTypes& types) {
    read_shapes(fields_);
    read_latent_attention(fields_);
    read_quantization(root_, llm_);
    const std::vector<std::int64_t> windows = read_positions(fields_, types);
    read_norms_and_biases(fields_);
    check_shapes(fields_);
    read_layers(fields_, windows);
    root_.understood(kHarmless);
    // Parts that one architecture has and another does not.
    for (const std::string_view name : kQkNormFields) {
      // A class that always has such norms may say so.
      const bool always = architecture_->qk_norm.name.empty() && architecture_->qk_norm_kind != QkNorm::none;
      const bool known = always || name == architecture_->qk_norm.name;
      if (always) root_.understood(name);
      if (!known && root_.is_set(name)) root_.fail(name, fmt::format("is not modelled for {}", architecture_->name));
    }
    root_.refuse_the_rest(kChanging, "is not known, and its name suggests that it changes what the model computes");
    root_.warn_of_the_rest();
  }

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
          fmt::format("{} does not state torch_dtype: 2 bytes per weight are assumed", findings_.file));
      fields_.note_from("dtype_bytes", "2", "bytes", "config.json states no torch_dtype", "assumed");
    } else {
      fields_.note_from("dtype_bytes", "2", "bytes", fmt::format("config.json: {}, in 16 bits", field));
    }
    return 2;
  }

  void describe() {
    DataFile& file = llm_.file;
    const std::string hub = root_.text("_name_or_path").value_or("");
    file.name = is_hub_name(hub) ? hub : name_of_file(file.path);
    file.stands_for = fmt::format("{}, {} of Hugging Face", file.name, architecture_->name);
    file.error = "shapes of the file; parameters are counted from them";
    describe_quantization(llm_, findings_);
    fields_.note_from("parameters", fmt::format("{}", llm_.parameters()), "1", "counted from the shapes");
    fields_.note_from("weights", fmt::format("{}", llm_.weights_per_gpu(1).count()), "bytes",
                      "counted from the shapes, on one GPU");
    const std::int64_t element = llm_.kv_cache_bytes.value_or(llm_.dtype_bytes);
    fields_.note_from(
        "kv_per_token", fmt::format("{}", llm_.kv_bytes_per_token(element).count()), "bytes",
        llm_.kv_cache_bytes ? "config.json: quantization_config.kv_cache_scheme" : "counted from the shapes");
  }

  HfFindings findings_;
  HfObject root_;
  const HfArchitecture* architecture_;
  LlmModel llm_;
  HfFields fields_;
};

json parse(const std::string& path, std::string_view content) {
  if (content.empty()) throw DataError("the file is empty", path);
  // Comparing, copying and printing values are recursive.
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

}  // namespace

LlmModel read_hf_config(const std::string& path, std::string_view content) {
  const json document = parse(path, content);
  refuse_other_files(path, document);
  const LanguageModel model = language_model(document);
  return ConfigReader(path, content, model).read();
}

}  // namespace spillway::hwmodels
