// What users of serving engines set and the simulator does not model.
#pragma once

#include <string_view>

namespace spillway {

/// What comes nearest to a key that is not modelled: "tensor_parallel, which ...". Empty: the key is simply unknown.
/// Engines' own spellings count: "--pipeline-parallel-size" as a key is pipeline_parallel_size.
[[nodiscard]] std::string_view nearest_to_unmodelled(std::string_view key);

}  // namespace spillway
