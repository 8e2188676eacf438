// Links that several flows share max-min fairly (PCIe switch, NVLink port, host DRAM).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "sim/core/units.hpp"

namespace spillway {

enum class LinkId : std::int32_t {};
enum class FlowId : std::int64_t {};  // grows with every flow; never used twice

inline constexpr std::size_t kMaxRoute = 4;

/// What a flow moves, and over which links: all of them at once, at one rate.
struct FlowSpec {
  std::span<const LinkId> route{};                              // 1 to kMaxRoute different links
  Bytes bytes{};                                                // >= 0
  Duration launch{};                                            // >= 0; takes no bandwidth
  BytesPerSecond cap{std::numeric_limits<double>::infinity()};  // the flow's own limit; > 0
};

struct FinishedFlow {
  FlowId id{};
  SimTime time{};
};

/// Links and the flows on them. A flow launches, then moves its bytes at its max-min fair rate:
///
///   set        C_l     capacity of link l               computed   r_f    rate of flow f that has launched
///   set        c_f     cap of flow f
///   for all l  sum of r_f over the flows on l <= C_l;   for all f  r_f <= c_f
///   max-min    no r_f can grow without lowering an r_g <= r_f. Equivalently every f has r_f = c_f, or its route has a
///              link that is full and on which no flow is faster than f.
///
/// Progressive filling finds these rates. All rates rise together from 0. A flow stops at its cap; all flows on a link
/// stop when the link is full; the other flows go on.
///
/// Example: links A of 10 B/s and B of 4 B/s; f on {A}, g on {A, B}, h on {B} with a cap of 1 B/s. At level 1 h stops
/// at its cap. B has 3 left for g alone, A would be full at level 5: at level 3 B is full and g stops. A has 7 left for
/// f. Rates 7, 3, 1. When h ends, g rises to 4 and f falls to 6.
///
/// Bytes are integers. When a flow's rate changes at t, the floor(r_f * elapsed) bytes since its last change are booked
/// as moved, and its finish becomes t + round_seconds(rest / r_f). While its rate stays, neither changes. So a flow
/// that is alone ends at exactly start + launch + round_seconds(bytes / min(c_f, C_l)), and every flow moves all its
/// bytes.
///
/// Rates are recomputed only when a launch or a transfer ends, in O(flows * (flows + links)). Nothing is allocated once
/// the buffers have grown to the largest number of flows.
class Links {
 public:
  LinkId add_link(BytesPerSecond capacity);

  /// Starts a flow at `now`, which is neither before the `now` of the last call nor after next_event(). The flow gets
  /// its share when advance() reaches the end of its launch, also when that is `now` itself. O(1).
  FlowId start_flow(SimTime now, const FlowSpec& spec);
  /// When the next launch or transfer ends; kNever without flows.
  [[nodiscard]] SimTime next_event() const { return next_event_; }
  /// Goes on to `now`. Returns the flows that ended meanwhile, by time and then id; valid until the next call.
  std::span<const FinishedFlow> advance(SimTime now);

  /// Rate of a live flow; 0 while it launches.
  [[nodiscard]] BytesPerSecond rate(FlowId id) const { return BytesPerSecond(find(id).rate); }
  /// End of a live flow if no other flow starts or ends earlier; while it launches, as if it were alone.
  [[nodiscard]] SimTime finish(FlowId id) const { return find(id).finish; }
  /// Bytes booked on a link: all bytes of its ended flows, and those of live flows up to their last change of rate.
  [[nodiscard]] Bytes moved(LinkId link) const { return links_[static_cast<std::size_t>(link)].moved; }

 private:
  struct Link {
    double capacity = 0.0;
    Bytes moved{};
    // Progressive filling:
    double left = 0.0;  // capacity that no stopped flow uses
    int rising = 0;     // flows that have not stopped
    bool full = false;
  };
  struct Flow {
    FlowId id{};
    std::array<LinkId, kMaxRoute> links{};
    std::size_t hops = 0;
    double cap = 0.0;
    bool launching = false;
    SimTime since{};  // end of the launch, or the last change of rate
    Bytes rest{};     // bytes left then
    double rate = 0.0;
    SimTime finish{};
    // Progressive filling:
    double new_rate = 0.0;
    bool rising = false;

    [[nodiscard]] std::span<const LinkId> route() const { return std::span(links).first(hops); }
    /// Its next event: the end of its launch, or its finish.
    [[nodiscard]] SimTime next() const { return launching ? since : finish; }
  };

  [[nodiscard]] const Flow& find(FlowId id) const;
  Link& link(LinkId id) { return links_[static_cast<std::size_t>(id)]; }
  void handle_events_at(SimTime now);
  void book(const Flow& flow, Bytes bytes);
  void share(SimTime now);
  void fill();

  std::vector<Link> links_{};
  std::vector<Flow> flows_{};  // live, by id
  std::vector<FinishedFlow> finished_{};
  std::int64_t next_id_ = 0;
  SimTime now_{};
  SimTime next_event_ = kNever;
};

}  // namespace spillway
