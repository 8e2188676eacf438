#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "cuda_calibrate/cuda/attention_op.hpp"
#include "cuda_calibrate/cuda/attention_reference.hpp"
#include "cuda_calibrate/cuda/kernels.hpp"
#include "cuda_calibrate/cuda/numbers.hpp"
#include "cuda_calibrate/cuda/self_test.hpp"

namespace spillway::calibrate::gpu {
namespace {

/// The tolerance covers rounding to the number's fraction, both of the result and of the weights summed in it.
void expect_near(const std::vector<float>& got, const std::vector<double>& want, Number number,
                 const std::string& what) {
  const double ulp = number == Number::fp16 ? 0x1p-10 : 0x1p-7;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(double{got[i]} - want[i]);
    if (error <= ulp * (0.5 + std::abs(want[i]))) continue;  // false for NaN
    throw DeviceError(fmt::format("self-test: {}: number {} is {}, but should be {}", what, i, got[i], want[i]), false);
  }
}

void check_attention(Gpu& gpu, Number number) {
  const auto one = [&](const std::string& name, const Heads& heads, const Sequences& sequences) {
    // With two sets, the tables name pages in a pool that is larger than the pool of one call.
    AttentionOp op(gpu, heads, sequences, number, 2);
    op.enqueue(gpu.stream(StreamOf::compute));
    gpu.finish();
    const std::vector<float> want = reference_attention(heads, sequences, op.table(), numbers_in(op.queries(), number),
                                                        numbers_in(op.keys(), number), numbers_in(op.values(), number));
    expect_near(numbers_in(op.results(), number), {want.begin(), want.end()}, number,
                fmt::format("{} with {}/{} heads of {}, {}", name, heads.query, heads.kv, heads.size,
                            number == Number::bf16 ? "bf16" : "fp16"));
  };
  for (const Heads& heads : {Heads{4, 4, 64}, Heads{6, 2, 64}, Heads{8, 2, 128}, Heads{40, 2, 128}}) {
    // One token, part of a page, whole pages, several parts of a sequence.
    one("decode", heads, {{1, 1, 1, 1, 1}, {1, 7, 32, 129, 1000}});
    // No context; fewer rows than a tile; several tiles; a context that ends within a page.
    one("prefill", heads, {{1 + 4, 64, 150, 33}, {5, 64, 150, 33 + 71}});
    one("mixed", heads, {{70, 1, 1, 20}, {70 + 35, 300, 15, 20}});
  }
}

void check_blocks(Gpu& gpu) {
  constexpr std::int64_t kBytes = 592;  // 37 words: not a whole number of pieces
  constexpr std::int64_t kBlocks = 23;
  constexpr std::int64_t kSlots = 40;
  gpu.use();
  const DeviceMemory pool = gpu.random_memory(kSlots * kBytes);
  HostBlock host(HostMemory::pinned, kSlots * kBytes);
  const auto from = block_slots(Order::random, kBlocks, kSlots, 0, gpu.next_seed());
  const auto to = block_slots(Order::random, kBlocks, kSlots, 1, gpu.next_seed());
  const DeviceMemory from_slots = uploaded(from);
  const DeviceMemory to_slots = uploaded(to);
  cudaStream_t stream = gpu.stream(StreamOf::compute);
  const auto compare = [](const std::vector<std::uint8_t>& got, const std::vector<std::uint8_t>& want,
                          const char* what) {
    const auto differ = std::mismatch(got.begin(), got.end(), want.begin()).first;
    if (differ == got.end()) return;
    throw DeviceError(fmt::format("self-test: {}: byte {} is wrong", what, differ - got.begin()), false);
  };
  const auto source = downloaded<std::uint8_t>(pool);
  std::vector<std::uint8_t> scattered(source.size(), 0);
  std::vector<std::uint8_t> gathered(source.size(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::copy_n(source.begin() + from[i] * kBytes, kBytes, scattered.begin() + to[i] * kBytes);
    std::copy_n(source.begin() + from[i] * kBytes, kBytes, gathered.begin() + static_cast<std::ptrdiff_t>(i) * kBytes);
  }

  std::fill_n(host.data(), host.bytes(), std::byte{0});
  enqueue_blocks(
      {pool.data(), from_slots.as<std::int64_t>(), host.on_gpu(), to_slots.as<std::int64_t>(), kBytes, kBlocks}, 3,
      stream);
  gpu.finish();
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(host.data());
  compare({bytes, bytes + host.bytes()}, scattered, "blocks from the GPU to the host");

  DeviceMemory target(kSlots * kBytes);
  check(cudaMemset(target.data(), 0, kSlots * kBytes), "cudaMemset");
  gpu.finish();
  enqueue_blocks({host.on_gpu(), to_slots.as<std::int64_t>(), target.data(), nullptr, kBytes, kBlocks}, 2, stream);
  gpu.finish();
  compare(downloaded<std::uint8_t>(target), gathered, "blocks from the host to the GPU");
}

void check_gemm(Gpu& gpu, Number number) {
  const Gemm point{48, 64, 96, number, 1};
  const GemmCheck one = run_gemm(gpu, point);
  const auto weights = numbers_in(*one.weights, point.n * point.k, number);
  const auto x = numbers_in(*one.x, point.m * point.k, number);
  std::vector<double> want;
  want.reserve(static_cast<std::size_t>(point.m * point.n));
  for (std::int64_t row = 0; row < point.m; ++row) {
    for (std::int64_t column = 0; column < point.n; ++column) {
      want.push_back(std::inner_product(x.begin() + row * point.k, x.begin() + (row + 1) * point.k,
                                        weights.begin() + column * point.k, 0.0));
    }
  }
  const Number result = number == Number::fp8 ? Number::bf16 : number;
  expect_near(numbers_in(*one.y, result), want, result, "GEMM");
}

void check_elementwise(Gpu& gpu) {
  constexpr std::int64_t kTokens = 3;
  constexpr std::int64_t kWidth = 256;  // two heads for rope
  gpu.use();
  const DeviceMemory x = gpu.random_memory(kTokens * kWidth * 4);
  const DeviceMemory weights = gpu.random_memory(kWidth * 2);
  const DeviceMemory turns = gpu.random_memory(kTokens * 128 * 4, Number::fp32);
  DeviceMemory y(kTokens * kWidth * 2);
  const auto in = numbers_in(x, Number::bf16);
  const auto weight = numbers_in(weights, Number::bf16);
  const auto turn = downloaded<float>(turns);
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const auto one = [&](ElementwiseKind kind, const DeviceMemory* aux, const char* name,
                       const std::function<double(std::int64_t token, std::int64_t i)>& want) {
    enqueue_elementwise({kind, x.data(), aux == nullptr ? nullptr : aux->data(), y.data(), kTokens, kWidth},
                        gpu.stream(StreamOf::compute));
    gpu.finish();
    std::vector<double> wanted;
    wanted.reserve(at(kTokens * kWidth));
    for (std::int64_t i = 0; i < kTokens * kWidth; ++i) wanted.push_back(want(i / kWidth, i % kWidth));
    expect_near(numbers_in(y, Number::bf16), wanted, Number::bf16, name);
  };
  one(ElementwiseKind::copy, nullptr, "copy",
      [&](std::int64_t token, std::int64_t i) { return double{in[at(token * kWidth + i)]}; });
  one(ElementwiseKind::rms_norm, &weights, "rms_norm", [&](std::int64_t token, std::int64_t i) {
    const auto row = in.begin() + token * kWidth;
    const double mean = std::inner_product(row, row + kWidth, row, 0.0) / static_cast<double>(kWidth);
    return double{row[i]} / std::sqrt(mean + 1e-5) * double{weight[at(i)]};
  });
  one(ElementwiseKind::silu_mul, nullptr, "silu_mul", [&](std::int64_t token, std::int64_t i) {
    const double gate = in[at(token * 2 * kWidth + i)];
    return gate / (1.0 + std::exp(-gate)) * double{in[at(token * 2 * kWidth + kWidth + i)]};
  });
  one(ElementwiseKind::rope, &turns, "rope", [&](std::int64_t token, std::int64_t i) {
    const std::int64_t pair = i % 64;
    const std::int64_t low = token * kWidth + i / 128 * 128 + pair;
    const double a = in[at(low)];
    const double b = in[at(low + 64)];
    const double cosine = turn[at((token * 64 + pair) * 2)];
    const double sine = turn[at((token * 64 + pair) * 2 + 1)];
    return i % 128 < 64 ? a * cosine - b * sine : b * cosine + a * sine;
  });
}

}  // namespace

std::vector<std::string> self_test(Gpu& gpu) {
  std::vector<std::string> said;
  check_blocks(gpu);
  check_elementwise(gpu);
  for (const Number number : {Number::fp16, Number::bf16, Number::fp8}) {
    try {
      gpu.need(number);
    } catch (const Unsupported&) {
      continue;
    }
    check_gemm(gpu, number);
    if (number == Number::fp8) continue;
    check_attention(gpu, number);
    const auto decode = make_op(gpu, DecodeAttention{Heads{}, 4, 128, 1.0, number});
    const std::string note = decode->note();
    said.push_back(fmt::format("decode attention in {} is measured with the kernel \"{}\"{}{}",
                               number == Number::bf16 ? "bf16" : "fp16", decode->kernel(), note.empty() ? "" : ": ",
                               note));
  }
  return said;
}

}  // namespace spillway::calibrate::gpu
