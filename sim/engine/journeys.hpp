// Requests that may change their replica: those of a run whose replicas fail or may refuse requests, or whose prompts
// and answers are computed in different pools (sim/engine/handover.hpp says by which rules).
//
// Refusals. A request that a replica refuses for the sake of others is sent on at once, past the front end, to another
// one of the pool that is up and has not refused it. There it queues and is judged like any other request. It is
// rejected when no such replica is left. An answer is sent on only until a replica has taken blocks for its KV.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "sim/core/request.hpp"
#include "sim/core/units.hpp"
#include "sim/engine/handover.hpp"
#include "sim/engine/pool.hpp"
#include "sim/metrics/metrics.hpp"

namespace spillway {

struct SimulationConfig;

/// Follows each request from its client to its end. Instances report to it while they are called, and it acts in
/// follow(), when they are not. Requests are known by their serials, replicas by their numbers in the run. Calls cost
/// O(log live requests), but those that say otherwise.
class Journeys {
 public:
  static constexpr std::uint32_t kFirstAlias = std::uint32_t{1} << 31U;  // serials are below

  /// What the journeys need of the run.
  class Run {
   public:
    virtual ~Run() = default;
    [[nodiscard]] virtual SimTime now() const = 0;
    /// For a call of the instance: what it reports is of this replica.
    [[nodiscard]] virtual Instance& at(std::size_t replica) = 0;
    /// Something has changed for the instance.
    virtual void wake(std::size_t replica) = 0;
    /// The request passes the front end of the pool; passed() follows, at once or later.
    virtual void pass(std::uint32_t serial, std::size_t pool) = 0;
    /// give_up() follows when the client's time is over, unless lives() is false then.
    virtual void give_deadline(std::uint32_t serial, SimTime sent) = 0;
    /// collect_transfers() follows at that instant, unless is_transfer_due() is false then.
    virtual void call_for_transfers(SimTime at) = 0;
    virtual void record_gap(Duration gap, SimTime now) = 0;
    virtual void record(const RequestRecord& record) = 0;
  };

  /// All must outlive the journeys.
  /// `beside_copies` as KvTransfers.
  Journeys(const SimulationConfig& config, ReplicaPools& pools, std::span<const Replica> replicas, Run& run,
           bool beside_copies);

  // Of the run
  /// A client sends a request.
  void begin(std::uint32_t serial, const RequestSpec& spec);
  /// A request has passed the front end. No effect if it has ended meanwhile.
  void passed(std::uint32_t serial);
  [[nodiscard]] bool lives(std::uint32_t serial) const { return journeys_.contains(serial); }
  void give_up(std::uint32_t serial);
  /// Run::call_for_transfers was called for `at`. False: what was to happen then does not, because a transfer was
  /// cancelled or has become slower.
  [[nodiscard]] bool is_transfer_due(SimTime at);
  void collect_transfers();
  /// Only with pools.
  [[nodiscard]] KvTransfers& transfers() { return *transfers_; }
  /// Makes sure that the run calls for the next change of the transfers.
  void expect_transfers();
  /// The replica has lost its requests and is down. O(live requests).
  void went_down(std::size_t replica);
  void came_up();
  /// Requests that wait for a replica to come up.
  [[nodiscard]] std::int64_t held() const { return std::ssize(held_); }
  /// No replica will come up for them: they are lost.
  void lose_held();
  /// The measured span begins then.
  void measure_from(SimTime begin) { measured_from_ = begin; }
  /// Bytes that hand-overs moved over each of Handover::links in the measured span; empty without pools.
  [[nodiscard]] std::vector<double> moved() const { return transfers_ ? transfers_->moved() : std::vector<double>(); }
  /// Acts on what instances have reported. Instances are called here, so it may go on.
  void follow();
  /// All instances have been stopped: whatever lives is unfinished.
  void stop();
  [[nodiscard]] std::optional<HandoverTotals> handed_over() const {
    return transfers_ ? std::optional(handed_over_) : std::nullopt;
  }

  // Of instances
  /// `outcome`: Outcome::lost with its replica, or that of the record.
  void ended(const RequestRecord& record, std::size_t replica, Outcome outcome);
  [[nodiscard]] bool sends_on(std::uint32_t number, std::size_t replica) const;
  [[nodiscard]] bool hands_over(std::uint32_t number, std::size_t replica) const;
  void begins_prompt(std::uint32_t number);
  void awaits_kv(std::uint32_t number, Blocks blocks);

 private:
  static constexpr std::size_t kNowhere = SIZE_MAX;
  /// All layers of a prompt's KV but the last, layer by layer.
  enum class Layers : std::uint8_t { none, moving, moved };
  /// A live request.
  struct Journey {
    RequestSpec spec{};
    SimTime sent{};
    bool has_deadline = false;
    std::vector<std::size_t> known_to{};    // instances that have known it
    std::vector<std::size_t> refused_by{};  // replicas, since it set out
    std::size_t last = 0;                   // replica that it was sent to last
    std::size_t replica = kNowhere;         // computes it, or its prompt
    bool passing = false;                   // it is on its way there, through the front end
    bool unreached = false;                 // it was sent there, and the instance does not know it yet
    bool there = false;                     // the instance knows it
    RequestId id{};
    bool given_up = false;  // by its client, in the iteration in flight
    bool restart = false;   // it will be sent again when its prompt has been computed
    // With pools:
    std::optional<RequestRecord> prompt{};  // once it has been computed
    std::size_t decode = kNowhere;          // generates the answer
    bool decode_unreached = false;
    bool decode_there = false;
    RequestId decode_id{};
    bool admitted = false;  // blocks wait for the KV there
    Blocks wanted{};        // of KV that has to come
    Layers layers = Layers::none;
    SimTime began{};           // when it began to come
    bool handed_over = false;  // it has come; until then it stays where it was computed
  };
  struct Ended {
    RequestRecord record{};
    std::size_t replica = 0;
    std::uint32_t number = 0;  // under which the instance knew it
    Outcome outcome{};
  };
  struct Admitted {
    std::uint32_t serial = 0;
    Blocks blocks{};
  };

  void follow_end(const Ended& one);
  void follow_prompt_end(std::uint32_t serial, Journey& journey, const Ended& one);
  void follow_answer_end(std::uint32_t serial, Journey& journey, const Ended& one);
  void follow_admission(const Admitted& one);
  /// Whether an instance has the request now, under this number.
  [[nodiscard]] bool is_at(const Journey& journey, std::size_t replica, std::uint32_t number) const;
  [[nodiscard]] bool computes_prompts(std::size_t replica) const;
  [[nodiscard]] const Handover& handover() const;
  /// The first pool that a request goes to.
  [[nodiscard]] std::size_t pool_of(const RequestSpec& spec) const;
  [[nodiscard]] bool is_handed_over(const Journey& journey) const;
  [[nodiscard]] bool admits_first(const Journey& journey) const;
  /// Its KV is where it was computed, and stays there.
  [[nodiscard]] static bool is_parked(const Journey& journey) { return journey.prompt && !journey.handed_over; }
  /// The request as the replica that generates its answer sees it.
  [[nodiscard]] RequestSpec answer_spec(const Journey& journey) const;

  // On its way
  /// The request is sent to a replica, or waits until one is up.
  void set_out(std::uint32_t serial);
  void hold(std::uint32_t serial);
  /// Once for each request.
  void give_deadline(std::uint32_t serial);
  void reach(std::uint32_t serial);
  /// The number under which an instance knows a request: its serial, or an alias when the instance has known it before,
  /// because policies may still hold the old one. Policies order requests by these numbers, so aliases rise, above all
  /// serials: who comes again has come last.
  [[nodiscard]] std::uint32_t number_of(std::uint32_t serial, Journey& journey, std::size_t replica);
  [[nodiscard]] std::uint32_t serial_of(std::uint32_t number) const;
  void submit_prompt(std::uint32_t serial);
  void submit_answer(std::uint32_t serial);
  void choose_decode(std::uint32_t serial);
  /// Whether another replica is asked after this one has refused the request.
  [[nodiscard]] bool goes_on(const Journey& journey, std::size_t refuser) const;
  void send_on(std::uint32_t serial, std::size_t refuser);

  // Hand-over
  /// The prompt is computed: its KV moves, or the layer that is left.
  void transfer(std::uint32_t serial);
  /// The prompt is being computed, and blocks wait for its KV: all layers move but the last.
  void move_layers(std::uint32_t serial);
  void move_part(std::uint32_t serial, const Journey& journey, std::int32_t layers);
  [[nodiscard]] std::int32_t layers_of(const Journey& journey) const;
  [[nodiscard]] Bytes bytes_of(const Journey& journey) const;
  /// The KV has arrived.
  void hand_over(std::uint32_t serial);
  void let_go(const Journey& journey);

  // Ends
  /// The request has lost a replica that it needs: it is sent again, or lost, too.
  void lose(std::uint32_t serial);
  /// Withdraws the request from wherever it is. An iteration in flight goes on with it, and nobody hears of that.
  void leave(std::uint32_t serial, Journey& journey);
  /// The replicas that it was sent to, and that do not know it yet, will never hear of it.
  void withdraw_unreached(Journey& journey);
  /// The request ends while no instance knows of it.
  void end(std::uint32_t serial, Outcome outcome);
  /// The request ends as an instance reports.
  void finish(std::uint32_t serial, RequestRecord record);
  void finish_as(std::uint32_t serial, RequestRecord record, Outcome outcome);
  /// A prompt has been computed and nobody heard of its first token, unless the prefill replica samples it.
  void count_no_token(RequestRecord& prompt) const;
  /// The record of an answer tells of the prompt, too, which another replica computed.
  void add_prompt(const RequestRecord& prompt, RequestRecord& record);

  const SimulationConfig& config_;
  ReplicaPools& pools_;
  std::span<const Replica> replicas_;
  Run& run_;
  std::map<std::uint32_t, Journey> journeys_;  // by serial
  std::vector<std::uint32_t> held_;            // wait until a replica is up
  // What instances have reported:
  std::vector<Ended> ended_;
  std::vector<Admitted> admitted_;
  std::vector<std::uint32_t> begun_;                // prompts
  std::map<std::uint32_t, std::uint32_t> aliases_;  // serials of live requests, by the numbers that instances know
  std::uint32_t next_alias_ = kFirstAlias;
  std::optional<KvTransfers> transfers_;  // only with pools
  HandoverTotals handed_over_{};
  SimTime measured_from_ = kNever;
  SimTime next_call_ = kNever;  // for the transfers: the earliest that is to come
  bool stopped_ = false;
};

}  // namespace spillway
