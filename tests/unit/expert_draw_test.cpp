// Which experts an iteration uses (sim/exec/expert_draw.hpp): by hand, and against a plain model of its rules.
#include "sim/exec/expert_draw.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "sim/core/random.hpp"
#include "tests/oracle/plain_draw.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;

std::int64_t fixed(double x) { return std::llround(x * 0x1p32); }

std::vector<std::int32_t> sample(const std::vector<double>& d, double u, const SampleOrder& order = {1, 0}) {
  std::vector<std::int32_t> room(d.size());
  const std::span<std::int32_t> drawn =
      systematic_sample([&](std::uint32_t expert) { return fixed(d[expert]); }, fixed(u), order, room);
  return {drawn.begin(), drawn.end()};
}

// E (1 - (1 - k/E)^T).
TEST(ExpertDraw, DistinctExperts) {
  const std::vector<double> mixtral(8, 0.25);
  EXPECT_EQ(distinct_experts(mixtral, 1), 2.0);
  EXPECT_EQ(distinct_experts(mixtral, 2), 3.5);
  EXPECT_EQ(distinct_experts(mixtral, 4), 5.46875);
  EXPECT_EQ(distinct_experts(mixtral, 8), 7.1990966796875);
  const std::vector<double> qwen(128, 8.0 / 128.0);
  EXPECT_EQ(distinct_experts(qwen, 2), 15.5);
  EXPECT_NEAR(distinct_experts(qwen, 32), 111.7710, 5e-5);
  EXPECT_NEAR(distinct_experts(std::vector{.8, .6, .4, .2}, 2), .96 + .84 + .64 + .36, 1e-12);
}

// The first c = 2/12 gives 8c > 1, which becomes 1; the rest share what is left: c = 1/4.
TEST(ExpertDraw, WaterFillingCapsAtOne) {
  EXPECT_THAT(water_filling(std::vector{8.0, 2.0, 1.0, 1.0}, 2.0), ElementsAre(1.0, 0.5, 0.25, 0.25));
  EXPECT_THAT(water_filling(std::vector{1.0, 1.0, 1.0, 1.0}, 4.0), ElementsAre(1.0, 1.0, 1.0, 1.0));
}

// T = 1, last {0, 1}, running sums .55 1.10 1.25 1.40 1.55 1.70 1.85 2.00.
TEST(ExpertDraw, SystematicSampleOfOneToken) {
  const std::vector<double> d{.55, .55, .15, .15, .15, .15, .15, .15};
  EXPECT_THAT(sample(d, .5), ElementsAre(0, 4));
  EXPECT_THAT(sample(d, .2), ElementsAre(0, 2));
  EXPECT_THAT(sample(d, .57), ElementsAre(1, 5));
}

// The same of T = 2, m = (2, 1, 1, 0, ...): sums .7975 1.415 2.0325 2.31 2.5875 ...
TEST(ExpertDraw, SystematicSampleOfTwoTokens) {
  const std::vector<double> d{.7975, .6175, .6175, .2775, .2775, .2775, .2775, .2775};
  EXPECT_THAT(sample(d, .5), ElementsAre(0, 2, 4));
  EXPECT_THAT(sample(d, .3), ElementsAre(0, 1, 3, 7));
}

TEST(ExpertDraw, SampleVisitsInTheOrderOfTheHash) {
  // 5 mod 6 | 1 = 5, coprime with 6; the upper half 8 mod 6 = 2.
  const SampleOrder order = SampleOrder::of((std::uint64_t{8} << 32U) | 5U, 6);
  EXPECT_EQ(((std::uint64_t{8} << 32U) | 5U) % 6, 1);  // 8 * 2^32 + 5 = 8 * 4 + 5 = 37 = 1 mod 6
  EXPECT_EQ(order.step, 1);
  EXPECT_EQ(order.first, 2);
  // 9 mod 6 = 3, which 3 divides; 5 does not.
  EXPECT_EQ(SampleOrder::of(9, 6).step, 5);
  EXPECT_THAT(sample({.5, .5, .5, .5}, 0.0, {3, 2}), ElementsAre(2, 0));  // order 2 1 0 3
  // Of 8: 13 mod 8 = 5, and 12 mod 8 = 4 is made odd; the upper half 11 mod 8 = 3.
  const SampleOrder of_eight = SampleOrder::of((std::uint64_t{11} << 32U) | 13U, 8);
  EXPECT_EQ(of_eight.step, 5);
  EXPECT_EQ(of_eight.first, 3);
  EXPECT_EQ(SampleOrder::of(12, 8).step, 5);
}

TEST(ExpertDraw, LargestRemainderKeepsItsBounds) {
  std::vector<double> parts;
  LargestRemainder largest_remainder;
  // 3.5, 1.75, 1.75 of 7: whole parts 3, 1, 1; the two remainders of .75 come first.
  largest_remainder(std::vector{2.0, 1.0, 1.0}, 7, 7, parts);
  EXPECT_THAT(parts, ElementsAre(3, 2, 2));
  // 8, 1, 1 of 10 with at most 5: what is over goes to the others, first to the first.
  largest_remainder(std::vector{8.0, 1.0, 1.0}, 10, 5, parts);
  EXPECT_THAT(parts, ElementsAre(5, 3, 2));
  // 5.94, .03, .03 of 6: each has at least one.
  largest_remainder(std::vector{198.0, 1.0, 1.0}, 6, 6, parts);
  EXPECT_THAT(parts, ElementsAre(4, 1, 1));
  // Equal remainders: the lower number.
  largest_remainder(std::vector{1.0, 1.0, 1.0, 1.0}, 6, 6, parts);
  EXPECT_THAT(parts, ElementsAre(2, 2, 1, 1));
}

/// The same with many turns: all that is left goes, one by one in a turn, to the parts that lack most.
bool plain_remainder(const std::vector<double>& weights, std::int64_t total, std::int64_t most,
                     std::vector<double>& parts) {
  const double scale = static_cast<double>(total) / std::accumulate(weights.begin(), weights.end(), 0.0);
  parts.clear();
  for (const double weight : weights) {
    parts.push_back(std::clamp(std::floor(weight * scale), 1.0, static_cast<double>(most)));
  }
  bool by_position = false;
  for (;;) {
    const double left = static_cast<double>(total) - std::accumulate(parts.begin(), parts.end(), 0.0);
    if (left == 0.0) return by_position;
    const double by = left > 0.0 ? 1.0 : -1.0;
    std::vector<std::pair<double, std::size_t>> lacks;  // the most first
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] + by < 1.0 || parts[i] + by > static_cast<double>(most)) continue;
      const double lack = weights[i] * scale - parts[i];
      lacks.emplace_back(-by * std::floor(lack * 1e6 + 0.5), i);
    }
    std::ranges::sort(lacks);
    const auto taken = std::min(lacks.size(), static_cast<std::size_t>(std::abs(left)));
    by_position |= taken < lacks.size() && lacks[taken - 1].first == lacks[taken].first;
    for (std::size_t i = 0; i < taken; ++i) parts[lacks[i].second] += by;
  }
}

TEST(ExpertDraw, LargestRemainderAgreesWithAPlainOne) {
  RandomStream random(26, 0, "largest remainder");
  LargestRemainder largest_remainder;
  std::int64_t by_position = 0;
  for (std::uint64_t i = 0; i < random_cases(4000); ++i) {
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random.next_u64() % static_cast<std::uint64_t>(n));
    };
    const std::int64_t size = 1 + below(below(2) == 0 ? 5 : 200);
    const std::int64_t most = 1 + below(below(2) == 0 ? 12 : 300);
    const std::int64_t total = size + below(size * (most - 1) + 1);
    std::vector<double> weights;
    const bool alike = below(3) == 0;
    for (std::int64_t e = 0; e < size; ++e) {
      weights.push_back(alike ? static_cast<double>(1 + below(3)) : std::pow(random.uniform() + 1e-3, 4.0));
    }
    std::vector<double> parts;
    std::vector<double> plain;
    const bool tied = largest_remainder(weights, total, most, parts);
    ASSERT_EQ(tied, plain_remainder(weights, total, most, plain)) << "case " << i;
    ASSERT_EQ(parts, plain) << "case " << i;
    by_position += tied ? 1 : 0;
  }
  EXPECT_GT(by_position, more_than(200));
}

/// The same bits as one by one.
void expect_powers(const std::vector<double>& bases, const std::vector<double>& exponents) {
  std::vector<PowerBase> of;
  of.reserve(bases.size());
  for (const double base : bases) of.push_back(PowerBase::of(base));
  PortablePowers powers_of;
  const std::span<const double> powers = powers_of(of, exponents);
  ASSERT_EQ(powers.size(), bases.size());
  for (std::size_t i = 0; i < bases.size(); ++i) {
    ASSERT_EQ(powers[i], portable_power(bases[i], exponents[i])) << bases[i] << " " << exponents[i];
  }
}

// A million and 2^20 are whole powers still, 2^20 + 1 is not. Of twelve bases, four are left when eight are raised at
// once.
TEST(ExpertDraw, PowersWithOneExponentAreThoseOneByOne) {
  const std::vector<double> bases{0.0, 1e-300, 1e-9, 0.25, 0.5, 0.9, 1.0 - 1e-7, std::nextafter(1.0, 0.0),
                                  1.0, 1e-9,   0.25, 0.9};
  for (const std::int64_t exponent : {0, 1, 2, 3, 17, 512, 1'000'000, 1 << 20, (1 << 20) + 1}) {
    std::vector<double> powers(bases.size(), -1.0);
    raise_to_power(bases, exponent, powers);
    for (std::size_t i = 0; i < bases.size(); ++i) {
      EXPECT_EQ(powers[i], portable_power(bases[i], static_cast<double>(exponent))) << bases[i] << " " << exponent;
    }
  }
}

TEST(ExpertDraw, PowersOfManyAreThoseOfEach) {
  RandomStream random(25, 0, "powers of many");
  for (const double share_of_whole : {0.0, 0.5, 1.0}) {
    std::vector<double> bases;
    std::vector<double> exponents;
    double smallest = 0.0;  // logarithm, of those that are not whole
    for (std::int32_t i = 0; i < 500; ++i) {
      bases.push_back(i % 50 == 0 ? 0.0 : i % 50 == 1 ? 1.0 : random.uniform());
      const bool whole = random.uniform() < share_of_whole;
      exponents.push_back(whole ? std::floor(300.0 * random.uniform()) : 0.01 + 20.0 * random.uniform());
      if (!whole && bases.back() > 0.0) smallest = std::min(smallest, exponents.back() * std::log(bases.back()));
    }
    ASSERT_GT(smallest, -700.0) << "all are computed at once";
    expect_powers(bases, exponents);
  }
  // Whole exponents that are too large for products, powers of 0, and powers below all numbers, 1e-600.
  expect_powers({0.9999, 0.9999, 0.9999, 0.9999, 0.0, 0.5, 1e-300}, {1048576.0, 1048577.0, 1e9, 5000.5, 0.0, 0.0, 2.5});
  expect_powers({0.0, 0.5}, {0.0, 0.0});
  expect_powers({}, {});
}

/// Up to three points; in a third of the cases none.
std::vector<HitCurve::Point> random_curve(std::int32_t experts, RandomStream& random) {
  std::vector<HitCurve::Point> points;
  const auto wanted = random.next_u64() % 3 == 0 ? 0 : 1 + random.next_u64() % 3;
  for (std::int32_t slots = 1; slots < experts && points.size() < wanted; ++slots) {
    if (random.next_u64() % 3 != 0) continue;
    const double least = points.empty() ? 0.0 : points.back().share;
    points.push_back({slots, least + (1.0 - least) * random.uniform()});
  }
  return points;
}

TEST(ExpertDraw, AgreesWithAPlainModelOfItsRules) {
  RandomStream random(24, 0, "expert draw");
  std::int64_t different = 0;
  std::int64_t layers = 0;
  std::int64_t shared = 0;
  std::int64_t known_by_tokens = 0;
  for (std::uint64_t i = 0; i < random_cases(60); ++i) {
    const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random.next_u64() % n); };
    ExpertChoice choice;
    choice.count = static_cast<std::int32_t>(2 + below(40));
    choice.top_k = static_cast<std::int32_t>(1 + below(static_cast<std::uint64_t>(choice.count)));
    choice.layers = 2;
    choice.skew = random.uniform() * 1.5;
    choice.locality = below(4) == 0 ? static_cast<double>(below(2)) : random.uniform() * 0.95;
    choice.patterns = static_cast<std::int32_t>(1 + below(3));
    choice.seed = random.next_u64();
    const auto slots = static_cast<std::int32_t>(1 + below(static_cast<std::uint64_t>(choice.count)));
    const std::vector<HitCurve::Point> curve = random_curve(choice.count, random);
    choice.hit_curve = HitCurve(curve);
    ExpertDraw draw(choice);
    oracle::PlainDraw plain({choice.count, choice.top_k, choice.layers, choice.skew, choice.locality, choice.patterns,
                             choice.lookahead, curve, choice.seed});
    std::int64_t decodes = 0;
    std::int64_t ended = 0;
    for (int iteration = 0; iteration < 60; ++iteration) {
      const std::int64_t known = decodes + ended;
      const std::int64_t leave = known > 0 && below(3) == 0 ? below(static_cast<std::uint64_t>(known) + 1) : 0;
      decodes = known - leave + (below(12) == 0 ? below(3) : 0);
      const bool prompts = decodes == 0 || below(3) == 0;
      std::vector<PrefillChunk> chunks;
      if (prompts) chunks.push_back({Tokens(1 + below(below(2) == 0 ? 4 : 300)), Tokens(0)});
      ended = prompts ? below(2) : 0;
      BatchShape shape{.decode_sequences = decodes, .chunks = chunks, .sampled_sequences = decodes + ended};
      const std::int64_t fresh = prompts ? chunks.front().new_tokens.count() : 0;
      if (choice.patterns > 1) {
        std::vector<std::int64_t> kinds(static_cast<std::size_t>(choice.patterns));
        for (std::int64_t token = 0; token < decodes + fresh; ++token) ++kinds[random.next_u64() % kinds.size()];
        draw.mix(kinds);
        plain.mix(kinds);
      }
      draw.begin(shape);
      plain.begin(shape);
      for (std::int32_t l = 0; l < choice.layers; ++l) {
        if (below(20) == 0) continue;  // nobody asks
        if (below(2) == 0) {
          EXPECT_EQ(draw.distinct(l), std::ssize(plain.layer(l)));
        }
        const std::span<const std::int32_t> guess = draw.predicted(l, choice.top_k);
        const std::span<const std::int32_t> plain_guess = plain.predicted(l, choice.top_k);
        ASSERT_TRUE(std::equal(guess.begin(), guess.end(), plain_guess.begin(), plain_guess.end()));
        const auto found = draw.found(l, slots);
        const auto plain_found = plain.found(l, slots);
        ASSERT_EQ(found.has_value(), !curve.empty());
        ASSERT_EQ(plain_found.has_value(), !curve.empty());
        ASSERT_TRUE(!found || std::ranges::equal(*found, *plain_found)) << "case " << i;
        const bool asks_first = below(2) == 0;
        AllUsed all = asks_first ? draw.all_used(l) : AllUsed();
        const std::span<const ExpertUse> used = draw.layer(l);
        const std::span<const ExpertUse> expected = plain.layer(l);
        if (!asks_first) all = draw.all_used(l);
        std::int64_t rows = 0;
        for (const ExpertUse& use : used) rows += use.tokens;
        ASSERT_EQ(rows, (decodes + fresh) * choice.top_k);
        const auto tokens = [&used](std::int32_t expert) { return used[static_cast<std::size_t>(expert)].tokens; };
        if (all.known()) {
          ++known_by_tokens;
          ASSERT_EQ(std::ssize(used), choice.count);
          std::vector<std::int32_t> each(all.experts.begin(), all.experts.end());
          ASSERT_TRUE(std::ranges::is_sorted(each, std::greater{}, tokens)) << "case " << i;
          ASSERT_TRUE(std::ranges::equal(each, all.tokens, {}, tokens)) << "case " << i;
          std::ranges::sort(each);
          ASSERT_TRUE(std::ranges::equal(each, used, {}, {}, &ExpertUse::expert)) << "case " << i;
          for (const ExpertUse& use : used) ASSERT_EQ(all.tokens_of(use.expert), use.tokens) << "case " << i;
        }
        ++layers;
        shared += decodes > 1 ? 1 : 0;
        if (!std::equal(used.begin(), used.end(), expected.begin(), expected.end())) {
          ++different;
          break;
        }
      }
      if (different > 0) break;
    }
    ASSERT_EQ(different, 0) << "case " << i << " after " << layers << " layers";
  }
  EXPECT_GT(shared, layers / 5);
  EXPECT_GT(known_by_tokens, layers / 50);
}

TEST(ExpertDraw, WithoutTokensUsesNothing) {
  ExpertDraw draw({.count = 4, .top_k = 2, .layers = 1, .seed = 5});
  draw.begin({});
  EXPECT_EQ(draw.distinct(0), 0);
  EXPECT_TRUE(draw.layer(0).empty());
  EXPECT_FALSE(draw.all_used(0).known());
  EXPECT_TRUE(draw.predicted(0, 2).empty());
}

// 30 tokens of a prompt, two of four experts each: all are in use. While they are of one kind, an expert that is more
// popular in this kind has no fewer tokens. Nothing is known of two kinds of requests, or beside tokens that decode.
TEST(ExpertDraw, KnowsExpertsByTokensWherePromptsOfOneKindUseAll) {
  const std::vector<PrefillChunk> chunks{{Tokens(30), Tokens(0)}};
  using Kinds = std::vector<std::int64_t>;  // tokens of each
  const auto by_tokens = [&](const ExpertChoice& choice, std::int64_t decodes, const Kinds& kinds) {
    ExpertDraw draw(choice);
    std::vector<std::int32_t> last;
    for (const std::int64_t decoding : {std::int64_t{0}, decodes}) {
      draw.mix(decoding > 0 ? Kinds{32} : kinds);
      draw.begin({.decode_sequences = decoding, .chunks = chunks, .sampled_sequences = decoding});
      EXPECT_EQ(draw.layer(1).size(), 4);
      const std::span<const std::int32_t> known = draw.all_used(1).experts;
      last.assign(known.begin(), known.end());
    }
    return last;
  };
  const auto by_popularity = [](const ExpertChoice& choice, std::int32_t kind) {
    const ExpertDraw draw(choice);
    std::vector<std::int32_t> experts{0, 1, 2, 3};
    std::ranges::sort(experts, std::greater{},
                      [&](std::int32_t expert) { return draw.popularity_in(kind, 1, expert); });
    return experts;
  };
  const ExpertChoice ranked{.count = 4, .top_k = 2, .layers = 2, .skew = 0.65, .seed = 5};
  EXPECT_EQ(by_tokens(ranked, 0, {30}), by_popularity(ranked, 0));
  EXPECT_THAT(by_tokens(ranked, 2, {30}), testing::IsEmpty());
  ExpertChoice other = ranked;
  other.shares = {4.0, 3.0, 2.0, 1.0};
  EXPECT_EQ(by_tokens(other, 0, {30}), (std::vector<std::int32_t>{0, 1, 2, 3}));
  other.shares = {1.0, 2.0, 3.0, 4.0};  // they rise
  EXPECT_THAT(by_tokens(other, 0, {30}), testing::IsEmpty());
  other = ranked;
  other.patterns = 2;
  EXPECT_EQ(by_tokens(other, 0, {30, 0}), by_popularity(other, 0));
  EXPECT_EQ(by_tokens(other, 0, {0, 30}), by_popularity(other, 1));
  EXPECT_NE(by_popularity(other, 0), by_popularity(other, 1));
  EXPECT_THAT(by_tokens(other, 0, {10, 20}), testing::IsEmpty());
}

// Over many tokens, an expert is used as often as its popularity says, and reused as q + (1 - q) pi.
TEST(ExpertDraw, PopularityAndReuseAreThoseOfTheChain) {
  ExpertDraw draw({.count = 8, .top_k = 2, .layers = 1, .skew = 0.65, .locality = 0.4, .seed = 7});
  std::vector<double> uses(8, 0.0);
  double reused = 0.0;
  std::vector<bool> before(8, false);
  constexpr int kTokens = 40'000;
  const BatchShape shape{.decode_sequences = 1, .sampled_sequences = 1};
  for (int token = 0; token < kTokens; ++token) {
    draw.begin(shape);
    std::vector<bool> now(8, false);
    ASSERT_EQ(draw.layer(0).size(), 2);
    for (const ExpertUse& use : draw.layer(0)) {
      const auto e = static_cast<std::size_t>(use.expert);
      now[e] = true;
      uses[e] += 1.0;
      if (before[e]) reused += 1.0;
    }
    before = now;
  }
  double reuse = 0.0;
  for (std::size_t e = 0; e < 8; ++e) {
    const double pi = draw.popularity(0, static_cast<std::int32_t>(e));
    EXPECT_NEAR(uses[e] / kTokens, pi, 0.02);
    reuse += pi * (0.4 + 0.6 * pi);
  }
  EXPECT_NEAR(reused / kTokens, reuse, 0.02);
}

// llama.cpp PR 27861: 64 slots of 512 find 0.67, 128 find 0.81. Lines: 32 of 64 slots half of it; 96 in the middle,
// 0.74; 320 is half of the way from 128 to 512, 0.905.
TEST(HitCurve, IsStraightBetweenItsPoints) {
  const HitCurve curve({{64, 0.67}, {128, 0.81}});
  const std::vector<std::pair<std::int32_t, double>> expected{{0, 0.0},    {32, 0.335},  {64, 0.67}, {96, 0.74},
                                                              {128, 0.81}, {320, 0.905}, {512, 1.0}, {600, 1.0}};
  for (const auto& [slots, share] : expected) EXPECT_NEAR(curve.at(slots, 512), share, 1e-12) << slots;
  EXPECT_EQ(HitCurve({{4, 0.0}, {8, 1.0}}).at(4, 8), 0.0);
}

// Five tokens of prompts, two of four experts each, all alike: the sum of 1 - d is 4 / 2^5 = 1/8, so all are in use. Of
// ten uses 2.5 are each one's share, and of equal remainders those of the lower numbers count, in whatever order the
// experts of a layer are popular.
TEST(ExpertDraw, EqualSharesOfAPromptGoToTheLowerNumbers) {
  ExpertDraw draw({.count = 4, .top_k = 2, .layers = 8, .seed = 5});
  const std::vector<PrefillChunk> chunks{{Tokens(5), Tokens(0)}};
  draw.begin({.chunks = chunks});
  for (std::int32_t layer = 0; layer < 8; ++layer) {
    EXPECT_EQ(draw.distinct(layer), 4);
    EXPECT_THAT(draw.layer(layer), ElementsAre(ExpertUse{0, 3}, ExpertUse{1, 3}, ExpertUse{2, 2}, ExpertUse{3, 2}));
  }
}

// One token of two experts, hit(2) = 0.3 of 8: none or one of the two is found, 0.6 in the mean. Of a layer without a
// curve nothing is said.
TEST(ExpertDraw, FindsWhatTheCurveSays) {
  ExpertDraw draw({.count = 8, .top_k = 2, .layers = 2, .locality = 0.4, .hit_curve = HitCurve({{2, 0.3}}), .seed = 5});
  ExpertDraw without({.count = 8, .top_k = 2, .layers = 2, .seed = 5});
  double found = 0.0;
  double first = 0.0;
  double both_layers = 0.0;
  constexpr int kTokens = 20'000;
  for (int token = 0; token < kTokens; ++token) {
    draw.begin({.decode_sequences = 1, .sampled_sequences = 1});
    const auto here = draw.found(0, 2);
    ASSERT_TRUE(here.has_value());
    ASSERT_LE(here->size(), 1U);
    found += static_cast<double>(here->size());
    if (!here->empty() && here->front() == draw.layer(0).front().expert) first += 1.0;
    if (!here->empty()) {
      ASSERT_TRUE(
          std::ranges::any_of(draw.layer(0), [&](const ExpertUse& use) { return use.expert == here->front(); }));
    }
    if (!here->empty() && !draw.found(1, 2)->empty()) both_layers += 1.0;
  }
  EXPECT_NEAR(found / kTokens, 0.6, 0.01);
  EXPECT_NEAR(first / kTokens, 0.3, 0.01);         // either of the two
  EXPECT_NEAR(both_layers / kTokens, 0.36, 0.01);  // layers are drawn apart
  without.begin({.decode_sequences = 1, .sampled_sequences = 1});
  EXPECT_FALSE(without.found(0, 2).has_value());
}

// A prompt uses all 8 experts. Two slots hold two of them, whatever a curve of single tokens says; 8 slots hold all.
TEST(ExpertDraw, FindsNoMoreThanTheSlotsHold) {
  for (const std::int32_t slots : {2, 8}) {
    ExpertDraw draw({.count = 8, .top_k = 2, .layers = 1, .hit_curve = HitCurve({{2, 0.9}}), .seed = 5});
    const std::vector<PrefillChunk> prompt{{Tokens(1000), Tokens(0)}};
    for (int iteration = 0; iteration < 20; ++iteration) {
      draw.begin({.chunks = prompt, .sampled_sequences = 1});
      EXPECT_EQ(draw.found(0, slots)->size(), static_cast<std::size_t>(slots));
    }
  }
}

// Of two experts in use, asked for two, 0.8 x 2 are right; asked for one, 1 x (1 - 0.2 / 2) = 0.9 (measured: 0.90 to
// 0.96).
TEST(ExpertDraw, PredictionsAreRightAsOftenAsTheLookaheadSays) {
  ExpertDraw draw({.count = 8, .top_k = 2, .layers = 2, .locality = 0.2, .lookahead = 0.8, .seed = 3});
  double of_two = 0.0;
  double of_one = 0.0;
  constexpr int kTokens = 20'000;
  for (int token = 0; token < kTokens; ++token) {
    draw.begin({.decode_sequences = 1, .sampled_sequences = 1});
    for (const std::int32_t count : {2, 1}) {
      const std::span<const std::int32_t> predicted = draw.predicted(1, count);
      ASSERT_EQ(predicted.size(), static_cast<std::size_t>(count));
      for (const ExpertUse& use : draw.layer(1)) {
        const bool right = std::ranges::find(predicted, use.expert) != predicted.end();
        (count == 2 ? of_two : of_one) += right ? 1.0 : 0.0;
      }
    }
  }
  EXPECT_NEAR(of_two / kTokens, 1.6, 0.02);
  EXPECT_NEAR(of_one / kTokens, 0.9, 0.02);
}

}  // namespace
}  // namespace spillway
