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
  bool next(RequestSpec& request) override {
    if (at_ == requests_.size()) return false;
    request = requests_[at_++];
    return true;
  }

 private:
  const std::vector<RequestSpec>& requests_;
  std::size_t at_ = 0;
};

}  // namespace spillway::oracle
