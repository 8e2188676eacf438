// Helpers that walk, count, free and move the runs of a context, on contexts written down by hand.
#include "sim/api/runs.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/support/empty_view.hpp"

namespace spillway {
namespace {

const Holder kTalk = holder_of_conversation(3);
constexpr TierId kPeer{2};

/// Shows the runs of one conversation, and nothing else.
class RunsView final : public EmptyView {
 public:
  explicit RunsView(std::vector<KvRun> runs) : runs_(std::move(runs)) {}
  [[nodiscard]] std::span<const KvRun> runs(const Holder& holder) const override {
    return holder == kTalk ? std::span<const KvRun>(runs_) : std::span<const KvRun>();
  }

 private:
  std::vector<KvRun> runs_;
};

/// Notes what is staged.
class Notes final : public Placement {
 public:
  struct Drop {
    BlockRange range{};
    TierId tier = kNoTier;
    bool operator==(const Drop&) const = default;
  };
  std::vector<Move> moves;
  std::vector<Drop> drops;
  void move(const Move& move) override { moves.push_back(move); }
  void drop(const Holder& holder, const BlockRange& range, TierId tier) override {
    EXPECT_EQ(holder, kTalk);
    drops.push_back({range, tier});
  }
};

BlockRange range(std::int64_t first, std::int64_t end) { return {Blocks(first), Blocks(end)}; }

/// 14 blocks:  0 to 2 on the GPU and the host, 2 to 5 dropped, 5 to 9 on the GPU, 9 to 10 on their way from the GPU to
/// the host, 10 to 13 on the host, 13 to 14 on the peer.
RunsView context() {
  return RunsView({{Blocks(2), kGpuTier, kHostTier},
                   {Blocks(3)},
                   {Blocks(4), kGpuTier},
                   {Blocks(1), kGpuTier, kNoTier, kHostTier},
                   {Blocks(3), kHostTier},
                   {Blocks(1), kPeer}});
}

TEST(Runs, Placed_HaveTheirRanges) {
  std::vector<BlockRange> ranges;
  for (const PlacedRun& run : placed_runs(context(), kTalk)) {
    ranges.push_back(run.range);
    EXPECT_EQ(run.blocks, run.range.count());
  }
  EXPECT_EQ(ranges, (std::vector{range(0, 2), range(2, 5), range(5, 9), range(9, 10), range(10, 13), range(13, 14)}));
  EXPECT_TRUE(placed_runs(context(), holder_of_conversation(4)).empty());
}

TEST(Runs, Placed_UpToAnEnd_CutTheLastRun) {
  const PlacedRuns placed = placed_runs(context(), kTalk, Blocks(7));
  ASSERT_EQ(placed.size(), 3U);
  EXPECT_EQ(placed.back().range, range(5, 7));
  EXPECT_EQ(placed.back().blocks, Blocks(2));
  EXPECT_EQ(placed_runs(context(), kTalk, Blocks(5)).size(), 2U);
  EXPECT_TRUE(placed_runs(context(), kTalk, Blocks(0)).empty());
}

// On the GPU: 2 with a copy, 4, and 1 that leaves it: 7, of which 6 can be freed. On the host: 2 copies and 3.
TEST(Runs, Counted_ByTier) {
  const RunsView view = context();
  EXPECT_EQ(blocks_on(view, kTalk, kGpuTier), Blocks(7));
  EXPECT_EQ(blocks_on(view, kTalk, kGpuTier, Blocks(6)), Blocks(3));
  EXPECT_EQ(blocks_on(view, kTalk, kHostTier), Blocks(5));
  EXPECT_EQ(blocks_on(view, kTalk, kPeer), Blocks(1));
  EXPECT_EQ(blocks_elsewhere(view, kTalk), Blocks(4));
  EXPECT_EQ(blocks_elsewhere(view, kTalk, Blocks(11)), Blocks(1));
  EXPECT_EQ(freeable_blocks(view, kTalk, kGpuTier), Blocks(6));
  EXPECT_EQ(freeable_blocks(view, kTalk, kHostTier), Blocks(5));
}

TEST(Runs, Freed_FromTheStartUpToACount) {
  const RunsView view = context();
  Notes some;
  EXPECT_EQ(free_blocks(view, kTalk, kGpuTier, Blocks(3), some), Blocks(3));
  EXPECT_EQ(some.drops, (std::vector<Notes::Drop>{{range(0, 2), kGpuTier}, {range(5, 6), kGpuTier}}));
  Notes all;
  EXPECT_EQ(free_blocks(view, kTalk, kGpuTier, Blocks(100), all), Blocks(6));
  EXPECT_EQ(all.drops, (std::vector<Notes::Drop>{{range(0, 2), kGpuTier}, {range(5, 9), kGpuTier}}));
  Notes none;
  EXPECT_EQ(free_blocks(view, kTalk, kGpuTier, Blocks(-1), none), Blocks(0));
  EXPECT_TRUE(none.drops.empty());
}

// Of the first 12 blocks, 10 and 11 are on the host only. Of all, 12 too, and 13 on the peer.
TEST(Runs, Brought_FromWhereTheyAre) {
  const RunsView view = context();
  Notes some;
  bring_to_gpu(view, kTalk, Blocks(12), {.keep = true, .waits = Waits::layers}, some);
  ASSERT_EQ(some.moves.size(), 1U);
  EXPECT_EQ(some.moves[0].holder, kTalk);
  EXPECT_EQ(some.moves[0].range, range(10, 12));
  EXPECT_EQ(some.moves[0].from, kHostTier);
  EXPECT_EQ(some.moves[0].to, kGpuTier);
  EXPECT_TRUE(some.moves[0].keep);
  EXPECT_EQ(some.moves[0].waits, Waits::layers);
  Notes all;
  bring_to_gpu(view, kTalk, kWholeContext, {}, all);
  ASSERT_EQ(all.moves.size(), 2U);
  EXPECT_EQ(all.moves[0].range, range(10, 13));
  EXPECT_EQ(all.moves[1].range, range(13, 14));
  EXPECT_EQ(all.moves[1].from, kPeer);
}

// Of 7 blocks on the GPU 2 have a copy on the host, 4 go to the peer, and 1 is leaving already.
TEST(Runs, Sent_UnlessACopyIsElsewhere) {
  Notes notes;
  send_from_gpu(context(), kTalk, {.to = kPeer, .waits = Waits::iteration}, notes);
  EXPECT_EQ(notes.drops, (std::vector<Notes::Drop>{{range(0, 2), kGpuTier}}));
  ASSERT_EQ(notes.moves.size(), 1U);
  EXPECT_EQ(notes.moves[0].holder, kTalk);
  EXPECT_EQ(notes.moves[0].range, range(5, 9));
  EXPECT_EQ(notes.moves[0].from, kGpuTier);
  EXPECT_EQ(notes.moves[0].to, kPeer);
  EXPECT_EQ(notes.moves[0].waits, Waits::iteration);
}

}  // namespace
}  // namespace spillway
