#include "hwmodels/fitted_json_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "hwmodels/json_messages.hpp"
#include "sim/core/text.hpp"

namespace spillway::hwmodels {

using nlohmann::json;

void FitWriter::number(const char* key, const double& value, const Limits& /*limits*/) { object_[key] = value; }

void FitWriter::integer(const char* key, const std::int64_t& value, std::int64_t /*low*/, std::int64_t /*high*/) {
  object_[key] = value;
}

void FitWriter::flag(const char* key, const bool& value) { object_[key] = value; }

void FitWriter::text(const char* key, const std::string& value) { object_[key] = value; }

void FitWriter::numbers(const char* key, const std::vector<double>& values, const Limits& /*limits*/) {
  object_[key] = values;
}

void FitWriter::table(const char* key, const std::vector<double>& values, std::size_t width, const Limits& /*limits*/) {
  json rows = json::array();
  for (std::size_t i = 0; i < values.size(); i += width) {
    rows.push_back(json(std::vector<double>(values.begin() + static_cast<std::ptrdiff_t>(i),
                                            values.begin() + static_cast<std::ptrdiff_t>(i + width))));
  }
  object_[key] = std::move(rows);
}

void FitWriter::set(const char* key, json value) { object_[key] = std::move(value); }

FitReader::FitReader(const json& object, std::string where, std::vector<Problem>& problems)
    : object_(object), where_(std::move(where)), problems_(problems) {
  if (!object_.is_object()) fail({}, fmt::format("must be an object, not {}", shown(object_)));
}

void FitReader::number(const char* key, double& value, const Limits& limits) {
  const json* found = find(key);
  if (found != nullptr) value = checked(*found, key, limits, value);
}

void FitReader::integer(const char* key, std::int64_t& value, std::int64_t low, std::int64_t high) {
  const json* found = find(key);
  if (found == nullptr) return;
  if (!found->is_number_integer() || *found < low || *found > high) {
    return fail(key, fmt::format("must be an integer between {} and {}, not {}", low, high, shown(*found)));
  }
  value = found->get<std::int64_t>();
}

void FitReader::flag(const char* key, bool& value) {
  const json* found = find(key);
  if (found == nullptr) return;
  if (!found->is_boolean()) return fail(key, fmt::format("must be true or false, not {}", shown(*found)));
  value = found->get<bool>();
}

void FitReader::text(const char* key, std::string& value) {
  const json* found = find(key);
  if (found == nullptr) return;
  if (!found->is_string()) return fail(key, fmt::format("must be a text, not {}", shown(*found)));
  value = found->get<std::string>();
}

void FitReader::numbers(const char* key, std::vector<double>& values, const Limits& limits) {
  const json* found = array(key);
  if (found == nullptr) return;
  values.clear();
  for (std::size_t i = 0; i < found->size(); ++i) {
    values.push_back(checked((*found)[i], fmt::format("{}/{}", key, i), limits, 0.0));
  }
}

void FitReader::table(const char* key, std::vector<double>& values, std::size_t width, const Limits& limits) {
  const json* found = array(key);
  if (found == nullptr) return;
  values.clear();
  for (std::size_t i = 0; i < found->size(); ++i) {
    const json& row = (*found)[i];
    const std::string at = fmt::format("{}/{}", key, i);
    if (!row.is_array() || row.size() != width) {
      fail(at, fmt::format("must be a list of {} numbers, not {}", width, shown(row)));
      continue;
    }
    for (std::size_t j = 0; j < width; ++j) {
      values.push_back(checked(row[j], fmt::format("{}/{}", at, j), limits, 0.0));
    }
  }
}

const json* FitReader::find(const char* key, bool optional) {
  asked_.emplace_back(key);
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(key);
  if (it != object_.end()) return &*it;
  if (!optional) fail(key, "missing");
  return nullptr;
}

const json* FitReader::array(const char* key, bool optional) {
  const json* found = find(key, optional);
  if (found == nullptr || found->is_array()) return found;
  fail(key, fmt::format("must be a list, not {}", shown(*found)));
  return nullptr;
}

void FitReader::finish() {
  if (!object_.is_object()) return;
  for (const auto& [key, value] : object_.items()) {
    if (std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
    const std::string near = nearest_name(key, asked_);
    fail(key, "unknown field", near.empty() ? std::string() : fmt::format("did you mean \"{}\"?", near));
  }
}

void FitReader::require(bool holds, const std::string& key, const std::string& rule) {
  if (!holds) fail(key, rule);
}

void FitReader::fail(const std::string& key, std::string what, std::string fix) {
  constexpr std::size_t kMost = 100;
  if (problems_.size() >= kMost) return;
  problems_.push_back({std::move(what), key.empty() ? where_ : fmt::format("{}/{}", where_, key), std::move(fix)});
}

std::string FitReader::pointer(const std::string& key) const { return fmt::format("{}/{}", where_, key); }

double FitReader::checked(const json& value, const std::string& key, const Limits& limits, double otherwise) {
  if (value.is_number() && value.get<double>() >= limits.low && value.get<double>() <= limits.high) {
    return value.get<double>();
  }
  fail(key, fmt::format("must be {}, not {}", limits.rule, shown(value)));
  return otherwise;
}

}  // namespace spillway::hwmodels
