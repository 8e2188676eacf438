#include "sim/exec/links.hpp"

#include <algorithm>
#include <cmath>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

/// The simplest fraction in [a / b, c / d], 1 <= a / b.
Slowdown simplest_between(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  const std::int64_t whole = (a - 1) / b + 1;
  if (whole <= c / d) return {whole, 1};
  // Both ends lie between whole - 1 and whole: their distances from the former, turned upside down.
  const std::int64_t below = whole - 1;
  const Slowdown rest = simplest_between(d, c - below * d, b, a - below * b);
  return {below * rest.num + rest.den, rest.num};
}

}  // namespace

LinkId Links::add_link(double capacity) {
  SPILLWAY_CHECK(capacity > 0.0, "a link needs a capacity above 0");
  links_.push_back({.capacity = capacity});
  return static_cast<LinkId>(links_.size() - 1);
}

FlowId Links::add_flow(const FlowSpec& spec) {
  SPILLWAY_CHECK(spec.demand > 0.0 && spec.weight > 0.0, "a flow has a demand and a weight above 0");
  Flow& flow = flows_.emplace_back();
  flow.first = hops_.size();
  flow.length = spec.route.size();
  flow.demand = spec.demand;
  flow.weight = spec.weight;
  hops_.insert(hops_.end(), spec.route.begin(), spec.route.end());
  SPILLWAY_CHECK(flow.length > 0 || std::isfinite(flow.demand), "nothing limits a flow");
  return static_cast<FlowId>(flows_.size() - 1);
}

void Links::keep(std::size_t links) {
  flows_.clear();
  hops_.clear();
  links_.resize(links);
}

void Links::fill() {
  for (Link& link : links_) link.left = link.capacity;
  for (Flow& flow : flows_) flow.rising = true;
  // All full links are found before any flow stops, so that equal flows get the same bits.
  double level = 0.0;
  for (std::size_t rising = flows_.size(); rising > 0;) {
    level = next_level(level);
    for (Flow& flow : flows_) {
      if (!flow.rising) continue;
      const auto is_full = [this](const Hop& hop) { return hop.load > 0.0 && at(hop.link).full; };
      const bool full = std::ranges::any_of(route(flow), is_full);
      const bool served = flow.demand / flow.weight <= level;
      if (!full && !served) continue;
      stop(flow, served ? flow.demand : level * flow.weight);
      --rising;
    }
  }
}

double Links::next_level(double level) {
  for (Link& link : links_) link.rising = 0.0;
  for (const Flow& flow : flows_) {
    if (!flow.rising) continue;
    for (const Hop& hop : route(flow)) at(hop.link).rising += hop.load * flow.weight;
  }
  // Apart from rounding, the level at which a link is full only grows as flows stop.
  const auto full_at = [level](const Link& link) {
    return link.rising > 0.0 ? std::max(level, link.left / link.rising) : std::numeric_limits<double>::infinity();
  };
  double next = std::numeric_limits<double>::infinity();
  for (const Link& link : links_) next = std::min(next, full_at(link));
  for (const Flow& flow : flows_) {
    if (flow.rising) next = std::min(next, flow.demand / flow.weight);
  }
  for (Link& link : links_) link.full = full_at(link) <= next;
  return next;
}

void Links::stop(Flow& flow, double rate) {
  flow.rising = false;
  flow.rate = rate;
  for (const Hop& hop : route(flow)) at(hop.link).left -= hop.load * rate;
}

Slowdown slowdown_at(double share) {
  SPILLWAY_CHECK(0.0 < share && share <= 1.0 + 1e-9, "a share is above 0 and at most 1");
  constexpr std::int64_t kUlps = 32;         // 2^-48 of the value, at least
  constexpr double kMost = (1U << 31U) - 1;  // that a Slowdown holds
  constexpr double kSimplest = 1 << 14;      // beyond it the simplest fraction may hold more
  const double times = std::clamp(1.0 / share, 1.0, kMost);
  if (times >= kSimplest) {
    const double den = std::floor(kMost / times);
    return {std::llround(times * den), static_cast<std::int64_t>(den)};
  }
  int exponent = 0;
  const auto mantissa = static_cast<std::int64_t>(std::ldexp(std::frexp(times, &exponent), 53));
  const std::int64_t one = std::int64_t{1} << (53 - exponent);
  for (std::int64_t ulps = kUlps;; ulps *= 2) {
    const Slowdown simplest = simplest_between(std::max(one, mantissa - ulps), one, mantissa + ulps, one);
    if (real(simplest.num) <= kMost) return simplest;
  }
}

}  // namespace spillway
