// A plain engine as an oracle. It rebuilds every view from scratch, expands every standing decision into a list and
// counts every token separately. It is slow on purpose and shares no bookkeeping with the simulator.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/api/kv_window.hpp"
#include "sim/api/link_traffic.hpp"
#include "sim/api/padding.hpp"
#include "sim/api/phases.hpp"
#include "sim/api/registry.hpp"
#include "sim/core/request.hpp"
#include "tests/oracle/plain_draw.hpp"
#include "tests/oracle/plain_shares.hpp"

namespace spillway::oracle {

/// A request that comes after the answer to another request; its own arrival is then ignored.
struct Follows {
  std::int64_t after = -1;  // position of the earlier request in the list; < 0: none, comes at its own arrival
  Duration think{};         // time after that request's last token
};

struct NaiveConfig {
  const ExecutionModel* model = nullptr;
  const PolicyInfo* policy = nullptr;
  const Settings* settings = nullptr;
  std::vector<RequestSpec> requests;  // in order of arrival; traits.conversation is the position
  std::vector<Follows> follows;       // one entry per request
  Blocks gpu_blocks{};                // at the start
  Blocks most_gpu_blocks{};           // upper limit during the run
  Blocks host_blocks{};
  TierGraph further{};  // beyond the GPU and the host
  Deployment deployment{};
  PlainChoice experts{};  // of a policy that places them
  Tokens block_tokens{16};
  Bytes block_bytes{};
  std::int64_t copies_per_block = 1;
  bool prefix_caching = false;
  Blocks host_cache_blocks{};
  std::int64_t host_cache_copies_per_block = 1;
  CopyMechanism host_cache_mechanism = CopyMechanism::many;
  bool cache_is_lent = false;  // the host tier of the prefix cache is in memory that other GPUs lend
  Tokens max_model_len{};
  PlainSurroundings links{};           // of its copies; `sharing` is the model's
  std::vector<LinkTraffic> traffic{};  // of others
  Phases phases = Phases::both;
  bool hands_over = false;  // with a phase: KV moves from engine to engine and takes its time
  std::optional<Padding> padding{};
  std::optional<KvWindow> window{};  // of some layers, which free the KV beyond it
  bool schedules_ahead = false;
  Duration front_end{};
  std::optional<Duration> request_timeout;
  std::optional<SimTime> until;
  SimTime measured_from{};  // start of the measured span
};

/// Sets what the keys of `config.settings` state about the surroundings: other traffic, phases, padding.
void read_surroundings(NaiveConfig& config);

struct NaiveResult {
  std::vector<RequestRecord> records;  // in order of ending
  std::vector<Duration> token_gaps;    // one per token except each request's first
  // From measured_from on. Boundaries of the span cut counts in proportion.
  std::int64_t iterations = 0;  // finished iterations
  Bytes moved_h2d{};
  Bytes moved_d2h{};
  Bytes moved_peer_in{};
  Bytes moved_peer_out{};
  double live_time = 0.0;    // live conversations, in conversation-seconds
  double cached_time = 0.0;  // conversations whose KV is kept
  std::int64_t peak_live = 0;
  std::int64_t peak_cached = 0;
  Duration kv_beside{};   // an iteration runs while KV is on its way
  Duration kv_waited{};   // of that, the time in which it waits for KV
  Duration kv_idle{};     // no iteration runs while KV is on its way
  Duration stall{};       // of layers
  Duration copying[2]{};  // of layers, h2d and d2h: time with a copy in flight
  std::int64_t peak_batch = 0;
  std::int64_t peak_waiting = 0;
  // Of the whole run
  Tokens prefix_hit{};
  Tokens prefix_hit_host{};
  Tokens history_asked{};  // whether or not the policy says that it keeps conversations
  Tokens history_on_gpu{};
  Tokens history_on_host{};
  std::int64_t host_evictions = 0;  // from the host tier of the prefix cache
  SimTime last_completion{};
  Blocks peak_gpu{};
  Blocks peak_host{};
  std::int64_t preempted_recompute = 0;
  std::int64_t preempted_swap = 0;
  Figures layers{};
  // Fairness, from measured_from on
  std::map<std::uint32_t, std::int64_t> service;  // by client, weighted tokens
  std::optional<double> jain_index;
  std::optional<std::int64_t> max_service_difference;
  std::int64_t service_observations = 0;
};

NaiveResult run_naive(const NaiveConfig& config);

/// Where an event stands among all events: time, phase of that instant, and number in the order of becoming known.
using NaiveInstant = std::tuple<SimTime, int, std::uint64_t>;

/// What an engine sees of the cluster of which it is a part.
class NaiveSurroundings {
 public:
  virtual ~NaiveSurroundings() = default;
  [[nodiscard]] virtual std::uint64_t next_sequence() = 0;
  [[nodiscard]] virtual SimTime next_turn(std::int64_t conversation) const = 0;
  virtual void ended(const RequestRecord& record) = 0;
  // Of engines that hand KV over, by the numbers under which they know requests:
  /// Whether the KV of a request that finishes stays until NaiveReplica::let_go.
  [[nodiscard]] virtual bool hands_over(std::uint32_t /*number*/) { return false; }
  virtual void begins_prompt(std::uint32_t /*number*/) {}
  /// The request has its blocks, of which so many wait for KV.
  virtual void awaits_kv(std::uint32_t /*number*/, Blocks /*blocks*/) {}
};

/// An engine as one of several on one clock. It is told what reaches it, and goes on event by event.
class NaiveReplica {
 public:
  virtual ~NaiveReplica() = default;
  [[nodiscard]] virtual std::optional<NaiveInstant> next_event() const = 0;
  virtual void step() = 0;
  /// A request reaches the scheduler; `spec.arrival` is when its client sent it. `content` names what is only its own.
  virtual void enter(const RequestSpec& spec, std::uint32_t number, std::uint32_t content, SimTime now) = 0;
  [[nodiscard]] virtual Blocks gpu_blocks() const = 0;
  [[nodiscard]] virtual Blocks gpu_blocks_used() const = 0;
  /// The client of a live request gives up.
  virtual void expire(std::uint32_t number, SimTime now) = 0;
  /// The KV of a request that has finished here is elsewhere, or nobody wants it.
  virtual void let_go(std::uint32_t number, SimTime now) = 0;
  virtual void kv_arrived(std::uint32_t number, SimTime prompted, SimTime now) = 0;
  /// The replica goes down. Returns the records of what was live, in order of numbers: lost, or timed out where
  /// the client has given up during the iteration that is aborted. Call nothing after it.
  [[nodiscard]] virtual std::vector<RequestRecord> go_down(SimTime now) = 0;
  /// Call last. `horizon`: what is live ends there as unfinished.
  virtual NaiveResult stop(std::optional<SimTime> horizon) = 0;
};

/// `config` states no requests and must outlive the replica, as must `cluster`.
std::unique_ptr<NaiveReplica> make_naive_replica(const NaiveConfig& config, NaiveSurroundings& cluster);

}  // namespace spillway::oracle
