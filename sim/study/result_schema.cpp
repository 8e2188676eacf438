#include "sim/study/result_schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/api/key_owners.hpp"
#include "sim/api/op_scales.hpp"
#include "sim/config/config.hpp"
#include "sim/metrics/metric_table.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/study/parameter_table.hpp"
#include "sim/study/result_version.hpp"
#include "sim/study/robustness.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

/// An object with exactly these keys.
class Object {
 public:
  Object& key(const std::string& name, Json schema) {
    properties_[name] = std::move(schema);
    required_.push_back(name);
    return *this;
  }
  Object& optional(const std::string& name, Json schema) {
    properties_[name] = std::move(schema);
    return *this;
  }
  [[nodiscard]] Json schema() const {
    Json json{{"type", "object"}, {"additionalProperties", false}, {"properties", properties_}};
    if (!required_.empty()) json["required"] = required_;
    return json;
  }

 private:
  Json properties_ = Json::object();
  Json required_ = Json::array();
};

Json said(Json schema, const std::string& description) {
  schema["description"] = description;
  return schema;
}
Json text() { return {{"type", "string"}}; }
Json flag() { return {{"type", "boolean"}}; }
Json number() { return {{"type", "number"}}; }
Json count() { return {{"type", "integer"}, {"minimum", 0}}; }
/// Of replications, a mean or a sum that need not be whole.
Json amount() { return {{"type", "number"}, {"minimum", 0}}; }
Json fraction() { return {{"type", "number"}, {"minimum", 0}, {"maximum", 1}}; }
Json or_null(Json schema) {
  schema["type"] = {schema["type"], "null"};
  return schema;
}
Json list_of(Json schema) { return {{"type", "array"}, {"items", std::move(schema)}}; }
Json choice(const std::vector<std::string>& names) { return {{"enum", names}}; }
Json reference(const std::string& name) { return {{"$ref", "#/$defs/" + name}}; }

std::string escaped(std::string_view name) {
  std::string pattern;
  for (const char c : name) {
    if (c == '.' || c == '+') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

/// One figure.
Json metric(const std::string& unit) {
  return Object()
      .key("value", said(or_null(number()), "null: the figure does not exist for this run, which is not 0"))
      .key("unit", {{"const", unit}})
      .key("n", said(count(), "samples behind it"))
      .optional("half_width", said(amount(), "of the 95% t-interval over replications"))
      .optional("replications", said(list_of(or_null(number())), "its value in each replication"))
      .optional("relative_error", said(amount(), "of a percentile that a sketch gives"))
      .schema();
}

/// The figures of a run: those that every run has, and those of policies, pools and SLOs.
Json metrics() {
  Object object;
  std::set<std::string> always;
  for (const MetricEntry& entry : metric_table()) {
    if (entry.of_run != nullptr && entry.applies == nullptr) always.insert(entry.definition.name);
  }
  Json patterns = Json::object();
  for (const MetricDefinition& definition : metric_definitions()) {
    if (definition.series) continue;
    const Json schema = said(metric(definition.unit), definition.definition);
    if (definition.distribution) {
      const std::string name = "_" + definition.name;
      for (const char* statistic : {"mean", "median", "std", "min", "max", "p50", "p90", "p95", "p99"}) {
        object.key(statistic + name, schema);
      }
      patterns[fmt::format("^p[0-9]+([.][0-9]+)?{}$", escaped(name))] = schema;
    } else if (always.contains(definition.name)) {
      object.key(definition.name, schema);
    } else {
      object.optional(definition.name, schema);
    }
  }
  Json schema = object.schema();
  schema["patternProperties"] = std::move(patterns);
  return schema;
}

Json definitions() {
  Object object;
  for (const MetricDefinition& definition : metric_definitions()) {
    Object one;
    one.key("unit", {{"const", definition.unit}}).key("definition", text());
    if (definition.distribution) one.key("statistics", text());
    object.key(definition.name, one.schema());
  }
  return object.schema();
}

/// Keys and values of the run, flat.
Json configuration() {
  const std::vector<Parameter> table = parameter_table();
  std::set<std::string> keys;
  for (const Parameter& parameter : table) keys.insert(parameter.name);
  for (const KeyOwner& owner : key_owners()) {
    for (const Parameter& parameter : *owner.parameters) keys.insert(parameter.name);
  }
  Json properties = Json::object();
  const Json whole = config_schema(table);
  for (const auto& [name, schema] : whole["properties"].items()) {
    if (keys.contains(name)) properties[name] = schema;
  }
  return {{"type", "object"}, {"additionalProperties", false}, {"properties", std::move(properties)}};
}

Json expert_locality() {
  return Object()
      .key("value", fraction())
      .key("origin", choice({"given", "default"}))
      .optional("source", text())
      .optional("no_effect", text())
      .schema();
}

/// Keys of `setup` in every run.
Object names() {
  Object object;
  for (const char* name :
       {"model", "hardware", "gpu", "latency_model", "expected_error", "engine", "policy", "workload"}) {
    object.key(name, text());
  }
  object.key("requests", said(count(), "of each replication"))
      .key("skipped_rows", count())
      .optional("price", text())
      .optional("power_watts", amount());
  return object;
}

Json common_setup() {
  return names()
      .key("replicas", count())
      .key("servers", count())
      .optional("expert_locality", said(expert_locality(), "if all that place experts assume the same"))
      .schema();
}

Json setup() {
  Object object = names();
  for (const char* name : {"tensor_parallel_gpus", "replicas", "prefill_replicas", "servers", "weights_bytes_per_gpu",
                           "block_tokens", "block_bytes_per_gpu", "gpu_kv_blocks", "gpu_kv_tokens"}) {
    object.key(name, count());
  }
  object.key("gpu_kv_origin", choice({"computed", "memory.gpu_kv"}))
      .key("gpu_kv_terms", text())
      .key("host_kv_blocks", count())
      .key("prefix_caching", flag())
      .key("host_cache_blocks", count())
      .key("disk_cache_blocks", count())
      .key("kv_connector", choice({"none", "vllm-offloading"}))
      .key("max_model_len_tokens", count())
      .optional("host_tier_hits",
                list_of(Object().key("tokens", count()).key("load_ms", amount()).key("compute_ms", amount()).schema()))
      .optional("kv_window", Object().key("tokens", count()).key("layers", count()).key("of_layers", count()).schema())
      .optional("host_cache_is_lent", flag())
      .optional("host_cache_moves_to_lender", flag())
      .optional("peer_kv_blocks", count())
      .optional("resolved_model", text())
      .optional("expert_exchange", text())
      .optional("expert_locality", expert_locality())
      .optional("knows_future", text())
      .optional("most_gpu_kv_blocks", count())
      .optional("kv_of_smaller_pool", said({{"const", true}}, "the other pool has more KV blocks"))
      .optional("layer_terms", text())
      .optional("engine_flags", Object().key("engine", text()).key("version", text()).key("flags", text()).schema())
      .optional("layer_copies", text())
      .optional("host_layer_bytes_per_gpu", count());
  return object.schema();
}

Json scales() {
  Object object;
  for (const OpClass& op : kOpClasses) object.key(std::string(op.key), amount());
  return object.schema();
}

Json counts() {
  Object object;
  for (const char* name : {"submitted", "finished", "rejected", "timed_out", "unfinished", "lost"}) {
    object.key(name, count());
  }
  return object.schema();
}

Json steady_state() {
  Json schema = Object()
                    .key("verdict", choice({"steady", "saturated", "unsteady"}))
                    .key("reason", text())
                    .key("transient_s", amount())
                    .key("observed_s", number())
                    .key("offered_requests_per_s", amount())
                    .key("served_requests_per_s", amount())
                    .key("growth_fraction", number())
                    .key("growth_half_width", or_null(number()))
                    .schema();
  return or_null(std::move(schema));
}

Json bottleneck() {
  return Object()
      .key("resource", text())
      .key("share", fraction())
      .key("sentence", text())
      .key("advice", text())
      .schema();
}

Json per_request_slos() { return said(list_of(text()), "limits on single requests, which define goodput"); }

Json slo() {
  const Json run =
      list_of(Object().key("condition", text()).key("value", or_null(number())).key("met", flag()).schema());
  return Object().key("per_request", per_request_slos()).key("run", run).schema();
}

Json inputs() {
  const Json sha256{{"type", "string"}, {"pattern", "^[0-9a-f]{64}$"}};
  return list_of(Object().key("role", text()).key("name", text()).key("sha256", sha256).schema());
}

Json validity() {
  return list_of(Object().key("role", text()).key("stands_for", text()).key("error", text()).schema());
}

Json outside_measured_range() {
  Json measured = list_of(or_null(number()));
  measured["minItems"] = measured["maxItems"] = 2;
  return list_of(Object()
                     .key("op", text())
                     .key("quantity", text())
                     .key("measured", measured)
                     .key("reached", number())
                     .key("fraction", fraction())
                     .optional("beyond", text())
                     .schema());
}

Json instances() {
  return list_of(Object()
                     .key("name", text())
                     .key("gpus", list_of(count()))
                     .key("workload_share", or_null(fraction()))
                     .key("config", reference("configuration"))
                     .key("setup", reference("setup"))
                     .key("conservation", Object().key("all", counts()).key("measured", counts()).schema())
                     .key("steady_state", reference("steady_state"))
                     .optional("slo", Object().key("per_request", per_request_slos()).schema())
                     .key("bottleneck", reference("bottleneck"))
                     .key("metrics", reference("metrics"))
                     .schema());
}

Json perturbation() {
  const Json changed = Object().key("value", or_null(number())).key("change", or_null(number())).schema();
  const Json metrics_of_run{{"type", "object"}, {"additionalProperties", changed}};
  const Json run = Object().key("label", text()).key("scales", scales()).key("metrics", metrics_of_run).schema();
  return Object().key("fraction", fraction()).key("runs", list_of(run)).schema();
}

Json other_localities() {
  const Json run = Object()
                       .key("times", said(amount(), "of the assumed locality, which becomes at most 1"))
                       .optional("value", fraction())
                       .key("output_throughput_tokens_per_s", or_null(amount()))
                       .key("p50_tpot_ms", or_null(amount()))
                       .schema();
  return Object().optional("runs", list_of(run)).optional("not_run", text()).schema();
}

Json expansion_over_time() {
  return list_of(
      Object().key("time_s", amount()).key("gpu_kv_blocks", count()).key("expansion", or_null(amount())).schema());
}

Json conversations_over_time() {
  Object object;
  object.key("time_s", amount());
  for (const char* name : {"live", "cached", "cached_on_gpu", "cached_on_host"}) object.key(name, count());
  return list_of(object.schema());
}

Json replicas() {
  return list_of(Object()
                     .key("replica", count())
                     .optional("instance", text())
                     .key("pool", text())
                     .key("requests", count())
                     .key("finished_requests", count())
                     .key("lost_requests", count())
                     .key("down_s", amount())
                     .key("iterations", count())
                     .key("busy_s", amount())
                     .key("prefix_cache_hit_fraction", or_null(fraction()))
                     .key("recompute_preemptions", count())
                     .key("swap_preemptions", count())
                     .key("jain_index", or_null(fraction()))
                     .key("max_service_difference_tokens", or_null(count()))
                     .key("replications", count())
                     .schema());
}

Json links() {
  return list_of(Object()
                     .key("link", text())
                     .key("capacity_bytes_per_s", amount())
                     .key("moved_bytes", amount())
                     .key("used_fraction", or_null(fraction()))
                     .schema());
}

Json lending() {
  const Json change =
      Object().key("time_s", amount()).key("offered_bytes", count()).key("held_bytes", count()).schema();
  return list_of(Object()
                     .key("borrower", or_null(text()))
                     .key("borrower_replica", count())
                     .key("lender", or_null(text()))
                     .key("lender_replica", or_null(count()))
                     .key("mean_offered_bytes", or_null(amount()))
                     .key("mean_held_bytes", or_null(amount()))
                     .key("peak_held_bytes", count())
                     .key("offers", count())
                     .key("reclaims", count())
                     .key("mean_return_s", or_null(amount()))
                     .key("longest_return_s", or_null(amount()))
                     .key("copied_bytes", count())
                     .key("lender_memory_bandwidth_fraction", or_null(amount()))
                     .key("lender_own_memory_bandwidth_fraction", or_null(fraction()))
                     .key("over_time", list_of(change))
                     .schema());
}

Json clients() {
  return list_of(Object()
                     .key("client", count())
                     .key("submitted_requests", amount())
                     .key("finished_requests", amount())
                     .key("mean_ttft_ms", or_null(amount()))
                     .key("p50_ttft_ms", or_null(amount()))
                     .key("p99_ttft_ms", or_null(amount()))
                     .key("output_tokens", amount())
                     .key("service_tokens", or_null(amount()))
                     .key("replications", count())
                     .schema());
}

}  // namespace

Json result_schema() {
  const Json first_replication = said({{"const", 0}}, "the replication that the series is of");
  Object object;
  object.key("schema_version", {{"const", kResultSchemaVersion}})
      .key("tool_version", text())
      .key("tool_build", {{"type", "string"}, {"pattern", "^[0-9a-f]{16}$"}})
      .key("complete", said(flag(), "false: the run was interrupted"))
      .key("config", reference("configuration"))
      .optional("op_scales", scales())
      .key("inputs", inputs())
      .key("setup", {{"anyOf", {reference("setup"), reference("common_setup")}}})
      .key("warnings", list_of(text()))
      .key("warnings_of_accuracy", list_of(text()))
      .key("validity", validity())
      .key("conservation", Object().key("all", counts()).key("measured", counts()).key("unsent", count()).schema())
      .key("steady_state", reference("steady_state"))
      .key("slo", slo())
      .key("bottleneck", reference("bottleneck"))
      .key("outside_measured_range", outside_measured_range())
      .key("metrics", reference("metrics"))
      .optional("instances", instances())
      .optional("perturbation", perturbation())
      .optional("other_localities", other_localities())
      .optional("expansion_over_time", expansion_over_time())
      .optional("expansion_over_time_replication", first_replication)
      .optional("conversations_over_time", conversations_over_time())
      .optional("conversations_over_time_replication", first_replication)
      .optional("replicas", replicas())
      .optional("links", links())
      .optional("lending", lending())
      .optional("clients", clients())
      .optional("clients_omitted", count())
      .key("definitions", definitions());
  Json schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
              {"$id", fmt::format("urn:spillway:result:{}", kResultSchemaVersion)},
              {"title", "The result of a run of Spillway"},
              {"description", "What spillway run --json prints, and result.json of run -o DIR"}};
  schema.update(object.schema());
  schema["$defs"] = {{"configuration", configuration()},
                     {"setup", setup()},
                     {"common_setup", said(common_setup(), "of several kinds of instances: what they have in common")},
                     {"steady_state", steady_state()},
                     {"bottleneck", bottleneck()},
                     {"metrics", metrics()}};
  return schema;
}

}  // namespace spillway
