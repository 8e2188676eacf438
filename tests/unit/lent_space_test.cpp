// What a borrower does when it asks what has become of its loan, on requests written down by hand.
#include "policies/parts/lent_space.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "policies/parts/lent_tensors.hpp"
#include "tests/support/empty_view.hpp"

namespace spillway {
namespace {

constexpr TierId kLender{2};

/// Requests that hold blocks in one place each, outside the batch unless said otherwise. A move is over at once.
class Desk final : public EmptyView, public Placement {
 public:
  /// GPU, host, lender.
  Desk(std::int64_t host, std::int64_t lent) : states_{{state(100), state(host), state(lent)}} { tiers_ = states_; }

  void lends(std::int64_t blocks) {
    TierState& lent = states_[2];
    lent.free += Blocks(blocks) - lent.total;
    lent.total = Blocks(blocks);
  }
  void add(std::uint32_t serial, std::int64_t blocks, TierId tier) {
    requests_[serial] = {{Blocks(blocks), tier}};
    states_[static_cast<std::size_t>(tier)].free -= Blocks(blocks);
  }
  void add_contexts(std::int64_t blocks, TierId tier) {
    contexts_ = {{Blocks(blocks), tier}};
    states_[static_cast<std::size_t>(tier)].free -= Blocks(blocks);
  }
  void runs_requests(std::int64_t running) { batch_.running = running; }
  void ends(std::uint32_t serial) {
    const KvRun run = requests_.at(serial).front();
    states_[static_cast<std::size_t>(run.tier)].free += run.blocks;
    requests_.erase(serial);
  }
  void joins(std::uint32_t serial) { in_batch_ = serial; }
  void at(std::int64_t ms) { now_ = SimTime(ms * 1'000'000); }
  static RequestId id(std::uint32_t serial) { return {serial, serial}; }
  /// "1: 4 to host; 2: 3 to host", the moves since the last call.
  std::string moves() { return std::exchange(moves_, {}); }
  [[nodiscard]] TierId place(std::uint32_t serial) const { return requests_.at(serial).front().tier; }

  void move(const Move& move) override {
    KvRun& run = (move.holder.contexts ? contexts_ : requests_.at(move.holder.request.serial)).front();
    EXPECT_EQ(run.tier, move.from);
    EXPECT_EQ(move.range, (BlockRange{Blocks(0), run.blocks}));
    EXPECT_EQ(move.waits, Waits::iteration);
    EXPECT_LE(run.blocks, states_[static_cast<std::size_t>(move.to)].free);
    states_[static_cast<std::size_t>(move.from)].free += run.blocks;
    states_[static_cast<std::size_t>(move.to)].free -= run.blocks;
    run.tier = move.to;
    const std::array<const char*, 3> names{"gpu", "host", "lender"};
    moves_ += (moves_.empty() ? "" : "; ") +
              (move.holder.contexts ? "contexts" : std::to_string(move.holder.request.serial)) + ": " +
              std::to_string(run.blocks.count()) + " to " + names.at(static_cast<std::size_t>(move.to));
  }
  void drop(const Holder&, const BlockRange&, TierId) override { ADD_FAILURE() << "nothing is dropped"; }

  [[nodiscard]] std::span<const KvRun> runs(const Holder& holder) const override {
    if (holder.contexts) return contexts_;
    const auto found = requests_.find(holder.request.serial);
    return found == requests_.end() ? std::span<const KvRun>() : std::span<const KvRun>(found->second);
  }
  [[nodiscard]] RequestView request(RequestId id) const override {
    return {.id = id,
            .phase = id.serial == in_batch_ ? Phase::decoding : Phase::swapped,
            .held = requests_.at(id.serial).front().blocks};
  }
  [[nodiscard]] bool alive(RequestId id) const override { return requests_.contains(id.serial); }

 private:
  static TierState state(std::int64_t blocks) { return {Blocks(blocks), Blocks(blocks), Blocks(100)}; }

  std::array<TierState, 3> states_;
  std::map<std::uint32_t, std::vector<KvRun>> requests_;
  std::vector<KvRun> contexts_;
  std::uint32_t in_batch_ = UINT32_MAX;
  std::string moves_;
};

/// A borrower that asks every 4 s.
class LentSpaceTest : public testing::Test {
 protected:
  static PagedSpaceOptions options() {
    PagedSpaceOptions options;
    options.swap = options.exact_swap_in = true;
    options.swapping.tiers = {kLender, kHostTier};
    return options;
  }
  /// The request leaves the batch.
  void page_out(std::uint32_t serial, std::int64_t blocks) {
    desk_.add(serial, blocks, kGpuTier);
    space_.leaves(desk_, desk_.request(Desk::id(serial)), desk_);
  }
  std::string places_at(std::int64_t ms) {
    desk_.at(ms);
    space_.places(desk_, desk_);
    return desk_.moves();
  }

  Desk desk_{10, 10};
  LentSpace space_{desk_, options(), kLender, round_seconds(4.0)};
};

// A tensor is granted whole or not at all: 6 of 10 blocks, then 5 do not fit beside them, but 4 do.
TEST_F(LentSpaceTest, RequestsGoToTheLender_OrToTheHostAsAWhole) {
  page_out(1, 6);
  page_out(2, 5);
  page_out(3, 4);
  EXPECT_EQ(desk_.moves(), "1: 6 to lender; 2: 5 to host; 3: 4 to lender");
}

// It asks at 0 s, at 4 s and at 8 s. What is reclaimed in between stays until then, and others go to the host.
TEST_F(LentSpaceTest, WhatIsReclaimedGoesToTheHost_WithTheNextQuestion) {
  EXPECT_EQ(places_at(0), "");
  page_out(1, 4);
  page_out(2, 3);
  EXPECT_EQ(desk_.moves(), "1: 4 to lender; 2: 3 to lender");
  desk_.lends(0);
  EXPECT_EQ(places_at(3'999), "");
  page_out(3, 2);
  EXPECT_EQ(desk_.moves(), "3: 2 to host");
  EXPECT_EQ(places_at(4'000), "1: 4 to host; 2: 3 to host");
  EXPECT_EQ(places_at(7'999), "");
  EXPECT_EQ(places_at(8'000), "");
}

// The host has room for one of the two: the other one goes with the next question, once there is room.
TEST_F(LentSpaceTest, WhatTheHostHasNoRoomFor_Stays) {
  page_out(1, 4);
  page_out(2, 5);
  desk_.add(9, 5, kHostTier);
  static_cast<void>(desk_.moves());
  desk_.lends(0);
  EXPECT_EQ(places_at(0), "1: 4 to host");
  EXPECT_EQ(desk_.place(2), kLender);
  desk_.ends(1);
  EXPECT_EQ(places_at(4'000), "2: 5 to host");
}

// 4 blocks of contexts and a request of 3: both leave when they are reclaimed. An offer of 6 is too small for both.
TEST_F(LentSpaceTest, ContextsAreOneTensorMore) {
  desk_.runs_requests(1);
  desk_.add_contexts(4, kLender);
  page_out(1, 3);
  EXPECT_EQ(desk_.moves(), "1: 3 to lender");
  desk_.lends(0);
  EXPECT_EQ(places_at(0), "contexts: 4 to host; 1: 3 to host");
  desk_.lends(6);
  EXPECT_EQ(places_at(4'000), "");
  desk_.lends(7);
  EXPECT_EQ(places_at(8'000), "contexts: 4 to lender; 1: 3 to lender");
}

// The contexts alone keep a request on the host from following a later offer.
TEST_F(LentSpaceTest, ContextsAreHeldThere) {
  desk_.runs_requests(1);
  desk_.add_contexts(8, kLender);
  page_out(1, 3);
  EXPECT_EQ(desk_.moves(), "1: 3 to host");
  desk_.lends(20);
  EXPECT_EQ(places_at(0), "");
}

// It has asked at 0 s. While nothing runs it gives up at 1 s what is reclaimed, because of its contexts; with requests
// alone it does not. It follows the next offer not at rest, but with the next iteration.
TEST_F(LentSpaceTest, WithContextsItAsksWhileNothingRuns) {
  desk_.runs_requests(1);
  EXPECT_EQ(places_at(0), "");
  page_out(1, 3);
  static_cast<void>(desk_.moves());
  desk_.lends(0);
  desk_.runs_requests(0);
  EXPECT_EQ(places_at(1'000), "");
  desk_.add_contexts(4, kLender);
  desk_.runs_requests(1);
  EXPECT_EQ(places_at(1'000), "");
  desk_.runs_requests(0);
  EXPECT_EQ(places_at(1'000), "contexts: 4 to host; 1: 3 to host");
  desk_.lends(10);
  EXPECT_EQ(places_at(5'000), "");
  desk_.runs_requests(1);
  EXPECT_EQ(places_at(5'000), "contexts: 4 to lender; 1: 3 to lender");
}

// All of it, and only if nothing is held there.
TEST_F(LentSpaceTest, ComesBackAfterTheNextOffer) {
  desk_.lends(0);
  page_out(1, 4);
  page_out(2, 3);
  EXPECT_EQ(desk_.moves(), "1: 4 to host; 2: 3 to host");
  desk_.lends(6);
  EXPECT_EQ(places_at(0), "");  // 7 do not fit
  desk_.lends(7);
  EXPECT_EQ(places_at(4'000), "1: 4 to lender; 2: 3 to lender");
  desk_.lends(10);
  page_out(3, 3);
  page_out(4, 2);
  EXPECT_EQ(desk_.moves(), "3: 3 to lender; 4: 2 to host");
  desk_.ends(3);                    // so 2 blocks would fit
  EXPECT_EQ(places_at(8'000), "");  // it holds something there
}

// Requests that are back in the batch, or have ended, have nothing to move.
TEST_F(LentSpaceTest, MovesThoseOutsideTheBatchAlone) {
  page_out(1, 4);
  page_out(2, 3);
  page_out(3, 2);
  static_cast<void>(desk_.moves());
  desk_.ends(1);
  desk_.ends(2);
  desk_.add(2, 3, kGpuTier);
  desk_.joins(2);
  desk_.lends(0);
  EXPECT_EQ(places_at(0), "3: 2 to host");
}

/// Tensors of a consumer that asks every 4 s, in blocks of 100 bytes. The lender has 10.
class LentTensorsTest : public testing::Test {
 protected:
  bool move_at(std::int64_t ms) {
    desk_.at(ms);
    return tensors_.poll();
  }

  Desk desk_{10, 10};
  LentTensors tensors_{desk_, kLender, Bytes(100), round_seconds(4.0)};
};

TEST_F(LentTensorsTest, AreLentWhole_OrNotAtAll) {
  tensors_.allocate(Bytes(1'000));
  EXPECT_TRUE(tensors_.lent());
  EXPECT_EQ(tensors_.held(), Bytes(1'000));
  tensors_.allocate(Bytes(1'001));
  EXPECT_FALSE(tensors_.lent());
  EXPECT_EQ(tensors_.held(), Bytes(0));
  EXPECT_EQ(tensors_.bytes(), Bytes(1'001));
  tensors_.allocate(Bytes(0));
  EXPECT_FALSE(tensors_.lent());
}

// Asked at 0 s, so that the reclaim of 1 s is heard of at 4 s, and the offer of 5 s at 8 s.
TEST_F(LentTensorsTest, FollowReclaimsAndOffers_WithTheNextQuestion) {
  tensors_.allocate(Bytes(600));
  EXPECT_FALSE(move_at(0));
  desk_.lends(0);
  EXPECT_FALSE(move_at(3'999));
  EXPECT_TRUE(tensors_.lent());
  EXPECT_TRUE(move_at(4'000));
  EXPECT_FALSE(tensors_.lent());
  EXPECT_EQ(tensors_.held(), Bytes(0));
  desk_.lends(10);
  EXPECT_FALSE(move_at(7'999));
  EXPECT_TRUE(move_at(8'000));
  EXPECT_EQ(tensors_.held(), Bytes(600));
  EXPECT_FALSE(move_at(12'000));
}

TEST_F(LentTensorsTest, StayWhereAnOfferIsTooSmall) {
  desk_.lends(0);
  tensors_.allocate(Bytes(600));
  desk_.lends(5);
  EXPECT_FALSE(move_at(0));
  desk_.lends(6);
  EXPECT_TRUE(move_at(4'000));
}

TEST_F(LentTensorsTest, ThatWereReleased_HoldNothingAndDoNotMove) {
  tensors_.allocate(Bytes(600));
  tensors_.release();
  EXPECT_EQ(tensors_.held(), Bytes(0));
  EXPECT_FALSE(move_at(0));
}

TEST(LentTensors, WithoutALender_AreOnTheHost) {
  Desk desk(10, 10);
  LentTensors tensors(desk, kNoTier, Bytes(100), Duration(0));
  tensors.allocate(Bytes(1));
  EXPECT_FALSE(tensors.lent());
  EXPECT_FALSE(tensors.poll());
}

}  // namespace
}  // namespace spillway
