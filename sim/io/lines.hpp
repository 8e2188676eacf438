// Text for a terminal: readable figures, and labelled lines of at most 100 columns.
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

/// About four digits, as many as a reader needs.
[[nodiscard]] std::string figure(double value);
/// "12.34 +-0.5": the value and the half-width of its interval, if known. "-" without a value.
[[nodiscard]] std::string figure_with_interval(const std::optional<double>& value,
                                               const std::optional<double>& half_width);
/// Input that is safe to show on a terminal: broken UTF-8 is replaced, control characters are escaped.
[[nodiscard]] std::string shown(const std::string& text);
/// 0.1234: "12.3%".
[[nodiscard]] std::string percent(double fraction);
/// A fraction with its sign, "+12.3%". Values that round to zero have no sign. "-" without a value.
[[nodiscard]] std::string signed_percent(const std::optional<double>& fraction);

/// Lines with labels, broken at spaces.
class Lines {
 public:
  /// Control characters in `text` are escaped.
  void add(std::string_view label, const std::string& text);
  /// As add(), but on one line: longer text is cut and ends in "...".
  void add_short(std::string_view label, const std::string& text);
  void raw(std::string line) { lines_.push_back(std::move(line)); }
  void blank() { lines_.emplace_back(); }
  void append(const Lines& other) { lines_.insert(lines_.end(), other.lines_.begin(), other.lines_.end()); }
  /// Keeps the first `count` lines. If lines are dropped, the last line that is kept ends in `more`.
  void shorten(std::size_t count, const std::string& more);
  [[nodiscard]] std::size_t size() const { return lines_.size(); }
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::string> lines_;
};

}  // namespace spillway
