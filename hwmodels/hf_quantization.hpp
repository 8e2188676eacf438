// How quantised checkpoints store their linear layers: `quantization_config` of a Hugging Face config.json.
//
// Given   i, o   inputs and outputs of a linear layer
//         b      bits per weight
//         g      group_size, weights of one output that share a scale; -1: all i of them
// Stored, in bits, as the formats lay them out
//   gptq                b i o + ceil(i / g) o (16 + b)      qweight; scales in fp16, qzeros of b bits    AutoGPTQ
//   awq                 b i o + ceil(i / g) o (16 + b)      the same                                     AutoAWQ
//   fp8, per tensor     8 i o + 32                          one fp32 scale                               vLLM fp8
//   fp8, r x c blocks   8 i o + ceil(i / c) ceil(o / r) 32  fp32 scale per weight_block_size             DeepSeek-V3
//   mxfp4               4 i o + ceil(i / 32) o 8            a byte for 32 weights; experts alone            gpt-oss
//   modelopt NVFP4      4 i o + ceil(i / 16) o 8            a byte for 16 weights                           ModelOpt
//   modelopt FP8        8 i o + 32                          one fp32 scale
//   compressed-tensors  b i o + groups (s + z)              tensor: 1 group, channel: o, group: as gptq, block: as fp8;
//                       s = 16 for weights alone, 32 when activations are quantised as well; z = b when asymmetric, or
//                       0
//   bitsandbytes 4-bit  4 i o + (i o / 64) 32               fp32 absmax per 64 weights                   QLoRA paper, 3
//       double quant    4 i o + (i o / 64) (8 + 32 / 256)   8-bit absmax, fp32 per 256 of those
//   bitsandbytes 8-bit  8 i o + o 32                        fp32 absmax per output                       LLM.int8()
// Left out, below 0.2% of the weights: GPTQ's g_idx (4 bytes per input; vLLM keeps it for desc_act only), static scales
// of activations, shape records. Kernels that repack weights (Marlin) keep their size. Layouts are given from memory of
// the formats' public code, not measured.
//
// Embeddings, norms and biases keep the model's dtype. So does the LM head, unless gptq has lm_head, or
// compressed-tensors or modelopt does not ignore it. Routers keep it, too. The attention of all layers may, and then
// experts and MLPs alone are quantised.
#pragma once

#include "hwmodels/catalog.hpp"
#include "hwmodels/hf_object.hpp"

namespace spillway::hwmodels {

/// Fills `quantized` and `kv_cache_bytes` of `llm` from the `quantization_config` (or `compression_config`, its older
/// name) in `root`; leaves them empty when there is none. Unknown methods and bits, and linear layers that are left
/// unquantised one by one, are recorded as problems.
void read_quantization(HfObject& root, LlmModel& llm);

/// Says in the model's file how its weights are stored; warns where no kernels of the method can be measured. Does
/// nothing for a model in 16 bits.
void describe_quantization(LlmModel& llm, HfFindings& findings);

/// Both, for a model whose shapes are not from a config.json: `stored` has its quantization_config alone, or nothing.
/// Throws DataError with every problem.
void read_quantization(LlmModel& llm, const nlohmann::json& stored);

}  // namespace spillway::hwmodels
