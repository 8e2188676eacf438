#include "traces/readers/sharegpt_json.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/paths.hpp"
#include "tests/unit/trace_test_files.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

/// The compared parts of a conversation's row.
struct Turn {
  std::uint64_t conversation = 0;
  std::int32_t turn = 0;
  std::int64_t input = 0;
  std::int64_t output = 0;
  bool operator==(const Turn&) const = default;
};

// NOLINTNEXTLINE(readability-identifier-naming): the name that GoogleTest calls
void PrintTo(const Turn& turn, std::ostream* out) {
  *out << "conversation " << turn.conversation << ", turn " << turn.turn << ": " << turn.input << " in, " << turn.output
       << " out";
}

std::vector<Turn> turns_of(TraceReader& reader) {
  std::vector<Turn> turns;
  for (const TraceRow& row : drain(reader)) {
    turns.push_back({row.conversation.value_or(0), row.turn, row.input.count(), row.output.count()});
  }
  return turns;
}

/// The turns and warnings of a file.
struct Result {
  std::vector<Turn> turns;
  std::vector<std::string> warnings;  // other than the estimate's
};

Result read(const std::string& content, bool skip_bad_rows = false) {
  const TempFile file(content, ".json");
  ShareGptJsonReader reader(file.path(), {.skip_bad_rows = skip_bad_rows});
  Result result{turns_of(reader), reader.warnings()};
  EXPECT_THAT(result.warnings.front(), StartsWith("token counts of the trace's text are estimated"));
  result.warnings.erase(result.warnings.begin());
  return result;
}

std::string problems_in(const std::string& content) {
  const TempFile file(content, ".json");
  return problems_of(
      [&] {
        ShareGptJsonReader reader(file.path());
        (void)drain(reader);
      },
      file.path());
}

/// A message of `tokens` tokens by the estimate.
std::string message(const std::string& from, std::size_t tokens) {
  return fmt::format(R"({{"from": "{}", "value": "{}"}})", from, std::string(4 * tokens, 'x'));
}

std::string item(const std::vector<std::string>& messages) {
  return fmt::format(R"({{"id": "a_0", "conversations": [{}]}})", fmt::join(messages, ", "));
}

std::string list_of(const std::vector<std::string>& items) { return fmt::format("[{}]", fmt::join(items, ",\n")); }

TEST(ShareGptJson, EveryQuestionWithAnAnswerIsATurn) {
  const std::string content =
      list_of({item({message("human", 10), message("gpt", 20), message("human", 3), message("gpt", 4)}),
               item({message("user", 5), message("assistant", 6)})});
  const TempFile file(content, ".json");
  ShareGptJsonReader reader(file.path());
  EXPECT_FALSE(reader.has_times());
  EXPECT_TRUE(reader.has_inputs());
  EXPECT_TRUE(reader.files().empty());
  const auto rows = drain(reader);
  ASSERT_EQ(rows.size(), 3U);
  TraceRow expected;
  expected.input = Tokens(10);
  expected.output = expected.max_new_tokens = Tokens(20);
  expected.conversation = 1;
  expected.turn = 1;
  EXPECT_EQ(rows[0], expected) << "no time, no client, no prefix";
  EXPECT_EQ(rows[1].turn, 2);
  EXPECT_EQ(rows[1].input, Tokens(33)) << "10 + 20 + 3: the whole prompt";
  EXPECT_EQ(rows[1].output, Tokens(4));
  EXPECT_EQ(rows[2].conversation, 2U);
  EXPECT_EQ(rows[2].turn, 1);
  EXPECT_EQ(rows[2].input, Tokens(5)) << "nothing of the other conversation";
  EXPECT_EQ(reader.row(), 2) << "the line on which the item begins";
  EXPECT_EQ(reader.warnings().size(), 1U) << "the estimate's";
}

TEST(ShareGptJson, MessagesOfOneSideInARowAreOne) {
  const Result result = read(list_of({item({message("human", 1), message("human", 2), message("gpt", 4),
                                            message("bing", 8), message("human", 16), message("bard", 32)})}));
  EXPECT_THAT(result.turns, ElementsAre(Turn{1, 1, 3, 12}, Turn{1, 2, 31, 32}));
  EXPECT_TRUE(result.warnings.empty());
}

TEST(ShareGptJson, ASystemMessageIsPartOfThePromptThatFollows) {
  const Result result = read(list_of({item({message("system", 100), message("human", 1), message("chatgpt", 2),
                                            message("system", 10), message("human", 4), message("gpt", 8)})}));
  EXPECT_THAT(result.turns, ElementsAre(Turn{1, 1, 101, 2}, Turn{1, 2, 117, 8}));
  EXPECT_TRUE(result.warnings.empty());
}

TEST(ShareGptJson, AnAnswerWithoutQuestionIsHistory) {
  const Result result = read(list_of({item({message("gpt", 50), message("human", 1), message("gpt", 2)})}));
  EXPECT_THAT(result.turns, ElementsAre(Turn{1, 1, 51, 2}));
  EXPECT_THAT(result.warnings, ElementsAre("answers without a question before them, added to the next prompt: 1"));
}

TEST(ShareGptJson, WhatHasNoAnswerIsLeftOut) {
  const Result result =
      read(list_of({item({message("human", 1), message("gpt", 2), message("human", 4)}),
                    item({message("human", 1), message("gpt", 0), message("human", 4), message("gpt", 8)}),
                    item({message("human", 1), message("gpt", 2), message("human", 4), message("gpt", 0)})}));
  EXPECT_THAT(result.turns, ElementsAre(Turn{1, 1, 1, 2}, Turn{2, 1, 5, 8}, Turn{3, 1, 1, 2}));
  EXPECT_THAT(result.warnings, ElementsAre("last questions left out because they have no answer: 1",
                                           "empty answers left out, their questions added to the next prompt: 2"));
}

TEST(ShareGptJson, AnEmptyPromptIsLeftOutAndAnEmptyMessageIsNot) {
  const Result result =
      read(list_of({item({message("human", 0), message("gpt", 2), message("human", 0), message("gpt", 3)})}));
  EXPECT_THAT(result.turns, ElementsAre(Turn{1, 1, 2, 3})) << "the second asks for more of the first answer";
  EXPECT_THAT(result.warnings, ElementsAre("turns left out because their prompt is empty: 1"));
}

TEST(ShareGptJson, ConversationsWithoutATurnAreLeftOutAndKeepTheirNumbers) {
  const Result result = read(list_of({item({}), item({message("gpt", 2)}), item({message("human", 2)}),
                                      item({message("human", 1), message("gpt", 1)})}));
  EXPECT_THAT(result.turns, ElementsAre(Turn{4, 1, 1, 1}));
  EXPECT_THAT(result.warnings, ElementsAre("conversations left out because they have no question with an answer: 3"));
  EXPECT_TRUE(read("[]").turns.empty());
}

TEST(ShareGptJson, TextsAreDecodedBeforeTheyAreCounted) {
  // 8 characters as written with escapes of 6 to 12; 5 characters in UTF-8 of 3 bytes each; 4 line feeds.
  const Result result = read(
      R"([{"conversations":[{"value":"\u0041\u0042\ud83d\ude00\"\\\/\n\t","from":"human","more":[{"a":"}"}]},)"
      "\n"
      R"({"from":"gpt","value":"你好世界。"},{"from":"human","value":"\n\n\n\n"},{"from":"gpt","value":"x"}],"id":7}])");
  EXPECT_THAT(result.turns, ElementsAre(Turn{1, 1, 2, 2}, Turn{1, 2, 5, 1}));
}

TEST(ShareGptJson, ItemsOfManyMegabytesAreRead) {
  // Texts with quotes, backslashes and brackets, across many windows.
  std::string text;
  while (text.size() < (std::size_t{5} << 20U)) text += R"(say \"}]\" \\\\ and more of the same )";
  const std::string large = fmt::format(
      R"({{"conversations": [{{"from": "human", "value": "{0}"}}, {{"from": "gpt", "value": "{0}"}}]}})", text);
  const auto tokens =
      static_cast<std::int64_t>((nlohmann::json::parse("\"" + text + "\"").get<std::string>().size() + 3) / 4);
  const Result result = read(list_of({large, large}));
  EXPECT_THAT(result.turns, ElementsAre(Turn{1, 1, tokens, tokens}, Turn{2, 1, tokens, tokens}));
}

TEST(ShareGptJson, EveryBadItemIsTold) {
  const std::string fix = " | correct or delete the item\n";
  EXPECT_EQ(problems_in(R"([{"conversations": []},
{"id": "no messages"},
{"conversations": null},
{"conversations": [["human", "Hi"]]},
{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt"}]},
{"conversations": [{"value": "Hi"}]},
{"conversations": [{"from": "human", "value": 7}, {"from": 8, "value": "Hi"}]},
{"conversations": [{"from": "alien", "value": "Hi"}]},
{"conversations": [{"from": "human", "value": "\x"}]},
{"conversations": [], "conversations": []},
{"conversations": [{"from": "human" "value": "Hi"}]},
{"conversations": [{"from": "late", "value": "Hi"}]}]
)"),
            "exit 3\n"
            "the key is missing | FILE, row 2, item 2, key \"conversations\"" +
                fix + "the value must be a list of messages | FILE, row 3, item 3, key \"conversations\"" + fix +
                "a message must be an object with the keys from and value | FILE, row 4, item 4, message 1, key "
                "\"conversations\"" +
                fix + "the key is missing | FILE, row 5, item 5, message 2, key \"value\"" + fix +
                "the key is missing | FILE, row 6, item 6, message 1, key \"from\"" + fix +
                "the value must be a text | FILE, row 7, item 7, message 1, key \"value\"" + fix +
                "\"alien\" is not human, user, gpt, assistant, system, chatgpt, bing or bard | FILE, row 8, item "
                "8, message 1, key \"from\"" +
                fix + "\"\\x\" is not an escape of JSON | FILE, row 9, item 9, message 1, key \"value\"" + fix +
                "the key appears twice | FILE, row 10, item 10, key \"conversations\"" + fix +
                "'\"' stands where ',' or '}' should be | FILE, row 11, item 11, column 37 | correct or delete the "
                "item");
}

TEST(ShareGptJson, AFileThatWasCutOffIsTold) {
  const std::string whole =
      list_of({item({message("human", 1), message("gpt", 1)}), item({message("human", 1), message("gpt", 1)})});
  for (std::size_t length = 1; length < whole.size(); ++length) {
    EXPECT_NE(problems_in(whole.substr(0, length)), "") << length;
    std::string changed = whole;
    changed[length] = '\\';
    (void)problems_in(changed);
  }
  EXPECT_EQ(problems_in(whole.substr(0, whole.size() - 20)),
            "exit 3\nthe file ends where the rest of an object should be | FILE, row 2, after item 1, byte " +
                std::to_string(whole.size() - 19) + " | copy the file again: it was cut off, or written only in part");
}

TEST(ShareGptJson, BadItemsAreSkippedAsAWhole) {
  std::vector<std::string> items(
      20, item({message("gpt", 1), message("human", 1), message("gpt", 2), message("alien", 1)}));
  items.insert(items.begin(), item({message("human", 1), message("gpt", 2)}));
  items.push_back(item({message("human", 3), message("gpt", 4)}));
  items.push_back(item({message("human", 1), message("alien", 1)}));
  const TempFile file(list_of(items), ".json");
  ShareGptJsonReader reader(file.path(), {.skip_bad_rows = true});
  EXPECT_THAT(turns_of(reader), ElementsAre(Turn{1, 1, 1, 2}, Turn{22, 1, 3, 4}));
  EXPECT_EQ(reader.skipped(), 21);
  EXPECT_THAT(reader.first_skipped(), StartsWith(file.path() + ", row 2, item 2, message 4, key \"from\": \"alien\""));
  EXPECT_EQ(reader.warnings().size(), 1U) << "what is skipped is not counted twice";
  TraceRow row;
  EXPECT_FALSE(reader.next(row)) << "the end is for ever";
}

TEST(ShareGptJson, AnUnknownTokenizerIsTold) {
  const TempFile file("[]", ".json");
  EXPECT_THAT(problems_of([&] { (void)open_trace(file.path(), "sharegpt-json", {.tokenizer = "estimat"}); }),
              StartsWith("exit 2\nunknown tokenizer \"estimat\" | workload.tokenizer | did you mean \"estimate\"?"));
}

TEST(ShareGptJson, TheSampleIsReadByDetection) {
  const OpenedTrace trace = open_trace(source_dir() + "/traces/samples/sharegpt.json", "auto");
  EXPECT_EQ(trace.format, "sharegpt-json");
  // ceil(characters / 4) of each message, summed by hand: a system message of 6 tokens before a question of 6.
  EXPECT_THAT(turns_of(*trace.reader),
              ElementsAre(Turn{1, 1, 12, 14}, Turn{1, 2, 33, 13}, Turn{3, 1, 20, 10}, Turn{4, 1, 3, 2}));
  EXPECT_EQ(trace.reader->warnings().size(), 4U) << "the estimate, no turn, an answer alone, a question alone";
}

TEST(ShareGptJson, GzipIsUnpacked) {
  const TempFile file(gzipped(list_of({item({message("human", 1), message("gpt", 2)})})), ".json.gz");
  const OpenedTrace trace = open_trace(file.path(), "auto");
  EXPECT_EQ(trace.format, "sharegpt-json");
  EXPECT_THAT(turns_of(*trace.reader), ElementsAre(Turn{1, 1, 1, 2}));
}

TEST(ShareGptJson, TheRealFileHasItsTotals) {
  const std::string path = shared_trace("sharegpt-text-120.json");
  if (path.empty()) GTEST_SKIP() << "../shared/data/traces/sharegpt-text-120.json is not there";
  const OpenedTrace trace = open_trace(path, "auto");
  EXPECT_EQ(trace.format, "sharegpt-json");
  // python3, with est = lambda t: -(-len(t) // 4): for c in json.load(open(f)), history = 0; for each message,
  // history += est(value), after adding (history, est(value)) to the rows when it is gpt's and the one before is
  // human's. 427 rows of 119 conversations, at most 15 of one; sums 420,503 and 134,270. 45 conversations begin with
  // gpt and go on, one is gpt's message alone, none ends with human.
  const auto turns = turns_of(*trace.reader);
  Totals totals;
  std::set<std::uint64_t> conversations;
  std::int32_t longest = 0;
  for (const Turn& turn : turns) {
    ++totals.requests;
    totals.input += turn.input;
    totals.output += turn.output;
    conversations.insert(turn.conversation);
    longest = std::max(longest, turn.turn);
  }
  EXPECT_EQ(totals, (Totals{427, 420'503, 134'270}));
  EXPECT_EQ(conversations.size(), 119U);
  EXPECT_EQ(longest, 15);
  auto warnings = trace.reader->warnings();
  ASSERT_EQ(warnings.size(), 3U);
  EXPECT_EQ(warnings[1], "conversations left out because they have no question with an answer: 1");
  EXPECT_EQ(warnings[2], "answers without a question before them, added to the next prompt: 45");
}

TEST(ShareGptJson, RealTokenizersSeeTheDecodedTexts) {
  const std::string path = shared_trace("sharegpt-text-120.json");
  const std::string folder = source_dir() + "/../shared/data/tokenizers";
  if (path.empty() || !std::filesystem::exists(folder)) GTEST_SKIP() << "../shared/data is not there";
  const std::string spec = "gpt2:" + folder;
  // The same sums as above over a library's view of the file.
  const auto tokenizer = open_tokenizer(spec);
  Totals expected;
  std::ifstream file(path);
  for (const auto& conversation : nlohmann::json::parse(file)) {
    std::int64_t history = 0;
    bool asked = false;
    for (const auto& one : conversation["conversations"]) {
      const std::int64_t tokens = tokenizer->count(one["value"].get<std::string>()).count();
      if (one["from"] == "gpt" && asked) {
        ++expected.requests;
        expected.input += history;
        expected.output += tokens;
      }
      asked = one["from"] == "human";
      history += tokens;
    }
  }
  const OpenedTrace trace = open_trace(path, "sharegpt-json", {.tokenizer = spec});
  EXPECT_EQ(totals_of(*trace.reader), expected);
  EXPECT_EQ(trace.reader->files(), tokenizer->files());
  EXPECT_EQ(trace.reader->files().size(), 2U);
  EXPECT_EQ(trace.reader->warnings().size(), 2U) << "counts are exact";
}

}  // namespace
}  // namespace spillway::traces
