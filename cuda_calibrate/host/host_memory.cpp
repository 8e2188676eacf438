#include "cuda_calibrate/host/host_memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "cuda_calibrate/host/page_kernels.hpp"

namespace spillway::calibrate {
namespace {

std::uint16_t bf16_of(float value) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U); }

/// Requires zero or a number with an exponent and a fraction that fp16 can represent.
std::uint16_t fp16_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value == 0.0F) return 0;
  const std::uint32_t exponent = (bits >> 23U & 0xffU) - (127 - 15);
  return static_cast<std::uint16_t>((bits >> 16U & 0x8000U) | exponent << 10U | (bits >> 13U & 0x3ffU));
}

/// Encodes the number of each byte: (byte - 128) / 128.
template <class Bits, class Encode>
std::array<Bits, 256> encoded(const Encode& encode) {
  std::array<Bits, 256> all{};
  for (int i = 0; i < 256; ++i) {
    all[static_cast<std::size_t>(i)] = encode(static_cast<float>(i - 128) / 128.0F);
  }
  return all;
}

/// Takes eight numbers from each random word.
template <class Bits>
void fill(std::byte* to, std::int64_t count, const std::array<Bits, 256>& codes, RandomBits& random) {
  std::uint64_t word = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    word = i % 8 == 0 ? random.next() : word >> 8U;
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(Bits)), &codes[word & 0xffU], sizeof(Bits));
  }
}

}  // namespace

HostBuffer ordinary_memory(std::int64_t bytes) {
  const std::size_t size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw OutOfMemory(fmt::format("the system cannot allocate {} bytes of memory", bytes));
  return {static_cast<std::byte*>(memory), [size](std::byte* at) { munmap(at, size); }};
}

void need_memory(std::int64_t bytes) {
  const std::int64_t available = available_bytes();
  if (bytes > available / 10 * 9) {
    throw OutOfMemory(fmt::format("{} bytes of host memory are needed, {} are available", bytes, available));
  }
}

std::int64_t buffers_beyond_cache(std::int64_t bytes, std::int64_t cache_bytes) { return 4 * cache_bytes / bytes + 1; }

std::uint64_t RandomBits::next() {
  state_ += 0x9e3779b97f4a7c15U;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

void fill_numbers(std::byte* to, std::int64_t count, Number number, RandomBits& random) {
  static const auto kBf16 = encoded<std::uint16_t>(bf16_of);
  static const auto kFp16 = encoded<std::uint16_t>(fp16_of);
  static const auto kFp32 = encoded<float>([](float value) { return value; });
  if (number_bytes(number) == 4) return fill(to, count, kFp32, random);
  fill(to, count, number == Number::bf16 ? kBf16 : kFp16, random);
}

void fill_doubles(double* to, std::int64_t count, RandomBits& random) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = std::bit_cast<double>(random.next() >> 12U | 0x3ff0000000000000U);
}

}  // namespace spillway::calibrate
