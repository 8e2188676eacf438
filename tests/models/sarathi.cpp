// Sarathi-Serve from its rule (Agrawal et al., OSDI 2024, Algorithm 3): every decode first, then unfinished prompts,
// then new ones fill up the chunk. The chunk is constant, or decreases over the stages of a prompt as
// sarathi_scheduler.py computes it.
#include <memory>

#include "tests/models/plain_policy.hpp"
#include "tests/models/plain_space.hpp"

namespace spillway::oracle {
namespace {

class PlainSarathi final : public Scheduler {
 public:
  explicit PlainSarathi(const Settings& settings) : settings_(settings) {}

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId id, Outcome) override {
    remove(waiting_, id);
    remove(running_, id);
  }

  void decide(const View& view, const KvSpace&, Decision& decision) override {
    std::int64_t used = decode(view, decision);
    decision.decodes(used);
    for (const RequestId id : by_arrival(running_)) {
      const RequestView request = view.request(id);
      if (request.phase != Phase::prefilling) continue;
      const std::int64_t tokens = std::min(request.remaining().count(), chunk(request.computed.count()) - used);
      if (tokens <= 0) continue;
      decision.chunk(id, Tokens(tokens));
      used += tokens;
    }
    admit(view, decision, used);
  }

 private:
  /// Decodes in order of arrival, each of which wants a free block; on shortage the request that arrived last is
  /// computed again. Returns how many go on.
  std::int64_t decode(const View& view, Decision& decision) {
    std::int64_t decodes = 0;
    std::int64_t promised = 0;  // free blocks that they will take
    for (const RequestId id : by_arrival(running_)) {
      if (std::find(running_.begin(), running_.end(), id) == running_.end()) continue;  // preempted meanwhile
      const RequestView request = view.request(id);
      if (request.phase != Phase::decoding) continue;
      bool itself = false;
      while (!itself && free_blocks(view) - promised < 1) {
        const RequestId victim = by_arrival(running_).back();
        itself = victim == id;
        remove(running_, victim);
        decision.leave(victim, Leave::preempt_recompute);
        push_front(waiting_, victim);
      }
      if (itself) break;
      ++decodes;
      promised += blocks_lacking(view, request, 1);
    }
    return decodes;
  }

  void admit(const View& view, Decision& decision, std::int64_t used) {
    while (!waiting_.empty()) {
      const RequestView head = view.request(waiting_.front());
      const std::int64_t most = view.tier(kGpuTier).most.count();
      if (most - blocks_of(view, head.known.count()) < watermark(most)) {
        remove(waiting_, head.id);
        decision.reject(head.id);
        continue;
      }
      if (static_cast<std::int64_t>(running_.size()) >= settings_.get<std::int64_t>("engine.max_num_seqs")) {
        return decision.blocked(Blocked::batch_size);
      }
      // A new prompt is at its first stage.
      const std::int64_t left = chunk(0) - used;
      if (left <= 0) return decision.blocked(Blocked::token_budget);
      const std::int64_t spare = free_blocks(view) - blocks_taken(view, head.id, head.known.count());
      if (spare < watermark(view.tier(kGpuTier).total.count())) return decision.blocked(Blocked::kv_capacity);
      remove(waiting_, head.id);
      running_.push_back(head.id);
      decision.join(head.id);
      decision.reserve(head.id, head.known);
      const std::int64_t tokens = std::min(view.request(head.id).remaining().count(), left);
      decision.chunk(head.id, Tokens(tokens));
      used += tokens;
    }
  }

  /// The chunk for a prompt of which so many tokens are computed.
  [[nodiscard]] std::int64_t chunk(std::int64_t computed) const {
    if (!settings_.get<bool>("policy.dynamic_chunks")) {
      return settings_.get<std::int64_t>("engine.max_num_batched_tokens");
    }
    const auto low = settings_.get<std::int64_t>("policy.low_chunk");
    const auto high = settings_.get<std::int64_t>("policy.high_chunk");
    const auto stages = settings_.get<std::int64_t>("policy.chunk_stages");
    const auto span = settings_.get<std::int64_t>("policy.chunk_schedule_tokens");
    // Tokens of a stage: ceil(span / stages). Behind the last stage its chunk stays.
    std::int64_t stage_tokens = 1;
    while (stage_tokens * stages < span) ++stage_tokens;
    std::int64_t stage = 0;
    while (stage < stages - 1 && computed >= (stage + 1) * stage_tokens) ++stage;
    // linspace(low, high, stages) read backwards, cast to whole tokens. A single stage has the low chunk.
    const std::int64_t position = stages - 1 - stage;
    std::int64_t tokens = low;
    if (stages > 1 && position == stages - 1) tokens = high;
    if (stages > 1 && position < stages - 1) {
      const double rise = static_cast<double>(high - low) / static_cast<double>(stages - 1);
      tokens = static_cast<std::int64_t>(static_cast<double>(position) * rise + static_cast<double>(low));
    }
    // Rounded to a multiple of min(32, low), half to even.
    const std::int64_t unit = std::min<std::int64_t>(32, low);
    std::int64_t units = tokens / unit;
    const std::int64_t rest = tokens % unit;
    if (2 * rest > unit || (2 * rest == unit && units % 2 == 1)) ++units;
    return units * unit;
  }
  [[nodiscard]] std::int64_t watermark(std::int64_t blocks) const {
    return watermark_of(settings_.get<double>("policy.watermark"), blocks);
  }

  const Settings settings_;
  Ids waiting_;
  Ids running_;
};

/// Watermarks that count in a small tier; few and short stages, fewer tokens than stages among them.
void vary(Dice& dice, Settings& settings) {
  if (dice.chance(50)) settings.set("policy.watermark", 0.01 * static_cast<double>(dice.between(0, 60)));
  if (dice.chance(5)) settings.set("policy.watermark", 1.0);
  if (dice.chance(30)) settings.set("engine.max_num_seqs", dice.between(1, 3));
  settings.set("policy.dynamic_chunks", dice.chance(70));
  const std::int64_t low = dice.chance(30) ? dice.between(30, 70) : dice.between(1, 20);
  settings.set("policy.low_chunk", low);
  settings.set("policy.high_chunk", low + (dice.chance(10) ? 0 : dice.between(0, 100)));
  settings.set("policy.chunk_stages", dice.chance(10) ? 10'000 : dice.between(1, 12));
  settings.set("policy.chunk_schedule_tokens", dice.chance(20) ? dice.between(1, 8) : dice.between(1, 200));
}

const RegisterPlain kRegistered{
    PlainPolicy{.name = "sarathi",
                .make =
                    [](const PolicyContext& context) {
                      return Policy{std::make_unique<PlainSarathi>(context.settings), std::make_unique<UnaskedSpace>()};
                    },
                .vary = vary,
                .explains_waiting = true}};

}  // namespace
}  // namespace spillway::oracle
