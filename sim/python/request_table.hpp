// Per-request rows as columns, which numpy arrays view.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/request.hpp"

namespace spillway::python {

/// The columns of `spillway run --requests-out`, with the same names, values and order of rows. A column whose
/// values may be missing holds doubles, NaN where there is none, as pandas reads such a file. Texts are numbers of
/// a list.
class RequestTable {
 public:
  struct Column {
    std::string name;
    std::variant<std::vector<std::int64_t>, std::vector<double>> values;
    std::vector<std::string> texts{};  // that the values number; empty: they are values
  };

  /// `instances`: as RequestsFile's.
  explicit RequestTable(std::vector<std::string> instances);
  void add(std::int64_t replication, const RequestRecord& record);
  /// Adds the rows of a table with the same instances, and empties it.
  void append(RequestTable& other);
  [[nodiscard]] const std::vector<Column>& columns() const { return columns_; }

 private:
  std::vector<Column> columns_;
  bool has_instances_;
};

}  // namespace spillway::python
