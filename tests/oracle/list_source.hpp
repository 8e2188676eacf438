// Requests from a list.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/api/request_source.hpp"

namespace spillway::oracle {

/// Delivers `requests`, which must outlive it, one by one.
class ListSource final : public RequestSource {
 public:
  explicit ListSource(const std::vector<RequestSpec>& requests) : requests_(requests) {}
  [[nodiscard]] SimTime next_arrival() override { return at_ < requests_.size() ? requests_[at_].arrival : kNever; }
  void next(RequestSpec& request) override { request = requests_[at_++]; }

 private:
  const std::vector<RequestSpec>& requests_;
  std::size_t at_ = 0;
};

}  // namespace spillway::oracle
