#include "sim/kv/block_store.hpp"

#include <bit>
#include <string>

#include "sim/core/error.hpp"

namespace spillway {

CachedBlocks::CachedBlocks(Blocks total, Blocks most, Reuse reuse) : total_(total) {
  const auto count = static_cast<std::size_t>(most.count());
  blocks_.resize(count);
  if (reuse == Reuse::smallest_value) {
    order_.emplace(count);
    hits_.resize(count);
  }
  table_.assign(std::bit_ceil(2 * count + 1), -1);
  mask_ = table_.size() - 1;
  for (std::int64_t i = 0; i < total.count(); ++i) append(static_cast<std::int32_t>(i));
  for (std::int64_t i = most.count(); i-- > total.count();) absent_.push_back(static_cast<std::int32_t>(i));
}

void CachedBlocks::resize(Blocks total) {
  for (; total_ < total; total_ += Blocks(1)) {
    if (surplus_ > Blocks(0)) {
      surplus_ -= Blocks(1);
      continue;
    }
    SPILLWAY_CHECK(!absent_.empty(), "more blocks than the pool may have");
    prepend(absent_.back());
    absent_.pop_back();
  }
  surplus_ += total_ - total;
  total_ = total;
  drop_surplus();
}

void CachedBlocks::drop_surplus() {
  for (; surplus_ > Blocks(0) && first_free() >= 0; surplus_ -= Blocks(1)) {
    const std::int32_t block = first_free();
    take(block);
    forget(block);
    absent_.push_back(block);
  }
}

void CachedBlocks::forget_free() {
  while (order_ && !order_->empty()) {
    const std::int32_t block = order_->first();
    take(block);
    append(block);
  }
  for (std::int32_t block = head_; block >= 0; block = blocks_[index(block)].next) forget(block);
}

std::int32_t CachedBlocks::find(BlockHash hash) const {
  for (std::size_t at = home(hash); table_[at] >= 0; at = (at + 1) & mask_) {
    if (blocks_[index(table_[at])].hash == hash) return table_[at];
  }
  return -1;
}

std::int32_t CachedBlocks::allocate() {
  const std::int32_t block = first_free();
  SPILLWAY_CHECK(block >= 0, "no free block");
  take(block);
  forget(block);
  blocks_[index(block)].users = 1;
  return block;
}

void CachedBlocks::share(std::int32_t block) {
  if (blocks_[index(block)].users++ == 0) take(block);
  if (order_) ++hits_[index(block)];
}

bool CachedBlocks::leave(std::int32_t block) {
  SPILLWAY_CHECK(blocks_[index(block)].users > 0, "block " + std::to_string(block) + " freed twice");
  return --blocks_[index(block)].users == 0;
}

void CachedBlocks::release(std::int32_t block) {
  if (!leave(block)) return;
  append(block);
  drop_surplus();
}

void CachedBlocks::release_ordered(std::int32_t block, double value) {
  static_cast<void>(leave(block));
  order_->add(block, value);
  ++free_count_;
  drop_surplus();
}

std::int32_t CachedBlocks::first_free() const {
  return head_ < 0 && order_ && !order_->empty() ? order_->first() : head_;
}

void CachedBlocks::take(std::int32_t block) {
  if (!order_ || !order_->contains(block)) return unlink(block);
  order_->remove(block);
  --free_count_;
}

void CachedBlocks::name(std::int32_t block, BlockHash hash) {
  std::size_t at = home(hash);
  while (table_[at] >= 0) {
    if (blocks_[index(table_[at])].hash == hash) return;
    at = (at + 1) & mask_;
  }
  table_[at] = block;
  blocks_[index(block)].hash = hash;
  blocks_[index(block)].named = true;
  if (order_) hits_[index(block)] = 0;
}

void CachedBlocks::unlink(std::int32_t block) {
  const Block& b = blocks_[index(block)];
  (b.prev >= 0 ? blocks_[index(b.prev)].next : head_) = b.next;
  (b.next >= 0 ? blocks_[index(b.next)].prev : tail_) = b.prev;
  --free_count_;
}

void CachedBlocks::append(std::int32_t block) {
  Block& b = blocks_[index(block)];
  b.prev = tail_;
  b.next = -1;
  (tail_ >= 0 ? blocks_[index(tail_)].next : head_) = block;
  tail_ = block;
  ++free_count_;
}

void CachedBlocks::prepend(std::int32_t block) {
  Block& b = blocks_[index(block)];
  b.prev = -1;
  b.next = head_;
  (head_ >= 0 ? blocks_[index(head_)].prev : tail_) = block;
  head_ = block;
  ++free_count_;
}

void CachedBlocks::forget(std::int32_t block) {
  Block& b = blocks_[index(block)];
  if (!b.named) return;
  b.named = false;
  std::size_t hole = home(b.hash);
  while (table_[hole] != block) hole = (hole + 1) & mask_;
  // Linear probing without tombstones: an entry behind the hole moves up unless its home lies behind the hole.
  for (std::size_t at = (hole + 1) & mask_; table_[at] >= 0; at = (at + 1) & mask_) {
    const std::size_t distance = (at - home(blocks_[index(table_[at])].hash)) & mask_;
    if (distance >= ((at - hole) & mask_)) {
      table_[hole] = table_[at];
      hole = at;
    }
  }
  table_[hole] = -1;
}

}  // namespace spillway
