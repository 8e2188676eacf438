// Which chunk of KV is worth the least, among the candidates of many conversations, as time goes on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "sim/core/units.hpp"

namespace spillway {

/// A chunk that may be evicted. Its retention value is cost / (now - since): the longer its conversation has rested,
/// the less it is worth.
struct RetentionCandidate {
  double cost = 0.0;          // seconds to compute the chunk again, > 0
  SimTime since{};            // when its conversation was last active, <= now
  std::int64_t position = 0;  // of its first block in its conversation
  std::int64_t owner = 0;     // the conversation
  bool operator==(const RetentionCandidate&) const = default;
};

/// cost / (now - since), per nanosecond; infinite at `since`.
[[nodiscard]] double retention_value(const RetentionCandidate& candidate, SimTime now);

/// The order of eviction at `now`: ascending retention value; among equals the smaller position, then the smaller
/// owner.
[[nodiscard]] bool evicted_before(const RetentionCandidate& a, const RetentionCandidate& b, SimTime now);

/// One candidate per slot, and the one that is evicted first at a time that never goes back.
///
/// Values change with time, so no order of all candidates lasts. But two of them swap their places once at most:
/// k_a / (t - a) < k_b / (t - b) is linear in t. So the candidates are in a tournament whose matches each know until
/// when their winner surely stays the winner: a match is played again only then, or after one of its candidates has
/// changed (a kinetic tournament: Basch, Guibas and Hershberger, Data structures for mobile data, 1999).
///
/// The slots that came first of late are in a front of limited size, outside the tournament, in order. When the chunk
/// of a slot has been evicted, the next one of its conversation is worth little more, so few conversations at a time
/// take turns in coming first. A change to one of them costs no match, and few steps in the front.
///
/// Exact: a match is decided as evicted_before() does at a time at which it is played, and is valid from then up to an
/// instant before the crossing that is early by more than the rounding error of its computation. So least() gives what
/// a sort of all candidates by evicted_before() gives, unless two values of different cost are equal to the last bit.
///
/// put() and remove() are O(1) for slots in the front, whose size is a constant, and O(log n) for others, with the n
/// candidates that there have been at once. least() is O(1), and O(log n) for each change since the call before to a
/// slot that was or is outside the front, and amortised O(log n) for each pair that swaps its places. Memory is
/// O(n), and 4 bytes per slot.
class RetentionOrder {
 public:
  /// The candidate of a slot, instead of the one before.
  void put(std::size_t slot, const RetentionCandidate& candidate);
  void remove(std::size_t slot);
  /// Of a slot that has one.
  [[nodiscard]] const RetentionCandidate& at(std::size_t slot) const { return of(seats_[slot]).candidate; }
  /// The slot of the candidate that is evicted first; empty: there is none. `now` never goes back.
  [[nodiscard]] std::optional<std::size_t> least(SimTime now);
  /// Directly after least() has found a slot, with the same `now`: the candidate that goes first of all others; null:
  /// there is none. Valid until the next call. As least(), which then has less to do.
  [[nodiscard]] const RetentionCandidate* runner_up(SimTime now);

 private:
  static constexpr std::int32_t kNobody = -1;
  static constexpr SimTime kUnplayed{std::numeric_limits<std::int64_t>::min()};

  struct Match {
    std::int32_t winner = kNobody;
    SimTime valid_until = kUnplayed;
  };
  /// A candidate and its retention value at one time.
  struct Valued {
    double value = 0.0;
    std::int32_t seat = kNobody;
  };
  /// Candidates sit together, so that the matches of few of them are few.
  struct Sitting {
    RetentionCandidate candidate{};
    std::size_t slot = 0;
    std::int32_t place = kNobody;  // in the front; kNobody: it is in the tournament
  };

  [[nodiscard]] Sitting& of(std::int32_t seat) { return sitting_[static_cast<std::size_t>(seat)]; }
  [[nodiscard]] const Sitting& of(std::int32_t seat) const { return sitting_[static_cast<std::size_t>(seat)]; }
  [[nodiscard]] std::int32_t take_seat();
  [[nodiscard]] Valued valued(std::int32_t seat, SimTime now) const;
  /// evicted_before() for two values of the same time.
  [[nodiscard]] bool goes_before(const Valued& a, const Valued& b) const;
  /// The values of the front become those of `now`, and their order is right again.
  void value_front(SimTime now);
  /// One of the front moves to where its value belongs.
  void settle(std::size_t place);
  /// A seat outside the front comes first: it moves there. The half of a full front that goes last gives up its places.
  void promote(const Valued& candidate);
  void put_in_front(std::size_t place, const Valued& candidate) {
    front_[place] = candidate;
    of(candidate.seat).place = static_cast<std::int32_t>(place);
  }
  void enter_tournament(std::int32_t seat);
  void leave_tournament(std::int32_t seat);
  /// The matches of a leaf's path have to be played again.
  void touch(std::int32_t seat);
  /// A match whose winner may not be valid any more.
  void play(std::size_t match, SimTime now);
  void grow();

  static constexpr std::size_t kFrontSize = 64;
  static constexpr std::size_t kFewestLeaves = 64;

  std::array<Valued, kFrontSize> front_;  // the one that goes first is the last
  std::size_t in_front_ = 0;
  SimTime valued_at_{};              // the time of the values in the front
  std::vector<std::int32_t> seats_;  // by slot; kNobody: it has no candidate
  std::vector<Sitting> sitting_;     // by seat
  std::vector<std::int32_t> free_;   // seats
  std::vector<Match> matches_;       // a heap: 1 is the root, the second half are the seats
  std::size_t leaves_ = 0;           // a power of two, or 0
};

}  // namespace spillway
