#include "sim/io/gzip.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

#include "sim/core/error.hpp"

namespace spillway {

std::string gzipped(std::string_view text) {
  constexpr int kGzip = 16;  // added to the window size: zlib then writes gzip's header and trailer
  constexpr int kMemory = 8;
  z_stream stream{};
  SPILLWAY_CHECK(
      deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip + MAX_WBITS, kMemory, Z_DEFAULT_STRATEGY) == Z_OK,
      "zlib is not available");
  std::string packed;
  std::array<char, std::size_t{1} << 16U> buffer{};
  std::string piece;
  int state = Z_OK;
  do {
    if (stream.avail_in == 0) {  // zlib counts in 32 bits, and takes no constant text
      piece = text.substr(0, std::size_t{1} << 24U);
      text.remove_prefix(piece.size());
      stream.next_in = reinterpret_cast<Bytef*>(piece.data());
      stream.avail_in = static_cast<uInt>(piece.size());
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    state = deflate(&stream, text.empty() ? Z_FINISH : Z_NO_FLUSH);
    packed.append(buffer.data(), buffer.size() - stream.avail_out);
  } while (state == Z_OK || state == Z_BUF_ERROR);
  static_cast<void>(deflateEnd(&stream));
  SPILLWAY_CHECK(state == Z_STREAM_END, "zlib cannot compress");
  return packed;
}

}  // namespace spillway
