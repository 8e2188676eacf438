// Constants and helpers of the writer and the reader of native-binary; native_binary.hpp describes the format.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace spillway::traces::native_binary {

inline constexpr std::string_view kMagic("\x89SWT\r\n\x1a\n", 8);
inline constexpr std::uint16_t kByteOrder = 0x0102;
inline constexpr std::uint16_t kVersion = 1;

/// Fields of a row beside its lengths. Plain traces need only the low bits, which fit one byte.
enum Bit : std::uint64_t {
  kArrival = 1U << 0U,
  kMaxNew = 1U << 1U,  // differs from the output
  kClient = 1U << 2U,  // differs from that of the row before
  kConversation = 1U << 3U,
  kTurn = 1U << 4U,
  kThink = 1U << 5U,
  kPrefix = 1U << 6U,
  kClass = 1U << 7U,
  kSlo = 1U << 8U,
  kAllBits = (1U << 9U) - 1U
};

/// CRC-32 of the concatenated parts.
inline std::uint32_t checksum(std::initializer_list<std::string_view> parts) {
  uLong sum = crc32(0, nullptr, 0);
  for (const std::string_view part : parts) {
    sum = crc32_z(sum, reinterpret_cast<const Bytef*>(part.data()), part.size());
  }
  return static_cast<std::uint32_t>(sum);
}

/// Maps small numbers of either sign to small numbers. Differences wrap around.
inline std::uint64_t fold(std::uint64_t difference) { return difference << 1U ^ (0U - (difference >> 63U)); }
inline std::uint64_t unfold(std::uint64_t folded) { return folded >> 1U ^ (0U - (folded & 1U)); }

}  // namespace spillway::traces::native_binary
