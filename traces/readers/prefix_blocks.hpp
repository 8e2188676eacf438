// Ids of a prompt's blocks, from the content that a trace states.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "sim/core/random.hpp"
#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// The ids of `parts` equal pieces of each id, up to `most` of them. With parts > 1 they follow a scrambled id, so
/// pieces of distinct ids are distinct; n ids collide with probability n^2 parts / 2^64.
inline void split_ids(std::span<const std::uint64_t> ids, std::int64_t parts, std::int64_t most,
                      std::vector<std::uint64_t>& pieces) {
  const auto per_id = static_cast<std::size_t>(parts);
  pieces.resize(std::min(static_cast<std::size_t>(most), ids.size() * per_id));
  if (parts == 1) {
    std::copy_n(ids.begin(), pieces.size(), pieces.begin());
    return;
  }
  for (std::size_t at = 0; at < pieces.size(); at += per_id) {
    std::uint64_t state = ids[at / per_id];
    const std::uint64_t first = split_mix(state);
    const std::size_t end = std::min(at + per_id, pieces.size());
    for (std::size_t i = at; i < end; ++i) pieces[i] = first + (i - at);
  }
}

/// Replaces every whole group of `size` ids by one: a hash of the group and of all before it, as prefix caches key
/// their blocks (vLLM, kv_cache_utils.hash_block_tokens). Equal ids mean equal prefixes; n groups collide
/// with probability n^2 / 2^65.
inline void chain_ids(std::vector<std::uint64_t>& ids, std::int64_t size) {
  const auto group = static_cast<std::size_t>(size);
  std::uint64_t hash = 0;
  std::size_t groups = 0;
  for (std::size_t at = 0; at + group <= ids.size(); at += group) {
    for (std::size_t i = at; i < at + group; ++i) {
      std::uint64_t state = hash ^ ids[i];
      hash = split_mix(state);
    }
    ids[groups++] = hash;
  }
  ids.resize(groups);
}

/// Sets `blocks` to the ids of the first whole blocks of a prompt of `input` tokens, as far as the row names its
/// content. Pieces and blocks may have any sizes: both are cut into pieces of their greatest common divisor.
inline void block_ids(const TraceRow& row, Tokens input, Tokens block_tokens, std::vector<std::uint64_t>& blocks) {
  const std::int64_t block = block_tokens.count();
  const std::int64_t per_id = row.prefix_id_tokens > 0 ? row.prefix_id_tokens : block;
  const std::int64_t piece = std::gcd(per_id, block);
  const std::int64_t whole_blocks = input.count() / block;
  split_ids(row.prefix_ids, per_id / piece, whole_blocks * (block / piece), blocks);
  if (piece < block) chain_ids(blocks, block / piece);
}

}  // namespace spillway::traces
