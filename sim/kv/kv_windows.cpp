#include "sim/kv/kv_windows.hpp"

#include <utility>

namespace spillway {
namespace {

std::size_t place(std::int64_t step, const std::vector<std::int64_t>& ring) {
  const auto size = static_cast<std::int64_t>(ring.size());
  const std::int64_t left = step % size;
  return static_cast<std::size_t>(left < 0 ? left + size : left);
}

}  // namespace

KvWindows::KvWindows(const KvWindow& window, Tokens block)
    : window_(window),
      block_(block),
      first_((window.tokens - Tokens(1) + block).count()),
      passing_(static_cast<std::size_t>(block.count())),
      pending_(static_cast<std::size_t>(first_) + 1) {}

std::int64_t& KvWindows::drops(Tokens computed) {
  const std::int64_t step = steps_ + first_ - computed.count();  // when it passes its first block, perhaps long ago
  return computed.count() >= first_ ? passing_[place(step, passing_)] : pending_[place(step, pending_)];
}

void KvWindows::step() {
  ++steps_;
  std::int64_t& passing = passing_[place(steps_, passing_)];
  passing += std::exchange(pending_[place(steps_, pending_)], 0);
  passed_ += Blocks(passing);
}

Blocks KvWindows::take_freed() {
  const Blocks freed = window_.freed(passed_);
  return freed - std::exchange(told_, freed);
}

}  // namespace spillway
