// Which branches of Select-N's rule the plain model has been through, for tests that must have visited them all.
#pragma once

#include <cstdint>

namespace spillway::oracle {

/// Counts over all runs of this process.
struct SelectNBranches {
  std::int64_t kept = 0;             // iterations at the interval of the one before, which the next wants too
  std::int64_t moved = 0;            // the interval changes from the next iteration on
  std::int64_t at_once = 0;          // layers left at once: KV needed their room
  std::int64_t both = 0;             // and layers of two intervals streamed
  std::int64_t for_kv = 0;           // KV in use forced a smaller interval than the SLO allows
  std::int64_t too_small = 0;        // an iteration ran at a smaller interval than its SLO allows
  std::int64_t prefill_decides = 0;  // of the two records of an instance that runs both phases
  std::int64_t decode_decides = 0;
  std::int64_t waiting_decides = 0;  // requests have waited, so another interval is wanted
  std::int64_t no_entry = 0;         // a batch that the record does not know
  std::int64_t slo_below_best = 0;   // an entry whose best time is above the SLO
  std::int64_t rounded_slo = 0;      // the grid rounds an SLO below the best time, and copies that cost no time go on
  std::int64_t outgrown = 0;         // room is what the batch takes, more than is offered
  std::int64_t offered = 0;          // room is what is offered to a batch
  std::int64_t part_of_batch = 0;    // an entry's room ends within its batches
  std::int64_t smallest_binds = 0;   // the host holds no more layers
  // On a bus
  std::int64_t alone_on_bus = 0;        // choices for the only busy instance
  std::int64_t bus_shared = 0;          // choices for several
  std::int64_t bus_full = 0;            // several for which there was none
  std::int64_t refused_for_memory = 0;  // answers of no to requests
  std::int64_t refused_for_bus = 0;
  std::int64_t served_at_its_own_risk = 0;  // requests with which the bus is full, and no other suffers
};

SelectNBranches& select_n_branches();

}  // namespace spillway::oracle
