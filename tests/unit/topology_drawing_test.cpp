// The text tree of a topology.
#include "sim/cli/about/topology_drawing.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <sstream>
#include <string>

#include "hwmodels/catalog.hpp"
#include "sim/io/lines.hpp"

namespace spillway::cli {
namespace {

using hwmodels::LinkCapacity;
using hwmodels::LinkKind;
using hwmodels::Topology;

LinkCapacity rate(double gigabytes, const std::string& source = "assumed") {
  return {.rate = BytesPerSecond(gigabytes * 1e9), .source_kind = source};
}

TEST(TopologyDrawing, ShowsEachLinkOnceAboveTheGpusThatCrossIt) {
  Topology topology;
  topology.links = {
      {.name = "dram", .kind = LinkKind::numa_node, .in = {}, .out = {}, .both = rate(245.75, "borrowed")},
      {.name = "pcie-switch-0", .kind = LinkKind::pcie_switch, .in = rate(24), .out = rate(24), .both = {}},
      {.name = "pcie-switch-1",
       .kind = LinkKind::pcie_switch,
       .in = rate(24.123456, "measured"),
       .out = rate(22),
       .both = rate(30)},
      {.name = "nic-0", .kind = LinkKind::nic, .in = rate(50, ""), .out = {}, .both = {}},
      {.name = "fabric", .kind = LinkKind::nic, .in = {}, .out = {}, .both = {}},
      {.name = "bridge", .kind = LinkKind::nvlink, .in = {}, .out = rate(300, "datasheet"), .both = {}}};
  topology.gpus = {{.host = {1, 0}, .peer = {5}, .network = {3, 4}},
                   {.host = {1, 0}, .peer = {5}, .network = {3, 4}},
                   {.host = {2, 0}, .peer = {2}, .network = {4}}};
  EXPECT_EQ(draw_topology(topology, "host", 1),
            "    host\n"
            "    `- dram (numa-node): 245.8 GB/s both ways together (borrowed)\n"
            "       |- pcie-switch-0: 24 GB/s each way (assumed)\n"
            "       |  |- GPU 0\n"
            "       |  |- GPU 1\n"
            "       |  `- nic-0 of GPUs 0, 1: 50 GB/s in\n"
            "       |- pcie-switch-1 of GPU 2:\n"
            "       |     24.12 GB/s in (measured),\n"
            "       |     22 GB/s out (assumed),\n"
            "       |     30 GB/s both ways together (assumed)\n"
            "       `- fabric (nic) of GPUs 0, 1, 2: no limit known\n"
            "    between GPUs\n"
            "    |- bridge (nvlink): 300 GB/s out (datasheet)\n"
            "    |  |- GPU 0\n"
            "    |  `- GPU 1\n"
            "    `- pcie-switch-1 of GPU 2: as above\n");
}

TEST(TopologyDrawing, OfOneGpuOrOfGpusWithoutPeerLinks) {
  Topology topology;
  topology.links = {{.name = "host-dram", .kind = LinkKind::host_dram, .in = {}, .out = {}, .both = {}}};
  topology.gpus = {{.host = {0}, .peer = {}, .network = {}}};
  EXPECT_EQ(draw_topology(topology, "host a", 3),
            "    host a, in each of 3 servers\n"
            "    `- host-dram of GPU 0: no limit known\n");
  topology.gpus.push_back(topology.gpus.front());
  EXPECT_EQ(draw_topology(topology, "host a", 1),
            "    host a\n"
            "    `- host-dram: no limit known\n"
            "       |- GPU 0\n"
            "       `- GPU 1\n"
            "    between GPUs: through the host\n");
}

TEST(TopologyDrawing, OfABundledServer_FitsATerminal) {
  for (const std::string& name : hwmodels::server_names()) {
    const hwmodels::ServerProfile server = hwmodels::load_server(name);
    std::istringstream lines(draw_topology(server.topology, server.host, server.servers));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), kColumns) << name << ": " << line;
  }
}

}  // namespace
}  // namespace spillway::cli
