// The GPU-independent part of paged attention: lengths, page tables and the division of the work. The kernels read the
// structs with fixed-width members.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate::gpu {

/// Tokens per page.
inline constexpr std::int64_t kPageSize = 16;
/// Rows of queries per thread block of prefill. A row is one query head of one token.
inline constexpr std::int64_t kPrefillRows = 64;
/// Rows of queries of one KV head per thread block of decode.
inline constexpr std::int64_t kDecodeRows = 16;

/// Sequences of one call. The cache already has the keys and values of the new tokens.
struct Sequences {
  std::vector<std::int64_t> query_tokens;
  std::vector<std::int64_t> kv_tokens;  // earlier and new tokens
};
/// KV tokens of each sequence: its context and the new token. See DecodeAttention::skew. The first of the shorter
/// sequences get the remainder of the division. Every sequence has at least one token of context.
[[nodiscard]] std::vector<std::int64_t> decode_lengths(std::int64_t batch, std::int64_t context, double skew);
[[nodiscard]] Sequences sequences_of(const DecodeAttention& point);
[[nodiscard]] Sequences sequences_of(const PrefillAttention& point);
/// The prefill comes first. A chunk of 0 tokens adds no sequence.
[[nodiscard]] Sequences sequences_of(const MixedAttention& point);

/// Pages of sequence i: pages[first[i]] .. pages[first[i + 1] - 1].
struct PageTable {
  std::vector<std::int32_t> first;
  std::vector<std::int32_t> pages;
};
/// A table for `sets` copies of the sequences, one after another. Each page of 0 .. n - 1 belongs to one sequence, at
/// random.
[[nodiscard]] PageTable page_table(std::span<const std::int64_t> kv_tokens, std::int64_t sets, std::uint64_t seed);

/// Work of one thread block per KV head (and kDecodeRows query heads): tokens begin .. end - 1 of a sequence.
struct DecodeItem {
  std::int32_t sequence = 0;
  std::int32_t begin = 0;  // a multiple of kPageSize
  std::int32_t end = 0;
  std::int32_t partial = 0;  // index of the partial result; -1: the item covers the whole sequence
};
/// A sequence whose partial results first .. first + count - 1 must be combined.
struct CombineItem {
  std::int32_t sequence = 0;
  std::int32_t first = 0;
  std::int32_t count = 0;
};
/// Work of one thread block per KV head: kPrefillRows rows of a sequence, starting at first_row.
struct PrefillItem {
  std::int32_t sequence = 0;
  std::int32_t first_row = 0;
};
struct AttentionPlan {
  std::vector<DecodeItem> decode;
  std::vector<CombineItem> combine;
  std::vector<PrefillItem> prefill;
  std::int64_t partials = 0;
};

/// Sequences with one new token are decodes. Each decode is split into equal runs of pages (the last run may be
/// shorter). The run length gives each of `sms` about four thread blocks, but a run has at least about 128 tokens.
/// Other sequences are prefills; their last rows come first, because these have the most work.
[[nodiscard]] AttentionPlan plan_attention(const Sequences& sequences, const Heads& heads, std::int64_t sms);

}  // namespace spillway::calibrate::gpu
