// The requests that a router has sent to each replica and that have not ended, in order of their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "policies/parts/least_tree.hpp"

namespace spillway {

/// least(), smallest() and largest() are those of the replicas that are up, and need one. They are O(1), changes
/// O(log replicas). Of equal ones the lowest replica comes first.
class Outstanding {
 public:
  explicit Outstanding(std::size_t replicas)
      : count_(replicas), up_(replicas, true), fewest_(replicas), most_(replicas) {}
  void sent(std::size_t replica) { change(replica, 1); }
  void ended(std::size_t replica) { change(replica, -1); }
  void set_up(std::size_t replica, bool up) {
    up_[replica] = up;
    change(replica, 0);
  }
  /// The replica with the fewest.
  [[nodiscard]] std::size_t least() const { return fewest_.least(); }
  [[nodiscard]] std::int64_t smallest() const { return fewest_.at(fewest_.least()); }
  [[nodiscard]] std::int64_t largest() const { return -most_.at(most_.least()); }

 private:
  void change(std::size_t replica, std::int64_t by) {
    constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();
    count_[replica] += by;
    fewest_.set(replica, up_[replica] ? count_[replica] : kLast);
    most_.set(replica, up_[replica] ? -count_[replica] : kLast);
  }
  std::vector<std::int64_t> count_;
  std::vector<bool> up_;
  LeastTree fewest_;
  LeastTree most_;  // of the negative numbers
};

}  // namespace spillway
