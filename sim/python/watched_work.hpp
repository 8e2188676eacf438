// Work that Python waits for.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <functional>
#include <mutex>

namespace spillway::python {

/// How far the work is. A sweep has no running and no waiting requests (-1).
struct WorkProgress {
  std::int64_t done = 0;
  std::int64_t total = 0;
  double fraction = 0.0;
  double simulated_seconds = 0.0;
  std::int64_t failed = 0;
  std::int64_t running = -1;
  std::int64_t waiting = -1;
};

/// What work and its caller share.
class Watch {
 public:
  /// True: end early.
  [[nodiscard]] const std::atomic<bool>& stop() const { return stop_; }
  void ask_to_stop() { stop_.store(true); }
  void update(const WorkProgress& progress) {
    const std::lock_guard lock(mutex_);
    progress_ = progress;
  }
  [[nodiscard]] WorkProgress progress() const {
    const std::lock_guard lock(mutex_);
    return progress_;
  }

 private:
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  WorkProgress progress_;
};

/// Does the work on a thread of its own, which never runs Python code. Meanwhile the caller, without the GIL, wakes up
/// ten times a second: it lets Python handle signals, and calls `on_progress` (None: nothing). The first call comes at
/// once and the last one when the work is done. If a signal's handler or `on_progress` raises, the work is asked to
/// stop and the exception is thrown when it has ended. Otherwise an exception of the work is thrown.
void do_watched(const std::function<void(Watch&)>& work, const pybind11::object& on_progress);

}  // namespace spillway::python
