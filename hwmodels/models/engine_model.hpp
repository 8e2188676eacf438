// What all execution models of this folder share: the engine's CPU time and the host link come from EngineSide.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "hwmodels/models/engine_side.hpp"
#include "sim/api/execution_model.hpp"

namespace spillway::hwmodels {

class EngineModel : public ExecutionModel {
 public:
  [[nodiscard]] std::int32_t layers() const final { return static_cast<std::int32_t>(engine_.layers()); }
  [[nodiscard]] const LayerKinds& layer_kinds() const final { return kinds_; }
  [[nodiscard]] CopyTime copy(Stream direction, std::int64_t copies, Bytes bytes, CopyMechanism mechanism) const final {
    return engine_.copy(direction, copies, bytes, mechanism);
  }
  [[nodiscard]] Duration copy_start(Stream direction, std::int64_t copies, Bytes bytes,
                                    CopyMechanism mechanism) const final {
    return engine_.copy_start(direction, copies, bytes, mechanism);
  }
  [[nodiscard]] CopySharing copy_sharing() const final { return engine_.copy_sharing(); }
  [[nodiscard]] std::optional<SustainedClock> sustained_clock() const final { return engine_.sustained_clock(); }
  [[nodiscard]] std::vector<RangeUse> range_uses() const final {
    std::vector<RangeUse> uses;
    append_kernel_uses(uses);
    engine_.append_range_uses(uses);
    return uses;
  }

 protected:
  explicit EngineModel(EngineSide engine, LayerKinds kinds = {})
      : engine_(std::move(engine)), kinds_(std::move(kinds)) {}
  [[nodiscard]] const EngineSide& engine() const { return engine_; }
  /// The measured ranges of the model's own kernels; none unless it was fitted.
  virtual void append_kernel_uses(std::vector<RangeUse>& /*uses*/) const {}

 private:
  EngineSide engine_;
  LayerKinds kinds_;
};

/// Which layers of the model take equal time.
[[nodiscard]] LayerKinds layer_kinds_of(const LlmModel& llm);

/// The layers of a model by what they compute: layers of a body have the same MLP, layers of a kind the same window,
/// too. Kinds are in the order of LlmModel::counted_kinds().
struct LayerPlan {
  struct Body {
    bool routed = false;  // with experts
    std::int64_t layers = 0;
  };
  struct Kind {
    std::int64_t layers = 0;
    std::size_t body = 0;  // index in bodies
    std::int64_t window = 0;
  };
  std::vector<Body> bodies;
  std::vector<Kind> kinds;
};
[[nodiscard]] LayerPlan layer_plan(const LlmModel& llm);

/// Throws ConfigError: the GPUs of a replica need all-reduce figures, which the profile lacks.
[[noreturn]] void refuse_without_all_reduce(std::string_view gpu);

}  // namespace spillway::hwmodels
