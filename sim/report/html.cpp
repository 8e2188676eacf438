#include "sim/report/html.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "sim/core/embedded_file.hpp"
#include "sim/core/error.hpp"
#include "sim/core/text.hpp"

namespace spillway::pages {
std::span<const EmbeddedFile> embedded_files();
}  // namespace spillway::pages

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kReadVersion = 1;
constexpr std::size_t kMostPoints = 2000;  // of a sweep or of the values that a search tried

/// How to tell a kind of results, and the list that must not be empty.
struct ResultKind {
  std::string_view name;
  std::array<std::string_view, 2> keys;
  std::string_view list;  // empty: none
  bool versioned = true;
};
constexpr std::array<ResultKind, 8> kKinds{{{"validate", {"log", "per_request"}, ""},
                                            {"plan", {"configurations", "pareto_front"}, "configurations"},
                                            {"advise", {"configurations", "rank_checks"}, "configurations"},
                                            {"sweep", {"axes", "points"}, "points"},
                                            {"compare", {"baseline", "runs"}, "runs"},
                                            {"search", {"searches", "goal"}, "searches"},
                                            {"reproduce", {"claims", "summary"}, "claims", false},
                                            {"run", {"setup", "metrics"}, ""}}};

/// Metrics of a point that the page shows.
const std::set<std::string, std::less<>> kShownMetrics{"cost_per_million_output_tokens",
                                                       "goodput_requests_per_s",
                                                       "request_throughput_per_s",
                                                       "output_throughput_tokens_per_s",
                                                       "mean_ttft_ms",
                                                       "p99_ttft_ms",
                                                       "p50_tpot_ms",
                                                       "mean_tpot_ms",
                                                       "p99_tpot_ms",
                                                       "p99_e2e_ms"};

std::string_view file(std::string_view name) {
  for (const EmbeddedFile& one : pages::embedded_files()) {
    if (one.path.ends_with(name)) return one.content;
  }
  throw InvariantError(fmt::format("the file {} is not embedded", name));
}

/// 'sha256-...', as a content security policy names a script.
std::string policy_hash(std::string_view script) {
  const std::string hex = sha256_hex(script);
  std::array<unsigned char, 32> digest{};
  for (std::size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<unsigned char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  std::array<unsigned char, 48> text{};  // 44 characters and a zero
  const int length = EVP_EncodeBlock(text.data(), digest.data(), static_cast<int>(digest.size()));
  return fmt::format("'sha256-{}'", std::string(text.begin(), text.begin() + length));
}

/// The kind of a result; appends a Problem when it is none that a page can show.
const ResultKind* kind_of(const PageResult& result, const Json& json, std::vector<Problem>& problems) {
  const auto has = [&](std::string_view key) { return json.is_object() && json.contains(key); };
  const auto fits = [&](const ResultKind& one) { return std::ranges::all_of(one.keys, has); };
  const auto* const kind = std::ranges::find_if(kKinds, fits);
  if (kind == kKinds.end()) {
    problems.push_back({"the file is not a result of run, sweep, compare, search, advise, plan, reproduce or validate",
                        result.name,
                        "give a result.json, sweep.json or comparison.json of -o DIR, or what --json prints"});
    return nullptr;
  }
  if (kind->versioned && (!has("schema_version") || json["schema_version"] != kReadVersion)) {
    const std::string version = has("schema_version") ? json["schema_version"].dump() : "none";
    problems.push_back(
        {fmt::format("the result has schema version {}, and this program reads version {}", version, kReadVersion),
         result.name, "run it again with this program, or use the one that wrote it"});
    return nullptr;
  }
  if (!kind->list.empty() && (!json[kind->list].is_array() || json[kind->list].empty())) {
    problems.push_back({fmt::format("the result has no {}, so there is nothing to report", kind->list), result.name,
                        "run it again, and look at its errors"});
    return nullptr;
  }
  return kind;
}

void keep_shown(Json& metrics) {
  Json kept = Json::object();
  for (const auto& [name, value] : metrics.items()) {
    if (kShownMetrics.contains(name)) kept[name] = value;
  }
  metrics = std::move(kept);
}

/// Every point whose number is a multiple of a step, so that no more than kMostPoints are left. Returns the others'
/// number.
std::size_t thin(Json& list) {
  const std::size_t all = list.size();
  if (all <= kMostPoints) return 0;
  const std::size_t step = (all + kMostPoints - 1) / kMostPoints;
  Json kept = Json::array();
  for (std::size_t i = 0; i < all; i += step) kept.push_back(std::move(list[i]));
  list = std::move(kept);
  return all - list.size();
}

/// Of the instances, their names and what they assume of experts.
void keep_localities(Json& run) {
  if (!run.contains("instances")) return;
  Json kept = Json::array();
  for (const Json& one : run["instances"]) {
    if (!one.contains("name") || !one.contains("setup") || !one["setup"].contains("expert_locality")) continue;
    kept.push_back({{"name", one["name"]}, {"setup", {{"expert_locality", one["setup"]["expert_locality"]}}}});
  }
  run["instances"] = std::move(kept);
}

/// Only what the page shows.
void slim(std::string_view kind, Json& json) {
  if (kind == "run" || kind == "validate") {
    Json& run = kind == "run" ? json : json["run"];
    for (const char* const key : {"definitions", "config", "inputs", "clients", "kinds"}) run.erase(key);
    if (kind == "run") {
      keep_localities(run);
    } else {
      run.erase("instances");
      run.erase("metrics");
    }
  } else if (kind == "sweep") {
    json["omitted_points"] = thin(json["points"]);
    for (Json& point : json["points"]) {
      if (point.contains("metrics")) keep_shown(point["metrics"]);
      point.erase("id");
    }
  } else if (kind == "compare") {
    for (Json& run : json["runs"]) {
      keep_shown(run["metrics"]);
      if (run.contains("differences")) keep_shown(run["differences"]);
    }
    json.erase("perturbation");
  } else if (kind == "advise" || kind == "plan") {
    for (Json& one : json["configurations"]) {
      keep_shown(one["metrics"]);
      if (one.contains("fleet")) keep_shown(one["fleet"]["metrics"]);
    }
  } else if (kind == "search") {
    for (Json& one : json["searches"]) {
      thin(one["probes"]);
      for (Json& probe : one["probes"]) {
        keep_shown(probe["metrics"]);
        probe.erase("trust");
      }
    }
  }
}

std::string title_of(const std::vector<PageResult>& results, const Json& shown) {
  if (results.size() > 1) return fmt::format("Spillway: {} results", results.size());
  return fmt::format("Spillway {}", shown.front()["kind"].get<std::string>());
}

}  // namespace

std::string to_html(const std::vector<PageResult>& results) {
  std::vector<Problem> problems;
  if (results.empty()) {
    throw ConfigError("there is no result to report", "arguments", "name a result.json, e.g. out/result.json");
  }
  Json shown = Json::array();
  for (const PageResult& result : results) {
    Json json = Json::parse(result.json, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) {
      problems.push_back({"this is no JSON", result.name, "give a result that Spillway wrote as JSON"});
      continue;
    }
    const ResultKind* const kind = kind_of(result, json, problems);
    if (kind == nullptr) continue;
    slim(kind->name, json);
    if (!result.charts.empty()) json["charts"] = Json::parse(result.charts);
    shown.push_back({{"kind", kind->name}, {"name", result.name}, {"result", std::move(json)}});
  }
  if (!problems.empty()) throw DataError(std::move(problems));
  std::string data = shown.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  // No text in a result can end the element that holds it.
  for (std::size_t at = data.find('<'); at != std::string::npos; at = data.find('<', at)) {
    data.replace(at, 1, "\\u003c");
  }
  const std::string_view library = file("hart.min.js");
  const std::string_view script = file("report.js");
  const std::string title = title_of(results, shown);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src {} {}\"/>\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n"
      "<noscript><p>The page needs JavaScript, which draws its tables and charts.</p></noscript>\n</main>\n"
      "<footer>Written by Spillway. The page contains everything that it needs.</footer>\n"
      "<script type=\"application/json\" id=\"results\">{}</script>\n<script>{}</script>\n<script>{}</script>\n"
      "</body>\n</html>\n",
      policy_hash(library), policy_hash(script), title, file("report.css"), title, data, library, script);
}

}  // namespace spillway
