// One model replica: applies a policy's decisions and what an iteration does to its requests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "sim/api/registry.hpp"
#include "sim/core/number_map.hpp"
#include "sim/engine/batch.hpp"
#include "sim/engine/instance_config.hpp"
#include "sim/engine/instance_sink.hpp"
#include "sim/engine/iteration_runner.hpp"
#include "sim/engine/ledger.hpp"
#include "sim/engine/lending.hpp"
#include "sim/engine/request_table.hpp"
#include "sim/kv/block_store.hpp"
#include "sim/kv/disk_tier.hpp"
#include "sim/kv/host_cache.hpp"
#include "sim/kv/offloading_tier.hpp"
#include "sim/kv/residency.hpp"
#include "sim/metrics/conversations.hpp"
#include "sim/metrics/fairness.hpp"

namespace spillway {

/// The iteration state machine; IterationRunner says how long an iteration takes, Ledger keeps the sums. `start` starts
/// an iteration, next_call() says when `advance` must be called; arrivals and time-outs may come meanwhile. What
/// happens goes to the sink: an instance knows neither metrics nor the source of its requests. Cost per iteration:
/// O(requests that join, leave, finish or prefill), plus O(blocks touched) with prefix caching. Throws InvariantError
/// when the policy breaks the contract of Decision.
class Instance final : public View, private Decision {
 public:
  /// The sink, the shared links and `memory`, from which comes what every iteration uses, must outlive the instance.
  /// `stepped`: other instances copy over these links, too.
  explicit Instance(const InstanceConfig& config, InstanceSink& sink, std::span<const BytesPerSecond> links = {},
                    bool stepped = false, std::pmr::memory_resource* memory = std::pmr::get_default_resource());

  /// The measured span begins then; kNever, as at first: not known yet. Not before the last call's `now`, unless it was
  /// known from the start.
  void measure_from(SimTime begin) { span_begin_ = begin; }

  /// A request arrives that its client sent at `sent` <= now. `number` is what it is known by here. `content` names
  /// what is only its own: a request that comes again finds blocks in the prefix cache that it left under another
  /// number.
  RequestId submit(const RequestSpec& spec, std::uint32_t number, std::uint32_t content, SimTime sent, SimTime now);
  /// The client gives up. No effect on a request that has ended; a request in the iteration in flight ends with it.
  void expire(RequestId id, SimTime now);
  /// An iteration is in flight.
  [[nodiscard]] bool busy() const { return busy_; }
  /// Asks the policy and starts an iteration, if the policy runs anything. Not while busy.
  void start(SimTime now);
  /// When advance() must be called; kNever: only after something else has happened.
  [[nodiscard]] SimTime next_call() const {
    if (busy_) return stepped_ ? runner_.next_event() : std::max(end_, quiet_until_);
    if (stepped_) return std::min(runner_.next_event(), next_disk_event());
    return nothing_under_way() ? kNever : std::min(runner_.next_copy_event(), next_disk_event());
  }
  /// The instance will be called soon: asks the caches for its members that an iteration uses. Changes nothing.
  void prefetch_members() const;
  /// The same, later, of what these members point to.
  void prefetch_pointees() const;
  /// Where its policy's objects are, which come from the heap.
  [[nodiscard]] const void* policy_address() const { return policy_.scheduler.get(); }

  // While the batch decodes, no request waits and memory is free, nobody but the sink hears of an iteration: of its
  // token gaps. Calls may come late then, and many at once, so that an instance of a fleet, which has to come from far
  // away, comes less often. The result is the same.
  /// Puts off the calls until the first request may end. Without effect where others may see what an iteration does.
  /// O(steps until then), at most 256.
  void put_off();
  [[nodiscard]] bool puts_off() const { return busy_ && quiet_until_ > end_; }
  /// Does what was put off and was due before `now`, and returns how many iterations started. What is due at `now` is
  /// the next call.
  std::int64_t catch_up(SimTime now);
  /// Nothing is put off any more; after catch_up.
  void stop_putting_off() { quiet_until_ = SimTime{}; }
  /// The iteration in flight ends then, on links of its own.
  [[nodiscard]] SimTime end() const { return end_; }

  enum class Advanced : std::uint8_t { nothing, moves, iteration };
  /// Does what is due at `now` == next_call(); returns what has ended.
  Advanced advance(SimTime now);
  /// A tier has `total` blocks from now on, at most what its graph announced.
  void resize(TierId tier, Blocks total, SimTime now);
  /// KV that this instance handed over is free. `serial`: of its request.
  void let_go(std::uint32_t serial, SimTime now);
  /// KV of a request has been handed over: it came here, or went from here. For observers alone.
  void report_handover(std::uint32_t index, Bytes bytes, bool came, SimTime began, SimTime now) const;
  /// The KV that a request awaits has arrived; its prompt was complete at `prompted`. No effect on one that has ended.
  void kv_arrived(RequestId id, SimTime prompted, SimTime now);
  /// Before the first call: the instance begins to exist now.
  void begin_at(SimTime now);
  /// The run ends now: every live request is unfinished.
  void stop(SimTime now);
  /// The run has ended with the last completion of another instance, at `end`.
  void rest_until(SimTime end);

  /// It has reclaimed memory, and nothing of it may be left with the borrower: when nothing runs, it wants to be asked.
  [[nodiscard]] bool waits_for_memory() const { return lends_ != nullptr && lends_->reclaimed(); }
  /// It has nothing to run, and contexts that the lender may wait for.
  [[nodiscard]] bool rests_with_contexts() const { return contexts_ >= 0 && !busy_ && table_.live() == 0; }
  /// It may refuse requests for the sake of others.
  [[nodiscard]] bool may_refuse() const {
    return (policy_.layers && policy_.layers->may_refuse()) || (policy_.weights && policy_.weights->may_refuse());
  }
  /// Something outside the instance is to come: KV that a request awaits, or memory for KV that waits to be fetched.
  [[nodiscard]] bool waits_for_handover() const { return awaited_ > 0 || !parked_.empty(); }
  [[nodiscard]] std::int64_t live() const { return table_.live(); }
  [[nodiscard]] std::int64_t waiting() const { return table_.live() - members_.size(); }
  [[nodiscard]] Blocks gpu_blocks_used() const { return tier(kGpuTier).total - tier(kGpuTier).free; }
  /// Adds the conversations whose KV is kept. O(holders whose KV has moved since the call before).
  void count_cached(ConversationCounts& counts);
  /// Sums over the measured span up to the last completion (or to `stop`); all zero when none was measured. Throws
  /// BrokenPromise when the policy reports a figure that it does not declare.
  [[nodiscard]] EngineTotals totals() const;
  /// The run is over: copies that are still on a link arrive. Throws InvariantError unless the links carried the bytes
  /// that the iterations were charged with.
  void settle_links() {
    const LinkBytes carried = runner_.drain();
    ledger_.check_links(carried, runner_.uncharged());
  }
  /// After `stop`, or when nothing lives.
  [[nodiscard]] FairnessTotals fairness() const { return fairness_.totals(); }
  /// The live request that arrived first, for messages.
  [[nodiscard]] std::string oldest() const;
  /// No event is to come although a request lives: the policy idles for ever. Throws BrokenPromise.
  [[noreturn]] void idles_for_ever() const;

  // When stepped
  /// All that happens at `now` has happened: copies that waited for that start.
  void settle(SimTime now) { runner_.settle(now); }
  /// As of the last settle().
  [[nodiscard]] Transfers transfers() const { return runner_.transfers(); }
  [[nodiscard]] const CopyLinks& links() const { return runner_.links(); }
  /// From `now` on, which is not after next_call().
  void set_slowdowns(const Slowdowns& slowdowns, SimTime now) { runner_.set_slowdowns(slowdowns, now); }

  // View
  [[nodiscard]] RequestView request(RequestId id) const override;
  [[nodiscard]] bool alive(RequestId id) const override { return table_.alive(id); }
  [[nodiscard]] RequestId last_joined() const override;
  [[nodiscard]] Blocks decode_growth(std::int64_t decodes) const override;
  [[nodiscard]] RequestId last_decoding() const override;
  [[nodiscard]] bool grows_next(RequestId id) const override;
  [[nodiscard]] SimTime waiting_since() const override;
  [[nodiscard]] CachedPrefix cached_prefix(RequestId id) const override;
  [[nodiscard]] std::span<const KvRun> runs(const Holder& holder) const override;
  [[nodiscard]] Tokens kept(std::int64_t conversation) const override;
  [[nodiscard]] SimTime next_turn(std::int64_t conversation) const override {
    return future_ == nullptr ? kNever : future_->next_turn(conversation);
  }

 private:
  // Decision
  void join(RequestId id) override;
  void resume(RequestId id) override;
  void fetch(RequestId id, Tokens upto) override;
  [[nodiscard]] Blocks look_up(RequestId id) override;
  void move(const Move& move) override;
  void drop(const Holder& holder, const BlockRange& range, TierId tier) override;
  void chunk(RequestId id, Tokens tokens) override;
  void reserve(RequestId id, Tokens upto) override;
  void sub_batch(RequestId id, std::int32_t number) override;
  void leave(RequestId id, Leave why) override;
  void reject(RequestId id) override;
  void decodes(std::int64_t count) override;
  void idle() override { idle_ = true; }
  void blocked(Blocked why) override { blocked_ = why; }

  // Staging
  /// What a policy decides, and the rule of sim/api for it.
  struct Deed {
    const char* what;
    const char* rule;
  };
  static const Deed kJoin, kResume, kChunk, kReserve, kLeave, kReject, kDecodes, kNothing, kProgress, kOffer, kFigures,
      kMove, kDrop, kReturn, kSubBatch, kAttend, kRetain;
  /// Throws BrokenPromise; `what` says what the policy decided, `why` what is wrong with it.
  [[noreturn]] void broken(const Deed& deed, const std::string& what, const std::string& why) const;
  [[noreturn]] void broken(const Deed& deed, RequestId id, const std::string& why) const;
  /// "request 3 is waiting".
  [[nodiscard]] std::string state_of(RequestId id) const;
  /// The member of a live request; -1: it was never scheduled.
  [[nodiscard]] std::int32_t member_of(RequestId id, const Deed& deed) const;
  [[nodiscard]] std::int32_t member_in(RequestId id, Phase phase, const Deed& deed) const;
  void grow_to(std::int32_t m, Tokens tokens, const Deed& deed);
  void take_blocks(std::int32_t m, Blocks count, const Deed& deed);
  /// Where the blocks of a member of the batch are.
  [[nodiscard]] static TierId tier_of(const Member& member) { return member.on_host ? kHostTier : kGpuTier; }
  /// Of a swapped request, which held so many blocks: those that were reserved and hold no KV are given back.
  void keep_computed(Member& member, Blocks held);
  /// Asks where a request that joins or resumes attends.
  void decide_tier(std::int32_t m);
  /// Asks the offload policy for blocks that are missing on the GPU. Returns how many are free then.
  Blocks make_room(Blocks needed);
  void release_blocks(std::int32_t m);
  /// Gives the GPU the blocks that layers with a window have freed, and takes those that they use again.
  void settle_windows() { residency_.tier(kGpuTier).free += members_.windows()->take_freed(); }
  /// The blocks of a member's table go back to the prefix cache.
  void release_cached(std::int32_t m);
  /// The same, and what the table was known to hold is forgotten.
  void forget_table(std::int32_t m);
  void name_blocks(std::int32_t m, Tokens computed);
  /// Takes the leading blocks that a cache holds: it shares blocks on the GPU and copies blocks on the host back.
  void take_cached_prefix(std::int32_t m);
  /// The member of a waiting request, made when it has none.
  std::int32_t make_member(RequestId id);
  /// A request that fetched its blocks has them already.
  void take_fetched(std::int32_t m);
  /// Calls visit(hash, GPU block or -1 when only the host holds it) for each leading block that a cache holds, at most
  /// up to the last known token but one.
  template <class Visit>
  void visit_cached_prefix(const RequestSlot& slot, Tokens known, Visit visit) const;
  [[nodiscard]] BlockHash block_hash(const RequestSlot& slot, BlockHash parent, std::int64_t block) const;
  /// The first `count` decodes in batch order, applied to each. O(decoding).
  template <class Visit>
  void visit_decodes(std::int64_t count, Visit visit) const {
    for (std::int32_t m = members_.first(); m >= 0 && count > 0; m = members_[m].next) {
      if (members_[m].phase != Phase::decoding) continue;
      visit(m);
      --count;
    }
  }
  void refresh();

  // Residency
  /// Context of a member that has not been recomputed after it was dropped: tokens from `first` on.
  struct Gap {
    Tokens first{};
    Tokens count{};
  };
  /// What is kept for a conversation.
  struct Kept {
    Residency::Key key = -1;
    Tokens tokens{};  // length of the context
  };
  /// Where the KV of a conversation was when it was last counted.
  struct Counted {
    bool kept = false;  // it is a conversation's
    bool on_gpu = false;
    bool on_host = false;
  };
  struct UnderWay {
    Move move{};
    Residency::MoveKey key = -1;
  };
  [[nodiscard]] std::int64_t conversation_of(const RequestSlot& slot) const {
    return slot.details < 0 ? -1 : details_[static_cast<std::size_t>(slot.details)].traits.conversation;
  }
  [[nodiscard]] const Kept* find_kept(std::int64_t conversation) const;
  /// Tokens that the next turn of a conversation finds. The last token of its input is always computed.
  [[nodiscard]] Tokens usable(const Kept& kept, const RequestSlot& slot) const {
    return std::min({kept.tokens, repeats(slot), Tokens(slot.input - 1)});
  }
  /// RequestTraits::repeats of a request that belongs to a conversation.
  [[nodiscard]] Tokens repeats(const RequestSlot& slot) const {
    return details_[static_cast<std::size_t>(slot.details)].traits.repeats;
  }
  /// Books what a new turn finds of the context that it repeats, before anything of it moves.
  void count_history(std::int32_t m);
  /// The key of a holder; -1: it holds nothing that has a place of its own.
  [[nodiscard]] Residency::Key key_of(const Holder& holder) const;
  /// "request 3", "conversation 5".
  [[nodiscard]] static std::string name_of_holder(const Holder& holder);
  [[nodiscard]] std::string name_of_tier(TierId id) const {
    const auto at = static_cast<std::size_t>(id);
    return id >= kGpuTier && at < graph_.tiers.size() ? graph_.tiers[at].name : "an unknown tier";
  }
  [[nodiscard]] static bool in_batch(Phase phase) { return phase == Phase::prefilling || phase == Phase::decoding; }
  [[nodiscard]] static bool in_batch(const Member& member) { return in_batch(member.phase); }
  /// Sets the tokens of a request outside the batch whose KV exists: its own, or what is kept for its conversation.
  void show_computed(const RequestSlot& slot, RequestView& view) const;
  [[nodiscard]] std::vector<Gap> gaps_of(Residency::Key key, Tokens context) const;
  /// All blocks of a member that is not swapped get a place of their own.
  void absorb(std::int32_t m, Blocks held);
  /// A member's context has gaps no more: what was not recomputed is dropped.
  void drop_gaps(std::int32_t m);
  /// The request's KV comes to the GPU, as its offload policy says.
  void bring_back(std::int32_t m);
  /// Throws BrokenPromise unless every block is on the GPU, on its way there with somebody waiting, or dropped.
  void check_return(std::int32_t m) const;
  void adopt_conversation(std::int32_t m, bool new_turn);
  void keep(std::int32_t m);
  void forget_conversation(std::int64_t conversation);
  /// Nothing is kept for the conversation any more.
  void erase_kept(std::int64_t conversation, Residency::Key key);
  /// Moves of `from` are of `to` from now on.
  void rename_moves(const Holder& from, const Holder& to);
  /// Moves that nobody waited for and that have ended by `now`. Returns whether there were any.
  bool collect_ended(SimTime now);
  void end_moves_of_layers();
  /// The ranges of a member's staged tokens: those that were dropped, then those that follow the context.
  void add_ranges(const Member& member, const std::vector<Gap>& gaps, BatchShape& shape);
  /// `count` tokens of the gaps have been recomputed.
  void fill_gaps(std::int32_t m, Tokens count);

  // KV connector
  /// What a request has stored since it last joined the batch for the first time or after a preemption.
  struct Stores {
    OffloadingTier::Storing storing{};
    std::vector<BlockHash> hashes{};     // of its full blocks so far
    std::int64_t copies = 0;             // that have not ended
    bool closed = false;                 // it has finished or been preempted
    std::vector<std::int32_t> blocks{};  // on the GPU, of a finished request, until the copies have ended
  };
  /// A copy of blocks between the GPU and the tier.
  struct Transfer {
    RequestId loads{};         // kNoRequest: it stores
    std::int32_t stores = -1;  // of these
    Blocks count{};
    std::vector<BlockHash> hashes{};     // loaded
    std::vector<BlockHash> from_disk{};  // of these, blocks that are being read
    std::vector<std::int32_t> blocks{};  // GPU blocks of a request that ended meanwhile
  };
  struct Connector {
    OffloadingTier tier;
    std::unique_ptr<DiskTier> disk;  // behind the tier; null: none
    ConnectorTimes times{};
    std::vector<Stores> stores{};
    std::vector<std::int32_t> free_stores{};
    std::vector<Transfer> transfers{};
    std::vector<std::int32_t> free_transfers{};
    std::vector<std::int32_t> queued{};  // transfers that start with the next step
    std::int64_t under_way = 0;          // transfers, queued ones too
    std::vector<std::int32_t> filled{};  // members of which a block fills in the step
    std::vector<RequestId> refused{};    // requests that try again
    std::vector<RequestId> fetched{};    // waiting requests that hold fetched blocks, in this order
    RequestId looked_up{};
    std::vector<BlockHash> looked{};  // blocks that a fetch would load
    ConnectorWork work{};             // of the step
    SimTime worker_free{};            // until then the worker's thread starts copies
    SimTime ahead_free{};             // the same of a worker that runs one iteration ahead of the GPU
  };
  static constexpr std::int32_t kFirstTransfer = 1 << 30;  // tickets of transfers start here
  [[nodiscard]] bool nothing_under_way() const {
    return under_way_.empty() && (!connector_ || connector_->under_way == 0);
  }
  [[nodiscard]] DiskTier* disk() const { return connector_ ? connector_->disk.get() : nullptr; }
  void fetch_from_tier(RequestId id);
  /// The blocks of a load are in the host tier: the copy to the GPU starts.
  void start_load(std::int32_t number);
  /// The worker's thread starts the copies of a transfer.
  void start_transfer(std::size_t route, std::int32_t number);
  /// The disk goes on to `now`. Returns whether a read has ended.
  bool advance_disk(SimTime now);
  /// The blocks that a load reads have arrived in the host tier.
  void disk_read_ended(std::int32_t number);
  /// When a request's blocks may arrive from the disk; kNever: none are on their way.
  [[nodiscard]] SimTime next_disk_event() const { return disk() != nullptr ? disk()->next_end() : kNever; }
  [[nodiscard]] std::int32_t add_transfer(Transfer transfer);
  [[nodiscard]] std::int32_t open_stores();
  void store_full_blocks(std::int32_t m);
  void start_stores();
  /// Stores what the requests of the step fill, and charges the CPU time.
  void offload();
  /// Tokens of a member of the step whose KV exists at its end.
  [[nodiscard]] Tokens computed_after(const Member& member) const {
    return member.phase == Phase::decoding ? members_.computed(member) + Tokens(1) : member.computed + member.staged;
  }
  void end_transfer(std::int32_t number);
  void release_gpu_blocks(std::vector<std::int32_t>& blocks);
  /// The request has finished or been preempted. `keep`: its GPU blocks stay until its stores have ended.
  void close_stores(std::int32_t m, bool keep);
  /// The request is preempted: it will go on where it stopped.
  void preempt_stores(std::int32_t m);
  void settle_stores(std::int32_t number);
  /// A waiting request ends: what it fetched is free, or will be.
  void give_back_fetched(std::int32_t m);
  /// Nothing runs and nothing is on its way: the request that fetched last gives its blocks back. False: none did.
  bool give_back_last_fetched();

  // Hand-over of KV between instances
  [[nodiscard]] bool takes_over() const { return hands_over_ && phases_ == Phases::decode; }
  /// A request of the batch has finished, and its blocks stay in use.
  void park(std::int32_t m);
  /// KV that waits to be fetched leaves too little memory for any prompt, and nothing has left since that was clear.
  [[nodiscard]] bool rests_for_handovers() const;
  /// Blocks of a waiting request's KV that are not in the prefix cache.
  [[nodiscard]] Blocks missing_kv(const RequestSlot& slot) const;
  /// Blocks that it has to take before it joins; 0: it has done so.
  [[nodiscard]] Blocks to_take_over(const RequestSlot& slot) const;
  void take_over(RequestId id);
  /// A waiting request loses the blocks that it took for KV. What has arrived is computed again.
  void give_back_handed_over(std::int32_t m);
  /// The same of the last one whose KV has arrived. False: there is none.
  bool give_back_last_handed_over();

  // Lent memory
  /// Takes memory for the contexts.
  void hold_contexts();
  /// Gives the borrowed tier the size that the lender grants now.
  void borrow();
  /// Tells the lender what is in use. `copying`: an iteration starts, in which what leaves is still on its way.
  void report_held(bool copying);
  /// Of its own memory, to the borrower.
  [[nodiscard]] Blocks lent() const;
  [[nodiscard]] LenderView lender_view() const;
  /// Does what the informer has decided. True: memory that was reclaimed has come back.
  bool lend(const LendingDecision& decision);

  // Layers
  /// Blocks of the GPU that there are now: as many as the layers leave, without those that are lent. Throws
  /// BrokenPromise when the policy offers more than it announced.
  [[nodiscard]] Blocks gpu_capacity() const;
  void resize_gpu();
  void report_layers(Duration length);

  // Execution
  /// Calls the policy once. False when nothing can run; `changed_` tells whether the policy changed the batch.
  [[nodiscard]] bool stage();
  /// Tells the scheduler of the requests that it does not know yet. Returns whether there were any.
  bool announce();
  /// Tells the draw of experts of which kinds the requests of the iteration are.
  void mix_experts();
  void report_shrunk_tiers();
  /// The iteration in flight has been executed, perhaps ahead of time.
  void executed(const ExecutedIteration& iteration);
  /// Executes the staged batch from now on, or begins to.
  void execute(SimTime now, Blocks stored);
  void execute(std::span<BatchShape> shapes, SimTime now, Blocks stored);
  /// The empty shape becomes that of the batch.
  void fill(BatchShape& shape);
  /// Adds the staged chunk of a member.
  void add_chunk(std::int32_t m, BatchShape& shape);
  /// The same when some requests are apart: one empty shape for each sub-batch. Returns those that are used.
  std::span<BatchShape> fill(std::array<BatchShape, kMostSubBatches>& all);
  /// Queues the blocks that the iteration filled for the host.
  void store_named(SimTime now);
  void complete_decodes(SimTime now, Duration duration);
  /// What advance() and start() do at the end of an iteration of `shape`, which is all of the batch, when the next one
  /// is of the same decodes. `shape` is then that of the next one.
  void decode_again(BatchShape& shape);
  void complete_chunks(SimTime now, Duration duration);
  void emit_token(std::int32_t m, SimTime now);
  void finish_member(std::int32_t m, Outcome outcome, SimTime now);
  // Padding
  /// The member has its first token and decodes from now on.
  void start_answer(std::int32_t m);
  void end_answer(std::int32_t m);
  /// After a step: ends the answers that are complete. O(log decodes) each.
  void end_answers();
  /// Tokens of a request's input whose KV exists when it arrives.
  [[nodiscard]] Tokens delivered(const RequestSlot& slot) const {
    return phases_ == Phases::decode ? Tokens(slot.input - 1) : Tokens();
  }
  /// A request that joins for the first time takes blocks for the KV that it brings, cached blocks included.
  void take_delivered(std::int32_t m);
  /// Index of the details of a request that just arrived; -1: it has none.
  [[nodiscard]] std::int32_t keep_details(const RequestSpec& spec);
  void end_request(RequestId id, Outcome outcome, SimTime now);
  void record(const RequestSlot& slot, const Member* member, Outcome outcome, SimTime now);
  /// Time goes on to `now`: to be called before the first change at that instant.
  void keep_books(SimTime now) {
    if (!ledger_.is_at(now)) advance_ledger(now);
  }
  void advance_ledger(SimTime now);
  [[nodiscard]] Ledger::Levels levels() const;
  /// Tells the observer of its tiers.
  void begin_observed(SimTime now);
  /// Tells the observer what has lasted until now.
  void report_levels(SimTime now);

  const KvLayout kv_;
  const TierGraph graph_;
  const std::unique_ptr<ExpertDraw> draw_;
  std::vector<std::int64_t> pattern_tokens_;    // of the iteration, by kind of request
  std::vector<std::uint32_t> arrival_numbers_;  // of requests at this instance, by slot; where kinds need them
  std::uint32_t arrivals_ = 0;
  const Deployment deployment_;
  const std::string policy_name_;
  const std::vector<FigureDefinition>& figures_;
  const RequestSource* const future_;  // null: the policy knows nothing of it
  const TierId borrowed_tier_;
  Residency::Key contexts_ = -1;  // only with KvLayout::cache_moves, from the first decision on

  Residency residency_;
  std::vector<Counted> counted_;     // by key
  std::int64_t counted_on_gpu_ = 0;  // of counted_
  std::int64_t counted_on_host_ = 0;
  std::unordered_map<std::int32_t, std::vector<Gap>> gaps_;  // by member, in the order of the context
  std::vector<std::size_t> under_way_at_;                    // by key of a move: where it is in under_way_
  std::vector<std::pair<RequestId, Blocks>> changing_;       // blocks that change once they have arrived
  mutable std::vector<KvRun> shown_runs_;
  SimTime observed_{};                  // up to here the observer knows the levels
  std::vector<TierLevel> shown_tiers_;  // what it was told last
  Retention retention_;                 // the order of the free blocks of cached_; empty: LRU
  /// Blocks of a request that has ended here.
  struct Parked {
    Blocks count{};
    std::vector<std::int32_t> blocks{};  // with prefix caching
  };
  std::vector<RequestId> taken_over_;  // waiting requests that have blocks for KV, in order of taking
  // Blocks filled in the iteration in flight, only with a host tier: on the GPU, and on the host itself.
  std::vector<BlockHash> named_;
  std::vector<BlockHash> named_on_host_;
  /// What few workloads state about a request.
  struct Details {
    std::vector<std::uint64_t> prefix_ids;
    RequestTraits traits;
  };
  std::vector<Details> details_;
  std::vector<std::int32_t> free_details_;
  LayerReport layer_report_;  // of the iteration in flight
  /// With padding: the decode step that ends the answer of a request.
  struct AnswerEnd {
    Tokens step{};
    RequestId id{};
  };
  std::vector<AnswerEnd> answer_ends_;  // a heap, the earliest on top; ended requests are skipped
  std::int64_t answering_ = 0;          // decodes that generate more than padding

  // Every iteration reads or writes most of what follows. In a fleet it comes from far away each time, so it lies
  // together, and prefetch_members() asks for it.
  const bool cpu_attention_;  // the first of them
  const bool keeps_conversations_;
  const Phases phases_;
  const bool hands_over_;
  const bool schedules_ahead_;
  const bool stepped_;
  const bool may_put_off_;     // nobody but the sink hears of an iteration
  const bool steady_decodes_;  // and the policy need not be asked for it
  bool catching_up_ = false;
  InstanceSink& sink_;
  InstanceObserver* const observer_;  // null: nobody follows it
  bool chunks_apart_ = false;         // a chunk is staged of a request that is not in sub-batch 0 or attends on the CPU
  bool idle_ = false;
  bool changed_ = false;
  bool busy_ = false;
  std::optional<Blocked> blocked_;
  SimTime span_begin_ = kNever;
  SimTime start_{};
  SimTime end_ = kNever;                // of the iteration in flight, or of the last one
  SimTime quiet_until_{};               // no request ends before, and none is called for before
  std::int64_t quiet_steps_ = 0;        // steps that end before the one in which the first request ends
  std::int64_t staged_decodes_ = -1;    // of the decision being staged, then of the iteration in flight; -1: not yet
  std::int64_t tokens_ = 0;             // generated in that iteration
  std::int64_t silent_iterations_ = 0;  // since the last token
  Blocks promised_{};
  std::int64_t awaited_ = 0;  // requests whose KV is to arrive
  Policy policy_;
  LentMemory* const borrows_;                 // null: nothing of its memory is borrowed
  LentMemory* const lends_;                   // null: it lends nothing
  const std::unique_ptr<Informer> informer_;  // beside lends_
  std::unique_ptr<CachedBlocks> cached_;      // only with prefix caching
  std::unique_ptr<HostCache> host_;           // only with a host tier of the prefix cache
  std::unique_ptr<Connector> connector_;      // instead of host_: the tier of the engine's KV connector
  const std::optional<Padding> padding_;
  std::vector<std::int32_t> chunk_members_;  // of the decision being staged, then of the iteration in flight
  std::vector<PrefillChunk> chunks_;
  std::vector<RequestId> expired_;                    // in the iteration in flight
  std::vector<RequestId> unheard_;                    // the scheduler does not know them yet; in order of arrival
  std::vector<UnderWay> under_way_;                   // moves that nobody, or only a request, waits for
  std::vector<Residency::MoveKey> of_layers_;         // moves that layers wait for
  std::unordered_map<std::uint32_t, Parked> parked_;  // by serial
  NumberMap<Kept> conversations_;                     // by number
  RequestTable table_;
  Batch members_;
  FairnessMeter fairness_;
  Ledger ledger_;
  IterationRunner runner_;  // what every iteration touches comes first in it
};

template <class Visit>
void Instance::visit_cached_prefix(const RequestSlot& slot, Tokens known, Visit visit) const {
  const std::int64_t most = quotient(known.count() - 1, kv_.block_tokens.count());
  BlockHash hash = 0;
  for (std::int64_t b = 0; b < most; ++b) {
    hash = block_hash(slot, hash, b);
    const std::int32_t block = cached_->find(hash);
    if (block < 0 && !(host_ && host_->holds(hash))) return;
    visit(hash, block);
  }
}

}  // namespace spillway
