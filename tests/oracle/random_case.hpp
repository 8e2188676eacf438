// Random small workloads and settings for every registered policy, and an execution model with integer times.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/api/registry.hpp"
#include "tests/oracle/list_source.hpp"
#include "tests/oracle/naive_engine.hpp"

namespace spillway::oracle {

/// splitmix64 (Steele, Lea, Flood 2014): independent of the project's own random streams.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t roll() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31U);
  }
  /// Uniform in [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(roll() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }

 private:
  std::uint64_t state_;
};

/// Durations are whole multiples of `scale` nanoseconds, so that scaling time is exact.
class WholeModel final : public ExecutionModel {
 public:
  /// Adds `longest` units of time for every token that the longest decode attends to.
  explicit WholeModel(std::int64_t scale = 1, std::int64_t longest = 1, const CopySharing& sharing = {},
                      std::int32_t layers = 3)
      : scale_(scale), longest_(longest), sharing_(sharing), layers_(layers) {}
  /// A model with enough layers for policies that stream layers.
  static WholeModel of(const PolicyInfo& policy, std::int64_t scale = 1, std::int64_t longest = 1,
                       const CopySharing& sharing = {}) {
    return WholeModel(scale, longest, sharing, policy.layout ? 6 : 3);
  }
  [[nodiscard]] std::int32_t layers() const override { return layers_; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    std::int64_t tokens = shape.decodes();
    std::int64_t context = shape.decode_context.count();
    for (const PrefillChunk& chunk : shape.chunks) {
      tokens += chunk.new_tokens.count();
      context += chunk.context.count() + chunk.new_tokens.count();
    }
    IterationTime time;
    time.before = Duration(scale_ * (5 + shape.decodes() + longest_ * shape.decode_longest.count()));
    time.layer = Duration(scale_ * (20 + 3 * tokens + context / 8));
    time.attention = Duration(scale_ * (context / 8));
    time.after = Duration(scale_ * (2 + shape.sampled_sequences));
    time.shares.compute = to_seconds(time.layer * layers_);
    time.shares.host = to_seconds(time.before + time.after);
    return time;
  }
  [[nodiscard]] CopyTime copy(Stream direction, std::int64_t copies, Bytes bytes, CopyMechanism) const override {
    const std::int64_t cost = direction == Stream::h2d ? 2 : 3;
    return {Duration(scale_ * copies), Duration(scale_ * (cost * bytes.count() / 64))};
  }
  [[nodiscard]] CpuAttentionTime cpu_attention(std::int64_t sequences, Tokens context) const override {
    return {.launch = Duration(scale_ * 2),
            .attention = Duration(scale_ * (sequences + context.count() / 4)),
            .kv = Bytes(16 * context.count()),
            .queries = Bytes(192 * sequences),
            .outputs = Bytes(64 * sequences)};
  }
  [[nodiscard]] CopySharing copy_sharing() const override { return sharing_; }
  [[nodiscard]] std::optional<SustainedClock> sustained_clock() const override { return clock_; }
  /// The same with a clock that falls.
  [[nodiscard]] WholeModel with_clock(const SustainedClock& clock) const {
    WholeModel model = *this;
    model.clock_ = clock;
    return model;
  }

 private:
  std::int64_t scale_;
  std::int64_t longest_;
  CopySharing sharing_;
  std::int32_t layers_;
  std::optional<SustainedClock> clock_{};
};

/// The default settings of a policy with `overrides` (key -> value), including engine keys.
Settings policy_settings(const PolicyInfo& policy, const std::vector<std::pair<std::string, Value>>& overrides);

/// Whether the policy's check accepts engine.preemption=`how`.
bool accepts_preemption(const PolicyInfo& policy, const std::string& how);

/// Whether the policy declares that a preempted request may move to the host.
bool swaps(const PolicyInfo& policy);

/// The default of a parameter; unset if the parameter has none.
Value default_value(const Parameter& parameter);

/// A GPU with space for the model's weights and exactly `gpu_blocks` KV blocks. It is one of two GPUs on a host of 1
/// MB, whose CPU reads one byte of KV per nanosecond.
Deployment snug_deployment(const ExecutionModel& model, Blocks gpu_blocks, Bytes block_bytes, Tokens block_tokens,
                           Bytes layer_weights);

/// Draws settings of `policy` that its own check accepts, a memory layout and a workload for `model`. `vary`, if given,
/// draws additional settings.
void draw_case(std::uint64_t seed, const PolicyInfo& policy, const ExecutionModel& model, std::int64_t scale,
               Settings& settings, NaiveConfig& config, const std::function<void(Dice&, Settings&)>& vary = {});

/// Turns a case into one of few conversations, for policies that keep their KV: most turns repeat the one before and
/// add a little, some repeat a part of it, and some come while the one before runs. No turn waits for an answer.
void draw_conversations(std::uint64_t seed, NaiveConfig& config);

}  // namespace spillway::oracle
