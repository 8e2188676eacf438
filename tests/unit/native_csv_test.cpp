#include "traces/readers/native_csv.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/paths.hpp"
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
  EXPECT_EQ(requests[0].arrival, kNever);
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
                        "8,9,1.75,,1\n"
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
            "\"4294967296\" is not a number below 2^32, like the clients of the rows before | FILE, row 3, column "
            "client | name all clients by numbers, or all by texts\n"
            "8 is below output_tokens = 9: a request cannot generate more than it asked for | FILE, row 4, column "
            "max_new_tokens | correct or delete the row\n"
            "\"0.5\" is more than 1 s earlier than a previous row | FILE, row 4, column arrival_s | sort the rows by "
            "arrival_s\n"
            "\"bob\" is not a number below 2^32, like the clients of the rows before | FILE, row 4, column client | "
            "name all clients by numbers, or all by texts\n"
            "the field is empty | FILE, row 5, column input_tokens | correct or delete the row\n"
            "\"x\" is not a whole number of tokens | FILE, row 5, column max_new_tokens | correct or delete the row\n"
            "\"\" is not a number of seconds from 0 to 100000000 | FILE, row 5, column arrival_s | "
            "correct or delete the row\n"
            "\"-1\" is not a number below 2^32, like the clients of the rows before | FILE, row 5, column client | "
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
            "output_tokens, and may name arrival_s, max_new_tokens, client, conversation, turn, think_s, class, "
            "slo_ttft_ms, slo_tpot_ms, slo_e2e_ms, prefix and prefix_tokens");
}

TEST(NativeCsv, TimesMayGoBackByOneSecond) {
  const auto requests = read("arrival_s,input_tokens,output_tokens\n5,1,1\n4,2,1\n4.5,3,1\n");
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[1].arrival, SimTime(4'000'000'000)) << "in the order of the file";
  // The latest time so far counts, not the time of the previous row.
  EXPECT_EQ(problems_in("arrival_s,input_tokens,output_tokens\n5,1,1\n4.5,1,1\n3.999999999,1,1\n"),
            "exit 3\n\"3.999999999\" is more than 1 s earlier than a previous row | FILE, row 4, column arrival_s | "
            "sort the rows by arrival_s");
}

TEST(NativeCsv, ReadsConversations) {
  const auto requests = read(
      "arrival_s,conversation,turn,think_s,input_tokens,output_tokens\n"
      "1,18446744073709551615,1,,10,5\n"
      ",18446744073709551615,2,0.5,20,5\n"
      "2.5,7,3,0,30,5\n"
      "2.5,\"a, b\",,,30,5\n"
      "2.5,,,,30,5\n");
  ASSERT_EQ(requests.size(), 5U);
  EXPECT_EQ(requests[0].conversation, UINT64_MAX);
  EXPECT_EQ(requests[0].turn, 1);
  EXPECT_EQ(requests[0].think, std::nullopt);
  EXPECT_EQ(requests[1].arrival, kNever) << "it comes when turn 1 is answered";
  EXPECT_EQ(requests[1].turn, 2);
  EXPECT_EQ(requests[1].think, Duration(500'000'000));
  EXPECT_EQ(requests[2].arrival, SimTime(2'500'000'000)) << "a later turn may have a time too";
  EXPECT_EQ(requests[2].think, Duration(0));
  EXPECT_EQ(requests[3].conversation, name_id("a, b"));
  EXPECT_EQ(requests[3].turn, 0);
  EXPECT_EQ(requests[4].conversation, std::nullopt);
}

TEST(NativeCsv, NamesOfConversationsAreNumbersOrHashes) {
  EXPECT_EQ(name_id("0"), 0U);
  EXPECT_EQ(name_id("7"), 7U);
  EXPECT_NE(name_id("07"), 7U) << "another name than 7";
  EXPECT_NE(name_id("18446744073709551616"), name_id("18446744073709551617")) << "too large for a number";
}

TEST(NativeCsv, BadConversationsAreTold) {
  const std::string fix = " | correct or delete the row";
  EXPECT_EQ(problems_in("arrival_s,input_tokens,output_tokens,conversation,turn,think_s\n"
                        "1,8,9,a,2,\n"
                        "2,8,9,a,2,\n"
                        "3,8,9,,2,1\n"
                        ",8,9,a,1,\n"
                        ",8,9,b,,\n"
                        "4,8,9,b,0,-1\n"),
            "exit 3\n"
            "turn 2 of the conversation follows turn 2 | FILE, row 3, column turn" +
                fix + "\na turn needs a conversation | FILE, row 4, column turn" + fix +
                "\na think time needs a conversation | FILE, row 4, column think_s" + fix +
                "\n\"\" is not a number of seconds from 0 to 100000000 | FILE, row 5, column arrival_s" + fix +
                "\n\"\" is not a number of seconds from 0 to 100000000 | FILE, row 6, column arrival_s" + fix +
                "\n0 is not a whole number from 1 to 2147483647 | FILE, row 7, column turn" + fix +
                "\n\"-1\" is not a number of seconds from 0 to 100000000 | FILE, row 7, column think_s" + fix);
}

TEST(NativeCsv, ReadsClassesAndLimits) {
  const TempFile file(
      "input_tokens,output_tokens,class,slo_ttft_ms,slo_tpot_ms,slo_e2e_ms\n"
      "8,9,chat,500,0.5,\n8,9,7,,,1e3\n8,9,,,,\n8,9,chat,,,\n",
      ".csv");
  NativeCsvReader reader(file.path());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_EQ(requests[0].service_class, 1U);
  EXPECT_EQ(requests[0].slo, (RequestSlo{Duration(500'000'000), Duration(500'000), Duration()}));
  EXPECT_EQ(requests[1].service_class, 2U) << "among names, 7 is a name";
  EXPECT_EQ(requests[1].slo, (RequestSlo{Duration(), Duration(), Duration(1'000'000'000)}));
  EXPECT_EQ(requests[2].service_class, 0U);
  EXPECT_EQ(requests[3].service_class, 1U);
  EXPECT_EQ(reader.class_names(), (std::vector<std::string>{"chat", "7"}));
}

TEST(NativeCsv, ClassesMayBeNumbers) {
  const TempFile file("input_tokens,output_tokens,class\n8,9,1000\n8,9,2\n", ".csv");
  NativeCsvReader reader(file.path());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].service_class, 1000U);
  EXPECT_EQ(requests[1].service_class, 2U);
  EXPECT_TRUE(reader.class_names().empty());
}

TEST(NativeCsv, BadClassesAndLimitsAreTold) {
  const std::string fix = " | correct or delete the row";
  EXPECT_EQ(
      problems_in("input_tokens,output_tokens,class,slo_ttft_ms\n8,9,0,0\n8,9,3,1e-9\n8,9,chat,soon\n"),
      "exit 3\n"
      "\"0\" is not a number from 1 to 1000 | FILE, row 2, column class" +
          fix +
          "\n\"0\" is not a number of milliseconds above 0, at most 100000000000 | FILE, row 2, column slo_ttft_ms" +
          fix +
          "\n\"1e-9\" is not a number of milliseconds above 0, at most 100000000000 | FILE, row 3, column "
          "slo_ttft_ms" +
          fix +
          "\n\"chat\" is not a number from 1 to 1000, like the classes of the rows before | FILE, row 4, column "
          "class" +
          fix +
          "\n\"soon\" is not a number of milliseconds above 0, at most 100000000000 | FILE, row 4, column "
          "slo_ttft_ms" +
          fix);
  std::string many = "input_tokens,output_tokens,class\n";
  for (std::uint32_t i = 0; i <= kMaxClasses; ++i) many += "8,9,c" + std::to_string(i) + "\n";
  EXPECT_EQ(problems_in(many),
            "exit 3\n\"c1000\" is one class more than the 1000 that a file may name | FILE, row "
            "1002, column class" +
                fix);
}

TEST(NativeCsv, PromptsWithTheSamePrefixShareTheShorterOfTheirBeginnings) {
  const auto requests = read(
      "input_tokens,output_tokens,prefix,prefix_tokens\n"
      "100,1,system,100\n200,1,system,40\n200,1,other,64\n200,1,,\n20,1,system,15\n");
  ASSERT_EQ(requests.size(), 5U);
  const auto& whole = requests[0].prefix_ids;
  const auto& part = requests[1].prefix_ids;
  EXPECT_EQ(requests[0].prefix_id_tokens, 16);
  ASSERT_EQ(whole.size(), 6U) << "100 tokens are 6 whole pieces of 16";
  ASSERT_EQ(part.size(), 2U);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin()));
  EXPECT_EQ(std::set<std::uint64_t>(whole.begin(), whole.end()).size(), 6U);
  ASSERT_EQ(requests[2].prefix_ids.size(), 4U);
  EXPECT_NE(requests[2].prefix_ids[0], whole[0]);
  EXPECT_TRUE(requests[3].prefix_ids.empty());
  EXPECT_TRUE(requests[4].prefix_ids.empty());
}

TEST(NativeCsv, BadPrefixesAreTold) {
  const std::string both = " | state prefix and prefix_tokens, or neither";
  EXPECT_EQ(
      problems_in("input_tokens,output_tokens,prefix,prefix_tokens\n8,9,a,\n8,9,,8\n8,9,a,9\n8,9,a,x\n"),
      "exit 3\n"
      "the prefix has no prefix_tokens | FILE, row 2, column prefix" +
          both + "\nprefix_tokens is given without a prefix | FILE, row 3, column prefix_tokens" + both +
          "\n9 is above input_tokens = 8, of which it is a part | FILE, row 4, column prefix_tokens | correct or "
          "delete the row"
          "\n\"x\" is not a whole number of tokens | FILE, row 5, column prefix_tokens | correct or delete the row");
}

TEST(NativeCsv, TheSampleIsThatOfTheNativeJsonlButForPrefixes) {
  const std::string samples = source_dir() + "/traces/samples/";
  const OpenedTrace trace = open_trace(samples + "native.csv", "auto");
  EXPECT_EQ(trace.format, "native-csv");
  EXPECT_TRUE(trace.reader->has_times());
  auto requests = drain(*trace.reader);
  const OpenedTrace other = open_trace(samples + "native.jsonl", "auto");
  auto expected = drain(*other.reader);
  ASSERT_EQ(requests.size(), 6U);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].prefix_ids.empty(), expected[i].prefix_ids.empty()) << i;
    for (TraceRow* row : {&requests[i], &expected[i]}) {
      row->prefix_ids.clear();
      row->prefix_id_tokens = 0;
    }
    EXPECT_EQ(requests[i], expected[i]) << i;
  }
  EXPECT_EQ(trace.reader->class_names(), other.reader->class_names());
}

// Found by fuzzing: a line of commas, read as the first row, gave one complaint per comma.
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
