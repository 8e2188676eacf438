#include "sim/study/probes.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "policies/parts/layer_swap.hpp"
#include "policies/parts/performance_record.hpp"
#include "sim/exec/executor.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/parameter_table.hpp"
#include "sim/study/placer/sample_cluster.hpp"

namespace spillway {
namespace {

Parameter count(std::string name, std::string unit, std::string default_value, double minimum, double maximum,
                std::string doc) {
  return {.name = std::move(name),
          .type = ParameterType::integer,
          .unit = std::move(unit),
          .default_value = std::move(default_value),
          .minimum = minimum,
          .maximum = maximum,
          .doc = std::move(doc),
          .source = {}};
}

Parameter number(std::string name, std::string default_value, double minimum, double maximum, std::string doc) {
  return {.name = std::move(name),
          .type = ParameterType::real,
          .unit = "-",
          .default_value = std::move(default_value),
          .minimum = minimum,
          .maximum = maximum,
          .doc = std::move(doc),
          .source = {}};
}

Parameter choice(std::string name, const std::vector<std::string>& choices, std::string doc) {
  return {.name = std::move(name),
          .type = ParameterType::choice,
          .unit = "-",
          .default_value = choices.front(),
          .choices = choices,
          .doc = std::move(doc),
          .source = {}};
}

std::int64_t integer(const Settings& settings, const std::string& key) { return settings.get<std::int64_t>(key); }

// --- layer-swap

/// Measures the absence of layers, from the start of the copy out to the end of the copy in.
class Dwells final : public CopyObserver {
 public:
  void copied(const Copy& copy, SimTime started, SimTime ended) override {
    if (copy.stream == Stream::d2h) {
      left_[copy.layer] = started;
    } else if (const auto left = left_.find(copy.layer); left != left_.end()) {
      dwells_.push_back((ended - left->second).count());
    }
  }
  [[nodiscard]] std::optional<double> shortest() const { return of(std::min_element(dwells_.begin(), dwells_.end())); }
  [[nodiscard]] std::optional<double> longest() const { return of(std::max_element(dwells_.begin(), dwells_.end())); }

 private:
  [[nodiscard]] std::optional<double> of(std::vector<std::int64_t>::const_iterator at) const {
    return at == dwells_.end() ? std::nullopt : std::optional(static_cast<double>(*at));
  }
  std::map<std::int32_t, SimTime> left_;
  std::vector<std::int64_t> dwells_;
};

/// Uses 1 ns as the unit of time, so that all times are exact.
ProbeFigures swap_layers(const Settings& settings, const std::vector<Assignment>& /*configuration*/) {
  const auto layers = static_cast<std::int32_t>(integer(settings, "layers"));
  const auto on_host = static_cast<std::int32_t>(integer(settings, "on_host"));
  if (on_host > layers - 3) {
    throw ConfigError("on_host must be at most layers - 3, because three layers stay on the GPU", "on_host",
                      "lower it");
  }
  const auto copy = [&](Stream stream, const char* time) {
    return Copy{.stream = stream, .bytes = Bytes(1), .transfer = Duration(integer(settings, time))};
  };
  const Duration compute(integer(settings, "compute"));
  const std::int64_t tokens = integer(settings, "tokens");
  Dwells dwells;
  Executor executor({}, &dwells);
  LayerSwap rule(layers, on_host, settings.get<std::string>("check_at") == "completion",
                 {copy(Stream::h2d, "swap_in"), copy(Stream::d2h, "swap_out")});
  const SubBatchTimes times{.gpu = LayerTimes(compute)};
  const IterationPlan plan{layers, {&times, 1}, &rule};
  for (std::int64_t token = 0; token < tokens; ++token) {
    executor.begin(plan, executor.now());
    static_cast<void>(executor.run(plan, kNever));
  }
  return {{"duration", static_cast<double>(executor.now().ns())},
          {"stall", static_cast<double>(executor.use(Stream::compute).stall.count())},
          {"shortest_dwell", dwells.shortest()},
          {"longest_dwell", dwells.longest()},
          {"expansion", static_cast<double>(layers) / static_cast<double>(layers - on_host)}};
}

// --- performance-record

ProbeFigures affine_record(const Settings& settings, const std::vector<Assignment>& /*configuration*/) {
  const auto layers = static_cast<std::int32_t>(integer(settings, "layers"));
  const double tokens = static_cast<double>(integer(settings, "batch") * integer(settings, "sequence"));
  const double copies = settings.get<double>("base") + settings.get<double>("slope") * tokens / 512.0;
  // One layer's transfer takes 1 ms. The layers' compute, without overhead, is `copies` ms, rounded to the nanosecond.
  const Duration transfer(std::int64_t{1'000'000} * layers);
  const Duration compute(static_cast<std::int64_t>(std::floor(copies * 1e6 + 0.5)));
  const auto interval = paper_interval(layers, compute, transfer, 0.0);
  return {{"interval", interval ? std::optional(static_cast<double>(*interval)) : std::nullopt}};
}

// --- layer-times and set-up

ProbeFigures layer_times(const Settings& settings, const std::vector<Assignment>& configuration) {
  const Assembly assembly = assemble(resolve_config(parameter_table(), configuration, {}));
  const Deployment& deployment = assembly.instance.deployment;
  if (deployment.layers == 0) {
    throw ConfigError("the policy streams no layers", "policy", "use policy=select-n or policy=deepspeed");
  }
  const std::unique_ptr<ExecutionModel> model = assembly.make_model({});
  const std::int64_t batch = integer(settings, "batch");
  const Tokens sequence(integer(settings, "sequence"));
  std::vector<PrefillChunk> chunks;
  BatchShape shape;
  shape.sampled_sequences = batch;
  if (settings.get<std::string>("phase") == "prefill") {
    chunks.assign(static_cast<std::size_t>(batch), PrefillChunk{sequence, Tokens(0)});
    shape.chunks = chunks;
  } else {
    shape.decode_sequences = batch;
    shape.decode_longest = sequence;
    shape.decode_context = sequence * batch;
  }
  const IterationTime time = model->iteration(shape);
  const PlannedCopies copies(*model, assembly.instance.routes.front(), assembly.instance.links);
  const CopyTime copy = copies.copy(Stream::h2d, 1, deployment.layer_weights, CopyMechanism::single);
  const Duration transfer = copy.launch + copy.transfer;
  const double margin = settings.get<double>("slo_margin");
  const auto real = [](std::optional<std::int32_t> interval) {
    return interval ? std::optional(static_cast<double>(*interval)) : std::nullopt;
  };
  return {{"compute_ms", to_seconds(time.layer) * 1e3},
          {"transfer_ms", to_seconds(transfer) * 1e3},
          {"transfer_over_compute", to_seconds(transfer) / to_seconds(time.layer)},
          {"iteration_ms", to_seconds(model->length(time)) * 1e3},
          {"exact_interval", real(exact_interval(deployment.layers, time.layer, transfer, margin))},
          {"paper_interval", real(paper_interval(deployment.layers, time.layer, transfer, margin))}};
}

ProbeFigures set_up(const Settings& /*settings*/, const std::vector<Assignment>& configuration) {
  const Assembly assembly = assemble(resolve_config(parameter_table(), configuration, {}));
  const Setup& setup = assembly.setup;
  const double layer = static_cast<double>(setup.deployment.layer_weights.count());
  return {{"gpu_kv_tokens", static_cast<double>((setup.kv.block_tokens * setup.kv.gpu_blocks.count()).count())},
          {"gpu_kv_blocks", static_cast<double>(setup.kv.gpu_blocks.count())},
          {"block_tokens", static_cast<double>(setup.kv.block_tokens.count())},
          {"host_layer_bytes", static_cast<double>(setup.host_layer_bytes.count())},
          {"host_layers",
           layer > 0.0 ? std::optional(static_cast<double>(setup.host_layer_bytes.count()) / layer) : std::nullopt}};
}

// --- copy

ProbeFigures one_copy(const Settings& settings, const std::vector<Assignment>& configuration) {
  const Assembly assembly = assemble(resolve_config(parameter_table(), configuration, {}));
  const std::unique_ptr<ExecutionModel> model = assembly.make_model({});
  const PlannedCopies copies(*model, assembly.instance.routes.front(), assembly.instance.links);
  const Bytes bytes(integer(settings, "bytes"));
  const std::string path = settings.get<std::string>("path");
  const Stream stream = path == "from-host"     ? Stream::h2d
                        : path == "to-host"     ? Stream::d2h
                        : path == "from-lender" ? Stream::peer_in
                                                : Stream::peer_out;
  const std::string way = settings.get<std::string>("mechanism");
  const CopyMechanism mechanism = way == "single"     ? CopyMechanism::single
                                  : way == "gathered" ? CopyMechanism::gather
                                                      : CopyMechanism::many;
  const CopyTime copy = copies.copy(stream, integer(settings, "pieces"), bytes, mechanism);
  const double seconds = to_seconds(copy.launch + copy.transfer);
  return {
      {"time_us", seconds * 1e6},
      {"gb_per_s", seconds > 0.0 ? std::optional(static_cast<double>(bytes.count()) * 1e-9 / seconds) : std::nullopt}};
}

// --- placement

ProbeFigures place_sample(const Settings& settings, const std::vector<Assignment>& /*configuration*/) {
  const placer::Placement placement = placer::place(
      placer::sample_cluster(integer(settings, "servers"), integer(settings, "seed"), settings.get<double>("spread")));
  return {{"gap", placement.gap()},
          {"optimal", placement.optimal() ? 1.0 : 0.0},
          {"objective_gb", static_cast<double>(placement.value.count()) * 1e-9}};
}

const std::vector<Probe>& probes() {
  static const std::vector<Probe> kProbes{
      {.name = "layer-swap",
       .doc = "Pie's swap rule for layers and swaps of whole units of time: duration, stall, dwell, expansion",
       .parameters = {count("layers", "layers", "9", 3, 256, "Layers of the model"),
                      count("on_host", "layers", "2", 0, 253, "Layers that stay on the host"),
                      count("compute", "units", "1", 1, 1e6, "Compute of one layer"),
                      count("swap_in", "units", "2", 0, 1e6, "Copy of a layer to the GPU"),
                      count("swap_out", "units", "2", 0, 1e6, "Copy of a layer to the host"),
                      count("tokens", "tokens", "6", 1, 1e5, "Iterations"),
                      choice("check_at", {"layer-start", "completion"}, "When a copy may start")},
       .compute = swap_layers},
      {.name = "performance-record",
       .doc = "Select-N's printed formula for layers whose compute lasts base + slope * batch * sequence / 512 copies",
       .parameters = {count("layers", "layers", "32", 1, 256, "Layers of the model"),
                      count("batch", "requests", "4", 1, 1e6, "Batch size"),
                      count("sequence", "tokens", "128", 1, 1e7, "Sequence length"),
                      number("base", "5.6", 0, 1e6, "Copies that fit into the layers' compute with no tokens"),
                      number("slope", "0.9", 0, 1e6, "More copies with every 512 tokens")},
       .compute = affine_record},
      {.name = "layer-times",
       .doc = "Compute and copy of one layer, and the offloading intervals that an SLO margin allows",
       .parameters = {choice("phase", {"prefill", "decode"}, "What the batch computes"),
                      count("batch", "requests", "4", 1, 1e6, "Batch size"),
                      count("sequence", "tokens", "256", 1, 1e7, "Tokens of each prompt, or each context"),
                      number("slo_margin", "0.5", 0, 1e3, "SLO over the time without offloading, less 1")},
       .takes_configuration = true,
       .compute = layer_times},
      {.name = "copy",
       .doc = "One copy of a GPU of a replica while all links rest: its time, launches included, and bytes per second",
       .parameters = {choice("path", {"from-lender", "to-lender", "from-host", "to-host"}, "Where the bytes go"),
                      count("bytes", "bytes", "64000000", 1, 1e13, "Bytes of the copy"),
                      count("pieces", "pieces", "1", 1, 1e9, "Pieces of equal size"),
                      choice("mechanism", {"single", "gathered", "scattered"},
                             "One copy; pieces gathered into a buffer that is one copy; a launch for each piece")},
       .takes_configuration = true,
       .compute = one_copy},
      {.name = "set-up",
       .doc = "The memory of a configuration before anything runs: KV on the GPU, layers on the host",
       .parameters = {},
       .takes_configuration = true,
       .compute = set_up},
      {.name = "placement",
       .doc = "AQUA's placer on servers of 8 GPUs with the published placer's sample models: gap to a proven bound",
       .parameters = {count("servers", "servers", "16", 1, 64, "Servers of 8 GPUs, with a model for each GPU"),
                      count("seed", "-", "4", 0, 1e9, "Which models"),
                      number("spread", "0", 0, 0.9, "Each balance differs from the sample's by up to this share")},
       .compute = place_sample}};
  return kProbes;
}

}  // namespace

const Probe* find_probe(std::string_view name) {
  const auto& all = probes();
  const auto it = std::find_if(all.begin(), all.end(), [&](const Probe& probe) { return probe.name == name; });
  return it == all.end() ? nullptr : &*it;
}

std::vector<std::string> probe_names() {
  std::vector<std::string> names;
  for (const Probe& probe : probes()) names.push_back(probe.name);
  return names;
}

}  // namespace spillway
