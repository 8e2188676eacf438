// How many layers of KV live on the host: Pie's adaptation of the expansion to load, compute and links.
//
// Source: Pie, sections 3.4.2 and 4.1, which give triggers but no constants. The header comment of policies/pie.cpp
// states the rule. The controller hears of iterations, and never of the clock, the slots or single copies.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/api/layer_policy.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// What m layers on the host bring and what their swaps take.
struct ExpansionLevel {
  Blocks blocks{};   // KV blocks of the GPU, > 0, and not fewer than one layer less brings
  Duration dwell{};  // from the start of a layer's copy out to the end of its copy in, if copies never pause and both
                     // directions are busy; > 0 for m > 0
};

/// O(1) per iteration, and O(layers raised) per raise.
class ExpansionController {
 public:
  /// Starts with no layer on the host. `levels[m]` describes m layers on the host; there is at least one level.
  explicit ExpansionController(std::vector<ExpansionLevel> levels);

  /// Layers on the host.
  [[nodiscard]] std::int32_t level() const { return level_; }
  /// To be called after every iteration. `settled`: in the whole iteration all slots had the size of level(), and its
  /// blocks were in use. Changes level() only after a settled iteration.
  void iteration_ended(const LayerReport& report, bool settled);
  /// From now on `level` layers are on the host, because a request needs their blocks: they do not become fewer while
  /// KV is live.
  void hold(std::int32_t level);

 private:
  static constexpr std::size_t kWindow = 8;  // iterations

  struct Iteration {
    Duration compute{};  // its length without stalls
    Duration layer{};
    Duration dwell{};  // of a layer that compute waited for; 0: there was none, or the level has changed since
    bool full = false;
  };
  /// Sums over the settled iterations since the last change of the level, or since the end of the last window.
  struct Window {
    std::size_t iterations = 0;
    Duration length{};
    Duration stall{};
    bool busy = false;  // some iteration was full, or kept requests out
    double most_used = 0.0;
  };

  void move_to(std::int32_t level);
  [[nodiscard]] const ExpansionLevel& at(std::int32_t level) const { return levels_[static_cast<std::size_t>(level)]; }
  [[nodiscard]] std::int32_t most() const { return static_cast<std::int32_t>(levels_.size()) - 1; }
  /// Layers that go to the host now; 0: none.
  [[nodiscard]] std::int32_t raise_that_pays() const;
  /// Over the last iterations, if a layer dwells for so many nanoseconds.
  [[nodiscard]] double waits_with(double dwell) const;
  /// The layers, at most `most`, that together bring less than compute waited for in the window; 0: none. `needed`:
  /// their capacity is.
  [[nodiscard]] std::int32_t not_worth(const Window& window, bool needed, std::int32_t most) const;
  [[nodiscard]] bool has_spare_layer(const Window& window) const;

  const std::vector<ExpansionLevel> levels_;
  std::int32_t level_ = 0;
  bool held_ = false;
  bool waiting_ = false;  // requests, when the last iteration ended
  std::int64_t iteration_ = 0;
  std::array<Iteration, kWindow> last_{};
  Window window_;
  bool waited_ = false;  // compute, in a settled iteration since the last change of the level

  std::int32_t change_ = 0;     // layers of the last raise, or < 0, of the last failure; 0: a window has passed since
  std::int64_t spare_for_ = 0;  // iterations of windows without need for the last layer, since the last raise
  std::int32_t failed_ = 0;     // the level that compute waited for too long; 0: none
  std::int64_t pause_ = 0;      // iterations after that failure
  std::int64_t retry_at_ = 0;   // iteration
};

}  // namespace spillway
