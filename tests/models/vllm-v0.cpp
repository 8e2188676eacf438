// vLLM's V0 scheduler from its rule. Blocks of a whole prompt are taken at admission, above a
// watermark. Without chunked prefill a step is all prompts or all decodes; with it running requests come first, in
// order of arrival, then swapped ones, then new ones, within one token budget.
#include <memory>

#include "tests/models/plain_policy.hpp"
#include "tests/models/plain_space.hpp"

namespace spillway::oracle {
namespace {

class PlainVllmV0 final : public Scheduler {
 public:
  explicit PlainVllmV0(const Settings& settings) : settings_(settings) {}

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId id, Outcome) override {
    for (Ids* const queue : {&waiting_, &running_, &swapped_}) remove(*queue, id);
  }

  void decide(const View& view, const KvSpace&, Decision& decision) override {
    budget_ = settings_.get<std::int64_t>("engine.max_num_batched_tokens");
    promised_ = decodes_ = 0;
    chunked() ? decide_chunked(view, decision) : decide_prompts_first(view, decision);
  }

 private:
  void decide_prompts_first(const View& view, Decision& decision) {
    if (swapped_.empty() && admit(view, decision)) return decision.decodes(0);
    const bool preempted = run(view, decision);
    if (!preempted) swap_in(view, decision);
    decision.decodes(decodes_);
  }
  void decide_chunked(const View& view, Decision& decision) {
    const bool preempted = run(view, decision);
    if (!preempted) swap_in(view, decision);
    decision.decodes(decodes_);
    admit(view, decision);
  }

  /// Gives running requests their tokens: decodes, then unfinished prompts. While a decode cannot append, the request
  /// that arrived last is preempted. True when any was.
  ///
  /// The rule takes running requests in order of arrival. A decision lets the first decodes in batch order run, and
  /// those come before prompts here. The two differ only after a swap: a request that is swapped in joins the batch
  /// behind later arrivals, and a prompt may be computed again while a later arrival decodes.
  bool run(const View& view, Decision& decision) {
    bool preempted = false;
    while (!decodes_fit(view)) {
      preempt(view, by_arrival(running_).back(), decision);
      preempted = true;
    }
    for (const Phase phase : {Phase::decoding, Phase::prefilling}) {
      for (const RequestId id : phase == Phase::decoding ? running_ : by_arrival(running_)) {
        const RequestView request = view.request(id);
        if (request.phase == phase && runs(budget_)) give(view, request, decision);
      }
    }
    return preempted;
  }
  /// With chunked prefill a request without a token of the budget does not run.
  [[nodiscard]] bool runs(std::int64_t budget) const { return !chunked() || budget > 0; }
  /// Can every decode that runs append a token, one after the other?
  [[nodiscard]] bool decodes_fit(const View& view) const {
    std::int64_t left = free_blocks(view);
    if (left < 0) return false;  // the room has become less than what is in use (Pie, section 4.1)
    std::int64_t budget = budget_;
    for (const RequestId id : running_) {
      const RequestView request = view.request(id);
      if (request.phase != Phase::decoding || !runs(budget--)) continue;
      if (left < blocks_to_append(view, request)) return false;
      left -= blocks_lacking(view, request, 1);
    }
    return true;
  }
  /// The first block manager wants a free block for every sequence, even when its last block has room.
  [[nodiscard]] std::int64_t blocks_to_append(const View& view, const RequestView& request) const {
    const auto manager = settings_.get<std::string>("policy.block_manager");
    const bool old = settings_.get<std::string>("policy.version") != "0.6.3";
    return manager == "v1" || (manager == "auto" && old) ? 1 : blocks_lacking(view, request, 1);
  }
  void give(const View& view, const RequestView& request, Decision& decision) {
    const std::int64_t tokens = request.phase == Phase::decoding ? 1 : std::min(request.remaining().count(), budget_);
    budget_ -= tokens;
    if (request.phase == Phase::decoding) {
      ++decodes_;
      promised_ += blocks_lacking(view, request, 1);
    } else {
      decision.chunk(request.id, Tokens(tokens));
    }
  }

  void preempt(const View& view, RequestId victim, Decision& decision) {
    const RequestView request = view.request(victim);
    const bool swap = settings_.get<std::string>("engine.preemption") == "swap";
    const bool goes_out = request.held <= view.tier(kHostTier).free;
    // One that could never come back, even to an empty GPU, is recomputed too.
    const std::int64_t total = view.tier(kGpuTier).total.count();
    const bool comes_back = total - (request.held.count() + 1) >= watermark(total);
    remove(running_, victim);
    if (swap && goes_out && comes_back) {
      decision.leave(victim, Leave::preempt_swap);
      swapped_.push_back(victim);
    } else {
      decision.leave(victim, Leave::preempt_recompute);
      push_front(waiting_, victim);
    }
  }

  void swap_in(const View& view, Decision& decision) {
    for (const RequestId id : by_arrival(swapped_)) {
      const RequestView request = view.request(id);
      if (full() || budget_ <= 0) return decision.blocked(full() ? Blocked::batch_size : Blocked::token_budget);
      const std::int64_t left = free_blocks(view) - promised_ - (request.held.count() + 1);
      if (left < watermark(view.tier(kGpuTier).total.count())) return decision.blocked(Blocked::kv_capacity);
      remove(swapped_, id);
      running_.push_back(id);
      decision.resume(id);
      give(view, view.request(id), decision);
    }
  }

  bool admit(const View& view, Decision& decision) {
    bool any = false;
    while (!waiting_.empty()) {
      const RequestView head = view.request(waiting_.front());
      const std::int64_t prompt = head.remaining().count();
      const bool too_long = !chunked() && prompt > settings_.get<std::int64_t>("engine.max_num_batched_tokens");
      const std::int64_t most = view.tier(kGpuTier).most.count();
      if (too_long || most - blocks_of(view, head.known.count()) < watermark(most)) {
        remove(waiting_, head.id);
        decision.reject(head.id);
        continue;
      }
      if (full()) {
        decision.blocked(Blocked::batch_size);
        break;
      }
      if (chunked() ? budget_ <= 0 : prompt > budget_) {
        decision.blocked(Blocked::token_budget);
        break;
      }
      const std::int64_t left = free_blocks(view) - blocks_taken(view, head.id, head.known.count());
      if (left < watermark(view.tier(kGpuTier).total.count())) {
        decision.blocked(Blocked::kv_capacity);
        break;
      }
      remove(waiting_, head.id);
      running_.push_back(head.id);
      decision.join(head.id);
      decision.reserve(head.id, head.known);
      const std::int64_t tokens = std::min(view.request(head.id).remaining().count(), budget_);
      decision.chunk(head.id, Tokens(tokens));
      budget_ -= tokens;
      any = true;
    }
    return any;
  }

  [[nodiscard]] bool chunked() const { return settings_.get<bool>("engine.chunked_prefill"); }
  [[nodiscard]] bool full() const {
    return static_cast<std::int64_t>(running_.size()) >= settings_.get<std::int64_t>("engine.max_num_seqs");
  }
  [[nodiscard]] std::int64_t watermark(std::int64_t blocks) const {
    return watermark_of(settings_.get<double>("policy.watermark"), blocks);
  }

  const Settings settings_;
  Ids waiting_;
  Ids running_;
  Ids swapped_;
  // Of one decision:
  std::int64_t budget_ = 0;
  std::int64_t promised_ = 0;  // free blocks that the decodes will take
  std::int64_t decodes_ = 0;
};

/// Watermarks that count in a small tier, and few seats.
void vary(Dice& dice, Settings& settings) {
  if (dice.chance(60)) settings.set("policy.watermark", 0.01 * static_cast<double>(dice.between(0, 60)));
  if (dice.chance(5)) settings.set("policy.watermark", 1.0);
  if (dice.chance(30)) settings.set("engine.max_num_seqs", dice.between(1, 3));
  // More decodes than the token budget: nothing is left for swapped requests.
  if (dice.chance(20)) {
    settings.set("engine.max_num_seqs", dice.between(4, 24));
    settings.set("engine.max_num_batched_tokens", dice.between(1, 6));
    settings.set("engine.chunked_prefill", false);
    settings.set("engine.preemption", std::string("swap"));
  }
}

const RegisterPlain kRegistered{
    PlainPolicy{.name = "vllm-v0",
                .make =
                    [](const PolicyContext& context) {
                      return Policy{std::make_unique<PlainVllmV0>(context.settings), std::make_unique<UnaskedSpace>()};
                    },
                .vary = vary,
                .explains_waiting = true}};

}  // namespace
}  // namespace spillway::oracle
