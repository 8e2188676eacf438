#include "policies/parts/expansion_controller.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
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
  if (report.stall > Duration(0)) {
    now.dwell = report.length - report.layer;
    waited_ = true;
  }
  ++window_.iterations;
  window_.length += report.length;
  window_.stall += report.stall;
  window_.busy = window_.busy || now.full || kept_out;
  window_.most_used = std::max(window_.most_used, 1.0 - report.free_share);

  if (const std::int32_t raise = raise_that_pays(); raise > 0) {
    spare_for_ = 0;
    move_to(level_ + raise);
    change_ = raise;
    return;
  }
  if (window_.iterations < kWindow) return;
  const Window over = std::exchange(window_, {});
  const std::int32_t change = std::exchange(change_, 0);
  if (level_ == 0 || held_) return;
  spare_for_ = has_spare_layer(over) ? spare_for_ + static_cast<std::int64_t>(kWindow) : 0;
  const bool needed = over.busy || change > 0;
  if (const std::int32_t layers = not_worth(over, needed, std::max(1, std::abs(change) / 2)); layers > 0) {
    pause_ = level_ == failed_ ? 2 * pause_ : kPause;
    failed_ = level_;
    retry_at_ = iteration_ + pause_;
    move_to(level_ - layers);
    change_ = -layers;
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
  change_ = 0;
  waited_ = false;
  window_ = {};
  for (Iteration& iteration : last_) iteration.dwell = Duration(0);
}

std::int32_t ExpansionController::raise_that_pays() const {
  if (iteration_ < static_cast<std::int64_t>(kWindow)) return 0;
  if (std::none_of(last_.begin(), last_.end(), [](const Iteration& one) { return one.full; })) return 0;

  Duration seen{};
  for (const Iteration& one : last_) seen = std::max(seen, one.dwell);
  // Other traffic on the links slows the swaps of higher levels as it slows the swaps of this one.
  const double slower = level_ > 0 && seen > Duration(0) ? as_double(seen) / as_double(at(level_).dwell) : 1.0;
  double compute = 0.0;
  for (const Iteration& one : last_) compute += as_double(one.compute);

  const auto wait = [&](std::int32_t level) { return waits_with(as_double(at(level).dwell) * slower); };

  const bool paused = failed_ > 0 && iteration_ < retry_at_;
  const std::int32_t highest = paused ? std::min(most(), failed_ - 1) : most();
  std::int32_t free = level_;
  while (!waited_ && free < highest && at(free + 1).blocks > at(free).blocks && wait(free + 1) == 0.0) ++free;
  if (free > level_) return free - level_;

  const std::int32_t next = level_ + 1;
  if (next > highest || window_.iterations < kWindow) return 0;
  return ratio(at(next).blocks, at(level_).blocks) * compute > compute + wait(next) ? 1 : 0;
}

double ExpansionController::waits_with(double dwell) const {
  double wait = 0.0;
  for (const Iteration& one : last_) wait += std::max(0.0, dwell - as_double(one.compute - one.layer));
  return wait;
}

std::int32_t ExpansionController::not_worth(const Window& window, bool needed, std::int32_t most) const {
  const auto waited_for = [&](double share) { return as_double(window.stall) > share * as_double(window.length); };
  if (!needed) return waited_for(kStall) ? most : 0;
  std::int32_t layers = most;
  while (layers > 0 && !waited_for(1.0 - ratio(at(level_ - layers).blocks, at(level_).blocks))) --layers;
  return layers;
}

bool ExpansionController::has_spare_layer(const Window& window) const {
  return !window.busy && window.most_used <= (1.0 - kSpare) * ratio(at(level_ - 1).blocks, at(level_).blocks);
}

}  // namespace spillway
