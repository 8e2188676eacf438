// Execution models from an engine's logs: measured layers of one model, or whole iterations.
//
// Layer tables (latency_model=tables), in seconds; n tokens, s sampled sequences. Every name is a table: lm_head and
// sampler by sequences, the others by tokens.
//   layer      = layer_norms layernorm(n) + qkv_proj(n) + rotary_emb(n) + attention + o_proj(n) + gate_up_proj(n)
//                + act_fn(n) + down_proj(n) + each table of any other name, a kernel that runs once in every layer
//   attention  = the measured grid at (chunk, its context, decodes, mean context of decodes). The longest context does
//                not matter, because the tables have equal contexts. No table holds several chunks. Each chunk then
//                takes its time alone beyond the shortest call of the grid, and the decodes take what they add to one
//                chunk of all new tokens after their mean context
//   embedding  = embedding(n);  after = final_layernorm(n) + lm_head(s) + sampler(s)
// A kernel without a table takes no time. qkv_proj, o_proj, gate_up_proj, down_proj and the attention grid are
// required.
// Times are multiplied by OpScales: attention by `attention`, all other kernels by `gemm`.
// Measured ranges count one call for each layer, at the points where its tables are read, and one call at s for the
// kernels after the layers.
//
// Whole iterations (latency_model=iterations)
//   iteration  = a + b n + c X + d sum over chunks of c_i (x_i + c_i / 2), spread evenly over the layers
//                X is the number of tokens that all sequences attend to. Logged times include the engine's CPU
//                time, so none is added.
// OpScales multiply a and b by `gemm`, c and d by `attention`. n and X have measured ranges.
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

/// Names of the tables by tokens that are not known layers.
[[nodiscard]] std::vector<std::string> unknown_layers(const LayerTables& tables);
/// The first required table that is missing: "o_proj", "attention of chunks"; empty: none.
[[nodiscard]] std::string missing_from(const LayerTables& tables);
/// Why the profile's tables cannot give the time of this model: there are none, one is missing, they were measured on
/// another model, or tensor_parallel is not 1 (the tables are of one GPU). Empty when they can.
[[nodiscard]] std::optional<Problem> table_model_problem(const GpuProfile& gpu, const LlmModel& llm,
                                                         std::int64_t tensor_parallel);
/// Throws table_model_problem() as a ConfigError.
[[nodiscard]] std::unique_ptr<ExecutionModel> make_table_model(const GpuProfile& gpu, const LlmModel& llm,
                                                               const EngineProfile& engine,
                                                               std::int64_t tensor_parallel,
                                                               const OpScales& scales = {});
/// Throws ConfigError when the profile has no fit of iterations. tensor_parallel is that of the logged engine.
[[nodiscard]] std::unique_ptr<ExecutionModel> make_iteration_model(const GpuProfile& gpu, const LlmModel& llm,
                                                                   const EngineProfile& engine,
                                                                   const OpScales& scales = {});

}  // namespace spillway::hwmodels
