// Requests in order of arrival, with departures from anywhere.
#pragma once

#include <algorithm>
#include <deque>

#include "sim/api/view.hpp"

namespace spillway {

/// 8 bytes per request. A request whose client gave up is dropped when it comes to the head. All calls are O(1)
/// amortised, except `insert_by_arrival`, which is linear in the distance to the nearer end.
class FcfsQueue {
 public:
  void push_back(RequestId id) { ids_.push_back(id); }
  void push_front(RequestId id) { ids_.push_front(id); }
  /// Keeps the queue in order of arrival, provided that all requests are inserted this way.
  void insert_by_arrival(RequestId id) {
    const auto later = [&](RequestId other) { return other.serial > id.serial; };
    const auto after = std::find_if_not(ids_.rbegin(), ids_.rend(), later);
    ids_.insert(after.base(), id);
  }
  void pop_front() { ids_.pop_front(); }
  void pop_back() { ids_.pop_back(); }

  /// Drops requests at the head that have ended, for a queue whose head is never requested.
  void trim(const View& view) {
    while (!ids_.empty() && !view.alive(ids_.front())) ids_.pop_front();
  }
  /// The first live request, or kNoRequest.
  [[nodiscard]] RequestId head(const View& view) {
    trim(view);
    return ids_.empty() ? kNoRequest : ids_.front();
  }
  /// The last live request, or kNoRequest.
  [[nodiscard]] RequestId tail(const View& view) {
    while (!ids_.empty() && !view.alive(ids_.back())) ids_.pop_back();
    return ids_.empty() ? kNoRequest : ids_.back();
  }

 private:
  std::deque<RequestId> ids_;
};

}  // namespace spillway
