#include "cuda_calibrate/cuda/cudnn_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace spillway::calibrate::gpu {
namespace {

std::int64_t pages_of(std::int64_t tokens) { return (tokens + kPageSize - 1) / kPageSize; }

/// A tensor whose last dimension is contiguous.
CudnnTensor dense(const std::array<std::int64_t, 4>& sizes) {
  return {sizes, {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1}};
}

}  // namespace

std::string cudnn_kernel(std::size_t version, CudnnForm form) {
  return fmt::format("cudnn-{}.{}{}", version / 10000, version % 10000 / 100, form == CudnnForm::paged ? " paged" : "");
}

std::optional<CudnnCall> cudnn_call(CudnnForm form, const Heads& heads, std::span<const std::int64_t> kv_tokens,
                                    std::int64_t sets) {
  const auto batch = static_cast<std::int64_t>(kv_tokens.size());
  const std::int64_t most_pages = pages_of(*std::max_element(kv_tokens.begin(), kv_tokens.end()));
  const std::int64_t pages =
      sets * std::transform_reduce(kv_tokens.begin(), kv_tokens.end(), std::int64_t{0}, std::plus<>(), pages_of);
  CudnnCall call{.queries = dense({batch, heads.query, 1, heads.size}),
                 .cache = dense({pages, heads.kv, kPageSize, heads.size}),
                 .page_table = dense({batch, 1, most_pages, 1}),
                 .lengths = dense({batch, 1, 1, 1}),
                 .set_numbers = 0,
                 .sets = sets};
  if (form == CudnnForm::paged) return call;
  call.cache = dense({batch, heads.kv, most_pages * kPageSize, heads.size});
  call.set_numbers = batch * call.cache.strides[0];
  call.sets = pages / (batch * most_pages);
  return call.sets > 0 ? std::optional(call) : std::nullopt;
}

std::vector<std::int32_t> cudnn_page_table(const PageTable& table, std::int64_t batch) {
  const auto sequences = table.first.size() - 1;
  std::int32_t most = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(batch); ++i) {
    most = std::max(most, table.first[i + 1] - table.first[i]);
  }
  std::vector<std::int32_t> rows;
  rows.reserve(sequences * static_cast<std::size_t>(most));
  for (std::size_t i = 0; i < sequences; ++i) {
    for (std::int32_t page = 0; page < most; ++page) {
      const std::int32_t entry = std::min(table.first[i] + page, table.first[i + 1] - 1);
      rows.push_back(table.pages[static_cast<std::size_t>(entry)]);
    }
  }
  return rows;
}

Sequences cudnn_trial() { return {{1, 1, 1, 1}, {1, 17, 130, 2100}}; }

PagedNumbers pages_of_contiguous(const CudnnTensor& cache, std::span<const float> numbers) {
  const auto [batch, heads, tokens, size] = cache.sizes;
  PagedNumbers paged;
  paged.numbers.reserve(static_cast<std::size_t>(batch * heads * tokens * size));
  paged.table.first.push_back(0);
  for (std::int64_t sequence = 0; sequence < batch; ++sequence) {
    paged.table.first.push_back(static_cast<std::int32_t>((sequence + 1) * tokens / kPageSize));
    for (std::int64_t token = 0; token < tokens; token += kPageSize) {
      for (std::int64_t head = 0; head < heads; ++head) {
        const auto from =
            numbers.begin() + sequence * cache.strides[0] + head * cache.strides[1] + token * cache.strides[2];
        paged.numbers.insert(paged.numbers.end(), from, from + kPageSize * size);
      }
    }
  }
  paged.table.pages.resize(static_cast<std::size_t>(paged.table.first.back()));
  std::iota(paged.table.pages.begin(), paged.table.pages.end(), 0);
  return paged;
}

std::optional<std::string> first_wrong(std::span<const float> got, std::span<const float> want, Number number) {
  const double roundoff = number == Number::fp16 ? 0x1p-11 : 0x1p-8;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(double{got[i]} - double{want[i]});
    if (error <= 2.0 * roundoff * (1.0 + std::abs(double{want[i]}))) continue;  // false for NaN
    return fmt::format("number {} of cuDNN's result is {}, but should be {}", i, got[i], want[i]);
  }
  return std::nullopt;
}

}  // namespace spillway::calibrate::gpu
