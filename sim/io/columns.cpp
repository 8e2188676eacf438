#include "sim/io/columns.hpp"

#include <algorithm>
#include <cstddef>

#include "sim/core/utf8.hpp"

namespace spillway {
namespace {

constexpr std::size_t kHeadWidth = 11;  // characters in a line of a head, unless one part of the name is longer

/// "output_throughput_tokens_per_s" -> "output_", "throughput_", "tokens_per_s"; "mean TTFT\\nms" -> "mean TTFT", "ms".
std::vector<std::string> broken(const std::string& head) {
  std::vector<std::string> lines(1);
  std::string part;
  const auto flush = [&] {
    if (!lines.back().empty() && lines.back().size() + part.size() > kHeadWidth) lines.emplace_back();
    lines.back() += part;
    part.clear();
  };
  for (const char c : head) {
    if (c == '\n') {
      flush();
      lines.emplace_back();
      continue;
    }
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

std::vector<Columns::Shape> Columns::shapes() const {
  std::vector<Shape> shapes;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    Shape& shape = shapes.emplace_back(Shape{.head = broken(columns_[c].head)});
    for (const std::string& line : shape.head) shape.width = std::max(shape.width, line.size());
    for (const auto& row : rows_) {
      const bool open_end = row.size() < columns_.size() && c + 1 >= row.size();
      if (c < row.size() && !open_end) shape.width = std::max(shape.width, display_width(row[c]));
    }
  }
  return shapes;
}

std::string Columns::part(const std::vector<Shape>& shapes, std::size_t first, std::size_t end) const {
  std::vector<std::size_t> shown;
  if (first > 0) shown.push_back(0);
  for (std::size_t c = first; c < end; ++c) shown.push_back(c);
  std::size_t head_lines = 0;
  for (const std::size_t c : shown) head_lines = std::max(head_lines, shapes[c].head.size());
  std::string text;
  for (std::size_t i = 0; i < head_lines; ++i) {
    std::string line;
    for (const std::size_t c : shown) {
      const std::vector<std::string>& head = shapes[c].head;
      const std::size_t missing = head_lines - head.size();
      line += (c == 0 ? "" : "  ") + padded(i < missing ? "" : head[i - missing], shapes[c].width, columns_[c].text);
    }
    text += without_end_blanks(line) + "\n";
  }
  for (const auto& row : rows_) {
    std::string line;
    for (const std::size_t c : shown) {
      if (c >= row.size()) break;
      const bool open_end = row.size() < columns_.size() && c + 1 == row.size();
      line += (c == 0 ? "" : "  ") + (open_end ? row[c] : padded(row[c], shapes[c].width, columns_[c].text));
    }
    text += without_end_blanks(line) + "\n";
  }
  return text;
}

std::string Columns::text(std::size_t most) const {
  const std::vector<Shape> all = shapes();
  std::string text;
  for (std::size_t first = 0; first < columns_.size() || first == 0;) {
    std::size_t end = first;
    std::size_t width = first == 0 || all.empty() ? 0 : all.front().width;
    while (end < columns_.size()) {
      const std::size_t wider = width + (end == 0 ? 0 : 2) + all[end].width;
      if (wider > most && end > first) break;
      width = wider;
      ++end;
    }
    if (first > 0) text += "\n";
    text += part(all, first, end);
    if (end == first) break;  // no columns at all
    first = end;
  }
  return text;
}

}  // namespace spillway
