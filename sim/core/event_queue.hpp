// The event list: a 4-ary array heap ordered by (time, phase, sequence).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/core/units.hpp"

namespace spillway {

/// The order of events at one instant.
enum class EventPhase : std::uint8_t { transfer_done, compute_done, timer, arrival, decision, start, observation };

struct Event {
  SimTime time{};
  std::uint64_t order = 0;  // phase in the top byte, below it the sequence or the target
  std::uint32_t kind = 0;   // the owner's own event kind
  std::uint32_t target = 0;

  [[nodiscard]] EventPhase phase() const { return static_cast<EventPhase>(order >> 56U); }
};

/// Cost: push O(log4 n), pop O(4 log4 n), both without allocation once the array has grown; 24 bytes per pending event.
/// The sequence of 56 bits does not wrap. Few events are pending, where this is faster than a binary or pairing heap.
class EventQueue {
 public:
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] const Event& top() const { return heap_.front(); }
  /// The event after the top one; null: there is none. O(1).
  [[nodiscard]] const Event* second() const { return heap_.size() < 2 ? nullptr : &heap_[least_child(1)]; }

  /// Events of an equal time and phase are FIFO.
  void push(SimTime time, EventPhase phase, std::uint32_t kind, std::uint32_t target = 0) {
    add(time, phase, sequence_++, kind, target);
  }
  /// Events of an equal time and phase come in the order of their targets. Not beside push() of the same phase.
  void push_by_target(SimTime time, EventPhase phase, std::uint32_t kind, std::uint32_t target) {
    add(time, phase, target, kind, target);
  }

  Event pop() {
    const Event first = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sift_down(last);
    return first;
  }

 private:
  void add(SimTime time, EventPhase phase, std::uint64_t number, std::uint32_t kind, std::uint32_t target) {
    const std::uint64_t order = (static_cast<std::uint64_t>(phase) << 56U) | number;
    std::size_t hole = heap_.size();
    heap_.emplace_back();
    const Event event{time, order, kind, target};
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / 4;
      if (!before(event, heap_[parent])) break;
      heap_[hole] = heap_[parent];
      hole = parent;
    }
    heap_[hole] = event;
  }
  static bool before(const Event& a, const Event& b) { return a.time != b.time ? a.time < b.time : a.order < b.order; }
  /// The earliest of the siblings of which number `child` is the first.
  [[nodiscard]] std::size_t least_child(std::size_t child) const {
    std::size_t least = child;
    const std::size_t end = child + 4 < heap_.size() ? child + 4 : heap_.size();
    for (std::size_t i = child + 1; i < end; ++i) least = before(heap_[i], heap_[least]) ? i : least;
    return least;
  }
  void sift_down(const Event& event) {
    std::size_t hole = 0;
    for (;;) {
      const std::size_t child = 4 * hole + 1;
      if (child >= heap_.size()) break;
      const std::size_t least = least_child(child);
      if (!before(heap_[least], event)) break;
      heap_[hole] = heap_[least];
      hole = least;
    }
    heap_[hole] = event;
  }

  std::vector<Event> heap_;
  std::uint64_t sequence_ = 0;
};

}  // namespace spillway
