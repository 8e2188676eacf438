// Pensieve in plain words. Rules: Yu, Lin and Li, Pensieve, EuroSys 2025, sections 4 and 5.
//
//  1. KV of an ended turn stays. A chunk of a resting conversation is on the GPU alone (dirty), on its way to the host
//     (leaving), on both (clean), on the host alone, or dropped. It is worth (c + A(l)) / T; LRU: 1 / T; farthest next
//     use: the more, the earlier the next turn comes.
//  2. A step that lacks blocks takes those of clean chunks, the least valuable first. Where the host has no place and
//     nothing to drop, those of dirty chunks as well.
//  3. Running requests that lack blocks for their next tokens leave, youngest first. Their KV goes to the host, where
//     it takes the place of the least valuable chunks. What finds no place there is dropped, from the start on.
//  4. The head of the queue enters if more than the reserve is free afterwards, counting clean chunks as free and the
//     next tokens of running requests as taken; one that can never leave the reserve enters if it fits. If dirty chunks
//     would have to go for it, they are copied out, and it waits.
//  5. Then chunks are copied out until the share of free, clean and leaving blocks is that of the threshold. On a full
//     host the least valuable chunk is dropped; the incoming one itself if it is worth less than those there.
#include "tests/models/pensieve.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/models/counting.hpp"
#include "tests/models/plain_policy.hpp"

namespace spillway::oracle {
namespace {

/// One block of a context.
struct State {
  bool gpu = false;
  bool host = false;
  bool leaving = false;
  bool operator==(const State&) const = default;
  [[nodiscard]] bool dirty() const { return gpu && !host && !leaving; }
  [[nodiscard]] bool clean() const { return gpu && host && !leaving; }
  [[nodiscard]] bool stored() const { return host && !leaving; }
};

std::vector<State> states_of(const View& view, const Holder& holder) {
  std::vector<State> states;
  for (const KvRun& run : view.runs(holder)) {
    for (std::int64_t i = 0; i < run.blocks.count(); ++i) {
      states.push_back({run.on(kGpuTier), run.on(kHostTier), run.moving()});
    }
  }
  return states;
}

/// Blocks of one chunk that are in one state.
struct Piece {
  std::int64_t conversation = -1;
  std::int64_t first = 0;
  std::int64_t end = 0;
  State state{};
  double value = 0.0;
  std::int64_t chunk = 0;
  [[nodiscard]] std::int64_t blocks() const { return end - first; }
  [[nodiscard]] Holder holder() const { return holder_of_conversation(conversation); }
  [[nodiscard]] BlockRange range() const { return {Blocks(first), Blocks(end)}; }
  [[nodiscard]] auto rank() const { return std::tuple(value, first, conversation); }
};

class Space final : public OffloadPolicy {
 public:
  explicit Space(const PolicyContext& context)
      : view_(context.view),
        model_(context.deployment.planner()),
        chunk_tokens_(context.settings.get<std::int64_t>("policy.chunk_tokens")),
        threshold_(context.settings.get<double>("policy.swap_out_threshold")),
        reserve_(context.settings.get<double>("policy.decode_reserve")),
        beside_(context.settings.get<std::int64_t>("policy.cost_beside_tokens")),
        linear_share_(context.settings.get<double>("policy.cost_linear_share")),
        eviction_(context.settings.get<std::string>("policy.eviction")) {}

  [[nodiscard]] Fit admits(const RequestView& request, Tokens upto) const override {
    const std::int64_t longest = blocks_of(view_, (request.input + request.max_new_tokens).count());
    if (static_cast<double>(longest) > (1.0 - reserve_) * static_cast<double>(total())) return Fit::never;
    return fit(request, with_context(request, upto));
  }
  [[nodiscard]] Fit resumes(const RequestView& request, Tokens upto) const override {
    return fit(request, with_context(request, upto));
  }
  [[nodiscard]] Fit grows(const RequestView& request, Tokens upto) const override {
    const std::int64_t more = blocks_of(view_, upto.count()) - request.held.count();
    if (more <= within_reach()) return Fit::now;
    const std::int64_t resting = count(kNobody, [](const State& s) { return s.gpu; });
    return more <= free_blocks(view_) + resting ? Fit::after_moves : Fit::later;
  }
  [[nodiscard]] Fit decodes(std::int64_t count) const override {
    return view_.decode_growth(count).count() <= within_reach() ? Fit::now : Fit::later;
  }
  [[nodiscard]] Leave preempts(const RequestView&) const override { return Leave::suspend; }
  [[nodiscard]] bool suspends_whole(const RequestView& request) const override {
    const std::vector<State> states = states_of(view_, holder(request.id));
    const std::int64_t go = std::count_if(states.begin(), states.end(), [](const State& s) { return s.dirty(); });
    return go <= host_free() + count(kNobody, [](const State& s) { return s.stored(); });
  }

  [[nodiscard]] bool keeps(const View&, const RequestView& request, Outcome outcome) override {
    if (outcome == Outcome::finished) active_[request.conversation] = view_.now();
    return outcome == Outcome::finished;
  }

  void makes_room(const View&, Blocks needed, Placement& placement) override { take(needed.count(), placement); }

  void returns(const View&, const RequestView& request, Placement& placement) override {
    const Holder whose = holder(request.id);
    const std::vector<State> states = states_of(view_, whose);
    const auto away = [](const State& state) { return state.host && !state.gpu; };
    take(std::count_if(states.begin(), states.end(), away) - free_blocks(view_), placement);
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (!away(states[i])) continue;
      std::size_t end = i;
      while (end < states.size() && away(states[end])) ++end;
      placement.move({.holder = whose,
                      .range = range(i, end),
                      .from = kHostTier,
                      .to = kGpuTier,
                      .keep = true,
                      .waits = Waits::layers});
      i = end;
    }
  }

  void leaves(const View&, const RequestView& request, Placement& placement) override {
    const Holder whose = holder(request.id);
    swapped_.push_back(request.id);
    const std::vector<State> before = states_of(view_, whose);
    const std::int64_t go = std::count_if(before.begin(), before.end(), [](const State& s) { return s.dirty(); });
    while (host_free() < go) {
      const auto stored = such_pieces([](const Piece& piece) { return piece.state.stored(); });
      if (stored.empty()) break;
      placement.drop(stored.front().holder(), stored.front().range(), kNoTier);
    }
    std::int64_t homeless = go - host_free();
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (before[i].clean()) placement.drop(whose, range(i, i + 1), kGpuTier);
      if (!before[i].dirty()) continue;
      if (homeless-- > 0) {
        placement.drop(whose, range(i, i + 1), kNoTier);
        continue;
      }
      placement.move(
          {.holder = whose, .range = range(i, i + 1), .from = kGpuTier, .to = kHostTier, .waits = Waits::iteration});
    }
  }

  void fetches(const View&, const RequestView& request, Tokens asked, Placement& placement) override {
    if (request.phase == Phase::prefilling || request.phase == Phase::decoding)
      return make_way(request, asked, placement);
    const Tokens upto = with_context(request, asked);
    const std::int64_t spare = request.phase == Phase::swapped ? kNobody : request.conversation;
    const std::int64_t lacking = lacks(request, upto);
    for (;;) {
      const std::int64_t coming = count(spare, [](const State& s) { return s.clean() || s.leaving; }) +
                                  forgets(request, [](const State& s) { return s.gpu; });
      if (enough(free() + coming, lacking, upto)) return;
      const auto dirty = such_pieces([&](const Piece& p) { return p.state.dirty() && p.conversation != spare; });
      if (dirty.empty()) return;
      copy_out(dirty.front(), spare, placement);
    }
  }

  void places(const View&, Placement& placement) override {
    // What was on its way when its request left.
    std::erase_if(swapped_,
                  [&](RequestId id) { return !view_.alive(id) || view_.request(id).phase != Phase::swapped; });
    for (const RequestId id : swapped_) {
      const std::vector<State> states = states_of(view_, holder(id));
      for (std::size_t i = 0; i < states.size(); ++i) {
        if (states[i].clean()) placement.drop(holder(id), range(i, i + 1), kGpuTier);
      }
    }
    for (;;) {
      const std::int64_t soon = count(kNobody, [](const State& s) { return s.clean() || s.leaving; });
      const std::int64_t there = free_blocks(view_) + soon;
      if (static_cast<double>(there) >= threshold_ * static_cast<double>(total())) return;
      const auto dirty = such_pieces([](const Piece& piece) { return piece.state.dirty(); });
      if (dirty.empty()) return;
      copy_out(dirty.front(), kNobody, placement);
    }
  }

 private:
  static constexpr std::int64_t kNobody = -1;

  static BlockRange range(std::size_t first, std::size_t end) {
    return {Blocks(static_cast<std::int64_t>(first)), Blocks(static_cast<std::int64_t>(end))};
  }
  [[nodiscard]] std::int64_t total() const { return view_.tier(kGpuTier).total.count(); }
  [[nodiscard]] std::int64_t host_free() const { return view_.tier(kHostTier).free.count(); }
  [[nodiscard]] std::int64_t free() const { return free_blocks(view_) - view_.batch().decode_growth.count(); }
  /// Tokens of its context, from the start, that need not be forgotten when it enters.
  static Tokens own(const RequestView& request) {
    return request.phase == Phase::swapped ? request.known : request.reusable;
  }

  /// (c + A(l)) of a chunk that ends so many tokens after the start: sampled at powers of two, linear between them.
  [[nodiscard]] double cost(std::int64_t context) const {
    const auto length = [&](const std::vector<PrefillChunk>& chunks) {
      BatchShape shape;
      shape.chunks = chunks;
      const IterationTime time = model_.iteration(shape);
      return time.shares.compute + time.shares.memory + time.shares.network;
    };
    const auto sample = [&](std::int64_t end) {
      const PrefillChunk chunk{Tokens(chunk_tokens_), Tokens(end - chunk_tokens_)};
      if (beside_ == 0) return length({chunk});
      const PrefillChunk other{Tokens(beside_), Tokens(0)};
      return length({chunk, other}) - length({other});
    };
    std::int64_t low = 1;
    while (low < chunk_tokens_) low *= 2;
    if (context <= low) return sample(low);
    while (2 * low < context) low *= 2;
    const double share = static_cast<double>(context - low) / static_cast<double>(low);
    return sample(low) + share * (sample(2 * low) - sample(low));
  }

  [[nodiscard]] double value(std::int64_t conversation, std::int64_t context, SimTime active) const {
    if (eviction_ == "farthest-next-use") {
      const SimTime next = view_.next_turn(conversation);
      return next == kNever ? -std::numeric_limits<double>::infinity() : -static_cast<double>(next.ns());
    }
    const auto rested = static_cast<double>((view_.now() - active).count());
    if (rested <= 0.0) return std::numeric_limits<double>::infinity();
    return (eviction_ == "lru" ? 1.0 : cost(context) - (1.0 - linear_share_) * cost(1)) / rested;
  }

  /// All chunks of resting conversations, in the order in which they go.
  [[nodiscard]] std::vector<Piece> pieces() const {
    std::vector<Piece> all;
    const std::int64_t per_block = view_.block_tokens().count();
    for (const auto& [conversation, active] : active_) {
      const std::int64_t tokens = view_.kept(conversation).count();
      if (tokens == 0) continue;
      const std::vector<State> states = states_of(view_, holder_of_conversation(conversation));
      for (std::size_t i = 0; i < states.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        const std::int64_t chunk = at * per_block / chunk_tokens_;
        const bool goes_on = !all.empty() && all.back().conversation == conversation && all.back().chunk == chunk &&
                             all.back().state == states[i];
        if (goes_on) {
          all.back().end = at + 1;
        } else {
          all.push_back({conversation, at, at + 1, states[i], 0.0, chunk});
        }
        all.back().value = value(conversation, std::min(tokens, all.back().end * per_block), active);
      }
    }
    std::sort(all.begin(), all.end(), [](const Piece& a, const Piece& b) { return a.rank() < b.rank(); });
    return all;
  }
  template <class Test>
  [[nodiscard]] std::vector<Piece> such_pieces(Test test) const {
    std::vector<Piece> some;
    for (const Piece& piece : pieces()) {
      if (test(piece)) some.push_back(piece);
    }
    return some;
  }
  /// Blocks of all resting conversations but one.
  template <class Test>
  [[nodiscard]] std::int64_t count(std::int64_t but, Test test) const {
    std::int64_t sum = 0;
    for (const Piece& piece : pieces()) sum += piece.conversation != but && test(piece.state) ? piece.blocks() : 0;
    return sum;
  }

  /// The host has no place, and nothing of resting conversations to drop.
  [[nodiscard]] bool host_shut() const {
    return host_free() + count(kNobody, [](const State& s) { return s.stored(); }) <= 0;
  }
  /// Free blocks, and those that can be free at once.
  [[nodiscard]] std::int64_t within_reach() const {
    const bool shut = host_shut();
    return free_blocks(view_) + count(kNobody, [&](const State& s) { return s.clean() || (shut && s.dirty()); });
  }
  [[nodiscard]] std::int64_t lacks(const RequestView& request, Tokens upto) const {
    const bool back = request.phase == Phase::swapped;
    const std::vector<State> states =
        states_of(view_, back ? holder(request.id) : holder_of_conversation(request.conversation));
    const std::int64_t wanted = blocks_of(view_, upto.count());
    std::int64_t lacking = wanted;
    const std::int64_t stay = blocks_of(view_, own(request).count());
    for (std::size_t i = 0; i < states.size() && static_cast<std::int64_t>(i) < stay; ++i) {
      lacking -= states[i].gpu ? 1 : 0;
    }
    return lacking;
  }
  /// The request gets room to grow to `upto` tokens.
  void make_way(const RequestView& request, Tokens upto, Placement& placement) {
    const std::int64_t more = blocks_of(view_, upto.count()) - request.held.count();
    while (free_blocks(view_) + count(kNobody, [](const State& s) { return s.clean() || s.leaving; }) < more) {
      const auto dirty = such_pieces([](const Piece& piece) { return piece.state.dirty(); });
      if (dirty.empty()) return;
      copy_out(dirty.front(), kNobody, placement);
    }
  }
  /// `upto` tokens, or all of the context that comes back, with its gaps.
  [[nodiscard]] Tokens with_context(const RequestView& request, Tokens upto) const {
    const bool back = request.phase == Phase::swapped;
    return std::max(upto, back ? view_.block_tokens() * request.held.count() : own(request));
  }
  /// For a context of `tokens`.
  [[nodiscard]] bool enough(std::int64_t available, std::int64_t lacking, Tokens tokens) const {
    const double reserve = reserve_ * static_cast<double>(total());
    const bool never = static_cast<double>(total() - blocks_of(view_, tokens.count())) <= reserve;
    return never ? available >= lacking : static_cast<double>(available - lacking) > reserve;
  }
  [[nodiscard]] Fit fit(const RequestView& request, Tokens upto) const {
    const std::int64_t lacking = lacks(request, upto);
    const std::int64_t own = request.phase == Phase::swapped ? kNobody : request.conversation;
    const bool shut = host_shut();
    const std::int64_t now = count(own, [&](const State& s) { return s.clean() || (shut && s.dirty()); }) +
                             forgets(request, [](const State& s) { return s.gpu && !s.leaving; });
    if (enough(free() + now, lacking, upto)) return Fit::now;
    const auto on_gpu = [](const State& s) { return s.gpu; };
    if (enough(free() + count(own, on_gpu) + forgets(request, on_gpu), lacking, upto)) return Fit::after_moves;
    return view_.batch().running == 0 ? Fit::after_moves : Fit::later;
  }
  /// Blocks of its own context that a request does not use, in such a state.
  template <class Test>
  [[nodiscard]] std::int64_t forgets(const RequestView& request, Test test) const {
    if (request.phase == Phase::swapped) return 0;
    const std::vector<State> states = states_of(view_, holder_of_conversation(request.conversation));
    std::int64_t sum = 0;
    for (std::int64_t i = blocks_of(view_, own(request).count()); i < std::ssize(states); ++i) {
      sum += test(states[static_cast<std::size_t>(i)]) ? 1 : 0;
    }
    return sum;
  }

  void take(std::int64_t blocks, Placement& placement) {
    while (blocks > 0) {
      const auto clean = such_pieces([](const Piece& piece) { return piece.state.clean(); });
      if (!clean.empty()) {
        blocks -= clean.front().blocks();
        placement.drop(clean.front().holder(), clean.front().range(), kGpuTier);
        continue;
      }
      const auto dirty = such_pieces([](const Piece& piece) { return piece.state.dirty(); });
      if (!host_shut() || dirty.empty()) return;
      blocks -= dirty.front().blocks();
      placement.drop(dirty.front().holder(), dirty.front().range(), kNoTier);
    }
  }

  void copy_out(const Piece& piece, std::int64_t spare, Placement& placement) {
    while (host_free() < piece.blocks()) {
      const auto stored =
          such_pieces([&](const Piece& other) { return other.state.stored() && other.conversation != spare; });
      if (stored.empty() || piece.rank() < stored.front().rank()) {
        return placement.drop(piece.holder(), piece.range(), kNoTier);
      }
      placement.drop(stored.front().holder(), stored.front().range(), kNoTier);
    }
    placement.move({.holder = piece.holder(),
                    .range = piece.range(),
                    .from = kGpuTier,
                    .to = kHostTier,
                    .keep = true,
                    .yields = true});
  }

  const View& view_;
  const ExecutionModel& model_;
  const std::int64_t chunk_tokens_;
  const double threshold_;
  const double reserve_;
  const std::int64_t beside_;
  const double linear_share_;
  const std::string eviction_;
  std::map<std::int64_t, SimTime> active_;  // when the last turn of a conversation ended
  Ids swapped_;
};

class Unified final : public Scheduler {
 public:
  explicit Unified(const Settings& settings)
      : most_tokens_(settings.get<std::int64_t>("engine.max_num_batched_tokens")),
        seats_(settings.get<std::int64_t>("engine.max_num_seqs")),
        unified_(settings.get<bool>("policy.unified")) {}

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId, Outcome) override {}

  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    forget_ended(waiting_, view);
    forget_ended(running_, view);
    bool left = false;
    while (kv.decodes(view.batch().decoding) != Fit::now) {
      const RequestId youngest = by_arrival(running_).back();
      remove(running_, youngest);
      waiting_.push_back(youngest);
      decision.leave(youngest, Leave::suspend);
      left = true;
    }
    const std::int64_t prompts = left ? 0 : enter(view, kv, decision);
    decision.decodes(prompts > 0 && !unified_ ? 0 : view.batch().decoding);
  }

 private:
  std::int64_t enter(const View& view, const KvSpace& kv, Decision& decision) {
    std::int64_t tokens = 0;
    for (const RequestId id : by_arrival(waiting_)) {
      const bool back = view.request(id).phase == Phase::swapped;
      const auto ask = [&] {
        const RequestView request = view.request(id);
        return back ? kv.resumes(request, request.known) : kv.admits(request, request.known);
      };
      if (ask() == Fit::never) {
        decision.reject(id);
        remove(waiting_, id);
        continue;
      }
      if (count(running_) == seats_ || tokens >= most_tokens_) {
        decision.blocked(count(running_) == seats_ ? Blocked::batch_size : Blocked::token_budget);
        return tokens;
      }
      if (ask() == Fit::after_moves) decision.fetch(id, view.request(id).known);
      if (ask() != Fit::now) {
        decision.blocked(Blocked::kv_capacity);
        if (ask() == Fit::after_moves) decision.idle();
        return tokens;
      }
      remove(waiting_, id);
      if (back) {
        decision.resume(id);
      } else {
        decision.join(id);
      }
      running_.push_back(id);
      const RequestView inside = view.request(id);
      if (inside.phase == Phase::decoding) continue;
      decision.chunk(id, inside.remaining());
      tokens += inside.remaining().count();
    }
    return tokens;
  }

  const std::int64_t most_tokens_;
  const std::int64_t seats_;
  const bool unified_;
  Ids waiting_;
  Ids running_;
};

/// Which turn comes next is a question of conversations, which PlainPensieve draws.
void without_oracle(Dice& dice, Settings& settings) {
  settings.set("policy.eviction", std::string(dice.chance(50) ? "retention" : "lru"));
}

const RegisterPlain kRegistered{PlainPolicy{.name = "pensieve",
                                            .make =
                                                [](const PolicyContext& context) {
                                                  Policy policy;
                                                  policy.scheduler = plain_pensieve_scheduler(context.settings);
                                                  policy.space = plain_pensieve_space(context);
                                                  return policy;
                                                },
                                            .vary = spillway::oracle::without_oracle,
                                            .explains_waiting = true}};

}  // namespace

std::unique_ptr<OffloadPolicy> plain_pensieve_space(const PolicyContext& context) {
  return std::make_unique<Space>(context);
}
std::unique_ptr<Scheduler> plain_pensieve_scheduler(const Settings& settings) {
  return std::make_unique<Unified>(settings);
}

}  // namespace spillway::oracle
