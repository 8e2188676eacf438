// Instances whose copies share links, with each other and with KV that is handed over, against a plain simulation that
// computes every share anew at every event.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/one_copy.hpp"
#include "tests/oracle/plain_shares.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/oracle/route_by.hpp"

namespace spillway {
namespace {

using oracle::Dice;
using oracle::kWays;
using oracle::NaiveConfig;
using oracle::Real;

/// A request of one iteration, which waits for copies.
struct Job {
  SimTime at{};
  std::vector<Copy> copies{};
};
struct Server {
  CopyRoute route{};
  std::vector<LinkTraffic> traffic{};
  std::vector<Job> jobs{};  // each starts after the one before has ended
};
/// KV of a prompt that one instance computes and hands over to another one.
struct Handed {
  SimTime at{};  // its request arrives
  std::int64_t blocks = 0;
};
/// Two instances, and what they hand over, one after the other.
struct Pair {
  HandoverPath path{};  // without the ports
  std::vector<Handed> all{};
};
struct Case {
  std::vector<BytesPerSecond> links{};
  std::vector<Server> servers{};
  std::vector<Pair> pairs{};
  std::int64_t gpus = 1;  // of an instance of a pair
};
using Ends = std::vector<std::vector<std::int64_t>>;  // ns, by server and job, then by pair and hand-over

constexpr Bytes kKvBlock{1'000};  // per GPU
constexpr std::int64_t kBlockTokens = 16;

/// How long all GPUs of a pair's instance take for it, without the launch.
Duration transfer_of(const Case& drawn, const Pair& pair, const Handed& one) {
  const double bytes = static_cast<double>(kKvBlock.count() * one.blocks * drawn.gpus);
  return Duration(std::llround(bytes / pair.path.bandwidth.value() * 1e9));
}

// --- the engine

class CopiesOfJobs final : public LayerPolicy, private LayerRule {
 public:
  explicit CopiesOfJobs(const std::vector<Job>& jobs) : jobs_(jobs) {}
  [[nodiscard]] Blocks capacity() const override { return Blocks(10); }
  [[nodiscard]] LayerRule* begin(const BatchShape&, const LayerCompute&) override { return this; }

 private:
  void at_layer_start(std::int32_t, std::int32_t, CopySink& sink) override {
    const Job& job = jobs_.at(next_++);
    left_ = std::ssize(job.copies);
    for (const Copy& copy : job.copies) sink.issue(copy);
  }
  void at_copy_done(const Copy&, CopySink&) override { --left_; }
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return left_ == 0; }

  const std::vector<Job>& jobs_;
  std::size_t next_ = 0;
  std::int64_t left_ = 0;
};

/// Adds two instances for each pair, and lets them hand over.
void add_pairs(const Case& drawn, const InstanceConfig& instance, SimulationConfig& simulation) {
  const std::size_t pairs = drawn.pairs.size();
  const auto own = [](const RequestSpec& request) { return static_cast<std::size_t>(request.traits.conversation); };
  simulation.pools = {PoolConfig{drawn.servers.size(), std::move(simulation.router)},
                      PoolConfig{2 * pairs, oracle::route_by(own)}};
  for (std::size_t i = 0; i < 2 * pairs; ++i) {
    InstanceConfig& one = simulation.instances.emplace_back(instance);
    one.phases = i < pairs ? Phases::prefill : Phases::decode;
    one.hands_over = true;
  }
  Handover& handover = simulation.handover.emplace();
  handover.kind = 1;
  handover.prefill = pairs;
  handover.first_token_at_prefill = true;
  handover.gpus = drawn.gpus;
  handover.decode_router = oracle::route_by(own);
  handover.links = drawn.links;
  for (const Pair& pair : drawn.pairs) handover.links.push_back(pair.path.bandwidth);
  handover.path = [&drawn](std::size_t from, std::size_t) {
    HandoverPath path = drawn.pairs[from].path;
    path.crossings.push_back({drawn.links.size() + from});
    return path;
  };
}

Ends ends_in_engine(const Case& drawn) {
  const oracle::TenGigabytes model;
  const PolicyInfo& pooled = *PolicyRegistry::instance().find("vllm");
  const Settings of_pairs = oracle::policy_settings(pooled, {});
  const PolicyInfo& plain = *PolicyRegistry::instance().find("vllm-v0");
  const Settings settings = oracle::policy_settings(plain, {});
  std::vector<PolicyInfo> policies;
  NaiveConfig config;
  for (const Server& server : drawn.servers) {
    PolicyInfo& policy = policies.emplace_back(plain);
    policy.make = [&jobs = server.jobs, make = plain.make](const PolicyContext& context) {
      Policy made = make(context);
      made.layers = std::make_unique<CopiesOfJobs>(jobs);
      return made;
    };
    for (const Job& job : server.jobs) {
      RequestSpec request;
      request.arrival = job.at;
      request.input = Tokens(8);
      request.output = request.max_new_tokens = Tokens(1);
      request.traits.conversation = std::ssize(policies) - 1;
      config.requests.push_back(request);
    }
  }
  for (std::size_t p = 0; p < drawn.pairs.size(); ++p) {
    for (const Handed& one : drawn.pairs[p].all) {
      RequestSpec request;
      request.arrival = one.at;
      request.input = Tokens(kBlockTokens * one.blocks);
      request.output = request.max_new_tokens = Tokens(2);
      request.traits.conversation = static_cast<std::int64_t>(p);
      request.traits.pool = 1;
      config.requests.push_back(request);
    }
  }
  std::ranges::stable_sort(config.requests, {}, &RequestSpec::arrival);
  config.follows.resize(config.requests.size());
  config.model = &model;
  config.policy = &plain;
  config.settings = &settings;
  config.gpu_blocks = Blocks(10);
  config.block_bytes = Bytes(1);
  config.max_model_len = Tokens(100);
  SimulationConfig simulation = oracle::simulation_of(config);
  simulation.instances.resize(drawn.servers.size(), simulation.instances.front());
  for (std::size_t i = 0; i < drawn.servers.size(); ++i) {
    simulation.instances[i].policy = &policies[i];
    simulation.instances[i].route = drawn.servers[i].route;
    simulation.instances[i].traffic = drawn.servers[i].traffic;
  }
  simulation.links = drawn.links;
  simulation.router = oracle::route_by(
      [](const RequestSpec& request) { return static_cast<std::size_t>(request.traits.conversation); });
  if (!drawn.pairs.empty()) {
    InstanceConfig instance = oracle::simulation_of(config).instances.front();
    instance.policy = &pooled;
    instance.settings = &of_pairs;
    instance.kv.block_bytes = kKvBlock;
    instance.kv.gpu_blocks = Blocks(100);
    instance.max_model_len = Tokens(100 * kBlockTokens);
    add_pairs(drawn, instance, simulation);
  }
  const oracle::FastRun ran = oracle::run_fast(std::move(simulation), config);
  Ends ends(drawn.servers.size() + drawn.pairs.size());
  for (const RequestRecord& record : ran.records) {
    const std::size_t before = record.traits.pool == 0 ? 0 : drawn.servers.size();
    ends[before + static_cast<std::size_t>(record.traits.conversation)].push_back(record.end.ns());
  }
  return ends;
}

// --- the plain simulation

class PlainServers {
 public:
  explicit PlainServers(const Case& drawn)
      : case_(drawn), states_(drawn.servers.size()), handing_(drawn.pairs.size()) {}

  Ends run() {
    Ends ends(states_.size() + handing_.size());
    for (SimTime now = next_event(SimTime(-1)); now != kNever; now = next_event(now)) {
      for (std::size_t i = 0; i < states_.size(); ++i) {
        State& state = states_[i];
        for (Way& way : state.ways) {
          if (!way.queue.empty() && way.end == now) finish(way, now);
        }
        const bool idle = std::ranges::all_of(state.ways, [](const Way& way) { return way.queue.empty(); });
        if (state.works && idle) {
          state.works = false;
          ends[i].push_back(now.ns() + 1);  // the layer
        }
        const std::vector<Job>& jobs = case_.servers[i].jobs;
        if (state.next >= jobs.size() || jobs[state.next].at != now) continue;
        if (state.works) throw std::logic_error("a job begins before the one before has ended");
        state.works = true;
        for (const Copy& copy : jobs[state.next++].copies) issue(state, copy, now);
      }
      for (std::size_t p = 0; p < handing_.size(); ++p) hand_over(p, now, ends[states_.size() + p]);
      share(now);
    }
    return ends;
  }

 private:
  static constexpr Duration kIteration{1};  // of a prompt, and of the answer

  struct Way {
    std::deque<Copy> queue{};
    SimTime launched{};
    SimTime timed_at{};
    Duration launch_left{};
    Duration transfer_left{};
    Real share = 1;
    SimTime end{};
  };
  struct State {
    std::array<Way, kWays> ways{};
    std::size_t next = 0;  // job
    bool works = false;
  };

  struct Handing {
    std::size_t next = 0;  // hand-over
    bool moves = false;    // or launches
    Way way{};             // without a queue
  };

  /// KV leaves when its prompt has been computed. It arrives before the answer goes on.
  void hand_over(std::size_t p, SimTime now, std::vector<std::int64_t>& ends) {
    const Pair& pair = case_.pairs[p];
    Handing& handing = handing_[p];
    if (handing.moves && handing.way.end == now) {
      handing.moves = false;
      ++handing.next;
      ends.push_back((now + kIteration).ns());
    }
    if (handing.next >= pair.all.size() || pair.all[handing.next].at + kIteration != now) return;
    if (handing.moves) throw std::logic_error("a hand-over begins before the one before has ended");
    handing.moves = true;
    start(handing.way, pair.path.launch, transfer_of(case_, pair, pair.all[handing.next]), now);
  }

  SimTime next_event(SimTime after) const {
    SimTime next = kNever;
    const auto at = [&](SimTime time) {
      if (time > after) next = std::min(next, time);
    };
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const Server& server = case_.servers[i];
      if (states_[i].next < server.jobs.size()) at(server.jobs[states_[i].next].at);
      for (const Way& way : states_[i].ways) {
        if (way.queue.empty()) continue;
        at(way.launched);
        at(way.end);
      }
      if (!states_[i].works) continue;
      for (const LinkTraffic& traffic : server.traffic) {
        at(traffic.from);
        at(traffic.until);
      }
    }
    for (std::size_t p = 0; p < handing_.size(); ++p) {
      const std::vector<Handed>& all = case_.pairs[p].all;
      if (handing_[p].moves) {
        at(handing_[p].way.launched);
        at(handing_[p].way.end);
      } else if (handing_[p].next < all.size()) {
        at(all[handing_[p].next].at + kIteration);
      }
    }
    return next;
  }

  static void issue(State& state, const Copy& copy, SimTime now) {
    Way& way = state.ways[static_cast<std::size_t>(copy.stream) - 1];
    way.queue.push_back(copy);
    if (way.queue.size() == 1) start(way, now);
  }
  static void start(Way& way, SimTime now) { start(way, way.queue.front().launch, way.queue.front().transfer, now); }
  static void start(Way& way, Duration launch, Duration transfer, SimTime now) {
    way.timed_at = now;
    way.launch_left = launch;
    way.transfer_left = transfer;
    way.launched = now + way.launch_left;
    time(way);
  }
  static void finish(Way& way, SimTime now) {
    way.queue.pop_front();
    if (!way.queue.empty()) start(way, now);
  }
  static void time(Way& way) {
    way.end = way.timed_at + way.launch_left + oracle::plain_needed(way.transfer_left, way.share);
  }

  void share(SimTime now) {
    std::vector<Way*> moving;
    std::vector<oracle::PlainFlow> flows;
    std::vector<oracle::PlainLink> links;
    for (const BytesPerSecond& capacity : case_.links) links.push_back({capacity.value()});
    std::vector<Real> key;
    std::vector<std::size_t> flow_of;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const Server& server = case_.servers[i];
      for (std::size_t w = 0; w < kWays; ++w) {
        Way& way = states_[i].ways[w];
        if (way.queue.empty() || way.launched > now) continue;
        moving.push_back(&way);
        const Real rate = oracle::plain_rate(way.queue.front());
        flow_of.push_back(flows.size());
        oracle::PlainLink own{1, {{flows.size(), 1}}};
        for (const LinkCrossing& crossing : *server.route.all()[w]) {
          links[crossing.link].loads.emplace_back(flows.size(), static_cast<Real>(crossing.gpus) * rate);
        }
        flows.push_back({1, 1 / rate});
        key.insert(key.end(), {static_cast<Real>(i), static_cast<Real>(w), rate});
        for (const LinkTraffic& traffic : server.traffic) {
          if (w >= 2 || now < traffic.from || now >= traffic.until) continue;
          own.loads.emplace_back(flows.size(), 1);
          flows.push_back({traffic.share, 1 / rate});
          key.push_back(traffic.share);
        }
        links.push_back(own);
      }
    }
    for (std::size_t p = 0; p < handing_.size(); ++p) {
      if (!handing_[p].moves || handing_[p].way.launched > now) continue;
      moving.push_back(&handing_[p].way);
      const HandoverPath& path = case_.pairs[p].path;
      const auto rate = static_cast<Real>(path.bandwidth.value());
      flow_of.push_back(flows.size());
      for (const auto& [link, part] : path.crossings) {
        links[link].loads.emplace_back(flows.size(), static_cast<Real>(part) * rate);
      }
      flows.push_back({1, static_cast<Real>(case_.gpus) / rate});
      key.push_back(static_cast<Real>(states_.size() + p));
    }
    const auto [known, missing] = known_.try_emplace(key);
    if (missing) known->second = oracle::plain_max_min(flows, links);
    for (std::size_t m = 0; m < moving.size(); ++m) set_share(*moving[m], known->second[flow_of[m]], now);
  }

  static void set_share(Way& way, Real share, SimTime now) {
    if (oracle::same_share(share, way.share)) return;
    const Real before = std::exchange(way.share, share);
    const Duration elapsed = now - way.timed_at;
    const Duration in_launch = std::min(elapsed, way.launch_left);
    way.launch_left -= in_launch;
    way.transfer_left -= oracle::plain_done(elapsed - in_launch, before);
    way.timed_at = now;
    time(way);
  }

  const Case& case_;
  std::vector<State> states_;
  std::vector<Handing> handing_;                          // by pair
  std::map<std::vector<Real>, std::vector<Real>> known_;  // bisection is slow
};

// --- cases

constexpr std::int64_t kApart = 2'000'000;  // ns between two jobs of a server

Case draw(Dice& dice, std::int64_t servers, std::int64_t jobs) {
  Case drawn;
  for (std::int64_t n = dice.between(1, 3); n > 0; --n) {
    drawn.links.emplace_back(1e9 * static_cast<double>(2 * dice.between(2, 20)));
  }
  // All copies of a case have one of few lengths, so that the servers meet the same again, or any length.
  const bool few = dice.chance(50);
  const std::int64_t ways = dice.between(1, static_cast<std::int64_t>(kWays));
  for (std::int64_t i = 0; i < servers; ++i) {
    Server& server = drawn.servers.emplace_back();
    for (std::int64_t w = 0; w < ways; ++w) {
      for (std::size_t link = 0; link < drawn.links.size(); ++link) {
        if (dice.chance(60)) server.route.all()[static_cast<std::size_t>(w)]->push_back({link, dice.between(1, 2)});
      }
    }
    if (dice.chance(25)) {
      const SimTime from(dice.between(0, kApart));
      server.traffic.push_back(
          {0.25 * static_cast<double>(dice.between(1, 3)), from, from + Duration(dice.between(1, kApart * jobs / 2))});
    }
    for (std::int64_t j = 0; j < jobs; ++j) {
      Job& job = server.jobs.emplace_back();
      job.at = SimTime(kApart * j + (dice.chance(30) ? 0 : dice.between(0, 4000)));
      for (std::int64_t left = dice.between(1, 4); left > 0; --left) {
        const std::int64_t transfer = few ? 500 * dice.between(1, 2) : dice.between(1, 2000);
        const std::int64_t rate = few ? 10 : std::array{4, 8, 10}[static_cast<std::size_t>(dice.between(0, 2))];
        job.copies.push_back({.stream = static_cast<Stream>(dice.between(1, ways)),
                              .bytes = Bytes(rate * transfer),
                              .launch = Duration(dice.chance(50) ? 0 : dice.between(1, 100)),
                              .transfer = Duration(transfer)});
      }
    }
  }
  return drawn;
}

/// Hand-overs at about the times of the jobs.
void draw_pairs(Dice& dice, std::int64_t jobs, Case& drawn) {
  drawn.gpus = dice.between(1, 2);
  for (std::int64_t p = dice.between(1, 3); p > 0; --p) {
    Pair& pair = drawn.pairs.emplace_back();
    pair.path.launch = Duration(dice.chance(50) ? 0 : dice.between(1, 100));
    // A GPU moves 4, 8 or 10 bytes/ns, as a copy does.
    const std::int64_t rate = std::array{4, 8, 10}[static_cast<std::size_t>(dice.between(0, 2))];
    pair.path.bandwidth = BytesPerSecond(1e9 * static_cast<double>(rate * drawn.gpus));
    for (std::size_t link = 0; link < drawn.links.size(); ++link) {
      if (dice.chance(60)) pair.path.crossings.push_back({link, dice.chance(50) ? 1.0 : 0.5});
    }
    for (std::int64_t j = 0; j < jobs; ++j) {
      if (dice.chance(20)) continue;
      pair.all.push_back({SimTime(kApart * j + (dice.chance(30) ? 0 : dice.between(0, 4000))), dice.between(1, 40)});
    }
  }
}

TEST(LinkSharing, IsThatOfAPlainSimulation) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const Case drawn = draw(dice, dice.between(2, 5), dice.between(1, 12));
    ASSERT_EQ(ends_in_engine(drawn), PlainServers(drawn).run());
  }
}

TEST(LinkSharing, WithHandoversIsThatOfAPlainSimulation) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed + 2000);
    const std::int64_t jobs = dice.between(1, 12);
    Case drawn = draw(dice, dice.between(1, 4), jobs);
    draw_pairs(dice, jobs, drawn);
    ASSERT_EQ(ends_in_engine(drawn), PlainServers(drawn).run());
  }
}

// More sets of transfers than are remembered, and more transfers of one server than are told apart.
TEST(LinkSharing, ForgetsWithoutAnError) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed + 1000);
    const Case drawn = draw(dice, 8, 150);
    ASSERT_EQ(ends_in_engine(drawn), PlainServers(drawn).run());
  }
}

}  // namespace
}  // namespace spillway
