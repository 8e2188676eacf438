#include "tests/oracle/naive_engine.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <tuple>

namespace spillway::oracle {
namespace {

struct Request {
  RequestSpec spec;
  RequestId id;
  RequestRecord record;
  Phase phase = Phase::waiting;
  bool live = false;
  bool in_batch = false;
  bool runs_now = false;   // decodes in this iteration
  bool delivered = false;  // arrives with the KV of its input except the last token
  std::int64_t generated = 0;
  std::int64_t computed = 0;
  std::int64_t staged = 0;  // prompt tokens computed in this iteration
  std::int64_t host_blocks = 0;
  std::vector<int> blocks;   // GPU block table
  std::int64_t offered = 0;  // leading blocks that were full at the last check
  SimTime last_token{};
  [[nodiscard]] std::int64_t known() const { return spec.input.count() + generated; }
};

/// A block of the host tier of the prefix cache.
struct Kept {
  std::vector<std::uint64_t> content;
  bool sent = false;       // its copy was issued beside layers
  SimTime there = kNever;  // end of its copy
  bool found = false;      // can be found from `there` on
};

struct Block {
  int users = 0;
  std::vector<std::uint64_t> content;  // the whole prefix up to the block's end; empty: unknown
};

void need(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

/// Copies of a policy that streams layers, and of KV blocks beside them: one at a time per direction, in order of
/// issue. Each takes its share of the links, which changes whenever a transfer or other traffic starts or ends.
class NaiveLinks final : private CopySink {
 public:
  NaiveLinks(const PlainSurroundings& around, const std::vector<LinkTraffic>& traffic)
      : around_(around), others_(traffic) {}

  /// KV blocks that move when the next iteration's first layer starts. All its layers wait for them, or nothing does;
  /// then `ended` gets the time.
  struct BlockCopy {
    Copy copy{};
    bool waited_for = true;
    std::function<void(SimTime)> ended{};
  };
  void add(BlockCopy blocks) { to_issue_.push_back(std::move(blocks)); }
  /// Time that compute has waited for such copies while it waited for no layer.
  [[nodiscard]] Duration waited_for_blocks() const { return waited_for_blocks_; }

  /// Starts and ends copies up to `until`, including copies that end at `until`. `policy` and `rule` may be null.
  void advance(LayerPolicy* policy, LayerRule* rule, SimTime until) {
    while (true) {
      SimTime next = kNever;
      for (const int direction : {0, 1}) {
        if (!queued_[direction].empty()) next = std::min({next, end_[direction], next_launched(direction)});
      }
      next = std::min(next, next_traffic());
      if (owed_ && std::min(next, until) > now_) {
        settle(rule);
        continue;
      }
      if (next > until || next == kNever) break;
      now_ = next;
      // The way out first, and ends before what else happens at this instant.
      const bool ends[] = {!queued_[0].empty() && end_[0] == now_, !queued_[1].empty() && end_[1] == now_};
      if (ends[1] || ends[0]) {
        finish(ends[1] ? 1 : 0, policy, rule);
      } else {
        share();
        shared_at_ = now_;
      }
    }
    if (until != kNever) now_ = until;
  }
  /// Runs layers with a compute time of `layer` each; returns the end of the last layer.
  SimTime run(LayerPolicy* policy, LayerRule* rule, SimTime start, const std::vector<Duration>& sub_batches,
              int layers) {
    SimTime t = start;
    for (int k = 0; k < layers; ++k) {
      for (int s = 0; s < static_cast<int>(sub_batches.size()); ++s) {
        advance(policy, rule, t);
        owed_ = false;
        if (rule != nullptr) rule->at_layer_start(k, s, *this);
        if (k == 0 && s == 0) issue_blocks();
        advance(policy, rule, t);
        settle(rule);
        advance(policy, rule, t);
        while ((rule != nullptr && !rule->ready(k, s)) || blocks_are_waited_for()) {
          need(!queued_[0].empty() || !queued_[1].empty(), "a layer waits for nothing");
          const bool for_layer = rule != nullptr && !rule->ready(k, s);
          const SimTime from = t;
          // To the next end of a copy, wherever changes on the way put it.
          const std::size_t finished = done_[0].size() + done_[1].size();
          while (done_[0].size() + done_[1].size() == finished) {
            t = next_traffic();
            for (const int direction : {0, 1}) {
              if (!queued_[direction].empty()) t = std::min({t, end_[direction], next_launched(direction)});
            }
            advance(policy, rule, t);
          }
          if (!for_layer) waited_for_blocks_ += t - from;
          settle(rule);
          advance(policy, rule, t);
        }
        t = t + sub_batches[static_cast<std::size_t>(s)];
      }
    }
    return t;
  }
  [[nodiscard]] Bytes issued(int direction) const { return issued_[direction]; }
  /// The time between two instants during which finished copies were in flight.
  [[nodiscard]] Duration copying(int direction, SimTime from, SimTime to) const {
    const auto& done = done_[direction];
    auto copy = std::partition_point(done.begin(), done.end(), [&](const auto& one) { return one.second <= from; });
    Duration total{};
    for (; copy != done.end() && copy->first < to; ++copy) {
      total += std::min(copy->second, to) - std::max(copy->first, from);
    }
    return total;
  }

 private:
  void issue_blocks() {
    for (BlockCopy& blocks : to_issue_) {
      blocks.copy.tag = kBlocks + numbered_++;
      issue(blocks.copy);
      moving_.emplace(blocks.copy.tag, std::move(blocks));
    }
    to_issue_.clear();
  }
  [[nodiscard]] bool blocks_are_waited_for() const {
    return std::any_of(moving_.begin(), moving_.end(), [](const auto& one) { return one.second.waited_for; });
  }
  void settle(LayerRule* rule) {
    if (std::exchange(owed_, false) && rule != nullptr) rule->at_copies_done(*this);
  }
  void issue(const Copy& copy) override {
    const int direction = copy.stream == Stream::h2d ? 0 : 1;
    issued_[direction] += copy.bytes;
    queued_[direction].push_back(copy);
    if (queued_[direction].size() > 1) return;
    start(direction);
    share();
  }
  /// The copy at the head of the queue starts now.
  void start(int direction) {
    const Copy& copy = queued_[direction].front();
    started_[direction] = timed_at_[direction] = now_;
    launch_left_[direction] = copy.launch;
    transfer_left_[direction] = copy.transfer;
    time(direction);
  }
  void time(int direction) {
    end_[direction] = now_ + launch_left_[direction] + plain_needed(transfer_left_[direction], share_[direction]);
  }
  void finish(int direction, LayerPolicy* policy, LayerRule* rule) {
    const Copy copy = queued_[direction].front();
    const SimTime started = started_[direction];
    queued_[direction].pop_front();
    done_[direction].emplace_back(started, now_);
    if (!queued_[direction].empty()) start(direction);
    share();
    if (copy.tag >= kBlocks) {
      const BlockCopy& blocks = moving_.at(copy.tag);
      if (blocks.ended) blocks.ended(now_);
      moving_.erase(copy.tag);
      return;
    }
    policy->copied(copy, started, now_);
    if (rule != nullptr) rule->at_copy_done(copy, *this);
    owed_ = rule != nullptr;
  }
  [[nodiscard]] SimTime launched(int direction) const {
    return started_[direction] + queued_[direction].front().launch;
  }
  /// Ends of launches and other traffic that have been seen do not come again.
  [[nodiscard]] SimTime next_launched(int direction) const {
    const SimTime at = launched(direction);
    return at > now_ || (at == now_ && shared_at_ != now_) ? at : kNever;
  }
  [[nodiscard]] SimTime next_traffic() const {
    SimTime next = kNever;
    for (const LinkTraffic& other : others_) {
      for (const SimTime at : {other.from, other.until}) {
        if (at > now_ || (at == now_ && shared_at_ != now_)) next = std::min(next, at);
      }
    }
    return next;
  }
  /// Bytes/s alone of the copy that transfers; < 0: none does.
  [[nodiscard]] Real rate(int direction) const {
    if (queued_[direction].empty() || launched(direction) > now_) return -1;
    const Copy& copy = queued_[direction].front();
    if (copy.transfer == Duration{}) return around_.totals.empty() ? 0 : -1;
    return plain_rate(copy);
  }
  void share() {
    std::vector<double> traffic;
    for (const LinkTraffic& other : others_) {
      if (other.from <= now_ && now_ < other.until) traffic.push_back(other.share);
    }
    const std::array<Real, 2> rates{rate(0), rate(1)};
    const std::array<Real, 2> shares = plain_shares(around_, traffic, rates);
    for (const int direction : {0, 1}) {
      const auto way = static_cast<std::size_t>(direction);
      if (rates[way] < 0 || same_share(shares[way], share_[direction])) continue;
      const Duration elapsed = now_ - timed_at_[direction];
      const Duration in_launch = std::min(elapsed, launch_left_[direction]);
      launch_left_[direction] -= in_launch;
      transfer_left_[direction] -= plain_done(elapsed - in_launch, share_[direction]);
      timed_at_[direction] = now_;
      share_[direction] = shares[way];
      time(direction);
    }
  }

  static constexpr std::int32_t kBlocks = 1'000'000'000;  // tags from here on are of blocks

  PlainSurroundings around_;
  std::vector<LinkTraffic> others_;
  std::list<Copy> queued_[2];
  // Of the copy in flight: what was left of it, and at which share of its speed it has moved since.
  SimTime started_[2] = {};
  SimTime timed_at_[2] = {};
  Duration launch_left_[2] = {};
  Duration transfer_left_[2] = {};
  Real share_[2] = {1, 1};
  SimTime end_[2] = {};
  SimTime now_{};
  SimTime shared_at_ = kNever;  // the last instant at which launches and other traffic were looked at
  bool owed_ = false;           // copies ended now, but the rule was not yet called
  Bytes issued_[2] = {};
  std::vector<BlockCopy> to_issue_;
  std::map<std::int32_t, BlockCopy> moving_;  // by tag
  std::int32_t numbered_ = 0;
  Duration waited_for_blocks_{};
  std::vector<std::pair<SimTime, SimTime>> done_[2];  // start and end of every finished copy
};

PlainSurroundings surroundings_of(const NaiveConfig& config) {
  PlainSurroundings around = config.links;
  around.sharing = config.model->copy_sharing();
  return around;
}

class NaiveEngine final : public View, private Decision {
 public:
  explicit NaiveEngine(const NaiveConfig& config) : config_(config), links_(surroundings_of(config), config.traffic) {
    block_tokens_ = config.block_tokens;
    max_model_len_ = config.max_model_len;
    blocks_.resize(static_cast<std::size_t>(config.gpu_blocks.count()));
    for (int b = 0; b < static_cast<int>(blocks_.size()); ++b) free_.push_back(b);
    total_ = config.gpu_blocks;
    rebuild();
    policy_ = config.policy->make(PolicyContext{*config.settings, *this, config.deployment});
  }

  NaiveResult run() {
    for (std::size_t i = 0; i < config_.requests.size(); ++i) {
      if (config_.follows[i].after < 0) to_arrive(config_.requests[i].arrival, i);
    }
    if (config_.until) at(*config_.until, 6, 0);
    while (!events_.empty()) {
      const auto [key, target] = *events_.begin();
      events_.erase(events_.begin());
      observe_peaks(std::get<0>(key));
      now_ = std::get<0>(key);
      const int phase = std::get<1>(key);
      if (phase == 6) {
        for (Request& r : requests_) {
          const bool given_up = std::count(expired_.begin(), expired_.end(), r.id) > 0;
          if (r.live) end(r, given_up ? Outcome::timed_out : Outcome::unfinished);
        }
        break;
      }
      if (phase == 1) complete();
      if (phase == 2) expire(requests_[static_cast<std::size_t>(target)]);
      if (phase == 3) {
        --arrivals_left_;
        const auto n = static_cast<std::uint32_t>(requests_.size());
        Request& r = requests_.emplace_back();
        r.spec = config_.requests[static_cast<std::size_t>(target)];
        r.spec.arrival = now_;
        r.id = RequestId{n, n};
        arrive(r);
      }
      if (phase == 4) decide();
      if (phase != 4 && !busy_) at(now_, 4, 0);
      const bool any = std::any_of(requests_.begin(), requests_.end(), [](const Request& r) { return r.live; });
      if (!any && arrivals_left_ == 0) break;
    }
    sum_up_fairness();
    sum_up_iterations();
    if (policy_.layers) {
      links_.advance(policy_.layers.get(), nullptr, kNever);  // copies in flight complete
      result_.layers = policy_.layers->figures();
    }
    return result_;
  }

  // The view is rebuilt after every change.
  [[nodiscard]] RequestView request(RequestId id) const override {
    const Request& r = requests_[id.slot];
    RequestView view;
    view.id = r.id;
    view.phase = r.phase;
    view.client = r.spec.client;
    view.arrival = r.spec.arrival;
    view.input = r.spec.input;
    view.max_new_tokens = r.spec.max_new_tokens;
    view.known = Tokens(r.known());
    view.computed = Tokens(r.computed);
    view.held = Blocks(r.phase == Phase::swapped ? r.host_blocks : static_cast<std::int64_t>(r.blocks.size()));
    return view;
  }
  [[nodiscard]] bool alive(RequestId id) const override { return requests_[id.slot].live; }
  [[nodiscard]] RequestId last_joined() const override { return order_.empty() ? kNoRequest : order_.back(); }
  [[nodiscard]] Blocks decode_growth(std::int64_t decodes) const override {
    if (decodes_staged_) return Blocks(0);
    Blocks growth;
    for (const RequestId id : decoding()) {
      if (decodes-- <= 0) break;
      growth += Blocks(grows_next(id) ? 1 : 0);
    }
    return growth;
  }
  [[nodiscard]] RequestId last_decoding() const override {
    const std::vector<RequestId> ids = decoding();
    return ids.empty() ? kNoRequest : ids.back();
  }
  [[nodiscard]] bool grows_next(RequestId id) const override {
    const Request& r = requests_[id.slot];
    return r.phase == Phase::decoding && (r.computed + 1) > static_cast<std::int64_t>(r.blocks.size()) * per_block();
  }
  [[nodiscard]] CachedPrefix cached_prefix(RequestId id) const override {
    CachedPrefix prefix;
    if (!config_.prefix_caching) return prefix;
    const Request& r = requests_[id.slot];
    for (std::int64_t b = 0; (b + 1) * per_block() < r.known(); ++b) {
      const int block = find(content(r, b));
      if (block < 0 && !on_host(content(r, b))) break;
      prefix.tokens += block_tokens_;
      if (block < 0) prefix.host_blocks += Blocks(1);
      if (block >= 0 && blocks_[static_cast<std::size_t>(block)].users == 0) prefix.idle_blocks += Blocks(1);
    }
    return prefix;
  }

 private:
  [[nodiscard]] std::int64_t per_block() const { return block_tokens_.count(); }

  void to_arrive(SimTime time, std::size_t position) {
    at(time, 3, static_cast<int>(position));
    ++arrivals_left_;
  }
  void at(SimTime time, int phase, int target) { events_.emplace(std::tuple(time, phase, sequence_++), target); }

  [[nodiscard]] std::vector<RequestId> decoding() const {
    std::vector<RequestId> ids;
    for (const RequestId id : order_) {
      if (requests_[id.slot].phase == Phase::decoding) ids.push_back(id);
    }
    return ids;
  }

  void rebuild() {
    batch_ = BatchTotals{};
    Blocks host_used;
    for (const Request& r : requests_) {
      if (r.live && r.phase == Phase::swapped) host_used += Blocks(r.host_blocks);
      if (!r.in_batch) continue;
      ++batch_.running;
      const std::int64_t most = r.spec.input.count() + r.spec.max_new_tokens.count();
      batch_.promised += Blocks((most + per_block() - 1) / per_block());
      if (r.phase != Phase::decoding) continue;
      ++batch_.decoding;
      batch_.decode_context += Tokens(r.computed + 1);
      if (!decodes_staged_) batch_.decode_growth += Blocks(grows_next(r.id) ? 1 : 0);
    }
    tiers_[0] = TierState{total_, Blocks(static_cast<std::int64_t>(free_.size())) - surplus_,
                          std::max(config_.gpu_blocks, config_.most_gpu_blocks)};
    tiers_[1] = TierState{config_.host_blocks, config_.host_blocks - host_used, config_.host_blocks};
    result_.peak_gpu = std::max(result_.peak_gpu, tiers_[0].total - tiers_[0].free);
    result_.peak_host = std::max(result_.peak_host, host_used);
  }

  /// Gives the GPU `total` blocks from now on. New blocks are empty, so they are used first. Surplus blocks leave when
  /// they are free, the least recently freed first.
  void resize(Blocks total) {
    for (; total_ < total; total_ += Blocks(1)) {
      if (surplus_ > Blocks(0)) {
        surplus_ = surplus_ - Blocks(1);
        continue;
      }
      free_.push_front(static_cast<int>(blocks_.size()));
      blocks_.emplace_back();
    }
    for (; total < total_; total_ = total_ - Blocks(1)) surplus_ += Blocks(1);
    drop_surplus();
    rebuild();
  }
  void drop_surplus() {
    for (; surplus_ > Blocks(0) && !free_.empty(); surplus_ = surplus_ - Blocks(1)) {
      blocks_[static_cast<std::size_t>(free_.front())].content.clear();
      free_.pop_front();
    }
  }

  // --- blocks
  [[nodiscard]] std::vector<std::uint64_t> content(const Request& r, std::int64_t last) const {
    std::vector<std::uint64_t> prefix;
    for (std::int64_t b = 0; b <= last; ++b) {
      const bool known = b < static_cast<std::int64_t>(r.spec.prefix_ids.size());
      prefix.push_back(known ? 0 : 1);
      prefix.push_back(known ? r.spec.prefix_ids[static_cast<std::size_t>(b)] : r.id.serial);
    }
    return prefix;
  }
  [[nodiscard]] int find(const std::vector<std::uint64_t>& content) const {
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      if (blocks_[b].content == content) return static_cast<int>(b);
    }
    return -1;
  }
  [[nodiscard]] bool on_host(const std::vector<std::uint64_t>& content) const {
    return std::any_of(host_.begin(), host_.end(),
                       [&](const Kept& kept) { return kept.content == content && kept.found; });
  }
  /// Uses a block of the host tier, or stores a new block there. The list starts with the least recently used block.
  void keep(const std::vector<std::uint64_t>& content) {
    for (auto kept = host_.begin(); kept != host_.end(); ++kept) {
      if (kept->content != content) continue;
      if (kept->found) host_.splice(host_.end(), host_, kept);
      return;
    }
    if (static_cast<std::int64_t>(host_.size()) == config_.host_cache_blocks.count()) {
      const auto oldest = std::find_if(host_.begin(), host_.end(), [](const Kept& kept) { return kept.found; });
      if (oldest == host_.end()) return;
      host_.erase(oldest);
      ++result_.host_evictions;
    }
    host_.push_back(Kept{content});
    ++put_down_;
  }
  /// Processes finished copies to the host in order: each makes its block the most recently used one.
  void collect() {
    std::list<Kept> arrived;
    for (auto kept = host_.begin(); kept != host_.end();) {
      const auto next = std::next(kept);
      if (!kept->found && kept->there <= now_) {
        kept->found = true;
        arrived.splice(arrived.end(), host_, kept);
      }
      kept = next;
    }
    host_.splice(host_.end(), arrived);
  }
  void grow(Request& r, std::int64_t tokens) {
    while (static_cast<std::int64_t>(r.blocks.size()) * per_block() < tokens) {
      need(!free_.empty(), "out of GPU blocks");
      const int block = free_.front();
      free_.pop_front();
      blocks_[static_cast<std::size_t>(block)] = Block{1, {}};
      r.blocks.push_back(block);
    }
  }
  /// A full block is offered to the index once. A second block with equal content stays unnamed.
  void name(Request& r, std::int64_t computed) {
    if (!config_.prefix_caching) return;
    for (; r.offered < computed / per_block(); ++r.offered) {
      Block& block = blocks_[static_cast<std::size_t>(r.blocks[static_cast<std::size_t>(r.offered)])];
      if (find(content(r, r.offered)) < 0) block.content = content(r, r.offered);
      named_.push_back(content(r, r.offered));
    }
  }
  void release(Request& r) {
    for (; !r.blocks.empty(); r.blocks.pop_back()) {
      const int last = r.blocks.back();
      if (--blocks_[static_cast<std::size_t>(last)].users == 0) free_.push_back(last);
    }
    drop_surplus();
    r.offered = 0;
  }

  // --- Decision
  void join(RequestId id) override {
    Request& r = requests_[id.slot];
    need(r.live && r.phase == Phase::waiting, "join");
    if (r.record.first_scheduled == kNever) {
      r.record.first_scheduled = now_;
      serve(r, r.record.input.count());
    }
    while (config_.prefix_caching && static_cast<std::int64_t>(r.blocks.size() + 1) * per_block() < r.known()) {
      const int block = find(content(r, static_cast<std::int64_t>(r.blocks.size())));
      if (block < 0 && !on_host(content(r, static_cast<std::int64_t>(r.blocks.size())))) break;
      if (block >= 0 && blocks_[static_cast<std::size_t>(block)].users++ == 0) free_.remove(block);
      r.blocks.push_back(block);
    }
    for (std::size_t b = 0; b < r.blocks.size(); ++b) {
      if (r.blocks[b] >= 0) continue;
      need(!free_.empty(), "out of GPU blocks");
      r.blocks[b] = free_.front();
      free_.pop_front();
      const auto what = content(r, static_cast<std::int64_t>(b));
      blocks_[static_cast<std::size_t>(r.blocks[b])] = Block{1, what};
      keep(what);
      ++loaded_;
      result_.prefix_hit_host += block_tokens_;
    }
    r.offered = static_cast<std::int64_t>(r.blocks.size());
    const std::int64_t found = r.offered * per_block();
    r.record.cached += Tokens(found);
    result_.prefix_hit += Tokens(found);
    if (r.delivered) {
      grow(r, r.computed);
      name(r, r.computed);
    } else {
      r.computed = found;
    }
    r.phase = Phase::prefilling;
    r.in_batch = true;
    order_.push_back(id);
    rebuild();
  }
  void resume(RequestId id) override {
    Request& r = requests_[id.slot];
    need(r.live && r.phase == Phase::swapped, "resume");
    grow(r, r.host_blocks * per_block());
    name(r, r.computed);
    moved_[0] += r.host_blocks;
    r.host_blocks = 0;
    r.phase = r.generated > 0 && r.known() - r.computed == 1 ? Phase::decoding : Phase::prefilling;
    r.in_batch = true;
    order_.push_back(id);
    rebuild();
  }
  void chunk(RequestId id, Tokens tokens) override {
    Request& r = requests_[id.slot];
    need(r.phase == Phase::prefilling && r.staged == 0 && r.computed + tokens.count() <= r.known(), "chunk");
    r.staged = tokens.count();
    grow(r, r.computed + r.staged);
    name(r, r.computed + r.staged);
    chunks_.push_back(id);
    rebuild();
  }
  void reserve(RequestId id, Tokens upto) override {
    grow(requests_[id.slot], upto.count());
    rebuild();
  }
  void leave(RequestId id, Leave why) override {
    Request& r = requests_[id.slot];
    need(r.in_batch, "leave");
    const bool was_backlogged = backlogged(r.spec.client);
    changed_ = true;
    r.staged = 0;
    std::erase(chunks_, id);
    std::erase(order_, id);
    r.in_batch = false;
    const auto held = static_cast<std::int64_t>(r.blocks.size());
    release(r);
    if (why == Leave::preempt_swap) {
      r.host_blocks = held;
      r.phase = Phase::swapped;
      moved_[1] += held;
      ++r.record.preempted_swap;
      ++result_.preempted_swap;
    } else {
      r.computed = 0;
      r.delivered = false;
      r.phase = Phase::waiting;
      ++r.record.preempted_recompute;
      ++result_.preempted_recompute;
    }
    if (!was_backlogged) lift(r.spec.client);
    rebuild();
    need(tiers_[1].free >= Blocks(0), "out of host blocks");
  }
  void reject(RequestId id) override {
    changed_ = true;
    end(requests_[id.slot], Outcome::rejected);
  }
  void decodes(std::int64_t count) override {
    need(!decodes_staged_, "decodes twice");
    std::vector<RequestId> running = decoding();
    running.resize(static_cast<std::size_t>(count));
    for (const RequestId id : running) {
      Request& r = requests_[id.slot];
      r.runs_now = true;
      grow(r, r.computed + 1);
    }
    for (const RequestId id : running) name(requests_[id.slot], requests_[id.slot].computed + 1);
    decodes_staged_ = true;
    rebuild();
  }
  void idle() override {}
  void blocked(Blocked) override {}

  // --- events
  void arrive(Request& r) {
    const bool was_backlogged = backlogged(r.spec.client);
    r.live = true;
    if (policy_.phases == Phases::decode) {
      r.delivered = true;
      r.computed = r.spec.input.count() - 1;
    }
    r.record.index = r.id.serial;
    r.record.client = r.spec.client;
    r.record.arrival = now_;
    r.record.input = r.spec.input;
    r.record.output = policy_.phases == Phases::prefill ? Tokens(1) : r.spec.output;
    r.record.traits = r.spec.traits;
    if (policy_.phases == Phases::prefill) r.spec.output = r.spec.max_new_tokens = Tokens(1);
    if (r.spec.input + r.spec.max_new_tokens > config_.max_model_len) return end(r, Outcome::rejected);
    if (policy_.padding) {
      if (r.spec.input > policy_.padding->input) return end(r, Outcome::rejected);
      if (r.spec.max_new_tokens > policy_.padding->output) return end(r, Outcome::rejected);
      r.spec.input = policy_.padding->input;
      r.spec.output = r.spec.max_new_tokens = policy_.padding->output;
    }
    seen_.insert(r.spec.client);
    if (!was_backlogged) lift(r.spec.client);
    policy_.scheduler->arrived(request(r.id));
    if (config_.request_timeout) at(now_ + *config_.request_timeout, 2, static_cast<int>(r.id.slot));
  }
  void expire(Request& r) {
    if (!r.live) return;
    if (busy_ && r.in_batch) {
      expired_.push_back(r.id);
      return;
    }
    leave_and_end(r, Outcome::timed_out);
  }
  void leave_and_end(Request& r, Outcome outcome) {
    std::erase(order_, r.id);
    r.in_batch = false;
    release(r);
    end(r, outcome);
    policy_.scheduler->ended(r.id, outcome);
  }
  void end(Request& r, Outcome outcome) {
    r.live = false;
    r.phase = Phase::waiting;
    r.record.outcome = outcome;
    r.record.end = now_;
    r.record.generated = std::min(Tokens(r.generated), r.record.output);
    result_.records.push_back(r.record);
    for (std::size_t i = 0; i < config_.follows.size() && outcome == Outcome::finished; ++i) {
      const Follows& follows = config_.follows[i];
      if (follows.after == r.spec.traits.conversation) to_arrive(now_ + follows.think, i);
    }
    rebuild();
  }

  void decide() {
    if (busy_) return;
    const bool looks_at_host = config_.prefix_caching && config_.host_cache_blocks > Blocks(0);
    if (looks_at_host) links_.advance(policy_.layers.get(), rule_, now_);
    collect();
    moved_[0] = moved_[1] = loaded_ = 0;
    do {  // until something runs, or nothing changes
      decodes_staged_ = false;
      changed_ = false;
      chunks_.clear();
      rebuild();
      if (policy_.layers) resize(policy_.layers->capacity());
      policy_.scheduler->decide(*this, *policy_.space, *this);
      if (!decodes_staged_) decodes(static_cast<std::int64_t>(decoding().size()));
    } while ((changed_ || expands()) && chunks_.empty() && batch_.decoding == 0);

    // The standing decision as a list.
    BatchShape shape;
    std::vector<PrefillChunk> chunks;
    for (const RequestId id : order_) {
      const Request& r = requests_[id.slot];
      if (!r.runs_now) continue;
      ++shape.decode_sequences;
      ++shape.sampled_sequences;
      shape.decode_context += Tokens(r.computed + 1);
      shape.decode_longest = std::max(shape.decode_longest, Tokens(r.computed + 1));
    }
    for (const RequestId id : chunks_) {
      const Request& r = requests_[id.slot];
      if (r.delivered) {
        ++shape.decode_sequences;
        ++shape.sampled_sequences;
        shape.decode_context += Tokens(r.computed + 1);
        shape.decode_longest = std::max(shape.decode_longest, Tokens(r.computed + 1));
        continue;
      }
      chunks.push_back(PrefillChunk{Tokens(r.staged), Tokens(r.computed)});
      if (r.computed + r.staged == r.known()) ++shape.sampled_sequences;
    }
    shape.chunks = chunks;
    prefills_ = !chunks.empty();
    if (shape.empty()) return;
    executed_.push_back({.start = now_});
    busy_ = true;
    start_ = now_;
    executed_.back().end = run_iteration(shape);
    at(executed_.back().end, 1, 0);
  }
  /// Whether the policy added capacity for the head of the queue while nothing runs.
  bool expands() {
    const bool waits = std::any_of(requests_.begin(), requests_.end(), [](const Request& r) { return r.live; });
    if (!policy_.layers || changed_ || !order_.empty() || !waits || !policy_.layers->expand()) return false;
    for (const int block : free_) blocks_[static_cast<std::size_t>(block)].content.clear();
    return true;
  }
  /// Queues the copies of the iteration's blocks on the links of the layers.
  void queue_blocks() {
    const auto queue = [this](int direction, std::int64_t count, std::int64_t copies_per_block,
                              NaiveLinks::BlockCopy how) {
      if (count == 0) return;
      const Stream stream = direction == 0 ? Stream::h2d : Stream::d2h;
      const Bytes bytes = config_.block_bytes * count;
      const CopyTime time = config_.model->copy(stream, copies_per_block * count, bytes, CopyMechanism::many);
      how.copy = {.stream = stream, .bytes = bytes, .launch = time.launch, .transfer = time.transfer};
      links_.add(std::move(how));
    };
    for (const int direction : {0, 1}) queue(direction, moved_[direction], config_.copies_per_block, {});
    queue(0, loaded_, config_.host_cache_copies_per_block, {});
    std::vector<std::vector<std::uint64_t>> stored;
    for (Kept& kept : host_) {
      if (!kept.sent) stored.push_back(kept.content);
      kept.sent = true;
    }
    const auto arrive = [this, stored](SimTime when) {
      for (Kept& kept : host_) {
        if (std::count(stored.begin(), stored.end(), kept.content) > 0) kept.there = when;
      }
    };
    queue(1, std::exchange(put_down_, 0), config_.host_cache_copies_per_block, {.waited_for = false, .ended = arrive});
  }
  SimTime run_iteration(const BatchShape& shape) {
    std::vector<IterationTime> times;
    LayerPolicy* const layers = policy_.layers.get();
    for (const SubBatchShape& part : layers != nullptr ? layers->split(shape) : std::span<const SubBatchShape>()) {
      times.push_back(config_.model->iteration(part.shape));
      times.back().layer += part.cpu_attention;
    }
    if (times.empty()) times.push_back(config_.model->iteration(shape));
    SimTime start = now_;
    std::vector<Duration> layer;
    report_ = LayerReport{};
    for (const IterationTime& time : times) {
      start = start + time.before;
      layer.push_back(time.layer);
      report_.layer += time.layer;
    }
    rule_ = layers != nullptr ? layers->begin(shape, report_.layer) : nullptr;
    queue_blocks();
    const Duration waited = links_.waited_for_blocks();
    links_.advance(layers, rule_, now_);
    SimTime end = links_.run(layers, rule_, start, layer, config_.model->layers());
    report_.stall = end - start - report_.layer * config_.model->layers() - (links_.waited_for_blocks() - waited);
    for (const IterationTime& time : times) end = end + time.after;
    links_.advance(layers, rule_, end);
    for (const int direction : {0, 1}) {
      executed_.back().bytes[direction] = links_.issued(direction) - charged_[direction];
      charged_[direction] = links_.issued(direction);
    }
    executed_.back().stall = report_.stall;
    return end;
  }
  void report_layers() {
    report_.length = now_ - start_;
    report_.tokens = emitted_;
    report_.prefills = prefills_;
    rebuild();
    for (const Request& r : requests_) report_.waiting += r.live && !r.in_batch ? 1 : 0;
    report_.free_share =
        static_cast<double>(std::max(tiers_[0].free, Blocks(0)).count()) / static_cast<double>(tiers_[0].total.count());
    policy_.layers->iteration_ended(report_);
  }

  void complete() {
    busy_ = false;
    executed_.back().ended = true;
    result_.last_completion = now_;
    policy_.scheduler->iteration_ended();
    emitted_ = 0;
    const std::vector<RequestId> order = order_;
    for (const RequestId id : order) {
      Request& r = requests_[id.slot];
      if (!r.runs_now) continue;
      r.runs_now = false;
      ++r.computed;
      r.record.computing += now_ - start_;
      emit(r);
    }
    const std::vector<RequestId> chunks = chunks_;
    for (const RequestId id : chunks) {
      Request& r = requests_[id.slot];
      r.computed += r.staged;
      r.staged = 0;
      r.record.computing += now_ - start_;
      if (r.computed == r.known()) emit(r);
    }
    rebuild();
    collect();
    for (const auto& content : named_) {
      if (config_.host_cache_blocks > Blocks(0)) keep(content);
    }
    named_.clear();
    for (const RequestId id : expired_) expire(requests_[id.slot]);
    expired_.clear();
    if (policy_.layers) report_layers();
    observe_fairness();
  }
  void emit(Request& r) {
    const bool padding = r.generated >= r.record.output.count();
    if (r.record.first_token == kNever) {
      r.record.first_token = now_;
    } else if (!padding) {
      result_.token_gaps.push_back(now_ - r.last_token);
    }
    r.last_token = now_;
    ++r.generated;
    if (!padding) {
      ++emitted_;
      serve(r, 2);
    }
    r.phase = Phase::decoding;
    if (r.generated == r.spec.output.count()) leave_and_end(r, Outcome::finished);
  }

  // --- sums over the measured span: every iteration is an entry of a list, and what a boundary cuts counts in part
  struct Executed {
    SimTime start{};
    SimTime end{};
    bool ended = false;
    Bytes bytes[2] = {};
    Duration stall{};
  };
  /// Extends the state since the last event up to `until`.
  void observe_peaks(SimTime until) {
    if (until <= std::max(now_, config_.measured_from)) return;
    std::int64_t waiting = 0;
    for (const Request& r : requests_) waiting += r.live && !r.in_batch ? 1 : 0;
    result_.peak_waiting = std::max(result_.peak_waiting, waiting);
    if (busy_) result_.peak_batch = std::max(result_.peak_batch, static_cast<std::int64_t>(order_.size()));
  }
  /// The part of `amount` that lies in [measured_from, last], if `amount` is spread evenly over [start, end]; rounded
  /// down.
  [[nodiscard]] std::int64_t part(std::int64_t amount, SimTime start, SimTime end, SimTime last) const {
    const SimTime from = std::max(start, config_.measured_from);
    const SimTime to = std::min(end, last);
    if (from == start && to == end) return amount;
    if (from >= to) return 0;
    __extension__ using Wide = __int128;
    return static_cast<std::int64_t>(Wide{amount} * (to - from).count() / (end - start).count());
  }
  void sum_up_iterations() {
    const bool cut = !executed_.empty() && !executed_.back().ended;
    const SimTime last = cut ? now_ : kNever;
    links_.advance(policy_.layers.get(), nullptr, kNever);
    SimTime before{};
    for (const Executed& one : executed_) {
      result_.iterations += one.ended && one.end >= config_.measured_from ? 1 : 0;
      result_.moved_h2d += Bytes(part(one.bytes[0].count(), one.start, one.end, last));
      result_.moved_d2h += Bytes(part(one.bytes[1].count(), one.start, one.end, last));
      result_.stall += Duration(part(one.stall.count(), one.start, one.end, last));
      for (const int direction : {0, 1}) {
        add_copying(direction, before, one.start, last);
        add_copying(direction, one.start, one.end, last);
      }
      before = one.end;
    }
    // The horizon falls into an idle period.
    if (config_.until && now_ == *config_.until && !cut) {
      for (const int direction : {0, 1}) add_copying(direction, before, now_, kNever);
    }
  }
  void add_copying(int direction, SimTime start, SimTime end, SimTime last) {
    const Duration copying = links_.copying(direction, start, end);
    result_.copying[direction] += Duration(part(copying.count(), start, end, last));
  }

  // --- fairness: every token is an entry of a list, and every figure sums the list anew
  struct Service {
    std::uint32_t client = 0;
    SimTime when{};
    std::int64_t tokens = 0;  // weighted
  };
  void serve(const Request& r, std::int64_t tokens) { served_.push_back({r.spec.client, now_, tokens}); }
  [[nodiscard]] bool backlogged(std::uint32_t client) const {
    return std::any_of(requests_.begin(), requests_.end(), [&](const Request& r) {
      return r.spec.client == client && r.live && (r.phase == Phase::waiting || r.phase == Phase::swapped);
    });
  }
  [[nodiscard]] std::int64_t counter(std::uint32_t client) const {
    std::int64_t sum = 0;
    for (const Service& service : served_) sum += service.client == client ? service.tokens : 0;
    for (const auto& [lifted, tokens] : lifts_) sum += lifted == client ? tokens : 0;
    return sum;
  }
  [[nodiscard]] std::vector<std::int64_t> backlogged_counters(std::optional<std::uint32_t> but) const {
    std::vector<std::int64_t> counters;
    for (const std::uint32_t client : seen_) {
      if (client != but && backlogged(client)) counters.push_back(counter(client));
    }
    return counters;
  }
  /// Call when the client becomes backlogged.
  void lift(std::uint32_t client) {
    const std::vector<std::int64_t> others = backlogged_counters(client);
    if (others.empty()) return;
    const std::int64_t least = *std::min_element(others.begin(), others.end());
    if (counter(client) < least) lifts_.emplace_back(client, least - counter(client));
  }
  void observe_fairness() {
    ++iterations_since_observation_;
    if (iterations_since_observation_ < std::max<std::size_t>(1, seen_.size() / 8)) return;
    iterations_since_observation_ = 0;
    if (now_ < config_.measured_from) return;
    const std::vector<std::int64_t> counters = backlogged_counters(std::nullopt);
    if (counters.size() < 2) return;
    ++result_.service_observations;
    const auto [least, most] = std::minmax_element(counters.begin(), counters.end());
    result_.max_service_difference = std::max(result_.max_service_difference.value_or(0), *most - *least);
  }
  /// Nanoseconds from measured_from on during which the client had a live request.
  [[nodiscard]] std::int64_t active(std::uint32_t client) const {
    std::int64_t total = 0;
    SimTime covered = config_.measured_from;
    for (const Request& r : requests_) {  // in order of arrival
      if (r.spec.client != client || r.record.end == kNever || r.record.end <= covered) continue;
      total += (r.record.end - std::max(covered, r.record.arrival)).count();
      covered = r.record.end;
    }
    return total;
  }
  void sum_up_fairness() {
    for (const Service& service : served_) {
      if (service.when >= config_.measured_from) result_.service[service.client] += service.tokens;
    }
    double n = 0.0;
    double sum = 0.0;
    double squares = 0.0;
    for (const std::uint32_t client : seen_) {
      if (active(client) == 0) continue;
      const double rate = static_cast<double>(result_.service[client]) / static_cast<double>(active(client));
      n += 1.0;
      sum += rate;
      squares += rate * rate;
    }
    if (n >= 2.0 && squares > 0.0) result_.jain_index = sum * sum / (n * squares);
  }

  const NaiveConfig& config_;
  Policy policy_;
  NaiveLinks links_;
  LayerRule* rule_ = nullptr;
  LayerReport report_;
  bool prefills_ = false;     // the iteration computes prompts
  std::int64_t emitted_ = 0;  // tokens of the last finished iteration
  Blocks total_{};
  Blocks surplus_{};  // blocks in use beyond the total
  std::vector<Request> requests_;
  std::vector<RequestId> order_;
  std::vector<Block> blocks_;
  std::list<int> free_;
  std::multimap<std::tuple<SimTime, int, std::uint64_t>, int> events_;
  std::uint64_t sequence_ = 0;
  std::int64_t arrivals_left_ = 0;  // arrivals that are known
  bool busy_ = false;
  bool decodes_staged_ = false;
  bool changed_ = false;
  SimTime start_{};
  std::vector<RequestId> chunks_;
  std::vector<RequestId> expired_;
  std::int64_t moved_[2] = {0, 0};
  std::list<Kept> host_;  // ordered by use
  std::vector<std::vector<std::uint64_t>> named_;
  std::int64_t put_down_ = 0;
  std::int64_t loaded_ = 0;
  std::vector<Service> served_;
  std::vector<std::pair<std::uint32_t, std::int64_t>> lifts_;
  std::set<std::uint32_t> seen_;  // clients with a request that was not rejected at arrival
  std::size_t iterations_since_observation_ = 0;
  std::vector<Executed> executed_;
  Bytes charged_[2] = {};  // bytes of layers and beside them, of all iterations so far
  NaiveResult result_;
};

}  // namespace

NaiveResult run_naive(const NaiveConfig& config) { return NaiveEngine(config).run(); }

}  // namespace spillway::oracle
