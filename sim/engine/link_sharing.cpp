#include "sim/engine/link_sharing.hpp"

#include <algorithm>
#include <utility>

#include "sim/engine/instance.hpp"

namespace spillway {

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

void LinkSharing::share(SimTime now) {
  bool changed = std::exchange(joined_, false);
  for (std::size_t m = 0; m < members_.size(); ++m) {
    if (!members_[m].touched) continue;
    members_[m].instance->settle(now);
    changed |= see(m);
  }
  const std::vector<Slowdowns>* const all = changed ? &slowdowns() : nullptr;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    Member& member = members_[m];
    const bool slowed = changed && (*all)[m] != member.slowdowns;
    if (slowed) member.instance->set_slowdowns(member.slowdowns = (*all)[m], now);
    if (slowed || member.touched) expect(m);
    member.touched = false;
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
  std::vector<CopyLinks::Flows> flows;
  flows.reserve(members_.size());
  for (const Member& member : members_) {
    flows.push_back(member.instance->links().add_flows(links_, member.transfers));
  }
  links_.fill();
  std::vector<Slowdowns> slowdowns(members_.size());
  for (std::size_t m = 0; m < members_.size(); ++m) {
    for (std::size_t lane = 0; lane < kLinks; ++lane) {
      if (flows[m][lane]) slowdowns[m][lane] = slowdown_at(links_.rate(*flows[m][lane]));
    }
  }
  links_.keep(shared);
  return slowdowns;
}

void LinkSharing::expect(std::size_t m) {
  const SimTime wanted = members_[m].instance->next_call();
  if (wanted != calls_[m].at) calls_[m] = {wanted, known_calls_++};
}

}  // namespace spillway
