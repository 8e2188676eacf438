// The objects of one JSON array of any size, one by one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/io/file_reader.hpp"
#include "sim/io/line_reader.hpp"

namespace spillway::traces {

/// Reads a file that is a list of objects, `[{...}, {...}]`, on any number of lines. Memory: a window of 64 KiB and one
/// object of at most kMaxObject bytes. Finds where objects begin and end; the caller checks their content.
class JsonArray {
 public:
  static constexpr std::size_t kMaxObject = std::size_t{64} << 20U;

  /// Throws DataError as FileReader does.
  explicit JsonArray(std::string path);
  /// Gets the next object's text, valid until the next call. False at the end of the list, or if the list is broken,
  /// which is added to `bad`.
  bool next(std::string_view& object, BadRows& bad);
  /// Line on which the object last returned begins, from 1.
  [[nodiscard]] std::int64_t row() const { return begin_; }
  /// Number of the object last returned, from 1.
  [[nodiscard]] std::int64_t item() const { return item_; }

 private:
  bool fill();
  int peek();
  enum class Stop : std::uint8_t { window, text, object };  // what ends a part of an object
  bool take_text();
  Stop take_structure();
  bool take_object();
  bool broken(BadRows& bad, const char* wanted);

  FileReader file_;
  std::string window_;
  std::size_t at_ = 0;     // unread bytes are window_[at_, window_.size())
  std::int64_t read_ = 0;  // bytes of the text so far, the window's included
  std::string object_;
  std::int64_t depth_ = 0;  // of brackets that are open in object_
  std::int64_t line_ = 1;
  std::int64_t begin_ = 0;
  std::int64_t item_ = 0;
  bool started_ = false;
  bool ended_ = false;
};

}  // namespace spillway::traces
