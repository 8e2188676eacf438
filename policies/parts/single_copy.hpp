// One contiguous copy between host and GPU, as layer rules issue it.
#pragma once

#include "sim/api/execution_model.hpp"
#include "sim/api/layer_rule.hpp"

namespace spillway {

/// A copy of `bytes` > 0 with the model's times. `layer` and `tag` are left to the rule.
[[nodiscard]] inline Copy single_copy(const ExecutionModel& model, Stream stream, Bytes bytes,
                                      CopyMechanism mechanism = CopyMechanism::single) {
  const CopyTime time = model.copy(stream, 1, bytes, mechanism);
  return {.stream = stream, .bytes = bytes, .launch = time.launch, .transfer = time.transfer};
}

}  // namespace spillway
