// Attention of decoding sequences whose KV is on the host: the CPU computes it while the GPU goes on.
#pragma once

#include <cstddef>
#include <cstdint>
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
    work_.clear();
    for (const CpuAttentionWork& one : sub_batches) {
      std::vector<Part>& parts = work_.emplace_back();
      const auto add = [&](const Copy& copy, Wait wait) {
        if (copy.launch + copy.transfer > Duration{}) parts.push_back({copy, wait});
      };
      add(one.queries, Wait::queries);
      add(one.attention, Wait::cpu_attention);
      add(one.outputs, Wait::outputs);
    }
    next_.assign(work_.size(), 0);
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
    return next_[at(sub_batch)] == 0;
  }
  [[nodiscard]] Wait waits_for(std::int32_t /*layer*/, std::int32_t sub_batch) const override {
    return work_[at(sub_batch)][next_[at(sub_batch)] - 1].wait;
  }
  [[nodiscard]] std::optional<Wait> unfinished(std::int32_t sub_batch) const override {
    return ready(0, sub_batch) ? std::nullopt : std::optional(waits_for(0, sub_batch));
  }

 private:
  struct Part {
    Copy copy{};
    Wait wait = Wait::cpu_attention;
  };
  static std::size_t at(std::int32_t sub_batch) { return static_cast<std::size_t>(sub_batch); }

  /// The GPU's part of the sub-batch, or the part of its attention that was under way, has ended.
  void go_on(std::int32_t sub_batch, CopySink& sink) {
    const std::vector<Part>& parts = work_[at(sub_batch)];
    std::size_t& next = next_[at(sub_batch)];
    if (next == parts.size()) {
      next = 0;
      return;
    }
    Copy copy = parts[next++].copy;
    copy.tag = sub_batch;
    sink.issue(copy);
  }

  std::vector<std::vector<Part>> work_;   // of each sub-batch, in order
  std::vector<std::size_t> next_;         // of each sub-batch: the part after the one under way; 0: none is under way
  std::optional<std::int32_t> computed_;  // the sub-batch whose GPU part began last
};

}  // namespace spillway
