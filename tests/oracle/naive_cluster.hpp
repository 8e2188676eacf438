// Plain engines on one clock behind a plain router, as an oracle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/core/request.hpp"
#include "tests/oracle/naive_engine.hpp"
#include "tests/oracle/naive_router.hpp"

namespace spillway::oracle {

/// A replica goes down, or comes up again.
struct NaiveFailure {
  SimTime at{};
  std::size_t replica = 0;
  bool up = false;
};

struct NaiveClusterConfig {
  /// Of every engine. Its requests are those of all engines together, and its front end, time-out and horizon are those
  /// of the cluster.
  NaiveConfig engine;
  std::size_t replicas = 1;
  NaiveRouting routing{};
  std::vector<NaiveFailure> failures{};  // in order of time
  bool retry = true;                     // what a replica loses is sent again
};

struct NaiveClusterResult {
  std::vector<RequestRecord> records;  // in order of ending
  std::vector<NaiveResult> replicas;   // without failures only
  std::vector<std::int64_t> sent;      // to each replica
};

/// Throws std::logic_error on a rule that it does not know.
NaiveClusterResult run_naive_cluster(const NaiveClusterConfig& config);

}  // namespace spillway::oracle
