#include "sim/engine/lending.hpp"

#include <algorithm>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway {

LentMemory::LentMemory(const Loan& loan) : memory_bandwidth_(loan.memory_bandwidth) {
  if (loan.offered > Bytes(0)) offer(loan.offered, SimTime{});
}

void LentMemory::offer(Bytes bytes, SimTime now) {
  SPILLWAY_CHECK(state_.offered == Bytes(0) && bytes > Bytes(0), "memory is offered twice, or none is");
  advance(now);
  state_.offered = bytes;
  if (measures(now)) ++figures_.offers;
}

void LentMemory::reclaim(SimTime now) {
  if (reclaimed()) return;
  SPILLWAY_CHECK(state_.offered > Bytes(0), "memory is reclaimed that is not offered");
  reclaimed_since_ = now;
  if (measures(now)) ++figures_.reclaims;
}

bool LentMemory::take_back(SimTime now) {
  SPILLWAY_CHECK(reclaimed(), "memory is taken back that is not reclaimed");
  if (state_.held > Bytes(0)) return false;
  advance(now);
  state_.offered = Bytes(0);
  const double waited = to_seconds(now - std::exchange(reclaimed_since_, kNever));
  if (measures(now)) {
    ++figures_.returns;
    figures_.return_time += waited;
    figures_.longest_return = std::max(figures_.longest_return, waited);
  }
  return true;
}

Duration LentMemory::take_busy() {
  const Bytes bytes = std::exchange(copied_, Bytes(0));
  return memory_bandwidth_.value() > 0.0 ? round_seconds(bytes / memory_bandwidth_) : Duration{};
}

void LentMemory::copied(Bytes bytes, SimTime now) {
  copied_ += bytes;
  if (measures(now)) figures_.copied += bytes;
}

void LentMemory::hold(Bytes bytes, SimTime now) {
  if (bytes == state_.held) return;
  SPILLWAY_CHECK(bytes <= state_.offered, "more memory is held than was lent");
  SPILLWAY_CHECK(!reclaimed() || bytes < state_.held, "memory is taken that is reclaimed");
  advance(now);
  state_.held = bytes;
}

void LentMemory::advance(SimTime now) {
  if (begin_ != kNever && now > std::max(advanced_, begin_)) {
    const double seconds = to_seconds(now - std::max(advanced_, begin_));
    figures_.offered_time += static_cast<double>(state_.offered.count()) * seconds;
    figures_.held_time += static_cast<double>(state_.held.count()) * seconds;
    figures_.peak_held = std::max(figures_.peak_held, state_.held);
  }
  advanced_ = std::max(advanced_, now);
}

LendingFigures LentMemory::figures(SimTime end) const {
  LentMemory until_end = *this;
  until_end.advance(end);
  return until_end.figures_;
}

}  // namespace spillway
