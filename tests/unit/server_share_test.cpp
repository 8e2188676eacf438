// One rule for a GPU's share of its server: 1 / tensor_parallel of every total.
#include "hwmodels/models/server_share.hpp"

#include <gtest/gtest.h>

#include <string>

#include "sim/cli/arguments.hpp"
#include "sim/study/assemble.hpp"

namespace spillway {
namespace {

/// Eight GPUs: one GPU alone copies at 100 GB/s, all together at 80 GB/s.
hwmodels::ServerProfile server_of_eight() {
  hwmodels::ServerProfile server;
  server.gpus = 8;
  server.h2d_aggregate = BytesPerSecond(80e9);
  return server;
}

TEST(ServerShare, EveryTotalIsSplitAmongTheGpusOfTheRun) {
  hwmodels::HostProfile host;
  host.dram = Bytes(1'000'000'000'001);
  host.dram_bandwidth = BytesPerSecond(400e9);
  host.cpu_attention_efficiency = 0.5;  // 200 GB/s of KV in all
  hwmodels::GpuProfile gpu;
  gpu.h2d = {BytesPerSecond(100e9), 0.0};
  gpu.d2h = gpu.h2d;
  struct Expected {
    std::int64_t gpus;
    std::int64_t dram;
    double cpu_attention;
    double h2d;
  };
  // DRAM and bandwidths of host and link, each divided by the number of GPUs; a remaining byte is lost.
  for (const Expected& expected :
       {Expected{1, 1'000'000'000'001, 200e9, 80e9}, Expected{2, 500'000'000'000, 100e9, 40e9},
        Expected{8, 125'000'000'000, 25e9, 10e9}}) {
    const hwmodels::HostShare share = hwmodels::host_share(host, expected.gpus);
    EXPECT_EQ(share.dram, Bytes(expected.dram)) << expected.gpus;
    EXPECT_DOUBLE_EQ(share.cpu_attention_bandwidth, expected.cpu_attention) << expected.gpus;
    const hwmodels::GpuProfile limited = hwmodels::with_server_limits(gpu, server_of_eight(), expected.gpus);
    EXPECT_DOUBLE_EQ(limited.h2d.bandwidth.value(), expected.h2d) << expected.gpus;
    EXPECT_DOUBLE_EQ(limited.d2h.bandwidth.value(), 100e9) << "no figure for this direction, so no limit";
  }
}

// The host passes 150 GB/s in both directions together, so each of two GPUs gets 75 GB/s. One direction alone is slower
// than that and keeps its 50 GB/s. Both at once would take 100 GB/s, so each is cut to 75 / 100 of its bandwidth.
TEST(ServerShare, BothDirectionsShareWhatTheHostPasses) {
  hwmodels::GpuProfile gpu;
  gpu.h2d = {BytesPerSecond(50e9), 0.0};
  gpu.d2h = gpu.h2d;
  hwmodels::ServerProfile server;
  server.gpus = 2;
  server.host_shared_bandwidth = BytesPerSecond(150e9);
  const hwmodels::GpuProfile limited = hwmodels::with_server_limits(gpu, server, 2);
  EXPECT_DOUBLE_EQ(limited.h2d.bandwidth.value(), 50e9);
  EXPECT_DOUBLE_EQ(limited.h2d_bandwidth_duplex->value(), 37.5e9);
  EXPECT_DOUBLE_EQ(limited.d2h_bandwidth_duplex->value(), 37.5e9);
  // A single GPU has 150 GB/s, more than it needs.
  EXPECT_DOUBLE_EQ(hwmodels::with_server_limits(gpu, server, 1).h2d_bandwidth_duplex->value(), 50e9);
}

// hgx-h100-8: 2 TiB of DRAM, read at 491.5 GB/s; CPU attention reaches 0.8 of that, 393.2 GB/s. The run's number of
// GPUs counts, not the server's eight.
TEST(ServerShare, ARunOnPartOfAServerGetsAllOfTheHost) {
  const auto deployment = [](const std::string& tensor_parallel) {
    return assemble(cli::resolve_arguments({"policy=deepspeed", "hardware=hgx-h100-8", "model=llama-3.1-8b",
                                            "tensor_parallel=" + tensor_parallel},
                                           {}, {}))
        .setup.deployment;
  };
  const Deployment one = deployment("1");
  EXPECT_EQ(one.host_memory, Bytes(2'199'023'255'552));
  EXPECT_DOUBLE_EQ(one.cpu_attention_bandwidth.value(), 393.2e9);
  const Deployment four = deployment("4");
  EXPECT_EQ(four.host_memory, Bytes(549'755'813'888));
  EXPECT_DOUBLE_EQ(four.cpu_attention_bandwidth.value(), 98.3e9);
}

}  // namespace
}  // namespace spillway
