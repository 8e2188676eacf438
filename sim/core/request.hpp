// A request: what a workload states about it, and what became of it.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "sim/core/units.hpp"

namespace spillway {

/// Names a live request. `slot` is small and reused: use it to index per-request state. `serial` is never reused: it is
/// the request's position in the workload, so comparing serials compares arrivals.
struct RequestId {
  std::uint32_t slot = UINT32_MAX;
  std::uint32_t serial = UINT32_MAX;
  auto operator<=>(const RequestId&) const = default;
  [[nodiscard]] bool valid() const { return slot != UINT32_MAX; }
};
inline constexpr RequestId kNoRequest{};

/// Limits that a workload sets for one request; they replace the run's slo.* keys. 0: no limit.
struct RequestSlo {
  Duration ttft{};
  Duration tpot{};
  Duration e2e{};
  bool operator==(const RequestSlo&) const = default;
};

/// What a workload may state about a request besides its lengths.
struct RequestTraits {
  std::int64_t conversation = -1;  // conversations are numbered from 0 as they start; -1: no conversation
  std::int32_t turn = 0;           // in its conversation, from 1; 0: no conversation
  /// Leading tokens of the prompt that repeat the context of the turn before, its answer included. The largest value:
  /// not stated, so they are as many as have been kept.
  Tokens repeats{std::numeric_limits<std::int64_t>::max()};
  std::uint32_t service_class = 0;  // 0: no class named
  std::uint32_t pool = 0;           // of the instances that serve it, in a run with several kinds of them
  RequestSlo slo{};
  bool operator==(const RequestTraits&) const = default;
};

/// One request as a workload delivers it.
struct RequestSpec {
  SimTime arrival{};
  Tokens input{};           // >= 1
  Tokens output{};          // >= 1; the truth, hidden from policies
  Tokens max_new_tokens{};  // what the client asked for; >= output
  std::uint32_t client = 0;
  RequestTraits traits{};
  /// Content identity of the request's first whole blocks (`memory.block_tokens` tokens each) of input, and of output
  /// where another request's input repeats that output. Equal ids at equal positions after equal prefixes mean equal
  /// tokens. Empty: unknown, never shared.
  std::vector<std::uint64_t> prefix_ids;
};

enum class Outcome : std::uint8_t {
  finished,
  rejected,
  timed_out,
  unfinished,  // when the run ended
  lost         // with its replica
};

/// The life of a request, written when it ends. Times count from the start of the run; kNever: it never happened.
struct RequestRecord {
  std::uint64_t index = 0;  // position in the workload, from 0
  std::uint32_t client = 0;
  std::uint32_t replica = 0;  // that it was sent to last, from 0
  /// With pools: the replica that generated its answer; kNoReplica: none did.
  std::uint32_t decode_replica = kNoReplica;
  static constexpr std::uint32_t kNoReplica = UINT32_MAX;
  Outcome outcome = Outcome::unfinished;
  bool refused = false;  // rejected for the sake of other requests, not for its size
  SimTime arrival{};
  SimTime first_scheduled = kNever;
  SimTime first_token = kNever;
  SimTime end = kNever;  // last token, or the instant of rejection or of giving up
  Duration computing{};  // total length of the iterations in which it took part
  Tokens input{};
  Tokens output{};     // asked for by the workload
  Tokens generated{};  // produced
  Tokens cached{};     // prompt tokens taken from the prefix cache, all admissions together
  std::int32_t preempted_recompute = 0;
  std::int32_t preempted_swap = 0;
  RequestTraits traits{};
  bool operator==(const RequestRecord&) const = default;
};

}  // namespace spillway
