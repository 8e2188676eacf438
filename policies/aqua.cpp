// AQUA: requests are paged to memory that other GPUs lend, over the links between GPUs.
//
// Source: AQUA (arXiv 2407.21255), sections 4 and 7; aquaml/aqua (0ed7c15). All blocks of the requests that leave are
// gathered into one buffer and go in one copy, and so do those that come back, after the others have left. Where nobody
// lends memory, or once it is full, requests go to the host. Who runs is decided by a scheduler of its own kind, cfs,
// unless policy.scheduler names another.
#include <memory>

#include "policies/parts/borrowing.hpp"
#include "policies/parts/paging.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

PolicyInfo info() {
  PolicyInfo info;
  info.name = "aqua";
  info.summary = "AQUA: requests page to memory that other GPUs lend, under completely fair scheduling";
  info.source = "AQUA (arXiv 2407.21255), sections 4 and 7; aquaml/aqua (0ed7c15)";
  info.limits =
      "memory.peer is lent for the whole run by GPUs that do nothing else. With memory.lender, copies keep the "
      "lender's memory busy and lengthen its next iteration by that time, whatever limits the iteration. Reclaimed KV "
      "goes to the host over the links of the GPU that borrowed the memory. When contexts (memory.peer_cache) are "
      "reclaimed, only blocks with content are copied. With policy.rules=code all of the lent memory is copied, as the "
      "public code copies tensors. If nothing runs, reclaimed contexts leave at once, and the next iteration waits for "
      "the copy.";
  info.parameters = paging_parameters("peer", "gathered");
  info.engine_defaults = [](const Settings&) {
    return std::map<std::string, std::string>{{"engine.preemption", "recompute"}, {"memory.host_kv", "20GB"}};
  };
  info.check = [](const Settings& settings) { return paging_problems("aqua", settings); };
  info.borrows = borrows_memory;
  info.prefix_copies = paging_mechanism;
  info.default_scheduler = "cfs";
  info.make_space = make_paging;
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
