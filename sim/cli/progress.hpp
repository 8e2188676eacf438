// How far a run is, on stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "sim/study/points.hpp"

namespace spillway::cli {

/// On a terminal one line that is rewritten at most ten times a second; elsewhere a plain line per 10% of the requests.
/// Nothing in the first half second, so that short runs stay silent. Replications may report from several threads.
class ProgressLine {
 public:
  /// `requests`: per replication.
  ProgressLine(bool enabled, std::int64_t requests, std::int64_t replications);
  void update(std::int64_t replication, const Progress& progress);
  /// Clears the line.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void show_line(std::int64_t ended, const Progress& progress, double seconds);

  bool enabled_;
  bool terminal_;
  std::int64_t total_;
  std::vector<std::int64_t> ended_;  // by replication
  std::mutex mutex_;
  Clock::time_point begin_;
  Clock::time_point shown_;
  std::int64_t next_tenth_ = 1;
  bool on_screen_ = false;
};

/// The same for points: how many are done, how fast they are simulated and how long the rest will take.
class PointsProgressLine {
 public:
  /// `plain`: lines where there is no terminal; without, nothing is printed there.
  explicit PointsProgressLine(bool enabled, bool plain = true);
  ~PointsProgressLine() { finish(); }
  PointsProgressLine(const PointsProgressLine&) = delete;
  PointsProgressLine& operator=(const PointsProgressLine&) = delete;
  /// One call at a time.
  void update(const PointsProgress& progress);
  /// Clears the line.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_;
  bool enabled_;
  Clock::time_point begin_;
  Clock::time_point shown_;
  std::int64_t next_tenth_ = 1;
  bool on_screen_ = false;
};

}  // namespace spillway::cli
