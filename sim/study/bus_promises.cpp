#include "sim/study/bus_promises.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <map>

#include "sim/engine/link_groups.hpp"

namespace spillway {

std::optional<Problem> broken_promises(const std::vector<BusInstance>& instances, std::span<const BytesPerSecond> links,
                                       std::span<const std::string> names, const std::string& where) {
  std::vector<const CopyRoute*> routes;
  routes.reserve(instances.size());
  for (const BusInstance& instance : instances) routes.push_back(instance.route);
  const std::vector<std::optional<LinkCrossing>> buses = shared_buses(routes, links);
  struct Sum {
    double rate = 0.0;
    std::int64_t instances = 0;
  };
  std::map<std::size_t, Sum> sums;  // by link
  for (std::size_t i = 0; i < instances.size(); ++i) {
    const double rate = instances[i].least_rate.value();
    if (!buses[i] || rate == 0.0) continue;
    Sum& sum = sums[buses[i]->link];
    sum.rate += rate * static_cast<double>(buses[i]->gpus);
    ++sum.instances;
  }
  for (const auto& [link, sum] : sums) {
    if (sum.instances < 2 || sum.rate < links[link].value()) continue;
    return Problem{
        fmt::format("the {} instances that stream weights over \"{}\" cannot meet their SLOs at the same time: "
                    "with the fewest layers on the host that their memory allows they need {:.2f} GB/s, and "
                    "the link carries {:.2f} GB/s",
                    sum.instances, names[link], sum.rate * 1e-9, links[link].value() * 1e-9),
        where, "use fewer instances, loosen their SLOs, or set policy.coordinate=false and see what latency becomes",
        true};
  }
  return std::nullopt;
}

}  // namespace spillway
