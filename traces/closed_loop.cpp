#include "traces/closed_loop.hpp"

#include <algorithm>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway::traces {

ClosedLoop::ClosedLoop(std::unique_ptr<RequestSource> source, std::int64_t concurrency, Duration ramp)
    : source_(std::move(source)), concurrency_(concurrency), ramp_(ramp) {
  SPILLWAY_CHECK(concurrency_ >= 1 && ramp_ >= Duration{}, "a closed loop of no request or over a negative time");
}

SimTime ClosedLoop::next_arrival() {
  const SimTime due = source_->next_arrival();
  if (due == kNever || in_flight_ >= concurrency_) return kNever;
  const bool ramps = sent_ < concurrency_ && ramp_ > Duration{};
  const double part = static_cast<double>(sent_) / static_cast<double>(concurrency_);
  const SimTime ramped = ramps ? SimTime{} + round_seconds(part * to_seconds(ramp_)) : SimTime{};
  return std::max({due, earliest_, ramped});
}

bool ClosedLoop::next(RequestSpec& request) {
  const SimTime now = next_arrival();
  const Duration late = now - source_->next_arrival();
  if (!source_->next(request)) return false;
  request.arrival = now;
  earliest_ = now;
  ++in_flight_;
  ++sent_;
  if (late > Duration{}) {
    ++held_back_.requests;
    held_back_.seconds += to_seconds(late);
    held_back_.longest = std::max(held_back_.longest, late);
  }
  return true;
}

void ClosedLoop::ended(const RequestRecord& record) {
  --in_flight_;
  earliest_ = std::max(earliest_, record.end);
  source_->ended(record);
}

}  // namespace spillway::traces
