#include "hwmodels/data_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <utility>

#include "hwmodels/hf_object.hpp"
#include "sim/core/text.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

constexpr std::int64_t kSchemaVersion = 1;
const std::array<std::string, 4> kSourceKinds{"measured", "datasheet", "borrowed", "assumed"};
constexpr std::string_view kSuffix = ".json";
const json::json_pointer kRoot{""};
const json::json_pointer kValues{"/values"};

/// Devices and pipes may have no end; opening a pipe waits for a writer.
void check_regular(const std::string& path) {
  std::error_code none;
  const auto status = std::filesystem::status(path, none);
  const bool opens = std::filesystem::is_regular_file(status) || std::filesystem::is_directory(status);
  if (opens || !std::filesystem::exists(status)) return;
  throw DataError("is not a regular file", path, "write it to a file first and name that");
}

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
  std::vector<std::string> fields{"schema_version", "kind", "name", "stands_for", "error", "source", "values"};
  fields.insert(fields.end(), kind.sections.begin(), kind.sections.end());
  reject_unknown(document_, kRoot, fields);
  file_.name = text(document_, kRoot, "name");
  file_.stands_for = text(document_, kRoot, "stands_for");
  file_.error = text(document_, kRoot, "error");
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

/// Another schema version or kind has other fields, so nothing else is reported then.
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

/// Checks what is common to all fields; the value, or null when there is none.
const json* FieldReader::field(const char* key, const char* unit) {
  known_.emplace_back(key);
  const json::json_pointer at = kValues / key;
  const auto it = values_.find(key);
  if (it == values_.end()) return fail(at, "missing"), nullptr;
  if (!it->is_object()) {
    return fail(at, fmt::format("must be an object {{value, unit, source}}, not {}", it->dump())), nullptr;
  }
  reject_unknown(*it, at, {"value", "unit", "source"});
  Entry row{.key = key, .value = {}, .unit = text(*it, at, "unit"), .source_kind = {}, .citation = {}};
  if (!row.unit.empty() && row.unit != unit) {
    fail(at / "unit", fmt::format("must be \"{}\", not \"{}\"", unit, row.unit));
  }
  read_source(*it, at, row);
  const auto value = it->find("value");
  if (value == it->end()) return fail(at / "value", "missing"), nullptr;
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

std::vector<std::string> names_of(const Kind& kind) {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.path.starts_with(kind.folder)) continue;
    names.emplace_back(file.path.substr(kind.folder.size(), file.path.size() - kind.folder.size() - kSuffix.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_path(std::string_view name_or_file) {
  return name_or_file.find('/') != std::string_view::npos || name_or_file.ends_with(kSuffix);
}

std::string read_file(const std::string& path) {
  check_regular(path);
  std::ifstream stream(path, std::ios::binary);
  std::string content;
  std::array<char, 65536> buffer{};
  while (stream.read(buffer.data(), buffer.size()), stream.gcount() > 0) {
    content.append(buffer.data(), static_cast<std::size_t>(stream.gcount()));
    if (content.size() > kMostFileBytes) {
      throw DataError(fmt::format("is larger than {} MB, as no such file is", kMostFileBytes / 1'000'000), path,
                      "check that it is the file that you mean");
    }
  }
  // A folder opens but cannot be read.
  if (!stream.is_open() || stream.bad()) throw DataError("cannot be read", path, "check the path and its permissions");
  return content;
}

const EmbeddedFile* find_embedded(const Kind& kind, std::string_view name) {
  const std::string path = fmt::format("{}{}{}", kind.folder, name, kSuffix);
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.path == path) return &file;
  }
  return nullptr;
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

std::string nearest_and_all(std::string_view word, std::span<const std::string> allowed) {
  const std::string near = nearest_name(word, allowed);
  return (near.empty() ? std::string() : fmt::format("did you mean \"{}\"? ", near)) +
         fmt::format("allowed: {}", fmt::join(allowed, ", "));
}

}  // namespace spillway::hwmodels
