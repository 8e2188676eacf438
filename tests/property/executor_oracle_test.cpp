// Random pipelines: the executor's scan against the event-by-event oracle, to the nanosecond, cut and uncut.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/exec/cpu_attention.hpp"
#include "sim/exec/executor.hpp"
#include "sim/exec/kv_copies.hpp"
#include "sim/exec/rule_set.hpp"
#include "tests/oracle/event_executor.hpp"

namespace spillway {
namespace {

constexpr int kShards = 8;
constexpr int kCasesPerShard = 13'000;

/// splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  /// Nearly uniform in [low, high], which suffices for these tests.
  std::int64_t in(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
  }
  std::int32_t small(std::int32_t low, std::int32_t high) { return static_cast<std::int32_t>(in(low, high)); }
  bool chance(int percent) { return in(0, 99) < percent; }

 private:
  std::uint64_t state_;
};

/// Base of the rules below: copies of random size, each with its own tag.
class RandomRule : public LayerRule {
 public:
  RandomRule(std::uint64_t seed, std::int64_t scale) : random_(seed), scale_(scale) {}

 protected:
  Copy make(Stream stream, std::int32_t layer) {
    return {.stream = stream,
            .layer = layer,
            .bytes = Bytes(random_.in(0, 1000)),
            .launch = Duration(random_.chance(50) ? random_.in(0, scale_) : 0),
            .transfer = Duration(random_.chance(5) ? 0 : random_.in(1 + scale_ / 50, 2 * scale_)),
            .tag = tag_++};
  }
  Copy anywhere(std::int32_t layer) {
    constexpr std::array kStream{Stream::h2d, Stream::d2h, Stream::peer_in, Stream::peer_out, Stream::cpu};
    return make(kStream[static_cast<std::size_t>(random_.chance(60) ? random_.in(0, 1) : random_.in(2, 4))], layer);
  }
  Random random_;
  std::int32_t tag_ = 0;

 private:
  std::int64_t scale_;
};

/// Streams one copy per layer through `depth` buffers and continues in the next iteration.
class Prefetch final : public RandomRule {
 public:
  Prefetch(std::uint64_t seed, std::int64_t scale) : RandomRule(seed, scale), depth_(random_.small(1, 4)) {}
  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    if (sub_batch == 0) ++at_;
    for (; issued_ < at_ + depth_; ++issued_) sink.issue(make(Stream::h2d, layer));
  }
  void at_copy_done(const Copy&, CopySink&) override { ++arrived_; }
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return arrived_ > at_; }

 private:
  int depth_;
  int at_ = -1;
  int issued_ = 0;
  int arrived_ = 0;
};

/// Layers take turns on the host. One swap per direction at a time, decided at layer starts, or at completions too.
class Swap final : public RandomRule {
 public:
  Swap(std::uint64_t seed, std::int64_t scale, std::int32_t layers)
      : RandomRule(seed, scale),
        layers_(layers),
        slots_(layers - random_.small(1, layers - 3)),
        eager_(random_.chance(50)),
        together_(random_.chance(50)),
        on_gpu_(static_cast<std::size_t>(layers)) {
    std::fill_n(on_gpu_.begin(), slots_, true);
    in_use_ = slots_;
  }
  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    if (sub_batch > 0) return;
    coldest_ = std::exchange(current_, layer);
    waited_ = false;
    decide(sink);
  }
  void at_copy_done(const Copy& copy, CopySink& sink) override {
    const bool waits = !on_gpu_[static_cast<std::size_t>(current_)];
    const bool in = copy.stream == Stream::h2d;
    (in ? arriving_ : leaving_) = -1;
    if (in) on_gpu_[static_cast<std::size_t>(copy.layer)] = true;
    if (!in) --in_use_;
    if (!together_ && (waits || eager_)) decide(sink);
    waited_ = waited_ || waits;
  }
  void at_copies_done(CopySink& sink) override {
    if (together_ && (std::exchange(waited_, false) || eager_)) decide(sink);
  }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t) const override {
    return on_gpu_[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] std::int32_t quiet(std::int32_t layer) const override {
    std::int32_t n = 0;
    while (leaving_ >= 0 && arriving_ >= 0 && layer + n < layers_ && ready(layer + n, 0)) ++n;
    return n;
  }
  void skip(std::int32_t first, std::int32_t count) override {
    for (std::int32_t layer = first; layer < first + count; ++layer) {
      coldest_ = std::exchange(current_, layer);
      waited_ = false;
    }
  }

 private:
  void decide(CopySink& sink) {
    if (leaving_ < 0 && coldest_ >= 0 && coldest_ != current_ && on_gpu_[static_cast<std::size_t>(coldest_)]) {
      leaving_ = coldest_;
      on_gpu_[static_cast<std::size_t>(leaving_)] = false;
      sink.issue(make(Stream::d2h, leaving_));
    }
    for (std::int32_t distance = 0; arriving_ < 0 && in_use_ < slots_ && distance < layers_; ++distance) {
      const std::int32_t layer = (current_ + distance) % layers_;
      if (on_gpu_[static_cast<std::size_t>(layer)] || layer == leaving_) continue;
      arriving_ = layer;
      ++in_use_;
      sink.issue(make(Stream::h2d, layer));
    }
  }
  std::int32_t layers_;
  std::int32_t slots_;
  bool eager_;
  bool together_;  // decides once for all copies that end at the same instant
  bool waited_ = false;
  std::vector<bool> on_gpu_;
  std::int32_t in_use_;
  std::int32_t current_ = -1;
  std::int32_t coldest_ = -1;
  std::int32_t leaving_ = -1;
  std::int32_t arriving_ = -1;
};

/// One copy in each direction at a time, and nearly all of them alike: each follows the one before, or the two wait for
/// each other. Layers wait for copies that have arrived, and some layers issue a copy elsewhere.
class Pairs final : public RandomRule {
 public:
  Pairs(std::uint64_t seed, std::int64_t scale)
      : RandomRule(seed, scale),
        copies_{some(Stream::h2d), some(Stream::d2h)},
        both_(random_.chance(50)),
        at_once_(random_.chance(30)),
        odd_percent_(random_.chance(50) ? 0 : random_.small(1, 10)),
        layers_per_copy_(random_.chance(30) ? 1000 : random_.small(1, 4)),
        ahead_(random_.small(0, 5)),
        elsewhere_(random_.chance(60) ? 0 : random_.small(3, 30)),
        told_(random_.chance(70) ? 1000 : random_.small(1, 4)),
        most_(random_.chance(70) ? 1 : 2),
        tail_(random_.chance(20) ? random_.small(1, 3) : 0) {
    if (random_.chance(60)) {
      copies_[1].launch = copies_[0].launch;
      copies_[1].transfer = copies_[0].transfer;
    }
  }
  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    if (sub_batch > 0) return;
    ++at_;
    if (issues_elsewhere(at_)) sink.issue(make(random_.chance(50) ? Stream::peer_in : Stream::h2d, layer));
    follow(sink);
  }
  void at_copy_done(const Copy& copy, CopySink& sink) override {
    if (copy.bytes == Bytes(0) || copy.stream == Stream::peer_in) return;
    --under_way_[copy.stream == Stream::h2d ? 0 : 1];
    if (copy.stream == Stream::h2d) ++arrived_;
    // Some copies take no time, and end before the next one of this instant does.
    if (random_.chance(odd_percent_ / 4)) sink.issue({.stream = random_.chance(50) ? Stream::d2h : Stream::peer_in});
    // Others move nothing, but take time.
    if (copy.stream == Stream::d2h && tail_ > 0) sink.issue({.stream = Stream::d2h, .launch = Duration(tail_)});
    if (at_once_) follow(sink);
  }
  void at_copies_done(CopySink& sink) override { follow(sink); }
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return has(at_); }
  [[nodiscard]] std::int32_t quiet(std::int32_t) const override {
    std::int32_t n = 0;
    while (under_way_[0] == most_ && under_way_[1] == most_ && n < told_ && has(at_ + n + 1) &&
           !issues_elsewhere(at_ + n + 1)) {
      ++n;
    }
    return n;
  }
  void skip(std::int32_t, std::int32_t count) override { at_ += count; }

 private:
  Copy some(Stream stream) {
    Copy copy = make(stream, 0);
    copy.bytes += Bytes(1);
    copy.transfer += Duration(1);
    return copy;
  }
  [[nodiscard]] bool has(std::int32_t at) const { return at <= (arrived_ + ahead_) * layers_per_copy_; }
  [[nodiscard]] bool issues_elsewhere(std::int32_t at) const { return elsewhere_ > 0 && at % elsewhere_ == 1; }
  void follow(CopySink& sink) {
    if (both_ && under_way_[0] + under_way_[1] > 0) return;
    for (const std::size_t i : {std::size_t{1}, std::size_t{0}, std::size_t{1}, std::size_t{0}}) {
      // With more at first, copies queue for a while. Copies of no layer would go on for ever.
      if (under_way_[i] >= (at_ < 3 ? most_ : 1) || issued_[i] > 3 * (at_ + 2)) continue;
      ++under_way_[i];
      ++issued_[i];
      Copy copy = random_.chance(odd_percent_) ? some(copies_[i].stream) : copies_[i];
      copy.layer = at_;
      copy.tag = tag_++;
      sink.issue(copy);
      if (!random_.chance(odd_percent_ / 4)) continue;
      // Another one like it.
      ++under_way_[i];
      ++issued_[i];
      copy.tag = tag_++;
      sink.issue(copy);
    }
  }
  std::array<Copy, 2> copies_;
  bool both_;
  bool at_once_;  // does not wait for other copies that end at the same instant
  std::int32_t odd_percent_;
  std::int32_t layers_per_copy_;
  std::int32_t ahead_;
  std::int32_t elsewhere_;
  std::int32_t told_;  // the most layers that are reported as quiet
  std::int32_t most_;  // copies in each direction at first
  std::int32_t tail_;
  std::int32_t at_ = -1;
  std::int32_t arrived_ = 0;
  std::array<std::int32_t, 2> under_way_{};
  std::array<std::int32_t, 2> issued_{};
};

class Blocking final : public RandomRule {
 public:
  using RandomRule::RandomRule;
  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    for (int n = layer == 0 ? random_.small(0, 3) : 0; n > 0; --n) {
      copies_.add(anywhere(layer));
    }
    copies_.at_layer_start(layer, sub_batch, sink);
  }
  void at_copy_done(const Copy& copy, CopySink& sink) override { copies_.at_copy_done(copy, sink); }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t sub_batch) const override {
    return copies_.ready(layer, sub_batch);
  }

 private:
  KvCopies copies_;
};

/// Loads and stores beside each step; the next step waits for all of them.
class Synchronised final : public RandomRule {
 public:
  using RandomRule::RandomRule;
  void at_layer_start(std::int32_t, std::int32_t, CopySink& sink) override {
    wants_to_start_ = true;
    start_if_idle(sink);
  }
  void at_copy_done(const Copy&, CopySink& sink) override {
    --in_flight_;
    if (wants_to_start_) start_if_idle(sink);
  }
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return !wants_to_start_; }

 private:
  void start_if_idle(CopySink& sink) {
    if (in_flight_ > 0) return;
    wants_to_start_ = false;
    for (in_flight_ = 0; random_.chance(60); ++in_flight_) {
      sink.issue(anywhere(0));
    }
  }
  int in_flight_ = 0;
  bool wants_to_start_ = false;
};

/// Each step's results leave while later steps compute, at most `window` at a time; some return.
class WriteBack final : public RandomRule {
 public:
  WriteBack(std::uint64_t seed, std::int64_t scale) : RandomRule(seed, scale), window_(random_.small(0, 3)) {}
  void at_layer_start(std::int32_t layer, std::int32_t, CopySink& sink) override {
    if (!random_.chance(70)) return;
    ++leaving_;
    sink.issue(make(Stream::d2h, layer));
  }
  void at_copy_done(const Copy& copy, CopySink& sink) override {
    if (copy.stream == Stream::h2d) return;
    --leaving_;
    if (random_.chance(40)) sink.issue(make(Stream::h2d, copy.layer));
  }
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return leaving_ <= window_; }

 private:
  int window_;
  int leaving_ = 0;
};

/// Random copies at every call, and waits for a random number of them, also after the layers.
class Chaos final : public RandomRule {
 public:
  using RandomRule::RandomRule;
  void at_layer_start(std::int32_t layer, std::int32_t, CopySink& sink) override {
    while (random_.chance(50)) issue(layer, sink);
    limit_ = random_.small(0, 4);
  }
  void at_copy_done(const Copy& copy, CopySink& sink) override {
    --in_flight_;
    if (random_.chance(30)) issue(copy.layer, sink);
  }
  void at_copies_done(CopySink& sink) override {
    if (random_.chance(10)) issue(0, sink);
  }
  void at_layers_end(CopySink& sink) override {
    while (random_.chance(30)) issue(0, sink);
  }
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return in_flight_ <= limit_; }
  [[nodiscard]] std::optional<Wait> unfinished(std::int32_t sub_batch) const override {
    return in_flight_ + sub_batch <= limit_ + 1 || in_flight_ == 0 ? std::nullopt : std::optional(Wait::layers);
  }

 private:
  void issue(std::int32_t layer, CopySink& sink) {
    ++in_flight_;
    sink.issue(anywhere(layer));
  }
  int in_flight_ = 0;
  int limit_ = 0;
};

/// Works in its layers: groups of equal pieces. Each group may wait for copies, and issues some. Or each piece waits
/// for one copy of a run, or they take turns with copies; then other pieces may come before the first copy and after
/// the last piece.
class Pieces final : public RandomRule {
 public:
  Pieces(std::uint64_t seed, std::int64_t scale) : RandomRule(seed, scale), longest_(scale) {}
  void at_layer_start(std::int32_t layer, std::int32_t, CopySink& sink) override {
    groups_ = random_.small(0, 3);
    issue(layer, sink);
  }
  void at_copy_done(const Copy& copy, CopySink&) override { --(copy.tag == kRun ? awaited_ : in_flight_); }
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return true; }
  [[nodiscard]] bool works_in_layers() const override { return true; }
  [[nodiscard]] LayerWork work(std::int32_t layer, std::int32_t, CopySink& sink) override {
    if (before_ > 0 || (left_ == 0 && after_ > 0)) {
      --(before_ > 0 ? before_ : after_);
      return {.kind = LayerWork::Kind::computes, .time = other_time_};
    }
    if (left_ == 0) {
      if (groups_ == 0) return {};
      if (in_flight_ > most_in_flight_) return {.kind = LayerWork::Kind::waits};
      --groups_;
      left_ = random_.small(1, 6);
      most_alike_ = random_.chance(80) ? 6 : random_.small(0, 2);
      time_ = Duration(random_.chance(20) ? 0 : random_.in(0, longest_));
      arithmetic_ = random_.chance(50);
      most_in_flight_ = random_.small(0, 3);
      issue(layer, sink);
      in_turn_ = random_.chance(40);
      if (random_.chance(50)) {
        each_ = make(Stream::h2d, layer);
        each_.tag = kRun;
        awaited_ = left_;
        if (random_.chance(70)) each_.transfer += time_;  // longer than a piece, so that the pieces wait
        if (in_turn_) return take_turns();
        each_.alike = static_cast<std::int16_t>(left_ - 1);
        sink.issue(each_);
        if (random_.chance(60)) issue(layer, sink);
      }
    }
    if (is_due_) {
      is_due_ = false;
      sink.issue(each_);
    }
    if (awaited_ >= left_) {
      return {.kind = LayerWork::Kind::waits,
              .time = time_,
              .arithmetic = arithmetic_,
              .alike = in_turn_ ? 0 : std::min(left_, most_alike_)};
    }
    --left_;
    is_due_ = in_turn_ && awaited_ > 0;
    if (awaited_ > 0) return {.kind = LayerWork::Kind::computes, .time = time_, .arithmetic = arithmetic_};
    return {.kind = LayerWork::Kind::computes,
            .time = time_,
            .arithmetic = arithmetic_,
            .alike = std::min(left_, most_alike_)};
  }
  void skip_alike(std::int32_t count) override { left_ -= count; }
  void skip_rounds(std::int32_t count) override {
    left_ -= count;
    awaited_ -= count;
  }
  void skip_turns() override {
    left_ = awaited_ = before_ = after_ = 0;
    is_due_ = false;
  }
  static constexpr std::int32_t kRun = -1;
  /// Of the last turns: pieces before the first copy, and after the last piece that waits for one.
  static inline std::array<std::int32_t, 2> others{};

 private:
  LayerWork take_turns() {
    others = {random_.small(0, 2), random_.small(0, 2)};
    before_ = others[0];
    after_ = others[1];
    other_time_ = Duration(random_.in(0, longest_));
    is_due_ = true;
    turns_ = {.copy = each_,
              .copies = left_,
              .time = time_ * left_ + other_time_ * (before_ + after_),
              .arithmetic = arithmetic_ ? time_ * left_ : Duration{},
              .after_last = time_ + other_time_ * after_};
    return {.kind = LayerWork::Kind::turns, .turns = &turns_};
  }
  void issue(std::int32_t layer, CopySink& sink) {
    for (; random_.chance(40); ++in_flight_) sink.issue(anywhere(layer));
  }

  std::int64_t longest_;
  std::int32_t groups_ = 0;  // of this layer, to come
  std::int32_t left_ = 0;    // pieces of this group
  std::int32_t most_alike_ = 0;
  Duration time_{};
  bool arithmetic_ = false;
  int in_flight_ = 0;
  int most_in_flight_ = 0;
  // The last pieces of the group, each of which waits for a copy like this one:
  Copy each_{};
  std::int32_t awaited_ = 0;
  bool in_turn_ = false;
  bool is_due_ = false;
  LayerTurns turns_{};
  std::int32_t before_ = 0;
  std::int32_t after_ = 0;
  Duration other_time_{};
};

/// Some sub-batches attend on the CPU. Beside them blocks of requests may move, and weights may work in layers.
class Attention final : public RandomRule {
 public:
  Attention(std::uint64_t seed, std::int64_t scale, std::size_t sub_batches)
      : RandomRule(seed, scale), moves_(random_.chance(40)), pieces_(seed + 1, scale) {
    set_.set(kCpuAttention, &rule_);
    if (random_.chance(30)) set_.set(kWeightCopies, &pieces_);
    if (moves_) set_.set(kRequestCopies, &blocks_);
    std::vector<CpuAttentionWork> work(sub_batches);
    for (CpuAttentionWork& one : work) {
      if (random_.chance(70)) one.queries = make(Stream::d2h, 0);
      if (random_.chance(70)) one.attention = make(Stream::cpu, 0);
      if (random_.chance(70)) one.outputs = make(Stream::h2d, 0);
    }
    rule_.begin(work);
    work_ = std::move(work);
  }
  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    if (layer == 0 && sub_batch == 0) begin();
    set_.at_layer_start(layer, sub_batch, sink);
  }
  void at_copy_done(const Copy& copy, CopySink& sink) override { set_.at_copy_done(copy, sink); }
  void at_copies_done(CopySink& sink) override { set_.at_copies_done(sink); }
  void at_layers_end(CopySink& sink) override { set_.at_layers_end(sink); }
  [[nodiscard]] Recurrence recurs(std::int32_t layer) const override { return set_.recurs(layer); }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t sub_batch) const override {
    return set_.ready(layer, sub_batch);
  }
  [[nodiscard]] Wait waits_for(std::int32_t layer, std::int32_t sub_batch) const override {
    return set_.waits_for(layer, sub_batch);
  }
  [[nodiscard]] std::optional<Wait> unfinished(std::int32_t sub_batch) const override {
    return set_.unfinished(sub_batch);
  }
  [[nodiscard]] bool works_in_layers() const override { return set_.works_in_layers(); }
  [[nodiscard]] LayerWork work(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    return set_.work(layer, sub_batch, sink);
  }
  void skip_alike(std::int32_t count) override { set_.skip_alike(count); }
  void skip_rounds(std::int32_t count) override { set_.skip_rounds(count); }
  void skip_turns() override { set_.skip_turns(); }

 private:
  void begin() {
    rule_.begin(work_);
    while (moves_ && random_.chance(40)) {
      Copy copy = make(random_.chance(50) ? Stream::h2d : Stream::d2h, random_.small(0, 3));
      copy.transfer += Duration(1);  // one that takes no time may end at any call
      const std::int64_t kind = random_.in(0, 4);
      if (kind == 0) blocks_.add(copy);
      if (kind == 1) blocks_.add_for_layer(copy);
      if (kind == 2) blocks_.add_background(copy, 0);
      if (kind == 3) blocks_.add_yielding(copy, 0);
      if (kind == 4) blocks_.add_after_layer(copy);
    }
  }

  bool moves_;
  CpuAttention rule_;
  KvCopies blocks_;
  Pieces pieces_;
  RuleSet set_;
  std::vector<CpuAttentionWork> work_;
};

// ---------------------------------------------------------------------------------------------------------------------

enum class Family { none, prefetch, swap, blocking, synchronised, write_back, chaos, attention, pieces, pairs };
constexpr int kFamilies = 10;

struct Case {
  std::uint64_t seed = 0;
  Family family = Family::none;
  std::int64_t scale = 1;
  std::int32_t layers = 1;
  std::vector<oracle::Iteration> iterations{};
  std::vector<oracle::LinkChange> changes{};
  oracle::Surroundings around{};
};

Case make_case(std::uint64_t seed) {
  Random random(seed);
  Case c{.seed = seed, .family = static_cast<Family>(random.in(0, kFamilies - 1))};
  c.scale = std::array<std::int64_t, 3>{3, 50, 1'000'000}[static_cast<std::size_t>(random.in(0, 2))];
  c.layers = random.small(c.family == Family::swap ? 4 : 1, 9);
  if (c.family == Family::attention && random.chance(50)) c.layers += random.small(1, 40);
  if (c.family == Family::pairs) c.layers += random.small(1, 60);
  const auto sub_batches = static_cast<std::size_t>(c.family == Family::pairs ? 1 : random.in(1, 3));
  std::int64_t horizon = 0;
  for (std::int64_t n = random.in(1, 3); n > 0; --n) {
    const auto duration = [&] { return Duration(random.chance(10) ? 0 : random.in(0, c.scale)); };
    oracle::Iteration iteration{.gap = random.chance(50) ? Duration{} : 3 * duration(), .layers = c.layers};
    for (std::size_t s = 0; s < sub_batches; ++s) {
      oracle::SubBatch sub{.before = duration(), .after = duration()};
      const bool uneven = c.family != Family::pairs && random.chance(50);
      for (std::int32_t k = 0; k < c.layers; ++k) {
        sub.gpu.push_back(uneven || k == 0 ? duration() : sub.gpu[0]);
        horizon += 2 * sub.gpu.back().count();
      }
      iteration.sub_batches.push_back(std::move(sub));
    }
    c.iterations.push_back(std::move(iteration));
  }
  // Others say what copies get of the links, or the links are the group's own and those of its server.
  c.around.others_copy = random.chance(c.family == Family::pairs ? 5 : 25);
  for (std::int64_t n = random.chance(c.family == Family::pairs ? 20 : 50) ? random.in(1, 6) : 0; n > 0; --n) {
    oracle::LinkChange& change = c.changes.emplace_back();
    change.at = SimTime(random.in(0, 2 * horizon));
    change.link = static_cast<std::size_t>(random.in(0, 3));
    change.den = random.in(1, 20);
    change.num = random.chance(20) ? change.den : random.in(change.den, 5 * change.den);
    for (std::int64_t flows = random.in(0, 2); flows > 0; --flows) {
      change.traffic.push_back(0.01 * static_cast<double>(random.in(1, 100)));
    }
  }
  if (random.chance(60)) {
    const auto slowdown = [&]() -> Slowdown {
      const std::int64_t den = random.in(1, 20);
      return {random.chance(20) ? den : random.in(den, 3 * den), den};
    };
    c.around.links.sharing = {.h2d = slowdown(), .d2h = slowdown(), .compute = slowdown()};
  }
  // Copies of up to 1,000 bytes that take up to 2 * scale ns: totals of that order, in bytes/s.
  const auto crossing = [&](int percent) { return random.chance(percent) ? random.in(1, 4) : 0; };
  for (std::int64_t n = random.chance(c.family == Family::pairs ? 10 : 40) ? random.in(1, 3) : 0;
       n > 0 && !c.around.others_copy; --n) {
    const double bytes_per_second = static_cast<double>(random.in(50, 2000)) * 1e9 / static_cast<double>(c.scale);
    oracle::PlainTotal& total = c.around.links.totals.emplace_back();
    total = {bytes_per_second, {crossing(50), crossing(50), crossing(30), crossing(30)}};
    total.gpus[static_cast<std::size_t>(random.in(0, 4))] = random.in(1, 4);
  }
  std::stable_sort(c.changes.begin(), c.changes.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  return c;
}

std::unique_ptr<LayerRule> make_rule(const Case& c) {
  switch (c.family) {
    case Family::none:
      return nullptr;
    case Family::prefetch:
      return std::make_unique<Prefetch>(c.seed, c.scale);
    case Family::swap:
      return std::make_unique<Swap>(c.seed, c.scale, c.layers);
    case Family::blocking:
      return std::make_unique<Blocking>(c.seed, c.scale);
    case Family::synchronised:
      return std::make_unique<Synchronised>(c.seed, c.scale);
    case Family::write_back:
      return std::make_unique<WriteBack>(c.seed, c.scale);
    case Family::chaos:
      return std::make_unique<Chaos>(c.seed, c.scale);
    case Family::attention:
      return std::make_unique<Attention>(c.seed, c.scale, c.iterations.front().sub_batches.size());
    case Family::pieces:
      return std::make_unique<Pieces>(c.seed, c.scale);
    case Family::pairs:
      return std::make_unique<Pairs>(c.seed, c.scale);
  }
  return nullptr;
}

/// Records the calls that reach a rule.
class Recorder final : public LayerRule {
 public:
  /// Layer and sub-batch, -1 and the copy's tag, -2 for copies done, -3 for the end of the layers, or -4 and whether it
  /// is the end of a layer's work.
  using Call = std::array<std::int32_t, 2>;
  /// `recurs`: layers that repeat the one before may be left out, and their calls, too.
  explicit Recorder(std::unique_ptr<LayerRule> rule, bool recurs = false) : rule_(std::move(rule)), recurs_(recurs) {}
  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    calls.push_back({layer, sub_batch});
    if (executor_ == nullptr) executor_ = &sink;
    rule_->at_layer_start(layer, sub_batch, sink);
  }
  void at_copy_done(const Copy& copy, CopySink& sink) override {
    calls.push_back({-1, copy.tag});
    repeated += executor_ != nullptr && &sink != executor_ ? 1 : 0;
    rule_->at_copy_done(copy, sink);
  }
  [[nodiscard]] std::int32_t quiet(std::int32_t layer) const override { return rule_->quiet(layer); }
  void skip(std::int32_t first, std::int32_t count) override {
    for (std::int32_t layer = first; layer < first + count; ++layer) calls.push_back({layer, 0});
    rule_->skip(first, count);
  }
  [[nodiscard]] Recurrence recurs(std::int32_t layer) const override {
    return recurs_ ? rule_->recurs(layer) : Recurrence{};
  }
  void at_copies_done(CopySink& sink) override {
    calls.push_back({-2, 0});
    rule_->at_copies_done(sink);
  }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t sub_batch) const override {
    return rule_->ready(layer, sub_batch);
  }
  [[nodiscard]] Wait waits_for(std::int32_t layer, std::int32_t sub_batch) const override {
    return rule_->waits_for(layer, sub_batch);
  }
  void at_layers_end(CopySink& sink) override {
    calls.push_back({-3, 0});
    rule_->at_layers_end(sink);
  }
  [[nodiscard]] std::optional<Wait> unfinished(std::int32_t sub_batch) const override {
    return rule_->unfinished(sub_batch);
  }
  [[nodiscard]] bool works_in_layers() const override { return rule_->works_in_layers(); }
  [[nodiscard]] LayerWork work(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    const LayerWork work = rule_->work(layer, sub_batch, sink);
    if (work.kind == LayerWork::Kind::turns) copies_ = work.turns->copies;
    if (work.kind == LayerWork::Kind::none || work.kind == LayerWork::Kind::computes) {
      calls.push_back({-4, work.kind == LayerWork::Kind::none ? 1 : 0});
    }
    return work;
  }
  void skip_alike(std::int32_t count) override {
    calls.insert(calls.end(), static_cast<std::size_t>(count), {-4, 0});
    ++skips;
    rule_->skip_alike(count);
  }
  void skip_rounds(std::int32_t count) override {
    add_rounds(count);
    ++rounds[0];
    rule_->skip_rounds(count);
  }
  void skip_turns() override {
    const auto [before, after] = Pieces::others;
    calls.insert(calls.end(), static_cast<std::size_t>(before), {-4, 0});
    add_rounds(copies_);
    calls.insert(calls.end(), static_cast<std::size_t>(after), {-4, 0});
    ++rounds[1];
    rule_->skip_turns();
  }
  [[nodiscard]] LayerRule* get() { return rule_ ? this : nullptr; }
  std::vector<Call> calls{};
  int skips = 0;                // of equal pieces
  int repeated = 0;             // ends of copies that the executor told while pairs repeated
  std::array<int, 2> rounds{};  // of runs, and turns

 private:
  void add_rounds(std::int32_t count) {
    for (std::int32_t i = 0; i < count; ++i) {
      for (const Call& call : {Call{-1, Pieces::kRun}, Call{-2, 0}, Call{-4, 0}}) calls.push_back(call);
    }
  }

  std::unique_ptr<LayerRule> rule_;
  bool recurs_;
  const CopySink* executor_ = nullptr;  // the sink of all calls but those made while pairs repeat
  std::int32_t copies_ = 0;             // of the last turns
};

/// What an observer hears of. A wait may be told in parts.
struct Heard final : CopyObserver {
  using Times = std::array<std::int64_t, 3>;  // a tag or a kind, from, until
  void copied(const Copy& copy, SimTime started, SimTime ended) override {
    copies.push_back({copy.tag, started.ns(), ended.ns()});
  }
  void waited(Wait what, SimTime from, SimTime until) override {
    const auto kind = static_cast<std::int64_t>(what);
    if (!waits.empty() && waits.back()[0] == kind && waits.back()[2] == from.ns()) {
      waits.back()[2] = until.ns();
    } else {
      waits.push_back({kind, from.ns(), until.ns()});
    }
  }
  std::vector<Times> copies{};
  std::vector<Times> waits{};
};

struct Trace {
  oracle::Result result{};
  std::vector<Recorder::Call> calls{};
  Heard heard{};
  Executor::Waited waited{};
  std::array<Bytes, kLinks> issued{};
  int skips = 0;
  int repeated = 0;
  std::array<int, 2> rounds{};
};

Trace run_oracle(const Case& c) {
  Recorder rule(make_rule(c));
  Trace trace{.result = oracle::execute(c.iterations, c.changes, rule.get(), c.around)};
  trace.calls = std::move(rule.calls);
  return trace;
}

/// Whether the case would end differently, or use its time differently, without any slowdown.
bool sharing_shows(const Case& c, const Trace& trace) {
  Case alone = c;
  alone.around.links = {};
  return run_oracle(alone).result.uses != trace.result.uses;
}

/// `each`: as one value per layer, which may be equal.
LayerTimes layer_times(const std::vector<Duration>& times, bool each) {
  const bool uniform =
      !each && std::all_of(times.begin(), times.end(), [&](Duration time) { return time == times[0]; });
  return uniform ? LayerTimes(times[0]) : LayerTimes(std::span(times));
}

oracle::Uses uses_of(const Executor& executor) {
  oracle::Uses uses;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const StreamUse& use = executor.use(static_cast<Stream>(i));
    uses[i] = {use.busy, use.stall, use.bytes};
  }
  return uses;
}

/// Runs the case with cuts at its slowdown changes and at `cut_percent` of the other opportunities. `each`: layers have
/// times of their own, so none are taken together.
Trace run_executor(const Case& c, int cut_percent, bool recurs = false, bool each = false) {
  Recorder rule(make_rule(c), recurs);
  Random random(c.seed + 1);
  CopyRoute route;
  std::vector<BytesPerSecond> totals;
  for (const oracle::PlainTotal& total : c.around.links.totals) {
    for (std::size_t way = 0; way < oracle::kWays; ++way) {
      if (total.gpus[way] > 0) route.all()[way]->push_back({totals.size(), total.gpus[way]});
    }
    totals.emplace_back(total.bytes_per_second);
  }
  const CopySharing& sharing = c.around.links.sharing;
  Trace trace;
  // Who hears of each copy gets no layers that repeat the one before, and no turns at once.
  Executor executor(CopyLinks(sharing, route, totals), sharing.compute, recurs ? nullptr : &trace.heard,
                    c.around.others_copy);
  auto change = c.changes.begin();
  Slowdowns slowdowns;
  const auto apply = [&] {
    if (c.around.others_copy) {
      slowdowns[change->link] = {change->num, change->den};
      executor.set_slowdowns(slowdowns, executor.now());
    } else {
      executor.set_traffic(change->traffic);
    }
    ++change;
  };
  for (const oracle::Iteration& iteration : c.iterations) {
    std::vector<SubBatchTimes> sub_batches;
    for (const oracle::SubBatch& sub : iteration.sub_batches) {
      sub_batches.push_back({sub.before, layer_times(sub.gpu, each), sub.after});
    }
    const IterationPlan plan{iteration.layers, sub_batches, rule.get()};
    const SimTime last_finish = trace.result.finishes.empty() ? SimTime{} : trace.result.finishes.back();
    const SimTime start = last_finish + iteration.gap;
    for (; change != c.changes.end() && change->at < start; apply()) executor.run_copies(rule.get(), change->at);
    executor.begin(plan, start);
    for (bool finished = false; !finished;) {
      const SimTime next_change = change == c.changes.end() ? kNever : change->at;
      const SimTime cut = random.chance(cut_percent) ? executor.now() + Duration(random.in(0, c.scale)) : kNever;
      const RunOutcome outcome = executor.run(plan, std::min(cut, next_change));
      EXPECT_EQ(outcome.time, executor.now());
      finished = outcome.finished;
      if (!finished && outcome.time == next_change) apply();
      if (finished) trace.result.finishes.push_back(outcome.time);
    }
    trace.result.uses.push_back(uses_of(executor));
  }
  for (; change != c.changes.end(); apply()) executor.run_copies(rule.get(), change->at);
  executor.run_copies(rule.get(), kNever);
  trace.result.uses.push_back(uses_of(executor));
  trace.calls = std::move(rule.calls);
  trace.waited = executor.waited();
  for (std::size_t i = 0; i < kLinks; ++i) trace.issued[i] = executor.issued(static_cast<Stream>(i + 1));
  trace.skips = rule.skips;
  trace.repeated = rule.repeated;
  trace.rounds = rule.rounds;
  return trace;
}

void expect_same_times(const Trace& trace, const Trace& expected, const std::string& what) {
  EXPECT_EQ(trace.result.finishes, expected.result.finishes) << what;
  EXPECT_EQ(trace.result.uses, expected.result.uses) << what;
}
void expect_same(const Trace& trace, const Trace& expected, const std::string& what) {
  expect_same_times(trace, expected, what);
  EXPECT_EQ(trace.calls, expected.calls) << what;
}

class ExecutorOracle : public testing::TestWithParam<int> {};

TEST_P(ExecutorOracle, RandomPipelines_AgreeToTheNanosecond) {
  std::array<int, kStreams> stalled{};
  int shared = 0;
  int left_out = 0;
  int together = 0;
  int pairs = 0;
  std::array<int, 2> rounds{};
  for (int i = 0; i < kCasesPerShard; ++i) {
    const Case c = make_case(static_cast<std::uint64_t>(GetParam() * kCasesPerShard + i) * 1'000'003U);
    const std::string name =
        "seed " + std::to_string(c.seed) + ", family " + std::to_string(static_cast<int>(c.family));
    const Trace expected = run_oracle(c);
    const Trace uncut = run_executor(c, 0);
    expect_same(uncut, expected, name);
    together += uncut.skips > 0 ? 1 : 0;
    rounds[0] += uncut.rounds[0] > 0 ? 1 : 0;
    EXPECT_EQ(uncut.rounds[1], 0) << name;
    expect_same(run_executor(c, 90), expected, name + ", cut");
    if (c.family == Family::pairs) {
      const Trace one_by_one = run_executor(c, 0, /*recurs=*/false, /*each=*/true);
      EXPECT_EQ(one_by_one.repeated, 0) << name;
      EXPECT_EQ(uncut.heard.copies, one_by_one.heard.copies) << name;
      EXPECT_EQ(uncut.heard.waits, one_by_one.heard.waits) << name;
      EXPECT_EQ(uncut.waited, one_by_one.waited) << name;
      EXPECT_EQ(uncut.issued, one_by_one.issued) << name;
      const Trace cut = run_executor(c, 10);
      expect_same(cut, expected, name + ", seldom cut");
      EXPECT_EQ(cut.heard.copies, one_by_one.heard.copies) << name;
      EXPECT_EQ(cut.waited, one_by_one.waited) << name;
      pairs += uncut.repeated > 2 ? 1 : 0;
    }
    if (c.family == Family::pieces) {
      const Trace unheard = run_executor(c, 0, /*recurs=*/true);
      expect_same(unheard, expected, name + ", unheard");
      EXPECT_EQ(unheard.waited, uncut.waited) << name;
      EXPECT_EQ(unheard.issued, uncut.issued) << name;
      expect_same(run_executor(c, 30, /*recurs=*/true), expected, name + ", unheard, cut");
      rounds[1] += unheard.rounds[1] > 0 ? 1 : 0;
    }
    if (c.family == Family::attention) {
      const Trace repeated = run_executor(c, 0, /*recurs=*/true);
      expect_same_times(repeated, expected, name + ", repeated layers left out");
      expect_same_times(run_executor(c, 30, /*recurs=*/true), expected, name + ", cut, repeated layers left out");
      left_out += repeated.calls.size() < expected.calls.size() ? 1 : 0;
    }
    if (HasFailure()) return;
    shared += sharing_shows(c, expected) ? 1 : 0;
    const oracle::Uses& total = expected.result.uses.back();
    for (std::size_t s = 0; s < stalled.size(); ++s) stalled[s] += total[s].stall > Duration{} ? 1 : 0;
  }
  // The cases are useful only if every stream often waits for another stream and slows another down.
  EXPECT_GE(shared, kCasesPerShard / 4);
  EXPECT_GE(left_out, kCasesPerShard / kFamilies / 5);
  EXPECT_GE(together, kCasesPerShard / kFamilies / 5);
  EXPECT_GE(pairs, kCasesPerShard / kFamilies / 8);
  for (const int of_kind : rounds) EXPECT_GE(of_kind, kCasesPerShard / kFamilies / 10);
  for (std::size_t s = 0; s < stalled.size(); ++s) {
    const double share = static_cast<double>(stalled[s]) / kCasesPerShard;
    RecordProperty("stalled_stream_" + std::to_string(s), std::to_string(share));
    EXPECT_GE(share, 0.2) << "stream " << s;
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, ExecutorOracle, testing::Range(0, kShards));

}  // namespace
}  // namespace spillway
