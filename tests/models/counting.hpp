// What plain models count in lists of requests.
#pragma once

#include <cstdint>

#include "tests/models/plain_space.hpp"

namespace spillway::oracle {

inline bool runs(const RequestView& request) {
  return request.phase == Phase::prefilling || request.phase == Phase::decoding;
}

/// Those of the ids whose request is in such a state, in their order.
template <class Test>
Ids such(const Ids& ids, const View& view, Test test) {
  Ids some;
  for (const RequestId id : ids) {
    if (test(view.request(id))) some.push_back(id);
  }
  return some;
}
inline Ids decoding(const Ids& ids, const View& view) {
  return such(ids, view, [](const RequestView& request) { return request.phase == Phase::decoding; });
}
inline Ids running(const Ids& ids, const View& view) { return such(ids, view, runs); }

inline std::int64_t count(const Ids& ids) { return static_cast<std::int64_t>(ids.size()); }

/// Blocks that decoding requests lack for their next token.
inline std::int64_t lacking(const Ids& decoding, const View& view) {
  std::int64_t blocks = 0;
  for (const RequestId id : decoding) blocks += blocks_lacking(view, view.request(id), 1);
  return blocks;
}

/// Without those that have ended.
inline void forget_ended(Ids& ids, const View& view) {
  std::erase_if(ids, [&](RequestId id) { return !view.alive(id); });
}

}  // namespace spillway::oracle
