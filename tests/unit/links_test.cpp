#include "sim/exec/links.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

constexpr SimTime seconds(double count) { return SimTime(static_cast<std::int64_t>(count * 1e9)); }
constexpr double kNoCap = std::numeric_limits<double>::infinity();

/// Starts flows and records their ends.
struct Bench {
  Links links{};
  std::map<FlowId, SimTime> ended{};

  LinkId link(double capacity) { return links.add_link(BytesPerSecond(capacity)); }
  FlowId start(SimTime now, std::initializer_list<LinkId> route, std::int64_t bytes, Duration launch = Duration{},
               double cap = kNoCap) {
    advance(now);
    const FlowId id = links.start_flow(
        now, {.route = std::span(route), .bytes = Bytes(bytes), .launch = launch, .cap = BytesPerSecond(cap)});
    advance(now);
    return id;
  }
  void advance(SimTime now) {
    for (const FinishedFlow& flow : links.advance(now)) ended[flow.id] = flow.time;
  }
  void drain() {
    while (links.next_event() != kNever) advance(links.next_event());
  }
};

TEST(Links, FlowAlone_EndsAfterLaunchAndBytesOverTheNarrowestBandwidth) {
  // A staged NVLink buffer: 64 us + bytes / 250 GB/s, so 80 us for 4 MB and 320 us for 64 MB.
  Bench bench;
  const LinkId nvlink = bench.link(250e9);
  const Duration launch(64'000);
  const FlowId small = bench.start(SimTime{}, {nvlink}, 4'000'000, launch);
  EXPECT_EQ(bench.links.finish(small), SimTime(80'000));
  EXPECT_EQ(bench.links.rate(small), BytesPerSecond(0.0));
  bench.drain();
  EXPECT_EQ(bench.ended[small], SimTime(80'000));
  const FlowId large = bench.start(SimTime(100'000), {nvlink}, 64'000'000, launch);
  bench.drain();
  EXPECT_EQ(bench.ended[large], SimTime(420'000));
  // Two links and a cap: the smallest of the three counts. 1000 B / 7 B/s = 142.857142857142... s, rounded
  // once.
  const LinkId wide = bench.link(9.0);
  const FlowId capped = bench.start(seconds(1), {nvlink, wide}, 1000, Duration(5), 7.0);
  bench.drain();
  EXPECT_EQ(bench.ended[capped], SimTime(1'000'000'005 + 142'857'142'857));
  EXPECT_EQ(bench.links.moved(wide), Bytes(1000));
  EXPECT_EQ(bench.links.moved(nvlink), Bytes(4'000'000 + 64'000'000 + 1000));
}

TEST(Links, TwoFlows_ShareEquallyWhileBothMove) {
  // 100 B/s. f (200 B) has the link to itself for 1 s: 100 B. g (50 B) joins: 50 B/s each, g ends at 2 s; f has 50 B
  // left and the whole link again: 2.5 s.
  Bench bench;
  const LinkId link = bench.link(100.0);
  const FlowId f = bench.start(seconds(0), {link}, 200);
  const FlowId g = bench.start(seconds(1), {link}, 50);
  EXPECT_EQ(bench.links.rate(f), BytesPerSecond(50.0));
  EXPECT_EQ(bench.links.rate(g), BytesPerSecond(50.0));
  EXPECT_EQ(bench.links.finish(f), seconds(3)) << "if g never ended";
  EXPECT_EQ(bench.links.moved(link), Bytes(100));
  bench.drain();
  EXPECT_EQ(bench.ended[g], seconds(2));
  EXPECT_EQ(bench.ended[f], seconds(2.5));
  EXPECT_EQ(bench.links.moved(link), Bytes(250));
}

TEST(Links, ExampleOfTheHeader) {
  // A 10 B/s, B 4 B/s; f on {A}, g on {A, B}, h on {B} capped at 1: rates 7, 3, 1. h (6 B) ends at 6 s; g has had 18 of
  // 30 B, f 42 of 60 B. Then g 4 and f 6: both need 3 s more.
  Bench bench;
  const LinkId a = bench.link(10.0);
  const LinkId b = bench.link(4.0);
  const FlowId f = bench.start(seconds(0), {a}, 60);
  const FlowId g = bench.start(seconds(0), {a, b}, 30);
  const FlowId h = bench.start(seconds(0), {b}, 6, Duration{}, 1.0);
  EXPECT_EQ(bench.links.rate(f), BytesPerSecond(7.0));
  EXPECT_EQ(bench.links.rate(g), BytesPerSecond(3.0));
  EXPECT_EQ(bench.links.rate(h), BytesPerSecond(1.0));
  bench.advance(seconds(6));
  EXPECT_EQ(bench.ended[h], seconds(6));
  EXPECT_EQ(bench.links.rate(f), BytesPerSecond(6.0));
  EXPECT_EQ(bench.links.rate(g), BytesPerSecond(4.0));
  bench.drain();
  EXPECT_EQ(bench.ended[f], seconds(9));
  EXPECT_EQ(bench.ended[g], seconds(9));
}

TEST(Links, Launch_TakesNoBandwidth) {
  // f (10 B at 10 B/s) is alone until g's launch of 0.4 s ends: 4 B. Then 5 B/s each: f's 6 B take 1.2 s, to 1.6 s; g
  // has 6 of 8 B by then, and the last 2 B at 10 B/s end at 1.8 s.
  Bench bench;
  const LinkId link = bench.link(10.0);
  const FlowId f = bench.start(seconds(0), {link}, 10);
  const FlowId g = bench.start(seconds(0), {link}, 8, Duration(400'000'000));
  EXPECT_EQ(bench.links.rate(f), BytesPerSecond(10.0));
  EXPECT_EQ(bench.links.next_event(), seconds(0.4));
  bench.drain();
  EXPECT_EQ(bench.ended[f], seconds(1.6));
  EXPECT_EQ(bench.ended[g], seconds(1.8));
}

TEST(Links, RateThatStays_IsNotRoundedAgain) {
  // f moves 10 B at its cap of 3 B/s: 3.333333333 s, no matter how often g starts and ends on the link.
  Bench bench;
  const LinkId link = bench.link(100.0);
  const FlowId f = bench.start(seconds(0), {link}, 10, Duration{}, 3.0);
  for (std::int64_t i = 1; i < 30; ++i) bench.start(SimTime(i * 100'000'001), {link}, 1);
  bench.drain();
  EXPECT_EQ(bench.ended[f], SimTime(3'333'333'333));
}

TEST(Links, BytesMovedBeforeAChange_AreRoundedDown) {
  // f moves 10 B at 10 B/s. g joins at 0.15 s, when 1.5 B have moved: 1 is booked, 9 are left. Both run at 5 B/s, so f
  // ends at 0.15 + 9 / 5 = 1.95 s. Rounded up, 2 would be booked and f would end at 1.75 s.
  Bench bench;
  const LinkId link = bench.link(10.0);
  const FlowId f = bench.start(seconds(0), {link}, 10);
  bench.start(SimTime(150'000'000), {link}, 100);
  EXPECT_EQ(bench.links.moved(link), Bytes(1));
  bench.drain();
  EXPECT_EQ(bench.ended[f], SimTime(1'950'000'000));
  EXPECT_EQ(bench.links.moved(link), Bytes(110));
}

TEST(Links, FlowWithoutBytes_EndsWithItsLaunch) {
  Bench bench;
  const LinkId link = bench.link(10.0);
  const FlowId f = bench.start(seconds(0), {link}, 100);
  const FlowId none = bench.start(seconds(1), {link}, 0, Duration(7));
  const FlowId nothing = bench.start(seconds(2), {link}, 0);
  bench.drain();
  EXPECT_EQ(bench.ended[none], SimTime(1'000'000'007));
  EXPECT_EQ(bench.ended[nothing], seconds(2));
  EXPECT_EQ(bench.ended[f], seconds(10));
}

TEST(Links, Advance_ReturnsWhatEndedInOrder) {
  Links links;
  const std::vector<LinkId> route{links.add_link(BytesPerSecond(10.0))};
  const FlowId f = links.start_flow(SimTime{}, {.route = route, .bytes = Bytes(30)});
  const FlowId g = links.start_flow(SimTime{}, {.route = route, .bytes = Bytes(10)});
  const FlowId h = links.start_flow(SimTime{}, {.route = route, .bytes = Bytes(10)});
  // A third each: g and h end at 3 s together, f has 20 B left and ends at 5 s.
  std::vector<std::pair<FlowId, SimTime>> ended;
  for (const FinishedFlow& flow : links.advance(seconds(5))) ended.emplace_back(flow.id, flow.time);
  EXPECT_EQ(ended, (std::vector<std::pair<FlowId, SimTime>>{{g, seconds(3)}, {h, seconds(3)}, {f, seconds(5)}}));
}

TEST(Links, Misuse_IsAnInvariantError) {
  Links links;
  const std::vector<LinkId> route{links.add_link(BytesPerSecond(10.0))};
  EXPECT_THROW(links.add_link(BytesPerSecond(0.0)), InvariantError);
  EXPECT_THROW(links.start_flow(SimTime{}, {.bytes = Bytes(1)}), InvariantError) << "no route";
  EXPECT_THROW(links.start_flow(SimTime{}, {.route = route, .bytes = Bytes(-1)}), InvariantError);
  const FlowId f = links.start_flow(SimTime{}, {.route = route, .bytes = Bytes(10)});
  links.advance(SimTime{});
  EXPECT_THROW(links.start_flow(seconds(2), {.route = route, .bytes = Bytes(1)}), InvariantError) << "f ends before";
  links.advance(seconds(2));
  EXPECT_THROW(static_cast<void>(links.rate(f)), InvariantError) << "ended";
  EXPECT_THROW(links.advance(seconds(1)), InvariantError) << "back in time";
}

// ---------------------------------------------------------------------------------------------------------------------
// Random cases against the definition: max-min rates are unique, so checking the definition is a full oracle for rates;
// bytes are integrated in real numbers.

class Random {  // splitmix64
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::int64_t in(std::int64_t low, std::int64_t high) {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return low + static_cast<std::int64_t>((z ^ (z >> 31U)) % static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  std::uint64_t state_;
};

struct NaiveFlow {
  std::vector<LinkId> route{};
  std::int64_t bytes = 0;
  double cap = kNoCap;
  SimTime launched{};
  double moved = 0.0;
};

class NaiveCheck {
 public:
  explicit NaiveCheck(std::uint64_t seed) : random_(seed) {
    for (std::int64_t n = random_.in(1, 4); n > 0; --n) {
      capacities_.push_back(static_cast<double>(random_.in(1, 400)) * 1e8);
      links_.add_link(BytesPerSecond(capacities_.back()));
    }
    total_.resize(capacities_.size());
  }

  void run() {
    for (std::int64_t n = random_.in(1, 12); n > 0; --n) {
      const SimTime at = now_ + Duration(random_.in(0, 3) * random_.in(0, 2000));
      while (links_.next_event() <= at) step(links_.next_event());
      step(at);
      start(at);
    }
    while (links_.next_event() != kNever) step(links_.next_event());
    EXPECT_TRUE(live_.empty());
    for (std::size_t l = 0; l < total_.size(); ++l) EXPECT_EQ(links_.moved(LinkId(l)), Bytes(total_[l]));
  }

 private:
  void start(SimTime at) {
    NaiveFlow flow{.bytes = random_.in(0, 3) * random_.in(0, 20'000)};
    for (std::size_t l = 0; l < capacities_.size(); ++l) {
      const bool last_chance = flow.route.empty() && l + 1 == capacities_.size();
      if (last_chance || random_.in(0, 1) == 0) flow.route.push_back(LinkId(l));
    }
    if (random_.in(0, 2) == 0) flow.cap = static_cast<double>(random_.in(1, 200)) * 1e8;
    const Duration launch(random_.in(0, 1) * random_.in(0, 1000));
    flow.launched = at + launch;
    const FlowId id = links_.start_flow(
        at, {.route = flow.route, .bytes = Bytes(flow.bytes), .launch = launch, .cap = BytesPerSecond(flow.cap)});
    for (const LinkId l : flow.route) total_[static_cast<std::size_t>(l)] += flow.bytes;
    live_.emplace(id, std::move(flow));
  }

  // Advances to `to`, which must not be after the next event.
  void step(SimTime to) {
    for (auto& [id, flow] : live_) flow.moved += links_.rate(id).value() * to_seconds(to - now_);
    now_ = to;
    ++steps_;
    for (const FinishedFlow& finished : links_.advance(to)) {
      const NaiveFlow flow = live_.extract(finished.id).mapped();
      // Half a nanosecond at the final rate, and up to a byte at every change of rate, are rounding.
      EXPECT_NEAR(flow.moved, static_cast<double>(flow.bytes), 40.0 + steps_) << static_cast<std::int64_t>(finished.id);
    }
    check_rates();
    for (std::size_t l = 0; l < capacities_.size(); ++l) {
      const auto moved = static_cast<double>(links_.moved(LinkId(l)).count());
      EXPECT_LE(moved, capacities_[l] * to_seconds(now_) + 40.0 * steps_);
    }
  }

  void check_rates() {
    std::vector<double> used(capacities_.size());
    std::vector<double> fastest(capacities_.size());
    for (const auto& [id, flow] : live_) {
      const double rate = links_.rate(id).value();
      EXPECT_EQ(rate > 0.0, flow.launched <= now_);
      for (const LinkId link : flow.route) {
        used[static_cast<std::size_t>(link)] += rate;
        fastest[static_cast<std::size_t>(link)] = std::max(fastest[static_cast<std::size_t>(link)], rate);
      }
    }
    const double exact = 1.0 + 1e-12;
    for (std::size_t l = 0; l < used.size(); ++l) EXPECT_LE(used[l], capacities_[l] * exact);
    for (const auto& [id, flow] : live_) {
      const double rate = links_.rate(id).value();
      if (rate == 0.0) continue;
      bool bound = rate >= flow.cap;
      EXPECT_LE(rate, flow.cap);
      for (const LinkId link : flow.route) {
        const auto l = static_cast<std::size_t>(link);
        bound |= used[l] * exact >= capacities_[l] && fastest[l] <= rate * exact;
      }
      EXPECT_TRUE(bound) << "flow " << static_cast<std::int64_t>(id) << " could be faster";
    }
  }

  Random random_;
  Links links_{};
  std::vector<double> capacities_{};
  std::vector<std::int64_t> total_{};
  std::map<FlowId, NaiveFlow> live_{};
  SimTime now_{};
  double steps_ = 0.0;
};

TEST(Links, RandomCases_FollowTheDefinition) {
  for (std::uint64_t seed = 0; seed < 3000 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    NaiveCheck(seed).run();
  }
}

}  // namespace
}  // namespace spillway
