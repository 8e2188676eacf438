// The disk behind the host tier: the queue against one that goes on nanosecond by nanosecond, the blocks against a
// plain list.
#include "sim/kv/disk_tier.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Hashes = std::vector<BlockHash>;

// One place: 100, 50 and 10 ns after each other. The second waits for 100 ns, the third for 150.
TEST(DiskQueue, OnePlace_IsFirstComeFirstServed) {
  DiskQueue queue(1);
  queue.submit(0, Duration(100));
  queue.submit(1, Duration(50));
  queue.submit(2, Duration(10));
  EXPECT_EQ(queue.next_end(), SimTime(100));
  EXPECT_THAT(queue.advance(SimTime(99)), IsEmpty());
  EXPECT_THAT(queue.advance(SimTime(155)), ElementsAre(0, 1));
  EXPECT_EQ(queue.next_end(), SimTime(160));
  EXPECT_THAT(queue.advance(SimTime(160)), ElementsAre(2));
  EXPECT_EQ(queue.next_end(), kNever);
  EXPECT_EQ(queue.take_waited(), Duration(250));
  EXPECT_EQ(queue.take_waited(), Duration(0));
}

// Two places: 100 and 50 ns share the disk, so the second ends at 100, when half of the first is left. The third waits
// until then and shares with it: its 10 ns end at 120, and the 40 ns that are left then at 160, as if one after the
// other: the disk does no more in a nanosecond.
TEST(DiskQueue, TransfersInProgress_ShareTheDiskEvenly) {
  DiskQueue queue(2);
  queue.submit(0, Duration(100));
  queue.submit(1, Duration(50));
  queue.submit(2, Duration(10));
  EXPECT_EQ(queue.next_end(), SimTime(100));
  EXPECT_THAT(queue.advance(SimTime(100)), ElementsAre(1));
  EXPECT_EQ(queue.next_end(), SimTime(120));
  EXPECT_THAT(queue.advance(SimTime(120)), ElementsAre(2));
  EXPECT_THAT(queue.advance(SimTime(159)), IsEmpty());
  EXPECT_THAT(queue.advance(SimTime(160)), ElementsAre(0));
  EXPECT_EQ(queue.take_waited(), Duration(100));
}

// Three of 10 ns; at 2 ns each has done two thirds of one. A fourth joins: 28/3 are left of each, times 4 is 37.3. Of
// the fourth, 10 - 38/4 = 1/2 is left at 40, when the others have gone; it ends within the next nanosecond.
TEST(DiskQueue, ThirdsOfANanosecondAreNotLost) {
  DiskQueue queue(4);
  for (const std::int32_t ticket : {0, 1, 2}) queue.submit(ticket, Duration(10));
  EXPECT_THAT(queue.advance(SimTime(2)), IsEmpty());
  queue.submit(3, Duration(10));
  EXPECT_EQ(queue.next_end(), SimTime(40));
  EXPECT_THAT(queue.advance(SimTime(40)), ElementsAre(0, 1, 2));
  EXPECT_EQ(queue.next_end(), SimTime(41));
}

/// Numbers below a limit.
class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  std::int64_t below(std::int64_t limit) { return static_cast<std::int64_t>(random_()) % limit; }

 private:
  std::minstd_rand random_;
};

/// The same, nanosecond by nanosecond.
struct NaiveQueue {
  struct Transfer {
    std::int32_t ticket = -1;
    double left = 0.0;
    std::int64_t submitted = 0;
  };
  std::size_t depth = 1;
  std::int64_t now = 0;
  std::vector<Transfer> in_progress{}, waiting{};
  std::int64_t waited = 0;

  void submit(std::int32_t ticket, std::int64_t alone) {
    waiting.push_back({ticket, static_cast<double>(alone), now});
    start();
  }
  void start() {
    while (in_progress.size() < depth && !waiting.empty()) {
      waited += now - waiting.front().submitted;
      in_progress.push_back(waiting.front());
      waiting.erase(waiting.begin());
    }
  }
  std::vector<std::int32_t> step() {
    const double share = 1.0 / static_cast<double>(in_progress.size());
    std::vector<std::int32_t> ended;
    ++now;
    for (Transfer& transfer : in_progress) transfer.left -= share;
    for (auto at = in_progress.begin(); at != in_progress.end();) {
      const bool over = at->left < 1e-9;
      if (over) ended.push_back(at->ticket);
      at = over ? in_progress.erase(at) : at + 1;
    }
    start();
    return ended;
  }
};

TEST(DiskQueue, RandomTransfers_EndToTheNanosecondAsInANaiveQueue) {
  std::int64_t ends = 0, waited = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    Dice dice(seed);
    const std::int64_t depth = 1 + dice.below(16);
    DiskQueue queue(depth);
    NaiveQueue naive{.depth = static_cast<std::size_t>(depth)};
    std::vector<std::pair<std::int64_t, std::int32_t>> expected, seen;
    std::int32_t ticket = 0;
    for (int i = 0; i < 60; ++i) {
      for (std::int64_t left = dice.below(80); left > 0; --left) {
        for (const std::int32_t ended : naive.step()) expected.emplace_back(naive.now, ended);
      }
      for (SimTime next = queue.next_end(); next <= SimTime(naive.now); next = queue.next_end()) {
        for (const std::int32_t ended : queue.advance(next)) seen.emplace_back(next.ns(), ended);
      }
      ASSERT_THAT(queue.advance(SimTime(naive.now)), IsEmpty());
      ASSERT_EQ(seen, expected) << "seed " << seed;
      for (std::int64_t left = dice.below(4); left > 0; --left) {
        const std::int64_t alone = 1 + dice.below(60);
        queue.submit(ticket, Duration(alone));
        naive.submit(ticket++, alone);
      }
    }
    ends += std::ssize(seen);
    waited += naive.waited;
    EXPECT_EQ(queue.take_waited(), Duration(naive.waited));
  }
  EXPECT_GT(ends, 4000);
  EXPECT_GT(waited, 10'000);
}

/// Blocks of 1,000 bytes: 1,000 ns each to read, 2,000 ns to write, unless operations take longer.
DiskSpeed speed(std::int64_t depth) {
  return {.read = BytesPerSecond(1e9),
          .write = BytesPerSecond(0.5e9),
          .read_operations = 1e9,
          .write_operations = 1e9,
          .depth = depth};
}

// 3 blocks are written by 6,000 ns, and only then can be read: 2 of them by 8,000.
TEST(DiskTier, BlocksCanBeReadOnceTheyAreWritten) {
  DiskTier disk(Blocks(4), Bytes(1000), speed(1));
  disk.write(Hashes{1, 2, 3});
  EXPECT_THAT(disk.advance(SimTime(5'999)), IsEmpty());
  EXPECT_FALSE(disk.readable(1));
  EXPECT_EQ(disk.next_end(), kNever);  // nobody waits for a write
  EXPECT_THAT(disk.advance(SimTime(6'000)), IsEmpty());
  EXPECT_TRUE(disk.readable(1) && disk.readable(3));
  EXPECT_FALSE(disk.readable(4));
  disk.read(7, Hashes{1, 2});
  EXPECT_EQ(disk.next_end(), SimTime(8'000));
  EXPECT_TRUE(disk.readable(1));  // by another request, too
  EXPECT_THAT(disk.advance(SimTime(8'000)), ElementsAre(7));
  EXPECT_EQ(disk.next_end(), kNever);
  EXPECT_EQ(disk.take_counts(), (DiskCounts{.written = Blocks(3), .read = Blocks(2), .transfers = 2}));
  EXPECT_EQ(disk.take_counts(), DiskCounts{});
}

// 2 blocks to read at 1,000 operations/s take 2 ms, at 1 GB/s 2 us; the slower one counts. To write: 4 us by bandwidth.
TEST(DiskTier, ATransferTakesTheLongerOfBytesAndOperations) {
  DiskSpeed slow = speed(1);
  slow.read_operations = 1e3;
  DiskTier disk(Blocks(4), Bytes(1000), slow);
  disk.write(Hashes{1, 2});
  static_cast<void>(disk.advance(SimTime(4'000)));
  ASSERT_TRUE(disk.readable(1));
  disk.read(0, Hashes{1, 2});
  EXPECT_EQ(disk.next_end(), SimTime(2'004'000));
  DiskSpeed slow_writes = speed(1);
  slow_writes.write_operations = 1e3;
  DiskTier other(Blocks(4), Bytes(1000), slow_writes);
  other.write(Hashes{1});
  static_cast<void>(other.advance(SimTime(999'999)));
  EXPECT_FALSE(other.readable(1));
  static_cast<void>(other.advance(SimTime(1'000'000)));
  EXPECT_TRUE(other.readable(1));
}

// 2 blocks: 1 and 2 are written, the last one first. A third evicts 2, the less recent one; 1 is written once only.
// While a read and a write hold both blocks, the disk takes no more.
TEST(DiskTier, AFullDisk_GivesUpTheLeastRecentlyUsedBlock) {
  DiskTier disk(Blocks(2), Bytes(1000), speed(4));
  disk.write(Hashes{1, 2});
  static_cast<void>(disk.advance(SimTime(4'000)));
  disk.write(Hashes{1, 3});
  EXPECT_TRUE(disk.readable(1));
  EXPECT_FALSE(disk.readable(2));
  disk.read(0, Hashes{1});
  disk.write(Hashes{4});
  EXPECT_EQ(disk.take_counts(),
            (DiskCounts{.written = Blocks(3), .read = Blocks(1), .dropped = Blocks(1), .transfers = 3}));
  EXPECT_THAT(disk.advance(SimTime(10'000)), ElementsAre(0));
  EXPECT_TRUE(disk.readable(3));
}

/// A plain list of blocks, the least recently used one first.
struct PlainDisk {
  struct Block {
    BlockHash hash = 0;
    int reads = 0;
    bool written = false;
  };
  struct Move {
    bool read = false;
    Hashes hashes{};
  };
  std::size_t capacity = 1;
  NaiveQueue queue{};
  std::vector<Block> blocks{};
  std::vector<Move> moves{};
  std::vector<std::int32_t> tickets{};
  std::int64_t dropped = 0;

  std::vector<Block>::iterator find(BlockHash hash) { return std::ranges::find(blocks, hash, &Block::hash); }
  static bool idle(const Block& block) { return block.written && block.reads == 0; }
  void use(BlockHash hash) {
    const auto at = find(hash);
    if (at != blocks.end() && idle(*at)) std::rotate(at, at + 1, blocks.end());
  }
  bool readable(BlockHash hash) {
    const auto at = find(hash);
    return at != blocks.end() && at->written;
  }
  void touch(const Hashes& hashes) {
    std::for_each(hashes.rbegin(), hashes.rend(), [this](BlockHash hash) { use(hash); });
  }
  void write(const Hashes& hashes) {
    touch(hashes);
    Move move;
    for (const BlockHash hash : hashes) {
      if (find(hash) != blocks.end()) continue;
      const auto victim = std::ranges::find_if(blocks, idle);
      if (blocks.size() == capacity && victim == blocks.end()) {
        ++dropped;
        continue;
      }
      if (blocks.size() == capacity) blocks.erase(victim);
      blocks.push_back({.hash = hash});
      move.hashes.push_back(hash);
    }
    if (!move.hashes.empty()) add(move, -1, 2000);
  }
  void read(std::int32_t ticket, const Hashes& hashes) {
    for (const BlockHash hash : hashes) ++find(hash)->reads;
    add({true, hashes}, ticket, 1000);
  }
  void add(const Move& move, std::int32_t ticket, std::int64_t each) {
    queue.submit(static_cast<std::int32_t>(moves.size()), each * std::ssize(move.hashes));
    moves.push_back(move);
    tickets.push_back(ticket);
  }
  std::vector<std::int32_t> step() {
    std::vector<std::int32_t> reads;
    for (const std::int32_t number : queue.step()) {
      const Move& move = moves[static_cast<std::size_t>(number)];
      std::for_each(move.hashes.rbegin(), move.hashes.rend(), [&](BlockHash hash) {
        Block& block = *find(hash);
        block.written = true;
        block.reads -= move.read ? 1 : 0;
        use(hash);
      });
      if (move.read) reads.push_back(tickets[static_cast<std::size_t>(number)]);
    }
    return reads;
  }
};

// Contents 0 to 19 on disks of 1 to 12 blocks.
TEST(DiskTier, RandomTransfers_DoWhatAPlainListDoes) {
  std::int64_t reads = 0, dropped = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    Dice dice(seed);
    const std::int64_t depth = 1 + dice.below(4);
    const std::int64_t capacity = 1 + dice.below(12);
    DiskTier disk(Blocks(capacity), Bytes(1000), speed(depth));
    PlainDisk plain{.capacity = static_cast<std::size_t>(capacity),
                    .queue = {.depth = static_cast<std::size_t>(depth)}};
    const auto some = [&] {
      Hashes hashes;
      const std::int64_t first = dice.below(20);
      for (std::int64_t i = 0; i < 1 + dice.below(4); ++i) {
        hashes.push_back(static_cast<BlockHash>((first + i) % 20));
      }
      return hashes;
    };
    for (std::int32_t step = 0; step < 60; ++step) {
      for (std::int64_t left = dice.below(4000); left > 0; --left) {
        const std::vector<std::int32_t> ended = plain.step();
        if (ended.empty()) continue;
        ASSERT_EQ(disk.advance(SimTime(plain.queue.now - 1)), std::vector<std::int32_t>{});
        ASSERT_EQ(disk.advance(SimTime(plain.queue.now)), ended);
        reads += std::ssize(ended);
      }
      ASSERT_THAT(disk.advance(SimTime(plain.queue.now)), IsEmpty());
      for (BlockHash hash = 0; hash < 20; ++hash) ASSERT_EQ(disk.readable(hash), plain.readable(hash));
      Hashes hashes = some();
      const auto what = dice.below(3);
      if (what == 0) {
        disk.write(hashes);
        plain.write(hashes);
      } else if (what == 1) {
        disk.touch(hashes);
        plain.touch(hashes);
      } else {
        std::erase_if(hashes, [&](BlockHash hash) { return !disk.readable(hash); });
        if (hashes.empty()) continue;
        disk.read(step, hashes);
        plain.read(step, hashes);
      }
    }
    const DiskCounts counts = disk.take_counts();
    EXPECT_EQ(counts.dropped, Blocks(plain.dropped));
    EXPECT_EQ(counts.waited, Duration(plain.queue.waited));
    EXPECT_EQ(counts.transfers, std::ssize(plain.moves));
    dropped += plain.dropped;
  }
  EXPECT_GT(reads, 100);
  EXPECT_GT(dropped, 100);
}

}  // namespace
}  // namespace spillway
