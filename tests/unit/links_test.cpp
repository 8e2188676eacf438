#include "sim/exec/links.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "sim/core/error.hpp"
#include "tests/oracle/plain_shares.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

/// A flow that takes its rate times `load` of each link.
FlowId flow(Links& links, const std::vector<Hop>& route, double demand = std::numeric_limits<double>::infinity(),
            double weight = 1.0) {
  return links.add_flow({.route = route, .demand = demand, .weight = weight});
}

TEST(Links, ExampleOfTheHeader) {
  // A 10, B 4; f on {A}, g on {A, B}, h on {B} with a demand of 1: rates 7, 3, 1. Without h: 6 and 4.
  Links links;
  const LinkId a = links.add_link(10.0);
  const LinkId b = links.add_link(4.0);
  const FlowId f = flow(links, {{a}});
  const FlowId g = flow(links, {{a}, {b}});
  const FlowId h = flow(links, {{b}}, 1.0);
  links.fill();
  EXPECT_EQ(links.rate(f), 7.0);
  EXPECT_EQ(links.rate(g), 3.0);
  EXPECT_EQ(links.rate(h), 1.0);
  EXPECT_EQ(links.used(a), 10.0);
  EXPECT_EQ(links.used(b), 4.0);
  links.keep(2);
  const FlowId alone = flow(links, {{a}});
  const FlowId both = flow(links, {{a}, {b}});
  links.fill();
  EXPECT_EQ(links.rate(alone), 6.0);
  EXPECT_EQ(links.rate(both), 4.0);
}

TEST(Links, AFlowAlone_GetsTheNarrowestOfItsLinksAndItsDemand) {
  Links links;
  const LinkId wide = links.add_link(9.0);
  const LinkId narrow = links.add_link(5.0);
  const FlowId f = flow(links, {{wide}, {narrow}});
  links.fill();
  EXPECT_EQ(links.rate(f), 5.0);
  links.keep(2);
  const FlowId slow = flow(links, {{wide}, {narrow}}, 3.0);
  links.fill();
  EXPECT_EQ(links.rate(slow), 3.0);
  EXPECT_EQ(links.used(wide), 3.0);
  EXPECT_EQ(links.used(narrow), 3.0);
}

TEST(Links, ALoadCountsOnItsLinkAlone) {
  // Four GPUs copy the same at once: at a rate of 6 they fill the total of 24, though each could do 20. g, one GPU,
  // gets what the five share evenly: 24 / 5 = 4.8.
  Links links;
  const LinkId own = links.add_link(20.0);
  const LinkId total = links.add_link(24.0);
  const FlowId group = flow(links, {{own}, {total, 4.0}});
  links.fill();
  EXPECT_EQ(links.rate(group), 6.0);
  EXPECT_EQ(links.used(own), 6.0);
  EXPECT_EQ(links.used(total), 24.0);
  const FlowId g = flow(links, {{total}});
  links.fill();
  EXPECT_DOUBLE_EQ(links.rate(group), 4.8);
  EXPECT_DOUBLE_EQ(links.rate(g), 4.8);
}

TEST(Links, WeightsSetTheProportions) {
  // 12 in the proportion 3 : 1. With a demand of 5 the first leaves 7.
  Links links;
  const LinkId link = links.add_link(12.0);
  const FlowId three = flow(links, {{link}}, 100.0, 3.0);
  const FlowId one = flow(links, {{link}}, 100.0);
  links.fill();
  EXPECT_EQ(links.rate(three), 9.0);
  EXPECT_EQ(links.rate(one), 3.0);
  links.keep(1);
  const FlowId capped = flow(links, {{link}}, 5.0, 3.0);
  const FlowId rest = flow(links, {{link}}, 100.0);
  links.fill();
  EXPECT_EQ(links.rate(capped), 5.0);
  EXPECT_EQ(links.rate(rest), 7.0);
}

TEST(Links, Keep_RemovesTheLaterLinks) {
  Links links;
  const LinkId kept = links.add_link(4.0);
  links.add_link(1.0);
  links.keep(1);
  EXPECT_EQ(links.size(), 1U);
  const LinkId other = links.add_link(3.0);
  const FlowId f = flow(links, {{kept}, {other}});
  links.fill();
  EXPECT_EQ(links.rate(f), 3.0);
}

TEST(Links, Misuse_IsAnInvariantError) {
  Links links;
  EXPECT_THROW(links.add_link(0.0), InvariantError);
  const LinkId link = links.add_link(1.0);
  EXPECT_THROW(flow(links, {{link}}, 0.0), InvariantError);
  EXPECT_THROW(flow(links, {{link}}, 1.0, 0.0), InvariantError);
  EXPECT_THROW(flow(links, {}), InvariantError) << "nothing limits it";
}

TEST(Links, SlowdownIsTheSimplestFraction) {
  const auto parts = [](double share) {
    const Slowdown slowdown = slowdown_at(share);
    return std::pair(slowdown.num, slowdown.den);
  };
  using Parts = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(parts(1.0), Parts(1, 1));
  EXPECT_EQ(parts(0.5), Parts(2, 1));
  EXPECT_EQ(parts(1.0 / 3.0), Parts(3, 1));
  EXPECT_EQ(parts(1.0 - 1e-16), Parts(1, 1));
  EXPECT_EQ(parts(3.0 * 0.1), Parts(10, 3)) << "0.30000000000000004";
  EXPECT_EQ(parts(1e6 / 2'119'843.0), Parts(2'119'843, 1'000'000));
  EXPECT_EQ(parts(0.700001), Parts(1'000'000, 700'001));
  EXPECT_EQ(parts(0.700001 / 2.119843), Parts(2'119'843, 700'001));
  // 2^31 / 65536.4 = 32767.8, and 65536.4 * 32767 = 2147431218.8
  EXPECT_EQ(parts(1.0 / 65'536.4), Parts(2'147'431'219, 32'767)) << "far from alone, a close fraction does";
  // Next to 3/2 but not equal to it: a fraction between 3/2 and one that is 2^-46 larger has a denominator of 2^45.
  EXPECT_EQ(parts(1.0 / (1.5 + 0x1p-46)), Parts(3, 2)) << "a fraction that a slowdown can hold";
  const auto [num, den] = parts(2'728'603'363.0 / 2'830'428'167.0);
  EXPECT_LT(num, std::int64_t{1} << 31);
  EXPECT_NEAR(static_cast<double>(num) / static_cast<double>(den), 2'830'428'167.0 / 2'728'603'363.0, 0x1p-40);
  EXPECT_THROW(static_cast<void>(slowdown_at(0.0)), InvariantError);
}

// Max-min fair rates are unique, so bisection must find the same ones.
TEST(Links, RandomCases_AgreeWithBisection) {
  for (std::uint64_t seed = 1; seed <= random_cases(5000) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    oracle::Dice dice(seed);
    Links links;
    std::vector<oracle::PlainLink> plain_links;
    std::vector<oracle::PlainFlow> plain_flows;
    for (std::int64_t n = dice.between(1, 5); n > 0; --n) {
      const auto capacity = static_cast<double>(dice.between(1, 400));
      links.add_link(capacity);
      plain_links.push_back({capacity, {}});
    }
    for (std::int64_t n = dice.between(1, 8); n > 0; --n) {
      std::vector<Hop> route;
      for (std::size_t l = 0; l < plain_links.size(); ++l) {
        if (!dice.chance(50)) continue;
        const auto load = static_cast<double>(dice.between(1, 8));
        route.push_back({static_cast<LinkId>(l), load});
        plain_links[l].loads.emplace_back(plain_flows.size(), load);
      }
      const auto demand = static_cast<double>(dice.chance(30) ? 100'000 : dice.between(1, 200));
      const auto weight = static_cast<double>(dice.chance(50) ? 1 : dice.between(1, 5));
      flow(links, route, demand, weight);
      plain_flows.push_back({demand, weight});
    }
    links.fill();
    const std::vector<oracle::Real> expected = oracle::plain_max_min(plain_flows, plain_links);
    for (std::size_t f = 0; f < expected.size(); ++f) {
      const auto rate = static_cast<double>(expected[f]);
      EXPECT_NEAR(links.rate(static_cast<FlowId>(f)), rate, 1e-9 * rate) << "flow " << f;
    }
    for (std::size_t l = 0; l < plain_links.size(); ++l) {
      EXPECT_LE(links.used(static_cast<LinkId>(l)), static_cast<double>(plain_links[l].capacity) * (1.0 + 1e-12));
    }
  }
}

}  // namespace
}  // namespace spillway
