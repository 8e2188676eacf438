// Identities of a prompt's blocks, from what traces say about its content.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/random.hpp"

namespace spillway::traces {

/// Writes the ids of a prompt's first `whole_blocks` blocks, each id of the trace covering `parts` blocks of the run.
/// With parts > 1 an id is split into ids that depend on it and on the position within it alone: neighbours of a
/// scrambled id, so that those of distinct ids stay distinct but for chance (within n ids: n^2 parts / 2^64).
inline void split_ids(std::span<const std::uint64_t> ids, std::int64_t parts, std::int64_t whole_blocks,
                      std::vector<std::uint64_t>& blocks) {
  const auto per_id = static_cast<std::size_t>(parts);
  blocks.resize(std::min(static_cast<std::size_t>(whole_blocks), ids.size() * per_id));
  if (parts == 1) {
    std::copy_n(ids.begin(), blocks.size(), blocks.begin());
    return;
  }
  for (std::size_t at = 0; at < blocks.size(); at += per_id) {
    std::uint64_t state = ids[at / per_id];
    const std::uint64_t first = split_mix(state);
    const std::size_t end = std::min(at + per_id, blocks.size());
    for (std::size_t i = at; i < end; ++i) blocks[i] = first + (i - at);
  }
}

/// Writes one id per whole block of tokens: a hash of the block's tokens and of all before them, as prefix caches key
/// their blocks (vLLM, kv_cache_utils.hash_block_tokens). Equal ids mean equal prefixes but for chance (within n
/// blocks: n^2 / 2^65).
inline void chain_ids(std::span<const std::uint64_t> tokens, std::size_t block_tokens,
                      std::vector<std::uint64_t>& blocks) {
  blocks.clear();
  std::uint64_t hash = 0;
  for (std::size_t end = block_tokens; end <= tokens.size(); end += block_tokens) {
    for (const std::uint64_t token : tokens.subspan(end - block_tokens, block_tokens)) {
      std::uint64_t state = hash ^ token;
      hash = split_mix(state);
    }
    blocks.push_back(hash);
  }
}

}  // namespace spillway::traces
