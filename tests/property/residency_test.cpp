// Random moves over random tiers: the books of Residency against a list of single blocks.
#include "sim/kv/residency.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/cases.hpp"

namespace spillway {
namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  /// 0 to bound - 1.
  std::uint64_t below(std::uint64_t bound) { return engine_() % bound; }

 private:
  std::mt19937_64 engine_;
};

/// One block of a context: the tiers that hold its content, and the move that it is part of.
struct PlainBlock {
  std::set<int> on;
  int move = -1;
};

struct PlainMove {
  int from = 0;
  int to = 0;
  bool keep = false;
  bool live = true;
  Residency::MoveKey key = -1;
  std::int64_t unwanted_on_from = 0;
  std::int64_t unwanted_on_to = 0;
};

/// Every block on its own, every count by counting.
struct PlainBooks {
  std::vector<std::vector<PlainBlock>> contexts;
  std::vector<PlainMove> moves;

  [[nodiscard]] std::int64_t used(int tier) const {
    std::int64_t used = 0;
    for (const auto& context : contexts) {
      for (const PlainBlock& block : context) {
        used += block.on.contains(tier) ? 1 : 0;
        if (block.move >= 0 && moves[static_cast<std::size_t>(block.move)].to == tier) ++used;
      }
    }
    for (const PlainMove& move : moves) {
      if (!move.live) continue;
      used += (move.from == tier ? move.unwanted_on_from : 0) + (move.to == tier ? move.unwanted_on_to : 0);
    }
    return used;
  }
  void lose(PlainBlock& block) {
    if (block.move >= 0) {
      PlainMove& move = moves[static_cast<std::size_t>(block.move)];
      ++move.unwanted_on_from;
      ++move.unwanted_on_to;
    }
    block = {};
  }
};

class Compared {
 public:
  explicit Compared(Random& random) : random_(random), tiers_(static_cast<int>(random.below(4)) + 2) {
    std::vector<TierSpec> specs;
    for (int tier = 0; tier < tiers_; ++tier) {
      const Blocks blocks(static_cast<std::int64_t>(random.below(40)));
      specs.push_back({"t", blocks, blocks + Blocks(10)});
    }
    books_ = std::make_unique<Residency>(specs);
  }

  void step() {
    switch (random_.below(10)) {
      case 0:
        return add();
      case 1:
      case 2:
        return append();
      case 3:
      case 4:
        return move();
      case 5:
        return end();
      case 6:
        return drop();
      case 7:
        return shorten();
      case 8:
        return changes();
      default:
        return random_.below(3) == 0 ? remove() : resize();
    }
  }

  void compare() const {
    for (int tier = 0; tier < tiers_; ++tier) {
      const TierState& state = books_->tier(TierId(tier));
      ASSERT_EQ(state.free.count(), state.total.count() - plain_.used(tier)) << "tier " << tier;
    }
    for (std::size_t context = 0; context < keys_.size(); ++context) {
      if (keys_[context] < 0) continue;
      std::vector<PlainBlock> expanded;
      const std::vector<KvRun>& runs = books_->runs(keys_[context]);
      for (const KvRun& run : runs) {
        ASSERT_GT(run.blocks, Blocks(0));
        for (std::int64_t i = 0; i < run.blocks.count(); ++i) {
          PlainBlock block;
          for (const TierId tier : {run.tier, run.copy}) {
            if (tier != kNoTier) block.on.insert(static_cast<int>(tier));
          }
          block.move = run.moving() ? static_cast<int>(run.to) : -1;
          expanded.push_back(block);
        }
      }
      const auto& blocks = plain_.contexts[context];
      ASSERT_EQ(expanded.size(), blocks.size());
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        ASSERT_EQ(expanded[i].on, blocks[i].on);
        ASSERT_EQ(expanded[i].move,
                  blocks[i].move < 0 ? -1 : plain_.moves[static_cast<std::size_t>(blocks[i].move)].to);
      }
      ASSERT_EQ(books_->blocks(keys_[context]).count(), std::ssize(blocks));
      // No two neighbours are in one place because of one move, or at rest: runs are few.
      std::int64_t changes = blocks.empty() ? 0 : 1;
      for (std::size_t i = 1; i < blocks.size(); ++i) {
        changes += blocks[i].on != blocks[i - 1].on || blocks[i].move != blocks[i - 1].move ? 1 : 0;
      }
      ASSERT_EQ(std::ssize(runs), changes);
    }
  }

 private:
  [[nodiscard]] int some_tier() { return static_cast<int>(random_.below(static_cast<std::uint64_t>(tiers_))); }
  /// A holder with at least one block; -1: there is none.
  [[nodiscard]] int some_context() {
    std::vector<int> live;
    for (std::size_t context = 0; context < keys_.size(); ++context) {
      if (keys_[context] >= 0 && !plain_.contexts[context].empty()) live.push_back(static_cast<int>(context));
    }
    return live.empty() ? -1 : live[random_.below(live.size())];
  }
  [[nodiscard]] std::vector<PlainBlock>& blocks(int context) {
    return plain_.contexts[static_cast<std::size_t>(context)];
  }
  [[nodiscard]] Residency::Key key(int context) const { return keys_[static_cast<std::size_t>(context)]; }
  [[nodiscard]] BlockRange some_range(int context) {
    const auto size = static_cast<std::uint64_t>(blocks(context).size());
    const auto first = static_cast<std::int64_t>(random_.below(size));
    const auto count = static_cast<std::int64_t>(random_.below(size - static_cast<std::uint64_t>(first))) + 1;
    return {Blocks(first), Blocks(first + count)};
  }
  template <class Visit>
  void visit(int context, const BlockRange& range, Visit visit) {
    for (std::int64_t i = range.first.count(); i < range.end.count(); ++i) {
      visit(blocks(context)[static_cast<std::size_t>(i)]);
    }
  }
  [[nodiscard]] std::int64_t free(int tier) const {
    return books_->tier(TierId(tier)).total.count() - plain_.used(tier);
  }

  void add() {
    keys_.push_back(books_->add());
    plain_.contexts.emplace_back();
  }
  void append() {
    if (keys_.empty()) return;
    const auto context = static_cast<int>(random_.below(keys_.size()));
    const int tier = some_tier();
    const auto count = static_cast<std::int64_t>(random_.below(8)) + 1;
    if (key(context) < 0 || count > free(tier)) return;
    books_->append(key(context), Blocks(count), TierId(tier));
    blocks(context).insert(blocks(context).end(), static_cast<std::size_t>(count), {.on = {tier}});
  }
  void move() {
    const int context = some_context();
    if (context < 0) return;
    const BlockRange range = some_range(context);
    const int from = some_tier();
    const int to = some_tier();
    bool possible = from != to && free(to) >= range.count().count();
    visit(context, range,
          [&](const PlainBlock& block) { possible = possible && block.move < 0 && block.on == std::set<int>{from}; });
    if (from == to) return;
    ASSERT_EQ(books_->problem(key(context), range, TierId(from), TierId(to)).empty(), possible);
    if (!possible) return;
    const bool keep = random_.below(2) == 0;
    const int number = static_cast<int>(plain_.moves.size());
    plain_.moves.push_back({.from = from, .to = to, .keep = keep});
    plain_.moves.back().key = books_->start(key(context), range, TierId(from), TierId(to), keep);
    visit(context, range, [&](PlainBlock& block) { block.move = number; });
  }
  void end() {
    std::vector<std::size_t> live;
    for (std::size_t i = 0; i < plain_.moves.size(); ++i) {
      if (plain_.moves[i].live) live.push_back(i);
    }
    if (live.empty()) return;
    const std::size_t number = live[random_.below(live.size())];
    PlainMove& ended = plain_.moves[number];
    books_->end(ended.key);
    ended.live = false;
    for (auto& context : plain_.contexts) {
      for (PlainBlock& block : context) {
        if (block.move != static_cast<int>(number)) continue;
        block.move = -1;
        if (!ended.keep) block.on.erase(ended.from);
        block.on.insert(ended.to);
      }
    }
  }
  void drop() {
    const int context = some_context();
    if (context < 0) return;
    const BlockRange range = some_range(context);
    const bool everywhere = random_.below(3) == 0;
    const int tier = some_tier();
    bool possible = true;
    visit(context, range, [&](const PlainBlock& block) {
      possible = possible && (everywhere || (block.move < 0 && block.on.contains(tier)));
    });
    const TierId id = everywhere ? kNoTier : TierId(tier);
    ASSERT_EQ(books_->drop_problem(key(context), range, id).empty(), possible);
    if (!possible) return;
    books_->drop(key(context), range, id);
    visit(context, range, [&](PlainBlock& block) {
      if (everywhere) {
        plain_.lose(block);
      } else {
        block.on.erase(tier);
      }
    });
  }
  void shorten() {
    const int context = some_context();
    if (context < 0) return;
    const auto left = static_cast<std::size_t>(random_.below(blocks(context).size() + 1));
    books_->shorten(key(context), Blocks(static_cast<std::int64_t>(left)));
    while (blocks(context).size() > left) {
      plain_.lose(blocks(context).back());
      blocks(context).pop_back();
    }
  }
  void changes() {
    const int context = some_context();
    if (context < 0) return;
    const std::size_t at = random_.below(blocks(context).size());
    PlainBlock& block = blocks(context)[at];
    const bool leaves = block.move >= 0 && !plain_.moves[static_cast<std::size_t>(block.move)].keep;
    if (!block.on.contains(0) || leaves) return;
    books_->changes(key(context), Blocks(static_cast<std::int64_t>(at)));
    block.on = {0};
    if (block.move >= 0) ++plain_.moves[static_cast<std::size_t>(block.move)].unwanted_on_to;
    block.move = -1;
  }
  void remove() {
    const int context = some_context();
    if (context < 0) return;
    books_->remove(key(context));
    keys_[static_cast<std::size_t>(context)] = -1;
    for (PlainBlock& block : blocks(context)) plain_.lose(block);
    blocks(context).clear();
  }
  void resize() {
    const int tier = some_tier();
    const std::int64_t most = books_->tier(TierId(tier)).most.count();
    books_->resize(TierId(tier),
                   Blocks(static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(most) + 1))));
  }

  Random& random_;
  int tiers_;
  std::unique_ptr<Residency> books_;
  PlainBooks plain_;
  std::vector<Residency::Key> keys_;  // -1: removed
};

TEST(Residency, RandomMoves_CountEveryBlockOnEveryTierOnce) {
  for (std::uint64_t seed = 1; seed <= random_cases(500); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Compared compared(random);
    for (int step = 0; step < 200; ++step) {
      compared.step();
      compared.compare();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace spillway
