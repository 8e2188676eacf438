#include "traces/readers/burstgpt_csv.hpp"

#include <gtest/gtest.h>

#include "tests/support/paths.hpp"
#include "tests/unit/trace_test_files.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

constexpr const char* kHeader = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";

std::string problems_in(const std::string& content) {
  const TempFile file(content, ".csv");
  return problems_of(
      [&] {
        BurstGptCsvReader reader(file.path());
        (void)drain(reader);
      },
      file.path());
}

// No file of this format is available: the layouts follow the publishers' description.
TEST(BurstGptCsv, ReadsTheFirstLayout) {
  const TempFile file(
      std::string(kHeader) + "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,230,1317,API log\n", ".csv");
  const OpenedTrace trace = open_trace(file.path(), "auto");
  EXPECT_EQ(trace.format, "burstgpt-csv");
  EXPECT_TRUE(trace.reader->has_times());
  const auto requests = drain(*trace.reader);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].arrival, SimTime(0)) << "the trace's clock starts at midnight, the run with the first request";
  EXPECT_EQ(requests[0].input, Tokens(472));
  EXPECT_EQ(requests[0].output, Tokens(18));
  EXPECT_EQ(requests[1].arrival, SimTime(40'000'000'000));
  EXPECT_EQ(requests[1].max_new_tokens, Tokens(230));
}

TEST(BurstGptCsv, ReadsTheNewerLayout) {
  const TempFile file(
      "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5.5,a1,2.25,GPT-4,10,20,30,\"Conversation log, new\"\n6.125,,0.5,GPT-4,11,21,32,API log\n",
      ".csv");
  const OpenedTrace trace = open_trace(file.path(), "auto");
  EXPECT_EQ(trace.format, "burstgpt-csv");
  const auto requests = drain(*trace.reader);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[1].arrival, SimTime(625'000'000));
  EXPECT_EQ(requests[1].input, Tokens(11));
  EXPECT_EQ(requests[1].output, Tokens(21));
  const TempFile sessions(
      "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,a1,2,GPT-4,10,20,30,Conversation log\n6,-1,1,GPT-4,11,21,32,API log\n7,-1,1,GPT-4,11,21,32,API log\n",
      ".csv");
  BurstGptCsvReader reader(sessions.path());
  TraceRow row;
  ASSERT_TRUE(reader.next(row));
  EXPECT_TRUE(row.conversation.has_value());
  ASSERT_TRUE(reader.next(row));
  EXPECT_FALSE(row.conversation.has_value()) << "-1 and an empty session are no conversation";
}

TEST(BurstGptCsv, AFailedRequestCountsAsOneToken) {
  const TempFile file(std::string(kHeader) + "5,ChatGPT,472,0,472,API log\n6,ChatGPT,5,7,12,API log\n", ".csv");
  BurstGptCsvReader reader(file.path());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].output, Tokens(1));
  EXPECT_EQ(requests[0].max_new_tokens, Tokens(1));
  EXPECT_EQ(reader.zero_outputs(), 1);
}

TEST(BurstGptCsv, TimesMayGoBackByASecond) {
  const TempFile file(std::string(kHeader) + "5,m,1,1,2,x\n7.5,m,2,1,3,x\n6.5,m,3,1,4,x\n", ".csv");
  BurstGptCsvReader reader(file.path());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[1].arrival, SimTime(2'500'000'000));
  EXPECT_EQ(requests[2].arrival, SimTime(1'500'000'000));
  EXPECT_EQ(requests[2].input, Tokens(3));
}

TEST(BurstGptCsv, EveryBadFieldIsTold) {
  EXPECT_EQ(problems_in(std::string(kHeader) + "5,m,1,1,2,x\n"
                                               "3.5,m,1,1,2,x\n"
                                               "-6,m,0,-1,2,x\n"
                                               "NaN,m,1e2,16777217,2,x\n"
                                               "2023-11-16 18:00:00,m,1,1,2,x\n"
                                               "7,m,1"),
            "exit 3\n"
            "\"3.5\" is more than 1 s earlier than a previous row | FILE, row 3, column Timestamp | sort the rows by "
            "Timestamp\n"
            "\"-6\" is not a number of seconds from 0 to 100000000 | FILE, row 4, column Timestamp | "
            "correct or delete the row\n"
            "0 tokens: from 1 to 16777216 are possible | FILE, row 4, column Request tokens | "
            "correct or delete the row\n"
            "-1 tokens: from 0 to 16777216 are possible | FILE, row 4, column Response tokens | "
            "correct or delete the row\n"
            "\"NaN\" is not a number of seconds from 0 to 100000000 | FILE, row 5, column Timestamp | "
            "correct or delete the row\n"
            "\"1e2\" is not a whole number of tokens | FILE, row 5, column Request tokens | "
            "correct or delete the row\n"
            "16777217 tokens: from 0 to 16777216 are possible | FILE, row 5, column Response tokens | "
            "correct or delete the row\n"
            "\"2023-11-16 18:00:00\" is not a number of seconds from 0 to 100000000 | FILE, row 6, column Timestamp | "
            "correct or delete the row\n"
            "the row has 3 columns where the first row has 6 | FILE, row 7 | "
            "complete or delete the row; a file that was cut off while being copied ends like this");
}

TEST(BurstGptCsv, AMissingColumnIsTold) {
  EXPECT_EQ(problems_in("Timestamp,Request tokens,Responses\n"),
            "exit 3\ncolumn Response tokens is missing | FILE, row 1 | "
            "the first row must name the columns Timestamp, Request tokens and Response tokens");
}

TEST(BurstGptCsv, TheSampleIsReadByDetection) {
  const OpenedTrace trace = open_trace(source_dir() + "/traces/samples/burstgpt.csv", "auto");
  EXPECT_EQ(trace.format, "burstgpt-csv");
  const auto requests = drain(*trace.reader);
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_EQ(requests[3].arrival, SimTime(31'000'000'000));
  EXPECT_EQ(trace.reader->zero_outputs(), 1);
}

}  // namespace
}  // namespace spillway::traces
