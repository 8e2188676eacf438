// Execution models straight from an engine's logs: measured layers of one model, or whole iterations.
//
// Layer tables (latency_model=tables), in seconds; n tokens, s sampled sequences; every name is a table by tokens,
// lm_head and sampler by sequences
//   layer      = layer_norms layernorm(n) + qkv_proj(n) + rotary_emb(n) + attention + o_proj(n) + gate_up_proj(n)
//                + act_fn(n) + down_proj(n) + any table by another name, which is a kernel that runs once in every
//                layer
//   attention  = the measured grid at (chunk, its context, decodes, mean context of decodes); the longest context does
//                not count: the tables have equal ones. Of several chunks, which no table holds, each takes what it
//                takes alone beyond the shortest call of the grid, and the decodes what they add to one chunk of all
//                new tokens after their mean context
//   embedding  = embedding(n);  after = final_layernorm(n) + lm_head(s) + sampler(s)
// A kernel without a table takes no time; qkv_proj, o_proj, gate_up_proj, down_proj and the attention grid must be
// there.
// Times are multiplied by OpScales: attention by `attention`, all other kernels by `gemm`.
// Measured ranges hold one call for each layer, at the points where its tables are read, and one for the kernels after
// the layers, at s.
//
// Whole iterations (latency_model=iterations)
//   iteration  = a + b n + c X + d sum over chunks of c_i (x_i + c_i / 2), spread evenly over the layers; X is what all
//                sequences attend to. It was logged with the engine's host side in it, so none is added.
// OpScales multiply a and b by `gemm`, c and d by `attention`. Measured ranges are of n and X.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hwmodels/catalog.hpp"
#include "sim/api/execution_model.hpp"
#include "sim/api/op_scales.hpp"
#include "sim/core/error.hpp"

namespace spillway::hwmodels {

/// Tables by tokens whose names say nothing.
[[nodiscard]] std::vector<std::string> unknown_layers(const LayerTables& tables);
/// What of a model's layers these tables do not tell: "o_proj", "attention of chunks"; empty: nothing.
[[nodiscard]] std::string missing_from(const LayerTables& tables);
/// Why the profile's tables cannot tell the time of this model: there are none, one is missing, they were measured on
/// another model, or tensor_parallel is not 1 (they are of one GPU). Empty when they can.
[[nodiscard]] std::optional<Problem> table_model_problem(const GpuProfile& gpu, const LlmModel& llm,
                                                         std::int64_t tensor_parallel);
/// Throws that problem as a ConfigError.
[[nodiscard]] std::unique_ptr<ExecutionModel> make_table_model(const GpuProfile& gpu, const LlmModel& llm,
                                                               const EngineProfile& engine,
                                                               std::int64_t tensor_parallel,
                                                               const OpScales& scales = {});
/// Throws ConfigError when the profile holds no fit of iterations. tensor_parallel is that of the logged engine.
[[nodiscard]] std::unique_ptr<ExecutionModel> make_iteration_model(const GpuProfile& gpu, const LlmModel& llm,
                                                                   const EngineProfile& engine,
                                                                   const OpScales& scales = {});

}  // namespace spillway::hwmodels
