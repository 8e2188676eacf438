// Paged attention without the GPU: lengths, page tables and who computes what. The structs with fixed-width members are
// what the kernels read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda_calibrate/measure/point.hpp"

namespace spillway::calibrate::gpu {

/// Tokens of a page.
inline constexpr std::int64_t kPageSize = 16;
/// Rows of queries that a thread block of prefill takes; a row is one query head of one token.
inline constexpr std::int64_t kPrefillRows = 64;
/// Rows of queries of one KV head that a thread block of decode takes.
inline constexpr std::int64_t kDecodeRows = 16;

/// Sequences of one call: each has new tokens, whose keys and values are in the cache already.
struct Sequences {
  std::vector<std::int64_t> query_tokens;
  std::vector<std::int64_t> kv_tokens;  // earlier and new ones
};
/// KV tokens of each sequence: its context and the new token. See DecodeAttention::skew; what does not divide evenly
/// goes to the first of the others, and each has at least one token of context.
[[nodiscard]] std::vector<std::int64_t> decode_lengths(std::int64_t batch, std::int64_t context, double skew);
[[nodiscard]] Sequences sequences_of(const DecodeAttention& point);
[[nodiscard]] Sequences sequences_of(const PrefillAttention& point);
/// The prefill comes first; a chunk of 0 tokens has no sequence.
[[nodiscard]] Sequences sequences_of(const MixedAttention& point);

/// Pages of sequence i: pages[first[i]] .. pages[first[i + 1] - 1].
struct PageTable {
  std::vector<std::int32_t> first;
  std::vector<std::int32_t> pages;
};
/// `sets` times the sequences, one behind another; every page of 0 .. n - 1 is given to one sequence, at random.
[[nodiscard]] PageTable page_table(std::span<const std::int64_t> kv_tokens, std::int64_t sets, std::uint64_t seed);

/// One thread block per KV head (and kDecodeRows query heads of it): tokens begin .. end - 1 of a sequence.
struct DecodeItem {
  std::int32_t sequence = 0;
  std::int32_t begin = 0;  // a multiple of kPageSize
  std::int32_t end = 0;
  std::int32_t partial = 0;  // where the result goes to be combined; -1: it is the sequence's whole result
};
/// A sequence whose partial results first .. first + count - 1 are combined.
struct CombineItem {
  std::int32_t sequence = 0;
  std::int32_t first = 0;
  std::int32_t count = 0;
};
/// One thread block per KV head: kPrefillRows rows of a sequence, from first_row on.
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

/// Sequences with one new token are decodes: each is split into equal runs of pages (the last one may be shorter) of
/// such a length that about four thread blocks come to each of `sms`, but of no fewer than about 128 tokens. The others
/// are prefills, whose last rows, which have most to do, come first.
[[nodiscard]] AttentionPlan plan_attention(const Sequences& sequences, const Heads& heads, std::int64_t sms);

}  // namespace spillway::calibrate::gpu
