#include "traces/readers/lengths_json.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/paths.hpp"
#include "tests/unit/trace_test_files.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

std::string problems_in(const std::string& content) {
  const TempFile file(content, ".json");
  return problems_of(
      [&] {
        LengthsJsonReader reader(file.path());
        (void)drain(reader);
      },
      file.path());
}

TEST(LengthsJson, ReadsPromptsAndLimits) {
  const TempFile file("[\n  {\n \"prompt\": 269,\r\n \"max_tokens\": 42\n },{\"max_tokens\":52,\"prompt\":270}\n]\n",
                      ".json");
  LengthsJsonReader reader(file.path());
  EXPECT_FALSE(reader.has_times());
  EXPECT_TRUE(reader.has_inputs());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].input, Tokens(269));
  EXPECT_EQ(requests[0].output, Tokens(42));
  EXPECT_EQ(requests[0].max_new_tokens, Tokens(42));
  EXPECT_EQ(requests[0].arrival, kNever) << "the file states no times";
  EXPECT_EQ(requests[1].input, Tokens(270));
  EXPECT_EQ(requests[1].output, Tokens(52));
  EXPECT_EQ(reader.row(), 5) << "the line on which the item begins";
}

TEST(LengthsJson, ReadsOutputsAlone) {
  const TempFile file("[{\"id\": \"}]\\\"\", \"L_gt\": 160, \"L_t0.7\": [1, {}]}, {\"id\": \"7\", \"L_gt\": 49}]",
                      ".json");
  LengthsJsonReader reader(file.path());
  EXPECT_FALSE(reader.has_inputs());
  const auto requests = drain(reader);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].output, Tokens(160));
  EXPECT_EQ(requests[1].output, Tokens(49));
}

TEST(LengthsJson, ItemsAcrossWindowsAreWhole) {
  // On one line, and ten windows of 64 KiB long.
  std::string content = "[";
  for (int i = 0; i < 20'000; ++i) {
    content += fmt::format("{}{{\"prompt\": {}, \"max_tokens\": {}}}", i == 0 ? "" : ", ", i + 1, i % 7 + 1);
  }
  const TempFile file(content + "]", ".json");
  const OpenedTrace trace = open_trace(file.path(), "auto");
  EXPECT_EQ(trace.format, "lengths-json");
  const auto requests = drain(*trace.reader);
  ASSERT_EQ(requests.size(), 20'000U);
  for (std::int64_t i = 0; i < 20'000; ++i) {
    ASSERT_EQ(requests[static_cast<std::size_t>(i)].input, Tokens(i + 1));
    ASSERT_EQ(requests[static_cast<std::size_t>(i)].output, Tokens(i % 7 + 1));
  }
}

TEST(LengthsJson, EveryBadValueIsTold) {
  EXPECT_EQ(problems_in("[{\"prompt\": 8, \"max_tokens\": 1},\n"
                        "{\"prompt\": -8, \"max_tokens\": 0},\n"
                        "{\"prompt\": \"a text\", \"max_tokens\": 16777217},\n"
                        "{\"prompt\": NaN, \"max_tokens\": 1.5},\n"
                        "{\"prompt\": 8},\n"
                        "{\"prompt\": null, \"max_tokens\": 8, \"L_gt\": 7},\n"
                        "{\"prompt\" 8}]\n"),
            "exit 3\n"
            "-8 is not a whole number from 1 to 16777216 | FILE, row 2, item 2, key \"prompt\" | "
            "correct or delete the row\n"
            "0 is not a whole number from 1 to 16777216 | FILE, row 2, item 2, key \"max_tokens\" | "
            "correct or delete the row\n"
            "the value must be a number | FILE, row 3, item 3, key \"prompt\" | correct or delete the row\n"
            "16777217 is not a whole number from 1 to 16777216 | FILE, row 3, item 3, key \"max_tokens\" | "
            "correct or delete the row\n"
            "NaN is not a whole number from 1 to 16777216 | FILE, row 4, item 4, key \"prompt\" | "
            "correct or delete the row\n"
            "1.5 is not a whole number from 1 to 16777216 | FILE, row 4, item 4, key \"max_tokens\" | "
            "correct or delete the row\n"
            "the key is missing or null | FILE, row 5, item 5, key \"max_tokens\" | "
            "give every item a prompt and a max_tokens\n"
            "the key is missing or null | FILE, row 6, item 6, key \"prompt\" | "
            "give every item a prompt and a max_tokens\n"
            "'8' stands where ':' should be | FILE, row 7, item 7, column 11 | correct or delete the item");
}

TEST(LengthsJson, BadItemsAreSkippedAndCounted) {
  std::string content = "[";
  for (int i = 0; i < 30; ++i) {
    content += "{\"prompt\": -8, \"max_tokens\": 0},\n{\"prompt\": 8, \"max_tokens\": 3},\n";
  }
  const TempFile whole(content + "{\"prompt\": 9, \"max_tokens\": 5}]", ".json");
  LengthsJsonReader reader(whole.path(), {.skip_bad_rows = true});
  EXPECT_EQ(totals_of(reader), (Totals{31, 249, 95}));
  EXPECT_EQ(reader.skipped(), 30) << "items, not what is wrong with them";
  EXPECT_EQ(reader.first_skipped(),
            whole.path() + ", row 1, item 1, key \"prompt\": -8 is not a whole number from 1 to 16777216");
}

TEST(LengthsJson, WhatIsBehindABreakInTheListIsSkipped) {
  const TempFile file("[{\"L_gt\": 8}, {\"L_gt\": 9} {\"L_gt\": 7}, {\"L_gt\": 6}]", ".json");
  LengthsJsonReader reader(file.path(), {.skip_bad_rows = true});
  EXPECT_EQ(totals_of(reader).output, 17);
  EXPECT_EQ(reader.skipped(), 1);
  EXPECT_EQ(reader.first_skipped(),
            file.path() + ", row 1, after item 2, byte 27: '{' stands where ',' or ']' should be");
}

TEST(LengthsJson, OutputsAreInEveryItemOrInNone) {
  EXPECT_EQ(problems_in("[{\"L_gt\": 8}, {\"prompt\": 8, \"max_tokens\": 1}]"),
            "exit 3\nthe key is missing or null | FILE, row 1, item 2, key \"L_gt\" | give every item an L_gt");
}

TEST(LengthsJson, BrokenListsAreTold) {
  const std::string fix = " | write one list of objects: [{...}, {...}]";
  const std::string cut = " | copy the file again: it was cut off, or written only in part";
  const std::string item = "{\"L_gt\": 8}";
  EXPECT_EQ(problems_in(item), "exit 3\n'{' stands where '[' should be | FILE, row 1, byte 1" + fix);
  EXPECT_EQ(problems_in("[1]"), "exit 3\n'1' stands where '{' should be | FILE, row 1, byte 2" + fix);
  EXPECT_EQ(problems_in("[" + item + "\n" + item + "]"),
            "exit 3\n'{' stands where ',' or ']' should be | FILE, row 2, after item 1, byte 14" + fix);
  EXPECT_EQ(problems_in("[" + item + ",]"),
            "exit 3\n']' stands where '{' should be | FILE, row 1, after item 1, byte 14" + fix);
  EXPECT_EQ(problems_in("[" + item + "]\n]"),
            "exit 3\n']' stands where the end of the file should be | FILE, row 2, after item 1, byte 15" + fix);
  EXPECT_EQ(problems_in("[" + item + ",\n"),
            "exit 3\nthe file ends where '{' should be | FILE, row 2, after item 1, byte 15" + cut);
  EXPECT_EQ(problems_in("[" + item + ",\n{\"L_gt\": \"}"),
            "exit 3\nthe file ends where the rest of an object should be | FILE, row 2, after item 1, byte 26" + cut);
}

TEST(LengthsJson, NestedRubbishNeitherCrashesNorPasses) {
  const std::string good = "[{\"prompt\": 8, \"max_tokens\": 9, \"a\": [{}]}]";
  for (std::size_t length = 1; length < good.size(); ++length) {
    EXPECT_NE(problems_in(good.substr(0, length)), "") << length;
    std::string changed = good;
    changed[length] = '\\';
    (void)problems_in(changed);
  }
}

TEST(LengthsJson, AnObjectWithoutEndIsTold) {
  const TempFile file("[{\"L_gt\": 8}, {\"", ".json");
  std::filesystem::resize_file(file.path(), std::uintmax_t{66} << 20U);  // zeros, which take no room on the disk
  EXPECT_EQ(problems_of(
                [&] {
                  LengthsJsonReader reader(file.path());
                  (void)drain(reader);
                },
                file.path()),
            "exit 3\nthe object is larger than 64 MiB | FILE, row 1, item 2 | check that this is a list of requests");
}

TEST(LengthsJson, TheSamplesAreReadByDetection) {
  const std::string samples = source_dir() + "/traces/samples/";
  const OpenedTrace lengths = open_trace(samples + "lengths.json", "auto");
  EXPECT_EQ(lengths.format, "lengths-json");
  EXPECT_EQ(totals_of(*lengths.reader), (Totals{3, 987, 133}));
  const OpenedTrace outputs = open_trace(samples + "output-lengths.json", "auto");
  EXPECT_EQ(outputs.format, "lengths-json");
  EXPECT_FALSE(outputs.reader->has_inputs());
  EXPECT_EQ(totals_of(*outputs.reader).output, 615);
}

TEST(LengthsJson, TheRealListOfPromptsHasItsTotals) {
  const std::string path = shared_trace("osc-lengths.json");
  if (path.empty()) GTEST_SKIP() << "../shared/data/traces/osc-lengths.json is not there";
  const OpenedTrace trace = open_trace(path, "auto");
  EXPECT_EQ(trace.format, "lengths-json");
  // python3: d = json.load(open(f)); len(d), sum(x['prompt'] for x in d), sum(x['max_tokens'] for x in d)
  EXPECT_EQ(totals_of(*trace.reader), (Totals{2000, 745'046, 90'618}));
}

TEST(LengthsJson, TheRealListOfOutputsHasItsTotals) {
  const std::string path = shared_trace("alpaca-10k-output-lengths.json");
  if (path.empty()) GTEST_SKIP() << "../shared/data/traces/alpaca-10k-output-lengths.json is not there";
  const OpenedTrace trace = open_trace(path, "auto");
  EXPECT_EQ(trace.format, "lengths-json");
  EXPECT_FALSE(trace.reader->has_inputs());
  // python3: d = json.load(open(f)); len(d), sum(x['L_gt'] for x in d)
  const Totals totals = totals_of(*trace.reader);
  EXPECT_EQ(totals.requests, 10'000);
  EXPECT_EQ(totals.output, 655'394);
}

}  // namespace
}  // namespace spillway::traces
