// Sweeps as text and CSV, from rows made by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/report/sweep.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;
using testing::Not;

Sweep sweep_of(std::vector<SweepRow> rows) {
  Sweep sweep;
  sweep.points = static_cast<std::int64_t>(rows.size());
  sweep.keys = {"policy"};
  const auto names = std::make_shared<const std::vector<std::string>>(1, "mean_ttft_ms");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].point = static_cast<std::int64_t>(i);
    rows[i].values = {"vllm"};
    rows[i].names = names;
    if (rows[i].figures.empty()) rows[i].figures = {{1.5, {}}};
    sweep.rows.push_back(std::move(rows[i]));
  }
  return sweep;
}

SweepRow warning_of(const std::vector<std::string>& warnings) {
  SweepRow row;
  row.warnings = warnings;
  return row;
}

TEST(SweepTable, WarningsOfMorePointsComeFirst) {
  const std::string text =
      to_sweep_table(sweep_of({warning_of({"a rare one", "everywhere"}), warning_of({"common", "everywhere"}),
                               warning_of({"common", "everywhere"})}),
                     {"mean_ttft_ms"});
  EXPECT_THAT(text, HasSubstr("1 of 3 points: a rare one"));
  EXPECT_THAT(text, HasSubstr("2 of 3 points: common"));
  EXPECT_THAT(text, Not(HasSubstr("points: everywhere"))) << "a warning of all points needs no count";
  EXPECT_LT(text.find("everywhere"), text.find("common"));
  EXPECT_LT(text.find("common"), text.find("a rare one"));
}

// The second point ran once and has no interval: its cell is empty, not missing.
TEST(SweepCsv, EveryRowHasTheCellsOfTheHeader) {
  SweepRow replicated;
  replicated.figures = {{2.5, 0.25}};
  EXPECT_EQ(to_sweep_csv(sweep_of({replicated, {}})),
            "point,policy,bottleneck,steady_state,mean_ttft_ms,half_width_mean_ttft_ms,error,id\n"
            "0,vllm,,,2.5,0.25,,\n"
            "1,vllm,,,1.5,,,\n");
  EXPECT_EQ(to_sweep_csv(sweep_of({{}})),
            "point,policy,bottleneck,steady_state,mean_ttft_ms,error,id\n0,vllm,,,1.5,,\n");
}

}  // namespace
}  // namespace spillway
