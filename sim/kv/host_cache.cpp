#include "sim/kv/host_cache.hpp"

#include <utility>

#include "sim/error.hpp"

namespace spillway {

bool HostCache::holds(BlockHash hash) const {
  const auto& by_content = entries_.get<1>();
  const auto found = by_content.find(hash);
  return found != by_content.end() && found->there;
}

void HostCache::touch(BlockHash hash) {
  const auto found = entries_.get<1>().find(hash);
  if (found != entries_.get<1>().end()) entries_.relocate(entries_.end(), entries_.project<0>(found));
}

void HostCache::store(BlockHash hash) {
  if (entries_.get<1>().count(hash) > 0) return touch(hash);
  if (static_cast<std::int64_t>(entries_.size()) >= capacity_.count()) {
    if (!entries_.front().there) return;
    entries_.pop_front();
  }
  entries_.push_back(Entry{hash, false});
  on_the_way_.push_back(hash);
  ++put_down_;
}

Blocks HostCache::take_stores() {
  if (put_down_ > 0) copies_.push_back(put_down_);
  return Blocks(std::exchange(put_down_, 0));
}

void HostCache::stored() {
  SPILLWAY_CHECK(!copies_.empty(), "a copy to the host cache ended that was never begun");
  for (std::int64_t left = copies_.front(); left > 0; --left) {
    auto& by_content = entries_.get<1>();
    by_content.modify(by_content.find(on_the_way_.front()), [](Entry& entry) { entry.there = true; });
    on_the_way_.pop_front();
  }
  copies_.pop_front();
}

}  // namespace spillway
