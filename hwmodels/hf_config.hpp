// Language models from a Hugging Face config.json: decoder-only architectures, dense or with routed experts, with
// 16-bit or quantised weights. Of a model that also reads pictures, the language model (`text_config`).
//
// Shapes       by the fields of the architecture (hf_architectures.hpp). A field that is left out has the default of
//              its class in transformers, with a warning when the default is a plain number.
// Longest text as vLLM derives it: max_position_embeddings; times rope_scaling.factor for the linear and dynamic types;
//              original_max_position_embeddings * factor for yarn; unchanged for llama3, longrope and su, and for
//              Gemma 3.
// Layers       with experts or a dense MLP, over a window or over all tokens, by layer_types or the rule of the class
//              (hf_layers.hpp). A warning says that the KV cache keeps the tokens beyond a window, and what freeing
//              them would gain.
// Element size 2 bytes for bfloat16 and float16. float32, and a file that states no type, count as 2 bytes too, with a
//              warning, as with vLLM's dtype=auto.
// Quantised    linear layers by quantization_config (hf_quantization.hpp).
//
// Refused, with the JSON pointer of the field: another architecture, state-space, linear-attention and hybrid layers,
// sparse attention over an index, encoders, other quantisations, and a field that is not known and whose name says that
// it changes what the model computes. Any other field that is neither understood nor known to be harmless is ignored
// with a warning.
#pragma once

#include <string>
#include <string_view>

#include "hwmodels/catalog.hpp"

namespace spillway::hwmodels {

/// `content` is the text of the file at `path`. The model's name is `_name_or_path` unless that is a path, else the
/// folder of a config.json, else the name of the file. Throws DataError with every problem.
[[nodiscard]] LlmModel read_hf_config(const std::string& path, std::string_view content);

}  // namespace spillway::hwmodels
