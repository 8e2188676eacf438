#include "traces/readers/native_jsonl.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "sim/io/file_reader.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/trace_test_files.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

std::vector<TraceRow> read(const std::string& content, std::int64_t block_tokens = 16) {
  const TempFile file(content, ".jsonl");
  NativeJsonlReader reader(file.path());
  return drain(reader, block_tokens);
}

std::string problems_in(const std::string& content) {
  const TempFile file(content, ".jsonl");
  return problems_of(
      [&] {
        NativeJsonlReader reader(file.path());
        (void)drain(reader);
      },
      file.path());
}

TEST(NativeJsonl, ReadsEveryKey) {
  const auto requests = read(
      "{\"arrival_s\": 0.25, \"input_tokens\": 812, \"output_tokens\": 96}\n"
      "  \t\r\n"
      "{\"client\":3,\"output_tokens\":5,\"max_new_tokens\":64,\"input_tokens\":40,\"prefix_ids\":[ 9 , "
      "18446744073709551615 ]"
      ",\"arrival_s\":1.5e0}  \r\n"
      "{\"arrival_s\": 1.5, \"input_tokens\": 1, \"output_tokens\": 1, \"client\": null, \"max_new_tokens\": null}");
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].arrival, SimTime(250'000'000)) << "the file's own clock: the first row need not be at 0";
  EXPECT_EQ(requests[0].input, Tokens(812));
  EXPECT_EQ(requests[0].output, Tokens(96));
  EXPECT_EQ(requests[0].max_new_tokens, Tokens(96));
  EXPECT_EQ(requests[0].client, 0U);
  EXPECT_TRUE(requests[0].prefix_ids.empty());
  EXPECT_EQ(requests[1].arrival, SimTime(1'500'000'000));
  EXPECT_EQ(requests[1].max_new_tokens, Tokens(64));
  EXPECT_EQ(requests[1].client, 3U);
  EXPECT_EQ(requests[1].prefix_ids, (std::vector<std::uint64_t>{9, UINT64_MAX}));
  EXPECT_EQ(requests[2].max_new_tokens, Tokens(1));
  EXPECT_TRUE(requests[2].prefix_ids.empty()) << "nothing is left of the row before";
}

TEST(NativeJsonl, ArrivalTimesAreExactToTheNanosecond) {
  const auto requests = read(
      "{\"arrival_s\": 0.000000001, \"input_tokens\": 1, \"output_tokens\": 1}\n"
      "{\"arrival_s\": 4000000.123456789, \"input_tokens\": 1, \"output_tokens\": 1}\n");
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].arrival, SimTime(1));
  EXPECT_EQ(requests[1].arrival, SimTime(4'000'000'123'456'789));
}

TEST(NativeJsonl, TimesMayBeLeftOut) {
  const TempFile file("{\"input_tokens\": 8, \"output_tokens\": 9}\n{\"input_tokens\": 7, \"output_tokens\": 1}\n",
                      ".jsonl");
  NativeJsonlReader reader(file.path());
  EXPECT_FALSE(reader.has_times());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[1].arrival, kNever);
}

TEST(NativeJsonl, ClientNamesAreNumberedInOrderOfAppearance) {
  const auto requests = read(
      "{\"input_tokens\": 8, \"output_tokens\": 9, \"client\": \"b\"}\n"
      "{\"input_tokens\": 8, \"output_tokens\": 9, \"client\": \"a\\\"}\"}\n"
      "{\"input_tokens\": 8, \"output_tokens\": 9}\n"
      "{\"input_tokens\": 8, \"output_tokens\": 9, \"client\": \"b\"}\n");
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_EQ(requests[0].client, 1U);
  EXPECT_EQ(requests[1].client, 2U);
  EXPECT_EQ(requests[2].client, 0U) << "no client is client 0";
  EXPECT_EQ(requests[3].client, 1U);
}

TEST(NativeJsonl, AnIdOfSeveralBlocksIsSplitByItsValueAlone) {
  // 64 tokens per id over blocks of 16: four blocks each. The prompt of 100 tokens has 6 whole blocks, so the second id
  // contributes two of its four.
  const auto requests = read(
      "{\"input_tokens\": 128, \"output_tokens\": 1, \"prefix_ids\": [7, 8], \"prefix_block_tokens\": 64}\n"
      "{\"input_tokens\": 100, \"output_tokens\": 1, \"prefix_ids\": [7, 8], \"prefix_block_tokens\": 64}\n"
      "{\"input_tokens\": 128, \"output_tokens\": 1, \"prefix_ids\": [7, 9], \"prefix_block_tokens\": 64}\n");
  ASSERT_EQ(requests.size(), 3U);
  const auto& whole = requests[0].prefix_ids;
  const auto& cut = requests[1].prefix_ids;
  const auto& other = requests[2].prefix_ids;
  ASSERT_EQ(whole.size(), 8U);
  ASSERT_EQ(cut.size(), 6U);
  EXPECT_TRUE(std::equal(cut.begin(), cut.end(), whole.begin()));
  EXPECT_EQ(std::set<std::uint64_t>(whole.begin(), whole.end()).size(), 8U);
  EXPECT_TRUE(std::equal(other.begin(), other.begin() + 4, whole.begin())) << "equal ids, equal blocks";
  for (std::size_t i = 4; i < 8; ++i) EXPECT_NE(other[i], whole[i]);
}

TEST(NativeJsonl, IdsOfTheRunsOwnBlocksAreKept) {
  const auto requests = read("{\"input_tokens\": 40, \"output_tokens\": 1, \"prefix_ids\": [7, 8, 9]}\n", 16);
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].prefix_ids, (std::vector<std::uint64_t>{7, 8})) << "the third block is not whole";
}

TEST(NativeJsonl, IdsOfAnySizeAreCutIntoBlocks) {
  // 24 tokens per id over blocks of 16: both are multiples of 8, so a block is two pieces of 8, hashed together.
  const std::string row = ", \"output_tokens\": 1, \"prefix_block_tokens\": 24, \"prefix_ids\": ";
  const auto requests = read("{\"input_tokens\": 72" + row + "[7, 8, 9]}\n{\"input_tokens\": 72" + row +
                             "[7, 5, 9]}\n{\"input_tokens\": 47" + row + "[7, 8]}\n");
  ASSERT_EQ(requests.size(), 3U);
  ASSERT_EQ(requests[0].prefix_ids.size(), 4U) << "72 tokens are 4 whole blocks";
  EXPECT_EQ(requests[0].prefix_ids[0], requests[1].prefix_ids[0]) << "tokens 0 to 15 are of id 7 alone";
  EXPECT_NE(requests[0].prefix_ids[1], requests[1].prefix_ids[1]) << "tokens 24 to 31 are of the second id";
  EXPECT_NE(requests[0].prefix_ids[3], requests[1].prefix_ids[3]) << "equal ids after different ones are not equal";
  ASSERT_EQ(requests[2].prefix_ids.size(), 2U);
  EXPECT_EQ(requests[2].prefix_ids[1], requests[0].prefix_ids[1]);
}

TEST(NativeJsonl, TimesMayGoBackByOneSecond) {
  const std::string rest = ", \"input_tokens\": 1, \"output_tokens\": 1}\n";
  const auto requests = read("{\"arrival_s\": 5" + rest + "{\"arrival_s\": 4" + rest + "{\"arrival_s\": 4.5" + rest);
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[1].arrival, SimTime(4'000'000'000)) << "in the order of the file";
  EXPECT_EQ(problems_in("{\"arrival_s\": 5" + rest + "{\"arrival_s\": 4.5" + rest + "{\"arrival_s\": 3.5" + rest),
            "exit 3\n3.5 s is more than 1 s earlier than a previous row | FILE, row 3, key \"arrival_s\" | "
            "sort the rows by arrival_s");
}

TEST(NativeJsonl, ReadsConversationsClassesAndLimits) {
  const TempFile file(
      "{\"arrival_s\": 1, \"input_tokens\": 8, \"output_tokens\": 9, \"conversation\": \"a\\u0062\", \"turn\": 1, "
      "\"class\": \"chat\", \"slo_ttft_ms\": 500, \"slo_tpot_ms\": 0.5}\n"
      "{\"input_tokens\": 20, \"output_tokens\": 9, \"conversation\": \"ab\", \"turn\": 2, \"think_s\": 0.25, "
      "\"class\": null, \"slo_e2e_ms\": 1e3}\n"
      "{\"arrival_s\": 1, \"input_tokens\": 8, \"output_tokens\": 9, \"conversation\": 18446744073709551615, "
      "\"class\": 7}\n",
      ".jsonl");
  NativeJsonlReader reader(file.path());
  EXPECT_TRUE(reader.has_times());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].conversation, name_id("ab"));
  EXPECT_EQ(requests[0].turn, 1);
  EXPECT_EQ(requests[0].think, std::nullopt);
  EXPECT_EQ(requests[0].service_class, 1U);
  EXPECT_EQ(requests[0].slo, (RequestSlo{Duration(500'000'000), Duration(500'000), Duration()}));
  EXPECT_EQ(requests[1].arrival, kNever) << "it comes when turn 1 is answered";
  EXPECT_EQ(requests[1].conversation, requests[0].conversation) << "an escape is another way to write it";
  EXPECT_EQ(requests[1].turn, 2);
  EXPECT_EQ(requests[1].think, Duration(250'000'000));
  EXPECT_EQ(requests[1].service_class, 0U);
  EXPECT_EQ(requests[1].slo, (RequestSlo{Duration(), Duration(), Duration(1'000'000'000)}));
  EXPECT_EQ(requests[2].conversation, UINT64_MAX);
  EXPECT_EQ(requests[2].turn, 0);
  EXPECT_EQ(requests[2].slo, RequestSlo()) << "nothing is left of the row before";
  EXPECT_EQ(reader.class_names(), (std::vector<std::string>{"chat", "7"}));
}

TEST(NativeJsonl, BadConversationsClassesAndLimitsAreTold) {
  const std::string head = "{\"input_tokens\": 8, \"output_tokens\": 9, ";
  const std::string fix = " | correct or delete the row";
  EXPECT_EQ(problems_in(head + "\"turn\": 2, \"think_s\": 1}\n" + head + "\"conversation\": -1, \"turn\": \"1\"}\n" +
                        head + "\"conversation\": \"\", \"class\": true}\n" + head +
                        "\"conversation\": \"a\", \"turn\": 3, \"slo_e2e_ms\": -5}\n" + head +
                        "\"conversation\": \"a\", \"turn\": 3, \"class\": \"\\q\"}\n"),
            "exit 3\n"
            "a turn needs a conversation | FILE, row 1, key \"turn\"" +
                fix + "\na think time needs a conversation | FILE, row 1, key \"think_s\"" + fix +
                "\n-1 is not a whole number from 0 to 18446744073709551615 | FILE, row 2, key \"conversation\"" + fix +
                "\nthe value must be a number | FILE, row 2, key \"turn\"" + fix +
                "\nthe text is empty | FILE, row 3, key \"conversation\"" + fix +
                "\ntrue is not a whole number from 0 to 18446744073709551615 | FILE, row 3, key \"class\"" + fix +
                "\n\"-5\" is not a number of milliseconds above 0, at most 100000000000 | FILE, row 4, key "
                "\"slo_e2e_ms\"" +
                fix + "\nthe text has an escape that JSON does not know | FILE, row 5, key \"class\"" + fix +
                "\nturn 3 of the conversation follows turn 3 | FILE, row 5, key \"turn\"" + fix);
}

TEST(NativeJsonl, EveryBadValueIsTold) {
  EXPECT_EQ(
      problems_in(
          "{\"arrival_s\": 2.75, \"input_tokens\": 8, \"output_tokens\": 9}\n"
          "{\"arrival_s\": NaN, \"input_tokens\": -8, \"output_tokens\": 0}\n"
          "{\"arrival_s\": 2, \"input_tokens\": 8.5, \"outptu_tokens\": 9}\n"
          "{\"arrival_s\": 1.5, \"input_tokens\": \"8\", \"output_tokens\": 9, \"max_new_tokens\": 8}\n"
          "{\"input_tokens\": null, \"output_tokens\": 9, \"client\": 4294967296, \"colour\": {\"a\": [1, \"}\"]}}\n"
          "{\"input_tokens\": 8, \"output_tokens\": 9}\n"
          "{\"arrival_s\": 1e9, \"input_tokens\": 8, \"output_tokens\": 9, \"output_tokens\": 9, \"client\": []}\n"),
      "exit 3\n"
      "NaN is not a number of seconds from 0 to 100000000 since the start of the run | FILE, row 2, key \"arrival_s\" "
      "| "
      "correct or delete the row\n"
      "-8 is not a whole number from 1 to 16777216 | FILE, row 2, key \"input_tokens\" | correct or delete the row\n"
      "0 is not a whole number from 1 to 16777216 | FILE, row 2, key \"output_tokens\" | correct or delete the row\n"
      "8.5 is not a whole number from 1 to 16777216 | FILE, row 3, key \"input_tokens\" | correct or delete the row\n"
      "unknown key \"outptu_tokens\" | FILE, row 3 | did you mean \"output_tokens\"?\n"
      "key \"output_tokens\" is missing | FILE, row 3 | correct or delete the row\n"
      "the value must be a number | FILE, row 4, key \"input_tokens\" | correct or delete the row\n"
      "8 is below output_tokens = 9: a request cannot generate more than it asked for | FILE, row 4, key "
      "\"max_new_tokens\" | correct or delete the row\n"
      "1.5 s is more than 1 s earlier than a previous row | FILE, row 4, key \"arrival_s\" | sort the rows by "
      "arrival_s\n"
      "null is not a whole number from 1 to 16777216 | FILE, row 5, key \"input_tokens\" | correct or delete the row\n"
      "4294967296 is not a whole number from 0 to 4294967295 | FILE, row 5, key \"client\" | correct or delete the "
      "row\n"
      "unknown key \"colour\" | FILE, row 5 | known keys: arrival_s, input_tokens, output_tokens, max_new_tokens, "
      "client, "
      "prefix_ids, prefix_block_tokens, conversation, turn, think_s, class, slo_ttft_ms, slo_tpot_ms, slo_e2e_ms\n"
      "the row has no arrival time and the rows before have one | FILE, row 6, key \"arrival_s\" | "
      "give every row an arrival_s, or none; turns from the second on may always leave it out\n"
      "1e9 is not a number of seconds from 0 to 100000000 since the start of the run | FILE, row 7, key \"arrival_s\" "
      "| "
      "correct or delete the row\n"
      "the key appears twice | FILE, row 7, key \"output_tokens\" | correct or delete the row\n"
      "the value must be a number or a text | FILE, row 7, key \"client\" | correct or delete the row");
}

TEST(NativeJsonl, BadPrefixesAreTold) {
  const std::string head = "{\"input_tokens\": 40, \"output_tokens\": 9, \"prefix_ids\": ";
  EXPECT_EQ(problems_in(head + "[1, -2, \"x\"]}\n" + head + "[\"x\", 1]}\n" + head + "7}\n" + head + "{}}\n" + head +
                        "[1, 2, 3, 4]}\n" + head + "[1, 2, 3], \"prefix_block_tokens\": 24}\n"),
            "exit 3\n"
            "-2 is not a whole number from 0 to 18446744073709551615 | FILE, row 1, key \"prefix_ids\" | "
            "correct or delete the row\n"
            "an element is not a whole number | FILE, row 2, key \"prefix_ids\" | correct or delete the row\n"
            "7 is not a list of whole numbers | FILE, row 3, key \"prefix_ids\" | correct or delete the row\n"
            "the value must be a list of whole numbers | FILE, row 4, key \"prefix_ids\" | correct or delete the row\n"
            "3 ids of 24 tokens each are too many for a prompt of 40 tokens | FILE, row 6, key \"prefix_ids\" | "
            "check prefix_block_tokens");
}

TEST(NativeJsonl, BrokenLinesAreTold) {
  // {"input_tokens": is 16 characters, {"input_tokens": 8, is 19, and with "output_tokens": 9 behind it 38.
  const std::string fix = "write one JSON object per line";
  const std::string cut = "complete or delete the row; a file that was cut off while being copied ends like this";
  EXPECT_EQ(problems_in("[1]\n"
                        "{\"input_tokens\" 8}\n"
                        "{input_tokens: 8}\n"
                        "{\"input_tokens\": 8 \"output_tokens\": 9}\n"
                        "{\"input_tokens\": 8, \"output_tokens\": 9} {\n"
                        "{\"input_tokens\": , \"output_tokens\": 9}\n"
                        "{\"input_tokens\": 8, \"output_tokens\": 9, \"prefix_ids\": [1 2]}\n"
                        "{\"input_tokens\": 8, \"output_tokens\": 9, \"client\": \"ab\n"
                        "{}\n"
                        "{\"input_tokens\": 8, \"output_to"),
            "exit 3\n"
            "'[' stands where '{' should be | FILE, row 1, column 1 | " +
                fix + "\n'8' stands where ':' should be | FILE, row 2, column 17 | " + fix +
                "\n'i' stands where a key in double quotes should be | FILE, row 3, column 2 | " + fix +
                "\n'\"' stands where ',' or '}' should be | FILE, row 4, column 20 | " + fix +
                "\n'{' stands where the end of the line should be | FILE, row 5, column 41 | " + fix +
                "\n',' stands where a value should be | FILE, row 6, column 18 | " + fix +
                "\n'2' stands where ',' or ']' should be | FILE, row 7, column 58 | " + fix +
                "\nthe line ends where the text's closing quote should be | FILE, row 8, column 54 | " + cut +
                "\nkey \"input_tokens\" is missing | FILE, row 9 | correct or delete the row"
                "\nkey \"output_tokens\" is missing | FILE, row 9 | correct or delete the row"
                "\nthe line ends where the key's closing quote should be | FILE, row 10, column 31 | " +
                cut);
}

TEST(NativeJsonl, KindsOfClientsDoNotMix) {
  EXPECT_EQ(problems_in("{\"input_tokens\": 8, \"output_tokens\": 9, \"client\": \"a\"}\n"
                        "{\"input_tokens\": 8, \"output_tokens\": 9, \"client\": 1}\n"),
            "exit 3\nsome rows name the client by a number and some by a text | FILE, row 2, key \"client\" | "
            "use one kind in the whole file");
}

TEST(NativeJsonl, NestedRubbishNeitherCrashesNorPasses) {
  const std::string good = "{\"input_tokens\": 8, \"output_tokens\": 9, \"client\": \"a\", \"prefix_ids\": []}";
  for (std::size_t length = 1; length < good.size(); ++length) {
    EXPECT_NE(problems_in(good.substr(0, length) + "\n"), "") << length;
    std::string changed = good;
    changed[length] = '\\';
    (void)problems_in(changed + "\n");
  }
}

TEST(NativeJsonl, TheSampleIsReadByDetection) {
  const OpenedTrace trace = open_trace(source_dir() + "/traces/samples/native.jsonl", "auto");
  EXPECT_EQ(trace.format, "native-jsonl");
  EXPECT_TRUE(trace.reader->has_times());
  const auto requests = drain(*trace.reader, 16);
  ASSERT_EQ(requests.size(), 7U);
  // 256-token ids over blocks of 16 are 16 blocks each; the first two ids of rows 1 and 3 are equal.
  EXPECT_EQ(requests[0].prefix_ids.size(), 48U);
  EXPECT_TRUE(
      std::equal(requests[0].prefix_ids.begin(), requests[0].prefix_ids.begin() + 32, requests[2].prefix_ids.begin()));
  EXPECT_NE(requests[0].prefix_ids[32], requests[2].prefix_ids[32]);
  EXPECT_EQ(requests[0].client, requests[2].client);
}

TEST(OpenTrace, UnusableFilesAreTold) {
  const auto open = [](const std::string& path, const std::string& format) {
    return problems_of([&] { (void)open_trace(path, format); }, path);
  };
  EXPECT_EQ(open("/nowhere/a.csv", "auto"),
            "exit 3\nthere is no such file | FILE | check the path; it is relative to the current folder");
  EXPECT_EQ(open(testing::TempDir(), "auto"), "exit 3\nthis is a folder, not a trace | FILE | name one file in it");
  EXPECT_EQ(open("/dev/null", "azure-csv"),
            "exit 3\nthis is not a regular file, but a trace is read more than once | FILE | "
            "write it to a file first and name that file");
  const TempFile empty("", ".csv");
  EXPECT_EQ(open(empty.path(), "azure-csv"), "exit 3\nthe file is empty | FILE | check that it was copied whole");
}

TEST(OpenTrace, UnknownFormatsAreTold) {
  const TempFile file("\n a;b\x01;c\n1;2;3\n", ".csv");
  std::string formats;
  std::string names = "auto";
  for (const TraceFormat& format : trace_formats()) {
    formats += (formats.empty() ? "" : "; ") + format.name + ": " + format.doc;
    names += ", " + format.name;
  }
  EXPECT_EQ(problems_of([&] { (void)open_trace(file.path(), "auto"); }, file.path()),
            "exit 3\nthe format cannot be detected from the first line, \"a;b?;c\" | FILE | name its columns in "
            "workload.columns, set workload.format, or convert it into one of: " +
                formats);
  EXPECT_EQ(problems_of([&] { (void)open_trace(file.path(), "azure-cvs"); }),
            "exit 2\nunknown trace format \"azure-cvs\" | workload.format | did you mean \"azure-csv\"?");
  EXPECT_EQ(problems_of([&] { (void)open_trace(file.path(), "parquet"); }),
            "exit 2\nunknown trace format \"parquet\" | workload.format | known formats: " + names);
}

TEST(FileSha256, IsThatOfItsBytes) {
  // FIPS 180-2, appendix B.1: SHA-256("abc").
  const TempFile file("abc", ".txt");
  EXPECT_EQ(file_sha256(file.path()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(problems_of([] { (void)file_sha256("/nowhere/a.csv"); }),
            "exit 3\nthere is no such file | /nowhere/a.csv | check the path; it is relative to the current folder");
}

}  // namespace
}  // namespace spillway::traces
