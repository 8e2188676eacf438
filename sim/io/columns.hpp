// Columns of figures for a terminal.
#pragma once

#include <string>
#include <vector>

namespace spillway {

/// Rows of cells below heads. A column is as wide as its widest cell. Heads are broken after underscores and dots.
/// Text columns are aligned to the left, figures to the right.
class Columns {
 public:
  void add(std::string head, bool text = false) { columns_.push_back({std::move(head), text}); }
  /// One cell for each column. With fewer cells, the last cell may fill the rest of the line.
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  [[nodiscard]] std::string text() const;

 private:
  struct Column {
    std::string head;
    bool text;
  };
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace spillway
