#include "hwmodels/catalog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "hwmodels/external_names.hpp"
#include "hwmodels/field_reader.hpp"
#include "hwmodels/gpu_profile.hpp"
#include "hwmodels/hf_config.hpp"
#include "hwmodels/hf_quantization.hpp"
#include "hwmodels/topology_json.hpp"
#include "sim/core/text.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 1> kServerSections{kTopologySection};
constexpr Kind kServer{"hwmodels/servers/", "server", "hardware", kServerSections};
constexpr std::int64_t kMostServers = 100'000;
constexpr Kind kHost{"hwmodels/hosts/", "host", "host"};
constexpr Kind kEngine{"hwmodels/engines/", "engine", "engine"};
/// Fields of a Hugging Face config.json, in place of shapes of Spillway's own.
constexpr std::string_view kConfigSection = "config";
/// Ids of Hugging Face with the same shapes: each a text, or an object of `id` and the fields of its config.json that
/// differ.
constexpr std::string_view kAlsoSection = "also";
/// How quantised weights are stored, as in a config.json, beside shapes of Spillway's own.
constexpr std::string_view kQuantizationSection = "quantization_config";
constexpr std::array<std::string_view, 3> kLlmSections{kConfigSection, kAlsoSection, kQuantizationSection};
constexpr Kind kLlm{"hwmodels/llms/", "llm", "model", kLlmSections};

void check_parameters(FieldReader& in, const LlmModel& llm, std::int64_t published) {
  const double ratio = static_cast<double>(llm.parameters()) / static_cast<double>(published);
  in.require(ratio > 0.99 && ratio < 1.01, "parameters",
             fmt::format("the shapes hold {} parameters, more than 1% from {}", llm.parameters(), published));
}

constexpr std::int64_t kMostParameters = 1'000'000'000'000'000'000;

/// A model whose shapes are those of its config.json.
LlmModel read_configured_llm(FieldReader in, std::string_view path) {
  LlmModel llm = read_hf_config(std::string(path), in.section(kConfigSection)->dump());
  if (in.section(kQuantizationSection) != nullptr) {
    in.fail(json::json_pointer("/" + std::string(kQuantizationSection)), "belongs in config");
  }
  const std::int64_t published = in.integer("parameters", "1", 1, kMostParameters);
  check_parameters(in, llm, published);
  DataFile own = in.finish();
  own.entries.insert(own.entries.end(), llm.file.entries.begin(), llm.file.entries.end());
  own.warnings = std::move(llm.file.warnings);
  llm.file = std::move(own);
  return llm;
}

/// Spillway's own form of a model.
LlmModel read_llm(FieldReader in, std::string_view path) {
  if (in.section(kConfigSection) != nullptr) return read_configured_llm(std::move(in), path);
  // Bounds that keep every product of shapes within int64.
  constexpr std::int64_t kMaxWidth = 1'000'000;
  LlmModel llm;
  llm.layers = in.integer("layers", "1", 1, 1000);
  llm.hidden = in.integer("hidden", "1", 1, kMaxWidth);
  llm.heads = in.integer("heads", "1", 1, 1000);
  llm.kv_heads = in.integer("kv_heads", "1", 1, 1000);
  llm.head_dim = in.integer("head_dim", "1", 1, 1000);
  llm.ffn = in.integer("ffn", "1", 1, kMaxWidth);
  llm.gated_mlp = in.flag("gated_mlp");
  llm.vocabulary = in.integer("vocabulary", "tokens", 1, 10 * kMaxWidth);
  llm.max_positions = in.integer("max_positions", "tokens", 1, 1000 * kMaxWidth);
  llm.tied_embeddings = in.flag("tied_embeddings");
  llm.learned_position_rows = in.integer("learned_position_rows", "1", 0, 1000 * kMaxWidth);
  const bool biases = in.flag("biases");
  const bool qkv_biases = in.optional_flag("qkv_biases");
  llm.biases = {.qkv = biases || qkv_biases, .output = biases, .mlp = biases, .head = false};
  llm.norm_vectors = biases ? 2 : 1;
  llm.dtype_bytes = in.integer("dtype_bytes", "bytes", 1, 8);
  const std::int64_t published = in.integer("parameters", "1", 1, kMostParameters);
  in.require(llm.heads % llm.kv_heads == 0, "kv_heads", fmt::format("must divide the {} heads", llm.heads));
  check_parameters(in, llm, published);
  const json* quantization = in.section(kQuantizationSection);
  const json stored = quantization == nullptr ? json::object() : json{{kQuantizationSection, *quantization}};
  llm.file = in.finish();
  read_quantization(llm, stored);
  return llm;
}

/// The bundled model that an id of Hugging Face names, with what differs from it. Such a model has the id's name.
LlmModel read_hub_model(const std::string& id, const HubModel& hub) {
  const json fields = json::parse(hub.fields);
  if (fields.empty()) return read_llm(open_data_file(kLlm, hub.llm), hub.llm);
  const EmbeddedFile& file = *find_embedded(kLlm, hub.llm);
  json document = json::parse(file.content);
  (document.contains(kConfigSection) ? document[kConfigSection] : document).update(fields);
  document["name"] = id;
  document["stands_for"] = fmt::format("{}, by the shapes of {}", id, hub.llm);
  LlmModel llm = read_llm({kLlm, std::string(file.path), document.dump()}, file.path);
  llm.file.sha256 = sha256_hex(file.content);
  return llm;
}

/// "./a/./b/" -> "a/b". Keeps "..", which lexically_normal() removes although it may follow a link.
std::filesystem::path without_dots(const std::filesystem::path& path) {
  std::filesystem::path shorter;
  for (const std::filesystem::path& step : path) {
    if (step != "." && !step.empty()) shorter /= step;
  }
  return shorter;
}

/// A folder stands for the config.json in it. Empty when the argument is the name of an embedded model.
std::optional<std::string> model_path(std::string_view name_or_file) {
  const std::filesystem::path path(name_or_file);
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) {
    const bool embedded = std::ranges::count(names_of(kLlm), name_or_file) > 0;
    if (!embedded) return without_dots(path / "config.json").string();
  }
  return is_path(name_or_file) ? std::optional(path.string()) : std::nullopt;
}

std::optional<BytesPerSecond> bandwidth_or_null(FieldReader& in, const char* key) {
  const auto value = in.number_or_null(key, "bytes/s", kBandwidth);
  return value ? std::optional(BytesPerSecond(*value)) : std::nullopt;
}

/// The GPU or host that a server's file names. A path in the file is relative to the folder of the file.
std::string read_part(FieldReader& in, const char* key, const Kind& kind, std::string_view server_path) {
  std::string part = in.name(key);
  if (part.empty()) return part;
  if (is_path(part)) {
    std::string path = (std::filesystem::path(server_path).parent_path() / part).string();
    std::error_code none;
    if (!std::filesystem::exists(path, none)) in.fail(key, fmt::format("there is no file {}", path));
    return path;
  }
  if (find_embedded(kind, part) == nullptr) {
    in.fail(key, fmt::format("there is no {} \"{}\"", kind.name, part),
            nearest_and_all(part, names_of(kind)) + ", or a JSON file's path");
  }
  return part;
}

/// Files from before topologies state totals of all GPUs: one link that all of them cross.
Topology read_totals(FieldReader& in, std::int64_t gpus, bool peers) {
  const auto limit = [&](const char* key) {
    return LinkCapacity{.rate = bandwidth_or_null(in, key), .source_kind = {}};
  };
  Topology topology;
  TopologyLink& host = topology.links.emplace_back(TopologyLink{.name = "host-dram", .in = {}, .out = {}, .both = {}});
  host.in = limit("h2d_aggregate");
  host.out = limit("d2h_aggregate");
  host.both = limit("host_shared_bandwidth");
  GpuPaths paths{.host = {0}, .peer = {}, .network = {}};
  if (peers) {
    topology.links.push_back({.name = "peers", .kind = LinkKind::nvlink, .in = {}, .out = {}, .both = {}});
    paths.peer = {1};
  }
  topology.gpus.assign(static_cast<std::size_t>(gpus), paths);
  return topology;
}

/// Whether a file may stand for several of another server: that server's file may not.
enum class Nesting : std::uint8_t { allowed, refused };

ServerProfile read_server(FieldReader in, std::string_view path, Nesting nesting = Nesting::allowed);

/// `servers` of the server that the file names.
ServerProfile read_several(FieldReader in, std::string_view path, Nesting nesting) {
  if (nesting == Nesting::refused)
    in.fail("server",
            "must not be given: the file that names this one is itself a server built from another server file, and "
            "such files do not nest");
  const std::string one = read_part(in, "server", kServer, path);
  const std::int64_t servers = in.integer("servers", "1", 1, kMostServers);
  DataFile file = in.finish();
  ServerProfile server = read_server(open_data_file(kServer, one), is_path(one) ? one : "", Nesting::refused);
  server.servers *= servers;
  server.of = std::exchange(server.file, std::move(file));
  return server;
}

ServerProfile read_server(FieldReader in, std::string_view path, Nesting nesting) {
  if (in.states("server")) return read_several(std::move(in), path, nesting);
  ServerProfile server;
  server.gpu = read_part(in, "gpu", kGpu, path);
  server.gpus = in.integer("gpus", "1", 1, 1000);
  server.host = read_part(in, "host", kHost, path);
  server.servers = in.integer_or_one("servers", "1", kMostServers);
  const auto peer = bandwidth_or_null(in, "peer_bandwidth");
  const auto launch = in.number_or_null("peer_launch", "s", kSeconds);
  if (peer && launch) server.peer = HostLink{*peer, *launch};
  in.require(peer.has_value() == launch.has_value(), "peer_launch", "must be null exactly when peer_bandwidth is");
  in.require(!server.peer || server.gpus > 1, "peer_bandwidth", "must be null: there is one GPU");
  const bool totals = in.section(kTopologySection) == nullptr && in.states("h2d_aggregate");
  server.topology = totals ? read_totals(in, server.gpus, server.peer.has_value()) : read_topology(in, server.gpus);
  server.file = in.finish();
  return server;
}

Hardware with_parts(ServerProfile server) {
  Hardware hardware;
  std::vector<Problem> problems;
  const auto attempt = [&](const auto& step) {
    try {
      step();
    } catch (const DataError& error) {
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  };
  attempt([&] { hardware.gpu = load_gpu(server.gpu); });
  attempt([&] { hardware.host = load_host(server.host); });
  if (!problems.empty()) throw DataError(std::move(problems));
  hardware.gpu.peer = server.peer;
  hardware.server = std::move(server);
  return hardware;
}

}  // namespace

std::vector<std::string> server_names() { return names_of(kServer); }
std::vector<std::string> host_names() { return names_of(kHost); }
std::vector<std::string> engine_names() { return names_of(kEngine); }
std::vector<std::string> llm_names() { return names_of(kLlm); }
std::string_view llm_file(std::string_view name) { return find_embedded(kLlm, name)->content; }

std::vector<std::string> hardware_names() {
  std::vector<std::string> names = gpu_names();
  for (std::string& name : server_names()) names.push_back(std::move(name));
  std::sort(names.begin(), names.end());
  return names;
}

HostProfile load_host(std::string_view name_or_file) {
  FieldReader in = open_data_file(kHost, name_or_file);
  HostProfile host;
  host.cores = in.integer("cores", "1", 1, 100'000);
  host.threads = in.integer("threads", "1", 1, 1'000'000);
  host.dram = Bytes(in.integer("dram", "bytes", 1, 1'000'000'000'000'000));
  host.dram_bandwidth = BytesPerSecond(in.number("dram_bandwidth", "bytes/s", kBandwidth));
  host.dram_bandwidth_per_thread = bandwidth_or_null(in, "dram_bandwidth_per_thread");
  host.dram_peak = bandwidth_or_null(in, "dram_peak");
  host.cpu_attention_efficiency = in.number("cpu_attention_efficiency", "1", kEfficiency);
  host.cpu_attention_launch_seconds = in.number_or_zero("cpu_attention_launch", "s", kSeconds);
  for (const std::int64_t rows : HostProfile::kGemmRows) {
    const std::string key = fmt::format("gemm_flops_{}_rows", rows);
    const std::optional<double> flops = in.optional_number_or_null(key.c_str(), "FLOP/s", kFlops);
    if (flops) host.gemm_flops.push_back({rows, *flops});
  }
  host.sockets = in.integer_or_one("sockets", "1", 64);
  in.require(host.sockets <= host.cores, "sockets", fmt::format("exceeds the {} cores", host.cores));
  in.require(host.threads >= host.cores, "threads", fmt::format("must be at least the {} cores", host.cores));
  in.require(!host.dram_peak || host.dram_bandwidth <= *host.dram_peak, "dram_bandwidth", "exceeds dram_peak");
  in.require(!host.dram_bandwidth_per_thread || *host.dram_bandwidth_per_thread <= host.dram_bandwidth,
             "dram_bandwidth_per_thread", "exceeds dram_bandwidth, which all threads reach together");
  host.file = in.finish();
  return host;
}

ServerProfile load_server(std::string_view name_or_file) {
  const std::string_view path = is_path(name_or_file) ? name_or_file : std::string_view();
  return read_server(open_data_file(kServer, name_or_file), path);
}

std::string stated_kind(const std::string& path) {
  const json document = json::parse(read_file(path), nullptr, false);
  if (!document.is_object() || !document.contains("kind")) return "";
  const json& kind = document["kind"];
  return kind.is_string() ? kind.get<std::string>() : std::string();
}

Hardware load_hardware(std::string_view name_or_file) {
  if (!is_path(name_or_file)) {
    if (find_embedded(kServer, name_or_file) != nullptr) return with_parts(load_server(name_or_file));
    if (find_embedded(kGpu, name_or_file) != nullptr) return {.gpu = load_gpu(name_or_file), .server = {}, .host = {}};
    throw ConfigError(fmt::format("unknown {} \"{}\"", kGpu.key, name_or_file), std::string(kGpu.key),
                      nearest_and_all(name_or_file, hardware_names()) + ", or a JSON file's path");
  }
  const std::string path(name_or_file);
  const std::string content = read_file(path);
  const json document = json::parse(content, nullptr, false);
  // Any other document is reported as a faulty GPU file.
  const json kind = document.is_object() ? document.value("kind", json(kGpu.name)) : json(kGpu.name);
  if (kind == kServer.name) return with_parts(read_server({kServer, path, content}, path));
  if (kind == kGpu.name) return {.gpu = read_gpu({kGpu, path, content}), .server = {}, .host = {}};
  throw DataError(fmt::format("must be \"{}\" or \"{}\", not {}", kGpu.name, kServer.name, kind.dump()),
                  fmt::format("{} at /kind", path));
}

EngineProfile load_engine(std::string_view name_or_file) {
  constexpr std::int64_t kMany = 1'000'000'000'000;
  FieldReader in = open_data_file(kEngine, name_or_file);
  EngineProfile engine;
  engine.launch_floor_seconds = in.number("launch_floor_per_layer", "s", kSeconds);
  engine.cuda_graph_max_tokens = in.integer("cuda_graph_max_tokens", "tokens", 0, kMany);
  engine.cuda_graph_prefill = in.flag("cuda_graph_prefill");
  engine.host_fixed_seconds = in.number("host_fixed", "s", kSeconds);
  engine.host_per_sequence_seconds = in.number("host_per_sequence", "s", kSeconds);
  engine.host_overlapped = in.flag("host_overlapped");
  engine.schedules_ahead = in.optional_flag("schedules_ahead");
  engine.custom_all_reduce = in.optional_flag("custom_all_reduce");
  engine.fuses_quantisation = in.optional_flag("fuses_quantisation");
  engine.splits_mixed_attention = in.optional_flag("splits_mixed_attention");
  const double non_attention_factor = in.number_or_zero("non_attention_factor", "1", {0.1, 10.0, "0.1 to 10"});
  if (non_attention_factor > 0.0) engine.non_attention_factor = non_attention_factor;
  engine.front_end_seconds = in.number_or_zero("front_end", "s", kSeconds);
  engine.non_torch_memory = Bytes(in.integer("non_torch_memory", "bytes", 0, kMany));
  engine.non_torch_memory_tensor_parallel = Bytes(in.integer("non_torch_memory_tensor_parallel", "bytes", 0, kMany));
  engine.activation_hidden_copies = in.integer("activation_hidden_copies", "1", 0, 100);
  engine.sampler_bytes_per_logit = in.integer("sampler_bytes_per_logit", "bytes", 0, 100);
  engine.gpu_memory_utilization = in.number("gpu_memory_utilization", "1", kEfficiency);
  engine.file = in.finish();
  return engine;
}

LlmModel load_llm(std::string_view name_or_file) {
  std::error_code none;
  const auto hub = std::filesystem::exists(name_or_file, none) ? std::nullopt : llm_of_hub_id(name_or_file);
  if (hub) return read_hub_model(std::string(name_or_file), *hub);
  const auto path = model_path(name_or_file);
  if (!path) return read_llm(open_data_file(kLlm, name_or_file), name_or_file);
  const std::string advice = advice_on_hub_id(name_or_file);
  if (!advice.empty() && !std::filesystem::exists(*path, none)) throw DataError("cannot be read", *path, advice);
  const std::string content = read_file(*path);
  const json document = json::parse(content, nullptr, false);
  const bool own = document.is_object() && (document.contains("schema_version") || document.contains("kind"));
  return own ? read_llm({kLlm, *path, content}, *path) : read_hf_config(*path, content);
}

}  // namespace spillway::hwmodels
