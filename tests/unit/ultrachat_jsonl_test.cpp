#include "traces/readers/ultrachat_jsonl.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/paths.hpp"
#include "tests/unit/trace_test_files.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

using testing::ElementsAre;

std::string problems_in(const std::string& content) {
  const TempFile file(content, ".jsonl");
  return problems_of(
      [&] {
        UltraChatJsonlReader reader(file.path());
        (void)drain(reader);
      },
      file.path());
}

TEST(UltraChatJsonl, EveryQuestionWithAnAnswerIsATurn) {
  const TempFile file(
      "{\"id\": \"0\", \"data\": [\"12345\", \"123456789\", \"\\u00e9\", \"a\\nb\"]}\r\n \n"
      "{\"data\":[\"1\",\"12345678\"],\"id\":7,\"more\":[{}]}",
      ".jsonl");
  UltraChatJsonlReader reader(file.path());
  EXPECT_FALSE(reader.has_times());
  const auto rows = drain(reader);
  ASSERT_EQ(rows.size(), 3U);
  TraceRow expected;
  expected.input = Tokens(2);
  expected.output = expected.max_new_tokens = Tokens(3);
  expected.conversation = 1;
  expected.turn = 1;
  EXPECT_EQ(rows[0], expected) << "no time, no client, no prefix";
  EXPECT_EQ(rows[1].turn, 2);
  EXPECT_EQ(rows[1].input, Tokens(6)) << "2 + 3 + 1: the whole prompt";
  EXPECT_EQ(rows[1].output, Tokens(1));
  EXPECT_EQ(rows[2].conversation, 3U) << "the line number";
  EXPECT_EQ(rows[2].turn, 1);
  EXPECT_EQ(rows[2].input, Tokens(1));
  EXPECT_EQ(reader.row(), 3);
  EXPECT_EQ(reader.warnings().size(), 1U) << "token counts are estimates";
}

TEST(UltraChatJsonl, WhatIsNoTurnIsLeftOut) {
  const TempFile file(
      "{\"data\": []}\n{\"data\": [\"a question\"]}\n{\"data\": [\"1234\", \"\", \"12345678\", \"1\", \"2\"]}\n"
      "{\"data\": [\"\", \"Hello.\"]}\n",
      ".jsonl");
  UltraChatJsonlReader reader(file.path());
  const auto rows = drain(reader);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].input, Tokens(3));
  EXPECT_EQ(rows[0].output, Tokens(1));
  const auto warnings = reader.warnings();
  EXPECT_THAT(std::vector(warnings.begin() + 1, warnings.end()),
              ElementsAre("conversations left out because they have no question with an answer: 3",
                          "last questions left out because they have no answer: 1",
                          "empty answers left out, their questions added to the next prompt: 1"));
}

TEST(UltraChatJsonl, EveryBadLineIsTold) {
  const std::string fix = " | correct or delete the row\n";
  EXPECT_EQ(problems_in("{\"data\": [\"a\", \"b\"]}\n"
                        "{\"id\": \"1\"}\n"
                        "{\"data\": \"a\"}\n"
                        "{\"data\": [\"a\", 5, null]}\n"
                        "{\"data\": [\"a\", \"\\ud8\"]}\n"
                        "{\"data\": [], \"data\": []}\n"
                        "[\"a\", \"b\"]\n"
                        "{\"data\": [\"a\" \"b\"]}\n"
                        "{\"data\": [\"a\", \"b"),
            "exit 3\n"
            "the key is missing | FILE, row 2, key \"data\"" +
                fix + "the value must be a list of messages | FILE, row 3, key \"data\"" + fix +
                "the value must be a text | FILE, row 4, message 2, key \"data\"" + fix +
                "\"\\ud8\" is not an escape of JSON | FILE, row 5, message 2, key \"data\"" + fix +
                "the key appears twice | FILE, row 6, key \"data\"" + fix +
                "'[' stands where '{' should be | FILE, row 7, column 1 | write one JSON object per line\n"
                "'\"' stands where ',' or ']' should be | FILE, row 8, column 15 | write one JSON object per line\n"
                "the line ends where the text's closing quote should be | FILE, row 9, column 18 | complete or delete "
                "the row; a file that was cut off while being copied ends like this");
}

TEST(UltraChatJsonl, NestedRubbishNeitherCrashesNorPasses) {
  const std::string good = "{\"id\": \"1\", \"data\": [\"a\", \"b\\\"\", \"c\"], \"x\": {}}";
  for (std::size_t length = 1; length < good.size(); ++length) {
    EXPECT_NE(problems_in(good.substr(0, length) + "\n"), "") << length;
    std::string changed = good;
    changed[length] = '\\';
    (void)problems_in(changed + "\n");
  }
}

TEST(UltraChatJsonl, BadLinesAreSkippedAsAWhole) {
  std::string content;
  for (int i = 0; i < 20; ++i) content += "{\"data\": [\"a\", \"b\"]}\n{\"data\": [\"a\", \"b\", \"c\", 4]}\n";
  const TempFile file(content, ".jsonl");
  UltraChatJsonlReader reader(file.path(), {.skip_bad_rows = true});
  EXPECT_EQ(totals_of(reader), (Totals{20, 20, 20}));
  EXPECT_EQ(reader.skipped(), 20);
  EXPECT_EQ(reader.first_skipped(), file.path() + ", row 2, message 4, key \"data\": the value must be a text");
  EXPECT_EQ(reader.warnings().size(), 1U);
  TraceRow row;
  EXPECT_FALSE(reader.next(row)) << "next() stays false after the end";
}

TEST(UltraChatJsonl, TheSampleIsReadByDetection) {
  const OpenedTrace trace = open_trace(source_dir() + "/traces/samples/ultrachat.jsonl", "auto");
  EXPECT_EQ(trace.format, "ultrachat-jsonl");
  // Tokens of each text (characters / 4, rounded up): (7, 18, 6, 10), (10, 2, 3) and (2, 8). Inputs: 7 + (7 + 18 + 6) +
  // 10 + 2.
  EXPECT_EQ(totals_of(*trace.reader), (Totals{4, 50, 38}));
  EXPECT_EQ(trace.reader->warnings().size(), 2U) << "token counts are estimates; a question has no answer";
}

}  // namespace
}  // namespace spillway::traces
