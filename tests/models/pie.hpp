// Which branches of Pie's rule the plain model has been through, for tests that must have visited them all.
#pragma once

#include <cstdint>

namespace spillway::oracle {

/// Counts over all runs of this process.
struct PieBranches {
  std::int64_t raises = 0;               // by the controller
  std::int64_t stall_lowers = 0;         // compute waited
  std::int64_t reverts = 0;              // a raise brought nothing
  std::int64_t lowers_refused = 0;       // nothing is on the host, or a request needs the room
  std::int64_t blocked_raises = 0;       // a raise was wanted too soon after a lower
  std::int64_t slack_refusals = 0;       // a raise was wanted, and swaps are too late for it
  std::int64_t unneeded_raises = 0;      // nothing waits and blocks are free
  std::int64_t patience_ended = 0;       // a raise was judged although its room was never full
  std::int64_t kept_raises = 0;          // a raise was worth it
  std::int64_t windows_after_lower = 0;  // that were full
  std::int64_t expansions = 0;           // for the head of the queue
  std::int64_t finished_raises = 0;      // expansions that only ended a raise under way
  std::int64_t released = 0;             // room raised for a request is ordinary room again
  std::int64_t new_slots_stayed = 0;     // a layer with a new slot stayed for those with an old one
  std::int64_t waits = 0;                // copies ended while a layer waited
  std::int64_t most_on_host = 0;         // layers
};

PieBranches& pie_branches();

}  // namespace spillway::oracle
