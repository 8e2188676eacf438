#include "sim/engine/handover.hpp"

#include <algorithm>
#include <optional>

#include "sim/exec/copy_links.hpp"

namespace spillway {

KvTransfers::KvTransfers(std::span<const BytesPerSecond> links, std::int64_t gpus, bool beside_copies)
    : gpus_(static_cast<double>(gpus)), beside_copies_(beside_copies) {
  add_shared_links(links_, links);
  shared_ = links_.size();
  moved_.resize(shared_);
}

void KvTransfers::start(std::uint32_t serial, const HandoverPath& path, Duration transfer, SimTime now) {
  Transfer& one = under_way_.emplace_back();
  one.serial = serial;
  one.path = path;
  one.transfer = transfer;
  one.stream.issue({.stream = Stream::peer_in, .launch = path.launch, .transfer = transfer}, now);
  one.launched = path.launch == Duration{};
  change(now);
}

void KvTransfers::cancel(std::uint32_t serial, SimTime now) {
  const std::size_t before = under_way_.size();
  std::erase_if(under_way_, [serial](const Transfer& one) { return one.serial == serial; });
  if (under_way_.size() < before) change(now);
}

bool KvTransfers::moves() const {
  return std::ranges::any_of(under_way_, [](const Transfer& one) { return one.launched; });
}

void KvTransfers::change(SimTime now) {
  if (beside_copies_) {
    due_ = true;
  } else {
    share(now);
  }
}

SimTime KvTransfers::next() const {
  SimTime next = kNever;
  for (const Transfer& one : under_way_) {
    next = std::min(next, one.launched ? one.stream.finish() : one.stream.launched());
  }
  return next;
}

std::vector<std::uint32_t> KvTransfers::collect(SimTime now, bool measured) {
  std::vector<std::uint32_t> ended;
  for (Transfer& one : under_way_) {
    one.launched = one.launched || one.stream.launched() <= now;
    if (!one.launched || one.stream.finish() > now) continue;
    ended.push_back(one.serial);
    if (!measured) continue;
    const double bytes = one.path.bandwidth.value() * to_seconds(one.transfer);
    for (const auto& [link, share] : one.path.crossings) moved_[link] += share * bytes;
  }
  std::erase_if(under_way_, [now](const Transfer& one) { return one.launched && one.stream.finish() <= now; });
  change(now);
  return ended;
}

void KvTransfers::share(SimTime now, const std::function<void(Links&)>& add_others,
                        const std::function<void(const Links&)>& hear) {
  due_ = false;
  std::vector<std::optional<FlowId>> flows;
  for (const Transfer& one : under_way_) {
    if (!one.launched) {
      flows.emplace_back();
      continue;
    }
    const double rate = one.path.bandwidth.value();
    std::vector<Hop> route;
    for (const auto& [link, share] : one.path.crossings) route.push_back({static_cast<LinkId>(link), share * rate});
    // As copies do, it rises by bytes/s per GPU.
    const double weight = (add_others ? gpus_ : 1.0) / rate;
    flows.emplace_back(links_.add_flow({.route = route, .demand = 1.0, .weight = weight}));
  }
  if (add_others) add_others(links_);
  links_.fill();
  if (hear) hear(links_);
  for (std::size_t i = 0; i < flows.size(); ++i) {
    if (flows[i]) under_way_[i].stream.set_slowdown(slowdown_at(links_.rate(*flows[i])), now);
  }
  links_.keep(shared_);
}

}  // namespace spillway
