#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "cuda_calibrate/host/host_facts.hpp"

namespace spillway::calibrate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A small /proc and /sys that exist as long as the object.
class FakeSystem {
 public:
  FakeSystem() {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = testing::TempDir() + "/spillway_" + test->test_suite_name() + "_" + test->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~FakeSystem() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  FakeSystem(const FakeSystem&) = delete;
  FakeSystem& operator=(const FakeSystem&) = delete;

  FakeSystem& file(const std::string& name, std::string_view text) {
    const std::filesystem::path path = folder_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return *this;
  }
  FakeSystem& cpu(int id, std::string_view siblings) {
    return file(fmt::format("sys/devices/system/cpu/cpu{}/topology/core_cpus_list", id), siblings);
  }
  FakeSystem& cache(int id, int index, int level, std::string_view type, std::string_view size,
                    std::string_view shared) {
    const std::string at = fmt::format("sys/devices/system/cpu/cpu{}/cache/index{}/", id, index);
    return file(at + "level", fmt::format("{}\n", level))
        .file(at + "type", type)
        .file(at + "size", size)
        .file(at + "shared_cpu_list", shared);
  }
  [[nodiscard]] SystemRoots roots(std::vector<int> affinity) const {
    return {folder_ + "/proc", folder_ + "/sys", std::move(affinity)};
  }

 private:
  std::string folder_;
};

std::vector<int> ids(const std::vector<Cpu>& cpus) {
  std::vector<int> all;
  all.reserve(cpus.size());
  for (const Cpu& cpu : cpus) all.push_back(cpu.id);
  return all;
}

std::vector<int> first(int count) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Two sockets of two cores with two threads each: CPU n and n + 4 share a core; 0, 1, 4, 5 are on node 0.
FakeSystem& two_sockets(FakeSystem& system) {
  for (int id = 0; id < 8; ++id) system.cpu(id, fmt::format("{},{}\n", id % 4, id % 4 + 4));
  return system.file("sys/devices/system/cpu/online", "0-7\n")
      .file("sys/devices/system/node/node0/cpulist", "0-1,4-5\n")
      .file("sys/devices/system/node/node1/cpulist", "2-3,6-7\n")
      .file("sys/devices/system/node/node2/cpulist", "\n");  // memory of a GPU: no CPU
}

TEST(SystemFiles, CpuLists_AreRangesAndSingles) {
  EXPECT_THAT(cpu_list("0-3,8,10-11"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(cpu_list("5"), ElementsAre(5));
  EXPECT_THAT(cpu_list(""), IsEmpty());
  EXPECT_THAT(cpu_list("2,x"), ElementsAre(2));
  EXPECT_THAT(cpu_list("0-99999999"), IsEmpty());
}

TEST(SystemFiles, Fields_AreFoundByTheirWholeName) {
  constexpr std::string_view kText = "CPU part\t: 0xd4f\nmodel name : A: B\nempty :\n";
  EXPECT_EQ(field_of(kText, "CPU part"), "0xd4f");
  EXPECT_EQ(field_of(kText, "model name"), "A: B");
  EXPECT_EQ(field_of(kText, "part"), "");
  EXPECT_EQ(field_of(kText, "empty"), "");
}

TEST(HostFacts, TwoSockets_CountCoresNodesAndCaches) {
  FakeSystem system;
  two_sockets(system)
      .file("proc/cpuinfo", "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C\ncache size\t: 1 KB\n")
      .file("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    600 kB\n")
      .file("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n")
      .file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  for (int id = 0; id < 8; ++id) {
    const bool node1 = id % 4 >= 2;
    system.file(fmt::format("sys/devices/system/cpu/cpu{}/topology/physical_package_id", id), node1 ? "1\n" : "0\n");
    system.cache(id, 0, 1, "Data\n", "48K\n", fmt::format("{},{}\n", id % 4, id % 4 + 4));
    system.cache(id, 1, 1, "Instruction\n", "32K\n", fmt::format("{},{}\n", id % 4, id % 4 + 4));
    system.cache(id, 3, 3, "Unified\n", "105M\n", node1 ? "2-3,6-7\n" : "0-1,4-5\n");
  }
  const HostFacts facts = host_facts(system.roots({0, 1, 2, 3, 4}));
  EXPECT_EQ(facts.cpu_model, "Intel(R) Xeon(R) Platinum 8480C");
  EXPECT_EQ(facts.physical_cores, 4);
  EXPECT_EQ(facts.threads, 5);
  EXPECT_EQ(facts.memory_bytes, 1000 * 1024);
  EXPECT_EQ(facts.available_bytes, 600 * 1024);
  EXPECT_EQ(facts.last_level_cache_bytes, 2 * 105 * 1024 * 1024);
  EXPECT_EQ(facts.numa_nodes, 2);
  EXPECT_EQ(facts.sockets, 2);
  std::vector<int> sockets;
  for (const Cpu& cpu : usable_cpus(system.roots({0, 1, 2, 5}))) sockets.push_back(cpu.socket);
  EXPECT_THAT(sockets, ElementsAre(0, 0, 1, 0));
  EXPECT_EQ(facts.transparent_huge_pages, "madvise");
  EXPECT_EQ(facts.kernel, "6.1.0-13-amd64");
  EXPECT_THAT(facts.architecture, testing::AnyOf("x86_64", "aarch64"));
  EXPECT_THAT(facts.vector_extension, testing::AnyOf("avx512", "avx2", "neon", "scalar"));
}

TEST(HostFacts, Grace_IsNamedByItsPartNumber) {
  FakeSystem system;
  system.file("proc/cpuinfo",
              "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\n"
              "CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\nCPU revision\t: 0\n");
  EXPECT_EQ(host_facts(system.roots({0})).cpu_model, "Arm Neoverse-V2");
  system.file("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x99\nCPU part\t: 0x123\n");
  EXPECT_EQ(host_facts(system.roots({0})).cpu_model, "implementer 0x99 part 0x123");
  system.file("proc/cpuinfo", "processor\t: 0\nHardware\t: Some Board\n");
  EXPECT_EQ(host_facts(system.roots({0})).cpu_model, "Some Board");
  system.file("proc/cpuinfo", "processor\t: 0\n")
      .file("sys/firmware/devicetree/base/model", std::string_view("Tree\0", 5));
  EXPECT_EQ(host_facts(system.roots({0})).cpu_model, "Tree");
}

// Nothing but the affinity is known: each CPU is a core of one node.
TEST(HostFacts, BareSystem_HasFallbacks) {
  const FakeSystem system;
  const HostFacts facts = host_facts(system.roots({0, 1, 2}));
  EXPECT_EQ(facts.cpu_model, "unknown");
  EXPECT_EQ(facts.physical_cores, 3);
  EXPECT_EQ(facts.threads, 3);
  EXPECT_EQ(facts.numa_nodes, 1);
  EXPECT_EQ(facts.sockets, 1);
  EXPECT_EQ(facts.last_level_cache_bytes, 0);
  EXPECT_EQ(facts.transparent_huge_pages, std::nullopt);
  EXPECT_THAT(ids(usable_cpus(system.roots({2, 0}))), ElementsAre(0, 2));
}

TEST(HostFacts, CacheOfCpuinfo_StandsInForThatOfSys) {
  FakeSystem system;
  system.file("proc/cpuinfo", "cache size\t: 512 KB\n");
  EXPECT_EQ(last_level_cache_bytes(system.roots({0})), 512 * 1024);
}

// Quotas of version 2: 250% of a CPU here (2 whole CPUs), no quota in the parent ("max"), 700% at the top.
TEST(HostFacts, QuotaOfVersion2_LowersTheThreads) {
  FakeSystem system;
  system.file("proc/self/cgroup", "0::/job/step\n")
      .file("sys/fs/cgroup/job/step/cpu.max", "250000 100000\n")
      .file("sys/fs/cgroup/job/cpu.max", "max 100000\n")
      .file("sys/fs/cgroup/cpu.max", "700000 100000\n");
  EXPECT_EQ(host_facts(system.roots(first(8))).threads, 2);
  system.file("sys/fs/cgroup/job/step/cpu.max", "50000 100000\n");
  EXPECT_EQ(host_facts(system.roots(first(8))).threads, 1);
  system.file("sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  EXPECT_EQ(host_facts(system.roots(first(8))).threads, 7);
  EXPECT_EQ(host_facts(system.roots(first(4))).threads, 4);
}

TEST(HostFacts, QuotaOfVersion1_LowersTheThreads) {
  FakeSystem system;
  system.file("proc/self/cgroup", "12:cpuset:/\n4:cpu,cpuacct:/docker/1\n")
      .file("sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "300000\n")
      .file("sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us", "100000\n")
      .file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
      .file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(host_facts(system.roots(first(8))).threads, 3);
}

// 1,000,000 bytes allowed, 700,000 used of which 200,000 are idle page cache: 500,000 are left.
TEST(HostFacts, MemoryOfTheGroup_IsNotExceeded) {
  FakeSystem system;
  system.file("proc/meminfo", "MemTotal: 100000 kB\nMemAvailable: 60000 kB\n")
      .file("proc/self/cgroup", "0::/job\n")
      .file("sys/fs/cgroup/job/memory.max", "1000000\n")
      .file("sys/fs/cgroup/job/memory.current", "700000\n")
      .file("sys/fs/cgroup/job/memory.stat", "anon 500000\nfile 200000\nactive_file 0\ninactive_file 200000\n");
  EXPECT_EQ(available_bytes(system.roots({0})), 500'000);
  system.file("sys/fs/cgroup/job/memory.max", "max\n");
  EXPECT_EQ(available_bytes(system.roots({0})), 60'000 * 1024);
}

TEST(Spread, CoresComeBeforeTheirSecondThreads_NodesTakeTurns) {
  FakeSystem system;
  const std::vector<Cpu> cpus = usable_cpus(two_sockets(system).roots(first(8)));
  EXPECT_THAT(ids(spread(cpus, 8)), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(ids(spread(cpus, 3)), ElementsAre(0, 2, 1));
  EXPECT_THAT(ids(spread(cpus, 6, 1)), ElementsAre(2, 3, 6, 7, 0, 1));
  EXPECT_THAT(ids(spread(cpus, 4, 0)), ElementsAre(0, 1, 4, 5));
}

TEST(Spread, TooManyThreadsOrAnEmptyNode_AreUnsupported) {
  FakeSystem system;
  const std::vector<Cpu> cpus = usable_cpus(two_sockets(system).roots({0, 1}));
  try {
    (void)spread(cpus, 3);
    FAIL();
  } catch (const Unsupported& reason) {
    EXPECT_STREQ(reason.what(), "3 threads were requested, but this process may run on only 2 CPUs");
  }
  try {
    (void)spread(cpus, 1, 1);
    FAIL();
  } catch (const Unsupported& reason) {
    EXPECT_THAT(reason.what(), HasSubstr("may not run on any CPU of NUMA node 1"));
  }
}

// Facts of this machine can only be bounded.
TEST(HostFacts, ThisMachine_HasWhatAnyHas) {
  const HostFacts facts = host_facts();
  EXPECT_GE(facts.physical_cores, 1);
  EXPECT_GE(facts.threads, 1);
  EXPECT_LE(facts.threads, static_cast<std::int64_t>(usable_cpus().size()));
  EXPECT_GT(facts.memory_bytes, 0);
  EXPECT_LE(facts.available_bytes, facts.memory_bytes);
  EXPECT_GE(facts.numa_nodes, 1);
  EXPECT_FALSE(facts.cpu_model.empty());
  EXPECT_FALSE(facts.kernel.empty());
}

}  // namespace
}  // namespace spillway::calibrate
