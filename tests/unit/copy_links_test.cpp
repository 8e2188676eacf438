// What copies get of the links of a server, by hand.
#include "sim/exec/copy_links.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "sim/core/error.hpp"
#include "tests/oracle/random_case.hpp"

namespace spillway {
namespace {

using Parts = std::pair<std::int64_t, std::int64_t>;

/// 1 MB that takes 1 MB / `gb_per_second`.
Copy copy(Stream stream, double gb_per_second) {
  return {.stream = stream, .bytes = Bytes(1'000'000), .transfer = round_seconds(1e-3 / gb_per_second)};
}

struct Asked {
  double in = 0.0;  // GB/s alone; 0: no copy
  double out = 0.0;
};

/// Slowdowns in and out.
std::pair<Parts, Parts> ask(CopyLinks& links, const Asked& asked) {
  const Copy in = copy(Stream::h2d, asked.in > 0.0 ? asked.in : 1.0);
  const Copy out = copy(Stream::d2h, asked.out > 0.0 ? asked.out : 1.0);
  if (asked.in > 0.0) links.expect(in);
  if (asked.out > 0.0) links.expect(out);
  const Slowdowns got = links.alone({asked.in > 0.0 ? &in : nullptr, asked.out > 0.0 ? &out : nullptr});
  return {{got[0].num, got[0].den}, {got[1].num, got[1].den}};
}

constexpr Parts kAlone{1, 1};

TEST(CopyLinks, OwnLinks_GiveTheProfilesRatios) {
  CopyLinks links({.h2d = {2'119'842, 1'000'000}, .d2h = {8, 5}});
  EXPECT_FALSE(links.idle());
  EXPECT_FALSE(links.shares());
  EXPECT_EQ(ask(links, {.in = 10.0}), std::pair(kAlone, kAlone));
  // In lowest terms; however fast the copies are alone.
  const std::pair both(Parts(1'059'921, 500'000), Parts(8, 5));
  EXPECT_EQ(ask(links, {.in = 10.0, .out = 40.0}), both);
  EXPECT_EQ(ask(links, {.in = 50.0, .out = 1.0}), both);
  CopyLinks free;
  EXPECT_TRUE(free.idle());
  EXPECT_EQ(ask(free, {.in = 10.0, .out = 10.0}), std::pair(kAlone, kAlone));
}

TEST(CopyLinks, OtherTraffic_TakesItsShareUpToHalf) {
  CopyLinks links({.h2d = {3, 2}});
  const auto with = [&](std::vector<double> shares) {
    links.set_traffic(std::move(shares));
    return ask(links, {.in = 10.0});
  };
  EXPECT_EQ(with({0.3}).first, Parts(10, 7));
  EXPECT_EQ(with({0.5}).first, Parts(2, 1));
  EXPECT_EQ(with({1.0}).first, Parts(2, 1)) << "both want all of it: half each";
  EXPECT_EQ(with({0.0}).first, kAlone);
  EXPECT_EQ(with({0.123'456'4}).first, Parts(15'625, 13'696)) << "to a millionth: 1 / 0.876544";
  // A third each; or 0.2, and 0.4 for each of the other two.
  EXPECT_EQ(with({1.0, 1.0}).first, Parts(3, 1));
  EXPECT_EQ(with({1.0, 0.2}).first, Parts(5, 2));
  // Beside a copy out, 0.3 of the two thirds that are left go to the others, too: 2 / 3 * 0.7 = 7 / 15.
  links.set_traffic({0.3});
  EXPECT_EQ(ask(links, {.in = 10.0, .out = 10.0}), std::pair(Parts(15, 7), Parts(10, 7)));
  links.set_traffic({});
  EXPECT_EQ(ask(links, {.in = 10.0}).first, kAlone);
}

TEST(CopyLinks, AGroup_SharesTheServersTotal) {
  // Four GPUs of up to 25 GB/s; together 24 GB/s in, 30 GB/s out.
  const std::vector<BytesPerSecond> totals{BytesPerSecond(24e9), BytesPerSecond(30e9)};
  CopyLinks links({}, {.h2d = {{0, 4}}, .d2h = {{1, 4}}}, totals);
  EXPECT_TRUE(links.shares());
  EXPECT_EQ(ask(links, {.in = 25.0}).first, Parts(25, 6)) << "6 of 25";
  EXPECT_EQ(ask(links, {.in = 8.0}).first, Parts(4, 3)) << "6 of 8";
  EXPECT_EQ(ask(links, {.in = 5.0}).first, kAlone) << "small copies do not fill the total: 20 of 24";
  EXPECT_EQ(ask(links, {.in = 25.0, .out = 25.0}), std::pair(Parts(25, 6), Parts(10, 3)));
  CopyLinks two({}, {.h2d = {{0, 2}}, .d2h = {{1, 2}}}, totals);
  EXPECT_EQ(ask(two, {.in = 25.0}).first, Parts(25, 12));
}

TEST(CopyLinks, SharedLinks_MatterOnceExpectedCopiesCanFillOne) {
  // Two GPUs over a host of 40 GB/s: 2 * 10 in and 2 * 8 out fit, 2 * 12.5 and 2 * 8 do not.
  const std::vector<BytesPerSecond> totals{BytesPerSecond(40e9)};
  CopyLinks links({}, {.h2d = {{0, 2}}, .d2h = {{0, 2}}}, totals);
  EXPECT_TRUE(links.idle()) << "nothing is expected";
  for (const auto& [stream, speed] : {std::pair(Stream::h2d, 5.0), {Stream::d2h, 8.0}, {Stream::h2d, 10.0}}) {
    links.expect(copy(stream, speed));
  }
  EXPECT_FALSE(links.contended()) << "the faster copy in does not add to the slower one";
  EXPECT_TRUE(links.idle());
  links.expect({.stream = Stream::cpu, .bytes = Bytes(1'000'000'000), .transfer = Duration(1)});
  links.expect({.stream = Stream::h2d, .bytes = Bytes(1'000'000'000), .launch = Duration(1)});
  EXPECT_FALSE(links.contended()) << "neither crosses a link";
  links.expect(copy(Stream::h2d, 12.5));
  EXPECT_TRUE(links.contended());
  EXPECT_FALSE(links.idle());
  // 20 GB/s for each GPU: 8 out, 12 of 12.5 in.
  EXPECT_EQ(ask(links, {.in = 12.5, .out = 8.0}), std::pair(Parts(25, 24), kAlone));
  links.expect(copy(Stream::h2d, 1.0));
  EXPECT_TRUE(links.contended()) << "a fast copy may come back";

  // The two directions slow each other down on their own links all the same.
  CopyLinks duplex({.h2d = {2, 1}}, {.h2d = {{0}}, .d2h = {{0}}}, totals);
  EXPECT_FALSE(duplex.idle());
  EXPECT_EQ(ask(duplex, {.in = 25.0, .out = 10.0}), std::pair(Parts(2, 1), kAlone));
  EXPECT_FALSE(duplex.contended());
}

TEST(CopyLinks, WhatBothDirectionsShare_IsDividedEvenly) {
  // One GPU, 50 GB/s in and 20 out, over a host of 40 GB/s: 20 each. With 10 out, 30 are left for in.
  const std::vector<BytesPerSecond> totals{BytesPerSecond(40e9)};
  CopyLinks links({}, {.h2d = {{0}}, .d2h = {{0}}}, totals);
  EXPECT_EQ(ask(links, {.in = 50.0}).first, Parts(5, 4));
  EXPECT_EQ(ask(links, {.in = 50.0, .out = 20.0}), std::pair(Parts(5, 2), kAlone));
  EXPECT_EQ(ask(links, {.in = 50.0, .out = 10.0}), std::pair(Parts(5, 3), kAlone));
  // The duplex cap of 15 in leaves 25, of which out has its 20.
  CopyLinks duplex({.h2d = {10, 3}}, {.h2d = {{0}}, .d2h = {{0}}}, totals);
  EXPECT_EQ(ask(duplex, {.in = 50.0, .out = 20.0}), std::pair(Parts(10, 3), kAlone));
}

TEST(CopyLinks, Contention_IsNotCountedTwice) {
  // A cap of half and a total of half: half, not a quarter. The cap shows only beside the other direction.
  const std::vector<BytesPerSecond> totals{BytesPerSecond(5e9)};
  CopyLinks links({.h2d = {2, 1}}, {.h2d = {{0}}}, totals);
  EXPECT_EQ(ask(links, {.in = 10.0, .out = 10.0}), std::pair(Parts(2, 1), kAlone));
  EXPECT_EQ(ask(links, {.in = 10.0}).first, Parts(2, 1));
  EXPECT_EQ(ask(links, {.in = 4.0}).first, kAlone);
  EXPECT_EQ(ask(links, {.in = 4.0, .out = 10.0}).first, Parts(2, 1));
}

TEST(CopyLinks, ARouteOverNoLink_IsAnInvariantError) {
  EXPECT_THROW(CopyLinks({}, {.h2d = {{0}}}, {}), InvariantError);
}

TEST(PlannedCopies, TakeWhatTheLinksWillGive) {
  // WholeModel: 64 bytes take 2 ns in, 3 ns out, so 32 and 21.3 GB/s. Two GPUs over 32 GB/s in, 160 / 3 GB/s out.
  const oracle::WholeModel model(1, 1, {.h2d = {3, 2}, .d2h = {2, 1}, .compute = {5, 4}});
  const std::vector<BytesPerSecond> totals{BytesPerSecond(32e9), BytesPerSecond(160e9 / 3.0)};
  const PlannedCopies planned(model, {.h2d = {{0, 2}}, .d2h = {{1, 2}}}, totals);
  const CopyTime in = planned.copy(Stream::h2d, 3, Bytes(6400), CopyMechanism::single);
  EXPECT_EQ(in.launch, Duration(3));
  EXPECT_EQ(in.transfer, Duration(400)) << "16 of 32 GB/s: twice as long as 200";
  EXPECT_EQ(planned.copy(Stream::d2h, 1, Bytes(6400), CopyMechanism::single).transfer, Duration(300));
  // In: alone a half, beside a copy out the cap of two thirds does not matter. Out: alone 1, beside a copy in a half.
  const CopySharing sharing = planned.copy_sharing();
  EXPECT_EQ(Parts(sharing.h2d.num, sharing.h2d.den), Parts(1, 1));
  EXPECT_EQ(Parts(sharing.d2h.num, sharing.d2h.den), Parts(2, 1));
  EXPECT_EQ(Parts(sharing.compute.num, sharing.compute.den), Parts(5, 4));
  EXPECT_EQ(planned.layers(), model.layers());
  // Without shared links, the model as it is.
  const PlannedCopies same(model, {}, {});
  EXPECT_EQ(same.copy(Stream::h2d, 1, Bytes(6400), CopyMechanism::single).transfer, Duration(200));
  EXPECT_EQ(Parts(same.copy_sharing().h2d.num, same.copy_sharing().h2d.den), Parts(3, 2));
}

}  // namespace
}  // namespace spillway
