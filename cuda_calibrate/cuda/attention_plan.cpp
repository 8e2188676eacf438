#include "cuda_calibrate/cuda/attention_plan.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace spillway::calibrate::gpu {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

std::vector<std::int64_t> decode_lengths(std::int64_t batch, std::int64_t context, double skew) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(batch), context + 1);
  if (batch == 1) return lengths;
  const std::int64_t total = batch * context;
  const std::int64_t longest = std::clamp<std::int64_t>(std::llround(skew * static_cast<double>(context)), context,
                                                        std::max(context, total - (batch - 1)));
  const std::int64_t rest = total - longest;
  lengths[0] = longest + 1;
  for (std::int64_t i = 0; i < batch - 1; ++i) {
    lengths[static_cast<std::size_t>(i + 1)] = rest / (batch - 1) + (i < rest % (batch - 1) ? 1 : 0) + 1;
  }
  return lengths;
}

Sequences sequences_of(const DecodeAttention& point) {
  return {std::vector<std::int64_t>(static_cast<std::size_t>(point.batch), 1),
          decode_lengths(point.batch, point.context, point.skew)};
}

Sequences sequences_of(const PrefillAttention& point) {
  const auto batch = static_cast<std::size_t>(point.batch);
  return {std::vector<std::int64_t>(batch, point.new_tokens),
          std::vector<std::int64_t>(batch, point.context + point.new_tokens)};
}

Sequences sequences_of(const MixedAttention& point) {
  Sequences sequences;
  if (point.chunk > 0) {
    sequences.query_tokens.push_back(point.chunk);
    sequences.kv_tokens.push_back(point.chunk_context + point.chunk);
  }
  const auto decodes = static_cast<std::size_t>(point.decodes);
  sequences.query_tokens.insert(sequences.query_tokens.end(), decodes, 1);
  sequences.kv_tokens.insert(sequences.kv_tokens.end(), decodes, point.decode_context + 1);
  return sequences;
}

PageTable page_table(std::span<const std::int64_t> kv_tokens, std::int64_t sets, std::uint64_t seed) {
  PageTable table;
  table.first.reserve(kv_tokens.size() * static_cast<std::size_t>(sets) + 1);
  std::int64_t pages = 0;
  table.first.push_back(0);
  for (std::int64_t set = 0; set < sets; ++set) {
    for (const std::int64_t tokens : kv_tokens) {
      pages += ceil_div(tokens, kPageSize);
      table.first.push_back(static_cast<std::int32_t>(pages));
    }
  }
  table.pages.resize(static_cast<std::size_t>(pages));
  std::iota(table.pages.begin(), table.pages.end(), 0);
  std::mt19937_64 random(seed);
  std::shuffle(table.pages.begin(), table.pages.end(), random);
  return table;
}

AttentionPlan plan_attention(const Sequences& sequences, const Heads& heads, std::int64_t sms) {
  AttentionPlan plan;
  const std::int64_t group = heads.query / heads.kv;
  const std::int64_t blocks_per_item = heads.kv * ceil_div(group, kDecodeRows);
  std::int64_t decode_tokens = 0;
  for (std::size_t i = 0; i < sequences.query_tokens.size(); ++i) {
    if (sequences.query_tokens[i] == 1) decode_tokens += sequences.kv_tokens[i];
  }
  // Each of the four warps processes a page.
  constexpr std::int64_t kStep = 4 * kPageSize;
  const std::int64_t even = ceil_div(decode_tokens * blocks_per_item, 4 * sms);
  const std::int64_t run = std::max<std::int64_t>(128, ceil_div(even, kStep) * kStep);
  for (std::size_t i = 0; i < sequences.query_tokens.size(); ++i) {
    const auto sequence = static_cast<std::int32_t>(i);
    const std::int64_t tokens = sequences.kv_tokens[i];
    if (sequences.query_tokens[i] != 1) {
      const std::int64_t rows = sequences.query_tokens[i] * group;
      for (std::int64_t tile = ceil_div(rows, kPrefillRows); tile-- > 0;) {
        plan.prefill.push_back({sequence, static_cast<std::int32_t>(tile * kPrefillRows)});
      }
      continue;
    }
    // Split into equal parts. A token beyond a run must not become a part of its own.
    const std::int64_t wanted = std::max<std::int64_t>(1, (tokens + run / 2) / run);
    const std::int64_t length = ceil_div(ceil_div(tokens, wanted), kStep) * kStep;
    const std::int64_t parts = ceil_div(tokens, length);
    if (parts > 1) {
      plan.combine.push_back({sequence, static_cast<std::int32_t>(plan.partials), static_cast<std::int32_t>(parts)});
    }
    for (std::int64_t part = 0; part < parts; ++part) {
      plan.decode.push_back({sequence, static_cast<std::int32_t>(part * length),
                             static_cast<std::int32_t>(std::min(tokens, (part + 1) * length)),
                             parts > 1 ? static_cast<std::int32_t>(plan.partials++) : -1});
    }
  }
  return plan;
}

}  // namespace spillway::calibrate::gpu
