// Columns of figures, and changes in percent.
#include "sim/io/columns.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "sim/io/lines.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/report/metric_heads.hpp"

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

Columns four_columns() {
  Columns table;
  table.add("name", true);
  table.add("mean TTFT\nms");
  table.add("req/s");
  table.add("why", true);
  table.row({"x", "1", "2.5", "short"});
  table.row({"yy", "10", "3", "long text"});
  return table;
}

// Columns of 4, 9, 5 and 9 characters, with two blanks between them: 4 + 2 + 9 + 2 + 5 + 2 + 9 = 33.
TEST(Columns, AWideTableBecomesSeveralWithTheFirstColumn) {
  const std::string whole =
      "      mean TTFT\n"
      "name         ms  req/s  why\n"
      "x             1    2.5  short\n"
      "yy           10      3  long text\n";
  EXPECT_EQ(four_columns().text(), whole);
  EXPECT_EQ(four_columns().text(33), whole);
  EXPECT_EQ(four_columns().text(32),
            "      mean TTFT\n"
            "name         ms  req/s\n"
            "x             1    2.5\n"
            "yy           10      3\n"
            "\n"
            "name  why\n"
            "x     short\n"
            "yy    long text\n");
  EXPECT_EQ(four_columns().text(1),
            "name\n"
            "x\n"
            "yy\n"
            "\n"
            "      mean TTFT\n"
            "name         ms\n"
            "x             1\n"
            "yy           10\n"
            "\n"
            "name  req/s\n"
            "x       2.5\n"
            "yy        3\n"
            "\n"
            "name  why\n"
            "x     short\n"
            "yy    long text\n")
      << "one column is the least";
  EXPECT_EQ(Columns().text(10), "");
}

TEST(MetricHeads, NoTwoMetricsShareOne) {
  EXPECT_EQ(metric_head("request_throughput_per_s"), "req/s");
  EXPECT_EQ(metric_head("p99_ttft_ms"), "p99 TTFT\nms");
  EXPECT_EQ(metric_head("mean_server_ttft_ms"), "mean_server_ttft_ms");
  EXPECT_EQ(metric_head("duration_s"), "duration_s");
  std::set<std::string> heads;
  for (const MetricDefinition& metric : metric_definitions()) {
    const std::vector<std::string> statistics =
        metric.distribution ? std::vector<std::string>{"mean_", "median_", "std_", "min_", "max_", "p50_", "p99_"}
                            : std::vector<std::string>{""};
    for (const std::string& statistic : statistics) {
      EXPECT_TRUE(heads.insert(metric_head(statistic + metric.name)).second) << statistic << metric.name;
    }
  }
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
