#include "traces/readers/azure_csv.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/paths.hpp"
#include "tests/unit/trace_test_files.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

constexpr const char* kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

std::string problems_in(const std::string& content) {
  const TempFile file(content, ".csv");
  return problems_of(
      [&] {
        AzureCsvReader reader(file.path());
        (void)drain(reader);
      },
      file.path());
}

TEST(ParseStamp, IsExact) {
  // 2023-11-16 is day 19,677 since 1970: 53 years of 365 days = 19,345, 13 leap days (1972 ... 2020), and 319 days up
  // to 16 November; 18:17:03 is second 65,823. 19,677 * 86,400 + 65,823 = 1,700,158,623.
  EXPECT_EQ(parse_stamp("2023-11-16 18:17:03.9799600"), 1'700'158'623'979'960'000);
  EXPECT_EQ(parse_stamp("2023-11-16T18:17:03Z"), 1'700'158'623'000'000'000);
  EXPECT_EQ(parse_stamp("2023-11-16 18:17:03.123456789"), 1'700'158'623'123'456'789);
  // 2024-05-10: day 19,677 + 45 (to 31 December) + 31 + 29 + 31 + 30 + 10 = 19,853; 19,853 * 86,400 = 1,715,299,200.
  EXPECT_EQ(parse_stamp("2024-05-10 00:00:00.009930+00:00"), 1'715'299'200'009'930'000);
  EXPECT_EQ(parse_stamp("2024-05-10 02:30:00+02:30"), 1'715'299'200'000'000'000);
  EXPECT_EQ(parse_stamp("2024-05-09 19:00:00-05:00"), 1'715'299'200'000'000'000);
  EXPECT_EQ(parse_stamp("1970-01-01 00:00:00"), 0);
  // 2000 is a leap year: 11,016 days to 29 February (30 years of 365 = 10,950, 7 leap days, 59 days).
  EXPECT_EQ(parse_stamp("2000-02-29 00:00:00"), 11'016 * 86'400'000'000'000);
}

TEST(ParseStamp, RefusesWhatIsNoStamp) {
  for (const char* text :
       {"", "2023-11-16", "2023-11-16 18:17", "2023-13-16 18:17:03", "2023-02-29 18:17:03", "2100-02-29 00:00:00",
        "2023-11-16 24:17:03", "2023-11-16 18:60:03", "2023-11-16 18:17:60", "2023-11-16 18:17:03.",
        "2023-11-16 18:17:03.1234567890", "2023-11-16 18:17:03+0000", "2023-11-16 18:17:03 ", "2023-11-16x18:17:03",
        "1969-12-31 23:59:59", "-023-11-16 18:17:03", "nan", "2023-11-16 18:17:03+25:00"}) {
    EXPECT_FALSE(parse_stamp(text).has_value()) << text;
  }
}

TEST(AzureCsv, ReadsTheFormatOf2023) {
  // CRLF, no newline after the last row, stamps in units of 100 ns.
  const TempFile file(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n"
      "2023-11-16 18:17:04.0319601,3180,8",
      ".csv");
  AzureCsvReader reader(file.path());
  EXPECT_TRUE(reader.has_times());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].arrival, SimTime(0));
  EXPECT_EQ(requests[0].input, Tokens(4808));
  EXPECT_EQ(requests[0].output, Tokens(10));
  EXPECT_EQ(requests[0].max_new_tokens, Tokens(10));
  EXPECT_EQ(requests[0].client, 0U);
  EXPECT_TRUE(requests[0].prefix_ids.empty());
  EXPECT_EQ(requests[1].arrival, SimTime(52'000'100));  // 4.0319601 - 3.9799600 = 0.0520001 s
  EXPECT_EQ(requests[1].input, Tokens(3180));
  TraceRow request;
  EXPECT_FALSE(reader.next(request)) << "the end is for ever";
}

TEST(AzureCsv, ReadsTheFormatOf2024) {
  const TempFile file(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
      "2024-05-10 00:00:00.017335+00:00,2399,6\n2024-05-10 00:00:01+00:00,76,15\n",
      ".csv");
  AzureCsvReader reader(file.path());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[1].arrival, SimTime(7'405'000));    // 17,335 - 9,930 us
  EXPECT_EQ(requests[2].arrival, SimTime(990'070'000));  // a stamp without decimals
}

TEST(AzureCsv, ColumnsStandInAnyOrderAndOthersAreIgnored) {
  const TempFile file(
      "\xEF\xBB\xBFGeneratedTokens, Model,\"TIMESTAMP\",Note,ContextTokens\n"
      "7,m,2023-11-16 18:00:00,\"a, b\",50\n\n8,,2023-11-16 18:00:00,,60\n",
      ".csv");
  AzureCsvReader reader(file.path());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].input, Tokens(50));
  EXPECT_EQ(requests[0].output, Tokens(7));
  EXPECT_EQ(requests[1].input, Tokens(60));
  EXPECT_EQ(requests[1].arrival, SimTime(0)) << "equal stamps are in order";
  EXPECT_EQ(reader.row(), 4) << "rows are lines of the file, the empty one included";
}

TEST(AzureCsv, TimesMayGoBackByASecond) {
  // The third row is 1 s before the latest, the fourth 1.0000001 s.
  const std::string rows =
      std::string(kHeader) + "2023-11-16 18:00:00,50,5\n2023-11-16 18:00:02,50,5\n" + "2023-11-16 18:00:01,50,5\n";
  const TempFile file(rows, ".csv");
  AzureCsvReader reader(file.path());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[1].arrival, SimTime(2'000'000'000));
  EXPECT_EQ(requests[2].arrival, SimTime(1'000'000'000)) << "rows are delivered in the order of the file";
  EXPECT_EQ(problems_in(rows + "2023-11-16 18:00:00.9999999,50,5\n"),
            "exit 3\n\"2023-11-16 18:00:00.9999999\" is more than 1 s earlier than a previous row | FILE, row 5, "
            "column TIMESTAMP | sort the rows by TIMESTAMP");
}

TEST(AzureCsv, OutputOfZeroTokensCountsAsOne) {
  const TempFile file(std::string(kHeader) + "2023-11-16 18:00:00,50,0\n2023-11-16 18:00:01,60,3\n", ".csv");
  AzureCsvReader reader(file.path());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].output, Tokens(1));
  EXPECT_EQ(requests[0].max_new_tokens, Tokens(1));
  EXPECT_EQ(reader.zero_outputs(), 1);
}

TEST(AzureCsv, RowsAcrossWindowsAreWhole) {
  // 40,000 rows of 33 bytes or more are five windows of 256 KiB. Row i is i ms after the first, input i + 1, output i %
  // 7 + 1.
  std::string content = kHeader;
  for (int i = 0; i < 40'000; ++i) {
    content += fmt::format("2023-11-16 18:00:{:02}.{:03}0000,{},{}\n", i / 1000, i % 1000, i + 1, i % 7 + 1);
  }
  const TempFile file(content, ".csv");
  AzureCsvReader reader(file.path());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 40'000U);
  for (std::int64_t i = 0; i < 40'000; ++i) {
    const TraceRow& request = requests[static_cast<std::size_t>(i)];
    ASSERT_EQ(request.arrival, SimTime(i * 1'000'000));
    ASSERT_EQ(request.input, Tokens(i + 1));
    ASSERT_EQ(request.output, Tokens(i % 7 + 1));
  }
}

TEST(AzureCsv, ALineLongerThanTheWindowIsRead) {
  const std::string note(600'000, 'x');
  const TempFile file("TIMESTAMP,Note,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00," + note + ",5,6\n", ".csv");
  AzureCsvReader reader(file.path());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].output, Tokens(6));
}

TEST(AzureCsv, ALineWithoutEndIsTold) {
  const TempFile file(kHeader, ".csv");
  std::filesystem::resize_file(file.path(), std::uintmax_t{66} << 20U);  // zeros that take no disk space
  EXPECT_EQ(problems_of(
                [&] {
                  AzureCsvReader reader(file.path());
                  (void)drain(reader);
                },
                file.path()),
            "exit 3\nthe line is longer than 64 MiB | FILE, row 2 | "
            "check that this is a text file with one request per line");
}

TEST(AzureCsv, EveryBadFieldIsTold) {
  EXPECT_EQ(
      problems_in(std::string(kHeader) + "2023-11-16 18:00:00,50,5\n"
                                         "2023-11-16 18:00:01,-5,5\n"
                                         "2023-11-16 18:00:02,NaN,\n"
                                         "yesterday,0,1e3\n"
                                         "2023-11-16 17:59:58.5,50,99999999\n"
                                         "2023-11-16 18:00:03,50\n"),
      "exit 3\n"
      "-5 tokens: from 1 to 16777216 are possible | FILE, row 3, column ContextTokens | correct or delete the row\n"
      "\"NaN\" is not a whole number of tokens | FILE, row 4, column ContextTokens | correct or delete the row\n"
      "the field is empty | FILE, row 4, column GeneratedTokens | correct or delete the row\n"
      "\"yesterday\" is not a time stamp | FILE, row 5, column TIMESTAMP | "
      "write it as 2023-11-16 18:17:03.9799600 or 2024-05-10 00:00:00.009930+00:00\n"
      "0 tokens: from 1 to 16777216 are possible | FILE, row 5, column ContextTokens | correct or delete the row\n"
      "\"1e3\" is not a whole number of tokens | FILE, row 5, column GeneratedTokens | correct or delete the row\n"
      "99999999 tokens: from 0 to 16777216 are possible | FILE, row 6, column GeneratedTokens | "
      "correct or delete the row\n"
      "\"2023-11-16 17:59:58.5\" is more than 1 s earlier than a previous row | FILE, row 6, column TIMESTAMP | "
      "sort the rows by TIMESTAMP\n"
      "the row has 2 columns where the first row has 3 | FILE, row 7 | "
      "complete or delete the row; a file that was cut off while being copied ends like this");
}

TEST(AzureCsv, TooManyColumnsAreTold) {
  EXPECT_EQ(problems_in(std::string(kHeader) + "2023-11-16 18:00:00,50,5,7\n"),
            "exit 3\nthe row has 4 columns where the first row has 3 | FILE, row 2 | "
            "put fields that hold a comma in double quotes");
}

TEST(AzureCsv, TheFirstTenBadRowsAreTold) {
  std::string content = kHeader;
  for (int i = 0; i < 100; ++i) content += i % 2 == 0 ? "2023-11-16 18:00:00,5,5\n" : "2023-11-16 18:00:00,x,5\n";
  const std::string problems = problems_in(content);
  EXPECT_EQ(std::count(problems.begin(), problems.end(), '\n'), 10);
  EXPECT_TRUE(problems.starts_with("exit 3\n\"x\" is not a whole number of tokens | FILE, row 3, "));
  EXPECT_NE(problems.find("row 21,"), std::string::npos);
  EXPECT_EQ(problems.find("row 23,"), std::string::npos);
}

TEST(AzureCsv, BadRowsAreSkippedAndCounted) {
  std::string content = kHeader;
  for (int i = 0; i < 100; ++i) content += i % 2 == 0 ? "2023-11-16 18:00:00,5,6\n" : "2023-11-16 18:00:00,x,y\n";
  const TempFile file(content + "2023-11-16 18:00:09,7", ".csv");
  AzureCsvReader reader(file.path(), {.skip_bad_rows = true});
  EXPECT_EQ(reader.skipped(), 0);
  EXPECT_EQ(reader.first_skipped(), "");
  EXPECT_EQ(totals_of(reader), (Totals{50, 250, 300}));
  EXPECT_EQ(reader.skipped(), 51) << "rows, not what is wrong with them";
  EXPECT_EQ(reader.first_skipped(),
            file.path() + ", row 3, column ContextTokens: \"x\" is not a whole number of tokens");
}

TEST(AzureCsv, AnUnprintableFieldDoesNotReachTheTerminal) {
  EXPECT_EQ(problems_in(std::string(kHeader) + "2023-11-16 18:00:00,\x1b[31m\xff,5\n"),
            "exit 3\n\"?[31m?\" is not a whole number of tokens | FILE, row 2, column ContextTokens | "
            "correct or delete the row");
}

TEST(AzureCsv, MissingColumnsAreTold) {
  const std::string fix = " | the first row must name the columns TIMESTAMP, ContextTokens and GeneratedTokens";
  EXPECT_EQ(problems_in("Time,Context_Tokens,GeneratedTokens,GeneratedTokens\n"),
            "exit 3\n"
            "column TIMESTAMP is missing | FILE, row 1" +
                fix + "\ncolumn ContextTokens is missing; there is a column \"Context_Tokens\" | FILE, row 1" + fix +
                "\ncolumn GeneratedTokens appears 2 times | FILE, row 1" + fix);
}

TEST(AzureCsv, TheSampleIsReadByDetection) {
  const OpenedTrace trace = open_trace(source_dir() + "/traces/samples/azure.csv", "auto");
  EXPECT_EQ(trace.format, "azure-csv");
  const auto requests = drain(*trace.reader);
  ASSERT_EQ(requests.size(), 10U);
  EXPECT_EQ(requests[3].arrival, SimTime(900'000'100));
  EXPECT_EQ(requests[9].arrival, SimTime(8'000'000'000));
  EXPECT_EQ(requests[9].input, Tokens(1200));
}

TEST(AzureCsv, TheRealTraceHasItsPublishedStatistics) {
  const std::string path = shared_trace("azure-2023-code.csv");
  if (path.empty()) GTEST_SKIP() << "../shared/data/traces/azure-2023-code.csv is not there";
  const OpenedTrace trace = open_trace(path, "auto");
  EXPECT_EQ(trace.format, "azure-csv");
  const auto requests = drain(*trace.reader);
  // Of the published trace: 8,819 requests; in 2,047.8 / 1,469 / 5,194 / 7,436 / 7,437 (mean, p50, p90, p99, max);
  // out 27.88 / 13 / 55 / 252 / 1,899.
  ASSERT_EQ(requests.size(), 8819U);
  EXPECT_EQ(trace.reader->zero_outputs(), 0);
  const auto expect = [&](Tokens TraceRow::*member, double mean, double tolerance, const std::vector<double>& at) {
    std::vector<double> values;
    double sum = 0.0;
    for (const TraceRow& request : requests) {
      values.push_back(static_cast<double>((request.*member).count()));
      sum += values.back();
    }
    std::sort(values.begin(), values.end());
    EXPECT_NEAR(sum / 8819.0, mean, tolerance);
    // The printed quantiles are the values at position floor(n q): 4,409 / 7,937 / 8,730.
    EXPECT_EQ(values[4409], at[0]);
    EXPECT_EQ(values[7937], at[1]);
    EXPECT_EQ(values[8730], at[2]);
    EXPECT_EQ(values[8818], at[3]);
  };
  expect(&TraceRow::input, 2047.8, 0.05, {1469, 5194, 7436, 7437});
  expect(&TraceRow::output, 27.88, 0.005, {13, 55, 252, 1899});
  // First stamp 18:17:03.9799600, last 19:14:19.9280160: 57 min 15.9480560 s.
  EXPECT_EQ(requests.front().arrival, SimTime(0));
  EXPECT_EQ(requests.back().arrival, SimTime(3'435'948'056'000));
}

}  // namespace
}  // namespace spillway::traces
