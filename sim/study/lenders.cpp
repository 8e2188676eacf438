#include "sim/study/lenders.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace spillway {
namespace {

constexpr const char* kKey = "memory.peer";
constexpr const char* kLender = "memory.lender";

/// Both crossings of a copy in one list: a GPU may reach its lender over a link that both have.
std::vector<LinkCrossing> together(std::vector<LinkCrossing> crossings, const std::vector<LinkCrossing>& more) {
  for (const LinkCrossing& one : more) {
    const auto same = std::ranges::find(crossings, one.link, &LinkCrossing::link);
    if (same == crossings.end()) {
      crossings.push_back(one);
    } else {
      same->gpus += one.gpus;
    }
  }
  std::ranges::sort(crossings, {}, &LinkCrossing::link);
  return crossings;
}

}  // namespace

Lenders::Lenders(const ResolvedConfig& config, const GivenLender* given) {
  const PolicyInfo& policy = *config.policy;
  const bool borrows = policy.borrows && policy.borrows(config.settings);
  const Bytes peer = config.settings.has(kKey) ? config.settings.get<Bytes>(kKey) : Bytes(0);
  const Bytes offered = given != nullptr ? given->most : peer;
  if (borrows) {
    each_ = offered;
    given_ = given;
    if (offered == Bytes(0)) {
      warning_ = fmt::format("no GPU lends memory ({}), so policy {} uses host memory instead",
                             given != nullptr ? given->name + " has none to spare" : kKey, policy.name);
    }
  } else if (given != nullptr || peer > Bytes(0)) {
    warning_ = fmt::format("{} has no effect: policy {} keeps no KV in memory that other GPUs lend{}",
                           given != nullptr ? kLender : kKey, policy.name,
                           policy.borrows ? " without policy.swap_tier=peer" : "");
  }
}

hwmodels::GpuRange Lenders::of(std::int64_t position, std::int64_t per_server, std::int64_t gpus) const {
  if (given_ == nullptr) return {(per_server + position) * gpus, gpus};
  return {given_->gpus[static_cast<std::size_t>(position * gpus)], gpus};
}

std::optional<Problem> Lenders::problem(const ResolvedConfig& config, const hwmodels::Hardware& hardware) const {
  if (!lend()) return std::nullopt;
  const std::string& name = hardware.file().name;
  if (!hardware.server) {
    return Problem{
        fmt::format("{} is a single GPU without a server, but memory.peer needs other GPUs on the same server", name),
        kKey, "name a server, such as hardware=hgx-h100-8 (spillway list hardware)"};
  }
  if (!hardware.server->peer) {
    return Problem{
        fmt::format("no GPU of {} reaches the memory of another one: its file states no peer_bandwidth", name),
        given() ? kLender : kKey, "use a server whose GPUs have links to each other (spillway list hardware)"};
  }
  if (given()) return std::nullopt;
  if (each_ > hardware.gpu.memory) {
    return Problem{fmt::format("memory.peer={} is more than the {:.1f} GB of {}, which lends it", config.key(kKey).text,
                               static_cast<double>(hardware.gpu.memory.count()) * 1e-9, hardware.gpu.file.name),
                   kKey, "lower it: memory.peer is what one GPU lends to one GPU of a replica"};
  }
  const std::int64_t gpus = config.settings.get<std::int64_t>("tensor_parallel");
  if (gpus_taken(gpus) > hardware.server->gpus) {
    return Problem{fmt::format("memory.peer takes {} GPUs that lend beside {} that compute, and {} has {}", gpus, gpus,
                               name, hardware.server->gpus),
                   kKey,
                   fmt::format("use tensor_parallel={} or less, or leave memory.peer out",
                               std::max<std::int64_t>(1, hardware.server->gpus / 2))};
  }
  return std::nullopt;
}

std::optional<std::int64_t> Lenders::cut_off(const hwmodels::Topology& topology, const hwmodels::GpuRange& own,
                                             const hwmodels::GpuRange& lender) {
  for (std::int64_t gpu = 0; gpu < own.count; ++gpu) {
    if (!hwmodels::directly_connected(topology, own.first + gpu, lender.first + gpu)) return own.first + gpu;
  }
  return std::nullopt;
}

void Lenders::cross(const hwmodels::ServerLinks& links, const hwmodels::GpuRange& own, const hwmodels::GpuRange& lender,
                    CopyRoute& route) {
  using hwmodels::LinkDirection;
  const auto crossings = [&](const hwmodels::GpuRange& gpus, LinkDirection direction) {
    return links.crossings(gpus, &hwmodels::GpuPaths::peer, direction);
  };
  route.peer_in = together(crossings(lender, LinkDirection::out), crossings(own, LinkDirection::in));
  route.peer_out = together(crossings(own, LinkDirection::out), crossings(lender, LinkDirection::in));
}

void Lenders::add_tier(std::int64_t copies_per_block, KvLayout& kv) const {
  const Blocks cache = kv.cache_is_lent ? kv.host_cache_blocks : Blocks(0);
  const Blocks blocks = Blocks(each_ / kv.block_bytes) - cache;
  const auto peer = TierId(static_cast<std::int32_t>(kv.graph().tiers.size()));
  kv.further.tiers.push_back({kPeerTier, blocks, blocks});
  kv.further.routes.push_back({peer, kGpuTier, Stream::peer_in, copies_per_block});
  kv.further.routes.push_back({kGpuTier, peer, Stream::peer_out, copies_per_block});
  if (!given()) return;
  kv.further.routes.push_back({kHostTier, peer, Stream::h2d, copies_per_block});
  kv.further.routes.push_back({peer, kHostTier, Stream::d2h, copies_per_block});
}

}  // namespace spillway
