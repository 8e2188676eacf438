// Execution model from fitted kernels: every kernel of an iteration by its own model, summed.
//
// Given   kernels of a GPU profile (GEMM, decode and prefill attention; elementwise, all-reduce where fitted), an LLM
//         on tensor_parallel = p GPUs, KV element size; L, h, H, d, f, V, E as in roofline.hpp
// Computed, in seconds; n tokens, s sampled sequences
//   layer      = gemm(n; QKV) + gemm(n; output) + gemm(n; up) + gemm(n; down) + attention + elementwise(n)
//                + 2 all_reduce(n h E)
//   attention  = decode(S, X, x) + prefill(C); where an iteration has both, (1 - s) times this sum + s times one fused
//                call, with the fused share s of the profile (attention.hpp, MixedAttentionModel); s = 0 with an
//                engine that splits mixed attention
//   elementwise= r t_e + bytes(n) / B_e: kernels and bytes as in roofline.hpp; where the profile has no fit, t_k and
//                the GEMMs' bandwidth
//   embedding  = elementwise of 2 n h E bytes + all_reduce(n h E)
//   after      = final norm + gemm(s; LM head) + gather(s) + sampling(s)
//   sampling   = 3 t_e + 12 s V / p / B_e: logits to fp32, softmax, draw (2 + 4, 4, 2 bytes per logit; assumed)
//   gather     = all_reduce of s V E bytes, halved: an all-gather moves half as much
// Layers with experts have the router, shared experts and one fused MoE module (moe.hpp) in place of gemm(up) and
// gemm(down). Several data-parallel groups have the exchange of layer_exchange.hpp for the second all-reduce.
// Over a window, decodes attend to at most the window, and prompts take their launch and the share of the rest that the
// window leaves of the pairs. Latent attention is a roofline (latent_attention.hpp). The groups of data_parallel > 1
// share the batch (layer_batch.hpp), and wait for the one with the most tokens.
// Times are multiplied by OpScales: attention by `attention`, all others by `gemm` and by the engine's factor for them.
// Linear layers in a quantised format use the profile's GEMM of that format. Without one they move fewer bytes, and
// their arithmetic takes as long as without quantisation. An engine that fuses quantisation quantises only the input of
// the output projection, where x comes from attention. KV in one byte uses the profile's attention fits for it, or
// those for two bytes with half the traffic. An engine with all-reduce kernels of its own uses their table where there
// is one. Times that depend on n or s alone are cached, and so is the prefill attention of a chunk that is alone in its
// iteration.
//
// Measured ranges are those of the fits that a call uses, including borrowed fits. A call is one launch: four matrix
// multiplications in each layer and the LM head. Elementwise work of a layer counts as its r kernels with equal shares
// of the bytes. The `context` of an attention call is the number of tokens before the new ones; for decodes, that of
// the longest sequence. Decodes are compared with the ranges of decode attention and chunks with those of prefill
// attention, whether in one launch or two. Both together are also compared with the ranges of mixed attention, whose
// context includes the new token, unless the engine splits mixed attention.
//
// Why this form: fitted to 768 GEMMs and 200 attention calls of other models, it had median / p95 errors of 3.6% / 14%
// (A100), 2.3% / 8.0% (H100) and 2.6% / 7.8% (H200). Each GPU had 1,206 decode iterations, summed from kernels in bf16
// tables of ai-dynamo/aiconfigurator 095f58a. Each profile states the errors of its own fits.
#pragma once

#include <cstdint>
#include <memory>

#include "hwmodels/catalog.hpp"
#include "hwmodels/models/layer_exchange.hpp"
#include "sim/api/execution_model.hpp"
#include "sim/api/op_scales.hpp"

namespace spillway::hwmodels {

/// Throws ConfigError when the parallelism does not split the model, takes several GPUs without all-reduce figures, or
/// the profile lacks one of the kernels of a layer, or experts cannot exchange as `experts` says.
[[nodiscard]] std::unique_ptr<ExecutionModel> make_fitted_model(
    const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine, const Parallelism& parallelism,
    std::int64_t kv_dtype_bytes, const OpScales& scales = {}, const ExpertSetting& experts = {});

}  // namespace spillway::hwmodels
