#include "sim/exec/links.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "sim/core/error.hpp"

namespace spillway {

LinkId Links::add_link(BytesPerSecond capacity) {
  SPILLWAY_CHECK(capacity.value() > 0.0, "a link needs a capacity above 0");
  links_.push_back({.capacity = capacity.value()});
  return static_cast<LinkId>(links_.size() - 1);
}

FlowId Links::start_flow(SimTime now, const FlowSpec& spec) {
  SPILLWAY_CHECK(now_ <= now && now <= next_event_,
                 "a flow starts at " + std::to_string(now.ns()) + " ns, before the last call or after the next event");
  SPILLWAY_CHECK(!spec.route.empty() && spec.route.size() <= kMaxRoute, "a route has 1 to kMaxRoute links");
  SPILLWAY_CHECK(spec.bytes >= Bytes{} && spec.launch >= Duration{} && spec.cap.value() > 0.0,
                 "a flow has bytes and launch >= 0 and a cap above 0");
  now_ = now;
  Flow flow{.id = static_cast<FlowId>(next_id_++),
            .hops = spec.route.size(),
            .cap = spec.cap.value(),
            .launching = true,
            .since = now + spec.launch,
            .rest = spec.bytes};
  std::ranges::copy(spec.route, flow.links.begin());
  double alone = flow.cap;
  for (const LinkId id : flow.route()) alone = std::min(alone, link(id).capacity);
  flow.finish = flow.since + round_seconds(flow.rest / BytesPerSecond(alone));
  flows_.push_back(flow);
  next_event_ = std::min(next_event_, flow.since);
  return flow.id;
}

std::span<const FinishedFlow> Links::advance(SimTime now) {
  SPILLWAY_CHECK(now_ <= now, "time runs back from " + std::to_string(now_.ns()) + " ns");
  finished_.clear();
  while (next_event_ <= now && next_event_ != kNever) handle_events_at(next_event_);
  now_ = now;
  return finished_;
}

void Links::handle_events_at(SimTime now) {
  for (Flow& flow : flows_) {
    if (!flow.launching || flow.since != now) continue;
    flow.launching = false;
    flow.finish = flow.rest == Bytes{} ? now : kNever;
  }
  const auto ends = [now](const Flow& flow) { return !flow.launching && flow.finish == now; };
  for (const Flow& flow : flows_) {
    if (!ends(flow)) continue;
    book(flow, flow.rest);
    finished_.push_back({flow.id, now});
  }
  std::erase_if(flows_, ends);
  share(now);
  next_event_ = kNever;
  for (const Flow& flow : flows_) next_event_ = std::min(next_event_, flow.next());
}

void Links::book(const Flow& flow, Bytes bytes) {
  for (const LinkId id : flow.route()) link(id).moved += bytes;
}

// Gives every flow that has launched its fair rate from `now` on.
void Links::share(SimTime now) {
  fill();
  for (Flow& flow : flows_) {
    if (flow.launching || flow.new_rate == flow.rate) continue;
    const auto elapsed = static_cast<double>((now - flow.since).count());
    const Bytes moved(static_cast<std::int64_t>(std::floor(flow.rate * elapsed / 1e9)));
    const Bytes booked = std::min(moved, flow.rest);
    book(flow, booked);
    flow.rest -= booked;
    flow.since = now;
    flow.rate = flow.new_rate;
    flow.finish = now + round_seconds(flow.rest / BytesPerSecond(flow.rate));
  }
}

// Progressive filling. All full links are found before any flow stops, so that equal flows get the same bits.
void Links::fill() {
  for (Link& link : links_) {
    link.left = link.capacity;
    link.rising = 0;
  }
  std::size_t rising = 0;
  for (Flow& flow : flows_) {
    flow.rising = !flow.launching;
    if (!flow.rising) continue;
    ++rising;
    for (const LinkId id : flow.route()) ++link(id).rising;
  }
  for (double level = 0.0; rising > 0;) {
    // Apart from rounding, the level at which a link is full only grows as flows stop.
    const auto full_at = [floor = level](const Link& link) { return std::max(floor, link.left / link.rising); };
    double next = std::numeric_limits<double>::infinity();
    for (const Link& link : links_) {
      if (link.rising > 0) next = std::min(next, full_at(link));
    }
    for (const Flow& flow : flows_) {
      if (flow.rising) next = std::min(next, flow.cap);
    }
    for (Link& link : links_) link.full = link.rising > 0 && full_at(link) <= next;
    level = next;
    for (Flow& flow : flows_) {
      const auto full = [this](LinkId id) { return link(id).full; };
      if (!flow.rising || (flow.cap > level && std::ranges::none_of(flow.route(), full))) continue;
      flow.rising = false;
      flow.new_rate = level;
      --rising;
      for (const LinkId id : flow.route()) {
        link(id).left -= level;
        --link(id).rising;
      }
    }
  }
}

const Links::Flow& Links::find(FlowId id) const {
  const auto at = std::ranges::lower_bound(flows_, id, {}, &Flow::id);
  SPILLWAY_CHECK(at != flows_.end() && at->id == id,
                 "no live flow has the id " + std::to_string(static_cast<std::int64_t>(id)));
  return *at;
}

}  // namespace spillway
