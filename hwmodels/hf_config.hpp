// Language models from a Hugging Face config.json: dense decoder-only architectures, with 16-bit or quantised weights.
//
// Shapes       by the fields of the architecture (hf_architectures.hpp). A field that is left out has the default of
//              its class in transformers, with a warning when the default is a plain number.
// Longest text as vLLM derives it: max_position_embeddings; times rope_scaling.factor for the linear and dynamic types;
//              original_max_position_embeddings * factor for yarn; unchanged for llama3, longrope and su, and for
//              Gemma 3. A sliding window in any layer caps the length, with a warning, because attention is modelled
//              over the whole context.
// Element size 2 bytes for bfloat16 and float16. float32, and a file that states no type, count as 2 bytes too, with a
//              warning, as with vLLM's dtype=auto.
// Quantised    linear layers by quantization_config (hf_quantization.hpp).
//
// Refused, with the JSON pointer of the field: another architecture, mixture of experts, latent
// attention, state-space and hybrid layers, encoders, multimodal models, other quantisations. A field that is neither
// understood nor known to be harmless is ignored with a warning.
#pragma once

#include <string>
#include <string_view>

#include "hwmodels/catalog.hpp"

namespace spillway::hwmodels {

/// `content` is the text of the file at `path`. The model's name is `_name_or_path` unless that is a path, else the
/// folder of a config.json, else the name of the file. Throws DataError with every problem.
[[nodiscard]] LlmModel read_hf_config(const std::string& path, std::string_view content);

}  // namespace spillway::hwmodels
