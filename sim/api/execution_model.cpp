#include "sim/api/execution_model.hpp"

#include "sim/core/error.hpp"

namespace spillway {

const LayerKinds& ExecutionModel::layer_kinds() const {
  static const LayerKinds kOne;
  return kOne;
}

CpuAttentionTime ExecutionModel::cpu_attention(std::int64_t /*sequences*/, Tokens /*context*/) const {
  throw InvariantError("this latency model has no attention on the CPU");
}

}  // namespace spillway
