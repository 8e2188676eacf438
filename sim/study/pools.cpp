#include "sim/study/pools.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "sim/api/phases.hpp"
#include "sim/core/error.hpp"

namespace spillway {
namespace {

constexpr const char* kBothPhases = "both";

/// Why a policy cannot run in pools; empty: it can.
std::string refusal(const ResolvedConfig& config) {
  const PolicyInfo& policy = *config.policy;
  const Settings& settings = config.settings;
  const auto is = [&](const char* key, const char* value) {
    return settings.has(key) && settings.get<std::string>(key) == value;
  };
  if (policy.streams.kv) return "it streams KV between the GPU and the host, and cannot hand it over";
  if (policy.keeps_conversations) return "it keeps the KV of conversations where it was computed";
  if (!policy.takes_kv_over) return "its scheduler has no rule for a request whose KV is on its way";
  if (settings.get<Bytes>("memory.host_cache") > Bytes(0) && !is("engine.kv_connector", "none")) {
    return "the connector of memory.host_cache takes the place of the one that hands KV over";
  }
  if (settings.get<Bytes>("memory.host_cache") > Bytes(0)) return "memory.host_cache has no place in a hand-over";
  return "";
}

}  // namespace

std::vector<PoolPlan> plan_pools(const Settings& settings) {
  std::vector<PoolPlan> plans;
  for (const char* const key : {kPhaseKey, kWeightsPhaseKey}) {
    if (!settings.has(key)) continue;
    for (const char* const phase : {"prefill", "decode"}) {
      plans.push_back({.settings = settings});
      plans.back().settings.set(key, std::string(phase));
    }
  }
  return plans;
}

Layout layout_of_both(const PoolPlan& prompts, const PoolPlan& answers) {
  const Layout& one = prompts.layout;
  const Layout& other = answers.layout;
  return {.blocks = std::min(one.blocks, other.blocks),
          .most = std::min(one.most, other.most),
          .host = std::max(one.host, other.host),
          .host_kv = std::max(one.host_kv, other.host_kv),
          .weights = std::max(one.weights, other.weights),
          .terms = one.terms == other.terms ? one.terms
                                            : fmt::format("for prompts: {}; for answers: {}", one.terms, other.terms)};
}

PoolSizes read_pools(const ResolvedConfig& config, std::vector<Problem>& problems) {
  const Settings& settings = config.settings;
  const auto size = [&](const char* key) { return settings.has(key) ? settings.get<std::int64_t>(key) : 0; };
  const PoolSizes pools{size("prefill_replicas"), size("decode_replicas")};
  const auto given = [&](const std::string& key) { return config.key(key).origin != Origin::standard; };
  if ((pools.prefill > 0) != (pools.decode > 0)) {
    const char* const missing = pools.prefill > 0 ? "decode_replicas" : "prefill_replicas";
    problems.push_back(
        {fmt::format("{} is missing: one pool computes prompts, the other pool generates answers", missing),
         pools.prefill > 0 ? "prefill_replicas" : "decode_replicas", fmt::format("give {}", missing)});
    return {};
  }
  if (!pools.split()) {
    for (const char* const key : {"decode_router", "handover.mode", "handover.first_token", "handover.link",
                                  "handover.network_bandwidth", "handover.network_launch"}) {
      if (given(key)) {
        problems.push_back({fmt::format("{} has no effect without pools", key), key,
                            "give prefill_replicas and decode_replicas, or leave it out"});
      }
    }
    return pools;
  }
  if (given("replicas") && settings.get<std::int64_t>("replicas") != pools.total()) {
    problems.push_back({fmt::format("replicas={} is not the sum of prefill_replicas={} and decode_replicas={}",
                                    settings.get<std::int64_t>("replicas"), pools.prefill, pools.decode),
                        "replicas", "leave replicas out"});
  }
  for (const char* const key : {kPhaseKey, kWeightsPhaseKey}) {
    // A configuration that states all defaults may state this one, too.
    if (settings.has(key) && given(key) && settings.get<std::string>(key) != kBothPhases) {
      problems.push_back({fmt::format("{} follows from the pool", key), key, "leave it out"});
    }
  }
  if (const std::string why = refusal(config); !why.empty()) {
    problems.push_back({fmt::format("policy {} does not run in pools: {}", config.policy->name, why), "policy",
                        "use policy=vllm without memory.host_cache, or replicas instead of pools"});
  }
  return pools;
}

namespace {

constexpr const char* kLinkKey = "handover.link";
constexpr const char* kNetworkKey = "handover.network_bandwidth";

/// The way of one pair of replicas.
class WayFinder {
 public:
  WayFinder(const hwmodels::Hardware& hardware, const ResolvedConfig& config,
            const std::vector<std::int64_t>& given_gpus)
      : hardware_(hardware),
        config_(config),
        given_gpus_(given_gpus),
        wanted_(config.settings.get<std::string>(kLinkKey)),
        gpus_(config.settings.get<std::int64_t>("tensor_parallel")) {}

  [[nodiscard]] HandoverLink find(std::int64_t from, std::int64_t to, bool same_server) const {
    const bool inside = wanted_ == "nvlink" || wanted_ == "pcie";
    if (!same_server && inside) {
      throw ConfigError(
          fmt::format("handover.link={} ends at the server, and replicas that hand KV over are on several", wanted_),
          kLinkKey, "use handover.link=auto or network, or fewer replicas");
    }
    if (!hardware_.server || (same_server && wanted_ == "network")) return stated_network();
    const hwmodels::GpuGroup source{0, {first_gpu(from), gpus_}};
    const hwmodels::GpuGroup target{same_server ? 0 : 1, {first_gpu(to), gpus_}};
    const auto direct = wanted_ == "pcie" ? hwmodels::DirectCopies::refused : hwmodels::DirectCopies::allowed;
    const auto found = hwmodels::copy_path(*hardware_.server, hardware_.gpu, source, target, direct);
    if (const auto* const path = std::get_if<hwmodels::CopyPath>(&found)) return along(*path);
    // A server whose file knows of no network has the one of the keys.
    if (!same_server) return stated_network();
    throw ConfigError(std::vector<Problem>{std::get<Problem>(found)});
  }

 private:
  using Way = hwmodels::CopyPath::Way;

  /// Of the replica at a position on its server.
  [[nodiscard]] std::int64_t first_gpu(std::int64_t position) const {
    return given_gpus_.empty() ? position * gpus_ : given_gpus_[static_cast<std::size_t>(position * gpus_)];
  }
  [[nodiscard]] HandoverLink stated_network() const {
    const double each = config_.settings.get<double>(kNetworkKey) * 1e9;
    return {"network", network_launch(), BytesPerSecond(each * static_cast<double>(gpus_))};
  }
  [[nodiscard]] Duration network_launch() const { return config_.settings.get<Duration>("handover.network_launch"); }

  [[nodiscard]] HandoverLink along(const hwmodels::CopyPath& path) const {
    const bool stated = config_.key(kNetworkKey).origin != Origin::standard;
    if (path.way == Way::network) {
      return stated ? stated_network() : HandoverLink{"network", network_launch(), path.bandwidth, path.crossings};
    }
    if (path.way == Way::peer) {
      return {"nvlink", round_seconds(hardware_.server->peer->launch_seconds), path.bandwidth, path.crossings};
    }
    if (wanted_ == "nvlink") {
      throw ConfigError(fmt::format("{} has no figures of copies between its GPUs", hardware_.file().name), kLinkKey,
                        "use handover.link=auto, pcie or network");
    }
    hardware_.gpu.need({"h2d_bandwidth", "d2h_bandwidth", "h2d_launch", "d2h_launch"}, "a hand-over over PCIe");
    return {"pcie", round_seconds(hardware_.gpu.d2h.launch_seconds), path.bandwidth, path.crossings};
  }

  const hwmodels::Hardware& hardware_;
  const ResolvedConfig& config_;
  const std::vector<std::int64_t>& given_gpus_;
  const std::string wanted_;
  const std::int64_t gpus_;
};

}  // namespace

HandoverLinks::HandoverLinks(const hwmodels::Hardware& hardware, const ResolvedConfig& config, const PoolSizes& pools,
                             std::int64_t per_server, const std::vector<std::int64_t>& given_gpus)
    : per_server_(per_server), servers_(hardware.server.has_value()) {
  if (hardware.server) links_of_server_ = hwmodels::ServerLinks(hardware.server->topology).capacities().size();
  const WayFinder finder(hardware, config, given_gpus);
  const auto gpus = static_cast<double>(config.settings.get<std::int64_t>("tensor_parallel"));
  std::map<bool, const HandoverLink*> shown;  // by same_server
  for (std::int64_t from = 0; from < pools.prefill; ++from) {
    for (std::int64_t to = pools.prefill; to < pools.total(); ++to) {
      const Pair pair = pair_of(from, to);
      const auto [at, fresh] = ways_.try_emplace(pair);
      if (!fresh) continue;
      at->second = finder.find(pair.from, pair.to, pair.same_server);
      shown.try_emplace(pair.same_server, &at->second);
    }
  }
  for (const bool same_server : {true, false}) {
    const auto found = shown.find(same_server);
    if (found == shown.end()) continue;
    const HandoverLink& link = *found->second;
    text_ += fmt::format("{}{} at {:.4g} GB/s per GPU{}", text_.empty() ? "" : ", ", link.name,
                         link.bandwidth.value() * 1e-9 / gpus,
                         shown.size() == 1 ? ""
                         : same_server     ? " within a server"
                                           : " between servers");
  }
}

bool HandoverLinks::crosses_unstated_network() const {
  return std::ranges::any_of(
      ways_, [](const auto& way) { return way.second.name == "network" && way.second.crossings.empty(); });
}

HandoverLinks::Pair HandoverLinks::pair_of(std::int64_t from, std::int64_t to) const {
  if (!servers_) return {};
  return {from % per_server_, to % per_server_, from / per_server_ == to / per_server_};
}

HandoverLink HandoverLinks::between(std::int64_t from, std::int64_t to) const {
  HandoverLink link = ways_.at(pair_of(from, to));
  for (hwmodels::CopyPath::Crossing& crossing : link.crossings) {
    const std::int64_t replica = crossing.link < links_of_server_ ? from : to;
    crossing.link =
        crossing.link % links_of_server_ + links_of_server_ * static_cast<std::size_t>(replica / per_server_);
  }
  return link;
}

bool first_token_at_prefill(const Settings& settings, const std::string& engine) {
  const auto& where = settings.get<std::string>("handover.first_token");
  if (where != "auto") return where == "prefill";
  return !engine.starts_with("vllm");
}

}  // namespace spillway
