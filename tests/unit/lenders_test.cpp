// GPUs that lend memory: which links their copies cross.
#include "sim/study/lenders.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "sim/cli/arguments.hpp"
#include "sim/study/assemble.hpp"

namespace spillway {
namespace {

using hwmodels::GpuRange;
using Crossings = std::vector<LinkCrossing>;

// Two replicas of two GPUs on an HGX board: GPUs 0 and 1, 2 and 3; 4 and 5 lend to the first, 6 and 7 to the second.
// Links: host-dram in 0 and out 1, then the port of each GPU, in and out: 2 and 3, 4 and 5, ... A copy out leaves by
// the ports of its GPUs and arrives by those of the lenders.
TEST(Lenders, CopiesCrossThePortsOfBothSides) {
  const InstancePlan plan = assemble(cli::resolve_arguments({"policy=aqua", "model=llama-3.1-8b", "hardware=hgx-h100-8",
                                                             "tensor_parallel=2", "replicas=2", "memory.peer=10GB"},
                                                            {}, {}))
                                .instance;
  ASSERT_EQ(plan.routes.size(), 2U);
  EXPECT_EQ(plan.routes[0].peer_out, (Crossings{{3, 1}, {5, 1}, {10, 1}, {12, 1}}));
  EXPECT_EQ(plan.routes[0].peer_in, (Crossings{{2, 1}, {4, 1}, {11, 1}, {13, 1}}));
  EXPECT_EQ(plan.routes[1].peer_out, (Crossings{{7, 1}, {9, 1}, {14, 1}, {16, 1}}));
  EXPECT_EQ(plan.kv.peer_blocks(), Blocks(10'000'000'000 / (16 * 131'072 / 2)));
}

// A bridge that limits both directions together is on the way twice: once for each end of each copy.
TEST(Lenders, ALinkThatBothSidesCrossCarriesBoth) {
  hwmodels::Topology topology;
  topology.links.push_back(
      {.name = "bridge", .kind = hwmodels::LinkKind::pcie_switch, .in = {}, .out = {}, .both = {}});
  topology.links[0].both.rate = BytesPerSecond(50e9);
  topology.gpus.assign(4, hwmodels::GpuPaths{.host = {0}, .peer = {0}, .network = {}});
  const hwmodels::ServerLinks links(topology);
  CopyRoute route;
  Lenders::cross(links, GpuRange{0, 2}, GpuRange{2, 2}, route);
  EXPECT_EQ(route.peer_in, (Crossings{{0, 4}}));
  EXPECT_EQ(route.peer_out, (Crossings{{0, 4}}));
  EXPECT_EQ(Lenders::cut_off(topology, GpuRange{0, 2}, GpuRange{2, 2}), std::nullopt);
  topology.gpus[3].peer.clear();
  EXPECT_EQ(Lenders::cut_off(topology, GpuRange{0, 2}, GpuRange{2, 2}), 1);
}

}  // namespace
}  // namespace spillway
