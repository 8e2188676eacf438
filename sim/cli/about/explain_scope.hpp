// What `explain` says a run models of a model and of a GPU, and what it does not.
#pragma once

#include <string>

#include "hwmodels/catalog.hpp"

namespace spillway::cli {

/// Of a model with experts, latent attention or windows; empty for others.
[[nodiscard]] std::string explain_scope(const hwmodels::LlmModel& llm);
/// Which kernels are measured on this GPU, which ones another GPU lends, and what stands for the others. Empty without
/// fitted kernels.
[[nodiscard]] std::string explain_scope(const hwmodels::GpuProfile& gpu);

}  // namespace spillway::cli
