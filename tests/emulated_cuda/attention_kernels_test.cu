// The attention kernels on the CPU with emulated warps, compared with the definition of attention.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numbers>
#include <numeric>
#include <vector>

// attention_kernels.cuh uses the warp functions, so the emulation comes first.
// clang-format off
#include "tests/emulated_cuda/emulated_warp.hpp"
#include "cuda_calibrate/cuda/attention_kernels.cuh"
// clang-format on
#include "cuda_calibrate/cuda/attention_reference.hpp"
#include "cuda_calibrate/host/host_memory.hpp"

namespace spillway::calibrate::gpu {
namespace {

template <typename T>
std::vector<T> random_numbers(std::size_t count, RandomBits& random) {
  std::vector<T> numbers;
  numbers.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    numbers.push_back(T(static_cast<float>(random.below(2001)) / 1000.0F - 1.0F));
  }
  return numbers;
}
template <typename T>
std::vector<float> floats(const std::vector<T>& numbers) {
  return {numbers.begin(), numbers.end()};
}
std::vector<std::int32_t> narrow(const std::vector<std::int64_t>& numbers) { return {numbers.begin(), numbers.end()}; }

template <typename T, int kSize>
void expect_right(const Heads& heads, const Sequences& sequences) {
  RandomBits random(7);
  // The pool has twice the call's pages: the call must read only the pages of its table.
  const PageTable table = page_table(sequences.kv_tokens, 2, 7);
  const std::int64_t tokens =
      std::accumulate(sequences.query_tokens.begin(), sequences.query_tokens.end(), std::int64_t{0});
  const auto rows = static_cast<std::size_t>(tokens * heads.query);
  const auto queries = random_numbers<T>(rows * kSize, random);
  const auto cached = table.pages.size() * static_cast<std::size_t>(heads.kv * kPageSize) * kSize;
  const auto keys = random_numbers<T>(cached, random);
  const auto values = random_numbers<T>(cached, random);
  std::vector<T> results(queries.size(), T(99.0F));
  const AttentionPlan plan = plan_attention(sequences, heads, 4);
  std::vector<float> partial_results(static_cast<std::size_t>(plan.partials * heads.query * kSize));
  std::vector<float> partial_logs(static_cast<std::size_t>(plan.partials * heads.query));
  std::vector<std::int64_t> query_first(sequences.query_tokens.size());
  std::exclusive_scan(sequences.query_tokens.begin(), sequences.query_tokens.end(), query_first.begin(),
                      std::int64_t{0});
  const auto first = narrow(query_first);
  const auto query_tokens = narrow(sequences.query_tokens);
  const auto kv_tokens = narrow(sequences.kv_tokens);
  const AttentionCall call{.queries = queries.data(),
                           .keys = keys.data(),
                           .values = values.data(),
                           .results = results.data(),
                           .page_first = table.first.data(),
                           .pages = table.pages.data(),
                           .query_first = first.data(),
                           .query_tokens = query_tokens.data(),
                           .kv_tokens = kv_tokens.data(),
                           .decode = plan.decode.data(),
                           .combine = plan.combine.data(),
                           .prefill = plan.prefill.data(),
                           .partial_results = partial_results.data(),
                           .partial_logs = partial_logs.data(),
                           .decode_items = static_cast<std::int32_t>(plan.decode.size()),
                           .combine_items = static_cast<std::int32_t>(plan.combine.size()),
                           .prefill_items = static_cast<std::int32_t>(plan.prefill.size()),
                           .query_heads = static_cast<std::int32_t>(heads.query),
                           .kv_heads = static_cast<std::int32_t>(heads.kv),
                           .scale = std::numbers::log2e_v<float> / std::sqrt(static_cast<float>(kSize))};
  const std::int64_t tiles = (heads.query / heads.kv + kDecodeRows - 1) / kDecodeRows;
  const auto blocks =
      static_cast<unsigned>((call.prefill_items + call.decode_items * tiles) * static_cast<std::int64_t>(heads.kv));
  emulated::run_kernel(blocks, 1, kThreads, [&] { attention_kernel<T, kSize, Parts::both>(call); });
  emulated::run_kernel(static_cast<unsigned>(call.combine_items), static_cast<unsigned>(heads.query), kSize,
                       [&] { combine_kernel<T, kSize>(call); });

  const auto want = reference_attention(heads, sequences, table, floats(queries), floats(keys), floats(values));
  const auto got = floats(results);
  // Weights and results are rounded to 11 or 8 bits.
  const float ulp = std::is_same_v<T, __half> ? 0x1p-10F : 0x1p-7F;
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], ulp * (0.5F + std::abs(want[i]))) << i;
  }
}

TEST(AttentionKernels, Decode_LengthsAroundPagesAndParts) {
  // One token, part of a page, whole pages, a page and a token; 300 tokens are split.
  expect_right<__half, 64>(Heads{4, 4, 64}, {{1, 1, 1, 1, 1}, {1, 7, 32, 129, 300}});
  expect_right<__nv_bfloat16, 128>(Heads{8, 2, 128}, {{1, 1}, {1, 300}});
}

TEST(AttentionKernels, Decode_MoreQueryHeadsThanRows) { expect_right<__half, 128>(Heads{20, 1, 128}, {{1}, {200}}); }

TEST(AttentionKernels, Prefill_TilesAndCausalMask) {
  // No context; whole tiles; a context that ends within a page; a group of 3 that splits tokens over tiles.
  expect_right<__half, 64>(Heads{6, 2, 64}, {{5, 64}, {5, 64}});
  expect_right<__nv_bfloat16, 128>(Heads{8, 2, 128}, {{33}, {33 + 71}});
}

TEST(AttentionKernels, Mixed_BothInOneCall) {
  expect_right<__half, 128>(Heads{4, 2, 128}, {{40, 1, 20}, {40 + 35, 150, 20}});
}

}  // namespace
}  // namespace spillway::calibrate::gpu
