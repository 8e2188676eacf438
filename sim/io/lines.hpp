// Text for a terminal: figures as people read them, and labelled lines of at most 100 columns.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spillway {

inline constexpr std::size_t kColumns = 100;
inline constexpr std::size_t kLabel = 13;  // width of the label in front of a line

/// Four digits or so: what a reader takes in.
[[nodiscard]] std::string figure(double value);
/// "12.34 +-0.5", with the half-width of its interval where it has one; "-" stands for no value.
[[nodiscard]] std::string figure_with_interval(const std::optional<double>& value,
                                               const std::optional<double>& half_width);
/// What a user or a file wrote, as a terminal may show it: broken UTF-8 replaced, control characters written out.
[[nodiscard]] std::string shown(const std::string& text);
/// 0.1234: "12.3%".
[[nodiscard]] std::string percent(double fraction);
/// The same with its sign, "+12.3%"; what rounds to nothing has none, and "-" stands for no value.
[[nodiscard]] std::string signed_percent(const std::optional<double>& fraction);

/// Text of lines with a label, broken at spaces.
class Lines {
 public:
  /// `text` may hold anything: what is not printable is escaped.
  void add(std::string_view label, const std::string& text);
  /// The same in one line: what is too long ends in "...".
  void add_short(std::string_view label, const std::string& text);
  void raw(std::string line) { lines_.push_back(std::move(line)); }
  void blank() { lines_.emplace_back(); }
  void append(const Lines& other) { lines_.insert(lines_.end(), other.lines_.begin(), other.lines_.end()); }
  /// Keeps the first `count` lines, the last of which then ends in `more`.
  void shorten(std::size_t count, const std::string& more);
  [[nodiscard]] std::size_t size() const { return lines_.size(); }
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::string> lines_;
};

}  // namespace spillway
