// Columns of figures, and changes in percent.
#include "sim/io/columns.hpp"

#include <gtest/gtest.h>

#include "sim/io/lines.hpp"

namespace spillway {
namespace {

TEST(Columns, TheLastCellOfAShortRowFillsTheLine) {
  Columns table;
  table.add("a", true);
  table.add("b");
  table.add("c");
  table.row({"x", "1", "22"});
  table.row({"yyy", "this text is wider than its column"});
  EXPECT_EQ(table.text(),
            "a    b   c\n"
            "x    1  22\n"
            "yyy  this text is wider than its column\n");
}

// One decimal place: 0.05% is the least change that does not round to 0.0%.
TEST(SignedPercent, AChangeThatRoundsToNothing_HasNoSign) {
  EXPECT_EQ(signed_percent(0.25), "+25.0%");
  EXPECT_EQ(signed_percent(-0.001), "-0.1%");
  EXPECT_EQ(signed_percent(0.0006), "+0.1%");
  EXPECT_EQ(signed_percent(0.0004), "0.0%");
  EXPECT_EQ(signed_percent(-0.0004), "0.0%");
  EXPECT_EQ(signed_percent(std::nullopt), "-");
}

}  // namespace
}  // namespace spillway
