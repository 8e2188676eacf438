// The GPU-independent decisions on how to put a schedule on streams.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda_calibrate/validate/schedule.hpp"

namespace spillway::calibrate {

/// Whether another operation, or the end of the experiment, waits for each operation. Such operations get an event.
[[nodiscard]] std::vector<bool> waited_for(const Schedule& schedule);

/// Whether the whole schedule can wait at a gate until it is enqueued. More than `most` single copies on a stream
/// cannot: they do not fit behind a gate, and enqueueing is part of their time, as in the calibration.
[[nodiscard]] bool gated(const Schedule& schedule, std::int64_t most);

}  // namespace spillway::calibrate
