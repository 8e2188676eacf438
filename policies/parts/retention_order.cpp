#include "policies/parts/retention_order.hpp"

#include <algorithm>
#include <cmath>
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
  if (slot >= seats_.size()) seats_.resize(slot + 1, kNobody);
  if (seats_[slot] == kNobody) {
    seats_[slot] = take_seat();
    of(seats_[slot]) = {candidate, slot};
    return enter_tournament(seats_[slot]);
  }
  const std::int32_t seat = seats_[slot];
  if (of(seat).candidate == candidate) return;
  of(seat).candidate = candidate;
  if (of(seat).place == kNobody) return touch(seat);
  const auto place = static_cast<std::size_t>(of(seat).place);
  front_[place] = valued(seat, valued_at_);
  settle(place);
}

void RetentionOrder::remove(std::size_t slot) {
  if (slot >= seats_.size() || seats_[slot] == kNobody) return;
  const std::int32_t seat = std::exchange(seats_[slot], kNobody);
  free_.push_back(seat);
  if (of(seat).place == kNobody) return leave_tournament(seat);
  --in_front_;
  for (auto at = static_cast<std::size_t>(of(seat).place); at < in_front_; ++at) put_in_front(at, front_[at + 1]);
  of(seat).place = kNobody;
}

std::optional<std::size_t> RetentionOrder::least(SimTime now) {
  if (leaves_ == 0) return {};
  if (valued_at_ != now) value_front(now);
  Valued first = in_front_ == 0 ? Valued{} : front_[in_front_ - 1];
  if (matches_[1].valid_until < now) play(1, now);
  if (const std::int32_t winner = matches_[1].winner; winner != kNobody) {
    const Valued other = valued(winner, now);
    if (first.seat == kNobody || goes_before(other, first)) {
      first = other;
      promote(other);
    }
  }
  return first.seat == kNobody ? std::nullopt : std::optional(of(first.seat).slot);
}

const RetentionCandidate* RetentionOrder::runner_up(SimTime now) {
  if (matches_[1].valid_until < now) play(1, now);
  const Valued* const second = in_front_ < 2 ? nullptr : &front_[in_front_ - 2];
  const std::int32_t winner = matches_[1].winner;
  if (winner == kNobody) return second == nullptr ? nullptr : &of(second->seat).candidate;
  const bool in_front = second != nullptr && goes_before(*second, valued(winner, now));
  return &of(in_front ? second->seat : winner).candidate;
}

RetentionOrder::Valued RetentionOrder::valued(std::int32_t seat, SimTime now) const {
  return {retention_value(of(seat).candidate, now), seat};
}

bool RetentionOrder::goes_before(const Valued& a, const Valued& b) const {
  if (a.value != b.value) return a.value < b.value;
  const RetentionCandidate& one = of(a.seat).candidate;
  const RetentionCandidate& other = of(b.seat).candidate;
  return std::tuple(one.position, one.owner) < std::tuple(other.position, other.owner);
}

void RetentionOrder::value_front(SimTime now) {
  valued_at_ = now;
  for (std::size_t place = 0; place < in_front_; ++place) front_[place] = valued(front_[place].seat, now);
  // Few pairs have swapped their places since the time before.
  for (std::size_t place = 1; place < in_front_; ++place) {
    if (goes_before(front_[place - 1], front_[place])) settle(place);
  }
}

void RetentionOrder::settle(std::size_t place) {
  const Valued candidate = front_[place];
  const std::size_t before = place;
  for (; place > 0 && goes_before(front_[place - 1], candidate); --place) put_in_front(place, front_[place - 1]);
  for (; place + 1 < in_front_ && goes_before(candidate, front_[place + 1]); ++place) {
    put_in_front(place, front_[place + 1]);
  }
  if (place != before) put_in_front(place, candidate);
}

void RetentionOrder::promote(const Valued& candidate) {
  leave_tournament(candidate.seat);
  if (in_front_ == kFrontSize) {
    constexpr std::size_t kHalf = kFrontSize / 2;
    for (std::size_t place = 0; place < kHalf; ++place) {
      const std::int32_t last = front_[place].seat;
      of(last).place = kNobody;
      enter_tournament(last);
    }
    in_front_ -= kHalf;
    for (std::size_t place = 0; place < in_front_; ++place) put_in_front(place, front_[place + kHalf]);
  }
  put_in_front(in_front_++, candidate);
}

void RetentionOrder::enter_tournament(std::int32_t seat) {
  matches_[leaves_ + static_cast<std::size_t>(seat)].winner = seat;
  touch(seat);
}

void RetentionOrder::leave_tournament(std::int32_t seat) {
  matches_[leaves_ + static_cast<std::size_t>(seat)].winner = kNobody;
  touch(seat);
}

void RetentionOrder::touch(std::int32_t seat) {
  std::size_t match = (leaves_ + static_cast<std::size_t>(seat)) / 2;
  for (; match >= 1 && matches_[match].valid_until != kUnplayed; match /= 2) {
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
  const RetentionCandidate& a = of(left.winner).candidate;
  const RetentionCandidate& b = of(right.winner).candidate;
  const double side_of_a = a.cost * rested(b, now);
  const double side_of_b = b.cost * rested(a, now);
  const double error = (side_of_a + side_of_b) * 0x1p-50;
  const double lead = std::abs(side_of_b - side_of_a) - error;
  const bool first = lead > 0.0 ? side_of_a < side_of_b : evicted_before(a, b, now);
  played.winner = first ? left.winner : right.winner;
  const double closing = first ? a.cost - b.cost : b.cost - a.cost;
  played.valid_until = std::min(played.valid_until, stays_until(lead, closing, now));
}

std::int32_t RetentionOrder::take_seat() {
  if (free_.empty()) grow();
  const std::int32_t seat = free_.back();
  free_.pop_back();
  return seat;
}

void RetentionOrder::grow() {
  const std::size_t before = leaves_;
  leaves_ = std::max(kFewestLeaves, 2 * before);
  std::vector<Match> matches(2 * leaves_);
  for (std::size_t seat = 0; seat < leaves_; ++seat) {
    matches[leaves_ + seat] = {seat < before ? matches_[before + seat].winner : kNobody, kNever};
  }
  matches_ = std::move(matches);
  sitting_.resize(leaves_);
  for (std::size_t seat = leaves_; seat > before; --seat) free_.push_back(static_cast<std::int32_t>(seat - 1));
}

}  // namespace spillway
