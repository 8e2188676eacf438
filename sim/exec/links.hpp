// Links that several flows share max-min fairly (PCIe switch, a server's total, host DRAM).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "sim/api/execution_model.hpp"

namespace spillway {

enum class LinkId : std::int32_t {};
enum class FlowId : std::int32_t {};

/// One link on a flow's way. A rate of 1 takes `load` of the link's capacity: a group of GPUs that copy the same at
/// once is one flow that takes as much as all of them. > 0, or 0 for a flow that the link does not limit.
struct Hop {
  LinkId link{};
  double load = 1.0;
};

/// What a flow asks for. Rates are in any unit; capacities are in that unit times the load.
struct FlowSpec {
  std::span<const Hop> route{};                             // different links
  double demand = std::numeric_limits<double>::infinity();  // its rate when nothing else flows; > 0
  double weight = 1.0;                                      // flows that share a link rise in these proportions; > 0
};

/// Links and the flows on them now. Says at which rate each flow moves:
///
///   set        C_l       capacity of link l               computed   r_f    rate of flow f
///   set        d_f, w_f  demand and weight of flow f
///   set        a_fl      load of flow f on link l
///   for all l  sum of a_fl r_f over the flows on l <= C_l;   for all f  r_f <= d_f
///   max-min    no r_f can grow without lowering an r_g with r_g / w_g <= r_f / w_f. Equivalently every f has
///              r_f = d_f, or its route has a link that is full and on which no flow has a larger r / w than f.
///
/// Progressive filling finds these rates. All r / w rise together from 0. A flow stops at its demand; all flows on a
/// link stop when the link is full; the other flows go on.
///
/// Example: links A of 10 and B of 4; f on {A}, g on {A, B}, h on {B} with a demand of 1; loads and weights 1. At level
/// 1 h stops at its demand. B has 3 left for g alone, A would be full at level 5: at level 3 B is full and g stops. A
/// has 7 left for f. Rates 7, 3, 1. Without h, g rises to 4 and f falls to 6.
///
/// fill() takes O(flows * (flows + links + hops)). Nothing is allocated once the buffers have grown.
class Links {
 public:
  /// `capacity` > 0.
  LinkId add_link(double capacity);
  FlowId add_flow(const FlowSpec& spec);
  /// Computes the rates of all flows.
  void fill();
  /// As of the last fill().
  [[nodiscard]] double rate(FlowId flow) const { return flows_[static_cast<std::size_t>(flow)].rate; }
  /// What the flows take of a link's capacity, as of the last fill().
  [[nodiscard]] double used(LinkId link) const {
    return links_[static_cast<std::size_t>(link)].capacity - links_[static_cast<std::size_t>(link)].left;
  }
  [[nodiscard]] std::size_t size() const { return links_.size(); }
  /// Removes all flows, and all links but the first `links`.
  void keep(std::size_t links);

 private:
  struct Link {
    double capacity = 0.0;
    // Progressive filling:
    double left = 0.0;    // capacity that no stopped flow uses
    double rising = 0.0;  // load times weight of the flows that have not stopped
    bool full = false;
  };
  struct Flow {
    std::size_t first = 0;  // of its hops
    std::size_t length = 0;
    double demand = 0.0;
    double weight = 0.0;
    double rate = 0.0;
    bool rising = false;
  };

  [[nodiscard]] Link& at(LinkId link) { return links_[static_cast<std::size_t>(link)]; }
  [[nodiscard]] std::span<const Hop> route(const Flow& flow) const {
    return std::span(hops_).subspan(flow.first, flow.length);
  }
  /// The next level at which a flow or a link stops, not below `level`; marks the links that are full there.
  [[nodiscard]] double next_level(double level);
  void stop(Flow& flow, double rate);

  std::vector<Link> links_{};
  std::vector<Flow> flows_{};
  std::vector<Hop> hops_{};  // of all flows, in order
};

/// How many times as long as alone a flow takes that gets `share`, 0 < share <= 1, of its rate alone: the simplest
/// fraction that is 1 / share to within 2^-48 of it, or to within the first of 2^-47, 2^-46, ... where terms below 2^31
/// suffice; from 2^14 on to within 2^-31. A share that is itself a simple
/// fraction, such as one of a millionth's multiples, is met exactly, however it was rounded on the way.
[[nodiscard]] Slowdown slowdown_at(double share);

}  // namespace spillway
