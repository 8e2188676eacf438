// What a placement is worth: each consumer simulated with its lender and without.
#pragma once

#include <optional>
#include <vector>

#include "sim/metrics/metrics.hpp"
#include "sim/study/placer/cluster_file.hpp"
#include "sim/study/points.hpp"

namespace spillway::placer {

/// Equal consumers with equal lenders, which one simulation stands for.
struct ConsumerWorth {
  std::size_t element = 0;              // of Cluster::models
  std::int64_t copies = 0;              // in this situation
  std::optional<std::size_t> lender{};  // element of Cluster::models; empty: none, it pages to host DRAM
  Bytes lends{};                        // by the lender
  std::string left_out{};               // why nothing was simulated; empty: it was
  /// Metrics of the run that borrows (policy=aqua), and of the same run over the host (policy=cfs).
  std::vector<Metric> lent{};
  std::vector<Metric> host{};
};

/// Simulates each kind of consumer of the placement twice, with the keys of its element: policy=aqua with memory.peer,
/// what its lender lends to each of its GPUs, and policy=cfs, which pages to host DRAM. Consumers without a lender, and
/// those without a workload, are listed and not simulated. A consumer counts once, also in `compat`. Runs stand alone:
/// neither lenders nor the other models of a server take part. Returns nothing when interrupted. Throws UserError when
/// a run is refused.
[[nodiscard]] std::optional<std::vector<ConsumerWorth>> simulate_worth(const Cluster& cluster,
                                                                       const Placement& placement, PointRunner& runner);

/// An assignment of the placer itself: key=text.
[[nodiscard]] Assignment placed(const std::string& key, const std::string& text);

/// The outcome of a run that must succeed: throws ConfigError with its problems, each naming the model.
void require_success(const PointOutcome& outcome, const std::string& model);

}  // namespace spillway::placer
