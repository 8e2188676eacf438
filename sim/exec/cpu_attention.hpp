// Attention of decoding sequences whose KV is on the host: the CPU computes it while the GPU goes on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "sim/api/layer_rule.hpp"

namespace spillway {

/// One layer's attention on the CPU for one sub-batch. What takes no time is left out.
struct CpuAttentionWork {
  Copy queries{.stream = Stream::d2h};  // with the new keys and values
  Copy attention{.stream = Stream::cpu};
  Copy outputs{.stream = Stream::h2d};
};

/// When the step of (layer k, sub-batch s) on the GPU has ended, the queries go to the CPU, the CPU attends, the
/// outputs come back, and only then may (k + 1, s), or the work after the layers of s, start. The GPU computes other
/// sub-batches meanwhile. With two sub-batches this is NEO's pipeline (Jiang et al., NEO, §3.2), with one the GPU
/// waits.
class CpuAttention final : public LayerRule {
 public:
  /// An iteration with these sub-batches begins.
  void begin(std::span<const CpuAttentionWork> sub_batches) {
    work_.assign(sub_batches.size(), {});
    for (std::size_t s = 0; s < sub_batches.size(); ++s) {
      Work& work = work_[s];
      const auto add = [&](const Copy& copy, Wait wait) {
        if (copy.launch + copy.transfer > Duration{}) work.parts[work.count++] = {copy, wait};
      };
      add(sub_batches[s].queries, Wait::queries);
      add(sub_batches[s].attention, Wait::cpu_attention);
      add(sub_batches[s].outputs, Wait::outputs);
    }
    computed_.reset();
  }

  void at_layer_start(std::int32_t /*layer*/, std::int32_t sub_batch, CopySink& sink) override {
    if (computed_) go_on(*computed_, sink);
    computed_ = sub_batch;
  }
  void at_layers_end(CopySink& sink) override {
    if (computed_) go_on(*computed_, sink);
  }
  void at_copy_done(const Copy& copy, CopySink& sink) override { go_on(copy.tag, sink); }
  [[nodiscard]] bool ready(std::int32_t /*layer*/, std::int32_t sub_batch) const override {
    return work_[at(sub_batch)].next == 0;
  }
  [[nodiscard]] Wait waits_for(std::int32_t /*layer*/, std::int32_t sub_batch) const override {
    const Work& work = work_[at(sub_batch)];
    return work.parts[work.next - 1].wait;
  }
  [[nodiscard]] std::optional<Wait> unfinished(std::int32_t sub_batch) const override {
    return ready(0, sub_batch) ? std::nullopt : std::optional(waits_for(0, sub_batch));
  }

  /// The part of each sub-batch that is under way. Every layer is like every other one.
  [[nodiscard]] Recurrence recurs(std::int32_t layer) const override {
    constexpr std::uint64_t kStates = kParts + 1;
    constexpr std::size_t kMostToTell = 31;  // sub-batches in 64 bits
    if (layer == 0 || work_.size() > kMostToTell) return {};
    std::uint64_t state = 1;
    for (const Work& work : work_) state = state * kStates + work.next;
    return {std::numeric_limits<std::int32_t>::max(), state};
  }

 private:
  static constexpr std::size_t kParts = 3;
  struct Part {
    Copy copy{};
    Wait wait = Wait::cpu_attention;
  };
  struct Work {
    std::array<Part, kParts> parts{};  // in order
    std::size_t count = 0;
    std::size_t next = 0;  // the part after the one under way; 0: none is under way
  };
  static std::size_t at(std::int32_t sub_batch) { return static_cast<std::size_t>(sub_batch); }

  /// The GPU's part of the sub-batch, or the part of its attention that was under way, has ended.
  void go_on(std::int32_t sub_batch, CopySink& sink) {
    Work& work = work_[at(sub_batch)];
    if (work.next == work.count) {
      work.next = 0;
      return;
    }
    Copy copy = work.parts[work.next++].copy;
    copy.tag = sub_batch;
    sink.issue(copy);
  }

  std::vector<Work> work_;                // of each sub-batch
  std::optional<std::int32_t> computed_;  // the sub-batch whose GPU part began last
};

}  // namespace spillway
