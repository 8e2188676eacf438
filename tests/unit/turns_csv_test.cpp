#include "traces/readers/turns_csv.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/paths.hpp"
#include "tests/unit/trace_test_files.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

constexpr const char* kHeader = "conv_id,turn,prompt_tokens_cumulative,new_input_tokens,output_tokens\n";

std::string problems_in(const std::string& content) {
  const TempFile file(content, ".csv");
  return problems_of(
      [&] {
        TurnsCsvReader reader(file.path());
        (void)drain(reader);
      },
      file.path());
}

TEST(TurnsCsv, ReadsTurnsOfConversations) {
  const TempFile file(std::string(kHeader) + "7,0,290,290,905\r\n7,1,1402,207,711\r\n\r\n8,0,41,41,0\r\n", ".csv");
  TurnsCsvReader reader(file.path());
  EXPECT_FALSE(reader.has_times());
  EXPECT_TRUE(reader.has_inputs());
  const auto rows = drain(reader);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].arrival, kNever);
  EXPECT_EQ(rows[0].conversation, 7U);
  EXPECT_EQ(rows[0].turn, 1) << "turns count from 1; the file counts from 0";
  EXPECT_EQ(rows[0].input, Tokens(290));
  EXPECT_EQ(rows[0].output, Tokens(905));
  EXPECT_EQ(rows[0].max_new_tokens, Tokens(905));
  EXPECT_EQ(rows[1].conversation, 7U);
  EXPECT_EQ(rows[1].turn, 2);
  EXPECT_EQ(rows[1].input, Tokens(1402)) << "the whole prompt";
  EXPECT_EQ(rows[2].conversation, 8U);
  EXPECT_EQ(rows[2].turn, 1);
  EXPECT_EQ(rows[2].output, Tokens(1));
  EXPECT_EQ(reader.zero_outputs(), 1);
  EXPECT_TRUE(reader.warnings().empty());
}

TEST(TurnsCsv, APromptMayShrink) {
  const TempFile file(std::string(kHeader) + "0,0,900,900,100\n0,1,300,20,50\n", ".csv");
  TurnsCsvReader reader(file.path());
  const auto rows = drain(reader);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].input, Tokens(300));
  EXPECT_EQ(rows[1].turn, 2);
}

TEST(TurnsCsv, EveryBadFieldIsTold) {
  const std::string correct = " | correct or delete the row\n";
  const std::string sort = " | sort the rows by conv_id and turn, and count turns from 0\n";
  EXPECT_EQ(problems_in(std::string(kHeader) + "0,0,10,10,5\n"
                                               "0,2,30,10,5\n"
                                               "0,3,0,-1,5.5\n"
                                               "1,1,20,21,16777217\n"
                                               "-1,x,16777217,1,1\n"
                                               "1,2,30,0,1\n"
                                               "1,0,30,30,1\n"
                                               "1,2147483647,30,30"),
            "exit 3\n"
            "turn 2 follows where turn 1 of conversation 0 should | FILE, row 3, column turn" +
                sort + "0 tokens: from 1 to 16777216 are possible | FILE, row 4, column prompt_tokens_cumulative" +
                correct + "-1 tokens: from 0 to 16777216 are possible | FILE, row 4, column new_input_tokens" +
                correct + "\"5.5\" is not a whole number of tokens | FILE, row 4, column output_tokens" + correct +
                "turn 1 follows where turn 0 of conversation 1 should | FILE, row 5, column turn" + sort +
                "21 new tokens in a prompt of 20 | FILE, row 5, column new_input_tokens" + correct +
                "16777217 tokens: from 0 to 16777216 are possible | FILE, row 5, column output_tokens" + correct +
                "\"-1\" is not a whole number from 0 to 9223372036854775807 | FILE, row 6, column conv_id" + correct +
                "\"x\" is not a whole number from 0 to 2147483646 | FILE, row 6, column turn" + correct +
                "16777217 tokens: from 1 to 16777216 are possible | FILE, row 6, column prompt_tokens_cumulative" +
                correct + "turn 0 follows where turn 3 of conversation 1 should | FILE, row 8, column turn" + sort +
                "the row has 4 columns where the first row has 5 | FILE, row 9 | "
                "complete or delete the row; a file that was cut off while being copied ends like this");
}

TEST(TurnsCsv, SkippedTurnsLeaveTheOthersTheirNumbers) {
  const TempFile file(std::string(kHeader) + "0,0,10,10,5\n0,1,0,0,5\n0,2,30,10,5\n1,0,10,10,5\n", ".csv");
  TurnsCsvReader reader(file.path(), {.skip_bad_rows = true});
  const auto rows = drain(reader);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[1].turn, 3);
  EXPECT_EQ(reader.skipped(), 1);
  EXPECT_EQ(reader.first_skipped(),
            file.path() + ", row 3, column prompt_tokens_cumulative: 0 tokens: from 1 to 16777216 are possible");
}

TEST(TurnsCsv, AMissingColumnIsTold) {
  EXPECT_EQ(problems_in("conv_id,turn,prompt_tokens_cumulative,new_inputs_tokens,output_tokens\n"),
            "exit 3\ncolumn new_input_tokens is missing; there is a column \"new_inputs_tokens\" | FILE, row 1 | the "
            "first row must name the columns conv_id, turn, prompt_tokens_cumulative, new_input_tokens and "
            "output_tokens");
}

TEST(TurnsCsv, TheSampleIsReadByDetection) {
  const OpenedTrace trace = open_trace(source_dir() + "/traces/samples/turns.csv", "auto");
  EXPECT_EQ(trace.format, "turns-csv");
  // Inputs: 120 + 445 + 390 + 64 + 51 + 80. Outputs: 310 + 82 + 201 + 7 + 1 (0 in the file) + 144.
  EXPECT_EQ(totals_of(*trace.reader), (Totals{6, 1150, 745}));
  EXPECT_EQ(trace.reader->zero_outputs(), 1);
}

TEST(TurnsCsv, TheRealFileHasItsTotals) {
  const std::string path = shared_trace("sharegpt-turns-1000.csv");
  if (path.empty()) GTEST_SKIP() << "../shared/data/traces/sharegpt-turns-1000.csv is missing";
  // python3: r = list(csv.DictReader(open(f))); len(r), sum(int(x['prompt_tokens_cumulative']) for x in r),
  // sum(int(x['output_tokens']) for x in r), len({x['conv_id'] for x in r}), max(int(x['turn']) for x in r) + 1
  const OpenedTrace trace = open_trace(path, "auto");
  EXPECT_EQ(trace.format, "turns-csv");
  Totals totals;
  std::int64_t conversations = 0;
  std::int32_t longest = 0;
  for (const TraceRow& row : drain(*trace.reader)) {
    ++totals.requests;
    totals.input += row.input.count();
    totals.output += row.output.count();
    conversations += row.turn == 1 ? 1 : 0;
    longest = std::max(longest, row.turn);
  }
  EXPECT_EQ(totals, (Totals{5343, 12'531'342, 2'399'820}));
  EXPECT_EQ(conversations, 1000);
  EXPECT_EQ(longest, 43);
  EXPECT_EQ(trace.reader->zero_outputs(), 0);
}

}  // namespace
}  // namespace spillway::traces
