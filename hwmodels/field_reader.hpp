// Reading a data file field by field.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hwmodels/data_file.hpp"
#include "sim/core/error.hpp"

namespace spillway::hwmodels {

/// Inclusive bounds: wide enough for any future machine, narrow enough to catch a wrong unit.
struct Range {
  double low;
  double high;
  std::string_view text;
};
inline constexpr Range kBandwidth{1e6, 1e16, "between 1 MB/s and 1e16 bytes/s"};
inline constexpr Range kFlops{1e9, 1e19, "between 1e9 and 1e19 FLOP/s"};
inline constexpr Range kSeconds{0.0, 10.0, "between 0 and 10 s"};
inline constexpr Range kEfficiency{1e-6, 1.0, "above 0 and at most 1"};

/// Reads one data file. Every call declares a field of `values` and records its problems; finish() reports all of them.
/// A field with a problem reads as the low end of its range, as false or as empty.
class FieldReader {
 public:
  /// `path` is what messages call the file. Throws DataError when `content` is not JSON, or is of another kind or
  /// schema version, which has other fields.
  FieldReader(const Kind& kind, std::string path, std::string_view content);

  double number(const char* key, const char* unit, const Range& range);
  /// Like number(), but the value may be null.
  std::optional<double> number_or_null(const char* key, const char* unit, const Range& range);
  std::int64_t integer(const char* key, const char* unit, std::int64_t low, std::int64_t high);
  /// Like integer(), but the value may be null.
  std::optional<std::int64_t> integer_or_null(const char* key, const char* unit, std::int64_t low, std::int64_t high);
  bool flag(const char* key);
  /// Like flag(), but false when the file leaves the field out.
  bool optional_flag(const char* key);
  /// Like number(), but 0 when the file leaves the field out.
  double number_or_zero(const char* key, const char* unit, const Range& range);
  /// Like number_or_null(), but empty when the file leaves the field out.
  std::optional<double> optional_number_or_null(const char* key, const char* unit, const Range& range);
  /// Like integer() from 1 on, but 1 when the file leaves the field out.
  std::int64_t integer_or_one(const char* key, const char* unit, std::int64_t high);
  /// Whether the file states a field, which the caller need not have read.
  [[nodiscard]] bool states(const char* key) const { return values_.contains(key); }
  /// The name of another data file, not empty.
  std::string name(const char* key);
  /// A condition between fields. It is checked only while no problem was found.
  void require(bool holds, const char* key, const std::string& what);

  /// A section of the file's kind, or null when the file has none.
  [[nodiscard]] const nlohmann::json* section(std::string_view name) const;
  /// Reads {value, unit, source} at a location in a section, like number_or_null(). `row` is called `key`; empty when
  /// there was no entry to read.
  struct Quantity {
    std::optional<double> value{};
    std::optional<Entry> row{};
  };
  Quantity quantity(const nlohmann::json& entry, const nlohmann::json::json_pointer& at, std::string key,
                    const char* unit, const Range& range);
  /// Records every field of an object in a section that is not allowed.
  void reject_unknown(const nlohmann::json& object, const nlohmann::json::json_pointer& at,
                      const std::vector<std::string>& allowed);
  /// Records a problem with the value of a field.
  void fail(const char* key, std::string what, std::string fix = {});
  /// Records a problem at a location in the file.
  void fail(const nlohmann::json::json_pointer& at, std::string what, std::string fix = {});

  /// Records problems found in a section; their locations are JSON pointers.
  void adopt(std::vector<Problem> problems);

  /// What the file says about itself. Throws DataError with all problems.
  DataFile finish();

 private:
  void check_header(std::string_view kind) const;
  std::string text(const nlohmann::json& object, const nlohmann::json::json_pointer& at, const char* key);
  void read_source(const nlohmann::json& entry, const nlohmann::json::json_pointer& at, Entry& row);
  const nlohmann::json* field(const char* key, const char* unit);
  const nlohmann::json* read_entry(const nlohmann::json& entry, const nlohmann::json::json_pointer& at, std::string key,
                                   const char* unit);
  std::optional<std::int64_t> optional_integer(const char* key, const char* unit, std::int64_t low, std::int64_t high,
                                               bool nullable);
  std::optional<double> optional_number(const char* key, const char* unit, const Range& range, bool nullable);

  nlohmann::json document_;
  nlohmann::json values_ = nlohmann::json::object();
  DataFile file_;
  std::vector<std::string> known_;
  std::vector<Problem> problems_;
};

/// Opens an embedded file by name, or a user's file by path. Throws ConfigError for an unknown name, with the nearest
/// one, and DataError as read_file() and FieldReader do.
[[nodiscard]] FieldReader open_data_file(const Kind& kind, std::string_view name_or_file);

}  // namespace spillway::hwmodels
