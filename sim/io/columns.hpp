// Columns of figures for a terminal.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace spillway {

/// Rows of cells below heads. A column is as wide as its widest cell. Heads are broken after underscores and dots, and
/// at line breaks.
/// Text columns are aligned to the left, figures to the right.
class Columns {
 public:
  void add(std::string head, bool text = false) { columns_.push_back({std::move(head), text}); }
  /// One cell for each column. With fewer cells, the last cell may fill the rest of the line.
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// A table that is wider than `most` columns becomes several, one below the other, each with the first column. O(1)
  /// passes over the cells for each.
  [[nodiscard]] std::string text(std::size_t most = std::numeric_limits<std::size_t>::max()) const;

 private:
  struct Column {
    std::string head;
    bool text;
  };
  /// The lines of a head, and the width of the column.
  struct Shape {
    std::vector<std::string> head{};
    std::size_t width = 0;
  };
  [[nodiscard]] std::vector<Shape> shapes() const;
  /// The table of the first column and of the columns from `first` to before `end`.
  [[nodiscard]] std::string part(const std::vector<Shape>& shapes, std::size_t first, std::size_t end) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace spillway
