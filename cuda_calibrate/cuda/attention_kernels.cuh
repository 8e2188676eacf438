// The attention kernels (attention.hpp). warp.cuh provides the warp functions and is included first. Tests include an
// emulation of warp.cuh instead and run the kernels on the CPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "cuda_calibrate/cuda/attention.hpp"

namespace spillway::calibrate::gpu {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kPage = static_cast<int>(kPageSize);
constexpr int kTile = 64;  // tokens of KV in shared memory, for prefill
constexpr float kNone = -INFINITY;

__device__ std::uint32_t packed(float low, float high, __half) {
  const __half2 both = __floats2half2_rn(low, high);
  std::uint32_t bits;
  std::memcpy(&bits, &both, sizeof bits);
  return bits;
}
__device__ std::uint32_t packed(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  std::uint32_t bits;
  std::memcpy(&bits, &both, sizeof bits);
  return bits;
}

/// Maximum over the four lanes that share a row.
__device__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 2));
}
__device__ float row_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFU, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFU, x, 2);
}

/// Running maximum and sum of rows g and g + 8. Scores are base-2 logarithms; masked scores are kNone. Every row needs
/// at least one unmasked score so far. Replaces scores by 2^(score - maximum) and scales earlier results to the new
/// maximum.
template <int kScores, int kResults>
__device__ void soften(float (&scores)[kScores][4], float (&results)[kResults][4], float (&maximum)[2],
                       float (&sum)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float highest = kNone;
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      highest = fmaxf(highest, fmaxf(scores[i][2 * half], scores[i][2 * half + 1]));
    }
    highest = fmaxf(maximum[half], row_max(highest));
    const float rescale = exp2f(maximum[half] - highest);
    maximum[half] = highest;
    sum[half] *= rescale;
#pragma unroll
    for (int i = 0; i < kResults; ++i) {
      results[i][2 * half] *= rescale;
      results[i][2 * half + 1] *= rescale;
    }
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
#pragma unroll
      for (int j = 2 * half; j < 2 * half + 2; ++j) {
        scores[i][j] = exp2f(scores[i][j] - highest);
        sum[half] += scores[i][j];
      }
    }
  }
}

template <typename T, int kSize>
__device__ void decode(const AttentionCall& call, int block, unsigned char* shared) {
  constexpr int kRows = static_cast<int>(kDecodeRows);
  constexpr int kRounds = kSize / 32;   // rounds over K: 16 bytes per lane give 32 numbers of a token from four lanes
  constexpr int kVRounds = kSize / 64;  // rounds over V: 16 bytes per lane give 64 numbers of a token from eight lanes
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4;
  const int t = lane % 4;

  const int group = call.query_heads / call.kv_heads;
  const int row_tiles = (group + kRows - 1) / kRows;
  const int kv_head = block % call.kv_heads;
  const int first_row = block / call.kv_heads % row_tiles * kRows;
  const DecodeItem item = call.decode[block / call.kv_heads / row_tiles];
  const int rows = min(kRows, group - first_row);
  const int first_head = kv_head * group + first_row;
  const std::int64_t token = call.query_first[item.sequence];
  const auto* queries = static_cast<const T*>(call.queries) + (token * call.query_heads + first_head) * kSize;

  // Lane t has numbers 8 t .. 8 t + 7 of each round's 32. The first four numbers go into the first product over 16, the
  // last four into the second. K uses the same order.
  std::uint32_t q[kRounds][2][4];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // rows g and g + 8
      uint4 word = {0, 0, 0, 0};
      if (g + 8 * half < rows) {
        word = *reinterpret_cast<const uint4*>(queries + (g + 8 * half) * kSize + round * 32 + t * 8);
      }
      q[round][0][half] = word.x;
      q[round][0][half + 2] = word.y;
      q[round][1][half] = word.z;
      q[round][1][half + 2] = word.w;
    }
  }

  float results[kSize / 8][4] = {};
  float maximum[2] = {kNone, kNone};
  float sum[2] = {0.0F, 0.0F};
  const std::int32_t* pages = call.pages + call.page_first[item.sequence];
  const int last = (item.end + kPage - 1) / kPage;
  int page = item.begin / kPage + warp;
  std::int64_t physical = page < last ? pages[page] : 0;
  for (; page < last; page += kWarps) {
    const std::int64_t start = (physical * call.kv_heads + kv_head) * kPage * kSize;
    const T* keys = static_cast<const T*>(call.keys) + start;
    const T* values = static_cast<const T*>(call.values) + start;
    uint4 k[2][kRounds];  // tokens g and g + 8
#pragma unroll
    for (int tokens = 0; tokens < 2; ++tokens) {
#pragma unroll
      for (int round = 0; round < kRounds; ++round) {
        k[tokens][round] = __ldg(reinterpret_cast<const uint4*>(keys + (tokens * 8 + g) * kSize + round * 32 + t * 8));
      }
    }
    uint4 v[kVRounds][4];  // tokens 2 t, 2 t + 1, 2 t + 8, 2 t + 9
#pragma unroll
    for (int round = 0; round < kVRounds; ++round) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int of = 2 * t + i % 2 + i / 2 * 8;
        v[round][i] = __ldg(reinterpret_cast<const uint4*>(values + of * kSize + round * 64 + g * 8));
      }
    }
    if (page + kWarps < last) physical = pages[page + kWarps];

    float scores[2][4] = {};
#pragma unroll
    for (int tokens = 0; tokens < 2; ++tokens) {
#pragma unroll
      for (int round = 0; round < kRounds; ++round) {
        const uint4 word = k[tokens][round];
        multiply(scores[tokens], q[round][0], word.x, word.y, T());
        multiply(scores[tokens], q[round][1], word.z, word.w, T());
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int position = page * kPage + tokens * 8 + 2 * t + i % 2;
        scores[tokens][i] = position < item.end ? scores[tokens][i] * call.scale : kNone;
      }
    }
    soften(scores, results, maximum, sum);

    const std::uint32_t weights[4] = {packed(scores[0][0], scores[0][1], T()), packed(scores[0][2], scores[0][3], T()),
                                      packed(scores[1][0], scores[1][1], T()), packed(scores[1][2], scores[1][3], T())};
    // Column g of product j is number 8 g + j of the round's 64: lane g has these numbers of its four tokens.
#pragma unroll
    for (int round = 0; round < kVRounds; ++round) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        std::uint32_t pick[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint4 word = v[round][i];
          pick[i] = j / 2 == 0 ? word.x : j / 2 == 1 ? word.y : j / 2 == 2 ? word.z : word.w;
        }
        const unsigned halves = j % 2 == 0 ? 0x5410U : 0x7632U;
        multiply(results[round * 8 + j], weights, __byte_perm(pick[0], pick[1], halves),
                 __byte_perm(pick[2], pick[3], halves), T());
      }
    }
  }

  auto* warp_results = reinterpret_cast<float*>(shared);  // [kWarps][kRows][kSize]
  float* warp_maximum = warp_results + kWarps * kRows * kSize;
  float* warp_sum = warp_maximum + kWarps * kRows;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp * kRows + g + 8 * half;
    const float total = row_sum(sum[half]);
    if (t == 0) {
      warp_maximum[row] = maximum[half];
      warp_sum[row] = total;
    }
#pragma unroll
    for (int i = 0; i < kSize / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int column = i / 8 * 64 + (2 * t + j) * 8 + i % 8;
        warp_results[row * kSize + column] = results[i][2 * half + j];
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < rows * kSize; i += kThreads) {
    const int row = i / kSize;
    const int column = i % kSize;
    float highest = kNone;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) highest = fmaxf(highest, warp_maximum[w * kRows + row]);
    float total = 0.0F;
    float result = 0.0F;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {  // a warp without pages has kNone, 0 and zeros
      const float part = exp2f(warp_maximum[w * kRows + row] - highest);
      total += part * warp_sum[w * kRows + row];
      result += part * warp_results[(w * kRows + row) * kSize + column];
    }
    result /= total;
    if (item.partial < 0) {
      static_cast<T*>(call.results)[(token * call.query_heads + first_head + row) * kSize + column] = T(result);
    } else {
      const std::int64_t slot = std::int64_t{item.partial} * call.query_heads + first_head + row;
      call.partial_results[slot * kSize + column] = result;
      if (column == 0) call.partial_logs[slot] = highest + log2f(total);
    }
  }
}

/// Position of word `word` of token `row` in a tile. The swizzle puts eight rows of one column into different banks.
template <int kSize>
__device__ int tile_word(int row, int word) {
  return row * (kSize / 8) + (word ^ (row & 7));
}

/// Loads kTile tokens from `start` on. Beyond the sequence's last page, loads the last page again; the mask hides these
/// tokens.
template <typename T, int kSize>
__device__ void fetch_tile(uint4* tile, const void* cache, const std::int32_t* pages, int last_page, int start,
                           int kv_heads, int kv_head) {
  constexpr int kWords = kSize / 8;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kWords; i += kThreads) {
    const int row = i / kWords;
    const int word = i % kWords;
    const std::int64_t page = pages[min((start + row) / kPage, last_page)];
    const T* from =
        static_cast<const T*>(cache) + ((page * kv_heads + kv_head) * kPage + row % kPage) * kSize + word * 8;
    fetch(tile + tile_word<kSize>(row, word), reinterpret_cast<const uint4*>(from));
  }
  end_of_batch();
}

template <typename T, int kSize>
__device__ void prefill(const AttentionCall& call, int block, unsigned char* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4;
  const int t = lane % 4;

  const int group = call.query_heads / call.kv_heads;
  const int kv_head = block % call.kv_heads;
  const PrefillItem item = call.prefill[block / call.kv_heads];
  const int rows = call.query_tokens[item.sequence] * group;
  const int kv_tokens = call.kv_tokens[item.sequence];
  const int context = kv_tokens - call.query_tokens[item.sequence];
  const std::int32_t* pages = call.pages + call.page_first[item.sequence];
  const int last_page = (kv_tokens - 1) / kPage;

  // Rows g and g + 8 of this warp's 16. Rows beyond the last row are computed from zeros with the last row's token, and
  // not stored.
  int row[2];
  int position[2];
  std::int64_t place[2];
  std::uint32_t q[kSize / 16][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    row[half] = item.first_row + warp * 16 + g + 8 * half;
    const int within = min(row[half], rows - 1);
    position[half] = context + within / group;
    const std::int64_t token = call.query_first[item.sequence] + within / group;
    place[half] = (token * call.query_heads + kv_head * group + within % group) * kSize;
    const T* from = static_cast<const T*>(call.queries) + place[half];
#pragma unroll
    for (int step = 0; step < kSize / 16; ++step) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        q[step][half + 2 * part] =
            row[half] < rows ? *reinterpret_cast<const std::uint32_t*>(from + step * 16 + part * 8 + 2 * t) : 0U;
      }
    }
  }
  const int first_position = context + min(item.first_row + warp * 16, rows - 1) / group;
  const int end = context + min(item.first_row + static_cast<int>(kPrefillRows), rows) / group +
                  (min(item.first_row + static_cast<int>(kPrefillRows), rows) % group != 0 ? 1 : 0);

  auto* keys = reinterpret_cast<uint4*>(shared);
  uint4* values = keys + kTile * kSize / 8;
  float results[kSize / 8][4] = {};
  float maximum[2] = {kNone, kNone};
  float sum[2] = {0.0F, 0.0F};
  fetch_tile<T, kSize>(keys, call.keys, pages, last_page, 0, call.kv_heads, kv_head);
  for (int start = 0; start < end; start += kTile) {
    await_batches<0>();
    __syncthreads();  // the keys have arrived, and no thread still reads the last tile's values
    fetch_tile<T, kSize>(values, call.values, pages, last_page, start, call.kv_heads, kv_head);

    float scores[kTile / 8][4] = {};
#pragma unroll
    for (int step = 0; step < kSize / 16; ++step) {
#pragma unroll
      for (int pair = 0; pair < kTile / 16; ++pair) {
        // Matrices: tokens 0-7 and 8-15 of the pair, each with words 2 step and 2 step + 1.
        std::uint32_t k[4];
        const int token = pair * 16 + lane / 16 * 8 + lane % 8;
        load_matrices(k, keys + tile_word<kSize>(token, 2 * step + lane / 8 % 2));
        multiply(scores[2 * pair], q[step], k[0], k[1], T());
        multiply(scores[2 * pair + 1], q[step], k[2], k[3], T());
      }
    }
    __syncthreads();  // no thread still reads these keys
    if (start + kTile < end) {
      fetch_tile<T, kSize>(keys, call.keys, pages, last_page, start + kTile, call.kv_heads, kv_head);
    } else {
      end_of_batch();
    }

    const bool masked = start + kTile - 1 > first_position;
#pragma unroll
    for (int i = 0; i < kTile / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        scores[i][j] *= call.scale;
        if (masked && start + i * 8 + 2 * t + j % 2 > position[j / 2]) scores[i][j] = kNone;
      }
    }
    soften(scores, results, maximum, sum);
    await_batches<1>();
    __syncthreads();  // the values have arrived
#pragma unroll
    for (int step = 0; step < kTile / 16; ++step) {
      const std::uint32_t weights[4] = {packed(scores[2 * step][0], scores[2 * step][1], T()),
                                        packed(scores[2 * step][2], scores[2 * step][3], T()),
                                        packed(scores[2 * step + 1][0], scores[2 * step + 1][1], T()),
                                        packed(scores[2 * step + 1][2], scores[2 * step + 1][3], T())};
#pragma unroll
      for (int pair = 0; pair < kSize / 16; ++pair) {
        // Matrices: words 2 pair and 2 pair + 1, each with tokens 0-7 and 8-15 of the step.
        std::uint32_t v[4];
        const int token = step * 16 + lane / 8 % 2 * 8 + lane % 8;
        load_transposed(v, values + tile_word<kSize>(token, 2 * pair + lane / 16));
        multiply(results[2 * pair], weights, v[0], v[1], T());
        multiply(results[2 * pair + 1], weights, v[2], v[3], T());
      }
    }
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = row_sum(sum[half]);
    if (row[half] >= rows) continue;
    T* to = static_cast<T*>(call.results) + place[half];
#pragma unroll
    for (int i = 0; i < kSize / 8; ++i) {
      *reinterpret_cast<std::uint32_t*>(to + i * 8 + 2 * t) =
          packed(results[i][2 * half] / total, results[i][2 * half + 1] / total, T());
    }
  }
}

enum class Parts { decode, prefill, both };

template <typename T, int kSize, Parts kParts>
__global__ void __launch_bounds__(kThreads, 2) attention_kernel(const AttentionCall call) {
  constexpr int kDecodeBytes = kWarps * static_cast<int>(kDecodeRows) * (kSize + 2) * static_cast<int>(sizeof(float));
  constexpr int kPrefillBytes = 2 * kTile * kSize * static_cast<int>(sizeof(T));
  constexpr int kBytes = kDecodeBytes > kPrefillBytes ? kDecodeBytes : kPrefillBytes;
  __shared__ __align__(16) unsigned char shared[kBytes];
  const int block = static_cast<int>(blockIdx.x);
  const int prefills = call.prefill_items * call.kv_heads;
  if constexpr (kParts == Parts::decode) {
    decode<T, kSize>(call, block, shared);
  } else if constexpr (kParts == Parts::prefill) {
    prefill<T, kSize>(call, block, shared);
  } else if (block < prefills) {
    prefill<T, kSize>(call, block, shared);
  } else {
    decode<T, kSize>(call, block - prefills, shared);
  }
}

/// One thread block per sequence and query head, one thread per number of the result.
template <typename T, int kSize>
__global__ void __launch_bounds__(kSize) combine_kernel(const AttentionCall call) {
  const CombineItem item = call.combine[blockIdx.x];
  const int head = static_cast<int>(blockIdx.y);
  const int column = static_cast<int>(threadIdx.x);
  const std::int64_t first = std::int64_t{item.first} * call.query_heads + head;
  float highest = kNone;
  for (int i = 0; i < item.count; ++i) {
    highest = fmaxf(highest, call.partial_logs[first + std::int64_t{i} * call.query_heads]);
  }
  float total = 0.0F;
  float result = 0.0F;
  for (int i = 0; i < item.count; ++i) {
    const std::int64_t slot = first + std::int64_t{i} * call.query_heads;
    const float part = exp2f(call.partial_logs[slot] - highest);
    total += part;
    result += part * call.partial_results[slot * kSize + column];
  }
  const std::int64_t token = call.query_first[item.sequence];
  static_cast<T*>(call.results)[(token * call.query_heads + head) * kSize + column] = T(result / total);
}

}  // namespace
}  // namespace spillway::calibrate::gpu
