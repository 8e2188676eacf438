// Lines of a file of any size through one window of memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/io/file_reader.hpp"

namespace spillway {

/// Reads line by line, through gzip where the file is compressed. Ends of line are LF or CRLF, and the last line needs
/// none. Memory: a window of 256 KiB, which grows only for a line that is longer, up to kMaxLine, beside FileReader's.
class LineReader {
 public:
  static constexpr std::size_t kMaxLine = std::size_t{64} << 20U;

  /// Throws DataError as FileReader does.
  explicit LineReader(std::string path, const FileWords& words = {});
  /// The next line without its end; valid until the next call. False at the end of the file. Throws DataError when the
  /// file cannot be read on or a line is longer than kMaxLine.
  bool next(std::string_view& line);
  /// Number of the line last returned, from 1.
  [[nodiscard]] std::int64_t row() const { return row_; }
  [[nodiscard]] const std::string& path() const { return file_.path(); }

 private:
  void refill();
  bool take(std::size_t length, std::size_t skip, std::string_view& line);

  FileReader file_;
  FileWords words_;
  std::vector<char> window_;
  std::size_t begin_ = 0;  // unread bytes are window_[begin_, end_)
  std::size_t end_ = 0;
  bool exhausted_ = false;  // the file has no more bytes than the window holds
  std::int64_t row_ = 0;
};

/// What is wrong with a file's rows. Normally one bad row spoils the file: the rest is looked through for more, up to
/// kLimit bad ones, and all are reported, each with its first kLimit complaints. With `skip` bad rows are only counted.
class BadRows {
 public:
  static constexpr std::int64_t kLimit = 10;

  explicit BadRows(std::string path, bool skip = false) : path_(std::move(path)), skip_(skip) {}
  /// Another row is looked at from now on.
  void begin() { in_row_ = 0; }
  /// Complains about the row at hand; `part` says where in the row, e.g. "column TIMESTAMP", and may be empty.
  void add(std::int64_t row, const std::string& part, std::string what, std::string fix);
  /// Has the row at hand been complained about?
  [[nodiscard]] bool is_bad() const { return in_row_ > 0; }
  /// May the row at hand be delivered?
  [[nodiscard]] bool accepts() const { return skip_ ? !is_bad() : rows_ == 0; }
  /// Is there no use in looking further?
  [[nodiscard]] bool full() const { return !skip_ && rows_ >= kLimit; }
  /// Throws DataError with all that is bad, if anything is and it is not skipped.
  void raise();
  /// Rows that were skipped, and the first complaint about them.
  [[nodiscard]] std::int64_t skipped() const { return skip_ ? rows_ : 0; }
  [[nodiscard]] std::string first_skipped() const;

 private:
  std::string path_;
  bool skip_;
  std::vector<Problem> problems_;
  std::int64_t rows_ = 0;
  std::int64_t in_row_ = 0;  // complaints about the row at hand
};

}  // namespace spillway
