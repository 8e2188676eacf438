// Names that other tools use for the GPUs and models that Spillway has profiles of.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace spillway::hwmodels {

/// The profile of the GPU that the driver calls `device` ("NVIDIA H100 80GB HBM3", as nvidia-smi and torch print it);
/// empty when there is none. A board whose memory or clocks differ from the profile's is another GPU.
[[nodiscard]] std::optional<std::string> gpu_of_device(std::string_view device);

/// The bundled model of a repository or folder ("meta-llama/Llama-3.1-8B-Instruct"), by the last part of its name:
/// tuned variants have the shapes of their base model. Empty when there is none.
[[nodiscard]] std::optional<std::string> llm_of_repository(std::string_view repository);

}  // namespace spillway::hwmodels
