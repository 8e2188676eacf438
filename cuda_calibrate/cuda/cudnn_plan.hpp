// Decode attention in cuDNN's terms, without cuDNN: shapes, page tables, and when its results are right.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuda_calibrate/cuda/attention_plan.hpp"

namespace spillway::calibrate::gpu {

/// How keys and values lie: in the pages of a table, or each sequence's behind each other.
enum class CudnnForm : std::uint8_t { paged, contiguous };
inline constexpr std::array<CudnnForm, 2> kCudnnForms{CudnnForm::paged, CudnnForm::contiguous};  // the better one first

/// "cudnn-9.19 paged" or "cudnn-9.19"; `version` as of cudnnGetVersion, 91900.
[[nodiscard]] std::string cudnn_kernel(std::size_t version, CudnnForm form);

/// Numbers of a tensor by dimension, and by how many the next one of each dimension lies behind.
struct CudnnTensor {
  std::array<std::int64_t, 4> sizes;
  std::array<std::int64_t, 4> strides;
};

/// One call: `batch` sequences with one query token each, as they lie in AttentionCall's arrays.
struct CudnnCall {
  CudnnTensor queries;           // [sequence][query head][1][size], and the results
  CudnnTensor cache;             // keys, values: [page][KV head][kPageSize][size], or [sequence][KV head][token][size]
  CudnnTensor page_table;        // [sequence][1][page of the sequence][1]
  CudnnTensor lengths;           // [sequence][1][1][1], of queries and of KV
  std::int64_t set_numbers = 0;  // of keys from those of one contiguous set to the next one's; 0 for pages
  std::int64_t sets = 0;         // calls over other keys and values
};
/// Over a cache of `sets` sets of sequences with `kv_tokens`, whose pages lie anywhere in it. The contiguous form takes
/// the same memory as if every sequence were as long as the longest one; empty when it is too small for that.
[[nodiscard]] std::optional<CudnnCall> cudnn_call(CudnnForm form, const Heads& heads,
                                                  std::span<const std::int64_t> kv_tokens, std::int64_t sets);

/// For each set and sequence its pages, as many as the longest sequence has: the last one again and again behind the
/// end.
[[nodiscard]] std::vector<std::int32_t> cudnn_page_table(const PageTable& table, std::int64_t batch);

/// Sequences of the call that cuDNN proves itself by: one token, a page and one token, several pages, and so many that
/// the work on a sequence is split.
[[nodiscard]] Sequences cudnn_trial();
/// Sets of them that the contiguous form has room in.
inline constexpr std::int64_t kTrialSets = 4;

/// The first set of keys or values of contiguous form as pages [page][KV head][kPageSize][size], behind each other, and
/// their table, for reference_attention().
struct PagedNumbers {
  PageTable table;
  std::vector<float> numbers;
};
[[nodiscard]] PagedNumbers pages_of_contiguous(const CudnnTensor& cache, std::span<const float> numbers);

/// What is said of the first number that is not what it should be; empty when all are right. Weights are rounded to
/// `number` before values of at most 1 are summed up by them, which makes up to a unit of roundoff, and the result is
/// rounded once more: that is taken twice, for sums in fp32 and for 2^x.
[[nodiscard]] std::optional<std::string> first_wrong(std::span<const float> got, std::span<const float> want,
                                                     Number number);

}  // namespace spillway::calibrate::gpu
