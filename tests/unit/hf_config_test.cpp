// Models from a Hugging Face config.json. The parameter counts above each file are computed by hand and equal the
// published counts.
#include "hwmodels/hf_config.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "hwmodels/kv_capacity.hpp"
#include "hwmodels/models/roofline.hpp"
#include "sim/core/text.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

struct Published {
  const char* name;
  const char* config;
  std::int64_t parameters;
  std::int64_t kv_bytes_per_token;  // 2 layers kv_heads head_dim 2 bytes
  std::int64_t max_positions;
  std::int64_t rotated_dim;
};
// NOLINTNEXTLINE(readability-identifier-naming): the name that GoogleTest calls
void PrintTo(const Published& model, std::ostream* stream) { *stream << model.name; }

// V h embedding; a layer: q + k + v + o, MLP, norms, biases.
const std::vector<Published>& published() {
  static const std::vector<Published> kModels{
      // 2 * 128256 * 4096 + 32 (2 * 4096^2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096) + 4096
      {"meta-llama/Llama-3.1-8B", R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
        "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu",
        "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
        "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "transformers_version": "4.43.0.dev0", "use_cache": true, "vocab_size": 128256})",
       8'030'261'248, 131'072, 131'072, 128},
      // 2 * 32000 * 4096 + 32 (4 * 4096^2 + 3 * 4096 * 11008 + 2 * 4096) + 4096
      {"meta-llama/Llama-2-7b-hf", R"({"_name_or_path": "meta-llama/Llama-2-7b-hf",
        "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
        "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008,
        "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": null, "tie_word_embeddings": false, "torch_dtype": "float16",
        "transformers_version": "4.31.0.dev0", "use_cache": true, "vocab_size": 32000})",
       6'738'415'616, 524'288, 4096, 128},
      // 50272 * 5120 + 2050 * 5120 + 40 (4 (5120^2 + 5120) + 2 * 5120 * 20480 + 20480 + 5120 + 4 * 5120) + 2 * 5120
      {"facebook/opt-13b", R"({"_name_or_path": "facebook/opt-13b", "_remove_final_layer_norm": false,
        "activation_dropout": 0.0, "activation_function": "relu", "architectures": ["OPTForCausalLM"],
        "attention_dropout": 0.0, "bos_token_id": 2, "do_layer_norm_before": true, "dropout": 0.1,
        "eos_token_id": 2, "ffn_dim": 20480, "hidden_size": 5120, "init_std": 0.02, "layerdrop": 0.0,
        "max_position_embeddings": 2048, "model_type": "opt", "num_attention_heads": 40, "num_hidden_layers": 40,
        "pad_token_id": 1, "prefix": "</s>", "torch_dtype": "float16", "transformers_version": "4.21.0.dev0",
        "use_cache": true, "vocab_size": 50272, "word_embed_proj_dim": 5120})",
       12'853'473'280, 819'200, 2048, 0},
      // 2 * 152064 * 3584 + 28 (2 * 3584^2 + 2 * 3584 * 512 + 3 * 3584 * 18944 + (3584 + 1024) + 2 * 3584) + 3584
      {"Qwen/Qwen2.5-7B", R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
        "bos_token_id": 151643, "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 3584,
        "initializer_range": 0.02, "intermediate_size": 18944, "max_position_embeddings": 131072,
        "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28,
        "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.40.1",
        "use_cache": true, "use_mrope": false, "use_sliding_window": false, "vocab_size": 152064})",
       7'615'616'512, 57'344, 131'072, 128},
      // 2 * 151936 * 4096 + 36 (2 * 4096^2 + 2 * 4096 * 1024 + 3 * 4096 * 12288 + 2 * 4096 + 2 * 128) + 4096
      {"Qwen/Qwen3-8B", R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
        "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288,
        "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3",
        "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
        "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})",
       8'190'735'360, 147'456, 40'960, 128},
      // 2 * 32000 * 4096 + 32 (2 * 4096^2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096) + 4096; window 4096
      {"mistralai/Mistral-7B-v0.1", R"({"architectures": ["MistralForCausalLM"], "bos_token_id": 1,
        "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
        "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "use_cache": true, "vocab_size": 32000})",
       7'241'732'096, 131'072, 32'768, 128},
      // 50257 * 768 + 1024 * 768 + 12 (12 * 768^2 + 9 * 768 + 4 * 768) + 2 * 768; biases 3 + 1 + 4 + 1
      {"gpt2", R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
        "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
        "n_inner": null, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
        "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
        "summary_type": "cls_index", "summary_use_proj": true, "torch_dtype": "float16",
        "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257})",
       124'439'808, 36'864, 1024, 0},
      // 49152 * 6144 + 8192 * 6144 + 40 (6144 * (6144 + 256) + 6144^2 + 2 * 6144 * 24576 + (6400 + 6144 + 24576 + 6144)
      // + 4 * 6144) + 2 * 6144
      {"bigcode/starcoder", R"({"activation_function": "gelu", "architectures": ["GPTBigCodeForCausalLM"],
        "attention_softmax_in_fp32": true, "attn_pdrop": 0.1, "inference_runner": 0, "model_type": "gpt_bigcode",
        "multi_query": true, "n_embd": 6144, "n_head": 48, "n_inner": 24576, "n_layer": 40, "n_positions": 8192,
        "torch_dtype": "float16", "vocab_size": 49152})",
       15'517'456'384, 20'480, 8192, 0},
      // 256000 * 2048 + 18 (2 * 2048^2 + 2 * 2048 * 256 + 3 * 2048 * 16384 + 2 * 2048) + 2048
      {"google/gemma-2b", R"({"architectures": ["GemmaForCausalLM"], "attention_bias": false,
        "attention_dropout": 0.0, "bos_token_id": 2, "eos_token_id": 1, "head_dim": 256, "hidden_act": "gelu",
        "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 16384,
        "max_position_embeddings": 8192, "model_type": "gemma", "num_attention_heads": 8,
        "num_hidden_layers": 18, "num_key_value_heads": 1, "pad_token_id": 0, "rms_norm_eps": 1e-06,
        "rope_scaling": null, "rope_theta": 10000.0, "torch_dtype": "bfloat16", "use_cache": true,
        "vocab_size": 256000})",
       2'506'172'416, 18'432, 8192, 256},
      // 256000 * 3584 + 42 (2 * 3584 * 4096 + 2 * 3584 * 2048 + 3 * 3584 * 14336 + 4 * 3584) + 3584; window 4096
      {"google/gemma-2-9b", R"({"architectures": ["Gemma2ForCausalLM"], "attention_bias": false,
        "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid", "final_logit_softcapping": 30.0,
        "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 3584, "intermediate_size": 14336, "max_position_embeddings": 8192, "model_type": "gemma2",
        "num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8,
        "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096,
        "sliding_window_size": 4096, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 256000})",
       9'241'705'984, 344'064, 8192, 256},
      // 262144 * 1152 + 26 (2 * 1152 * 1024 + 2 * 1152 * 256 + 3 * 1152 * 6912 + 4 * 1152 + 2 * 256) + 1152; window 512
      {"google/gemma-3-1b-it", R"({"architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "head_dim": 256,
        "hidden_size": 1152, "intermediate_size": 6912, "max_position_embeddings": 32768,
        "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 26,
        "num_key_value_heads": 1, "rope_local_base_freq": 10000, "rope_theta": 1000000, "sliding_window": 512,
        "sliding_window_pattern": 6, "torch_dtype": "bfloat16", "vocab_size": 262144})",
       999'885'952, 26'624, 32'768, 256},
      // 2 * 51200 * 2560 + 51200 + 32 (4 * 2560^2 + 2 * 2560 * 10240 + (4 + 4 + 1) * 2560 + 2 * 2560) + 2 * 2560
      {"microsoft/phi-2", R"({"architectures": ["PhiForCausalLM"], "attention_dropout": 0.0, "embd_pdrop": 0.0,
        "hidden_act": "gelu_new", "hidden_size": 2560, "intermediate_size": 10240, "layer_norm_eps": 1e-05,
        "max_position_embeddings": 2048, "model_type": "phi", "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 32, "partial_rotary_factor": 0.4, "qk_layernorm": false,
        "resid_pdrop": 0.1, "rope_scaling": null, "rope_theta": 10000.0, "tie_word_embeddings": false,
        "torch_dtype": "float16", "use_cache": true, "vocab_size": 51200})",
       2'779'683'840, 327'680, 2048, 32},
      // 2 * 32064 * 3072 + 32 (4 * 3072^2 + 3 * 3072 * 8192 + 2 * 3072) + 3072; window 2047
      {"microsoft/Phi-3-mini-4k-instruct", R"({"architectures": ["Phi3ForCausalLM"], "attention_bias": false,
        "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "hidden_act": "silu", "hidden_size": 3072,
        "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "phi3",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
        "original_max_position_embeddings": 4096, "resid_pdrop": 0.0, "rope_scaling": null,
        "sliding_window": 2047, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 32064})",
       3'821'079'552, 393'216, 4096, 96},
      // 2 * 50432 * 4096 + 32 (12 * 4096^2 + 9 * 4096 + 4 * 4096) + 2 * 4096; rotary 0.25 * 128
      {"EleutherAI/pythia-6.9b", R"({"architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0,
        "hidden_act": "gelu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 16384,
        "layer_norm_eps": 1e-05, "max_position_embeddings": 2048, "model_type": "gpt_neox",
        "num_attention_heads": 32, "num_hidden_layers": 32, "rotary_emb_base": 10000, "rotary_pct": 0.25,
        "tie_word_embeddings": false, "torch_dtype": "float16", "use_cache": true,
        "use_parallel_residual": true, "vocab_size": 50432})",
       6'857'302'016, 524'288, 2048, 32},
      // 2 * 50400 * 4096 + 50400 + 28 (12 * 4096^2 + 16384 + 4096 + 2 * 4096) + 2 * 4096
      {"EleutherAI/gpt-j-6b", R"({"activation_function": "gelu_new", "architectures": ["GPTJForCausalLM"],
        "attn_pdrop": 0.0, "model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_inner": null, "n_layer": 28,
        "n_positions": 2048, "rotary": true, "rotary_dim": 64, "tie_word_embeddings": false,
        "torch_dtype": "float16", "vocab_size": 50400})",
       6'050'882'784, 458'752, 2048, 64},
      // 65024 * 4544 + 32 (4544 * (4544 + 2 * 64) + 4544^2 + 8 * 4544^2 + 2 * 4544) + 2 * 4544
      {"tiiuae/falcon-7b", R"({"alibi": false, "apply_residual_connection_post_layernorm": false,
        "architectures": ["FalconForCausalLM"], "attention_dropout": 0.0, "bias": false, "hidden_dropout": 0.0,
        "hidden_size": 4544, "layer_norm_epsilon": 1e-05, "model_type": "falcon", "multi_query": true,
        "new_decoder_architecture": false, "num_attention_heads": 71, "num_hidden_layers": 32,
        "parallel_attn": true, "torch_dtype": "bfloat16", "vocab_size": 65024})",
       6'921'720'704, 8'192, 2048, 64},
      // 65024 * 8192 + 60 (8192 * (8192 + 2 * 8 * 64) + 8192^2 + 8 * 8192^2 + 4 * 8192) + 2 * 8192
      {"tiiuae/falcon-40b", R"({"alibi": false, "architectures": ["FalconForCausalLM"], "bias": false,
        "hidden_size": 8192, "model_type": "falcon", "multi_query": true, "new_decoder_architecture": true,
        "num_attention_heads": 128, "num_hidden_layers": 60, "num_kv_heads": 8, "parallel_attn": true,
        "torch_dtype": "bfloat16", "vocab_size": 65024})",
       41'303'293'952, 122'880, 2048, 64},
      // 2 * 50304 * 2560 + 32 (4 * 2560^2 + 3 * 2560 * 6912 + 4 * 2560) + 2 * 2560; rotary 0.25 * 80
      {"stabilityai/stablelm-3b-4e1t", R"({"architectures": ["StableLmForCausalLM"], "hidden_act": "silu",
        "hidden_size": 2560, "intermediate_size": 6912, "layer_norm_eps": 1e-05,
        "max_position_embeddings": 4096, "model_type": "stablelm", "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 32, "partial_rotary_factor": 0.25,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_qkv_bias": false, "vocab_size": 50304})",
       2'795'443'200, 327'680, 4096, 20},
      // 49152 * 3072 + 30 (2 * 3072^2 + 2 * 3072 * 256 + 2 * 3072 * 12288 + (3072 + 512 + 3072 + 12288 + 3072) + 4 *
      // 3072)
      // + 2 * 3072; window 4096
      {"bigcode/starcoder2-3b", R"({"activation_function": "gelu", "architectures": ["Starcoder2ForCausalLM"],
        "attention_dropout": 0.1, "attention_softmax_in_fp32": true, "embedding_dropout": 0.1,
        "hidden_act": "gelu_pytorch_tanh", "hidden_size": 3072, "intermediate_size": 12288,
        "max_position_embeddings": 16384, "mlp_type": "default", "model_type": "starcoder2",
        "norm_epsilon": 1e-05, "norm_type": "layer_norm", "num_attention_heads": 24, "num_hidden_layers": 30,
        "num_key_value_heads": 2, "residual_dropout": 0.1, "rope_theta": 999999.4420358813,
        "sliding_window": 4096, "torch_dtype": "bfloat16", "use_bias": true, "vocab_size": 49152})",
       3'030'371'328, 30'720, 16'384, 128},
      // 49155 * 4096 + 40 (2 * 4096^2 + 2 * 4096 * 1024 + 3 * 4096 * 12800 + 2 * 4096) + 4096
      {"ibm-granite/granite-3.0-8b-base", R"({"architectures": ["GraniteForCausalLM"], "attention_bias": false,
        "attention_multiplier": 0.0078125, "embedding_multiplier": 12.0, "hidden_size": 4096,
        "intermediate_size": 12800, "logits_scaling": 16.0, "max_position_embeddings": 4096, "mlp_bias": false,
        "model_type": "granite", "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
        "residual_multiplier": 0.22, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "vocab_size": 49155})",
       8'170'848'256, 163'840, 4096, 128},
      // 2 * 50304 * 4096 + 32 (4 * 4096^2 + 3 * 4096 * 11008); norms without parameters
      {"allenai/OLMo-7B-hf", R"({"architectures": ["OlmoForCausalLM"], "attention_bias": false, "clip_qkv": null,
        "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 2048, "model_type": "olmo",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
        "tie_word_embeddings": false, "torch_dtype": "float16", "vocab_size": 50304})",
       6'888'095'744, 524'288, 2048, 128},
      // 2 * 100352 * 4096 + 32 (4 * 4096^2 + 3 * 4096 * 11008 + 2 * 4096 + 2 * 4096 of q and k norms) + 4096
      {"allenai/OLMo-2-1124-7B", R"({"architectures": ["Olmo2ForCausalLM"], "attention_bias": false,
        "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "olmo2",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 100352})",
       7'298'617'344, 524'288, 4096, 128},
      // 2 * 92544 * 4096 + 32 (2 * 4096^2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096) + 4096
      {"internlm/internlm2-7b", R"({"architectures": ["InternLM2ForCausalLM"], "auto_map": {}, "bias": false,
        "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
        "model_type": "internlm2", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 92544})",
       7'737'708'544, 131'072, 32'768, 128},
      // 250880 * 4096 + 30 (12 * 4096^2 + 9 * 4096 + 4 * 4096) + 4 * 4096: a norm after the embedding as well
      {"bigscience/bloom-7b1", R"({"architectures": ["BloomForCausalLM"], "attention_softmax_in_fp32": true,
        "bias_dropout_fusion": true, "masked_softmax_fusion": true, "model_type": "bloom", "n_embed": 4096,
        "n_inner": null, "n_layer": 30, "num_attention_heads": 32, "offset_alibi": 100, "pretraining_tp": 1,
        "seq_length": 2048, "skip_bias_add": true, "torch_dtype": "float16", "vocab_size": 250880})",
       7'069'016'064, 491'520, 2048, 0},
      // 50432 * 4096 + 32 (12 * 4096^2 + 2 * 4096) + 4096
      {"mosaicml/mpt-7b", R"({"architectures": ["MPTForCausalLM"], "attn_config": {"alibi": true,
          "alibi_bias_max": 8, "attn_impl": "torch", "attn_pdrop": 0, "attn_type": "multihead_attention",
          "clip_qkv": null, "prefix_lm": false, "qk_ln": false, "softmax_scale": null},
        "d_model": 4096, "emb_pdrop": 0, "expansion_ratio": 4, "init_config": {"name": "kaiming_normal_"},
        "learned_pos_emb": true, "max_seq_len": 2048, "model_type": "mpt", "n_heads": 32, "n_layers": 32,
        "no_bias": true, "norm_type": "low_precision_layernorm", "torch_dtype": "bfloat16", "verbose": 0,
        "vocab_size": 50432})",
       6'649'286'656, 524'288, 2048, 0},
  };
  return kModels;
}

const Published& model(const std::string& name) {
  const auto& all = published();
  return *std::find_if(all.begin(), all.end(), [&](const Published& one) { return one.name == name; });
}

constexpr const char* kPath = "models/my-model/config.json";

LlmModel read(const json& config) { return read_hf_config(kPath, config.dump()); }

json llama() { return json::parse(model("meta-llama/Llama-2-7b-hf").config); }

/// The problems as "what | where" lines; empty when the text is accepted.
std::string problems_of(const std::string& text) {
  std::string problems;
  try {
    static_cast<void>(read_hf_config(kPath, text));
  } catch (const DataError& error) {
    for (const Problem& problem : error.problems()) {
      problems += problem.what + " | " + problem.where + " | " + problem.fix + "\n";
    }
  }
  return problems;
}
std::string problems_of(const json& config) { return problems_of(config.dump()); }

std::ptrdiff_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

std::string warnings_of(const json& config) {
  std::string warnings;
  for (const std::string& warning : read(config).file.warnings) warnings += warning + "\n";
  return warnings;
}

std::string entry_of(const LlmModel& llm, const std::string& key) {
  for (const Entry& entry : llm.file.entries) {
    if (entry.key == key) return entry.value + " (" + entry.source_kind + ": " + entry.citation + ")";
  }
  return "";
}

class HfPublished : public testing::TestWithParam<Published> {};

TEST_P(HfPublished, Parameters_WhenPublished_ThenAreExact) {
  const LlmModel llm = read(json::parse(GetParam().config));
  EXPECT_EQ(llm.parameters(), GetParam().parameters);
  EXPECT_EQ(llm.weights_per_gpu(1), Bytes(2 * GetParam().parameters));
  EXPECT_EQ(llm.kv_bytes_per_token(2), Bytes(GetParam().kv_bytes_per_token));
  EXPECT_EQ(llm.max_positions, GetParam().max_positions);
  EXPECT_EQ(llm.rotated_dim(), GetParam().rotated_dim);
  EXPECT_FALSE(llm.quantized.has_value());
}

TEST_P(HfPublished, Type_WhenOnlyTheModelTypeIsGiven_ThenItDecides) {
  json config = json::parse(GetParam().config);
  config.erase("architectures");
  EXPECT_EQ(read(config).parameters(), GetParam().parameters);
}

// Real files may only cause warnings about unsupported features.
TEST_P(HfPublished, Warnings_WhenTheFileIsReal_ThenOnlyWindowsAndMissingFieldsRemain) {
  for (const std::string& warning : read(json::parse(GetParam().config)).file.warnings) {
    const bool expected = warning.find("layers attend over") != std::string::npos ||
                          warning.find("init_std is not understood") != std::string::npos ||
                          warning.find("does not state max_position_embeddings") != std::string::npos;
    EXPECT_TRUE(expected) << warning;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HfPublished, testing::ValuesIn(published()), [](const auto& tested) {
  std::string name = tested.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

TEST(HfConfig, EmbeddedModels_WhenReadFromTheirConfig_ThenAreTheSame) {
  for (const auto& [hub, name] :
       {std::pair{"meta-llama/Llama-3.1-8B", "llama-3.1-8b"}, std::pair{"meta-llama/Llama-2-7b-hf", "llama-2-7b"},
        std::pair{"facebook/opt-13b", "opt-13b"}}) {
    const LlmModel ours = load_llm(name);
    const LlmModel theirs = read(json::parse(model(hub).config));
    EXPECT_EQ(theirs.layers, ours.layers) << name;
    EXPECT_EQ(theirs.hidden, ours.hidden) << name;
    EXPECT_EQ(theirs.heads, ours.heads) << name;
    EXPECT_EQ(theirs.kv_heads, ours.kv_heads) << name;
    EXPECT_EQ(theirs.head_dim, ours.head_dim) << name;
    EXPECT_EQ(theirs.ffn, ours.ffn) << name;
    EXPECT_EQ(theirs.gated_mlp, ours.gated_mlp) << name;
    EXPECT_EQ(theirs.vocabulary, ours.vocabulary) << name;
    EXPECT_EQ(theirs.max_positions, ours.max_positions) << name;
    EXPECT_EQ(theirs.tied_embeddings, ours.tied_embeddings) << name;
    EXPECT_EQ(theirs.learned_position_rows, ours.learned_position_rows) << name;
    EXPECT_EQ(theirs.rotated_dim(), ours.rotated_dim()) << name;
    EXPECT_EQ(theirs.biases, ours.biases) << name;
    EXPECT_EQ(theirs.norm_vectors, ours.norm_vectors) << name;
    EXPECT_EQ(theirs.dtype_bytes, ours.dtype_bytes) << name;
    for (const std::int64_t gpus : {1, 2, 8}) EXPECT_EQ(theirs.weights_per_gpu(gpus), ours.weights_per_gpu(gpus));
  }
}

// Biases on queries, keys and values only: a GPU of two has half of them, and all norms.
// Matrices and embeddings (7,615,616,512 - 28 (4608 + 7168) - 3584) / 2, biases 28 * 4608 / 2, norms 28 * 7168 + 3584.
TEST(HfConfig, WeightsPerGpu_WhenQkvHasBiases_ThenTheyAreSplit) {
  const LlmModel llm = read(json::parse(model("Qwen/Qwen2.5-7B").config));
  EXPECT_EQ(llm.biases, (Biases{.qkv = true, .output = false, .mlp = false, .head = false}));
  EXPECT_EQ(llm.weights_per_gpu(2), Bytes(2 * (3'807'641'600 + 64'512 + 204'288)));
}

// ---- Names and sources

TEST(HfConfig, Name_WhenTheFileNamesAHubModel_ThenThatIsIt) {
  EXPECT_EQ(read(llama()).file.name, "meta-llama/Llama-2-7b-hf");
  json config = llama();
  for (const char* local : {"/models/llama", "./llama", "a/b/c", "C:\\models\\llama", "llama/", ""}) {
    config["_name_or_path"] = local;
    EXPECT_EQ(read(config).file.name, "my-model") << local;
  }
  const std::filesystem::path here = std::filesystem::current_path();
  EXPECT_EQ(read_hf_config("config.json", config.dump()).file.name, here.filename().string());
  EXPECT_EQ(read_hf_config("./config.json", config.dump()).file.name, here.filename().string());
  EXPECT_EQ(read_hf_config("../config.json", config.dump()).file.name, here.parent_path().filename().string());
  EXPECT_EQ(read_hf_config("a/b/../config.json", config.dump()).file.name, "a");
  EXPECT_EQ(read_hf_config("/config.json", config.dump()).file.name, "config");
  EXPECT_EQ(read_hf_config("./tiny.json", config.dump()).file.name, "tiny");
}

TEST(HfConfig, Entries_WhenExplained_ThenEveryValueHasItsSource) {
  json config = llama();
  config.erase("num_key_value_heads");
  config.erase("torch_dtype");
  const LlmModel llm = read(config);
  EXPECT_EQ(entry_of(llm, "layers"), "32 (datasheet: config.json: num_hidden_layers)");
  EXPECT_EQ(entry_of(llm, "kv_heads"), "32 (datasheet: transformers default of LlamaForCausalLM)");
  EXPECT_EQ(entry_of(llm, "dtype_bytes"), "2 (assumed: config.json states no torch_dtype)");
  EXPECT_EQ(entry_of(llm, "parameters"), "6738415616 (datasheet: counted from the shapes)");
  EXPECT_EQ(llm.file.stands_for, "meta-llama/Llama-2-7b-hf, LlamaForCausalLM of Hugging Face");
  EXPECT_EQ(llm.file.sha256, sha256_hex(config.dump()));
  EXPECT_EQ(llm.file.path, kPath);
  for (const Entry& entry : llm.file.entries) EXPECT_FALSE(entry.value.empty() || entry.unit.empty()) << entry.key;
}

TEST(HfConfig, Defaults_WhenAShapeIsMissing_ThenTheClassDecidesWithAWarning) {
  json config = llama();
  config.erase("intermediate_size");
  EXPECT_EQ(read(config).ffn, 11008);
  EXPECT_THAT(warnings_of(config), HasSubstr("does not state intermediate_size: 11008 is used, the default of "
                                             "LlamaForCausalLM in transformers"));
  EXPECT_THAT(warnings_of(llama()), IsEmpty());
}

TEST(HfConfig, UnknownFields_WhenTheySaySomething_ThenAreWarnedOf) {
  json config = llama();
  config["new_feature"] = true;
  config["other/feature"] = {1, 2};
  config["unused"] = nullptr;
  config["off"] = false;
  const std::string warnings = warnings_of(config);
  EXPECT_THAT(warnings, HasSubstr("config.json at /new_feature is not understood and was ignored"));
  EXPECT_THAT(warnings, HasSubstr("config.json at /other~1feature is not understood and was ignored"));
  EXPECT_EQ(lines_of(warnings), 2);
}

TEST(HfConfig, UnknownFields_WhenThereAreMany_ThenTenAreNamedAndTheRestCounted) {
  json config = llama();
  for (int i = 0; i < 10; ++i) config["new_" + std::to_string(i)] = 1;
  EXPECT_EQ(lines_of(warnings_of(config)), 10);
  config["new_a"] = 1;
  EXPECT_EQ(lines_of(warnings_of(config)), 11);
  EXPECT_THAT(warnings_of(config), HasSubstr("config.json: 1 more field is not understood and was ignored"));
  config["new_b"] = 1;
  EXPECT_EQ(lines_of(warnings_of(config)), 11);
  EXPECT_THAT(warnings_of(config), HasSubstr("config.json: 2 more fields are not understood and were ignored"));
}

// ---- Positions

TEST(HfConfig, MaxPositions_WhenRotationIsScaled_ThenFollowVllm) {
  const auto positions = [](const json& scaling) {
    json config = llama();
    config["rope_scaling"] = scaling;
    return read(config).max_positions;
  };
  EXPECT_EQ(positions({{"type", "linear"}, {"factor", 2.5}}), 10'240);
  EXPECT_EQ(positions({{"rope_type", "dynamic"}, {"factor", 2.0}}), 8192);
  EXPECT_EQ(positions({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 8192}}), 32'768);
  EXPECT_EQ(positions({{"rope_type", "yarn"}, {"factor", 4.0}}), 16'384);
  // Only YaRN starts from the original positions.
  EXPECT_EQ(positions({{"rope_type", "linear"}, {"factor", 2.0}, {"original_max_position_embeddings", 2048}}), 8192);
  EXPECT_EQ(positions({{"rope_type", "dynamic"}, {"factor", 2.0}, {"original_max_position_embeddings", 2048}}), 8192);
  EXPECT_EQ(positions({{"rope_type", "llama3"}, {"factor", 8.0}, {"original_max_position_embeddings", 8192}}), 4096);
  EXPECT_EQ(positions({{"type", "longrope"}, {"long_factor", {1.0}}, {"short_factor", {1.0}}}), 4096);
  EXPECT_EQ(positions({{"rope_type", "default"}}), 4096);
  json gemma = json::parse(model("google/gemma-3-1b-it").config);
  gemma["sliding_window"] = nullptr;
  gemma["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};  // counted in already
  EXPECT_EQ(read(gemma).max_positions, 32'768);
  json config = llama();
  config["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 1e4}};
  EXPECT_EQ(read(config).max_positions, 8192);
}

TEST(HfConfig, MaxPositions_WhenScalingIsNotUnderstood_ThenRefuses) {
  json config = llama();
  config["rope_scaling"] = {{"rope_type", "spiral"}, {"factor", 2.0}};
  EXPECT_THAT(problems_of(config), HasSubstr("\"spiral\" is not understood | models/my-model/config.json at "
                                             "/rope_scaling/rope_type | known: default, llama3"));
  config["rope_scaling"] = {{"type", "linear"}};
  EXPECT_THAT(problems_of(config), HasSubstr("missing | models/my-model/config.json at /rope_scaling/factor"));
  config["rope_scaling"] = {{"type", "linear"}, {"factor", "two"}};
  EXPECT_THAT(problems_of(config), HasSubstr("not \"two\" | models/my-model/config.json at /rope_scaling/factor"));
  config["rope_scaling"] = 2.0;
  EXPECT_THAT(problems_of(config), HasSubstr("must be an object, not 2.0"));
}

/// Layers with a window of 4,096 tokens; the others attend to all tokens.
std::int64_t windowed_layers(const json& config) {
  std::int64_t windowed = 0;
  for (const auto& [kind, layers] : read(config).counted_kinds()) {
    EXPECT_TRUE(kind.window == 0 || kind.window == 4096);
    windowed += kind.window > 0 ? layers : 0;
  }
  return windowed;
}

TEST(HfConfig, SlidingWindow_WhenInForce_ThenItsLayersHaveIt) {
  json mistral = json::parse(model("mistralai/Mistral-7B-v0.1").config);
  EXPECT_THAT(read(mistral).windows_text(), HasSubstr("32 of 32 layers attend over 4096 tokens"));
  EXPECT_EQ(read(mistral).max_positions, 32'768);
  EXPECT_EQ(windowed_layers(mistral), 32);
  mistral["max_window_layers"] = 99;  // not a field of this class
  EXPECT_EQ(windowed_layers(mistral), 32);
  mistral["sliding_window"] = nullptr;  // as in v0.2
  EXPECT_EQ(windowed_layers(mistral), 0);
  EXPECT_THAT(warnings_of(mistral), IsEmpty());
  mistral.erase("sliding_window");  // the class has one of 4096
  EXPECT_EQ(windowed_layers(mistral), 32);
  json qwen = json::parse(model("Qwen/Qwen2.5-7B").config);
  qwen["sliding_window"] = 4096;
  EXPECT_EQ(windowed_layers(qwen), 0);
  qwen["use_sliding_window"] = true;
  // 28 layers, and the first with a window would be the 29th.
  EXPECT_EQ(windowed_layers(qwen), 0);
  EXPECT_THAT(warnings_of(qwen), IsEmpty());
  qwen["max_window_layers"] = 27;
  EXPECT_EQ(windowed_layers(qwen), 1);
  EXPECT_EQ(read(qwen).max_positions, 131'072);
  qwen.erase("max_window_layers");  // the class has 28
  EXPECT_EQ(windowed_layers(qwen), 0);
  qwen["num_hidden_layers"] = 29;
  EXPECT_EQ(windowed_layers(qwen), 1);
  // layer_types alone determine the windows.
  qwen["num_hidden_layers"] = 2;
  qwen["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(windowed_layers(qwen), 0);
  qwen["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_EQ(windowed_layers(qwen), 1);
  qwen["num_hidden_layers"] = 3;
  EXPECT_THAT(problems_of(qwen), HasSubstr("lists 2 layers, and the model has 3"));
}

// ---- Element size

TEST(HfConfig, Dtype_WhenGiven_ThenIsSixteenBit) {
  json config = llama();
  for (const char* type : {"bfloat16", "float16", "torch.bfloat16"}) {
    config["torch_dtype"] = type;
    EXPECT_EQ(read(config).dtype_bytes, 2);
    EXPECT_THAT(warnings_of(config), IsEmpty());
  }
  config["torch_dtype"] = "float32";
  EXPECT_EQ(read(config).dtype_bytes, 2);
  EXPECT_THAT(warnings_of(config), HasSubstr("float32 weights are taken as 2 bytes each"));
  config.erase("torch_dtype");
  EXPECT_THAT(warnings_of(config), HasSubstr("does not state torch_dtype: 2 bytes per weight are assumed"));
  config["dtype"] = "bfloat16";  // the name since transformers 4.56
  EXPECT_THAT(warnings_of(config), IsEmpty());
  config["dtype"] = "float8";
  EXPECT_THAT(problems_of(config), HasSubstr("\"float8\" is not understood | models/my-model/config.json at /dtype"));
  config["dtype"] = 16;
  EXPECT_THAT(problems_of(config), HasSubstr("must be a text, not 16"));
}

// ---- Quantised weights
//
// Llama-2-7B: W = 32 (4 * 4096^2 + 3 * 4096 * 11008) = 6,476,005,376 weights in linear layers; 262,410,240 others
// (2 * 32000 * 4096 of embedding and head, 65 * 4096 of norms) take 524,820,480 bytes.
constexpr std::int64_t kOthers = 524'820'480;

LlmModel quantised(const json& quantization) {
  json config = llama();
  config["quantization_config"] = quantization;
  return read(config);
}

std::string refusal(const json& quantization) {
  json config = llama();
  config["quantization_config"] = quantization;
  return problems_of(config);
}

json fp8_group() {
  return {{"targets", {"Linear"}},
          {"weights",
           {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}, {"symmetric", true}, {"dynamic", false}}},
          {"input_activations", {{"num_bits", 8}, {"dynamic", true}}}};
}

json compressed(const json& group) {
  return {{"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"ignore", {"lm_head"}},
          {"config_groups", {{"group_0", group}}},
          {"quantization_status", "compressed"}};
}

// W / 2 = 3,238,002,688 bytes, and per 128 weights 2 bytes of scale and 4 bits of zero point:
// 50,593,792 groups * 2.5 = 126,484,480.
TEST(HfQuantization, Gptq_WhenFourBitInGroupsOf128_ThenBytesAreThoseOfTheLayout) {
  const LlmModel llm = quantised({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}, {"desc_act", false}});
  EXPECT_EQ(llm.weights_per_gpu(1), Bytes(3'238'002'688 + 126'484'480 + kOthers));
  EXPECT_EQ(llm.parameters(), 6'738'415'616);
  EXPECT_EQ(llm.kv_bytes_per_token(llm.dtype_bytes), Bytes(524'288));
  EXPECT_FALSE(llm.kv_cache_bytes.has_value());
  EXPECT_EQ(entry_of(llm, "quantization"), "gptq (datasheet: config.json: quantization_config)");
  EXPECT_EQ(entry_of(llm, "weights"), "3889307648 (datasheet: counted from the shapes, on one GPU)");
}

// One scale and zero point per output: 32 (12288 + 4096 + 22016 + 4096) = 1,359,872 of 2.5 bytes.
TEST(HfQuantization, Gptq_WhenThereAreNoGroups_ThenEachOutputHasOneScale) {
  EXPECT_EQ(quantised({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", -1}}).weights_per_gpu(1),
            Bytes(3'238'002'688 + 3'399'680 + kOthers));
}

// The head's 131,072,000 weights: 65,536,000 bytes + 1,024,000 groups * 2.5, instead of 262,144,000.
TEST(HfQuantization, Gptq_WhenTheHeadIsQuantisedToo_ThenItShrinks) {
  json quantization = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}, {"lm_head", true}};
  EXPECT_EQ(quantised(quantization).weights_per_gpu(1), Bytes(3'889'307'648 - 262'144'000 + 65'536'000 + 2'560'000));
  json config = llama();
  config["tie_word_embeddings"] = true;  // the embedding is looked up, so it stays as it is
  config["quantization_config"] = quantization;
  EXPECT_EQ(read(config).weights_per_gpu(1), Bytes(3'889'307'648 - 262'144'000));
}

// Norms, and parts that a language model does not have, are unaffected by the list.
TEST(HfQuantization, Ignored_WhenNoLinearLayerIsMeant_ThenChangesNothing) {
  EXPECT_EQ(quantised({{"quant_method", "awq"},
                       {"modules_to_not_convert",
                        {"lm_head", "model.layers.0.input_layernorm", "multi_modal_projector", "modality_projection"}}})
                .weights_per_gpu(1),
            Bytes(3'889'307'648));
}

TEST(HfQuantization, Awq_WhenFourBit_ThenIsAsGptq) {
  const Bytes expected(3'889'307'648);
  EXPECT_EQ(
      quantised({{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}, {"zero_point", true}}).weights_per_gpu(1),
      expected);
  EXPECT_EQ(quantised({{"quant_method", "awq"}, {"w_bit", 4}, {"q_group_size", 128}}).weights_per_gpu(1), expected);
}

// Per tensor: 4 bytes for each of 32 * 4 fused matrices, 512. Blocks of 128 x 128: QKV 96 * 32, output 32 * 32,
// up 172 * 32, down 32 * 86 = 12,352 scales of 4 bytes per layer, 1,581,056.
TEST(HfQuantization, Fp8_WhenPerTensorOrInBlocks_ThenScalesAreCounted) {
  EXPECT_EQ(quantised({{"quant_method", "fp8"}, {"activation_scheme", "static"}}).weights_per_gpu(1),
            Bytes(6'476'005'376 + 512 + kOthers));
  EXPECT_EQ(quantised({{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}).weights_per_gpu(1),
            Bytes(6'476'005'376 + 1'581'056 + kOthers));
  // Blocks of 128 outputs x 4096 inputs: QKV 96, output 32, up 172, down 32 * 3: 396 per layer.
  EXPECT_EQ(quantised({{"quant_method", "fp8"}, {"weight_block_size", {128, 4096}}}).weights_per_gpu(1),
            Bytes(6'476'005'376 + 50'688 + kOthers));
}

// Kernels are measured for the formats of engine.quantization; other layouts are dequantised by 16-bit kernels.
TEST(HfQuantization, Kernel_WhenTheLayoutIsAMeasuredOne_ThenIsNamed) {
  const auto kernel = [](const json& config) { return quantised(config).quantized->kernel; };
  EXPECT_EQ(kernel({{"quant_method", "fp8"}, {"activation_scheme", "static"}}), Quantization::fp8);
  EXPECT_EQ(kernel({{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}), Quantization::fp8_block);
  EXPECT_EQ(kernel({{"quant_method", "fp8"}, {"weight_block_size", {128, 4096}}}), Quantization::none);
  EXPECT_EQ(kernel({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}}), Quantization::int4);
  EXPECT_EQ(kernel({{"quant_method", "gptq"}, {"bits", 8}, {"group_size", 128}}), Quantization::none);
  EXPECT_EQ(kernel({{"quant_method", "awq"}}), Quantization::int4);
  json group = fp8_group();
  group["weights"]["type"] = "float";
  EXPECT_EQ(kernel(compressed(group)), Quantization::fp8);
  group["weights"]["type"] = "int";
  EXPECT_EQ(kernel(compressed(group)), Quantization::none) << "int8";
  group["weights"]["type"] = "float";
  group.erase("input_activations");
  EXPECT_EQ(kernel(compressed(group)), Quantization::none) << "weights alone";
  group["weights"] = {{"num_bits", 4}, {"group_size", 128}, {"strategy", "group"}, {"type", "int"}};
  EXPECT_EQ(kernel(compressed(group)), Quantization::int4);
  group["weights"] = {{"num_bits", 8}, {"strategy", "block"}, {"block_structure", {128, 128}}, {"type", "float"}};
  group["input_activations"] = {{"num_bits", 8}};
  EXPECT_EQ(kernel(compressed(group)), Quantization::fp8_block);
}

// 1,359,872 outputs with a scale of 4 bytes: 5,439,488. 50,593,792 groups of 2 bytes: 101,187,584. Blocks as for fp8.
TEST(HfQuantization, CompressedTensors_WhenWeightsAreGrouped_ThenScalesFollowTheStrategy) {
  json group = fp8_group();
  EXPECT_EQ(quantised(compressed(group)).weights_per_gpu(1), Bytes(6'476'005'376 + 5'439'488 + kOthers));
  group["weights"]["strategy"] = "tensor";
  EXPECT_EQ(quantised(compressed(group)).weights_per_gpu(1), Bytes(6'476'005'376 + 512 + kOthers));
  group["weights"] = {{"num_bits", 4}, {"group_size", 128}, {"strategy", "group"}, {"symmetric", true}};
  group.erase("input_activations");
  EXPECT_EQ(quantised(compressed(group)).weights_per_gpu(1), Bytes(3'238'002'688 + 101'187'584 + kOthers));
  group["weights"]["symmetric"] = false;
  EXPECT_EQ(quantised(compressed(group)).weights_per_gpu(1), Bytes(3'238'002'688 + 126'484'480 + kOthers));
  group["weights"] = {{"num_bits", 8}, {"strategy", "block"}, {"block_structure", {128, 128}}};
  group["input_activations"] = {{"num_bits", 8}};
  EXPECT_EQ(quantised(compressed(group)).weights_per_gpu(1), Bytes(6'476'005'376 + 1'581'056 + kOthers));
  json all = compressed(fp8_group());
  all["ignore"] = json::array();  // the head as well: 131,072,000 bytes and 32,000 scales
  EXPECT_EQ(quantised(all).weights_per_gpu(1),
            Bytes(6'476'005'376 + 5'439'488 + kOthers - 262'144'000 + 131'072'000 + 128'000));
}

// 4 bytes per 64 weights: 101,187,584 * 4. Twice quantised: 1 + 4 / 256 bytes each.
TEST(HfQuantization, BitsAndBytes_WhenFourOrEightBit_ThenScalesAreCounted) {
  json four = {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}};
  EXPECT_EQ(quantised(four).weights_per_gpu(1), Bytes(3'238'002'688 + 404'750'336 + kOthers));
  four["bnb_4bit_use_double_quant"] = true;
  EXPECT_EQ(quantised(four).weights_per_gpu(1), Bytes(3'238'002'688 + 101'187'584 + 1'581'056 + kOthers));
  const json eight = {{"load_in_8bit", true}, {"load_in_4bit", false}, {"llm_int8_skip_modules", {"lm_head"}}};
  EXPECT_EQ(quantised(eight).weights_per_gpu(1), Bytes(6'476'005'376 + 5'439'488 + kOthers));
}

TEST(HfQuantization, WeightsPerGpu_WhenSplitInTwo_ThenScalesAreSplitToo) {
  const LlmModel llm = quantised({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}});
  // Half of the linear layers, embedding and head; all 266,240 norm weights.
  EXPECT_EQ(llm.weights_per_gpu(2), Bytes((3'238'002'688 + 126'484'480) / 2 + 262'144'000 + 532'480));
}

// 11,008 inputs of the down projection: 5,504 are 43 groups of 128, 2,752 are 21.5.
TEST(HfQuantization, TensorParallel_WhenItCutsAGroup_ThenSaysSo) {
  const LlmModel gptq = quantised({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}});
  EXPECT_FALSE(gptq.tensor_parallel_problem(2).has_value());
  ASSERT_TRUE(gptq.tensor_parallel_problem(4).has_value());
  EXPECT_THAT(gptq.tensor_parallel_problem(4)->what,
              HasSubstr("a GPU's 2752 inputs of a linear layer are not a multiple"));
  EXPECT_FALSE(quantised({{"quant_method", "fp8"}}).tensor_parallel_problem(4).has_value());
  EXPECT_FALSE(quantised({{"load_in_4bit", true}}).tensor_parallel_problem(8).has_value());  // 1,376 are 21.5 of 64
}

TEST(HfQuantization, KvCache_WhenTheCheckpointScalesIt_ThenIsOneByte) {
  json quantization = compressed(fp8_group());
  quantization["kv_cache_scheme"] = {{"num_bits", 8}, {"type", "float"}};
  const LlmModel llm = quantised(quantization);
  EXPECT_EQ(llm.kv_cache_bytes, 1);
  EXPECT_EQ(entry_of(llm, "kv_per_token"), "262144 (datasheet: config.json: quantization_config.kv_cache_scheme)");
  quantization["kv_cache_scheme"] = {{"num_bits", 4}};
  EXPECT_THAT(refusal(quantization), HasSubstr("at /quantization_config/kv_cache_scheme"));
}

// A decoding layer reads fewer bytes of weights, and nothing else changes: (404,750,336 - 105,140,224) B at
// 3.35 TB/s * efficiency.
TEST(HfQuantization, Roofline_WhenWeightsAreQuantised_ThenOnlyTheirTrafficShrinks) {
  const GpuProfile gpu = load_gpu("h100-80gb-sxm");
  const BatchShape decode{.decode_sequences = 1, .decode_context = Tokens(100), .chunks = {}, .sampled_sequences = 1};
  const auto time = [&](const LlmModel& llm) {
    return make_roofline(gpu, llm, load_engine("none"), 1, 2)->iteration(decode);
  };
  const IterationTime plain = time(read(llama()));
  const IterationTime small = time(quantised({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}}));
  // Per layer: 2 * 202,375,168 bytes against 202,375,168 / 2 + 202,375,168 / 128 * 2.5.
  const double saved = (404'750'336.0 - 105'140'224.0) / (gpu.gemm_memory_efficiency * gpu.memory_bandwidth.value());
  EXPECT_NEAR(to_seconds(plain.layer - small.layer), saved, 2e-9);
  EXPECT_EQ(plain.before, small.before);
  EXPECT_EQ(plain.after, small.after);  // the head is not quantised
  const std::array<PrefillChunk, 1> chunks{{{Tokens(8192), Tokens(0)}}};
  const BatchShape prefill{
      .decode_sequences = 0, .decode_context = Tokens(0), .chunks = chunks, .sampled_sequences = 0};
  const LlmModel fp8 = quantised({{"quant_method", "fp8"}});
  EXPECT_EQ(make_roofline(gpu, fp8, load_engine("none"), 1, 2)->iteration(prefill).layer,
            make_roofline(gpu, read(llama()), load_engine("none"), 1, 2)->iteration(prefill).layer);
}

TEST(HfQuantization, Capacity_WhenWeightsAreQuantised_ThenTheKvCacheGrowsByWhatIsSaved) {
  const GpuProfile gpu = load_gpu("h100-80gb-sxm");
  const KvCapacity plain = kv_capacity(gpu, read(llama()), load_engine("none"), {});
  const KvCapacity small = kv_capacity(gpu, quantised({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}}),
                                       load_engine("none"), {});
  EXPECT_EQ(plain.weights - small.weights, Bytes(2 * 6'738'415'616 - 3'889'307'648));
  EXPECT_EQ(small.available - plain.available, plain.weights - small.weights);
  EXPECT_EQ(small.block_bytes, plain.block_bytes);
}

// A table of cosines and sines for the rotated part only: 2048 positions * 32 * 2 bytes; none for ALiBi.
TEST(HfConfig, Capacity_WhenHeadsRotateInPart_ThenTheTableIsSmaller) {
  const auto weights = [](const char* name) {
    return kv_capacity(load_gpu("h100-80gb-sxm"), read(json::parse(model(name).config)), load_engine("none"), {})
        .weights;
  };
  EXPECT_EQ(weights("EleutherAI/pythia-6.9b"), Bytes(2 * 6'857'302'016 + 131'072));
  EXPECT_EQ(weights("bigscience/bloom-7b1"), Bytes(2 * 7'069'016'064));
}

TEST(HfQuantization, Warning_WhenNoKernelOfTheFormatCanBeMeasured_ThenSaysSo) {
  json config = llama();
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 8}, {"new_knob", 3}};
  const std::string warnings = warnings_of(config);
  EXPECT_THAT(warnings, HasSubstr("gptq weights are read as 8 bits with their scales"));
  EXPECT_THAT(warnings, HasSubstr("at /quantization_config/new_knob is not understood and was ignored"));
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  EXPECT_THAT(warnings_of(config), IsEmpty());
}

struct BadQuantization {
  const char* name;
  const char* config;
  const char* expected;  // "what | where" in part
};
// NOLINTNEXTLINE(readability-identifier-naming): the name that GoogleTest calls
void PrintTo(const BadQuantization& bad, std::ostream* stream) { *stream << bad.name; }
class HfBadQuantization : public testing::TestWithParam<BadQuantization> {};

TEST_P(HfBadQuantization, Refusal_WhenNotModelled_ThenNamesTheField) {
  const std::string problems = refusal(json::parse(GetParam().config));
  EXPECT_THAT(problems, HasSubstr(GetParam().expected));
  EXPECT_EQ(lines_of(problems), 1) << problems;
}

INSTANTIATE_TEST_SUITE_P(
    Configs, HfBadQuantization,
    testing::Values(
        BadQuantization{"no_object", "[4]",
                        "must be an object, not [4] | models/my-model/config.json at /quantization_config |"},
        BadQuantization{"no_method", R"({"bits": 4})",
                        "missing | models/my-model/config.json at /quantization_config/quant_method"},
        BadQuantization{"unknown_method", R"({"quant_method": "aqlm"})",
                        "quantisation by \"aqlm\" is not modelled | models/my-model/config.json at "
                        "/quantization_config/quant_method | known: awq, bitsandbytes"},
        // Methods have short, similar names without any relation.
        BadQuantization{"near_method", R"({"quant_method": "hqq"})",
                        "/quantization_config/quant_method | known: awq, bitsandbytes"},
        BadQuantization{"method_no_text", R"({"quant_method": 4})", "must be a text, not 4"},
        BadQuantization{"gptq_bits", R"({"quant_method": "gptq", "bits": 5})",
                        "5 bits are not modelled for gptq | models/my-model/config.json at /quantization_config/bits"},
        BadQuantization{"gptq_no_bits", R"({"quant_method": "gptq"})",
                        "missing | models/my-model/config.json at /quantization_config/bits"},
        BadQuantization{"gptq_text", R"({"quant_method": "gptq", "bits": "4"})", "not \"4\""},
        BadQuantization{"gptq_group", R"({"quant_method": "gptq", "bits": 4, "group_size": 0})",
                        "not 0 | models/my-model/config.json at /quantization_config/group_size"},
        BadQuantization{"gptq_huge_group", R"({"quant_method": "gptq", "bits": 4, "group_size": 18446744073709551615})",
                        "not 18446744073709551615"},
        BadQuantization{"gptq_dynamic", R"({"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*mlp.*": {}}})",
                        "/quantization_config/dynamic"},
        BadQuantization{"awq_bits", R"({"quant_method": "awq", "bits": 8})", "8 bits are not modelled for awq"},
        BadQuantization{"some_layers",
                        R"({"quant_method": "awq", "modules_to_not_convert": ["lm_head", "model.layers.0.self_attn"]})",
                        "/quantization_config/modules_to_not_convert/1"},
        BadQuantization{"fp8_block", R"({"quant_method": "fp8", "weight_block_size": [128, 0]})",
                        "must be [rows, columns], not [128,0]"},
        BadQuantization{"bnb_none", R"({"quant_method": "bitsandbytes"})", "exactly one of load_in_4bit"},
        BadQuantization{"bnb_type", R"({"load_in_4bit": true, "bnb_4bit_quant_type": "fp3"})",
                        "\"fp3\" is not modelled"},
        BadQuantization{"ct_no_groups", R"({"quant_method": "compressed-tensors"})",
                        "missing | models/my-model/config.json at /quantization_config/config_groups"},
        BadQuantization{"ct_null_weights",
                        R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": null}}})",
                        "/quantization_config/config_groups/group_0/weights"},
        BadQuantization{"ct_targets",
                        R"({"quant_method": "compressed-tensors", "config_groups":
                            {"group_0": {"targets": ["re:.*mlp.*"], "weights": {"num_bits": 8}}}})",
                        "/quantization_config/config_groups/group_0/targets"},
        BadQuantization{"ct_mixed",
                        R"({"quant_method": "compressed-tensors", "config_groups":
                            {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8}},
                             "group_1": {"targets": ["Linear"], "weights": {"num_bits": 4}}}})",
                        "/quantization_config/config_groups/group_1"},
        BadQuantization{"ct_bits",
                        R"({"quant_method": "compressed-tensors", "config_groups":
                            {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 6}}}})",
                        "6 bits are not modelled"},
        BadQuantization{"ct_bits_text",
                        R"({"quant_method": "compressed-tensors", "config_groups":
                            {"group_0": {"targets": ["Linear"], "weights": {"num_bits": "4"}}}})",
                        "not \"4\" | models/my-model/config.json at "
                        "/quantization_config/config_groups/group_0/weights/num_bits"},
        BadQuantization{"ct_strategy",
                        R"({"quant_method": "compressed-tensors", "config_groups":
                            {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "strategy": "spiral"}}}})",
                        "\"spiral\" is not modelled"},
        BadQuantization{"ct_sparse",
                        R"({"quant_method": "compressed-tensors", "format": "marlin-24", "config_groups":
                            {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4}}}})",
                        "\"marlin-24\" is not modelled"}),
    [](const auto& tested) { return std::string(tested.param.name); });

// ---- What is refused

struct BadConfig {
  const char* name;
  const char* patch;     // merged into Llama-2-7B's config; null removes a field
  const char* expected;  // in part
};
// NOLINTNEXTLINE(readability-identifier-naming): the name that GoogleTest calls
void PrintTo(const BadConfig& bad, std::ostream* stream) { *stream << bad.name; }
class HfBadConfig : public testing::TestWithParam<BadConfig> {};

TEST_P(HfBadConfig, Refusal_WhenNotUnderstood_ThenNamesTheField) {
  json config = llama();
  config.merge_patch(json::parse(GetParam().patch));
  const std::string problems = problems_of(config);
  EXPECT_THAT(problems, HasSubstr(GetParam().expected));
  EXPECT_EQ(lines_of(problems), 1) << problems;
}

INSTANTIATE_TEST_SUITE_P(
    Configs, HfBadConfig,
    testing::Values(
        BadConfig{"architecture", R"({"architectures": ["LlamaForCausalLN"]})",
                  "\"LlamaForCausalLN\" is not an architecture that is understood | models/my-model/config.json at "
                  "/architectures/0 | did you mean \"LlamaForCausalLM\"? known: BloomForCausalLM, "},
        BadConfig{"model_type", R"({"architectures": null, "model_type": "rwkv"})",
                  "models/my-model/config.json at /model_type | known: bloom, dbrx, "},
        BadConfig{"architectures_text", R"({"architectures": "LlamaForCausalLM"})", "must be a list of class names"},
        BadConfig{"architectures_numbers", R"({"architectures": [1]})", "must be a list of class names"},
        BadConfig{"experts", R"({"num_local_experts": 8})",
                  "changes what the model computes | models/my-model/config.json at /num_local_experts"},
        BadConfig{"num_experts", R"({"num_experts": 60})", "at /num_experts"},
        BadConfig{"routed_experts", R"({"n_routed_experts": 64})", "at /n_routed_experts"},
        BadConfig{"moe_width", R"({"moe_intermediate_size": 1408})", "at /moe_intermediate_size"},
        BadConfig{"latent_q", R"({"q_lora_rank": 1536})", "at /q_lora_rank"},
        BadConfig{"latent_kv", R"({"kv_lora_rank": 512})", "at /kv_lora_rank"},
        BadConfig{"vision", R"({"vision_config": {"hidden_size": 1}})", "multimodal models are not modelled"},
        BadConfig{"text", R"({"text_config": {"hidden_size": 1}})", "at /text_config"},
        BadConfig{"encoder", R"({"is_encoder_decoder": true})", "at /is_encoder_decoder"},
        BadConfig{"cross", R"({"add_cross_attention": true})", "at /add_cross_attention"},
        BadConfig{"mamba", R"({"mamba_d_state": 16})", "hybrid layers are not modelled"},
        BadConfig{"ssm", R"({"ssm_cfg": {"layer": "Mamba2"}})", "at /ssm_cfg"},
        BadConfig{"hybrid", R"({"layer_types": ["full_attention", "linear_attention"]})", "at /layer_types/1"},
        BadConfig{"layer_types", R"({"layer_types": "full_attention"})", "must be a list"},
        BadConfig{"pruned", R"({"pruned_heads": {"0": [1]}})", "at /pruned_heads"},
        BadConfig{"qk_norm", R"({"use_qk_norm": true})", "is not modelled for LlamaForCausalLM | "},
        BadConfig{
            "text_width", R"({"hidden_size": "4096"})",
            "must be an integer between 1 and 1000000, not \"4096\" | models/my-model/config.json at /hidden_size"},
        BadConfig{"zero", R"({"num_hidden_layers": 0})", "not 0 | models/my-model/config.json at /num_hidden_layers"},
        BadConfig{"negative", R"({"num_attention_heads": -32})", "at /num_attention_heads"},
        BadConfig{"huge", R"({"vocab_size": 18446744073709551615})", "at /vocab_size"},
        BadConfig{"real", R"({"intermediate_size": 11008.5})", "not 11008.5"},
        BadConfig{"flag", R"({"tie_word_embeddings": "no"})", "must be true or false, not \"no\""},
        BadConfig{"indivisible", R"({"hidden_size": 4100})", "4100 is not divisible by the 32 heads | "},
        BadConfig{"wide_head", R"({"num_attention_heads": 1, "num_key_value_heads": 1})", "heads of width 4096"},
        BadConfig{"kv_heads", R"({"num_key_value_heads": 7})",
                  "7 must divide the 32 heads | models/my-model/config.json at /num_key_value_heads"},
        BadConfig{"window", R"({"sliding_window": "all"})", "at /sliding_window"}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(HfConfig, Refusal_WhenTheArchitectureIsMisspelt_ThenTheRightNameIsSuggested) {
  const auto meant = [](const std::string& field, const json& value) {
    json config = llama();
    config.erase("architectures");
    config[field] = value;
    const std::string problems = problems_of(config);
    EXPECT_THAT(problems, HasSubstr("is not an architecture that is understood"));
    const std::size_t begin = problems.find("did you mean \"");
    if (begin == std::string::npos) return std::string();
    const std::size_t name = begin + std::string("did you mean \"").size();
    return problems.substr(name, problems.find('"', name) - name);
  };
  const auto of_class = [&](const char* name) { return meant("architectures", json::array({name})); };
  const auto of_type = [&](const char* name) { return meant("model_type", name); };
  EXPECT_EQ(of_class("LamaForCausalLM"), "LlamaForCausalLM");
  EXPECT_EQ(of_class("LlamaForCasualLM"), "LlamaForCausalLM");
  EXPECT_EQ(of_class("llama"), "LlamaForCausalLM");
  EXPECT_EQ(of_class("Mistrall2ForCausalLM"), "");
  EXPECT_EQ(of_class("MistrallForCausalLM"), "MistralForCausalLM");
  EXPECT_EQ(of_class("GPT2LMHeadModell"), "GPT2LMHeadModel");
  EXPECT_EQ(of_type("lllama"), "llama");
  EXPECT_EQ(of_type("gptneox"), "gpt_neox");
  // Distinct architectures in spite of similar names.
  for (const char* name : {"MambaForCausalLM", "MinistralForCausalLM", "GPTNeoForCausalLM", "Phi3VForCausalLM",
                           "Qwen4ForCausalLM", "T5ForConditionalGeneration", "QWenLMHeadModel", "ArcticForCausalLM"}) {
    EXPECT_EQ(of_class(name), "") << name;
  }
  for (const char* name : {"mamba", "llava", "gemma3n_text", "gpt_neo", "mpnet", "glm", "xlm"}) {
    EXPECT_EQ(of_type(name), "") << name;
  }
}

TEST(HfConfig, Refusal_WhenMuchIsWrong_ThenAllIsReportedAtOnce) {
  json config = llama();
  config["num_local_experts"] = 8;
  config["vision_config"] = {{"depth", 1}};
  config["hidden_size"] = nullptr;
  config["num_hidden_layers"] = "32";
  config["torch_dtype"] = "int3";
  config["quantization_config"] = {{"quant_method", "aqlm"}};
  EXPECT_EQ(lines_of(problems_of(config)), 6) << problems_of(config);
  config["architectures"] = {"ArcticForCausalLM"};
  const std::string problems = problems_of(config);
  EXPECT_THAT(problems, HasSubstr("at /architectures/0"));
  EXPECT_THAT(problems, HasSubstr("at /vision_config"));
  EXPECT_THAT(problems, HasSubstr("at /quantization_config/quant_method"));
}

TEST(HfConfig, Refusal_WhenOneArchitectureHasMoreToSay_ThenNamesItsField) {
  json opt = json::parse(model("facebook/opt-13b").config);
  opt["word_embed_proj_dim"] = 512;
  EXPECT_THAT(problems_of(opt), HasSubstr("at /word_embed_proj_dim"));
  json mpt = json::parse(model("mosaicml/mpt-7b").config);
  mpt["attn_config"]["attn_type"] = "multiquery_attention";
  mpt["attn_config"]["alibi"] = false;
  EXPECT_THAT(problems_of(mpt), HasSubstr("at /attn_config/attn_type"));
  EXPECT_THAT(problems_of(mpt), HasSubstr("at /attn_config/alibi"));
  json phi = json::parse(model("microsoft/phi-2").config);
  phi["qk_layernorm"] = true;
  EXPECT_THAT(problems_of(phi), HasSubstr("at /qk_layernorm"));
}

// 32 layers with a norm of 2 * 2560 fewer, 163,840; q and k norms of 2560 each, 163,840; biases of 3 * 2560, 245,760.
TEST(HfConfig, Parameters_WhenStableLmHasOptionalParts_ThenTheyCount) {
  json config = json::parse(model("stabilityai/stablelm-3b-4e1t").config);
  config["use_parallel_residual"] = true;
  EXPECT_EQ(read(config).parameters(), 2'795'443'200 - 163'840);
  config["qk_layernorm"] = true;
  EXPECT_EQ(read(config).parameters(), 2'795'443'200 - 163'840 + 163'840);
  config["use_qkv_bias"] = true;
  EXPECT_EQ(read(config).parameters(), 2'795'443'200 + 245'760);
}

// Falcon's other shapes: full attention with biases, ALiBi and two norms (falcon-rw-1b).
// 50304 * 2048 + 24 (12 * 2048^2 + 9 * 2048 + 4 * 2048) + 2 * 2048
TEST(HfConfig, Parameters_WhenFalconIsNotMultiQuery_ThenItHasAllHeads) {
  const LlmModel llm = read(json::parse(R"({"alibi": true, "architectures": ["FalconForCausalLM"], "bias": true,
      "hidden_size": 2048, "model_type": "falcon", "multi_query": false, "new_decoder_architecture": false,
      "num_attention_heads": 32, "num_hidden_layers": 24, "parallel_attn": false, "torch_dtype": "bfloat16",
      "vocab_size": 50304})"));
  EXPECT_EQ(llm.parameters(), 1'311'625'216);
  EXPECT_EQ(llm.kv_heads, 32);
  EXPECT_EQ(llm.rotated_dim(), 0);
}

TEST(HfConfig, Refusal_WhenItIsAnotherFile_ThenSaysWhatItLooksLike) {
  EXPECT_THAT(problems_of(std::string(R"({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>"})")),
              HasSubstr("looks like a tokenizer_config.json"));
  EXPECT_THAT(problems_of(std::string(R"({"_from_model_config": true, "eos_token_id": 2})")),
              HasSubstr("looks like a generation_config.json"));
  EXPECT_THAT(problems_of(std::string(R"({"eos_token_id": 2, "transformers_version": "4.40.0"})")),
              HasSubstr("looks like a generation_config.json"));
  EXPECT_THAT(problems_of(std::string(R"({"metadata": {}, "weight_map": {}})")), HasSubstr("an index of weight files"));
  EXPECT_THAT(problems_of(std::string(R"({"colour": "green"})")), HasSubstr("neither a Hugging Face config.json"));
}

TEST(HfConfig, Refusal_WhenItIsNoObject_ThenSaysSo) {
  EXPECT_THAT(problems_of(std::string()), HasSubstr("the file is empty | models/my-model/config.json"));
  EXPECT_THAT(problems_of(std::string("[1, 2]")), HasSubstr("must hold a JSON object, not an array"));
  EXPECT_THAT(problems_of(std::string("null")), HasSubstr("must hold a JSON object, not null"));
  EXPECT_THAT(problems_of(std::string("3")), HasSubstr("must hold a JSON object, not a number"));
  EXPECT_THAT(problems_of(std::string("{\n,")), HasSubstr("not a JSON document: parse error at line 2, column 1: "));
  EXPECT_THAT(problems_of(std::string("llama")), HasSubstr("not a JSON document"));
  EXPECT_THAT(problems_of(std::string("\xff\xfe{}")), HasSubstr("not a JSON document"));
  EXPECT_THAT(problems_of("{\"hidden_size\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}"),
              HasSubstr("nested more than 50 deep"));
  const std::string whole = llama().dump();
  for (std::size_t length = 1; length < whole.size(); length += 7) {
    EXPECT_THAT(problems_of(whole.substr(0, length)), HasSubstr("not a JSON document")) << length;
  }
}

// Every field with every wrong type: never a crash, an overflow or another kind of error.
TEST(HfConfig, Refusal_WhenAnyFieldIsOfAnyOtherType_ThenOnlyDataErrorsAreThrown) {
  const std::vector<json> values{
      nullptr, true, -1, 0, 18446744073709551615ULL, 1e308, "", "x", json::array(), {1}, json::object(), {{"a", 1}}};
  int refused = 0;
  for (const Published& one : published()) {
    const json config = json::parse(one.config);
    for (const auto& item : config.items()) {
      for (const json& value : values) {
        json changed = config;
        changed[item.key()] = value;
        try {
          EXPECT_GT(read(changed).parameters(), 0) << one.name << " " << item.key() << " " << value;
        } catch (const DataError& error) {
          ++refused;
          EXPECT_FALSE(error.problems().empty());
        }
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(HfQuantization, Refusal_WhenAnyFieldIsOfAnyOtherType_ThenOnlyDataErrorsAreThrown) {
  json grouped = compressed(fp8_group());
  grouped["kv_cache_scheme"] = {{"num_bits", 8}};
  grouped["sparsity_config"] = {{"format", "dense"}};
  const std::vector<json> values{
      nullptr, true, -1, 0, 18446744073709551615ULL, 1e308, "x", json::array(), {1, "x"}, json::object(), {{"a", 1}}};
  int refused = 0;
  for (const json& config : {grouped, json{{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}},
                             json{{"quant_method", "awq"}, {"bits", 4}, {"modules_to_not_convert", {"lm_head"}}},
                             json{{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}},
                             json{{"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}}}) {
    const json leaves = config.flatten();
    for (const auto& [pointer, leaf] : leaves.items()) {
      for (json::json_pointer at(pointer); !at.empty(); at.pop_back()) {
        for (const json& value : values) {
          json changed = config;
          changed[at] = value;
          const std::string problems = refusal(changed);
          refused += problems.empty() ? 0 : 1;
          if (problems.empty()) {
            EXPECT_GT(quantised(changed).weights_per_gpu(1), Bytes(0)) << at << " " << value;
          }
        }
      }
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(HfConfig, Largest_WhenEveryShapeIsAtItsLimit_ThenNothingOverflows) {
  json config = llama();
  config["num_hidden_layers"] = 1000;
  config["hidden_size"] = 1'000'000;
  config["num_attention_heads"] = 1000;
  config["num_key_value_heads"] = 1000;
  config["intermediate_size"] = 1'000'000;
  config["vocab_size"] = 10'000'000;
  config["max_position_embeddings"] = 1'000'000'000;
  // 2e13 + 1000 (4e12 + 3e12 + 2e6) + 1e6
  EXPECT_EQ(read(config).parameters(), 7'020'002'001'000'000);
  EXPECT_EQ(read(config).kv_bytes_per_token(2), Bytes(4'000'000'000));
}

// ---- Files

class HfFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("spillway_hf_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return (folder_ / name).string();
  }

  std::filesystem::path folder_;
};

TEST_F(HfFile, LoadLlm_WhenGivenAFileOrItsFolder_ThenContentDecides) {
  const std::string path = write("config.json", llama().dump());
  EXPECT_EQ(load_llm(path).parameters(), 6'738'415'616);
  const LlmModel llm = load_llm(folder_.string());
  EXPECT_EQ(llm.parameters(), 6'738'415'616);
  EXPECT_EQ(llm.file.path, path);
  // Spillway's own format under the same file name.
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.path == "hwmodels/llms/opt-13b.json") static_cast<void>(write("config.json", std::string(file.content)));
  }
  EXPECT_EQ(load_llm(folder_.string()).file.name, "opt-13b");
}

TEST_F(HfFile, LoadLlm_WhenThereIsNoConfig_ThenDataErrorNamesThePath) {
  try {
    static_cast<void>(load_llm(folder_.string()));
    FAIL();
  } catch (const DataError& error) {
    EXPECT_EQ(error.problems()[0].where, (folder_ / "config.json").string());
    EXPECT_EQ(error.problems()[0].what, "cannot be read");
  }
  EXPECT_THROW(static_cast<void>(load_llm("./no-such-folder")), DataError);
  EXPECT_THROW(static_cast<void>(load_llm(write("own.json", R"({"schema_version": 1})"))), DataError);
}

}  // namespace
}  // namespace spillway::hwmodels
