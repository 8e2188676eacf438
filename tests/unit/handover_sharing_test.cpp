// Hand-overs of KV and copies of instances on one link: each step by hand.
//
// tests/oracle/small_cluster.hpp states the times: an iteration takes 1,000 ns for each of two layers, and 1,000 bytes
// of a copy or of a hand-over take as many ns when they are alone, a hand-over 100 ns more for its launch. The prefill
// replica samples first tokens, so that these say when a prompt has been computed. It copies in each iteration.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/oracle/replay.hpp"
#include "tests/oracle/small_cluster.hpp"

namespace spillway {
namespace {

using Cluster = oracle::SmallCluster;
using oracle::request;

/// Each iteration copies from the host when its first layer starts, and its second layer waits for that.
class CopyBeforeSecondLayer final : public LayerPolicy, private LayerRule {
 public:
  explicit CopyBeforeSecondLayer(Bytes bytes) : bytes_(bytes) {}
  [[nodiscard]] Blocks capacity() const override { return Blocks(100); }
  [[nodiscard]] LayerRule* begin(const BatchShape&, const LayerCompute&) override {
    there_ = false;
    return this;
  }

 private:
  void at_layer_start(std::int32_t layer, std::int32_t, CopySink& sink) override {
    if (layer > 0) return;
    sink.issue({.stream = Stream::h2d, .bytes = bytes_, .transfer = Duration(bytes_.count())});
  }
  void at_copy_done(const Copy&, CopySink&) override { there_ = true; }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t) const override { return layer == 0 || there_; }

  const Bytes bytes_;
  bool there_ = false;
};

/// Replica 0 computes prompts and copies `bytes` in each iteration, replica 1 answers. Both the copies and the
/// hand-overs cross link 0, the switch.
class OnOneSwitch {
 public:
  OnOneSwitch(Bytes bytes, double bytes_per_ns, bool by_layers = false)
      : cluster(2), policy_(*PolicyRegistry::instance().find("vllm")) {
    policy_.make = [make = policy_.make, bytes](const PolicyContext& context) {
      Policy made = make(context);
      made.layers = std::make_unique<CopyBeforeSecondLayer>(bytes);
      return made;
    };
    SimulationConfig& config = cluster.config;
    config.instances[0].policy = &policy_;
    config.links = {BytesPerSecond(bytes_per_ns * 1e9)};
    config.instances[0].route.h2d = {{0, 1}};
    cluster.split(1, by_layers, /*first_token_at_prefill=*/true);
    config.handover->links = {config.links.front(), BytesPerSecond(1e9), BytesPerSecond(1e9)};
    config.handover->path = [](std::size_t, std::size_t) {
      return HandoverPath{Duration(100), BytesPerSecond(1e9), {{0}, {1}, {2}}};
    };
  }
  Cluster cluster;

 private:
  PolicyInfo policy_;
};

// The prompt of 0 has been computed at 2,000: its copy ended at 1,000. Its KV of 2 blocks moves from 2,100 on. At
// 2,600, with 1,500 bytes left, the copy of 1's prompt joins it: each gets half of the switch. The copy ends at 4,600,
// and so the second layer at 5,600. The KV has 500 bytes left at 4,600 and is there at 5,100: one iteration ends at
// 7,100. 1 is admitted then, and its KV of 1 block, alone, is there at 8,200.
TEST(HandoverSharing, AHandoverAndACopyGetHalfOfTheSwitchWhileBothMove) {
  OnOneSwitch on(Bytes(1'000), 1.0);
  on.cluster.run({request(0, 32, 2), request(2'600, 16, 2)});
  EXPECT_EQ(on.cluster.of(0).first_token, SimTime(2'000));
  EXPECT_EQ(on.cluster.of(0).end, SimTime(7'100));
  EXPECT_EQ(on.cluster.of(1).first_token, SimTime(5'600));
  EXPECT_EQ(on.cluster.of(1).end, SimTime(10'200));
}

// On a switch for both, all is as on links of their own: the KV of 0 is there at 4,100, and 1's prompt ends at 4,600.
TEST(HandoverSharing, ASwitchForBothSlowsNeitherDown) {
  OnOneSwitch on(Bytes(1'000), 2.0);
  on.cluster.run({request(0, 32, 2), request(2'600, 16, 2)});
  EXPECT_EQ(on.cluster.of(0).end, SimTime(6'100));
  EXPECT_EQ(on.cluster.of(1).first_token, SimTime(4'600));
  EXPECT_EQ(on.cluster.of(1).end, SimTime(9'200));
}

// A hand-over that starts joins a copy that moves, after its launch: the prompt of 1 begins at 2,000, too, and its copy
// of 1,500 bytes has 1,400 left at 2,100. Both get half until it ends at 4,900: its second layer ends at 5,900. The KV
// has 600 left and is there at 5,500.
TEST(HandoverSharing, AHandoverJoinsACopyAfterItsLaunch) {
  OnOneSwitch on(Bytes(1'500), 1.0);
  on.cluster.run({request(0, 32, 2), request(1'000, 16, 2)});
  // The first prompt waits for its copy: its second layer takes from 1,500 to 2,500, so all of this is 500 later.
  EXPECT_EQ(on.cluster.of(0).first_token, SimTime(2'500));
  EXPECT_EQ(on.cluster.of(0).end, SimTime(5'500 + 500 + 2'000));
  EXPECT_EQ(on.cluster.of(1).first_token, SimTime(5'900 + 500));
}

// The client of 0 gives up at 3,600, in the hand-over: the copy, which has 500 of 1,000 bytes left, is alone from then
// on and ends at 4,100. The second layer of 1 ends at 5,100.
TEST(HandoverSharing, AHandoverThatIsCancelledLeavesTheSwitchToTheCopy) {
  OnOneSwitch on(Bytes(1'000), 1.0);
  on.cluster.config.request_timeout = Duration(3'600);
  on.cluster.run({request(0, 32, 2), request(2'600, 16, 2)});
  EXPECT_EQ(on.cluster.of(0).outcome, Outcome::timed_out);
  EXPECT_EQ(on.cluster.of(0).end, SimTime(3'600));
  EXPECT_EQ(on.cluster.of(1).first_token, SimTime(5'100));
}

// Layer by layer, half of 0's 2,000 bytes moves while its prompt is computed, beside its copy: after the launch, at
// 100, the copy of 1,000 has 900 left. Both get half, and the copy ends at 1,900: the second layer ends at 2,900. The
// KV has 100 left at 1,900, and the first layer of it is there at 2,000. The last layer moves from 2,900 on, launch
// included: alone until 4,000.
TEST(HandoverSharing, LayersOfAHandoverShareTheSwitch) {
  OnOneSwitch on(Bytes(1'000), 1.0, /*by_layers=*/true);
  on.cluster.run({request(0, 32, 2)});
  EXPECT_EQ(on.cluster.of(0).first_token, SimTime(2'900));
  EXPECT_EQ(on.cluster.of(0).end, SimTime(6'000));
}

// Replicas of two GPUs, and a switch of 3 bytes/ns. A copy wants 1 byte/ns for each of its two GPUs, and so does a
// hand-over: each GPU of both gets 0.75. The copy of 900 bytes per GPU begins at 2,600 and ends at 3,800, and the
// second layer at 4,800. The KV, 2,000 bytes per GPU, has 1,500 left at 2,600 and 600 at 3,800: it is there at 4,400.
TEST(HandoverSharing, GpusShareEvenlyWhateverTheyMove) {
  OnOneSwitch on(Bytes(900), 3.0);
  SimulationConfig& config = on.cluster.config;
  config.instances[0].route.h2d = {{0, 2}};
  config.handover->gpus = 2;
  config.handover->links[1] = config.handover->links[2] = BytesPerSecond(2e9);
  config.handover->path = [](std::size_t, std::size_t) {
    return HandoverPath{Duration(100), BytesPerSecond(2e9), {{0}, {1}, {2}}};
  };
  on.cluster.run({request(0, 32, 2), request(2'600, 16, 2)});
  EXPECT_EQ(on.cluster.of(0).end, SimTime(6'400));
  EXPECT_EQ(on.cluster.of(1).first_token, SimTime(4'800));
}

// Both count towards the switch: three iterations of 1,000 bytes on replica 0, and KV of 3,000 bytes.
TEST(HandoverSharing, TheSwitchCountsBoth) {
  OnOneSwitch on(Bytes(1'000), 1.0);
  on.cluster.run({request(0, 32, 2), request(2'600, 16, 2), request(20'000, 8, 1)});
  EXPECT_EQ(on.cluster.result.statistics.links.at(0).bytes, 6'000.0);
}

}  // namespace
}  // namespace spillway
