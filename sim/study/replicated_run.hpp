// Runs the replications of a configuration, side by side.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "sim/study/assemble.hpp"

namespace spillway {

/// How long requests wait early and late in a run, by their position: whether the queue keeps growing. Sums are
/// integers, so merging replications in any order gives the same.
class QueueGrowth {
 public:
  explicit QueueGrowth(std::int64_t requests) : requests_(requests) {}
  void add(const RequestRecord& record);
  void merge(const QueueGrowth& other);
  /// Mean waiting time of the second and of the last quarter of the requests.
  struct Means {
    double early_seconds = 0.0;
    double late_seconds = 0.0;
  };
  /// Empty unless the last quarter waited at least a second and twice as long as the second one. With a queue that
  /// grows steadily the ratio is 7/3: the mean positions of the quarters are 7/8 and 3/8 of the run.
  [[nodiscard]] std::optional<Means> growth() const;

 private:
  struct Sum {
    std::int64_t nanoseconds = 0;
    std::int64_t requests = 0;
    [[nodiscard]] double mean_seconds() const;
  };
  std::int64_t requests_;
  std::array<Sum, 4> quarters_{};
};

struct ReplicationHooks {
  // Of the first variant alone; all may be empty.
  std::function<void(std::int64_t replication, const RequestRecord&)> on_request;
  std::function<void(std::int64_t replication)> on_done;
  std::function<void(std::int64_t replication, const Observation&)> on_observation;
  Duration observe_every{1'000'000'000};
  /// `run` counts all replications of the first variant, then those of the second, and so on. May be empty.
  std::function<void(std::int64_t run, const Progress&)> on_progress;
  const std::atomic<bool>* stop = nullptr;
};

struct ReplicationResults {
  RunStatistics statistics;  // all replications combined
  bool complete = true;
  std::optional<RequestRecord> first_rejected;  // of the first replication that has one
  QueueGrowth growth;
  std::int64_t unsent = 0;             // later turns, because an earlier one was not answered
  std::int64_t shortened = 0;          // turns whose prompt was cut to fit the longest context
  std::vector<RangeUse> range_uses{};  // of the execution models, each op and quantity once, added up
  /// Those of them that left what was measured.
  [[nodiscard]] std::vector<RangeUse> outside_range() const;
};

/// Runs `replications` replications on up to `jobs` threads. The result does not depend on `jobs`. `percentiles` are
/// kept beside the standard ones. Rethrows the error of the lowest replication that failed.
[[nodiscard]] ReplicationResults run_replications(Assembly& assembly, std::int64_t replications, int jobs,
                                                  const std::vector<double>& percentiles,
                                                  const ReplicationHooks& hooks);
/// The same for variants of the configuration that differ in the scales of the model's times, of which there is at
/// least one: all with the same traffic, side by side on up to `jobs` threads. One result for each variant; when
/// interrupted, those that were not begun have no statistics.
[[nodiscard]] std::vector<ReplicationResults> run_variants(Assembly& assembly, const std::vector<OpScales>& variants,
                                                           std::int64_t replications, int jobs,
                                                           const std::vector<double>& percentiles,
                                                           const ReplicationHooks& hooks);

}  // namespace spillway
