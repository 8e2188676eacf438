#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "sim/io/lines.hpp"
#include "sim/report/report.hpp"
#include "sim/report/validation.hpp"
#include "sim/study/trust.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;
constexpr std::array<std::pair<const char*, const char*>, 3> kLatencies{
    {{"TTFT", "ttft_ms"}, {"TPOT", "tpot_ms"}, {"E2E", "e2e_ms"}}};

class ValidationTable {
 public:
  explicit ValidationTable(const Validation& validation) : validation_(validation) {}

  std::string build() {
    setup();
    lines_.blank();
    latencies();
    lines_.blank();
    for (const ErrorDistribution& one : validation_.per_request) requests(one);
    load();
    lines_.blank();
    if (!validation_.run.outside_range.empty()) lines_.add("Range", range_text(validation_.run.outside_range));
    for (const InputFile& input : validation_.run.inputs) {
      const bool stated = input.role == "gpu" || (input.role == "engine" && validation_.run.setup.engine_calibrated);
      if (stated) lines_.add("Validity", input.role + ": " + input.error);
    }
    for (const std::string& warning : validation_.run.warnings) lines_.add("Warning", warning);
    return lines_.text();
  }

 private:
  void setup() {
    const ValidatedLog& log = validation_.log;
    const Setup& setup = validation_.run.setup;
    lines_.add("Log",
               fmt::format("{}: {} requests of {}{}{}{}{}", log.path, validation_.requests.size(), log.engine,
                           log.model.empty() ? "" : ", ", log.model, log.device.empty() ? "" : " on ", log.device));
    lines_.add("Simulated", fmt::format("{} on {} x {} ({}), policy {}, engine {}", setup.model, setup.tensor_parallel,
                                        setup.gpu, setup.latency_model, setup.policy, setup.engine));
    lines_.add("Stamps", log.stamps == "client"
                             ? "of the client: TTFT and E2E include the front end of the engine"
                             : "of the engine: TTFT and E2E count from its queue, without a front end");
    lines_.add("KV cache",
               fmt::format("{} tokens in {} blocks of {} tokens{}; prefix caching {}", setup.kv_capacity().count(),
                           setup.kv.gpu_blocks.count(), setup.kv.block_tokens.count(),
                           setup.kv_computed ? " (estimated)" : "", setup.kv.prefix_caching ? "on" : "off"));
  }

  void latencies() {
    std::string head = fmt::format("{:<20}", "Latency (ms)");
    for (const std::string_view statistic : kComparedStatistics) head += fmt::format("{:>12}", statistic);
    lines_.raw(head);
    for (const auto& [label, name] : kLatencies) {
      std::array<std::string, 3> rows{fmt::format("{} {:<15}", label, "measured"),
                                      fmt::format("{:<4} {:<15}", "", "simulated"),
                                      fmt::format("{:<4} {:<15}", "", "error")};
      for (const std::string_view statistic : kComparedStatistics) {
        const ComparedFigure* figure_of = find_figure(validation_.latencies, fmt::format("{}_{}", statistic, name));
        rows[0] += fmt::format("{:>12}", figure_of != nullptr ? figure(figure_of->measured) : "-");
        rows[1] += fmt::format("{:>12}", figure_of != nullptr ? figure(figure_of->simulated) : "-");
        rows[2] += fmt::format("{:>12}", figure_of != nullptr ? signed_percent(figure_of->error) : "-");
      }
      for (std::string& row : rows) lines_.raw(std::move(row));
    }
  }

  void requests(const ErrorDistribution& one) {
    lines_.add(&one == &validation_.per_request.front() ? "Per request" : "",
               fmt::format("{}: off by {} (median), {} (p90), {} (p95), {} at most ({}); bias {}; n = {}", one.metric,
                           percent(one.median), percent(one.p90), percent(one.p95), percent(one.largest), one.worst,
                           signed_percent(one.bias), one.n));
  }

  void load() {
    const auto both = [&](const std::string& name, const std::string& label) {
      const ComparedFigure* mean = find_figure(validation_.load, "mean_" + name);
      const ComparedFigure* peak = find_figure(validation_.load, "peak_" + name);
      if (mean == nullptr || peak == nullptr) return;
      lines_.add(label, fmt::format("mean {} measured, {} simulated ({}); peak {} and {} ({})", figure(mean->measured),
                                    figure(mean->simulated), signed_percent(mean->error), figure(peak->measured),
                                    figure(peak->simulated), signed_percent(peak->error)));
    };
    both("running_requests", "Running");
    both("waiting_requests", "Waiting");
    both("gpu_kv_fraction", "KV in use");
  }

  const Validation& validation_;
  Lines lines_;
};

Json figures_json(const std::vector<ComparedFigure>& figures) {
  Json json = Json::object();
  for (const ComparedFigure& one : figures) {
    json[one.name] = {{"unit", one.unit},
                      {"measured", one.measured},
                      {"simulated", one.simulated},
                      {"error", one.error ? Json(*one.error) : Json(nullptr)}};
  }
  return json;
}

Json load_json(const std::vector<LoadPoint>& points) {
  Json json = Json::array();
  for (const LoadPoint& point : points) {
    Json entry = {{"seconds", point.seconds}, {"running", point.running}, {"waiting", point.waiting}};
    if (point.kv_fraction) entry["kv_fraction"] = *point.kv_fraction;
    json.push_back(std::move(entry));
  }
  return json;
}

using LatencyOf = std::optional<double> (*)(const RequestLatencies&);

/// The percentiles 0, 1, ..., 100 of a latency on one side; linear interpolation at (n - 1) q, as all quantiles.
Json curve_json(const std::vector<RequestPair>& requests, LatencyOf of, RequestLatencies RequestPair::*side) {
  std::vector<double> values;
  for (const RequestPair& pair : requests) {
    if (of(pair.measured) && of(pair.simulated)) values.push_back(*of(pair.*side));
  }
  std::ranges::sort(values);
  Json points = Json::array();
  for (int percent = 0; percent <= 100 && !values.empty(); ++percent) {
    const double at = static_cast<double>(values.size() - 1) * percent / 100.0;
    const auto low = static_cast<std::size_t>(at);
    const std::size_t high = std::min(low + 1, values.size() - 1);
    points.push_back({percent, values[low] + (values[high] - values[low]) * (at - static_cast<double>(low))});
  }
  return points;
}

Json curves_json(const std::vector<RequestPair>& requests) {
  constexpr std::array<std::pair<const char*, LatencyOf>, 3> kCompared{
      {{"ttft_ms", [](const RequestLatencies& r) { return std::optional(r.ttft_ms); }},
       {"tpot_ms", [](const RequestLatencies& r) { return r.tpot_ms; }},
       {"e2e_ms", [](const RequestLatencies& r) { return std::optional(r.e2e_ms); }}}};
  Json json = Json::object();
  for (const auto& [name, of] : kCompared) {
    json[name] = {{"measured", curve_json(requests, of, &RequestPair::measured)},
                  {"simulated", curve_json(requests, of, &RequestPair::simulated)}};
  }
  return json;
}

/// Of every request, or of every second, third, ... one.
Json e2e_errors_json(const std::vector<RequestPair>& requests) {
  constexpr std::size_t kMost = 2000;
  const std::size_t step = std::max<std::size_t>(1, (requests.size() + kMost - 1) / kMost);
  Json points = Json::array();
  for (std::size_t i = 0; i < requests.size(); i += step) {
    const auto error = relative_error(requests[i].measured.e2e_ms, requests[i].simulated.e2e_ms);
    if (error) points.push_back({i + 1, *error});
  }
  return points;
}

}  // namespace

std::string to_validation_table(const Validation& validation) { return ValidationTable(validation).build(); }

std::string to_validation_json(const Validation& validation) {
  const ValidatedLog& log = validation.log;
  Json json = {{"schema_version", kSchemaVersion},
               {"log",
                {{"path", log.path},
                 {"engine", log.engine},
                 {"model", log.model},
                 {"device", log.device},
                 {"stamps", log.stamps},
                 {"requests", validation.requests.size()}}},
               {"metrics", figures_json(validation.latencies)}};
  json["per_request"] = Json::object();
  for (const ErrorDistribution& one : validation.per_request) {
    json["per_request"][one.metric] = {{"n", one.n},      {"median", one.median},   {"p90", one.p90},
                                       {"p95", one.p95},  {"largest", one.largest}, {"worst", one.worst},
                                       {"bias", one.bias}};
  }
  json["curves"] = curves_json(validation.requests);
  json["e2e_errors"] = e2e_errors_json(validation.requests);
  json["load"] = {{"measured_from", log.load_of},
                  {"figures", figures_json(validation.load)},
                  {"measured", load_json(validation.measured_load)},
                  {"simulated", load_json(validation.simulated_load)}};
  json["run"] = Json::parse(to_json(validation.run));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace spillway
