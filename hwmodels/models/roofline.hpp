// Analytic execution model: every kernel takes the longer of its arithmetic and its memory traffic.
//
// Given   P, B        peak FLOP/s and bytes/s of the GPU; e_c, e_m, e_d, e_p its efficiencies (GEMM compute, GEMM
//                     memory, decode attention, prefill attention)                                      GpuProfile
//         t_k, t_a    overhead of one GEMM or elementwise kernel, of one attention call                  GpuProfile
//         a, W        latency and bus bandwidth of an all-reduce                                         GpuProfile
//         L, h, H, d, f, V, E   layers, hidden, heads, head_dim, ffn, vocabulary, bytes per activation     LlmModel
//         b(i, o)     bytes of a linear layer's weights: E i o, fewer when quantised                      LlmModel
//                     (the LM head only if it is quantised too)
//         l, d'       norms per layer, rotated part of a head (0: learned positions or ALiBi)             LlmModel
//         p           tensor_parallel; widths on one GPU: q = H d / p of Q, k = kv_heads_per_gpu d of K (or V)
//         K           bytes per KV element
//         F           launch floor of a layer; h_f, h_s CPU time per iteration and per sequence           EngineProfile
//         S, X, C     decoding sequences, the tokens they attend to, prefill chunks (c new, x before)     BatchShape
//         s           sequences that emit a token                                                         BatchShape
// Computed, in seconds; n = S + sum of c, the tokens of the iteration
//   gemm(m, i, o)  = t_k + max(2 m i o / (e_c P), (b(i, o) + E (m i + m o)) / (e_m B))
//                    Quantised weights save traffic only. Arithmetic runs at the bf16 peak, as in kernels that
//                    dequantise on the fly (Marlin, bitsandbytes). Compute-bound fp8 or int8 tensor cores are faster.
//   projections    = gemm(n, h, q + 2 k) + gemm(n, q, h)                         QKV, output
//   mlp            = gemm(n, h, g f / p) + gemm(n, f / p, h)                     up (g = 2 with a gate, else 1), down
//   decode         = t_a + (X 2 k K + S 2 q E) / (e_d B)                         KV read once; q in, output out
//   prefill        = t_a + sum over C of max(4 q (c x + c (c + 1) / 2) / (e_p P), ((x + c) 2 k K + c 2 q E) / (e_d B))
//   elementwise    = r t_k + n E (4 l h + 2 (q + k) [q/k norms] + 2 (q + k) d' / d + (g + 1) f / p + 4 k) / (e_m B)
//                    r = l + 2 kernels: norms with their residual sum, activation, KV write; + 1 for a rotation, + 2
//                    for q/k norms
//   all_reduce(b)  = a + 2 (p - 1) / p b / W, when p > 1; else 0
//   gpu            = projections + mlp + decode [S > 0] + prefill [C not empty] + elementwise + 2 all_reduce(n h E)
// Layers with experts have, in place of the MLP, k experts of width w for each token, of E, and shared ones of width f'
//   router         = gemm(n, h, E)
//   shared         = gemm(n, h, g f' / p) + gemm(n, f' / p, h)                   where f' > 0
//   experts        = 5 t_k + max(R 2 (g + 1) h w / (e_c P), (A b(expert) + 2 R h E) / (e_m B))
//                    R rows and A experts with rows on the most loaded GPU (expert_load.hpp)
//   all-reduces    : one over p GPUs after attention, and one after the experts; of several data-parallel groups the
//                    exchange of layer_exchange.hpp in place of the second
// With a window of W tokens, X is at most S W, and a prompt has the pairs that the window leaves. Latent attention:
// latent_attention.hpp. The groups of data_parallel > 1 share the batch (layer_batch.hpp).
//   after          = t_k + 4 n h E / (e_m B) + head;  head = gemm(s, h, V / p) + gather [s > 0]
//                    gather = a + (p - 1) / p s V E / W, when p > 1
//   embedding      = t_k + 2 n h E / (e_m B) + all_reduce(n h E)
// Times are multiplied by OpScales: decode and prefill by `attention`, all others by `gemm`.
// engine_side.hpp adds the launch floor of a layer and the engine's CPU time.
// Not modelled: sampling kernels, tile quantisation, skewed contexts, fused mixed-batch kernels.
// Median errors on A100 / H100 / H200 / L40S (bf16 tables of ai-dynamo/aiconfigurator 095f58a): GEMM of shapes not
// fitted, with efficiencies fitted to 192 points, 7.9% / 6.5% / 7.6% / 9.2%; decode iterations with datasheet figures
// alone, 26.8% / 5.9% / 9.8% / 4.5%.
#pragma once

#include <cstdint>
#include <memory>

#include "hwmodels/catalog.hpp"
#include "hwmodels/models/layer_exchange.hpp"
#include "sim/api/execution_model.hpp"
#include "sim/api/op_scales.hpp"

namespace spillway::hwmodels {

/// The times of `llm` on each GPU of a replica. iteration() takes well under 100 ns without prefill, and with the cost
/// of MostLoadedRank::at() more where the model has experts. Throws ConfigError when the parallelism does not split the
/// model, when its experts cannot exchange as `experts` says, and when it takes several GPUs but the profile has no
/// all-reduce figures.
[[nodiscard]] std::unique_ptr<ExecutionModel> make_roofline(const GpuProfile& gpu, const LlmModel& llm,
                                                            const EngineProfile& engine, const Parallelism& parallelism,
                                                            std::int64_t kv_dtype_bytes, const OpScales& scales = {},
                                                            const ExpertSetting& experts = {});

}  // namespace spillway::hwmodels
