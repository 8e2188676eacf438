// Progress of a run where stderr is no terminal.
#include "sim/cli/progress.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace spillway {
namespace {

// 10 requests: a line at 20%, none while the same tenth lasts, the next at 30%. Half a second passes without output.
TEST(ProgressLine, OutsideATerminal_SaysEachTenthOnce) {
  testing::internal::CaptureStderr();
  cli::ProgressLine line(true, 10, 1);
  line.update(0, {.ended = 1});
  std::this_thread::sleep_for(std::chrono::milliseconds(550));
  for (const std::int64_t ended : {2, 2, 2, 3}) line.update(0, {.ended = ended});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "20% of 10 requests, simulated 0 s\n30% of 10 requests, simulated 0 s\n");
}

/// What the line says of two steps, of which the first is updated twice.
std::string said(bool enabled, std::chrono::milliseconds plain_every) {
  testing::internal::CaptureStderr();
  cli::SearchProgressLine line(enabled, plain_every);
  line.begin("workload.rate=2");
  for (const double fraction : {0.5, 1.0}) line.update({.points = 1, .fraction = fraction});
  line.begin("workload.rate=4");
  line.update({.points = 1, .fraction = 0.5});
  line.finish();
  return testing::internal::GetCapturedStderr();
}

TEST(SearchProgressLine, OutsideATerminal_SaysEachStepOnceWhereTheyTakeLong) {
  EXPECT_EQ(said(true, std::chrono::milliseconds(0)), "workload.rate=2\nworkload.rate=4\n");
  EXPECT_EQ(said(true, std::chrono::seconds(100)), "");
  EXPECT_EQ(said(false, std::chrono::milliseconds(0)), "");
}

}  // namespace
}  // namespace spillway
