// One rule for a GPU's share of its host: 1 / tensor_parallel of its memory and of its CPU's bandwidth.
#include "hwmodels/models/server_share.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "sim/cli/arguments.hpp"
#include "sim/study/assemble.hpp"

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

// Eight H100 reach 278 GB/s together: the GPU's own figures stay, and the total is a link that all of the run's cross.
TEST(ServerShare, TotalsAreLinksOfTheRun) {
  const auto plan = [](const std::string& tensor_parallel) {
    return assemble(cli::resolve_arguments({"policy=vllm", "hardware=hgx-h100-8", "model=llama-3.1-8b",
                                            "tensor_parallel=" + tensor_parallel},
                                           {}, {}))
        .instance;
  };
  const InstancePlan four = plan("4");
  EXPECT_EQ(four.route.gpus, 4);
  EXPECT_EQ(four.links, (std::vector<BytesPerSecond>{BytesPerSecond(278e9), BytesPerSecond(278e9)}));
  EXPECT_EQ(four.route.h2d, std::vector<std::size_t>{0});
  EXPECT_EQ(four.route.d2h, std::vector<std::size_t>{1});
  EXPECT_EQ(plan("2").route.gpus, 2);
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
