#include "policies/parts/expansion_controller.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

constexpr double kFull = 0.1;    // of the blocks: with fewer free blocks, memory is full
constexpr double kSpare = 0.2;   // of the blocks that one layer less leaves: so many must stay free
constexpr double kStall = 0.01;  // of the time: tolerated while memory is not needed
// Iterations between changes that take each other back. Such a pair costs some iterations (two rounds of swaps, a
// window, prompts that are computed again), so this makes it a per cent or two at most.
constexpr std::int64_t kPause = 512;

double as_double(Duration time) { return static_cast<double>(time.count()); }
double ratio(Blocks blocks, Blocks to) { return static_cast<double>(blocks.count()) / static_cast<double>(to.count()); }

}  // namespace

ExpansionController::ExpansionController(std::vector<ExpansionLevel> levels) : levels_(std::move(levels)) {
  SPILLWAY_CHECK(!levels_.empty(), "there is no level without layers on the host");
}

void ExpansionController::iteration_ended(const LayerReport& report, bool settled) {
  if (report.free_share == 1.0) held_ = false;
  Iteration& now = last_[static_cast<std::size_t>(iteration_++) % kWindow];
  now = {.compute = report.length - report.stall, .layer = report.layer, .full = report.free_share < kFull};
  const bool kept_out = waiting_ && !report.prefills;
  waiting_ = report.waiting > 0;
  if (!settled) return;
  // A layer that is waited for is away from the end of its compute to its next start.
  if (report.stall > Duration(0)) now.dwell = report.length - report.layer;
  ++window_.iterations;
  window_.length += report.length;
  window_.stall += report.stall;
  window_.busy = window_.busy || now.full || kept_out;
  window_.most_used = std::max(window_.most_used, 1.0 - report.free_share);

  if (raise_pays()) {
    spare_for_ = 0;
    return move_to(level_ + 1);
  }
  if (window_.iterations < kWindow) return;
  const Window over = std::exchange(window_, {});
  if (level_ == 0 || held_) return;
  spare_for_ = has_spare_layer(over) ? spare_for_ + static_cast<std::int64_t>(kWindow) : 0;
  if (waits_too_long(over)) {
    pause_ = level_ == failed_ ? 2 * pause_ : kPause;
    failed_ = level_;
    retry_at_ = iteration_ + pause_;
    move_to(level_ - 1);
  } else if (spare_for_ >= kPause) {
    failed_ = 0;
    move_to(level_ - 1);
  }
}

void ExpansionController::hold(std::int32_t level) {
  move_to(level);
  held_ = true;
}

void ExpansionController::move_to(std::int32_t level) {
  level_ = level;
  window_ = {};
  for (Iteration& iteration : last_) iteration.dwell = Duration(0);
}

bool ExpansionController::raise_pays() const {
  const std::int32_t next = level_ + 1;
  if (next == static_cast<std::int32_t>(levels_.size()) || iteration_ < static_cast<std::int64_t>(kWindow))
    return false;
  if (failed_ > 0 && next >= failed_ && iteration_ < retry_at_) return false;
  if (std::none_of(last_.begin(), last_.end(), [](const Iteration& one) { return one.full; })) return false;

  Duration seen{};
  for (const Iteration& one : last_) seen = std::max(seen, one.dwell);
  // Other traffic on the links slows the swaps of the next level as it slows the swaps of this one.
  const double slower = level_ > 0 && seen > Duration(0) ? as_double(seen) / as_double(at(level_).dwell) : 1.0;
  const double dwell = as_double(at(next).dwell) * slower;
  double compute = 0.0;
  double wait = 0.0;
  for (const Iteration& one : last_) {
    compute += as_double(one.compute);
    wait += std::max(0.0, dwell - as_double(one.compute - one.layer));
  }
  if (wait > 0.0 && window_.iterations < kWindow) return false;
  return ratio(at(next).blocks, at(level_).blocks) * compute > compute + wait;
}

bool ExpansionController::waits_too_long(const Window& window) const {
  const double worth = 1.0 - ratio(at(level_ - 1).blocks, at(level_).blocks);
  return as_double(window.stall) > (window.busy ? worth : kStall) * as_double(window.length);
}

bool ExpansionController::has_spare_layer(const Window& window) const {
  return !window.busy && window.most_used <= (1.0 - kSpare) * ratio(at(level_ - 1).blocks, at(level_).blocks);
}

}  // namespace spillway
