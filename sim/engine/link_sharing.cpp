#include "sim/engine/link_sharing.hpp"

#include <algorithm>
#include <utility>

#include "sim/engine/instance.hpp"

namespace spillway {

Slowdowns slowdowns_of(const CopyLinks::Flows& flows, const Links& links) {
  Slowdowns slowdowns;
  for (std::size_t lane = 0; lane < flows.size(); ++lane) {
    if (flows[lane]) slowdowns[lane] = slowdown_at(links.rate(*flows[lane]));
  }
  return slowdowns;
}

LinkSharing::LinkSharing(std::span<const BytesPerSecond> capacities, std::size_t members)
    : members_(members), calls_(members), state_(members, '\0') {
  add_shared_links(links_, capacities);
}

void LinkSharing::join(std::size_t member, Instance& instance) {
  members_[member] = Member{.instance = &instance, .touched = true};
  calls_[member] = {};
  joined_ = true;
  forget_all();
}

bool LinkSharing::settle(SimTime now) {
  bool changed = std::exchange(joined_, false);
  for (std::size_t m = 0; m < members_.size(); ++m) {
    if (!members_[m].touched) continue;
    members_[m].instance->settle(now);
    changed |= see(m);
  }
  return changed;
}

bool LinkSharing::moves() const {
  return std::ranges::any_of(members_, [](const Member& member) { return member.transfers != TransferSizes{}; });
}

void LinkSharing::set_slowdowns(const std::vector<Slowdowns>* slowdowns, SimTime now, bool settled) {
  for (std::size_t m = 0; m < members_.size(); ++m) {
    Member& member = members_[m];
    const bool slowed = slowdowns != nullptr && (*slowdowns)[m] != member.slowdowns;
    if (slowed) member.instance->set_slowdowns(member.slowdowns = (*slowdowns)[m], now);
    if (slowed || (settled && member.touched)) expect(m);
    if (settled) member.touched = false;
  }
}

SimTime LinkSharing::next_call() const {
  SimTime next = kNever;
  for (const Call& call : calls_) next = std::min(next, call.at);
  return next;
}

std::size_t LinkSharing::due(SimTime now) {
  for (;;) {
    std::size_t first = kNobody;
    for (std::size_t m = 0; m < calls_.size(); ++m) {
      if (calls_[m].at != now) continue;
      if (first == kNobody || calls_[m].known < calls_[first].known) first = m;
    }
    if (first == kNobody || !members_[first].touched || members_[first].instance->next_call() == now) return first;
    // What happened to the member earlier at this instant has done what it wanted the call for.
    expect(first);
  }
}

bool LinkSharing::see(std::size_t m) {
  Member& member = members_[m];
  const TransferSizes transfers = sizes_of(member.instance->transfers());
  const std::int64_t traffic_changes = member.instance->links().traffic_changes();
  const bool same_traffic = traffic_changes == member.traffic_changes;
  if (same_traffic && transfers == member.transfers) return false;
  member.transfers = transfers;
  member.traffic_changes = traffic_changes;
  same_traffic ? number(m) : forget_all();
  return true;
}

void LinkSharing::number(std::size_t m) {
  std::vector<TransferSizes>& states = members_[m].states;
  const auto met = std::ranges::find(states, members_[m].transfers);
  if (met == states.end()) {
    if (states.size() == kMostStates) return forget_all();
    state_[m] = static_cast<char>(states.size());
    states.push_back(members_[m].transfers);
  } else {
    state_[m] = static_cast<char>(met - states.begin());
  }
}

void LinkSharing::forget_all() {
  remembered_.clear();
  for (Member& member : members_) member.states.assign(1, member.transfers);
  std::ranges::fill(state_, '\0');
}

const std::vector<Slowdowns>& LinkSharing::slowdowns() {
  const auto remembered = remembered_.find(state_);
  if (remembered != remembered_.end()) return remembered->second;
  if ((remembered_.size() + 1) * members_.size() > kMostRemembered) forget_all();
  return remembered_[state_] = fill();
}

std::vector<Slowdowns> LinkSharing::fill() {
  const std::size_t shared = links_.size();
  const std::vector<CopyLinks::Flows> flows = add_flows(links_);
  links_.fill();
  std::vector<Slowdowns> slowdowns;
  slowdowns.reserve(flows.size());
  for (const CopyLinks::Flows& of_member : flows) slowdowns.push_back(slowdowns_of(of_member, links_));
  links_.keep(shared);
  return slowdowns;
}

std::vector<CopyLinks::Flows> LinkSharing::add_flows(Links& all, std::span<const std::size_t> places) const {
  std::vector<CopyLinks::Flows> flows;
  flows.reserve(members_.size());
  for (const Member& member : members_) {
    flows.push_back(member.instance->links().add_flows(all, member.transfers, places));
  }
  return flows;
}

void LinkSharing::expect(std::size_t m) {
  const SimTime wanted = members_[m].instance->next_call();
  if (wanted != calls_[m].at) calls_[m] = {wanted, known_calls_++};
}

}  // namespace spillway
