// Execution model from fitted kernels: every kernel of an iteration by its own model, summed.
//
// Given   kernels of a GPU profile (GEMM, decode and prefill attention; elementwise, all-reduce where fitted), an LLM
//         on tensor_parallel = p GPUs, KV element size; L, h, H, d, f, V, E as in roofline.hpp
// Computed, in seconds; n tokens, s sampled sequences
//   layer      = gemm(n; QKV) + gemm(n; output) + gemm(n; up) + gemm(n; down) + attention + elementwise(n)
//                + 2 all_reduce(n h E)
//   attention  = decode(S, X, x) + prefill(C); of both together (1 - s) times that and s times one fused call, with the
//                fused share s of the profile (attention.hpp, MixedAttentionModel)
//   elementwise= r t_e + bytes(n) / B_e: kernels and bytes as in roofline.hpp; where the profile has no fit, t_k and
//                the GEMMs' bandwidth
//   embedding  = elementwise of 2 n h E bytes + all_reduce(n h E)
//   after      = final norm + gemm(s; LM head) + gather(s) + sampling(s)
//   sampling   = 3 t_e + 12 s V / p / B_e: logits to fp32, softmax, draw (2 + 4, 4, 2 bytes per logit; assumed)
//   gather     = all_reduce of s V E bytes, halved: an all-gather moves half as much
// Times are multiplied by OpScales: all above by `gemm`, what attention takes by `attention`.
// Quantised weights move fewer bytes and are multiplied as the unquantised ones. What depends on n or s alone is kept
// after the first time, and so is the prefill attention of a chunk that is alone in its iteration.
//
// Measured ranges are those of the fits that a call takes, borrowed ones included. A call is a launch: four matrix
// multiplications in each layer and the LM head; what moves data in a layer counts as its r kernels with equal shares
// of the bytes. Of an attention call `context` is what a sequence has before its new tokens, of decodes that of the
// longest; decodes are held against decode attention's ranges and chunks against prefill attention's, in one launch or
// two, and both together against those of mixed attention, whose context has the new token in it.
//
// Source of the form and of its error: latency study of 2026-11-20, sections 2-5.
#pragma once

#include <cstdint>
#include <memory>

#include "hwmodels/catalog.hpp"
#include "sim/api/execution_model.hpp"
#include "sim/api/op_scales.hpp"

namespace spillway::hwmodels {

/// Throws ConfigError when tensor_parallel does not split the model, exceeds 1 without all-reduce figures, or the
/// profile lacks one of the kernels of a layer.
[[nodiscard]] std::unique_ptr<ExecutionModel> make_fitted_model(const GpuProfile& gpu, const LlmModel& llm,
                                                                const EngineProfile& engine,
                                                                std::int64_t tensor_parallel,
                                                                std::int64_t kv_dtype_bytes,
                                                                const OpScales& scales = {});

}  // namespace spillway::hwmodels
