// Completely fair scheduling in plain words, as AQUA (section 7) and its public code state it.
//
// Paper. A batch runs for k iterations. It is chosen anew then, and when a request of it has ended, when one has
// arrived that would fit beside it with at least one token, or when it lacks blocks. In the order of service (tokens
// of the prompt computed, or generated; equals by arrival):
//  1. d decodes would fit in memory together. The prompts have p = b - d tokens.
//  2. As long as they have tokens, prompts enter with blocks for them. Then decodes, one token each. What is left goes
//     to the prompts: to those that have some already, then to others.
//  3. Who lacks a seat or blocks has others leave: always the one that stands last of those in the batch and not
//     chosen; the prompts of step 2 stand first, then decodes, then other prompts. If that one finds no place
//     elsewhere, nobody else of this kind enters.
//  4. Who is not chosen leaves.
//  5. When from the start nobody can leave, decodes come first, then prompts in the batch, then others, all prompts in
//     order of arrival. Where decodes lack blocks, or nothing can go on, the last arrival is recomputed. From then on
//     nobody leaves, and this rule holds, until a request has ended.
// In the iterations in between the decodes go on, and the chosen prompts with what the decodes leave.
//
// Public code. Whole prompts have iterations of their own as soon as one fits; the request that has run longest leaves
// for the first of them. Else decodes run, those with the fewest tokens, as many as fit with a block to spare each (at
// least one), for k iterations of decodes.
#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <tuple>

#include "tests/models/counting.hpp"
#include "tests/models/plain_policy.hpp"

namespace spillway::oracle {
namespace {

/// Where requests page to, and what is there already.
class PlainPages {
 public:
  PlainPages(const PolicyContext& context, bool spare) : view_(context.view), spare_(spare) {
    if (context.settings.get<std::string>("policy.swap_tier") == "peer") {
      for (std::size_t i = 0; i < context.graph.tiers.size(); ++i) {
        if (context.graph.tiers[i].name == "peer") tiers_.push_back(TierId(static_cast<std::int32_t>(i)));
      }
    }
    tiers_.push_back(kHostTier);
    gathers_ = context.settings.get<std::string>("policy.swap_copies") == "gathered";
    const auto wanted = context.settings.get<std::string>("policy.incremental_swap_out");
    const bool code = context.settings.get<std::string>("policy.rules") == "code";
    stays_ = context.settings.get<std::string>("policy.fallback") == "fcfs";
    copies_stay_ = (wanted == "true" || (wanted == "auto" && code)) && !view_.caches_prefixes();
  }
  /// The first tier with room for what is not there already.
  [[nodiscard]] TierId place(const RequestView& request) const {
    std::int64_t needed = request.held.count();
    if (copies_stay_) {
      for (const KvRun& run : view_.runs(holder(request.id))) needed -= run.copy == kNoTier ? 0 : run.blocks.count();
    }
    for (const TierId tier : tiers_) {
      if (view_.tier(tier).free.count() >= needed) return tier;
    }
    return kNoTier;
  }
  /// It finds a place, and could come back to an empty GPU.
  [[nodiscard]] bool may_leave(RequestId id) const {
    const RequestView request = view_.request(id);
    const std::int64_t back = std::max(request.held.count(), blocks_of(view_, request.known.count()));
    const std::int64_t total = view_.tier(kGpuTier).total.count();
    const TierId to = place(request);
    return to != kNoTier && !(stays_ && to == kHostTier) && total - back >= watermark();
  }
  [[nodiscard]] bool copies_stay() const { return copies_stay_; }
  [[nodiscard]] CopyMechanism mechanism() const { return gathers_ ? CopyMechanism::gather : CopyMechanism::many; }
  [[nodiscard]] std::int64_t watermark() const {
    return spare_ ? watermark_of(0.01, view_.tier(kGpuTier).total.count()) : 0;
  }

 private:
  const View& view_;
  const bool spare_;
  std::vector<TierId> tiers_;
  bool gathers_ = false;
  bool stays_ = false;  // nobody leaves for the host
  bool copies_stay_ = false;
};

class PlainPaging final : public OffloadPolicy {
 public:
  PlainPaging(const PolicyContext& context, std::shared_ptr<const PlainPages> pages)
      : view_(context.view), pages_(std::move(pages)), keeps_(context.settings.get<bool>("policy.keep_prefixes")) {}
  [[nodiscard]] Retention retention() const override {
    if (keeps_) return {};
    return [](const View&, const FreedBlock&) { return -std::numeric_limits<double>::infinity(); };
  }
  [[nodiscard]] Fit admits(const RequestView&, Tokens) const override { return unasked_.admits({}, {}); }
  [[nodiscard]] Fit grows(const RequestView&, Tokens) const override { return unasked_.grows({}, {}); }
  [[nodiscard]] Fit decodes(std::int64_t) const override { return unasked_.decodes({}); }
  [[nodiscard]] Fit resumes(const RequestView&, Tokens) const override { return unasked_.resumes({}, {}); }
  [[nodiscard]] Leave preempts(const RequestView&) const override { return unasked_.preempts({}); }

  void leaves(const View&, const RequestView& request, Placement& placement) override {
    const TierId place = pages_->place(request);
    std::int64_t first = 0;
    const std::vector<KvRun> runs(view_.runs(holder(request.id)).begin(), view_.runs(holder(request.id)).end());
    for (const KvRun& run : runs) {
      const BlockRange range{Blocks(first), Blocks(first) + run.blocks};
      first += run.blocks.count();
      if (run.copy != kNoTier) {
        placement.drop(holder(request.id), range, kGpuTier);
      } else {
        placement.move({.holder = holder(request.id),
                        .range = range,
                        .from = kGpuTier,
                        .to = place,
                        .mechanism = pages_->mechanism(),
                        .waits = Waits::iteration});
      }
    }
  }
  void returns(const View&, const RequestView& request, Placement& placement) override {
    std::int64_t first = 0;
    const std::vector<KvRun> runs(view_.runs(holder(request.id)).begin(), view_.runs(holder(request.id)).end());
    for (const KvRun& run : runs) {
      const BlockRange range{Blocks(first), Blocks(first) + run.blocks};
      first += run.blocks.count();
      placement.move({.holder = holder(request.id),
                      .range = range,
                      .from = run.tier,
                      .to = kGpuTier,
                      .keep = pages_->copies_stay(),
                      .mechanism = pages_->mechanism(),
                      .waits = Waits::iteration,
                      .in_turn = true});
    }
  }

 private:
  UnaskedSpace unasked_;
  const View& view_;
  std::shared_ptr<const PlainPages> pages_;
  const bool keeps_;  // blocks of the prefix cache without users
};

class PlainFair final : public Scheduler {
 public:
  PlainFair(const Settings& settings, std::shared_ptr<const PlainPages> pages)
      : pages_(std::move(pages)),
        budget_(settings.get<std::int64_t>("engine.max_num_batched_tokens")),
        seats_(std::min(budget_, settings.get<std::int64_t>("engine.max_num_seqs"))),
        k_(settings.get<std::int64_t>("policy.slice")),
        all_leave_(settings.get<std::string>("policy.page_out") == "not-chosen") {}

  void arrived(const RequestView& request) override {
    live_.push_back(request.id);
    new_.push_back(request.id);
  }
  void ended(RequestId id, Outcome) override {
    remove(live_, id);
    if (std::erase(batch_, id) > 0) done_ = k_;
    remove(going_on_, id);
    nobody_leaves_ = false;
  }
  void decide(const View& view, const KvSpace&, Decision& decision) override {
    if (done_ < k_ && goes_on(view)) {
      ++done_;
      go_on(view, decision);
    } else {
      done_ = 1;
      choose(view, decision);
      batch_ = running(live_, view);
    }
    new_.clear();
  }

 private:
  bool goes_on(const View& view) const {
    const Ids decodes = decoding(live_, view);
    if (running(live_, view).empty() || lacking(decodes, view) > free_blocks(view)) return false;
    std::int64_t left = budget_ - count(decodes);
    for (const RequestId id : going_on_) left -= view.request(id).remaining().count();
    for (const RequestId id : new_) {
      if (!view.alive(id) || left <= 0 || count(running(live_, view)) >= seats_) continue;
      if (blocks_taken(view, id, first_part(view, id, left)) <= free_blocks(view)) return false;
    }
    if (!decodes.empty()) return true;
    if (going_on_.empty()) return false;
    const RequestView first = view.request(going_on_.front());
    return blocks_lacking(view, first, std::min(first.remaining().count(), budget_)) <= free_blocks(view);
  }
  void go_on(const View& view, Decision& decision) {
    if (going_on_.empty()) return;
    const Ids decodes = decoding(live_, view);
    std::int64_t left = budget_ - count(decodes);
    decision.decodes(count(decodes));
    for (const RequestId id : Ids(going_on_)) {
      const RequestView request = view.request(id);
      const std::int64_t part = std::min(request.remaining().count(), left);
      if (part <= 0) break;
      if (blocks_lacking(view, request, part) > free_blocks(view)) {
        done_ = k_;
        break;
      }
      if (part == request.remaining().count()) remove(going_on_, id);
      decision.chunk(id, Tokens(part));
      left -= part;
    }
  }
  /// Tokens of a waiting prompt that have blocks once `tokens` of it are computed.
  static std::int64_t first_part(const View& view, RequestId id, std::int64_t tokens) {
    return std::min(view.request(id).known.count(), view.cached_prefix(id).tokens.count() + tokens);
  }

  struct Service {
    bool decodes = false;
    std::int64_t tokens = 0;
  };
  Ids in_order(bool decodes) const {
    Ids some;
    for (const RequestId id : live_) {
      if (service_.at(id).decodes == decodes) some.push_back(id);
    }
    std::sort(some.begin(), some.end(), [&](RequestId a, RequestId b) {
      return std::pair(service_.at(a).tokens, a.serial) < std::pair(service_.at(b).tokens, b.serial);
    });
    return some;
  }
  [[nodiscard]] bool has(const Ids& ids, RequestId id) const {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  }
  /// The last in line of those that could make room; none: kNoRequest.
  RequestId last_in_line(const View& view) const {
    const auto standing = [&](RequestId id) {
      const Service& service = service_.at(id);
      return std::tuple(has(firsts_, id) ? 0 : service.decodes ? 1 : 2, service.tokens, id.serial);
    };
    RequestId last = kNoRequest;
    for (const RequestId id : was_in_batch_) {
      const bool stays = has(chosen_, id) || !runs(view.request(id)) || (decodes_staged_ && service_.at(id).decodes);
      if (!stays && (!last.valid() || standing(id) > standing(last))) last = id;
    }
    return last;
  }
  bool one_leaves(const View& view, Decision& decision) {
    const RequestId last = last_in_line(view);
    if (nobody_leaves_ || !last.valid() || !pages_->may_leave(last)) return false;
    decision.leave(last, Leave::suspend);
    return true;
  }
  /// Blocks that a candidate lacks for its next tokens; decodes in the batch come before one that comes back.
  std::int64_t needs(const View& view, RequestId id, std::int64_t tokens) const {
    const RequestView request = view.request(id);
    if (request.phase == Phase::waiting) return blocks_taken(view, id, first_part(view, id, tokens));
    if (request.phase == Phase::prefilling) return blocks_lacking(view, request, tokens);
    const std::int64_t growth = decodes_staged_ ? 0 : lacking(decoding(live_, view), view);
    return growth + std::max(request.held.count(), blocks_of(view, request.computed.count() + tokens));
  }
  /// True: the candidate is in the batch, or rejected.
  bool enters(const View& view, Decision& decision, RequestId id, std::int64_t tokens) {
    const RequestView request = view.request(id);
    if (has(was_in_batch_, id) && request.phase == Phase::swapped) return false;  // it has left just now
    const std::int64_t part = std::min(tokens, request.remaining().count());
    if (request.phase == Phase::waiting &&
        blocks_of(view, first_part(view, id, tokens)) > view.tier(kGpuTier).most.count()) {
      decision.reject(id);
      remove(live_, id);
      return true;
    }
    chosen_.push_back(id);
    bool room = true;
    while (room && !runs(request) && count(running(live_, view)) >= seats_) room = one_leaves(view, decision);
    if (!room) decision.blocked(Blocked::batch_size);
    const bool seat = room;
    while (room && needs(view, id, part) > free_blocks(view)) room = one_leaves(view, decision);
    if (seat && !room) decision.blocked(Blocked::kv_capacity);
    if (!room) {
      remove(chosen_, id);
      return false;
    }
    if (request.phase == Phase::waiting) decision.join(id);
    if (request.phase == Phase::swapped) decision.resume(id);
    return true;
  }
  void give(const View& view, Decision& decision, RequestId id, std::int64_t& tokens) {
    if (!has(live_, id)) return;
    const std::int64_t part = std::min(tokens, view.request(id).remaining().count());
    decision.reserve(id, view.request(id).computed + Tokens(part));
    parts_[id.serial] = part;
    tokens -= part;
  }
  void recompute(const View& view, Decision& decision) {
    const RequestId last = by_arrival(running(live_, view)).back();
    decision.leave(last, Leave::preempt_recompute);
    nobody_leaves_ = true;
    service_[last] = {};
    remove(chosen_, last);
    parts_.erase(last.serial);
  }

  void choose(const View& view, Decision& decision) {
    service_.clear();
    chosen_.clear();
    firsts_.clear();
    parts_.clear();
    decodes_staged_ = false;
    was_in_batch_ = running(live_, view);
    for (const RequestId id : live_) {
      const RequestView request = view.request(id);
      const bool whole = request.known > request.input && request.remaining() == Tokens(1);
      const bool decodes = request.phase == Phase::decoding || (request.phase == Phase::swapped && whole);
      service_[id] = {decodes, (decodes ? request.known - request.input : request.computed).count()};
    }
    std::int64_t prompts = budget_ - together(view);
    for (std::int64_t left = prompts; const RequestId id : in_order(false)) {
      if (left <= 0) break;
      firsts_.push_back(id);
      left -= view.request(id).remaining().count();
    }
    const RequestId last = last_in_line(view);
    const bool fair = !nobody_leaves_ && (!last.valid() || pages_->may_leave(last));
    if (!fair) prompts = 0;
    std::int64_t left = prompts;
    for (const RequestId id : Ids(firsts_)) {
      if (left <= 0 || !enters(view, decision, id, left)) break;
      give(view, decision, id, left);
    }
    left = budget_ - (prompts - left);
    while (lacking(decoding(live_, view), view) > free_blocks(view)) {
      if (!one_leaves(view, decision)) recompute(view, decision);
    }
    for (const RequestId id : in_order(true)) {
      if (left <= 0) break;
      if (view.request(id).phase == Phase::decoding) {
        chosen_.push_back(id);
      } else if (!enters(view, decision, id, 1)) {
        break;
      }
      --left;
    }
    for (const RequestId id : Ids(line_of_decodes(view))) {
      if (!nobody_leaves_ && pages_->may_leave(id)) decision.leave(id, Leave::suspend);
    }
    decodes_staged_ = true;
    left = budget_ - total(parts_) - count(decoding(live_, view));
    decision.decodes(count(decoding(live_, view)));
    more(view, decision, left, fair);
    if (left <= 0 && !in_order(false).empty()) decision.blocked(Blocked::token_budget);
    going_on_.clear();
    for (const RequestId id : chosen_) {
      const auto part = parts_.find(id.serial);
      if (part == parts_.end()) continue;
      if (part->second < view.request(id).remaining().count()) going_on_.push_back(id);
      decision.chunk(id, Tokens(part->second));
    }
    while (all_leave_ && one_leaves(view, decision)) {
    }
    if (!parts_.empty() || !decoding(live_, view).empty()) return;
    done_ = k_;
    if (count(running(live_, view)) > 1) recompute(view, decision);
  }
  static std::int64_t total(const std::map<std::uint32_t, std::int64_t>& parts) {
    std::int64_t sum = 0;
    for (const auto& [serial, part] : parts) sum += part;
    return sum;
  }
  /// Decodes in the batch that were not chosen, the first in line first.
  Ids line_of_decodes(const View& view) const {
    Ids some;
    for (const RequestId id : in_order(true)) {
      if (!has(chosen_, id) && view.request(id).phase == Phase::decoding) some.push_back(id);
    }
    return some;
  }
  /// What decodes have left goes to prompts.
  void more(const View& view, Decision& decision, std::int64_t& left, bool fair) {
    for (const RequestId id : Ids(chosen_)) {
      if (parts_.count(id.serial) == 0) continue;
      const std::int64_t part = parts_[id.serial];
      const std::int64_t extra = std::min(left, view.request(id).remaining().count() - part);
      if (extra <= 0) continue;
      bool room = true;
      while (room && needs(view, id, part + extra) > free_blocks(view)) room = one_leaves(view, decision);
      if (!room) {
        decision.blocked(Blocked::kv_capacity);
        left = 0;
        break;
      }
      decision.reserve(id, view.request(id).computed + Tokens(part + extra));
      parts_[id.serial] = part + extra;
      left -= extra;
    }
    Ids others = in_order(false);
    if (!fair) {
      others = by_arrival(others);
      std::stable_partition(others.begin(), others.end(), [&](RequestId id) { return runs(view.request(id)); });
    }
    for (const RequestId id : others) {
      if (has(chosen_, id)) continue;
      if (left <= 0 || !enters(view, decision, id, left)) break;
      give(view, decision, id, left);
    }
  }
  std::int64_t together(const View& view) const {
    std::int64_t blocks = 0;
    std::int64_t fit = 0;
    for (const RequestId id : in_order(true)) {
      blocks += blocks_of(view, view.request(id).known.count());
      if (blocks > view.tier(kGpuTier).total.count() || fit == seats_) break;
      ++fit;
    }
    return fit;
  }

  std::shared_ptr<const PlainPages> pages_;
  const std::int64_t budget_;
  const std::int64_t seats_;
  const std::int64_t k_;
  const bool all_leave_;
  Ids live_;
  Ids new_;
  Ids batch_;
  Ids going_on_;  // prompts of the slice that are not complete
  std::int64_t done_ = 0;
  bool nobody_leaves_ = false;
  // Of one decision:
  std::map<RequestId, Service> service_;
  Ids was_in_batch_;
  Ids firsts_;
  Ids chosen_;
  std::map<std::uint32_t, std::int64_t> parts_;  // by serial
  bool decodes_staged_ = false;
};

class PlainPublicCode final : public Scheduler {
 public:
  PlainPublicCode(const Settings& settings, std::shared_ptr<const PlainPages> pages)
      : settings_(settings), pages_(std::move(pages)) {}
  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId id, Outcome) override {
    for (Ids* const ids : {&waiting_, &running_, &swapped_}) remove(*ids, id);
  }
  void decide(const View& view, const KvSpace&, Decision& decision) override {
    if (prompts(view, decision)) return decision.decodes(0);
    if (left_ == 0 || running_.empty() || !can_append(view, running_)) choose(view, decision);
    --left_;
    if (running_.empty()) decision.idle();
  }

 private:
  /// vLLM 0.3: a free block for every sequence, or as here for the last one, whatever its last block holds.
  static bool can_append(const View& view, const Ids& running) {
    const std::int64_t growth = lacking(running, view);
    const bool last_grows = blocks_lacking(view, view.request(running.back()), 1) > 0;
    return growth + (last_grows ? 0 : 1) <= free_blocks(view);
  }
  bool prompts(const View& view, Decision& decision) {
    const auto limit = settings_.get<std::int64_t>("engine.max_num_batched_tokens");
    const std::int64_t total = view.tier(kGpuTier).total.count();
    const std::int64_t most = view.tier(kGpuTier).most.count();
    std::int64_t longest = 0;
    std::int64_t tokens = 0;
    std::int64_t count = 0;
    for (const RequestId id : Ids(waiting_)) {
      const RequestView request = view.request(id);
      const auto fits = [&] {
        return free_blocks(view) - blocks_taken(view, id, request.known.count()) >= watermark_of(0.01, total);
      };
      const bool never = most - blocks_of(view, request.known.count()) < watermark_of(0.01, most);
      if (request.known.count() > limit || never) {
        decision.reject(id);
        remove(waiting_, id);
        continue;
      }
      while (count == 0 && !fits() && !running_.empty() && pages_->may_leave(running_.front())) {
        decision.leave(running_.front(), Leave::suspend);
        swapped_.push_back(running_.front());
        running_.erase(running_.begin());
      }
      const std::int64_t widest = std::max(longest, request.remaining().count());
      const std::int64_t padded = widest * (count + 1);
      const std::int64_t padding = padded - tokens - request.remaining().count();
      const auto stop = [&](Blocked why) {
        decision.blocked(why);
        return count > 0;
      };
      if (!fits()) return stop(Blocked::kv_capacity);
      if (oracle::count(running_) >= settings_.get<std::int64_t>("engine.max_num_seqs"))
        return stop(Blocked::batch_size);
      if (padded > limit || padding > settings_.get<std::int64_t>("policy.max_paddings")) {
        return stop(Blocked::token_budget);
      }
      remove(waiting_, id);
      running_.push_back(id);
      tokens += request.remaining().count();
      decision.join(id);
      decision.chunk(id, view.request(id).remaining());
      longest = widest;
      ++count;
    }
    return count > 0;
  }
  void choose(const View& view, Decision& decision) {
    left_ = settings_.get<std::int64_t>("policy.slice");
    Ids all = by_arrival(running_);
    for (const RequestId id : swapped_) all.push_back(id);
    all = by_arrival(all);
    const auto generated = [&](RequestId id) { return (view.request(id).known - view.request(id).input).count(); };
    std::stable_sort(all.begin(), all.end(), [&](RequestId a, RequestId b) { return generated(a) < generated(b); });
    std::int64_t left = view.tier(kGpuTier).total.count();
    Ids chosen;
    for (const RequestId id : all) {
      left -= blocks_of(view, view.request(id).known.count()) + 1;
      const bool fits = left >= 0 || chosen.empty();
      if (!fits || oracle::count(chosen) == settings_.get<std::int64_t>("engine.max_num_seqs")) break;
      chosen.push_back(id);
    }
    for (const RequestId id : all) {
      const bool stays = std::find(chosen.begin(), chosen.end(), id) != chosen.end();
      if (stays || std::find(running_.begin(), running_.end(), id) == running_.end()) continue;
      remove(running_, id);
      if (pages_->may_leave(id)) {
        decision.leave(id, Leave::suspend);
        swapped_.push_back(id);
      } else {
        decision.leave(id, Leave::preempt_recompute);
        push_front(waiting_, id);
      }
    }
    for (const RequestId id : chosen) {
      const RequestView request = view.request(id);
      if (request.phase != Phase::swapped) continue;
      const std::int64_t back = std::max(request.held.count(), blocks_of(view, request.known.count()));
      const std::int64_t free = free_blocks(view) - lacking(running_, view) - back;
      if (free < pages_->watermark()) continue;
      decision.resume(id);
      remove(swapped_, id);
      running_.push_back(id);
    }
  }

  const Settings settings_;
  std::shared_ptr<const PlainPages> pages_;
  Ids waiting_;
  Ids running_;
  Ids swapped_;
  std::int64_t left_ = 0;
};

Policy make(const PolicyContext& context) {
  const bool code = context.settings.get<std::string>("policy.rules") == "code";
  const auto pages = std::make_shared<const PlainPages>(context, code);
  std::unique_ptr<Scheduler> scheduler = std::make_unique<PlainFair>(context.settings, pages);
  if (code) scheduler = std::make_unique<PlainPublicCode>(context.settings, pages);
  return Policy{std::move(scheduler), std::make_unique<PlainPaging>(context, pages)};
}

/// Short slices, and paddings that matter.
void vary(Dice& dice, Settings& settings) {
  settings.set("policy.slice", dice.between(1, 8));
  if (dice.chance(50)) settings.set("policy.max_paddings", dice.between(0, 20));
}

const RegisterPlain kCfs{PlainPolicy{.name = "cfs", .make = make, .vary = vary, .explains_waiting = true}};
const RegisterPlain kAqua{PlainPolicy{.name = "aqua", .make = make, .vary = vary, .explains_waiting = true}};

}  // namespace
}  // namespace spillway::oracle
