// Several layer rules in one iteration: who hears of which copy, and who is waited for. Times are worked out by hand.
#include "sim/exec/rule_set.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/exec/executor.hpp"

namespace spillway {
namespace {

constexpr Duration ns(std::int64_t count) { return Duration(count); }

/// Issues one copy of `transfer` when layer `at` starts; layer `until` waits for it. Notes its calls.
class OneCopy final : public LayerRule {
 public:
  OneCopy(std::string name, std::int32_t at, std::int32_t until, std::int64_t transfer, std::vector<std::string>& calls)
      : name_(std::move(name)), at_(at), until_(until), transfer_(transfer), calls_(calls) {}

  void at_layer_start(std::int32_t layer, std::int32_t /*sub_batch*/, CopySink& sink) override {
    calls_.push_back(name_ + " starts " + std::to_string(layer));
    if (layer == at_) sink.issue({.stream = Stream::h2d, .bytes = Bytes(transfer_), .transfer = ns(transfer_)});
  }
  void at_copy_done(const Copy& copy, CopySink& /*sink*/) override {
    calls_.push_back(name_ + " has " + std::to_string(copy.bytes.count()));
    done_ = true;
  }
  void at_copies_done(CopySink& /*sink*/) override { calls_.push_back(name_ + " settles"); }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t /*sub_batch*/) const override {
    return layer < until_ || done_;
  }

 private:
  std::string name_;
  std::int32_t at_;
  std::int32_t until_;
  std::int64_t transfer_;
  std::vector<std::string>& calls_;
  bool done_ = false;
};

/// Three layers of 10 ns under two rules with a copy each at layer 0: A's takes 25 ns and is of layers, B's takes 5 ns
/// and is of requests. The iteration begins at 0.
struct TwoRules {
  TwoRules(std::int32_t a_until, std::int32_t b_until) : a("A", 0, a_until, 25, calls), b("B", 0, b_until, 5, calls) {
    both.set(kLayerCopies, &a);
    both.set(kRequestCopies, &b);
    executor.begin(plan, SimTime{});
  }
  TwoRules(const TwoRules&) = delete;
  TwoRules& operator=(const TwoRules&) = delete;

  std::vector<std::string> calls{};
  OneCopy a;
  OneCopy b;
  RuleSet both{};
  Executor executor{};
  SubBatchTimes times{.gpu = LayerTimes(ns(10))};
  IterationPlan plan{3, {&times, 1}, &both};
};

Duration waited(const TwoRules& rules, Wait wait) { return rules.executor.waited()[static_cast<std::size_t>(wait)]; }

// A's copy is issued at 0, B's queues behind it and ends at 30. Layer 1 waits
// for A from 10 to 25, layer 2 for B from 35: it is there.
TEST(RuleSet, EachRuleHearsOfItsOwnCopies) {
  TwoRules rules(1, 2);
  EXPECT_EQ(rules.executor.run(rules.plan, kNever).time, SimTime(45));
  EXPECT_EQ(waited(rules, Wait::layers), ns(15));
  EXPECT_EQ(waited(rules, Wait::requests), ns(0));
  EXPECT_EQ(rules.calls, (std::vector<std::string>{"A starts 0", "B starts 0", "A starts 1", "B starts 1", "A has 25",
                                                   "A settles", "B has 5", "B settles", "A starts 2", "B starts 2"}));
}

// At one instant the rules are called in the order of their owners, whatever the order of set(). W of the weights, A
// and B issue at 0: W's copy of 4 ns ends at 4, A's at 29, B's at 34. Layer 1 waits for A from 10 to 29, layer 2 for
// nothing: B is there when it starts at 39.
TEST(RuleSet, WeightsComeBeforeKvAndKvBeforeRequests) {
  TwoRules rules(1, 2);
  OneCopy weights("W", 0, 1, 4, rules.calls);
  rules.both.set(kWeightCopies, &weights);
  EXPECT_EQ(rules.executor.run(rules.plan, kNever).time, SimTime(49));
  EXPECT_EQ(waited(rules, Wait::weights), ns(0));
  EXPECT_EQ(waited(rules, Wait::layers), ns(19));
  EXPECT_EQ(waited(rules, Wait::requests), ns(0));
  EXPECT_EQ(rules.calls, (std::vector<std::string>{"W starts 0", "A starts 0", "B starts 0", "W has 4", "W settles",
                                                   "W starts 1", "A starts 1", "B starts 1", "A has 25", "A settles",
                                                   "B has 5", "B settles", "W starts 2", "A starts 2", "B starts 2"}));
}

// As above with B needed at once: layer 0 waits until 30, from 0 to 25 for A first, then for B.
TEST(RuleSet, AWaitIsChargedToTheFirstRuleThatIsNotReady) {
  TwoRules rules(0, 0);
  // Cuts change nothing.
  EXPECT_FALSE(rules.executor.run(rules.plan, SimTime(7)).finished);
  EXPECT_FALSE(rules.executor.run(rules.plan, SimTime(28)).finished);
  EXPECT_EQ(waited(rules, Wait::layers), ns(25));
  EXPECT_EQ(waited(rules, Wait::requests), ns(3));
  EXPECT_EQ(rules.executor.run(rules.plan, kNever).time, SimTime(60));
  EXPECT_EQ(waited(rules, Wait::layers), ns(25));
  EXPECT_EQ(waited(rules, Wait::requests), ns(5));
}

}  // namespace
}  // namespace spillway
