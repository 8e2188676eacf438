// The bytes of a trace or of another file with rows. Files compressed with gzip are unpacked while they are read.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "sim/core/error.hpp"

namespace spillway {

/// Text of a file for a message: at most 60 characters, with ? for each byte that is not printable ASCII.
[[nodiscard]] std::string excerpt(std::string_view text);

/// How messages name the file, and the item that each line holds.
struct FileWords {
  std::string_view file = "trace";
  std::string_view line = "request";
};

/// Throws DataError unless `path` is a regular file with at least one byte. Pipes are refused because files are read
/// more than once.
void check_readable(const std::string& path, const FileWords& words = {});

/// Lower-case hexadecimal SHA-256 of a file's bytes on disk, not unpacked. Memory: a fixed buffer. Throws DataError as
/// check_readable does.
[[nodiscard]] std::string file_sha256(const std::string& path, const FileWords& words = {});

/// Reads a file once, from start to end. A file that begins with the two bytes of gzip (RFC 1952), whatever its name,
/// is unpacked with zlib, all its members in turn. Zeros after the last member (padding of tapes) are skipped, as gzip
/// does. A UTF-8 byte-order mark at the start of the text is skipped. Memory: a window of 256 KiB for compressed files.
class FileReader {
 public:
  /// Throws DataError as check_readable and read do, and when the text is UTF-16 or UTF-32.
  explicit FileReader(std::string path, const FileWords& words = {});
  ~FileReader();
  FileReader(FileReader&&) noexcept;
  FileReader& operator=(FileReader&&) noexcept;

  /// Reads the next `room` bytes of the text, fewer at its end, and 0 after it. Throws DataError when the disk fails,
  /// or when the gzip data is corrupt or cut off (with the byte offset in the file, from 0).
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
  std::string start_;                   // first bytes of the text, read early to check for a byte-order mark
};

}  // namespace spillway
