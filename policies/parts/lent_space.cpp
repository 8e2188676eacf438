#include "policies/parts/lent_space.hpp"

#include <algorithm>

#include "sim/api/runs.hpp"

namespace spillway {

void LentSpace::leaves(const View& view, const RequestView& request, Placement& placement) {
  PagedSpace::leaves(view, request, placement);
  away_.push_back(request.id);
}

void LentSpace::places(const View& view, Placement& placement) {
  const TierState& lent = view.tier(lender_);
  const Blocks held = lent.total - lent.free;
  const bool reclaimed = held > lent.total;
  const bool rests = view.batch().running == 0 && !view.runs(holder_of_contexts()).empty();
  if (rests ? !reclaimed : view.now() < next_poll_) return;
  next_poll_ = view.now() + poll_;
  forget_those_back(view);
  if (reclaimed) return move_all(view, lender_, kHostTier, placement);
  const Blocks on_host = paged_out(view, kHostTier);
  if (held > Blocks(0) || on_host == Blocks(0) || on_host > lent.free) return;
  move_all(view, kHostTier, lender_, placement);
}

void LentSpace::move_all(const View& view, TierId from, TierId to, Placement& placement) {
  move_tensor(view, holder_of_contexts(), from, to, placement);
  for (const RequestId id : away_) move_tensor(view, holder(id), from, to, placement);
}

void LentSpace::move_tensor(const View& view, const Holder& holder, TierId from, TierId to,
                            Placement& placement) const {
  if (blocks_on(view, holder, from) > view.tier(to).free) return;
  for (const PlacedRun& run : placed_runs(view, holder)) {
    if (run.tier != from || run.moving()) continue;
    // A tensor is contiguous wherever it is.
    placement.move({.holder = holder,
                    .range = run.range,
                    .from = from,
                    .to = to,
                    .mechanism = CopyMechanism::single,
                    .waits = Waits::iteration,
                    .whole = whole_tensors_});
  }
}

Blocks LentSpace::paged_out(const View& view, TierId tier) const {
  Blocks blocks = blocks_on(view, holder_of_contexts(), tier);
  for (const RequestId id : away_) blocks += blocks_on(view, holder(id), tier);
  return blocks;
}

void LentSpace::forget_those_back(const View& view) {
  const auto back = [&](RequestId id) { return !view.alive(id) || view.request(id).phase != Phase::swapped; };
  std::erase_if(away_, back);
  std::ranges::sort(away_, {}, &RequestId::serial);
  away_.erase(std::unique(away_.begin(), away_.end()), away_.end());
}

}  // namespace spillway
