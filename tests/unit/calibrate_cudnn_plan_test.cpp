// Decode attention in cuDNN's terms: shapes, page tables, layouts, and the check of results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "cuda_calibrate/cuda/attention_reference.hpp"
#include "cuda_calibrate/cuda/cudnn_plan.hpp"

namespace spillway::calibrate::gpu {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

const Heads kHeads{6, 2, 64};
const std::vector<std::int64_t> kTokens{1, 17, 40};  // 1, 2 and 3 pages

TEST(CudnnPlan, KernelNames_BeginWithCudnn) {
  EXPECT_EQ(cudnn_kernel(91900, CudnnForm::paged), "cudnn-9.19 paged");
  EXPECT_EQ(cudnn_kernel(90105, CudnnForm::contiguous), "cudnn-9.1");
}

TEST(CudnnPlan, PagedCall_TakesPagesOfTheWholeCache) {
  const auto call = cudnn_call(CudnnForm::paged, kHeads, kTokens, 5);
  ASSERT_TRUE(call);
  EXPECT_THAT(call->queries.sizes, ElementsAre(3, 6, 1, 64));
  EXPECT_THAT(call->queries.strides, ElementsAre(384, 64, 64, 1));
  // Five sets of six pages; a page has 16 tokens of one head behind each other.
  EXPECT_THAT(call->cache.sizes, ElementsAre(30, 2, 16, 64));
  EXPECT_THAT(call->cache.strides, ElementsAre(2048, 1024, 64, 1));
  EXPECT_THAT(call->page_table.sizes, ElementsAre(3, 1, 3, 1));
  EXPECT_THAT(call->page_table.strides, ElementsAre(3, 3, 1, 1));
  EXPECT_THAT(call->lengths.sizes, ElementsAre(3, 1, 1, 1));
  EXPECT_EQ(call->sets, 5);
}

TEST(CudnnPlan, ContiguousCall_TakesWhatFits) {
  const auto call = cudnn_call(CudnnForm::contiguous, kHeads, kTokens, 5);
  ASSERT_TRUE(call);
  // Three sequences of at most 48 tokens are nine pages; 30 pages have space for three such sets.
  EXPECT_THAT(call->cache.sizes, ElementsAre(3, 2, 48, 64));
  EXPECT_THAT(call->cache.strides, ElementsAre(6144, 3072, 64, 1));
  EXPECT_EQ(call->sets, 3);
  EXPECT_EQ(call->set_numbers, 3 * 6144);
  // One set has six pages.
  EXPECT_FALSE(cudnn_call(CudnnForm::contiguous, kHeads, kTokens, 1));
  // Sequences of one length fit exactly.
  const std::vector<std::int64_t> equal(7, 33);
  const auto all = cudnn_call(CudnnForm::contiguous, kHeads, equal, 4);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->sets, 4);
}

TEST(CudnnPlan, PageTable_RowsOfOneLengthForEverySet) {
  // Two sets of sequences with one and three pages.
  const PageTable table{{0, 1, 4, 5, 8}, {7, 2, 0, 5, 1, 6, 3, 4}};
  EXPECT_THAT(cudnn_page_table(table, 2), ElementsAre(7, 7, 7, 2, 0, 5, 1, 1, 1, 6, 3, 4));
}

TEST(CudnnPlan, Trial_HasRoomForTheContiguousForm) {
  const Sequences trial = cudnn_trial();
  EXPECT_THAT(trial.query_tokens, Each(1));
  EXPECT_EQ(trial.query_tokens.size(), trial.kv_tokens.size());
  EXPECT_TRUE(cudnn_call(CudnnForm::contiguous, kHeads, trial.kv_tokens, kTrialSets));
}

TEST(CudnnPlan, PagesOfContiguous_NumbersFindTheirPlaces) {
  // [2 sequences][3 heads][32 tokens][4]: each number is its own index.
  const CudnnTensor cache{{2, 3, 32, 4}, {384, 128, 4, 1}};
  std::vector<float> numbers(800);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  const PagedNumbers paged = pages_of_contiguous(cache, numbers);
  EXPECT_THAT(paged.table.first, ElementsAre(0, 2, 4));
  EXPECT_THAT(paged.table.pages, ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(paged.numbers.size(), 768U);
  for (std::size_t sequence = 0; sequence < 2; ++sequence) {
    for (std::size_t head = 0; head < 3; ++head) {
      for (std::size_t token = 0; token < 32; ++token) {
        const std::size_t page = 2 * sequence + token / 16;
        EXPECT_EQ(paged.numbers[((page * 3 + head) * 16 + token % 16) * 4 + 3],
                  static_cast<float>(((sequence * 3 + head) * 32 + token) * 4 + 3));
      }
    }
  }
}

TEST(CudnnPlan, FirstWrong_TwoUnitsOfRoundoff) {
  // bf16: 2^-8 of weights and result, twice: 2^-7 (1 + |want|).
  const std::vector<float> want{0.0F, -0.5F};
  EXPECT_FALSE(first_wrong(std::vector<float>{0x1p-7F, -0.5F + 1.5F * 0x1p-7F}, want, Number::bf16));
  EXPECT_THAT(first_wrong(std::vector<float>{0.0F, -0.5F + 1.6F * 0x1p-7F}, want, Number::bf16).value_or(""),
              HasSubstr("number 1 of cuDNN's result is -0.4875, but should be -0.5"));
  // fp16: an eighth of that.
  EXPECT_FALSE(first_wrong(std::vector<float>{0x1p-10F, -0.5F}, want, Number::fp16));
  EXPECT_TRUE(first_wrong(std::vector<float>{0x1.1p-10F, -0.5F}, want, Number::fp16));
  EXPECT_TRUE(first_wrong(std::vector<float>{std::numeric_limits<float>::quiet_NaN(), -0.5F}, want, Number::bf16));
}

}  // namespace
}  // namespace spillway::calibrate::gpu
