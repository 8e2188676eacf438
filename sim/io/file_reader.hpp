// Bytes of a trace or of another file of rows, unpacked on the way when it is compressed with gzip.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "sim/core/error.hpp"

namespace spillway {

/// Text of a file as a message can show it: at most 60 characters, with ? for each byte that is not printable ASCII.
[[nodiscard]] std::string excerpt(std::string_view text);

/// What messages call the file and that of which each line holds one.
struct FileWords {
  std::string_view file = "trace";
  std::string_view line = "request";
};

/// Throws DataError unless `path` is a regular file that holds at least one byte. A pipe is refused because a file is
/// read more than once.
void check_readable(const std::string& path, const FileWords& words = {});

/// Lower-case hexadecimal SHA-256 of a file's bytes as they lie on disk, read through a fixed buffer. Throws DataError
/// as check_readable does.
[[nodiscard]] std::string file_sha256(const std::string& path, const FileWords& words = {});

/// Reads a file from its start to its end, once. A file that begins with the two bytes of gzip (RFC 1952), whatever its
/// name, is unpacked with zlib: all its members one after the other, and zeros behind the last (padding of tapes) are
/// passed by, as gzip does. A UTF-8 byte-order mark in front of the text is skipped. Memory: a window of 256 KiB for a
/// compressed file, none for another.
class FileReader {
 public:
  /// Throws DataError as check_readable does, when the text is UTF-16 or UTF-32, and as read does.
  explicit FileReader(std::string path, const FileWords& words = {});
  ~FileReader();
  FileReader(FileReader&&) noexcept;
  FileReader& operator=(FileReader&&) noexcept;

  /// The next bytes of the text, `room` of them unless it ends before; then 0 for ever. Throws DataError when the disk
  /// fails, or when gzip's data is corrupt or cut off (with the byte of the file, from 0).
  std::size_t read(char* to, std::size_t room);
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { (void)std::fclose(file); }
  };
  class Unpacker;

  void look_at_start();
  std::size_t read_raw(char* to, std::size_t room);

  std::string path_;
  FileWords words_;
  std::unique_ptr<std::FILE, Close> file_;
  std::unique_ptr<Unpacker> unpacker_;  // null: the file is plain text
  std::string start_;                   // first bytes of the text, read ahead to look for a mark
};

}  // namespace spillway
