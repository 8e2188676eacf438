#include "traces/readers/prefix_sessions.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "tests/unit/trace_test_files.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

ReaderOptions as_sessions() { return {.prefix_sessions = true}; }

/// Rows of Mooncake's format, 1 s apart, each with 10 output tokens.
struct Prompt {
  std::int64_t input;
  const char* ids;
};
std::string mooncake(const std::vector<Prompt>& prompts) {
  std::string lines;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    lines += "{\"timestamp\": " + std::to_string(1000 * i) + ", \"input_length\": " + std::to_string(prompts[i].input) +
             ", \"output_length\": 10, \"hash_ids\": [" + prompts[i].ids + "]}\n";
  }
  return lines;
}

using Turns = std::vector<std::pair<std::uint64_t, std::int32_t>>;  // conversation and turn of each row

Turns turns_in(const std::string& content) {
  const TempFile file(content, ".jsonl");
  Turns turns;
  for (const TraceRow& row : drain(*open_trace(file.path(), "auto", as_sessions()).reader)) {
    turns.emplace_back(row.conversation.value(), row.turn);
  }
  return turns;
}

std::string problems_in(const std::string& content, const std::string& suffix) {
  const TempFile file(content, suffix);
  return problems_of([&] { (void)drain(*open_trace(file.path(), "auto", as_sessions()).reader); }, file.path());
}

TEST(PrefixSessions, ARequestExtendsTheWholeBlocksOfAnEarlierOne) {
  // 1,000 tokens are one whole block of 512 and a partial one, whose id 2 becomes 3 as the prompt grows.
  EXPECT_EQ(turns_in(mooncake({{1000, "1,2"}, {1100, "1,3,4"}})), (Turns{{0, 1}, {0, 2}}));
  // Another first block, and another second one after two whole blocks.
  EXPECT_EQ(turns_in(mooncake({{1000, "1,2"}, {1100, "5,2,4"}})), (Turns{{0, 1}, {1, 1}}));
  EXPECT_EQ(turns_in(mooncake({{1100, "1,2,3"}, {1200, "1,4,3"}})), (Turns{{0, 1}, {1, 1}}));
  // A prompt without a whole block is continued by none.
  EXPECT_EQ(turns_in(mooncake({{500, "9"}, {600, "9,10"}})), (Turns{{0, 1}, {1, 1}}));
  // 1,024 tokens are two whole blocks and no partial one.
  EXPECT_EQ(turns_in(mooncake({{1024, "1,2"}, {1025, "1,2,3"}})), (Turns{{0, 1}, {0, 2}}));
  EXPECT_EQ(turns_in(mooncake({{1024, "1,2"}, {1025, "1,4,3"}})), (Turns{{0, 1}, {1, 1}}));
}

TEST(PrefixSessions, ALaterPromptMustBeLonger) {
  EXPECT_EQ(turns_in(mooncake({{1100, "1,2,3"}, {1100, "1,2,3"}})), (Turns{{0, 1}, {1, 1}}));
  EXPECT_EQ(turns_in(mooncake({{1100, "1,2,3"}, {1099, "1,2,4"}})), (Turns{{0, 1}, {1, 1}}));
  EXPECT_EQ(turns_in(mooncake({{1100, "1,2,3"}, {1101, "1,2,4"}})), (Turns{{0, 1}, {0, 2}}));
}

TEST(PrefixSessions, TheLatestMatchIsContinued) {
  // The third prompt extends the first and the second. The longer match is not preferred, nor the one nearer in length.
  EXPECT_EQ(turns_in(mooncake({{1600, "1,2,3,4"}, {1100, "1,2,5"}, {1700, "1,2,3,6"}})),
            (Turns{{0, 1}, {1, 1}, {1, 2}}));
  EXPECT_EQ(turns_in(mooncake({{1100, "1,2,3"}, {1050, "1,2,4"}, {1200, "1,2,5"}})), (Turns{{0, 1}, {1, 1}, {1, 2}}));
  EXPECT_EQ(turns_in(mooncake({{1050, "1,2,3"}, {1050, "1,2,3"}, {1200, "1,2,5"}})), (Turns{{0, 1}, {1, 1}, {1, 2}}));
}

TEST(PrefixSessions, ARequestIsContinuedOnce) {
  // The third prompt extends both others, of which the second has continued the first. The fourth extends the first
  // two, but not the third: both are continued.
  EXPECT_EQ(turns_in(mooncake({{1000, "1,2"}, {1100, "1,3,4"}, {1600, "1,3,5,6"}, {1650, "1,3,7,8"}})),
            (Turns{{0, 1}, {0, 2}, {0, 3}, {1, 1}}));
  // The fourth extends the first and the second. The third has continued the second, so the first is left.
  EXPECT_EQ(turns_in(mooncake({{1100, "1,2,3"}, {1050, "1,2,4"}, {1200, "1,2,5"}, {1150, "1,2,6"}})),
            (Turns{{0, 1}, {1, 1}, {1, 2}, {0, 2}}));
  // Two prompts of one length: the later is continued first.
  EXPECT_EQ(turns_in(mooncake({{1050, "1,2,3"}, {1050, "1,2,3"}, {1200, "1,2,5"}, {1150, "1,2,6"}, {1100, "1,2,7"}})),
            (Turns{{0, 1}, {1, 1}, {1, 2}, {0, 2}, {2, 1}}));
}

TEST(PrefixSessions, IdsThatEndEarlyCannotBeContinued) {
  // 2,000 tokens are three whole blocks, and one id says nothing of the others.
  EXPECT_EQ(turns_in(mooncake({{2000, "20"}, {2500, "20,21,22,23"}})), (Turns{{0, 1}, {1, 1}}));
  EXPECT_EQ(turns_in(mooncake({{2000, ""}, {2500, "20,21,22,23"}})), (Turns{{0, 1}, {1, 1}}));
  // Such a request may continue another.
  EXPECT_EQ(turns_in(mooncake({{600, "9,10"}, {3000, "9,11"}})), (Turns{{0, 1}, {0, 2}}));
}

TEST(PrefixSessions, BlocksHaveAnySize) {
  // Three whole blocks of 4 tokens; the last token is in a partial one.
  EXPECT_EQ(turns_in("{\"arrival_s\": 0, \"input_tokens\": 13, \"output_tokens\": 2, \"prefix_ids\": [1,2,3,4], "
                     "\"prefix_block_tokens\": 4}\n"
                     "{\"arrival_s\": 1, \"input_tokens\": 20, \"output_tokens\": 2, \"prefix_ids\": [1,2,3,5,6], "
                     "\"prefix_block_tokens\": 4}\n"
                     "{\"arrival_s\": 2, \"input_tokens\": 41, \"output_tokens\": 2, \"prefix_ids\": [1,2,3,5,6,7], "
                     "\"prefix_block_tokens\": 8}\n"),
            (Turns{{0, 1}, {0, 2}, {1, 1}}))
      << "ids of blocks of another size name other content";
}

TEST(PrefixSessions, RowsKeepEverythingElse) {
  const TempFile file(mooncake({{1000, "1,2"}, {1100, "1,3,4"}}), ".jsonl");
  auto plain = drain(*open_trace(file.path(), "auto").reader);
  plain[0].conversation = plain[1].conversation = 0;
  plain[0].turn = 1;
  plain[1].turn = 2;
  const OpenedTrace trace = open_trace(file.path(), "auto", as_sessions());
  EXPECT_EQ(trace.format, "mooncake-jsonl");
  EXPECT_TRUE(trace.reader->has_times());
  EXPECT_EQ(drain(*trace.reader), plain);
  EXPECT_EQ(trace.reader->row(), 2);
}

TEST(PrefixSessions, FilesThatTellNoSessionsAreRefused) {
  EXPECT_EQ(problems_in("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,100,10\n", ".csv"),
            "exit 2\nFILE has no prefix ids that tell which prompt extends another | workload.sessions | use a trace "
            "with them, such as mooncake-jsonl (hash_ids), or leave workload.sessions out");
  EXPECT_EQ(problems_in("{\"input_tokens\": 9, \"output_tokens\": 1, \"prefix_ids\": [1]}\n", ".jsonl"),
            "exit 2\nFILE has no times, so no request is known to come after another | workload.sessions | use a trace "
            "with times and prefix ids");
  EXPECT_EQ(
      problems_in("{\"arrival_s\": 0, \"input_tokens\": 9, \"output_tokens\": 1, \"prefix_ids\": [1]}\n", ".jsonl"),
      "exit 2\nFILE does not say how many tokens a prefix id stands for | workload.sessions | state "
      "prefix_block_tokens in its rows");
  EXPECT_EQ(
      problems_in("{\"arrival_s\": 0, \"input_tokens\": 9, \"output_tokens\": 1, \"conversation\": 3}\n", ".jsonl"),
      "exit 2\nFILE names its conversations itself | workload.sessions | leave workload.sessions out");
}

TEST(PrefixSessions, TheRealTraceHasItsConversations) {
  const std::string path = shared_trace("mooncake-synthetic.jsonl");
  if (path.empty()) GTEST_SKIP() << "../shared/data/traces/mooncake-synthetic.jsonl is not there";
  // python3, which compares the ids of every pair of rows:
  //   rows = [json.loads(l) for l in open(f)]; turn = []; continued = set()
  //   for j, r in enumerate(rows):
  //     m = [i for i in range(j) if i not in continued and (n := rows[i]['input_length'] // 512) >= 1
  //          and n <= len(rows[i]['hash_ids']) and r['input_length'] > rows[i]['input_length']
  //          and r['hash_ids'][:n] == rows[i]['hash_ids'][:n]]
  //     if m: continued.add(m[-1])
  //     turn.append(turn[m[-1]] + 1 if m else 1)
  // len(continued) = 765, max(turn) = 5, sum((j + 1) * turn[j]) = 10,972,729. Without `i not in continued`, 1,071 rows
  // extend one of 673 others.
  std::int64_t later = 0;
  std::int32_t longest = 0;
  std::int64_t sum = 0;
  std::int64_t line = 0;
  for (const TraceRow& row : drain(*open_trace(path, "auto", as_sessions()).reader)) {
    later += row.turn > 1 ? 1 : 0;
    longest = std::max(longest, row.turn);
    sum += ++line * row.turn;
  }
  EXPECT_EQ(std::tuple(line, later, longest, sum), std::tuple(3993, 765, 5, 10'972'729));
}

}  // namespace
}  // namespace spillway::traces
