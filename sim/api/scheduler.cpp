#include "sim/api/scheduler.hpp"

#include "sim/api/runs.hpp"

namespace spillway {

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
