#include "sim/engine/link_groups.hpp"

#include <algorithm>

#include "sim/engine/instance.hpp"

namespace spillway {
namespace {

bool meet(const CopyRoute& a, const CopyRoute& b) {
  const auto crosses = [](const CopyRoute& route, std::size_t link) {
    return std::ranges::any_of(route.all(), [link](const auto* links) { return std::ranges::count(*links, link) > 0; });
  };
  return std::ranges::any_of(a.all(), [&](const auto* links) {
    return std::ranges::any_of(*links, [&](std::size_t link) { return crosses(b, link); });
  });
}

}  // namespace

std::vector<LinkGroup> link_groups(std::span<const InstanceConfig> instances) {
  std::vector<LinkGroup> groups;
  std::vector<bool> known(instances.size(), false);
  for (std::size_t first = 0; first < instances.size(); ++first) {
    if (known[first]) continue;
    LinkGroup group{first};
    for (std::size_t next = 0; next < group.size(); ++next) {
      for (std::size_t other = first + 1; other < instances.size(); ++other) {
        const bool joins = !known[other] && std::ranges::count(group, other) == 0 &&
                           meet(instances[group[next]].route, instances[other].route);
        if (joins) group.push_back(other);
      }
    }
    if (group.size() == 1) continue;
    for (const std::size_t member : group) known[member] = true;
    std::ranges::sort(group);
    groups.push_back(std::move(group));
  }
  return groups;
}

void share_links(Links& links, std::span<Instance* const> members, SimTime now) {
  const std::size_t shared = links.size();
  std::vector<CopyLinks::Flows> flows;
  for (Instance* const member : members) member->settle(now);
  for (const Instance* const member : members) flows.push_back(member->add_flows(links));
  links.fill();
  for (std::size_t m = 0; m < members.size(); ++m) {
    Slowdowns slowdowns;
    for (std::size_t lane = 0; lane < slowdowns.size(); ++lane) {
      if (flows[m][lane]) slowdowns[lane] = slowdown_at(links.rate(*flows[m][lane]));
    }
    members[m]->set_slowdowns(slowdowns);
  }
  links.keep(shared);
}

}  // namespace spillway
