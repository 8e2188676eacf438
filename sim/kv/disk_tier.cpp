#include "sim/kv/disk_tier.hpp"

#include <algorithm>
#include <string>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

// A transfer takes no longer than the longest run, 1000 days, so its nanoseconds times the depth fit 64 bits.
constexpr double kLongestSeconds = 1000.0 * 86400.0;

}  // namespace

// --- queue
// ------------------------------------------------------------------------------------------------------------

DiskQueue::DiskQueue(std::int64_t depth) : depth_(static_cast<std::size_t>(depth)) {
  SPILLWAY_CHECK(depth >= 1 && depth <= kMostDepth, "a disk with " + std::to_string(depth) + " transfers at once");
}

void DiskQueue::submit(std::int32_t ticket, Duration alone) {
  waiting_.push_back({ticket, {.whole = alone.count()}, now_});
  start_waiting();
}

void DiskQueue::start_waiting() {
  while (in_progress_.size() < depth_ && !waiting_.empty()) {
    waited_ += now_ - waiting_.front().submitted;
    in_progress_.push_back(waiting_.front());
    waiting_.pop_front();
  }
}

Duration DiskQueue::until_next_end() const {
  const Left least = std::ranges::min(in_progress_, {}, &Transfer::left).left;
  const std::int64_t sharers = std::ssize(in_progress_);
  return Duration(least.whole * sharers + (least.parts * sharers + kParts - 1) / kParts);
}

SimTime DiskQueue::next_end() const { return in_progress_.empty() ? kNever : now_ + until_next_end(); }

void DiskQueue::go_on(Duration time) {
  const std::int64_t sharers = std::ssize(in_progress_);
  now_ = now_ + time;
  if (sharers == 0) return;
  const Left done{time.count() / sharers, time.count() % sharers * (kParts / sharers)};
  for (Transfer& transfer : in_progress_) {
    Left& left = transfer.left;
    left.whole -= done.whole;
    left.parts -= done.parts;
    if (left.parts < 0) {
      --left.whole;
      left.parts += kParts;
    }
    if (left.whole < 0) left = Left{};
  }
}

std::vector<std::int32_t> DiskQueue::advance(SimTime now) {
  std::vector<std::int32_t> ended;
  while (!in_progress_.empty() && next_end() <= now) {
    go_on(until_next_end());
    std::erase_if(in_progress_, [&](const Transfer& transfer) {
      if (transfer.left != Left{}) return false;
      ended.push_back(transfer.ticket);
      return true;
    });
    start_waiting();
  }
  go_on(now - now_);
  return ended;
}

// --- tier
// -------------------------------------------------------------------------------------------------------------

bool DiskTier::readable(BlockHash hash) const {
  const std::int32_t block = blocks_.find(hash);
  return block >= 0 && !on_the_way_.contains(block);
}

void DiskTier::touch(std::span<const BlockHash> blocks) {
  std::for_each(blocks.rbegin(), blocks.rend(), [this](BlockHash hash) {
    const std::int32_t block = blocks_.find(hash);
    if (block < 0 || !blocks_.idle(block)) return;
    blocks_.share(block);
    blocks_.release(block);
  });
}

void DiskTier::write(std::span<const BlockHash> blocks) {
  touch(blocks);
  Transfer write;
  for (const BlockHash hash : blocks) {
    if (blocks_.find(hash) >= 0) continue;
    if (blocks_.free() == Blocks(0)) {
      counts_.dropped += Blocks(1);
      continue;
    }
    const std::int32_t block = blocks_.allocate();
    blocks_.name(block, hash);
    on_the_way_.insert(block);
    write.blocks.push_back(block);
  }
  if (write.blocks.empty()) return;
  counts_.written += Blocks(std::ssize(write.blocks));
  submit(std::move(write), speed_.write, speed_.write_operations);
}

void DiskTier::read(std::int32_t ticket, std::span<const BlockHash> blocks) {
  Transfer read{.ticket = ticket};
  for (const BlockHash hash : blocks) {
    const std::int32_t block = blocks_.find(hash);
    blocks_.share(block);
    read.blocks.push_back(block);
  }
  ++reads_;
  counts_.read += Blocks(std::ssize(blocks));
  submit(std::move(read), speed_.read, speed_.read_operations);
}

void DiskTier::submit(Transfer transfer, BytesPerSecond rate, double operations) {
  const std::int64_t count = std::ssize(transfer.blocks);
  const double seconds = std::max(block_ * count / rate, static_cast<double>(count) / operations);
  if (free_transfers_.empty()) {
    free_transfers_.push_back(static_cast<std::int32_t>(transfers_.size()));
    transfers_.emplace_back();
  }
  const std::int32_t number = free_transfers_.back();
  free_transfers_.pop_back();
  transfers_[static_cast<std::size_t>(number)] = std::move(transfer);
  ++counts_.transfers;
  queue_.submit(number, std::max(Duration(1), round_seconds(std::min(seconds, kLongestSeconds))));
}

std::vector<std::int32_t> DiskTier::advance(SimTime now) {
  std::vector<std::int32_t> reads;
  for (const std::int32_t number : queue_.advance(now)) {
    const Transfer ended = std::exchange(transfers_[static_cast<std::size_t>(number)], {});
    free_transfers_.push_back(number);
    std::for_each(ended.blocks.rbegin(), ended.blocks.rend(), [this](std::int32_t block) {
      on_the_way_.erase(block);
      blocks_.release(block);
    });
    if (ended.ticket < 0) continue;
    --reads_;
    reads.push_back(ended.ticket);
  }
  return reads;
}

DiskCounts DiskTier::take_counts() {
  counts_.waited += queue_.take_waited();
  return std::exchange(counts_, {});
}

}  // namespace spillway
