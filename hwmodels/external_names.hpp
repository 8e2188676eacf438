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

/// A model of the Hugging Face hub: the bundled model with its shapes, and where it differs.
struct HubModel {
  std::string llm;     // one of llm_names()
  std::string fields;  // of its config.json, as a JSON object: those that are not as in the bundled model; "{}": none
};

/// The model of an id, such as Qwen/Qwen3-30B-A3B-FP8, in any case. The bundled models state their ids. Tuned variants
/// have the shapes of their base model; the suffixes of publishers of quantised weights give the format. Empty for
/// another id, and for what is not of the form organisation/name.
[[nodiscard]] std::optional<HubModel> llm_of_hub_id(std::string_view id);
/// The nearest id that resolves, and what to do for another model; empty for what is not of the form organisation/name.
[[nodiscard]] std::string advice_on_hub_id(std::string_view id);

/// What to measure for a GPU that is known but has no profile, such as "l40s"; empty for any other name.
[[nodiscard]] std::string advice_on_gpu(std::string_view name);

}  // namespace spillway::hwmodels
