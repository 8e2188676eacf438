// The links that the copies of one instance cross, and how much they slow the copies down.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/api/layer_rule.hpp"
#include "sim/core/units.hpp"
#include "sim/exec/links.hpp"

namespace spillway {

/// Streams whose copies cross links: h2d, d2h, peer_in, peer_out, in this order wherever there is a value for each.
inline constexpr std::size_t kLinks = 4;

/// How the copies of an instance reach the host and other GPUs: the instance has links of its own, and crosses some
/// that others may cross, too.
struct CopyRoute {
  std::int64_t gpus = 1;           // of its tensor-parallel group: all of them copy the same at the same time
  std::vector<std::size_t> h2d{};  // positions in the list of shared links
  std::vector<std::size_t> d2h{};
  std::vector<std::size_t> peer_in{};
  std::vector<std::size_t> peer_out{};
  [[nodiscard]] std::array<const std::vector<std::size_t>*, kLinks> all() const {
    return {&h2d, &d2h, &peer_in, &peer_out};
  }
  [[nodiscard]] bool shares() const { return !(h2d.empty() && d2h.empty() && peer_in.empty() && peer_out.empty()); }
};

/// The copies that transfer at an instant; null: none.
using Transfers = std::array<const Copy*, kLinks>;
using Slowdowns = std::array<Slowdown, kLinks>;

/// The copies of one instance are up to four flows, one per stream, whose rates are shares of their own speed alone:
///
///   own link    of each stream, capacity 1: one copy uses all of it, however fast its mechanism is
///   duplex cap  of h2d and d2h, while both transfer: capacity 1 / CopySharing. The profile measures both directions
///               busy and neither half busy, so whatever the other direction moves, this is the cap
///   shared      links that others may cross, capacity in bytes/s: `gpus` times the copy's bytes / transfer
///   others      each flow of other traffic uses its share of the idle host link, on its own links and caps, and
///               divides a link evenly with the copy where both want more than there is
///
/// Flows on a shared link divide it evenly by bytes/s per GPU.
class CopyLinks {
 public:
  /// Links of its own, alone.
  explicit CopyLinks(const CopySharing& sharing = {});
  /// Also crosses `route` over links of the capacities `shared`, which must outlive it.
  CopyLinks(const CopySharing& sharing, CopyRoute route, std::span<const BytesPerSecond> shared);

  /// From now on, each flow of other traffic uses such a share of the idle links, (0, 1], to a millionth.
  void set_traffic(std::vector<double> shares);
  /// Such a copy will transfer. O(1), and O(shared links) when it is the fastest of its stream so far.
  void expect(const Copy& copy) {
    if (!contended_ && shares()) expect_on_shared(copy);
  }
  /// The expected copies may slow each other down on shared links. If not, only the two directions of the host link
  /// slow each other down.
  [[nodiscard]] bool contended() const { return contended_; }
  /// Nothing slows an expected copy down.
  [[nodiscard]] bool idle() const { return own_idle_ && !contended_; }
  [[nodiscard]] bool shares() const { return route_.shares(); }
  /// How much the transfers, all expected, slow each other down when no other instance copies. O(1) for transfers as
  /// lately.
  [[nodiscard]] Slowdowns alone(const Transfers& transfers);
  /// Adds the flows of the transfers to `all`, which starts with the shared links. Returns them; empty: none.
  using Flows = std::array<std::optional<FlowId>, kLinks>;
  Flows add_flows(Links& all, const Transfers& transfers) const;

 private:
  struct Demands {
    std::array<double, kLinks> rate{-1.0, -1.0, -1.0, -1.0};  // bytes/s; < 0: no transfer
  };
  static Demands demands_of(const Transfers& transfers);
  Flows add_flows(Links& all, const Demands& demands) const;
  [[nodiscard]] Slowdowns fill(const Demands& demands) const;
  void fill_own();
  void expect_on_shared(const Copy& copy);

  CopyRoute route_{};
  std::span<const BytesPerSecond> shared_{};
  std::array<double, 2> duplex_{1.0, 1.0};  // capacity of the caps
  std::vector<double> traffic_{};
  bool own_idle_ = true;
  Slowdowns lone_{};                   // without shared links, of one direction while the other rests
  Slowdowns duplexed_{};               // and of both
  std::array<double, kLinks> most_{};  // bytes/s of the fastest copy expected
  bool contended_ = false;
  /// Answers: copies of layers take turns with nothing, or with copies that return.
  struct Transfer {
    Bytes bytes{-1};  // < 0: none
    Duration transfer{};
    bool operator==(const Transfer&) const = default;
  };
  using Asked = std::array<Transfer, kLinks>;
  struct Known {
    Asked asked{};
    Slowdowns slowdowns{};
  };
  static constexpr std::size_t kMostKnown = 16;
  std::vector<Known> known_;  // the first ones, then in place of the oldest
  std::size_t oldest_ = 0;
};

/// Adds `capacities` to `links`, which is empty.
void add_shared_links(Links& links, std::span<const BytesPerSecond> capacities);

/// `model` as a plan sees it: copies take what the links give them when no other instance copies.
class PlannedCopies final : public ExecutionModel {
 public:
  /// Both must outlive it.
  PlannedCopies(const ExecutionModel& model, CopyRoute route, std::span<const BytesPerSecond> shared);

  [[nodiscard]] std::int32_t layers() const override { return model_.layers(); }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override { return model_.iteration(shape); }
  /// Of a copy while the other direction rests.
  [[nodiscard]] CopyTime copy(Stream direction, std::int64_t copies, Bytes bytes,
                              CopyMechanism mechanism) const override;
  [[nodiscard]] CpuAttentionTime cpu_attention(std::int64_t sequences, Tokens context) const override {
    return model_.cpu_attention(sequences, context);
  }
  /// Of long single copies: how much longer they take while both directions transfer.
  [[nodiscard]] CopySharing copy_sharing() const override;
  [[nodiscard]] std::vector<RangeUse> range_uses() const override { return model_.range_uses(); }

 private:
  [[nodiscard]] Copy copy_of(Stream direction, Bytes bytes, const CopyTime& time) const;

  const ExecutionModel& model_;
  mutable CopyLinks links_;  // remembers its answers
};

}  // namespace spillway
