// AQUA's profiler: its rules on made-up figures.
#include "sim/study/placer/profiler.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "sim/core/error.hpp"

namespace spillway::placer {
namespace {

constexpr std::int64_t kGigabyte = 1'000'000'000;

// Throughput 10, 18, 24, 25, 40 at batches 1, 2, 4, 8, 16: gains of 80%, 33% and 4.2%. So the batch grows to 4 and no
// further, whatever a batch of 16 would gain; 40 GB are free there.
TEST(Profiler, BatchGrowsUntilThroughputGainsLittle) {
  const std::vector<BatchPoint> curve{{1, 10.0, Bytes(60 * kGigabyte)},
                                      {2, 18.0, Bytes(52 * kGigabyte)},
                                      {4, 24.0, Bytes(40 * kGigabyte)},
                                      {8, 25.0, Bytes(20 * kGigabyte)},
                                      {16, 40.0, Bytes(5 * kGigabyte)}};
  EXPECT_EQ(lendable_memory(curve), Bytes(40 * kGigabyte));
}

// A gain of 5% is enough; the curve may end before the gain does.
TEST(Profiler, BatchGrowsToTheEndOfACurveThatStillGains) {
  EXPECT_EQ(lendable_memory(std::vector<BatchPoint>{{1, 100.0, Bytes(9)}, {2, 105.0, Bytes(7)}}), Bytes(7));
  EXPECT_EQ(lendable_memory(std::vector<BatchPoint>{{1, 100.0, Bytes(9)}, {2, 104.9, Bytes(7)}}), Bytes(9));
  EXPECT_EQ(lendable_memory(std::vector<BatchPoint>{{1, 100.0, Bytes(9)}}), Bytes(9));
  EXPECT_THROW((void)lendable_memory({}), ConfigError);
}

// More than 10 GB free makes a producer, whatever it would swap; exactly 10 GB do not.
TEST(Profiler, TenGigabytesFreeMakeNoProducer) {
  EXPECT_EQ(balance_of(Bytes(10 * kGigabyte + 1), Bytes(5)), Bytes(10 * kGigabyte + 1));
  EXPECT_EQ(balance_of(Bytes(10 * kGigabyte), Bytes(5)), Bytes(-5));
  EXPECT_EQ(balance_of(Bytes(3), Bytes(0)), Bytes(0));
}

// Section 3.6: a prompt of 8192 tokens of OPT-30B, 1376256 bytes of KV a token, is 11.27 GB.
TEST(Profiler, ContextsAreBorrowedWhole) {
  EXPECT_EQ(context_demand(1, Tokens(8192), Bytes(1'376'256)).count(), 11'274'289'152);
  EXPECT_EQ(context_demand(3, Tokens(8192), Bytes(1'376'256)).count(), 33'822'867'456);
}

}  // namespace
}  // namespace spillway::placer
