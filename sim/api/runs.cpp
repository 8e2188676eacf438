#include "sim/api/runs.hpp"

#include <algorithm>

namespace spillway {

PlacedRuns placed_runs(const View& view, const Holder& holder, Blocks end) {
  PlacedRuns placed;
  Blocks first;
  for (const KvRun& run : view.runs(holder)) {
    if (first >= end) break;
    const BlockRange range{first, std::min(end, first + run.blocks)};
    placed.push_back({run, range});
    placed.back().blocks = range.count();
    first = range.end;
  }
  return placed;
}

Blocks blocks_on(const View& view, const Holder& holder, TierId tier, Blocks end) {
  Blocks sum;
  for (const PlacedRun& run : placed_runs(view, holder, end)) sum += run.on(tier) ? run.blocks : Blocks(0);
  return sum;
}

Blocks blocks_elsewhere(const View& view, const Holder& holder, Blocks end) {
  Blocks sum;
  for (const PlacedRun& run : placed_runs(view, holder, end)) {
    sum += run.tier != kNoTier && !run.on(kGpuTier) ? run.blocks : Blocks(0);
  }
  return sum;
}

Blocks freeable_blocks(const View& view, const Holder& holder, TierId tier) {
  Blocks sum;
  for (const KvRun& run : view.runs(holder)) sum += run.on(tier) && !run.moving() ? run.blocks : Blocks(0);
  return sum;
}

Blocks free_blocks(const View& view, const Holder& holder, TierId tier, Blocks most, Placement& placement) {
  Blocks freed;
  for (const PlacedRun& run : placed_runs(view, holder)) {
    if (freed >= most) break;
    if (!run.on(tier) || run.moving()) continue;
    const Blocks count = std::min(most - freed, run.blocks);
    placement.drop(holder, {run.range.first, run.range.first + count}, tier);
    freed += count;
  }
  return freed;
}

void bring_to_gpu(const View& view, const Holder& holder, Blocks end, Move how, Placement& placement) {
  for (const PlacedRun& run : placed_runs(view, holder, end)) {
    if (run.tier == kNoTier || run.on(kGpuTier) || run.moving()) continue;
    how.holder = holder;
    how.range = run.range;
    how.from = run.tier;
    how.to = kGpuTier;
    placement.move(how);
  }
}

void send_from_gpu(const View& view, const Holder& holder, Move how, Placement& placement) {
  for (const PlacedRun& run : placed_runs(view, holder)) {
    if (!run.on(kGpuTier) || run.moving()) continue;
    if (run.copy != kNoTier) {
      placement.drop(holder, run.range, kGpuTier);
      continue;
    }
    how.holder = holder;
    how.range = run.range;
    how.from = kGpuTier;
    placement.move(how);
  }
}

}  // namespace spillway
