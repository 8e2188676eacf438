// Layers that attend over a sliding window, and the KV that they free.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sim/core/units.hpp"

namespace spillway {

/// Some layers attend to the last `tokens` tokens only, and give back each block that no later token attends to, as
/// vLLM's hybrid KV cache manager does. The other layers keep all blocks. A block has the same bytes in every layer, so
/// `of` blocks of one layer each make up one block of all layers.
///
/// Source: vLLM v1/core/single_type_kv_cache_manager.py, SlidingWindowManager.remove_skipped_blocks: with c computed
/// tokens the first token that the next one attends to is c - tokens + 1, counted from 0.
struct KvWindow {
  Tokens tokens{};          // that a token attends to, itself included
  std::int64_t layers = 0;  // with the window
  std::int64_t of = 0;      // all layers
  Tokens piece{};           // the most tokens of one request that an iteration computes

  /// Leading blocks that a context of so many computed tokens no longer needs in a layer with the window.
  [[nodiscard]] Blocks passed(Tokens computed, Tokens block) const {
    return Blocks(std::max<std::int64_t>(0, (computed - tokens + Tokens(1)).count()) / block.count());
  }
  /// So many blocks, free in the layers with the window, as whole blocks of all layers.
  [[nodiscard]] Blocks freed(Blocks passed) const { return Blocks(passed.count() * layers / of); }
  /// The longest request, at most `most`, for which `total` blocks suffice when it is alone. A context needs most when
  /// its last piece takes its blocks. O(most / block).
  [[nodiscard]] Tokens longest(Blocks total, Tokens block, Tokens most) const {
    Tokens fits;
    for (; fits < most; fits += block) {
      const Tokens next = fits + Tokens(1);
      if (blocks_for(next, block) - freed(passed(next - piece, block)) > total) return fits;
    }
    return most;
  }
  bool operator==(const KvWindow&) const = default;
};

}  // namespace spillway
