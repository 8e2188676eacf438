// Which instances the links of their copies tie together, by hand.
#include "sim/engine/link_groups.hpp"

#include <gmock/gmock.h>

#include <optional>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<LinkGroup> groups(const std::vector<CopyRoute>& routes) {
  std::vector<InstanceConfig> instances(routes.size());
  for (std::size_t i = 0; i < routes.size(); ++i) instances[i].route = routes[i];
  return link_groups(instances);
}

TEST(LinkGroups, AreChainsOfCommonLinks) {
  // 0 and 3 meet on link 5. 1 meets neither. 2 crosses no link. 4 meets 1 on a link that both cross the other way.
  const auto some = groups({{.h2d = {{5}}}, {.h2d = {{2}}, .d2h = {{3}}}, {}, {.d2h = {{5}, {9}}}, {.peer_in = {{3}}}});
  ASSERT_EQ(some.size(), 2U);
  EXPECT_THAT(some[0].instances, ElementsAre(0, 3));
  EXPECT_THAT(some[0].links, ElementsAre(5, 9));
  EXPECT_THAT(some[1].instances, ElementsAre(1, 4));
  EXPECT_THAT(some[1].links, ElementsAre(2, 3));
  // The last instance ties the others together.
  const auto chain = groups({{.h2d = {{0}}}, {.h2d = {{1}}}, {.h2d = {{2}}}, {.h2d = {{0}, {1}}}, {.d2h = {{1}, {2}}}});
  ASSERT_EQ(chain.size(), 1U);
  EXPECT_THAT(chain[0].instances, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(chain[0].links, ElementsAre(0, 1, 2));
  // One instance alone has links of its own.
  const auto alone = groups({{.h2d = {{4, 2}}, .peer_out = {{4}}}});
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_THAT(alone[0].links, ElementsAre(4));
  EXPECT_THAT(groups({{}, {}}), IsEmpty());
}

TEST(LinkGroups, ARouteCountsTheLinksOfItsGroup) {
  const std::vector<std::size_t> links{3, 5, 9};
  const CopyRoute route = route_within({.h2d = {{5, 2}}, .peer_out = {{9, 1}, {3, 4}}}, links);
  EXPECT_THAT(route.h2d, ElementsAre(LinkCrossing{1, 2}));
  EXPECT_THAT(route.peer_out, ElementsAre(LinkCrossing{2, 1}, LinkCrossing{0, 4}));
  EXPECT_THROW(static_cast<void>(route_within({.d2h = {{4}}}, links)), InvariantError);
}

TEST(LinkGroups, ABusIsTheSharedLinkThatCarriesTheLeastForEachGpu) {
  const std::vector<BytesPerSecond> links{BytesPerSecond(50e9), BytesPerSecond(50e9), BytesPerSecond(90e9),
                                          BytesPerSecond(1e9)};
  const auto buses = [&](const std::vector<CopyRoute>& routes) {
    std::vector<const CopyRoute*> all;
    all.reserve(routes.size());
    for (const CopyRoute& route : routes) all.push_back(&route);
    return shared_buses(all, links);
  };
  const std::optional<LinkCrossing> none;
  // Links 0 and 1 carry 25 GB/s for each of two GPUs, link 2 carries 30 for each of three. Link 3 has one user.
  const CopyRoute pair{.h2d = {{0}, {2}}};
  const CopyRoute other{.h2d = {{2}, {3}}, .d2h = {{0}, {1}}};
  EXPECT_THAT(buses({pair, pair, other}), ElementsAre(LinkCrossing{0, 1}, LinkCrossing{0, 1}, LinkCrossing{2, 1}));
  // With four GPUs on link 2 it carries the least.
  const CopyRoute group{.h2d = {{1, 2}, {2, 2}}};
  EXPECT_THAT(buses({pair, pair, group}), ElementsAre(LinkCrossing{2, 1}, LinkCrossing{2, 1}, LinkCrossing{2, 2}));
  // Of equal links the first.
  const CopyRoute both{.h2d = {{1}, {0}}};
  EXPECT_THAT(buses({both, both}), ElementsAre(LinkCrossing{1, 1}, LinkCrossing{1, 1}));
  // One instance has its links for itself, and copies to the host are not asked about.
  EXPECT_THAT(buses({group, {.d2h = {{1}, {2}}}, {}}), ElementsAre(none, none, none));
}

}  // namespace
}  // namespace spillway
