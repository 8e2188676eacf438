// Published mixtures of experts, by the fields of their config.json: parameters by hand, and as published.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hwmodels/hf_config.hpp"
#include "sim/core/error.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Mixture {
  const char* name;
  const char* config;
  std::int64_t parameters;
  std::int64_t active;
  std::int64_t kv_bytes_per_token;  // 2 bytes per element
};
// NOLINTNEXTLINE(readability-identifier-naming): the name that GoogleTest calls
void PrintTo(const Mixture& model, std::ostream* stream) { *stream << model.name; }

// All: L layers (attention + norms) + dense MLPs + routed layers (experts + router) + embeddings + the last norm. Idle
// experts are all but top_k of each layer with experts.
const std::vector<Mixture>& mixtures() {
  static const std::vector<Mixture> kModels{
      // Published: 355 billion, 32 billion active. Attention 2 * 5120 * 12288 + 2 * 5120 * 1024 + biases 12288 + 2048 +
      // norms of queries and keys 2 * 128 = 136,329,472; 92 (136,329,472 + 2 * 5120) + 3 * 3 * 5120 * 12288 +
      // 89 (161 * 3 * 5120 * 1536 + 5120 * 160 + 160) + 2 * 151552 * 5120 + 5120; idle 89 * 152 * 23,592,960
      {"zai-org/GLM-4.5", R"({"architectures": ["Glm4MoeForCausalLM"], "attention_bias": true, "head_dim": 128,
        "hidden_size": 5120, "partial_rotary_factor": 0.5, "intermediate_size": 12288,
        "max_position_embeddings": 131072, "moe_intermediate_size": 1536, "norm_topk_prob": true,
        "num_attention_heads": 96, "n_group": 1, "topk_group": 1, "n_routed_experts": 160, "n_shared_experts": 1,
        "routed_scaling_factor": 2.5, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "num_hidden_layers": 92,
        "num_key_value_heads": 8, "rope_scaling": null, "num_nextn_predict_layers": 1, "tie_word_embeddings": false,
        "use_qk_norm": true, "vocab_size": 151552, "torch_dtype": "bfloat16"})",
       352'797'829'024, 33'632'266'144, 376'832},
      // 106 billion, 12 billion. 46 (2 * 4096 * 12288 + 2 * 4096 * 1024 + 14336 + 2 * 4096) + 3 * 4096 * 10944 +
      // 45 (129 * 3 * 4096 * 1408 + 4096 * 128 + 128) + 2 * 151552 * 4096 + 4096; idle 45 * 120 * 17,301,504
      {"zai-org/GLM-4.5-Air", R"({"architectures": ["Glm4MoeForCausalLM"], "attention_bias": true, "head_dim": 128,
        "hidden_size": 4096, "partial_rotary_factor": 0.5, "intermediate_size": 10944,
        "max_position_embeddings": 131072, "moe_intermediate_size": 1408, "norm_topk_prob": true,
        "num_attention_heads": 96, "n_group": 1, "topk_group": 1, "n_routed_experts": 128, "n_shared_experts": 1,
        "routed_scaling_factor": 1.0, "num_experts_per_tok": 8, "first_k_dense_replace": 1, "num_hidden_layers": 46,
        "num_key_value_heads": 8, "rope_scaling": null, "num_nextn_predict_layers": 1, "tie_word_embeddings": false,
        "use_qk_norm": false, "vocab_size": 151552, "torch_dtype": "bfloat16"})",
       106'852'251'264, 13'424'129'664, 188'416},
      // 57.41 billion, 14.2 billion. 28 (2 * 3584^2 + 2 * 3584 * 512 + 4608 + 2 * 3584 + 64 * 3 * 3584 * 2560 +
      // 3 * 3584 * 20480 + 3584 * 64 + 3584) + 2 * 151936 * 3584 + 3584; idle 28 * 56 * 27,525,120
      {"Qwen/Qwen2-57B-A14B", R"({"architectures": ["Qwen2MoeForCausalLM"], "decoder_sparse_step": 1,
        "hidden_size": 3584, "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28,
        "moe_intermediate_size": 2560, "norm_topk_prob": false, "num_attention_heads": 28, "num_experts": 64,
        "num_experts_per_tok": 8, "num_hidden_layers": 28, "num_key_value_heads": 4, "output_router_logits": false,
        "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 20480, "sliding_window": 65536,
        "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936, "torch_dtype": "bfloat16"})",
       57'408'658'944, 14'249'270'784, 57'344},
      // 41.9 billion, 6.6 billion. 32 (2 * 4096^2 + 2 * 4096 * 1024 + 10240 + 4 * 4096 + 16 * 3 * 4096 * 6400 +
      // 4096 * 16) + 2 * 32064 * 4096 + 32064 + 2 * 4096; idle 32 * 14 * 78,643,200
      {"microsoft/Phi-3.5-MoE-instruct", R"({"architectures": ["PhiMoEForCausalLM"], "attention_bias": true,
        "hidden_size": 4096, "input_jitter_noise": 0.01, "intermediate_size": 6400, "lm_head_bias": true,
        "max_position_embeddings": 131072, "num_attention_heads": 32, "num_experts_per_tok": 2,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 16,
        "original_max_position_embeddings": 4096, "router_aux_loss_coef": 0.0, "router_jitter_noise": 0.01,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0], "original_max_position_embeddings": 4096},
        "sliding_window": 131072, "tie_word_embeddings": false, "vocab_size": 32064, "torch_dtype": "bfloat16"})",
       41'873'153'344, 6'640'999'744, 131'072},
      // 141 billion, 39 billion. 56 (2 * 6144^2 + 2 * 6144 * 1024 + 2 * 6144 + 8 * 3 * 6144 * 16384 + 6144 * 8) +
      // 2 * 32000 * 6144 + 6144; idle 56 * 6 * 301,989,888
      {"mistralai/Mixtral-8x22B-v0.1", R"({"architectures": ["MixtralForCausalLM"], "hidden_size": 6144,
        "intermediate_size": 16384, "max_position_embeddings": 65536, "num_attention_heads": 48,
        "num_experts_per_tok": 2, "num_hidden_layers": 56, "num_key_value_heads": 8, "num_local_experts": 8,
        "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "sliding_window": null,
        "tie_word_embeddings": false, "vocab_size": 32000, "torch_dtype": "bfloat16"})",
       140'620'634'112, 39'152'031'744, 229'376},
      // 6.92 billion, 1.28 billion. 16 (4 * 2048^2 + 2 * 2048 + 2 * 2048 + 64 * 3 * 2048 * 1024 + 2048 * 64) +
      // 2 * 50304 * 2048 + 2048; idle 16 * 56 * 6,291,456
      {"allenai/OLMoE-1B-7B-0924", R"({"architectures": ["OlmoeForCausalLM"], "attention_bias": false,
        "clip_qkv": null, "hidden_size": 2048, "intermediate_size": 1024, "max_position_embeddings": 4096,
        "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8,
        "num_hidden_layers": 16, "num_key_value_heads": 16, "router_aux_loss_coef": 0.01,
        "tie_word_embeddings": false, "vocab_size": 50304, "torch_dtype": "bfloat16"})",
       6'919'161'856, 1'282'017'280, 131'072},
      // 15.7 billion. Attention without a latent query: 2048 * 576 + 2048 * 16 * 192 + 512 * 16 * 256 + 16 * 128 * 2048
      // = 13,762,560, a norm of 512; 27 (13,763,072 + 2 * 2048) + 3 * 2048 * 10944 + 26 (66 * 3 * 2048 * 1408 +
      // 2048 * 64) + 2 * 102400 * 2048 + 2048; idle 26 * 58 * 8,650,752. KV 27 * 576 * 2 bytes
      {"deepseek-ai/DeepSeek-V2-Lite", R"({"architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false,
        "aux_loss_alpha": 0.001, "first_k_dense_replace": 1, "hidden_size": 2048, "intermediate_size": 10944,
        "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 1408, "moe_layer_freq": 1,
        "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false,
        "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16,
        "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "scoring_func": "softmax",
        "rope_scaling": {"factor": 40, "original_max_position_embeddings": 4096, "type": "yarn"}, "seq_aux": true,
        "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy", "v_head_dim": 128,
        "vocab_size": 102400, "torch_dtype": "bfloat16"})",
       15'706'484'224, 2'661'150'208, 31'104},
      // 21 billion, 3 billion. 28 (2 * 2560^2 + 2 * 2560 * 512 + 2 * 2560) + 3 * 2560 * 12288 + 27 (66 * 3 * 2560 *
      // 1536
      // + 2560 * 64 + 64) + 103424 * 2560 + 2560; idle 27 * 58 * 11,796,480
      {"baidu/ERNIE-4.5-21B-A3B-PT", R"({"architectures": ["Ernie4_5_MoeForCausalLM"], "head_dim": 128,
        "hidden_size": 2560, "intermediate_size": 12288, "max_position_embeddings": 131072,
        "moe_capacity": [64, 64, 64], "moe_gate": "topk", "moe_intermediate_size": 1536, "moe_k": 6,
        "moe_layer_end_index": 27, "moe_layer_interval": 1, "moe_layer_start_index": 1, "moe_num_experts": 64,
        "moe_num_shared_experts": 2, "moe_use_aux_free": true, "num_attention_heads": 20, "num_hidden_layers": 28,
        "num_key_value_heads": 4, "num_nextn_predict_layers": 1, "tie_word_embeddings": true, "use_bias": false,
        "vocab_size": 103424, "torch_dtype": "bfloat16"})",
       21'825'437'888, 3'352'150'208, 57'344},
      // 3.3 billion, 800 million. 32 (2 * 1536^2 + 2 * 1536 * 512 + 2 * 1536 + 40 * 3 * 1536 * 512 + 1536 * 40) +
      // 49155 * 1536 + 1536; idle 32 * 32 * 2,359,296
      {"ibm-granite/granite-3.1-3b-a800m-base", R"({"architectures": ["GraniteMoeForCausalLM"],
        "attention_bias": false, "attention_multiplier": 0.015625, "embedding_multiplier": 12.0, "hidden_size": 1536,
        "intermediate_size": 512, "logits_scaling": 6.0, "max_position_embeddings": 131072,
        "num_attention_heads": 24, "num_experts_per_tok": 8, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "num_local_experts": 40, "residual_multiplier": 0.22, "router_aux_loss_coef": 0.001,
        "tie_word_embeddings": true, "vocab_size": 49155, "torch_dtype": "bfloat16"})",
       3'298'793'472, 882'874'368, 65'536},
      // 142 billion, 14 billion. 62 (4 * 4096^2 + 2 * 4096 + 2 * 128) + 3 * 4096 * 10944 + 61 (130 * 3 * 4096 * 1408 +
      // 4096 * 128 + 128) + 2 * 152064 * 4096 + 4096; idle 61 * 122 * 17,301,504
      {"rednote-hilab/dots.llm1.base", R"({"architectures": ["Dots1ForCausalLM"], "attention_bias": false,
        "first_k_dense_replace": 1, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 10944,
        "max_position_embeddings": 32768, "max_window_layers": 62, "moe_intermediate_size": 1408,
        "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 2, "norm_topk_prob": true,
        "num_attention_heads": 32, "num_experts_per_tok": 6, "num_hidden_layers": 62, "num_key_value_heads": 32,
        "routed_scaling_factor": 2.5, "scoring_func": "noaux_tc", "sliding_window": null,
        "tie_word_embeddings": false, "topk_group": 1, "topk_method": "noaux_tc", "vocab_size": 152064,
        "torch_dtype": "bfloat16"})",
       142'774'381'696, 14'016'588'928, 1'015'808},
      // 132 billion, 36 billion. 40 (2 * 6144^2 + 2 * 6144 * 1024 + 2 * 6144 + 16 * 3 * 6144 * 10752 + 6144 * 16) +
      // 2 * 100352 * 6144 + 6144; idle 40 * 12 * 198,180,864
      {"databricks/dbrx-base", R"({"architectures": ["DbrxForCausalLM"], "attn_config": {"clip_qkv": 8,
        "kv_n_heads": 8, "model_type": "", "rope_theta": 500000}, "d_model": 6144, "emb_pdrop": 0.0, "ffn_config":
        {"ffn_hidden_size": 10752, "model_type": "", "moe_jitter_eps": 0, "moe_loss_weight": 0.05,
        "moe_num_experts": 16, "moe_top_k": 4}, "initializer_range": 0.02, "max_seq_len": 32768,
        "model_type": "dbrx", "n_heads": 48, "n_layers": 40, "output_router_logits": false, "resid_pdrop": 0.0,
        "router_aux_loss_coef": 0.05, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
        "vocab_size": 100352})",
       131'596'523'520, 36'469'708'800, 163'840},
      // 80 billion, 13 billion. 32 (2 * 4096^2 + 2 * 4096 * 1024 + 2 * 128 + 2 * 4096 + 65 * 3 * 4096 * 3072 +
      // 4096 * 64) + 128167 * 4096 + 4096; idle 32 * 56 * 37,748,736. The file has lists of 32 numbers
      {"tencent/Hunyuan-A13B-Instruct", R"({"architectures": ["HunYuanMoEV1ForCausalLM"], "attention_bias": false,
        "attention_head_dim": 128, "cla_share_factor": 2, "dense_list": [4096, 0], "hidden_size": 4096,
        "intermediate_size": 3072, "max_position_embeddings": 32768, "mlp_bias": false, "moe_drop_tokens": false,
        "moe_intermediate_size": 3072, "moe_layer_num_skipped": 0, "moe_random_routing_dropped_token": false,
        "moe_topk": [8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8],
        "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 64, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "num_shared_expert":
        [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        "rope_scaling": {"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "type": "dynamic"},
        "routed_scaling_factor": false, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cla": false,
        "use_mixed_mlp_moe": true, "use_mla": false, "use_qk_norm": true, "vocab_size": 128167})",
       80'393'183'232, 12'747'448'320, 131'072}};
  return kModels;
}

class HfMixture : public testing::TestWithParam<Mixture> {};

TEST_P(HfMixture, Parameters_WhenPublished_ThenAreExactAndNothingIsIgnored) {
  const LlmModel llm = read_hf_config("config.json", GetParam().config);
  EXPECT_EQ(llm.parameters(), GetParam().parameters);
  EXPECT_EQ(llm.active_parameters(), GetParam().active);
  EXPECT_EQ(llm.kv_bytes_per_token(2), Bytes(GetParam().kv_bytes_per_token));
  EXPECT_THAT(llm.file.warnings, testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Models, HfMixture, testing::ValuesIn(mixtures()), [](const auto& tested) {
  std::string name = tested.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

/// "where: what" of each problem with a config, a line each; empty when it is read.
std::string problems_of(const json& config) {
  std::string text;
  try {
    static_cast<void>(read_hf_config("config.json", config.dump()));
  } catch (const DataError& error) {
    for (const Problem& problem : error.problems()) text += problem.where + ": " + problem.what + "\n";
  }
  return text;
}

json config_of(const char* name) {
  return json::parse(
      std::ranges::find_if(mixtures(), [&](const Mixture& one) { return std::string_view(one.name) == name; })->config);
}

// 400 billion, 17 billion. Layers 1, 3, 5, ... of 48 have 128 experts and a shared one of 3 * 5120 * 8192, the others
// an MLP of 3 * 5120 * 16384; every fourth attends to all tokens. 48 (2 * 5120^2 + 2 * 5120 * 1024 + 2 * 5120) + 24 *
// 251,658,240 + 24 (129 * 125,829,120 + 5120 * 128) + 2 * 202048 * 5120 + 5120; idle 24 * 127 * 125,829,120
TEST(HfMixtures, Llama4Maverick_WhenRead_ThenThreeKindsOfLayers) {
  json text{{"model_type", "llama4_text"},
            {"attention_chunk_size", 8192},
            {"head_dim", 128},
            {"hidden_size", 5120},
            {"interleave_moe_layer_step", 2},
            {"intermediate_size", 8192},
            {"intermediate_size_mlp", 16384},
            {"max_position_embeddings", 1048576},
            {"num_attention_heads", 40},
            {"num_experts_per_tok", 1},
            {"num_hidden_layers", 48},
            {"num_key_value_heads", 8},
            {"num_local_experts", 128},
            {"use_qk_norm", false},
            {"vocab_size", 202048}};
  const json config{{"architectures", {"Llama4ForConditionalGeneration"}},
                    {"torch_dtype", "bfloat16"},
                    {"text_config", text},
                    {"vision_config", {{"hidden_size", 1408}}}};
  const LlmModel llm = read_hf_config("config.json", config.dump());
  EXPECT_EQ(llm.parameters(), 400'711'848'960);
  EXPECT_EQ(llm.active_parameters(), 17'184'691'200);
  std::vector<std::pair<bool, std::int64_t>> counted;
  for (const auto& [kind, layers] : llm.counted_kinds()) counted.emplace_back(kind.routed, layers);
  EXPECT_THAT(counted, testing::UnorderedElementsAre(std::pair(false, 24), std::pair(true, 12), std::pair(true, 12)));
  EXPECT_THAT(llm.file.warnings, testing::Not(testing::Contains(HasSubstr("use_qk_norm"))));
}

// The last layers are dense where the file says so; -1 means that none is.
TEST(HfMixtures, Ernie_WhenTheLastRoutedLayerIsStated_ThenLaterOnesAreDense) {
  json config = config_of("baidu/ERNIE-4.5-21B-A3B-PT");
  const auto routed = [&] { return read_hf_config("config.json", config.dump()).routed_layers(); };
  config["moe_layer_end_index"] = 25;
  EXPECT_EQ(routed(), 25);
  config["moe_layer_end_index"] = -1;
  EXPECT_EQ(routed(), 27);
  config.erase("moe_layer_end_index");
  EXPECT_EQ(routed(), 27);
}

// A class that always norms queries and keys may say so; a class without such norms may not.
TEST(HfMixtures, QkNorm_WhenTheClassAlwaysHasIt_ThenTheFieldChangesNothing) {
  json qwen{{"architectures", {"Qwen3MoeForCausalLM"}},
            {"num_hidden_layers", 62},
            {"hidden_size", 6144},
            {"num_attention_heads", 96},
            {"num_key_value_heads", 8},
            {"head_dim", 128},
            {"intermediate_size", 8192},
            {"moe_intermediate_size", 2560},
            {"num_experts", 160},
            {"num_experts_per_tok", 8},
            {"shared_expert_intermediate_size", 0},
            {"use_qk_norm", true},
            {"vocab_size", 151936},
            {"max_position_embeddings", 262144},
            {"torch_dtype", "bfloat16"}};
  // Qwen3-Coder-480B-A35B. 62 (2 * 6144 * 12288 + 2 * 6144 * 1024 + 256 + 2 * 6144 + 160 * 3 * 6144 * 2560 +
  // 6144 * 160) + 2 * 151936 * 6144 + 6144
  const LlmModel llm = read_hf_config("config.json", qwen.dump());
  EXPECT_EQ(llm.parameters(), 480'154'875'392);
  EXPECT_THAT(llm.file.warnings, testing::IsEmpty());
  json mixtral = config_of("mistralai/Mixtral-8x22B-v0.1");
  mixtral["use_qk_norm"] = true;
  EXPECT_THROW(static_cast<void>(read_hf_config("config.json", mixtral.dump())), DataError);
}

// 24 layers, every second over 128 tokens. A request of 1,024 tokens holds 24 * 1024 = 24,576 tokens of layers, and
// 12 * 1024 + 12 * 128 = 13,824 if windows are freed; one of 100 tokens fits the window. 131,072 tokens: 3,145,728 /
// 1,574,400 = 1.998.
TEST(HfMixtures, Windows_WhenBlocksBeyondAreKept_ThenTheResultSaysWhatFreeingGains) {
  const json config{{"architectures", {"GptOssForCausalLM"}},
                    {"num_hidden_layers", 24},
                    {"hidden_size", 2880},
                    {"num_attention_heads", 64},
                    {"num_key_value_heads", 8},
                    {"head_dim", 64},
                    {"intermediate_size", 2880},
                    {"num_local_experts", 32},
                    {"num_experts_per_tok", 4},
                    {"sliding_window", 128},
                    {"vocab_size", 201088},
                    {"torch_dtype", "bfloat16"},
                    {"max_position_embeddings", 131072}};
  const LlmModel llm = read_hf_config("config.json", config.dump());
  EXPECT_DOUBLE_EQ(llm.window_gain(Tokens(1024)), 24'576.0 / 13'824.0);
  EXPECT_DOUBLE_EQ(llm.window_gain(Tokens(100)), 1.0);
  EXPECT_THAT(llm.windows_text(), HasSubstr("12 of 24 layers attend over 128 tokens"));
  EXPECT_THAT(llm.windows_text(), HasSubstr("up to 2.00 times as many requests of 131072 tokens"));
  EXPECT_EQ(llm.kv_window(), (KvWindow{Tokens(128), 12, 24}));
  const LlmModel none = read_hf_config("config.json", config_of("zai-org/GLM-4.5").dump());
  EXPECT_EQ(none.windows_text(), "");
  EXPECT_DOUBLE_EQ(none.window_gain(Tokens(1024)), 1.0);
}

// A list with a number for each layer is that number, if it is the same in all. Shared experts are as wide as
// intermediate_size, 2 of 1024 together 2048.
TEST(HfMixtures, Hunyuan_WhenListsDiffer_ThenTheLayerIsNamed) {
  json config = config_of("tencent/Hunyuan-A13B-Instruct");
  const auto shared = [&] { return read_hf_config("config.json", config.dump()).experts->shared_width; };
  EXPECT_EQ(shared(), 3072);
  config["num_shared_expert"] = std::vector<int>(32, 2);
  config["intermediate_size"] = 1024;  // of a shared expert
  EXPECT_EQ(shared(), 2048);
  config["use_mixed_mlp_moe"] = false;
  EXPECT_EQ(shared(), 0);
  config["moe_topk"][5] = 4;
  EXPECT_THAT(problems_of(config),
              HasSubstr("config.json at /moe_topk/5: 4 after 8: layers of different shapes are not"));
  config["moe_topk"] = {8, 8};
  EXPECT_THAT(problems_of(config), HasSubstr("config.json at /moe_topk: lists 2 layers, and the model has 32"));
  config["moe_topk"] = std::vector<int>(32, 0);
  EXPECT_THAT(problems_of(config), HasSubstr("config.json at /moe_topk/0: must be an integer between 1"));
}

// Fields of an object are named with it; one that is not known and speaks of experts is refused.
TEST(HfMixtures, Dbrx_WhenAFieldOfItsObjectsIsWrong_ThenThePointerIsOfTheObject) {
  json config = config_of("databricks/dbrx-base");
  config["ffn_config"]["moe_top_k"] = 17;
  config["ffn_config"]["moe_shared_width"] = 64;
  EXPECT_EQ(
      problems_of(config),
      "config.json at /ffn_config/moe_top_k: 17 experts per token are more than the 16 of a layer\n"
      "config.json at /ffn_config/moe_shared_width: is not known, and its name suggests that it changes what the model "
      "computes\n");
  config["ffn_config"] = 3;
  EXPECT_EQ(problems_of(config), "config.json at /ffn_config: must be an object, not 3\n");
  config = config_of("databricks/dbrx-base");
  config.erase("attn_config");
  const LlmModel one = read_hf_config("config.json", config.dump());
  EXPECT_EQ(one.kv_heads, 1);
  EXPECT_THAT(one.file.warnings, testing::ElementsAre(HasSubstr("does not state kv_n_heads: 1 is used")));
}

/// The file of a model that reads pictures, as published.
json qwen3_vl(const char* name, json text, bool tied) {
  text["rope_scaling"] = {{"mrope_interleaved", true}, {"mrope_section", {24, 20, 20}}, {"rope_type", "default"}};
  text["dtype"] = "bfloat16";
  text["max_position_embeddings"] = 262144;
  text["vocab_size"] = 151936;
  text["head_dim"] = 128;
  return {{"architectures", {name}},  {"image_token_id", 151655},
          {"text_config", text},      {"tie_word_embeddings", tied},
          {"video_token_id", 151656}, {"vision_config", {{"depth", 27}, {"deepstack_visual_indexes", {8, 16, 24}}}}};
}

// The language model of Qwen3-VL-30B-A3B is that of Qwen3-30B-A3B: 48 (2 * 2048 * 4096 + 2 * 2048 * 512 + 2 * 128 +
// 2 * 2048 + 128 * 3 * 2048 * 768 + 2048 * 128) + 2 * 151936 * 2048 + 2048; idle 48 * 120 * 4,718,592. That of 8B:
// 36 (2 * 4096^2 + 2 * 4096 * 1024 + 3 * 4096 * 12288 + 2 * 128 + 2 * 4096) + 2 * 151936 * 4096 + 4096
TEST(HfMixtures, Qwen3Vl_WhenRead_ThenIsTheLanguageModel) {
  const json mixture = qwen3_vl("Qwen3VLMoeForConditionalGeneration",
                                {{"decoder_sparse_step", 1},
                                 {"hidden_size", 2048},
                                 {"intermediate_size", 6144},
                                 {"mlp_only_layers", json::array()},
                                 {"model_type", "qwen3_vl_moe_text"},
                                 {"moe_intermediate_size", 768},
                                 {"norm_topk_prob", true},
                                 {"num_attention_heads", 32},
                                 {"num_experts", 128},
                                 {"num_experts_per_tok", 8},
                                 {"num_hidden_layers", 48},
                                 {"num_key_value_heads", 4}},
                                false);
  const LlmModel llm = read_hf_config("config.json", mixture.dump());
  EXPECT_EQ(llm.parameters(), 30'532'122'624);
  EXPECT_EQ(llm.active_parameters(), 3'353'032'704);
  EXPECT_EQ(llm.kv_bytes_per_token(2), Bytes(98'304));  // 48 * 2 * 4 * 128 * 2
  EXPECT_EQ(llm.max_positions, 262'144);
  EXPECT_THAT(llm.file.warnings, testing::ElementsAre(HasSubstr("only the language model is simulated")));
  const json dense = qwen3_vl("Qwen3VLForConditionalGeneration",
                              {{"hidden_size", 4096},
                               {"intermediate_size", 12288},
                               {"model_type", "qwen3_vl_text"},
                               {"num_attention_heads", 32},
                               {"num_hidden_layers", 36},
                               {"num_key_value_heads", 8}},
                              false);
  EXPECT_EQ(read_hf_config("config.json", dense.dump()).parameters(), 8'190'735'360);
}

// Some fields of the language model stand at the root of the file, and a message says so.
TEST(HfMixtures, Pointers_WhenAFieldIsOfTheOuterDocument_ThenAreAtItsRoot) {
  json config = qwen3_vl("Qwen3VLForConditionalGeneration", {{"hidden_size", 4096}, {"num_hidden_layers", "x"}}, false);
  config["quantization_config"] = {{"quant_method", "nope"}};
  config["tie_word_embeddings"] = 3;
  const std::string problems = problems_of(config);
  EXPECT_THAT(problems, HasSubstr("config.json at /quantization_config/quant_method: "));
  EXPECT_THAT(problems, HasSubstr("config.json at /tie_word_embeddings: "));
  EXPECT_THAT(problems, HasSubstr("config.json at /text_config/num_hidden_layers: "));
}

struct Refused {
  const char* name;
  const char* config;
  const char* field;
};
// NOLINTNEXTLINE(readability-identifier-naming): the name that GoogleTest calls
void PrintTo(const Refused& model, std::ostream* stream) { *stream << model.name; }
class HfRefused : public testing::TestWithParam<Refused> {};

TEST_P(HfRefused, Refusal_WhenNotModelled_ThenNamesTheField) {
  try {
    static_cast<void>(read_hf_config("config.json", GetParam().config));
    FAIL() << "read " << GetParam().name;
  } catch (const DataError& error) {
    const bool named = std::ranges::any_of(error.problems(), [&](const Problem& problem) {
      return problem.where == std::string("config.json at ") + GetParam().field &&
             problem.what.find("not modelled") != std::string::npos;
    });
    EXPECT_TRUE(named) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, HfRefused,
    testing::Values(
        Refused{"Qwen3Next", R"({"architectures": ["Qwen3NextForCausalLM"], "full_attention_interval": 4})",
                "/full_attention_interval"},
        Refused{"Qwen3NextKeys", R"({"architectures": ["Qwen3NextForCausalLM"], "linear_num_key_heads": 16})",
                "/linear_num_key_heads"},
        Refused{"KimiLinear",
                R"({"architectures": ["KimiLinearForCausalLM"], "linear_attn_config": {"num_heads": 32}})",
                "/linear_attn_config"},
        Refused{"MiniMaxM1", R"({"architectures": ["MiniMaxM1ForCausalLM"], "attn_type_list": [0, 0, 1]})",
                "/attn_type_list"},
        Refused{"Jamba", R"({"architectures": ["JambaForCausalLM"], "mamba_d_state": 16})", "/mamba_d_state"},
        Refused{"HunyuanSharedKv", R"({"architectures": ["HunYuanMoEV1ForCausalLM"], "use_cla": true})", "/use_cla"},
        Refused{"HunyuanLatent", R"({"architectures": ["HunYuanMoEV1ForCausalLM"], "use_mla": true})", "/use_mla"},
        Refused{"DeepseekV32", R"({"architectures": ["DeepseekV32ForCausalLM"], "index_topk": 2048})", "/index_topk"}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace spillway::hwmodels
