// Which blocks, how many operations and which span: the parts of a GPU measurement that need no GPU.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate::gpu {

/// Launches and copies that are enqueued on one stream while it waits. A stream takes about a thousand before the host
/// has to wait in turn, and events lie between them.
inline constexpr std::int64_t kMostBehindGate = 400;
/// Operations of one stream in one sample, those included that are enqueued after the gate has opened.
inline constexpr std::int64_t kMostOperations = 20000;
/// Events of one stream in one sample, besides the first one.
inline constexpr std::int64_t kMostMarks = 24;

/// How many buffers of `bytes` are taken in turns, so that all of them together are larger than four times the
/// L2.
[[nodiscard]] std::int64_t rotation(std::int64_t bytes, std::int64_t l2_bytes);

/// `blocks` different slots of 0 .. slots - 1, `slots` being at least `blocks`. Sequential: a run, that of set i + 1
/// behind that of set i and the first again where the pool ends; random: drawn anew for every set.
[[nodiscard]] std::vector<std::int64_t> block_slots(Order order, std::int64_t blocks, std::int64_t slots,
                                                    std::int64_t set, std::uint64_t seed);

/// After how many of `count` operations an event is recorded: at most `most` of them, evenly spread, the last one
/// behind the last operation.
[[nodiscard]] std::vector<std::int64_t> marks(std::int64_t count, std::int64_t most);

/// What the events of one stream say: done[i] operations had ended seconds[i] after the gate opened.
struct LaneTimes {
  std::vector<std::int64_t> done;
  std::vector<double> seconds;
};
struct LaneShare {
  std::int64_t operations = 0;
  double seconds = 0.0;
};
/// Operations of each stream that ended while all of them still ran, with the time of the last one: up to the end of
/// the stream that ends first. What came later, when another stream was idle already, is left out. A stream none of
/// whose events lies in that span has 0 operations.
[[nodiscard]] std::vector<LaneShare> overlapped(std::span<const LaneTimes> lanes);

/// How many operations each stream gets so that all of them run for as long as `calls` operations of the slowest one,
/// and one more, take. `seconds` are those of one operation of each stream; each gets 2 to kMostOperations.
[[nodiscard]] std::vector<std::int64_t> balanced(std::int64_t calls, std::span<const double> seconds);

/// The most calls for which `balanced` stays within kMostOperations, 1 to kMostBehindGate.
[[nodiscard]] std::int64_t most_balanced_calls(std::span<const double> seconds);

}  // namespace spillway::calibrate::gpu
