#include "sim/api/scheduler.hpp"

#include "sim/api/runs.hpp"

namespace spillway {

std::int64_t KvSpace::together(const View& view, const std::function<RequestId()>& next) const {
  Blocks left = view.tier(kGpuTier).total;
  std::int64_t fit = 0;
  for (RequestId id = next(); id.valid(); id = next(), ++fit) {
    left -= blocks_for(view.request(id).known, view.block_tokens());
    if (left < Blocks(0)) break;
  }
  return fit;
}

void OffloadPolicy::leaves(const View& view, const RequestView& request, Placement& placement) {
  send_from_gpu(view, holder(request.id), {.to = kHostTier, .waits = Waits::iteration}, placement);
}

void OffloadPolicy::returns(const View& view, const RequestView& request, Placement& placement) {
  if (attends(view, request) == kHostTier) {
    return send_from_gpu(view, holder(request.id), {.to = kHostTier, .waits = Waits::iteration}, placement);
  }
  bring_to_gpu(view, holder(request.id), kWholeContext, {.waits = Waits::iteration}, placement);
}

}  // namespace spillway
