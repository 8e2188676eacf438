// Lines of a file of any size through one window of memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.hpp"
#include "traces/readers/input_file.hpp"

namespace spillway::traces {

/// Reads line by line, through gzip where the file is compressed. Ends of line are LF or CRLF, and the last line needs
/// none. Memory: a window of 256 KiB, which grows only for a line that is longer, up to kMaxLine, beside InputFile's.
class LineReader {
 public:
  static constexpr std::size_t kMaxLine = std::size_t{64} << 20U;

  /// Throws DataError as InputFile does.
  explicit LineReader(std::string path);
  /// The next line without its end; valid until the next call. False at the end of the file. Throws DataError when the
  /// file cannot be read on or a line is longer than kMaxLine.
  bool next(std::string_view& line);
  /// Number of the line last returned, from 1.
  [[nodiscard]] std::int64_t row() const { return row_; }
  [[nodiscard]] const std::string& path() const { return file_.path(); }

 private:
  void refill();
  bool take(std::size_t length, std::size_t skip, std::string_view& line);

  InputFile file_;
  std::vector<char> window_;
  std::size_t begin_ = 0;  // unread bytes are window_[begin_, end_)
  std::size_t end_ = 0;
  bool exhausted_ = false;  // the file has no more bytes than the window holds
  std::int64_t row_ = 0;
};

/// What is wrong with a file's rows: up to the first kLimit bad ones.
class BadRows {
 public:
  static constexpr std::int64_t kLimit = 10;

  explicit BadRows(std::string path) : path_(std::move(path)) {}
  /// `part` says where in the row, e.g. "column TIMESTAMP"; may be empty.
  void add(std::int64_t row, const std::string& part, std::string what, std::string fix);
  [[nodiscard]] bool any() const { return rows_ > 0; }
  [[nodiscard]] bool full() const { return rows_ >= kLimit; }
  [[nodiscard]] bool has(std::int64_t row) const { return rows_ > 0 && last_row_ == row; }
  /// Throws DataError with all of them when there are any.
  void raise();

 private:
  std::string path_;
  std::vector<Problem> problems_;
  std::int64_t rows_ = 0;
  std::int64_t last_row_ = 0;
};

}  // namespace spillway::traces
