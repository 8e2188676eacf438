#include "traces/readers/native_csv.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/trace_test_files.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

std::vector<TraceRow> read(const std::string& content) {
  const TempFile file(content, ".csv");
  NativeCsvReader reader(file.path());
  return drain(reader);
}

std::string problems_in(const std::string& content) {
  const TempFile file(content, ".csv");
  return problems_of(
      [&] {
        NativeCsvReader reader(file.path());
        (void)drain(reader);
      },
      file.path());
}

TEST(NativeCsv, ReadsEveryColumn) {
  const auto requests = read("client,arrival_s,max_new_tokens,output_tokens,input_tokens\n3,0.25,64,5,40\n,1,,6,41\n");
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].arrival, SimTime(250'000'000));
  EXPECT_EQ(requests[0].input, Tokens(40));
  EXPECT_EQ(requests[0].output, Tokens(5));
  EXPECT_EQ(requests[0].max_new_tokens, Tokens(64));
  EXPECT_EQ(requests[0].client, 3U);
  EXPECT_EQ(requests[1].max_new_tokens, Tokens(6)) << "empty: what it generates";
  EXPECT_EQ(requests[1].client, 0U);
}

TEST(NativeCsv, TwoColumnsAreEnough) {
  const TempFile file("input_tokens,output_tokens\n8,9\n", ".csv");
  NativeCsvReader reader(file.path());
  EXPECT_FALSE(reader.has_times());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].arrival, SimTime(0));
  EXPECT_EQ(requests[0].max_new_tokens, Tokens(9));
}

TEST(NativeCsv, ClientsByNameAreNumberedInOrder) {
  const auto requests =
      read("input_tokens,output_tokens,client\n1,1,chat\n1,1,\"a, b\"\n1,1,\n1,1,7\n1,1,chat\n1,1,7\n");
  ASSERT_EQ(requests.size(), 6U);
  const std::vector<std::uint32_t> expected{1, 2, 0, 3, 1, 3};  // among names, 7 is a name
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(requests[i].client, expected[i]) << i;
}

TEST(NativeCsv, EveryBadFieldIsTold) {
  EXPECT_EQ(problems_in("input_tokens,output_tokens,arrival_s,max_new_tokens,client\n"
                        "8,9,1,,1\n"
                        "-8,0,NaN,,4294967296\n"
                        "8,9,0.5,8,bob\n"
                        ",9,,x,-1\n"
                        "8,99999999,2,0,1\n"
                        "8,9\n"),
            "exit 3\n"
            "-8 tokens: from 1 to 16777216 are possible | FILE, row 3, column input_tokens | "
            "correct or delete the row\n"
            "0 tokens: from 1 to 16777216 are possible | FILE, row 3, column output_tokens | "
            "correct or delete the row\n"
            "\"NaN\" is not a number of seconds from 0 to 100000000 | FILE, row 3, column arrival_s | "
            "correct or delete the row\n"
            "\"4294967296\" is not a number below 2^32, as the clients of the rows before are | FILE, row 3, column "
            "client | name all clients by numbers, or all by texts\n"
            "8 is below output_tokens = 9: a request cannot generate more than it asked for | FILE, row 4, column "
            "max_new_tokens | correct or delete the row\n"
            "\"0.5\" is earlier than the row before | FILE, row 4, column arrival_s | sort the rows by arrival_s\n"
            "\"bob\" is not a number below 2^32, as the clients of the rows before are | FILE, row 4, column client | "
            "name all clients by numbers, or all by texts\n"
            "the field is empty | FILE, row 5, column input_tokens | correct or delete the row\n"
            "\"x\" is not a whole number of tokens | FILE, row 5, column max_new_tokens | correct or delete the row\n"
            "\"\" is not a number of seconds from 0 to 100000000 | FILE, row 5, column arrival_s | "
            "correct or delete the row\n"
            "\"-1\" is not a number below 2^32, as the clients of the rows before are | FILE, row 5, column client | "
            "name all clients by numbers, or all by texts\n"
            "99999999 tokens: from 1 to 16777216 are possible | FILE, row 6, column output_tokens | "
            "correct or delete the row\n"
            "0 tokens: from 1 to 16777216 are possible | FILE, row 6, column max_new_tokens | "
            "correct or delete the row\n"
            "the row has 2 columns where the first row has 5 | FILE, row 7 | "
            "complete or delete the row; a file that was cut off while being copied ends like this");
}

TEST(NativeCsv, UnknownColumnsAreTold) {
  EXPECT_EQ(problems_in("input_tokens,output_tokens,arival_s,colour\n"),
            "exit 3\nunknown column \"arival_s\" | FILE, row 1 | did you mean \"arrival_s\"?\n"
            "unknown column \"colour\" | FILE, row 1 | the first row must name the columns input_tokens and "
            "output_tokens, and may name arrival_s, max_new_tokens and client");
}

TEST(NativeCsv, TheSampleIsThatOfTheNativeJsonlWithoutPrefixes) {
  const std::string samples = std::string(SPILLWAY_SOURCE_DIR) + "/traces/samples/";
  const OpenedTrace trace = open_trace(samples + "native.csv", "auto");
  EXPECT_EQ(trace.format, "native-csv");
  EXPECT_TRUE(trace.reader->has_times());
  const auto requests = drain(*trace.reader);
  const auto expected = drain(*open_trace(samples + "native.jsonl", "auto").reader);
  ASSERT_GE(requests.size(), 5U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(requests[i].arrival, expected[i].arrival);
    EXPECT_EQ(requests[i].input, expected[i].input);
    EXPECT_EQ(requests[i].output, expected[i].output);
    EXPECT_EQ(requests[i].max_new_tokens, expected[i].max_new_tokens);
    EXPECT_EQ(requests[i].client, expected[i].client);
  }
}

// Found by fuzzing: a line of commas that was taken for the first row gave a complaint for each of them.
TEST(NativeCsv, AFirstRowOfThousandsOfColumnsIsRefusedInAFewWords) {
  const TempFile commas("input_tokens,output_tokens" + std::string(1000, ',') + "\n1,1\n", ".csv");
  EXPECT_THAT(problems_of([&] { NativeCsvReader reader(commas.path()); }, commas.path()),
              testing::StartsWith("exit 3\nthe first row has more than 1000 columns | FILE, row 1 | "));
  std::string names = "input_tokens,output_tokens";
  for (int i = 0; i < 500; ++i) names += ",unknown" + std::to_string(i);
  const TempFile wide(names + "\n", ".csv");
  const std::string problems = problems_of([&] { NativeCsvReader reader(wide.path()); });
  EXPECT_EQ(std::count(problems.begin(), problems.end(), '\n'), 10);
}

}  // namespace
}  // namespace spillway::traces
