// Whether instances on one bus can keep their promises at the same time, by hand.
#include "sim/study/bus_promises.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace spillway {
namespace {

using testing::HasSubstr;

constexpr BytesPerSecond gigabytes(double count) { return BytesPerSecond(count * 1e9); }

std::optional<Problem> problem_of(const std::vector<BusInstance>& instances) {
  const std::vector<BytesPerSecond> links{gigabytes(24), gigabytes(30)};
  return broken_promises(instances, links, std::vector<std::string>{"bus-0 in", "bus-1 in"}, "replicas");
}

const CopyRoute kFirst{.h2d = {{0, 1}}};
const CopyRoute kSecond{.h2d = {{1, 1}}};
const CopyRoute kGroup{.h2d = {{0, 2}}};

TEST(BusPromises, HaveToStayBelowTheBus) {
  EXPECT_FALSE(problem_of({{&kFirst, gigabytes(11)}, {&kFirst, gigabytes(12)}}));
  const auto full = problem_of({{&kFirst, gigabytes(12)}, {&kFirst, gigabytes(12)}});
  ASSERT_TRUE(full);
  EXPECT_THAT(full->what,
              HasSubstr("the 2 instances that stream weights over \"bus-0 in\" cannot meet their SLOs at the "
                        "same time: with the fewest layers on the host that their memory allows they need "
                        "24.00 GB/s, and the link carries 24.00 GB/s"));
  EXPECT_EQ(full->where, "replicas");
  EXPECT_TRUE(full->infeasible);
  // Each GPU of a group copies.
  EXPECT_FALSE(problem_of({{&kGroup, gigabytes(6)}, {&kFirst, gigabytes(11)}}));
  EXPECT_TRUE(problem_of({{&kGroup, gigabytes(6)}, {&kFirst, gigabytes(12)}}));
}

TEST(BusPromises, AreOfInstancesThatShareABus) {
  // A single instance is judged by its own policy, and those that promise nothing do not count.
  EXPECT_FALSE(problem_of({{&kFirst, gigabytes(25)}}));
  EXPECT_FALSE(problem_of({{&kFirst, gigabytes(25)}, {&kFirst, gigabytes(0)}}));
  EXPECT_FALSE(problem_of({{&kFirst, gigabytes(20)}, {&kSecond, gigabytes(20)}}));
  // The first bus is fine.
  const auto second = problem_of({{&kFirst, gigabytes(20)},
                                  {&kSecond, gigabytes(20)},
                                  {&kFirst, gigabytes(1)},
                                  {&kSecond, gigabytes(20)},
                                  {&kSecond, gigabytes(5)}});
  ASSERT_TRUE(second);
  EXPECT_THAT(second->what, HasSubstr("the 3 instances that stream weights over \"bus-1 in\""));
  EXPECT_THAT(second->what, HasSubstr("they need 45.00 GB/s, and the link carries 30.00 GB/s"));
}

}  // namespace
}  // namespace spillway
