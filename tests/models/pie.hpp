// Which branches of Pie's rule the plain model has been through, for tests that must have visited them all.
#pragma once

#include <cstdint>

namespace spillway::oracle {

/// Counts over all runs of this process.
struct PieBranches {
  std::int64_t raises = 0;             // by the controller
  std::int64_t quick_raises = 0;       // before the window of 8 iterations was over
  std::int64_t large_raises = 0;       // by several layers
  std::int64_t unneeded_raises = 0;    // memory was not full
  std::int64_t paused_raises = 0;      // to a level that failed
  std::int64_t unpaid_raises = 0;      // compute would wait for more than the layer brings
  std::int64_t early_raises = 0;       // compute would wait or had waited, and the window was not over
  std::int64_t distrusted_plans = 0;   // nothing would wait by plan, but compute had waited
  std::int64_t slow_links = 0;         // waits told that swaps take longer than planned
  std::int64_t failures = 0;           // lowers, because compute waited for more than the last layer brings
  std::int64_t repeated_failures = 0;  // of the same level
  std::int64_t large_lowers = 0;       // failures that took several layers back
  std::int64_t idle_failures = 0;      // lowers for more than 1%, where capacity was not needed
  std::int64_t worthwhile_waits = 0;   // more than 1%, and not more than the last layer brings
  std::int64_t probes = 0;             // down
  std::int64_t early_probes = 0;       // a layer was spare, but not for 512 iterations
  std::int64_t kept_out = 0;           // a probe down, if no request had been kept out
  std::int64_t lowers_refused = 0;     // nothing is on the host, or a request needs the room
  std::int64_t expansions = 0;         // for the head of the queue
  std::int64_t finished_raises = 0;    // expansions that only ended a raise under way
  std::int64_t released = 0;           // room raised for a request is ordinary room again
  std::int64_t new_slots_stayed = 0;   // a layer with a new slot stayed for those with an old one
  std::int64_t made_way = 0;           // a layer left so that another could come in
  std::int64_t waits = 0;              // copies ended while a layer waited
  std::int64_t most_on_host = 0;       // layers
};

PieBranches& pie_branches();

}  // namespace spillway::oracle
