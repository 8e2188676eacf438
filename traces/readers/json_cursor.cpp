#include "traces/readers/json_cursor.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::traces {

bool JsonCursor::skip_value() {
  std::size_t depth = 0;
  do {
    const char c = peek();
    if (at_end()) return false;
    if (c == '"') {
      if (!string()) return false;
    } else if (c == '{' || c == '[') {
      ++depth;
      ++at_;
    } else if (depth > 0 && (c == '}' || c == ']')) {
      --depth;
      ++at_;
    } else if (depth > 0 && (c == ',' || c == ':')) {
      ++at_;
    } else if (word().empty()) {
      return true;  // a delimiter where a value should be: the caller's complaint
    }
  } while (depth > 0);
  return true;
}

/// Reads a list of numbers only, the usual case. False if it has anything else; the cursor then stands on the first
/// other element.
bool JsonCursor::plain_ids(std::vector<std::uint64_t>& ids) {
  do {
    (void)peek();
    std::uint64_t id = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), id);
    const auto next = static_cast<std::size_t>(end - text_.data());
    if (error != std::errc() || (next < text_.size() && !ends_word(text_[next]))) return false;
    ids.push_back(id);
    at_ = next;
  } while (take(','));
  return true;
}

std::string_view JsonCursor::ids(std::vector<std::uint64_t>& ids, std::string& complaint) {
  (void)take('[');
  if (take(']')) return {};
  if (plain_ids(ids)) return take(']') ? "" : "',' or ']'";
  do {
    const char first = peek();
    std::string one;
    if (first == '"' || first == '{' || first == '[') {
      if (const std::string_view rest = pass_value(); !rest.empty()) return rest;
      one = "an element is not a whole number";
    } else {
      const std::string_view element = word();
      if (element.empty()) return "a whole number";
      const auto id = whole_number<std::uint64_t>(element, 0, UINT64_MAX, one);
      if (id) ids.push_back(*id);
    }
    if (complaint.empty()) complaint = one;
  } while (take(','));
  return take(']') ? "" : "',' or ']'";
}

void add_broken(BadRows& bad, std::int64_t row, const std::string& part, const JsonCursor& cursor,
                std::string_view wanted) {
  const std::string where = fmt::format("{}{}column {}", part, part.empty() ? "" : ", ", cursor.column());
  if (cursor.at_end()) {
    bad.add(row, where, fmt::format("the line ends where {} should be", wanted),
            "complete or delete the row; a file that was cut off while being copied ends like this");
  } else {
    bad.add(row, where, fmt::format("'{}' stands where {} should be", cursor.shown(), wanted),
            part.empty() ? "write one JSON object per line" : "correct or delete the item");
  }
}

bool first_object_has(std::string_view text, std::span<const std::string_view> keys, int least) {
  JsonCursor cursor(text);
  (void)cursor.take('[');
  int found = 0;
  (void)scan_object(cursor, [&](std::string_view key) -> std::string_view {
    found += std::find(keys.begin(), keys.end(), key) != keys.end() ? 1 : 0;
    return cursor.pass_value();
  });
  return found >= least;
}

}  // namespace spillway::traces
