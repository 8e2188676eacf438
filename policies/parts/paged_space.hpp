// KV in paged blocks on the GPU, with whole requests swapped out or recomputed, as in every vLLM-like engine.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "sim/api/registry.hpp"
#include "sim/api/scheduler.hpp"

namespace spillway {

struct PagedSpaceOptions {
  /// Share of the blocks kept free when a request is admitted or comes back (vLLM V0: int(0.01 * num_gpu_blocks)).
  double watermark = 0.0;
  /// vLLM V0's first block manager: a decode needs a free block even when the request's last block is not full.
  bool spare_block_per_decode = false;
  /// Preempted requests move to the first of swap_tiers that has room, instead of being recomputed.
  bool swap = false;
  /// true: a swapped request comes back when the blocks of its known tokens fit (SwiftLLM); false: it needs one block
  /// more than it holds (vLLM V0).
  bool exact_swap_in = false;
  /// How requests leave and come back, if they swap. What is gathered goes as one copy in each direction.
  struct Swapping {
    std::vector<TierId> tiers{kHostTier};
    CopyMechanism mechanism = CopyMechanism::many;
    /// Requests come back after others have left, in their place (AQUA); else both go at the same time.
    bool in_turn = false;
    /// A copy stays where a request was swapped to, so the next time only blocks leave that have changed since. Not
    /// beside a prefix cache.
    bool incremental = false;
    /// Requests go to the host only if memory is short, and not so that others run: AQUA's fallback.
    bool stay_off_host = false;
  };
  Swapping swapping{};
  /// A request is admitted only if it and all running requests could generate max_new_tokens each (TensorRT-LLM's
  /// GUARANTEED_NO_EVICT). Then decodes always find free blocks.
  bool guarantee_completion = false;
  /// The order in which the prefix cache gives up blocks (OffloadPolicy::retention). Empty: LRU, as in vLLM.
  Retention retention{};
};

/// `policy.watermark` of engines that keep a share of the GPU's blocks free.
[[nodiscard]] Parameter watermark_parameter(std::string source);

/// Source: vLLM's block managers (vllm/core/block_manager_v1.py and _v2.py at v0.2.0..v0.6.3; vllm/v1/core at v0.19).
/// Every answer is O(1), or O(cached blocks) with prefix caching.
class PagedSpace : public OffloadPolicy {
 public:
  PagedSpace(const View& view, PagedSpaceOptions options) : view_(view), options_(std::move(options)) {}

  [[nodiscard]] Fit admits(const RequestView& request, Tokens upto) const override;
  [[nodiscard]] Fit grows(const RequestView& request, Tokens upto) const override;
  [[nodiscard]] Fit decodes(std::int64_t count) const override;
  [[nodiscard]] Fit resumes(const RequestView& request, Tokens upto) const override;
  [[nodiscard]] Leave preempts(const RequestView& request) const override;
  [[nodiscard]] bool suspends_whole(const RequestView& request) const override;
  [[nodiscard]] std::int64_t together(const View& view, const std::function<RequestId()>& next) const override;
  void leaves(const View& view, const RequestView& request, Placement& placement) override;
  void returns(const View& view, const RequestView& request, Placement& placement) override;
  [[nodiscard]] Retention retention() const override { return options_.retention; }

 private:
  /// Blocks to keep free out of `total`, which can change during a run.
  [[nodiscard]] Blocks watermark(Blocks total) const;
  [[nodiscard]] Blocks swap_in_blocks(const RequestView& request, Tokens upto) const;
  [[nodiscard]] bool keeps_copies() const { return options_.swapping.incremental && !view_.caches_prefixes(); }
  /// Where a request would go that leaves now; kNoTier: nowhere.
  [[nodiscard]] TierId way_out(const RequestView& request) const;

  const View& view_;
  const PagedSpaceOptions options_;
};

}  // namespace spillway
