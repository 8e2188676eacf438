#include "traces/readers/json_array.hpp"

#include <fmt/format.h>

#include <utility>

namespace spillway::traces {
namespace {

constexpr std::size_t kWindow = std::size_t{64} << 10U;
constexpr int kEnd = -1;

}  // namespace

JsonArray::JsonArray(std::string path) : file_(std::move(path)) {}

/// Sees to it that there are unread bytes; false at the end of the file.
bool JsonArray::fill() {
  if (at_ < window_.size()) return true;
  window_.resize(kWindow);
  window_.resize(file_.read(window_.data(), kWindow));
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

/// Takes the object that begins at hand; false when the file, or the room for it, ends within it.
bool JsonArray::take_object() {
  object_.clear();
  std::int64_t depth = 0;
  bool quoted = false;
  bool escaped = false;
  while (fill() && object_.size() < kMaxObject) {
    const std::size_t start = at_;
    bool whole = false;
    while (at_ < window_.size() && !whole) {
      const char c = window_[at_++];
      line_ += c == '\n' ? 1 : 0;
      if (escaped) {
        escaped = false;
      } else if (quoted) {
        escaped = c == '\\';
        quoted = c != '"';
      } else if (c == '"') {
        quoted = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        whole = --depth == 0;
      }
    }
    object_.append(window_, start, at_ - start);
    if (whole) return true;
  }
  return false;
}

bool JsonArray::broken(BadRows& bad, const char* wanted) {
  ended_ = true;
  const std::string part = item_ > 0 ? fmt::format("after item {}", item_) : std::string();
  if (peek() == kEnd) {
    bad.add(line_, part, fmt::format("the file ends where {} should be", wanted),
            "it was cut off while being copied, or written only in part");
  } else {
    bad.add(line_, part, fmt::format("'{}' stands where {} should be", printable({&window_[at_], 1}), wanted),
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
