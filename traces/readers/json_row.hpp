// The shared part of the readers of foreign JSON formats: values of an object by name, and complaints.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/io/line_reader.hpp"
#include "traces/readers/json_cursor.hpp"
#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

struct JsonField {
  enum class Kind : std::uint8_t { whole, real, ids };  // ids: a list of whole numbers below 2^64
  std::string_view name;
  Kind kind = Kind::whole;
  std::int64_t least = 0;  // of whole and real
  std::int64_t most = 0;
  bool required = true;
};

/// The values of one object. Unknown keys are ignored, as these formats carry more than a request.
class JsonRow {
 public:
  /// `fields` must outlive the row.
  explicit JsonRow(std::span<const JsonField> fields) : fields_(fields), values_(fields.size()) {}

  /// Reads an object and adds its problems to `bad`; `part` is its location in the row, or empty.
  void read(std::string_view text, std::int64_t row, const std::string& part, BadRows& bad);

  /// Values, by the index of their field.
  [[nodiscard]] bool has(std::size_t field) const { return values_[field].present; }
  [[nodiscard]] std::int64_t whole(std::size_t field) const { return values_[field].whole; }
  [[nodiscard]] double real(std::size_t field) const { return values_[field].real; }
  [[nodiscard]] std::span<const std::uint64_t> ids(std::size_t field) const { return values_[field].ids; }
  void complain(std::size_t field, std::string what, std::string fix);

 private:
  struct Value {
    bool seen = false;
    bool present = false;  // seen, and neither null nor bad
    std::int64_t whole = 0;
    double real = 0.0;
    std::vector<std::uint64_t> ids;
  };
  std::string_view scan_value(JsonCursor& cursor, std::size_t field);
  void read_number(std::size_t field, std::string_view word);

  std::span<const JsonField> fields_;
  std::vector<Value> values_;
  std::int64_t row_ = 0;  // location of the current object, for complaints
  std::string part_;
  BadRows* bad_ = nullptr;
};

/// Reads one object per line. Row numbers are lines of the file; empty lines are skipped. A bad row is reported with
/// the later bad rows, up to ten.
class JsonlReader : public TraceReader {
 public:
  bool next(TraceRow& row) final;
  [[nodiscard]] std::int64_t row() const final { return lines_.row(); }
  [[nodiscard]] std::int64_t skipped() const final { return bad_.skipped(); }
  [[nodiscard]] std::string first_skipped() const final { return bad_.first_skipped(); }

 protected:
  /// Throws DataError when the file cannot be read. `fields` must outlive the reader.
  JsonlReader(const std::string& path, std::span<const JsonField> fields, const ReaderOptions& options)
      : lines_(path), bad_(path, options.skip_bad_rows), values_(fields) {}

  /// Fills the cleared `row` from an object whose values are all valid, or complains.
  virtual void parse(JsonRow& values, TraceRow& row) = 0;
  /// True if the current row has a complaint.
  [[nodiscard]] bool is_bad() const { return bad_.is_bad(); }

 private:
  LineReader lines_;
  BadRows bad_;
  JsonRow values_;
  bool ended_ = false;
};

}  // namespace spillway::traces
