// What a Hugging Face config.json describes: which architecture, and which models and files are refused.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "hwmodels/hf_architectures.hpp"
#include "hwmodels/hf_object.hpp"

namespace spillway::hwmodels {

/// Throws DataError for a document without model_type and architectures, with the kind of file that it looks like.
void refuse_other_files(const std::string& path, const nlohmann::json& document);

/// The row of `architectures`, else of `model_type`. Null when there is none, which is recorded as a problem.
[[nodiscard]] const HfArchitecture* find_architecture(HfObject& root);

/// The field `layer_types`.
struct HfLayerTypes {
  bool stated = false;
  bool only_full_attention = false;
};

/// Records a problem for each field that makes the model something other than a dense decoder. Returns the layer types,
/// of which full and sliding attention are understood.
HfLayerTypes refuse_other_models(HfObject& root);

}  // namespace spillway::hwmodels
