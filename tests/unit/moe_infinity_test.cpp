// MoE-Infinity (policies/moe-infinity.cpp), by hand: an eviction, and tokens step by step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "policies/parts/expert_matrix.hpp"
#include "sim/core/random.hpp"
#include "tests/unit/expert_units.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;

TEST(ExpertShares, AreRoundedToBillionthsHalvesUp) {
  EXPECT_EQ(to_billionths(0.0), 0.0);
  EXPECT_EQ(to_billionths(1.0), 1e9 * 1e-9);
  EXPECT_EQ(to_billionths(0.25), 250'000'000 * 1e-9);
  EXPECT_EQ(to_billionths(0.5e-9), 1e-9);
  EXPECT_EQ(to_billionths(1.5e-9), 2.0 * 1e-9);
  EXPECT_EQ(to_billionths(1.4999e-9), 1e-9);
  // The number before 0.5 billionths: adding 0.5 to it gives 1.
  EXPECT_EQ(to_billionths(std::nextafter(0.5, 0.0) / 1e9), 0.0);
}

// Test 6: of (0, A) with a share of .25, (2, B) .75, (3, C) .90 in 4 layers, C goes: .25, .75 * .5 = .375, .90 * .25 =
// .225. At layer 0, (2, y) .8 is loaded before (1, x) .5: .8 * .5 = .4 against .5 * .75 = .375.
TEST(ExpertShares, PrioritiesOfThePaper) {
  EXPECT_NEAR(keep_priority(0.25, 0, 4), 0.25, 1e-8);
  EXPECT_NEAR(keep_priority(0.75, 2, 4), 0.375, 1e-8);
  EXPECT_NEAR(keep_priority(0.90, 3, 4), 0.225, 1e-8);
  EXPECT_DOUBLE_EQ(load_priority(0.5, 1, 0, 4), 0.375);
  EXPECT_DOUBLE_EQ(load_priority(0.8, 2, 0, 4), 0.4);
}

// Against a stable sort of all, from the first layer on and from the last expert of each. Shares of one expert in 20
// are large, so that the others share a few ranges, in which they are often equal.
TEST(ExpertShares, AreInTheOrderOfTheirWorth) {
  RandomStream random(9, 0, "expert-shares");
  const auto below = [&](std::int64_t end) {
    return static_cast<std::int32_t>(random.uniform() * static_cast<double>(end));
  };
  for (int c = 0; c < 200; ++c) {
    const std::int32_t layers = 1 + below(5);
    const std::int32_t experts = 1 + below(60);
    std::vector<std::vector<double>> rows(static_cast<std::size_t>(layers),
                                          std::vector<double>(static_cast<std::size_t>(experts)));
    for (std::vector<double>& row : rows) {
      for (double& share : row) share = to_billionths(below(20) == 0 ? random.uniform() : 1e-8 * below(1 + c % 40));
    }
    const auto share = [&](std::int32_t layer, std::int32_t expert) {
      return rows[static_cast<std::size_t>(layer)][static_cast<std::size_t>(expert)];
    };
    // Changed once, so that nothing of the order before is left.
    ExpertShares shares(layers, experts, [](std::int32_t, std::int32_t) { return 0.5; });
    shares.change([&](std::int32_t layer, std::span<double> row) {
      std::ranges::copy(rows[static_cast<std::size_t>(layer)], row.begin());
    });
    std::vector<LayerExpert> sorted;
    for (std::int32_t layer = 0; layer < layers; ++layer) {
      for (std::int32_t e = experts; e-- > 0;) sorted.push_back({layer, e});
    }
    std::ranges::stable_sort(sorted, {}, [&](const LayerExpert& one) {
      return keep_priority(share(one.layer, one.expert), one.layer, layers);
    });
    std::vector<std::int32_t> places(static_cast<std::size_t>(layers), experts);
    for (std::size_t rank = 0; rank < sorted.size(); ++rank) {
      const LayerExpert& one = sorted[rank];
      ASSERT_EQ(shares.by_worth(rank), one) << "case " << c << ", rank " << rank;
      ASSERT_EQ(shares.numbers_by_worth()[rank], one.layer * experts + one.expert);
      ASSERT_EQ(shares.ranks(one.layer)[one.expert], rank);
      const std::int32_t place = --places[static_cast<std::size_t>(one.layer)];
      ASSERT_EQ(shares.places_from(one.layer, rank), place + 1);
      ASSERT_EQ(shares.places_from(one.layer, rank + 1), place);
      ASSERT_EQ(shares.order(one.layer)[place], one.expert);
      ASSERT_EQ(shares.ranks_of_places(one.layer)[place], rank);
      ASSERT_EQ(shares.share_of_place(one.layer, place), share(one.layer, one.expert));
      const auto worth = [&](std::size_t at) {
        return keep_priority(share(sorted[at].layer, sorted[at].expert), sorted[at].layer, layers);
      };
      std::size_t worth_more = rank;
      while (worth_more < sorted.size() && worth(worth_more) == worth(rank)) ++worth_more;
      ASSERT_EQ(shares.worth_more(rank), worth_more);
    }
    double highest = 0.0;
    for (const std::vector<double>& row : rows) highest = std::max(highest, std::ranges::max(row));
    ASSERT_EQ(shares.highest(), highest);
  }
}

// The most experts, of one layer, of as many layers, and of numbers that do not divide 2^32.
TEST(ExpertShares, KnowTheLayerOfEveryNumber) {
  for (const std::int32_t experts : {1, 3, 256, 255, 257, 1000, 32'768, 65'535}) {
    const auto layers = static_cast<std::int32_t>(ExpertShares::kMost / experts);
    const ExpertShares shares(layers, experts, [](std::int32_t, std::int32_t) { return 0.5; });
    for (std::int32_t number = 0; number < layers * experts; ++number) {
      ASSERT_EQ(shares.layer_of(static_cast<std::size_t>(number)), number / experts) << experts << " experts";
    }
    // Of equal shares, those of the last layer come first, and the last one of them.
    EXPECT_EQ(shares.by_worth(0), (LayerExpert{layers - 1, experts - 1}));
    EXPECT_EQ(shares.ranks(0)[0], layers * experts - 1);
    // No rank is as high as 65,535, and none is taken for one that is 65,536 less.
    EXPECT_EQ(shares.places_from(0, 0), experts);
    for (const std::size_t beyond : {65'535U, 65'536U, 65'537U}) EXPECT_EQ(shares.places_from(0, beyond), 0);
  }
}

TEST(CountLeading, CountsThoseBeforeTheFirstOneThatDoesNot) {
  for (std::size_t count = 0; count <= 140; ++count) {
    for (std::size_t leading = 0; leading <= count; ++leading) {
      const auto holds = [&](std::size_t i) {
        EXPECT_LT(i, count);
        return i < leading;
      };
      ASSERT_EQ(count_leading(count, holds), leading) << "of " << count;
    }
  }
}

TEST(PresentExperts, AreAlsoBits) {
  RandomStream random(3, 0, "present-experts");
  for (const std::int32_t experts : {1, 7, 8, 63, 64, 65, 130, 192, 300}) {
    PresentExperts present(3, experts);
    std::vector<std::uint64_t> words{~std::uint64_t{0}};
    const auto expect = [&](std::int32_t layer, const auto& there) {
      present.read_bits(layer, words);
      ASSERT_EQ(std::ssize(words), (experts + 63) / 64);
      for (std::int32_t e = 0; e < 64 * std::ssize(words); ++e) {
        const bool bit = (words[static_cast<std::size_t>(e / 64)] >> (e % 64) & 1U) != 0;
        ASSERT_EQ(bit, e < experts && there(e)) << experts << " experts, expert " << e;
      }
      std::size_t count = 0;
      for (std::int32_t e = 0; e < experts; ++e) count += there(e) ? 1U : 0U;
      ASSERT_EQ(present.count(layer), count) << "of " << experts;
    };
    std::vector<bool> some;
    for (std::int32_t e = 0; e < experts; ++e) {
      some.push_back(random.uniform() < 0.5);
      present.set({1, e}, some.back());
    }
    const auto is_some = [&](std::int32_t e) { return some[static_cast<std::size_t>(e)]; };
    expect(1, is_some);
    present.fill(2);
    expect(2, [](std::int32_t) { return true; });
    const auto is_third = [](std::int32_t e) { return e % 3 == 0; };
    std::vector<std::uint16_t> thirds;
    for (std::int32_t e = 0; e < experts; ++e) {
      if (is_third(e)) thirds.push_back(static_cast<std::uint16_t>(e));
    }
    present.keep_only(2, thirds);
    expect(2, is_third);
    present.fill(0);
    present.clear(0, thirds);
    expect(0, [&](std::int32_t e) { return !is_third(e); });
    // By its number in all layers.
    const std::int32_t last_third = experts - 1 - (experts - 1) % 3;
    present.clear_number(2 * static_cast<std::size_t>(experts) + static_cast<std::size_t>(last_third));
    expect(2, [&](std::int32_t e) { return is_third(e) && e != last_third; });
    expect(1, is_some);
  }
}

/// A matrix that is told of all changes.
template <class Matrix>
class Told {
 public:
  explicit Told(const ExpertShares& shares)
      : shares_(&shares), present_(shares.layers(), shares.experts()), matrix_(present_, shares) {}
  void add(const LayerExpert& one) {
    present_.set(one, true);
    matrix_.add(one);
  }
  /// Every third time as one of many, whose layers are not named.
  void remove(const LayerExpert& one) {
    present_.set(one, false);
    if constexpr (std::is_same_v<Matrix, SeldomAskedMatrix>) {
      if (++removed_ % 3 == 0) return matrix_.remove_many();
    }
    matrix_.remove(one);
  }
  void set(const ExpertShares& shares) {
    shares_ = &shares;
    matrix_.set(shares);
  }
  /// All of one layer.
  void add_all(std::int32_t layer, const std::vector<std::int32_t>& experts) {
    for (const std::int32_t expert : experts) present_.set({layer, expert}, true);
    if constexpr (std::is_same_v<Matrix, ExpertMatrix>) {
      matrix_.add_all(layer, experts.size(), [&](std::size_t i) { return experts[i]; });
    } else {
      matrix_.add_all(layer);
    }
  }
  /// The same of many.
  void add_many(std::int32_t layer, const std::vector<std::int32_t>& experts) {
    if constexpr (std::is_same_v<Matrix, ExpertMatrix>) {
      for (const std::int32_t expert : experts) present_.set({layer, expert}, true);
      const bool all = present_count(layer) == shares_->experts();
      all ? matrix_.fill(layer) : matrix_.add_many(layer);
    } else {
      add_all(layer, experts);
    }
  }
  /// Those that leave one after the other.
  std::vector<LayerExpert> remove_least(std::int32_t running, std::int64_t count) {
    std::vector<LayerExpert> left;
    if constexpr (std::is_same_v<Matrix, ExpertMatrix>) {
      matrix_.remove_least(
          running, count,
          [&](std::size_t number, std::int32_t layer) {
            left.push_back({layer, static_cast<std::int32_t>(number) - layer * shares_->experts()});
            EXPECT_TRUE(present_.has(left.back()));
            present_.clear_number(number);
          },
          [&](std::int32_t layer, std::int32_t begin, std::int32_t end, bool whole) {
            for (std::int32_t place = end; place-- > begin;) {
              const LayerExpert one{layer, shares_->order(layer)[place]};
              if (present_.has(one)) left.push_back(one);
            }
            leave_last(layer, begin, end, whole);
          });
    } else {
      matrix_.remove_least(running, count, [&](const LayerExpert& one) {
        EXPECT_TRUE(present_.has(one));
        present_.set(one, false);
        left.push_back(one);
      });
    }
    return left;
  }
  std::optional<LayerExpert> least(std::int32_t running) {
    const std::optional<KeptExpert> least = matrix_.least(running);
    return least ? std::optional(least->one) : std::nullopt;
  }
  /// What keeping it is worth. All ranks from `worth_more` on are worth more, and none before is.
  double least_worth(std::int32_t running) {
    const KeptExpert least = *matrix_.least(running);
    const double worth = kept(least.one);
    EXPECT_EQ(least.worth_more, ranks_up_to(worth));
    return worth;
  }
  /// Of those that are more worth keeping than `kept`.
  std::optional<LayerExpert> most(std::int32_t running, double kept) {
    return matrix_.most(running, ranks_up_to(kept));
  }
  /// How many times several left at once, those of a whole layer and others.
  [[nodiscard]] int left_of_whole() const { return left_of_whole_; }
  [[nodiscard]] int left_of_others() const { return left_of_others_; }

 private:
  [[nodiscard]] double kept(const LayerExpert& one) const {
    const std::span order(shares_->order(one.layer), static_cast<std::size_t>(shares_->experts()));
    const auto place = static_cast<std::int32_t>(std::ranges::find(order, one.expert) - order.begin());
    return keep_priority(shares_->share_of_place(one.layer, place), one.layer, shares_->layers());
  }
  /// How many ranks are worth no more.
  [[nodiscard]] std::size_t ranks_up_to(double worth) const {
    const auto all = static_cast<std::size_t>(shares_->layers()) * static_cast<std::size_t>(shares_->experts());
    std::size_t no_more = 0;
    for (std::size_t more = all; no_more < more;) {
      const std::size_t middle = (no_more + more) / 2;
      if (kept(shares_->by_worth(middle)) <= worth) {
        no_more = middle + 1;
      } else {
        more = middle;
      }
    }
    return no_more;
  }
  [[nodiscard]] std::int32_t present_count(std::int32_t layer) const {
    const Presence* const row = present_.row(layer);
    return static_cast<std::int32_t>(std::count(row, row + shares_->experts(), Presence::present));
  }
  /// Of a whole layer, those that stay are named, or those that leave, as it comes.
  void leave_last(std::int32_t layer, std::int32_t begin, std::int32_t end, bool whole) {
    const std::span order(shares_->order(layer), static_cast<std::size_t>(shares_->experts()));
    const auto stay = static_cast<std::size_t>(begin);
    ++(whole ? left_of_whole_ : left_of_others_);
    if (whole) {
      EXPECT_EQ(present_count(layer), end);
    }
    if (whole && left_of_whole_ % 2 == 0) {
      present_.keep_only(layer, order.first(stay));
    } else {
      present_.clear(layer, order.subspan(stay, static_cast<std::size_t>(end) - stay));
    }
  }

  const ExpertShares* shares_;
  PresentExperts present_;
  Matrix matrix_;
  int left_of_whole_ = 0;
  int left_of_others_ = 0;
  int removed_ = 0;
};

template <class Matrix>
class ExpertMatrices : public testing::Test {};
using BothMatrices = testing::Types<Told<ExpertMatrix>, Told<SeldomAskedMatrix>>;
TYPED_TEST_SUITE(ExpertMatrices, BothMatrices);

TYPED_TEST(ExpertMatrices, FollowThePrioritiesOfThePaper) {
  const std::vector<std::vector<double>> rows{{0.25, 0.4, 0.35}, {0.3, 0.5, 0.2}, {0.1, 0.8, 0.1}, {0.9, 0.05, 0.05}};
  const ExpertShares equal(4, 3, [](std::int32_t, std::int32_t) { return 1.0 / 3.0; });
  const ExpertShares shares(4, 3, [&](std::int32_t layer, std::int32_t expert) {
    return rows[static_cast<std::size_t>(layer)][static_cast<std::size_t>(expert)];
  });
  TypeParam matrix(equal);
  for (const LayerExpert& one : {LayerExpert{0, 0}, {2, 1}, {3, 0}}) matrix.add(one);
  matrix.set(shares);                               // what is present stays
  EXPECT_EQ(matrix.least(1), (LayerExpert{3, 0}));  // .225 of .25, .4, .225
  EXPECT_NEAR(matrix.least_worth(1), 0.225, 1e-8);
  EXPECT_EQ(matrix.least(3), (LayerExpert{0, 0}));      // never of the running layer
  EXPECT_EQ(matrix.most(0, 0.0), (LayerExpert{1, 1}));  // .375; (2, 1) is present
  matrix.remove({2, 1});
  EXPECT_EQ(matrix.most(0, 0.0), (LayerExpert{2, 1}));  // .4
  EXPECT_EQ(matrix.most(3, 0.0), std::nullopt);         // no later layer
  matrix.remove({3, 0});
  EXPECT_EQ(matrix.most(2, 0.22), (LayerExpert{3, 0}));  // worth keeping .225
  EXPECT_EQ(matrix.most(2, 0.23), std::nullopt);
  matrix.remove({0, 0});
  EXPECT_EQ(matrix.least(1), std::nullopt);
}

// Of layers 0 and 2 of 4, (0 + 1e-9) * 1 and (1e-9 + 1e-9) * 0.5 are equal.
TYPED_TEST(ExpertMatrices, OfEqualOnesThatOfTheFirstLayerLeaves) {
  const ExpertShares shares(4, 1, [](std::int32_t layer, std::int32_t) { return layer == 2 ? 1e-9 : 0.0; });
  TypeParam matrix(shares);
  matrix.add({2, 0});
  matrix.add({0, 0});
  EXPECT_EQ(matrix.least_worth(0), matrix.least_worth(2));
  EXPECT_EQ(matrix.least(3), (LayerExpert{0, 0}));
}

TYPED_TEST(ExpertMatrices, OfTheOnlyLayerNobodyLeaves) {
  const ExpertShares shares(1, 2, [](std::int32_t, std::int32_t) { return 0.5; });
  TypeParam matrix(shares);
  matrix.add({0, 1});
  EXPECT_EQ(matrix.least(0), std::nullopt);
  EXPECT_THAT(matrix.remove_least(0, 0), testing::IsEmpty());
  EXPECT_EQ(matrix.most(0, 0.0), std::nullopt);
}

/// The matrix of three layers, answered by looking at every expert.
struct PlainMatrix {
  static constexpr std::int32_t kLayers = 3;
  std::vector<std::vector<double>> shares{};
  std::vector<std::vector<bool>> present{};

  [[nodiscard]] double share(const LayerExpert& one) const {
    return shares[static_cast<std::size_t>(one.layer)][static_cast<std::size_t>(one.expert)];
  }
  [[nodiscard]] double kept(const LayerExpert& one) const { return (share(one) + 1e-9) * (1.0 - one.layer / 3.0); }
  /// The expert for which `better(it, the best so far)`, of the experts that are `there`, by layer, then by number.
  template <class Better>
  [[nodiscard]] std::optional<LayerExpert> best(bool there, const Better& better) const {
    std::optional<LayerExpert> best;
    for (LayerExpert one; one.layer < kLayers; ++one.layer) {
      for (one.expert = 0; one.expert < std::ssize(shares.front()); ++one.expert) {
        if (present[static_cast<std::size_t>(one.layer)][static_cast<std::size_t>(one.expert)] != there) continue;
        if (better(one, best)) best = one;
      }
    }
    return best;
  }
  /// Of the same layer and share, the last one by number.
  [[nodiscard]] std::optional<LayerExpert> least(std::int32_t running) const {
    return best(true, [&](const LayerExpert& one, const std::optional<LayerExpert>& so_far) {
      if (one.layer == running) return false;
      if (!so_far) return true;
      return one.layer == so_far->layer ? kept(one) <= kept(*so_far) : kept(one) < kept(*so_far);
    });
  }
  /// Of a layer, only its first absent one by share.
  [[nodiscard]] std::optional<LayerExpert> most(std::int32_t running, double more_than) const {
    const auto worth = [&](const LayerExpert& one) { return share(one) * (1.0 - (one.layer - running) / 3.0); };
    return best(false, [&](const LayerExpert& one, const std::optional<LayerExpert>& so_far) {
      if (one.layer <= running || kept(one) <= more_than) return false;
      return !so_far || worth(one) > worth(*so_far);
    });
  }
};

// Layers are nearly empty, half full or nearly full, and now and then quite empty or full, which fills whole words of
// 64 bits. Shares are 0 to 0.3, so they are often equal: 0.2 two layers ahead is worth as much as 0.1 in the next
// layer.
TYPED_TEST(ExpertMatrices, AgreeWithALookAtEveryExpert) {
  RandomStream random(7, 0, "expert-matrix");
  const auto below = [&](std::int64_t end) {
    return static_cast<std::int32_t>(random.uniform() * static_cast<double>(end));
  };
  int full = 0;
  int two_ahead = 0;
  int of_first_layer = 0;
  int passed_over = 0;
  int left_at_once = 0;  // from several layers
  int left_of_whole = 0;
  int left_of_others = 0;
  for (const std::int32_t experts : {1, 63, 64, 65, 128, 130, 250}) {
    const auto count = static_cast<std::size_t>(experts);
    PlainMatrix plain{.shares = std::vector(3, std::vector<double>(count)),
                      .present = std::vector(3, std::vector<bool>(count))};
    std::array<double, 3> fill{};
    const ExpertShares equal(3, experts, [](std::int32_t, std::int32_t) { return 0.0; });
    std::array shares{equal, equal};  // of which one is in use
    std::size_t in_use = 0;
    TypeParam matrix(shares[in_use]);
    const auto set = [&](const LayerExpert& one, bool there) {
      std::vector<bool>& row = plain.present[static_cast<std::size_t>(one.layer)];
      if (row[static_cast<std::size_t>(one.expert)] == there) return;
      row[static_cast<std::size_t>(one.expert)] = there;
      there ? matrix.add(one) : matrix.remove(one);
    };
    for (int step = 0; step < 3000; ++step) {
      const std::int32_t layer = below(3);
      if (step % 50 == 10) {  // not when the shares change
        for (std::size_t l = 0; l < 3; ++l) {
          fill[l] = std::array{0.0, 0.05, 0.5, 0.95, 1.0}[static_cast<std::size_t>(below(5))];
          std::vector<std::int32_t> added;  // those of every second time, all at once
          for (std::int32_t e = 0; e < experts; ++e) {
            const LayerExpert one{static_cast<std::int32_t>(l), e};
            const bool there = random.uniform() < fill[l];
            if (step % 100 == 10 && there && !plain.present[l][static_cast<std::size_t>(e)]) {
              plain.present[l][static_cast<std::size_t>(e)] = true;
              added.push_back(e);
            } else {
              set(one, there);
            }
          }
          if (!added.empty()) matrix.add_all(static_cast<std::int32_t>(l), added);
        }
      }
      if (below(4) == 0) {  // all or most of those that a layer lacks come at once
        const std::int32_t to = below(3);
        const double share = below(2) == 0 ? 1.0 : 0.7;
        std::vector<std::int32_t> added;
        for (std::int32_t e = 0; e < experts; ++e) {
          std::vector<bool>::reference there = plain.present[static_cast<std::size_t>(to)][static_cast<std::size_t>(e)];
          if (there || random.uniform() >= share) continue;
          there = true;
          added.push_back(e);
        }
        matrix.add_many(to, added);
      }
      if (step % 25 == 0) {
        for (std::vector<double>& row : plain.shares) {
          const std::int32_t kinds = 1 + below(4);
          for (double& share : row) share = 0.1 * below(kinds);
        }
        if (below(3) > 0) in_use = 1 - in_use;
        shares[in_use] = ExpertShares(3, experts, [&](std::int32_t l, std::int32_t e) { return plain.share({l, e}); });
        matrix.set(shares[in_use]);
      } else {
        set({layer, below(experts)}, random.uniform() < fill[static_cast<std::size_t>(layer)]);
      }
      const std::int32_t running = below(3);
      if (below(2) == 0) {
        std::vector<LayerExpert> expected;
        for (std::int32_t most = below(below(2) == 0 ? 5 : experts); most > 0; --most) {
          const std::optional<LayerExpert> least = plain.least(running);
          if (!least) break;
          plain.present[static_cast<std::size_t>(least->layer)][static_cast<std::size_t>(least->expert)] = false;
          expected.push_back(*least);
        }
        ASSERT_EQ(matrix.remove_least(running, std::ssize(expected)), expected) << experts << " experts, step " << step;
        left_at_once += std::ssize(expected) > 1 && expected.front().layer != expected.back().layer ? 1 : 0;
      }
      const double more_than = below(2) == 0 ? 0.0 : 0.05 * below(6);
      const auto ask_least = [&] {
        const std::optional<LayerExpert> least = plain.least(running);
        ASSERT_EQ(matrix.least(running), least) << experts << " experts, step " << step;
        if (least) {
          ASSERT_DOUBLE_EQ(matrix.least_worth(running), plain.kept(*least));
        }
        of_first_layer += least && least->layer < 2 && running != 2 ? 1 : 0;
      };
      const auto ask_most = [&] {
        const std::optional<LayerExpert> most = plain.most(running, more_than);
        ASSERT_EQ(matrix.most(running, more_than), most) << experts << " experts, step " << step;
        two_ahead += most && most->layer == running + 2 ? 1 : 0;
        passed_over += most != plain.most(running, 0.0) ? 1 : 0;
      };
      // One of the questions, both in either order, or none.
      const std::int32_t questions = below(5);
      if (questions == 1 || questions == 2) ask_least();
      if (questions >= 2) ask_most();
      if (questions == 3) ask_least();
      for (const std::vector<bool>& row : plain.present) full += std::ranges::find(row, false) == row.end() ? 1 : 0;
    }
    left_of_whole += matrix.left_of_whole();
    left_of_others += matrix.left_of_others();
  }
  for (const int met : {full, two_ahead, of_first_layer, passed_over, left_at_once}) EXPECT_GT(met, 100);
  if constexpr (std::is_same_v<TypeParam, Told<ExpertMatrix>>) {
    for (const int met : {left_of_whole, left_of_others}) EXPECT_GT(met, 100);
  }
}

using Rows = ScriptedRouters::Rows;

/// Four layers of three experts, of which a token uses one. A layer takes 1, an expert 1, a copy 4.
class FourLayers {
 public:
  /// `compute`: how much copies slow it down, as the policy is told.
  FourLayers(std::int64_t slots, std::vector<Rows> kinds, Overrides overrides, const Slowdown& compute = {})
      : times_(slowed_down(compute)),
        bench_("moe-infinity", times_, small(4, 3, 1, 1.0, 1.0), with_slots(slots, std::move(overrides)), {}, {},
               std::move(kinds)) {}

  /// A token that uses these experts; returns its length.
  double token(const std::vector<std::int32_t>& experts) {
    bench_.routers.used.clear();
    for (const std::int32_t expert : experts) bench_.routers.used.push_back({{expert, 1}});
    return units(bench_.iterate());
  }
  /// Tokens that use all three experts of each layer.
  double all_experts() {
    bench_.routers.used.assign(4, {{0, 1}, {1, 1}, {2, 1}});
    return units(bench_.iterate());
  }
  [[nodiscard]] Figures figures() const { return bench_.figures(); }

 private:
  static ExpertModel slowed_down(const Slowdown& compute) {
    ExpertModel times = model(4, 1.0, 4.0);
    times.compute_slowdown = compute;
    return times;
  }
  static Overrides with_slots(std::int64_t slots, Overrides overrides) {
    overrides.emplace_back("policy.gpu_experts", slots);
    return overrides;
  }
  ExpertModel times_;
  ExpertBench bench_;
};

const Rows kRows{{0.4, 0.5, 0.1}, {0.1, 0.8, 0.1}, {0.2, 0.2, 0.6}, {0.5, 0.3, 0.2}};

// At first (0, 0), (0, 1), (0, 2), (1, 0) are there. Token 1: gate 0 at 1, (0, 1) is computed to 2. Ahead (1, 1), .8 *
// 3/4 = .6, in place of (1, 0), worth .075: 1-5. Gate 1 at 3 waits, computed 5-6. Ahead at 5 (2, 2), .6 * 3/4, in place
// of (0, 2), .1: 5-9. Gate 2 at 7, computed 9-10. At 9 (3, 0) is worth keeping .5 / 4 = .125, less than (0, 0): nothing
// is loaded. Gate 3 at 11: (3, 0) in place of (2, 2), worth .3: 11-15, computed to 16.
// Token 2: gate 0 at 17, computed to 18; ahead (2, 2), .3, in place of (3, 0), .125: 17-21. Gate 1 at 19, a hit to 20.
// Gate 2 at 21, a hit to 22; nothing is worth a slot. Gate 3 at 23: (3, 0) again, 23-27, computed to 28.
TEST(MoeInfinity, LoadsAheadByTheMatrixOfTheRequest) {
  FourLayers run(4, {kRows}, {});
  EXPECT_NEAR(run.token({1, 1, 2, 0}), 16.0, 0.01);
  EXPECT_NEAR(run.token({1, 1, 2, 0}), 12.0, 0.01);
  const Figures figures = run.figures();
  EXPECT_EQ(figures.at("expert_hit_fraction"), 0.5);
  EXPECT_EQ(figures.at("expert_load_fraction"), 0.5);
  EXPECT_EQ(figures.at("late_prefetch_fraction"), 0.25);
  EXPECT_EQ(figures.at("demanded_expert_bytes"), 2000.0);
  EXPECT_EQ(figures.at("prefetched_expert_bytes"), 3000.0);
  EXPECT_EQ(figures.at("unused_prefetches"), 0.0);
  EXPECT_NEAR(figures.at("gpu_expert_seconds"), 8e-6, 1e-8);  // eight experts
}

// All twelve experts are there, three in each of four layers: 4 (1 + 3), and 12 of it with experts. Where copies would
// slow them down, there is one step for each.
TEST(MoeInfinity, ExpertsThatAreExecutedTogetherCountEach) {
  for (const Slowdown& compute : {Slowdown{1, 1}, Slowdown{2, 1}}) {
    FourLayers run(12, {kRows}, {}, compute);
    EXPECT_NEAR(run.all_experts(), 16.0, 0.01);
    EXPECT_NEAR(run.figures().at("gpu_expert_seconds"), 12e-6, 1e-8);
  }
}

/// The first of three layers is dense and takes 1, the others take 2 without their experts. The GPU attends for 0.5 of
/// each, or nobody knows for how long.
class DenseThenExperts final : public ExecutionModel {
 public:
  explicit DenseThenExperts(bool knows_attention) : knows_attention_(knows_attention) {}
  [[nodiscard]] std::int32_t layers() const override { return 3; }
  [[nodiscard]] const LayerKinds& layer_kinds() const override { return kinds_; }
  [[nodiscard]] IterationTime iteration(const BatchShape&) const override {
    return {.layer = Duration(1'666),
            .attention = Duration(knows_attention_ ? 500 : 0),
            .kinds = {Duration(1'000), Duration(2'000)}};
  }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes, CopyMechanism) const override { return {}; }

 private:
  bool knows_attention_;
  LayerKinds kinds_{.of_layer = {0, 1, 1}, .layers = {1, 2}};
};

// Two iterations: dense layers 2 * 1, layers with experts 2 * 2 * 2 without these, attention 2 * 3 * 0.5.
TEST(MoeInfinity, TheGpusTimeIsByKindOfLayer) {
  for (const bool knows_attention : {true, false}) {
    const DenseThenExperts model(knows_attention);
    Deployment deployment = small(3, 3, 1, 1.0, 1.0);
    deployment.experts->layers = {1, 2};
    ExpertBench bench("moe-infinity", model, deployment, {{"policy.gpu_experts", std::int64_t{4}}}, {}, {},
                      {{{0.4, 0.5, 0.1}, {0.1, 0.8, 0.1}}});
    bench.routers.used = {{{0, 1}}, {{1, 1}}};
    bench.layer_times = {Duration(1'000), Duration(2'000), Duration(2'000)};
    for (int iteration = 0; iteration < 2; ++iteration) bench.iterate();
    const Figures figures = bench.figures();
    EXPECT_DOUBLE_EQ(figures.at("gpu_dense_layer_seconds"), 2e-6);
    EXPECT_DOUBLE_EQ(figures.at("gpu_expert_layer_seconds"), 8e-6);
    EXPECT_EQ(figures.contains("gpu_attention_seconds"), knows_attention);
    if (knows_attention) {
      EXPECT_DOUBLE_EQ(figures.at("gpu_attention_seconds"), 3e-6);
    }
  }
}

// (1, 0) is worth keeping .45, so gate 0 at 1 loads nothing. At gate 1, at 3, (3, 0) is the most worth loading, .9
// / 2, but its .225 of keeping are less than the .24 of (0, 0). (2, 0), .5 * 3/4, is worth keeping .25 and is
// loaded, 3-7. Gate 2 at 5 waits, computed 7-8. Gate 3 at 9: (3, 0) in place of (2, 0), 9-13, computed to 14.
TEST(MoeInfinity, AnExpertThatIsNotWorthASlotIsPassedOver) {
  FourLayers run(4, {{{0.24, 0.36, 0.4}, {0.6, 0.2, 0.2}, {0.5, 0.3, 0.2}, {0.9, 0.05, 0.05}}}, {});
  EXPECT_NEAR(run.token({0, 0, 0, 0}), 14.0, 0.01);
  EXPECT_EQ(run.figures().at("prefetched_expert_bytes"), 1000.0);
}

// Matched after two layers. At gate 0 the other kind's (2, 0), .8 / 2, takes the slot of (1, 0): 1-5. Gate 1 at 3:
// (1, 1) takes that of (0, 0), 5-9, computed to 10. At 9 the right (2, 1), .4, takes the slot of (2, 0), now .05:
// 9-13. Gate 2 at 11 needs (2, 0) after all, 13-17, computed to 18, in place of (1, 1), .3; (2, 1) was for nothing
// as well. Gate 3 at 19: (3, 2) in place of (2, 0), 19-23, computed to 24.
TEST(MoeInfinity, AnExpertThatLeavesBeforeItsLayerWasForNothing) {
  const Rows mine{{0.25, 0.35, 0.4}, {0.2, 0.4, 0.4}, {0.1, 0.8, 0.1}, {0.05, 0.05, 0.9}};
  const Rows other{{0.25, 0.35, 0.4}, {0.2, 0.4, 0.4}, {0.8, 0.1, 0.1}, {0.05, 0.05, 0.9}};
  FourLayers run(4, {mine, other}, {{"policy.matched_layers", std::int64_t{2}}});
  EXPECT_NEAR(run.token({0, 1, 0, 2}), 24.0, 0.01);
  EXPECT_EQ(run.figures().at("prefetched_expert_bytes"), 2000.0);
  EXPECT_EQ(run.figures().at("unused_prefetches"), 2.0);
}

// An iteration without tokens, such as one that waits for copies of its requests: its routers choose nothing.
TEST(MoeInfinity, WithoutTokensNothingIsLoaded) {
  const ExpertModel times = model(4, 1.0, 4.0);
  ExpertBench bench("moe-infinity", times, small(4, 3, 1, 1.0, 1.0), {{"policy.gpu_experts", std::int64_t{4}}}, {}, {},
                    {kRows});
  bench.routers.used.assign(4, {});
  EXPECT_NEAR(units(bench.iterate(0)), 4.0, 0.01);
  EXPECT_EQ(bench.figures().at("prefetched_expert_bytes"), 0.0);
}

// Without loading ahead, token 1 waits 4 at each of the layers 1 to 3: (1, 1) takes the slot of (1, 0)? Not of the
// running layer: of (0, 2), .1. (2, 2) that of (1, 0), .075; (3, 0) that of (2, 2), .3. 8 + 3 * 4. Token 2 finds
// (0, 1) and (1, 1): (2, 2) takes the slot of (3, 0), .125; (3, 0) that of (2, 2): 8 + 2 * 4.
TEST(MoeInfinity, WithoutLoadingAheadTheMatrixSaysWhatLeaves) {
  FourLayers run(4, {kRows}, {{"policy.prefetch", false}});
  EXPECT_NEAR(run.token({1, 1, 2, 0}), 20.0, 0.01);
  EXPECT_NEAR(run.token({1, 1, 2, 0}), 16.0, 0.01);
  EXPECT_EQ(run.figures().at("demanded_expert_bytes"), 5000.0);
}

// The public code: (1, 1) takes the slot of (0, 0), unused and the first one by expert, then by layer; (2, 2) that of
// (1, 0); (3, 0) that of (0, 2), as the others have been used once. 8 + 3 * 4. Token 2 finds all four.
TEST(MoeInfinity, ThePublishedCodeReplacesTheLeastUsed) {
  FourLayers run(4, {kRows}, {{"policy.variant", std::string("published")}});
  EXPECT_NEAR(run.token({1, 1, 2, 0}), 20.0, 0.01);
  EXPECT_NEAR(run.token({1, 1, 2, 0}), 8.0, 0.01);
  // (0, 1), (1, 1), (2, 2), (3, 0) have been used twice. (0, 2) takes the slot of (3, 0): expert 0 comes first.
  EXPECT_NEAR(run.token({2, 1, 2, 0}), 16.0, 0.01);
  // (0, 2) and (3, 0) have been used once since they were loaded, (3, 0) by taking the slot of (0, 2).
  EXPECT_EQ(run.figures().at("demanded_expert_bytes"), 5000.0);
  // (3, 0) has been used once, the others three and four times. It is of the running layer, but not in use: (3, 2)
  // takes its slot.
  EXPECT_NEAR(run.token({1, 1, 2, 2}), 12.0, 0.01);
  EXPECT_NEAR(run.token({1, 1, 2, 2}), 8.0, 0.01);
}

// Requests of two kinds; this one uses expert 0 everywhere. Six slots: layers 0 and 1 are there.
// Matched at once: gate 0 at 1, ahead (2, 0), .35, in place of (1, 2), .075: 1-5. Gate 1 at 3, a hit to 4. At 5 ahead
// (3, 0), kept .175, in place of (0, 2), .1: 5-9; gate 2 at 5 hits, to 6. Gate 3 at 7, computed 9-10.
// Matched after three layers: at gate 0 the other kind's (2, 2) in place of (1, 0): 1-5. Gate 1 at 3: (1, 0), in place
// of (0, 0), 5-9, computed to 10. At 9 (3, 2) would be kept .175, less than (0, 1), .2. Gate 2 at 11, now right: (2, 2)
// was for nothing; (2, 0) in place of (1, 2), 11-15, computed to 16. At 15 (3, 0) in place of (0, 2), 15-19. Gate 3 at
// 17, computed 19-20.
TEST(MoeInfinity, BeforeItIsMatched_ARequestIsTakenForAnother) {
  const Rows mine(4, {0.7, 0.2, 0.1});
  const Rows other(4, {0.1, 0.2, 0.7});
  FourLayers right(6, {mine, other}, {{"policy.matched_layers", std::int64_t{1}}});
  EXPECT_NEAR(right.token({0, 0, 0, 0}), 10.0, 0.01);
  EXPECT_EQ(right.figures().at("unused_prefetches"), 0.0);
  FourLayers late(6, {mine, other}, {{"policy.matched_layers", std::int64_t{3}}});
  EXPECT_NEAR(late.token({0, 0, 0, 0}), 20.0, 0.01);
  EXPECT_EQ(late.figures().at("unused_prefetches"), 1.0);
  EXPECT_EQ(late.figures().at("prefetched_expert_bytes"), 2000.0);
}

// A prompt may use all three experts of a layer while one of another is on its way.
TEST(MoeInfinity, NeedsASlotForEachExpertOfALayer) {
  const ExpertModel times = model(4, 1.0, 4.0);
  const auto problem = [&](std::int64_t slots) -> std::string {
    try {
      static_cast<void>(ExpertBench("moe-infinity", times, small(4, 3, 1, 1.0, 1.0), {{"policy.gpu_experts", slots}},
                                    {}, {}, {kRows}));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(problem(4), "");
  EXPECT_THAT(problem(3), HasSubstr("policy.gpu_experts=3, and a prompt may use all 3 experts of a layer"));
  EXPECT_THAT(problem(13), HasSubstr("there are 12"));
}

TEST(MoeInfinity, RanksAsManyExpertsAsANumberTells) {
  const ExpertModel times = model(3, 1.0, 4.0);
  const auto problem = [&](std::int32_t experts) -> std::string {
    Deployment deployment = small(3, experts, 1, 1.0, 1.0);
    deployment.memory += deployment.experts->all_bytes();
    const std::vector<double> equal(static_cast<std::size_t>(experts), 1.0 / experts);
    try {
      static_cast<void>(ExpertBench("moe-infinity", times, deployment, {{"policy.gpu_experts", std::int64_t{40'000}}},
                                    {}, {}, {Rows(3, equal)}));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(problem(21'845), "");
  EXPECT_THAT(problem(21'846), HasSubstr("at most 65535 experts of all layers, and the model has 65538"));
}

}  // namespace
}  // namespace spillway
