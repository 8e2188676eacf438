#include "sim/cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

namespace spillway::cli {

ProgressLine::ProgressLine(bool enabled, std::int64_t requests, std::int64_t replications)
    : enabled_(enabled),
      terminal_(::isatty(STDERR_FILENO) == 1),
      total_(std::max<std::int64_t>(1, requests * replications)),
      ended_(static_cast<std::size_t>(replications), 0),
      begin_(Clock::now()),
      shown_(begin_) {}

void ProgressLine::update(std::int64_t replication, const Progress& progress) {
  if (!enabled_) return;
  const std::lock_guard lock(mutex_);
  ended_[static_cast<std::size_t>(replication)] = progress.ended;
  const std::int64_t ended = std::accumulate(ended_.begin(), ended_.end(), std::int64_t{0});
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  if (seconds < 0.5) return;
  if (terminal_) {
    if (now - shown_ < std::chrono::milliseconds(100)) return;
    shown_ = now;
    show_line(ended, progress, seconds);
  } else if (ended * 10 >= next_tenth_ * total_) {
    next_tenth_ = ended * 10 / total_ + 1;
    fmt::print(stderr, "{}% of {} requests, simulated {:.0f} s\n", ended * 100 / total_, total_,
               to_seconds(progress.now));
  }
}

void ProgressLine::show_line(std::int64_t ended, const Progress& progress, double seconds) {
  const double simulated = to_seconds(progress.now);
  const double left = ended > 0 ? seconds * static_cast<double>(total_ - ended) / static_cast<double>(ended) : 0.0;
  fmt::print(stderr,
             "\r{}/{} requests, {} running, {} waiting, simulated {:.0f} s ({:.0f}x real time), {:.0f} s left\x1b[K",
             ended, total_, progress.running, progress.waiting, simulated, simulated / seconds, left);
  std::fflush(stderr);
  on_screen_ = true;
}

void ProgressLine::finish() {
  if (on_screen_) fmt::print(stderr, "\r\x1b[K");
  on_screen_ = false;
}

namespace {

/// "12/200 points, 1 failed, 3 reused; simulated 5300 s (420x real time), 12 s left"
std::string points_text(const PointsProgress& progress, double seconds) {
  std::string text = fmt::format("{}/{} points", progress.done, progress.points);
  if (progress.failed > 0) text += fmt::format(", {} failed", progress.failed);
  if (progress.stored > 0) text += fmt::format(", {} reused", progress.stored);
  text += fmt::format("; simulated {:.0f} s ({:.0f}x real time)", progress.simulated_seconds,
                      progress.simulated_seconds / seconds);
  if (progress.fraction > 0.0 && progress.fraction < 1.0) {
    text += fmt::format(", {:.0f} s left", seconds * (1.0 - progress.fraction) / progress.fraction);
  }
  return text;
}

}  // namespace

PointsProgressLine::PointsProgressLine(bool enabled, bool plain)
    : terminal_(::isatty(STDERR_FILENO) == 1),
      enabled_(enabled && (terminal_ || plain)),
      begin_(Clock::now()),
      shown_(begin_) {}

void PointsProgressLine::update(const PointsProgress& progress) {
  if (!enabled_) return;
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  if (seconds < 0.5) return;
  if (terminal_) {
    if (now - shown_ < std::chrono::milliseconds(100)) return;
    shown_ = now;
    fmt::print(stderr, "\r{}\x1b[K", points_text(progress, seconds));
    std::fflush(stderr);
    on_screen_ = true;
  } else if (progress.done * 10 >= next_tenth_ * progress.points) {
    next_tenth_ = progress.done * 10 / progress.points + 1;
    fmt::print(stderr, "{}\n", points_text(progress, seconds));
  }
}

void PointsProgressLine::finish() {
  if (on_screen_) fmt::print(stderr, "\r\x1b[K");
  on_screen_ = false;
}

SearchProgressLine::SearchProgressLine(bool enabled, std::chrono::milliseconds plain_every)
    : terminal_(::isatty(STDERR_FILENO) == 1),
      enabled_(enabled),
      every_(terminal_ ? std::chrono::milliseconds(100) : plain_every),
      begin_(Clock::now()),
      shown_(begin_) {}

void SearchProgressLine::begin(const std::string& step) {
  begin_ = Clock::now();
  step_ = step;
  said_ = false;
  if (terminal_) update({});
}

void SearchProgressLine::update(const PointsProgress& progress) {
  const Clock::time_point now = Clock::now();
  const bool next_is_near = terminal_ && progress.fraction >= 1.0;
  if (!enabled_ || said_ || next_is_near || now - shown_ < every_) return;
  shown_ = now;
  if (!terminal_) {
    fmt::print(stderr, "{}\n", step_);
    said_ = true;
    return;
  }
  std::string text = step_;
  if (progress.fraction > 0.0) {
    text += fmt::format(": {:.0f}%", 100.0 * progress.fraction);
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    text += fmt::format(", {:.0f} s left", seconds * (1.0 - progress.fraction) / progress.fraction);
  }
  fmt::print(stderr, "\r{}\x1b[K", text);
  std::fflush(stderr);
  on_screen_ = true;
}

void SearchProgressLine::finish() {
  if (on_screen_) fmt::print(stderr, "\r\x1b[K");
  on_screen_ = false;
}

StepsProgressLine::StepsProgressLine(bool enabled)
    : terminal_(::isatty(STDERR_FILENO) == 1), enabled_(enabled), begin_(Clock::now()) {}

void StepsProgressLine::update(const std::string& step, double fraction) {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  if (!enabled_ || seconds < 0.5) return;
  std::string text = step;
  if (fraction > 0.0) text += fmt::format(", about {:.0f} s left", seconds * (1.0 - fraction) / fraction);
  if (terminal_) {
    fmt::print(stderr, "\r{}\x1b[K", text);
    std::fflush(stderr);
    on_screen_ = true;
  } else if (step != said_) {
    fmt::print(stderr, "{}\n", text);
  }
  said_ = step;
}

void StepsProgressLine::finish() {
  if (on_screen_) fmt::print(stderr, "\r\x1b[K");
  on_screen_ = false;
}

}  // namespace spillway::cli
