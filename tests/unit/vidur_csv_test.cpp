#include "traces/readers/vidur_csv.hpp"

#include <gtest/gtest.h>

#include "tests/support/paths.hpp"
#include "tests/unit/trace_test_files.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

constexpr const char* kHeader = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n";

std::string problems_in(const std::string& content) {
  const TempFile file(content, ".csv");
  return problems_of(
      [&] {
        VidurCsvReader reader(file.path());
        (void)drain(reader);
      },
      file.path());
}

TEST(VidurCsv, ReadsLengthsWithoutTimes) {
  const TempFile file(std::string(kHeader) + "3772,54,3826,69.8\r\n\r\n2015,156,2171,12.9", ".csv");
  VidurCsvReader reader(file.path());
  EXPECT_FALSE(reader.has_times());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].arrival, kNever) << "the file states no times";
  EXPECT_EQ(requests[0].input, Tokens(3772));
  EXPECT_EQ(requests[0].output, Tokens(54));
  EXPECT_EQ(requests[0].max_new_tokens, Tokens(54));
  EXPECT_EQ(requests[1].input, Tokens(2015));
  EXPECT_EQ(reader.row(), 4);
}

TEST(VidurCsv, ReadsArrivalsWhereThereAreSome) {
  const TempFile file("arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,10,20\n0.5,11,21\n1.25,12,22\n", ".csv");
  VidurCsvReader reader(file.path());
  EXPECT_TRUE(reader.has_times());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].arrival, SimTime(500'000'000));
  EXPECT_EQ(requests[2].arrival, SimTime(1'250'000'000));
}

TEST(VidurCsv, TimesMayGoBackByASecond) {
  const TempFile file("arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,10,20\n2,11,21\n1,12,22\n", ".csv");
  VidurCsvReader reader(file.path());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[2].arrival, SimTime(1'000'000'000));
  EXPECT_EQ(requests[2].input, Tokens(12));
}

TEST(VidurCsv, EveryBadFieldIsTold) {
  EXPECT_EQ(problems_in("num_prefill_tokens,num_decode_tokens,arrived_at\n"
                        "5,5,2.5\n"
                        "-1,0,1\n"
                        "nan,20000000,nan\n"
                        "5,6.5,-1\n"
                        "5,\n"),
            "exit 3\n"
            "-1 tokens: from 1 to 16777216 are possible | FILE, row 3, column num_prefill_tokens | "
            "correct or delete the row\n"
            "0 tokens: from 1 to 16777216 are possible | FILE, row 3, column num_decode_tokens | "
            "correct or delete the row\n"
            "\"1\" is more than 1 s earlier than a previous row | FILE, row 3, column arrived_at | sort the rows by "
            "arrived_at\n"
            "\"nan\" is not a whole number of tokens | FILE, row 4, column num_prefill_tokens | "
            "correct or delete the row\n"
            "20000000 tokens: from 1 to 16777216 are possible | FILE, row 4, column num_decode_tokens | "
            "correct or delete the row\n"
            "\"nan\" is not a number of seconds from 0 to 100000000 | FILE, row 4, column arrived_at | "
            "correct or delete the row\n"
            "\"6.5\" is not a whole number of tokens | FILE, row 5, column num_decode_tokens | "
            "correct or delete the row\n"
            "\"-1\" is not a number of seconds from 0 to 100000000 | FILE, row 5, column arrived_at | "
            "correct or delete the row\n"
            "the row has 2 columns where the first row has 3 | FILE, row 6 | "
            "complete or delete the row; a file that was cut off while being copied ends like this");
}

TEST(VidurCsv, AMissingColumnIsTold) {
  EXPECT_EQ(problems_in("num_prefill_tokens,num_decoded_tokens\n1,2\n"),
            "exit 3\ncolumn num_decode_tokens is missing; there is a column \"num_decoded_tokens\" | FILE, row 1 | "
            "the first row must name the columns num_prefill_tokens and num_decode_tokens");
}

TEST(VidurCsv, TheSampleIsReadByDetection) {
  const OpenedTrace trace = open_trace(source_dir() + "/traces/samples/vidur.csv", "auto");
  EXPECT_EQ(trace.format, "vidur-csv");
  const auto requests = drain(*trace.reader);
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_EQ(requests[2].input, Tokens(3100));
  EXPECT_EQ(requests[2].output, Tokens(25));
}

TEST(VidurCsv, TheRealFileHasItsTotals) {
  const std::string path = shared_trace("arxiv-lengths-5000.csv");
  if (path.empty()) GTEST_SKIP() << "../shared/data/traces/arxiv-lengths-5000.csv is missing";
  const OpenedTrace trace = open_trace(path, "auto");
  EXPECT_EQ(trace.format, "vidur-csv");
  // awk -F, 'NR>1{n++; i+=$1; o+=$2} END{print n, i, o}': 5000 12826408 1526744
  EXPECT_EQ(totals_of(*trace.reader), (Totals{5000, 12'826'408, 1'526'744}));
}

}  // namespace
}  // namespace spillway::traces
