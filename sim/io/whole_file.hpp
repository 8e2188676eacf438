// Small files that are read at once.
#pragma once

#include <cstddef>
#include <string>

namespace spillway {

/// The bytes of a file, or the reason why there are none.
struct WholeFile {
  std::string bytes;
  std::string
      fault;  // "it does not exist", "it is a folder", "it is not a regular file", ...; empty: the file was read
  [[nodiscard]] bool ok() const { return fault.empty(); }
};

/// Reads a regular file of at most `most` bytes. Devices and pipes are refused unopened: /dev/zero has no end, and
/// opening a pipe waits for a writer. Never throws.
[[nodiscard]] WholeFile read_whole_file(const std::string& path, std::size_t most = std::size_t{256} << 20U);

}  // namespace spillway
