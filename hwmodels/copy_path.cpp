#include "hwmodels/copy_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace spillway::hwmodels {
namespace {

using Path = std::vector<std::size_t> GpuPaths::*;

bool all_connected(const Topology& topology, const GpuRange& from, const GpuRange& to) {
  for (std::int64_t a = from.first; a < from.first + from.count; ++a) {
    for (std::int64_t b = to.first; b < to.first + to.count; ++b) {
      if (!directly_connected(topology, a, b)) return false;
    }
  }
  return true;
}

/// The first GPU of the group without network links; empty: each has one.
std::optional<std::int64_t> gpu_without_network(const Topology& topology, const GpuRange& gpus) {
  for (std::int64_t gpu = gpus.first; gpu < gpus.first + gpus.count; ++gpu) {
    if (topology.gpus.at(static_cast<std::size_t>(gpu)).network.empty()) return gpu;
  }
  return std::nullopt;
}

/// Both ends of a copy over links of one kind of path, and the limits on its speed.
CopyPath crossing(const ServerLinks& links, CopyPath::Way way, Path path, const GpuGroup& from, const GpuGroup& to,
                  double bandwidth) {
  std::map<std::size_t, double> shares;
  const auto cross = [&](const GpuGroup& group, LinkDirection direction) {
    const std::size_t first = static_cast<std::size_t>(group.server) * links.capacities().size();
    for (const LinkCrossing& one : links.crossings(group.gpus, path, direction)) {
      shares[first + one.link] += static_cast<double>(one.gpus) / static_cast<double>(group.gpus.count);
    }
  };
  cross(from, LinkDirection::out);
  cross(to, LinkDirection::in);
  CopyPath found{.way = way};
  for (const auto& [link, share] : shares) {
    found.crossings.push_back({link, share});
    bandwidth = std::min(bandwidth, links.capacities()[link % links.capacities().size()].value() / share);
  }
  found.bandwidth = BytesPerSecond(bandwidth);
  return found;
}

bool states_host_copies(const GpuProfile& gpu) {
  return std::ranges::none_of(
      gpu.unknown, [](const std::string& field) { return field == "h2d_bandwidth" || field == "d2h_bandwidth"; });
}

}  // namespace

std::variant<CopyPath, Problem> copy_path(const ServerProfile& server, const GpuProfile& gpu, const GpuGroup& from,
                                          const GpuGroup& to, DirectCopies direct) {
  const Topology& topology = server.topology;
  const ServerLinks links(topology);
  const auto sending = static_cast<double>(from.gpus.count);
  const auto receiving = static_cast<double>(to.gpus.count);
  const bool near = from.server == to.server;
  if (near && direct == DirectCopies::allowed && server.peer && all_connected(topology, from.gpus, to.gpus)) {
    const double bandwidth = std::min(sending, receiving) * server.peer->bandwidth.value();
    return crossing(links, CopyPath::Way::peer, &GpuPaths::peer, from, to, bandwidth);
  }
  for (const GpuGroup& group : {from, to}) {
    const auto gpu_alone = near ? std::nullopt : gpu_without_network(topology, group.gpus);
    if (!gpu_alone) continue;
    return Problem{fmt::format("there is no path from server {} to server {}: GPU {} of {} has no network links",
                               from.server, to.server, *gpu_alone, server.file.name),
                   "hardware", "use a server whose topology states \"network\" links, such as hgx-h100-8-pair"};
  }
  if (!states_host_copies(gpu)) {
    return Problem{fmt::format("{} does not state how fast a GPU copies to and from the host", gpu.file.name),
                   "hardware", "give h2d_bandwidth and d2h_bandwidth in the profile"};
  }
  const double bandwidth = std::min(sending * gpu.d2h.bandwidth.value(), receiving * gpu.h2d.bandwidth.value());
  if (near) return crossing(links, CopyPath::Way::host, &GpuPaths::host, from, to, bandwidth);
  return crossing(links, CopyPath::Way::network, &GpuPaths::network, from, to, bandwidth);
}

}  // namespace spillway::hwmodels
