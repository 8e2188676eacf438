// Links that both hand-overs of KV and copies of instances cross: a PCIe switch, a NIC's root port, NVLink.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "sim/core/units.hpp"
#include "sim/engine/handover.hpp"
#include "sim/engine/link_sharing.hpp"

namespace spillway {

/// The groups of instances whose links hand-overs cross. While a hand-over and a copy move at the same time, all of
/// them share the links max-min fairly, by bytes/s per GPU. At other times groups and hand-overs do so on their own.
class HandoverSharing {
 public:
  /// `transfers` were told that they are beside copies, and outlive this object.
  explicit HandoverSharing(KvTransfers& transfers) : transfers_(transfers) {}
  /// `places`: of the group's links among Handover::links. Both outlive this object.
  void add(std::size_t number, LinkSharing& group, std::span<const std::size_t> places) {
    groups_.push_back({number, &group, places});
  }
  [[nodiscard]] bool is_due() const { return transfers_.is_due(); }
  /// All that happens at `now` has happened, to hand-overs and to the groups with the numbers `due`: from now on
  /// everything that moves gets its share. Returns the groups whose members may want other calls than before.
  /// O(members of these groups), and O(flows * (flows + links)) when shares change.
  [[nodiscard]] std::vector<std::size_t> share(std::span<const std::size_t> due, SimTime now);

 private:
  struct Group {
    std::size_t number = 0;
    LinkSharing* sharing = nullptr;
    std::span<const std::size_t> places{};
    bool due = false;
    bool changed = false;
    std::vector<CopyLinks::Flows> flows{};
  };
  /// A hand-over and a copy move.
  [[nodiscard]] bool both_move() const;
  void share_together(SimTime now);
  void share_apart(bool all, SimTime now);

  KvTransfers& transfers_;
  std::vector<Group> groups_;
  bool together_ = false;  // since the last call
};

}  // namespace spillway
