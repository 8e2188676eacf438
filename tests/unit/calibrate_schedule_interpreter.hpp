// Start and end of a schedule's operations by the rules of streams alone: a second opinion on the executor, which knows
// nothing of layers, rules or policies.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "cuda_calibrate/validate/schedule.hpp"

namespace spillway::calibrate {

/// Nanoseconds since the start.
struct OperationSpan {
  double start = 0.0;
  double end = 0.0;
};

/// Steps from event to event. A copy first launches and then transfers; the transfer is slower while the other
/// direction transfers too. Compute that starts while a copy is in flight takes longer. At one instant, ends come
/// before starts, and copies start before compute.
class ScheduleInterpreter {
 public:
  ScheduleInterpreter(const Schedule& schedule, std::span<const OperationTime> times, const CopySharing& sharing)
      : schedule_(schedule),
        times_(times),
        sharing_(sharing),
        spans_(schedule.operations.size()),
        ended_(schedule.operations.size(), false) {
    for (std::size_t i = 0; i < schedule.operations.size(); ++i) {
      lanes_[static_cast<std::size_t>(schedule.operations[i].stream)].order.push_back(i);
    }
  }

  std::vector<OperationSpan> run() {
    start_ready();
    while (step()) start_ready();
    return spans_;
  }

 private:
  struct Lane {
    std::vector<std::size_t> order;
    std::size_t next = 0;  // the running operation, or the next to start
    bool running = false;
    double launch_left = 0.0;
    double work_left = 0.0;
  };

  static double ratio(const Slowdown& slowdown) {
    return static_cast<double>(slowdown.num) / static_cast<double>(slowdown.den);
  }
  static std::size_t lane_of(Stream stream) { return static_cast<std::size_t>(stream); }
  [[nodiscard]] bool transfers(Stream stream) const {
    const Lane& lane = lanes_[lane_of(stream)];
    return lane.running && lane.launch_left <= 0.0;
  }
  [[nodiscard]] double slowdown(Stream stream) const {
    if (!transfers(Stream::h2d) || !transfers(Stream::d2h)) return 1.0;
    if (stream == Stream::h2d) return ratio(sharing_.h2d);
    return stream == Stream::d2h ? ratio(sharing_.d2h) : 1.0;
  }
  [[nodiscard]] double left(Stream stream) const {
    const Lane& lane = lanes_[lane_of(stream)];
    return lane.launch_left > 0.0 ? lane.launch_left : lane.work_left * slowdown(stream);
  }

  void start_ready() {
    for (const Stream stream : {Stream::d2h, Stream::h2d, Stream::cpu, Stream::compute}) {
      Lane& lane = lanes_[lane_of(stream)];
      if (lane.running || lane.next == lane.order.size()) continue;
      const std::size_t number = lane.order[lane.next];
      const auto& waits = schedule_.operations[number].waits;
      if (!std::ranges::all_of(waits, [&](std::int32_t other) { return ended_[static_cast<std::size_t>(other)]; })) {
        continue;
      }
      const bool beside_copies = lanes_[lane_of(Stream::h2d)].running || lanes_[lane_of(Stream::d2h)].running;
      lane.running = true;
      lane.launch_left = static_cast<double>(times_[number].launch.count());
      lane.work_left = static_cast<double>(times_[number].work.count()) *
                       (stream == Stream::compute && beside_copies ? ratio(sharing_.compute) : 1.0);
      spans_[number].start = now_;
    }
  }

  /// Advances to the next event; false when nothing runs.
  bool step() {
    constexpr std::array kAll{Stream::d2h, Stream::h2d, Stream::cpu, Stream::compute};
    double shortest = std::numeric_limits<double>::infinity();
    for (const Stream stream : kAll) {
      if (lanes_[lane_of(stream)].running) shortest = std::min(shortest, left(stream));
    }
    if (shortest == std::numeric_limits<double>::infinity()) return false;
    now_ += shortest;
    std::array<double, kStreams> slowdowns{};
    for (const Stream stream : kAll) slowdowns[lane_of(stream)] = slowdown(stream);
    for (const Stream stream : kAll) {
      Lane& lane = lanes_[lane_of(stream)];
      if (!lane.running) continue;
      if (lane.launch_left > 0.0) {
        lane.launch_left -= shortest;
        if (lane.launch_left > 0.0 || lane.work_left > 0.0) continue;
      } else {
        lane.work_left -= shortest / slowdowns[lane_of(stream)];
      }
      constexpr double kRounding = 1e-6;
      if (lane.work_left > kRounding) continue;
      const std::size_t number = lane.order[lane.next++];
      spans_[number].end = now_;
      ended_[number] = true;
      lane.running = false;
    }
    return true;
  }

  const Schedule& schedule_;
  std::span<const OperationTime> times_;
  CopySharing sharing_;
  std::vector<OperationSpan> spans_;
  std::vector<bool> ended_;
  std::array<Lane, kStreams> lanes_{};
  double now_ = 0.0;
};

inline std::vector<OperationSpan> interpret(const Simulated& simulated, const CopySharing& sharing = {}) {
  return ScheduleInterpreter(simulated.schedule, simulated.times, sharing).run();
}

/// The end of the last operation that the experiment waits for.
inline double length_of(const Schedule& schedule, std::span<const OperationSpan> spans) {
  double end = 0.0;
  for (const std::int32_t number : schedule.ends) end = std::max(end, spans[static_cast<std::size_t>(number)].end);
  return end;
}

}  // namespace spillway::calibrate
