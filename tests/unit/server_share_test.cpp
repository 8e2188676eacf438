// One rule for a GPU's share of its host: 1 / tensor_parallel of its memory and of its CPU's bandwidth.
#include "hwmodels/models/server_share.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "sim/cli/arguments.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/replicated_run.hpp"

namespace spillway {
namespace {

TEST(ServerShare, EveryTotalIsSplitAmongTheGpusOfTheRun) {
  hwmodels::HostProfile host;
  host.dram = Bytes(1'000'000'000'001);
  host.dram_bandwidth = BytesPerSecond(400e9);
  host.cpu_attention_efficiency = 0.5;  // 200 GB/s of KV in all
  struct Expected {
    std::int64_t gpus;
    std::int64_t dram;
    double cpu_attention;
  };
  // DRAM and bandwidth, each divided by the number of GPUs; a remaining byte is lost.
  for (const Expected& expected : {Expected{1, 1'000'000'000'001, 200e9}, Expected{2, 500'000'000'000, 100e9},
                                   Expected{8, 125'000'000'000, 25e9}}) {
    const hwmodels::HostShare share = hwmodels::host_share(host, expected.gpus);
    EXPECT_EQ(share.dram, Bytes(expected.dram)) << expected.gpus;
    EXPECT_DOUBLE_EQ(share.cpu_attention_bandwidth, expected.cpu_attention) << expected.gpus;
  }
}

// Two sockets read 400 GB/s together. A process alone reads the 200 of its own; of four, each has a quarter of all. A
// copy moves three bytes for each one: it reads the source, fetches the target's cache line, and writes it.
TEST(ServerShare, AProcessReadsTheMemoryOfOneSocket) {
  hwmodels::HostProfile host;
  host.dram = Bytes(1'000);
  host.dram_bandwidth = BytesPerSecond(400e9);
  host.cpu_attention_efficiency = 0.5;
  host.sockets = 2;
  EXPECT_DOUBLE_EQ(hwmodels::host_share(host, 1).cpu_attention_bandwidth, 100e9);
  EXPECT_DOUBLE_EQ(hwmodels::host_share(host, 2).cpu_attention_bandwidth, 100e9);
  EXPECT_DOUBLE_EQ(hwmodels::host_share(host, 4).cpu_attention_bandwidth, 50e9);
  EXPECT_DOUBLE_EQ(hwmodels::host_share(host, 1).copy_bandwidth, 200e9 / 3);
  EXPECT_EQ(hwmodels::host_share(host, 1).dram, Bytes(1'000)) << "memory of both sockets holds data";
}

InstancePlan plan(const std::string& hardware, int tensor_parallel, int replicas = 1) {
  return assemble(cli::resolve_arguments(
                      {"policy=vllm", "model=llama-3.1-8b", "hardware=" + hardware,
                       "tensor_parallel=" + std::to_string(tensor_parallel), "replicas=" + std::to_string(replicas)},
                      {}, {}))
      .instance;
}

using Crossings = std::vector<LinkCrossing>;

// Eight H100 reach 278 GB/s together: the GPU's own figures stay, and the total is a link that all of the run's cross.
TEST(ServerShare, TotalsAreLinksOfTheRun) {
  const InstancePlan four = plan("hgx-h100-8", 4);
  ASSERT_EQ(four.routes.size(), 1U);
  EXPECT_EQ(four.links.at(0), BytesPerSecond(278e9));
  EXPECT_EQ(four.links.at(1), BytesPerSecond(278e9));
  EXPECT_EQ(four.routes[0].h2d, (Crossings{{0, 4}}));
  EXPECT_EQ(four.routes[0].d2h, (Crossings{{1, 4}}));
  EXPECT_EQ(plan("hgx-h100-8", 2).routes[0].h2d, (Crossings{{0, 2}}));
}

// hgx-h100-8-node: numa-node-0 and numa-node-1 limit both directions together (0, 1), each of four switches in, out and
// both (2 to 13). A switch has two GPUs, a socket four.
TEST(ServerShare, EachReplicaCrossesTheLinksOfItsGpus) {
  const InstancePlan twos = plan("hgx-h100-8-node", 2, 6);
  EXPECT_EQ(twos.per_server, 4);
  EXPECT_EQ(twos.servers, 2);
  ASSERT_EQ(twos.routes.size(), 4U);
  EXPECT_EQ(twos.routes[0].h2d, (Crossings{{0, 2}, {2, 2}, {4, 2}}));
  EXPECT_EQ(twos.routes[0].d2h, (Crossings{{0, 2}, {3, 2}, {4, 2}}));
  EXPECT_EQ(twos.routes[3].h2d, (Crossings{{1, 2}, {11, 2}, {13, 2}}));
  EXPECT_TRUE(twos.routes[0].peer_in.empty()) << "no policy copies between replicas";
  EXPECT_EQ(plan("hgx-h100-8-node", 4).routes[0].h2d, (Crossings{{0, 4}, {2, 2}, {4, 2}, {5, 2}, {7, 2}}));
  EXPECT_EQ(plan("hgx-h100-8-node", 1, 8).routes[1].h2d, (Crossings{{0, 1}, {2, 1}, {4, 1}}));
  EXPECT_EQ(plan("hgx-h100-8-pair", 8).servers, 2);
  // Without a server, links of its own.
  EXPECT_FALSE(plan("h100-80gb-sxm", 2, 2).routes.at(0).shares());
}

// Six replicas of two GPUs on two servers of 46 positions each: four and two.
TEST(ServerShare, EachReplicaOfEachServerHasTheRouteOfItsPosition) {
  const Assembly assembly = assemble(cli::resolve_arguments(
      {"policy=vllm", "model=llama-3.1-8b", "hardware=hgx-h100-8-node", "tensor_parallel=2", "replicas=6"}, {}, {}));
  ASSERT_EQ(assembly.instance.links.size(), 46U);
  SimulationConfig simulation;
  simulation.instances.resize(1);
  simulation.links = assembly.instance.links;
  replicate(assembly, 0, simulation);
  ASSERT_EQ(simulation.instances.size(), 6U);
  EXPECT_EQ(simulation.links.size(), 92U);
  EXPECT_EQ(simulation.instances[3].route.h2d, (Crossings{{1, 2}, {11, 2}, {13, 2}}));
  EXPECT_EQ(simulation.instances[4].route.h2d, (Crossings{{46, 2}, {48, 2}, {50, 2}}));
  EXPECT_EQ(simulation.instances[5].route.d2h, (Crossings{{46, 2}, {52, 2}, {53, 2}}));
}

// Hand-overs at 0.5 requests/s do not meet. Copies that take twice as long double the time of each, but for rounding to
// whole nanoseconds; what they wait for is the prompt.
TEST(ServerShare, SlowerCopiesAreSlowerHandovers) {
  for (const char* const hardware : {"hardware=hgx-h100-8", "hardware=h100-80gb-sxm"}) {
    Assembly assembly = assemble(cli::resolve_arguments(
        {"prefill_replicas=1", "decode_replicas=1", hardware, "workload.rate=0.5", "workload.requests=20"}, {}, {}));
    const auto runs = run_variants(assembly, {Variant{}, Variant{.scales = {.copies = 2.0}}}, 1, 1, {}, {});
    const HandoverTotals& once = runs[0].statistics.handover.value();
    const HandoverTotals& twice = runs[1].statistics.handover.value();
    EXPECT_EQ(once.transfers, 20);
    EXPECT_EQ(once.bytes, twice.bytes);
    EXPECT_NEAR(twice.moved, 2.0 * once.moved, 20 * 4e-9) << hardware;
    EXPECT_GT(once.moved, 0.001);
  }
}

// hgx-h100-8: 2 TiB of DRAM, read at 491.5 GB/s by two sockets; CPU attention reaches 0.8 of one's 245.75 GB/s, or of a
// quarter of both for each of four GPUs. The run's number of GPUs counts, not the server's eight.
TEST(ServerShare, ARunOnPartOfAServerSharesTheHostWithNoOther) {
  const auto deployment = [](const std::string& tensor_parallel) {
    return assemble(cli::resolve_arguments({"policy=deepspeed", "hardware=hgx-h100-8", "model=llama-3.1-8b",
                                            "tensor_parallel=" + tensor_parallel},
                                           {}, {}))
        .setup.deployment;
  };
  const Deployment one = deployment("1");
  EXPECT_EQ(one.host_memory, Bytes(2'199'023'255'552));
  EXPECT_DOUBLE_EQ(one.cpu_attention_bandwidth.value(), 196.6e9);
  EXPECT_DOUBLE_EQ(one.cpu_attention_launch, 77e-6);
  const Deployment four = deployment("4");
  EXPECT_EQ(four.host_memory, Bytes(549'755'813'888));
  EXPECT_DOUBLE_EQ(four.cpu_attention_bandwidth.value(), 98.3e9);
}

}  // namespace
}  // namespace spillway
