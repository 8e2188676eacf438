// cuda_calibrate/measurements.schema.json, and the subset of JSON Schema that the file uses.
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.hpp"

namespace spillway::calibrate {

inline const nlohmann::json& measurements_schema() {
  static const nlohmann::json kSchema = [] {
    std::ifstream file(source_dir() + "/cuda_calibrate/measurements.schema.json");
    return nlohmann::json::parse(file);
  }();
  return kSchema;
}

inline bool has_type(const nlohmann::json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  return type == "null" && value.is_null();
}

/// Violations of the schema in `value`, with locations. Unlike JSON Schema, this check also reports keys that the
/// schema does not name, because the tool must not write undescribed keys.
inline std::vector<std::string> schema_problems(const nlohmann::json& schema, const nlohmann::json& value,
                                                const std::string& at) {
  std::vector<std::string> problems;
  const auto complain = [&](const std::string& what) { problems.push_back(fmt::format("{}: {}", at, what)); };
  const auto descend = [&](const nlohmann::json& below, const nlohmann::json& part, const std::string& where) {
    for (const std::string& one : schema_problems(below, part, where)) problems.push_back(one);
  };
  if (schema.contains("type")) {
    const nlohmann::json& types = schema["type"];
    bool fits = false;
    for (const auto& type : types.is_array() ? types : nlohmann::json::array({types})) fits |= has_type(value, type);
    if (!fits) complain(fmt::format("{} is not of type {}", value.dump(), types.dump()));
  }
  if (schema.contains("const") && value != schema["const"]) complain(fmt::format("{} is another value", value.dump()));
  if (schema.contains("enum")) {
    bool found = false;
    for (const auto& one : schema["enum"]) found |= one == value;
    if (!found) complain(fmt::format("{} is none of {}", value.dump(), schema["enum"].dump()));
  }
  if (value.is_number()) {
    if (schema.contains("minimum") && value < schema["minimum"]) complain("below the minimum");
    if (schema.contains("maximum") && value > schema["maximum"]) complain("above the maximum");
    if (schema.contains("exclusiveMinimum") && value <= schema["exclusiveMinimum"]) complain("not above the minimum");
  }
  if (schema.contains("minLength") && value.is_string() && value.get<std::string>().empty()) complain("empty");
  if (schema.contains("minItems") && value.is_array() && value.empty()) complain("an empty list");
  if (schema.contains("items") && value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) descend(schema["items"], value[i], fmt::format("{}/{}", at, i));
  }
  const nlohmann::json* form = nullptr;
  if (schema.contains("oneOf")) {
    for (const auto& one : schema["oneOf"]) {
      for (const auto& name : one.at("properties").at("op").at("enum")) {
        if (value.is_object() && value.value("op", "") == name) form = &one;
      }
    }
    if (form == nullptr) complain(fmt::format("{} is of no form", value.dump()));
  }
  if (!value.is_object() || (!schema.contains("properties") && form == nullptr)) return problems;
  nlohmann::json known = schema.value("properties", nlohmann::json::object());
  nlohmann::json required = schema.value("required", nlohmann::json::array());
  if (form != nullptr) {
    known.update(form->at("properties"));
    for (const auto& key : form->at("required")) required.push_back(key);
  }
  for (const auto& key : required) {
    if (!value.contains(key.get<std::string>())) complain(fmt::format("{} is missing", key.get<std::string>()));
  }
  for (const auto& [key, part] : value.items()) {
    if (known.contains(key)) {
      descend(known[key], part, at + "/" + key);
    } else {
      complain(fmt::format("{} is not described", key));
    }
  }
  return problems;
}

}  // namespace spillway::calibrate
