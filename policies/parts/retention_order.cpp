#include "policies/parts/retention_order.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <tuple>
#include <utility>

namespace spillway {
namespace {

double rested(const RetentionCandidate& candidate, SimTime now) {
  return static_cast<double>((now - candidate.since).count());
}

/// Up to when a winner surely stays the winner that is `lead` ahead, more than zero, and loses `closing` per
/// nanosecond.
SimTime stays_until(double lead, double closing, SimTime now) {
  if (closing <= 0.0) return kNever;
  const double left = lead / closing * (1.0 - 0x1p-40);
  constexpr double kLongest = 0x1p62;
  if (left >= kLongest) return kNever;
  return left >= 1.0 ? now + Duration(static_cast<std::int64_t>(left) - 1) : now;
}

}  // namespace

double retention_value(const RetentionCandidate& candidate, SimTime now) {
  const double time = rested(candidate, now);
  return time > 0.0 ? candidate.cost / time : std::numeric_limits<double>::infinity();
}

bool evicted_before(const RetentionCandidate& a, const RetentionCandidate& b, SimTime now) {
  return std::tuple(retention_value(a, now), a.position, a.owner) <
         std::tuple(retention_value(b, now), b.position, b.owner);
}

void RetentionOrder::put(std::size_t slot, const RetentionCandidate& candidate) {
  if (slot >= leaves_) grow(slot + 1);
  const bool known = places_[slot] != kNobody || matches_[leaves_ + slot].winner != kNobody;
  if (known && candidates_[slot] == candidate) return;
  candidates_[slot] = candidate;
  const auto number = static_cast<std::int32_t>(slot);
  if (places_[slot] == kNobody) return enter_tournament(number);
  front_[static_cast<std::size_t>(places_[slot])] = valued(number, valued_at_);
}

void RetentionOrder::remove(std::size_t slot) {
  if (slot >= leaves_) return;
  const std::int32_t place = std::exchange(places_[slot], kNobody);
  if (place == kNobody) return leave_tournament(static_cast<std::int32_t>(slot));
  const Valued last = front_[--in_front_];
  if (last.slot == static_cast<std::int32_t>(slot)) return;
  front_[static_cast<std::size_t>(place)] = last;
  places_[static_cast<std::size_t>(last.slot)] = place;
}

std::optional<std::size_t> RetentionOrder::least(SimTime now) {
  if (leaves_ == 0) return {};
  const std::span<Valued> front(front_.data(), in_front_);
  if (std::exchange(valued_at_, now) != now) {
    for (Valued& one : front) one = valued(one.slot, now);
  }
  Valued first = front.empty() ? Valued{} : front.front();
  for (const Valued& one : front) {
    if (one.value <= first.value && goes_before(one, first)) first = one;
  }
  if (matches_[1].valid_until < now) play(1, now);
  if (const std::int32_t winner = matches_[1].winner; winner != kNobody) {
    const Valued other = valued(winner, now);
    if (first.slot == kNobody || goes_before(other, first)) {
      first = other;
      promote(other);
    }
  }
  return first.slot == kNobody ? std::nullopt : std::optional(static_cast<std::size_t>(first.slot));
}

RetentionOrder::Valued RetentionOrder::valued(std::int32_t slot, SimTime now) const {
  return {retention_value(at(static_cast<std::size_t>(slot)), now), slot};
}

bool RetentionOrder::goes_before(const Valued& a, const Valued& b) const {
  if (a.value != b.value) return a.value < b.value;
  const RetentionCandidate& one = at(static_cast<std::size_t>(a.slot));
  const RetentionCandidate& other = at(static_cast<std::size_t>(b.slot));
  return std::tuple(one.position, one.owner) < std::tuple(other.position, other.owner);
}

void RetentionOrder::promote(const Valued& candidate) {
  leave_tournament(candidate.slot);
  std::size_t place = in_front_;
  if (in_front_ < kFrontSize) {
    ++in_front_;
  } else {
    const auto last =
        std::ranges::max_element(front_, [this](const Valued& a, const Valued& b) { return goes_before(a, b); });
    place = static_cast<std::size_t>(last - front_.begin());
    places_[static_cast<std::size_t>(last->slot)] = kNobody;
    enter_tournament(last->slot);
  }
  front_[place] = candidate;
  places_[static_cast<std::size_t>(candidate.slot)] = static_cast<std::int32_t>(place);
}

void RetentionOrder::enter_tournament(std::int32_t slot) {
  matches_[leaves_ + static_cast<std::size_t>(slot)].winner = slot;
  touch(static_cast<std::size_t>(slot));
}

void RetentionOrder::leave_tournament(std::int32_t slot) {
  std::int32_t& leaf = matches_[leaves_ + static_cast<std::size_t>(slot)].winner;
  if (std::exchange(leaf, kNobody) != kNobody) touch(static_cast<std::size_t>(slot));
}

void RetentionOrder::touch(std::size_t slot) {
  for (std::size_t match = (leaves_ + slot) / 2; match >= 1 && matches_[match].valid_until != kUnplayed; match /= 2) {
    matches_[match].valid_until = kUnplayed;
  }
}

// With T = now - since: a goes before b while k_a T_b < k_b T_a, and the difference of the two sides shrinks by k_a -
// k_b per nanosecond. The rounding errors of the products are below 2^-51 of them. Where the sides differ by more than
// that, the quotients of evicted_before() differ too, and in the same way.
void RetentionOrder::play(std::size_t match, SimTime now) {
  Match& played = matches_[match];
  const Match& left = matches_[2 * match];
  const Match& right = matches_[2 * match + 1];
  if (left.valid_until < now) play(2 * match, now);
  if (right.valid_until < now) play(2 * match + 1, now);
  played.valid_until = std::min(left.valid_until, right.valid_until);
  if (left.winner == kNobody || right.winner == kNobody) {
    played.winner = std::max(left.winner, right.winner);
    return;
  }
  const RetentionCandidate& a = at(static_cast<std::size_t>(left.winner));
  const RetentionCandidate& b = at(static_cast<std::size_t>(right.winner));
  const double side_of_a = a.cost * rested(b, now);
  const double side_of_b = b.cost * rested(a, now);
  const double error = (side_of_a + side_of_b) * 0x1p-50;
  const double lead = std::abs(side_of_b - side_of_a) - error;
  const bool first = lead > 0.0 ? side_of_a < side_of_b : evicted_before(a, b, now);
  played.winner = first ? left.winner : right.winner;
  const double closing = first ? a.cost - b.cost : b.cost - a.cost;
  played.valid_until = std::min(played.valid_until, stays_until(lead, closing, now));
}

void RetentionOrder::grow(std::size_t slots) {
  const std::size_t before = leaves_;
  leaves_ = std::bit_ceil(slots);
  std::vector<Match> matches(2 * leaves_);
  for (std::size_t leaf = leaves_; leaf < 2 * leaves_; ++leaf) {
    const std::size_t slot = leaf - leaves_;
    matches[leaf] = {slot < before ? matches_[before + slot].winner : kNobody, kNever};
  }
  matches_ = std::move(matches);
  candidates_.resize(leaves_);
  places_.resize(leaves_, kNobody);
}

}  // namespace spillway
