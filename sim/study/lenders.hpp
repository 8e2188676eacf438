// GPUs of a server that lend their memory to the replicas of a run (memory.peer), or of an element of instances
// (memory.lender).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hwmodels/catalog.hpp"
#include "hwmodels/topology.hpp"
#include "sim/config/config.hpp"
#include "sim/engine/instance_config.hpp"
#include "sim/exec/copy_links.hpp"

namespace spillway {

/// The element of instances that lends to another: an instance, or GPUs that serve no request of the run.
struct GivenLender {
  std::string name{};
  std::string where{};               // in the user's file
  std::vector<std::int64_t> gpus{};  // ascending: the first lends to the borrower's first GPU
  Bytes most{};                      // that each of them lends
};

/// Each GPU of a replica borrows from a GPU of its own: with memory.peer from one that does nothing else, with
/// memory.lender from one of that element. On a server the lenders of memory.peer stand behind all replicas, in the
/// order of these.
class Lenders {
 public:
  /// The run borrows when it gives memory.peer or memory.lender, and its policy makes use of it.
  Lenders() = default;
  /// `given`: the element that memory.lender names, if it does; it must outlive this.
  explicit Lenders(const ResolvedConfig& config, const GivenLender* given = nullptr);
  [[nodiscard]] bool lend() const { return each_ > Bytes(0); }
  /// What one GPU lends.
  [[nodiscard]] Bytes each() const { return each_; }
  /// The memory is lent by an element of instances.
  [[nodiscard]] bool given() const { return given_ != nullptr; }
  /// The GPUs that lend to the replica at a position on a server that has `per_server` of `gpus` GPUs.
  [[nodiscard]] hwmodels::GpuRange of(std::int64_t position, std::int64_t per_server, std::int64_t gpus) const;
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
  /// Adds the tier, less what the prefix cache has of it, and the ways to it, on which vLLM's swap copies each block in
  /// `copies_per_block` pieces. To an element of instances and back there is a way from the host, too: over the links
  /// of the GPU that borrows.
  void add_tier(std::int64_t copies_per_block, KvLayout& kv) const;

 private:
  const GivenLender* given_ = nullptr;
  Bytes each_{};
  std::string warning_;
};

}  // namespace spillway
