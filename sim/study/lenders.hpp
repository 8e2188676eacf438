// GPUs of a server that lend their memory to the replicas of a run (memory.peer).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hwmodels/catalog.hpp"
#include "hwmodels/topology.hpp"
#include "sim/config/config.hpp"
#include "sim/engine/instance_config.hpp"
#include "sim/exec/copy_links.hpp"

namespace spillway {

/// Each GPU of a replica borrows memory.peer from a GPU of its own, which does nothing else. On a server the lenders
/// stand behind all replicas, in the order of these.
class Lenders {
 public:
  /// The run borrows when it gives memory.peer, and its policy makes use of it.
  Lenders() = default;
  explicit Lenders(const ResolvedConfig& config);
  [[nodiscard]] bool lend() const { return each_ > Bytes(0); }
  /// What one GPU lends.
  [[nodiscard]] Bytes each() const { return each_; }
  /// GPUs that a replica of `gpus` takes, its lenders included.
  [[nodiscard]] std::int64_t gpus_taken(std::int64_t gpus) const { return lend() ? 2 * gpus : gpus; }

  /// Memory that nobody uses, or a policy that finds none; empty: neither.
  [[nodiscard]] const std::string& warning() const { return warning_; }

  /// What forbids to borrow on this hardware.
  [[nodiscard]] std::optional<Problem> problem(const ResolvedConfig& config, const hwmodels::Hardware& hardware) const;
  /// A GPU of `own` that has no direct link to its lender; empty: all have.
  [[nodiscard]] static std::optional<std::int64_t> cut_off(const hwmodels::Topology& topology,
                                                           const hwmodels::GpuRange& own,
                                                           const hwmodels::GpuRange& lender);
  /// What copies from and to the lender cross: the ports of both sides, and what joins them.
  static void cross(const hwmodels::ServerLinks& links, const hwmodels::GpuRange& own, const hwmodels::GpuRange& lender,
                    CopyRoute& route);
  /// Adds the tier and the ways to it, on which vLLM's swap copies each block in `copies_per_block` pieces.
  void add_tier(std::int64_t copies_per_block, KvLayout& kv) const;

 private:
  Bytes each_{};
  std::string warning_;
};

}  // namespace spillway
