// A request: what a workload says of it, and what became of it.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/units.hpp"

namespace spillway {

/// Names a live request. `slot` is small and reused (index per-request state by it); `serial` never is: it is the
/// request's position in the workload, so comparing serials is comparing arrivals.
struct RequestId {
  std::uint32_t slot = UINT32_MAX;
  std::uint32_t serial = UINT32_MAX;
  auto operator<=>(const RequestId&) const = default;
  [[nodiscard]] bool valid() const { return slot != UINT32_MAX; }
};
inline constexpr RequestId kNoRequest{};

/// One request as a workload delivers it.
struct RequestSpec {
  SimTime arrival{};
  Tokens input{};           // >= 1
  Tokens output{};          // >= 1; the truth, hidden from policies
  Tokens max_new_tokens{};  // what the client asked for; >= output
  std::uint32_t client = 0;
  /// Content identity of the input's first whole blocks (`memory.block_tokens` tokens each); equal ids at equal
  /// positions after equal prefixes mean equal tokens. Empty: unknown, never shared.
  std::vector<std::uint64_t> prefix_ids;
};

enum class Outcome : std::uint8_t { finished, rejected, timed_out, unfinished };

/// One request's life, written when it ends. Times are since the start of the run; a time that never came is kNever.
struct RequestRecord {
  std::uint64_t index = 0;  // position in the workload, from 0
  std::uint32_t client = 0;
  Outcome outcome = Outcome::unfinished;
  SimTime arrival{};
  SimTime first_scheduled = kNever;
  SimTime first_token = kNever;
  SimTime end = kNever;  // last token, or the instant at which it was rejected or given up
  Duration computing{};  // total length of the iterations that it took part in
  Tokens input{};
  Tokens output{};     // asked for by the workload
  Tokens generated{};  // produced
  Tokens cached{};     // prompt tokens taken from the prefix cache, all admissions together
  std::int32_t preempted_recompute = 0;
  std::int32_t preempted_swap = 0;
  bool operator==(const RequestRecord&) const = default;
};

}  // namespace spillway
