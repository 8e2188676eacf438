// The disk behind the host tier of the prefix cache: which blocks it holds, and how long it takes to read and write
// them.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "sim/core/units.hpp"
#include "sim/kv/block_store.hpp"

namespace spillway {

/// A disk. Source: its datasheet.
struct DiskSpeed {
  BytesPerSecond read{};
  BytesPerSecond write{};
  double read_operations = 0.0;   // per second
  double write_operations = 0.0;  // per second
  std::int64_t depth = 1;         // transfers in progress at once
};

/// The transfers of one disk, first come, first served. Up to `depth` transfers are in progress at once and share the
/// disk evenly, so the disk does no more in a second than its datasheet says; the others wait. A transfer that ends
/// within a nanosecond leaves its place at the end of that nanosecond.
///
/// O(depth) per transfer that starts or ends.
class DiskQueue {
 public:
  /// Up to so many transfers divide a nanosecond into whole parts.
  static constexpr std::int64_t kMostDepth = 16;

  /// 1 <= depth <= kMostDepth.
  explicit DiskQueue(std::int64_t depth);

  /// Adds a transfer that takes `alone` > 0 on an idle disk. advance(now) has been called.
  void submit(std::int32_t ticket, Duration alone);
  /// Goes on to `now`. Returns the tickets of the transfers that have ended by then, in the order of their ends.
  [[nodiscard]] std::vector<std::int32_t> advance(SimTime now);
  /// When the next transfer ends unless others are added; kNever: none is in progress.
  [[nodiscard]] SimTime next_end() const;
  /// Time that transfers which began since the last call had waited for their place.
  [[nodiscard]] Duration take_waited() { return std::exchange(waited_, Duration(0)); }

 private:
  /// What is left of a transfer: nanoseconds of the whole disk, and parts of a nanosecond.
  struct Left {
    std::int64_t whole = 0;
    std::int64_t parts = 0;
    auto operator<=>(const Left&) const = default;
  };
  struct Transfer {
    std::int32_t ticket = -1;
    Left left{};
    SimTime submitted{};
  };
  static constexpr std::int64_t kParts = 720'720;  // of a nanosecond: what 1 to 16 divide

  [[nodiscard]] Duration until_next_end() const;
  /// Lets the transfers in progress go on for `time`.
  void go_on(Duration time);
  void start_waiting();

  std::size_t depth_;
  SimTime now_{};
  std::vector<Transfer> in_progress_;  // in the order of their starts
  std::deque<Transfer> waiting_;
  Duration waited_{};
};

/// What the disk did.
struct DiskCounts {
  Blocks written{};
  Blocks read{};
  Blocks dropped{};            // blocks that found no room, because the transfers under way held every block
  std::int64_t transfers = 0;  // submitted
  Duration waited{};           // of those that began: time until they did
  bool operator==(const DiskCounts&) const = default;
  DiskCounts& operator+=(const DiskCounts& other) {
    written += other.written;
    read += other.read;
    dropped += other.dropped;
    transfers += other.transfers;
    waited += other.waited;
    return *this;
  }
};

/// Blocks by content. The host tier's evicted blocks are written to the disk, once each; a full disk gives up its least
/// recently used block. A block can be read once its write has ended, and stays on the disk when it has been read. A
/// block under way is not given up. Lookups and the ends of transfers count as use. One transfer moves the blocks that
/// were evicted together, or the blocks that a request reads; each block is one operation.
///
/// O(1) expected per block; memory O(capacity), fixed at construction.
class DiskTier {
 public:
  DiskTier(Blocks capacity, Bytes block, const DiskSpeed& speed)
      : blocks_(capacity), block_(block), speed_(speed), queue_(speed.depth) {}

  /// The disk holds the block, and its write has ended.
  [[nodiscard]] bool readable(BlockHash hash) const;
  /// Uses the blocks of these that are on the disk, the last one first.
  void touch(std::span<const BlockHash> blocks);
  /// The host tier gave these blocks up. Blocks that the disk does not hold are queued as one write.
  void write(std::span<const BlockHash> blocks);
  /// Queues a read of readable blocks; `ticket` >= 0 names it.
  void read(std::int32_t ticket, std::span<const BlockHash> blocks);
  /// Goes on to `now`, which every other call refers to. Returns the tickets of the reads that have ended by then, in
  /// the order of their ends.
  [[nodiscard]] std::vector<std::int32_t> advance(SimTime now);
  /// When the next transfer ends, if a read is under way; else kNever, as nobody waits for a write.
  [[nodiscard]] SimTime next_end() const { return reads_ > 0 ? queue_.next_end() : kNever; }
  /// What it did since the last call.
  [[nodiscard]] DiskCounts take_counts();

 private:
  struct Transfer {
    std::int32_t ticket = -1;  // of a read; -1: a write
    std::vector<std::int32_t> blocks{};
  };
  void submit(Transfer transfer, BytesPerSecond rate, double operations);

  CachedBlocks blocks_;                          // a block under way is in use, so it is not given up
  std::unordered_set<std::int32_t> on_the_way_;  // blocks that are being written
  Bytes block_;
  DiskSpeed speed_;
  DiskQueue queue_;
  std::vector<Transfer> transfers_;
  std::vector<std::int32_t> free_transfers_;
  std::int64_t reads_ = 0;  // under way
  DiskCounts counts_;
};

}  // namespace spillway
