// Max-min fair shares by bisection, in real numbers, and copies timed by them. It shares no code with sim/exec/.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/core/units.hpp"

namespace spillway::oracle {

using Real = long double;

struct PlainFlow {
  Real demand = 1;
  Real weight = 1;
};
struct PlainLink {
  Real capacity = 1;
  std::vector<std::pair<std::size_t, Real>> loads{};  // position of a flow, what its rate of 1 takes
};

/// Raises all flows together as far as every link carries them; those that cannot rise further keep their rates.
inline std::vector<Real> plain_max_min(const std::vector<PlainFlow>& flows, const std::vector<PlainLink>& links) {
  std::vector<Real> kept(flows.size(), -1);
  std::vector<Real> all(flows.size());
  const auto set_rates = [&](Real level) {
    for (std::size_t f = 0; f < flows.size(); ++f) {
      all[f] = kept[f] >= 0 ? kept[f] : std::min(flows[f].demand, level * flows[f].weight);
    }
  };
  const auto room = [&](const PlainLink& link) {
    Real left = link.capacity;
    for (const auto& [flow, load] : link.loads) left -= load * all[flow];
    return left / link.capacity;
  };
  constexpr Real kNothing = 1e-16L;
  while (std::ranges::count(kept, -1) > 0) {
    Real low = 0;
    Real high = 0;
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (kept[f] < 0) high = std::max(high, flows[f].demand / flows[f].weight);
    }
    const auto fits = [&](Real level) {
      set_rates(level);
      return std::ranges::all_of(links, [&](const PlainLink& link) { return room(link) >= -kNothing; });
    };
    if (fits(high)) low = high;
    for (int step = 0; step < 120 && low < high; ++step) {
      const Real middle = (low + high) / 2;
      (fits(middle) ? low : high) = middle;
    }
    set_rates(low);
    std::size_t stopped = 0;
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (kept[f] >= 0) continue;
      const bool full = std::ranges::any_of(links, [&](const PlainLink& link) {
        const bool crosses = std::ranges::any_of(link.loads, [f](const auto& load) { return load.first == f; });
        return crosses && room(link) < 1e-14L;
      });
      if (!full && all[f] < flows[f].demand * (1 - 1e-14L)) continue;
      kept[f] = all[f];
      ++stopped;
    }
    if (stopped == 0) throw std::logic_error("no flow stops");
  }
  return kept;
}

/// Ways of a copy: from the host, to it, from other GPUs, to them; and what the CPU reads.
inline constexpr std::size_t kWays = 5;
/// Bytes/s of a copy on each way, or its share of them; < 0: none moves.
using PlainRates = std::array<Real, kWays>;

/// A link of a server: how many GPUs of the group cross it on each way.
struct PlainTotal {
  double bytes_per_second = 0.0;
  std::array<std::int64_t, kWays> gpus{1, 1, 0, 0, 0};
};

/// What the copies of one group of GPUs cross.
struct PlainSurroundings {
  CopySharing sharing{};
  std::vector<PlainTotal> totals{};
  /// Shares that have been asked for: bisection is slow.
  using Asked = std::pair<std::vector<double>, PlainRates>;
  mutable std::map<Asked, PlainRates> known{};
};

inline PlainRates find_shares(const PlainSurroundings& around, const std::vector<double>& traffic,
                              const PlainRates& rates) {
  std::vector<PlainFlow> flows;
  std::vector<PlainLink> links;
  std::array<std::size_t, kWays> mine{};
  for (std::size_t way = 0; way < kWays; ++way) {
    if (rates[way] < 0) continue;
    const Real weight = rates[way] > 0 ? 1 / rates[way] : 1;
    mine[way] = flows.size();
    flows.push_back({1, weight});
    if (way >= 2) continue;  // only the host link has duplex caps and other traffic
    const Slowdown& duplex = way == 0 ? around.sharing.h2d : around.sharing.d2h;
    std::vector<Real> own{1};
    if (rates[1 - way] >= 0) own.push_back(static_cast<Real>(duplex.den) / static_cast<Real>(duplex.num));
    for (const Real capacity : own) {
      PlainLink link{capacity, {{mine[way], 1}}};
      for (const double share : traffic) {
        const Real left = std::floor((1.0 - share) * 1e6 + 0.5) / 1e6L;
        if (left >= 1) continue;
        link.loads.emplace_back(flows.size(), 1);
        flows.push_back({(1 - left) * capacity, weight});
      }
      links.push_back(link);
    }
  }
  for (const PlainTotal& total : around.totals) {
    PlainLink link{total.bytes_per_second};
    for (std::size_t way = 0; way < kWays; ++way) {
      if (rates[way] < 0 || total.gpus[way] == 0) continue;
      link.loads.emplace_back(mine[way], static_cast<Real>(total.gpus[way]) * rates[way]);
    }
    links.push_back(link);
  }
  const std::vector<Real> all = plain_max_min(flows, links);
  PlainRates shares{};
  for (std::size_t way = 0; way < kWays; ++way) shares[way] = rates[way] >= 0 ? all[mine[way]] : 1;
  return shares;
}

/// The shares of their own speed at which the group's copies move. `rates`: bytes/s of each alone. `traffic`: shares of
/// the idle host link that others use.
inline PlainRates plain_shares(const PlainSurroundings& around, const std::vector<double>& traffic, PlainRates rates) {
  for (Real& rate : rates) {
    if (around.totals.empty() && rate >= 0) rate = 1;  // own links carry any copy alike
  }
  const auto [at, missing] = around.known.try_emplace({traffic, rates});
  if (missing) at->second = find_shares(around, traffic, rates);
  return at->second;
}

/// Bytes/s of a copy alone. One that takes no time loads no total.
inline Real plain_rate(const Copy& copy) {
  if (copy.transfer == Duration{}) return 0;
  return static_cast<Real>(copy.bytes.count()) / static_cast<Real>(copy.transfer.count()) * 1e9L;
}

// Shares are fractions in these tests, so that results are whole, or clearly not.
inline constexpr Real kWhole = 1e-8L;
inline bool same_share(Real a, Real b) { return std::abs(a - b) <= 1e-12L * b; }
/// Whole nanoseconds of transfer done in `elapsed`.
inline Duration plain_done(Duration elapsed, Real share) {
  return Duration(static_cast<std::int64_t>(std::floor(static_cast<Real>(elapsed.count()) * share + kWhole)));
}
/// Nanoseconds that `left` of a transfer takes.
inline Duration plain_needed(Duration left, Real share) {
  return Duration(static_cast<std::int64_t>(std::ceil(static_cast<Real>(left.count()) / share - kWhole)));
}

}  // namespace spillway::oracle
