// Each router's choices, by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "policies/parts/least_tree.hpp"
#include "sim/api/router.hpp"
#include "tests/oracle/random_case.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;

/// Replicas whose state a test sets.
class GivenReplicas final : public Replicas {
 public:
  explicit GivenReplicas(std::size_t count) : sent(count), used(count), living(count) {
    std::iota(living.begin(), living.end(), std::size_t{0});
  }
  [[nodiscard]] std::size_t count() const override { return sent.size(); }
  [[nodiscard]] SimTime now() const override { return time; }
  [[nodiscard]] std::span<const std::size_t> up() const override { return living; }
  [[nodiscard]] std::int64_t outstanding(std::size_t replica) const override { return sent[replica]; }
  [[nodiscard]] double kv_used(std::size_t replica) const override { return used[replica]; }

  std::vector<std::int64_t> sent;
  std::vector<double> used;
  std::vector<std::size_t> living;
  SimTime time{};
};

/// A router over such replicas, which counts what is outstanding.
class Routed {
 public:
  Routed(const std::string& name, std::size_t count, const Settings& given = {}) : replicas(count) {
    const RouterInfo& info = *RouterRegistry::instance().find(name);
    Settings settings;
    for (const Parameter& parameter : info.parameters) settings.set(parameter.name, default_of(parameter));
    for (const auto& [key, value] : given.all()) settings.set(key, value);
    router_ = info.make({settings, replicas, Tokens(10), RandomStream(1, 0, "router")});
  }
  std::size_t send(const RequestSpec& request = {}) {
    const std::size_t chosen = router_->choose(request);
    ++replicas.sent[chosen];
    return chosen;
  }
  /// A replica has refused the request, and it goes to this one.
  void send_on(std::size_t replica, const RequestSpec& request = {}) {
    ++replicas.sent[replica];
    router_->sent_on(request, replica);
  }
  void end(std::size_t replica) {
    --replicas.sent[replica];
    router_->ended(replica);
  }
  /// Goes down after its requests have ended, or comes up.
  void change(std::size_t replica, bool up) {
    while (!up && replicas.sent[replica] > 0) end(replica);
    if (up) {
      replicas.living.insert(std::ranges::lower_bound(replicas.living, replica), replica);
    } else {
      std::erase(replicas.living, replica);
    }
    router_->changed(replica, up);
  }
  std::vector<std::size_t> send_all(int times, const RequestSpec& request = {}) {
    std::vector<std::size_t> chosen;
    chosen.reserve(static_cast<std::size_t>(times));
    for (int i = 0; i < times; ++i) chosen.push_back(send(request));
    return chosen;
  }

  GivenReplicas replicas;

 private:
  static Value default_of(const Parameter& parameter) {
    if (parameter.type == ParameterType::integer) return static_cast<std::int64_t>(std::stoll(parameter.default_value));
    if (parameter.type == ParameterType::duration) return Duration(0);
    return std::stod(parameter.default_value);
  }
  std::unique_ptr<Router> router_;
};

RequestSpec of_conversation(std::int64_t conversation) {
  RequestSpec request;
  request.traits.conversation = conversation;
  return request;
}

/// A prompt of whole blocks of 10 tokens, and `more` tokens.
RequestSpec prompt(std::vector<std::uint64_t> blocks, std::int64_t more = 0) {
  RequestSpec request;
  request.input = Tokens(static_cast<std::int64_t>(blocks.size()) * 10 + more);
  request.prefix_ids = std::move(blocks);
  return request;
}

Settings settings(std::int64_t balance_abs, double balance_rel, double threshold = 0.3, std::int64_t staleness = 0) {
  Settings given;
  given.set("router.balance_abs", balance_abs);
  given.set("router.balance_rel", balance_rel);
  given.set("router.cache_threshold", threshold);
  given.set("router.staleness", Duration(staleness));
  return given;
}

TEST(Routers, AreThese) {
  std::vector<std::string> names;
  for (const RouterInfo* const info : RouterRegistry::instance().all()) {
    names.push_back(info->name);
    EXPECT_FALSE(info->summary.empty());
    EXPECT_FALSE(info->source.empty());
  }
  EXPECT_THAT(names, ElementsAre("least-kv", "least-outstanding", "power-of-two", "prefix", "random", "round-robin",
                                 "session"));
  EXPECT_EQ(RouterRegistry::instance().find("least"), nullptr);
}

TEST(Routers, OfOneReplica_ChooseIt) {
  for (const RouterInfo* const info : RouterRegistry::instance().all()) {
    Routed one(info->name, 1);
    EXPECT_THAT(one.send_all(3, prompt({1, 2}, 3)), ElementsAre(0, 0, 0)) << info->name;
    one.end(0);
    EXPECT_EQ(one.send(of_conversation(7)), 0U) << info->name;
  }
}

TEST(RoundRobin, TakesTurns) {
  Routed routed("round-robin", 3);
  EXPECT_THAT(routed.send_all(7), ElementsAre(0, 1, 2, 0, 1, 2, 0));
}

// 30,000 draws of 3: each is 10,000 +- 4 standard deviations of sqrt(30,000 x 1/3 x 2/3) = 82.
TEST(Random, ChoosesAllAlike) {
  Routed routed("random", 3);
  std::map<std::size_t, int> counts;
  for (const std::size_t chosen : routed.send_all(30'000)) ++counts[chosen];
  ASSERT_EQ(counts.size(), 3U);
  for (const auto& [replica, count] : counts) EXPECT_NEAR(count, 10'000, 327) << replica;
}

// The first of equal ones; then those that ended.
TEST(LeastOutstanding, ChoosesTheFewest) {
  Routed routed("least-outstanding", 3);
  EXPECT_THAT(routed.send_all(4), ElementsAre(0, 1, 2, 0));  // 2 1 1
  routed.end(2);                                             // 2 1 0
  EXPECT_THAT(routed.send_all(3), ElementsAre(2, 1, 2));     // 2 2 2
  routed.end(1);
  routed.end(1);
  EXPECT_THAT(routed.send_all(3), ElementsAre(1, 1, 0));
}

// The first refuses its request, which goes to the second. So the first is empty again, and then the third.
TEST(LeastOutstanding, CountsWhatIsSentOn) {
  Routed router("least-outstanding", 3);
  EXPECT_EQ(router.send(), 0U);
  router.end(0);
  router.send_on(1);
  EXPECT_THAT(router.send_all(3), ElementsAre(0, 2, 0));
}

TEST(Session, CountsWhatIsSentOn) {
  Routed router("session", 3);
  router.send_on(0);
  EXPECT_THAT(router.send_all(2), ElementsAre(1, 2));
}

// What was sent on is known there as what the router has sent itself.
TEST(PrefixRouter, KnowsWhatIsSentOn) {
  Routed router("prefix", 3, settings(64, 1.5));
  router.send_on(2, prompt({1, 2, 3}));
  EXPECT_EQ(router.send(prompt({1, 2, 3, 4})), 2U);
}

TEST(LeastKv, ChoosesTheEmptiestThenTheFewest) {
  Routed routed("least-kv", 3);
  routed.replicas.used = {0.5, 0.25, 0.25};
  routed.replicas.sent = {0, 4, 3};
  EXPECT_THAT(routed.send_all(3), ElementsAre(2, 1, 2));  // 3, then 4 and 4, then 5 and 4
  routed.replicas.used = {0.1, 0.25, 0.25};
  EXPECT_EQ(routed.send(), 0U);
}

// Two replicas are both drawn, so the one with fewer is chosen; of equal ones each at times. Of four with one that has
// nothing, that one is drawn with probability 1/2: 10,000 draws are 5,000 +- 4 x 50.
TEST(PowerOfTwo, ChoosesTheBetterOfTwo) {
  Routed two("power-of-two", 2);
  two.replicas.sent = {5, 3};
  EXPECT_THAT(two.send_all(2), ElementsAre(1, 1));
  std::set<std::size_t> seen;
  for (int i = 0; i < 50; ++i) {
    two.replicas.sent = {5, 5};
    seen.insert(two.send());
  }
  EXPECT_THAT(seen, ElementsAre(0, 1));
  Routed four("power-of-two", 4);
  int best = 0;
  for (int i = 0; i < 10'000; ++i) {
    four.replicas.sent = {9, 9, 0, 9};
    best += four.send() == 2 ? 1 : 0;
  }
  EXPECT_NEAR(best, 5'000, 200);
}

// Turns stay together, conversations spread, and a fourth replica takes about a quarter of them, from all others: no
// conversation moves between the first three.
TEST(Session, KeepsConversationsTogether) {
  Routed three("session", 3);
  Routed four("session", 4);
  std::map<std::size_t, int> counts;
  int moved = 0;
  for (std::int64_t conversation = 0; conversation < 3000; ++conversation) {
    const std::size_t chosen = three.send(of_conversation(conversation));
    EXPECT_EQ(three.send(of_conversation(conversation)), chosen);
    ++counts[chosen];
    const std::size_t among_four = four.send(of_conversation(conversation));
    EXPECT_TRUE(among_four == chosen || among_four == 3) << conversation;
    moved += among_four == 3 ? 1 : 0;
  }
  ASSERT_EQ(counts.size(), 3U);
  for (const auto& [replica, count] : counts) EXPECT_NEAR(count, 1000, 104) << replica;  // 4 x sqrt(3000 x 2/9)
  EXPECT_NEAR(moved, 750, 95);                                                           // 4 x sqrt(3000 x 3/16)
  Routed without("session", 2);
  EXPECT_THAT(without.send_all(3), ElementsAre(0, 1, 0));
}

// A gateway has not seen the answer of a request that it sends.
TEST(PrefixRouter, KnowsNothingOfAnswers) {
  Routed routed("prefix", 2, settings(1000, 1.0));
  RequestSpec first = prompt({1, 2}, 5);
  first.prefix_ids.insert(first.prefix_ids.end(), {3, 4, 5});
  EXPECT_EQ(routed.send(first), 0U);            // 25 0
  EXPECT_EQ(routed.send(prompt({6}, 10)), 1U);  // 25 20
  RequestSpec other = prompt({7}, 0);
  other.prefix_ids.insert(other.prefix_ids.end(), {8, 9, 10});
  EXPECT_EQ(routed.send(other), 1U);                     // 25 30
  EXPECT_EQ(routed.send(prompt({7, 8, 9, 10})), 0U);     // 10 of 40 are known: 65 30
  EXPECT_EQ(routed.send(prompt({1, 2, 3, 4}, 30)), 1U);  // 20 of 70 are known: 65 100
}

// Records in tokens. Without a known prefix the smallest record is chosen.
TEST(PrefixRouter, FollowsTheLongestPrefix) {
  Routed routed("prefix", 3, settings(1000, 1.0));
  EXPECT_EQ(routed.send(prompt({1, 2, 3})), 0U);     // 30 0 0
  EXPECT_EQ(routed.send(prompt({4}, 5)), 1U);        // 30 15 0
  EXPECT_EQ(routed.send(prompt({1, 2, 5})), 0U);     // 20 of 30 tokens are known: 40 15 0
  EXPECT_EQ(routed.send(prompt({1, 6, 7, 8})), 2U);  // 10 of 40 are not more than 0.3: 40 15 40
  EXPECT_EQ(routed.send(prompt({1, 6, 9}, 1)), 2U);  // 20 of 31 at 2, 10 at 0: 40 15 51
  EXPECT_EQ(routed.send(prompt({6, 7})), 1U);        // not a prefix: 40 35 51
  EXPECT_EQ(routed.send(prompt({1}, 20)), 0U);       // 10 of 30 at 0 and 2, of which 0 has the smaller record
}

// Out of balance needs both: more than 2 more, and more than twice as many.
TEST(PrefixRouter, PrefersBalance) {
  Routed routed("prefix", 2, settings(2, 2.0));
  const RequestSpec same = prompt({1, 2});
  EXPECT_THAT(routed.send_all(3, same), ElementsAre(0, 0, 0));  // 0, 1 and 2 more than the other
  EXPECT_THAT(routed.send_all(1, same), ElementsAre(1));        // 3 more than 0
  EXPECT_THAT(routed.send_all(1, same), ElementsAre(0));        // 3 and 1: not more than 2 more; the records are equal
  EXPECT_EQ(routed.send(same), 1U);                             // 4 and 1
  EXPECT_EQ(routed.send(same), 0U);                             // 4 and 2
  EXPECT_EQ(routed.send(same), 1U);                             // 5 and 2
  EXPECT_EQ(routed.send(same), 0U);                             // 5 and 3
  EXPECT_EQ(routed.send(same), 0U);                             // 6 and 3: 3 more, but only twice as many
  EXPECT_EQ(routed.send(same), 1U);                             // 7 and 3
  routed.end(1);
  routed.end(1);
  EXPECT_EQ(routed.send(same), 1U);  // 7 and 2
}

// The router learns of what it sent 100 ns later. Until then all records are empty, so the first replica is chosen.
TEST(PrefixRouter, SeesWhatIsOldEnough) {
  Routed routed("prefix", 2, settings(1, 1.0, 0.3, 100));
  EXPECT_THAT(routed.send_all(3, prompt({1, 2})), ElementsAre(0, 0, 0));
  routed.replicas.time = SimTime(99);
  EXPECT_EQ(routed.send(prompt({7})), 0U);
  routed.replicas.time = SimTime(100);
  EXPECT_EQ(routed.send(prompt({1, 2})), 1U);  // 3 and 0
  routed.end(0);
  routed.end(0);
  routed.replicas.time = SimTime(199);
  EXPECT_EQ(routed.send(prompt({1, 2})), 1U);  // 4 and 0: that two have ended is not known
  routed.replicas.time = SimTime(200);
  EXPECT_EQ(routed.send(prompt({1, 2})), 1U);  // 2 and 1; records of 30 and 20 tokens, and both know the prompt
}

// --- one of three is down, then up again

TEST(RoundRobin, PassesOverOneThatIsDown) {
  Routed routed("round-robin", 3);
  EXPECT_EQ(routed.send(), 0U);
  routed.change(1, false);
  EXPECT_THAT(routed.send_all(3), ElementsAre(2, 0, 2));
  routed.change(1, true);
  EXPECT_THAT(routed.send_all(3), ElementsAre(0, 1, 2));
}

TEST(Routers, NeverChooseOneThatIsDown) {
  for (const RouterInfo* const info : RouterRegistry::instance().all()) {
    SCOPED_TRACE(info->name);
    Routed routed(info->name, 3);
    routed.send_all(3, prompt({1, 2}));
    routed.change(0, false);
    for (std::int64_t i = 0; i < 40; ++i) {
      RequestSpec request = prompt({1, 2}, i);
      request.traits.conversation = i;
      EXPECT_NE(routed.send(request), 0U);
    }
    routed.change(2, false);
    EXPECT_THAT(routed.send_all(3, prompt({1, 2})), ElementsAre(1, 1, 1));
    routed.change(0, true);
    std::set<std::size_t> seen;
    for (std::int64_t i = 0; i < 200; ++i) {
      RequestSpec request = prompt({static_cast<std::uint64_t>(100 + i)});
      request.traits.conversation = i;
      seen.insert(routed.send(request));
    }
    // least-kv sees the same share of KV everywhere, so it counts; prefix fills the emptied record.
    EXPECT_THAT(seen, ElementsAre(0, 1));
  }
}

// What is outstanding counts from the start again: 0 has nothing when it is up again, 1 and 2 have 3 each.
TEST(LeastOutstanding, StartsAnewWithOneThatWasDown) {
  Routed routed("least-outstanding", 3);
  routed.send_all(3);
  routed.change(0, false);
  EXPECT_THAT(routed.send_all(4), ElementsAre(1, 2, 1, 2));
  routed.change(0, true);
  EXPECT_THAT(routed.send_all(4), ElementsAre(0, 0, 0, 0));
}

// Conversations of the one that is down spread over both others and go back; the others stay.
TEST(Session, MovesOnlyWhatLivedOnTheOneThatIsDown) {
  Routed routed("session", 3);
  std::map<std::int64_t, std::size_t> homes;
  for (std::int64_t c = 0; c < 300; ++c) homes[c] = routed.send(of_conversation(c));
  routed.change(1, false);
  std::set<std::size_t> instead;
  for (const auto& [conversation, home] : homes) {
    const std::size_t chosen = routed.send(of_conversation(conversation));
    if (home == 1) {
      instead.insert(chosen);
    } else {
      EXPECT_EQ(chosen, home);
    }
  }
  EXPECT_THAT(instead, ElementsAre(0, 2));
  routed.change(1, true);
  for (const auto& [conversation, home] : homes) EXPECT_EQ(routed.send(of_conversation(conversation)), home);
}

// Records 40 and 10 before, so new prompts go to 1. Replica 0 forgets what it had: its record is 0, then 20, and the
// prompt that it knew is new.
TEST(PrefixRouter, ForgetsWhatTheOneThatWasDownHad) {
  Routed routed("prefix", 2, settings(1000, 1.0));
  EXPECT_EQ(routed.send(prompt({1, 2, 3, 4})), 0U);
  EXPECT_EQ(routed.send(prompt({5})), 1U);
  EXPECT_EQ(routed.send(prompt({1, 2})), 0U);
  routed.change(0, false);
  EXPECT_EQ(routed.send(prompt({1, 2})), 1U);  // 0 and 30
  routed.change(0, true);
  EXPECT_EQ(routed.send(prompt({1, 2})), 1U);  // which knows it
  EXPECT_EQ(routed.send(prompt({7, 8})), 0U);  // 20 and 30
  EXPECT_EQ(routed.send(prompt({9})), 0U);     // 30 and 30
}

// What was sent within the staleness is not learnt when the replica has been down since; that it ended is.
TEST(PrefixRouter, LearnsNothingOfBeforeTheFailure) {
  Routed routed("prefix", 2, settings(1, 1.0, 0.3, 100));
  EXPECT_EQ(routed.send(prompt({1, 2})), 0U);
  routed.change(0, false);
  routed.change(0, true);
  routed.replicas.time = SimTime(100);
  EXPECT_EQ(routed.send(prompt({1, 2})), 0U);  // records of 0 and 0, nothing outstanding
  EXPECT_EQ(routed.send(prompt({3})), 0U);     // not learnt yet: the same
}

// Against a search of all places, over random changes.
TEST(LeastTree, IsTheFirstOfTheSmallest) {
  for (const std::size_t places : {1U, 2U, 3U, 8U, 13U}) {
    oracle::Dice dice(places);
    LeastTree tree(places);
    std::vector<std::int64_t> plain(places);
    for (int i = 0; i < 500; ++i) {
      const auto place = static_cast<std::size_t>(dice.between(0, static_cast<std::int64_t>(places) - 1));
      plain[place] = dice.between(-5, 5);
      tree.set(place, plain[place]);
      const auto least = std::min_element(plain.begin(), plain.end()) - plain.begin();
      ASSERT_EQ(tree.least(), static_cast<std::size_t>(least));
      ASSERT_EQ(tree.at(place), plain[place]);
    }
  }
}

}  // namespace
}  // namespace spillway
