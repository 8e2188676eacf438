#include "sim/cli/about/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>

#include "hwmodels/catalog.hpp"
#include "hwmodels/external_names.hpp"
#include "hwmodels/topology_file.hpp"
#include "sim/api/key_owners.hpp"
#include "sim/api/router.hpp"
#include "sim/cli/about/explain_scope.hpp"
#include "sim/cli/about/list.hpp"
#include "sim/cli/about/topology_drawing.hpp"
#include "sim/config/names.hpp"
#include "sim/core/printable.hpp"
#include "sim/core/text.hpp"
#include "sim/io/output.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/experiments.hpp"
#include "sim/study/parameter_table.hpp"
#include "traces/generators/quantile_table.hpp"

namespace spillway::cli {
namespace {

/// Times and sizes are stored in whole ns and bytes, but users write larger units.
std::string unit_text(const Parameter& parameter) {
  const bool quantity = parameter.type == ParameterType::duration || parameter.type == ParameterType::bytes;
  return quantity ? "stored in " + parameter.unit + ", written with a unit" : parameter.unit;
}

std::string explain_data(std::string_view kind, const hwmodels::DataFile& file) {
  static const std::set<std::string> kBare{"1", "bool", "name"};
  std::string text = fmt::format("{} ({})\n", printable(file.name), kind) +
                     explain_field("what", printable(file.stands_for)) + explain_field("error", printable(file.error)) +
                     explain_field("file", printable(file.path)) + explain_field("sha256", file.sha256);
  for (const hwmodels::Entry& entry : file.entries) {
    text +=
        fmt::format("  {} = {}{}\n      {}: {}\n", entry.key, printable(entry.value),
                    kBare.contains(entry.unit) ? "" : " " + entry.unit, entry.source_kind, printable(entry.citation));
  }
  for (const std::string& warning : file.warnings) text += explain_field("warning", printable(warning));
  return text;
}

std::string explain_model(const hwmodels::LlmModel& llm) {
  return explain_data("model", llm.file) + explain_scope(llm);
}

std::string error_of(const hwmodels::ErrorSummary& error) {
  return fmt::format("median {:.1f}%, p95 {:.1f}%", 100.0 * error.median, 100.0 * error.p95);
}

std::string explain_fit(const hwmodels::FitLine& line) {
  const hwmodels::FitRecord& fit = *line.record;
  const hwmodels::ErrorSummary& held = fit.held_out;
  // A fit of another GPU has no error on this one.
  if (fit.source_kind == "borrowed" && held.n == 0) return fmt::format("  {}: {}\n", line.op, printable(fit.citation));
  std::string text = held.n == 0 ? fmt::format("  {}: no row could be held out", line.op)
                                 : fmt::format("  {}: {}, bias {:+.1f}% of {} rows held out ({})", line.op,
                                               error_of(held), 100.0 * held.bias, held.n, fit.held_out_by);
  if (fit.roofline) text += fmt::format("; analytic model: {} of {}", error_of(*fit.roofline), fit.roofline->n);
  text += fmt::format("\n      {}: {}", fit.source_kind, printable(fit.citation));
  for (const hwmodels::MeasuredRange& range : fit.ranges) {
    text += fmt::format("; {} {:.10g} to {:.10g}", range.quantity, range.low, range.high);
    if (const auto beyond = hwmodels::known_beyond(line.op, range, *line.record); !beyond.empty()) {
      text += fmt::format(" (beyond: {})", beyond);
    }
  }
  return text + "\n";
}

std::string explain_gpu(const hwmodels::GpuProfile& gpu) {
  std::string text = explain_data("GPU", gpu.file) + explain_scope(gpu);
  const std::vector<hwmodels::FitLine> fits = hwmodels::fit_lines(gpu.fitted);
  if (!fits.empty()) {
    text += explain_field("kernels", gpu.fitted_from.empty()
                                         ? "fitted to measurements; |predicted/measured - 1| of each:"
                                         : fmt::format("scaled from {0} to this GPU; the errors were measured on {0}:",
                                                       printable(gpu.fitted_from)));
  }
  for (const hwmodels::FitLine& line : fits) text += explain_fit(line);
  return text;
}

std::string explain_server(const hwmodels::ServerProfile& server) {
  std::string text = explain_data("server", server.file);
  if (server.of) {
    const std::string kind = fmt::format("server, {} of which make {}", server.servers, printable(server.file.name));
    text += explain_data(kind, *server.of);
  }
  for (const std::string& warning : server.topology.warnings) text += explain_field("warning", printable(warning));
  const std::filesystem::path host_file(server.host);
  const std::string host = (host_file.extension() == ".json" ? host_file.stem() : host_file).string();
  return text + "  topology  in: towards the GPUs, out: from them\n" +
         draw_topology(server.topology, fmt::format("host {}", printable(host)), server.servers);
}

std::string explain_topology(const hwmodels::TopologyFile& own) {
  std::string text = explain_data("topology", own.file);
  for (const std::string& warning : own.topology.warnings) text += explain_field("warning", printable(warning));
  return text + "  topology  in: towards the GPUs, out: from them\n" + draw_topology(own.topology, "host", 1);
}

/// Whether `name` is a path: no policy, key or model has such a name.
bool is_path(const std::string& name) { return name.find('/') != std::string::npos || name.ends_with(".json"); }

/// Explains a user's file: a profile, a model, or a folder with a model's config.json. Empty when the file does not
/// exist and `name` does not look like a path.
std::string explain_file(const std::string& name) {
  std::error_code none;
  const bool folder = std::filesystem::is_directory(name, none);
  if (!folder && !std::filesystem::exists(name, none)) {
    if (!is_path(name)) return "";
    if (hwmodels::llm_of_hub_id(name)) return explain_model(hwmodels::load_llm(name));
    const std::string advice = hwmodels::advice_on_hub_id(name);
    throw DataError(fmt::format("cannot read the file {}", name), "explain " + name,
                    "check its name and its permissions" + (advice.empty() ? "" : "; " + advice));
  }
  // "./" keeps a file name from being read as the name of a profile or a model.
  const std::string path = folder || is_path(name) ? name : "./" + name;
  const std::string kind = folder ? "" : hwmodels::stated_kind(path);
  if (kind == "gpu") return explain_gpu(hwmodels::load_gpu(path));
  if (kind == "server") return explain_server(hwmodels::load_server(path));
  if (kind == "topology") return explain_topology(hwmodels::load_topology(path, 0));
  if (kind == "host") return explain_data("host of a server", hwmodels::load_host(path).file);
  if (kind == "engine") return explain_data("engine", hwmodels::load_engine(path).file);
  return explain_model(hwmodels::load_llm(path));
}

std::string lengths_text(const traces::QuantileTable::Statistics& one) {
  return fmt::format("mean {}, p50 {}, p90 {}, p99 {}, max {} tokens", one.mean, one.p50, one.p90, one.p99, one.max);
}

std::string explain_workload(const EmbeddedFile& file) {
  const auto table = traces::QuantileTable::parse(file.content, std::string(file.path));
  std::string text = fmt::format("{} (workload)\n", table.name()) + explain_field("what", table.summary()) +
                     explain_field("source", table.source()) + explain_field("licence", table.licence()) +
                     explain_field("rows", table.requests() ? fmt::format("{}", *table.requests()) : "") +
                     explain_field("input", lengths_text(table.input())) +
                     explain_field("output", lengths_text(table.output()));
  if (table.rank_correlation()) {
    text += explain_field("both", fmt::format("rank correlation of input and output {}", *table.rank_correlation()));
  }
  if (table.mean_turns()) {
    text += explain_field("turns", fmt::format("geometric, mean {} per conversation; the lengths above are of one turn",
                                               *table.mean_turns()));
  }
  text += explain_field("think", table.think_time()) + explain_field("derived", table.derivation());
  for (const std::string& one : table.published()) text += explain_field("published", one);
  for (const std::string& one : table.assumed()) text += explain_field("assumed", one);
  return text + explain_field("file", std::string(file.path)) + explain_field("sha256", sha256_hex(file.content));
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Finds a metric by its name ("p99_ttft_ms") or by its latency ("ttft_ms").
const MetricDefinition* find_metric(const std::string& name) {
  const MetricDefinition* found = nullptr;
  for (const MetricDefinition& definition : metric_definitions()) {
    if (definition.name == name) return &definition;
    if (definition.distribution && name.ends_with("_" + definition.name)) found = &definition;
  }
  return found;
}

std::string explain_metric(const MetricDefinition& definition) {
  const std::string statistics =
      definition.distribution
          ? fmt::format("mean_{0}, median_{0}, std_{0}, min_{0}, max_{0}, p99_{0} (any pNN)", definition.name)
          : definition.name + (definition.series ? " (a list in result.json)" : " (one figure per run)");
  return fmt::format("{} (metric)\n", definition.name) + explain_field("what", definition.definition) +
         explain_field("unit", definition.unit) + explain_field("names", statistics);
}

std::string with_prefix(const std::vector<std::string>& names, const std::string& prefix) {
  std::vector<std::string> members;
  std::copy_if(names.begin(), names.end(), std::back_inserter(members),
               [&](const std::string& one) { return one.starts_with(prefix); });
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());  // several policies may share a key
  return fmt::format("{}", fmt::join(members, ", "));
}

std::string explain_router(const RouterInfo& info) {
  std::vector<std::string> keys;
  for (const Parameter& parameter : info.parameters) keys.push_back(parameter.name);
  return fmt::format("{} (router)\n", info.name) + explain_field("what", info.summary) +
         explain_field("source", info.source) + explain_field("keys", fmt::format("{}", fmt::join(keys, ", ")));
}

/// The members of a group such as "memory", "policy." or "llama-3": "explain one of the keys memory.block_tokens, ...".
std::string members_of(const std::string& group) {
  std::string texts;
  const auto add = [&](const std::string& kind, const std::vector<std::string>& names) {
    const std::string members = with_prefix(names, group);
    if (!members.empty()) texts += fmt::format("{}{} {}", texts.empty() ? "" : ", or the ", kind, members);
  };
  for (const std::string& kind : list_kinds()) {
    std::vector<std::string> ones;
    for (const Listed& one : listed(kind)) ones.push_back(one.name);
    add(kind == "hardware" ? "GPUs and servers" : kind, ones);
  }
  add("hosts", hwmodels::host_names());
  return texts.empty() ? "" : fmt::format("explain one of the {}; ", texts);
}

/// Reports an unknown name with "did you mean", or with the members of a group.
[[noreturn]] void refuse(const std::string& name) {
  const std::string members = members_of(name.substr(0, name.find_last_not_of(".*") + 1) + ".");
  const std::string advice = hwmodels::advice_on_gpu(name);
  if (!advice.empty()) throw ConfigError(fmt::format("unknown name \"{}\"", name), "explain " + name, advice);
  const std::string fix = members.empty() ? suggestion(name, explainable_names()) : members;
  throw ConfigError(fmt::format("unknown name \"{}\"", name), "explain " + name,
                    fix + fmt::format("spillway list {} prints the names", fmt::join(list_kinds(), "|")));
}

}  // namespace

std::string explain_field(std::string_view label, const std::string& text) {
  return text.empty() ? "" : fmt::format("  {:<9} {}\n", label, text);
}

std::string explain_key(const Parameter& parameter, const std::string& owner) {
  const std::string standard = parameter.default_value.empty() ? "unset" : parameter.default_value;
  return fmt::format("{} (key{})\n", parameter.name, owner) + explain_field("what", parameter.doc) +
         explain_field("takes", describe_form(parameter)) + explain_field("unit", unit_text(parameter)) +
         explain_field("range", describe_range(parameter)) + explain_field("default", standard) +
         explain_field("source", parameter.source) + explain_field("variable", environment_variable(parameter.name));
}

std::vector<std::string> explainable_names() {
  std::vector<std::string> names;
  for (const std::string& kind : list_kinds()) {
    for (const Listed& one : listed(kind)) names.push_back(one.name);
  }
  for (const std::string& name : hwmodels::host_names()) names.push_back(name);
  for (const LoadedExperiment& one : bundled_experiments()) {
    for (const Claim& claim : one.experiment.claims) names.push_back(claim.id);
  }
  names.emplace_back(kValidity);
  // A policy and its engine may share a name; several policies may share a key.
  std::set<std::string> seen;
  std::erase_if(names, [&seen](const std::string& name) { return !seen.insert(name).second; });
  return names;
}

namespace {

/// Keys and metrics have no short forms: "memory" is the group of memory.*, not memory_time_fraction.
std::vector<std::string> names_to_abbreviate() {
  std::vector<std::string> names;
  for (const PolicyInfo* info : PolicyRegistry::instance().all()) names.push_back(info->name);
  for (const RouterInfo* info : RouterRegistry::instance().all()) names.push_back(info->name);
  for (const auto& some : {hwmodels::hardware_names(), hwmodels::host_names(), hwmodels::llm_names(),
                           hwmodels::engine_names(), traces::bundled_names()}) {
    names.insert(names.end(), some.begin(), some.end());
  }
  // A policy and its engine may share a name.
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

/// Everything of exactly that name.
std::string explanation_of(const std::string& name) {
  std::string text;
  if (const PolicyInfo* info = PolicyRegistry::instance().find(name)) text += explain_policy(*info);
  if (const RouterInfo* info = RouterRegistry::instance().find(name)) text += explain_router(*info);
  if (contains(hwmodels::gpu_names(), name)) text += explain_gpu(hwmodels::load_gpu(name));
  if (contains(hwmodels::server_names(), name)) text += explain_server(hwmodels::load_server(name));
  if (contains(hwmodels::host_names(), name)) text += explain_data("host of a server", hwmodels::load_host(name).file);
  if (contains(hwmodels::llm_names(), name)) text += explain_model(hwmodels::load_llm(name));
  if (contains(hwmodels::engine_names(), name)) text += explain_data("engine", hwmodels::load_engine(name).file);
  if (const EmbeddedFile* file = traces::bundled_file(name)) text += explain_workload(*file);
  if (const MetricDefinition* definition = find_metric(name)) text += explain_metric(*definition);
  for (const Parameter& parameter : parameter_table()) {
    if (parameter.name == name) text += explain_key(parameter, "");
  }
  for (const KeyOwner& owner : key_owners()) {
    for (const Parameter& parameter : *owner.parameters) {
      if (parameter.name == name) text += explain_key(parameter, fmt::format(" of {} {}", owner.key, owner.name));
    }
  }
  if (name == kValidity) text += explain_validity();
  return text + explain_experiment(name);
}

}  // namespace

std::string explanation(const std::string& name) {
  std::string text = explanation_of(name);
  if (text.empty()) text = explain_file(name);
  if (!text.empty()) return text;
  const NameMatch match = match_name(name, names_to_abbreviate(), Abbreviations::allowed);
  if (!match.several.empty()) {
    throw ConfigError(fmt::format("\"{}\" can mean {}", name, fmt::join(match.several, ", ")), "explain " + name,
                      "write one of these names");
  }
  if (!match.name.empty()) return explanation_of(match.name);
  const std::optional<std::string> gpu = hwmodels::gpu_of_device(name);
  if (!gpu) refuse(name);
  return explanation_of(*gpu);
}

ExitCode explain(const std::string& name) {
  print_result(explanation(name));
  return ExitCode::ok;
}

}  // namespace spillway::cli
