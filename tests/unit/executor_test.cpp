// Iterations with times in closed form (the papers' pipeline formulas), and the executor's guarantees: cuts, slowdowns,
// copies that outlast an iteration, accounting.
#include "sim/exec/executor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "policies/parts/layer_swap.hpp"
#include "sim/core/error.hpp"
#include "sim/core/units.hpp"
#include "sim/exec/cpu_attention.hpp"
#include "sim/exec/kv_copies.hpp"

namespace spillway {
namespace {

constexpr Duration ns(std::int64_t count) { return Duration(count); }
constexpr SimTime at(std::int64_t count) { return SimTime(count); }
constexpr std::int64_t us(double count) { return static_cast<std::int64_t>(count * 1000.0); }

Copy copy(Stream stream, std::int32_t layer, std::int64_t transfer, std::int64_t launch = 0) {
  return {.stream = stream, .layer = layer, .bytes = Bytes(10), .launch = ns(launch), .transfer = ns(transfer)};
}

/// Runs one iteration from the executor's present time; returns its length.
Duration iterate(Executor& executor, const IterationPlan& plan) {
  const SimTime start = executor.now();
  executor.begin(plan, start);
  const RunOutcome outcome = executor.run(plan, kNever);
  EXPECT_TRUE(outcome.finished);
  return outcome.time - start;
}

Duration iterate(std::int32_t layers, std::vector<SubBatchTimes> sub_batches, LayerRule* rule) {
  Executor executor;
  return iterate(executor, {layers, sub_batches, rule});
}

class ReadyRule final : public LayerRule {
 public:
  void at_layer_start(std::int32_t, std::int32_t, CopySink&) override {}
  void at_copy_done(const Copy&, CopySink&) override {}
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return true; }
};

/// Streams every layer's copy through `depth` buffers: the copy of layer k is issued when layer k - depth has computed.
class Prefetch final : public LayerRule {
 public:
  Prefetch(std::int32_t layers, std::int32_t depth, std::int64_t transfer, std::int64_t backlog = 0)
      : layers_(layers), depth_(depth), transfer_(transfer), backlog_(backlog) {}
  void at_layer_start(std::int32_t layer, std::int32_t, CopySink& sink) override {
    if (layer == 0 && backlog_ > 0) sink.issue(copy(Stream::h2d, kBacklog, backlog_));
    for (; issued_ < std::min(layers_, layer + depth_); ++issued_) sink.issue(copy(Stream::h2d, issued_, transfer_));
  }
  void at_copy_done(const Copy& done, CopySink&) override { arrived_ += done.layer == kBacklog ? 0 : 1; }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t) const override { return arrived_ > layer; }

 private:
  static constexpr std::int32_t kBacklog = -1;
  std::int32_t layers_;
  std::int32_t depth_;
  std::int64_t transfer_;
  std::int64_t backlog_;
  std::int32_t issued_ = 0;
  std::int32_t arrived_ = 0;
};

/// Layers interval, 2 * interval, ... (counted from 1) are on the host; a group's first layer fetches the group's last.
class SelectN final : public LayerRule {
 public:
  SelectN(std::int32_t layers, std::int32_t interval, std::int64_t transfer)
      : layers_(layers), interval_(interval), transfer_(transfer) {}
  void at_layer_start(std::int32_t layer, std::int32_t, CopySink& sink) override {
    const std::int32_t last = layer + interval_ - 1;
    if (layer % interval_ == 0 && last < layers_) sink.issue(copy(Stream::h2d, last, transfer_));
  }
  void at_copy_done(const Copy& done, CopySink&) override { arrived_ = done.layer; }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t) const override {
    return layer % interval_ != interval_ - 1 || arrived_ == layer;
  }

 private:
  std::int32_t layers_;
  std::int32_t interval_;
  std::int64_t transfer_;
  std::int32_t arrived_ = -1;
};

/// FlexGen: every step loads and stores while it computes; then all streams synchronise.
class FlexGenStep final : public LayerRule {
 public:
  FlexGenStep(std::int64_t load, std::int64_t store) : load_(load), store_(store) {}
  void at_layer_start(std::int32_t layer, std::int32_t, CopySink& sink) override {
    wants_to_start_ = true;
    start_if_synchronised(layer, sink);
  }
  void at_copy_done(const Copy& done, CopySink& sink) override {
    --in_flight_;
    if (wants_to_start_) start_if_synchronised(done.layer + 1, sink);
  }
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return !wants_to_start_; }

 private:
  void start_if_synchronised(std::int32_t layer, CopySink& sink) {
    if (in_flight_ > 0) return;
    sink.issue(copy(Stream::h2d, layer, load_));
    sink.issue(copy(Stream::d2h, layer, store_));
    in_flight_ = 2;
    wants_to_start_ = false;
  }
  std::int64_t load_;
  std::int64_t store_;
  int in_flight_ = 0;
  bool wants_to_start_ = false;
};

// ---------------------------------------------------------------------------------------------------------------------

TEST(ExecutorClosedForm, WithoutRule_IsTheSumOfTheWork) {
  // Nothing can wait: sum of before + layers * gpu + after over the sub-batches = (3 + 4*10 + 2) + (1 + 4*20 + 5) =
  // 131.
  const std::vector<SubBatchTimes> uniform{{ns(3), ns(10), ns(2)}, {ns(1), ns(20), ns(5)}};
  EXPECT_EQ(iterate(4, uniform, nullptr), ns(131));
  // The same work layer by layer, through the general path: times per layer, a rule that is always ready.
  const std::vector<Duration> gpu{ns(4), ns(16), ns(9), ns(11)};  // sum 40
  const std::vector<SubBatchTimes> uneven{{ns(3), std::span(gpu), ns(2)}, uniform[1]};
  ReadyRule ready;
  EXPECT_EQ(iterate(4, uneven, nullptr), ns(131));
  EXPECT_EQ(iterate(4, uneven, &ready), ns(131));
  EXPECT_EQ(iterate(0, uniform, &ready), ns(11));
}

TEST(ExecutorClosedForm, Prefetch_FollowsThePipelineFormulas) {
  // Layers of c, fetches of x, link backlog b. Two buffers or more hide the shorter of c and x behind the longer,
  // b + x + (L-1) * max(c, x) + c; one buffer hides nothing, b + L * (c + x).
  for (const std::int32_t layers : {1, 2, 7, 32}) {
    for (const std::int64_t c : {1, 5, 9}) {
      for (const std::int64_t x : {1, 5, 12}) {
        for (const std::int64_t b : {0, 30}) {
          for (const std::int32_t depth : {2, 3, 32}) {
            Prefetch rule(layers, depth, x, b);
            EXPECT_EQ(iterate(layers, {{.gpu = ns(c)}}, &rule), ns(b + x + (layers - 1) * std::max(c, x) + c));
          }
          Prefetch rule(layers, 1, x, b);
          EXPECT_EQ(iterate(layers, {{.gpu = ns(c)}}, &rule), ns(b + layers * (c + x)));
        }
      }
    }
  }
}

TEST(ExecutorClosedForm, Pensieve_SwapInPipeline) {
  // 4 layers of 1 ms, 1.5 ms of KV each, all issued at once: layers start at 1.5, 3, 4.5, 6, end at 7.0 ms. With 0.5 ms
  // of KV the first layer waits 0.5 ms and the rest is hidden: 4.5 ms.
  Prefetch slow(4, 4, us(1500));
  EXPECT_EQ(iterate(4, {{.gpu = ns(us(1000))}}, &slow), ns(us(7000)));
  Prefetch fast(4, 4, us(500));
  EXPECT_EQ(iterate(4, {{.gpu = ns(us(1000))}}, &fast), ns(us(4500)));
}

TEST(ExecutorClosedForm, DeepSpeed_StreamsEveryLayer) {
  // OPT-6.7B on a T4: a layer of 24 * 4096^2 bytes at 12.89 GiB/s takes 29.0923 ms; 32 of them are 0.931 s. Compute of
  // 10 ms hides behind the transfers, except for the last layer. A bucket that prefetches nothing adds instead.
  const Duration x = round_seconds(Bytes(24L * 4096 * 4096) / BytesPerSecond(12.89 * 1024 * 1024 * 1024));
  EXPECT_EQ(x, ns(29'092'320));
  Prefetch whole_layer(32, 2, x.count());
  EXPECT_EQ(iterate(32, {{.gpu = ns(10'000'000)}}, &whole_layer), 32 * x + ns(10'000'000));
  Prefetch none(32, 1, x.count());
  EXPECT_EQ(iterate(32, {{.gpu = ns(10'000'000)}}, &none), 32 * (x + ns(10'000'000)));
}

TEST(ExecutorClosedForm, SelectN_GroupTime) {
  // group = max((i-1) * t_c, t_x) + t_c; iteration = floor(L/i) groups and a tail of (L mod i) * t_c.
  // L=32, t_c=1, t_x=4: i=2: 16 * (4+1) = 80; i=4: 8 * (4+1) = 40; i=3: 10 * (4+1) + 2 = 52.
  const auto time = [](std::int32_t interval) {
    SelectN rule(32, interval, 4);
    return iterate(32, {{.gpu = ns(1)}}, &rule);
  };
  EXPECT_EQ(time(2), ns(80));
  EXPECT_EQ(time(4), ns(40));
  EXPECT_EQ(time(3), ns(52));
  for (std::int32_t i = 2; i <= 32; ++i) {
    EXPECT_EQ(time(i), ns(32 / i * (std::max(i - 1, 4) + 1) + 32 % i)) << "interval " << i;
  }
}

/// Attention on the CPU that takes so long for each sub-batch, without queries and outputs.
CpuAttention attention(const std::vector<std::int64_t>& times) {
  std::vector<CpuAttentionWork> work;
  for (const std::int64_t time : times) {
    work.emplace_back().attention = copy(Stream::cpu, 0, time);
  }
  CpuAttention rule;
  rule.begin(work);
  return rule;
}

TEST(ExecutorClosedForm, Neo_TwoSubBatchesAlternateBetweenGpuAndCpu) {
  // GPU step (k, 0) is l0, (k, 1) is g1 = l1 + prefill + GPU attention; CPU work ca0 runs beside g1, ca1 beside the
  // next layer's l0. l0 starts alone, then come L times max(g1, ca0) with L-1 times max(l0, ca1) between them, and ca1
  // ends alone: NEO's L * (max(l0, ca1) + max(g1, ca0)), longer by the min(l0, ca1) that the two ends cannot overlap.
  const std::int32_t layers = 32;
  for (const std::int64_t l0 : {2, 7}) {
    for (const std::int64_t g1 : {3, 8}) {
      for (const std::int64_t ca0 : {1, 5, 9}) {
        for (const std::int64_t ca1 : {1, 4, 11}) {
          const std::int64_t expected = layers * (std::max(l0, ca1) + std::max(g1, ca0)) + std::min(l0, ca1) + 100 + 50;
          CpuAttention rule = attention({ca0, ca1});
          EXPECT_EQ(iterate(layers, {{ns(100), ns(l0), {}}, {{}, ns(g1), ns(50)}}, &rule), ns(expected));
        }
      }
    }
  }
  // The paper's example: l0 = 11.2 ms, g1 = 2.8, ca0 = 0, ca1 = 3.2: 32 * (11.2 + 2.8) = 448.0 ms, plus the last ca1,
  // which nothing hides.
  CpuAttention rule = attention({0, us(3200)});
  EXPECT_EQ(iterate(32, {{{}, ns(us(11200)), {}}, {{}, ns(us(2800)), {}}}, &rule), ns(us(448'000 + 3'200)));
}

TEST(ExecutorClosedForm, FlexGen_StepIsTheMaximumOfItsStreams) {
  // 5 layers of 3 micro-batches: each of the 15 steps lasts max(load, store, compute). The last one ends with its
  // compute; the first step of the next iteration waits for its copies.
  const auto expect = [](std::int64_t load, std::int64_t store, std::int64_t compute) {
    const std::int64_t step = std::max({load, store, compute});
    FlexGenStep rule(load, store);
    const std::vector<SubBatchTimes> sub_batches(3, {.gpu = ns(compute)});
    const IterationPlan plan{5, sub_batches, &rule};
    Executor executor;
    EXPECT_EQ(iterate(executor, plan), ns(14 * step + compute));
    iterate(executor, plan);
    EXPECT_EQ(executor.now(), at(29 * step + compute));
  };
  expect(3, 2, 7);
  expect(9, 2, 7);
  expect(3, 8, 7);
  expect(8, 8, 8);
}

// ---------------------------------------------------------------------------------------------------------------------
// Pie: n layers, m of them on the host, one swap per direction at a time (algorithms: per-layer protocol).

class Pie final : public LayerRule {
 public:
  struct Swap {
    SimTime time{};
    std::string name{};
    auto operator<=>(const Swap&) const = default;
  };

  Pie(std::int32_t layers, std::int32_t on_host, std::int64_t swap, bool check_at_completion, const Executor& clock)
      : on_host_(on_host),
        swap_(swap),
        check_at_completion_(check_at_completion),
        clock_(clock),
        place_(static_cast<std::size_t>(layers), Place::gpu),
        left_at_(static_cast<std::size_t>(layers), kNever) {
    std::fill(place_.end() - on_host, place_.end(), Place::host);
  }

  void at_layer_start(std::int32_t layer, std::int32_t, CopySink& sink) override {
    coldest_ = std::exchange(current_, layer);
    waited_ = false;
    decide(sink);
  }
  void at_copy_done(const Copy& done, CopySink& /*sink*/) override {
    waited_ = waited_ || (current_ >= 0 && place(current_) != Place::gpu);
    const bool in = done.stream == Stream::h2d;
    if (in && left_at_[static_cast<std::size_t>(done.layer)] != kNever) {
      dwells.push_back(clock_.now() - left_at_[static_cast<std::size_t>(done.layer)]);
    }
    place(done.layer) = in ? Place::gpu : Place::host;
    (in ? in_op_ : out_op_) = false;
  }
  void at_copies_done(CopySink& sink) override {
    if (std::exchange(waited_, false) || check_at_completion_) decide(sink);
  }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t) const override {
    return place_[static_cast<std::size_t>(layer)] == Place::gpu;
  }

  std::vector<Swap> swaps{};
  std::vector<Duration> dwells{};  // from the start of a layer's copy out to the end of its copy in

 private:
  enum class Place { gpu, leaving, host, arriving };
  Place& place(std::int32_t layer) { return place_[static_cast<std::size_t>(layer)]; }
  [[nodiscard]] std::int32_t count(Place what) const {
    return static_cast<std::int32_t>(std::count(place_.begin(), place_.end(), what));
  }
  /// The layer on the host that is needed soonest, and how many layers ahead; -1 for none.
  [[nodiscard]] std::pair<std::int32_t, std::int32_t> hottest_on_host() const {
    const auto layers = static_cast<std::int32_t>(place_.size());
    for (std::int32_t distance = 0; distance < layers; ++distance) {
      const std::int32_t layer = (current_ + distance) % layers;
      if (place_[static_cast<std::size_t>(layer)] == Place::host) return {layer, distance};
    }
    return {-1, layers};
  }

  void decide(CopySink& sink) {
    const auto layers = static_cast<std::int32_t>(place_.size());
    const std::int32_t host_used = layers - count(Place::gpu);
    if (!out_op_ && coldest_ >= 0 && place(coldest_) == Place::gpu && host_used < on_host_ + 2) {
      const std::int32_t distance = (coldest_ - current_ + layers) % layers;
      if (count(Place::host) < on_host_ || hottest_on_host().second < distance) {
        start(Stream::d2h, coldest_, sink);
      }
    }
    const std::int32_t gpu_used = layers - count(Place::host);
    const std::int32_t hottest = hottest_on_host().first;
    if (!in_op_ && hottest >= 0 && gpu_used < layers - on_host_) start(Stream::h2d, hottest, sink);
  }
  void start(Stream stream, std::int32_t layer, CopySink& sink) {
    const bool in = stream == Stream::h2d;
    (in ? in_op_ : out_op_) = true;
    place(layer) = in ? Place::arriving : Place::leaving;
    if (!in) left_at_[static_cast<std::size_t>(layer)] = clock_.now();
    swaps.push_back({clock_.now(), (in ? "in" : "out") + std::to_string(layer + 1)});
    sink.issue(copy(stream, layer, swap_));
  }

  std::int32_t on_host_;
  std::int64_t swap_;
  bool check_at_completion_;
  const Executor& clock_;
  std::vector<Place> place_;
  std::vector<SimTime> left_at_;
  std::int32_t current_ = -1;
  std::int32_t coldest_ = -1;
  bool in_op_ = false;
  bool out_op_ = false;
  bool waited_ = false;
};

/// Stall of each of `tokens` iterations of Pie.
std::vector<std::int64_t> pie_stalls(Executor& executor, Pie& rule, std::int32_t layers, std::int64_t compute,
                                     int tokens) {
  const SubBatchTimes times{.gpu = ns(compute)};
  std::vector<std::int64_t> stalls;
  stalls.reserve(static_cast<std::size_t>(tokens));
  for (int token = 0; token < tokens; ++token) {
    stalls.push_back((iterate(executor, {layers, {&times, 1}, &rule}) - layers * ns(compute)).count());
  }
  return stalls;
}

TEST(ExecutorPie, Figure4_SwapStartTimes) {
  // n=9, m=2, t_c=1, t_in=t_out=2: layer k of token t starts at 9(t-1) + (k-1), never late.
  // With checks at completion the result is equal, because the swaps end when layers start.
  for (const bool at_completion : {false, true}) {
    Executor executor;
    Pie rule(9, 2, 2, at_completion, executor);
    EXPECT_EQ(pie_stalls(executor, rule, 9, 1, 6), std::vector<std::int64_t>(6, 0));
    EXPECT_EQ(executor.now(), at(54));
    const std::vector<Pie::Swap> expected{
        {at(1), "out1"}, {at(3), "out3"},  {at(3), "in8"},  {at(5), "out5"},  {at(5), "in9"},  {at(7), "out7"},
        {at(7), "in1"},  {at(9), "out9"},  {at(9), "in3"},  {at(11), "out2"}, {at(11), "in5"}, {at(13), "out4"},
        {at(13), "in7"}, {at(15), "out6"}, {at(15), "in9"}, {at(17), "out8"}, {at(17), "in2"}, {at(19), "out1"},
        {at(19), "in4"}, {at(21), "out3"}, {at(21), "in6"}, {at(23), "out5"}, {at(23), "in8"}};
    ASSERT_GT(rule.swaps.size(), expected.size());
    EXPECT_EQ(std::vector(rule.swaps.begin(), rule.swaps.begin() + 23), expected);
    // From out start to in end: (m+1) * 2 + 2 = 8, for every layer.
    ASSERT_GT(rule.dwells.size(), 20U);
    for (const Duration dwell : rule.dwells) EXPECT_EQ(dwell, ns(8));
  }
}

TEST(ExecutorPie, Figure4_StallsByLayersOnTheHost) {
  // After the first rotation (8 tokens) the stalls repeat every 8 tokens; 4.5 layers leave per stall-free token.
  const std::vector<std::vector<std::int64_t>> expected{{0, 0, 0, 0, 0, 0, 0, 0},
                                                        {0, 0, 0, 0, 0, 0, 0, 0},
                                                        {3, 3, 2, 2, 2, 2, 2, 2},
                                                        {5, 5, 4, 4, 4, 4, 5, 5},
                                                        {7, 7, 6, 6, 7, 7, 7, 7}};
  for (std::int32_t m = 1; m <= 5; ++m) {
    Executor executor;
    Pie rule(9, m, 2, false, executor);
    pie_stalls(executor, rule, 9, 1, 8);
    const std::size_t before = rule.swaps.size();
    const std::vector<std::int64_t> stalls = pie_stalls(executor, rule, 9, 1, 8);
    EXPECT_EQ(stalls, expected[static_cast<std::size_t>(m - 1)]) << "m = " << m;
    EXPECT_EQ(pie_stalls(executor, rule, 9, 1, 8), stalls) << "m = " << m;
    if (m > 2) continue;
    const auto outs = std::count_if(rule.swaps.begin() + static_cast<std::ptrdiff_t>(before), rule.swaps.end(),
                                    [](const Pie::Swap& swap) { return swap.name.starts_with("out"); });
    EXPECT_EQ(outs, 16 * 9 / 2) << "4.5 per token";
    EXPECT_EQ(rule.dwells.back(), ns((m + 1) * 2 + 2));
  }
}

/// The copies that a rule has issued, with their times.
class RecordedSwaps final : public LayerRule, private CopySink {
 public:
  RecordedSwaps(LayerRule& rule, const Executor& clock) : rule_(rule), clock_(clock) {}
  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    sink_ = &sink;
    rule_.at_layer_start(layer, sub_batch, *this);
  }
  void at_copy_done(const Copy& done, CopySink& sink) override {
    sink_ = &sink;
    rule_.at_copy_done(done, *this);
  }
  void at_copies_done(CopySink& sink) override {
    sink_ = &sink;
    rule_.at_copies_done(*this);
  }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t sub_batch) const override {
    return rule_.ready(layer, sub_batch);
  }
  [[nodiscard]] std::int32_t quiet(std::int32_t layer) const override { return rule_.quiet(layer); }
  void skip(std::int32_t first, std::int32_t count) override { rule_.skip(first, count); }
  std::vector<Pie::Swap> swaps{};

 private:
  void issue(const Copy& copy) override {
    swaps.push_back({clock_.now(), (copy.stream == Stream::h2d ? "in" : "out") + std::to_string(copy.layer + 1)});
    sink_->issue(copy);
  }
  LayerRule& rule_;
  const Executor& clock_;
  CopySink* sink_ = nullptr;
};

LayerSwap::SlotCopies slot_copies(std::int64_t in, std::int64_t out) {
  return {copy(Stream::h2d, 0, in), copy(Stream::d2h, 0, out)};
}

// LayerSwap makes the same swaps at the same times as the rule above, which checks every layer; so the stalls are
// equal.
TEST(LayerSwap, SwapsAsTheProtocolSays) {
  for (const bool at_completion : {false, true}) {
    for (const std::int32_t layers : {4, 9, 40, 63, 64, 65, 80, 126}) {
      for (std::int32_t m = 0; m <= layers - 3; m += layers > 20 ? 7 : 1) {
        for (const std::int64_t swap : {1, 2, 3, 7}) {
          SCOPED_TRACE(testing::Message() << layers << " layers, " << m << " on the host, swap " << swap);
          constexpr std::int64_t kCompute = 2;
          Executor naive_executor;
          Pie naive(layers, m, swap, at_completion, naive_executor);
          const auto expected = pie_stalls(naive_executor, naive, layers, kCompute, 12);
          Executor executor;
          LayerSwap rule(layers, m, at_completion, slot_copies(swap, swap));
          RecordedSwaps recorded(rule, executor);
          const SubBatchTimes times{.gpu = ns(kCompute)};
          std::vector<std::int64_t> stalls;
          stalls.reserve(12);
          for (int token = 0; token < 12; ++token) {
            stalls.push_back((iterate(executor, {layers, {&times, 1}, &recorded}) - layers * ns(kCompute)).count());
          }
          ASSERT_EQ(stalls, expected);
          ASSERT_EQ(recorded.swaps, naive.swaps);
        }
      }
    }
  }
}

// One layer more goes to the host: n = 9, slots of 2 ns, then of 3 ns. From m = 1 to m = 2 the first layer to leave
// does so while one is on the host (filling); a layer moves its old slot out and in, and its new one from then on. Two
// are on the host in the end, each in a new slot.
TEST(LayerSwap, SlotsGrowAsTheirLayersComeBack) {
  Executor executor;
  LayerSwap rule(9, 1, true, slot_copies(2, 2));
  const SubBatchTimes times{.gpu = ns(1)};
  for (int token = 0; token < 4; ++token) iterate(executor, {9, {&times, 1}, &rule});
  EXPECT_TRUE(rule.resized());
  rule.resize(2, slot_copies(3, 3));
  EXPECT_FALSE(rule.resized());
  // Back to back, nine layers take 9 * 2 ns to come in once: two tokens and what was under way.
  int tokens = 0;
  for (; !rule.resized(); ++tokens) iterate(executor, {9, {&times, 1}, &rule});
  EXPECT_GE(tokens, 2);
  EXPECT_LE(tokens, 4);
  const Duration busy = executor.use(Stream::h2d).busy;
  iterate(executor, {9, {&times, 1}, &rule});
  EXPECT_EQ((executor.use(Stream::h2d).busy - busy).count() % 3, 0) << "only new slots are copied";
}

// Five of nine layers go to the host at once. With four slots left, one that leaves makes no room for the one that is
// waited for: those that are needed last leave, too. In the end it runs as if it had begun with five, 15.75 ns a token
// (Pie, section 3.3, with n = 9, m = 5, a swap of 2 and a layer of 1).
TEST(LayerSwap, SeveralLayersLeaveAtOnce) {
  for (const bool at_completion : {true, false}) {
    Executor executor;
    LayerSwap rule(9, 0, at_completion, slot_copies(2, 2));
    const SubBatchTimes times{.gpu = ns(1)};
    EXPECT_EQ(iterate(executor, {9, {&times, 1}, &rule}), ns(9));
    rule.resize(5, slot_copies(2, 2));
    for (int tokens = 0; !rule.resized(); ++tokens) {
      ASSERT_LT(tokens, 10);
      iterate(executor, {9, {&times, 1}, &rule});
    }
    iterate(executor, {9, {&times, 1}, &rule});
    Duration four_tokens{};
    for (int token = 0; token < 4; ++token) four_tokens += iterate(executor, {9, {&times, 1}, &rule});
    EXPECT_EQ(four_tokens, ns(63)) << at_completion;
  }
}

TEST(LayerSwap, WithoutLayersOnTheHostItRests) {
  Executor executor;
  LayerSwap rule(9, 2, true, slot_copies(2, 2));
  const SubBatchTimes times{.gpu = ns(1)};
  for (int token = 0; token < 4; ++token) iterate(executor, {9, {&times, 1}, &rule});
  EXPECT_FALSE(rule.resting());
  rule.resize(0, slot_copies(1, 1));
  EXPECT_TRUE(rule.resized()) << "the slots shrink where they are";
  for (int token = 0; token < 3; ++token) iterate(executor, {9, {&times, 1}, &rule});
  EXPECT_TRUE(rule.resting());
  const Duration busy = executor.use(Stream::h2d).busy;
  EXPECT_EQ(iterate(executor, {9, {&times, 1}, &rule}), ns(9));
  EXPECT_EQ(executor.use(Stream::h2d).busy, busy);
}

TEST(LayerSwap, SetsAreCyclic) {
  LayerSet set;
  EXPECT_EQ(set.next_cyclic(0), LayerSet::kNone);
  for (const std::int32_t layer : {0, 63, 64, 127, 255}) set.insert(layer);
  EXPECT_EQ(set.count(), 5);
  EXPECT_EQ(set.next_cyclic(0), 0);
  EXPECT_EQ(set.next_cyclic(1), 63);
  EXPECT_EQ(set.next_cyclic(64), 64);
  EXPECT_EQ(set.next_cyclic(65), 127);
  EXPECT_EQ(set.next_cyclic(128), 255);
  EXPECT_EQ(set.run(63), 2);
  EXPECT_EQ(set.run(1), 0);
  set.erase(127);
  for (std::int32_t layer = 120; layer < 200; ++layer) set.insert(layer);
  EXPECT_EQ(set.run(120), 80);
  EXPECT_EQ(set.run(127), 73);
  EXPECT_EQ(set.run(255), 1);
  for (std::int32_t layer = 120; layer < 200; ++layer) set.erase(layer);
  set.insert(127);
  set.erase(255);
  EXPECT_EQ(set.next_cyclic(128), 0);
  EXPECT_EQ(set.count(), 4);
}

TEST(ExecutorPie, LargestStallFreeM) {
  // Literal mode: floor((n-1) / ceil(t_s/t_c)) - 2; completion mode may chain copies and comes closer to
  // floor((n-1) * t_c / t_s) - 2.
  const auto largest = [](std::int32_t layers, std::int64_t compute, std::int64_t swap, bool check_at_completion) {
    for (std::int32_t m = layers - 3; m > 0; --m) {
      Executor executor;
      Pie rule(layers, m, swap, check_at_completion, executor);
      pie_stalls(executor, rule, layers, compute, 10);
      const std::vector<std::int64_t> stalls = pie_stalls(executor, rule, layers, compute, 20);
      if (std::all_of(stalls.begin(), stalls.end(), [](std::int64_t stall) { return stall == 0; })) return m;
    }
    return std::int32_t{0};
  };
  EXPECT_EQ(largest(9, 1, 2, false), 2);
  EXPECT_EQ(largest(40, 1, 2, false), 17);
  EXPECT_EQ(largest(32, 1, 3, false), 8);
  EXPECT_EQ(largest(40, 2, 3, false), 17);
  EXPECT_EQ(largest(40, 2, 3, true), 23);
}

// ---------------------------------------------------------------------------------------------------------------------
// Copies between iterations, slowdowns, cuts, accounting.

/// Issues its copies in order, each at the start of the layer that it names. Layer k waits until `needed[k]` copies
/// have ended.
class Script final : public LayerRule {
 public:
  struct Entry {
    std::int32_t at_layer = 0;
    Copy copy{};
  };
  explicit Script(std::vector<Entry> entries, std::vector<int> needed = {})
      : entries_(std::move(entries)), needed_(std::move(needed)) {}
  void at_layer_start(std::int32_t layer, std::int32_t, CopySink& sink) override {
    for (const Entry& entry : entries_) {
      if (entry.at_layer == layer) sink.issue(entry.copy);
    }
  }
  void at_copy_done(const Copy&, CopySink&) override { ++done; }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t) const override {
    return needed_.empty() || done >= needed_[static_cast<std::size_t>(layer)];
  }
  int done = 0;

 private:
  std::vector<Entry> entries_;
  std::vector<int> needed_;
};

class Issued final : public CopySink {
 public:
  void issue(const Copy& copy) override { copies.push_back(copy); }
  std::vector<Copy> copies;
};

// What yields waits for the copy to the GPU, and then goes one by one; what never started is gone at the end.
TEST(KvCopies, YieldToCopiesToTheGpu) {
  KvCopies rule;
  rule.add_for_layer({.stream = Stream::h2d, .layer = 0});
  for (const std::int32_t ticket : {7, 8, 9}) rule.add_yielding({.stream = Stream::d2h}, ticket);
  Issued sink;
  EXPECT_EQ(rule.quiet(0), 0);
  rule.at_layer_start(0, 0, sink);
  ASSERT_EQ(sink.copies.size(), 1U);
  EXPECT_EQ(sink.copies[0].stream, Stream::h2d);
  rule.at_copy_done(sink.copies[0], sink);
  ASSERT_EQ(sink.copies.size(), 2U);
  EXPECT_EQ(sink.copies[1].stream, Stream::d2h);
  // KV comes in while the first of them is on its way: the next one waits for that, too.
  rule.add({.stream = Stream::h2d});
  rule.at_layer_start(0, 0, sink);
  ASSERT_EQ(sink.copies.size(), 3U);
  rule.at_copy_done(sink.copies[1], sink);
  EXPECT_EQ(sink.copies.size(), 3U);
  EXPECT_EQ(rule.take_ended(), std::vector<std::int32_t>{7});
  rule.at_copy_done(sink.copies[2], sink);
  ASSERT_EQ(sink.copies.size(), 4U);
  rule.at_layer_start(0, 0, sink);
  EXPECT_EQ(sink.copies.size(), 4U) << "one at a time";
  rule.stop();
  rule.at_copy_done(sink.copies[3], sink);
  EXPECT_EQ(sink.copies.size(), 4U);
  EXPECT_EQ(rule.take_ended(), std::vector<std::int32_t>{8});
  EXPECT_TRUE(rule.none());
}

TEST(Executor, KvCopies_WhenBlocking_HoldTheFirstLayer) {
  // before 5; swap out 30 and 20 on one stream, swap in 40 on the other: compute waits max(50, 40), then 3 layers
  // of 10.
  KvCopies rule;
  const SubBatchTimes times{.before = ns(5), .gpu = ns(10)};
  const IterationPlan plan{3, {&times, 1}, &rule};
  for (const Copy& swap : {copy(Stream::d2h, 0, 30), copy(Stream::h2d, 0, 40), copy(Stream::d2h, 0, 20)})
    rule.add(swap);
  Executor executor;
  EXPECT_EQ(iterate(executor, plan), ns(5 + 50 + 30));
  EXPECT_EQ(executor.use(Stream::compute), (StreamUse{ns(35), ns(50), Bytes(0)}));
  EXPECT_EQ(executor.use(Stream::d2h), (StreamUse{ns(50), ns(5), Bytes(20)}));
  EXPECT_EQ(executor.use(Stream::h2d), (StreamUse{ns(40), ns(5), Bytes(10)}));
  // The copies belonged to one iteration.
  EXPECT_EQ(iterate(executor, plan), ns(5 + 30));
}

TEST(Executor, PrefetchForTheNextIteration_CarriesOver) {
  // The last layer (compute 4) prefetches the next iteration's first (10): 6 are left at the finish.
  const auto wait_after_gap = [](std::int64_t gap) {
    Script rule({{1, copy(Stream::h2d, 0, 10)}});
    const SubBatchTimes times{.gpu = ns(4)};
    Executor executor;
    EXPECT_EQ(iterate(executor, {2, {&times, 1}, &rule}), ns(8));
    EXPECT_EQ(executor.pending_copies(Stream::h2d), 1U);
    EXPECT_EQ(executor.next_copy_done(), at(14));
    EXPECT_EQ(executor.use(Stream::h2d), (StreamUse{ns(0), ns(4), Bytes(0)})) << "charged when it ends";
    Script next({}, {1, 1});
    const IterationPlan plan{2, {&times, 1}, &next};
    executor.begin(plan, executor.now() + ns(gap));
    const RunOutcome outcome = executor.run(plan, kNever);
    EXPECT_EQ(executor.use(Stream::h2d), (StreamUse{ns(10), ns(4), Bytes(10)}));
    EXPECT_EQ(next.done, 1);
    return outcome.time - at(8 + gap) - ns(8);
  };
  EXPECT_EQ(wait_after_gap(0), ns(6));
  EXPECT_EQ(wait_after_gap(4), ns(2));
  EXPECT_EQ(wait_after_gap(9), ns(0));
}

/// Others say what its copies get of the links.
Executor beside_others() { return {CopyLinks(), Slowdown{}, nullptr, true}; }

TEST(Executor, Slowdown_StretchesOnlyTheTransferThatIsLeft) {
  // A copy of 10 launch + 100 transfer at t=0; the layer behind it computes for 1. `changes`: (time, num, den).
  struct Change {
    std::int64_t time, num, den;
  };
  const auto finish = [](const std::vector<Change>& changes) {
    Script rule({{0, copy(Stream::h2d, 0, 100, 10)}}, {1});
    const SubBatchTimes times{.gpu = ns(1)};
    const IterationPlan plan{1, {&times, 1}, &rule};
    Executor executor = beside_others();
    executor.begin(plan, at(0));
    for (const Change& change : changes) {
      EXPECT_FALSE(executor.run(plan, at(change.time)).finished);
      executor.set_slowdowns({Slowdown{change.num, change.den}, Slowdown{}}, executor.now());
    }
    return executor.run(plan, kNever).time;
  };
  EXPECT_EQ(finish({}), at(111));
  EXPECT_EQ(finish({{0, 2, 1}}), at(10 + 200 + 1));
  EXPECT_EQ(finish({{5, 3, 2}}), at(10 + 150 + 1)) << "launch is not stretched";
  EXPECT_EQ(finish({{30, 2, 1}}), at(30 + 80 * 2 + 1)) << "20 of 100 were done";
  EXPECT_EQ(finish({{30, 2, 1}, {100, 1, 1}}), at(100 + 45 + 1)) << "35 more were done in 70";
  EXPECT_EQ(finish({{30, 7, 3}}), at(30 + 187 + 1)) << "80 * 7 / 3 = 186.67, rounded up";
  EXPECT_EQ(finish({{30, 7, 3}, {35, 1, 1}}), at(35 + 78 + 1)) << "5 * 3 / 7 = 2.14 more were done, rounded down";
  EXPECT_EQ(finish({{30, 7, 3}, {35, 14, 6}, {50, 21, 9}}), finish({{30, 7, 3}})) << "the same ratio";
  // 80 * (1 + 3 / n) is rounded up to 81. The second ratio is smaller by 3 / n^2, which would cost another nanosecond
  // if the copy were timed anew: 4 of 5 were done, and 76 * (1 + 3 / (n + 1)) is 77.
  constexpr std::int64_t kN = std::int64_t{1} << 30;
  EXPECT_EQ(finish({{30, kN + 3, kN}, {35, kN + 4, kN + 1}}), at(30 + 81 + 1)) << "ratios equal to within 2^-40";
  EXPECT_EQ(finish({{110, 5, 1}}), at(111)) << "the copy has ended";
}

/// The script's copies and the end of each.
class Timed final : public LayerRule {
 public:
  Timed(std::vector<Copy> copies, const Executor& clock) : copies_(std::move(copies)), clock_(clock) {}
  void at_layer_start(std::int32_t layer, std::int32_t, CopySink& sink) override {
    if (layer > 0) return;
    for (const Copy& copy : copies_) sink.issue(copy);
  }
  void at_copy_done(const Copy& copy, CopySink&) override {
    (copy.stream == Stream::h2d ? h2d : d2h).push_back(clock_.now().ns());
  }
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return true; }
  std::vector<std::int64_t> h2d{};
  std::vector<std::int64_t> d2h{};

 private:
  std::vector<Copy> copies_;
  const Executor& clock_;
};

TEST(Executor, Duplex_SlowsEachDirectionWhileBothTransfer) {
  using Ends = std::vector<std::int64_t>;
  const auto ends = [](const std::vector<Copy>& copies, const CopySharing& sharing, std::vector<double> traffic = {}) {
    Executor executor(sharing);
    executor.set_traffic(std::move(traffic));
    Timed rule(copies, executor);
    EXPECT_EQ(iterate(executor, {1, std::vector<SubBatchTimes>{{.gpu = ns(1)}}, &rule}), ns(1));
    executor.run_copies(&rule, kNever);
    return std::pair(rule.h2d, rule.d2h);
  };
  const CopySharing sharing{.h2d = {3, 2}, .d2h = {2, 1}};
  const auto in = [](std::int64_t transfer, std::int64_t launch = 0) { return copy(Stream::h2d, 0, transfer, launch); };
  const auto out = [](std::int64_t transfer, std::int64_t launch = 0) {
    return copy(Stream::d2h, 0, transfer, launch);
  };
  EXPECT_EQ(ends({in(100), out(100)}, {}), std::pair(Ends{100}, Ends{100}));
  // 100 * 3 / 2 = 150, when the other has done 150 / 2 = 75 and goes on alone.
  EXPECT_EQ(ends({in(100), out(100)}, sharing), std::pair(Ends{150}, Ends{175}));
  EXPECT_EQ(ends({in(40), out(100)}, sharing), std::pair(Ends{60}, Ends{130}));
  // 30 alone while the other launches; its 50 end at 30 + 100, and 66 (of 66.67) of the 70 are done then.
  EXPECT_EQ(ends({in(100), out(50, 30)}, sharing), std::pair(Ends{134}, Ends{130}));
  // The launch outlasts the other's transfer: nothing is shared.
  EXPECT_EQ(ends({in(30), out(50, 30)}, sharing), std::pair(Ends{30}, Ends{80}));
  // Both launch: shared from 30 on. 20 * 3 / 2 = 30, when 15 of the 50 are done.
  EXPECT_EQ(ends({in(20, 10), out(50, 30)}, sharing), std::pair(Ends{30}, Ends{80}));
  EXPECT_EQ(ends({in(40, 10), out(50, 30)}, sharing), std::pair(Ends{60}, Ends{95}));
  // Shared up to 30 (15 of 100 done), the second launches up to 40 (10 more), shared up to 70 (15 more), 60 alone.
  EXPECT_EQ(ends({in(20), in(20, 10), out(100)}, sharing), std::pair(Ends{30, 70}, Ends{130}));
  // Without a gap between copies the directions share all the time: 60 and 60 * 3 / 2, 200.
  EXPECT_EQ(ends({in(40), in(60), out(100)}, sharing), std::pair(Ends{60, 150}, Ends{175}));
  // Others take half of whatever a link carries: 40 * 2 * 3 / 2, when 30 of the 100 are done; then 70 * 2.
  EXPECT_EQ(ends({in(40), out(100)}, sharing, {1.0}), std::pair(Ends{120}, Ends{260}));
}

TEST(Executor, Interference_StretchesStepsThatStartBesideACopy) {
  const CopySharing sharing{.compute = {3, 2}};
  const auto time = [&](const SubBatchTimes& times, std::int32_t layers, const std::vector<Copy>& copies) {
    Executor executor(sharing);
    Timed rule(copies, executor);
    return iterate(executor, {layers, {&times, 1}, &rule});
  };
  const SubBatchTimes times{.before = ns(5), .gpu = ns(10)};
  EXPECT_EQ(time(times, 3, {}), ns(5 + 30));
  EXPECT_EQ(time(times, 3, {copy(Stream::h2d, 0, 12, 3)}), ns(5 + 15 + 20)) << "it ends as the second layer starts";
  EXPECT_EQ(time(times, 3, {copy(Stream::d2h, 0, 13, 3)}), ns(5 + 30 + 10));
  EXPECT_EQ(time(times, 3, {copy(Stream::d2h, 0, 0)}), ns(5 + 30)) << "it takes no time";
  EXPECT_EQ(time(times, 3, {copy(Stream::d2h, 0, 0, 1)}), ns(5 + 35)) << "launches count";
  const SubBatchTimes odd{.before = ns(4), .gpu = ns(7), .after = ns(5)};
  EXPECT_EQ(time(odd, 1, {copy(Stream::h2d, 0, 100)}), ns(4 + 11 + 8)) << "10.5 and 7.5, rounded up";

  // A copy that outlives its iteration, 0 to 40, beside ones without a rule: 15..30..45, then 55 and 65.
  Executor executor(sharing);
  Timed rule({copy(Stream::h2d, 0, 40)}, executor);
  const SubBatchTimes layer{.gpu = ns(10)};
  EXPECT_EQ(iterate(executor, {1, {&layer, 1}, &rule}), ns(15));
  EXPECT_EQ(iterate(executor, {4, {&layer, 1}, nullptr}), ns(15 + 15 + 10 + 10));
  EXPECT_EQ(executor.use(Stream::compute), (StreamUse{ns(65), ns(0), Bytes(0)}));
  EXPECT_EQ(iterate(executor, {4, {&layer, 1}, nullptr}), ns(40));
}

TEST(Executor, Cut_ChangesNothing) {
  const auto run_with_cuts = [](std::int64_t every) {
    Executor executor = beside_others();
    executor.set_slowdowns({Slowdown{7, 4}, Slowdown{}}, executor.now());
    Pie rule(9, 4, 5, false, executor);
    const std::vector<SubBatchTimes> sub_batches{{ns(2), ns(3), ns(1)}, {ns(0), ns(2), ns(3)}};
    const IterationPlan plan{9, sub_batches, &rule};
    for (int token = 0; token < 4; ++token) {
      executor.begin(plan, executor.now() + ns(3));
      RunOutcome outcome = executor.run(plan, every == 0 ? kNever : executor.now());
      while (!outcome.finished) {
        EXPECT_EQ(executor.now(), outcome.time);
        outcome = executor.run(plan, executor.now() + ns(every));
      }
      EXPECT_EQ(executor.now(), outcome.time);
    }
    executor.run_copies(&rule, kNever);
    std::vector<StreamUse> uses;
    for (const Stream s : {Stream::compute, Stream::h2d, Stream::d2h}) uses.push_back(executor.use(s));
    return std::tuple(executor.now(), uses, rule.swaps);
  };
  const auto uncut = run_with_cuts(0);
  EXPECT_GT(std::get<1>(uncut)[0].stall, ns(0));
  for (const std::int64_t every : {1, 2, 7, 40}) EXPECT_EQ(run_with_cuts(every), uncut) << every;
}

TEST(Executor, Stall_IsIdleTimeBeforeWorkOfTheIteration) {
  // Starts at 100. Compute: layer 0 100..110, layer 1 125..135 (it waits for the first h2d copy and for the d2h copy,
  // from 110 on), after 135..137. h2d: 100..125, 125..127. d2h: 110..115, issued when layer 1 could start but for its
  // copies.
  Script rule({{0, copy(Stream::h2d, 0, 20, 5)}, {1, copy(Stream::d2h, 1, 5)}, {1, copy(Stream::h2d, 1, 2)}}, {0, 2});
  const SubBatchTimes times{.gpu = ns(10), .after = ns(2)};
  const IterationPlan plan{2, {&times, 1}, &rule};
  Executor executor;
  executor.begin(plan, at(100));
  EXPECT_EQ(executor.run(plan, kNever).time, at(137));
  EXPECT_EQ(executor.use(Stream::compute), (StreamUse{ns(22), ns(15), Bytes(0)}));
  EXPECT_EQ(executor.use(Stream::d2h), (StreamUse{ns(5), ns(10), Bytes(10)}));
  EXPECT_EQ(executor.use(Stream::h2d), (StreamUse{ns(27), ns(0), Bytes(20)}));
}

Duration waited(const Executor& executor, Wait wait) { return executor.waited()[static_cast<std::size_t>(wait)]; }

TEST(Executor, AttentionOnTheCpu_StallsByItsPart) {
  // Two layers of one sub-batch. GPU 0..10; queries 10..12 launch and 12..15, CPU 15..16 and 16..36, outputs 36..40;
  // GPU 40..50; queries to 55, CPU to 76, outputs to 80; after 80..87.
  const CpuAttentionWork work{copy(Stream::d2h, 0, 3, 2), copy(Stream::cpu, 0, 20, 1), copy(Stream::h2d, 0, 0, 4)};
  CpuAttention rule;
  rule.begin({&work, 1});
  const SubBatchTimes times{.gpu = ns(10), .after = ns(7)};
  Executor executor;
  EXPECT_EQ(iterate(executor, {2, {&times, 1}, &rule}), ns(87));
  EXPECT_EQ(executor.use(Stream::compute), (StreamUse{ns(27), ns(60), Bytes(0)}));
  EXPECT_EQ(waited(executor, Wait::queries), ns(10));
  EXPECT_EQ(waited(executor, Wait::cpu_attention), ns(42));
  EXPECT_EQ(waited(executor, Wait::outputs), ns(8));
  // Idle before its first work from 0 to 15, before its second from 36 to 55.
  EXPECT_EQ(executor.use(Stream::cpu), (StreamUse{ns(42), ns(15 + 19), Bytes(20)}));
}

TEST(Executor, CopiesBetweenGpus_UseNoHostLink) {
  // Four copies of 100 at once, on a stream each: the host's two halve each other, those between GPUs do not. All
  // layers wait for all of them.
  const CopySharing sharing{.h2d = {2, 1}, .d2h = {2, 1}, .compute = {3, 1}};
  Executor executor(sharing);
  Script rule({{0, copy(Stream::peer_in, 0, 100)}, {0, copy(Stream::peer_out, 1, 100)}});
  const SubBatchTimes times{.gpu = ns(10)};
  EXPECT_EQ(iterate(executor, {1, {&times, 1}, &rule}), ns(10)) << "copies between GPUs do not slow compute down";
  executor.run_copies(&rule, kNever);
  EXPECT_EQ(executor.use(Stream::peer_in), (StreamUse{ns(100), ns(0), Bytes(10)}));
  EXPECT_EQ(executor.use(Stream::peer_out), (StreamUse{ns(100), ns(0), Bytes(10)}));
  Executor all(sharing);
  Script both({{0, copy(Stream::peer_in, 0, 100)},
               {0, copy(Stream::peer_out, 1, 100)},
               {0, copy(Stream::h2d, 2, 100)},
               {0, copy(Stream::d2h, 3, 100)}},
              {4});
  EXPECT_EQ(iterate(all, {1, {&times, 1}, &both}), ns(210));
  EXPECT_EQ(all.use(Stream::peer_in).busy, ns(100));
  EXPECT_EQ(all.use(Stream::h2d).busy, ns(200));
}

TEST(Executor, WaitWithNothingInFlight_IsADeadlock) {
  Script rule({{2, copy(Stream::d2h, 0, 50)}}, {0, 0, 0, 2});
  const std::vector<SubBatchTimes> sub_batches{{.gpu = ns(10)}, {.gpu = ns(5)}};
  // Two steps of layer 2 issue a copy each: layer 3 starts. With three copies needed it never does: the copies end at
  // 30 + 50 and 80 + 50.
  EXPECT_EQ(iterate(4, sub_batches, &rule), ns(130 + 15));
  Script stuck({{2, copy(Stream::d2h, 0, 50)}}, {0, 0, 0, 3});
  try {
    iterate(4, sub_batches, &stuck);
    FAIL() << "no deadlock found";
  } catch (const InvariantError& error) {
    EXPECT_NE(std::string(error.what()).find("layer 3, sub-batch 0 waits at 130 ns"), std::string::npos)
        << error.what();
  }
}

/// Issues copies of zero duration whenever a copy ends, up to `most`.
class TimelessRule final : public LayerRule {
 public:
  explicit TimelessRule(std::int64_t most) : most_(most) {}
  void at_layer_start(std::int32_t layer, std::int32_t, CopySink& sink) override { next(layer, sink); }
  void at_copy_done(const Copy& done, CopySink& sink) override {
    if (issued_ < most_) next(done.layer, sink);
  }
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return true; }
  [[nodiscard]] std::int64_t issued() const { return issued_; }

 private:
  void next(std::int32_t layer, CopySink& sink) {
    ++issued_;
    sink.issue(copy(Stream::h2d, layer, 0));
  }
  std::int64_t most_;
  std::int64_t issued_ = 0;
};

TEST(Executor, CopiesWithoutTimeAndEnd_AreALivelock) {
  const std::vector<SubBatchTimes> sub_batches{{.before = ns(7), .gpu = ns(10)}};
  TimelessRule many(100'000);
  EXPECT_EQ(iterate(2, sub_batches, &many), ns(27)) << "many copies that take no time are no livelock";
  EXPECT_GE(many.issued(), 100'000);
  TimelessRule endless(INT64_MAX);
  try {
    iterate(2, sub_batches, &endless);
    FAIL() << "no livelock found";
  } catch (const InvariantError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("ended at 7 ns"), std::string::npos) << text;
    EXPECT_NE(text.find("layer 0"), std::string::npos) << text;
  }
}

// A copy of 30 ns issued at 5: at the cut at 15 it has been under way for 10 ns; `busy` counts it once it has ended.
TEST(Executor, Copying_CountsTheCopyInFlight) {
  Script rule({{0, copy(Stream::h2d, 0, 30)}});
  const std::vector<SubBatchTimes> sub_batches{{.before = ns(5), .gpu = ns(20)}};
  Executor executor;
  executor.begin({1, sub_batches, &rule}, at(0));
  executor.run({1, sub_batches, &rule}, at(15));
  EXPECT_EQ(executor.copying(Stream::h2d), ns(10));
  EXPECT_EQ(executor.use(Stream::h2d).busy, ns(0));
  EXPECT_EQ(executor.copying(Stream::d2h), ns(0));
  executor.run({1, sub_batches, &rule}, kNever);
  executor.run_copies(nullptr, kNever);
  EXPECT_EQ(executor.copying(Stream::h2d), ns(30));
  EXPECT_EQ(executor.use(Stream::h2d).busy, ns(30));
}

// Requests: 30 ns to the GPU from 5 on, and 40 ns from it, issued at 25 behind a layer's copy that ends at 55: under
// way from 5 to 95. The layer's copy alone does not count.
TEST(Executor, CopyingForRequests_CountsFromIssueToEndAndOnce) {
  const auto of_request = [](Stream stream, std::int64_t transfer) {
    Copy one = copy(stream, 0, transfer);
    one.owner = kRequestCopies;
    return one;
  };
  Script rule({{0, copy(Stream::d2h, 0, 50)}, {0, of_request(Stream::h2d, 30)}, {1, of_request(Stream::d2h, 40)}});
  const std::vector<SubBatchTimes> sub_batches{{.before = ns(5), .gpu = ns(20)}};
  Executor executor;
  executor.begin({2, sub_batches, &rule}, at(0));
  executor.run({2, sub_batches, &rule}, at(15));
  EXPECT_EQ(executor.copying_for_requests(), ns(10));
  executor.run({2, sub_batches, &rule}, kNever);
  EXPECT_EQ(executor.now(), at(45));
  EXPECT_EQ(executor.copying_for_requests(), ns(40));
  executor.run_copies(nullptr, at(200));
  EXPECT_EQ(executor.copying_for_requests(), ns(90));
  executor.start_copy(copy(Stream::h2d, 0, 10));
  executor.run_copies(nullptr, at(210));
  EXPECT_EQ(executor.copying_for_requests(), ns(90)) << "a copy of layers";
}

TEST(Executor, Misuse_IsAnInvariantError) {
  const SubBatchTimes times{.gpu = ns(10)};
  const IterationPlan plan{2, {&times, 1}, nullptr};
  Executor executor;
  EXPECT_THROW(executor.run(plan, at(1)), InvariantError) << "not begun";
  EXPECT_THROW(executor.set_slowdowns({Slowdown{1, 2}, Slowdown{}}, executor.now()), InvariantError)
      << "faster than alone";
  EXPECT_THROW(Executor({.d2h = {1, 2}}), InvariantError) << "faster than alone";
  EXPECT_THROW(static_cast<void>(executor.issued(Stream::compute)), InvariantError) << "no copy stream";
  EXPECT_THROW(executor.begin({2, {}, nullptr}, at(0)), InvariantError) << "no sub-batch";
  executor.begin(plan, at(5));
  EXPECT_THROW(executor.begin(plan, at(6)), InvariantError) << "begun twice";
  EXPECT_THROW(executor.run(plan, at(4)), InvariantError) << "back in time";
  Script computes({{0, copy(Stream::compute, 0, 1)}});
  EXPECT_THROW(iterate(1, {times}, &computes), InvariantError) << "a copy on the compute stream";
}

/// Attention on the CPU, and how many steps it was told of.
class ToldAttention final : public LayerRule {
 public:
  ToldAttention(std::span<const CpuAttentionWork> work, bool recurs) : recurs_(recurs) { rule_.begin(work); }
  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    ++told_;
    rule_.at_layer_start(layer, sub_batch, sink);
  }
  void at_copy_done(const Copy& copy, CopySink& sink) override { rule_.at_copy_done(copy, sink); }
  void at_layers_end(CopySink& sink) override { rule_.at_layers_end(sink); }
  [[nodiscard]] Recurrence recurs(std::int32_t layer) const override {
    return recurs_ ? rule_.recurs(layer) : Recurrence{};
  }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t sub_batch) const override {
    return rule_.ready(layer, sub_batch);
  }
  [[nodiscard]] Wait waits_for(std::int32_t layer, std::int32_t sub_batch) const override {
    return rule_.waits_for(layer, sub_batch);
  }
  [[nodiscard]] std::optional<Wait> unfinished(std::int32_t sub_batch) const override {
    return rule_.unfinished(sub_batch);
  }
  [[nodiscard]] std::int64_t told() const { return told_; }

 private:
  CpuAttention rule_;
  bool recurs_;
  int told_ = 0;
};

// Two sub-batches of 10 ns per layer attend on the CPU for 2 + 5 + 3 ns, which the other one hides: 1,000 layers of 20,
// then the second sub-batch waits for 10. Before layer 1 the second sub-batch has not used the CPU, before layers 2 and
// 3 all is alike: three layers are executed, and 997 repeat the last one.
TEST(ExecutorRecurrence, LayersThatRepeatTheOneBefore_AreNotExecuted) {
  constexpr std::int64_t kLayers = 1000;
  const CpuAttentionWork work{copy(Stream::d2h, 0, 2), copy(Stream::cpu, 0, 5), copy(Stream::h2d, 0, 3)};
  const std::vector<CpuAttentionWork> both{work, work};
  const std::vector<SubBatchTimes> times(2, SubBatchTimes{.gpu = LayerTimes(ns(10))});
  for (const bool recurs : {true, false}) {
    ToldAttention rule(both, recurs);
    Executor executor;
    EXPECT_EQ(iterate(executor, {kLayers, times, &rule}), ns(20'010));
    EXPECT_EQ(rule.told(), recurs ? 6 : 2 * kLayers);
    EXPECT_EQ(executor.use(Stream::compute), (StreamUse{ns(20'000), ns(10), Bytes(0)}));
    EXPECT_EQ(executor.use(Stream::cpu).busy, ns(10 * kLayers));
    EXPECT_EQ(executor.use(Stream::h2d).bytes, Bytes(20 * kLayers));
    EXPECT_EQ(executor.issued(Stream::d2h), Bytes(20 * kLayers));
    EXPECT_EQ(executor.bubbles(), (Executor::Bubbles{ns(0), ns(10)}));
  }
}

// The same, cut at 10,005 ns, within the first step of layer 500. Then the CPU has attended for 998 steps of layers 0
// to 498 and for the first one of layer 499, and since 10,002 ns for the second one. Before the cut three layers are
// executed and the step in which it falls. After it come the other step of layer 500, and layer 501, which is like it.
TEST(ExecutorRecurrence, ACutEndsTheRepetition) {
  constexpr std::int64_t kLayers = 1000;
  const CpuAttentionWork work{copy(Stream::d2h, 0, 2), copy(Stream::cpu, 0, 5), copy(Stream::h2d, 0, 3)};
  const std::vector<CpuAttentionWork> both{work, work};
  const std::vector<SubBatchTimes> times(2, SubBatchTimes{.gpu = LayerTimes(ns(10))});
  ToldAttention rule(both, true);
  Executor executor;
  const IterationPlan plan{kLayers, times, &rule};
  executor.begin(plan, at(0));
  const RunOutcome cut = executor.run(plan, at(10'005));
  EXPECT_FALSE(cut.finished);
  EXPECT_EQ(executor.now(), at(10'005));
  EXPECT_EQ(executor.use(Stream::cpu).busy, ns(4'995));
  EXPECT_EQ(executor.copying(Stream::cpu), ns(4'998));
  EXPECT_EQ(rule.told(), 2 * 3 + 1);
  EXPECT_EQ(executor.run(plan, kNever).time, at(20'010));
  EXPECT_EQ(rule.told(), 2 * 3 + 4);
}

/// Five equal pieces of work in its layer, beside one copy from the start of the layer on.
class EqualPieces final : public LayerRule {
 public:
  explicit EqualPieces(bool says_so) : says_so_(says_so) {}
  void at_layer_start(std::int32_t, std::int32_t, CopySink& sink) override { sink.issue(copy(Stream::h2d, 0, 21)); }
  void at_copy_done(const Copy&, CopySink&) override {}
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return true; }
  [[nodiscard]] bool works_in_layers() const override { return true; }
  [[nodiscard]] LayerWork work(std::int32_t, std::int32_t, CopySink&) override {
    ++asked_;
    if (left_ == 0) return {};
    --left_;
    return {.kind = LayerWork::Kind::computes, .time = ns(4), .arithmetic = true, .alike = says_so_ ? left_ : 0};
  }
  void skip_alike(std::int32_t count) override { left_ -= count; }
  [[nodiscard]] std::int64_t asked() const { return asked_; }

 private:
  bool says_so_;
  std::int32_t left_ = 5;
  std::int64_t asked_ = 0;
};

// What starts beside a copy takes 3/2 of its time. The layer, 10, takes 15. The first piece starts at 15, beside the
// copy: 6. The copy ends at 21, when the second one starts. That one and the others start at 21, 25, 29 and 33: 4 each.
// The rule is asked for the first piece, for those after the copy, and once more. Cut at 25, when the third piece
// starts, it is asked for the fourth one, too.
TEST(ExecutorWork, PiecesThatAreAlike_AreExecutedTogether) {
  const std::vector<SubBatchTimes> times{{.gpu = LayerTimes(ns(10))}};
  for (const bool says_so : {false, true}) {
    for (const bool cut : {false, true}) {
      EqualPieces rule(says_so);
      Executor executor({.compute = {3, 2}});
      const IterationPlan plan{1, times, &rule};
      executor.begin(plan, at(0));
      if (cut) {
        EXPECT_FALSE(executor.run(plan, at(25)).finished);
        EXPECT_EQ(executor.worked_in_layers().all, ns(12));
        EXPECT_EQ(executor.use(Stream::compute).busy, ns(15 + 6 + 4 + 4));
      }
      EXPECT_EQ(executor.run(plan, kNever).time, at(37));
      EXPECT_EQ(executor.use(Stream::compute), (StreamUse{ns(37), ns(0), Bytes(0)}));
      EXPECT_EQ(executor.worked_in_layers().all, ns(20));
      EXPECT_EQ(executor.worked_in_layers().arithmetic, ns(20));
      const std::int64_t together = cut ? 4 : 3;
      EXPECT_EQ(rule.asked(), says_so ? together : 6);
    }
  }
}

/// A run of four copies, each followed by a piece of work that waits for it.
class FourRounds final : public LayerRule {
 public:
  explicit FourRounds(bool says_so) : says_so_(says_so) {}
  void at_layer_start(std::int32_t, std::int32_t, CopySink&) override {}
  void at_copy_done(const Copy&, CopySink&) override { ++arrived_; }
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return true; }
  [[nodiscard]] bool works_in_layers() const override { return true; }
  [[nodiscard]] LayerWork work(std::int32_t, std::int32_t, CopySink& sink) override {
    ++asked_;
    if (done_ == 4) return {};
    if (asked_ == 1) {
      Copy run = copy(Stream::h2d, 0, 8, 2);
      run.alike = 3;
      sink.issue(run);
    }
    LayerWork work{.kind = LayerWork::Kind::waits, .time = ns(3), .arithmetic = true};
    if (arrived_ == done_) {
      if (says_so_) work.alike = 4 - done_;
      return work;
    }
    ++done_;
    work.kind = LayerWork::Kind::computes;
    return work;
  }
  void skip_rounds(std::int32_t count) override { arrived_ = done_ += count; }
  [[nodiscard]] std::int64_t asked() const { return asked_; }

 private:
  bool says_so_;
  std::int32_t arrived_ = 0;
  std::int32_t done_ = 0;
  std::int64_t asked_ = 0;
};

/// A piece of 4; then four times a copy and a piece of 3, bound by arithmetic, that waits for it; then a piece of 5.
class FourTurns final : public LayerRule {
 public:
  explicit FourTurns(bool says_so) : says_so_(says_so) {}
  void at_layer_start(std::int32_t, std::int32_t, CopySink&) override {}
  void at_copy_done(const Copy&, CopySink&) override { ++arrived_; }
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return true; }
  [[nodiscard]] bool works_in_layers() const override { return true; }
  [[nodiscard]] LayerWork work(std::int32_t, std::int32_t, CopySink& sink) override {
    ++asked_;
    if (asked_ == 1 && says_so_) return {.kind = LayerWork::Kind::turns, .turns = &turns_};
    if (piece_ == 6) return {};
    const bool waits = 1 <= piece_ && piece_ <= 4;
    if (waits && arrived_ < piece_) {
      if (issued_ < piece_) {
        ++issued_;
        sink.issue(turns_.copy);
      }
      return {.kind = LayerWork::Kind::waits};
    }
    const Duration time = piece_ == 0 ? ns(4) : waits ? ns(3) : ns(5);
    ++piece_;
    return {.kind = LayerWork::Kind::computes, .time = time, .arithmetic = waits};
  }
  void skip_turns() override { piece_ = 6; }
  [[nodiscard]] std::int64_t asked() const { return asked_; }

 private:
  const LayerTurns turns_{
      .copy = copy(Stream::h2d, 0, 8, 2), .copies = 4, .time = ns(21), .arithmetic = ns(12), .after_last = ns(8)};
  bool says_so_;
  std::int32_t issued_ = 0;
  std::int32_t arrived_ = 0;
  std::int32_t piece_ = 0;
  std::int64_t asked_ = 0;
};

/// Notes the intervals that it is told of.
class Intervals final : public CopyObserver {
 public:
  void copied(const Copy&, SimTime started, SimTime ended) override { copies.emplace_back(started, ended); }
  void waited(Wait, SimTime from, SimTime until) override { waits.emplace_back(from, until); }
  using Interval = std::pair<SimTime, SimTime>;
  std::vector<Interval> copies{};
  std::vector<Interval> waits{};
};

/// Copies of 1 byte. Two queue in each direction with layer 0, of which the first is shorter, and one more with
/// layer 1. Later, one follows in a direction that is free when a copy ends.
class QueuesAtFirst final : public LayerRule {
 public:
  void at_layer_start(std::int32_t layer, std::int32_t, CopySink& sink) override {
    layer_ = layer;
    if (layer == 0) {
      issue(Stream::h2d, 4, sink);
      issue(Stream::d2h, 1, sink);
    }
    if (layer > 1) return;
    issue(Stream::h2d, 10, sink);
    issue(Stream::d2h, 10, sink);
  }
  void at_copy_done(const Copy& copy, CopySink&) override { --under_way_[copy.stream == Stream::h2d ? 0 : 1]; }
  void at_copies_done(CopySink& sink) override {
    if (layer_ < 2) return;
    if (under_way_[1] == 0) issue(Stream::d2h, 10, sink);
    if (under_way_[0] == 0) issue(Stream::h2d, 10, sink);
  }
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return true; }

 private:
  void issue(Stream stream, std::int64_t transfer, CopySink& sink) {
    ++under_way_[stream == Stream::h2d ? 0 : 1];
    sink.issue({.stream = stream, .bytes = Bytes(1), .transfer = ns(transfer)});
  }
  std::array<std::int32_t, 2> under_way_{};
  std::int32_t layer_ = 0;
};

// Both directions take 3/2 of their time while both transfer, and layers of 15 start at 5, 20, 35 and so on. In the
// queues, d2h ends at 7, 22 and 37, and h2d at 11 and 26: 15 apart, as each copy starts while the other direction
// transfers. At 37, d2h is free for a moment until the next copy is issued. The third copy of h2d has then done
// floor(11 * 2 / 3) = 7 of its 10 and takes ceil(3 * 3 / 2) = 5 more: it ends at 42, not at 41.
TEST(ExecutorPairs, CopiesThatWereQueued_DoNotRepeatAsIssuedOnesDo) {
  const std::vector<SubBatchTimes> times{{.before = ns(5), .gpu = LayerTimes(ns(15))}};
  QueuesAtFirst rule;
  Intervals intervals;
  Executor executor({.h2d = {3, 2}, .d2h = {3, 2}}, &intervals);
  const IterationPlan plan{6, times, &rule};
  executor.begin(plan, at(0));
  EXPECT_EQ(executor.run(plan, kNever).time, at(95));
  EXPECT_EQ(std::ranges::count(intervals.copies, Intervals::Interval{at(22), at(37)}), 1);
  EXPECT_EQ(std::ranges::count(intervals.copies, Intervals::Interval{at(26), at(42)}), 1);
}

/// With layer 0, 8 come in and 9 go out. When these have gone, a copy of no bytes goes out for 1, and then both start
/// again.
class WithTail final : public LayerRule {
 public:
  void at_layer_start(std::int32_t layer, std::int32_t, CopySink& sink) override {
    if (layer == 0) both(sink);
  }
  void at_copy_done(const Copy& copy, CopySink& sink) override {
    if (copy.stream == Stream::h2d) return;
    if (copy.bytes > Bytes(0)) {
      sink.issue({.stream = Stream::d2h, .launch = ns(1)});
    } else {
      both(sink);
    }
  }
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return true; }

 private:
  static void both(CopySink& sink) {
    sink.issue({.stream = Stream::h2d, .bytes = Bytes(1), .transfer = ns(8)});
    sink.issue({.stream = Stream::d2h, .bytes = Bytes(1), .transfer = ns(9)});
  }
};

// Both start at 2, 12 and 22 and take 10 with the copy of no bytes: what goes out ends at 11, 21 and 31.
TEST(ExecutorPairs, CopyThatMovesNothing_IsNoPartOfAnother) {
  const std::vector<SubBatchTimes> times{{.before = ns(2), .gpu = LayerTimes(ns(4))}};
  WithTail rule;
  Intervals intervals;
  Executor executor({}, &intervals);
  const IterationPlan plan{10, times, &rule};
  executor.begin(plan, at(0));
  EXPECT_EQ(executor.run(plan, kNever).time, at(42));
  for (const auto& [from, until] : {Intervals::Interval{at(2), at(11)}, Intervals::Interval{at(12), at(21)},
                                    Intervals::Interval{at(21), at(22)}, Intervals::Interval{at(22), at(31)}}) {
    EXPECT_EQ(std::ranges::count(intervals.copies, Intervals::Interval{from, until}), 1) << from.ns();
  }
}

// The layer takes 10. A run of four copies of 2 + 8 starts then: they end at 20, 30, 40 and 50. What starts beside a
// copy takes 3/2 of its time, so three pieces of 3 take 5, and the last one 3: 20 to 25, 30 to 35, 40 to 45, 50 to 53.
// The rule is asked at 10, after three rounds, when the last copy has arrived, and at 53; without rounds, twice for
// each piece and at 53.
TEST(ExecutorWork, RoundsOfARun_AreExecutedTogether) {
  const std::vector<SubBatchTimes> times{{.gpu = LayerTimes(ns(10))}};
  for (const bool says_so : {false, true}) {
    FourRounds rule(says_so);
    Intervals intervals;
    Executor executor({.compute = {3, 2}}, &intervals);
    const IterationPlan plan{1, times, &rule};
    executor.begin(plan, at(0));
    EXPECT_EQ(executor.run(plan, kNever).time, at(53));
    EXPECT_EQ(executor.use(Stream::compute), (StreamUse{ns(28), ns(25), Bytes(0)}));
    EXPECT_EQ(executor.use(Stream::h2d), (StreamUse{ns(40), ns(10), Bytes(40)}));
    EXPECT_EQ(executor.issued(Stream::h2d), Bytes(40));
    EXPECT_EQ(executor.waited()[static_cast<std::size_t>(Wait::layers)], ns(25));
    EXPECT_EQ(executor.worked_in_layers().all, ns(12));
    EXPECT_EQ(executor.worked_in_layers().arithmetic, ns(12));
    EXPECT_EQ(intervals.copies, (std::vector<Intervals::Interval>{
                                    {at(10), at(20)}, {at(20), at(30)}, {at(30), at(40)}, {at(40), at(50)}}));
    EXPECT_EQ(intervals.waits, (std::vector<Intervals::Interval>{
                                   {at(10), at(20)}, {at(25), at(30)}, {at(35), at(40)}, {at(45), at(50)}}));
    EXPECT_EQ(rule.asked(), says_so ? 4 : 9);
  }
}

// The layer takes 10 and the first piece 4. Each copy takes 10, beside no piece: 14 to 24, 27 to 37, 40 to 50 and 53 to
// 63. The last pieces end at 66 and 71. What starts beside a copy would take 3/2 of its time: none does. The link is
// idle for 14 at first, and for 3 before each further copy. One by one, the rule is asked for the first piece, twice
// for each of the four, for the last one, and at the end. Who hears of copies gets them one by one, and so does a run
// that is cut before the end of the last piece.
TEST(ExecutorWork, Turns_AreExecutedTogether) {
  const std::vector<SubBatchTimes> times{{.gpu = LayerTimes(ns(10))}};
  for (const bool says_so : {false, true}) {
    for (const bool heard : {false, true}) {
      for (const std::int64_t cut : {0, 37, 70, 71}) {
        FourTurns rule(says_so);
        Intervals intervals;
        Executor executor({.compute = {3, 2}}, heard ? &intervals : nullptr);
        const IterationPlan plan{1, times, &rule};
        executor.begin(plan, at(0));
        if (cut > 0) {
          EXPECT_EQ(executor.run(plan, at(cut)).finished, cut == 71);
        }
        if (cut == 37) {
          EXPECT_EQ(executor.use(Stream::h2d).busy, ns(20));
          EXPECT_EQ(executor.waited()[static_cast<std::size_t>(Wait::layers)], ns(20));
        }
        if (cut != 71) {
          EXPECT_EQ(executor.run(plan, kNever).time, at(71));
        }
        EXPECT_EQ(executor.now(), at(71));
        EXPECT_EQ(executor.use(Stream::compute), (StreamUse{ns(31), ns(40), Bytes(0)}));
        EXPECT_EQ(executor.use(Stream::h2d), (StreamUse{ns(40), ns(23), Bytes(40)}));
        EXPECT_EQ(executor.issued(Stream::h2d), Bytes(40));
        EXPECT_EQ(executor.pending_copies(Stream::h2d), 0U);
        EXPECT_EQ(executor.waited()[static_cast<std::size_t>(Wait::layers)], ns(40));
        EXPECT_EQ(executor.worked_in_layers().all, ns(21));
        EXPECT_EQ(executor.worked_in_layers().arithmetic, ns(12));
        const bool at_once = says_so && !heard && (cut == 0 || cut == 71);
        EXPECT_EQ(rule.asked(), at_once ? 2 : says_so ? 12 : 11);
        if (!heard) continue;
        const std::vector<Intervals::Interval> copies{
            {at(14), at(24)}, {at(27), at(37)}, {at(40), at(50)}, {at(53), at(63)}};
        EXPECT_EQ(intervals.copies, copies);
        EXPECT_EQ(intervals.waits, copies);
      }
    }
  }
}

}  // namespace
}  // namespace spillway
