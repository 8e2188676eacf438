// The GPU-independent part of a measurement: which blocks, how many operations, and which time span.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate::gpu {

/// Launches and copies enqueued on one stream while it waits. A stream accepts about a thousand entries, including
/// events, before the CPU has to wait.
inline constexpr std::int64_t kMostBehindGate = 400;
/// Operations of one stream in one sample, including operations enqueued after the gate opened.
inline constexpr std::int64_t kMostOperations = 20000;
/// Events of one stream in one sample, besides the first one.
inline constexpr std::int64_t kMostMarks = 24;

/// The number of alternating buffers of `bytes` that together exceed four times the L2.
[[nodiscard]] std::int64_t rotation(std::int64_t bytes, std::int64_t l2_bytes);

/// `blocks` different slots from 0 .. slots - 1; `slots` must be at least `blocks`. Sequential: consecutive slots; the
/// slots of set i + 1 follow those of set i and wrap around at the end of the pool. Random: a new draw for every set.
[[nodiscard]] std::vector<std::int64_t> block_slots(Order order, std::int64_t blocks, std::int64_t slots,
                                                    std::int64_t set, std::uint64_t seed);

/// Positions, among `count` operations, after which an event is recorded: at most `most`, evenly spread, the last one
/// after the last operation.
[[nodiscard]] std::vector<std::int64_t> marks(std::int64_t count, std::int64_t most);

/// The times of one stream's events: done[i] operations had ended seconds[i] after the gate opened.
struct LaneTimes {
  std::vector<std::int64_t> done;
  std::vector<double> seconds;
};
struct LaneShare {
  std::int64_t operations = 0;
  double seconds = 0.0;
};
/// Operations of each stream that ended while all streams still ran, with the time of the last such operation. The span
/// ends when the first stream ends, so operations beside an idle stream do not count. A stream without events in the
/// span has 0 operations.
[[nodiscard]] std::vector<LaneShare> overlapped(std::span<const LaneTimes> lanes);

/// The number of operations of each stream so that all streams run as long as `calls` + 1 operations of the slowest
/// stream. `seconds` are the times of one operation of each stream. Each stream gets 2 to kMostOperations.
[[nodiscard]] std::vector<std::int64_t> balanced(std::int64_t calls, std::span<const double> seconds);

/// The largest number of calls for which `balanced` stays within kMostOperations, 1 to kMostBehindGate.
[[nodiscard]] std::int64_t most_balanced_calls(std::span<const double> seconds);

}  // namespace spillway::calibrate::gpu
