#include "sim/kv/block_order.hpp"

#include <utility>

namespace spillway {

void BlockOrder::add(std::int32_t block, double value) {
  entry(block).value = value;
  entry(block).added = added_++;
  heap_.push_back(block);
  rise(heap_.size() - 1);
}

void BlockOrder::remove(std::int32_t block) {
  const auto hole = static_cast<std::size_t>(std::exchange(entry(block).at, -1));
  const std::int32_t last = heap_.back();
  heap_.pop_back();
  if (last == block) return;
  // The last block fills the hole, and belongs above or below it.
  put(hole, last);
  rise(hole);
  sink(static_cast<std::size_t>(entry(last).at));
}

bool BlockOrder::before(std::int32_t a, std::int32_t b) const {
  if (entry(a).value != entry(b).value) return entry(a).value < entry(b).value;
  return entry(a).added < entry(b).added;
}

void BlockOrder::put(std::size_t at, std::int32_t block) {
  heap_[at] = block;
  entry(block).at = static_cast<std::int32_t>(at);
}

void BlockOrder::rise(std::size_t at) {
  const std::int32_t block = heap_[at];
  for (; at > 0 && before(block, heap_[(at - 1) / 2]); at = (at - 1) / 2) put(at, heap_[(at - 1) / 2]);
  put(at, block);
}

void BlockOrder::sink(std::size_t at) {
  const std::int32_t block = heap_[at];
  for (std::size_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
    if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) ++child;
    if (!before(heap_[child], block)) break;
    put(at, heap_[child]);
    at = child;
  }
  put(at, block);
}

}  // namespace spillway
