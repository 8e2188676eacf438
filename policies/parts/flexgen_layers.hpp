// FlexGen's runtime: each iteration as micro-batches that zig-zag through the layers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policies/parts/flexgen_plan.hpp"
#include "policies/parts/lent_tensors.hpp"
#include "policies/parts/zigzag_rule.hpp"
#include "sim/api/registry.hpp"

namespace spillway {

/// Runs the iterations of one request block after another by a plan. With policy.swap_tier=peer the KV that the GPU
/// does not keep is that of LentTensors, allocated for a request block. O(layers * micro-batches) per iteration.
class FlexgenLayers final : public LayerPolicy {
 public:
  FlexgenLayers(const PolicyContext& context, const FlexgenPlan& plan);

  [[nodiscard]] Blocks capacity() const override { return view_.tier(kGpuTier).total; }
  [[nodiscard]] std::span<const SubBatchShape> split(const BatchShape& shape) override;
  [[nodiscard]] LayerRule* begin(const BatchShape& shape, const LayerCompute& compute) override;
  void iteration_ended(const LayerReport& report) override;
  [[nodiscard]] Bytes held_of_lender() const override { return tensors_.held(); }
  [[nodiscard]] Figures figures() const override;

 private:
  /// This iteration generates the last token, whose KV no step reads.
  [[nodiscard]] bool ends_block() const { return generated_ == padding_.output.count(); }
  [[nodiscard]] SubBatchShape sub_batch(std::int64_t requests) const;
  /// The loads and stores of one step of `requests` requests.
  [[nodiscard]] ZigzagCopies step(std::int64_t requests, bool prefills, Tokens context) const;
  [[nodiscard]] bool attends_on_cpu() const { return cpu_attention_ && plan_.cache_host > 0.0; }
  /// A layer's matrices on the host, each with a copy of its own.
  [[nodiscard]] Copy load_of_weights(bool pinned) const;
  /// The tensors of the KV go to where they are from now on.
  [[nodiscard]] Copy relocation() const;
  /// No copy when `amount` rounds to 0 bytes.
  [[nodiscard]] Copy copy(Stream stream, double amount) const;

  const Deployment deployment_;
  const View& view_;
  const FlexgenPlan plan_;
  const FlexgenNeeds needs_;
  const bool cpu_attention_;
  const Padding padding_;
  const Copy weights_;
  const std::vector<PrefillChunk> prompts_;  // of a whole micro-batch
  ZigzagRule rule_;
  LentTensors tensors_;   // the KV of the request block that the GPU does not keep
  double on_host_ = 0.0;  // bytes, the most so far

  // The request block that runs
  std::int64_t block_ = 0;      // requests at its start
  std::int64_t generated_ = 0;  // iterations begun
  // Its current iteration
  bool prefills_ = false;
  Tokens context_{};  // tokens that every sequence attends to; 0: prefill
  std::vector<SubBatchShape> sub_batches_;
  std::vector<ZigzagCopies> copies_;  // by step
};

}  // namespace spillway
