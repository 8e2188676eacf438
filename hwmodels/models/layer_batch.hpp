// What one GPU computes of a batch: its data-parallel group's share, and what layers with a window attend to.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "sim/api/execution_model.hpp"

namespace spillway::hwmodels {

/// The batch of the group with the most tokens when `groups` data-parallel groups share `shape`. Decodes are spread
/// evenly; the first group has the rest. A chunk is computed by one group: each goes to the group with the fewest new
/// tokens so far. `chunks` keeps the group's chunks and must outlive the result. O(chunks * groups).
[[nodiscard]] inline BatchShape fullest_group(const BatchShape& shape, std::int64_t groups,
                                              std::vector<PrefillChunk>& chunks) {
  if (groups == 1) return shape;
  const auto share = [&](std::int64_t all) { return (all + groups - 1) / groups; };
  BatchShape own = shape;
  own.decode_sequences = share(shape.decode_sequences);
  own.decode_context = Tokens(share(shape.decode_context.count()));
  own.cpu_sequences = share(shape.cpu_sequences);
  own.cpu_context = Tokens(share(shape.cpu_context.count()));
  own.sampled_sequences = share(shape.sampled_sequences);
  own.continued_chunks = share(shape.continued_chunks);
  chunks.clear();
  if (shape.chunks.empty()) return own;
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(groups), 0);
  std::vector<std::size_t> group_of(shape.chunks.size());
  for (std::size_t i = 0; i < shape.chunks.size(); ++i) {
    const auto least = std::ranges::min_element(tokens);
    group_of[i] = static_cast<std::size_t>(least - tokens.begin());
    *least += shape.chunks[i].new_tokens.count();
  }
  const auto fullest = static_cast<std::size_t>(std::ranges::max_element(tokens) - tokens.begin());
  for (std::size_t i = 0; i < shape.chunks.size(); ++i) {
    if (group_of[i] == fullest) chunks.push_back(shape.chunks[i]);
  }
  own.chunks = chunks;
  own.continued_chunks = std::min<std::int64_t>(own.continued_chunks, std::ssize(chunks) - 1);
  return own;
}

/// Pairs of a query and a key that a chunk computes when a token attends to `window` tokens at most, itself included;
/// 0: to all before it.
[[nodiscard]] inline double attended_pairs(const PrefillChunk& chunk, std::int64_t window) {
  const std::int64_t fresh = chunk.new_tokens.count();
  const std::int64_t context = chunk.context.count();
  // Tokens of the chunk that still see all tokens before them.
  const std::int64_t growing = window == 0 ? fresh : std::clamp<std::int64_t>(window - context, 0, fresh);
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  return real(growing) * real(context) + 0.5 * real(growing) * real(growing + 1) + real(fresh - growing) * real(window);
}

/// Pairs over a window / pairs of full attention, of all chunks together; 1 without a window.
[[nodiscard]] inline double window_share(std::span<const PrefillChunk> chunks, std::int64_t window) {
  if (window == 0) return 1.0;
  double seen = 0.0;
  double all = 0.0;
  for (const PrefillChunk& chunk : chunks) {
    seen += attended_pairs(chunk, window);
    all += attended_pairs(chunk, 0);
  }
  return all > 0.0 ? seen / all : 1.0;
}

/// What decoding sequences attend to. A batch states the sum of their tokens alone, so over a window each of them
/// counts as the mean: of sequences shorter and longer than the window too much.
struct DecodeReach {
  double sequences = 0.0;
  double context = 0.0;  // of all sequences together
  double longest = 0.0;
};
[[nodiscard]] inline DecodeReach decode_reach(const BatchShape& shape, std::int64_t window) {
  const auto sequences = static_cast<double>(shape.decode_sequences);
  double context = static_cast<double>(shape.decode_context.count());
  double longest = static_cast<double>(shape.decode_longest.count());
  if (sequences > 0.0) longest = std::max(longest, context / sequences);
  if (window > 0) {
    context = std::min(context, sequences * static_cast<double>(window));
    longest = std::min(longest, static_cast<double>(window));
  }
  return {sequences, context, longest};
}

}  // namespace spillway::hwmodels
