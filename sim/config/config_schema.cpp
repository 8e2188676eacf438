// The JSON Schema of configuration files, from the descriptors.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/api/key_owners.hpp"
#include "sim/config/config.hpp"
#include "sim/config/instance_keys.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

void add_range(Json& schema, const Parameter& parameter) {
  if (std::isfinite(parameter.minimum)) {
    schema[parameter.above_minimum ? "exclusiveMinimum" : "minimum"] = parameter.minimum;
  }
  if (std::isfinite(parameter.maximum)) schema["maximum"] = parameter.maximum;
}

/// The choices, as texts and in their JSON types: true for "true", 2 for "2".
Json choices_of(const Parameter& parameter) {
  Json choices = parameter.choices;
  for (const std::string& choice : parameter.choices) {
    const Json plain = Json::parse(choice, nullptr, false);
    if (plain.is_boolean() || plain.is_number()) choices.push_back(plain);
  }
  choices.push_back(nullptr);
  return choices;
}

/// null means "not given" everywhere.
Json schema_of(const Parameter& parameter) {
  Json schema;
  switch (parameter.type) {
    case ParameterType::boolean:
      schema["type"] = {"boolean", "null"};
      break;
    case ParameterType::integer:
      schema["type"] = {"integer", "null"};
      add_range(schema, parameter);
      break;
    case ParameterType::real:
      schema["type"] = {"number", "null"};
      add_range(schema, parameter);
      break;
    case ParameterType::text:
      if (parameter.unit == kFileUnit) {
        schema["type"] = {"string", "null"};
      } else if (parameter.unit == kListUnit) {
        schema["type"] = {"array", "string", "null"};
        schema["items"] = {{"type", "object"}};
      } else if (parameter.choices.empty()) {
        schema["type"] = {"string", "number", "null"};  // a length is a number or a distribution
      } else {
        schema["type"] = {"string", "null"};
        schema["examples"] = parameter.choices;
      }
      break;
    case ParameterType::choice:
      schema["enum"] = choices_of(parameter);
      break;
    case ParameterType::duration:
      schema["type"] = {"string", "null"};
      schema["pattern"] = "^ *[0-9.]+(e[-+]?[0-9]+)? *(ns|us|ms|s|min|h|d) *$";
      break;
    case ParameterType::bytes:
      schema["type"] = {"string", "null"};
      schema["pattern"] =
          fmt::format("^ *[0-9.]+(e[-+]?[0-9]+)? *([kKMGT]?B|[KMGT]iB{}) *$", parameter.takes_blocks ? "|blocks?" : "");
      break;
    case ParameterType::span:
      schema["type"] = {"string", "null"};
      schema["pattern"] = "^ *[0-9.]+(e[-+]?[0-9]+)? *(%|req|ns|us|ms|s|min|h|d) *$";
      break;
  }
  schema["description"] =
      fmt::format("{}. Takes {}.{}", parameter.doc, describe_type(parameter),
                  parameter.default_value.empty() ? "" : " Default: " + parameter.default_value + ".");
  return schema;
}

/// A key of several policies takes the values of each of them.
void add_property(Json& properties, const std::string& name, const Json& schema) {
  if (!properties.contains(name)) {
    properties[name] = schema;
    return;
  }
  Json& present = properties[name];
  if (present == schema) return;
  if (!present.contains("anyOf")) present = Json{{"anyOf", Json::array({present})}};
  for (const Json& alternative : present["anyOf"]) {
    if (alternative == schema) return;
  }
  present["anyOf"].push_back(schema);
}

/// Adds the nested forms of dotted keys: "a.b.c" is also the "b.c" of an object "a", and the "c" of its object "b".
void nest(Json& properties) {
  Json groups = Json::object();
  for (const auto& [name, schema] : properties.items()) {
    const std::size_t dot = name.find('.');
    if (dot != std::string::npos) add_property(groups[name.substr(0, dot)], name.substr(dot + 1), schema);
  }
  for (auto& [group, members] : groups.items()) {
    nest(members);
    if (properties.contains(group)) members["name"] = properties[group];
    const Json object{{"type", "object"}, {"additionalProperties", false}, {"properties", members}};
    add_property(properties, group, object);
  }
}

}  // namespace

Json config_schema(const std::vector<Parameter>& table) {
  std::vector<Parameter> all = table;
  for (const KeyOwner& owner : key_owners()) {
    all.insert(all.end(), owner.parameters->begin(), owner.parameters->end());
  }
  Json flat = Json::object();
  for (const Parameter& parameter : all) add_property(flat, parameter.name, schema_of(parameter));
  nest(flat);
  if (flat.contains(kInstancesKey)) {
    Json keys = Json::object();
    for (const Parameter& parameter : all) {
      if (refusal_in_instance(parameter.name).empty()) add_property(keys, parameter.name, schema_of(parameter));
    }
    nest(keys);
    keys["name"] = {{"type", "string"}, {"description", "What the result calls it"}};
    keys["gpus"] = {{"type", {"array", "string", "integer"}},
                    {"description", "GPUs of the server, numbered from 0: 4, \"0-3\" or [0, 1]"}};
    keys["share"] = {{"type", "number"},
                     {"exclusiveMinimum", 0},
                     {"maximum", 1},
                     {"description", "Its part of the workload; all parts sum to 1"}};
    keys["free_memory"] = schema_of({.name = "free_memory",
                                     .type = ParameterType::bytes,
                                     .unit = "bytes",
                                     .default_value = "",
                                     .minimum = 0.0,
                                     .doc = "Memory that other GPUs may borrow from each GPU of this element "
                                            "(memory.lender). An element with free_memory serves no requests",
                                     .source = "AQUA (arXiv 2407.21255), section 5: a producer that is no LLM"});
    keys["hbm_share"] = {{"type", {"number", "null"}},
                         {"minimum", 0},
                         {"maximum", 1},
                         {"description", "Beside free_memory: share of its GPUs' memory bandwidth that is in use"}};
    flat[kInstancesKey]["items"] = {
        {"type", "object"}, {"required", {"gpus"}}, {"additionalProperties", false}, {"properties", std::move(keys)}};
  }
  return {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
          {"title", "Spillway configuration"},
          {"type", "object"},
          {"additionalProperties", false},
          {"properties", flat}};
}

}  // namespace spillway
