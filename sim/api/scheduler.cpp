#include "sim/api/scheduler.hpp"

namespace spillway {

void OffloadPolicy::leaves(const View& /*view*/, const RequestView& request, Placement& placement) {
  if (request.held == Blocks(0)) return;
  placement.move({.holder = holder(request.id),
                  .range = {Blocks(0), request.held},
                  .from = kGpuTier,
                  .to = kHostTier,
                  .waits = Waits::iteration});
}

void OffloadPolicy::returns(const View& view, const RequestView& request, Placement& placement) {
  const std::span<const KvRun> there = view.runs(holder(request.id));
  Blocks first;
  for (const KvRun& run : std::vector<KvRun>(there.begin(), there.end())) {
    const BlockRange range{first, first + run.blocks};
    first = range.end;
    if (run.tier == kNoTier || run.on(kGpuTier)) continue;
    placement.move(
        {.holder = holder(request.id), .range = range, .from = run.tier, .to = kGpuTier, .waits = Waits::iteration});
  }
}

}  // namespace spillway
