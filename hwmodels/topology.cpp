#include "hwmodels/topology.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace spillway::hwmodels {
namespace {

const GpuPaths& paths_of(const Topology& topology, std::int64_t gpu) {
  return topology.gpus.at(static_cast<std::size_t>(gpu));
}

}  // namespace

const std::vector<std::string>& link_kind_names() {
  static const std::vector<std::string> kNames{"host-dram",   "numa-node", "inter-socket", "root-port",
                                               "pcie-switch", "nvlink",    "nvswitch",     "nic"};
  return kNames;
}

const std::string& link_kind_name(LinkKind kind) { return link_kind_names()[static_cast<std::size_t>(kind)]; }

ServerLinks::ServerLinks(const Topology& topology) : topology_(topology) {
  for (const TopologyLink& link : topology.links) {
    auto& positions = positions_.emplace_back();
    const std::array limits{&link.in, &link.out, &link.both};
    constexpr std::array kWays{" in", " out", ""};
    for (std::size_t i = 0; i < limits.size(); ++i) {
      if (!limits[i]->rate) continue;
      positions[i] = capacities_.size();
      capacities_.push_back(*limits[i]->rate);
      names_.push_back(link.name + kWays[i]);
    }
  }
}

std::vector<LinkCrossing> ServerLinks::crossings(const GpuRange& gpus, std::vector<std::size_t> GpuPaths::*path,
                                                 LinkDirection direction) const {
  std::map<std::size_t, std::int64_t> counts;
  for (std::int64_t gpu = gpus.first; gpu < gpus.first + gpus.count; ++gpu) {
    for (const std::size_t link : paths_of(topology_, gpu).*path) {
      const auto& positions = positions_[link];
      for (const auto& position : {positions[direction == LinkDirection::in ? 0 : 1], positions[2]}) {
        if (position) ++counts[*position];
      }
    }
  }
  std::vector<LinkCrossing> crossings;
  crossings.reserve(counts.size());
  for (const auto& [link, count] : counts) crossings.push_back({link, count});
  return crossings;
}

bool directly_connected(const Topology& topology, std::int64_t a, std::int64_t b) {
  const std::vector<std::size_t>& theirs = paths_of(topology, b).peer;
  return std::ranges::any_of(paths_of(topology, a).peer,
                             [&](std::size_t link) { return std::ranges::count(theirs, link) > 0; });
}

std::vector<std::vector<std::int64_t>> islands(const Topology& topology, const GpuRange& gpus) {
  std::vector<std::vector<std::int64_t>> islands;
  const bool stated = std::ranges::any_of(topology.gpus, [](const GpuPaths& paths) { return !paths.peer.empty(); });
  std::vector<std::vector<std::size_t>> links;  // of each island
  for (std::int64_t gpu = gpus.first; gpu < gpus.first + gpus.count; ++gpu) {
    std::vector<std::int64_t> members;
    std::vector<std::size_t> reached = paths_of(topology, gpu).peer;
    // The GPU joins all islands that it reaches into one.
    for (std::size_t i = islands.size(); i-- > 0;) {
      const bool meets =
          std::ranges::any_of(links[i], [&](std::size_t l) { return std::ranges::count(reached, l) > 0; });
      if (stated && !meets) continue;
      members.insert(members.begin(), islands[i].begin(), islands[i].end());
      reached.insert(reached.end(), links[i].begin(), links[i].end());
      islands.erase(islands.begin() + static_cast<std::ptrdiff_t>(i));
      links.erase(links.begin() + static_cast<std::ptrdiff_t>(i));
    }
    members.push_back(gpu);
    std::ranges::sort(members);
    std::ranges::sort(reached);
    reached.erase(std::unique(reached.begin(), reached.end()), reached.end());
    islands.push_back(std::move(members));
    links.push_back(std::move(reached));
  }
  std::ranges::sort(islands);
  return islands;
}

}  // namespace spillway::hwmodels
