// The links inside a server: what is read, what copies cross, and what they get, by hand.
#include "hwmodels/topology.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hwmodels/catalog.hpp"
#include "hwmodels/copy_path.hpp"
#include "hwmodels/topology_file.hpp"
#include "sim/core/error.hpp"
#include "tests/oracle/one_copy.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

json figure(const json& value) {
  return {{"value", value}, {"unit", "bytes/s"}, {"source", {{"kind", "assumed"}, {"cite", "a test"}}}};
}

/// Two switches of 10 and 12 GB/s in and 30 out, with two GPUs each, above DRAM of 45 GB/s in all. NVLink ports of
/// 90 GB/s join GPUs 0 and 1, and GPUs 2 and 3. A NIC of 25 GB/s for each GPU.
json two_switches() {
  json topology;
  topology["links"] = {
      {{"names", {"switch-0"}}, {"kind", "pcie-switch"}, {"in", figure(10e9)}, {"out", figure(30e9)}},
      {{"names", {"switch-1"}}, {"kind", "pcie-switch"}, {"in", figure(12e9)}, {"out", figure(30e9)}},
      {{"names", {"dram"}}, {"kind", "host-dram"}, {"in", figure(nullptr)}, {"both", figure(45e9)}},
      {{"names", {"port-0", "port-1", "port-2", "port-3"}},
       {"kind", "nvlink"},
       {"in", figure(90e9)},
       {"out", figure(90e9)}},
      {{"names", {"pair-0", "pair-1"}}, {"kind", "nvlink"}},
      {{"names", {"nic-0", "nic-1", "nic-2", "nic-3"}}, {"kind", "nic"}, {"in", figure(25e9)}, {"out", figure(25e9)}}};
  for (int gpu = 0; gpu < 4; ++gpu) {
    const std::string pair = std::to_string(gpu / 2);
    const std::string own = std::to_string(gpu);
    topology["gpus"].push_back(
        {{"host", {"switch-" + pair, "dram"}}, {"peer", {"port-" + own, "pair-" + pair}}, {"network", {"nic-" + own}}});
  }
  return topology;
}

TopologyFile load(const json& topology, std::int64_t gpus = 4) {
  const json document{{"schema_version", 1},       {"kind", "topology"},
                      {"name", "two-switches"},    {"stands_for", "two switches of two GPUs"},
                      {"error", "none: invented"}, {"topology", topology}};
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string path = testing::TempDir() + "spillway_topology_" + test->name() + ".json";
  std::ofstream(path, std::ios::binary) << document.dump();
  return load_topology(path, gpus);
}

/// "/pointer: what | fix" of each problem.
std::vector<std::string> problems(const json& topology, std::int64_t gpus = 4) {
  std::vector<std::string> texts;
  try {
    static_cast<void>(load(topology, gpus));
  } catch (const DataError& error) {
    for (const Problem& problem : error.problems()) {
      const std::string where = problem.where.substr(problem.where.find(" at /") + 4);
      texts.push_back(where + ": " + problem.what + (problem.fix.empty() ? "" : " | " + problem.fix));
    }
  }
  return texts;
}

TEST(Topology, StatesLinksAndPaths) {
  const Topology topology = load(two_switches()).topology;
  ASSERT_EQ(topology.links.size(), 13U);
  const TopologyLink& dram = topology.links[2];
  EXPECT_EQ(dram.name, "dram");
  EXPECT_EQ(dram.kind, LinkKind::host_dram);
  EXPECT_FALSE(dram.in.rate.has_value());
  EXPECT_EQ(dram.in.source_kind, "assumed") << "null: somebody looked";
  EXPECT_EQ(dram.out.source_kind, "") << "left out: nobody did";
  EXPECT_EQ(dram.both.rate, BytesPerSecond(45e9));
  EXPECT_EQ(topology.links[6].name, "port-3");
  EXPECT_EQ(topology.links[6].out.rate, BytesPerSecond(90e9));
  ASSERT_EQ(topology.gpus.size(), 4U);
  EXPECT_THAT(topology.gpus[2].host, ElementsAre(1, 2));
  EXPECT_THAT(topology.gpus[2].peer, ElementsAre(5, 8));
  EXPECT_THAT(topology.gpus[2].network, ElementsAre(11));
  EXPECT_THAT(topology.warnings, IsEmpty());
  // One value for each figure that is stated, however many links have it.
  EXPECT_EQ(load(two_switches()).file.entries.size(), 10U);
  EXPECT_EQ(load(two_switches()).file.entries[6].key, "port-0 to port-3 in");
}

TEST(Topology, EveryProblemIsNamedAtOnce) {
  json topology = two_switches();
  topology["links"][0]["in"]["value"] = 0;
  topology["links"][1]["out"]["value"] = -30e9;
  topology["links"][2]["kind"] = "host-ram";
  topology["links"][3]["names"][1] = "port-0";
  topology["links"][4]["width"] = 16;
  topology["links"][5]["in"].erase("source");
  topology["gpus"][0]["host"] = {"swich-0", "dram"};
  topology["gpus"][1]["network"] = {"nic-1", "nic-1"};
  topology["gpus"][2].erase("host");
  topology["gpus"][2]["peer"] = {"port-2", 7};
  topology["gpus"][3]["host"] = json::array();
  EXPECT_THAT(
      problems(topology),
      ElementsAre(
          "/topology/links/0/in/value: must be a number between 1 MB/s and 1e16 bytes/s, not 0",
          "/topology/links/1/out/value: must be a number between 1 MB/s and 1e16 bytes/s, not -30000000000.0",
          testing::StartsWith("/topology/links/2/kind: unknown kind \"host-ram\" | did you mean \"host-dram\"?"),
          "/topology/links/3/names/1: there are two links \"port-0\" | rename one of them",
          testing::StartsWith("/topology/links/4/width: unknown field | allowed: names, kind"),
          "/topology/links/5/in/source: missing: the field or the whole file needs {kind, cite}",
          testing::StartsWith("/topology/gpus/0/host/0: there is no link \"swich-0\" | did you mean "
                              "\"switch-0\"? allowed: dram, nic-0"),
          "/topology/gpus/1/peer/0: there is no link \"port-1\" | "
          "did you mean \"port-0\"? allowed: dram, nic-0, nic-1, nic-2, nic-3, pair-0, pair-1, port-0, port-2, "
          "port-3, switch-0, switch-1",
          "/topology/gpus/1/network/1: crosses link \"nic-1\" twice | name each link once",
          "/topology/gpus/2/host: missing", testing::StartsWith("/topology/gpus/2/peer/1: there is no link \"7\""),
          "/topology/gpus/3/host: must be a list of 1 to 8 names of links, not []"));
}

TEST(Topology, TheNumberOfGpusIsTheServers) {
  EXPECT_THAT(problems(two_switches(), 8),
              ElementsAre("/topology/gpus: states 4 GPUs, and the server has 8 | state one entry for each GPU"));
  EXPECT_THAT(problems(two_switches(), 0), IsEmpty()) << "of no server: any number";
  EXPECT_THAT(problems(json::array()), ElementsAre("/topology: must be an object {links, gpus}, not []"));
  EXPECT_THAT(problems({{"links", json::array()}}),
              ElementsAre("/topology/links: must be a list of 1 to 1000 entries, not []", "/topology/gpus: missing"));
}

TEST(Topology, ALinkThatNoGpuCrosses_IsAWarning) {
  json topology = two_switches();
  for (json& gpu : topology["gpus"]) gpu.erase("network");
  topology["links"][5]["names"] = {"nic-0"};
  EXPECT_THAT(load(topology).topology.warnings, ElementsAre("no GPU crosses link \"nic-0\" of the topology"));
}

// Positions: in and out of switch-0 (0, 1) and switch-1 (2, 3), both of dram (4), in and out of port-0 to port-3 (5 to
// 12), nothing of the pairs, in and out of nic-0 to nic-3 (13 to 20).
TEST(ServerLinks, AGroupCrossesALinkOnceForEachOfItsGpus) {
  const Topology topology = load(two_switches()).topology;
  const ServerLinks links(topology);
  ASSERT_EQ(links.capacities().size(), 21U);
  EXPECT_EQ(links.capacities()[2], BytesPerSecond(12e9));
  EXPECT_EQ(links.capacities()[4], BytesPerSecond(45e9));
  using Crossings = std::vector<LinkCrossing>;
  EXPECT_EQ(links.crossings({0, 1}, &GpuPaths::host, LinkDirection::in), (Crossings{{0, 1}, {4, 1}}));
  EXPECT_EQ(links.crossings({0, 3}, &GpuPaths::host, LinkDirection::in), (Crossings{{0, 2}, {2, 1}, {4, 3}}));
  EXPECT_EQ(links.crossings({2, 2}, &GpuPaths::host, LinkDirection::out), (Crossings{{3, 2}, {4, 2}}));
  EXPECT_EQ(links.crossings({1, 2}, &GpuPaths::peer, LinkDirection::out), (Crossings{{8, 1}, {10, 1}}));
  EXPECT_EQ(links.crossings({3, 1}, &GpuPaths::network, LinkDirection::in), (Crossings{{19, 1}}));
}

CopyRoute from_host(const ServerLinks& links, const GpuRange& gpus) {
  return {.h2d = links.crossings(gpus, &GpuPaths::host, LinkDirection::in)};
}

constexpr std::int64_t kMs = 1'000'000;

// Every replica copies 100 MB to each of its GPUs at up to 10 GB/s, and computes for 1 ns.
TEST(Topology, TwoFlowsOnOneSwitch_ShareIt) {
  using Ends = std::vector<std::int64_t>;
  const Topology topology = load(two_switches()).topology;
  const ServerLinks links(topology);
  const auto ends = [&](const std::vector<GpuRange>& replicas) {
    std::vector<CopyRoute> routes;
    routes.reserve(replicas.size());
    for (const GpuRange& gpus : replicas) routes.push_back(from_host(links, gpus));
    return oracle::copy_once(std::vector<std::int64_t>(replicas.size()), routes, links.capacities()).ends;
  };
  EXPECT_EQ(ends({{0, 1}}), Ends{10 * kMs + 1});
  // On one switch of 10 GB/s: 5 each. On two switches: 10 each, together 20 of the DRAM's 45.
  EXPECT_EQ(ends({{0, 1}, {1, 1}}), (Ends{20 * kMs + 1, 20 * kMs + 1}));
  EXPECT_EQ(ends({{0, 1}, {2, 1}}), (Ends{10 * kMs + 1, 10 * kMs + 1}));
  // A group of two on switch-0 takes 5 GB/s on each GPU, one of two on switch-1 6: 10 ms / 0.6, rounded up.
  EXPECT_EQ(ends({{0, 2}, {2, 2}}), (Ends{20 * kMs + 1, 16'666'667 + 1}));
  // A group of four keeps step: switch-0 lets each GPU have 5.
  EXPECT_EQ(ends({{0, 4}}), Ends{20 * kMs + 1});
  // A group over both switches has two GPUs on switch-0, which lets them have 5, and one on switch-1, where 7 of the 12
  // are left for the replica on the last GPU: 10 ms / 0.7, rounded up.
  EXPECT_EQ(ends({{0, 3}, {3, 1}}), (Ends{20 * kMs + 1, 14'285'715 + 1}));
}

TEST(Topology, LessDramThanSwitches_IsSharedByAll) {
  json narrow = two_switches();
  narrow["links"][2]["both"]["value"] = 15e9;
  const Topology topology = load(narrow).topology;
  const ServerLinks links(topology);
  const std::vector<CopyRoute> routes{from_host(links, {0, 1}), from_host(links, {2, 1})};
  // 7.5 GB/s each: 10 ms / 0.75, rounded up.
  EXPECT_EQ(oracle::copy_once({0, 0}, routes, links.capacities()).ends,
            (std::vector<std::int64_t>{13'333'334 + 1, 13'333'334 + 1}));
}

TEST(Topology, PeerLinksDivideTheGpusIntoIslands) {
  using Islands = std::vector<std::vector<std::int64_t>>;
  json pairs = two_switches();
  const Topology two = load(pairs).topology;
  EXPECT_EQ(islands(two, {0, 4}), (Islands{{0, 1}, {2, 3}}));
  EXPECT_EQ(islands(two, {0, 2}), (Islands{{0, 1}}));
  EXPECT_EQ(islands(two, {1, 2}), (Islands{{1}, {2}}));
  EXPECT_TRUE(directly_connected(two, 0, 1));
  EXPECT_FALSE(directly_connected(two, 1, 2));
  // A chain: GPU 3 reaches GPU 0 over the others. GPUs 1 and 2 have two links in common with their neighbours.
  pairs["gpus"][1]["peer"] = {"pair-0", "port-1"};
  pairs["gpus"][2]["peer"] = {"port-1", "pair-1"};
  const Topology chain = load(pairs).topology;
  EXPECT_EQ(islands(chain, {0, 4}), (Islands{{0, 1, 2, 3}}));
  EXPECT_FALSE(directly_connected(chain, 0, 3));
  // The last GPU joins two islands.
  pairs = two_switches();
  pairs["gpus"][3]["peer"] = {"pair-0", "pair-1"};
  EXPECT_EQ(islands(load(pairs).topology, {0, 4}), (Islands{{0, 1, 2, 3}}));
  // No peer links: all go through the host. One GPU with links: the others have none.
  for (json& gpu : pairs["gpus"]) gpu.erase("peer");
  EXPECT_EQ(islands(load(pairs).topology, {0, 4}), (Islands{{0, 1, 2, 3}}));
  pairs["gpus"][1]["peer"] = {"pair-0"};
  EXPECT_EQ(islands(load(pairs).topology, {0, 3}), (Islands{{0}, {1}, {2}}));
}

// --- the way from one replica to another

/// GPUs that copy 40 GB/s to the host, 50 from it and 100 to each other.
struct Machine {
  explicit Machine(const json& topology = two_switches()) {
    server.file.name = "two-switches";
    server.gpus = 4;
    server.peer = HostLink{BytesPerSecond(100e9), 1e-6};
    server.topology = load(topology).topology;
    gpu.file.name = "a-gpu";
    gpu.h2d.bandwidth = BytesPerSecond(50e9);
    gpu.d2h.bandwidth = BytesPerSecond(40e9);
  }
  [[nodiscard]] CopyPath path(const GpuGroup& from, const GpuGroup& to) const {
    return std::get<CopyPath>(copy_path(server, gpu, from, to));
  }

  ServerProfile server;
  GpuProfile gpu;
};

using Shares = std::vector<std::pair<std::size_t, double>>;
Shares shares(const CopyPath& path) {
  Shares all;
  for (const CopyPath::Crossing& one : path.crossings) all.emplace_back(one.link, one.share);
  return all;
}

TEST(CopyPath, BetweenConnectedGpus_IsDirect) {
  const Machine machine;
  // Out of port-0 (6), in to port-1 (7).
  const CopyPath one = machine.path({0, {0, 1}}, {0, {1, 1}});
  EXPECT_EQ(one.way, CopyPath::Way::peer);
  EXPECT_EQ(shares(one), (Shares{{6, 1.0}, {7, 1.0}}));
  EXPECT_DOUBLE_EQ(one.bandwidth.value(), 90e9) << "the port, not the 100 GB/s of a pair";
  // On the server number 2, 21 positions for each server.
  EXPECT_EQ(shares(machine.path({2, {0, 1}}, {2, {1, 1}})), (Shares{{48, 1.0}, {49, 1.0}}));
  // All four joined: each GPU of two sends and receives a half. Twice 90 GB/s.
  json joined = two_switches();
  for (json& gpu : joined["gpus"]) gpu["peer"][1] = "pair-0";
  const CopyPath two = Machine(joined).path({0, {0, 2}}, {0, {2, 2}});
  EXPECT_EQ(shares(two), (Shares{{6, 0.5}, {8, 0.5}, {9, 0.5}, {11, 0.5}}));
  EXPECT_DOUBLE_EQ(two.bandwidth.value(), 180e9);
  // Two GPUs send halves to one, whose port carries all.
  const CopyPath uneven = Machine(joined).path({0, {0, 2}}, {0, {2, 1}});
  EXPECT_EQ(shares(uneven), (Shares{{6, 0.5}, {8, 0.5}, {9, 1.0}}));
  EXPECT_DOUBLE_EQ(uneven.bandwidth.value(), 90e9);
  // Ports without limit: the server's 100 GB/s for the one that receives.
  joined["links"][3].erase("in");
  joined["links"][3].erase("out");
  const CopyPath unlimited = Machine(joined).path({0, {0, 2}}, {0, {2, 1}});
  EXPECT_EQ(shares(unlimited), Shares{});
  EXPECT_DOUBLE_EQ(unlimited.bandwidth.value(), 100e9);
}

TEST(CopyPath, BetweenIslands_GoesThroughTheHost) {
  const Machine machine;
  // Out over switch-0 (1), in over switch-1 (2), and DRAM (4) twice: 12 GB/s in.
  const CopyPath one = machine.path({0, {0, 1}}, {0, {2, 1}});
  EXPECT_EQ(one.way, CopyPath::Way::host);
  EXPECT_EQ(shares(one), (Shares{{1, 1.0}, {2, 1.0}, {4, 2.0}}));
  EXPECT_DOUBLE_EQ(one.bandwidth.value(), 12e9);
  // Wide switches: DRAM carries every byte twice, 45 / 2.
  json wide = two_switches();
  for (const std::size_t link : {0U, 1U}) {
    wide["links"][link]["in"] = wide["links"][link]["out"] = figure(1e12);
  }
  EXPECT_DOUBLE_EQ(Machine(wide).path({0, {0, 1}}, {0, {2, 1}}).bandwidth.value(), 22.5e9);
  // Without that: one GPU sends at 40, two receive at 100 together.
  wide["links"][2].erase("both");
  EXPECT_DOUBLE_EQ(Machine(wide).path({0, {0, 1}}, {0, {2, 2}}).bandwidth.value(), 40e9);
  EXPECT_DOUBLE_EQ(Machine(wide).path({0, {0, 2}}, {0, {3, 1}}).bandwidth.value(), 50e9);
  // Joined GPUs that are not to copy to each other: out and in over switch-0 (1, 0), and DRAM (4) twice. 10 GB/s in.
  const CopyPath refused =
      std::get<CopyPath>(copy_path(machine.server, machine.gpu, {0, {0, 1}}, {0, {1, 1}}, DirectCopies::refused));
  EXPECT_EQ(refused.way, CopyPath::Way::host);
  EXPECT_EQ(shares(refused), (Shares{{0, 1.0}, {1, 1.0}, {4, 2.0}}));
  EXPECT_DOUBLE_EQ(refused.bandwidth.value(), 10e9);
  // Joined GPUs of a server without direct copies.
  Machine none;
  none.server.peer.reset();
  EXPECT_EQ(none.path({0, {0, 1}}, {0, {1, 1}}).way, CopyPath::Way::host);
}

TEST(CopyPath, BetweenServers_CrossesTheirNics) {
  const Machine machine;
  // Out of nic-0 and nic-1 of server 0 (14, 16), in to nic-2 of server 1 (21 + 17), which carries 25.
  const CopyPath path = machine.path({0, {0, 2}}, {1, {2, 1}});
  EXPECT_EQ(path.way, CopyPath::Way::network);
  EXPECT_EQ(shares(path), (Shares{{14, 0.5}, {16, 0.5}, {38, 1.0}}));
  EXPECT_DOUBLE_EQ(path.bandwidth.value(), 25e9);
  EXPECT_DOUBLE_EQ(machine.path({0, {0, 2}}, {1, {2, 2}}).bandwidth.value(), 50e9);
  // Fast NICs: the GPU's own 40 GB/s out.
  json fast = two_switches();
  fast["links"][5]["in"] = fast["links"][5]["out"] = figure(100e9);
  EXPECT_DOUBLE_EQ(Machine(fast).path({0, {0, 1}}, {1, {2, 1}}).bandwidth.value(), 40e9);
}

TEST(CopyPath, WithoutAWay_SaysWhy) {
  json topology = two_switches();
  topology["gpus"][3].erase("network");
  Machine machine(topology);
  const auto problem = [&](const GpuGroup& from, const GpuGroup& to) {
    return std::get<Problem>(copy_path(machine.server, machine.gpu, from, to)).what;
  };
  EXPECT_EQ(problem({0, {0, 1}}, {1, {2, 2}}),
            "there is no path from server 0 to server 1: GPU 3 of two-switches has no network links");
  machine.gpu.unknown = {"d2h_bandwidth"};
  EXPECT_EQ(problem({0, {0, 1}}, {0, {2, 1}}), "a-gpu does not state how fast a GPU copies to and from the host");
}

// --- the bundled servers

TEST(Servers, EachStatesItsTopologyInFull) {
  for (const std::string& name : server_names()) {
    const ServerProfile server = load_server(name);
    EXPECT_EQ(std::ssize(server.topology.gpus), server.gpus) << name;
    EXPECT_THAT(server.topology.warnings, IsEmpty()) << name;
    EXPECT_EQ(islands(server.topology, {0, server.gpus}).size(), 1U) << name;
    for (const TopologyLink& link : server.topology.links) {
      EXPECT_FALSE(link.in.source_kind.empty() && link.both.source_kind.empty()) << name << " " << link.name;
    }
  }
}

// Two sockets, two switches each, two GPUs and two NICs on each switch.
TEST(Servers, TheNodeOfAPair) {
  const ServerProfile pair = load_server("hgx-h100-8-pair");
  EXPECT_EQ(pair.servers, 2);
  EXPECT_EQ(pair.gpus, 8);
  ASSERT_TRUE(pair.of.has_value());
  EXPECT_EQ(pair.of->name, "hgx-h100-8-node");
  EXPECT_EQ(load_server("hgx-h100-8-node").servers, 1);
  const auto named = [&](const std::vector<std::size_t>& path) {
    std::vector<std::string> names;
    names.reserve(path.size());
    for (const std::size_t link : path) names.push_back(pair.topology.links[link].name);
    return names;
  };
  EXPECT_THAT(named(pair.topology.gpus[5].host), ElementsAre("pcie-switch-2", "numa-node-1"));
  EXPECT_THAT(named(pair.topology.gpus[5].peer), ElementsAre("nvlink-5", "nvswitch"));
  EXPECT_THAT(named(pair.topology.gpus[5].network), ElementsAre("nic-5"));
  // 400 Gb/s are 50 GB/s; a GPU reaches 49.8 to the host and to its NIC.
  const GpuProfile gpu = load_gpu(pair.gpu);
  const auto across = std::get<CopyPath>(copy_path(pair, gpu, {0, {0, 1}}, {1, {0, 1}}));
  EXPECT_EQ(across.way, CopyPath::Way::network);
  EXPECT_DOUBLE_EQ(across.bandwidth.value(), gpu.d2h.bandwidth.value());
  EXPECT_NEAR(across.bandwidth.value(), 49.8e9, 0.1e9);
}

}  // namespace
}  // namespace spillway::hwmodels
