#include "traces/readers/mapped_rows.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/core/text.hpp"
#include "sim/io/file_reader.hpp"
#include "traces/readers/column_map.hpp"
#include "traces/readers/csv_reader.hpp"
#include "traces/readers/measured_row.hpp"
#include "traces/readers/native_fields.hpp"
#include "traces/readers/row_checks.hpp"
#include "traces/readers/sorted_log.hpp"

namespace spillway::traces {
namespace {

using nlohmann::json;

std::vector<MappedColumn> columns_of(const ReaderOptions& options) {
  std::vector<Problem> problems;
  std::vector<MappedColumn> columns = parse_columns(options.columns, problems);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  return columns;
}

/// The parts of a mapped row that CSV and JSON share.
class MappedRow {
 public:
  explicit MappedRow(std::vector<MappedColumn> columns) : columns_(std::move(columns)) {
    for (const MappedColumn& column : columns_) {
      const std::size_t target = index(column.target);
      const std::array<std::string*, 5> names{&names_.input, &names_.output, &names_.sent, &names_.first_token,
                                              &names_.end};
      if (target < names.size()) *names.at(target) = column.source;
      if (column.target == Column::ttft_s) names_.first_token = column.source;
      if (column.target == Column::e2e_s) names_.end = column.source;
      timed_ = timed_ || column.target == Column::arrival_s;
    }
  }
  [[nodiscard]] const std::vector<MappedColumn>& columns() const { return columns_; }
  [[nodiscard]] bool timed() const { return timed_; }
  [[nodiscard]] static bool is_text(const MappedColumn& column) {
    return column.target == Column::client || column.target == Column::conversation;
  }

  void begin() { measured_ = {}; }
  void set_number(const MappedColumn& column, double value) {
    const std::array<std::optional<double>*, 7> numbers{&measured_.input,       &measured_.output, &measured_.sent,
                                                        &measured_.first_token, &measured_.end,    &measured_.ttft,
                                                        &measured_.e2e};
    const std::size_t target = index(column.target);
    if (target < numbers.size()) *numbers.at(target) = value * column.factor;
  }
  /// Fills the row. Returns what is wrong, else an empty text.
  [[nodiscard]] std::string finish(TraceRow& row) const {
    if (timed_ && !measured_.sent) return fmt::format("the request has no {}", names_.sent);
    return fill(measured_, names_, row);
  }
  [[nodiscard]] double sent() const { return measured_.sent.value_or(0.0); }

 private:
  static std::size_t index(Column column) { return static_cast<std::size_t>(column); }

  std::vector<MappedColumn> columns_;
  MeasuredNames names_{"input_tokens", "output_tokens", "arrival_s", "first_token_s", "end_s"};
  MeasuredRequest measured_;
  bool timed_ = false;
};

std::string turn_problem(double value, TraceRow& row) {
  if (!(value >= 1.0 && value <= 1e9 && std::floor(value) == value)) {
    return fmt::format("{} is not a turn, a whole number from 1", value);
  }
  row.turn = static_cast<std::int32_t>(value);
  return {};
}

/// The columns to find in a CSV file: each source once.
struct CsvSources {
  explicit CsvSources(const std::vector<MappedColumn>& columns) {
    for (const MappedColumn& column : columns) {
      const auto known = std::ranges::find(names, column.source);
      at.push_back(static_cast<std::size_t>(known - names.begin()));
      if (known == names.end()) names.push_back(column.source);
    }
    for (const std::string& name : names) list.push_back({name, true});
  }
  std::vector<std::string> names;
  std::vector<CsvColumn> list;
  std::vector<std::size_t> at;  // of each mapped column
};

/// Holds what CsvReader's constructor needs.
struct CsvMapping {
  explicit CsvMapping(const ReaderOptions& options) : mapped(columns_of(options)), sources(mapped.columns()) {}
  MappedRow mapped;
  CsvSources sources;
};

class MappedCsv final : private CsvMapping, public CsvReader {
 public:
  MappedCsv(const std::string& path, const ReaderOptions& options)
      : CsvMapping(options),
        CsvReader(path, {.columns = sources.list, .fix = "name columns of the file in workload.columns"}, options) {}
  static bool recognises(std::string_view) { return false; }
  [[nodiscard]] bool has_times() const override { return mapped.timed(); }
  [[nodiscard]] std::int64_t zero_outputs() const override { return zero_outputs_; }
  [[nodiscard]] const LogKey& key() const { return key_; }

 private:
  void parse(TraceRow& row) override {
    mapped.begin();
    for (std::size_t i = 0; i < sources.at.size(); ++i) read(mapped.columns()[i], sources.at[i], row);
    if (is_bad()) return;
    if (const std::string problem = mapped.finish(row); !problem.empty()) return bad(0, problem, kCorrectRow);
    key_ = {0, this->row(), mapped.sent()};
  }
  void read(const MappedColumn& column, std::size_t at, TraceRow& row) {
    const std::string_view text = field(at);
    if (text.empty()) return;
    if (column.target == Column::conversation) row.conversation = name_id(text);
    if (column.target == Column::client && !clients_.name(text, row.client)) {
      bad(at, "too many clients", kCorrectRow);
    }
    if (MappedRow::is_text(column)) return;
    const auto number = parse_number(text);
    if (!number) return bad(at, fmt::format("\"{}\" is not a number", excerpt(text)), kCorrectRow);
    if (column.target == Column::output_tokens && *number == 0.0) ++zero_outputs_;
    if (column.target != Column::turn) return mapped.set_number(column, *number);
    if (const std::string problem = turn_problem(*number, row); !problem.empty()) bad(at, problem, kCorrectRow);
  }

  LogKey key_;
  ClientNames clients_;
  std::int64_t zero_outputs_ = 0;
};

/// "metrics.isl.value" in an object; null where there is no such key.
const json* value_at(const json& row, std::string_view path) {
  if (const auto whole = row.find(path); whole != row.end()) return &*whole;
  const json* at = &row;
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    if (!at->is_object()) return nullptr;
    const auto found = at->find(path.substr(0, dot));
    if (found == at->end()) return nullptr;
    at = &*found;
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return at;
}

void add_keys(const json& object, const std::string& before, std::vector<std::string>& keys) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      add_keys(value, before + key + ".", keys);
    } else {
      keys.push_back(before + key);
    }
  }
}

class MappedJsonl final : public TraceReader {
 public:
  MappedJsonl(const std::string& path, const ReaderOptions& options)
      : mapped_(columns_of(options)), lines_(path), bad_(path, options.skip_bad_rows) {}
  static bool recognises(std::string_view) { return false; }
  [[nodiscard]] bool has_times() const override { return mapped_.timed(); }
  [[nodiscard]] std::int64_t zero_outputs() const override { return zero_outputs_; }
  [[nodiscard]] const LogKey& key() const { return key_; }
  [[nodiscard]] std::int64_t row() const override { return lines_.row(); }
  [[nodiscard]] std::int64_t skipped() const override { return bad_.skipped(); }
  [[nodiscard]] std::string first_skipped() const override { return bad_.first_skipped(); }

  bool next(TraceRow& row) override {
    std::string_view line;
    while (!bad_.full() && lines_.next(line)) {
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      bad_.begin();
      row.clear();
      parse(json::parse(line, nullptr, false), row);
      if (bad_.accepts()) return true;
    }
    bad_.raise();
    return false;
  }

 private:
  void complain(const std::string& part, std::string what) {
    bad_.add(lines_.row(), part, std::move(what), kCorrectRow);
  }
  void parse(const json& object, TraceRow& row) {
    if (!object.is_object()) return complain("", "the line is not a JSON object");
    if (!std::exchange(checked_, true)) check_names(object);
    mapped_.begin();
    for (const MappedColumn& column : mapped_.columns()) {
      const json* value = value_at(object, column.source);
      if (value != nullptr && !value->is_null()) read(column, *value, row);
    }
    if (bad_.is_bad()) return;
    if (std::string problem = mapped_.finish(row); !problem.empty()) return complain("", std::move(problem));
    key_ = {0, lines_.row(), mapped_.sent()};
  }
  /// A key that the first object lacks is a mistake in the mapping.
  void check_names(const json& object) const {
    std::vector<Problem> problems;
    for (const MappedColumn& column : mapped_.columns()) {
      if (value_at(object, column.source) != nullptr) continue;
      std::vector<std::string> keys;
      add_keys(object, "", keys);
      const std::string near = nearest_name(column.source, keys);
      problems.push_back(
          {fmt::format("the first object of {} has no \"{}\"", lines_.path(), column.source), "workload.columns",
           near.empty() ? fmt::format("it has {}", fmt::join(keys, ", ")) : fmt::format("did you mean \"{}\"?", near)});
    }
    if (!problems.empty()) throw ConfigError(std::move(problems));
  }
  void read(const MappedColumn& column, const json& value, TraceRow& row) {
    if (MappedRow::is_text(column)) {
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      if (text.empty()) return;
      if (column.target == Column::conversation) row.conversation = name_id(text);
      if (column.target == Column::client) (void)clients_.name(text, row.client);
      return;
    }
    const auto number = value.is_number()   ? std::optional(value.get<double>())
                        : value.is_string() ? parse_number(value.get<std::string>())
                                            : std::nullopt;
    if (!number || !std::isfinite(*number)) {
      return complain(fmt::format("key {}", column.source), fmt::format("{} is not a number", excerpt(value.dump())));
    }
    if (column.target == Column::output_tokens && *number == 0.0) ++zero_outputs_;
    if (column.target != Column::turn) return mapped_.set_number(column, *number);
    if (std::string problem = turn_problem(*number, row); !problem.empty()) {
      complain(fmt::format("key {}", column.source), std::move(problem));
    }
  }

  MappedRow mapped_;
  LineReader lines_;
  BadRows bad_;
  LogKey key_;
  ClientNames clients_;
  std::int64_t zero_outputs_ = 0;
  bool checked_ = false;
};

bool starts_with_brace(const std::string& path) {
  FileReader file(path);
  std::array<char, 4096> buffer{};
  const std::string_view head(buffer.data(), file.read(buffer.data(), buffer.size()));
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && head[first] == '{';
}

}  // namespace

std::unique_ptr<TraceReader> open_mapped(const std::string& path, const ReaderOptions& options) {
  if (starts_with_brace(path)) return std::make_unique<SortedLog<MappedJsonl>>(path, options);
  return std::make_unique<SortedLog<MappedCsv>>(path, options);
}

}  // namespace spillway::traces
