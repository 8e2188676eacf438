#include <fmt/format.h>

#include <filesystem>

#include "hwmodels/catalog.hpp"
#include "sim/cli/assemble.hpp"
#include "sim/cli/list.hpp"
#include "sim/cli/output.hpp"
#include "sim/metrics.hpp"
#include "sim/text.hpp"
#include "traces/generators/quantile_table.hpp"

namespace spillway::cli {
namespace {

std::string field(std::string_view label, const std::string& text) {
  return text.empty() ? "" : fmt::format("  {:<9} {}\n", label, text);
}

std::string explain_key(const Parameter& parameter, const std::string& owner) {
  const std::string standard = parameter.default_value.empty() ? "unset" : parameter.default_value;
  return fmt::format("{} (key{})\n", parameter.name, owner) + field("what", parameter.doc) +
         field("takes", describe_type(parameter)) + field("default", standard) + field("source", parameter.source);
}

std::string explain_policy(const PolicyInfo& info) {
  std::string text = fmt::format("{} (policy)\n", info.name) + field("what", info.summary) +
                     field("source", info.source) + field("limits", info.limits);
  for (const Parameter& parameter : info.parameters) text += explain_key(parameter, " of policy " + info.name);
  return text;
}

std::string explain_data(std::string_view kind, const hwmodels::DataFile& file) {
  std::string text = fmt::format("{} ({})\n", file.name, kind) + field("what", file.stands_for) +
                     field("error", file.error) + field("file", file.path) + field("sha256", file.sha256);
  for (const hwmodels::Entry& entry : file.entries) {
    text += fmt::format("  {} = {}{}\n      {}: {}\n", entry.key, entry.value,
                        entry.unit == "1" || entry.unit == "bool" ? "" : " " + entry.unit, entry.source_kind,
                        entry.citation);
  }
  for (const std::string& warning : file.warnings) text += field("warning", warning);
  return text;
}

/// A user's model: its file, or the folder that holds its config.json. Empty when there is no such file.
std::string explain_model_file(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return "";
  // With a folder before it, no name of a file is taken for the name of a model.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  return explain_data("model", hwmodels::load_llm(file).file);
}

std::string explain_workload(const EmbeddedFile& file) {
  const auto table = traces::QuantileTable::parse(file.content, std::string(file.path));
  return fmt::format("{} (workload)\n", table.name()) + field("what", table.summary()) +
         field("source", table.source()) + field("file", std::string(file.path)) +
         field("sha256", sha256_hex(file.content));
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// "p99_ttft_ms" and "ttft_ms" alike.
const MetricDefinition* find_metric(const std::string& name) {
  for (const MetricDefinition& definition : metric_definitions()) {
    if (definition.name == name || (definition.distribution && name.ends_with("_" + definition.name))) {
      return &definition;
    }
  }
  return nullptr;
}

std::string explain_metric(const MetricDefinition& definition) {
  const std::string statistics =
      definition.distribution
          ? fmt::format("mean_{0}, median_{0}, std_{0}, min_{0}, max_{0}, p99_{0} (any pNN)", definition.name)
          : "";
  return fmt::format("{} (metric)\n", definition.name) + field("what", definition.definition) +
         field("unit", definition.unit) + field("names", statistics);
}

[[noreturn]] void refuse(const std::string& name) {
  std::vector<std::string> names;
  for (const std::string& kind : list_kinds()) {
    for (const Listed& one : listed(kind)) names.push_back(one.name);
  }
  for (const Parameter& parameter : parameter_table()) names.push_back(parameter.name);
  for (const PolicyInfo* info : PolicyRegistry::instance().all()) {
    for (const Parameter& parameter : info->parameters) names.push_back(parameter.name);
  }
  throw ConfigError(
      fmt::format("nothing is called \"{}\"", name), "explain " + name,
      suggestion(name, names) +
          fmt::format("spillway list {} shows the names; spillway config show the keys", fmt::join(list_kinds(), "|")));
}

}  // namespace

ExitCode explain(const std::string& name) {
  std::string text;
  if (const PolicyInfo* info = PolicyRegistry::instance().find(name)) text += explain_policy(*info);
  if (contains(hwmodels::gpu_names(), name)) text += explain_data("hardware", hwmodels::load_gpu(name).file);
  if (contains(hwmodels::llm_names(), name)) text += explain_data("model", hwmodels::load_llm(name).file);
  if (contains(hwmodels::engine_names(), name)) text += explain_data("engine", hwmodels::load_engine(name).file);
  if (const EmbeddedFile* file = traces::bundled_file(name)) text += explain_workload(*file);
  if (const MetricDefinition* definition = find_metric(name)) text += explain_metric(*definition);
  for (const Parameter& parameter : parameter_table()) {
    if (parameter.name == name) text += explain_key(parameter, "");
  }
  for (const PolicyInfo* info : PolicyRegistry::instance().all()) {
    for (const Parameter& parameter : info->parameters) {
      if (parameter.name == name) text += explain_key(parameter, " of policy " + info->name);
    }
  }
  if (text.empty()) text = explain_model_file(name);
  if (text.empty()) refuse(name);
  print_result(text);
  return ExitCode::ok;
}

}  // namespace spillway::cli
