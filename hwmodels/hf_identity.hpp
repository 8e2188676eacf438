// What a Hugging Face config.json describes: which architecture, and which models and files are refused.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "hwmodels/hf_architectures.hpp"
#include "hwmodels/hf_object.hpp"

namespace spillway::hwmodels {

/// Throws DataError for a document without model_type and architectures, with the kind of file that it looks like.
void refuse_other_files(const std::string& path, const nlohmann::json& document);

/// The row of `architectures`, else of `model_type`. Null when there is none, which is recorded as a problem.
[[nodiscard]] const HfArchitecture* find_architecture(HfObject& root);

/// The field `layer_types`: whether each layer attends over a window. Empty where the file does not state it.
using HfLayerTypes = std::vector<bool>;

/// Records a problem for each field that makes the model something that is not modelled. Returns the layer types, of
/// which full, sliding and chunked attention are understood.
HfLayerTypes refuse_other_models(HfObject& root);

}  // namespace spillway::hwmodels
