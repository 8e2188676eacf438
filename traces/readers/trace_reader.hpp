// What every reader of a trace file offers.
#pragma once

#include <cstdint>

#include "sim/api/request_source.hpp"

namespace spillway::traces {

/// Requests of one file in its order, through a window of memory that does not depend on the file's size.
class TraceReader : public RequestSource {
 public:
  /// Do its requests have arrival times? Without, every arrival is 0.
  [[nodiscard]] virtual bool has_times() const = 0;
  /// Do its requests have input lengths? Without, every input is 1 and must be replaced.
  [[nodiscard]] virtual bool has_inputs() const { return true; }
  /// Requests delivered so far whose output of 0 tokens was raised to 1.
  [[nodiscard]] virtual std::int64_t zero_outputs() const { return 0; }
  /// Line of the file that the last request came from, from 1.
  [[nodiscard]] virtual std::int64_t row() const = 0;
};

}  // namespace spillway::traces
