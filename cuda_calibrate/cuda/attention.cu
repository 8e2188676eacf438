#include "cuda_calibrate/cuda/attention.hpp"
#include "cuda_calibrate/cuda/check.hpp"
// attention_kernels.cuh uses warp.cuh, so warp.cuh comes first.
// clang-format off
#include "cuda_calibrate/cuda/warp.cuh"
#include "cuda_calibrate/cuda/attention_kernels.cuh"
// clang-format on

namespace spillway::calibrate::gpu {
namespace {

template <typename T, int kSize>
void enqueue(const AttentionCall& call, cudaStream_t stream) {
  const int group = call.query_heads / call.kv_heads;
  const int row_tiles = (group + static_cast<int>(kDecodeRows) - 1) / static_cast<int>(kDecodeRows);
  const auto blocks = static_cast<unsigned>((call.prefill_items + call.decode_items * row_tiles) * call.kv_heads);
  if (call.prefill_items == 0) {
    attention_kernel<T, kSize, Parts::decode><<<blocks, kThreads, 0, stream>>>(call);
  } else if (call.decode_items == 0) {
    attention_kernel<T, kSize, Parts::prefill><<<blocks, kThreads, 0, stream>>>(call);
  } else {
    attention_kernel<T, kSize, Parts::both><<<blocks, kThreads, 0, stream>>>(call);
  }
  check_launch("attention kernel");
  if (call.combine_items == 0) return;
  const dim3 grid(static_cast<unsigned>(call.combine_items), static_cast<unsigned>(call.query_heads));
  combine_kernel<T, kSize><<<grid, kSize, 0, stream>>>(call);
  check_launch("attention combine kernel");
}

}  // namespace

void enqueue_attention(const AttentionCall& call, std::int64_t size, Number number, cudaStream_t stream) {
  if (number == Number::bf16) {
    if (size == 64) {
      enqueue<__nv_bfloat16, 64>(call, stream);
    } else {
      enqueue<__nv_bfloat16, 128>(call, stream);
    }
  } else {
    if (size == 64) {
      enqueue<__half, 64>(call, stream);
    } else {
      enqueue<__half, 128>(call, stream);
    }
  }
}

}  // namespace spillway::calibrate::gpu
