#include "policies/parts/retention_order.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>

namespace spillway {
namespace {

double rested(const RetentionCandidate& candidate, SimTime now) {
  return static_cast<double>((now - candidate.since).count());
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
  Match& leaf = matches_[leaves_ + slot];
  if (leaf.winner != kNobody && candidates_[slot] == candidate) return;
  candidates_[slot] = candidate;
  leaf.winner = static_cast<std::int32_t>(slot);
  touch(slot);
}

void RetentionOrder::remove(std::size_t slot) {
  if (slot >= leaves_ || matches_[leaves_ + slot].winner == kNobody) return;
  matches_[leaves_ + slot].winner = kNobody;
  touch(slot);
}

std::optional<std::size_t> RetentionOrder::least(SimTime now) {
  if (leaves_ == 0) return {};
  play(1, now);
  const std::int32_t winner = matches_[1].winner;
  return winner == kNobody ? std::nullopt : std::optional(static_cast<std::size_t>(winner));
}

void RetentionOrder::touch(std::size_t slot) {
  for (std::size_t match = (leaves_ + slot) / 2; match >= 1 && matches_[match].valid_until != kUnplayed; match /= 2) {
    matches_[match].valid_until = kUnplayed;
  }
}

void RetentionOrder::play(std::size_t match, SimTime now) {
  Match& played = matches_[match];
  if (match >= leaves_ || played.valid_until >= now) return;
  play(2 * match, now);
  play(2 * match + 1, now);
  const Match& left = matches_[2 * match];
  const Match& right = matches_[2 * match + 1];
  played.valid_until = std::min(left.valid_until, right.valid_until);
  if (left.winner == kNobody || right.winner == kNobody) {
    played.winner = std::max(left.winner, right.winner);
    return;
  }
  const RetentionCandidate& a = at(static_cast<std::size_t>(left.winner));
  const RetentionCandidate& b = at(static_cast<std::size_t>(right.winner));
  const bool first = evicted_before(a, b, now);
  played.winner = first ? left.winner : right.winner;
  played.valid_until = std::min(played.valid_until, first ? stays_until(a, b, now) : stays_until(b, a, now));
}

// With T = now - since: the winner has k_w T_l <= k_l T_w, and the difference of the two sides grows by k_w - k_l per
// nanosecond. The rounding errors of the products are below 2^-51 of them.
SimTime RetentionOrder::stays_until(const RetentionCandidate& winner, const RetentionCandidate& loser, SimTime now) {
  const double faster = winner.cost - loser.cost;
  if (faster <= 0.0) return kNever;
  const double ahead = loser.cost * rested(winner, now);
  const double behind = winner.cost * rested(loser, now);
  const double error = std::ldexp(ahead + behind, -50);
  const double left = std::floor((ahead - behind - error) / faster * (1.0 - 0x1p-40));
  constexpr double kLongest = 0x1p62;
  if (left >= kLongest) return kNever;
  return left >= 1.0 ? now + Duration(static_cast<std::int64_t>(left) - 1) : now;
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
}

}  // namespace spillway
