// Instances whose copies share links: who slows whom down, by how much, and who is called next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/core/units.hpp"
#include "sim/exec/copy_links.hpp"
#include "sim/exec/links.hpp"

namespace spillway {

class Instance;

/// What the flows of an instance get, as of the last Links::fill().
[[nodiscard]] Slowdowns slowdowns_of(const CopyLinks::Flows& flows, const Links& links);

/// The members of one LinkGroup, which are stepped instances, and the links that they share.
///
/// What the transfers of an instant get depends on which transfer and on nothing else, so it is computed once for each
/// set of transfers and remembered. Replicas that serve alike meet few sets.
class LinkSharing {
 public:
  static constexpr std::size_t kNobody = SIZE_MAX;

  /// `capacities` of the links.
  LinkSharing(std::span<const BytesPerSecond> capacities, std::size_t members);

  /// The instance is the member from now on, in place of another one if there was one. It outlives its membership.
  void join(std::size_t member, Instance& instance);
  /// Something may have happened to the member that share() must see. O(1).
  void touch(std::size_t member) { members_[member].touched = true; }

  /// Settles the members that were touched since the last call and gives each transfer its share of the links from
  /// `now` on. O(members), and O(flows * (flows + links)) for transfers that are not remembered.
  void share(SimTime now) { set_slowdowns(settle(now) ? &slowdowns() : nullptr, now, true); }

  // The same in parts, for links that others cross, too.
  /// Settles the members. Returns whether shares may differ from now on. O(members).
  [[nodiscard]] bool settle(SimTime now);
  /// A member transfers, as of the last settle().
  [[nodiscard]] bool moves() const;
  /// What each member gets when nobody else crosses the links.
  [[nodiscard]] const std::vector<Slowdowns>& slowdowns();
  /// Adds the flows of the members, in their order, as CopyLinks::add_flows.
  [[nodiscard]] std::vector<CopyLinks::Flows> add_flows(Links& all, std::span<const std::size_t> places = {}) const;
  /// The members get this from `now` on; null: what they had. `settled`: settle(now) was called. O(members).
  void set_slowdowns(const std::vector<Slowdowns>* slowdowns, SimTime now, bool settled);

  /// The earliest call that a member wants; kNever: none does. A member that was called counts after the next share().
  /// O(members).
  [[nodiscard]] SimTime next_call() const;
  /// The member that is called next at `now`: of several the one whose call was known first. kNobody: all were called.
  /// O(members).
  [[nodiscard]] std::size_t due(SimTime now);
  /// The member is called now.
  void forget_call(std::size_t member) { calls_[member].at = kNever; }

 private:
  /// A member that transfers otherwise so many times makes share() forget all: its copies hardly ever repeat.
  static constexpr std::size_t kMostStates = 64;  // a char numbers them
  /// Slowdowns that are remembered, each of one member: half a megabyte.
  static constexpr std::size_t kMostRemembered = 1 << 13;

  struct Member {
    Instance* instance = nullptr;
    bool touched = false;
    TransferSizes transfers{};
    std::int64_t traffic_changes = 0;
    std::vector<TransferSizes> states{};  // numbered in the order in which they were met
    Slowdowns slowdowns{};                // as the instance has heard them
  };

  struct Call {
    SimTime at = kNever;
    std::uint64_t known = 0;  // calls that were known before this one
  };

  /// Learns what a member transfers after it was settled. Returns whether shares may differ from now on.
  bool see(std::size_t member);
  /// Brings state_ up to date after a member's transfers have changed.
  void number(std::size_t member);
  void forget_all();
  [[nodiscard]] std::vector<Slowdowns> fill();
  /// Asks the member when it wants to be called.
  void expect(std::size_t member);

  std::vector<Member> members_;
  std::vector<Call> calls_;                                             // that the members want
  Links links_;                                                         // the shared ones, between two calls of fill()
  std::string state_;                                                   // by member, the number of what it transfers
  std::unordered_map<std::string, std::vector<Slowdowns>> remembered_;  // by state
  bool joined_ = false;                                                 // since the last call of share()
  std::uint64_t known_calls_ = 0;
};

}  // namespace spillway
