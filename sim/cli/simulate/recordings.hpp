// What `run` records beside the result: a timeline and time series.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/engine/instance_observer.hpp"
#include "sim/io/atomic_file.hpp"
#include "sim/report/time_series.hpp"
#include "sim/report/timeline.hpp"
#include "sim/study/assemble.hpp"

namespace spillway::cli {

struct RecordingOptions {
  std::string timeline;                                         // --timeline; empty: none
  std::string window;                                           // --timeline-window; empty: the whole run
  std::int64_t timeline_events = TimelineLimits().most_events;  // --timeline-events
  std::string series;                                           // --series; empty: none
};

/// Reads the window "10s:20s". Appends a Problem when it is none, or when there is nothing that it narrows.
[[nodiscard]] TimelineLimits timeline_limits(const RecordingOptions& options, std::vector<Problem>& problems);

/// The names of an assembly's instances, in order: "replica 1, vllm".
[[nodiscard]] std::vector<std::string> instance_names(const Assembly& assembly);

/// The first replication's recordings and their files. Each file is opened at once, so an unwritable location is
/// reported before the run.
class Recordings {
 public:
  /// `charts`: the result shows time series.
  Recordings(const RecordingOptions& options, const TimelineLimits& limits, std::vector<std::string> names,
             bool charts);

  [[nodiscard]] bool any() const { return timeline_ != nullptr || series_ != nullptr; }
  ~Recordings();
  Recordings(const Recordings&) = delete;
  Recordings& operator=(const Recordings&) = delete;
  [[nodiscard]] InstanceObserver* observer(std::size_t replica);
  /// The run is over: writes the files. Throws ConfigError when the window lies outside the run.
  void finish();
  /// Gives the files their names, and warns of what they leave out.
  void commit();
  /// The time series; null: none were recorded.
  [[nodiscard]] TimeSeries* series() { return series_.get(); }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

 private:
  /// Passes on to both recordings.
  class Both;

  const RecordingOptions options_;
  const std::vector<std::string> names_;
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<AtomicFile> timeline_file_;
  std::unique_ptr<TimeSeries> series_;
  std::unique_ptr<AtomicFile> series_file_;
  std::vector<std::unique_ptr<Both>> both_;
};

}  // namespace spillway::cli
