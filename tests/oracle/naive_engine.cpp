#include "tests/oracle/naive_engine.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <tuple>

namespace spillway::oracle {
namespace {

/// One block of a context.
struct Cell {
  int gpu = -1;               // the GPU's block; -1: it is not on the GPU
  std::set<int> elsewhere{};  // other tiers that hold it
  int move = -1;              // on its way with this move
  int arriving = -1;          // its block on the GPU, while it is on its way there
  bool changes = false;       // once it has arrived
  [[nodiscard]] bool dropped() const { return gpu < 0 && elsewhere.empty(); }
  [[nodiscard]] bool on(int tier) const { return tier == 0 ? gpu >= 0 : elsewhere.contains(tier); }
};
using Context = std::vector<Cell>;

/// What is kept for a conversation.
struct Kept {
  Context cells;
  std::int64_t tokens = 0;
};

/// A move, from its decision to its end.
struct NaiveMove {
  Move move;
  bool wanted = true;  // its holder has not gone
  bool issued = false;
  bool over = false;
  SimTime end = kNever;  // known once it is issued
  int direction = 0;
  std::vector<int> gpu_later{};      // blocks of the GPU that are free when it ends
  std::int64_t elsewhere_later = 0;  // likewise on its other tier
};

struct Request {
  RequestSpec spec;
  RequestId id;
  std::uint64_t content = 0;  // names what is only its own
  std::size_t position = 0;   // in the list of requests
  RequestRecord record;
  Phase phase = Phase::waiting;
  bool live = false;
  bool in_batch = false;
  bool runs_now = false;              // decodes in this iteration
  std::uint64_t number = 0;           // at this instance
  bool heard = true;                  // the scheduler knows it
  bool delivered = false;             // arrives with the KV of its input except the last token
  std::optional<SimTime> prompted{};  // when another engine had computed that
  bool took_over = false;             // it took blocks for KV of another engine, though it may have lost them since
  bool awaits_kv = false;             // that KV is on its way
  bool on_host = false;               // in the batch: its blocks are on the host, and the CPU attends
  std::size_t sub_batch = 0;
  std::int64_t generated = 0;
  std::int64_t computed = 0;
  std::int64_t staged = 0;  // prompt tokens computed in this iteration
  Context cells;
  std::vector<int> borrowed;     // on_host: blocks of the GPU with its prefix, until its prompt is computed
  std::set<std::int64_t> holes;  // positions of its context that were dropped and not yet recomputed
  std::int64_t offered = 0;      // leading blocks that were full at the last check
  SimTime last_token{};
  [[nodiscard]] std::int64_t known() const { return spec.input.count() + generated; }
  [[nodiscard]] std::int64_t blocks() const { return static_cast<std::int64_t>(cells.size()); }
};

/// A block of the host tier of the prefix cache.
struct Stored {
  std::vector<std::uint64_t> content;
  bool sent = false;       // its copy was issued beside layers
  SimTime there = kNever;  // end of its copy
  bool found = false;      // can be found from `there` on
};

struct Block {
  int users = 0;
  std::vector<std::uint64_t> content;  // the whole prefix up to the block's end; empty: unknown
  std::int64_t hits = 0;               // requests that found the content
  double value = 0.0;                  // as the policy's retention gave it last
};

void need(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

/// One of the policies that stream layers, and what its layers wait for in the current iteration.
struct Streamer {
  LayerPolicy* policy = nullptr;
  LayerRule* rule = nullptr;
  bool owed = false;  // copies ended now, but the rule was not yet called
  Duration waited{};  // compute waited for its copies while it waited for no streamer before it
};

/// Copies of the policies that stream layers, and of KV blocks beside them: one at a time per direction, in order of
/// issue. Each takes its share of the links, which changes whenever a transfer or other traffic starts or ends.
class NaiveLinks final : private CopySink {
 public:
  NaiveLinks(const PlainSurroundings& around, const std::vector<LinkTraffic>& traffic)
      : around_(around), others_(traffic) {}

  /// In the order in which their rules are called: weights, then KV.
  std::vector<Streamer> streamers;

  /// KV blocks that move when the next iteration's first layer starts. All its layers wait for them, or the layer
  /// Copy::layer does, or nothing; `ended` gets the time.
  struct BlockCopy {
    Copy copy{};
    Waits waits = Waits::iteration;
    std::function<void(SimTime)> ended{};
    bool yields = false;  // starts when no KV comes in and no other one that yields moves
    bool kv = true;
    std::size_t journey = 0;  // of KV: position in kv_
    bool in_turn = false;     // starts, as all behind it do, when what the iteration waits for has ended
  };
  void add(BlockCopy blocks) { to_issue_.push_back(std::move(blocks)); }
  /// KV of prompts that layer Copy::layer computes. The first layer of the next iteration waits for it.
  void add_computed(const Copy& copy) { computed_.push_back(copy); }
  /// No iteration starts: they move now.
  void start(SimTime now) {
    advance(now);
    issue_blocks();
  }
  /// The run is over: what yields and has not started never does.
  void stop_yielding() { yielding_.clear(); }
  /// When a copy in flight ends, launches or gets another share, if nothing else happens before.
  [[nodiscard]] SimTime next() const {
    SimTime next = kNever;
    for (const std::size_t lane : kOrder) {
      if (!queued_[lane].empty()) next = std::min({next, end_[lane], next_launched(lane)});
    }
    return next == kNever ? kNever : std::min(next, next_traffic());
  }
  /// Time that compute has waited for such copies while it waited for no layer.
  [[nodiscard]] Duration waited_for_blocks() const { return waited_for_blocks_; }

  /// Starts and ends copies up to `until`, including copies that end at `until`.
  void advance(SimTime until) {
    while (true) {
      SimTime next = kNever;
      for (const std::size_t lane : kOrder) {
        if (!queued_[lane].empty()) next = std::min({next, end_[lane], next_launched(lane)});
      }
      next = std::min(next, next_traffic());
      const bool owed = std::any_of(streamers.begin(), streamers.end(), [](const Streamer& one) { return one.owed; });
      if (owed && std::min(next, until) > now_) {
        settle();
        continue;
      }
      if (next > until || next == kNever) break;
      now_ = next;
      // Ways out first, and ends before what else happens at this instant.
      const auto ends = [&](std::size_t lane) { return !queued_[lane].empty() && end_[lane] == now_; };
      if (const auto one = std::find_if(kOrder.begin(), kOrder.end(), ends); one != kOrder.end()) {
        finish(*one);
      } else {
        share();
        shared_at_ = now_;
      }
    }
    if (until != kNever) now_ = until;
  }
  /// Attention on the CPU of one sub-batch, in each layer: three pieces of work, one after the other.
  using CpuWork = std::vector<Copy>;

  /// Runs layers with a compute time of `sub_batches` each, and then the work of `after`; returns its end.
  SimTime run(SimTime start, const std::vector<Duration>& sub_batches, int layers, const std::vector<CpuWork>& on_cpu,
              const std::vector<Duration>& after) {
    SimTime t = start;
    attending_.assign(sub_batches.size(), false);
    std::optional<std::size_t> computed;
    const auto attend = [&] {
      if (computed && !on_cpu[*computed].empty()) next_on_cpu(on_cpu[*computed], 0, *computed);
    };
    for (int k = 0; k < layers; ++k) {
      for (int s = 0; s < static_cast<int>(sub_batches.size()); ++s) {
        advance(t);
        for (Streamer& streamer : streamers) streamer.owed = false;
        for (std::size_t i = 0; i < streamers.size(); ++i) {
          issuer_ = i;
          if (streamers[i].rule != nullptr) streamers[i].rule->at_layer_start(k, s, *this);
        }
        if (k == 0 && s == 0) issue_blocks();
        if (s == 0) issue_computed(k);
        attend();
        computed = static_cast<std::size_t>(s);
        advance(t);
        settle();
        advance(t);
        while (true) {
          const auto waits = [&](const Streamer& one) { return one.rule != nullptr && !one.rule->ready(k, s); };
          const auto first = std::find_if(streamers.begin(), streamers.end(), waits);
          const bool blocks = blocks_are_waited_for(k) || (k == 0 && leaving_ > 0);
          if (first == streamers.end() && !blocks && !attending_[static_cast<std::size_t>(s)]) break;
          Duration& waited = first != streamers.end() ? first->waited : blocks ? waited_for_blocks_ : waited_for_cpu_;
          const SimTime from = t;
          t = next_end();
          waited += t - from;
          settle();
          advance(t);
        }
        t = t + sub_batches[static_cast<std::size_t>(s)];
        for (std::size_t i = 0; i < streamers.size(); ++i) t = work_in_layer(i, k, s, t);
      }
    }
    layers_end_ = t;
    advance(t);
    for (std::size_t i = 0; i < streamers.size(); ++i) {
      issuer_ = i;
      if (streamers[i].rule != nullptr) streamers[i].rule->at_layers_end(*this);
    }
    issue_computed(layers);
    attend();
    for (std::size_t s = 0; s < after.size(); ++s) {
      advance(t);
      while (attending_[s]) {
        t = next_end();
        settle();
        advance(t);
      }
      t = t + after[s];
    }
    advance(t);
    return t;
  }
  /// What a rule computes after the step of a layer, which ended at `t`; returns its end.
  SimTime work_in_layer(std::size_t streamer, int k, int s, SimTime t) {
    LayerRule* const rule = streamers[streamer].rule;
    if (rule == nullptr || !rule->works_in_layers()) return t;
    const auto catch_up = [&] {
      advance(t);
      settle();
      advance(t);
    };
    catch_up();
    while (true) {
      issuer_ = streamer;
      const LayerWork work = rule->work(k, s, *this);
      if (work.kind == LayerWork::Kind::none) return t;
      if (work.kind == LayerWork::Kind::turns) continue;  // one by one
      const std::int64_t ended = ended_;
      if (work.kind == LayerWork::Kind::computes) {
        worked_ += work.time;
        t = t + work.time;
      } else {
        catch_up();
        if (ended_ != ended) continue;
        const SimTime from = t;
        t = next_end();
        (work.wait == Wait::experts ? waited_for_experts_ : streamers[streamer].waited) += t - from;
      }
      catch_up();
    }
  }
  /// Since the start: work of rules in layers, and waits for experts on the CPU.
  [[nodiscard]] Duration worked() const { return worked_; }
  [[nodiscard]] Duration waited_for_experts() const { return waited_for_experts_; }
  /// Of the last run, without the waits for attention on the CPU.
  [[nodiscard]] SimTime layers_end() const { return layers_end_; }
  /// Between layers.
  [[nodiscard]] Duration waited_for_cpu() const { return waited_for_cpu_; }
  [[nodiscard]] Bytes issued(std::size_t lane) const { return issued_[lane]; }
  /// The time between two instants in which KV blocks were on their way. Every copy has finished.
  [[nodiscard]] Duration moving_kv(SimTime from, SimTime to) const {
    Duration total{};
    SimTime covered = from;
    for (const auto& [issued, ended] : kv_) {  // in order of issue
      if (issued >= to) break;
      if (ended <= covered) continue;
      total += std::min(ended, to) - std::max(issued, covered);
      covered = std::min(ended, to);
    }
    return total;
  }
  /// The time between two instants during which finished copies were in flight.
  [[nodiscard]] Duration copying(std::size_t lane, SimTime from, SimTime to) const {
    const auto& done = done_[lane];
    auto copy = std::partition_point(done.begin(), done.end(), [&](const auto& one) { return one.second <= from; });
    Duration total{};
    for (; copy != done.end() && copy->first < to; ++copy) {
      total += std::min(copy->second, to) - std::max(copy->first, from);
    }
    return total;
  }

 private:
  static constexpr std::size_t kLanes = 5;  // h2d, d2h, peer_in, peer_out, cpu
  static constexpr std::array<std::size_t, kLanes> kOrder{1, 3, 0, 2, 4};
  static std::size_t lane_of(Stream stream) {
    const std::map<Stream, std::size_t> lanes{
        {Stream::h2d, 0}, {Stream::d2h, 1}, {Stream::peer_in, 2}, {Stream::peer_out, 3}, {Stream::cpu, 4}};
    return lanes.at(stream);
  }
  [[nodiscard]] std::size_t ended() const {
    std::size_t all = 0;
    for (const auto& done : done_) all += done.size();
    return all;
  }
  /// Goes on to the next end of a copy, wherever changes on the way put it.
  SimTime next_end() {
    const std::size_t before = ended();
    while (ended() == before) {
      const SimTime then = next();
      need(then != kNever, "a layer waits for nothing");
      advance(then);
    }
    return now_;
  }
  /// Part number `part` of the attention of a sub-batch starts, and the next ones when it has ended.
  void next_on_cpu(const CpuWork& work, std::size_t part, std::size_t sub_batch) {
    attending_[sub_batch] = part < work.size();
    if (part == work.size()) return;
    const auto go_on = [this, work, part, sub_batch](SimTime) { next_on_cpu(work, part + 1, sub_batch); };
    issue_block({work[part], Waits::nobody, go_on, false, false});
  }
  void has_left() {
    if (--leaving_ == 0 && postponed_) issue_blocks();
  }
  /// The layers before this one have computed.
  void issue_computed(int layer) {
    for (; !computed_.empty() && computed_.front().layer < layer; computed_.pop_front()) {
      ++leaving_;
      issue_block({computed_.front(), Waits::nobody, [this](SimTime) { has_left(); }});
    }
  }
  void issue_block(BlockCopy block) {
    block.copy.tag = kBlocks + numbered_++;
    const Copy copy = block.copy;
    if (block.kv) {
      block.journey = kv_.size();
      kv_.emplace_back(now_, kNever);
    }
    moving_.emplace(copy.tag, std::move(block));
    issue(copy);
  }
  void issue_blocks() {
    postponed_ = leaving_ > 0;
    if (postponed_) return;
    for (BlockCopy& blocks : std::exchange(to_issue_, {})) {
      if (blocks.waits == Waits::iteration && !blocks.in_turn) {
        issue_block(std::move(blocks));
      } else {
        behind_.push_back(std::move(blocks));
      }
    }
    issue_behind();
  }
  void issue_behind() {
    const auto waited_for = [](const auto& one) { return one.second.waits == Waits::iteration; };
    if (std::any_of(moving_.begin(), moving_.end(), waited_for)) {
      const auto in_turn = [](const BlockCopy& blocks) { return blocks.in_turn; };
      if (std::any_of(behind_.begin(), behind_.end(), in_turn)) return;
    }
    for (const bool turn : {true, false}) {
      for (BlockCopy& blocks : behind_) {
        if (blocks.in_turn != turn) continue;
        if (blocks.yields) {
          yielding_.push_back(blocks);
        } else {
          issue_block(blocks);
        }
      }
    }
    behind_.clear();
    issue_yielding();
  }
  void issue_yielding() {
    const bool hindered = std::any_of(moving_.begin(), moving_.end(), [](const auto& one) {
      const BlockCopy& blocks = one.second;
      return blocks.yields || (blocks.kv && lane_of(blocks.copy.stream) % 2 == 0);
    });
    if (yielding_.empty() || hindered || leaving_ > 0) return;
    const BlockCopy first = yielding_.front();
    yielding_.pop_front();
    issue_block(first);
  }
  [[nodiscard]] bool blocks_are_waited_for(int layer) const {
    if (!behind_.empty()) return true;
    return std::any_of(moving_.begin(), moving_.end(), [&](const auto& one) {
      const BlockCopy& blocks = one.second;
      return blocks.waits == Waits::iteration || (blocks.waits == Waits::layers && blocks.copy.layer == layer);
    });
  }
  void settle() {
    for (std::size_t i = 0; i < streamers.size(); ++i) {
      issuer_ = i;
      if (std::exchange(streamers[i].owed, false)) streamers[i].rule->at_copies_done(*this);
    }
  }
  void issue(const Copy& copy) override {
    for (Copy one = copy; one.alike >= 0; --one.alike) issue_one(one);
  }
  void issue_one(const Copy& copy) {
    const std::size_t lane = lane_of(copy.stream);
    issued_[lane] += copy.bytes;
    queued_[lane].push_back({copy, issuer_});
    if (queued_[lane].size() > 1) return;
    start(lane);
    share();
  }
  /// The copy at the head of the queue starts now.
  void start(std::size_t direction) {
    const Copy& copy = queued_[direction].front().copy;
    started_[direction] = timed_at_[direction] = now_;
    launch_left_[direction] = copy.launch;
    transfer_left_[direction] = copy.transfer;
    time(direction);
  }
  void time(std::size_t direction) {
    end_[direction] = now_ + launch_left_[direction] + plain_needed(transfer_left_[direction], share_[direction]);
  }
  void finish(std::size_t direction) {
    const auto [copy, issuer] = queued_[direction].front();
    const SimTime started = started_[direction];
    queued_[direction].pop_front();
    done_[direction].emplace_back(started, now_);
    ++ended_;
    if (!queued_[direction].empty()) start(direction);
    share();
    if (copy.tag >= kBlocks) {
      const BlockCopy blocks = moving_.extract(copy.tag).mapped();
      if (blocks.kv) kv_[blocks.journey].second = now_;
      if (blocks.ended) blocks.ended(now_);
      issue_behind();
      issue_yielding();
      return;
    }
    Streamer& streamer = streamers[issuer];
    streamer.policy->copied(copy, started, now_);
    if (streamer.rule == nullptr) return;
    issuer_ = issuer;
    streamer.rule->at_copy_done(copy, *this);
    streamer.owed = true;
  }
  [[nodiscard]] SimTime launched(std::size_t direction) const {
    return started_[direction] + queued_[direction].front().copy.launch;
  }
  /// Ends of launches and other traffic that have been seen do not come again.
  [[nodiscard]] SimTime next_launched(std::size_t direction) const {
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
  [[nodiscard]] Real rate(std::size_t direction) const {
    if (queued_[direction].empty() || launched(direction) > now_) return -1;
    return plain_rate(queued_[direction].front().copy);
  }
  void share() {
    std::vector<double> traffic;
    for (const LinkTraffic& other : others_) {
      if (other.from <= now_ && now_ < other.until) traffic.push_back(other.share);
    }
    PlainRates rates{};
    for (std::size_t way = 0; way < kWays; ++way) rates[way] = rate(way);
    const PlainRates shares = plain_shares(around_, traffic, rates);
    for (std::size_t direction = 0; direction < kWays; ++direction) {
      if (rates[direction] < 0 || same_share(shares[direction], share_[direction])) continue;
      const Duration elapsed = now_ - timed_at_[direction];
      const Duration in_launch = std::min(elapsed, launch_left_[direction]);
      launch_left_[direction] -= in_launch;
      transfer_left_[direction] -= plain_done(elapsed - in_launch, share_[direction]);
      timed_at_[direction] = now_;
      share_[direction] = shares[direction];
      time(direction);
    }
  }

  static constexpr std::int32_t kBlocks = 1'000'000'000;  // tags from here on are of blocks

  PlainSurroundings around_;
  std::vector<LinkTraffic> others_;
  struct Queued {
    Copy copy;
    std::size_t issuer;  // a streamer, except for blocks
  };
  std::list<Queued> queued_[kLanes];
  std::size_t issuer_ = 0;  // whose rule is called
  // Of the copy in flight: what was left of it, and at which share of its speed it has moved since.
  SimTime started_[kLanes] = {};
  SimTime timed_at_[kLanes] = {};
  Duration launch_left_[kLanes] = {};
  Duration transfer_left_[kLanes] = {};
  Real share_[kLanes] = {1, 1, 1, 1, 1};
  SimTime end_[kLanes] = {};
  SimTime now_{};
  SimTime shared_at_ = kNever;  // the last instant at which launches and other traffic were looked at
  Bytes issued_[kLanes] = {};
  std::vector<BlockCopy> to_issue_;
  std::vector<BlockCopy> behind_;  // wait for what the iteration waits for
  std::list<BlockCopy> yielding_;
  std::map<std::int32_t, BlockCopy> moving_;  // by tag
  std::int32_t numbered_ = 0;
  Duration waited_for_blocks_{};
  Duration waited_for_cpu_{};
  std::vector<bool> attending_;  // by sub-batch: its attention is on the CPU, or on the way there or back
  SimTime layers_end_{};
  std::int64_t ended_ = 0;  // copies
  Duration worked_{};
  Duration waited_for_experts_{};
  std::list<Copy> computed_;                               // not yet issued
  int leaving_ = 0;                                        // issued and not ended
  bool postponed_ = false;                                 // other blocks wait until they have ended
  std::vector<std::pair<SimTime, SimTime>> done_[kLanes];  // start and end of every finished copy
  std::vector<std::pair<SimTime, SimTime>> kv_;            // issue and end of every copy of KV blocks
};

PlainSurroundings surroundings_of(const NaiveConfig& config) {
  PlainSurroundings around = config.links;
  around.sharing = config.model->copy_sharing();
  return around;
}

class NaiveEngine final : public View, public NaiveReplica, private Decision {
  static constexpr int kMoveEnds = -2;  // an event's target

 public:
  /// `cluster`: null when it is the only engine, which then sends its requests itself.
  explicit NaiveEngine(const NaiveConfig& config, NaiveSurroundings* cluster = nullptr)
      : config_(config), cluster_(cluster), links_(surroundings_of(config), config.traffic) {
    block_tokens_ = config.block_tokens;
    max_model_len_ = config.max_model_len;
    caches_prefixes_ = config.prefix_caching;
    graph_ = {{{"gpu", config.gpu_blocks, std::max(config.gpu_blocks, config.most_gpu_blocks)},
               {"host", config.host_blocks, config.host_blocks}},
              {{kHostTier, kGpuTier, Stream::h2d, config.copies_per_block},
               {kGpuTier, kHostTier, Stream::d2h, config.copies_per_block}}};
    for (const TierSpec& tier : config.further.tiers) graph_.tiers.push_back(tier);
    for (const Route& route : config.further.routes) graph_.routes.push_back(route);
    states_.resize(graph_.tiers.size());
    tiers_ = states_;
    window_ = config.window;
    // Blocks that some layers have freed hold content of others, so more of them may be in use than there are. Where
    // all layers have the window, nothing but the length of requests limits their number.
    if (window_) in_parts_ = config.gpu_blocks * 300;
    blocks_.resize(static_cast<std::size_t>((config.gpu_blocks + in_parts_).count()));
    for (int b = 0; b < static_cast<int>(blocks_.size()); ++b) free_.push_back(b);
    total_ = config.gpu_blocks;
    rebuild();
    deployment_ = config.deployment;
    if (config.policy->places_experts) {
      draw_.emplace(config.experts);
      deployment_.experts->activation = &*draw_;
    }
    policy_ = config.policy->make(PolicyContext{*config.settings, *this, deployment_, graph_});
    if (config.prefix_caching) retention_ = policy_.space->retention();
    for (LayerPolicy* const layers : {policy_.weights.get(), policy_.layers.get()}) {
      if (layers != nullptr) links_.streamers.push_back({.policy = layers});
    }
  }

  NaiveResult run() {
    turns_.resize(config_.requests.size());
    for (std::size_t i = 0; i < config_.requests.size(); ++i) {
      if (config_.follows[i].after < 0) to_arrive(config_.requests[i].arrival, i);
    }
    if (config_.until) at(*config_.until, 6, 0);
    while (!events_.empty()) {
      step();
      const bool any = std::any_of(requests_.begin(), requests_.end(), [](const Request& r) { return r.live; });
      if (horizon_ || (!any && arrivals_left_ == 0)) break;
    }
    return sum_up();
  }

  [[nodiscard]] std::optional<NaiveInstant> next_event() const override {
    if (events_.empty()) return std::nullopt;
    return events_.begin()->first;
  }
  void step() override {
    const auto [key, target] = *events_.begin();
    events_.erase(events_.begin());
    go_to(std::get<0>(key));
    const int phase = std::get<1>(key);
    if (phase == 6) return cut();
    if (phase == 1 && target == kMoveEnds && (busy_ || !moves_go_on())) return;
    if (phase == 1 && target != kMoveEnds) complete();
    if (phase == 2) {
      Request& late = requests_[static_cast<std::size_t>(target)];
      if (!late.live) return;  // nothing happens
      expire(late);
    }
    if (phase == 3) {
      --arrivals_left_;
      const auto position = static_cast<std::size_t>(target);
      RequestSpec spec = config_.requests[position];
      spec.arrival = now_ - config_.front_end;
      const auto serial = static_cast<std::uint32_t>(requests_.size());
      receive(spec, serial, serial, position);
    }
    if (phase == 4) decide();
    if (phase != 4) ask();
  }
  void enter(const RequestSpec& spec, std::uint32_t number, std::uint32_t content, SimTime now) override {
    go_to(now);
    receive(spec, number, content, 0);
    ask();
  }
  void expire(std::uint32_t number, SimTime now) override {
    go_to(now);
    for (Request& r : requests_) {
      if (r.live && r.id.serial == number) expire(r);
    }
    ask();
  }
  void let_go(std::uint32_t number, SimTime now) override {
    go_to(now);
    const auto parked = parked_.find(number);
    need(parked != parked_.end(), "no KV to let go");
    for (; !parked->second.empty(); parked->second.pop_back()) lose(parked->second.back());
    parked_.erase(parked);
    silent_ = 0;
    rebuild();
    ask();
  }
  void kv_arrived(std::uint32_t number, SimTime prompted, SimTime now) override {
    go_to(now);
    for (Request& r : requests_) {
      if (!r.live || r.id.serial != number) continue;
      need(r.awaits_kv, "KV that nobody awaits");
      r.awaits_kv = false;
      r.delivered = true;
      r.prompted = prompted;
      r.computed = r.spec.input.count() - 1;
      name(r, r.computed);
    }
    rebuild();
    ask();
  }
  [[nodiscard]] Blocks gpu_blocks() const override { return states_[0].total; }
  [[nodiscard]] Blocks gpu_blocks_used() const override { return states_[0].total - states_[0].free; }
  std::vector<RequestRecord> go_down(SimTime now) override {
    std::vector<RequestRecord> live;
    for (const Request& r : requests_) {
      if (!r.live) continue;
      RequestRecord& record = live.emplace_back(r.record);
      record.outcome = gives_up(r) ? Outcome::timed_out : Outcome::lost;
      record.end = now;
      record.generated = std::min(Tokens(r.generated), record.output);
    }
    std::sort(live.begin(), live.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
    return live;
  }
  NaiveResult stop(std::optional<SimTime> horizon) override {
    if (horizon) {
      go_to(*horizon);
      cut();
    }
    return sum_up();
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
    view.computed = Tokens(r.in_batch ? r.computed : there(r.cells, r.computed));
    view.held = Blocks(r.blocks());
    view.conversation = r.spec.traits.conversation;
    if (r.on_host) view.tier = kHostTier;
    view.sub_batch = static_cast<std::int32_t>(r.sub_batch);
    view.fetching = r.awaits_kv;
    const bool waits = r.phase == Phase::waiting && !r.in_batch;
    if (const auto kept = conversations_.find(view.conversation); waits && kept != conversations_.end()) {
      view.computed = Tokens(there(kept->second.cells, shared(kept->second, r)));
      const std::int64_t same = std::min(kept->second.tokens, r.spec.traits.repeats.count());
      view.reusable = Tokens(std::min(same, r.spec.input.count()));
    }
    return view;
  }
  [[nodiscard]] bool alive(RequestId id) const override { return requests_[id.slot].live; }
  [[nodiscard]] RequestId last_joined() const override { return order_.empty() ? kNoRequest : order_.back(); }
  [[nodiscard]] Blocks decode_growth(std::int64_t decodes) const override {
    if (decodes_staged_) return Blocks(0);
    Blocks growth;
    for (const RequestId id : decoding()) {
      if (decodes-- <= 0) break;
      growth += Blocks(grows_next(id) && !requests_[id.slot].on_host ? 1 : 0);
    }
    return growth;
  }
  [[nodiscard]] RequestId last_decoding() const override {
    const std::vector<RequestId> ids = decoding();
    return ids.empty() ? kNoRequest : ids.back();
  }
  [[nodiscard]] bool grows_next(RequestId id) const override {
    const Request& r = requests_[id.slot];
    return r.phase == Phase::decoding && (r.computed + 1) > r.blocks() * per_block();
  }
  [[nodiscard]] SimTime waiting_since() const override {
    SimTime since = now_;
    for (const Request& r : requests_) {
      if (!r.live || (!r.runs_now && r.staged == 0)) continue;
      since = std::min(since, r.generated > 0 ? r.last_token : r.prompted.value_or(r.spec.arrival));
    }
    return since;
  }
  [[nodiscard]] std::span<const KvRun> runs(const Holder& holder) const override {
    shown_.clear();
    const Context* const cells = context_of(holder);
    for (std::size_t c = 0; cells != nullptr && c < cells->size(); ++c) {
      const Cell& cell = (*cells)[c];
      KvRun run{.blocks = Blocks(1)};
      for (int tier = static_cast<int>(states_.size()) - 1; tier >= 0; --tier) {
        if (cell.on(tier)) run.copy = std::exchange(run.tier, TierId(tier));
      }
      if (cell.move >= 0) run.to = moves_[static_cast<std::size_t>(cell.move)].move.to;
      KvRun as_before = run;
      if (!shown_.empty()) as_before.blocks = shown_.back().blocks;
      const bool same = c > 0 && shown_.back() == as_before && (*cells)[c - 1].move == cell.move;
      if (same) {
        shown_.back().blocks += Blocks(1);
      } else {
        shown_.push_back(run);
      }
    }
    return shown_;
  }
  [[nodiscard]] Tokens kept(std::int64_t conversation) const override {
    const auto kept = conversations_.find(conversation);
    return Tokens(kept == conversations_.end() ? 0 : kept->second.tokens);
  }
  [[nodiscard]] SimTime next_turn(std::int64_t conversation) const override {
    if (cluster_ != nullptr) return cluster_->next_turn(conversation);
    SimTime next = kNever;
    for (const auto& [key, target] : events_) {
      const bool arrival = std::get<1>(key) == 3;
      if (!arrival || config_.requests[static_cast<std::size_t>(target)].traits.conversation != conversation) continue;
      next = std::min(next, SimTime(std::get<0>(key).ns() - config_.front_end.count()));
    }
    for (const Request& r : requests_) {
      if (r.live && r.spec.traits.conversation == conversation) next = std::min(next, r.record.arrival);
    }
    return next;
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

  void go_to(SimTime time) {
    observe_peaks(time);
    now_ = time;
  }
  /// The policy is asked once when this instant's events are over.
  void ask() {
    const bool asked = std::any_of(events_.begin(), events_.end(), [this](const auto& event) {
      return std::get<0>(event.first) == now_ && std::get<1>(event.first) == 4;
    });
    if (!busy_ && !asked) at(now_, 4, 0);
  }
  /// A request reaches the scheduler. `spec.arrival` is when its client sent it.
  void receive(const RequestSpec& spec, std::uint32_t number, std::uint32_t content, std::size_t position) {
    const auto slot = static_cast<std::uint32_t>(requests_.size());
    Request& r = requests_.emplace_back();
    r.position = position;
    r.spec = spec;
    r.id = RequestId{slot, number};
    r.content = content;
    arrive(r);
  }
  /// Its client has given up, which the scheduler hears of when the iteration has ended.
  [[nodiscard]] bool gives_up(const Request& r) const { return std::count(expired_.begin(), expired_.end(), r.id) > 0; }
  /// The horizon ends the run.
  void cut() {
    for (Request& r : requests_) {
      if (r.live) end(r, gives_up(r) ? Outcome::timed_out : Outcome::unfinished);
    }
    cut_those_on_their_way();
    horizon_ = now_;
  }
  NaiveResult sum_up() {
    sum_up_fairness();
    sum_up_iterations();
    sum_up_conversations();
    for (const auto& [name, value] : policy_.scheduler->figures()) result_.layers[name] = value;
    for (const auto& [name, value] : policy_.space->figures()) result_.layers[name] = value;
    if (policy_.layers) {
      finish_copies();
      for (const auto& [name, value] : policy_.layers->figures()) result_.layers[name] = value;
    }
    if (policy_.weights) {
      for (const auto& [name, value] : policy_.weights->figures()) result_.layers["weights_" + name] = value;
    }
    return result_;
  }

  /// Requests that were sent and have not reached the scheduler when the run ends.
  void cut_those_on_their_way() {
    std::size_t index = requests_.size();
    for (const auto& [key, target] : events_) {
      const SimTime sent = std::get<0>(key) - config_.front_end;
      if (std::get<1>(key) != 3 || sent > now_) continue;
      const RequestSpec& spec = config_.requests[static_cast<std::size_t>(target)];
      RequestRecord record;
      record.index = static_cast<std::uint32_t>(index++);
      record.client = spec.client;
      record.outcome = Outcome::unfinished;
      record.arrival = sent;
      record.end = now_;
      record.input = spec.input;
      record.output = spec.output;
      record.traits = spec.traits;
      result_.records.push_back(record);
    }
  }
  void to_arrive(SimTime time, std::size_t position) {
    turns_[position] = {.known = now_, .sent = time};
    at(time + config_.front_end, 3, static_cast<int>(position));
    ++arrivals_left_;
  }
  void at(SimTime time, int phase, int target) {
    events_.emplace(NaiveInstant(time, phase, cluster_ != nullptr ? cluster_->next_sequence() : sequence_++), target);
  }

  [[nodiscard]] std::vector<RequestId> decoding() const {
    std::vector<RequestId> ids;
    for (const RequestId id : order_) {
      if (requests_[id.slot].phase == Phase::decoding) ids.push_back(id);
    }
    return ids;
  }

  void rebuild() {
    batch_ = BatchTotals{};
    for (const Request& r : requests_) {
      const std::int64_t most = r.spec.input.count() + r.spec.max_new_tokens.count();
      if (r.in_batch || holds_kv_outside(r)) batch_.promised += Blocks((most + per_block() - 1) / per_block());
      if (!r.in_batch) continue;
      ++batch_.running;
      if (r.phase != Phase::decoding) continue;
      ++batch_.decoding;
      batch_.decode_context += Tokens(r.computed + 1);
      Blocks& growth = r.on_host ? batch_.host_growth : batch_.decode_growth;
      if (!decodes_staged_) growth += Blocks(grows_next(r.id) ? 1 : 0);
    }
    const Blocks whole = Blocks(static_cast<std::int64_t>(free_.size())) - in_parts_;
    states_[0] = TierState{total_, whole - surplus_ + freed_in_parts(), graph_.tiers[0].most};
    for (std::size_t tier = 1; tier < states_.size(); ++tier) {
      const TierSpec& spec = graph_.tiers[tier];
      states_[tier] = TierState{spec.blocks, spec.blocks - used(static_cast<int>(tier)), spec.most};
    }
    result_.peak_gpu = std::max(result_.peak_gpu, states_[0].total - states_[0].free);
    result_.peak_host = std::max(result_.peak_host, states_[1].total - states_[1].free);
  }
  /// Blocks whose last token no later token of their request attends to in layers with a window, as whole blocks.
  [[nodiscard]] Blocks freed_in_parts() const {
    if (!window_) return Blocks(0);
    std::int64_t parts = 0;
    for (const Request& r : requests_) {
      for (std::int64_t b = 0; b < r.blocks(); ++b) {
        const std::int64_t last = b * per_block() + per_block() - 1;
        const std::int64_t first_attended = r.computed - window_->tokens.count() + 1;  // by the token number `computed`
        parts += last < first_attended ? window_->layers : 0;
      }
    }
    return Blocks(parts / window_->of);
  }
  /// Blocks of a tier other than the GPU that hold something, or that something is on its way to.
  [[nodiscard]] Blocks used(int tier) const {
    std::int64_t used = 0;
    const auto count = [&](const Context& cells) {
      for (const Cell& cell : cells) {
        used += cell.on(tier) ? 1 : 0;
        used += cell.move >= 0 && moves_[static_cast<std::size_t>(cell.move)].move.to == TierId(tier) ? 1 : 0;
      }
    };
    for (const Request& r : requests_) count(r.cells);
    for (const auto& [conversation, kept] : conversations_) count(kept.cells);
    for (const NaiveMove& move : moves_) {
      const TierId other = move.move.to == kGpuTier ? move.move.from : move.move.to;
      used += other == TierId(tier) ? move.elsewhere_later : 0;
    }
    return Blocks(used);
  }

  /// Gives the GPU `total` blocks from now on. New blocks are empty, so they are used first. Surplus blocks leave when
  /// they are free, in the order of their reuse.
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
      const auto next = reused_next();
      blocks_[static_cast<std::size_t>(*next)].content.clear();
      free_.erase(next);
    }
  }

  // --- blocks
  [[nodiscard]] std::vector<std::uint64_t> content(const Request& r, std::int64_t last) const {
    std::vector<std::uint64_t> prefix;
    for (std::int64_t b = 0; b <= last; ++b) {
      const bool known = b < static_cast<std::int64_t>(r.spec.prefix_ids.size());
      prefix.push_back(known ? 0 : 1);
      prefix.push_back(known ? r.spec.prefix_ids[static_cast<std::size_t>(b)] : r.content);
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
                       [&](const Stored& kept) { return kept.content == content && kept.found; });
  }
  /// Uses a block of the host tier, or stores a new block there. The list starts with the least recently used block.
  /// `there`: it is in the host's memory already, so it is not copied.
  void keep(const std::vector<std::uint64_t>& content, bool there = false) {
    for (auto kept = host_.begin(); kept != host_.end(); ++kept) {
      if (kept->content != content) continue;
      if (kept->found) host_.splice(host_.end(), host_, kept);
      return;
    }
    if (static_cast<std::int64_t>(host_.size()) == config_.host_cache_blocks.count()) {
      const auto oldest = std::find_if(host_.begin(), host_.end(), [](const Stored& kept) { return kept.found; });
      if (oldest == host_.end()) return;
      host_.erase(oldest);
      ++result_.host_evictions;
    }
    host_.push_back(Stored{.content = content, .sent = there, .found = there});
    put_down_ += there ? 0 : 1;
  }
  /// Processes finished copies to the host in order: each makes its block the most recently used one.
  void collect() {
    std::list<Stored> arrived;
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
  /// The free block that is reused next. The list starts with the least recently freed block. A policy that orders
  /// blocks gives up those without content first, then the smallest value.
  [[nodiscard]] std::list<int>::iterator reused_next() {
    if (!retention_) return free_.begin();
    const auto worth = [&](int number) {
      const Block& block = blocks_[static_cast<std::size_t>(number)];
      return block.content.empty() ? std::pair(0, 0.0) : std::pair(1, block.value);
    };
    return std::min_element(free_.begin(), free_.end(), [&](int a, int b) { return worth(a) < worth(b); });
  }
  /// The policy values the blocks that `r` is the last to use, the end of its context first.
  void value_blocks(const Request& r) {
    if (!retention_) return;
    const RequestView leaving = request(r.id);
    for (std::int64_t position = r.blocks(); position-- > 0;) {
      const int number = r.cells[static_cast<std::size_t>(position)].gpu;
      if (number < 0) continue;
      Block& block = blocks_[static_cast<std::size_t>(number)];
      if (block.users > 1 || block.content.empty()) continue;
      block.value = retention_(*this, {leaving, Blocks(position), block.hits});
      if (block.value == -std::numeric_limits<double>::infinity()) block.content.clear();
    }
  }
  [[nodiscard]] int allocate() {
    need(!free_.empty(), "out of GPU blocks");
    const auto next = reused_next();
    const int block = *next;
    free_.erase(next);
    blocks_[static_cast<std::size_t>(block)] = Block{1, {}};
    return block;
  }
  /// A pool that has too many blocks loses this one if it is free.
  void free_block(int block) {
    if (--blocks_[static_cast<std::size_t>(block)].users > 0) return;
    free_.push_back(block);
    drop_surplus();
  }
  /// The offload policy is asked once for what a step lacks.
  void ask_for(std::int64_t blocks) {
    rebuild();
    if (Blocks(blocks) > tier(kGpuTier).free) {
      policy_.space->makes_room(*this, Blocks(blocks) - tier(kGpuTier).free, *this);
    }
  }
  [[nodiscard]] std::int64_t lacks(const Request& r, std::int64_t tokens) const {
    return std::max<std::int64_t>(0, (tokens + per_block() - 1) / per_block() - r.blocks());
  }
  void grow(Request& r, std::int64_t tokens) {
    if (lacks(r, tokens) > 0 && !r.on_host) ask_for(lacks(r, tokens));
    while (r.blocks() * per_block() < tokens) {
      r.cells.push_back(r.on_host ? Cell{.elsewhere = {1}} : Cell{.gpu = allocate()});
    }
  }
  /// A full block is offered to the index once. A second block with equal content stays unnamed.
  void name(Request& r, std::int64_t computed) {
    if (!config_.prefix_caching) return;
    for (; r.offered < computed / per_block(); ++r.offered) {
      if (r.on_host) {
        named_on_host_.push_back(content(r, r.offered));
        continue;
      }
      Block& block = blocks_[static_cast<std::size_t>(r.cells[static_cast<std::size_t>(r.offered)].gpu)];
      if (find(content(r, r.offered)) < 0) block.content = content(r, r.offered);
      named_.push_back(content(r, r.offered));
    }
  }
  void release(Request& r) {
    value_blocks(r);
    give_back_prefix(r);
    for (; !r.cells.empty(); r.cells.pop_back()) lose(r.cells.back());
    r.holes.clear();
    disown(holder(r.id));
    r.offered = 0;
  }

  /// The end of the prefix is freed first.
  void give_back_prefix(Request& r) {
    for (; !r.borrowed.empty(); r.borrowed.pop_back()) free_block(r.borrowed.back());
  }

  // --- contexts and moves, block by block
  [[nodiscard]] const Context* context_of(const Holder& holder) const {
    if (holder.request.valid()) {
      const Request& r = requests_[holder.request.slot];
      return r.live ? &r.cells : nullptr;
    }
    const auto kept = conversations_.find(holder.conversation);
    return kept == conversations_.end() ? nullptr : &kept->second.cells;
  }
  [[nodiscard]] Context& cells_of(const Holder& holder) { return const_cast<Context&>(*context_of(holder)); }
  /// Tokens of what is kept that a new turn of the conversation can use.
  static std::int64_t shared(const Kept& kept, const Request& r) {
    return std::min({kept.tokens, r.spec.traits.repeats.count(), r.spec.input.count() - 1});
  }
  /// Tokens of a context of so many that exist.
  [[nodiscard]] std::int64_t there(const Context& cells, std::int64_t tokens) const {
    std::int64_t there = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto c = static_cast<std::size_t>(t / per_block());
      there += c >= cells.size() || !cells[c].dropped() ? 1 : 0;
    }
    return there;
  }
  /// Nobody wants the block any more.
  void lose(Cell& cell) {
    if (cell.move >= 0) {
      NaiveMove& move = moves_[static_cast<std::size_t>(cell.move)];
      move.gpu_later.push_back(cell.arriving >= 0 ? cell.arriving : cell.gpu);
      ++move.elsewhere_later;
    } else if (cell.gpu >= 0) {
      free_block(cell.gpu);
    }
    cell = Cell{};
  }
  void disown(const Holder& holder) {
    for (NaiveMove& move : moves_) {
      if (move.move.holder == holder) move.wanted = false;
    }
  }
  void hand_over(const Holder& from, const Holder& to) {
    for (NaiveMove& move : moves_) {
      if (move.move.holder == from) move.move.holder = to;
    }
  }
  void shorten(Context& cells, std::int64_t tokens) {
    while (static_cast<std::int64_t>(cells.size()) * per_block() >= tokens + per_block()) {
      lose(cells.back());
      cells.pop_back();
    }
  }
  void end_move(int number) {
    NaiveMove& move = moves_[static_cast<std::size_t>(number)];
    move.over = true;
    // The end of a sequence is freed before its beginning.
    const auto end = [&](Context& cells) {
      for (std::size_t left = cells.size(); left-- > 0;) {
        Cell& cell = cells[left];
        if (cell.move != number) continue;
        cell.move = -1;
        if (move.move.to == kGpuTier) {
          cell.gpu = std::exchange(cell.arriving, -1);
          if (!move.move.keep || std::exchange(cell.changes, false))
            cell.elsewhere.erase(static_cast<int>(move.move.from));
        } else {
          cell.elsewhere.insert(static_cast<int>(move.move.to));
          if (!move.move.keep && move.move.from != kGpuTier) cell.elsewhere.erase(static_cast<int>(move.move.from));
          if (!move.move.keep && move.move.from == kGpuTier) free_block(std::exchange(cell.gpu, -1));
        }
      }
    };
    for (Request& r : requests_) end(r.cells);
    for (auto& [conversation, kept] : conversations_) end(kept.cells);
    for (const int block : move.gpu_later) free_block(block);
    move.gpu_later.clear();
    move.elsewhere_later = 0;
    rebuild();
  }
  /// Ends moves beside iterations that are over by now, in the order of their ends. Returns whether there were any.
  bool collect_moves() {
    const bool any = !over_.empty();
    for (const int number : std::exchange(over_, {})) {
      end_move(number);
      const NaiveMove ended = moves_[static_cast<std::size_t>(number)];
      if (ended.wanted) policy_.space->moved(*this, ended.move);
    }
    return any;
  }
  [[nodiscard]] bool moves_under_way() const {
    return std::any_of(moves_.begin(), moves_.end(),
                       [](const NaiveMove& move) { return beside(move.move) && !move.over; });
  }
  /// Nothing runs, and something may happen to a copy now. Returns whether a move has ended.
  bool moves_go_on() {
    links_.advance(now_);
    const bool any = collect_moves();
    await_moves();
    return any;
  }
  /// Nothing runs: an event comes when something may happen to a copy.
  void await_moves() {
    if (moves_under_way() && links_.next() != kNever) at(links_.next(), 1, kMoveEnds);
  }
  [[nodiscard]] static bool beside(const Move& move) {
    return move.waits == Waits::nobody || move.waits == Waits::request;
  }
  [[nodiscard]] std::size_t route_of(const Move& move) const {
    std::size_t route = 0;
    while (graph_.routes[route].from != move.from || graph_.routes[route].to != move.to) ++route;
    return route;
  }
  void move(const Move& move) override {
    Context& cells = cells_of(move.holder);
    need(move.range.first < move.range.end && move.range.end.count() <= static_cast<std::int64_t>(cells.size()),
         "range");
    const int number = static_cast<int>(moves_.size());
    moves_.push_back({.move = move});
    for (std::int64_t c = move.range.first.count(); c < move.range.end.count(); ++c) {
      Cell& cell = cells[static_cast<std::size_t>(c)];
      need(cell.on(static_cast<int>(move.from)) && cell.move < 0, "move");
      if (move.to == kGpuTier) cell.arriving = allocate();
      cell.move = number;
    }
    waiting_moves_.push_back(number);
    rebuild();
    need(tier(move.to).free >= Blocks(0), "out of blocks");
    if (move.waits == Waits::iteration) end_move(number);
  }
  void drop(const Holder& holder, const BlockRange& range, TierId from) override {
    Context& cells = cells_of(holder);
    for (std::int64_t c = range.first.count(); c < range.end.count(); ++c) {
      Cell& cell = cells[static_cast<std::size_t>(c)];
      if (from == kNoTier) {
        lose(cell);
      } else if (from == kGpuTier) {
        free_block(std::exchange(cell.gpu, -1));
      } else {
        need(cell.elsewhere.erase(static_cast<int>(from)) == 1, "drop");
      }
    }
    const bool gone = std::all_of(cells.begin(), cells.end(), [](const Cell& cell) { return cell.dropped(); });
    if (!holder.request.valid() && gone) {
      disown(holder);
      conversations_.erase(holder.conversation);
    }
    rebuild();
  }
  /// The positions of the tokens that a request computes in this iteration: dropped ones first, then those that follow
  /// its context.
  [[nodiscard]] static std::vector<std::int64_t> positions(const Request& r) {
    std::vector<std::int64_t> positions(r.holes.begin(), r.holes.end());
    std::int64_t next = r.computed + static_cast<std::int64_t>(r.holes.size());
    while (static_cast<std::int64_t>(positions.size()) < r.staged) positions.push_back(next++);
    positions.resize(static_cast<std::size_t>(r.staged));
    return positions;
  }
  /// Blocks that were not recomputed as a whole are dropped; `r.computed` is the length of the context again.
  void drop_holes(Request& r) {
    for (std::size_t c = 0; c < r.cells.size(); ++c) {
      const auto first = static_cast<std::int64_t>(c) * per_block();
      const auto hole = r.holes.lower_bound(first);
      if (hole != r.holes.end() && *hole < first + per_block()) lose(r.cells[c]);
    }
    r.computed += static_cast<std::int64_t>(r.holes.size());
    r.holes.clear();
  }
  void keep(Request& r) {
    drop_holes(r);
    shorten(r.cells, r.computed);
    const std::int64_t conversation = r.spec.traits.conversation;
    if (const auto before = conversations_.find(conversation); before != conversations_.end()) {
      for (Cell& cell : before->second.cells) lose(cell);
      disown(holder_of_conversation(conversation));
    }
    hand_over(holder(r.id), holder_of_conversation(conversation));
    conversations_[conversation] = {std::exchange(r.cells, {}), r.computed};
  }
  void fetch(RequestId id, Tokens upto) override {
    if (takes_over()) return take_over(requests_[id.slot]);
    policy_.space->fetches(*this, request(id), upto, *this);
  }

  // --- KV of another engine
  [[nodiscard]] bool takes_over() const { return config_.hands_over && config_.phases == Phases::decode; }
  /// A waiting request has blocks for KV of another engine, or the KV.
  [[nodiscard]] bool holds_kv_outside(const Request& r) const {
    return takes_over() && r.live && !r.in_batch && r.phase == Phase::waiting && !r.cells.empty();
  }
  /// Blocks of the prompt without its last token that are not in the prefix cache.
  [[nodiscard]] std::int64_t missing_kv(const Request& r) const {
    const std::int64_t tokens = r.spec.input.count() - 1;
    std::int64_t there = 0;
    while (config_.prefix_caching && (there + 1) * per_block() <= tokens && find(content(r, there)) >= 0) ++there;
    return (tokens + per_block() - 1) / per_block() - there;
  }
  /// One block at least, for the token that the request computes first.
  [[nodiscard]] Blocks look_up(RequestId id) override {
    const Request& r = requests_[id.slot];
    if (!takes_over() || r.took_over) return Blocks(0);
    return Blocks(std::max<std::int64_t>(1, missing_kv(r)));
  }
  void take_over(Request& r) {
    need(r.live && r.phase == Phase::waiting && !r.in_batch && r.cells.empty() && !r.took_over, "take over");
    const std::int64_t missing = missing_kv(r);
    share_prefix(r);
    r.offered = r.blocks();
    for (std::int64_t left = std::max<std::int64_t>(1, missing); left > 0; --left)
      r.cells.push_back({.gpu = allocate()});
    r.took_over = r.awaits_kv = true;
    r.computed = 0;
    taken_.push_back(r.id);
    rebuild();
    cluster_->awaits_kv(r.id.serial, Blocks(missing));
  }
  void give_back(Request& r) {
    std::erase(taken_, r.id);
    r.awaits_kv = r.delivered = false;
    r.computed = 0;
    release(r);
    rebuild();
  }
  /// Of the waiting requests whose KV has arrived, the last that took blocks gives them back. Returns whether there is
  /// one.
  bool last_gives_back() {
    for (std::size_t i = taken_.size(); i-- > 0;) {
      Request& r = requests_[taken_[i].slot];
      if (r.awaits_kv) continue;
      give_back(r);
      return true;
    }
    return false;
  }
  /// Nothing can run, and no KV is on its way.
  bool makes_way() {
    const auto awaits = [](const Request& r) { return r.live && r.awaits_kv; };
    return takes_over() && std::none_of(requests_.begin(), requests_.end(), awaits) && last_gives_back();
  }
  /// The leading blocks that the GPU holds, up to the last known token but one.
  void share_prefix(Request& r) {
    while (config_.prefix_caching && (r.blocks() + 1) * per_block() < r.known()) {
      const int block = find(content(r, r.blocks()));
      if (block < 0 && !on_host(content(r, r.blocks()))) break;
      if (block >= 0 && blocks_[static_cast<std::size_t>(block)].users++ == 0) free_.remove(block);
      if (block >= 0) ++blocks_[static_cast<std::size_t>(block)].hits;
      r.cells.push_back(Cell{.gpu = block});
    }
  }
  /// `r.computed` is the length of the context.
  void bring_back(Request& r) {
    rebuild();
    policy_.space->returns(*this, request(r.id), *this);
    if (r.on_host) {
      for (Cell& cell : r.cells) {
        need(cell.on(1) && cell.move < 0, "a block is not where the CPU attends");
        if (cell.gpu >= 0) free_block(cell.gpu);
        cell = Cell{.elsewhere = {1}};
      }
      return rebuild();
    }
    while (!r.cells.empty() && r.cells.back().dropped()) {
      r.cells.pop_back();
      r.computed = std::min(r.computed, r.blocks() * per_block());
    }
    std::int64_t dropped = 0;
    for (std::size_t c = 0; c < r.cells.size(); ++c) {
      if (!r.cells[c].dropped()) continue;
      ++dropped;
      for (std::int64_t t = 0; t < per_block(); ++t) r.holes.insert(static_cast<std::int64_t>(c) * per_block() + t);
    }
    // Each run of dropped blocks asks for its own room.
    for (std::size_t c = 0; c < r.cells.size(); ++c) {
      if (!r.cells[c].dropped()) continue;
      std::size_t end = c;
      while (end < r.cells.size() && r.cells[end].dropped()) ++end;
      ask_for(static_cast<std::int64_t>(end - c));
      for (; c < end; ++c) r.cells[c].gpu = allocate();
    }
    if (!r.cells.empty() && r.computed < r.blocks() * per_block()) {
      Cell& last = r.cells.back();
      if (last.move >= 0 && moves_[static_cast<std::size_t>(last.move)].move.to != kGpuTier) {
        ++moves_[static_cast<std::size_t>(last.move)].elsewhere_later;
        last.move = -1;
      }
      if (last.move < 0) last.elsewhere.clear();
      last.changes = last.move >= 0;
    }
    r.computed -= static_cast<std::int64_t>(r.holes.size());
    rebuild();
  }

  // --- Decision
  void join(RequestId id) override {
    Request& r = requests_[id.slot];
    need(r.live && r.phase == Phase::waiting, "join");
    const auto kept = conversations_.find(r.spec.traits.conversation);
    const bool new_turn = r.record.first_scheduled == kNever;
    if (new_turn) {
      r.record.first_scheduled = now_;
      serve(r, r.record.input.count());
      if (config_.hands_over && config_.phases == Phases::prefill) cluster_->begins_prompt(id.serial);
    }
    const bool adopts = kept != conversations_.end();
    if (new_turn && r.spec.traits.conversation >= 0) {
      const std::int64_t stated = r.spec.traits.repeats.count();
      const bool says = stated != RequestTraits{}.repeats.count();
      const std::int64_t found = adopts ? shared(kept->second, r) : 0;
      result_.history_asked += Tokens(says ? std::min(stated, r.spec.input.count() - 1) : found);
      for (std::int64_t t = 0; t < found; ++t) {
        const Cell& cell = kept->second.cells[static_cast<std::size_t>(t / per_block())];
        const bool gpu = cell.on(0);
        result_.history_on_gpu += Tokens(gpu ? 1 : 0);
        result_.history_on_host += Tokens(!gpu && !cell.dropped() ? 1 : 0);
      }
    }
    choose_tier(r);
    if (adopts) {
      hand_over(holder_of_conversation(kept->first), holder(id));
      r.computed = shared(kept->second, r);
      r.cells = kept->second.cells;
      const std::int64_t tokens = kept->second.tokens;
      conversations_.erase(kept);
      shorten(r.cells, std::min({tokens, r.spec.traits.repeats.count(), r.spec.input.count()}));
      bring_back(r);
    }
    if (holds_kv_outside(r)) {
      std::erase(taken_, id);
      return enter_batch(r);
    }
    const bool shares = config_.prefix_caching && policy_.space->takes_prefix(*this, request(id));
    if (shares) share_prefix(r);
    for (std::size_t b = 0; shares && b < r.cells.size(); ++b) {
      if (r.cells[b].gpu >= 0) continue;
      r.cells[b].gpu = allocate();
      const auto what = content(r, static_cast<std::int64_t>(b));
      blocks_[static_cast<std::size_t>(r.cells[b].gpu)].content = what;
      keep(what);
      ++loaded_;
      result_.prefix_hit_host += block_tokens_;
    }
    r.offered = config_.prefix_caching ? r.blocks() : 0;
    if (r.on_host && shares) {
      for (const Cell& cell : std::exchange(r.cells, {})) r.borrowed.push_back(cell.gpu);
    }
    const std::int64_t found = r.offered * per_block();
    r.record.cached += Tokens(found);
    result_.prefix_hit += Tokens(found);
    if (r.delivered) {
      grow(r, r.computed);
      name(r, r.computed);
    } else if (!adopts) {
      r.computed = found;
    }
    enter_batch(r);
  }
  void enter_batch(Request& r) {
    r.phase = Phase::prefilling;
    r.in_batch = true;
    order_.push_back(r.id);
    rebuild();
  }
  void resume(RequestId id) override {
    Request& r = requests_[id.slot];
    need(r.live && r.phase == Phase::swapped, "resume");
    choose_tier(r);
    const auto decodes = [&r] { return r.generated > 0 && r.known() - r.computed == 1; };
    if (decodes()) shorten(r.cells, r.computed);
    bring_back(r);
    name(r, r.computed);
    r.phase = decodes() ? Phase::decoding : Phase::prefilling;
    r.in_batch = true;
    order_.push_back(id);
    rebuild();
  }
  void choose_tier(Request& r) {
    r.on_host = config_.policy->cpu_attention && policy_.space->attends(*this, request(r.id)) == kHostTier;
  }
  void sub_batch(RequestId id, std::int32_t number) override {
    need(requests_[id.slot].in_batch, "sub-batch");
    requests_[id.slot].sub_batch = static_cast<std::size_t>(number);
  }
  void chunk(RequestId id, Tokens tokens) override {
    Request& r = requests_[id.slot];
    need(r.phase == Phase::prefilling && r.staged == 0 && r.computed + tokens.count() <= r.known(), "chunk");
    r.staged = tokens.count();
    const std::int64_t end = positions(r).back() + 1;
    grow(r, end);
    name(r, end);
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
    if (why != Leave::preempt_recompute) {
      drop_holes(r);
      if (why == Leave::suspend) shorten(r.cells, r.computed);
      r.offered = 0;
      r.on_host = false;
      r.sub_batch = 0;
      r.phase = Phase::swapped;
      rebuild();
      value_blocks(r);
      policy_.space->leaves(*this, request(id), *this);
      if (why == Leave::preempt_swap) {
        ++r.record.preempted_swap;
        ++result_.preempted_swap;
      }
    } else {
      r.phase = Phase::waiting;
      release(r);
      r.on_host = false;
      r.sub_batch = 0;
      r.computed = 0;
      r.delivered = false;
      ++r.record.preempted_recompute;
      ++result_.preempted_recompute;
    }
    if (!was_backlogged) lift(r.spec.client);
    rebuild();
    need(tiers_[1].free >= Blocks(0), "out of host blocks");
  }
  void reject(RequestId id) override {
    changed_ = true;
    if (holds_kv_outside(requests_[id.slot])) give_back(requests_[id.slot]);
    end(requests_[id.slot], Outcome::rejected);
  }
  void decodes(std::int64_t count) override {
    need(!decodes_staged_, "decodes twice");
    std::vector<RequestId> running = decoding();
    running.resize(static_cast<std::size_t>(count));
    std::int64_t growth = 0;
    for (const RequestId id : running) {
      const Request& r = requests_[id.slot];
      if (!r.on_host) growth += lacks(r, r.computed + 1);
    }
    ask_for(growth);
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
    if (config_.phases == Phases::decode) {
      r.delivered = !config_.hands_over;
      r.computed = r.spec.input.count() - 1;
    }
    r.number = arrivals_++;
    r.record.index = r.id.serial;
    r.record.client = r.spec.client;
    r.record.arrival = r.spec.arrival;
    r.record.input = r.spec.input;
    r.record.output = config_.phases == Phases::prefill ? Tokens(1) : r.spec.output;
    r.record.traits = r.spec.traits;
    // The engine that goes on with a request must be able to hold its answer, too.
    const Tokens asked = r.spec.max_new_tokens;
    if (config_.phases == Phases::prefill) r.spec.output = r.spec.max_new_tokens = Tokens(1);
    const Tokens answer = config_.hands_over ? asked : r.spec.max_new_tokens;
    if (r.spec.input + answer > config_.max_model_len) return end(r, Outcome::rejected);
    if (config_.padding) {
      if (r.spec.input > config_.padding->input) return end(r, Outcome::rejected);
      if (r.spec.max_new_tokens > config_.padding->output) return end(r, Outcome::rejected);
      r.spec.input = config_.padding->input;
      r.spec.output = r.spec.max_new_tokens = config_.padding->output;
    }
    seen_.insert(r.spec.client);
    if (!was_backlogged) lift(r.spec.client);
    r.heard = false;
    const bool computes = busy_ || (!executed_.empty() && executed_.back().end == now_);
    if (!config_.schedules_ahead || !computes) hear();
    if (config_.request_timeout && cluster_ == nullptr)
      at(std::max(now_, r.spec.arrival + *config_.request_timeout), 2, static_cast<int>(r.id.slot));
  }
  /// The scheduler hears of every request that it has not heard of. Returns whether there was one.
  bool hear() {
    bool any = false;
    for (Request& r : requests_) {
      if (!r.live || r.heard) continue;
      r.heard = any = true;
      policy_.scheduler->arrived(request(r.id));
    }
    return any;
  }
  void expire(Request& r) {
    if (!r.live) return;
    if (busy_ && r.in_batch) {
      expired_.push_back(r.id);
      return;
    }
    hear();
    leave_and_end(r, Outcome::timed_out);
  }
  void leave_and_end(Request& r, Outcome outcome) {
    if (r.in_batch) r.phase = Phase::prefilling;
    if (!config_.prefix_caching && r.in_batch && r.spec.traits.conversation >= 0 &&
        policy_.space->keeps(*this, request(r.id), outcome)) {
      keep(r);
    }
    std::erase(order_, r.id);
    std::erase(taken_, r.id);
    r.in_batch = r.awaits_kv = false;
    const bool parks = config_.hands_over && config_.phases == Phases::prefill && outcome == Outcome::finished;
    if (parks && cluster_->hands_over(r.id.serial)) parked_[r.id.serial] = std::exchange(r.cells, {});
    release(r);
    end(r, outcome);
    policy_.scheduler->ended(r.id, outcome);
  }
  void end(Request& r, Outcome outcome) {
    r.live = false;
    if (!parked_.empty()) silent_ = 0;
    r.phase = Phase::waiting;
    r.record.outcome = outcome;
    r.record.end = now_;
    r.record.generated = std::min(Tokens(r.generated), r.record.output);
    result_.records.push_back(r.record);
    if (cluster_ != nullptr) {
      cluster_->ended(r.record);
      return rebuild();
    }
    turns_[r.position].end = now_;
    for (std::size_t i = 0; i < config_.follows.size() && outcome == Outcome::finished; ++i) {
      const Follows& follows = config_.follows[i];
      if (follows.after == r.spec.traits.conversation) to_arrive(now_ + follows.think, i);
    }
    rebuild();
  }

  /// Requests may decode, and none take a token.
  [[nodiscard]] bool runs_something() const {
    const auto decodes = [&](RequestId id) { return requests_[id.slot].runs_now; };
    return !chunks_.empty() || std::any_of(order_.begin(), order_.end(), decodes);
  }
  void decide() {
    if (busy_) return;
    const bool looks_at_host = config_.prefix_caching && config_.host_cache_blocks > Blocks(0);
    if (looks_at_host || moves_under_way()) links_.advance(now_);
    collect();
    collect_moves();
    // KV of others leaves no prompt enough memory: as many tokens have been computed as fit, and no prompt is complete.
    if (!parked_.empty() && silent_ >= total_.count() * per_block()) return start_moves();
    do {  // until something runs, or nothing changes
      decodes_staged_ = false;
      changed_ = false;
      chunks_.clear();
      rebuild();
      if (policy_.layers) resize(policy_.layers->capacity());
      for (std::size_t tier = 0; tier < states_.size(); ++tier) {
        if (states_[tier].free < Blocks(0)) policy_.space->shrank(*this, TierId(tier), *this);
      }
      policy_.scheduler->decide(*this, *policy_.space, *this);
      if (!decodes_staged_) decodes(static_cast<std::int64_t>(decoding().size()));
      policy_.space->places(*this, *this);
    } while (!runs_something() && (changed_ || hear() || expands() || makes_way()));
    hear();

    // The standing decision as a list.
    std::vector<BatchShape> shapes(kMostSubBatches);
    std::vector<std::vector<PrefillChunk>> chunks(shapes.size());
    const auto decodes_one = [&](const Request& r) {
      BatchShape& shape = shapes[r.sub_batch];
      const Tokens attended(r.computed + 1);
      ++shape.sampled_sequences;
      if (r.on_host) {
        ++shape.cpu_sequences;
        shape.cpu_context += attended;
        return;
      }
      ++shape.decode_sequences;
      shape.decode_context += attended;
      shape.decode_longest = std::max(shape.decode_longest, attended);
    };
    for (const RequestId id : order_) {
      if (requests_[id.slot].runs_now) decodes_one(requests_[id.slot]);
    }
    std::int64_t leaving_tokens = 0;
    std::int64_t leaving_blocks = 0;
    for (const RequestId id : chunks_) {
      const Request& r = requests_[id.slot];
      if (r.delivered) {
        decodes_one(r);
        continue;
      }
      BatchShape& shape = shapes[r.sub_batch];
      std::vector<PrefillChunk>& own = chunks[r.sub_batch];
      std::int64_t last = -2;
      for (const std::int64_t position : positions(r)) {
        const bool goes_on = position == last + 1;
        if (!goes_on) own.push_back(PrefillChunk{Tokens(0), Tokens(position)});
        if (!goes_on && last >= 0) ++shape.continued_chunks;
        own.back().new_tokens += Tokens(1);
        last = position;
      }
      if (r.computed + r.staged == r.known()) ++shape.sampled_sequences;
      if (!r.on_host) continue;
      leaving_tokens += r.known();
      leaving_blocks += (r.known() + per_block() - 1) / per_block();
    }
    prefills_ = false;
    for (std::size_t s = 0; s < shapes.size(); ++s) {
      shapes[s].chunks = chunks[s];
      prefills_ = prefills_ || !chunks[s].empty();
    }
    std::erase_if(shapes, [](const BatchShape& shape) { return shape.empty(); });
    if (shapes.empty()) return start_moves();
    // A request that waits with its KV gives it back after 100 iterations without a token.
    if (takes_over() && silent_ % 100 == 99) static_cast<void>(last_gives_back());
    ++silent_;
    for (int layer = 0; leaving_blocks > 0 && layer < config_.model->layers(); ++layer) {
      const Bytes all(config_.block_bytes.count() * leaving_tokens / per_block());
      links_.add_computed(part_of_blocks({.stream = Stream::d2h, .copies_per_block = config_.copies_per_block},
                                         leaving_blocks, all, layer, config_.model->layers()));
    }
    executed_.push_back({.start = now_});
    busy_ = true;
    start_ = now_;
    executed_.back().end = run_iteration(shapes);
    at(executed_.back().end, 1, 0);
  }
  /// How blocks go that move together.
  struct Way {
    std::size_t route = 0;
    CopyMechanism mechanism = CopyMechanism::many;
    Stream stream = Stream::h2d;
    std::int64_t copies_per_block = 1;
    bool in_turn = false;
  };
  [[nodiscard]] Way way_of(const Move& move) const {
    const std::size_t route = route_of(move);
    return {route, move.mechanism, graph_.routes[route].stream, graph_.routes[route].copies_per_block, move.in_turn};
  }
  /// Takes the waiting moves with this waiter: blocks that go together, in the order of their routes.
  [[nodiscard]] std::vector<std::pair<Way, std::int64_t>> waited_for(Waits waits) {
    std::vector<std::pair<Way, std::int64_t>> together;
    for (std::size_t route = 0; route < graph_.routes.size(); ++route) {
      const std::size_t first = together.size();
      for (const int number : waiting_moves_) {
        NaiveMove& move = moves_[static_cast<std::size_t>(number)];
        if (move.issued || move.move.waits != waits || route_of(move.move) != route) continue;
        move.issued = true;
        const Way way = way_of(move.move);
        std::size_t at = first;
        const auto goes_with = [&](const Way& other) {
          return other.mechanism == way.mechanism && other.in_turn == way.in_turn;
        };
        while (at < together.size() && !goes_with(together[at].first)) ++at;
        if (at == together.size()) together.emplace_back(way, 0);
        together[at].second += move.move.range.count().count();
      }
    }
    std::erase_if(waiting_moves_, [&](int m) { return moves_[static_cast<std::size_t>(m)].issued; });
    return together;
  }
  /// Nothing runs: moves that no iteration waits for start now.
  void start_moves() {
    const auto goes = [&](int m) { return beside(moves_[static_cast<std::size_t>(m)].move); };
    if (std::none_of(waiting_moves_.begin(), waiting_moves_.end(), goes)) return await_moves();
    queue_beside();
    links_.start(now_);
    await_moves();
  }
  /// One copy of blocks, or the share of one layer: the last takes what is left over.
  void queue(const Way& way, std::int64_t blocks, NaiveLinks::BlockCopy how, std::int64_t layer = 0,
             std::int64_t layers = 1) {
    if (blocks == 0) return;
    how.copy = part_of_blocks(way, blocks, config_.block_bytes * blocks, layer, layers);
    links_.add(std::move(how));
  }
  [[nodiscard]] Copy part_of_blocks(const Way& way, std::int64_t blocks, Bytes all_bytes, std::int64_t layer,
                                    std::int64_t layers) const {
    const auto share = [&](std::int64_t all) { return all / layers + (layer + 1 == layers ? all % layers : 0); };
    const bool one = way.mechanism == CopyMechanism::gather || way.mechanism == CopyMechanism::single;
    const std::int64_t copies = one ? 1 : std::max<std::int64_t>(1, share(way.copies_per_block * blocks));
    const Bytes bytes(share(all_bytes.count()));
    const CopyTime time = config_.model->copy(way.stream, copies, bytes, way.mechanism);
    return {.stream = way.stream,
            .layer = static_cast<std::int32_t>(layer),
            .bytes = bytes,
            .launch = time.launch,
            .transfer = time.transfer};
  }
  void queue_beside() {
    std::stable_sort(waiting_moves_.begin(), waiting_moves_.end(), [&](int a, int b) {
      return route_of(moves_[static_cast<std::size_t>(a)].move) < route_of(moves_[static_cast<std::size_t>(b)].move);
    });
    for (const int number : waiting_moves_) {
      NaiveMove& move = moves_[static_cast<std::size_t>(number)];
      if (!beside(move.move)) continue;
      move.issued = true;
      const auto over = [this, number](SimTime) { over_.push_back(number); };
      queue(way_of(move.move), move.move.range.count().count(),
            {.waits = Waits::nobody, .ended = over, .yields = move.move.yields});
    }
    std::erase_if(waiting_moves_, [&](int m) { return moves_[static_cast<std::size_t>(m)].issued; });
  }
  /// Whether the policy added capacity for the head of the queue while nothing runs.
  bool expands() {
    const bool waits = std::any_of(requests_.begin(), requests_.end(), [](const Request& r) { return r.live; });
    if (!policy_.layers || changed_ || !order_.empty() || !waits || !policy_.layers->expand()) return false;
    for (const int block : free_) blocks_[static_cast<std::size_t>(block)].content.clear();
    return true;
  }
  /// Queues the copies of the iteration's blocks on the links.
  void queue_blocks() {
    const auto way_of_cache = [this](Stream host, Stream peer) {
      return Way{.mechanism = config_.host_cache_mechanism,
                 .stream = config_.cache_is_lent ? peer : host,
                 .copies_per_block = config_.host_cache_copies_per_block};
    };
    const Way host_in = way_of_cache(Stream::h2d, Stream::peer_in);
    const Way host_out = way_of_cache(Stream::d2h, Stream::peer_out);
    for (const auto& [way, blocks] : waited_for(Waits::iteration)) queue(way, blocks, {.in_turn = way.in_turn});
    queue(host_in, std::exchange(loaded_, 0), {});
    const std::int64_t layers = config_.model->layers();
    const auto of_layers = waited_for(Waits::layers);
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      for (const auto& [way, blocks] : of_layers) queue(way, blocks, {.waits = Waits::layers}, layer, layers);
    }
    for (int m = 0; m < static_cast<int>(moves_.size()); ++m) {
      const NaiveMove& move = moves_[static_cast<std::size_t>(m)];
      if (move.move.waits == Waits::layers && !move.over) ends_with_iteration_.push_back(m);
    }
    queue_beside();
    std::vector<std::vector<std::uint64_t>> stored;
    for (Stored& kept : host_) {
      if (!kept.sent) stored.push_back(kept.content);
      kept.sent = true;
    }
    const auto arrive = [this, stored](SimTime when) {
      for (Stored& kept : host_) {
        if (std::count(stored.begin(), stored.end(), kept.content) > 0) kept.there = when;
      }
    };
    queue(host_out, std::exchange(put_down_, 0), {.waits = Waits::nobody, .ended = arrive});
  }
  /// The GPU slows compute-bound work down while its share of the time is too high: an average in which each iteration
  /// loses weight with every later one.
  void keep_clock(std::vector<IterationTime>& times) {
    const std::optional<SustainedClock> clock = config_.model->sustained_clock();
    if (!clock) return;
    const double window = to_seconds(clock->window);
    double share = 0.0;
    for (std::size_t i = 0; i < computed_.size(); ++i) {
      const SimTime next = i + 1 < computed_.size() ? computed_[i + 1].first : now_;
      share = (share * window + computed_[i].second) / (window + to_seconds(next - computed_[i].first));
    }
    computed_.emplace_back(now_, 0.0);
    for (IterationTime& time : times) {
      double compute = time.shares.compute;
      if (share > clock->share) {
        const Duration longer = round_seconds((clock->slowdown - 1.0) * compute / config_.model->layers());
        time.layer += longer;
        compute += to_seconds(longer) * config_.model->layers();
      }
      computed_.back().second += compute;
    }
  }
  SimTime run_iteration(const std::vector<BatchShape>& shapes) {
    std::vector<IterationTime> times;
    LayerPolicy* const layers = shapes.size() == 1 ? policy_.layers.get() : nullptr;
    for (const SubBatchShape& part :
         layers != nullptr ? layers->split(shapes.front()) : std::span<const SubBatchShape>()) {
      times.push_back(config_.model->iteration(part.shape));
      times.back().layer += part.cpu_attention;
    }
    std::vector<NaiveLinks::CpuWork> on_cpu(times.size());
    if (times.empty()) {
      for (const BatchShape& shape : shapes) {
        times.push_back(config_.model->iteration(shape));
        on_cpu.push_back(cpu_work(shape));
      }
    }
    keep_clock(times);
    // Beside attention on the CPU, the GPU attends for a sub-batch in the step of the next one.
    std::vector<Duration> step;
    step.reserve(times.size());
    for (const IterationTime& time : times) step.push_back(time.layer);
    const auto works = [](const NaiveLinks::CpuWork& work) { return !work.empty(); };
    for (std::size_t s = 1; s < times.size() && std::ranges::any_of(on_cpu, works); ++s) {
      step[s - 1] -= times[s - 1].attention;
      step[s] += times[s - 1].attention;
    }
    SimTime start = now_;
    report_ = LayerReport{};
    LayerCompute compute;
    for (const IterationTime& time : times) {
      start = start + time.before;
      report_.layer += time.layer;
      compute.kinds.front() += time.layer * config_.model->layers();
      compute.attention += time.attention * config_.model->layers();
    }
    if (draw_) {
      std::vector<std::int64_t> kinds(static_cast<std::size_t>(draw_->patterns()));
      for (const Request& r : requests_) {
        if (r.live) kinds[draw_->pattern_of(r.number)] += r.staged + (r.runs_now ? 1 : 0);
      }
      if (kinds.size() > 1) draw_->mix(kinds);
      draw_->begin(shapes.front());
    }
    for (Streamer& streamer : links_.streamers) {
      streamer.rule = streamer.policy->begin(shapes.front(), compute);
      streamer.owed = streamer.owed && streamer.rule != nullptr;
      streamer.waited = Duration{};
    }
    queue_blocks();
    const Duration waited = links_.waited_for_blocks();
    links_.advance(now_);
    std::vector<Duration> after;
    after.reserve(times.size());
    for (const IterationTime& time : times) after.push_back(time.after);
    const Duration on_cpu_before = links_.waited_for_cpu();
    const Duration experts_before = links_.worked() + links_.waited_for_experts();
    const SimTime end = links_.run(start, step, config_.model->layers(), on_cpu, after);
    const Duration others = links_.waited_for_blocks() - waited + links_.waited_for_cpu() - on_cpu_before +
                            links_.worked() + links_.waited_for_experts() - experts_before;
    const Duration stall = links_.layers_end() - start - report_.layer * config_.model->layers() - others;
    for (std::size_t lane = 0; lane < kWays; ++lane) {
      executed_.back().bytes[lane] = links_.issued(lane) - charged_[lane];
      charged_[lane] = links_.issued(lane);
    }
    executed_.back().stall = stall;
    executed_.back().waited = links_.waited_for_blocks() - waited;
    return end;
  }
  /// The queries and new KV leave, the CPU attends, the outputs return.
  [[nodiscard]] NaiveLinks::CpuWork cpu_work(const BatchShape& shape) const {
    if (shape.cpu_sequences == 0) return {};
    const CpuAttentionTime time = config_.model->cpu_attention(shape.cpu_sequences, shape.cpu_context);
    const CopyTime there = config_.model->copy(Stream::d2h, 1, time.queries, CopyMechanism::single);
    const CopyTime back = config_.model->copy(Stream::h2d, 1, time.outputs, CopyMechanism::single);
    return {
        {.stream = Stream::d2h, .bytes = time.queries, .launch = there.launch, .transfer = there.transfer},
        {.stream = Stream::cpu, .bytes = time.kv, .launch = time.launch, .transfer = time.attention},
        {.stream = Stream::h2d, .bytes = time.outputs, .launch = back.launch, .transfer = back.transfer},
    };
  }
  /// No layer starts any more: copies in flight complete.
  void finish_copies() {
    for (Streamer& streamer : links_.streamers) {
      streamer.rule = nullptr;
      streamer.owed = false;
    }
    links_.stop_yielding();
    links_.advance(kNever);
  }
  void report_layers() {
    report_.length = now_ - start_;
    report_.tokens = emitted_;
    report_.prefills = prefills_;
    rebuild();
    for (const Request& r : requests_) report_.waiting += r.live && !r.in_batch ? 1 : 0;
    report_.free_share =
        static_cast<double>(std::max(tiers_[0].free, Blocks(0)).count()) / static_cast<double>(tiers_[0].total.count());
    for (const Streamer& streamer : links_.streamers) {
      report_.stall = streamer.waited;
      streamer.policy->iteration_ended(report_);
    }
  }
  void complete() {
    busy_ = false;
    executed_.back().ended = true;
    for (const int number : std::exchange(ends_with_iteration_, {})) end_move(number);
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
      for (const std::int64_t position : positions(r)) r.holes.erase(position);
      r.computed += r.staged;
      r.staged = 0;
      r.record.computing += now_ - start_;
      give_back_prefix(r);
      if (r.computed == r.known()) emit(r);
    }
    rebuild();
    collect();
    for (const auto& content : named_) {
      if (config_.host_cache_blocks > Blocks(0)) keep(content);
    }
    named_.clear();
    for (const auto& content : named_on_host_) {
      if (config_.host_cache_blocks > Blocks(0)) keep(content, /*there=*/true);
    }
    named_on_host_.clear();
    for (const RequestId id : expired_) expire(requests_[id.slot]);
    expired_.clear();
    if (policy_.layers) report_layers();
    observe_fairness();
  }
  void emit(Request& r) {
    silent_ = 0;
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
    Bytes bytes[kWays] = {};
    Duration stall{};
    Duration waited{};  // for KV blocks
  };
  /// Extends the state since the last event up to `until`.
  void observe_peaks(SimTime until) {
    cached_.push_back({now_, until, static_cast<std::int64_t>(conversations_.size())});
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
  // --- conversations: what is known of each turn is an entry of a list, and each stretch of time another
  struct Turn {
    SimTime known = kNever;  // the list says that it will come, or the answer before has said so
    SimTime sent = kNever;
    SimTime end = kNever;
  };
  struct Stretch {
    SimTime from{};
    SimTime to{};
    std::int64_t conversations = 0;
  };
  /// A conversation with these turns has begun by `from`, and a turn of it is known that has not ended. Nothing changes
  /// up to the next instant of a turn.
  [[nodiscard]] static bool lives(const std::vector<Turn>& turns, SimTime from) {
    const auto sent = [&](const Turn& turn) { return turn.sent <= from; };
    const auto to_end = [&](const Turn& turn) { return turn.known <= from && from < turn.end; };
    return std::any_of(turns.begin(), turns.end(), sent) && std::any_of(turns.begin(), turns.end(), to_end);
  }
  void sum_up_conversations() {
    const SimTime last = horizon_.value_or(result_.last_completion);
    std::set<SimTime> instants{config_.measured_from, last};
    std::map<std::int64_t, std::vector<Turn>> conversations;
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      if (config_.requests[i].traits.conversation < 0) continue;
      conversations[config_.requests[i].traits.conversation].push_back(turns_[i]);
      instants.insert({turns_[i].known, turns_[i].sent, turns_[i].end});
    }
    std::vector<Stretch> live;
    for (auto at = instants.begin(); at != std::prev(instants.end()); ++at) {
      live.push_back({*at, *std::next(at), 0});
      for (const auto& [number, turns] : conversations) live.back().conversations += lives(turns, *at) ? 1 : 0;
    }
    const auto sum_up = [&](const std::vector<Stretch>& stretches, double& time, std::int64_t& peak) {
      for (const Stretch& one : stretches) {
        const SimTime from = std::max(one.from, config_.measured_from);
        const SimTime to = std::min(one.to, last);
        if (from >= to) continue;
        time += static_cast<double>(one.conversations) * to_seconds(to - from);
        peak = std::max(peak, one.conversations);
      }
    };
    sum_up(live, result_.live_time, result_.peak_live);
    sum_up(cached_, result_.cached_time, result_.peak_cached);
  }
  void sum_up_iterations() {
    const bool cut = !executed_.empty() && !executed_.back().ended;
    const SimTime last = cut ? now_ : kNever;
    finish_copies();
    SimTime before{};
    for (const Executed& one : executed_) {
      result_.iterations += one.ended && one.end >= config_.measured_from ? 1 : 0;
      result_.moved_h2d += Bytes(part(one.bytes[0].count(), one.start, one.end, last));
      result_.moved_d2h += Bytes(part(one.bytes[1].count(), one.start, one.end, last));
      result_.moved_peer_in += Bytes(part(one.bytes[2].count(), one.start, one.end, last));
      result_.moved_peer_out += Bytes(part(one.bytes[3].count(), one.start, one.end, last));
      result_.stall += Duration(part(one.stall.count(), one.start, one.end, last));
      result_.kv_waited += Duration(part(one.waited.count(), one.start, one.end, last));
      add_moving_kv(result_.kv_idle, before, one.start, last);
      add_moving_kv(result_.kv_beside, one.start, one.end, last);
      for (const std::size_t direction : {0U, 1U}) {
        add_copying(direction, before, one.start, last);
        add_copying(direction, one.start, one.end, last);
      }
      before = one.end;
    }
    // The horizon falls into an idle period.
    if (config_.until && now_ == *config_.until && !cut) {
      add_moving_kv(result_.kv_idle, before, now_, kNever);
      for (const std::size_t direction : {0U, 1U}) add_copying(direction, before, now_, kNever);
    }
  }
  void add_moving_kv(Duration& sum, SimTime start, SimTime end, SimTime last) const {
    sum += Duration(part(links_.moving_kv(start, end).count(), start, end, last));
  }
  void add_copying(std::size_t direction, SimTime start, SimTime end, SimTime last) {
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
  /// Nanoseconds from measured_from on during which the client had a live request at the scheduler.
  [[nodiscard]] std::int64_t active(std::uint32_t client) const {
    std::int64_t total = 0;
    SimTime covered = config_.measured_from;
    for (const Request& r : requests_) {  // in order of arrival
      if (r.spec.client != client || r.record.end == kNever || r.record.end <= covered) continue;
      total += (r.record.end - std::max(covered, r.record.arrival + config_.front_end)).count();
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
  NaiveSurroundings* const cluster_;
  Deployment deployment_;
  std::optional<PlainDraw> draw_;
  std::uint64_t arrivals_ = 0;
  Policy policy_;
  NaiveLinks links_;
  LayerReport report_;
  bool prefills_ = false;     // the iteration computes prompts
  std::int64_t emitted_ = 0;  // tokens of the last finished iteration
  Blocks total_{};
  Blocks surplus_{};  // blocks in use beyond the total
  std::vector<Request> requests_;
  std::vector<RequestId> order_;
  Blocks in_parts_{};  // that exist only because some of the others are free in some layers
  std::vector<Block> blocks_;
  std::list<int> free_;
  Retention retention_;  // empty: LRU
  std::multimap<NaiveInstant, int> events_;
  std::uint64_t sequence_ = 0;
  std::int64_t arrivals_left_ = 0;  // arrivals that are known
  bool busy_ = false;
  std::vector<std::pair<SimTime, double>> computed_;  // starts of iterations, and seconds of compute-bound work
  bool decodes_staged_ = false;
  bool changed_ = false;
  SimTime start_{};
  std::vector<RequestId> chunks_;
  std::vector<RequestId> expired_;
  std::map<std::uint32_t, Context> parked_;  // KV to be handed over of requests that have ended here
  std::vector<RequestId> taken_;             // waiting requests with blocks for KV, in order of taking
  std::int64_t silent_ = 0;                  // iterations since the last token
  TierGraph graph_;
  std::vector<TierState> states_;
  std::map<std::int64_t, Kept> conversations_;
  std::vector<NaiveMove> moves_;
  std::vector<int> waiting_moves_;  // not yet issued
  std::vector<int> ends_with_iteration_;
  std::vector<int> over_;  // moves beside iterations that have ended, in the order of their ends
  mutable std::vector<KvRun> shown_;
  std::list<Stored> host_;                         // ordered by use
  std::vector<std::vector<std::uint64_t>> named_;  // blocks filled in the iteration, on the GPU
  std::vector<std::vector<std::uint64_t>> named_on_host_;
  std::int64_t put_down_ = 0;
  std::int64_t loaded_ = 0;
  std::vector<Service> served_;
  std::vector<std::pair<std::uint32_t, std::int64_t>> lifts_;
  std::set<std::uint32_t> seen_;  // clients with a request that was not rejected at arrival
  std::size_t iterations_since_observation_ = 0;
  std::vector<Executed> executed_;
  std::vector<Turn> turns_;         // by position
  std::vector<Stretch> cached_;     // between events
  std::optional<SimTime> horizon_;  // which has ended the run
  Bytes charged_[kWays] = {};       // bytes of layers and beside them, of all iterations so far
  NaiveResult result_;
};

}  // namespace

void read_surroundings(NaiveConfig& config) {
  config.traffic.clear();
  if (const auto traffic = link_traffic(*config.settings)) config.traffic.push_back(*traffic);
  config.phases = phases(*config.settings);
  config.padding = padding(*config.settings);
}

NaiveResult run_naive(const NaiveConfig& config) { return NaiveEngine(config).run(); }

std::unique_ptr<NaiveReplica> make_naive_replica(const NaiveConfig& config, NaiveSurroundings& cluster) {
  return std::make_unique<NaiveEngine>(config, &cluster);
}

}  // namespace spillway::oracle
