#include "hwmodels/models/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwmodels/models/exact_math.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

constexpr double kTile = 128.0;      // rows of queries, and of keys, that a block works on at a time
constexpr double kPagedRows = 64.0;  // rows of queries of a block in FlashAttention 2's kernels for paged KV
constexpr double kFittedHeadDim = 128.0;
constexpr double kWriteThreads = 512.0;                                             // of a block of the cache write
constexpr std::array kSequenceSplits{1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0};  // of a sequence in decode attention
constexpr std::array kShares{1.0,      1.0 / 2,  1.0 / 4,  1.0 / 8,
                             1.0 / 16, 1.0 / 32, 1.0 / 64, 1.0 / 128};  // 1 / kSequenceSplits

double group(const AttentionShape& shape) { return real(shape.q_heads) / real(shape.kv_heads); }
double kv_bytes(const AttentionShape& shape) {
  return 2.0 * real(shape.kv_heads * shape.head_dim) * shape.kv_element_bytes;
}
double query_bytes(const AttentionShape& shape) {
  return 2.0 * real(shape.q_heads * shape.head_dim) * shape.element_bytes;
}
/// Of one new token.
double write_seconds(const PrefillAttentionModel& model, const AttentionShape& shape) {
  if (!model.write_token_seconds) return 0.0;
  const double elements = real(shape.kv_heads * shape.head_dim);
  const double threads = *model.write_token_seconds * std::min(1.0, elements / kWriteThreads);
  const double bytes = 2.0 * elements * (shape.element_bytes + shape.kv_element_bytes);
  return p_norm(threads, bytes / model.bandwidth, 2.0);
}

}  // namespace

ResidualPoint decode_point(double sequences, double context, std::int64_t q_heads, std::int64_t kv_heads) {
  return {{log2_line(sequences), log2_line(context)},
          {log2_line(real(kv_heads)), log2_line(real(q_heads) / real(kv_heads))}};
}

ResidualPoint prefill_point(double sequences, double chunk, std::int64_t q_heads, std::int64_t kv_heads) {
  return {{log2_line(sequences), log2_line(chunk)},
          {log2_line(real(q_heads)), log2_line(real(q_heads) / real(kv_heads))}};
}

DecodeAttentionTime::DecodeAttentionTime(const DecodeAttentionModel& model, const AttentionShape& shape)
    : launch_(model.launch_seconds + model.kv_head_seconds.value_or(0.0) * real(shape.kv_heads)),
      heads_seconds_(model.head_seconds * real(shape.q_heads)),
      blocks_per_sm_(real(shape.kv_heads) / real(model.sm_count)),
      block_seconds_(model.block_seconds),
      token_seconds_(model.token_seconds * (1.0 + model.group_growth * group(shape)) * real(shape.head_dim) /
                     kFittedHeadDim),
      kv_seconds_(kv_bytes(shape) / model.bandwidth),
      query_seconds_(query_bytes(shape) / model.bandwidth),
      norm_exponent_(model.norm_exponent),
      residual_(ResidualSlice(model.residual, decode_point(1.0, 1.0, shape.q_heads, shape.kv_heads).shape)) {
  const bool splits = !model.splits_grouped_heads_only || shape.q_heads > shape.kv_heads;
  for (std::size_t i = 1; i < kSplitCounts; ++i) {
    const double merge = model.split_seconds * (1.0 + static_cast<double>(i));
    split_seconds_[i] = splits ? merge : std::numeric_limits<double>::infinity();
  }
}

KernelTime DecodeAttentionTime::modelled(double sequences, double context, double longest) const {
  const double mean_seconds = context / sequences * token_seconds_;
  const double tail_seconds = longest * token_seconds_ - mean_seconds;
  const double waves = sequences * blocks_per_sm_;
  // First all numbers of splits, then the minimum, so that the compiler can vectorise the loop.
  std::array<double, kSplitCounts> chains{};
  for (std::size_t i = 0; i < kSplitCounts; ++i) {
    const double blocks = std::max(1.0, waves * kSequenceSplits[i]);
    chains[i] = blocks * (block_seconds_ + kShares[i] * mean_seconds) + kShares[i] * tail_seconds + split_seconds_[i];
  }
  // By halves: eight comparisons in a row would each wait for the one before.
  for (std::size_t half = kSplitCounts / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) chains[i] = std::min(chains[i], chains[i + half]);
  }
  const double chain = chains[0];
  const double memory = kv_seconds_ * context + query_seconds_ * sequences;
  return {launch_ + heads_seconds_ * sequences + p_norm(chain, memory, norm_exponent_), false};
}

KernelTime DecodeAttentionTime::at(double sequences, double context, double longest) const {
  KernelTime time = modelled(sequences, context, longest);
  time.seconds *= residual_.ratio(log2_line(sequences), log2_line(context / sequences));
  return time;
}

PrefillAttentionTime::Packing PrefillAttentionTime::packing_of(const PrefillAttentionModel& model,
                                                               const AttentionShape& shape, bool packs) {
  const std::int64_t heads = packs ? shape.kv_heads : shape.q_heads;
  return {real(heads), real(heads) / real(model.sm_count), packs ? group(shape) : 1.0};
}

PrefillAttentionTime::PrefillAttentionTime(const PrefillAttentionModel& model, const AttentionShape& shape,
                                           const KeyMemory& memory)
    : launch_(model.launch_seconds),
      packing_(packing_of(model, shape, model.packs_groups)),
      single_tokens_(packing_of(model, shape, true)),
      tile_seconds_(model.tile_seconds * real(shape.head_dim) / kFittedHeadDim),
      block_seconds_(model.block_seconds),
      longest_weight_(model.longest_weight),
      kv_seconds_(kv_bytes(shape) / model.bandwidth),
      query_seconds_(query_bytes(shape) / model.bandwidth),
      write_seconds_(write_seconds(model, shape)),
      norm_exponent_(model.norm_exponent),
      sm_count_(real(model.sm_count)),
      group_(model.packs_groups ? 1.0 : group(shape)),
      earlier_kv_seconds_(kv_bytes(shape) / (memory.bandwidth > 0.0 ? memory.bandwidth : model.bandwidth)),
      cached_tokens_(memory.cache_bytes > 0.0 ? memory.cache_bytes * real(shape.kv_heads) / kv_bytes(shape)
                                              : std::numeric_limits<double>::infinity()),
      earlier_rows_(model.packs_groups ? kTile : kPagedRows),
      earlier_seconds_(model.earlier_tile() * real(shape.head_dim) / kFittedHeadDim * earlier_rows_ / (kTile * kTile)),
      residual_(ResidualSlice(model.residual, prefill_point(1.0, 1.0, shape.q_heads, shape.kv_heads).shape)) {}

void PrefillAttentionTime::Passes::add(double of_sequences, double of_tiles, double context, double longest_context) {
  if (context == 0.0) return;
  sequences += of_sequences;
  tiles += of_tiles;
  tile_contexts += of_tiles * context;
  longest = std::max(longest, longest_context);
  contexts += of_sequences * context;
}

double PrefillAttentionTime::tiles(double fresh, const Packing& packing) const {
  return packing.heads * std::ceil(fresh * packing.rows_per_token / earlier_rows_);
}

void PrefillAttentionTime::add(Work& work, double sequences, double fresh, const Packing& packing) const {
  const double last = fresh / kTile;
  const double mean = 0.5 * fresh / kTile;
  const double blocks = sequences * packing.blocks * std::ceil(fresh * packing.rows_per_token / kTile);
  work.blocks_seconds += blocks * (mean * tile_seconds_ + block_seconds_);
  work.longest_seconds = std::max(work.longest_seconds, last * tile_seconds_ + block_seconds_);
  work.memory_seconds += sequences * (kv_seconds_ + query_seconds_) * fresh;
  work.tokens += sequences * fresh;
  work.token_chunks += sequences * fresh * fresh;
}

void PrefillAttentionTime::add(Work& work, Passes& passes, std::span<const PrefillChunk> chunks,
                               const Packing& packing) const {
  for (const PrefillChunk& chunk : chunks) {
    const double fresh = real(chunk.new_tokens.count());
    const double context = real(chunk.context.count());
    add(work, 1.0, fresh, packing);
    passes.add(1.0, tiles(fresh, packing), context, context);
  }
}

KernelTime PrefillAttentionTime::at(std::span<const PrefillChunk> chunks) const {
  const bool singles = std::all_of(chunks.begin(), chunks.end(),
                                   [](const PrefillChunk& chunk) { return chunk.new_tokens == Tokens(1); });
  Work work;
  Passes passes;
  add(work, passes, chunks, singles ? single_tokens_ : packing_);
  return time_of(work, passes);
}

KernelTime PrefillAttentionTime::equal(double sequences, const PrefillChunk& chunk) const {
  const Packing& packing = chunk.new_tokens > Tokens(1) ? packing_ : single_tokens_;
  const double fresh = real(chunk.new_tokens.count());
  const double context = real(chunk.context.count());
  Work work;
  Passes passes;
  add(work, sequences, fresh, packing);
  passes.add(sequences, sequences * tiles(fresh, packing), context, context);
  return time_of(work, passes);
}

KernelTime PrefillAttentionTime::fused(std::span<const PrefillChunk> chunks, double decodes, double decode_context,
                                       double decode_longest, const FusedDecodes& model) const {
  Work work;
  Passes passes;
  add(work, passes, chunks, packing_);
  const double mean = decode_context / decodes;
  // Of unequal lengths half a tile is lost in the mean.
  const double each = mean == decode_longest ? kTile * (std::floor(mean / kTile) + 1.0) : mean + 0.5 * kTile;
  passes.add(decodes, decodes * packing_.heads, each, std::max(each, decode_longest));
  passes.contexts += decodes * (mean - each);  // tiles are computed on, but not read
  double most = packing_.heads;
  double filled = decodes * packing_.heads;
  for (const PrefillChunk& chunk : chunks) {
    const double blocks = tiles(real(chunk.new_tokens.count()), packing_);
    most = std::max(most, blocks);
    filled += blocks;
  }
  const double empties = (decodes + real(static_cast<std::int64_t>(chunks.size()))) * most - filled;
  KernelTime time = time_of(work, passes);
  time.seconds += (decodes * packing_.heads * model.block_seconds + empties * model.empty_seconds) / sm_count_;
  return time;
}

KernelTime PrefillAttentionTime::time_of(const Work& work, const Passes& passes) const {
  const double chunk = work.token_chunks / work.tokens;
  const double arithmetic = p_norm(work.blocks_seconds, longest_weight_ * work.longest_seconds, norm_exponent_);
  const double fresh = launch_ + p_norm(arithmetic, work.memory_seconds, norm_exponent_) + write_seconds_ * work.tokens;
  KernelTime time{fresh * residual_.ratio(log2_line(work.tokens / chunk), log2_line(chunk)),
                  arithmetic > work.memory_seconds};
  if (passes.tiles == 0.0) return time;
  const double waves = std::ceil(passes.tiles / sm_count_);
  const double keys = std::max(waves * passes.tile_contexts / passes.tiles, passes.longest);
  const bool cached = passes.contexts <= cached_tokens_;
  const double reads = cached ? 1.0 : group_ / std::clamp(sm_count_ / passes.sequences, 1.0, group_);
  const double earlier_arithmetic = keys * earlier_seconds_;
  const double earlier_memory = reads * earlier_kv_seconds_ * passes.contexts;
  time.seconds += std::max(earlier_arithmetic, earlier_memory);
  time.compute_bound = arithmetic + earlier_arithmetic > work.memory_seconds + earlier_memory;
  return time;
}

}  // namespace spillway::hwmodels
