#include "traces/readers/run_requests.hpp"

#include <gtest/gtest.h>

#include "tests/support/paths.hpp"
#include "tests/unit/trace_test_files.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

std::string problems_in(const std::string& content, const ReaderOptions& options = {}) {
  const TempFile file(content, ".jsonl");
  return problems_of(
      [&] {
        RunJsonlReader reader(file.path(), options);
        (void)drain(reader);
      },
      file.path());
}

std::string row_of(int index, std::int64_t arrival, const std::string& more = "") {
  return "{\"index\": " + std::to_string(index) + ", \"arrival_ns\": " + std::to_string(arrival) +
         ", \"input_tokens\": " + std::to_string(100 + index) + ", \"output_tokens\": 7" + more + "}\n";
}

TEST(RunRequests, BothFormatsGiveTheRowsInOrderOfArrival) {
  const std::string samples = source_dir() + "/traces/samples/";
  for (const char* format : {"jsonl", "csv"}) {
    const OpenedTrace trace = open_trace(samples + "requests." + format, "auto");
    EXPECT_EQ(trace.format, std::string("requests-") + format);
    EXPECT_TRUE(trace.reader->has_times());
    // By hand from the sample: requests 0 to 3 arrive at 0, 0.25, 2.5 and 3 s, and ended in the order 1, 0, 3, 2.
    const std::vector<TraceRow> rows = drain(*trace.reader);
    ASSERT_EQ(rows.size(), 4U);
    EXPECT_EQ(rows[0].arrival, SimTime(0));
    EXPECT_EQ(rows[1].arrival, SimTime(250'000'000));
    EXPECT_EQ(rows[2].arrival, SimTime(2'500'000'000));
    EXPECT_EQ(rows[3].arrival, SimTime(3'000'000'000));
    EXPECT_EQ(rows[0].input, Tokens(812));
    EXPECT_EQ(rows[0].output, Tokens(41));
    EXPECT_EQ(rows[0].max_new_tokens, Tokens(41));
    EXPECT_EQ(rows[0].conversation, std::optional<std::uint64_t>(0));
    EXPECT_EQ(rows[0].turn, 1);
    EXPECT_EQ(rows[0].service_class, 1U);
    EXPECT_EQ(rows[1].client, 2U);
    EXPECT_FALSE(rows[1].conversation);
    EXPECT_EQ(rows[1].service_class, 0U);
    EXPECT_EQ(rows[2].turn, 2);
    EXPECT_EQ(rows[3].input, Tokens(200'000)) << "a request that was rejected is part of the load";
    EXPECT_EQ(rows[3].output, Tokens(5)) << "what was asked for, not what came";
    EXPECT_EQ(trace.reader->row(), format == std::string("csv") ? 4 : 3) << "line of request 3";
    EXPECT_TRUE(trace.reader->warnings().empty());
  }
}

TEST(RunRequests, EqualTimesStandByIndex) {
  const TempFile file(row_of(2, 5) + row_of(0, 5) + row_of(1, 5), ".jsonl");
  RunJsonlReader reader(file.path());
  const auto rows = drain(reader);
  ASSERT_EQ(rows.size(), 3U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(rows[static_cast<std::size_t>(i)].input, Tokens(100 + i));
}

TEST(RunRequests, OnlyTheReplicationOfTheFirstRowCounts) {
  const TempFile file(row_of(0, 0, ", \"replication\": 3") + row_of(0, 0, ", \"replication\": 4") +
                          row_of(1, 9, ", \"replication\": 3"),
                      ".jsonl");
  RunJsonlReader reader(file.path());
  EXPECT_EQ(drain(reader).size(), 2U);
  ASSERT_EQ(reader.warnings().size(), 1U);
  EXPECT_EQ(reader.warnings()[0], "1 requests of other replications than 3 are left out: a trace holds one run");
}

TEST(RunRequests, BadRowsAreTold) {
  EXPECT_EQ(problems_in(row_of(0, 0) + row_of(0, 5)),
            "exit 3\nrequest 0 is also on line 1 | FILE, row 2 | give the requests of one run");
  EXPECT_EQ(problems_in(row_of(0, -1) + row_of(1, 5, ", \"turn\": 2") + row_of(2, 5, ", \"class\": 1001") +
                        "{\"index\": 3, \"arrival_ns\": null}\n"),
            "exit 3\n"
            "-1 is not a whole number from 0 to 100000000000000000 | FILE, row 1, key \"arrival_ns\" | correct or "
            "delete the row\n"
            "a turn needs a conversation | FILE, row 2, key \"turn\" | correct or delete the row\n"
            "1001 is not a whole number from 1 to 1000 | FILE, row 3, key \"class\" | correct or delete the row\n"
            "null is not a whole number from 0 to 100000000000000000 | FILE, row 4, key \"arrival_ns\" | correct or "
            "delete the row\n"
            "key \"input_tokens\" is missing | FILE, row 4 | correct or delete the row\n"
            "key \"output_tokens\" is missing | FILE, row 4 | correct or delete the row");
  const TempFile file(row_of(0, 0) + row_of(1, -1) + row_of(2, 7), ".jsonl");
  RunJsonlReader reader(file.path(), {.skip_bad_rows = true});
  EXPECT_EQ(drain(reader).size(), 2U);
  EXPECT_EQ(reader.skipped(), 1);
  TraceRow row;
  EXPECT_FALSE(reader.next(row)) << "the end is for ever";
}

TEST(RunRequests, ACsvFileNeedsItsColumns) {
  const TempFile file("arrival_ns,input_tokens,output_token\n0,1,1\n", ".csv");
  const std::string problems = problems_of([&] { (void)open_trace(file.path(), "auto"); }, file.path());
  EXPECT_NE(problems.find("column index is missing"), std::string::npos) << problems;
  EXPECT_NE(problems.find("column output_tokens is missing; there is a column \"output_token\""), std::string::npos);
}

}  // namespace
}  // namespace spillway::traces
