#include "sim/cli/about/list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hwmodels/catalog.hpp"
#include "sim/api/key_owners.hpp"
#include "sim/api/registry.hpp"
#include "sim/api/router.hpp"
#include "sim/config/config.hpp"
#include "sim/io/output.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/study/experiments.hpp"
#include "sim/study/parameter_table.hpp"
#include "traces/generators/quantile_table.hpp"

namespace spillway::cli {
namespace {

std::vector<Listed> policies() {
  std::vector<Listed> all;
  for (const PolicyInfo* info : PolicyRegistry::instance().all()) all.push_back({info->name, info->summary});
  return all;
}

std::vector<Listed> routers() {
  std::vector<Listed> all;
  for (const RouterInfo* info : RouterRegistry::instance().all()) all.push_back({info->name, info->summary});
  return all;
}

/// Data files of hwmodels, each with a description.
template <class Load>
std::vector<Listed> data_files(const std::vector<std::string>& names, Load load) {
  std::vector<Listed> all;
  all.reserve(names.size());
  for (const std::string& name : names) all.push_back({name, load(name).file.stands_for});
  return all;
}

std::vector<Listed> hardware() {
  std::vector<Listed> all;
  for (const std::string& name : hwmodels::hardware_names()) {
    const hwmodels::Hardware one = hwmodels::load_hardware(name);
    all.push_back({.name = name, .summary = one.file().stands_for, .kind = one.server ? "server" : "GPU"});
  }
  return all;
}

std::vector<Listed> workloads() {
  std::vector<Listed> all;
  for (const std::string& name : traces::bundled_names()) {
    const EmbeddedFile* file = traces::bundled_file(name);
    const auto table = traces::QuantileTable::parse(file->content, std::string(file->path));
    const std::string turns =
        table.mean_turns() ? fmt::format(" a turn; turns: mean {}", *table.mean_turns()) : std::string();
    all.push_back({name, table.summary(),
                   fmt::format("tokens in / out: mean {} / {}, p99 {} / {}{}; source: {}", table.input().mean,
                               table.output().mean, table.input().p99, table.output().p99, turns, table.source())});
  }
  return all;
}

std::vector<Listed> metrics() {
  std::vector<Listed> all;
  for (const MetricDefinition& definition : metric_definitions()) {
    all.push_back({definition.name, definition.definition});
  }
  return all;
}

/// Each key with its default; a key of several policies once for each.
std::vector<Listed> keys() {
  std::vector<Listed> all;
  const auto add = [&all](const Parameter& parameter, const std::string& owner) {
    const std::string standard =
        parameter.default_value.empty() ? "" : fmt::format("Default: {}", parameter.default_value);
    all.push_back({parameter.name, parameter.doc, standard, owner});
  };
  for (const Parameter& parameter : parameter_table()) add(parameter, "any");
  for (const KeyOwner& owner : key_owners()) {
    for (const Parameter& parameter : *owner.parameters) add(parameter, owner.name);
  }
  return all;
}

std::vector<Listed> experiments() {
  std::vector<Listed> all;
  for (const LoadedExperiment& one : bundled_experiments()) {
    std::vector<std::string> ids;
    for (const Claim& claim : one.experiment.claims) ids.push_back(claim.id);
    all.push_back({one.experiment.name, one.experiment.about, fmt::format("claims: {}", fmt::join(ids, ", "))});
  }
  return all;
}

}  // namespace

const std::vector<std::string>& list_kinds() {
  static const std::vector<std::string> kKinds{"policies",  "routers", "hardware",    "models", "engines",
                                               "workloads", "metrics", "experiments", "keys"};
  return kKinds;
}

std::vector<Listed> listed(const std::string& kind) {
  if (kind == "policies") return policies();
  if (kind == "routers") return routers();
  if (kind == "hardware") return hardware();
  if (kind == "models") return data_files(hwmodels::llm_names(), hwmodels::load_llm);
  if (kind == "engines") return data_files(hwmodels::engine_names(), hwmodels::load_engine);
  if (kind == "workloads") return workloads();
  if (kind == "metrics") return metrics();
  if (kind == "experiments") return experiments();
  if (kind == "keys") return keys();
  throw ConfigError(fmt::format("there is no list of \"{}\"", kind), "list " + kind,
                    suggestion(kind, list_kinds()) + fmt::format("lists: {}", fmt::join(list_kinds(), ", ")));
}

ExitCode list(const std::string& kind, bool json) {
  const std::vector<Listed> all = listed(kind);
  if (json) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const Listed& one : all) {
      rows.push_back({{"name", one.name}, {"summary", one.summary}});
      if (!one.details.empty()) rows.back()["details"] = one.details;
      if (!one.kind.empty()) rows.back()["kind"] = one.kind;
    }
    print_result(rows.dump(2) + "\n");
    return ExitCode::ok;
  }
  std::size_t width = 0;
  std::size_t kind_width = 0;
  for (const Listed& one : all) {
    width = std::max(width, one.name.size());
    kind_width = std::max(kind_width, one.kind.size());
  }
  std::string text;
  for (const Listed& one : all) {
    const std::string column = kind_width == 0 ? std::string() : fmt::format("  {:<{}}", one.kind, kind_width);
    text += fmt::format("{:<{}}{}  {}{}\n", one.name, width, column, one.summary,
                        one.details.empty() ? "" : "  " + one.details);
  }
  print_result(text);
  return ExitCode::ok;
}

}  // namespace spillway::cli
