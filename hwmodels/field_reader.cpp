#include "hwmodels/field_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "hwmodels/json_messages.hpp"
#include "sim/core/text.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

constexpr std::int64_t kSchemaVersion = 1;
const std::array<std::string, 4> kSourceKinds{"measured", "datasheet", "borrowed", "assumed"};
const json::json_pointer kRoot{""};
const json::json_pointer kValues{"/values"};

}  // namespace

FieldReader::FieldReader(const Kind& kind, std::string path, std::string_view content) {
  file_.path = std::move(path);
  file_.sha256 = sha256_hex(content);
  try {
    document_ = json::parse(content);
  } catch (const json::exception& error) {
    throw DataError(fmt::format("not a JSON document: {}", json_fault(error)), file_.path);
  }
  check_header(kind.name);
  std::vector<std::string> fields{"schema_version", "kind", "name", "stands_for", "error", "source"};
  if (kind.has_values) fields.emplace_back("values");
  fields.insert(fields.end(), kind.sections.begin(), kind.sections.end());
  reject_unknown(document_, kRoot, fields);
  file_.name = text(document_, kRoot, "name");
  file_.stands_for = text(document_, kRoot, "stands_for");
  file_.error = text(document_, kRoot, "error");
  if (!kind.has_values) return;
  if (document_.contains("values") && document_["values"].is_object()) {
    values_ = document_["values"];
  } else {
    fail(kValues, "must be an object that holds the fields");
  }
}

double FieldReader::number(const char* key, const char* unit, const Range& range) {
  return optional_number(key, unit, range, false).value_or(range.low);
}

std::optional<double> FieldReader::number_or_null(const char* key, const char* unit, const Range& range) {
  return optional_number(key, unit, range, true);
}

std::int64_t FieldReader::integer(const char* key, const char* unit, std::int64_t low, std::int64_t high) {
  return optional_integer(key, unit, low, high, false).value_or(low);
}

std::optional<std::int64_t> FieldReader::integer_or_null(const char* key, const char* unit, std::int64_t low,
                                                         std::int64_t high) {
  return optional_integer(key, unit, low, high, true);
}

bool FieldReader::flag(const char* key) {
  const json* value = field(key, "bool");
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  fail(key, fmt::format("must be true or false, not {}", value->dump()));
  return false;
}

double FieldReader::number_or_zero(const char* key, const char* unit, const Range& range) {
  if (values_.contains(key)) return number(key, unit, range);
  known_.emplace_back(key);
  return 0.0;
}

std::optional<double> FieldReader::optional_number_or_null(const char* key, const char* unit, const Range& range) {
  if (values_.contains(key)) return number_or_null(key, unit, range);
  known_.emplace_back(key);
  return std::nullopt;
}

std::int64_t FieldReader::integer_or_one(const char* key, const char* unit, std::int64_t high) {
  if (values_.contains(key)) return integer(key, unit, 1, high);
  known_.emplace_back(key);
  return 1;
}

bool FieldReader::optional_flag(const char* key) {
  if (values_.contains(key)) return flag(key);
  known_.emplace_back(key);
  return false;
}

std::string FieldReader::name(const char* key) {
  const json* value = field(key, "name");
  if (value == nullptr) return {};
  if (value->is_string() && !value->get_ref<const std::string&>().empty()) return *value;
  fail(key, fmt::format("must be a name, not {}", value->dump()));
  return {};
}

void FieldReader::require(bool holds, const char* key, const std::string& what) {
  if (!holds && problems_.empty()) fail(key, what);
}

const json* FieldReader::section(std::string_view name) const {
  const auto it = document_.find(name);
  return it == document_.end() ? nullptr : &*it;
}

FieldReader::Quantity FieldReader::quantity(const json& entry, const json::json_pointer& at, std::string key,
                                            const char* unit, const Range& range) {
  const json* const value = read_entry(entry, at, std::move(key), unit);
  if (value == nullptr) return {};
  Quantity read{.row = file_.entries.back()};
  if (value->is_null()) return read;
  if (!value->is_number() || value->get<double>() < range.low || value->get<double>() > range.high) {
    fail(at / "value", fmt::format("must be a number {}, not {}", range.text, value->dump()));
    return read;
  }
  read.value = value->get<double>();
  return read;
}

void FieldReader::fail(const char* key, std::string what, std::string fix) {
  fail(kValues / key / "value", std::move(what), std::move(fix));
}

void FieldReader::fail(const json::json_pointer& at, std::string what, std::string fix) {
  problems_.push_back({std::move(what), fmt::format("{} at {}", file_.path, at.to_string()), std::move(fix)});
}

void FieldReader::adopt(std::vector<Problem> problems) {
  for (Problem& problem : problems) {
    problem.where = fmt::format("{} at {}", file_.path, problem.where);
    problems_.push_back(std::move(problem));
  }
}

DataFile FieldReader::finish() {
  reject_unknown(values_, kValues, known_);
  if (!problems_.empty()) throw DataError(std::move(problems_));
  return std::move(file_);
}

/// Nothing else is reported for another schema version or kind, because its fields differ.
void FieldReader::check_header(std::string_view kind) const {
  if (!document_.is_object()) throw DataError("the file must hold a JSON object", file_.path);
  const auto expect = [&](const char* key, const json& wanted) {
    const json found = document_.value(key, json());
    if (found == wanted) return;
    throw DataError(fmt::format("must be {}, not {}", wanted.dump(), found.dump()),
                    fmt::format("{} at /{}", file_.path, key));
  };
  expect("schema_version", kSchemaVersion);
  expect("kind", kind);
}

void FieldReader::reject_unknown(const json& object, const json::json_pointer& at,
                                 const std::vector<std::string>& allowed) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    fail(at / key, "unknown field", nearest_and_all(key, allowed));
  }
}

std::string FieldReader::text(const json& object, const json::json_pointer& at, const char* key) {
  const auto it = object.find(key);
  if (it != object.end() && it->is_string() && !it->get_ref<const std::string&>().empty()) return *it;
  fail(at / key, it == object.end() ? "missing" : fmt::format("must be a text, not {}", it->dump()));
  return {};
}

void FieldReader::read_source(const json& entry, const json::json_pointer& at, Entry& row) {
  const bool own = entry.contains("source");
  const json::json_pointer source_at = (own ? at : kRoot) / "source";
  const json source = own ? entry["source"] : document_.value("source", json());
  if (!source.is_object()) return fail(at / "source", "missing: the field or the whole file needs {kind, cite}");
  reject_unknown(source, source_at, {"kind", "cite"});
  row.source_kind = text(source, source_at, "kind");
  row.citation = text(source, source_at, "cite");
  if (!row.source_kind.empty() &&
      std::find(kSourceKinds.begin(), kSourceKinds.end(), row.source_kind) == kSourceKinds.end()) {
    fail(source_at / "kind", fmt::format("unknown kind \"{}\"", row.source_kind),
         nearest_and_all(row.source_kind, kSourceKinds));
  }
}

/// Checks what all fields have in common. Returns the value, or null when there is none.
const json* FieldReader::field(const char* key, const char* unit) {
  known_.emplace_back(key);
  const json::json_pointer at = kValues / key;
  const auto it = values_.find(key);
  if (it == values_.end()) return fail(at, "missing"), nullptr;
  return read_entry(*it, at, key, unit);
}

const json* FieldReader::read_entry(const json& entry, const json::json_pointer& at, std::string key,
                                    const char* unit) {
  if (!entry.is_object()) {
    return fail(at, fmt::format("must be an object {{value, unit, source}}, not {}", entry.dump())), nullptr;
  }
  reject_unknown(entry, at, {"value", "unit", "source"});
  Entry row{.key = std::move(key), .value = {}, .unit = text(entry, at, "unit"), .source_kind = {}, .citation = {}};
  if (!row.unit.empty() && row.unit != unit) {
    fail(at / "unit", fmt::format("must be \"{}\", not \"{}\"", unit, row.unit));
  }
  read_source(entry, at, row);
  const auto value = entry.find("value");
  if (value == entry.end()) return fail(at / "value", "missing"), nullptr;
  row.value = value->is_string()         ? value->get<std::string>()
              : value->is_number_float() ? fmt::format("{:.10g}", value->get<double>())
                                         : value->dump();
  file_.entries.push_back(std::move(row));
  return &*value;
}

std::optional<std::int64_t> FieldReader::optional_integer(const char* key, const char* unit, std::int64_t low,
                                                          std::int64_t high, bool nullable) {
  const json* value = field(key, unit);
  if (value == nullptr || (nullable && value->is_null())) return std::nullopt;
  if (!value->is_number_integer() || *value < low || *value > high) {
    fail(kValues / key / "value",
         fmt::format("must be an integer between {} and {}, not {}", low, high, value->dump()));
    return std::nullopt;
  }
  return value->get<std::int64_t>();
}

std::optional<double> FieldReader::optional_number(const char* key, const char* unit, const Range& range,
                                                   bool nullable) {
  const json* value = field(key, unit);
  if (value == nullptr || (nullable && value->is_null())) return std::nullopt;
  if (!value->is_number() || value->get<double>() < range.low || value->get<double>() > range.high) {
    fail(key, fmt::format("must be a number {}, not {}", range.text, value->dump()));
    return std::nullopt;
  }
  return value->get<double>();
}

FieldReader open_data_file(const Kind& kind, std::string_view name_or_file) {
  if (is_path(name_or_file)) {
    std::string path(name_or_file);
    const std::string content = read_file(path);
    return {kind, std::move(path), content};
  }
  if (const EmbeddedFile* file = find_embedded(kind, name_or_file)) {
    return {kind, std::string(file->path), file->content};
  }
  throw ConfigError(fmt::format("unknown {} \"{}\"", kind.key, name_or_file), std::string(kind.key),
                    nearest_and_all(name_or_file, names_of(kind)) + ", or a JSON file's path");
}

}  // namespace spillway::hwmodels
