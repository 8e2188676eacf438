// Language models from a Hugging Face config.json: dense decoder-only architectures, with 16-bit or quantised weights.
//
// Shapes       by the fields of the architecture (hf_architectures.hpp); a field that is left out has the default of
// its
//              class in transformers, with a warning when that default is a plain number.
// Longest text as vLLM derives it: max_position_embeddings; times rope_scaling.factor for the linear and dynamic types,
//              original_max_position_embeddings * factor for yarn; as it is for llama3, longrope and su, and for
//              Gemma 3. A sliding window that any layer uses caps it, with a warning, since attention is modelled over
//              the whole context.
// Element size 2 bytes for bfloat16 and float16; float32 is served in 2 bytes too, as vLLM's dtype=auto does, with a
//              warning; so is a file that does not say.
// Quantised    linear layers by quantization_config (hf_quantization.hpp).
//
// Refused, by the JSON pointer of the field that is not understood: another architecture, mixture of experts, latent
// attention, state-space and hybrid layers, encoders, multimodal models, other quantisations. A field that is neither
// understood nor known to be harmless is ignored with a warning.
#pragma once

#include <string>
#include <string_view>

#include "hwmodels/catalog.hpp"

namespace spillway::hwmodels {

/// `content` is what the file at `path` holds. The model is named by `_name_or_path`, unless that is a path, else by
/// the folder of a config.json, else by the file. Throws DataError with every problem.
[[nodiscard]] LlmModel read_hf_config(const std::string& path, std::string_view content);

}  // namespace spillway::hwmodels
