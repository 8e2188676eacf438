#include "traces/readers/alpaca_json.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/paths.hpp"
#include "tests/unit/trace_test_files.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

using testing::ElementsAre;

std::string problems_in(const std::string& content, const std::string& tokenizer = "estimate") {
  const TempFile file(content, ".json");
  return problems_of(
      [&] {
        AlpacaJsonReader reader(file.path(), {.tokenizer = tokenizer});
        (void)drain(reader);
      },
      file.path());
}

TEST(AlpacaJson, ReadsInstructionsWithAndWithoutInput) {
  // Characters: 8 + 1 + 4 = 13, 8, 8, 9 and 9 \n in; 5, 1, 2, 3 and 4 out.
  const TempFile file(R"([{"instruction": "12345678", "input": "1234", "output": "12345"},
{"output": "x", "input": "", "instruction": "12345678"},
{"instruction": "12345678", "input": null, "output": "\ud83d\ude00\n", "model": {"a": ["}"]}},
{"instruction": "12345678\n", "output": "123"}, {"instruction": "", "input": "12345678", "output": "1234"}])",
                      ".json");
  AlpacaJsonReader reader(file.path());
  EXPECT_FALSE(reader.has_times());
  EXPECT_TRUE(reader.has_inputs());
  const auto rows = drain(reader);
  ASSERT_EQ(rows.size(), 5U);
  TraceRow expected;
  expected.input = Tokens(4);
  expected.output = expected.max_new_tokens = Tokens(2);
  EXPECT_EQ(rows[0], expected) << "no time, no conversation";
  EXPECT_EQ(rows[1].input, Tokens(2)) << "no line feed without input";
  EXPECT_EQ(rows[1].output, Tokens(1));
  EXPECT_EQ(rows[2].input, Tokens(2));
  EXPECT_EQ(rows[2].output, Tokens(1));
  EXPECT_EQ(rows[3].input, Tokens(3)) << "nothing of the item before";
  EXPECT_EQ(rows[4].input, Tokens(3));
  EXPECT_EQ(reader.row(), 4);
  EXPECT_EQ(reader.warnings().size(), 1U) << "the estimate's";
}

TEST(AlpacaJson, ItemsWithoutPromptOrOutputAreLeftOut) {
  const TempFile file(R"([{"instruction": "Go.", "output": ""}, {"instruction": "", "input": "", "output": "x"},
{"instruction": "", "output": ""}, {"instruction": "Go.", "output": "Gone."}])",
                      ".json");
  AlpacaJsonReader reader(file.path());
  EXPECT_EQ(totals_of(reader), (Totals{1, 1, 2}));
  const auto warnings = reader.warnings();
  EXPECT_THAT(std::vector(warnings.begin() + 1, warnings.end()),
              ElementsAre("items left out because their prompt is empty: 2",
                          "items left out because their output is empty: 1"));
  EXPECT_EQ(reader.zero_outputs(), 0);
}

TEST(AlpacaJson, EveryBadItemIsTold) {
  const std::string fix = " | correct or delete the item\n";
  EXPECT_EQ(problems_in(R"([{"instruction": "Go.", "output": "Gone."},
{"instruction": 5, "input": [], "output": null},
{"instruction": "Go."},
{"input": "there", "output": "\q"},
{"instruction": "Go.", "instruction": "Go.", "output": "Gone."},
{"instruction": "Go." "output": "Gone."},
{"instruction": "Go.", "output": ]])"),
            "exit 3\n"
            "the value must be a text | FILE, row 2, item 2, key \"instruction\"" +
                fix + "the value must be a text | FILE, row 2, item 2, key \"input\"" + fix +
                "the value must be a text | FILE, row 2, item 2, key \"output\"" + fix +
                "the key is missing | FILE, row 3, item 3, key \"output\"" + fix +
                "\"\\q\" is not an escape of JSON | FILE, row 4, item 4, key \"output\"" + fix +
                "the key is missing | FILE, row 4, item 4, key \"instruction\"" + fix +
                "the key appears twice | FILE, row 5, item 5, key \"instruction\"" + fix +
                "'\"' stands where ',' or '}' should be | FILE, row 6, item 6, column 23 | correct or delete the item\n"
                "']' stands where a value should be | FILE, row 7, item 7, column 34 | correct or delete the item");
}

TEST(AlpacaJson, AFileThatWasCutOffIsTold) {
  const std::string whole = R"([{"instruction": "Go.", "input": "\u00e9", "output": "Gone."}])";
  for (std::size_t length = 1; length < whole.size(); ++length) {
    EXPECT_NE(problems_in(whole.substr(0, length)), "") << length;
    std::string changed = whole;
    changed[length] = '\\';
    (void)problems_in(changed);
  }
}

TEST(AlpacaJson, BadItemsAreSkippedAndCounted) {
  std::string content = "[";
  for (int i = 0; i < 20; ++i) {
    content += R"({"instruction": "Go.", "output": 1}, {"instruction": "Go.", "output": "Gone."}, )";
  }
  const TempFile file(content + R"({"instruction": "Go.", "output": ""}])", ".json");
  AlpacaJsonReader reader(file.path(), {.skip_bad_rows = true});
  EXPECT_EQ(totals_of(reader), (Totals{20, 20, 40}));
  EXPECT_EQ(reader.skipped(), 20);
  EXPECT_EQ(reader.first_skipped(), file.path() + ", row 1, item 1, key \"output\": the value must be a text");
}

TEST(AlpacaJson, TextsOfTooManyTokensAreTold) {
  const std::string folder = source_dir() + "/../shared/data/tokenizers";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "../shared/data/tokenizers is not there";
  // Alternating digits and letters are one GPT-2 token each.
  std::string text;
  while (text.size() < 16'777'218) text += "1a";
  EXPECT_EQ(problems_in(fmt::format(R"([{{"instruction": "Go.", "output": "{}"}}])", text), "gpt2:" + folder),
            "exit 3\n16777218 tokens: up to 16777216 are possible | FILE, row 1, item 1, key \"output\" | correct or "
            "delete the item");
}

TEST(AlpacaJson, TheSampleIsReadByDetection) {
  const OpenedTrace trace = open_trace(source_dir() + "/traces/samples/alpaca.json", "auto");
  EXPECT_EQ(trace.format, "alpaca-json");
  // Characters / 4, rounded up: 8 + 16 + 9 in, 16 + 6 + 2 out, and one item without output.
  EXPECT_EQ(totals_of(*trace.reader), (Totals{3, 33, 24}));
  EXPECT_EQ(trace.reader->warnings().size(), 2U);
}

TEST(AlpacaJson, TheRealFileHasItsTotals) {
  const std::string path = shared_trace("alpaca-text-200.json");
  if (path.empty()) GTEST_SKIP() << "../shared/data/traces/alpaca-text-200.json is not there";
  const OpenedTrace trace = open_trace(path, "auto");
  EXPECT_EQ(trace.format, "alpaca-json");
  // python3, with est = lambda t: -(-len(t) // 4): of every x in json.load(open(f)), est(x['instruction'] + ('\n' +
  // x['input'] if x['input'] else '')) and est(x['output']); none is 0.
  EXPECT_EQ(totals_of(*trace.reader), (Totals{200, 4'237, 53'410}));
  EXPECT_EQ(trace.reader->warnings().size(), 1U);
}

}  // namespace
}  // namespace spillway::traces
