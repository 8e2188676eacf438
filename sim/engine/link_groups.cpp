#include "sim/engine/link_groups.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

/// A forest of instances, one tree per group: parents[i] <= i, and a root is the first instance of its group.
std::size_t root_of(std::vector<std::size_t>& parents, std::size_t instance) {
  while (parents[instance] != instance) instance = parents[instance] = parents[parents[instance]];
  return instance;
}

std::vector<std::size_t> links_of(const CopyRoute& route) {
  std::vector<std::size_t> links;
  for (const auto* const crossings : route.all()) {
    for (const LinkCrossing& crossing : *crossings) links.push_back(crossing.link);
  }
  return links;
}

}  // namespace

std::vector<LinkGroup> link_groups(std::span<const InstanceConfig> instances) {
  std::vector<std::size_t> parents(instances.size());
  std::map<std::size_t, std::size_t> first_on;  // by link, the first instance that crosses it
  for (std::size_t i = 0; i < instances.size(); ++i) {
    parents[i] = i;
    for (const std::size_t link : links_of(instances[i].route)) {
      const std::size_t mine = root_of(parents, i);
      const std::size_t other = root_of(parents, first_on.try_emplace(link, i).first->second);
      parents[std::max(mine, other)] = std::min(mine, other);
    }
  }
  std::vector<LinkGroup> groups;
  std::vector<std::size_t> group_of(instances.size());  // of roots
  for (std::size_t i = 0; i < instances.size(); ++i) {
    const std::vector<std::size_t> links = links_of(instances[i].route);
    if (links.empty()) continue;
    const std::size_t root = root_of(parents, i);
    if (root == i) {
      group_of[i] = groups.size();
      groups.emplace_back();
    }
    LinkGroup& group = groups[group_of[root]];
    group.instances.push_back(i);
    group.links.insert(group.links.end(), links.begin(), links.end());
  }
  for (LinkGroup& group : groups) {
    std::ranges::sort(group.links);
    group.links.erase(std::unique(group.links.begin(), group.links.end()), group.links.end());
  }
  return groups;
}

std::vector<std::optional<LinkCrossing>> shared_buses(std::span<const CopyRoute* const> routes,
                                                      std::span<const BytesPerSecond> links) {
  struct Users {
    std::int64_t instances = 0;
    std::int64_t gpus = 0;
  };
  std::map<std::size_t, Users> users;  // by link
  for (const CopyRoute* const route : routes) {
    for (const LinkCrossing& crossing : route->h2d) {
      Users& of_link = users[crossing.link];
      ++of_link.instances;
      of_link.gpus += crossing.gpus;
    }
  }
  std::vector<std::optional<LinkCrossing>> buses;
  for (const CopyRoute* const route : routes) {
    std::optional<LinkCrossing>& bus = buses.emplace_back();
    double least = std::numeric_limits<double>::infinity();  // bytes/s for each GPU
    for (const LinkCrossing& crossing : route->h2d) {
      const Users& of_link = users.at(crossing.link);
      const double each = links[crossing.link].value() / static_cast<double>(of_link.gpus);
      if (of_link.instances < 2 || each >= least) continue;
      bus = crossing;
      least = each;
    }
  }
  return buses;
}

CopyRoute route_within(CopyRoute route, std::span<const std::size_t> links) {
  for (auto* const crossings : route.all()) {
    for (LinkCrossing& crossing : *crossings) {
      const auto at = std::ranges::lower_bound(links, crossing.link);
      SPILLWAY_CHECK(at != links.end() && *at == crossing.link, "a route leaves the links of its group");
      crossing.link = static_cast<std::size_t>(at - links.begin());
    }
  }
  return route;
}

}  // namespace spillway
