// The memory of a host, which experts on the CPU and copies from and to the host share (sim/study/assemble.cpp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/cli/arguments.hpp"
#include "sim/exec/executor.hpp"
#include "sim/study/assemble.hpp"

namespace spillway::cli {
namespace {

using testing::ElementsAre;

Assembly assembled(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"hardware=hgx-h100-8", "model=qwen3-30b-a3b"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return assemble(resolve_arguments(arguments, {}, {}));
}

/// Position of a link; its name must be there once.
std::size_t link(const InstancePlan& plan, const std::string& name) {
  EXPECT_EQ(std::ranges::count(plan.link_names, name), 1) << name;
  return static_cast<std::size_t>(std::ranges::find(plan.link_names, name) - plan.link_names.begin());
}

// The host of hgx-h100-8 has two sockets and reads 491.5 GB/s in all. A replica of two GPUs copies on both of them;
// its CPU reads whole experts, once.
TEST(HostDram, IsALinkOfCopiesAndOfTheCpu) {
  const InstancePlan plan = assembled({"policy=llama-cpp-moe", "tensor_parallel=2"}).instance;
  const std::size_t dram = link(plan, "socket-0-dram");
  EXPECT_EQ(std::ranges::count(plan.link_names, "socket-1-dram"), 0);
  EXPECT_DOUBLE_EQ(plan.links[dram].value(), 491.5e9 / 2);
  EXPECT_THAT(plan.routes.front().cpu, ElementsAre(LinkCrossing{dram, 1}));
  EXPECT_EQ(plan.routes.front().h2d.back(), (LinkCrossing{dram, 2}));
  EXPECT_EQ(plan.routes.front().d2h.back(), (LinkCrossing{dram, 2}));
}

TEST(HostDram, ReplicasAreSpreadOverItsSockets) {
  const InstancePlan plan = assembled({"policy=llama-cpp-moe", "replicas=3"}).instance;
  const std::size_t first = link(plan, "socket-0-dram");
  const std::size_t second = link(plan, "socket-1-dram");
  ASSERT_EQ(plan.routes.size(), 3U);
  EXPECT_EQ(plan.routes[0].cpu.front().link, first);
  EXPECT_EQ(plan.routes[1].cpu.front().link, first);
  EXPECT_EQ(plan.routes[2].cpu.front().link, second);
}

TEST(HostDram, IsNoLinkWhereTheCpuReadsNoExperts) {
  const InstancePlan plan = assembled({"policy=vllm"}).instance;
  EXPECT_EQ(std::ranges::count(plan.link_names, "socket-0-dram"), 0);
  EXPECT_TRUE(plan.routes.front().cpu.empty());
}

// Memory of 10 bytes/ns. The CPU reads 800 bytes in 100 ns (8 bytes/ns), a copy takes 400 bytes in 100 ns (4 bytes/ns).
// Together they want 12: max-min gives the copy its 4 and the CPU 6. When the copy has ended at 100, the CPU has read
// 600; the other 200 take 25 ns.
TEST(HostDram, IsSharedMaxMinFairly) {
  const std::vector<BytesPerSecond> links{BytesPerSecond(10e9)};
  CopyRoute route{.h2d = {{0, 1}}, .cpu = {{0, 1}}};
  Executor executor(CopyLinks({}, route, links), {}, nullptr);
  executor.start_copy({.stream = Stream::cpu, .bytes = Bytes(800), .transfer = Duration(100)});
  executor.start_copy({.stream = Stream::h2d, .bytes = Bytes(400), .transfer = Duration(100)});
  EXPECT_EQ(executor.next_copy_done(), SimTime(100));
  executor.run_copies(nullptr, kNever);
  EXPECT_EQ(executor.now(), SimTime(125));
  EXPECT_EQ(executor.use(Stream::cpu).busy, Duration(125));
  EXPECT_EQ(executor.use(Stream::h2d).busy, Duration(100));
}

}  // namespace
}  // namespace spillway::cli
