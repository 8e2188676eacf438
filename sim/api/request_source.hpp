// Where requests come from: a trace or a generator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/request.hpp"

namespace spillway {

/// A pull stream of requests in order of arrival. Memory does not depend on its length.
///
/// Contract: `next` fills `request` (every field, prefix_ids included) and returns true, or returns false for ever
/// after. Arrivals never decrease. Throws DataError (file, row, column) on input that cannot be read.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  virtual bool next(RequestSpec& request) = 0;
  /// Requests in the whole stream when that is known before reading it, else -1: for progress only.
  [[nodiscard]] virtual std::int64_t expected() const { return -1; }
};

}  // namespace spillway
