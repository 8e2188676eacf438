// Requests from a list.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "sim/api/request_source.hpp"
#include "tests/oracle/naive_engine.hpp"

namespace spillway::oracle {

/// Delivers `requests` one by one. `requests` must outlive the source.
class ListSource final : public RequestSource {
 public:
  explicit ListSource(const std::vector<RequestSpec>& requests) : requests_(requests) {}
  [[nodiscard]] SimTime next_arrival() override { return at_ < requests_.size() ? requests_[at_].arrival : kNever; }
  bool next(RequestSpec& request) override {
    request = requests_[at_++];
    return true;
  }

 private:
  const std::vector<RequestSpec>& requests_;
  std::size_t at_ = 0;
};

/// Delivers a list in which some requests follow others (see Follows). The list must outlive the source. At one
/// instant, requests that follow no other come first, then requests in the order in which they became known.
class FollowingSource final : public RequestSource {
 public:
  FollowingSource(const std::vector<RequestSpec>& requests, const std::vector<Follows>& follows)
      : requests_(requests), follows_(follows) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (follows[i].after < 0) coming_.emplace(requests[i].arrival, i);
    }
  }
  [[nodiscard]] SimTime next_arrival() override { return coming_.empty() ? kNever : coming_.begin()->first; }
  bool next(RequestSpec& request) override {
    request = requests_[coming_.begin()->second];
    request.arrival = coming_.begin()->first;
    order_.push_back(coming_.begin()->second);
    sent_.insert(coming_.extract(coming_.begin()));
    return true;
  }
  [[nodiscard]] SimTime next_turn(std::int64_t conversation) const override {
    SimTime next = kNever;
    for (const auto* requests : {&coming_, &sent_}) {
      for (const auto& [time, i] : *requests) {
        if (requests_[i].traits.conversation == conversation) next = std::min(next, time);
      }
    }
    return next;
  }
  void ended(const RequestRecord& record) override {
    std::erase_if(sent_, [&](const auto& one) { return one.second == order_[record.index]; });
    if (record.outcome != Outcome::finished) return;
    for (std::size_t i = 0; i < follows_.size(); ++i) {
      if (follows_[i].after == record.traits.conversation) coming_.emplace(record.end + follows_[i].think, i);
    }
  }

 private:
  const std::vector<RequestSpec>& requests_;
  const std::vector<Follows>& follows_;
  std::multimap<SimTime, std::size_t> coming_;  // equal times in order of insertion
  std::multimap<SimTime, std::size_t> sent_;    // and not ended
  std::vector<std::size_t> order_;              // of sending
};

}  // namespace spillway::oracle
