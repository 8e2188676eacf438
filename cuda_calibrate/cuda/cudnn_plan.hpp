// Decode attention in cuDNN's terms, without cuDNN: shapes, page tables, and the check of results.
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

/// Layout of keys and values: in pages of a table, or contiguous for each sequence.
enum class CudnnForm : std::uint8_t { paged, contiguous };
inline constexpr std::array<CudnnForm, 2> kCudnnForms{CudnnForm::paged,
                                                      CudnnForm::contiguous};  // in order of preference

/// "cudnn-9.19 paged" or "cudnn-9.19". `version` has the format of cudnnGetVersion: 91900.
[[nodiscard]] std::string cudnn_kernel(std::size_t version, CudnnForm form);

/// The size of each dimension of a tensor, and the distance between neighbours in each dimension.
struct CudnnTensor {
  std::array<std::int64_t, 4> sizes;
  std::array<std::int64_t, 4> strides;
};

/// One call: `batch` sequences with one query token each, with the layout of AttentionCall's arrays.
struct CudnnCall {
  CudnnTensor queries;           // [sequence][query head][1][size], same for results
  CudnnTensor cache;             // keys, values: [page][KV head][kPageSize][size], or [sequence][KV head][token][size]
  CudnnTensor page_table;        // [sequence][1][page of the sequence][1]
  CudnnTensor lengths;           // [sequence][1][1][1], for queries and for KV
  std::int64_t set_numbers = 0;  // distance between contiguous sets of keys or values; 0 for pages
  std::int64_t sets = 0;         // calls over different keys and values
};
/// A call over a cache of `sets` sets of sequences with `kv_tokens`. Pages may lie anywhere in the cache. The
/// contiguous form uses the same memory as if every sequence were as long as the longest; empty if the memory is too
/// small.
[[nodiscard]] std::optional<CudnnCall> cudnn_call(CudnnForm form, const Heads& heads,
                                                  std::span<const std::int64_t> kv_tokens, std::int64_t sets);

/// The pages of each set and sequence, padded to the longest sequence by repeating the last page.
[[nodiscard]] std::vector<std::int32_t> cudnn_page_table(const PageTable& table, std::int64_t batch);

/// The trial sequences for cuDNN: one token, a page and one token, several pages, and enough pages that the work on a
/// sequence is split.
[[nodiscard]] Sequences cudnn_trial();
/// Trial sets that the contiguous form can store.
inline constexpr std::int64_t kTrialSets = 4;

/// The first contiguous set of keys or values as consecutive pages [page][KV head][kPageSize][size], with a page table,
/// for reference_attention().
struct PagedNumbers {
  PageTable table;
  std::vector<float> numbers;
};
[[nodiscard]] PagedNumbers pages_of_contiguous(const CudnnTensor& cache, std::span<const float> numbers);

/// Describes the first wrong number; empty when all numbers are right. Weights are rounded to `number` before they
/// multiply values of at most 1, an error of up to one unit of roundoff; the result is rounded once more. The tolerance
/// is twice that, to allow for sums in fp32 and for 2^x.
[[nodiscard]] std::optional<std::string> first_wrong(std::span<const float> got, std::span<const float> want,
                                                     Number number);

}  // namespace spillway::calibrate::gpu
