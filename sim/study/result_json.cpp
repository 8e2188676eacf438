#include "sim/study/result_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "sim/io/json_values.hpp"
#include "sim/study/result_version.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostClients = 1000;

/// What there is of every run, of several kinds of instances, too.
Json names_json(const Setup& setup) {
  Json json{{"model", setup.model},
            {"hardware", setup.hardware},
            {"gpu", setup.gpu},
            {"latency_model", setup.latency_model},
            {"expected_error", setup.expected_error},
            {"engine", setup.engine},
            {"policy", setup.policy},
            {"workload", setup.workload},
            {"requests", setup.requests},
            {"skipped_rows", setup.skipped_rows}};
  if (!setup.price.empty()) json["price"] = setup.price;
  if (setup.power_watts) json["power_watts"] = *setup.power_watts;
  return json;
}

Json setup_json(const Setup& setup) {
  Json json = names_json(setup);
  json.update({{"tensor_parallel_gpus", setup.tensor_parallel},
               {"replicas", setup.replicas},
               {"prefill_replicas", setup.prefill_replicas},
               {"servers", setup.servers},
               {"weights_bytes_per_gpu", setup.weights.count()},
               {"block_tokens", setup.kv.block_tokens.count()},
               {"block_bytes_per_gpu", setup.kv.block_bytes.count()},
               {"gpu_kv_blocks", setup.kv.gpu_blocks.count()},
               {"gpu_kv_tokens", setup.kv_capacity().count()},
               {"gpu_kv_origin", setup.kv_computed ? "computed" : "memory.gpu_kv"},
               {"gpu_kv_terms", setup.kv_terms},
               {"host_kv_blocks", setup.kv.host_blocks.count()},
               {"prefix_caching", setup.kv.prefix_caching},
               {"host_cache_blocks", setup.kv.host_cache_blocks.count()},
               {"disk_cache_blocks", setup.kv.disk ? setup.kv.disk->blocks.count() : 0},
               {"kv_connector", setup.kv.connector ? "vllm-offloading" : "none"},
               {"max_model_len_tokens", setup.max_model_len.count()}});
  if (setup.kv.window) {
    json["kv_window"] = {{"tokens", setup.kv.window->tokens.count()},
                         {"layers", setup.kv.window->layers},
                         {"of_layers", setup.kv.window->of}};
  }
  for (const HostTierHit& hit : setup.host_tier_hits) {
    json["host_tier_hits"].push_back({{"tokens", hit.tokens.count()},
                                      {"load_ms", hit.load_seconds * 1e3},
                                      {"compute_ms", hit.compute_seconds * 1e3}});
  }
  if (setup.kv.cache_is_lent) json["host_cache_is_lent"] = true;
  if (setup.kv.cache_moves) json["host_cache_moves_to_lender"] = true;
  if (setup.kv.peer_blocks() > Blocks(0)) json["peer_kv_blocks"] = setup.kv.peer_blocks().count();
  if (!setup.resolved_model.empty()) json["resolved_model"] = setup.resolved_model;
  if (!setup.expert_exchange.empty()) json["expert_exchange"] = setup.expert_exchange;
  if (setup.expert_locality) json["expert_locality"] = assumed_locality_json(*setup.expert_locality);
  if (!setup.knows_future.empty()) json["knows_future"] = setup.knows_future;
  if (setup.deployment.layers > 0) {
    json["most_gpu_kv_blocks"] = setup.kv.most().count();
    if (setup.pools_differ) json["kv_of_smaller_pool"] = true;
    json["layer_terms"] = setup.layer_terms;
    if (const auto& flags = setup.engine_flags) {
      json["engine_flags"] = {{"engine", flags->engine}, {"version", flags->version}, {"flags", flags->flags}};
    }
    if (!setup.layer_copies.empty()) json["layer_copies"] = setup.layer_copies;
    json["host_layer_bytes_per_gpu"] = setup.host_layer_bytes.count();
  }
  return json;
}

/// What instances of several kinds have in common.
Json common_setup_json(const Setup& setup) {
  Json json = names_json(setup);
  json["replicas"] = setup.replicas;
  json["servers"] = setup.servers;
  if (setup.expert_locality) json["expert_locality"] = assumed_locality_json(*setup.expert_locality);
  return json;
}

Json scales_json(const OpScales& scales) {
  Json json;
  for (const OpClass& op : kOpClasses) json[op.key] = scales.*op.scale;
  return json;
}

Json head(const Result& result) {
  Json inputs = Json::array();
  Json validity = Json::array();
  for (const InputFile& input : result.inputs) {
    inputs.push_back({{"role", input.role}, {"name", input.name}, {"sha256", input.sha256}});
    if (!input.error.empty()) {
      validity.push_back({{"role", input.role}, {"stands_for", input.stands_for}, {"error", input.error}});
    }
  }
  Json json{{"schema_version", kResultSchemaVersion},
            {"tool_version", result.tool_version},
            {"tool_build", result.tool_build},
            {"complete", result.complete},
            {"config", canonical_config(result.config)}};
  if (result.scales != OpScales{}) json["op_scales"] = scales_json(result.scales);
  json["inputs"] = inputs;
  json["setup"] = result.kinds.empty() ? setup_json(result.setup) : common_setup_json(result.setup);
  json["warnings"] = result.warnings;
  json["warnings_of_accuracy"] = result.setup.accuracy;
  json["validity"] = validity;
  return json;
}

Json counts_json(const OutcomeCounts& counts) {
  return {{"submitted", counts.submitted}, {"finished", counts.finished},     {"rejected", counts.rejected},
          {"timed_out", counts.timed_out}, {"unfinished", counts.unfinished}, {"lost", counts.lost}};
}

void check_conservation(const OutcomeCounts& counts) {
  SPILLWAY_CHECK(counts.submitted == counts.ended(),
                 fmt::format("{} requests were submitted and {} ended", counts.submitted, counts.ended()));
}

Json slo_json(const Result& result) {
  Json requests = Json::array();
  for (const Condition& condition : result.request_slos) requests.push_back(condition.text);
  Json run = Json::array();
  for (const Verdict& verdict : result.run_slos) {
    run.push_back({{"condition", verdict.condition.text}, {"value", nullable(verdict.value)}, {"met", verdict.met}});
  }
  return {{"per_request", requests}, {"run", run}};
}

Json metrics_json(const std::vector<Metric>& metrics) {
  Json json = Json::object();
  for (const Metric& metric : metrics) {
    Json& entry = json[metric.name];
    entry = {{"value", nullable(metric.value)}, {"unit", metric.unit}, {"n", metric.n}};
    if (metric.half_width) entry["half_width"] = *metric.half_width;
    for (const std::optional<double>& value : metric.replications) entry["replications"].push_back(nullable(value));
    if (metric.relative_error > 0.0) entry["relative_error"] = metric.relative_error;
  }
  return json;
}

/// A kind of instances, before or after the run.
Json kind_json(const KindResult& kind) {
  return {{"name", kind.name},
          {"gpus", kind.gpus},
          {"workload_share", nullable(kind.share)},
          {"config", canonical_config(kind.config)},
          {"setup", setup_json(kind.setup)}};
}

Json steady_json(const std::optional<SteadyState>& state) {
  if (!state) return nullptr;
  return {{"verdict", verdict_name(state->verdict)},
          {"reason", state->sentence},
          {"transient_s", state->transient_s},
          {"observed_s", state->observed_s},
          {"offered_requests_per_s", state->offered_per_s},
          {"served_requests_per_s", state->served_per_s},
          {"growth_fraction", state->growth},
          {"growth_half_width", state->growth_error}};
}

Json bottleneck_json(const RunStatistics& run, const ResolvedConfig& config) {
  const Bottleneck bottleneck = find_bottleneck(run, config.settings.get<std::int64_t>("engine.max_num_seqs"));
  return {{"resource", resource_name(bottleneck.resource)},
          {"share", bottleneck.share},
          {"sentence", bottleneck.sentence},
          {"advice", bottleneck.advice}};
}

Json clients_json(const RunStatistics& run) {
  Json rows = Json::array();
  for (const ClientStatistics& client : worst_clients(run, kMostClients)) {
    rows.push_back({{"client", client.client},
                    {"submitted_requests", client.submitted},
                    {"finished_requests", client.finished},
                    {"mean_ttft_ms", nullable(client.mean_ttft_ms)},
                    {"p50_ttft_ms", nullable(client.p50_ttft_ms)},
                    {"p99_ttft_ms", nullable(client.p99_ttft_ms)},
                    {"output_tokens", client.output_tokens},
                    {"service_tokens", run.replicas.empty() ? Json(client.service_tokens) : Json()},
                    {"replications", client.replications}});
  }
  return rows;
}

/// Where a replica belongs.
struct Place {
  std::string instance{};  // the element of `instances`; empty: the run has none
  std::string pool{};      // all, prefill, decode; with instances: "chat", "chat prefill"
};

/// One entry for each replica, kind by kind.
std::vector<Place> places(const Result& result) {
  std::vector<Place> all;
  const auto add = [&all](const Setup& setup, const std::string& instance) {
    const std::int64_t prompts = setup.prefill_replicas;
    const auto pool = [&instance](const std::string& part) {
      return instance.empty() ? part : part == "all" ? instance : instance + " " + part;
    };
    all.insert(all.end(), static_cast<std::size_t>(prompts), {instance, pool("prefill")});
    all.insert(all.end(), static_cast<std::size_t>(setup.replicas - prompts),
               {instance, pool(prompts > 0 ? "decode" : "all")});
  };
  if (result.kinds.empty()) add(result.setup, "");
  for (const KindResult& kind : result.kinds) add(kind.setup, kind.name);
  return all;
}

Json replicas_json(const std::vector<ReplicaStatistics>& replicas, const std::vector<Place>& places) {
  Json rows = Json::array();
  const auto share = [](Tokens part, Tokens all) {
    return all > Tokens(0) ? Json(static_cast<double>(part.count()) / static_cast<double>(all.count())) : Json();
  };
  for (const ReplicaStatistics& one : replicas) {
    const Place& place = places.at(rows.size());
    rows.push_back({{"replica", rows.size()},
                    {"pool", place.pool},
                    {"requests", one.sent},
                    {"finished_requests", one.finished},
                    {"lost_requests", one.lost},
                    {"down_s", one.down_time},
                    {"iterations", one.engine.iterations},
                    {"busy_s", one.engine.busy_time},
                    {"prefix_cache_hit_fraction", share(one.engine.prefix_hit, one.engine.prefix_asked)},
                    {"recompute_preemptions", one.engine.preempted_recompute},
                    {"swap_preemptions", one.engine.preempted_swap},
                    {"jain_index", nullable(one.jain_index)},
                    {"max_service_difference_tokens", nullable(one.max_service_difference)},
                    {"replications", one.replications}});
    if (!place.instance.empty()) rows.back()["instance"] = place.instance;
  }
  return rows;
}

Json links_json(const Result& result) {
  Json rows = Json::array();
  const double span = to_seconds(result.statistics.span);
  for (std::size_t i = 0; i < result.links.size(); ++i) {
    const LinkUse& use = result.statistics.links[i];
    rows.push_back({{"link", result.links[i]},
                    {"capacity_bytes_per_s", use.capacity},
                    {"moved_bytes", use.bytes},
                    {"used_fraction", span > 0.0 ? Json(use.fraction(span)) : Json()}});
  }
  return rows;
}

Json lending_json(const Result& result) {
  Json rows = Json::array();
  const double span = to_seconds(result.statistics.span);
  const auto mean = [span](double sum) { return span > 0.0 ? Json(sum / span) : Json(); };
  for (std::size_t i = 0; i < result.loans.size(); ++i) {
    const LoanSides& sides = result.loans[i];
    const LendingUse& use = result.statistics.lending[i];
    const LendingFigures& figures = use.figures;
    const auto text = [](const std::string& name) { return name.empty() ? Json() : Json(name); };
    Json series = Json::array();
    for (const auto& [at, state] : use.series) {
      series.push_back({{"time_s", to_seconds(at - SimTime{})},
                        {"offered_bytes", state.offered.count()},
                        {"held_bytes", state.held.count()}});
    }
    rows.push_back({{"borrower", text(sides.borrower)},
                    {"borrower_replica", use.borrower},
                    {"lender", text(sides.lender)},
                    {"lender_replica", use.lender ? Json(*use.lender) : Json()},
                    {"mean_offered_bytes", mean(figures.offered_time)},
                    {"mean_held_bytes", mean(figures.held_time)},
                    {"peak_held_bytes", figures.peak_held.count()},
                    {"offers", figures.offers},
                    {"reclaims", figures.reclaims},
                    {"mean_return_s",
                     figures.returns > 0 ? Json(figures.return_time / static_cast<double>(figures.returns)) : Json()},
                    {"longest_return_s", figures.returns > 0 ? Json(figures.longest_return) : Json()},
                    {"copied_bytes", figures.copied.count()},
                    {"lender_memory_bandwidth_fraction", nullable(use.memory_share(span))},
                    {"lender_own_memory_bandwidth_fraction", nullable(sides.busy)},
                    {"over_time", std::move(series)}});
  }
  return rows;
}

Json outside_json(const std::vector<RangeUse>& uses) {
  Json rows = Json::array();
  for (const RangeUse& use : uses) {
    rows.push_back({{"op", use.op},
                    {"quantity", use.quantity},
                    {"measured", {use.low, use.high}},
                    {"reached", use.reached},
                    {"fraction", use.fraction_outside()}});
    if (!use.beyond.empty()) rows.back()["beyond"] = use.beyond;
  }
  return rows;
}

Json perturbed_run_json(const PerturbedRun& run) {
  Json metrics = Json::object();
  for (const PerturbedMetric& metric : run.metrics) {
    metrics[metric.name] = {{"value", nullable(metric.value)}, {"change", nullable(metric.change)}};
  }
  return {{"label", run.perturbation.label}, {"scales", scales_json(run.perturbation.scales)}, {"metrics", metrics}};
}

Json perturbation_json(const Robustness& robustness) {
  Json runs = Json::array();
  for (const PerturbedRun& run : robustness.runs) runs.push_back(perturbed_run_json(run));
  return {{"fraction", robustness.fraction}, {"runs", runs}};
}

/// The number of KV blocks on the GPU over time.
Json expansion_json(const LayerTotals& layers) {
  Json changes = Json::array();
  for (const LayerTotals::Change& change : layers.changes) {
    const double blocks = static_cast<double>(change.capacity.count());
    changes.push_back({{"time_s", to_seconds(change.at - SimTime{})},
                       {"gpu_kv_blocks", change.capacity.count()},
                       {"expansion", layers.resident_blocks > 0.0 ? Json(blocks / layers.resident_blocks) : Json()}});
  }
  return changes;
}

Json conversations_json(const std::vector<ConversationSample>& samples) {
  Json json = Json::array();
  for (const auto& [at, counts] : samples) {
    json.push_back({{"time_s", to_seconds(at - SimTime{})},
                    {"live", counts.live},
                    {"cached", counts.cached},
                    {"cached_on_gpu", counts.cached_on_gpu},
                    {"cached_on_host", counts.cached_on_host}});
  }
  return json;
}

Json definitions_json() {
  Json json = Json::object();
  for (const MetricDefinition& definition : metric_definitions()) {
    json[definition.name] = {{"unit", definition.unit}, {"definition", definition.definition}};
    if (definition.distribution) json[definition.name]["statistics"] = "mean, median, std, min, max, pNN";
  }
  return json;
}

}  // namespace

std::string to_setup_json(const Result& result) {
  Json json = head(result);
  for (const KindResult& kind : result.kinds) json["instances"].push_back(kind_json(kind));
  if (result.perturbation || result.locality) json["planned_runs"] = planned_runs(result);
  return json.dump(2) + "\n";
}

std::string to_resolved_config(const Result& result) { return canonical_config(result.config).dump(2) + "\n"; }

std::string to_json(const Result& result) {
  const RunStatistics& run = result.statistics;
  check_conservation(run.all);
  check_conservation(run.measured);
  Json json = head(result);
  json["conservation"] = {
      {"all", counts_json(run.all)}, {"measured", counts_json(run.measured)}, {"unsent", result.unsent}};
  json["steady_state"] = steady_json(run.steady);
  json["slo"] = slo_json(result);
  json["bottleneck"] = bottleneck_json(run, result.config);
  json["outside_measured_range"] = outside_json(result.outside_range);
  json["metrics"] = metrics_json(run.metrics);
  for (const KindResult& kind : result.kinds) {
    check_conservation(kind.statistics.all);
    check_conservation(kind.statistics.measured);
    Json one = kind_json(kind);
    one["conservation"] = {{"all", counts_json(kind.statistics.all)},
                           {"measured", counts_json(kind.statistics.measured)}};
    one["steady_state"] = steady_json(kind.statistics.steady);
    for (const Condition& slo : kind.request_slos) one["slo"]["per_request"].push_back(slo.text);
    one["bottleneck"] = bottleneck_json(kind.statistics, kind.config);
    one["metrics"] = metrics_json(kind.statistics.metrics);
    json["instances"].push_back(std::move(one));
  }
  if (result.perturbation) json["perturbation"] = perturbation_json(*result.perturbation);
  if (result.locality) json["other_localities"] = locality_check_json(*result.locality);
  const auto add_series = [&](const std::string& name, Json series) {
    json[name] = std::move(series);
    const bool replicated = !run.metrics.empty() && !run.metrics.front().replications.empty();
    if (replicated) json[name + "_replication"] = 0;
  };
  if (run.engine.layers) add_series("expansion_over_time", expansion_json(*run.engine.layers));
  if (!run.conversations.empty()) add_series("conversations_over_time", conversations_json(run.conversations));
  if (!run.replicas.empty()) json["replicas"] = replicas_json(run.replicas, places(result));
  if (!result.links.empty()) json["links"] = links_json(result);
  if (!result.loans.empty()) json["lending"] = lending_json(result);
  if (!run.clients.empty()) {
    json["clients"] = clients_json(run);
    json["clients_omitted"] = run.clients.size() - json["clients"].size();
  }
  json["definitions"] = definitions_json();
  return json.dump(2) + "\n";
}

}  // namespace spillway
