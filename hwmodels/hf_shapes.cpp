#include "hwmodels/hf_shapes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

/// Biases by name, for `explain`.
std::string biases_text(const Biases& biases) {
  std::vector<std::string> names;
  if (biases.qkv) names.emplace_back("qkv");
  if (biases.output) names.emplace_back("attention output");
  if (biases.mlp) names.emplace_back("mlp");
  if (biases.head) names.emplace_back("lm head");
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

class ShapeReader {
 public:
  explicit ShapeReader(HfFields& fields)
      : fields_(fields), root_(fields.root()), row_(fields.architecture()), llm_(fields.llm()) {}

  void read() {
    llm_.layer_norms = row_.layer_norms;
    llm_.outer_norms = row_.outer_norms;
    llm_.attention_sinks = row_.attention_sinks;
    llm_.layers = fields_.count("layers", row_.shapes.layers, kMostLayers, 0);
    llm_.hidden = fields_.count("hidden", row_.shapes.hidden, kMostWidth, 0);
    llm_.heads = fields_.count("heads", row_.shapes.heads, kMostLayers, 0);
    llm_.kv_heads = fields_.count("kv_heads", row_.shapes.kv_heads, kMostLayers, std::max<std::int64_t>(1, llm_.heads));
    if (fields_.choice(row_.one_kv_head)) set_kv_heads(1, row_.one_kv_head.name);
    const std::int64_t split = llm_.heads > 0 ? llm_.hidden / llm_.heads : 0;
    llm_.head_dim = fields_.count("head_dim", row_.shapes.head_dim, kMostLayers, std::max<std::int64_t>(1, split));
    llm_.ffn = fields_.count("ffn", row_.shapes.ffn, kMostWidth, std::max<std::int64_t>(1, 4 * llm_.hidden));
    llm_.vocabulary = fields_.count("vocabulary", row_.shapes.vocabulary, kMostRows, 0, "tokens");
    llm_.gated_mlp = row_.gated;
    fields_.note("gated_mlp", row_.gated ? "true" : "false", "bool", "");
    llm_.tied_embeddings = fields_.choice(row_.tied);
    fields_.note("tied_embeddings", llm_.tied_embeddings ? "true" : "false", "bool", row_.tied.name);
    read_special();
  }

  void read_norms_and_biases() {
    llm_.biases = {.qkv = fields_.choice(row_.biases.qkv),
                   .output = fields_.choice(row_.biases.output),
                   .mlp = fields_.choice(row_.biases.mlp),
                   .head = fields_.choice(row_.biases.head)};
    fields_.note("biases", biases_text(llm_.biases), "1", row_.biases.qkv.name);
    llm_.norm_vectors = fields_.choice(row_.norm_weights) ? (fields_.choice(row_.norm_bias) ? 2 : 1) : 0;
    fields_.note("norm_vectors", fmt::format("{}", llm_.norm_vectors), "1", row_.norm_bias.name);
    if (fields_.choice(row_.parallel)) llm_.layer_norms = 1;
    fields_.note("layer_norms", fmt::format("{}", llm_.layer_norms), "1", row_.parallel.name);
    if (fields_.choice(row_.qk_norm)) llm_.qk_norm = row_.qk_norm_kind;
    fields_.note("qk_norm", llm_.qk_norm == QkNorm::none ? "false" : "true", "bool", row_.qk_norm.name);
  }

  void check_shapes() {
    if (!root_.findings().problems.empty()) return;
    const bool derived = row_.shapes.head_dim.name.empty() || root_.find(row_.shapes.head_dim.name) == nullptr;
    if (derived && row_.shapes.head_dim.absent == 0 && llm_.hidden % llm_.heads != 0) {
      root_.fail(fields_.used(row_.shapes.hidden),
                 fmt::format("{} is not divisible by the {} heads", llm_.hidden, llm_.heads));
    } else if (llm_.head_dim > kMostLayers) {
      root_.fail(fields_.used(row_.shapes.heads), fmt::format("heads of width {} are not modelled", llm_.head_dim),
                 fmt::format("use at most {}", kMostLayers));
    }
    if (llm_.heads % llm_.kv_heads != 0) {
      root_.fail(fields_.used(row_.shapes.kv_heads),
                 fmt::format("{} must divide the {} heads", llm_.kv_heads, llm_.heads));
    }
    if (llm_.ffn > kMostWidth) {
      root_.fail(fields_.used(row_.shapes.hidden), fmt::format("an MLP of width {} is not modelled", llm_.ffn));
    }
  }

 private:
  /// For a field that overrides num_key_value_heads.
  void set_kv_heads(std::int64_t heads, std::string_view field) {
    llm_.kv_heads = heads;
    fields_.forget("kv_heads");
    fields_.note("kv_heads", fmt::format("{}", heads), "1", field);
  }

  void read_special() {
    if (row_.special == HfSpecial::opt) read_opt();
    if (row_.special == HfSpecial::falcon) read_falcon();
    if (row_.special == HfSpecial::mpt) read_mpt();
    if (row_.special == HfSpecial::dbrx) read_dbrx();
    if (row_.special == HfSpecial::hunyuan) read_hunyuan();
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
    fields_.forget("ffn");
    fields_.note("ffn", fmt::format("{}", llm_.ffn), "1", "expansion_ratio");
    const json* config = root_.find("attn_config");
    if (config == nullptr) return;
    if (!config->is_object()) return root_.fail("attn_config", "must be an object");
    HfObject attention(*config, root_.pointer("attn_config"), root_.findings());
    const std::string type = attention.text("attn_type").value_or("multihead_attention");
    if (type != "multihead_attention") {
      attention.fail("attn_type", fmt::format("\"{}\" is not modelled", type), "known: multihead_attention");
    }
    if (!attention.flag("alibi").value_or(true)) attention.fail("alibi", "positions other than ALiBi are not modelled");
    if (attention.flag("qk_ln").value_or(false)) attention.fail("qk_ln", "is not modelled for MPTForCausalLM");
    attention.understood("alibi_bias_max attn_impl attn_pdrop clip_qkv model_type softmax_scale");
    attention.warn_of_the_rest();
  }

  void read_dbrx() {
    fields_.within("attn_config", {}, [&](HfFields& attention) {
      fields_.forget("kv_heads");
      llm_.kv_heads = attention.count("kv_heads", {"kv_n_heads", 1}, kMostLayers, 0);
      attention.root().understood("attn_pdrop clip_qkv model_type rope_theta");
    });
  }

  /// Other models of the class may have latent attention instead, whose fields are in each file.
  void read_hunyuan() {
    if (root_.flag("use_mla").value_or(false)) root_.fail("use_mla", fmt::format("is not modelled for {}", row_.name));
    root_.understood(
        "add_classification_head anyres_pooling_size class_num cla_share_factor dense_list eod_token_id "
        "group_limited_greedy im_end_id im_newline_id im_start_id kv_lora_rank mask_init_id moe_drop_tokens "
        "moe_random_routing_dropped_token num_media_embeds org_vocab_size pad_id pool_type position_embedding_xdrope "
        "q_lora_rank qk_nope_head_dim qk_rope_head_dim sep_id skip_cls_token text_end_id text_start_id "
        "use_rotary_pos_emb v_head_dim video_end_id video_start_id xdrope_section");
  }

  HfFields& fields_;
  HfObject& root_;
  const HfArchitecture& row_;
  LlmModel& llm_;
};

}  // namespace

void read_shapes(HfFields& fields) { ShapeReader(fields).read(); }
void read_norms_and_biases(HfFields& fields) { ShapeReader(fields).read_norms_and_biases(); }
void check_shapes(HfFields& fields) { ShapeReader(fields).check_shapes(); }

}  // namespace spillway::hwmodels
