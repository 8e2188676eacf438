#include "sim/io/columns.hpp"

#include <algorithm>
#include <cstddef>

#include "sim/core/utf8.hpp"

namespace spillway {
namespace {

constexpr std::size_t kHeadWidth = 11;  // characters in a line of a head, unless one part of the name is longer

/// "output_throughput_tokens_per_s" -> "output_", "throughput_", "tokens_per_s".
std::vector<std::string> broken(const std::string& head) {
  std::vector<std::string> lines(1);
  std::string part;
  const auto flush = [&] {
    if (!lines.back().empty() && lines.back().size() + part.size() > kHeadWidth) lines.emplace_back();
    lines.back() += part;
    part.clear();
  };
  for (const char c : head) {
    part += c;
    if (c == '_' || c == '.') flush();
  }
  flush();
  return lines;
}

std::size_t display_width(const std::string& cell) { return static_cast<std::size_t>(code_points(cell)); }

std::string padded(const std::string& cell, std::size_t width, bool text) {
  const std::string blanks(width - std::min(width, display_width(cell)), ' ');
  return text ? cell + blanks : blanks + cell;
}

std::string without_end_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string Columns::text() const {
  std::vector<std::vector<std::string>> heads;
  std::vector<std::size_t> widths;
  std::size_t head_lines = 0;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    heads.push_back(broken(columns_[c].head));
    head_lines = std::max(head_lines, heads.back().size());
    std::size_t width = 0;
    for (const std::string& line : heads.back()) width = std::max(width, line.size());
    for (const auto& row : rows_) {
      const bool open_end = row.size() < columns_.size() && c + 1 >= row.size();
      if (c < row.size() && !open_end) width = std::max(width, display_width(row[c]));
    }
    widths.push_back(width);
  }
  std::string text;
  for (std::size_t i = 0; i < head_lines; ++i) {
    std::string line;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::size_t missing = head_lines - heads[c].size();
      line += (c == 0 ? "" : "  ") + padded(i < missing ? "" : heads[c][i - missing], widths[c], columns_[c].text);
    }
    text += without_end_blanks(line) + "\n";
  }
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const bool open_end = row.size() < columns_.size() && c + 1 == row.size();
      line += (c == 0 ? "" : "  ") + (open_end ? row[c] : padded(row[c], widths[c], columns_[c].text));
    }
    text += without_end_blanks(line) + "\n";
  }
  return text;
}

}  // namespace spillway
