// What the contexts of a batch have freed in layers with a sliding window.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/api/kv_window.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// The sum over all contexts of KvWindow::passed. A decode is told when it starts and stops; its growth by a token per
/// step costs nothing of its own. O(1) per call. Memory is O(window + block).
class KvWindows {
 public:
  KvWindows(const KvWindow& window, Tokens block);

  /// A context of `before` computed tokens has `after` of them now.
  void change(Tokens before, Tokens after) {
    passed_ += window_.passed(after, block_) - window_.passed(before, block_);
  }
  /// A context takes part in the steps from now on, or no longer.
  void start(Tokens computed) { ++drops(computed); }
  void stop(Tokens computed) { --drops(computed); }
  /// Each context that takes part has one more computed token.
  void step();

  /// Blocks of all layers that have become free since the last call; < 0: that are in use again.
  [[nodiscard]] Blocks take_freed();

 private:
  /// The counter that a context of so many tokens is in.
  [[nodiscard]] std::int64_t& drops(Tokens computed);

  KvWindow window_;
  Tokens block_;
  std::int64_t first_;  // tokens of a context that passes its first block
  std::int64_t steps_ = 0;
  /// Contexts that have passed a block, by the steps, modulo the block, in which they pass another.
  std::vector<std::int64_t> passing_;
  /// The others, by the step, modulo the size, in which they pass their first.
  std::vector<std::int64_t> pending_;
  Blocks passed_{};
  Blocks told_{};
};

}  // namespace spillway
