#include "sim/kv/kv_windows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/api/view.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/support/empty_view.hpp"

namespace spillway {
namespace {

// 12 of 24 layers attend to 128 tokens, as in gpt-oss-20b. With blocks of 16, a context passes its first block once 143
// tokens are computed: token 143 attends to tokens 16 to 143. It passes one more every 16 tokens.
const KvWindow kGptOss{Tokens(128), 12, 24, Tokens(2048)};
constexpr Tokens kBlock(16);

TEST(KvWindow, PassesABlockOnceTheNextTokenDoesNotAttendToItsLast) {
  EXPECT_EQ(kGptOss.passed(Tokens(0), kBlock), Blocks(0));
  EXPECT_EQ(kGptOss.passed(Tokens(142), kBlock), Blocks(0));
  EXPECT_EQ(kGptOss.passed(Tokens(143), kBlock), Blocks(1));
  EXPECT_EQ(kGptOss.passed(Tokens(158), kBlock), Blocks(1));
  EXPECT_EQ(kGptOss.passed(Tokens(159), kBlock), Blocks(2));
  // 1,000 tokens: token 1,000 attends from 873 on, and 873 / 16 = 54.6.
  EXPECT_EQ(kGptOss.passed(Tokens(1000), kBlock), Blocks(54));
}

// Two tokens in a block, a window of 2 tokens in one of two layers, pieces of 2 tokens, 5 blocks. A context of t tokens
// needs ceil(t / 2) blocks less half of floor((t - 2 - 2 + 1) / 2), when its last two tokens are computed:
//   t = 9: 5 - floor(3 / 2) = 4; t = 11: 6 - floor(4 / 2) = 4; t = 13: 7 - floor(5 / 2) = 5; t = 15: 8 - 3 = 5;
//   t = 17: 9 - floor(7 / 2) = 6, which is too many.
TEST(KvWindow, LetsLongerRequestsFitAlone) {
  const KvWindow window{Tokens(2), 1, 2, Tokens(2)};
  EXPECT_EQ(window.longest(Blocks(5), Tokens(2), Tokens(100)), Tokens(16));
  EXPECT_EQ(window.longest(Blocks(5), Tokens(2), Tokens(12)), Tokens(12));
  // In one piece nothing is freed before all of it is computed.
  EXPECT_EQ((KvWindow{Tokens(2), 1, 2, Tokens(100)}.longest(Blocks(5), Tokens(2), Tokens(100))), Tokens(10));
}

/// Of an instance with a window, and nothing else.
class WindowView final : public EmptyView {
 public:
  explicit WindowView(const std::optional<KvWindow>& window) {
    window_ = window;
    block_tokens_ = Tokens(2);
  }
};

// 100 tokens take 50 blocks of 2. Before the last 2 tokens are computed, floor((98 - 2 + 1) / 2) = 48 blocks have been
// passed in one of two layers, so 24 are free. For 6 tokens it is floor((4 - 2 + 1) / 2) = 1, half of which is no whole
// block; the last piece would pass a second one. The first 2 tokens have passed nothing.
TEST(KvWindow, LetsARequestJoinWithTheBlocksThatItHoldsAtOnce) {
  const WindowView view(KvWindow{Tokens(2), 1, 2, Tokens(2)});
  EXPECT_EQ(view.blocks_to_compute(Tokens(100)), Blocks(26));
  EXPECT_EQ(view.blocks_to_compute(Tokens(6)), Blocks(3));
  EXPECT_EQ(view.blocks_to_compute(Tokens(2)), Blocks(1));
  EXPECT_EQ(WindowView(std::nullopt).blocks_to_compute(Tokens(100)), Blocks(50));
}

TEST(KvWindow, CountsHalfOfTheLayersAsHalfOfTheBlocks) {
  EXPECT_EQ(kGptOss.freed(Blocks(54)), Blocks(27));
  EXPECT_EQ(kGptOss.freed(Blocks(55)), Blocks(27));
  // Gemma 3 27B: 52 of 62 layers. 52 x 54 / 62 = 45.3.
  EXPECT_EQ((KvWindow{Tokens(1024), 52, 62, Tokens(2048)}.freed(Blocks(54))), Blocks(45));
}

TEST(KvWindows, SumOverContextsThatStepTogether) {
  KvWindows windows(kGptOss, kBlock);
  windows.change(Tokens(0), Tokens(142));
  windows.start(Tokens(142));
  windows.change(Tokens(0), Tokens(159));  // two blocks
  windows.start(Tokens(159));
  EXPECT_EQ(windows.take_freed(), Blocks(1));
  windows.step();  // 143, 160: three blocks in half of the layers
  EXPECT_EQ(windows.take_freed(), Blocks(0));
  for (int step = 0; step < 15; ++step) windows.step();  // 158, 175: the second passes its third
  EXPECT_EQ(windows.take_freed(), Blocks(1));
  windows.step();  // 159: the first passes its second
  EXPECT_EQ(windows.take_freed(), Blocks(0));
  // The second leaves at 176 tokens with three blocks; two are left, one of all layers.
  windows.stop(Tokens(176));
  windows.change(Tokens(176), Tokens(0));
  EXPECT_EQ(windows.take_freed(), Blocks(-1));
  for (int step = 0; step < 16; ++step) windows.step();  // 175: three
  EXPECT_EQ(windows.take_freed(), Blocks(0));
  for (int step = 0; step < 16; ++step) windows.step();  // 191: four
  EXPECT_EQ(windows.take_freed(), Blocks(1));
}

// Random contexts that come, step together and go, each looked at by itself.
TEST(KvWindows, AreTheSumOverEachContext) {
  oracle::Dice dice(1);
  for (int number = 0; number < 1000; ++number) {
    const Tokens block(dice.between(1, 16));
    const std::int64_t layers = dice.between(2, 12);
    const KvWindow window{Tokens(dice.between(1, 200)), dice.between(1, layers - 1), layers, Tokens(1)};
    KvWindows windows(window, block);
    std::vector<Tokens> contexts;
    Blocks freed;
    for (int i = 0; i < 200; ++i) {
      const std::int64_t what = dice.between(0, 9);
      if (what == 0) {
        contexts.emplace_back(dice.between(0, 400));
        windows.change(Tokens(0), contexts.back());
        windows.start(contexts.back());
      } else if (what == 1 && !contexts.empty()) {
        const auto at = contexts.begin() + dice.between(0, std::ssize(contexts) - 1);
        windows.stop(*at);
        windows.change(*at, Tokens(0));
        contexts.erase(at);
      } else {
        windows.step();
        for (Tokens& computed : contexts) computed += Tokens(1);
      }
      Blocks passed;
      for (const Tokens computed : contexts) {
        const std::int64_t first_attended = std::max<std::int64_t>(0, computed.count() - window.tokens.count() + 1);
        passed += Blocks(first_attended / block.count());
      }
      freed += windows.take_freed();
      ASSERT_EQ(freed, Blocks(passed.count() * window.layers / window.of)) << "case " << number << ", step " << i;
    }
  }
}

TEST(KvWindows, ForgetAContextThatLeavesBeforeItPassesABlock) {
  KvWindows windows(kGptOss, kBlock);
  windows.change(Tokens(0), Tokens(100));
  windows.start(Tokens(100));
  windows.step();
  windows.stop(Tokens(101));
  windows.change(Tokens(101), Tokens(0));
  for (int step = 0; step < 300; ++step) windows.step();
  EXPECT_EQ(windows.take_freed(), Blocks(0));
}

}  // namespace
}  // namespace spillway
