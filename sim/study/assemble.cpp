#include "sim/study/assemble.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "hwmodels/engine_quantization.hpp"
#include "hwmodels/expected_error.hpp"
#include "hwmodels/external_names.hpp"
#include "hwmodels/kv_capacity.hpp"
#include "hwmodels/models/attending_model.hpp"
#include "hwmodels/models/execution_models.hpp"
#include "hwmodels/models/expert_load_text.hpp"
#include "hwmodels/models/logged_models.hpp"
#include "hwmodels/models/server_share.hpp"
#include "hwmodels/topology_file.hpp"
#include "sim/api/key_owners.hpp"
#include "sim/api/router.hpp"
#include "sim/config/expert_defaults.hpp"
#include "sim/core/text.hpp"
#include "sim/io/file_reader.hpp"
#include "sim/study/assemble_kinds.hpp"
#include "sim/study/hit_curve_text.hpp"
#include "sim/study/instances.hpp"
#include "sim/study/lenders.hpp"
#include "sim/study/problems.hpp"

namespace spillway {
namespace {

constexpr const char* kPeerCache = "memory.peer_cache";

InputFile input_of(const std::string& role, const hwmodels::DataFile& file) {
  return {role, file.path, file.sha256, file.stands_for, file.error};
}

std::string gigabytes(Bytes bytes) { return fmt::format("{:.2f} GB", static_cast<double>(bytes.count()) * 1e-9); }

class Assembler {
 public:
  Assembler(ResolvedConfig config, const WorkloadOpener& open, const GivenGpus* given = nullptr)
      : problems_(assembly_.config), open_(open), given_gpus_(given) {
    assembly_.config = std::move(config);
    if (given != nullptr) assembly_.instance.name = given->name;
  }

  Assembly build() {
    const bool hardware = load_hardware();
    read_slos(assembly_, problems_);
    if (hardware) problems_.attempt([&] { read_prices(); });
    if (hardware && hardware_.host) {
      hardware_.gpu.host_copy = BytesPerSecond(hwmodels::host_share(*hardware_.host, gpus_of_host()).copy_bandwidth);
    }
    if (hardware && policy().layer_copies) {
      hardware_.gpu.layer_copies = policy().layer_copies(settings(), hardware_.gpu.prefers_kernel_copies());
    }
    const bool model = hardware && problems_.attempt([&] {
      assembly_.make_model = [gpu = hardware_.gpu, llm = llm_, engine = engine_, name = text("latency_model"),
                              parallelism = parallelism(), kv_dtype = kv_dtype_bytes(), experts = expert_setting(),
                              on_cpu = cpu_attention()](const OpScales& scales) {
        auto on_gpu = hwmodels::make_execution_model(gpu, llm, engine, {name, parallelism, kv_dtype, scales, experts});
        return on_cpu ? hwmodels::make_attending_model(std::move(on_gpu), *on_cpu, scales) : std::move(on_gpu);
      };
      // Build one model now, so that errors appear before the run.
      static_cast<void>(assembly_.make_model({}));
    });
    assembly_.instance.schedules_ahead = engine_.schedules_ahead;
    assembly_.instance.front_end = round_seconds(engine_.front_end_seconds);
    if (hardware) cross_server();
    if (hardware && assembly_.instance.pools.split()) plan_handover();
    if (hardware && size_memory(model)) {
      free_beyond_windows();
      limit_length();
    }
    problems_.attempt([&] { assembly_.workload = open_ ? open_(assembly_) : open_workload(assembly_, 0); });
    problems_.throw_if_any();
    describe();
    return std::move(assembly_);
  }

 private:
  [[nodiscard]] const Settings& settings() const { return assembly_.config.settings; }
  [[nodiscard]] const std::string& text(const std::string& key) const { return settings().get<std::string>(key); }
  [[nodiscard]] std::int64_t integer(const std::string& key) const { return settings().get<std::int64_t>(key); }
  [[nodiscard]] std::int64_t tensor_parallel() const { return integer("tensor_parallel"); }
  [[nodiscard]] hwmodels::Parallelism parallelism() const {
    return {tensor_parallel(), integer("data_parallel"), integer("expert_parallel")};
  }
  /// Of a replica.
  [[nodiscard]] std::int64_t gpus_each() const { return parallelism().gpus(); }
  [[nodiscard]] hwmodels::ExpertSetting expert_setting() const {
    const std::string& kernel = text("engine.moe_kernel");
    return {expert_load_, kernel == "auto" ? std::string() : kernel,
            *hwmodels::exchange_choice_named(text("engine.expert_exchange"))};
  }
  /// "tensor_parallel=8", "tensor_parallel=2 times data_parallel=4".
  [[nodiscard]] std::string gpus_each_text() const {
    const hwmodels::Parallelism by = parallelism();
    return fmt::format("tensor_parallel={}{}", by.tensor,
                       by.data > 1 ? fmt::format(" times data_parallel={}", by.data) : std::string());
  }
  [[nodiscard]] std::int64_t kv_dtype_bytes() const { return hwmodels::kv_dtype_bytes(text("memory.kv_dtype"), llm_); }
  void warn(std::string warning) { assembly_.warnings.push_back(std::move(warning)); }
  /// A warning that says what is estimated, and how well.
  void warn_of_accuracy(const std::string& warning) {
    assembly_.setup.accuracy.push_back(warning);
    warn(warning);
  }

  void read_prices() {
    assembly_.prices = spillway::read_prices(settings(), hardware_.file().name, hardware_.gpu.file.name);
  }

  /// Attention on the CPU, for a policy that has it.
  [[nodiscard]] std::optional<hwmodels::CpuAttention> cpu_attention() const {
    if (!policy().cpu_attention) return std::nullopt;
    if (!hardware_.host) {
      throw ConfigError(
          fmt::format("policy {} attends on the CPU, and {} states no host", policy().name, hardware_.file().name),
          "hardware", "name a server, as hardware=g5.16xlarge");
    }
    const hwmodels::HostShare share = hwmodels::host_share(*hardware_.host, gpus_of_host());
    const std::int64_t cores = std::max<std::int64_t>(1, hardware_.host->cores / gpus_of_host());
    const std::int64_t threads = settings().has(kCpuThreadsKey) ? integer(kCpuThreadsKey) : cores;
    if (threads > cores) {
      throw ConfigError(fmt::format("{}={} is more than the {} core{} of {} for each GPU", kCpuThreadsKey, threads,
                                    cores, cores == 1 ? "" : "s", hardware_.host->file.name),
                        kCpuThreadsKey, "lower it, or leave it out: one thread per core");
    }
    double bandwidth = share.cpu_attention_bandwidth;
    if (const auto& one = hardware_.host->dram_bandwidth_per_thread) {
      bandwidth = std::min(bandwidth, one->value() * static_cast<double>(threads));
    }
    return hwmodels::CpuAttention{.bandwidth = bandwidth,
                                  .call_seconds = hardware_.host->cpu_attention_launch_seconds,
                                  .kernel_launch_seconds = engine_.launch_floor_seconds,
                                  .threads = threads,
                                  .query_width = llm_.heads / tensor_parallel() * llm_.head_dim,
                                  .kv_width = llm_.kv_heads_per_gpu(tensor_parallel()) * llm_.head_dim,
                                  .element_bytes = kv_dtype_bytes(),
                                  .block_tokens = Tokens(integer("memory.block_tokens"))};
  }

  bool load_hardware() {
    const bool hardware = problems_.attempt([&] { hardware_ = hwmodels::load_hardware(text("hardware")); });
    const bool llm = problems_.attempt([&] { llm_ = hwmodels::load_llm(text("model")); });
    const bool engine = problems_.attempt([&] { engine_ = hwmodels::load_engine(text("engine")); });
    if (engine && !settings().get<bool>("engine.overheads")) {
      engine_.launch_floor_seconds = engine_.host_fixed_seconds = engine_.host_per_sequence_seconds = 0.0;
      engine_.front_end_seconds = 0.0;
      engine_.schedules_ahead = false;
    }
    const bool linked = !hardware || load_topology();
    if (hardware && !choose_lenders()) return false;
    const bool enough = !hardware || enough_gpus();
    if (hardware_.server && linked && enough && !connected_replicas()) return false;
    if (llm && hardware) quantise();
    if (llm) {
      if (const auto problem = llm_.parallelism_problem(parallelism())) {
        problems_.add(problem->what, problem->where, problem->fix);
        return false;
      }
      if (!together() || !fits_policy() || !load_experts()) return false;
    }
    return hardware && linked && enough && llm && engine;
  }

  /// Data-parallel groups beside what is planned for one group.
  bool together() {
    if (integer("data_parallel") == 1) return true;
    const auto refuse = [&](const std::string& what, const std::string& fix) {
      problems_.add("data_parallel above 1 is not modelled beside " + what, "data_parallel", fix);
      return false;
    };
    if (given_gpus_ != nullptr) return refuse("instances", "use replicas, which share no layer");
    if (lenders_.lend()) return refuse("memory that other GPUs lend", "leave memory.peer out");
    if (assembly_.instance.pools.split()) return refuse("prefill and decode pools", "use replicas of one pool");
    return true;
  }

  /// What policies plan that know one kind of layer, or keys and values of every head.
  bool fits_policy() {
    const auto refuse = [&](const std::string& why, const std::string& fix) {
      problems_.add(fmt::format("policy {} cannot serve {}: {}", policy().name, llm_.file.name, why), "policy", fix);
      return false;
    };
    const std::string unequal = llm_.unequal_layers();
    const bool streams = static_cast<bool>(policy().layout) || text(kWeightsKey) != kNoWeights;
    if (policy().places_experts && !llm_.experts) {
      return refuse("it places routed experts, and the model has none",
                    "use policy.weights=select-n, which streams layers");
    }
    const bool each = policy().places_experts || policy().unequal_layers;
    const bool equal_layers = !each || policy().streams.kv;
    if (streams && !unequal.empty() && equal_layers) {
      return refuse(fmt::format("it plans with layers of equal size, and the model has {}", unequal),
                    "use a policy that keeps all layers on the GPU, such as vllm");
    }
    if (!policy().cpu_attention) return true;
    if (llm_.latent) return refuse("attention on the CPU is not modelled for latent attention", "use policy=vllm");
    if (llm_.kinds.empty()) return true;
    return refuse("it plans with layers that take equal time, and the model's differ", "use policy=vllm");
  }

  bool load_experts() {
    if (!policy().places_experts && !refuse_unused_choice()) return false;
    const std::string& load = text("expert_load");
    if (!llm_.experts) {
      if (load == "balanced") return true;
      problems_.add(fmt::format("expert_load={}, and {} has no experts", load, llm_.file.name), "expert_load",
                    "leave it out");
      return false;
    }
    if (!problems_.attempt([&] { expert_load_ = hwmodels::read_expert_load(load, llm_.experts->count); })) return false;
    return !policy().places_experts || choose_experts();
  }

  /// experts.* describe a draw, which only policies that place experts make.
  bool refuse_unused_choice() {
    bool unused = true;
    for (const char* const key :
         {"experts.skew", kLocalityKey, "experts.lookahead", "experts.patterns", kHitCurveKey}) {
      const ResolvedKey& given = assembly_.config.key(key);
      if (given.text == given.parameter.default_value) continue;  // a result's configuration states defaults, too
      problems_.add(fmt::format("{} has no effect: policy {} does not draw which experts are used", key, policy().name),
                    key, "leave it out, or choose a policy that places experts, as policy.weights=llama-cpp-moe");
      unused = false;
    }
    return unused;
  }

  /// "expert-cache or ...".
  static std::string policies_with_slots() {
    std::vector<std::string> names;
    for (const PolicyInfo* const info : PolicyRegistry::instance().all()) {
      if (info->caches_experts) names.push_back(info->name);
    }
    return fmt::format("{}", fmt::join(names, " or "));
  }

  /// How the routers choose, for a policy that places experts.
  bool choose_experts() {
    const hwmodels::Experts& experts = *llm_.experts;
    if (const hwmodels::Parallelism by = parallelism(); by.expert > 1 || by.data > 1) {
      problems_.add(fmt::format("policy {} shares every expert among the GPUs of tensor_parallel", policy().name),
                    by.expert > 1 ? "expert_parallel" : "data_parallel", "set it to 1");
      return false;
    }
    ExpertChoice choice{.count = static_cast<std::int32_t>(experts.count),
                        .top_k = static_cast<std::int32_t>(experts.top_k),
                        .layers = static_cast<std::int32_t>(llm_.routed_layers()),
                        .lookahead = settings().get<double>("experts.lookahead")};
    choice.patterns = static_cast<std::int32_t>(settings().has("experts.patterns") ? integer("experts.patterns")
                                                                                   : policy().expert_patterns);
    const double standard = (experts.count <= kFewExperts ? kSkewOfFew : kSkewOfMany).value;
    choice.skew = settings().has("experts.skew") ? settings().get<double>("experts.skew") : standard;
    assembly_.setup.expert_locality = assumed_locality(settings(), experts.count, experts.top_k);
    choice.locality = assembly_.setup.expert_locality->value;
    if (settings().has(kHitCurveKey)) {
      if (!policy().caches_experts) {
        problems_.add(fmt::format("policy {} has no slots that a hit curve could describe", policy().name),
                      kHitCurveKey, "leave it out, or use " + policies_with_slots());
        return false;
      }
      const bool read =
          problems_.attempt([&] { choice.hit_curve = parse_hit_curve(text(kHitCurveKey), experts.count); });
      if (!read) return false;
    }
    if (expert_load_.kind() != hwmodels::ExpertLoad::Kind::shares) {
      problems_.add(
          fmt::format(
              "policy {} draws which experts are used, but expert_load={} states how many tokens each expert gets",
              policy().name, text("expert_load")),
          "expert_load", "give experts.skew instead, or a file of shares");
      return false;
    }
    // balanced is the default; experts.skew states what popularity is then.
    if (text("expert_load") != "balanced") {
      choice.shares = expert_load_.expert_shares();
      if (settings().has("experts.patterns") && choice.patterns > 1) {
        problems_.add("a file of shares says how popular each expert is, whatever the request", "experts.patterns",
                      "leave it out, or leave out expert_load");
        return false;
      }
      choice.patterns = 1;
    }
    expert_load_ = hwmodels::ExpertLoad::elsewhere();
    assembly_.instance.experts = std::move(choice);
    return true;
  }

  /// What the policy knows of the experts, of one GPU.
  [[nodiscard]] ExpertDeployment expert_deployment() const {
    const hwmodels::GpuProfile& gpu = hardware_.gpu;
    ExpertDeployment experts;
    experts.count = static_cast<std::int32_t>(llm_.experts->count);
    experts.top_k = static_cast<std::int32_t>(llm_.experts->top_k);
    for (std::int64_t layer = 0; layer < llm_.layers; ++layer) {
      const bool routed = llm_.kinds.empty() || llm_.kinds[llm_.kind_of_layer[static_cast<std::size_t>(layer)]].routed;
      if (routed) experts.layers.push_back(static_cast<std::int32_t>(layer));
    }
    for (const hwmodels::Matrix& matrix : llm_.mlp_projections(llm_.expert_width_per_gpu(parallelism()))) {
      experts.bytes += llm_.linear_bytes(matrix, hwmodels::LinearPart::expert);
      experts.parameters += static_cast<double>(matrix.inputs) * static_cast<double>(matrix.outputs);
    }
    experts.matrices = llm_.gated_mlp ? 3 : 2;
    experts.hidden_bytes = llm_.hidden * llm_.dtype_bytes;
    experts.gpu_bandwidth = gpu.gemm_memory_efficiency * gpu.memory_bandwidth.value();
    experts.gpu_flops = gpu.gemm_compute_efficiency * gpu.peak_flops;
    experts.gpus = tensor_parallel();
    if (hardware_.host) {
      const hwmodels::HostProfile& host = *hardware_.host;
      if (host.dram_peak) experts.dram_peak = host.dram_peak->value() / static_cast<double>(host.sockets);
      std::vector<RateByRows::Point> rates;
      for (const auto& [rows, flops] : host.gemm_flops) rates.push_back({static_cast<double>(rows), flops});
      experts.cpu_flops = RateByRows(std::move(rates));
    }
    return experts;
  }

  /// The tensors of each layer, of one GPU.
  [[nodiscard]] std::vector<std::vector<LayerTensor>> layer_tensors() const {
    const auto tensors_of = [this](const hwmodels::LayerKind& kind) {
      std::vector<LayerTensor> tensors;
      for (const hwmodels::Matrix& matrix : llm_.attention_projections(tensor_parallel())) {
        tensors.push_back({llm_.linear_bytes(matrix, hwmodels::LinearPart::attention)});
      }
      const auto add_mlp = [&](std::int64_t width, hwmodels::LinearPart part, std::int64_t times) {
        for (const hwmodels::Matrix& matrix : llm_.mlp_projections(width)) {
          tensors.push_back({llm_.linear_bytes(matrix, part) * times, part == hwmodels::LinearPart::expert});
        }
      };
      if (!kind.routed) {
        add_mlp(llm_.ffn / tensor_parallel(), hwmodels::LinearPart::mlp, 1);
        return tensors;
      }
      const hwmodels::Matrix router = llm_.router_matrix();
      tensors.push_back({Bytes(router.inputs * router.outputs * llm_.dtype_bytes)});
      add_mlp(llm_.expert_width_per_gpu(parallelism()), hwmodels::LinearPart::expert,
              llm_.experts_per_gpu(parallelism()));
      if (llm_.experts->shared_width > 0) {
        add_mlp(llm_.experts->shared_width / tensor_parallel(), hwmodels::LinearPart::mlp, 1);
        if (llm_.experts->shared_gate) tensors.push_back({Bytes(llm_.hidden * llm_.dtype_bytes)});
      }
      return tensors;
    };
    std::vector<std::vector<LayerTensor>> tensors;
    for (std::int64_t layer = 0; layer < llm_.layers; ++layer) {
      const hwmodels::LayerKind kind = llm_.kinds.empty()
                                           ? hwmodels::LayerKind{.routed = llm_.experts.has_value()}
                                           : llm_.kinds[llm_.kind_of_layer[static_cast<std::size_t>(layer)]];
      tensors.push_back(tensors_of(kind));
    }
    return tensors;
  }

  bool choose_lenders() {
    const bool named = given_gpus_ != nullptr && given_gpus_->lender;
    if (settings().has("memory.lender") && !named) {
      problems_.add("memory.lender names an element of instances, and this run has none", "memory.lender",
                    "give memory.peer: the memory of a GPU that does nothing else");
      return false;
    }
    if (!named && given_gpus_ != nullptr && settings().get<Bytes>("memory.peer") > Bytes(0)) {
      problems_.add("memory.peer is lent by GPUs that do nothing else, and no element of instances has such GPUs",
                    "memory.peer", "add an element with free_memory, and name it with memory.lender");
      return false;
    }
    lenders_ = Lenders(assembly_.config, named ? &*given_gpus_->lender : nullptr);
    const std::optional<Problem> problem = lenders_.problem(assembly_.config, hardware_);
    if (problem) problems_.add(problem->what, problem->where, problem->fix);
    return !problem;
  }

  void quantise() {
    const auto problem = hwmodels::apply_quantization(text("engine.quantization"), hardware_.gpu, llm_);
    if (problem) return problems_.add(problem->what, problem->where, problem->fix);
    for (const std::string& warning : hwmodels::quantization_warnings(hardware_.gpu, llm_, kv_dtype_bytes())) {
      warn_of_accuracy(warning);
    }
  }

  /// What the copies of each replica on a server cross on their way to the host, and to GPUs that lend memory.
  void cross_server() {
    if (!hardware_.server) return;
    InstancePlan& plan = assembly_.instance;
    const hwmodels::ServerLinks links(hardware_.server->topology);
    plan.links = links.capacities();
    plan.link_names = links.names();
    plan.routes.resize(static_cast<std::size_t>(plan.per_server));
    for (std::int64_t position = 0; position < plan.per_server; ++position) {
      CopyRoute& route = plan.routes[static_cast<std::size_t>(position)];
      route.h2d = links.crossings(gpus_at(position), &hwmodels::GpuPaths::host, hwmodels::LinkDirection::in);
      route.d2h = links.crossings(gpus_at(position), &hwmodels::GpuPaths::host, hwmodels::LinkDirection::out);
      if (lenders_.lend()) Lenders::cross(links, gpus_at(position), lenders_of(position), route);
    }
    // Kinds of instances number the links of their server alike.
    if (given_gpus_ != nullptr ? given_gpus_->shares_dram : policy().places_experts) cross_dram();
  }
  /// Experts that the CPU reads, and copies from and to the host, share the memory of a socket. The replicas of a
  /// server are spread over its sockets; given GPUs are at the socket of their part of the server.
  void cross_dram() {
    if (!hardware_.host) return;
    InstancePlan& plan = assembly_.instance;
    const std::int64_t all = hardware_.host->sockets;
    const std::int64_t sockets = given_gpus_ != nullptr ? all : std::min<std::int64_t>(all, plan.per_server);
    const std::size_t first = plan.links.size();
    for (std::int64_t socket = 0; socket < sockets; ++socket) {
      plan.links.emplace_back(hardware_.host->dram_bandwidth.value() / static_cast<double>(all));
      plan.link_names.push_back(fmt::format("socket-{}-dram", socket));
    }
    for (std::int64_t position = 0; position < plan.per_server; ++position) {
      CopyRoute& route = plan.routes[static_cast<std::size_t>(position)];
      const std::int64_t socket = given_gpus_ != nullptr ? gpus_at(position).first * sockets / hardware_.server->gpus
                                                         : position * sockets / plan.per_server;
      const std::size_t link = first + static_cast<std::size_t>(socket);
      route.h2d.push_back({link, gpus_each()});
      route.d2h.push_back({link, gpus_each()});
      if (policy().places_experts) route.cpu.push_back({link, 1});
    }
  }
  /// The GPUs of the replica at a position on a server.
  [[nodiscard]] hwmodels::GpuRange gpus_at(std::int64_t position) const {
    const std::int64_t first = position * gpus_each();
    if (given_gpus_ == nullptr) return {first, gpus_each()};
    return {given_gpus_->gpus[static_cast<std::size_t>(first)], gpus_each()};
  }
  /// The GPUs that lend memory to it.
  [[nodiscard]] hwmodels::GpuRange lenders_of(std::int64_t position) const {
    return lenders_.of(position, assembly_.instance.per_server, gpus_each());
  }

  /// Replaces the topology of the server by the user's.
  bool load_topology() {
    if (!settings().has("topology")) return true;
    if (!hardware_.server) {
      problems_.add(fmt::format("topology={}, and {} is no server: it has no links to replace", text("topology"),
                                hardware_.file().name),
                    "topology", "leave topology out, or name a server (spillway list hardware)");
      return false;
    }
    return problems_.attempt([&] {
      hwmodels::TopologyFile own = hwmodels::load_topology(text("topology"), hardware_.server->gpus);
      hardware_.server->topology = std::move(own.topology);
      topology_ = std::move(own.file);
    });
  }

  /// The GPUs of a replica exchange data in every layer.
  bool connected_replicas() {
    for (std::int64_t position = 0; position < assembly_.instance.per_server; ++position) {
      if (lenders_.lend() && !reaches_lender(position)) return false;
      const auto islands = hwmodels::islands(hardware_.server->topology, gpus_at(position));
      if (islands.size() < 2) continue;
      std::vector<std::string> names;
      names.reserve(islands.size());
      for (const auto& island : islands) {
        names.push_back(fmt::format("GPU{} {}", island.size() == 1 ? "" : "s", fmt::join(island, ", ")));
      }
      std::size_t least = islands.front().size();
      for (const auto& island : islands) least = std::min(least, island.size());
      problems_.add_infeasible(
          fmt::format("{} needs GPUs that are connected, and no peer link of {} joins {}", gpus_each_text(),
                      topology_ ? topology_->name : hardware_.file().name, fmt::join(names, " and ")),
          "tensor_parallel",
          fmt::format("use tensor_parallel={}, or a topology in which these GPUs list a common link as \"peer\"",
                      least));
      return false;
    }
    return true;
  }

  bool reaches_lender(std::int64_t position) {
    const auto gpu = Lenders::cut_off(hardware_.server->topology, gpus_at(position), lenders_of(position));
    if (!gpu) return true;
    const std::int64_t lender = lenders_of(position).first + *gpu - gpus_at(position).first;
    problems_.add_infeasible(fmt::format("no peer link of {} joins GPU {} and GPU {}, which would lend it memory",
                                         topology_ ? topology_->name : hardware_.file().name, *gpu, lender),
                             lenders_.given() ? "memory.lender" : "memory.peer",
                             "let nobody lend, or give a topology in which they list a common link as \"peer\"");
    return false;
  }

  /// Spreads the replicas over servers, in order. A GPU alone stands for one on a host of its own.
  bool place_replicas() {
    InstancePlan& plan = assembly_.instance;
    std::vector<Problem> problems;
    plan.pools = read_pools(assembly_.config, problems);
    plan.replicas = plan.per_server = plan.pools.split() ? plan.pools.total() : integer("replicas");
    if (settings().has("events") && !text("events").empty()) {
      plan.events = read_events(text("events"), plan.replicas, problems);
    }
    if (!problems_.add_all(problems)) return false;
    if (given_gpus_ != nullptr) return takes_given_gpus();
    const bool given = settings().has("servers");
    if (!hardware_.server) {
      plan.per_server = 1;
      if (!given) return true;
      problems_.add(fmt::format("servers={}, and {} is no server: each replica has a host and links of its own",
                                integer("servers"), hardware_.file().name),
                    "servers", "leave servers out, or name a server (spillway list hardware)");
      return false;
    }
    const std::int64_t each = lenders_.gpus_taken(gpus_each());
    const std::int64_t fit = hardware_.server->gpus / each;
    const std::int64_t needed = (plan.replicas + fit - 1) / fit;
    const std::int64_t stated = hardware_.server->servers;  // above 1: the hardware is these servers, and no more
    plan.per_server = std::min(plan.replicas, fit);
    plan.servers = given ? integer("servers") : stated > 1 ? stated : needed;
    if (stated > 1 && plan.servers > stated) {
      problems_.add(fmt::format("{} has {} servers, not {}", hardware_.file().name, stated, plan.servers), "servers",
                    fmt::format("use at most {}{}", stated, or_single_servers()));
      return false;
    }
    if (plan.servers >= needed) return true;
    const std::string more = stated == 1 || needed <= stated ? fmt::format("give servers={}, or ", needed) : "give ";
    problems_.add(
        fmt::format("{} on {} GPU{} each{} need {} servers of {} GPUs", counted_replicas(), each, each == 1 ? "" : "s",
                    lenders_.lend() ? ", those that lend memory included," : "", needed, hardware_.server->gpus),
        given                ? "servers"
        : plan.pools.split() ? "prefill_replicas"
                             : "replicas",
        fmt::format("{}at most {} {}{}", more, plan.servers * fit,
                    plan.pools.split()        ? "replicas in both pools together"
                    : plan.servers * fit == 1 ? "replica"
                                              : "replicas",
                    needed > stated ? or_single_servers() : ""));
    return false;
  }
  /// The GPUs that the user gives it can be those of its replicas.
  bool takes_given_gpus() {
    const std::vector<std::int64_t>& gpus = given_gpus_->gpus;
    SPILLWAY_CHECK(std::ssize(gpus) == assembly_.instance.replicas * gpus_each(), "replicas without GPUs");
    const std::int64_t on_server = hardware_.server->gpus;
    if (gpus.back() >= on_server) {
      problems_.add(fmt::format("{} has no GPU {}", hardware_.file().name, gpus.back()), given_gpus_->where,
                    fmt::format("its GPUs are 0 to {}", on_server - 1));
      return false;
    }
    const auto each = static_cast<std::size_t>(gpus_each());
    for (std::size_t first = 0; first < gpus.size(); first += each) {
      if (gpus[first + each - 1] - gpus[first] + 1 == gpus_each()) continue;
      const std::vector<std::int64_t> group(gpus.begin() + static_cast<std::ptrdiff_t>(first),
                                            gpus.begin() + static_cast<std::ptrdiff_t>(first + each));
      problems_.add(fmt::format("tensor_parallel={} needs consecutive GPUs, not {}", each, gpus_text(group)),
                    given_gpus_->where, "give gpus that follow each other");
      return false;
    }
    return true;
  }
  /// For hardware that is several of a server.
  [[nodiscard]] std::string or_single_servers() const {
    if (hardware_.server->servers == 1 || !hardware_.server->of) return "";
    return fmt::format(", or hardware={}, of which a run takes as many as it needs", hardware_.server->of->name);
  }
  [[nodiscard]] std::string counted_replicas() const {
    const std::int64_t replicas = assembly_.instance.replicas;
    return fmt::format("{} replica{}", replicas, replicas == 1 ? "" : "s");
  }
  [[nodiscard]] std::int64_t gpus_of_replicas() const { return gpus_each() * assembly_.instance.per_server; }
  /// GPUs that share a host.
  [[nodiscard]] std::int64_t gpus_of_host() const {
    return given_gpus_ != nullptr ? given_gpus_->gpus_of_host : gpus_of_replicas();
  }

  /// How KV gets from each prefill to each decode replica.
  void plan_handover() {
    InstancePlan& plan = assembly_.instance;
    plan.first_token = first_token_at_prefill(settings(), engine_.file.name) ? "prefill" : "decode";
    problems_.attempt([&] {
      plan.handover_links = std::make_shared<const HandoverLinks>(
          hardware_, assembly_.config, plan.pools, plan.per_server,
          given_gpus_ != nullptr ? given_gpus_->gpus : std::vector<std::int64_t>());
      assembly_.setup.handover = plan.handover_links->text();
    });
    const bool assumed = assembly_.config.key("handover.network_bandwidth").origin == Origin::standard;
    if (plan.handover_links && plan.handover_links->crosses_unstated_network() && assumed) {
      warn(fmt::format(
          "{} states no network between replicas: the run assumes one with handover.network_bandwidth={} GB/s for "
          "each GPU",
          hardware_.file().name, settings().get<double>("handover.network_bandwidth")));
    }
  }

  bool enough_gpus() {
    if (!hardware_.server || gpus_each() <= hardware_.server->gpus) return place_replicas();
    const std::int64_t gpus = hardware_.server->gpus;
    problems_.add(fmt::format("{} is more than the {} GPU{} of {}", gpus_each_text(), gpus, gpus == 1 ? "" : "s",
                              hardware_.file().name),
                  "tensor_parallel",
                  fmt::format("use at most {}, or hardware={}: a run uses tensor_parallel of these GPUs", gpus,
                              hardware_.gpu.file.name));
    return false;
  }

  /// What the replicas of a server stream from its host, at most: of the server with the most.
  [[nodiscard]] Bytes streamed_on_server() const {
    const InstancePlan& plan = assembly_.instance;
    Bytes most = streamed_on_host_ * gpus_of_replicas();
    if (plan.by_pool.empty()) return most;
    most = Bytes(0);
    for (std::int64_t first = 0; first < plan.replicas; first += plan.per_server) {
      Bytes sum;
      for (std::int64_t replica = first; replica < std::min(plan.replicas, first + plan.per_server); ++replica) {
        sum += plan.pool_of(replica)->layout.host * gpus_each();
      }
      most = std::max(most, sum);
    }
    return most;
  }
  /// Checks that what is kept on the host for all GPUs fits its whole memory: KV, and streamed layers unless
  /// policy.host_memory says what they may take. The model ignores all other uses of host memory.
  void check_host_memory() {
    if (!hardware_.host) return;
    const KvLayout& kv = assembly_.instance.kv;
    const Bytes dram = hardware_.host->dram;
    const std::string gpus = fmt::format("{} GPU{}", gpus_of_replicas(), gpus_of_replicas() == 1 ? "" : "s");
    Bytes& wanted = assembly_.instance.on_host;
    if (streamed_on_host_ == Bytes(0)) {
      if (policy().keeps_conversations) {
        wanted = kv.block_bytes * kv.host_blocks.count() * gpus_of_replicas();
        return;
      }
      const Bytes given = settings().get<Bytes>("memory.host_kv") + settings().get<Bytes>("memory.host_cache");
      wanted = given * gpus_of_replicas();
      if (wanted <= dram) return;
      return warn(fmt::format("memory.host_kv and memory.host_cache total {} for {}, more than the {} of DRAM of {}",
                              gigabytes(wanted), gpus, gigabytes(dram), hardware_.host->file.name));
    }
    const Blocks cache = kv.cache_is_lent || kv.cache_moves ? Blocks(0) : kv.host_cache_blocks;
    const Bytes beside = kv.block_bytes * (kv.host_blocks + cache).count();
    wanted = streamed_on_server() + beside * gpus_of_replicas();
    if (beside == Bytes(0) || wanted <= dram) return;
    warn(fmt::format(
        "streamed layers take {}{} of host memory per GPU, and KV takes {}: {} in all for {}, more than the {} of "
        "DRAM of {}",
        assembly_.instance.by_pool.empty() ? "" : "up to ", gigabytes(streamed_on_host_), gigabytes(beside),
        gigabytes(wanted), gpus, gigabytes(dram), hardware_.host->file.name));
  }

  void warn_of_experts() {
    if (llm_.latent) {
      warn_of_accuracy(
          fmt::format("the latent attention of {} is a roofline: no kernel of it is measured", llm_.file.name));
    }
    if (const auto& choice = assembly_.instance.experts) {
      warn_of_accuracy(fmt::format(
          "which experts are used is drawn: {}{:g}% of a sequence's experts are kept from token to token "
          "beyond chance (experts.locality)",
          choice->shares.empty() ? fmt::format("popularity falls as rank^-{:g} (experts.skew), ", choice->skew)
                                 : std::string(),
          100.0 * choice->locality));
      return;
    }
    if (!llm_.experts || text("expert_load") != "balanced") return;
    warn_of_accuracy(
        "every token chooses its experts at random, all alike (expert_load=balanced). Routers of real models prefer "
        "some "
        "experts: expert_load=power_law:1.2 shows what that changes");
  }

  void warn_of_unused_gpus() {
    if (!hardware_.server || given_gpus_ != nullptr) return;
    const InstancePlan& plan = assembly_.instance;
    const std::int64_t gpus = hardware_.server->gpus * plan.servers;
    const std::int64_t unused = gpus - lenders_.gpus_taken(gpus_each()) * plan.replicas;
    if (unused <= 0) return;
    const std::string of = plan.servers == 1 || plan.servers == hardware_.server->servers
                               ? hardware_.file().name
                               : fmt::format("{} servers {}", plan.servers, hardware_.file().name);
    const std::string why = plan.replicas == 1 ? "because " + gpus_each_text()
                                               : fmt::format("because {} use {} each", counted_replicas(), gpus_each());
    warn(fmt::format("{} of the {} GPUs of {} {} not used, {}", unused, gpus, of, unused == 1 ? "is" : "are", why));
  }

  /// Fills the KV layout. Returns false when the KV cache cannot be sized.
  bool size_memory(bool model) {
    const hwmodels::KvSettings wanted{
        parallelism(),
        settings().get<double>("engine.gpu_memory_utilization"),
        Tokens(integer("engine.max_num_batched_tokens")),
        integer("engine.max_num_seqs"),
        Tokens(integer("memory.block_tokens")),
        kv_dtype_bytes(),
        hardware_.server ? hardware_.server->gpus : hwmodels::KvSettings{}.most_tensor_parallel};
    KvLayout& kv = assembly_.instance.kv;
    const bool given = settings().has("memory.gpu_kv");
    const bool streams = static_cast<bool>(policy().layout);
    const bool sized = problems_.attempt([&] {
      capacity_ = given || streams ? hwmodels::kv_capacity(hardware_.gpu, llm_, engine_, wanted)
                                   : hwmodels::fitting_kv_capacity(hardware_.gpu, llm_, engine_, wanted);
    });
    if (!sized) return false;
    kv.block_tokens = wanted.block_tokens;
    kv.block_bytes = capacity_.block_bytes;
    if (!settings().has("memory.host_kv")) assembly_.config.settings.set("memory.host_kv", half_of_host());
    if (!blocks_to_bytes()) return false;
    size_host_tiers(kv);
    choose_connector();
    size_disk();
    // vLLM copies K and V of each layer separately. Latent attention has one tensor in place of both.
    kv.copies_per_block = llm_.layers * (llm_.latent ? 1 : 2);
    size_lent_memory();
    assembly_.setup.kv_computed = !given;
    assembly_.setup.weights = capacity_.weights;
    assembly_.setup.kv_terms = hwmodels::kv_terms(capacity_);
    if (streams) return model && lay_out(given);
    if (given) return take_given_memory();
    kv.gpu_blocks = capacity_.blocks;
    warn_of_accuracy(hwmodels::kv_estimate_warning(capacity_, engine_));
    return true;
  }

  /// The tier that other GPUs lend.
  void size_lent_memory() {
    if (!lenders_.warning().empty()) warn(lenders_.warning());
    if (!lenders_.lend()) return;
    KvLayout& kv = assembly_.instance.kv;
    if (lenders_.each() < kv.block_bytes) {
      if (lenders_.given()) {
        return problems_.add(fmt::format("{} lends {} bytes of each GPU, less than one KV block of {} bytes",
                                         given_gpus_->lender->name, lenders_.each().count(), kv.block_bytes.count()),
                             "memory.lender", "leave it out, or let its lender have more to spare");
      }
      return problems_.add(fmt::format("memory.peer={} is less than one KV block of {} bytes",
                                       given_text("memory.peer"), kv.block_bytes.count()),
                           "memory.peer", "raise it, or leave it out");
    }
    lenders_.add_tier(kv.copies_per_block, kv);
    assembly_.loan = LoanPlan{.lender = lenders_.given() ? given_gpus_->lender->name : "",
                              .offered = lenders_.each(),
                              .memory_bandwidth = hardware_.gpu.memory_bandwidth};
  }

  /// A host cache that the user gives must be smaller than the host, as far as the host is known.
  void refuse_large_host_cache() {
    const Origin origin = assembly_.config.key("memory.host_cache").origin;
    if (!hardware_.host || origin == Origin::standard || origin == Origin::policy) return;
    const Bytes given = settings().get<Bytes>("memory.host_cache");
    const Bytes dram = hardware_.host->dram;
    const std::int64_t gpus = gpus_of_replicas();
    if (given * gpus <= dram) return;
    problems_.add(fmt::format("memory.host_cache={}{} is more than the {} of DRAM of {}", format_bytes(given),
                              gpus == 1 ? "" : fmt::format(" for each of {} GPUs", gpus), gigabytes(dram),
                              hardware_.host->file.name),
                  "memory.host_cache",
                  fmt::format("give at most {}GB, or hardware={}, a GPU on a host of any size",
                              dram.count() / gpus / 1'000'000'000, hardware_.gpu.file.name));
  }

  /// The tier below the prefix cache is to be in lent memory, and can be.
  bool wants_lent_cache() {
    const Bytes wanted = settings().get<Bytes>(kPeerCache);
    if (wanted == Bytes(0)) return false;
    const auto refuse = [&](const std::string& what, const std::string& fix) {
      problems_.add(what, kPeerCache, fix);
      return false;
    };
    if (settings().get<Bytes>("memory.host_cache") > Bytes(0)) {
      return refuse(
          "memory.peer_cache and memory.host_cache exclude each other: the prefix cache has one tier below it",
          "leave out one of them");
    }
    if (!lenders_.lend()) {
      return refuse("memory.peer_cache is a part of memory.peer, and the run borrows no memory",
                    "set memory.peer and policy=aqua, or use memory.host_cache");
    }
    if (lenders_.given()) {
      if (wanted > lenders_.each()) {
        return refuse(fmt::format("memory.peer_cache={} is more than the {} that {} lends of each GPU",
                                  given_text(kPeerCache), gigabytes(lenders_.each()), given_gpus_->lender->name),
                      "lower it, or name another lender");
      }
      if (wanted > settings().get<Bytes>("memory.host_kv")) {
        return refuse(fmt::format("memory.peer_cache={} is more than memory.host_kv={}, where contexts go when the "
                                  "lender wants its memory back",
                                  given_text(kPeerCache), given_text("memory.host_kv")),
                      "lower it, or raise memory.host_kv");
      }
    } else if (wanted > lenders_.each()) {
      return refuse(fmt::format("memory.peer_cache={} is more than memory.peer={}", given_text(kPeerCache),
                                given_text("memory.peer")),
                    "lower it, or raise memory.peer");
    }
    return true;
  }

  /// Half of one GPU's share of the host's DRAM; of a host of any size, none.
  [[nodiscard]] Bytes half_of_host() const {
    if (!hardware_.host) return Bytes(0);
    return Bytes(hwmodels::host_share(*hardware_.host, gpus_of_host()).dram.count() / 2);
  }

  /// Memory of the host for swapped KV, and for the prefix cache or the KV of conversations.
  void size_host_tiers(KvLayout& kv) {
    refuse_large_host_cache();
    if (!policy().keeps_conversations) {
      kv.host_blocks = Blocks(settings().get<Bytes>("memory.host_kv") / kv.block_bytes);
      const bool lent = wants_lent_cache();
      kv.cache_moves = lent && lenders_.given();
      kv.cache_is_lent = lent && !kv.cache_moves;
      kv.host_cache_blocks = cache_blocks(lent ? kPeerCache : "memory.host_cache");
      if (policy().prefix_copies) {
        kv.host_cache_mechanism = policy().prefix_copies(settings());
        kv.host_cache_copies_per_block = llm_.layers * 2;
      }
      return;
    }
    Bytes cache = settings().get<Bytes>("memory.host_cache");
    if (hardware_.host && cache * gpus_of_host() > hardware_.host->dram) {
      cache = Bytes(hardware_.host->dram.count() / gpus_of_host());
      warn(fmt::format(
          "memory.host_cache is lowered to {} per GPU, all DRAM of {}: the default of policy {}, {}, is more",
          gigabytes(cache), hardware_.host->file.name, policy().name,
          format_bytes(settings().get<Bytes>("memory.host_cache"))));
    }
    kv.host_blocks = Blocks(cache / kv.block_bytes);
    if (assembly_.config.key("memory.host_kv").origin != Origin::standard) {
      warn(fmt::format("memory.host_kv has no effect: policy {} keeps all KV of the host in memory.host_cache",
                       policy().name));
    }
  }

  /// Converts sizes given in KV blocks to bytes in the settings. The configuration keeps the block counts.
  bool blocks_to_bytes() {
    constexpr std::int64_t kMostBytes = 1'000'000'000'000'000;  // as in config_keys.cpp
    bool fit = true;
    for (const char* key : {"memory.gpu_kv", "memory.host_kv"}) {
      const Blocks* blocks = std::get_if<Blocks>(&assembly_.config.key(key).value);
      if (blocks == nullptr) continue;
      if (blocks->count() > kMostBytes / capacity_.block_bytes.count()) {
        problems_.add(fmt::format("{}={} of {} bytes each are more than {}", key, given_text(key),
                                  capacity_.block_bytes.count(), format_bytes(Bytes(kMostBytes))),
                      key, "lower it");
        fit = false;
      } else {
        assembly_.config.settings.set(key, capacity_.block_bytes * blocks->count());
      }
    }
    return fit;
  }

  /// The value of a key as the user wrote it: "5GB", "2588 blocks".
  [[nodiscard]] const std::string& given_text(const std::string& key) const { return assembly_.config.key(key).text; }

  [[nodiscard]] const PolicyInfo& policy() const { return *assembly_.config.policy; }

  /// A policy that streams layers decides itself how to divide the memory.
  bool lay_out(bool given) {
    if (capacity_.memory == Bytes(0) &&
        !problems_.attempt([&] { hardware_.gpu.need({"memory"}, "a policy that streams layers"); })) {
      return false;
    }
    Deployment& deployment = assembly_.instance.deployment;
    deployment.layers = static_cast<std::int32_t>(llm_.layers);
    deployment.memory = capacity_.available + capacity_.weights;
    deployment.weights = capacity_.weights;
    deployment.layer_weights = llm_.layer_weights_per_gpu(llm_.counted_kinds().front().kind, parallelism());
    for (const hwmodels::Matrix& matrix : llm_.attention_matrices(tensor_parallel())) {
      deployment.attention_matrices.push_back(llm_.linear_bytes(matrix, hwmodels::LinearPart::attention));
    }
    const auto mlp = llm_.experts ? hwmodels::LinearPart::expert : hwmodels::LinearPart::mlp;
    for (const hwmodels::Matrix& matrix : llm_.mlp_matrices(parallelism())) {
      deployment.mlp_matrices.push_back(llm_.linear_bytes(matrix, mlp));
    }
    if (policy().unequal_layers) deployment.tensors = layer_tensors();
    if (policy().unequal_layers && llm_.experts) {
      const std::int64_t ranks = parallelism().expert;
      const std::int64_t on_rank = llm_.experts->count / ranks;
      const auto each = static_cast<double>(on_rank);
      deployment.active_experts =
          [rank = hwmodels::MostLoadedRank(expert_load_, llm_.experts->top_k, llm_.experts->count, ranks), each,
           groups = parallelism().data](std::int64_t tokens) {
            return std::min(1.0, rank.at(tokens * groups).active / each);
          };
    }
    deployment.block_bytes = capacity_.block_bytes;
    deployment.block_tokens = Tokens(integer("memory.block_tokens"));
    deployment.gpu_kv = given ? settings().get<Bytes>("memory.gpu_kv") : capacity_.available;
    deployment.gpu_kv_given = given;
    deployment.hidden = llm_.hidden;
    deployment.ffn = llm_.ffn;
    deployment.query_width = llm_.heads / tensor_parallel() * llm_.head_dim;
    deployment.kv_width = llm_.kv_heads_per_gpu(tensor_parallel()) * llm_.head_dim;
    deployment.heads = llm_.heads / tensor_parallel();
    deployment.peak_flops = hardware_.gpu.peak_flops;
    deployment.memory_bandwidth = hardware_.gpu.memory_bandwidth.value();
    deployment.layer_copies = hardware_.gpu.layer_copies;
    deployment.gpus = hardware_.server ? hardware_.server->gpus : 1;
    deployment.positions = Tokens(llm_.max_positions);
    if (policy().places_experts) deployment.experts = expert_deployment();
    deployment.lent = lenders_.each();
    deployment.lent_for_good = !lenders_.given();
    if (hardware_.host) {
      const hwmodels::HostShare share = hwmodels::host_share(*hardware_.host, gpus_of_host());
      deployment.host_memory = share.dram;
      deployment.cpu_attention_bandwidth = share.cpu_attention_bandwidth;
      deployment.cpu_attention_launch = hardware_.host->cpu_attention_launch_seconds;
    }
    KvLayout& kv = assembly_.instance.kv;
    const std::unique_ptr<ExecutionModel> model = assembly_.make_model({});
    const PlannedCopies planning(*model, assembly_.instance.routes.front(), assembly_.instance.links);
    Deployment plan = deployment;
    plan.model = model.get();
    plan.planning = &planning;
    std::vector<PoolPlan>& pools = assembly_.instance.by_pool;
    if (assembly_.instance.pools.split()) pools = plan_pools(settings());
    Layout layout;
    const bool fits = problems_.attempt([&] {
      for (PoolPlan& pool : pools) pool.layout = policy().layout(plan, pool.settings);
      layout = pools.empty() ? policy().layout(plan, settings()) : layout_of_both(pools.front(), pools.back());
    });
    if (!fits) return false;
    const auto other = [&layout](const PoolPlan& pool) {
      return pool.layout.blocks != layout.blocks || pool.layout.most != layout.most;
    };
    assembly_.setup.pools_differ = std::ranges::any_of(pools, other);
    kv.gpu_blocks = layout.blocks;
    kv.most_gpu_blocks = layout.most;
    assembly_.instance.least_rate = layout.least_rate;
    if (given_gpus_ == nullptr && !share_bus()) return false;
    // memory.host_kv is for the layers first. Requests use the rest if they swap at all.
    const Bytes left = settings().get<Bytes>("memory.host_kv") - layout.host_kv;
    const bool swaps = text("engine.preemption") == "swap" || policy().suspends;
    if (!policy().keeps_conversations) {
      kv.host_blocks = swaps ? Blocks(std::max(left, Bytes(0)) / kv.block_bytes) : Blocks(0);
    }
    assembly_.setup.host_layer_bytes = layout.host;
    const bool given_memory = settings().has("policy.host_memory") || settings().has("policy.weights.host_memory");
    if (!given_memory) streamed_on_host_ = layout.host;
    assembly_.setup.layer_terms = layout.terms;
    if (policy().engine_flags) assembly_.setup.engine_flags = policy().engine_flags(settings(), layout.chosen);
    if (policy().layer_copies) assembly_.setup.layer_copies = hwmodels::layer_copies_text(hardware_.gpu);
    deployment.chosen = layout.chosen;
    if (!given && capacity_.blocks > Blocks(0)) warn_of_accuracy(hwmodels::kv_estimate_warning(capacity_, engine_));
    return true;
  }

  /// The replicas of one server can keep what they promise.
  bool share_bus() {
    const InstancePlan& plan = assembly_.instance;
    // Where all replicas are alike, so are the servers.
    const std::int64_t servers = plan.by_pool.empty() ? 1 : (plan.replicas - 1) / plan.per_server + 1;
    for (std::int64_t server = 0; server < servers; ++server) {
      const auto problem = broken_promises(plan.on_bus(server), plan.links, plan.link_names,
                                           plan.pools.split() ? "prefill_replicas" : "replicas");
      if (problem) problems_.add(*problem);
      if (problem) return false;
    }
    return true;
  }

  /// KV blocks of a tier of the prefix cache.
  [[nodiscard]] Blocks cache_blocks(const char* key) {
    const Bytes given = settings().get<Bytes>(key);
    const Bytes block = assembly_.instance.kv.block_bytes;
    if (given > Bytes(0) && given < block) {
      problems_.add(fmt::format("{}={} is less than one KV block of {} bytes", key, format_bytes(given), block.count()),
                    key, "raise it, or set it to 0B for no such tier");
    }
    // The simulator stores 50 bytes for each block, used or not.
    constexpr std::int64_t kMost = 16'000'000;
    if (given / block > kMost) {
      problems_.add(fmt::format("{}={} holds {} KV blocks of {} bytes, more than the {} that a run can track", key,
                                format_bytes(given), given / block, block.count(), kMost),
                    key, "lower it, or raise memory.block_tokens");
      return Blocks(0);
    }
    return Blocks(given / block);
  }

  /// Sets the connector of the host cache, and refuses one that the engine does not have.
  void choose_connector() {
    KvLayout& kv = assembly_.instance.kv;
    const std::string wanted = text("engine.kv_connector");
    if (wanted == "none") return;
    if (wanted == "lmcache" || wanted == "hicache") {
      problems_.add(fmt::format("engine.kv_connector={} is not modelled", wanted), "engine.kv_connector",
                    "use vllm-offloading, or none for an ideal write-through tier");
      return;
    }
    const bool vllm = policy().offloads_prefixes && offloads(engine_.file.name);
    const bool tier = settings().get<Bytes>("memory.host_cache") > Bytes(0);
    if (wanted == "auto" && !(vllm && tier)) return;
    if (!policy().offloads_prefixes) {
      problems_.add(fmt::format("policy {} has no vllm-offloading: it is a connector of vLLM's V1 engine",
                                assembly_.config.policy->name),
                    "engine.kv_connector", "use policy=vllm, or engine.kv_connector=none");
    } else if (!vllm) {
      problems_.add(fmt::format("engine {} has no vllm-offloading: vLLM has it since 0.11", engine_.file.name),
                    "engine.kv_connector", "use engine=vllm-0.11, or engine.kv_connector=none");
    }
    if (!tier) {
      problems_.add("engine.kv_connector=vllm-offloading has no memory: memory.host_cache is 0B", "engine.kv_connector",
                    "set memory.host_cache, as memory.host_cache=64GiB");
    }
    if (text("engine.kv_connector_layout") == "per-layer") kv.host_cache_copies_per_block = llm_.layers * 2;
    const auto seconds = [this](const char* operation) {
      if (!settings().get<bool>("engine.overheads")) return 0.0;
      return settings().get<double>(fmt::format("engine.kv_connector_{}_ns", operation)) * 1e-9;
    };
    const bool busy = settings().get<bool>("engine.overheads");
    kv.connector = {seconds("visit"),   seconds("lookup"),
                    seconds("touch"),   seconds("scan"),
                    seconds("warning"), busy ? settings().get<double>("engine.kv_connector_launches") : 0.0};
  }

  /// The disk behind the connector's tier.
  void size_disk() {
    KvLayout& kv = assembly_.instance.kv;
    const Bytes given = settings().get<Bytes>("memory.disk_cache");
    if (given == Bytes(0)) return;
    if (settings().get<Bytes>("memory.host_cache") == Bytes(0)) {
      problems_.add("memory.disk_cache holds what memory.host_cache evicts, and that is 0B", "memory.disk_cache",
                    "set memory.host_cache, as memory.host_cache=64GiB");
      return;
    }
    if (!kv.connector) {
      problems_.add(
          "memory.disk_cache needs engine.kv_connector=vllm-offloading: only there does a request wait "
          "outside the batch while its blocks load",
          "memory.disk_cache", "use policy=vllm and engine.kv_connector=vllm-offloading, or leave it at 0B");
      return;
    }
    const auto gigabytes_per_second = [this](const char* key) {
      return BytesPerSecond(settings().get<double>(key) * 1e9);
    };
    kv.disk = {.blocks = cache_blocks("memory.disk_cache"),
               .speed = {.read = gigabytes_per_second("memory.disk_read_bandwidth"),
                         .write = gigabytes_per_second("memory.disk_write_bandwidth"),
                         .read_operations = static_cast<double>(integer("memory.disk_read_iops")),
                         .write_operations = static_cast<double>(integer("memory.disk_write_iops")),
                         .depth = integer("memory.disk_queue_depth")}};
  }

  /// Does an engine of this name have vLLM's offloading connector? Without an engine there is no CPU time, but a tier.
  [[nodiscard]] static bool offloads(const std::string& engine) {
    if (engine == "none") return true;
    const std::string vllm = "vllm-0.";
    return engine.starts_with(vllm) && std::atoi(engine.c_str() + vllm.size()) >= 11;
  }

  bool take_given_memory() {
    KvLayout& kv = assembly_.instance.kv;
    const Bytes given = settings().get<Bytes>("memory.gpu_kv");
    kv.gpu_blocks = Blocks(given / kv.block_bytes);
    if (kv.gpu_blocks.count() == 0) {
      problems_.add(fmt::format("memory.gpu_kv={} is less than one KV block of {} bytes", given_text("memory.gpu_kv"),
                                kv.block_bytes.count()),
                    "memory.gpu_kv", "raise it, or lower memory.block_tokens");
      return false;
    }
    if (capacity_.memory == Bytes(0)) {
      assembly_.setup.kv_terms = "memory.gpu_kv=" + given_text("memory.gpu_kv");
      return true;
    }
    const Bytes total = capacity_.weights + given;
    if (total > capacity_.memory) {
      problems_.add_infeasible(
          fmt::format("{} with memory.gpu_kv={} does not fit {}: weights {} + KV {} are {} more than its {}",
                      llm_.file.name, given_text("memory.gpu_kv"), hardware_.gpu.file.name,
                      gigabytes(capacity_.weights), gigabytes(given), gigabytes(total - capacity_.memory),
                      gigabytes(capacity_.memory)),
          "memory.gpu_kv", "lower memory.gpu_kv, raise tensor_parallel, or choose hardware with more memory");
      return false;
    }
    assembly_.setup.kv_terms += "; memory.gpu_kv=" + given_text("memory.gpu_kv");
    if (given * 100 > capacity_.available * 105) {  // the estimate was 3% low where it could be checked
      warn(
          fmt::format("memory.gpu_kv={} is more than the {} that the engine would leave for KV at "
                      "engine.gpu_memory_utilization={}",
                      given_text("memory.gpu_kv"), gigabytes(std::max(capacity_.available, Bytes(0))),
                      settings().get<double>("engine.gpu_memory_utilization")));
    }
    return true;
  }

  /// Layers with a sliding window free the KV beyond it, as the policy's engine does, where all KV is on the GPU.
  void free_beyond_windows() {
    const std::string& wanted = text("engine.hybrid_kv_cache");
    std::optional<KvWindow> window = llm_.kv_window();
    const std::string why = why_all_kv_is_kept(window.has_value());
    if (wanted == "true" && !why.empty()) {
      return problems_.add("engine.hybrid_kv_cache=true cannot free KV: " + why, "engine.hybrid_kv_cache",
                           "leave it out, or set it to false");
    }
    if (wanted == "false" || !why.empty()) return;
    window->piece = settings().get<bool>("engine.chunked_prefill") ? Tokens(integer("engine.max_num_batched_tokens"))
                                                                   : Tokens(llm_.max_positions);
    assembly_.instance.kv.window = window;
  }

  /// Why layers with a window keep the KV beyond it; empty: they need not.
  [[nodiscard]] std::string why_all_kv_is_kept(bool window) const {
    if (!window) return llm_.file.name + " has no layers with a sliding window, or has windows of several lengths";
    if (!policy().frees_windows) return "policy " + policy().name + " keeps all KV of its requests";
    if (text("engine.prefix_caching") == "true") return "the prefix cache shares whole blocks of all layers";
    if (phases(settings()) != Phases::both || assembly_.instance.pools.split()) {
      return "KV is handed over between instances as a whole";
    }
    return "";
  }

  /// The longest request: the limit of the model or the user, at most the capacity of the KV cache.
  void limit_length() {
    const KvLayout& kv = assembly_.instance.kv;
    const Tokens capacity =
        kv.window ? kv.window->longest(kv.most(), kv.block_tokens,
                                       std::max(Tokens(llm_.max_positions), assembly_.instance.kv_capacity()))
                  : assembly_.instance.kv_capacity();
    Tokens& limit = assembly_.instance.max_model_len;
    const Tokens model(llm_.max_positions);
    assembly_.setup.model_positions = model;
    if (!settings().has("engine.max_model_len")) {
      limit = std::min(model, capacity);
      if (capacity >= model) return;
      warn(fmt::format("engine.max_model_len is lowered from the model's {} to {} tokens, the capacity of the KV cache",
                       model.count(), capacity.count()));
      return;
    }
    limit = Tokens(integer("engine.max_model_len"));
    if (limit > model) {
      problems_.add(fmt::format("engine.max_model_len={} is more than the {} positions of {}", limit.count(),
                                model.count(), llm_.file.name),
                    "engine.max_model_len", fmt::format("use at most {}", model.count()));
    } else if (limit > capacity) {
      problems_.add(
          fmt::format(
              "a request of engine.max_model_len={} tokens cannot fit: {} holds {} tokens "
              "({} blocks of {})",
              limit.count(), assembly_.instance.pools.split() ? "the smaller KV cache of both pools" : "the KV cache",
              capacity.count(), assembly_.instance.kv.gpu_blocks.count(), assembly_.instance.kv.block_tokens.count()),
          "engine.max_model_len",
          fmt::format("use at most {}, or give the KV cache more memory (memory.gpu_kv, "
                      "engine.gpu_memory_utilization, tensor_parallel)",
                      capacity.count()));
    }
  }

  void describe() {
    const traces::Workload& workload = assembly_.workload;
    Setup& setup = assembly_.setup;
    setup.model = llm_.file.name;
    setup.hardware = hardware_.file().name;
    setup.gpu = hardware_.gpu.file.name;
    setup.engine = engine_.file.name;
    setup.policy = assembly_.config.policy->name;
    const bool closed = workload.concurrency > 0 && workload.arrival == "all-at-once";
    setup.workload = closed ? fmt::format("{}, closed loop of {} requests", workload.name, workload.concurrency)
                            : fmt::format("{}, {}", workload.name, workload.arrival);
    if (!workload.arrival_details.empty()) setup.workload += fmt::format(" ({})", workload.arrival_details);
    if (workload.rate) setup.workload += fmt::format(" at {:.6g} requests/s", *workload.rate);
    if (workload.concurrency > 0 && !closed) {
      setup.workload += fmt::format(", at most {} in flight", workload.concurrency);
    }
    if (workload.conversations) {
      setup.workload += fmt::format(", conversations of {:.3g} turns, think time {}", workload.mean_turns,
                                    workload.think_time.empty() ? "of the trace" : workload.think_time);
      if (workload.stationary) setup.workload += ", in balance from 0 (caches are empty)";
    }
    setup.skipped_rows = workload.skipped_rows;
    setup.tensor_parallel = gpus_each();
    setup.replicas = assembly_.instance.replicas;
    setup.prefill_replicas = assembly_.instance.pools.prefill;
    setup.servers = hardware_.server ? assembly_.instance.servers : 0;
    setup.requests = workload.requests;
    InputFile gpu = input_of("gpu", hardware_.gpu.file);
    setup.latency_model =
        hwmodels::resolved_latency_model(hardware_.gpu, llm_, {text("latency_model"), parallelism(), 2});
    const auto hub = hwmodels::llm_of_hub_id(text("model"));
    // A file may have such a name, too.
    if (hub && llm_.file.path.ends_with(fmt::format("llms/{}.json", hub->llm))) {
      setup.resolved_model =
          fmt::format("{} is {} with weights in {}", text("model"), hub->llm, hwmodels::stored_format(llm_));
    }
    setup.expert_exchange = hwmodels::exchange_text(hardware_.gpu, llm_, engine_, parallelism(),
                                                    expert_setting().exchange, setup.latency_model == "fitted");
    gpu.error = hwmodels::validity_text(hardware_.gpu, setup.latency_model);
    setup.expected_error =
        (hardware_.gpu.borrowed ? hwmodels::borrowed_text(*hardware_.gpu.borrowed) + "; " : std::string()) +
        hwmodels::expected_error_text(hwmodels::expected_error(hardware_.gpu, setup.latency_model));
    if (setup.latency_model == "fitted") {
      gpu.error = hwmodels::validity_of_parts(hardware_.gpu, llm_, parallelism(), expert_setting().kernel) + gpu.error;
    }
    assembly_.inputs = {std::move(gpu)};
    if (hardware_.server) describe_server();
    if (hardware_.host) assembly_.inputs.push_back(input_of("host", hardware_.host->file));
    assembly_.inputs.push_back(input_of("engine", engine_.file));
    assembly_.inputs.push_back(input_of("model", llm_.file));
    assembly_.inputs.push_back({"workload", workload.name, workload.sha256, workload.source_text, ""});
    for (const traces::WorkloadFile& file : workload.files) {
      assembly_.inputs.push_back({"tokenizer", file.path, file.sha256, "splits texts into tokens", ""});
    }
    add_events_file(assembly_);
    assembly_.prices.gpus = lenders_.gpus_taken(gpus_each()) * assembly_.instance.replicas;
    describe_prices(assembly_);
    check_host_memory();
    warn_of_experts();
    warn_of_unused_gpus();
    warn_of_engine();
    warn_of_passed_tables();
    decide_prefix_caching();
    weigh_host_tier();
    if (policy().keeps_conversations && !workload.conversations) {
      warn(
          fmt::format("the workload has no conversations, so policy {} keeps no KV: it schedules requests as without "
                      "a cache",
                      policy().name));
    }
    if (policy().knows_future) setup.knows_future = policy().knows_future(settings());
    if (!setup.knows_future.empty()) {
      // First, as the screen may not have room for all.
      assembly_.warnings.insert(assembly_.warnings.begin(),
                                setup.knows_future + ", which no real system knows: take the results as a reference");
    }
    setup.kv = assembly_.instance.kv;
    setup.deployment = assembly_.instance.deployment;
    setup.max_model_len = assembly_.instance.max_model_len;
    for (const std::string& warning : llm_.file.warnings) warn(warning);
    // First, as the screen may not have room for all.
    const std::string windows = assembly_.instance.kv.window ? "" : llm_.windows_text();
    if (!windows.empty()) assembly_.warnings.insert(assembly_.warnings.begin(), windows);
    assembly_.warnings.insert(assembly_.warnings.end(), workload.warnings.begin(), workload.warnings.end());
    if (!settings().get<bool>("engine.overheads")) warn("engine.overheads=false: the engine's CPU time is left out");
    if (integer("replications") > 1 && !workload.random) {
      warn("the workload has no random part, so all replications are equal: set replications=1");
    }
  }

  void describe_server() {
    const hwmodels::ServerProfile& server = *hardware_.server;
    assembly_.inputs.push_back(input_of("server", server.file));
    if (server.of) assembly_.inputs.push_back(input_of("server", *server.of));
    if (topology_) assembly_.inputs.push_back(input_of("topology", *topology_));
    for (const std::string& warning : server.topology.warnings) warn(warning);
  }

  /// Unmeasured CPU time matters as much as the GPU's time, so its known error is a warning.
  void warn_of_engine() {
    const hwmodels::DataFile& file = engine_.file;
    constexpr std::array<std::string_view, 3> kHostSide{"launch_floor_per_layer", "host_fixed", "host_per_sequence"};
    assembly_.setup.engine_calibrated =
        file.name == "none" || std::all_of(file.entries.begin(), file.entries.end(), [&](const auto& entry) {
          const bool host = std::find(kHostSide.begin(), kHostSide.end(), entry.key) != kHostSide.end();
          return !host || entry.source_kind == "measured";
        });
    if (assembly_.setup.engine_calibrated) return;
    const bool says_so = file.error.starts_with("uncalibrated");
    warn_of_accuracy(
        fmt::format("engine {}: {}{}", file.name, says_so ? "" : "its CPU times are not calibrated: ", file.error));
  }

  /// A user who gives a profile with an engine's layers expects the run to use them: warn when it cannot.
  void warn_of_passed_tables() {
    if (text("latency_model") != "auto" || !hardware_.gpu.fitted.layers) return;
    const auto problem = hwmodels::table_model_problem(hardware_.gpu, llm_, gpus_each());
    if (problem)
      warn(fmt::format("{}, so the run uses latency_model={}", problem->what, assembly_.setup.latency_model));
  }

  /// What a hit in the host tier saves and costs: a prompt that has an iteration to itself, and its KV on the link.
  void weigh_host_tier() {
    const KvLayout& kv = assembly_.instance.kv;
    if (policy().layout) return;  // what layers wait for depends on the batch
    const bool rests = policy().keeps_conversations && kv.host_blocks > Blocks(0);
    if (!rests && kv.host_cache_blocks == Blocks(0)) return;
    const std::unique_ptr<ExecutionModel> model = assembly_.make_model({});
    const std::int64_t copies = rests ? kv.copies_per_block : kv.host_cache_copies_per_block;
    for (const Tokens tokens : {Tokens(1024), Tokens(8192)}) {
      if (tokens > assembly_.instance.max_model_len) break;
      const std::array<PrefillChunk, 1> prompt{PrefillChunk{tokens, Tokens(0)}};
      BatchShape shape;
      shape.chunks = prompt;
      const IterationTime time = model->iteration(shape);
      const Blocks blocks = blocks_for(tokens, kv.block_tokens);
      const Bytes bytes = kv.block_bytes * blocks.count();
      const CopyMechanism mechanism = rests ? CopyMechanism::many : kv.host_cache_mechanism;
      const std::int64_t pieces = mechanism == CopyMechanism::gather ? 1 : copies * blocks.count();
      const CopyTime load =
          model->copy(kv.cache_is_lent || kv.cache_moves ? Stream::peer_in : Stream::h2d, pieces, bytes, mechanism);
      assembly_.setup.host_tier_hits.push_back(
          {tokens, to_seconds(load.launch + load.transfer), to_seconds(model->length(time))});
    }
  }

  void decide_prefix_caching() {
    const std::string& wanted = text("engine.prefix_caching");
    // A connector stores the blocks of every request, also where no prompt repeats.
    const bool stores = assembly_.workload.prefix_ids || assembly_.instance.kv.connector;
    const bool useful = stores && policy().shares_prefixes && text("engine.hybrid_kv_cache") != "true";
    assembly_.instance.kv.prefix_caching = wanted == "true" || (wanted == "auto" && useful);
    if (assembly_.instance.kv.prefix_caching && assembly_.instance.kv.window) {
      assembly_.instance.kv.window.reset();
      limit_length();
      problems_.throw_if_any();
    }
    if (!assembly_.instance.kv.prefix_caching && assembly_.instance.kv.host_cache_blocks > Blocks(0)) {
      warn(fmt::format(
          "{} no effect, because prefix caching is off: turn it on with engine.prefix_caching=true, or with auto, "
          "a policy that shares prefixes and a workload that says which prompts share a prefix",
          assembly_.instance.kv.cache_is_lent || assembly_.instance.kv.cache_moves ? "memory.peer_cache has"
          : assembly_.instance.kv.disk ? "memory.host_cache and memory.disk_cache have"
                                       : "memory.host_cache has"));
      assembly_.instance.kv.host_cache_blocks = Blocks(0);
      assembly_.instance.kv.cache_is_lent = assembly_.instance.kv.cache_moves = false;
      assembly_.instance.kv.connector.reset();
      assembly_.instance.kv.disk.reset();
    }
    if (assembly_.instance.kv.connector && text("engine.kv_connector") == "auto") {
      warn(
          "memory.host_cache is the tier of vLLM's offloading connector, by the rules of vLLM 0.11 to 0.13. "
          "engine.kv_connector=none makes it an ideal write-through tier");
    }
    if (assembly_.workload.prefix_ids) return;
    const bool connector = wanted == "auto" && assembly_.instance.kv.connector;
    if (wanted == "true" || connector) {
      warn(fmt::format("{}, but the workload does not say which prompts share a prefix: nothing is shared",
                       connector ? "the connector stores the blocks of all requests" : "engine.prefix_caching=true"));
    }
  }

  Assembly assembly_;
  Lenders lenders_;
  Problems problems_;
  const WorkloadOpener& open_;
  const GivenGpus* const given_gpus_;
  hwmodels::Hardware hardware_;
  hwmodels::LlmModel llm_;
  hwmodels::ExpertLoad expert_load_;
  std::optional<hwmodels::DataFile> topology_;  // the user's own
  hwmodels::EngineProfile engine_;
  hwmodels::KvCapacity capacity_;
  Bytes streamed_on_host_{};  // per GPU; 0 where policy.host_memory is given
};

}  // namespace

std::vector<BusInstance> InstancePlan::on_bus(std::int64_t server) const {
  std::vector<BusInstance> instances;
  const std::int64_t first = server * per_server;
  const std::int64_t end = std::min(replicas, first + static_cast<std::int64_t>(routes.size()));
  for (std::int64_t replica = first; replica < end; ++replica) {
    const PoolPlan* const pool = pool_of(replica);
    instances.push_back(
        {&routes[static_cast<std::size_t>(replica - first)], pool == nullptr ? least_rate : pool->layout.least_rate});
  }
  return instances;
}

traces::Workload open_workload(const Assembly& assembly, std::int64_t replication) {
  if (!assembly.kinds.empty()) return open_workload_of_kinds(assembly, replication);
  const Tokens longest = assembly.instance.max_model_len;
  return traces::open_workload(assembly.config.settings, replication,
                               longest > Tokens(0) ? longest : Tokens(traces::kMaxTokens));
}

Assembly assemble(ResolvedConfig config, const WorkloadOpener& open) {
  const ResolvedKey& instances = config.key(kInstancesKey);
  if (instances.text.empty()) return Assembler(std::move(config), open).build();
  if (!open) return assemble_kinds(std::move(config));
  throw ConfigError("a replay has one instance", instances.where, "leave instances out");
}

Assembly assemble_on(ResolvedConfig config, const GivenGpus& given, const WorkloadOpener& open) {
  return Assembler(std::move(config), open, &given).build();
}

void read_slos(Assembly& assembly, Problems& problems) {
  for (const ResolvedKey& key : assembly.config.keys) {
    const std::string& name = key.parameter.name;
    const double* const limit = std::get_if<double>(&key.value);
    if (!name.starts_with("slo.") || limit == nullptr) continue;
    const std::string metric = name.substr(4);
    assembly.request_slos.push_back({Condition::Op::less, metric, *limit, fmt::format("{}<{}", metric, *limit)});
  }
  const Settings& settings = assembly.config.settings;
  if (!settings.has("slo.run")) return;
  std::vector<Problem> found;
  assembly.run_slos = parse_conditions(settings.get<std::string>("slo.run"), "slo.run", false, found);
  problems.add_all(found);
}

void describe_prices(Assembly& assembly) {
  assembly.setup.price = price_text(assembly.prices);
  assembly.setup.power_watts = assembly.prices.watts;
  const Settings& settings = assembly.config.settings;
  if (!settings.has(kPriceKey)) return;
  const auto& file = settings.get<std::string>(kPriceKey);
  if (!is_price_file(file)) return;
  assembly.inputs.push_back({"prices", file, file_sha256(file), "what a GPU costs per hour", ""});
}

void add_events_file(Assembly& assembly) {
  const Settings& settings = assembly.config.settings;
  if (!settings.has("events")) return;
  const auto& events = settings.get<std::string>("events");
  if (!is_events_file(events)) return;
  assembly.inputs.push_back({"events", events, file_sha256(events), "when replicas go down and come up", ""});
}

SimulationConfig simulation_config(const Assembly& assembly, const ExecutionModel& model, RequestSource& source) {
  const Settings& settings = assembly.config.settings;
  SimulationConfig simulation = run_config(assembly, source);
  InstanceConfig& instance = simulation.instances.emplace_back();
  instance.model = &model;
  instance.policy = assembly.config.policy;
  instance.settings = &settings;
  instance.kv = assembly.instance.kv;
  instance.deployment = assembly.instance.deployment;
  instance.deployment.model = &model;
  instance.experts = assembly.instance.experts;
  instance.max_model_len = assembly.instance.max_model_len;
  instance.route = assembly.instance.routes.front();
  instance.schedules_ahead = assembly.instance.schedules_ahead;
  read_surroundings(settings, instance);
  if (!assembly.setup.knows_future.empty()) instance.future = &source;
  return simulation;
}

void borrow(const Assembly& assembly, std::size_t first, const std::vector<std::size_t>& first_of_kind,
            SimulationConfig& simulation) {
  if (!assembly.loan) return;
  const LoanPlan& plan = *assembly.loan;
  for (std::size_t replica = 0; replica < static_cast<std::size_t>(assembly.instance.replicas); ++replica) {
    Loan loan{.borrower = first + replica,
              .offered = plan.offered,
              .informer = plan.informer,
              .memory_bandwidth = plan.memory_bandwidth};
    if (plan.kind) loan.lender = first_of_kind[*plan.kind] + plan.first_replica + replica;
    simulation.loans.push_back(loan);
  }
}

SimulationConfig run_config(const Assembly& assembly, RequestSource& source) {
  const Settings& settings = assembly.config.settings;
  SimulationConfig simulation;
  simulation.links = assembly.instance.links;
  simulation.front_end = simulation.metrics.front_end = assembly.instance.front_end;
  simulation.source = &source;
  if (settings.has("engine.request_timeout")) {
    simulation.request_timeout = settings.get<Duration>("engine.request_timeout");
  }
  if (settings.has("until")) simulation.until = SimTime{} + settings.get<Duration>("until");
  if (settings.has("warmup")) simulation.metrics.warmup = settings.get<Span>("warmup");
  simulation.metrics.expected_requests = assembly.workload.requests;
  const traces::Workload& workload = assembly.workload;
  if (workload.rate && workload.variation && workload.concurrency == 0) {
    simulation.metrics.offered = OfferedLoad{.rate = *workload.rate,
                                             .variation = *workload.variation,
                                             .together = workload.mean_turns,
                                             .requests = workload.requests};
  }
  simulation.metrics.goodput = assembly.request_slos;
  simulation.metrics.percentiles = percentiles_of(assembly.run_slos);
  return simulation;
}

namespace {

/// `settings`, and the defaults of the parameters that it lacks.
Settings with_defaults(Settings settings, const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    if (settings.has(parameter.name)) continue;
    std::vector<Problem> problems;
    if (const auto value = parse_value(parameter, parameter.default_value, parameter.name, problems)) {
      settings.set(parameter.name, value->value);
    }
  }
  return settings;
}

/// Makes two pools of the instances. Each has ports of its own for KV that is handed over.
void split(const Assembly& assembly, MakeRouter decode_router, SimulationConfig& simulation) {
  const InstancePlan& plan = assembly.instance;
  const auto prefill = static_cast<std::size_t>(plan.pools.prefill);
  for (std::size_t i = 0; i < simulation.instances.size(); ++i) {
    InstanceConfig& instance = simulation.instances[i];
    instance.phases = i < prefill ? Phases::prefill : Phases::decode;
    instance.hands_over = true;
    const PoolPlan* const pool = plan.pool_of(static_cast<std::int64_t>(i));
    if (pool == nullptr) continue;
    instance.settings = &pool->settings;
    instance.kv.gpu_blocks = pool->layout.blocks;
    instance.kv.most_gpu_blocks = pool->layout.most;
    instance.deployment.chosen = pool->layout.chosen;
  }
  Handover& handover = simulation.handover.emplace();
  handover.prefill = prefill;
  handover.decode_router = std::move(decode_router);
  handover.first_token_at_prefill = plan.first_token == "prefill";
  handover.by_layers = assembly.config.settings.get<std::string>("handover.mode") == "layers";
  handover.gpus = assembly.config.settings.get<std::int64_t>("tensor_parallel");
  // The links of the servers, then the way out of each prefill replica and the way into each decode replica.
  const std::size_t first_port = simulation.links.size();
  handover.links = simulation.links;
  handover.links.resize(first_port + simulation.instances.size(), BytesPerSecond(1.0));
  const auto between = [&plan, prefill](std::size_t from, std::size_t to) {
    return plan.handover_links->between(static_cast<std::int64_t>(from), static_cast<std::int64_t>(prefill + to));
  };
  for (std::size_t from = 0; from < prefill; ++from) {
    for (std::size_t to = 0; to < simulation.instances.size() - prefill; ++to) {
      const BytesPerSecond bandwidth = between(from, to).bandwidth;
      for (const std::size_t port : {first_port + from, first_port + prefill + to}) {
        handover.links[port] = std::max(handover.links[port], bandwidth);
      }
    }
  }
  handover.path = [between, first_port, prefill](std::size_t from, std::size_t to) {
    const HandoverLink link = between(from, to);
    HandoverPath path{link.launch, link.bandwidth, {{first_port + from}, {first_port + prefill + to}}};
    for (const auto& [position, share] : link.crossings) path.crossings.push_back({position, share});
    return path;
  };
}

}  // namespace

void replicate(const Assembly& assembly, std::int64_t replication, SimulationConfig& simulation) {
  const InstancePlan& plan = assembly.instance;
  if (plan.replicas == 1 && plan.events.empty()) return;
  simulation.instances.resize(static_cast<std::size_t>(plan.replicas), simulation.instances.front());
  const std::vector<BytesPerSecond> of_server = simulation.links;
  const std::int64_t last = (plan.replicas - 1) / plan.per_server;
  for (std::int64_t server = 0; server < last; ++server) {
    simulation.links.insert(simulation.links.end(), of_server.begin(), of_server.end());
  }
  for (std::int64_t i = 0; i < plan.replicas; ++i) {
    CopyRoute& route = simulation.instances[static_cast<std::size_t>(i)].route;
    route = plan.routes[static_cast<std::size_t>(i % plan.per_server)];
    const std::size_t first = of_server.size() * static_cast<std::size_t>(i / plan.per_server);
    for (std::vector<LinkCrossing>* const crossings : route.all()) {
      for (LinkCrossing& crossing : *crossings) crossing.link += first;
    }
  }
  const auto router = [&assembly, replication](const char* key) -> MakeRouter {
    const Settings& settings = assembly.config.settings;
    const RouterInfo* const info = RouterRegistry::instance().find(settings.get<std::string>(key));
    return [&assembly, &settings, info, replication, key](const Replicas& replicas) {
      const Settings own = with_defaults(settings, info->parameters);
      const std::string& kind = assembly.instance.name;
      const std::string stream = kind.empty() ? key : fmt::format("{}.{}", key, kind);
      const RandomStream random(settings.get<std::int64_t>("seed"), replication, stream);
      return info->make({own, replicas, assembly.instance.kv.block_tokens, random});
    };
  };
  simulation.router = router(kRouterKey);
  simulation.events = plan.events;
  simulation.retry = assembly.config.settings.get<bool>("router.retry");
  if (plan.pools.split()) split(assembly, router("decode_router"), simulation);
}

}  // namespace spillway
