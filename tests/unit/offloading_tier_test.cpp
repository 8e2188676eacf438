// The host tier of vLLM's offloading connector, against the steps of its rules and against a plain list of entries.
#include "sim/kv/offloading_tier.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Hashes = std::vector<BlockHash>;

// The tier has 4 slots. A stores 3 blocks at once: a touch puts its last block down first, so a2 a1 a0. B has 2 blocks:
// one slot is free, one block must go, none may. Each attempt passes the 3 entries. Once A has finished and its copies
// have ended, a2 is the first to go, and B's blocks come behind: a1 a0 b1 b0. A's prompt then hits a0 and a1.
TEST(OffloadingTier, ARequestThatRunsKeepsItsBlocks) {
  const BlockHash a0 = 10, a1 = 11, a2 = 12, b0 = 20, b1 = 21;
  OffloadingTier tier(Blocks(4));
  OffloadingTier::Storing a, b;
  bool refused = false;
  EXPECT_THAT(tier.store(a, Hashes{a0, a1, a2}, refused), ElementsAre(a0, a1, a2));
  EXPECT_FALSE(refused);
  EXPECT_THAT(tier.order(), ElementsAre(a2, a1, a0));
  EXPECT_EQ(tier.look_up(Hashes{a0, a1, a2}, Blocks(0)), Blocks(0));  // none is ready
  for (std::int64_t attempt = 1; attempt <= 3; ++attempt) {
    EXPECT_THAT(tier.store(b, Hashes{b0, b1}, refused), IsEmpty());
    EXPECT_TRUE(refused);
    EXPECT_EQ(b.next, 0U);
    EXPECT_EQ(tier.counts().scanned, 3 * attempt);
    EXPECT_EQ(tier.counts().refused_stores, attempt);
    EXPECT_THAT(tier.order(), ElementsAre(a2, a1, a0));
  }
  tier.ready(a.entered);
  EXPECT_THAT(tier.store(b, Hashes{b0, b1}, refused), ElementsAre(b0, b1));
  EXPECT_FALSE(refused);
  EXPECT_THAT(tier.order(), ElementsAre(a1, a0, b1, b0));
  EXPECT_EQ(tier.counts().evicted, Blocks(1));
  EXPECT_EQ(tier.look_up(Hashes{a0, a1, a2}, Blocks(0)), Blocks(2));
  EXPECT_EQ(tier.look_up(Hashes{a0, a1, a2}, Blocks(1)), Blocks(1));
}

// Blocks that two requests load stay until both have them.
TEST(OffloadingTier, ABlockThatIsLoadedStays) {
  OffloadingTier tier(Blocks(1));
  OffloadingTier::Storing a, b;
  bool refused = false;
  static_cast<void>(tier.store(a, Hashes{1}, refused));
  tier.ready(a.entered);
  tier.load_begins(Hashes{1});
  tier.load_begins(Hashes{1});
  tier.load_ended(Hashes{1});
  EXPECT_THAT(tier.store(b, Hashes{2}, refused), IsEmpty());
  EXPECT_TRUE(refused);
  tier.load_ended(Hashes{1});
  EXPECT_THAT(tier.store(b, Hashes{2}, refused), ElementsAre(2));
}

// 4 slots: one free, one with a ready block 1, two with blocks that a running request stores. A request of blocks 1, 2
// and 3, of which 2 and 3 are on the disk, keeps block 1 and gets the free slot for block 2: block 3 finds none, as
// block 1 cannot be evicted for it. Without the request's own block 1, blocks 2 and 3 both find one.
TEST(OffloadingTier, BlocksOnTheDisk_CountAsFarAsTheTierHasSlots) {
  OffloadingTier tier(Blocks(4));
  OffloadingTier::Storing first, running;
  bool refused = false;
  static_cast<void>(tier.store(first, Hashes{1}, refused));
  tier.ready(first.entered);
  static_cast<void>(tier.store(running, Hashes{8, 9}, refused));
  const auto on_disk = [](BlockHash hash) { return hash == 2 || hash == 3; };
  EXPECT_EQ(tier.look_up(Hashes{1, 2, 3}, Blocks(0), on_disk), Blocks(2));
  EXPECT_EQ(tier.look_up(Hashes{1, 2, 3}, Blocks(0)), Blocks(1));
  EXPECT_EQ(tier.look_up(Hashes{2, 3, 4}, Blocks(0), on_disk), Blocks(2));
  EXPECT_EQ(tier.look_up(Hashes{8, 2}, Blocks(0), on_disk), Blocks(0));  // block 8 is not ready
  EXPECT_EQ(tier.look_up(Hashes{4, 2}, Blocks(0), on_disk), Blocks(0));  // block 4 is nowhere

  // Block 1 is loaded, so 2 takes the free slot. What a request stores next finds no block to evict until 2 is ready.
  tier.load_begins(Hashes{1});
  tier.enter(Hashes{2});
  EXPECT_THAT(tier.evicted(), IsEmpty());
  EXPECT_TRUE(tier.holds(2));
  OffloadingTier::Storing next;
  EXPECT_THAT(tier.store(next, Hashes{20}, refused), IsEmpty());
  EXPECT_TRUE(refused);
  tier.ready(Hashes{2});
  EXPECT_THAT(tier.store(next, Hashes{20}, refused), ElementsAre(20));
  EXPECT_THAT(tier.evicted(), ElementsAre(2));
}

// The tier is full of ready blocks, 1 before 2 before 3 in the order of use. Blocks 7 and 8 of a request come from the
// disk in the place of 1 and 2, and the first of them is the most recent one.
TEST(OffloadingTier, BlocksFromTheDisk_EvictTheLeastRecentlyUsed) {
  OffloadingTier tier(Blocks(3));
  OffloadingTier::Storing all;
  bool refused = false;
  static_cast<void>(tier.store(all, Hashes{3, 2, 1}, refused));
  tier.ready(all.entered);
  EXPECT_THAT(tier.order(), ElementsAre(1, 2, 3));
  tier.enter(Hashes{7, 8});
  EXPECT_THAT(tier.evicted(), ElementsAre(1, 2));
  EXPECT_THAT(tier.order(), ElementsAre(3, 8, 7));
  EXPECT_EQ(tier.look_up(Hashes{7}, Blocks(0)), Blocks(0));  // not ready
}

/// The rules word by word, over a list of entries.
class PlainTier {
 public:
  explicit PlainTier(std::size_t slots) : slots_(slots) {}

  std::int64_t look_up(const Hashes& blocks, std::size_t on_gpu) {
    touch(blocks);
    std::int64_t hits = 0;
    for (std::size_t i = on_gpu; i < blocks.size() && find(blocks[i]) != nullptr && find(blocks[i])->ref >= 0; ++i)
      ++hits;
    return hits;
  }
  bool store(std::size_t& next, const Hashes& blocks, Hashes& stored) {
    stored.clear();
    for (std::size_t i = next; i < blocks.size(); ++i) {
      if (find(blocks[i]) == nullptr) stored.push_back(blocks[i]);
    }
    std::vector<Entry> left = entries_;
    while (left.size() + stored.size() > slots_) {
      const auto victim = std::find_if(left.begin(), left.end(), [](const Entry& entry) { return entry.ref == 0; });
      if (victim == left.end()) {
        scanned += std::count_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.ref != 0; });
        stored.clear();
        return false;
      }
      left.erase(victim);
    }
    entries_ = left;
    for (const BlockHash hash : stored) entries_.push_back({hash, -1});
    next = blocks.size();
    touch(blocks);
    return true;
  }
  void add(const Hashes& blocks, int change) {
    for (const BlockHash hash : blocks) find(hash)->ref += change;
  }
  [[nodiscard]] Hashes order() const {
    Hashes all;
    for (const Entry& entry : entries_) all.push_back(entry.hash);
    return all;
  }
  std::int64_t scanned = 0;

 private:
  struct Entry {
    BlockHash hash = 0;
    int ref = 0;
  };
  Entry* find(BlockHash hash) {
    for (Entry& entry : entries_) {
      if (entry.hash == hash) return &entry;
    }
    return nullptr;
  }
  void touch(const Hashes& blocks) {
    std::for_each(blocks.rbegin(), blocks.rend(), [this](BlockHash hash) {
      const auto at = std::ranges::find(entries_, hash, &Entry::hash);
      if (at != entries_.end()) std::rotate(at, at + 1, entries_.end());
    });
  }
  std::size_t slots_;
  std::vector<Entry> entries_;
};

// Requests of 6 kinds of prompt that share 1 to 3 leading blocks, in a tier of 1 to 12 slots.
TEST(OffloadingTier, RandomSteps_DoWhatThePlainRulesDo) {
  std::int64_t refusals = 0, evictions = 0, hits = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::minstd_rand dice(seed);
    const std::size_t slots = 1 + dice() % 12;
    OffloadingTier tier(Blocks(static_cast<std::int64_t>(slots)));
    PlainTier plain(slots);
    struct Live {
      OffloadingTier::Storing storing{};
      std::size_t next = 0;
      Hashes entered{}, prompt{};
      std::size_t full = 0;
    };
    std::vector<Live> live;
    std::vector<Hashes> loads;
    for (int step = 0; step < 200; ++step) {
      const auto what = dice() % 5;
      if (what == 0) {
        Live request;
        const BlockHash kind = dice() % 6;
        for (BlockHash i = 0; i < 1 + dice() % 6; ++i)
          request.prompt.push_back(i < kind / 2 ? i : 100 * (kind + 1) + i);
        const std::size_t on_gpu = dice() % (request.prompt.size() + 1);
        const Blocks found = tier.look_up(request.prompt, Blocks(static_cast<std::int64_t>(on_gpu)));
        ASSERT_EQ(found.count(), plain.look_up(request.prompt, on_gpu));
        hits += found.count();
        if (found > Blocks(0)) {
          const auto end = on_gpu + static_cast<std::size_t>(found.count());
          loads.emplace_back(request.prompt.begin() + static_cast<std::ptrdiff_t>(on_gpu),
                             request.prompt.begin() + static_cast<std::ptrdiff_t>(end));
          tier.load_begins(loads.back());
          plain.add(loads.back(), 1);
          request.storing.next = request.next = request.full = end;
        }
        live.push_back(request);
      } else if (what <= 2 && !live.empty()) {
        Live& request = live[dice() % live.size()];
        request.full = std::min(request.prompt.size(), request.full + dice() % 3);
        const Hashes blocks(request.prompt.begin(), request.prompt.begin() + static_cast<std::ptrdiff_t>(request.full));
        if (request.next >= blocks.size()) continue;
        bool refused = false;
        const Hashes stored = tier.store(request.storing, blocks, refused);
        Hashes expected;
        ASSERT_EQ(!refused, plain.store(request.next, blocks, expected));
        ASSERT_EQ(stored, expected);
        ASSERT_EQ(request.storing.next, request.next);
        request.entered.insert(request.entered.end(), expected.begin(), expected.end());
        refusals += refused ? 1 : 0;
      } else if (what == 3 && !live.empty()) {
        std::swap(live[dice() % live.size()], live.back());
        ASSERT_EQ(live.back().storing.entered, live.back().entered);
        tier.ready(live.back().entered);
        plain.add(live.back().entered, 1);
        live.pop_back();
      } else if (!loads.empty()) {
        tier.load_ended(loads.back());
        plain.add(loads.back(), -1);
        loads.pop_back();
      }
      ASSERT_EQ(tier.order(), plain.order());
      ASSERT_EQ(tier.counts().scanned, plain.scanned);
    }
    evictions += tier.counts().evicted.count();
  }
  EXPECT_GT(refusals, 1000);
  EXPECT_GT(evictions, 500);
  EXPECT_GT(hits, 500);
}

}  // namespace
}  // namespace spillway
