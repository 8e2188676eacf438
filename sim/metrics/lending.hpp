// What a run tells of memory that was lent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/core/units.hpp"
#include "sim/metrics/sample_series.hpp"

namespace spillway {

/// A loan at one instant, in bytes of one GPU.
struct LentState {
  Bytes offered{};  // what is reclaimed and not back included
  Bytes held{};     // in use by the borrower, or on its way
};
using LendingSeries = SampleSeries<LentState>;

/// Sums over the measured span; over replications they add.
struct LendingFigures {
  double offered_time = 0.0;  // byte-seconds, per GPU
  double held_time = 0.0;
  Bytes peak_held{};
  std::int64_t offers = 0;
  std::int64_t reclaims = 0;
  std::int64_t returns = 0;     // reclaims after which the lender had its memory again
  double return_time = 0.0;     // seconds from a reclaim to its return, summed
  double longest_return = 0.0;  // seconds
  Bytes copied{};               // per GPU, both directions
  void add(const LendingFigures& other);
};

/// One loan of a run.
struct LendingUse {
  std::size_t borrower = 0;             // number of the instance
  std::optional<std::size_t> lender{};  // likewise; empty: GPUs that serve no request
  double memory_bandwidth = 0.0;        // bytes/s of a GPU that lends; 0: unknown
  LendingFigures figures{};
  std::vector<LendingSeries::Sample> series{};  // of the whole run; of the first replication
  /// Share of the lender's memory bandwidth that the copies take, over so many seconds. Empty: unknown.
  [[nodiscard]] std::optional<double> memory_share(double span) const;
};

}  // namespace spillway
