// The links that the copies of one instance cross, and how much they slow the copies down.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/api/layer_rule.hpp"
#include "sim/api/link_crossing.hpp"
#include "sim/core/units.hpp"
#include "sim/exec/links.hpp"

namespace spillway {

/// Streams whose copies cross links: h2d, d2h, peer_in, peer_out, cpu, in this order wherever there is a value for
/// each.
inline constexpr std::size_t kLinks = 5;

/// How the copies of an instance reach the host and other GPUs: the instance has links of its own, and crosses some
/// that others may cross, too. Crossings are those of its tensor-parallel group, in the list of shared links; a stream
/// crosses a link at most once.
struct CopyRoute {
  std::vector<LinkCrossing> h2d{};
  std::vector<LinkCrossing> d2h{};
  std::vector<LinkCrossing> peer_in{};
  std::vector<LinkCrossing> peer_out{};
  std::vector<LinkCrossing> cpu{};  // what the CPU reads: of the host's memory; empty: nothing slows it down
  [[nodiscard]] std::array<const std::vector<LinkCrossing>*, kLinks> all() const {
    return {&h2d, &d2h, &peer_in, &peer_out, &cpu};
  }
  [[nodiscard]] std::array<std::vector<LinkCrossing>*, kLinks> all() { return {&h2d, &d2h, &peer_in, &peer_out, &cpu}; }
  [[nodiscard]] bool shares() const {
    return std::ranges::any_of(all(), [](const auto* crossings) { return !crossings->empty(); });
  }
};

/// The copies that transfer at an instant; null: none.
using Transfers = std::array<const Copy*, kLinks>;
using Slowdowns = std::array<Slowdown, kLinks>;
/// All that shares depend on of a copy that transfers. Bytes and time say as much as the rate, and need no division.
struct TransferSize {
  Bytes bytes{-1};  // < 0: none
  Duration transfer{};
  bool operator==(const TransferSize&) const = default;
};
using TransferSizes = std::array<TransferSize, kLinks>;
[[nodiscard]] TransferSizes sizes_of(const Transfers& transfers);

/// The copies of one instance are up to five flows, one per stream, whose rates are shares of their own speed alone:
///
///   own link    of each stream, capacity 1: one copy uses all of it, however fast its mechanism is
///   duplex cap  of h2d and d2h, while both transfer: capacity 1 / CopySharing. The profile measures both directions
///               busy and neither half busy, so whatever the other direction moves, this is the cap
///   shared      links that others may cross, capacity in bytes/s: `gpus` of the crossing times the copy's bytes /
///               transfer
///   others      each flow of other traffic uses its share of the idle host link, on its own links and caps, and
///               divides a link evenly with the copy where both want more than there is
///
/// Flows on a shared link divide it evenly by bytes/s per GPU. The copies of a group's GPUs keep step, so the fullest
/// link that one of them crosses slows all of them down.
class CopyLinks {
 public:
  /// Links of its own, alone.
  explicit CopyLinks(const CopySharing& sharing = {});
  /// Also crosses `route` over links of the capacities `shared`, which must outlive it.
  CopyLinks(const CopySharing& sharing, CopyRoute route, std::span<const BytesPerSecond> shared);

  /// From now on, each flow of other traffic uses such a share of the idle links, (0, 1], to a millionth.
  void set_traffic(std::vector<double> shares);
  /// How often that has been set.
  [[nodiscard]] std::int64_t traffic_changes() const { return traffic_changes_; }
  /// Such a copy will transfer. O(1), and O(shared links + crossings) when it is the fastest of its stream so far.
  void expect(const Copy& copy) {
    if (shares() && (!contended_ || fits_alone_)) expect_on_shared(copy);
  }
  /// The expected copies may slow each other down on shared links. If not, only the two directions of the host link
  /// slow each other down.
  [[nodiscard]] bool contended() const { return contended_; }
  /// Nothing slows an expected copy down.
  [[nodiscard]] bool idle() const { return own_idle_ && !contended_; }
  /// Nothing slows an expected copy down while no other transfers.
  [[nodiscard]] bool free_alone() const { return fits_alone_ && traffic_.empty(); }
  [[nodiscard]] bool shares() const { return shares_; }
  /// The streams that links may slow down are the first ones of kLinks.
  [[nodiscard]] std::size_t streams() const { return streams_; }
  /// How much the two directions of the host link slow each other down: `both` transfer, or one.
  [[nodiscard]] const Slowdowns& on_host_link(bool both) const { return both ? duplexed_ : lone_; }
  /// Every copy at the speed that it has alone on idle links.
  static constexpr Slowdowns kUnslowed{};
  /// How much the transfers, all expected, slow each other down when no other instance copies. Once links are
  /// contended: kUnslowed itself if nothing transfers, or one copy that nothing slows down when it is alone. Valid
  /// until the next call. O(1) for transfers as lately.
  [[nodiscard]] const Slowdowns& alone(const Transfers& transfers) {
    if (contended_) return alone_on_shared(transfers);
    return on_host_link(transfers[0] != nullptr && transfers[1] != nullptr);
  }
  /// Adds the flows of the transfers to `all`, which starts with the shared links. Returns them; empty: none.
  /// `places`: where the shared links are among those of `all`; empty: in this order.
  using Flows = std::array<std::optional<FlowId>, kLinks>;
  Flows add_flows(Links& all, const TransferSizes& transfers, std::span<const std::size_t> places = {}) const;

 private:
  struct Demands {
    std::array<double, kLinks> rate{-1.0, -1.0, -1.0, -1.0, -1.0};  // bytes/s; < 0: no transfer
  };
  static Demands demands_of(const TransferSizes& transfers);
  Flows add_flows(Links& all, const Demands& demands, std::span<const std::size_t> places = {}) const;
  [[nodiscard]] Slowdowns fill(const Demands& demands) const;
  void fill_own();
  [[nodiscard]] const Slowdowns& alone_on_shared(const Transfers& transfers);
  void expect_on_shared(const Copy& copy);

  CopyRoute route_{};
  std::size_t streams_;  // see streams()
  bool shares_ = false;  // it crosses shared links
  std::span<const BytesPerSecond> shared_{};
  std::array<double, 2> duplex_{1.0, 1.0};  // capacity of the caps
  std::vector<double> traffic_{};
  std::int64_t traffic_changes_ = 0;
  bool own_idle_ = true;
  Slowdowns lone_{};                         // without shared links, of one direction while the other rests
  Slowdowns duplexed_{};                     // and of both
  std::array<double, kLinks> most_{};        // bytes/s of the fastest copy expected
  std::array<TransferSizes, 2> expected_{};  // by lane, two sizes of late: they often take turns
  bool contended_ = false;
  bool fits_alone_ = true;  // on every shared link, the fastest copy of any one stream
  /// The slowdowns of one set of transfers. They are kept: copies of layers take turns with nothing, or with copies
  /// that return.
  struct Answer {
    std::int64_t sum = 0;  // of what was asked
    TransferSizes asked{};
    Slowdowns slowdowns{};
  };
  static constexpr std::size_t kMostAnswers = 16;
  std::vector<Answer> answers_;  // the first ones, then in place of the oldest
  std::size_t oldest_ = 0;
  std::size_t next_answer_ = 0;  // where to look first: sets come in the same order again and again
};

/// Adds `capacities` to `links`, which is empty.
void add_shared_links(Links& links, std::span<const BytesPerSecond> capacities);

/// `model` as a plan sees it: copies take what the links give them when no other instance copies.
class PlannedCopies final : public ExecutionModel {
 public:
  /// Both must outlive it.
  PlannedCopies(const ExecutionModel& model, CopyRoute route, std::span<const BytesPerSecond> shared);

  [[nodiscard]] std::int32_t layers() const override { return model_.layers(); }
  [[nodiscard]] const LayerKinds& layer_kinds() const override { return model_.layer_kinds(); }
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
