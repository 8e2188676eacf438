#include "sim/engine/handover_sharing.hpp"

#include <algorithm>
#include <utility>

namespace spillway {

std::vector<std::size_t> HandoverSharing::share(std::span<const std::size_t> due, SimTime now) {
  bool changed = transfers_.is_due();
  for (Group& group : groups_) {
    group.due = std::ranges::count(due, group.number) > 0;
    group.changed = group.due && group.sharing->settle(now);
    changed |= group.changed;
  }
  const bool were_together = together_;
  together_ = both_move();
  if (together_ && changed) {
    share_together(now);
  } else {
    // What the flows of a time together got does not hold any more.
    share_apart(were_together && !together_, now);
  }
  std::vector<std::size_t> asked;
  for (const Group& group : groups_) {
    if (group.due || were_together || together_) asked.push_back(group.number);
  }
  return asked;
}

bool HandoverSharing::both_move() const {
  return transfers_.moves() && std::ranges::any_of(groups_, [](const Group& group) { return group.sharing->moves(); });
}

void HandoverSharing::share_together(SimTime now) {
  transfers_.share(
      now,
      [this](Links& links) {
        for (Group& group : groups_) group.flows = group.sharing->add_flows(links, group.places);
      },
      [this, now](const Links& links) {
        for (Group& group : groups_) {
          std::vector<Slowdowns> slowdowns;
          slowdowns.reserve(group.flows.size());
          for (const CopyLinks::Flows& flows : group.flows) slowdowns.push_back(slowdowns_of(flows, links));
          group.sharing->set_slowdowns(&slowdowns, now, group.due);
        }
      });
}

void HandoverSharing::share_apart(bool all, SimTime now) {
  if (all || transfers_.is_due()) transfers_.share(now);
  for (Group& group : groups_) {
    if (!group.due && !all) continue;
    const bool changed = group.changed || all;
    group.sharing->set_slowdowns(changed ? &group.sharing->slowdowns() : nullptr, now, group.due);
  }
}

}  // namespace spillway
