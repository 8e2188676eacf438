// How a schedule is put on streams: what of it needs no GPU to be decided.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda_calibrate/validate/schedule.hpp"

namespace spillway::calibrate {

/// For each operation: does another one, or the end of the experiment, wait for it? These get an event.
[[nodiscard]] std::vector<bool> waited_for(const Schedule& schedule);

/// Can all of it wait at a gate until it is enqueued? Not with more than `most` copies one by one on a stream: they do
/// not fit behind a gate, and enqueueing them is a part of what they take, as in the calibration.
[[nodiscard]] bool gated(const Schedule& schedule, std::int64_t most);

}  // namespace spillway::calibrate
