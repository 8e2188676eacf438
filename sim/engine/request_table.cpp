#include "sim/engine/request_table.hpp"

#include <algorithm>

namespace spillway {

void RequestTable::grow() {
  chunks_.emplace_back(kChunk);
  for (std::uint32_t i = kChunk; i-- > 0;) {
    at(capacity_ + i).member = free_;
    free_ = static_cast<std::int32_t>(capacity_ + i);
  }
  capacity_ += kChunk;
}

void RequestTable::refuse(RequestId id) {
  throw InvariantError("request " + std::to_string(id.serial) + " is not live");
}

std::vector<RequestId> RequestTable::all() const {
  std::vector<RequestId> ids;
  for (std::uint32_t slot = 0; slot < capacity_; ++slot) {
    if (at(slot).serial != UINT32_MAX) ids.push_back(RequestId{slot, at(slot).serial});
  }
  std::sort(ids.begin(), ids.end(), [](RequestId a, RequestId b) { return a.serial < b.serial; });
  return ids;
}

}  // namespace spillway
