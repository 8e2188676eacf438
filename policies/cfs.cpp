// CFS: completely fair scheduling of requests in slices, over memory to which requests are paged out.
//
// Source: AQUA (arXiv 2407.21255), section 7. Every k iterations, when a request ends, and when one arrives for whom
// there is room, the batch is chosen anew: prompts with the fewest computed tokens, then decodes with the fewest
// generated ones, as many as fit in memory and in the token budget. Those that were not chosen are paged out, then
// those that were chosen come in. The batch stays for a slice of k iterations. policy.rules=code is the scheduler of
// the public code instead (aquaml/vllm_cfs, ba90bac, vllm/core/scheduler.py), which has no chunked prefill.
//
// Cost: O(batch * log requests) per slice, O(prompts of the batch that are not complete) per iteration in between.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policies/parts/admission.hpp"
#include "policies/parts/borrowing.hpp"
#include "policies/parts/fair_ranking.hpp"
#include "policies/parts/fcfs_queue.hpp"
#include "policies/parts/paging.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

constexpr const char* kSlice = "policy.slice";
constexpr const char* kPageOut = "policy.page_out";
constexpr const char* kMaxPaddings = "policy.max_paddings";
constexpr const char* kSlices = "slices";
constexpr const char* kPageOuts = "page_outs";

Figures figures_of(std::int64_t slices, std::int64_t page_outs) {
  return {{kSlices, static_cast<double>(slices)}, {kPageOuts, static_cast<double>(page_outs)}};
}

/// The paper's scheduler. It answers what the paper leaves open thus:
///  * A batch that lacks memory for its next tokens is chosen anew before its slice is over.
///  * Where nothing can be paged out, requests are served first come, first served: decodes, prompts in the batch, then
///    others. If nothing can go on, the request that arrived last is recomputed. So the one that arrived first ends.
///  * Once a request had to be recomputed, this holds until one has ended, whether requests can be paged out or not:
///    two prompts could else take each other's memory for ever.
///  * Over memory that keeps KV of others outside the batch (Pensieve's conversations), a prompt waits in the batch for
///    copies that make room for its tokens, and so does a decode that is alone. Nothing is lost for such room.
class FairScheduler final : public Scheduler {
 public:
  explicit FairScheduler(const Settings& settings)
      : budget_(settings.get<std::int64_t>("engine.max_num_batched_tokens")),
        seats_(std::min(settings.get<std::int64_t>("engine.max_num_seqs"), budget_.count())),
        slice_(settings.get<std::int64_t>(kSlice)),
        leave_for_room_only_(settings.get<std::string>(kPageOut) == "for-room") {}

  void arrived(const RequestView& request) override {
    ranking_.put_first(request.id);
    newcomers_.push_back(request.id);
  }
  void ended(RequestId id, Outcome) override {
    ranking_.remove(id);
    if (std::erase(batch_, id) > 0) left_ = 0;
    std::erase(prompts_, id);
    short_ = false;
  }

  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    if (left_ > 0 && goes_on(view, kv)) {
      --left_;
      go_on(view, kv, decision);
    } else {
      choose(view, kv, decision);
    }
    newcomers_.clear();
  }

  [[nodiscard]] Figures figures() const override { return figures_of(slices_, page_outs_); }

 private:
  // --- within a slice

  [[nodiscard]] bool goes_on(const View& view, const KvSpace& kv) const {
    const std::int64_t decoding = view.batch().decoding;
    if (view.batch().running == 0 || kv.decodes(decoding) != Fit::now) return false;
    if (room_for_newcomer(view, kv)) return false;
    if (decoding > 0) return true;
    if (prompts_.empty()) return false;
    const RequestView first = view.request(prompts_.front());
    return kv.grows(first, first.computed + std::min(first.remaining(), budget_)) == Fit::now;
  }
  [[nodiscard]] bool room_for_newcomer(const View& view, const KvSpace& kv) const {
    if (newcomers_.empty() || view.batch().running >= seats_) return false;
    Tokens left = budget_ - Tokens(view.batch().decoding);
    for (const RequestId id : prompts_) left -= view.request(id).remaining();
    if (left <= Tokens(0)) return false;
    return std::ranges::any_of(newcomers_, [&](RequestId id) {
      if (!view.alive(id)) return false;
      const RequestView request = view.request(id);
      return kv.admits(request, first_part(view, request, left)) == Fit::now;
    });
  }
  void go_on(const View& view, const KvSpace& kv, Decision& decision) {
    if (prompts_.empty()) return;
    const std::int64_t decoding = view.batch().decoding;
    decision.decodes(decoding);
    Tokens left = budget_ - Tokens(decoding);
    std::erase_if(prompts_, [&](RequestId id) {
      const RequestView request = view.request(id);
      const Tokens part = std::min(request.remaining(), left);
      if (part <= Tokens(0)) return false;
      if (kv.grows(request, request.computed + part) != Fit::now) {
        left = Tokens(0);
        left_ = 0;
        return false;
      }
      decision.chunk(id, part);
      left -= part;
      return part == request.remaining();
    });
  }

  // --- a new slice

  void choose(const View& view, const KvSpace& kv, Decision& decision) {
    left_ = slice_ - 1;
    ++slices_;
    awaits_moves_ = false;
    for (const RequestId id : batch_) ranking_.update(view.request(id));
    Tokens for_prompts = budget_ - Tokens(decodes_that_fit(view, kv));
    line_up(view, for_prompts);
    fair_ = !short_ && (leaving_.empty() || may_leave(view, kv, leaving_.back()));
    if (!fair_) for_prompts = Tokens(0);
    const Tokens taken = admit_prompts(view, kv, decision, for_prompts);
    const bool decode = choose_decodes(view, kv, decision, budget_ - taken);
    decision.decodes(decode ? view.batch().decoding : 0);
    compute_prompts(view, kv, decision);
    page_out_the_rest(view, kv, decision);
    const bool somebody_left = !paged_out_.empty();
    remember(view);
    if (parts_.empty() && !(decode && view.batch().decoding > 0)) stuck(view, decision, somebody_left);
  }

  /// d: decodes that could be in memory together.
  [[nodiscard]] std::int64_t decodes_that_fit(const View& view, const KvSpace& kv) const {
    auto next = ranking_.decodes().begin();
    std::int64_t seats = seats_;
    return kv.together(view, [&] {
      if (next == ranking_.decodes().end() || seats-- == 0) return kNoRequest;
      return (next++)->id;
    });
  }

  /// Who leaves first when room is needed: prompts that get no tokens, then decodes, then prompts that would; each the
  /// most served first.
  void line_up(const View& view, Tokens for_prompts) {
    chosen_.clear();
    first_prompts_.clear();
    for (auto at = ranking_.prompts().begin(); at != ranking_.prompts().end() && for_prompts > Tokens(0); ++at) {
      first_prompts_.push_back(at->id);
      mark(at->id).first_prompt = slices_;
      for_prompts -= view.request(at->id).remaining();
    }
    leaving_ = batch_;
    const auto order = [&](RequestId id) {
      const auto [decodes, served, serial] = ranking_.standing(id);
      const bool first = mark(id).first_prompt == slices_;
      return std::tuple(first ? 0 : decodes ? 1 : 2, served, serial);
    };
    std::ranges::sort(leaving_, {}, order);
  }

  struct Mark {
    std::int64_t chosen = 0;  // the last slice for which it was chosen
    std::int64_t first_prompt = 0;
    std::int64_t left = 0;
  };
  Mark& mark(RequestId id) {
    if (marks_.size() <= id.slot) marks_.resize(id.slot + 1);
    return marks_[id.slot];
  }
  [[nodiscard]] bool chosen(RequestId id) { return mark(id).chosen == slices_; }
  void choose(RequestId id) {
    chosen_.push_back(id);
    mark(id).chosen = slices_;
  }
  [[nodiscard]] static bool may_leave(const View& view, const KvSpace& kv, RequestId id) {
    return kv.suspends_whole(view.request(id));
  }

  /// One request of the batch makes room for those that were less served. False: nobody can.
  bool page_out_one(const View& view, const KvSpace& kv, Decision& decision) {
    while (!leaving_.empty() && chosen(leaving_.back())) leaving_.pop_back();
    if (short_ || leaving_.empty() || !may_leave(view, kv, leaving_.back())) return false;
    page_out(leaving_.back(), decision);
    leaving_.pop_back();
    return true;
  }
  /// It does not come back before the next slice.
  void page_out(RequestId id, Decision& decision) {
    decision.leave(id, Leave::suspend);
    mark(id).left = slices_;
    paged_out_.push_back(id);
    ++page_outs_;
  }
  bool make_seat(const View& view, const KvSpace& kv, Decision& decision) {
    while (view.batch().running >= seats_) {
      if (page_out_one(view, kv, decision)) continue;
      decision.blocked(Blocked::batch_size);
      return false;
    }
    return true;
  }
  /// Others leave until `ask()` says that there is room.
  template <class Ask>
  Fit make_room(const View& view, const KvSpace& kv, Decision& decision, Ask ask) {
    Fit fit = ask();
    while (fit == Fit::later && page_out_one(view, kv, decision)) fit = ask();
    if (fit == Fit::later) decision.blocked(Blocked::kv_capacity);
    return fit;
  }

  /// A prompt is in the batch with memory for its next `tokens` tokens, or as many as are left. Empty: it was rejected.
  std::optional<Fit> enter(const View& view, const KvSpace& kv, Decision& decision, RequestId id, Tokens tokens) {
    if (mark(id).left == slices_) return Fit::later;
    const RequestView request = view.request(id);
    // Who leaves may take a part of the prefix with it that a waiting request would have found.
    const auto upto = [&] {
      return request.phase == Phase::waiting ? first_part(view, request, tokens)
                                             : request.computed + std::min(request.remaining(), tokens);
    };
    if (request.phase == Phase::prefilling) {
      mark(id).chosen = slices_;  // it does not make room for itself
      const auto ask = [&] { return kv.grows(request, upto()); };
      const Fit room = make_room(view, kv, decision, ask);
      const Fit fit = fetch_and_ask(id, upto(), room, decision, ask);
      if (fit == Fit::now || fit == Fit::after_moves) {
        chosen_.push_back(id);
      } else {
        mark(id).chosen = 0;
        if (std::ranges::find(leaving_, id) == leaving_.end()) leaving_.push_back(id);
      }
      return fit;
    }
    const auto ask = [&] {
      return request.phase == Phase::waiting ? kv.admits(request, upto()) : kv.resumes(request, upto());
    };
    if (ask() == Fit::never) {
      decision.reject(id);
      ranking_.remove(id);
      return std::nullopt;
    }
    if (!make_seat(view, kv, decision)) return Fit::later;
    const Fit room = make_room(view, kv, decision, ask);
    const Fit fit = fetch_and_ask(id, upto(), room, decision, ask);
    if (fit != Fit::now) return fit;
    request.phase == Phase::waiting ? decision.join(id) : decision.resume(id);
    choose(id);
    return fit;
  }
  /// Tokens for which a waiting request needs blocks so that `tokens` of its prompt can be computed.
  static Tokens first_part(const View& view, const RequestView& request, Tokens tokens) {
    return std::min(request.known, std::max(request.computed, view.cached_prefix(request.id).tokens) + tokens);
  }

  /// Steps 2 and 3, prompts: takes the memory for their tokens. Returns how many.
  Tokens admit_prompts(const View& view, const KvSpace& kv, Decision& decision, Tokens for_prompts) {
    Tokens left = for_prompts;
    parts_.clear();
    for (const RequestId id : first_prompts_) {
      if (left <= Tokens(0)) break;
      const std::optional<Fit> fit = enter(view, kv, decision, id, left);
      if (!fit) continue;
      if (!take(*fit)) break;
      left -= reserve_part(view, decision, id, left);
    }
    return for_prompts - left;
  }
  Tokens reserve_part(const View& view, Decision& decision, RequestId id, Tokens most) {
    const RequestView request = view.request(id);
    const Tokens part = std::min(request.remaining(), most);
    decision.reserve(id, request.computed + part);
    parts_.push_back({id, part});
    return part;
  }
  /// Moves that must end first are asked for again in the next iteration.
  bool take(Fit fit) {
    if (fit == Fit::after_moves) {
      left_ = 0;
      awaits_moves_ = true;
    }
    return fit == Fit::now;
  }

  /// The next token of a decode waits for memory that others outside the batch give up.
  bool awaits_room(const View& view, const KvSpace& kv, Decision& decision, RequestId id) {
    const RequestView request = view.request(id);
    const auto ask = [&] { return kv.grows(request, request.known); };
    const Fit fit = fetch_and_ask(id, request.known, ask(), decision, ask);
    if (take(fit) || fit != Fit::after_moves) return false;
    choose(id);
    std::erase(leaving_, id);
    return true;
  }

  /// Step 3, decodes: those in the batch keep their memory and get more; less served ones come in.
  /// False: one that is alone waits for the memory of its next token.
  bool choose_decodes(const View& view, const KvSpace& kv, Decision& decision, Tokens left) {
    while (kv.decodes(view.batch().decoding) != Fit::now) {
      if (view.batch().running == 1 && awaits_room(view, kv, decision, view.last_joined())) return false;
      if (!page_out_one(view, kv, decision)) recompute_last(view, decision);
    }
    for (const FairRanking::Rank& rank : ranking_.decodes()) {
      if (left <= Tokens(0)) break;
      const RequestView request = view.request(rank.id);
      if (request.phase == Phase::swapped) {
        if (mark(rank.id).left == slices_ || !make_seat(view, kv, decision)) break;
        const auto ask = [&] { return kv.resumes(request, request.known); };
        const Fit there = make_room(view, kv, decision, ask);
        if (!take(fetch_and_ask(rank.id, request.known, there, decision, ask))) break;
        decision.resume(rank.id);
      } else if (request.phase != Phase::decoding) {
        continue;  // recomputed just now
      }
      choose(rank.id);
      left -= Tokens(1);
    }
    std::erase_if(leaving_, [&](RequestId id) {
      const bool decodes = view.request(id).phase == Phase::decoding;
      if (decodes && !chosen(id) && !short_ && may_leave(view, kv, id)) page_out(id, decision);
      return decodes;
    });
    return true;
  }

  /// Step 3, what the decodes leave: prompts get it, those first that have some already. Then all parts are computed.
  void compute_prompts(const View& view, const KvSpace& kv, Decision& decision) {
    Tokens extra = budget_ - Tokens(view.batch().decoding);
    for (const Part& part : parts_) extra -= part.tokens;
    for (Part& part : parts_) {
      const RequestView request = view.request(part.id);
      const Tokens more = std::min(request.remaining() - part.tokens, extra);
      if (more <= Tokens(0)) continue;
      const auto ask = [&] { return kv.grows(request, request.computed + part.tokens + more); };
      if (make_room(view, kv, decision, ask) != Fit::now) {
        extra = Tokens(0);
        break;
      }
      decision.reserve(part.id, request.computed + part.tokens + more);
      part.tokens += more;
      extra -= more;
    }
    const bool all_fit = fair_ || continue_prompts(view, kv, decision, extra);
    if (all_fit) admit_more(fair_ ? ranking_.prompts() : ranking_.prompts_by_arrival(), view, kv, decision, extra);
    prompts_.clear();
    for (const Part& part : parts_) {
      if (part.tokens < view.request(part.id).remaining()) prompts_.push_back(part.id);
      decision.chunk(part.id, part.tokens);
    }
    if (extra <= Tokens(0) && !ranking_.prompts().empty()) decision.blocked(Blocked::token_budget);
  }

  /// Prompts in the batch, in order of arrival, get what is left. False: one does not fit.
  bool continue_prompts(const View& view, const KvSpace& kv, Decision& decision, Tokens& extra) {
    std::vector<RequestId> there = batch_;
    std::erase_if(there, [&](RequestId id) { return view.request(id).phase != Phase::prefilling; });
    std::ranges::sort(there, {}, &RequestId::serial);
    for (const RequestId id : there) {
      if (extra <= Tokens(0) || chosen(id)) continue;
      if (!take(*enter(view, kv, decision, id, extra))) return false;
      extra -= reserve_part(view, decision, id, extra);
    }
    return true;
  }
  /// Prompts enter in such an order as long as one fits.
  void admit_more(const FairRanking::Order& order, const View& view, const KvSpace& kv, Decision& decision,
                  Tokens& extra) {
    for (auto at = order.begin(); at != order.end() && extra > Tokens(0);) {
      const RequestId id = (at++)->id;
      if (chosen(id)) continue;
      const std::optional<Fit> fit = enter(view, kv, decision, id, extra);
      if (!fit) continue;
      if (!take(*fit)) break;
      extra -= reserve_part(view, decision, id, extra);
    }
  }

  /// Step 4. Only prompts are left in the batch that were not chosen.
  void page_out_the_rest(const View& view, const KvSpace& kv, Decision& decision) {
    if (leave_for_room_only_) return;
    while (page_out_one(view, kv, decision)) {
    }
  }

  /// The request of the batch that arrived last loses its KV.
  void recompute_last(const View& view, Decision& decision) {
    RequestId last = kNoRequest;
    const auto later = [&](RequestId id) {
      const Phase phase = view.request(id).phase;
      const bool runs = phase == Phase::prefilling || phase == Phase::decoding;
      if (runs && (!last.valid() || id.serial > last.serial)) last = id;
    };
    std::ranges::for_each(batch_, later);
    std::ranges::for_each(chosen_, later);
    decision.leave(last, Leave::preempt_recompute);
    short_ = true;
    ranking_.put_first(last);
    mark(last).chosen = 0;
    std::erase(batch_, last);
    std::erase(chosen_, last);
    std::erase(leaving_, last);
    std::erase_if(parts_, [&](const Part& part) { return part.id == last; });
  }

  void remember(const View& view) {
    for (const RequestId id : std::exchange(paged_out_, {})) ranking_.update(view.request(id));
    const auto outside = [&](RequestId id) {
      const Phase phase = view.request(id).phase;
      return phase != Phase::prefilling && phase != Phase::decoding;
    };
    std::erase_if(batch_, [&](RequestId id) { return outside(id) || chosen(id); });
    batch_.insert(batch_.end(), chosen_.begin(), chosen_.end());
  }

  /// Nothing can go on. Who has left makes room for a new decision.
  void stuck(const View& view, Decision& decision, bool somebody_left) {
    left_ = 0;
    if (somebody_left) return;
    if (awaits_moves_) return decision.idle();
    if (view.batch().running > 1) recompute_last(view, decision);
  }

  struct Part {
    RequestId id{};
    Tokens tokens{};
  };

  const Tokens budget_;
  const std::int64_t seats_;
  const std::int64_t slice_;
  const bool leave_for_room_only_;
  FairRanking ranking_;
  std::vector<RequestId> newcomers_;  // since the last decision
  std::vector<RequestId> batch_;      // all requests in it
  std::vector<RequestId> prompts_;    // those that go on with their prompts in this slice
  std::int64_t left_ = 0;             // iterations of the slice
  std::int64_t slices_ = 0;
  std::int64_t page_outs_ = 0;
  bool short_ = false;  // a request had to be recomputed, and none has ended since
  // While a batch is chosen:
  std::vector<RequestId> first_prompts_;  // for which p tokens are enough
  std::vector<RequestId> leaving_;        // of the batch, the first to leave last; the chosen ones stay
  std::vector<RequestId> chosen_;
  std::vector<RequestId> paged_out_;
  std::vector<Part> parts_;  // of prompts, to be computed
  std::vector<Mark> marks_;  // by slot
  bool fair_ = true;
  bool awaits_moves_ = false;
};

/// The scheduler of the public code: whole prompts first, whoever must leave for them, then slices of decodes.
class PublicCodeScheduler final : public Scheduler {
 public:
  explicit PublicCodeScheduler(const Settings& settings)
      : prompt_tokens_(settings.get<std::int64_t>("engine.max_num_batched_tokens")),
        max_num_seqs_(settings.get<std::int64_t>("engine.max_num_seqs")),
        max_paddings_(settings.get<std::int64_t>(kMaxPaddings)),
        slice_(settings.get<std::int64_t>(kSlice)) {}

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId id, Outcome) override {
    if (std::erase(running_, id) > 0 || std::erase(swapped_, id) > 0) ranking_.remove(id);
  }

  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    if (admit(view, kv, decision)) return decision.decodes(0);
    bool somebody_left = false;
    if (left_ == 0 || running_.empty() || kv.decodes(std::ssize(running_)) != Fit::now) {
      somebody_left = choose(view, kv, decision);
    }
    --left_;
    if (running_.empty() && !somebody_left) decision.idle();
  }

  [[nodiscard]] Figures figures() const override { return figures_of(slices_, page_outs_); }

 private:
  /// As many waiting prompts as fit, in order of arrival, each padded to the longest of them. The requests that run
  /// leave one after the other, the one that has run longest first, until the first prompt fits.
  bool admit(const View& view, const KvSpace& kv, Decision& decision) {
    Tokens longest;
    Tokens sum;
    std::int64_t count = 0;
    for (RequestId head = waiting_.head(view); head.valid(); head = waiting_.head(view)) {
      const RequestView request = view.request(head);
      const auto ask = [&] { return kv.admits(request, request.known); };
      if (request.known > prompt_tokens_ || ask() == Fit::never) {
        waiting_.pop_front();
        decision.reject(head);
        continue;
      }
      while (count == 0 && ask() == Fit::later && page_out_first(view, kv, decision)) {
      }
      if (fetch_and_ask(head, request.known, ask(), decision, ask) != Fit::now) {
        decision.blocked(Blocked::kv_capacity);
        break;
      }
      if (view.batch().running >= max_num_seqs_) {
        decision.blocked(Blocked::batch_size);
        break;
      }
      const Tokens most = std::max(longest, request.remaining());
      const Tokens padded = most * (count + 1);
      const Tokens tokens = sum + request.remaining();
      if (padded > prompt_tokens_ || padded - tokens > max_paddings_) {
        decision.blocked(Blocked::token_budget);
        break;
      }
      waiting_.pop_front();
      decision.join(head);
      decision.chunk(head, view.request(head).remaining());
      running_.push_back(head);
      ranking_.put_first(head);
      longest = most;
      sum = tokens;
      ++count;
    }
    return count > 0;
  }
  bool page_out_first(const View& view, const KvSpace& kv, Decision& decision) {
    if (running_.empty() || !kv.suspends_whole(view.request(running_.front()))) return false;
    ranking_.update(view.request(running_.front()));
    page_out(running_.front(), decision);
    running_.erase(running_.begin());
    return true;
  }
  void page_out(RequestId id, Decision& decision) {
    decision.leave(id, Leave::suspend);
    ++page_outs_;
    swapped_.push_back(id);
  }

  /// The least served, as many as fit, for a slice. True: somebody left.
  bool choose(const View& view, const KvSpace& kv, Decision& decision) {
    left_ = slice_;
    ++slices_;
    for (const RequestId id : running_) ranking_.update(view.request(id));
    std::vector<RequestId> chosen;
    auto next = ranking_.decodes().begin();
    const std::int64_t fit = kv.together(view, [&] {
      if (next == ranking_.decodes().end() || std::ssize(chosen) == max_num_seqs_) return kNoRequest;
      chosen.push_back((next++)->id);
      return chosen.back();
    });
    chosen.resize(std::min(chosen.size(), static_cast<std::size_t>(std::max<std::int64_t>(fit, 1))));
    std::vector<RequestId> leaving = running_;
    std::erase_if(leaving, [&](RequestId id) { return std::ranges::find(chosen, id) != chosen.end(); });
    std::ranges::sort(leaving, {}, [&](RequestId id) { return ranking_.standing(id); });
    for (const RequestId id : leaving) {
      std::erase(running_, id);
      leave(view, kv, decision, id);
    }
    bool somebody_left = !leaving.empty();
    for (const RequestId id : chosen) {
      const RequestView request = view.request(id);
      const auto ask = [&] { return kv.resumes(request, request.known); };
      if (request.phase != Phase::swapped) continue;
      if (fetch_and_ask(id, request.known, ask(), decision, ask) != Fit::now) continue;
      decision.resume(id);
      std::erase(swapped_, id);
      running_.push_back(id);
    }
    // Memory that keeps KV of others, too, may have less for decodes than blocks.
    while (!running_.empty() && lack_memory(view, kv)) {
      const auto last = std::ranges::max_element(running_, {}, [&](RequestId id) { return ranking_.standing(id); });
      const RequestId id = *last;
      running_.erase(last);
      leave(view, kv, decision, id);
      somebody_left = true;
    }
    return somebody_left;
  }
  /// A request that is alone goes on without a spare block.
  [[nodiscard]] bool lack_memory(const View& view, const KvSpace& kv) const {
    if (running_.size() > 1) return kv.decodes(std::ssize(running_)) != Fit::now;
    const RequestView request = view.request(running_.front());
    return kv.grows(request, request.known) != Fit::now;
  }
  /// It is paged out, or recomputed.
  void leave(const View& view, const KvSpace& kv, Decision& decision, RequestId id) {
    if (kv.suspends_whole(view.request(id))) return page_out(id, decision);
    decision.leave(id, Leave::preempt_recompute);
    ranking_.remove(id);
    waiting_.push_front(id);
  }

  const Tokens prompt_tokens_;
  const std::int64_t max_num_seqs_;
  const Tokens max_paddings_;
  const std::int64_t slice_;
  FcfsQueue waiting_;
  FairRanking ranking_;             // of those that run or are swapped
  std::vector<RequestId> running_;  // the one that joined first comes first
  std::vector<RequestId> swapped_;
  std::int64_t left_ = 0;  // iterations of the slice
  std::int64_t slices_ = 0;
  std::int64_t page_outs_ = 0;
};

bool public_code(const Settings& settings) { return settings.get<std::string>("policy.rules") == "code"; }

std::unique_ptr<Scheduler> make_scheduler(const PolicyContext& context) {
  if (public_code(context.settings)) return std::make_unique<PublicCodeScheduler>(context.settings);
  return std::make_unique<FairScheduler>(context.settings);
}

std::vector<Parameter> parameters() {
  std::vector<Parameter> all{
      {.name = "policy.rules",
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "paper",
       .choices = {"paper", "code"},
       .doc = "paper: chunked prefill within the token budget; a new slice begins when a request ends, or when a "
              "request that fits arrives. code: whole prompts run first, in iterations of their own; slices contain "
              "decodes only; moving a context copies all of its memory (memory.peer_cache)",
       .source = "AQUA, section 7; aquaml/vllm_cfs (ba90bac), vllm/core/scheduler.py"},
      {.name = kSlice,
       .type = ParameterType::integer,
       .unit = "iterations",
       .default_value = "6",
       .minimum = 1,
       .maximum = 1e6,
       .doc = "Length of a slice: iterations after which the batch is chosen anew. Short slices are fairer and page "
              "more. With policy.rules=code only decode iterations count",
       .source = "The paper gives no number; the public code runs a set of requests for 6 decode iterations"},
      {.name = kPageOut,
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "not-chosen",
       .choices = {"not-chosen", "for-room"},
       .doc = "Which prompts leave the GPU when a slice begins. not-chosen: all prompts that get no tokens in the "
              "slice; for-room: only as many of these prompts as must leave to make room for other requests. Used with "
              "policy.rules=paper",
       .source = "not-chosen: AQUA, section 7; for-room: Spillway"},
      {.name = kMaxPaddings,
       .type = ParameterType::integer,
       .unit = "tokens",
       .default_value = "256",
       .minimum = 0,
       .maximum = 1e9,
       .doc = "Maximum padding of all prompts of an iteration together. Used with policy.rules=code",
       .source = "vLLM v0.3.x, SchedulerConfig.max_paddings, 256 by default"}};
  for (Parameter& parameter : paging_parameters("host", "scattered")) all.push_back(std::move(parameter));
  return all;
}

std::vector<Problem> check(const Settings& settings) {
  std::vector<Problem> problems = paging_problems("cfs", settings);
  if (settings.get<bool>("engine.chunked_prefill") == public_code(settings)) {
    problems.push_back({public_code(settings) ? "the public code of cfs computes whole prompts, so it has no chunked "
                                                "prefill"
                                              : "policy cfs divides the token budget, which needs chunked prefill",
                        "engine.chunked_prefill",
                        public_code(settings) ? "leave it at false, or use policy.rules=paper"
                                              : "leave it at true, or use policy.rules=code"});
  }
  return problems;
}

PolicyInfo info() {
  PolicyInfo info;
  info.name = "cfs";
  info.summary =
      "Completely fair scheduling: the least served requests run for a slice of a few iterations, the others are paged "
      "out";
  info.source = "AQUA (arXiv 2407.21255), section 7; aquaml/vllm_cfs (ba90bac), vllm/core/scheduler.py";
  info.limits =
      "The paper leaves open which memory comes first: prompts take it before decodes. When the swap memory is full, "
      "no request leaves for fairness. If KV memory runs short, the request that arrived last is recomputed. The "
      "public code fails in that case. CPU times are those of vLLM 0.5.3, to which the paper ported its scheduler.";
  info.parameters = parameters();
  info.figures = {{kSlices, "slices", "Slices that began, each with a batch chosen anew.", std::nullopt, Merge::mean},
                  {kPageOuts, "page-outs", "Requests that left the batch for memory elsewhere, so that others run.",
                   Better::smaller, Merge::mean}};
  info.takes_kv_over = false;
  info.suspends = true;
  info.admits_parts = true;
  info.default_engine = [](const Settings&) { return "vllm-0.5.3"; };
  info.engine_defaults = [](const Settings& settings) {
    const bool code = settings.has("policy.rules") && public_code(settings);
    return std::map<std::string, std::string>{{"engine.chunked_prefill", code ? "false" : "true"},
                                              {"engine.max_num_batched_tokens", code ? "4096" : "512"},
                                              {"engine.max_num_seqs", "512"},
                                              {"engine.preemption", "recompute"},
                                              {"engine.prefix_caching", "false"},
                                              {"memory.host_kv", "20GB"}};
  };
  info.check = check;
  info.borrows = borrows_memory;
  info.prefix_copies = paging_mechanism;
  info.make = [](const PolicyContext& context) { return Policy{make_scheduler(context), make_paging(context)}; };
  info.make_scheduler = make_scheduler;
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
