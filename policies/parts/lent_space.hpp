// Paging to memory that other GPUs lend, and may want back.
#pragma once

#include <utility>
#include <vector>

#include "policies/parts/paged_space.hpp"

namespace spillway {

/// The memory of a consumer. A request that leaves goes to the lender if that has room for all of it, else to the host:
/// AQUA's coordinator grants a tensor whole or not at all. At the end of a decision, but at most once in `poll`, the
/// consumer asks the coordinator what has become of its loan:
///  * It is reclaimed: all that it holds there goes to the host, as far as that has room, and the iteration waits.
///  * It holds nothing there, and the lender has room for all that it has on the host: that goes to the lender, and the
///    iteration waits. So it returns once another offer follows.
///
/// The contexts below the prefix cache, where the policy places them, are one more tensor. It takes all of its memory
/// wherever it is, and only blocks that hold something are copied. `whole_tensors`: all are, because the published code
/// copies a tensor as it was allocated. Contexts stay while nothing runs. Then they leave as soon as they are
/// reclaimed, and come back with an iteration: the published code does not say what an idle consumer does.
///
/// Source: AQUA (arXiv 2407.21255), section 4; aquaml/aqua (0ed7c15), dynamic_policy.py, which polls every 4 s.
/// Asking is O(requests that are paged out).
class LentSpace final : public PagedSpace {
 public:
  LentSpace(const View& view, PagedSpaceOptions options, TierId lender, Duration poll, bool whole_tensors = false)
      : PagedSpace(view, std::move(options)), lender_(lender), poll_(poll), whole_tensors_(whole_tensors) {}

  void leaves(const View& view, const RequestView& request, Placement& placement) override;
  void places(const View& view, Placement& placement) override;

 private:
  /// What of the contexts and of the requests outside the batch is on a tier goes to another, tensor by tensor, while
  /// that has room.
  void move_all(const View& view, TierId from, TierId to, Placement& placement);
  void move_tensor(const View& view, const Holder& holder, TierId from, TierId to, Placement& placement) const;
  /// Blocks on the tier of contexts, and of requests outside the batch.
  [[nodiscard]] Blocks paged_out(const View& view, TierId tier) const;
  void forget_those_back(const View& view);

  const TierId lender_;
  const Duration poll_;
  const bool whole_tensors_;
  SimTime next_poll_{};
  std::vector<RequestId> away_;  // requests that were paged out, in this order; some may be back, or have ended
};

}  // namespace spillway
