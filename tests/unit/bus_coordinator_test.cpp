// Select-N's coordinator in a run, by hand: who shares the bus, who is refused, and what figures say.
#include "policies/parts/bus_coordinator.hpp"

#include <gmock/gmock.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "policies/parts/weight_stream.hpp"
#include "tests/oracle/route_by.hpp"
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

using testing::DoubleEq;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

constexpr BytesPerSecond kBus{24e9};
constexpr SimTime at_s(std::int64_t seconds) { return SimTime(seconds * 1'000'000'000); }

/// 40 layers of 0.6 GB, iterations of 0.5 s: 1.2 GB/s for each layer on the host.
BusUser large(std::int32_t least = 1, std::int32_t most = kAllResident) {
  return {.layers = 40, .layer = Bytes(600'000'000), .iteration = Duration(500'000'000), .least = least, .most = most};
}

/// Instances on one bus, one GPU each unless said otherwise.
class Bus {
 public:
  explicit Bus(const std::vector<std::int64_t>& gpus = {1, 1}) {
    for (const std::int64_t each : gpus) seats.push_back(std::make_unique<BusSeat>(coordinator_, each));
  }
  [[nodiscard]] std::vector<std::int32_t> intervals() const {
    std::vector<std::int32_t> all;
    for (const auto& seat : seats) all.push_back(seat ? seat->interval().value_or(0) : 0);
    return all;
  }
  BusSeat& operator[](std::size_t seat) { return *seats[seat]; }

  std::vector<std::unique_ptr<BusSeat>> seats;

 private:
  std::shared_ptr<BusCoordinator> coordinator_ = std::make_shared<BusCoordinator>(kBus);
};

using Intervals = std::vector<std::int32_t>;

// The example of two equal models: 13 + 6 layers at (3, 6), and the newcomer has the smaller interval.
TEST(BusCoordinator, TheNewcomerHasTheSmallerInterval) {
  Bus bus;
  EXPECT_EQ(bus.intervals(), (Intervals{0, 0}));
  bus[0].run(large(), at_s(0));
  bus[1].run(large(), at_s(0));
  EXPECT_EQ(bus.intervals(), (Intervals{6, 3}));
  // Another iteration of the same batch is none.
  bus[0].run(large(), at_s(1));
  EXPECT_EQ(bus.intervals(), (Intervals{6, 3}));
  bus[0].run(large(2), at_s(2));
  EXPECT_EQ(bus.intervals(), (Intervals{3, 6}));
}

// Alone an instance does as with a bus of its own, even where this is more than the bus carries: 40 * 1.2 GB/s.
TEST(BusCoordinator, IdlePeersDoNotCount) {
  Bus bus({1, 1, 1});
  bus[1].run(large(), at_s(0));
  EXPECT_EQ(bus.intervals(), (Intervals{0, 1, 0}));
  bus[2].run(large(), at_s(1));
  EXPECT_EQ(bus.intervals(), (Intervals{0, 6, 3}));
  bus[1].rest(at_s(2));
  EXPECT_EQ(bus.intervals(), (Intervals{0, 6, 1}));  // the first keeps its interval for when it comes back
  bus[1].rest(at_s(3));
  bus[1].run(large(), at_s(3));
  EXPECT_EQ(bus.intervals(), (Intervals{0, 3, 6}));
  bus.seats[1].reset();  // its replica fails
  EXPECT_EQ(bus.intervals(), (Intervals{0, 0, 1}));
}

// Three instances have fewer than 20 layers together: 8 + 6 + 5 at intervals of 5, 6 and 7 differ the least.
TEST(BusCoordinator, MoreThanTwo) {
  Bus bus({1, 1, 1});
  for (std::size_t i = 0; i < 3; ++i) bus[i].run(large(), at_s(0));
  EXPECT_EQ(bus.intervals(), (Intervals{7, 6, 5}));
}

// A layer of a group of two GPUs counts twice: 2 * 8 + 3 or 2 * 3 + 13 are 19, and intervals of 5 and 11 differ less
// than 11 and 3.
TEST(BusCoordinator, AGroupCountsWithAllItsGpus) {
  Bus bus({2, 1});
  bus[0].run(large(), at_s(0));
  EXPECT_EQ(bus.intervals(), (Intervals{1, 0}));
  bus[1].run(large(), at_s(0));
  EXPECT_EQ(bus.intervals(), (Intervals{5, 11}));
}

// A second model with layers of 0.3 GB and iterations of 0.25 s loads as much per layer, and leaves half as much on the
// host. So the first model has the bus: 19 layers do not exist, 13 do, and 6 of the second one's 32 go beside them.
TEST(BusCoordinator, DifferentModels) {
  Bus bus;
  const BusUser small{
      .layers = 32, .layer = Bytes(300'000'000), .iteration = Duration(250'000'000), .least = 1, .most = kAllResident};
  bus[0].run(large(), at_s(0));
  bus[1].run(small, at_s(0));
  EXPECT_EQ(bus.intervals(), (Intervals{3, 5}));
}

// The first may keep 1 layer on the host or none, the second none: its interval is none.
TEST(BusCoordinator, NoLayerOnTheHostIsAnInterval) {
  Bus bus;
  bus[0].run(large(40), at_s(0));
  bus[1].run(large(kAllResident), at_s(0));
  EXPECT_EQ(bus.intervals(), (Intervals{40, kAllResident}));
  BusUser slow = large(1, 1);
  slow.iteration = Duration(1'000'000'100);  // 40 layers of 0.6 GB: just below the bus
  bus[1].run(slow, at_s(0));
  EXPECT_EQ(bus.intervals(), (Intervals{kAllResident, 1}));
}

// 13 + 13 layers are 31.2 GB/s.
TEST(BusCoordinator, AnOverloadedBus_IsLoadedTheLeast) {
  Bus bus;
  bus[0].run(large(2, 3), at_s(0));
  EXPECT_EQ(bus.intervals(), (Intervals{2, 0}));
  bus[1].run(large(1, 3), at_s(10));
  EXPECT_EQ(bus.intervals(), (Intervals{3, 3}));
  bus[0].rest(at_s(20));
  EXPECT_EQ(bus.intervals(), (Intervals{3, 1}));
  bus[1].rest(at_s(30));
  // 10 s each: 20 layers, 26, and 40.
  const double mean = (20 + 26 + 40) * 1.2 / 3;
  EXPECT_THAT(bus[0].figures(), UnorderedElementsAre(Pair("mean_bus_demand_gb_per_s", DoubleEq(mean)),
                                                     Pair("bus_overload_fraction", DoubleEq(1.0 / 3))));
}

TEST(BusCoordinator, FiguresAreOfBusyTime) {
  Bus bus;
  EXPECT_THAT(bus[0].figures(), IsEmpty());
  bus[0].run(large(4), at_s(5));
  bus[0].rest(at_s(6));
  bus[1].run(large(8), at_s(100));
  bus[1].rest(at_s(103));
  // 10 layers for 1 s, 5 layers for 3 s.
  EXPECT_THAT(bus[1].figures(), UnorderedElementsAre(Pair("mean_bus_demand_gb_per_s", DoubleEq((10 + 15) * 1.2 / 4)),
                                                     Pair("bus_overload_fraction", DoubleEq(0))));
}

// --- refusals

TEST(BusCoordinator, RefusesWhatMemoryCannotServeWithinTheSlo) {
  Bus bus;
  EXPECT_FALSE(bus[0].admits(large(6, 5), /*residents=*/true));
  EXPECT_TRUE(bus[0].admits(large(5, 5), /*residents=*/true));
  EXPECT_TRUE(bus[0].admits(large(6, 5), /*residents=*/false));  // only its own SLO is missed
}

TEST(BusCoordinator, RefusesWhatBreaksTheSloOfAPeer) {
  Bus bus;
  bus[0].run(large(1, 3), at_s(0));                               // at least 15.6 GB/s
  EXPECT_TRUE(bus[1].admits(large(1, 6), /*residents=*/false));   // 7.2: 22.8 together
  EXPECT_FALSE(bus[1].admits(large(1, 5), /*residents=*/false));  // 9.6: 25.2, and 14.4 are left for the first
  EXPECT_TRUE(bus[1].admits(large(), /*residents=*/false));       // it may keep its weights on the GPU
  bus[0].rest(at_s(1));
  EXPECT_TRUE(bus[1].admits(large(1, 1), /*residents=*/true));  // nobody else is there
}

// Two need more than the bus carries. A third that keeps its weights on the GPU makes it no worse.
TEST(BusCoordinator, AdmitsWhatLeavesAFullBusAlone) {
  Bus bus({1, 1, 1});
  bus[0].run(large(1, 3), at_s(0));
  bus[1].run(large(1, 3), at_s(0));
  EXPECT_TRUE(bus[2].admits(large(), /*residents=*/true));
  EXPECT_FALSE(bus[2].admits(large(1, 40), /*residents=*/true));
}

// The first needs 9.6 GB/s, less than half of the bus, whatever a newcomer asks for.
TEST(BusCoordinator, ServesWhatBreaksItsOwnSloAlone) {
  Bus bus;
  bus[0].run(large(1, 5), at_s(0));
  EXPECT_TRUE(bus[1].admits(large(1, 3), /*residents=*/false));  // 15.6: 25.2 together
  EXPECT_FALSE(bus[1].admits(large(1, 3), /*residents=*/true));  // others in its batch would wait with it
}

// 10 layers each are 24 GB/s: all of the bus. Each gets what it needs.
TEST(BusCoordinator, ABusThatIsJustFull) {
  Bus bus;
  bus[0].run(large(1, 4), at_s(0));
  EXPECT_TRUE(bus[1].admits(large(1, 4), /*residents=*/true));
  bus[1].run(large(1, 4), at_s(0));
  EXPECT_EQ(bus.intervals(), (Intervals{4, 4}));
  bus[1].rest(at_s(1));
  // An iteration a little shorter needs a little more.
  BusUser fast = large(1, 4);
  fast.iteration = Duration(499'999'999);
  EXPECT_FALSE(bus[1].admits(fast, /*residents=*/true));
}

// Even shares are those of GPUs. A group of two needs 7.2 of 8 GB/s for each, and is safe from a single GPU that needs
// 12. One GPU that needs 14.4 is not.
TEST(BusCoordinator, SharesAreThoseOfGpus) {
  Bus bus({2, 1});
  bus[0].run(large(1, 6), at_s(0));
  EXPECT_TRUE(bus[1].admits(large(1, 4), /*residents=*/false));
  Bus single;
  BusUser twice = large(1, 6);
  twice.layer = twice.layer * 2;
  single[0].run(twice, at_s(0));
  EXPECT_FALSE(single[1].admits(large(1, 4), /*residents=*/false));
}

// --- through the policy, in the engine

/// Layers of 0.6 GB, each computed in 1 ms and copied in 25 ms.
class BusModel final : public ExecutionModel {
 public:
  explicit BusModel(std::int32_t layers) : layers_(layers) {}
  [[nodiscard]] std::int32_t layers() const override { return layers_; }
  [[nodiscard]] IterationTime iteration(const BatchShape&) const override { return {.layer = Duration(1'000'000)}; }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes, CopyMechanism) const override {
    return {{}, Duration(25'000'000)};
  }

 private:
  std::int32_t layers_;
};

/// Two instances of `policy` with 40 layers on one bus. `memory`: layers' worth of weights that fit beside KV.
class TwoOnABus {
 public:
  explicit TwoOnABus(const std::vector<std::int64_t>& memory, const Overrides& overrides = {}) : model_(40) {
    Overrides all{{"engine.chunked_prefill", false},
                  {"engine.max_num_seqs", std::int64_t{8}},
                  {"policy.watermark", 0.0},
                  {"policy.slo", Duration(500'000'000)},
                  {"policy.slo_counts_waiting", false}};
    all.insert(all.end(), overrides.begin(), overrides.end());
    settings_ = oracle::policy_settings(info_, all);
    for (const std::int64_t layers : memory) {
      Deployment deployment{.model = &model_,
                            .layers = 40,
                            .memory = Bytes(600'000'000) * layers + Bytes(1'000'000'000),
                            .weights = Bytes(600'000'000) * 40,
                            .layer_weights = Bytes(600'000'000),
                            .block_bytes = Bytes(10'000'000)};
      deployment.gpu_kv = deployment.memory - deployment.weights;
      layouts.push_back(info_.layout(deployment, settings_));
      InstanceConfig& instance = config.instances.emplace_back();
      instance.model = &model_;
      instance.policy = &info_;
      instance.settings = &settings_;
      read_surroundings(settings_, instance);
      instance.kv = {.gpu_blocks = layouts.back().blocks,
                     .block_tokens = deployment.block_tokens,
                     .block_bytes = deployment.block_bytes,
                     .most_gpu_blocks = layouts.back().most};
      instance.deployment = deployment;
      instance.max_model_len = Tokens(1000);
      instance.route.h2d = {{.link = 0, .gpus = 1}};
    }
    config.links = {kBus};
    config.router = oracle::route_by([](const RequestSpec& request) { return request.client; });
  }
  /// Each request goes to the instance that its client names.
  void run(std::vector<RequestSpec> requests) {
    for (RequestSpec& request : requests) request.traits.pool = config.pools.empty() ? 0 : request.client;
    oracle::ListSource source(requests);
    config.source = &source;
    config.on_request = [this](const RequestRecord& record) {
      outcomes[record.index] = record.outcome;
      replicas[record.index] = record.replica;
      scheduled[record.index] = record.first_scheduled;
    };
    result = simulate(config);
  }
  /// The instances are of two kinds, and a request can be served by one only.
  void set_apart() {
    config.pools = {PoolConfig{}, PoolConfig{}};
    config.router = {};
  }
  [[nodiscard]] std::optional<double> figure(std::size_t instance, const std::string& name) const {
    for (const PolicyFigure& figure : result.instances[instance].figures) {
      if (figure.definition.name == name) return figure.value;
    }
    return std::nullopt;
  }

  SimulationConfig config;
  SimulationResult result{};
  std::vector<Layout> layouts;
  std::map<std::uint64_t, Outcome> outcomes;
  std::map<std::uint64_t, std::uint32_t> replicas;  // that it was sent to last
  std::map<std::uint64_t, SimTime> scheduled;

 private:
  BusModel model_;
  const PolicyInfo& info_ = *PolicyRegistry::instance().find("select-n");
  Settings settings_;
};

RequestSpec of(std::uint32_t client, std::int64_t arrival, std::int64_t output) {
  RequestSpec spec = request(arrival, 16, output);
  spec.client = client;
  return spec;
}

// The SLO allows 3 to each: 13 groups of 26 ms and a layer. Together they must choose 3 and 6. The first instance
// starts alone, and applies the choice in its second iteration. The second, of fewer layers, has the longer iterations,
// and is alone at the end. So 5 iterations have (3 + 4 * 6) / 5, and 5 at 3.
TEST(BusCoordinator, PoliciesApplyItsChoiceInTheirNextIterations) {
  TwoOnABus two({41, 41});
  two.run({of(0, 0, 5), of(1, 0, 5)});
  EXPECT_EQ(two.figure(0, "mean_interval_layers"), (3 + 4 * 6) / 5.0);
  EXPECT_EQ(two.figure(1, "mean_interval_layers"), 3.0);
  EXPECT_EQ(two.figure(0, "refused_requests"), 0.0);
  EXPECT_EQ(two.figure(0, "bus_overload_fraction"), 0.0);
  EXPECT_EQ(two.figure(0, "mean_bus_demand_gb_per_s"), two.figure(1, "mean_bus_demand_gb_per_s"));
  const Metric* const mean = two.result.statistics.find("mean_interval_layers");
  ASSERT_NE(mean, nullptr);
  EXPECT_DOUBLE_EQ(mean->value.value(), (27 / 5.0 + 3) / 2);  // of both
}

// The paper's record allows 2: 20 copies of 25 ms within 0.5 s. The coordinator counts whole layers all the same, so
// the first has 2 and then 6, and not the 7 of real L / i.
TEST(BusCoordinator, ThePapersRecordChangesOnlyTheBounds) {
  TwoOnABus two({41, 41}, {{"policy.record", std::string("paper")}});
  two.run({of(0, 0, 2), of(1, 0, 2)});
  EXPECT_EQ(two.figure(0, "mean_interval_layers"), (2 + 6) / 2.0);
  EXPECT_EQ(two.figure(1, "mean_interval_layers"), 3.0);
}

TEST(BusCoordinator, PoliciesThatAreNotCoordinated) {
  TwoOnABus two({41, 41}, {{"policy.coordinate", false}});
  two.run({of(0, 0, 5), of(1, 0, 5)});
  EXPECT_EQ(two.figure(0, "mean_interval_layers"), 3.0);
  EXPECT_EQ(two.figure(1, "mean_interval_layers"), 3.0);
  EXPECT_EQ(two.figure(0, "refused_requests"), std::nullopt);
  EXPECT_EQ(two.figure(0, "mean_bus_demand_gb_per_s"), std::nullopt);
  EXPECT_EQ(two.layouts.front().least_rate.value(), 0.0);
}

// One after the other they have the bus for themselves.
TEST(BusCoordinator, PoliciesThatRestLeaveTheBus) {
  TwoOnABus two({41, 41});
  two.run({of(0, 0, 5), of(1, 60'000'000'000, 5), of(0, 120'000'000'000, 5)});
  EXPECT_EQ(two.figure(0, "mean_interval_layers"), 3.0);
  EXPECT_EQ(two.figure(1, "mean_interval_layers"), 3.0);
  // 13 layers of 0.6 GB in 0.5 s.
  EXPECT_DOUBLE_EQ(two.figure(0, "mean_bus_demand_gb_per_s").value(), 15.6);
}

// 28 layers and a block fit, so 13 are on the host, one of them in the buffer: 15.6 GB/s each. Nobody else serves what
// the second kind refuses.
TEST(BusCoordinator, PoliciesRejectWhatItRefuses) {
  TwoOnABus two({28, 28});
  two.set_apart();
  EXPECT_DOUBLE_EQ(two.layouts.front().least_rate.value(), 15.6e9);
  two.run({of(0, 0, 50), of(1, 1'000'000'000, 5), of(1, 2'000'000'000, 5), of(1, 60'000'000'000, 5)});
  EXPECT_EQ(two.outcomes[0], Outcome::finished);
  EXPECT_EQ(two.outcomes[1], Outcome::rejected);
  EXPECT_EQ(two.outcomes[2], Outcome::rejected);
  EXPECT_EQ(two.outcomes[3], Outcome::finished);  // the first has gone
  EXPECT_EQ(two.figure(0, "refused_requests"), 0.0);
  EXPECT_EQ(two.figure(1, "refused_requests"), 2.0);
  EXPECT_EQ(two.result.refused, 2);
  EXPECT_FALSE(two.result.first_rejected);  // that one is for its size
  EXPECT_EQ(two.figure(1, "rerouted_requests"), 0.0);
}

/// Sends each request where its client says, and notes what is sent on.
class NotingRouter final : public Router {
 public:
  explicit NotingRouter(std::vector<std::size_t>& sent_on) : sent_on_(sent_on) {}
  [[nodiscard]] std::size_t choose(const RequestSpec& request) override { return request.client; }
  void sent_on(const RequestSpec&, std::size_t replica) override { sent_on_.push_back(replica); }

 private:
  std::vector<std::size_t>& sent_on_;
};

// The same with replicas of one kind. The first serves what the second refuses: alone on the bus it harms nobody. The
// last one, after the first two, stays at the second.
TEST(BusCoordinator, WhatAReplicaRefusesGoesToAnother) {
  TwoOnABus two({28, 28});
  std::vector<std::size_t> sent_on;
  two.config.router = [&](const Replicas&) { return std::make_unique<NotingRouter>(sent_on); };
  two.run({of(0, 0, 50), of(1, 1'000'000'000, 5), of(1, 60'000'000'000, 5)});
  EXPECT_EQ(sent_on, (std::vector<std::size_t>{0}));
  EXPECT_EQ(two.outcomes[1], Outcome::finished);
  EXPECT_EQ(two.replicas[1], 0U);
  EXPECT_EQ(two.outcomes[2], Outcome::finished);
  EXPECT_EQ(two.replicas[2], 1U);
  EXPECT_EQ(two.figure(1, "rerouted_requests"), 1.0);
  EXPECT_EQ(two.figure(0, "rerouted_requests"), 0.0);
  EXPECT_EQ(two.figure(1, "refused_requests"), 0.0);
  EXPECT_EQ(two.result.refused, 0);
  // A refused request was sent to both.
  const std::vector<ReplicaStatistics>& replicas = two.result.statistics.replicas;
  EXPECT_EQ(replicas.at(0).sent, 2);
  EXPECT_EQ(replicas.at(1).sent, 2);
  EXPECT_EQ(replicas.at(0).finished, 2);
  EXPECT_EQ(replicas.at(1).finished, 1);
}

// The second runs at its own risk: 9.6 and 15.6 GB/s are more than the bus carries, and 14.4 are left for it. With one
// more request at either its batch would miss the SLO. So both refuse the last one, and only then it is rejected.
TEST(BusCoordinator, WhatAllReplicasRefuseIsRejected) {
  TwoOnABus two({33, 28});
  two.run({of(0, 0, 50), of(1, 1'000'000'000, 50), of(1, 2'000'000'000, 5)});
  EXPECT_EQ(two.outcomes[1], Outcome::finished);
  EXPECT_EQ(two.outcomes[2], Outcome::rejected);
  EXPECT_EQ(two.replicas[2], 0U);
  EXPECT_EQ(two.figure(1, "rerouted_requests"), 1.0);
  EXPECT_EQ(two.figure(1, "refused_requests"), 0.0);
  EXPECT_EQ(two.figure(0, "rerouted_requests"), 0.0);
  EXPECT_EQ(two.figure(0, "refused_requests"), 1.0);
  EXPECT_EQ(two.result.refused, 1);
  for (const char* const name : {"refused_requests", "rerouted_requests"}) {
    const Metric* const of_both = two.result.statistics.find(name);
    ASSERT_NE(of_both, nullptr) << name;
    EXPECT_EQ(of_both->value, 1.0) << name;
  }
}

// The third would be asked first, because it has no request.
TEST(BusCoordinator, AReplicaThatIsDownIsNotAsked) {
  TwoOnABus three({33, 28, 28});
  three.config.events = {{at_s(1), 2, false}};
  three.run({of(0, 0, 50), of(1, 1'500'000'000, 50), of(1, 2'000'000'000, 5)});
  EXPECT_EQ(three.outcomes[2], Outcome::rejected);
  EXPECT_EQ(three.result.statistics.replicas.at(2).sent, 0);
}

// The second refuses a request that was sent at 1 s and reaches it at 2 s. The first has one request and the third has
// two, so the first is asked. The front end is passed once: an iteration of the first takes at most as long as 19 of 33
// copies, about half a second, so the request begins before 3 s.
TEST(BusCoordinator, TheReplicaWithTheFewestRequestsIsAskedFirst) {
  TwoOnABus three({28, 28, 41});
  three.config.front_end = Duration(1'000'000'000);
  three.run({of(0, 0, 50), of(2, 0, 90), of(2, 0, 90), of(1, 1'000'000'000, 5)});
  EXPECT_EQ(three.outcomes[3], Outcome::finished);
  EXPECT_EQ(three.replicas[3], 0U);
  EXPECT_GE(three.scheduled[3], at_s(2));
  EXPECT_LT(three.scheduled[3], at_s(3));
  EXPECT_EQ(three.figure(1, "rerouted_requests"), 1.0);
}

// 33 layers fit the first, so 8 are on the host: 9.6 GB/s. With 15.6 for the second they need more than the bus
// carries, and the first is safe.
TEST(BusCoordinator, PoliciesServeWhatHarmsNobodyElse) {
  TwoOnABus two({33, 28});
  two.run({of(0, 0, 50), of(1, 1'000'000'000, 5)});
  EXPECT_EQ(two.outcomes[1], Outcome::finished);
  EXPECT_GT(two.figure(0, "bus_overload_fraction").value(), 0.0);
  // The other way round the second would suffer.
  TwoOnABus other({33, 28});
  other.run({of(1, 0, 50), of(0, 1'000'000'000, 5)});
  EXPECT_EQ(other.outcomes[1], Outcome::finished);
  EXPECT_EQ(other.replicas[1], 1U);  // which serves it beside its own
  EXPECT_EQ(other.figure(0, "rerouted_requests"), 1.0);
}

// Nothing of this happens to an instance with a bus of its own.
TEST(BusCoordinator, APolicyWithABusOfItsOwn) {
  TwoOnABus two({28, 28});
  two.config.links = {kBus, kBus};
  two.config.instances[1].route.h2d.front().link = 1;
  two.run({of(0, 0, 50), of(1, 1'000'000'000, 5)});
  EXPECT_EQ(two.outcomes[1], Outcome::finished);
  EXPECT_EQ(two.figure(0, "refused_requests"), std::nullopt);
}

TEST(BusCoordinator, AFixedIntervalIsNotCoordinated) {
  const PolicyInfo& info = *PolicyRegistry::instance().find("select-n");
  const auto problems = [&](const Overrides& overrides) {
    std::vector<std::string> where;
    for (const Problem& problem : info.check(oracle::policy_settings(info, overrides))) where.push_back(problem.where);
    return where;
  };
  EXPECT_THAT(problems({{"policy.interval", std::int64_t{4}}, {"policy.coordinate", true}}),
              testing::ElementsAre("policy.coordinate"));
  EXPECT_THAT(problems({{"policy.interval", std::int64_t{4}}, {"policy.coordinate", false}}), IsEmpty());
  EXPECT_THAT(problems({{"policy.coordinate", true}}), IsEmpty());
}

}  // namespace
}  // namespace spillway
