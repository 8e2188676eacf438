// The lines of a file of any size, read through one window of memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/io/file_reader.hpp"

namespace spillway {

/// Reads line by line; gzip files are unpacked. Lines end in LF or CRLF; the last line may end without either. Memory:
/// a window of 256 KiB, which grows up to kMaxLine for longer lines, and the window of FileReader.
class LineReader {
 public:
  static constexpr std::size_t kMaxLine = std::size_t{64} << 20U;

  /// Throws DataError as FileReader does.
  explicit LineReader(std::string path, const FileWords& words = {});
  /// The next line without its line break; valid until the next call. False at the end of the file. Throws DataError
  /// when reading fails or a line is longer than kMaxLine.
  bool next(std::string_view& line);
  /// The number of the line that was returned last, from 1.
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
  bool exhausted_ = false;  // the rest of the file is in the window
  std::int64_t row_ = 0;
};

/// Collects the faults of a file's rows. Normally a bad row makes the file unusable: up to kLimit bad rows are
/// reported, each with its first kLimit faults. With `skip`, bad rows are only counted.
class BadRows {
 public:
  static constexpr std::int64_t kLimit = 10;

  explicit BadRows(std::string path, bool skip = false) : path_(std::move(path)), skip_(skip) {}
  /// Begins the next row.
  void begin() { in_row_ = 0; }
  /// Adds a fault of the current row. `part` names the location in the row, such as "column TIMESTAMP"; may be empty.
  void add(std::int64_t row, const std::string& part, std::string what, std::string fix);
  /// Whether the current row has a fault.
  [[nodiscard]] bool is_bad() const { return in_row_ > 0; }
  /// Whether the current row may be delivered.
  [[nodiscard]] bool accepts() const { return skip_ ? !is_bad() : rows_ == 0; }
  /// Whether further rows need not be checked.
  [[nodiscard]] bool full() const { return !skip_ && rows_ >= kLimit; }
  /// Throws DataError with all faults, if there are any and bad rows are not skipped.
  void raise();
  /// The number of skipped rows, and the first fault among them.
  [[nodiscard]] std::int64_t skipped() const { return skip_ ? rows_ : 0; }
  [[nodiscard]] std::string first_skipped() const;

 private:
  std::string path_;
  bool skip_;
  std::vector<Problem> problems_;
  std::int64_t rows_ = 0;
  std::int64_t in_row_ = 0;  // faults of the current row
};

}  // namespace spillway
