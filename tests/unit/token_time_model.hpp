// An execution model for runs with a host tier of the prefix cache, in which times can be added up by hand.
#pragma once

#include "sim/api/execution_model.hpp"

namespace spillway {

/// Computing one prompt token takes 1,000 ns, an iteration at least 1 ns; a copy takes 1 ns per byte.
class TokenTimeModel final : public ExecutionModel {
 public:
  explicit TokenTimeModel(const CopySharing& sharing = {}) : sharing_(sharing) {}
  [[nodiscard]] std::int32_t layers() const override { return 1; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    std::int64_t tokens = 0;
    for (const PrefillChunk& chunk : shape.chunks) tokens += chunk.new_tokens.count();
    return IterationTime{Duration(0), Duration(1 + 1000 * tokens), Duration(0), TimeShares{}};
  }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes bytes, CopyMechanism) const override {
    return CopyTime{Duration(0), Duration(bytes.count())};
  }
  [[nodiscard]] CopySharing copy_sharing() const override { return sharing_; }

 private:
  CopySharing sharing_;
};

}  // namespace spillway
