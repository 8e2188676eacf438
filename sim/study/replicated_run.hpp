// Runs the replications of a configuration in parallel.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "sim/study/assemble.hpp"

namespace spillway {

/// Waiting times early and late in a run, by position of the request. They show whether the queue keeps growing. Sums
/// are integers, so the merge order of replications does not matter.
class QueueGrowth {
 public:
  explicit QueueGrowth(std::int64_t requests) : requests_(requests) {}
  void add(const RequestRecord& record);
  void merge(const QueueGrowth& other);
  /// Mean waiting time in the second and in the last quarter of the requests.
  struct Means {
    double early_seconds = 0.0;
    double late_seconds = 0.0;
  };
  /// Empty unless the last quarter waited at least 1 s and twice as long as the second quarter. In a steadily growing
  /// queue the ratio is 7/3: the quarters' mean positions are 7/8 and 3/8 of the run.
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
  // For the first variant only. May be empty.
  std::function<void(std::int64_t replication, const RequestRecord&)> on_request;
  std::function<void(std::int64_t replication)> on_done;
  std::function<void(std::int64_t replication, const Observation&)> on_observation;
  Duration observe_every{1'000'000'000};
  /// SimulationConfig::observer of the first replication.
  std::function<InstanceObserver*(std::size_t replica)> observer;
  /// `run` counts all replications of the first variant, then all replications of the second, and so on. May be empty.
  std::function<void(std::int64_t run, const Progress&)> on_progress;
  const std::atomic<bool>* stop = nullptr;
};

struct ReplicationResults {
  RunStatistics statistics;            // combined over all replications
  std::vector<RunStatistics> kinds{};  // the same of each of Assembly::kinds
  bool complete = true;
  std::optional<RequestRecord> first_rejected;  // from the first replication with a rejection
  std::int64_t refused = 0;                     // requests that were rejected for the sake of others
  QueueGrowth growth;
  std::int64_t unsent = 0;              // later turns after an unanswered turn
  std::int64_t shortened = 0;           // turns whose prompt was cut to the longest context
  RequestSource::HeldBack held_back{};  // requests sent late
  std::vector<RangeUse> range_uses{};   // of the execution models: one entry per op and quantity, summed
  /// The entries of range_uses with calls outside the measured range.
  [[nodiscard]] std::vector<RangeUse> outside_range() const;
};

/// Runs `replications` replications on up to `jobs` threads. The result does not depend on `jobs`. `percentiles` adds
/// percentiles to the standard ones. Rethrows the error of the lowest failed replication.
[[nodiscard]] ReplicationResults run_replications(Assembly& assembly, std::int64_t replications, int jobs,
                                                  const std::vector<double>& percentiles,
                                                  const ReplicationHooks& hooks);
/// What a variant of a configuration changes.
struct Variant {
  OpScales scales{};            // of the model's times
  double locality_times = 1.0;  // of experts.locality, which is at most 1, where a policy places experts
};
/// Runs variants of the configuration, at least one. All variants have the same traffic and share up to `jobs` threads.
/// Returns one result per variant. After an interruption, variants that did not start have no statistics.
[[nodiscard]] std::vector<ReplicationResults> run_variants(Assembly& assembly, const std::vector<Variant>& variants,
                                                           std::int64_t replications, int jobs,
                                                           const std::vector<double>& percentiles,
                                                           const ReplicationHooks& hooks);

}  // namespace spillway
