// Pensieve: the KV of a conversation survives between its turns, on the GPU and on the host.
//
// Source: Yu, Lin and Li, "Stateful Large Language Model Serving with Pensieve", EuroSys 2025. Section 4.2 (unified
// batches), 4.3.2 (ahead-of-time swap-out, lazy reclamation), 4.3.3 (retention value), 4.3.4 (pipelined swap-in,
// dropped tokens), 4.3.5 (suspension) and 5 (swap-in before swap-out). In each iteration, in this order:
//
//   decode      Each running request needs a slot for its next token. If none is free, chunks of resting conversations
//               that have a clean copy on the host give up their place on the GPU, least valuable first (lazy
//               reclamation). If that is not enough, running requests are suspended, youngest first: all their KV
//               leaves for the host, and the iteration waits for it. They wait in the queue at the place of their
//               arrival.
//   admit       From the head of the queue, as long as fewer than engine.max_num_batched_tokens prompt tokens are
//               computed, and more than a tenth of the GPU stays free or reclaimable afterwards. The KV of the
//               conversation comes back layer by layer, as the layers need it. Its dropped tokens are computed again,
//               together with the new prompt and with the decodes, in one batch.
//   swap out    If less than a quarter of the GPU is free, reclaimable, or about to be: chunks of resting conversations
//               are copied to the host, least valuable first. A full host drops its least valuable chunk first; if that
//               is the one that would come, it is dropped from the GPU at once. Copies to the host wait while KV comes
//               back to the GPU.
//
// A chunk is worth V = (c + A(l)) / T: the time that the GPU needs to compute it again, over the time for which its
// conversation has rested (policies/parts/retention_order.hpp).
//
// Where the paper is silent: a head of the queue that needs more than swap-out keeps free has the rest copied out for
// it (else it would wait for ever). So has a request in the batch for which a scheduler fetches memory to grow. A
// request that leaves no tenth of the GPU free even alone is admitted when it fits, and rejected if prompt and answer
// are longer than the rest. Suspended KV that finds no place on the host is dropped, from the start of its context. A
// copy of a chunk whose conversation returns meanwhile goes on, and the chunk is clean then, because its tokens stay
// the same.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "policies/parts/admission.hpp"
#include "policies/parts/fcfs_queue.hpp"
#include "policies/parts/refusals.hpp"
#include "policies/parts/resting_conversations.hpp"
#include "policies/parts/retention_cost.hpp"
#include "sim/api/registry.hpp"
#include "sim/api/runs.hpp"

namespace spillway {
namespace {

constexpr const char* kChunk = "policy.chunk_tokens";
constexpr const char* kThreshold = "policy.swap_out_threshold";
constexpr const char* kReserve = "policy.decode_reserve";
constexpr const char* kEviction = "policy.eviction";
constexpr const char* kBeside = "policy.cost_beside_tokens";
constexpr const char* kLinearShare = "policy.cost_linear_share";
constexpr const char* kUnified = "policy.unified";

constexpr const char* kFarthest = "farthest-next-use";
/// No turn comes later, and the sum of two such times is a time.
constexpr SimTime kLatest{std::int64_t{1} << 62};

constexpr const char* kSuspensions = "suspensions";
constexpr const char* kLagging = "lagging_suspensions";

class PensieveSpace final : public OffloadPolicy {
 public:
  explicit PensieveSpace(const PolicyContext& context)
      : view_(context.view),
        chunk_(context.settings.get<std::int64_t>(kChunk) / context.view.block_tokens().count()),
        threshold_(context.settings.get<double>(kThreshold)),
        reserve_(context.settings.get<double>(kReserve)),
        resting_(context.view, chunk_, candidates(context)) {}

  [[nodiscard]] Fit admits(const RequestView& request, Tokens upto) const override {
    const double whole = count(blocks(request.input + request.max_new_tokens));
    if (whole > count(total()) * (1.0 - reserve_)) return Fit::never;
    return fits(outside(request), blocks_with(request, upto), request.reusable);
  }
  [[nodiscard]] Fit resumes(const RequestView& request, Tokens upto) const override {
    return fits(outside(request), blocks_with(request, upto), request.known);
  }
  [[nodiscard]] Fit grows(const RequestView& request, Tokens upto) const override {
    const Blocks needed = blocks(upto) - request.held;
    if (needed <= obtainable()) return Fit::now;
    return needed <= soon_free() + resting_.counts().dirty ? Fit::after_moves : Fit::later;
  }
  [[nodiscard]] Fit decodes(std::int64_t count) const override {
    return view_.decode_growth(count) <= obtainable() ? Fit::now : Fit::later;
  }
  [[nodiscard]] Leave preempts(const RequestView&) const override { return Leave::suspend; }
  [[nodiscard]] bool suspends_whole(const RequestView& request) const override {
    return lacking_on_host(holder(request.id)) <= view_.tier(kHostTier).free + resting_.counts().on_host;
  }

  [[nodiscard]] bool keeps(const View&, const RequestView& request, Outcome outcome) override {
    if (outcome != Outcome::finished) return false;
    resting_.rests(request);
    return true;
  }

  void makes_room(const View&, Blocks needed, Placement& placement) override { reclaim(needed, placement); }

  void returns(const View&, const RequestView& request, Placement& placement) override {
    if (view_.kept(request.conversation) == Tokens(0)) resting_.ends(request.conversation);
    const Holder whose = holder(request.id);
    reclaim(blocks_elsewhere(view_, whose) - view_.tier(kGpuTier).free, placement);
    bring_to_gpu(view_, whose, kWholeContext, {.keep = true, .waits = Waits::layers}, placement);
  }

  void leaves(const View&, const RequestView& request, Placement& placement) override {
    ++suspensions_;
    lagging_ += resting_.counts().dirty + resting_.counts().leaving > Blocks(0) ? 1 : 0;
    const Holder whose = holder(request.id);
    const Blocks lacking = lacking_on_host(whose);
    while (view_.tier(kHostTier).free < lacking) {
      const auto least = resting_.first_on_host();
      if (!least) break;
      drop(*least, kNoTier, placement);
    }
    Blocks dropped = lacking - view_.tier(kHostTier).free;
    for (const PlacedRun& run : placed_runs(view_, whose)) {
      if (dropped <= Blocks(0)) break;
      if (!run.on(kGpuTier) || run.on(kHostTier) || run.moving()) continue;
      const BlockRange range{run.range.first, run.range.first + std::min(dropped, run.blocks)};
      placement.drop(whose, range, kNoTier);
      dropped -= range.count();
    }
    send_from_gpu(view_, whose, {.to = kHostTier, .waits = Waits::iteration}, placement);
  }

  /// A request needs more than is reclaimable: what is missing is copied out.
  void fetches(const View&, const RequestView& request, Tokens upto, Placement& placement) override {
    if (request.phase == Phase::prefilling || request.phase == Phase::decoding) {
      const Blocks needed = blocks(upto) - request.held;
      return copy_out_until([&] { return soon_free() >= needed; }, placement);
    }
    const Tokens reusable = request.phase == Phase::swapped ? request.known : request.reusable;
    const Holder whose = outside(request);
    const Blocks whole = blocks_with(request, upto);
    const Blocks needed = missing(whose, whole, reusable);
    const Unused own = unused(whose, reusable);
    resting_.pin(whose.conversation);
    const auto enough = [&] {
      const RestingConversations::Counts others = resting_.counts_without(whose.conversation);
      return leaves_enough(free() + own.at_rest + own.leaving + others.clean + others.leaving, needed, whole);
    };
    copy_out_until(enough, placement);
    resting_.changed(whose.conversation);
  }

  void moved(const View&, const Move& move) override {
    if (const RequestId request = move.holder.request; request.valid()) {
      const bool swapped = view_.alive(request) && view_.request(request).phase == Phase::swapped;
      if (swapped) suspended_.push_back(move.holder);
    } else {
      resting_.changed(move.holder.conversation);
    }
  }

  void places(const View&, Placement& placement) override {
    // Copies that were under way when their request was suspended.
    for (const Holder& whose : std::exchange(suspended_, {})) {
      if (!view_.alive(whose.request) || view_.request(whose.request).phase != Phase::swapped) continue;
      for (const PlacedRun& run : placed_runs(view_, whose)) {
        if (run.on(kGpuTier) && run.on(kHostTier) && !run.moving()) placement.drop(whose, run.range, kGpuTier);
      }
    }
    const double wanted = threshold_ * count(total());
    copy_out_until([&] { return count(soon_free()) >= wanted; }, placement);
  }

  [[nodiscard]] Figures figures() const override {
    return {{kSuspensions, static_cast<double>(suspensions_)}, {kLagging, static_cast<double>(lagging_)}};
  }

 private:
  using Chunk = RestingConversations::Chunk;
  using Became = RestingConversations::Became;

  static RestingConversations::Candidate candidates(const PolicyContext& context) {
    const auto eviction = context.settings.get<std::string>(kEviction);
    if (eviction == "lru") {
      return [](std::int64_t, SimTime since, Tokens) { return RetentionCandidate{.cost = 1.0, .since = since}; };
    }
    if (eviction == kFarthest) {
      // The later the next turn, the smaller 1 / (now + next turn).
      return [&view = context.view](std::int64_t conversation, SimTime, Tokens) {
        const std::int64_t next = std::min(view.next_turn(conversation).ns(), kLatest.ns());
        return RetentionCandidate{.cost = 1.0, .since = SimTime(-next)};
      };
    }
    const Tokens chunk(context.settings.get<std::int64_t>(kChunk));
    const ExecutionModel& model = context.deployment.planner();
    const Tokens beside(context.settings.get<std::int64_t>(kBeside));
    const RetentionCost cost = RetentionCost::profile(model, chunk, context.view.max_model_len(), beside);
    // The shortest chunk costs next to nothing but c.
    const double left_out = (1.0 - context.settings.get<double>(kLinearShare)) * cost.at(Tokens(0));
    return [cost, left_out](std::int64_t, SimTime since, Tokens tokens) {
      return RetentionCandidate{.cost = cost.at(tokens) - left_out, .since = since};
    };
  }

  static double count(Blocks blocks) { return static_cast<double>(blocks.count()); }
  [[nodiscard]] Blocks blocks(Tokens tokens) const { return blocks_for(tokens, view_.block_tokens()); }
  [[nodiscard]] Blocks total() const { return view_.tier(kGpuTier).total; }
  /// What the next tokens of the running requests leave.
  [[nodiscard]] Blocks free() const { return view_.tier(kGpuTier).free - view_.batch().decode_growth; }
  /// Whose KV a request has that is not in the batch.
  [[nodiscard]] static Holder outside(const RequestView& request) {
    return request.phase == Phase::swapped ? holder(request.id) : holder_of_conversation(request.conversation);
  }
  /// Blocks that such a request has on the GPU once it is in the batch with blocks for its first `upto` tokens: parts
  /// of its context that were dropped get their blocks at once.
  [[nodiscard]] Blocks blocks_with(const RequestView& request, Tokens upto) const {
    const Blocks context = request.phase == Phase::swapped ? request.held : blocks(request.reusable);
    return std::max(blocks(upto), context);
  }
  /// Blocks that are on the GPU, and neither on the host nor on their way.
  [[nodiscard]] Blocks lacking_on_host(const Holder& whose) const {
    Blocks lacking;
    for (const KvRun& run : view_.runs(whose)) {
      const bool only_on_gpu = run.on(kGpuTier) && !run.on(kHostTier) && !run.moving();
      lacking += only_on_gpu ? run.blocks : Blocks(0);
    }
    return lacking;
  }
  /// Blocks of the GPU that are free, reclaimable, or about to be.
  [[nodiscard]] Blocks soon_free() const {
    const RestingConversations::Counts& counts = resting_.counts();
    return view_.tier(kGpuTier).free + counts.clean + counts.leaving;
  }
  /// The host has no place and nothing to drop.
  [[nodiscard]] bool host_is_shut() const {
    return view_.tier(kHostTier).free + resting_.counts().on_host <= Blocks(0);
  }
  /// Blocks of the GPU that are free, or can be at once.
  [[nodiscard]] Blocks obtainable() const {
    const RestingConversations::Counts& counts = resting_.counts();
    return view_.tier(kGpuTier).free + counts.clean + (host_is_shut() ? counts.dirty : Blocks(0));
  }
  /// Blocks of a context of `whole` blocks that the GPU lacks, when the first `reusable` tokens of what is kept will be
  /// used.
  [[nodiscard]] Blocks missing(const Holder& whose, Blocks whole, Tokens reusable) const {
    return whole - blocks_on(view_, whose, kGpuTier, blocks(reusable));
  }
  /// `needed` blocks out of `available` leave the reserve for decodes free. A context of `whole` blocks that could
  /// never leave it only has to fit.
  [[nodiscard]] bool leaves_enough(Blocks available, Blocks needed, Blocks whole) const {
    const double reserve = reserve_ * count(total());
    if (count(total() - whole) <= reserve) return available >= needed;
    return count(available - needed) > reserve;
  }
  /// Blocks of the GPU that a context gives up when its request enters: what follows the tokens that it uses.
  struct Unused {
    Blocks at_rest{};
    Blocks leaving{};
  };
  [[nodiscard]] Unused unused(const Holder& whose, Tokens reusable) const {
    Unused unused;
    Blocks first;
    for (const KvRun& run : view_.runs(whose)) {
      const Blocks end = first + run.blocks;
      const Blocks beyond = end - std::clamp(blocks(reusable), first, end);
      if (run.on(kGpuTier)) (run.moving() ? unused.leaving : unused.at_rest) += beyond;
      first = end;
    }
    return unused;
  }
  [[nodiscard]] Fit fits(const Holder& whose, Blocks whole, Tokens reusable) const {
    const Blocks needed = missing(whose, whole, reusable);
    const RestingConversations::Counts others = resting_.counts_without(whose.conversation);
    const Unused own = unused(whose, reusable);
    const Blocks at_once = free() + own.at_rest + others.clean + (host_is_shut() ? others.dirty : Blocks(0));
    if (leaves_enough(at_once, needed, whole)) return Fit::now;
    const Blocks soon = free() + own.at_rest + own.leaving + others.clean + others.dirty + others.leaving;
    // When nothing runs, what is not free is on its way.
    return leaves_enough(soon, needed, whole) || view_.batch().running == 0 ? Fit::after_moves : Fit::later;
  }

  void drop(const Chunk& chunk, TierId tier, Placement& placement) {
    placement.drop(chunk.holder, chunk.range, tier);
    resting_.changed(chunk, tier == kGpuTier ? Became::on_host : Became::dropped);
  }

  void reclaim(Blocks needed, Placement& placement) {
    while (needed > Blocks(0)) {
      std::optional<Chunk> chunk = resting_.first_clean(needed);
      const bool clean = chunk.has_value();
      if (!clean && host_is_shut()) chunk = resting_.first_dirty();
      if (!chunk) return;
      needed -= chunk->range.count();
      drop(*chunk, clean ? kGpuTier : kNoTier, placement);
    }
  }

  /// Chunks go to the host, least valuable first, until enough are on their way.
  template <class Enough>
  void copy_out_until(Enough enough, Placement& placement) {
    while (!enough()) {
      const auto chunk = resting_.first_dirty();
      if (!chunk) return;
      copy_out(*chunk, placement);
    }
  }
  void copy_out(const Chunk& chunk, Placement& placement) {
    while (view_.tier(kHostTier).free < chunk.range.count()) {
      const auto least = resting_.first_on_host();
      if (!least || evicted_before(chunk.candidate, least->candidate, view_.now())) {
        return drop(chunk, kNoTier, placement);
      }
      drop(*least, kNoTier, placement);
    }
    placement.move({.holder = chunk.holder,
                    .range = chunk.range,
                    .from = kGpuTier,
                    .to = kHostTier,
                    .keep = true,
                    .yields = true});
    resting_.changed(chunk, Became::leaving);
  }

  const View& view_;
  const Blocks chunk_;
  const double threshold_;
  const double reserve_;
  RestingConversations resting_;
  std::vector<Holder> suspended_;  // of the copies that have ended since
  std::int64_t suspensions_ = 0;
  std::int64_t lagging_ = 0;
};

class PensieveScheduler final : public Scheduler {
 public:
  explicit PensieveScheduler(const Settings& settings)
      : most_prompt_tokens_(settings.get<std::int64_t>("engine.max_num_batched_tokens")),
        max_num_seqs_(settings.get<std::int64_t>("engine.max_num_seqs")),
        unified_(settings.get<bool>(kUnified)) {}

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId, Outcome) override {}

  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    running_.trim(view);
    bool suspended = false;
    while (kv.decodes(view.batch().decoding) != Fit::now) {
      const RequestId youngest = running_.tail(view);
      running_.pop_back();
      decision.leave(youngest, Leave::suspend);
      waiting_.insert_by_arrival(youngest);
      suspended = true;
    }
    const bool prompts = !suspended && admit(view, kv, decision);
    decision.decodes(prompts && !unified_ ? 0 : view.batch().decoding);
  }

 private:
  /// Returns true when the iteration computes prompts.
  bool admit(const View& view, const KvSpace& kv, Decision& decision) {
    Tokens computed;
    for (RequestId head = waiting_.head(view); head.valid(); head = waiting_.head(view)) {
      const RequestView request = view.request(head);
      const bool back = request.phase == Phase::swapped;
      const auto ask = [&] { return back ? kv.resumes(request, request.known) : kv.admits(request, request.known); };
      Fit fit = ask();
      if (fit == Fit::never) {
        waiting_.pop_front();
        decision.reject(head);
        continue;
      }
      if (view.batch().running >= max_num_seqs_) {
        decision.blocked(Blocked::batch_size);
        break;
      }
      if (computed >= most_prompt_tokens_) {
        decision.blocked(Blocked::token_budget);
        break;
      }
      fit = fetch_and_ask(head, request.known, fit, decision, ask);
      if (fit != Fit::now) {
        wait_for_memory(fit, decision);
        break;
      }
      waiting_.pop_front();
      back ? decision.resume(head) : decision.join(head);
      running_.insert_by_arrival(head);
      const RequestView inside = view.request(head);
      if (inside.phase != Phase::prefilling) continue;
      decision.chunk(head, inside.remaining());
      computed += inside.remaining();
    }
    return computed > Tokens(0);
  }

  const Tokens most_prompt_tokens_;
  const std::int64_t max_num_seqs_;
  const bool unified_;
  FcfsQueue waiting_;  // and suspended
  FcfsQueue running_;
};

std::vector<Parameter> parameters() {
  const auto share = [](const char* name, const char* value, std::string doc, std::string source) {
    return Parameter{.name = name,
                     .type = ParameterType::real,
                     .unit = "fraction",
                     .default_value = value,
                     .minimum = 0.0,
                     .maximum = 1.0,
                     .above_minimum = true,
                     .doc = std::move(doc),
                     .source = std::move(source)};
  };
  return {
      {.name = kChunk,
       .type = ParameterType::integer,
       .unit = "tokens",
       .default_value = "32",
       .minimum = 1,
       .maximum = 65536,
       .doc = "Tokens of a chunk, the unit in which KV is copied out, reclaimed and dropped: a multiple of "
              "memory.block_tokens, which equals it by default",
       .source = "Pensieve, section 4.3.2: 32 tokens"},
      share(kThreshold, "0.25",
            "KV is copied to the host ahead of time when less than this share of the GPU's KV blocks is free or "
            "reclaimable",
            "Pensieve, section 4.3.2: 25%"),
      share(kReserve, "0.1", "Share of the GPU that admission leaves for the next tokens of running requests",
            "Pensieve, section 4.3.5: 10%"),
      {.name = kEviction,
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "retention",
       .choices = {"retention", "lru", kFarthest},
       .doc =
           "What leaves first. retention: the chunk with the lowest ratio of the time to compute it again to the time "
           "that its conversation has rested; lru: the conversation that has rested longest; farthest-next-use: the "
           "conversation whose next turn comes last. No real system knows this. The result is a reference, not a "
           "bound, because chunks differ in the cost to compute them again",
       .source = "Pensieve, section 4.3.3; lru is the ablation of section 6.6; farthest next use: Belady, IBM Systems "
                 "Journal 5(2), 1966"},
      {.name = kBeside,
       .type = ParameterType::integer,
       .unit = "tokens",
       .default_value = "0",
       .minimum = 0,
       .maximum = 65536,
       .doc = "Prompt tokens of the iteration in which the cost of a chunk is profiled. The cost of a chunk is the "
              "time that it adds to this iteration. 0: the chunk runs alone, so its cost includes reading the weights",
       .source = "Pensieve, section 4.3.3, profiles a chunk of 32 tokens: 0. Chunks that are computed again share an "
                 "iteration with others"},
      {.name = kLinearShare,
       .type = ParameterType::real,
       .unit = "fraction",
       .default_value = "1",
       .minimum = 0.0,
       .maximum = 1.0,
       .above_minimum = true,
       .doc =
           "Weight, in the value of a chunk, of c: the cost of the chunk without attention to earlier tokens. A value "
           "below 1 acts as if kernels spent more of their time on attention. Iterations take as long as before",
       .source = "Spillway, for sensitivity: Pensieve does not print c and A(l) of its kernels"}};
}

std::vector<Problem> check(const Settings& settings) {
  std::vector<Problem> problems;
  for (const char* key : {kThreshold, kReserve}) {
    if (settings.get<double>(key) < 1.0) continue;
    problems.push_back({std::string(key) + " is all of the GPU", key, "give a value between 0 and 1"});
  }
  const std::int64_t chunk = settings.get<std::int64_t>(kChunk);
  const std::int64_t block =
      settings.has("memory.block_tokens") ? settings.get<std::int64_t>("memory.block_tokens") : 0;
  if (block > 0 && chunk % block != 0) {
    problems.push_back({std::string(kChunk) + "=" + std::to_string(chunk) + " is no multiple of a KV block of " +
                            std::to_string(block) + " tokens",
                        kChunk, "leave out memory.block_tokens, or give a multiple of it"});
  }
  refuse_swap(settings, "policy pensieve suspends requests, so it has no choice of preemption",
              "leave engine.preemption at recompute", problems);
  if (wants_prefix_cache(settings)) {
    problems.push_back({"policy pensieve keeps the KV of conversations itself, so there is no prefix cache beside it",
                        "engine.prefix_caching", "leave it out, or use policy=vllm"});
  }
  if (wants_connector(settings)) {
    problems.push_back(
        {"policy pensieve keeps the KV of conversations itself, on GPU and host, so there is no prefix "
         "cache that a connector could extend",
         "engine.kv_connector", "leave it out, or use policy=vllm"});
  }
  if (wants_disk_cache(settings)) {
    problems.push_back({"policy pensieve keeps the KV of conversations on GPU and host alone", "memory.disk_cache",
                        "leave it at 0B, or use policy=vllm"});
  }
  return problems;
}

PolicyInfo::OwnScheduler unified_batches() {
  PolicyInfo::OwnScheduler scheduler;
  scheduler.parameters = {
      {.name = kUnified,
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "true",
       .doc =
           "true: prompts and decodes share an iteration; false: prompts have iterations to themselves, and come first",
       .source = "Pensieve, section 4.2; false is the ablation of section 6.5"}};
  scheduler.default_engine = [](const Settings&) { return "vllm-0.2.0"; };
  scheduler.engine_defaults = [](const Settings&) {
    return std::map<std::string, std::string>{
        {"engine.max_num_batched_tokens", "2560"}, {"engine.max_num_seqs", "256"}, {"engine.chunked_prefill", "false"}};
  };
  scheduler.make = [](const PolicyContext& context) { return std::make_unique<PensieveScheduler>(context.settings); };
  return scheduler;
}

PolicyInfo info() {
  PolicyInfo info;
  info.name = "pensieve";
  info.summary = "Pensieve: KV of conversations stays on GPU and host between turns, evicted by retention value";
  info.source = "Yu, Lin and Li, Stateful Large Language Model Serving with Pensieve, EuroSys 2025, sections 4 and 5";
  info.limits =
      "Only the turns of a conversation share KV: no common system prompts. Token ids are always at hand, so dropped "
      "KV can be computed again. The copies of a turn that returns while its chunks are copied out are not taken back. "
      "If the scheduler cuts prompts into chunks, it also cuts the dropped tokens of a turn. Other schedulers compute "
      "the dropped tokens of a suspended request at once, even beyond the token budget.";
  info.parameters = parameters();
  info.figures = {{kSuspensions, "suspensions", "Requests that left the batch for the host, to make room for others.",
                   Better::smaller, Merge::mean},
                  {kLagging, "suspensions",
                   "Suspensions while KV of resting conversations was on the GPU without a copy on the host: swap-out "
                   "was too late.",
                   Better::smaller, Merge::mean}};
  info.shares_prefixes = false;
  info.keeps_conversations = true;
  info.knows_future = [](const Settings& settings) {
    const bool oracle = settings.get<std::string>(kEviction) == kFarthest;
    return oracle ? std::string("policy.eviction=") + kFarthest + " knows when each conversation's next turn arrives"
                  : std::string();
  };
  info.engine_defaults = [](const Settings& settings) {
    std::map<std::string, std::string> defaults{{"memory.host_cache", "200GB"}, {"engine.preemption", "recompute"}};
    if (settings.has(kChunk)) defaults["memory.block_tokens"] = std::to_string(settings.get<std::int64_t>(kChunk));
    return defaults;
  };
  info.check = check;
  info.default_scheduler = info.name;
  info.make_space = [](const PolicyContext& context) { return std::make_unique<PensieveSpace>(context); };
  info.own_scheduler = unified_batches();
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
