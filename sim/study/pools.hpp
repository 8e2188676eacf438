// Prefill and decode pools of a run: what cannot be split, and how KV gets from one pool to the other.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hwmodels/catalog.hpp"
#include "hwmodels/copy_path.hpp"
#include "sim/api/layer_policy.hpp"
#include "sim/config/config.hpp"
#include "sim/engine/handover.hpp"

namespace spillway {

/// The replicas of the keys prefill_replicas and decode_replicas; 0 and 0: there are no pools.
struct PoolSizes {
  std::int64_t prefill = 0;
  std::int64_t decode = 0;
  [[nodiscard]] bool split() const { return prefill > 0; }
  [[nodiscard]] std::int64_t total() const { return prefill + decode; }
};

/// What replicas of one pool have of their own, where the policy's layout depends on the phases that they run.
struct PoolPlan {
  Settings settings{};  // of the run, with the phase of the pool
  Layout layout{};
};

/// One plan for each pool, prompts first, without a layout. Empty if the policy has no key of phases.
[[nodiscard]] std::vector<PoolPlan> plan_pools(const Settings& settings);
/// What holds for replicas of both pools: the fewest blocks, the most host memory.
[[nodiscard]] Layout layout_of_both(const PoolPlan& prompts, const PoolPlan& answers);

/// Adds what is wrong with the keys of pools, with the policy beside them, and with keys that need pools.
[[nodiscard]] PoolSizes read_pools(const ResolvedConfig& config, std::vector<Problem>& problems);

/// How KV gets from one replica to another.
struct HandoverLink {
  std::string name;  // nvlink, pcie, network
  Duration launch{};
  BytesPerSecond bandwidth{};                             // of all GPUs of the replica together
  std::vector<hwmodels::CopyPath::Crossing> crossings{};  // links of servers, as copy_path numbers them
};

/// The ways between the replicas of a run, which are numbered in order, `per_server` to a server of `hardware`; without
/// a server each for itself.
class HandoverLinks {
 public:
  /// `gpus`: those of the replicas, in order, on one server; empty: the first ones of each server. Throws ConfigError
  /// if some replica of the first pool cannot reach some of the second.
  HandoverLinks(const hwmodels::Hardware& hardware, const ResolvedConfig& config, const PoolSizes& pools,
                std::int64_t per_server, const std::vector<std::int64_t>& gpus = {});
  /// By their numbers in the run. O(crossings).
  [[nodiscard]] HandoverLink between(std::int64_t from, std::int64_t to) const;
  /// "nvlink at 342 GB/s per GPU within a server, network at 50 GB/s per GPU between servers".
  [[nodiscard]] const std::string& text() const { return text_; }
  /// Some KV crosses a network that no file states, at handover.network_bandwidth.
  [[nodiscard]] bool crosses_unstated_network() const;

 private:
  struct Pair {
    std::int64_t from = 0;  // positions on their servers
    std::int64_t to = 0;
    bool same_server = false;
    auto operator<=>(const Pair&) const = default;
  };
  [[nodiscard]] Pair pair_of(std::int64_t from, std::int64_t to) const;

  std::int64_t per_server_;
  bool servers_;
  std::size_t links_of_server_ = 0;
  std::map<Pair, HandoverLink> ways_;  // between servers 0 and 1, or on server 0
  std::string text_;
};

/// Which replica samples the first token, for the engine of that name.
[[nodiscard]] bool first_token_at_prefill(const Settings& settings, const std::string& engine);

}  // namespace spillway
