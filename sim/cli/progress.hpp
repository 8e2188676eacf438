// Progress of a run, on stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "sim/study/points.hpp"

namespace spillway::cli {

/// On a terminal, one line that is rewritten at most ten times a second; elsewhere a plain line for each 10% of the
/// requests. Prints nothing in the first 0.5 s, so short runs print nothing. Replications may report from several
/// threads.
class ProgressLine {
 public:
  /// `requests` is the number per replication.
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
  std::vector<std::int64_t> ended_;  // one entry per replication
  std::mutex mutex_;
  Clock::time_point begin_;
  Clock::time_point shown_;
  std::int64_t next_tenth_ = 1;
  bool on_screen_ = false;
};

/// Progress of points: finished points, simulation speed and remaining time.
class PointsProgressLine {
 public:
  /// `plain`: print lines where stderr is not a terminal. Otherwise print nothing there.
  explicit PointsProgressLine(bool enabled, bool plain = true);
  ~PointsProgressLine() { finish(); }
  PointsProgressLine(const PointsProgressLine&) = delete;
  PointsProgressLine& operator=(const PointsProgressLine&) = delete;
  /// Not thread-safe: one call at a time.
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

/// Progress of a search: what is tried, how much of it has run and the time left for it. How many steps follow is not
/// known. Off a terminal a plain line says what is tried, at most every 10 s.
class SearchProgressLine {
 public:
  explicit SearchProgressLine(bool enabled, std::chrono::milliseconds plain_every = std::chrono::seconds(10));
  ~SearchProgressLine() { finish(); }
  SearchProgressLine(const SearchProgressLine&) = delete;
  SearchProgressLine& operator=(const SearchProgressLine&) = delete;
  /// The search goes on with this step.
  void begin(const std::string& step);
  /// `progress` of the step's points. Not thread-safe: one call at a time.
  void update(const PointsProgress& progress);
  /// Clears the line.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_;
  bool enabled_;
  std::chrono::milliseconds every_;
  Clock::time_point begin_;  // of the step
  Clock::time_point shown_;
  std::string step_;
  bool said_ = false;  // the step, as a plain line
  bool on_screen_ = false;
};

/// Progress of work in named steps: the step, and the remaining time at the speed so far. Prints nothing in the first
/// 0.5 s.
class StepsProgressLine {
 public:
  explicit StepsProgressLine(bool enabled);
  ~StepsProgressLine() { finish(); }
  StepsProgressLine(const StepsProgressLine&) = delete;
  StepsProgressLine& operator=(const StepsProgressLine&) = delete;
  /// `fraction`: of the whole work. Not thread-safe.
  void update(const std::string& step, double fraction);
  /// Clears the line.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_;
  bool enabled_;
  Clock::time_point begin_;
  std::string said_;
  bool on_screen_ = false;
};

}  // namespace spillway::cli
