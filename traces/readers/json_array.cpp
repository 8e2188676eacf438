#include "traces/readers/json_array.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace spillway::traces {
namespace {

constexpr std::size_t kWindow = std::size_t{64} << 10U;
constexpr int kEnd = -1;

}  // namespace

JsonArray::JsonArray(std::string path) : file_(std::move(path)) {}

/// Provides unread bytes; false at the end of the file.
bool JsonArray::fill() {
  if (at_ < window_.size()) return true;
  window_.resize(kWindow);
  window_.resize(file_.read(window_.data(), kWindow));
  read_ += static_cast<std::int64_t>(window_.size());
  at_ = 0;
  return !window_.empty();
}

/// The next character that is not white space, or kEnd.
int JsonArray::peek() {
  while (fill()) {
    const char c = window_[at_];
    if (c != ' ' && c != '\t' && c != '\r' && c != '\n') return static_cast<unsigned char>(c);
    line_ += c == '\n' ? 1 : 0;
    ++at_;
  }
  return kEnd;
}

/// Takes the rest of a text up to its closing quote, or to the end of the window: false.
bool JsonArray::take_text() {
  const std::size_t quote = window_.find('"', at_);
  const std::size_t end = quote == std::string::npos ? window_.size() : quote + 1;
  object_.append(window_, at_, end - at_);
  at_ = end;
  if (quote == std::string::npos) return false;
  // A quote after an odd number of backslashes belongs to the text; the opening quote ends the backslashes at the
  // latest.
  const std::size_t last = object_.size() - 1;
  std::size_t slash = last;
  while (object_[slash - 1] == '\\') --slash;
  return (last - slash) % 2 == 0;
}

/// Takes everything up to an opening quote, the end of the object or the end of the window.
JsonArray::Stop JsonArray::take_structure() {
  const std::size_t start = at_;
  Stop stop = Stop::window;
  while (stop == Stop::window && at_ < window_.size()) {
    const char c = window_[at_++];
    if (c == '"') {
      stop = Stop::text;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if ((c == '}' || c == ']') && --depth_ == 0) {
      stop = Stop::object;
    }
  }
  object_.append(window_, start, at_ - start);
  return stop;
}

/// Takes the object at the read position; false if the file ends within it or it is too large.
bool JsonArray::take_object() {
  object_.clear();
  depth_ = 0;
  Stop stop = Stop::window;
  while (stop != Stop::object && fill() && object_.size() < kMaxObject) {
    if (stop == Stop::window) {
      stop = take_structure();
    } else if (take_text()) {
      stop = Stop::window;
    }
  }
  line_ += std::count(object_.begin(), object_.end(), '\n');
  return stop == Stop::object;
}

bool JsonArray::broken(BadRows& bad, const char* wanted) {
  ended_ = true;
  const bool at_end = peek() == kEnd;
  const std::int64_t byte = read_ - static_cast<std::int64_t>(window_.size() - at_) + 1;
  const std::string part =
      (item_ > 0 ? fmt::format("after item {}, ", item_) : std::string()) + fmt::format("byte {}", byte);
  if (at_end) {
    bad.add(line_, part, fmt::format("the file ends where {} should be", wanted),
            "copy the file again: it was cut off, or written only in part");
  } else {
    bad.add(line_, part, fmt::format("'{}' stands where {} should be", excerpt({&window_[at_], 1}), wanted),
            "write one list of objects: [{...}, {...}]");
  }
  return false;
}

bool JsonArray::next(std::string_view& object, BadRows& bad) {
  if (ended_) return false;
  const bool first = !std::exchange(started_, true);
  if (first) {
    if (peek() != '[') return broken(bad, "'['");
    ++at_;
  }
  if (peek() == ']') {
    ++at_;
    ended_ = true;
    return peek() == kEnd ? false : broken(bad, "the end of the file");
  }
  if (!first) {
    if (peek() != ',') return broken(bad, "',' or ']'");
    ++at_;
  }
  if (peek() != '{') return broken(bad, "'{'");
  begin_ = line_;
  if (take_object()) {
    ++item_;
    object = object_;
    return true;
  }
  if (object_.size() < kMaxObject) return broken(bad, "the rest of an object");
  ended_ = true;
  bad.add(begin_, fmt::format("item {}", item_ + 1), fmt::format("the object is larger than {} MiB", kMaxObject >> 20U),
          "check that this is a list of requests");
  return false;
}

}  // namespace spillway::traces
