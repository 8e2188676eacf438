// Models with routed experts, latent attention and windows, from the fields of their config.json.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hwmodels/catalog.hpp"
#include "hwmodels/hf_config.hpp"
#include "sim/core/error.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;
using testing::HasSubstr;

LlmModel read(const json& config) { return read_hf_config("models/my-model/config.json", config.dump()); }

std::string problems_of(const json& config) {
  try {
    static_cast<void>(read(config));
  } catch (const DataError& error) {
    std::string text;
    for (const Problem& problem : error.problems()) text += problem.what + " | " + problem.where + "\n";
    return text;
  }
  return "";
}

/// Fields of Qwen/Qwen3-30B-A3B.
json qwen3() {
  return {{"architectures", {"Qwen3MoeForCausalLM"}},
          {"num_hidden_layers", 48},
          {"hidden_size", 2048},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 4},
          {"head_dim", 128},
          {"intermediate_size", 6144},
          {"moe_intermediate_size", 768},
          {"num_experts", 128},
          {"num_experts_per_tok", 8},
          {"decoder_sparse_step", 1},
          {"mlp_only_layers", json::array()},
          {"vocab_size", 151936},
          {"max_position_embeddings", 40960},
          {"tie_word_embeddings", false},
          {"torch_dtype", "bfloat16"}};
}

/// Of deepseek-ai/DeepSeek-V3.
json deepseek() {
  return {{"architectures", {"DeepseekV3ForCausalLM"}},
          {"num_hidden_layers", 61},
          {"hidden_size", 7168},
          {"num_attention_heads", 128},
          {"num_key_value_heads", 128},
          {"intermediate_size", 18432},
          {"moe_intermediate_size", 2048},
          {"n_routed_experts", 256},
          {"n_shared_experts", 1},
          {"num_experts_per_tok", 8},
          {"first_k_dense_replace", 3},
          {"moe_layer_freq", 1},
          {"q_lora_rank", 1536},
          {"kv_lora_rank", 512},
          {"qk_rope_head_dim", 64},
          {"qk_nope_head_dim", 128},
          {"v_head_dim", 128},
          {"vocab_size", 129280},
          {"max_position_embeddings", 163840},
          {"tie_word_embeddings", false},
          {"torch_dtype", "bfloat16"}};
}

// A layer: QKV 2048 * (4096 + 2 * 512) = 10,485,760; output 4096 * 2048 = 8,388,608; router 2048 * 128 = 262,144;
// experts 128 * 3 * 2048 * 768 = 603,979,776; norms 2 * 2048 + 2 * 128 = 4,352; together 623,120,640.
// 48 of them, 2 * 151,936 * 2048 = 622,329,856 of embeddings, a norm of 2048: 30,532,122,624, as on the hub.
// A token passes 8 of 128 experts: 48 * 120 * 4,718,592 = 27,179,089,920 parameters less.
TEST(HfExperts, Qwen3Moe_WhenRead_ThenParametersAreThePublishedOnes) {
  const LlmModel llm = read(qwen3());
  EXPECT_EQ(llm.parameters(), 30'532'122'624);
  EXPECT_EQ(llm.active_parameters(), 3'353'032'704);
  EXPECT_EQ(llm.ffn, 0);  // intermediate_size belongs to dense layers, of which there are none
  EXPECT_TRUE(llm.kinds.empty());
  EXPECT_EQ(llm.routed_layers(), 48);
  EXPECT_EQ(llm.unequal_layers(), "");
  // 48 layers, K and V, 4 heads of 128, 2 bytes.
  EXPECT_EQ(llm.kv_bytes_per_token(2), Bytes(98'304));
  EXPECT_EQ(llm.weights_per_gpu(1), Bytes(2 * 30'532'122'624));
}

// Two GPUs, each with half of the experts (expert) or half of each (tensor): equal bytes. A GPU has half of a layer's
// 622,854,144 numbers of attention and experts, its router and norms, 262,144 + 4,352, of which half of 2 * 128 does
// not exist: norms are whole. Half of the embeddings, 311,164,928, and the last norm.
TEST(HfExperts, WeightsPerGpu_WhenExpertsAreSpread_ThenRoutersAndNormsAreWhole) {
  const LlmModel llm = read(qwen3());
  const std::int64_t layer = 622'854'144 / 2 + 262'144 + 4'352;
  const Bytes expected(2 * (48 * layer + 311'164'928 + 2048));
  EXPECT_EQ(llm.weights_per_gpu({2, 1, 1}), expected);
  EXPECT_EQ(llm.weights_per_gpu({2, 1, 2}), expected);
  // Two groups of one GPU: attention 18,874,368 on both, half of the experts, embeddings whole.
  const std::int64_t data_layer = 18'874'368 + 603'979'776 / 2 + 262'144 + 4'352;
  EXPECT_EQ(llm.weights_per_gpu({1, 2, 2}), Bytes(2 * (48 * data_layer + 622'329'856 + 2048)));
  // One of the two groups holds a token.
  EXPECT_EQ(llm.kv_bytes_per_token_per_gpu({1, 2, 2}, 2), Bytes(98'304 / 2));
}

// Attention: 7168 * (1536 + 512 + 64) + 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168 = 187,105,280; norms of
// the latents 2,048, of the layer 14,336. 3 dense MLPs of 3 * 7168 * 18432 = 396,361,728. 58 layers with
// 257 * 3 * 7168 * 2048 = 11,318,329,344 and a router of 7168 * 256 + 256 = 1,835,264. 61 * 187,121,664 +
// 3 * 396,361,728 + 58 * 11,320,164,608 + 2 * 129,280 * 7168 + 7168 = 671,026,419,200: the published 671 billion.
TEST(HfExperts, DeepseekV3_WhenRead_ThenParametersAndLatentCacheAreExact) {
  const LlmModel llm = read(deepseek());
  EXPECT_EQ(llm.parameters(), 671'026'419'200);
  // 248 of 256 experts are idle: 58 * 248 * 44,040,192 = 633,474,121,728 less.
  EXPECT_EQ(llm.active_parameters(), 37'552'297'472);
  // 61 layers * (512 + 64) * 2 bytes, on every GPU of a tensor-parallel group.
  EXPECT_EQ(llm.kv_bytes_per_token(2), Bytes(70'272));
  EXPECT_EQ(llm.kv_bytes_per_token_per_gpu({8, 1, 8}, 2), Bytes(70'272));
  EXPECT_EQ(llm.kv_bytes_per_token_per_gpu({1, 8, 8}, 2), Bytes(8'784));
  ASSERT_EQ(llm.kinds.size(), 2U);
  EXPECT_EQ(llm.kind_of_layer[2], 0);
  EXPECT_EQ(llm.kind_of_layer[3], 1);
  EXPECT_EQ(llm.unequal_layers(), "3 layers with a dense MLP and 58 with experts");
}

TEST(HfExperts, Latent_WhenThereIsNoLatentQuery_ThenQueriesComeFromTheHiddenState) {
  json lite = deepseek();
  lite["q_lora_rank"] = nullptr;
  const LlmModel llm = read(lite);
  const std::vector<Matrix> matrices = llm.attention_projections(2);
  ASSERT_EQ(matrices.size(), 4U);
  EXPECT_EQ(matrices[0].outputs, 576);
  EXPECT_EQ(matrices[1].inputs, 7168);
  EXPECT_EQ(matrices[1].outputs, 64 * 192);  // half of the heads
  EXPECT_EQ(matrices[2].outputs, 64 * 256);
  EXPECT_EQ(matrices[3].inputs, 64 * 128);
}

/// Of openai/gpt-oss-20b.
json gpt_oss() {
  return {{"architectures", {"GptOssForCausalLM"}},
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
          {"max_position_embeddings", 131072},
          {"attention_bias", true},
          {"tie_word_embeddings", false},
          {"torch_dtype", "bfloat16"},
          {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 32.0}}},
          {"quantization_config",
           {{"quant_method", "mxfp4"},
            {"modules_to_not_convert",
             {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}}}}};
}

// A layer: QKV 2880 * 5120 + 5120, output 4096 * 2880 + 2880, sinks 64, router 2880 * 32 + 32, an expert
// 2880 * 5760 + 5760 + 2880 * 2880 + 2880 = 24,891,840, norms 5,760: 823,186,976 with 32 experts. 24 of them,
// 2 * 201,088 * 2880 of embeddings, a norm: 20,914,757,184; the model card says 20.91 billion.
// Matrices of experts: 24 * 32 * 24,883,200 numbers of 4 bits with a byte for 32 inputs, 4.25 bits each; all others
// 2 bytes.
TEST(HfExperts, GptOss_WhenRead_ThenOnlyExpertsAreInFourBits) {
  const LlmModel llm = read(gpt_oss());
  EXPECT_EQ(llm.parameters(), 20'914'757'184);
  const std::int64_t experts = 24LL * 32 * 24'883'200;
  EXPECT_EQ(llm.weights_per_gpu(1), Bytes(experts * 17 / 32 + 2 * (20'914'757'184 - experts)));
  EXPECT_EQ(llm.max_positions, 131'072);  // max_position_embeddings has the factor in it
  ASSERT_EQ(llm.kinds.size(), 2U);
  for (const auto& [kind, layers] : llm.counted_kinds()) EXPECT_EQ(layers, 12) << kind.window;
  EXPECT_EQ(llm.kinds[0].window, 128);  // the first layer
  EXPECT_EQ(llm.kinds[1].window, 0);
  // Every GPU has whole routers, norms and output biases; an expert is 2880 wide, 1440 on each of two.
  EXPECT_FALSE(llm.parallelism_problem({2, 1, 1}));
  EXPECT_EQ(llm.expert_width_per_gpu({2, 1, 1}), 1440);
}

// The format itself means experts alone, also where the file does not list what stays in 16 bits. The LM head is never
// quantised then.
TEST(HfExperts, Mxfp4_WhenNothingIsListed_ThenAttentionStaysInSixteenBits) {
  json config = gpt_oss();
  config["quantization_config"].erase("modules_to_not_convert");
  const LlmModel llm = read(config);
  EXPECT_EQ(llm.weights_per_gpu(1), read(gpt_oss()).weights_per_gpu(1));
  EXPECT_FALSE(llm.quantized->covers(LinearPart::attention));
}

// QKV 3072 * 8192, output 6144 * 3072, norms of queries and keys (48 + 8) * 128, router 3072 * 256 + 256, experts
// 256 * 3 * 3072 * 1536, norms 6,144: 3,668,718,848. 62 of them, 2 * 200,064 * 3072, a norm: 228,689,764,864.
TEST(HfExperts, MiniMaxM2_WhenRead_ThenParametersAreThePublishedOnes) {
  const LlmModel llm = read({{"architectures", {"MiniMaxM2ForCausalLM"}},
                             {"num_hidden_layers", 62},
                             {"hidden_size", 3072},
                             {"num_attention_heads", 48},
                             {"num_key_value_heads", 8},
                             {"head_dim", 128},
                             {"intermediate_size", 1536},
                             {"num_local_experts", 256},
                             {"num_experts_per_tok", 8},
                             {"shared_intermediate_size", 0},
                             {"use_qk_norm", true},
                             {"use_routing_bias", true},
                             {"rotary_dim", 64},
                             {"vocab_size", 200064},
                             {"max_position_embeddings", 196608}});
  EXPECT_EQ(llm.parameters(), 228'689'764'864);
  EXPECT_EQ(llm.rotated_dim(), 64);
}

TEST(HfExperts, Gemma3_WhenFiveOfSixLayersHaveAWindow_ThenTextsMayBeLonger) {
  const LlmModel llm = read({{"architectures", {"Gemma3ForConditionalGeneration"}},
                             {"torch_dtype", "bfloat16"},
                             {"vision_config", {{"hidden_size", 1152}}},
                             {"text_config",
                              {{"num_hidden_layers", 12},
                               {"hidden_size", 2560},
                               {"num_attention_heads", 8},
                               {"num_key_value_heads", 4},
                               {"head_dim", 256},
                               {"intermediate_size", 10240},
                               {"sliding_window", 1024},
                               {"max_position_embeddings", 131072},
                               {"vocab_size", 262208}}}});
  EXPECT_EQ(llm.max_positions, 131'072);
  // Layers 6 and 12 attend to all tokens.
  std::vector<std::int64_t> windows;
  for (const std::uint8_t kind : llm.kind_of_layer) windows.push_back(llm.kinds[kind].window);
  EXPECT_EQ(windows, (std::vector<std::int64_t>{1024, 1024, 1024, 1024, 1024, 0, 1024, 1024, 1024, 1024, 1024, 0}));
  EXPECT_THAT(llm.file.warnings, testing::Contains(HasSubstr("only the language model is simulated")));
}

// Layers 0 and 2 of 4 are dense: 4 layers, every second has experts, counted from 1. Then layer 3 is listed as dense.
TEST(HfExperts, Layers_WhenEverySecondHasExperts_ThenTheOthersAreDense) {
  json config = qwen3();
  config["num_hidden_layers"] = 4;
  config["decoder_sparse_step"] = 2;
  LlmModel llm = read(config);
  EXPECT_EQ(llm.ffn, 6144);
  EXPECT_EQ(llm.kind_of_layer, (std::vector<std::uint8_t>{0, 1, 0, 1}));
  EXPECT_FALSE(llm.kinds[0].routed);
  config["mlp_only_layers"] = {3};
  llm = read(config);
  EXPECT_EQ(llm.kind_of_layer, (std::vector<std::uint8_t>{0, 1, 0, 0}));
}

TEST(HfExperts, UnknownClass_WhenItWrapsALanguageModel_ThenThePointerIsThatOfTheFile) {
  const std::string problems = problems_of(
      {{"architectures", {"Qwen3_5MoeForConditionalGeneration"}}, {"text_config", {{"linear_num_key_heads", 16}}}});
  EXPECT_THAT(problems, HasSubstr("| models/my-model/config.json at /architectures/0"));
  EXPECT_THAT(problems, HasSubstr("at /text_config/linear_num_key_heads"));
}

struct Bad {
  const char* name;
  const char* patch;
  const char* expected;
};
// NOLINTNEXTLINE(readability-identifier-naming): the name that GoogleTest calls
void PrintTo(const Bad& bad, std::ostream* stream) { *stream << bad.name; }
class HfBadExperts : public testing::TestWithParam<Bad> {};

TEST_P(HfBadExperts, Refusal_WhenNotModelled_ThenNamesTheField) {
  json config = qwen3();
  config.merge_patch(json::parse(GetParam().patch));
  EXPECT_THAT(problems_of(config), HasSubstr(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    Configs, HfBadExperts,
    testing::Values(
        Bad{"top_k", R"({"num_experts_per_tok": 129})", "129 experts per token are more than the 128 of a layer"},
        Bad{"no_experts", R"({"num_experts": 0})", "at /num_experts"},
        Bad{"step", R"({"decoder_sparse_step": 0})",
            "must be at least 1 | models/my-model/config.json at /decoder_spa"},
        Bad{"listed", R"({"mlp_only_layers": [48]})", "48 is not one of the 48 layers"},
        Bad{"list", R"({"mlp_only_layers": 3})", "must be a list of layers, not 3"},
        Bad{"indexed", R"({"index_topk": 2048})", "an index selects is not modelled"},
        Bad{"linear", R"({"layer_types": ["linear_attention"]})", "hybrid layers are not modelled"},
        Bad{"unknown", R"({"num_zero_experts": 256})", "changes what the model computes"},
        Bad{"some_attention",
            R"({"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.self_attn"]}})",
            "the attention of 1 of 48 layers stays unquantised"}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(HfExperts, Quantised_WhenRoutersAreListed_ThenTheyStayInSixteenBits) {
  json config = qwen3();
  config["quantization_config"] = {{"quant_method", "fp8"},
                                   {"weight_block_size", {128, 128}},
                                   {"modules_to_not_convert", {"lm_head", "model.layers.0.mlp.gate", "gate"}}};
  const LlmModel llm = read(config);
  ASSERT_TRUE(llm.quantized);
  EXPECT_EQ(llm.quantized->kernel, Quantization::fp8_block);
  EXPECT_TRUE(llm.quantized->attention);
  // A layer: (18,874,368 + 603,979,776) bytes with 4 bytes for each 128 x 128 of them, and 2 bytes of the router.
  const std::int64_t linear = 18'874'368 + 603'979'776;
  EXPECT_EQ(llm.layer_weights_per_gpu({true, 0}, 1), Bytes(linear + linear / 16'384 * 4 + 524'288));
}

struct Split {
  Parallelism parallelism;
  const char* expected;  // in part; empty: it splits
};

TEST(HfExperts, Parallelism_WhenItDoesNotSplit_ThenSaysWhy) {
  const LlmModel llm = read(qwen3());
  for (const auto& [parallelism, expected] :
       std::vector<Split>{{{8, 1, 8}, ""},
                          {{4, 2, 8}, ""},
                          {{4, 1, 2}, ""},
                          {{4, 1, 3}, "divide the 4 GPUs of a replica"},
                          {{1, 1, 2}, "divide the 1 GPU of a replica"},
                          {{1, 3, 3}, "divide the 128 experts of a layer"},
                          {{1, 5, 1}, "the 5 GPUs that then share an expert do not divide its width 768"}}) {
    const auto problem = llm.parallelism_problem(parallelism);
    if (expected[0] == '\0') {
      EXPECT_FALSE(problem) << problem->what;
    } else {
      ASSERT_TRUE(problem) << expected;
      EXPECT_THAT(problem->what, HasSubstr(expected));
    }
  }
  const auto dense = load_llm("llama-3.1-8b").parallelism_problem({2, 1, 2});
  ASSERT_TRUE(dense);
  EXPECT_THAT(dense->what, HasSubstr("it has no experts"));
}

TEST(HfExperts, Bundled_WhenLoaded_ThenIdsOfTheHubResolveToThem) {
  for (const auto& [id, name] :
       std::vector<std::pair<const char*, const char*>>{{"Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"},
                                                        {"qwen/qwen3-30b-a3b", "qwen3-30b-a3b"},
                                                        {"meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"},
                                                        {"meta-llama/Meta-Llama-3.1-70B-Instruct", "llama-3.1-70b"},
                                                        {"openai/gpt-oss-120b", "gpt-oss-120b"},
                                                        {"deepseek-ai/DeepSeek-R1", "deepseek-v3"},
                                                        {"mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"}}) {
    EXPECT_EQ(load_llm(id).file.name, name);
  }
  try {
    static_cast<void>(load_llm("Qwen/Qwen3-31B"));
    FAIL() << "no bundled model has this id";
  } catch (const DataError& error) {
    EXPECT_THAT(error.problems().front().fix, HasSubstr("the nearest one is Qwen/Qwen3-32B"));
  }
}

}  // namespace
}  // namespace spillway::hwmodels
