#include "policies/parts/lent_space.hpp"

#include <algorithm>

#include "sim/api/runs.hpp"

namespace spillway {

void LentSpace::leaves(const View& view, const RequestView& request, Placement& placement) {
  PagedSpace::leaves(view, request, placement);
  away_.push_back(request.id);
}

void LentSpace::places(const View& view, Placement& placement) {
  if (view.now() < next_poll_) return;
  next_poll_ = view.now() + poll_;
  forget_those_back(view);
  const TierState& lent = view.tier(lender_);
  const Blocks held = lent.total - lent.free;
  if (held > lent.total) return move_all(view, lender_, kHostTier, placement);
  const Blocks on_host = paged_out(view, kHostTier);
  if (held > Blocks(0) || on_host == Blocks(0) || on_host > lent.free) return;
  move_all(view, kHostTier, lender_, placement);
}

void LentSpace::move_all(const View& view, TierId from, TierId to, Placement& placement) {
  for (const RequestId id : away_) {
    if (blocks_on(view, holder(id), from) > view.tier(to).free) continue;
    for (const PlacedRun& run : placed_runs(view, holder(id))) {
      if (run.tier != from || run.moving()) continue;
      // A tensor is contiguous wherever it is.
      placement.move({.holder = holder(id),
                      .range = run.range,
                      .from = from,
                      .to = to,
                      .mechanism = CopyMechanism::single,
                      .waits = Waits::iteration});
    }
  }
}

Blocks LentSpace::paged_out(const View& view, TierId tier) const {
  Blocks blocks;
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
