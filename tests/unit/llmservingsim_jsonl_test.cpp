#include "traces/readers/llmservingsim_jsonl.hpp"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/paths.hpp"
#include "tests/unit/trace_test_files.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

std::vector<TraceRow> read(const std::string& content, std::int64_t block_tokens) {
  const TempFile file(content, ".jsonl");
  LlmServingSimJsonlReader reader(file.path());
  return drain(reader, block_tokens);
}

std::string problems_in(const std::string& content) {
  const TempFile file(content, ".jsonl");
  return problems_of(
      [&] {
        LlmServingSimJsonlReader reader(file.path());
        (void)drain(reader);
      },
      file.path());
}

TEST(LlmServingSimJsonl, ReadsLengthsAndTimes) {
  const auto requests = read(
      "{\"input_toks\": 5, \"output_toks\": 2, \"arrival_time_ns\": 46926808, \"input_tok_ids\": [7, 8, 9, 10, 11], "
      "\"output_tok_ids\": [1, 2]}\n"
      "{\"input_toks\": 3, \"output_toks\": 4, \"arrival_time_ns\": 46926808}\n",
      2);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].arrival, SimTime(46'926'808));
  EXPECT_EQ(requests[0].input, Tokens(5));
  EXPECT_EQ(requests[0].output, Tokens(2));
  EXPECT_EQ(requests[0].max_new_tokens, Tokens(2));
  EXPECT_EQ(requests[0].prefix_ids.size(), 2U) << "the third block is not whole";
  EXPECT_TRUE(requests[1].prefix_ids.empty()) << "no tokens, no prefix";
}

TEST(LlmServingSimJsonl, BlocksAreEqualWhenAllTokensUpToThemAre) {
  const std::string head = "{\"input_toks\": 6, \"output_toks\": 1, \"arrival_time_ns\": 0, \"input_tok_ids\": ";
  const auto requests = read(head + "[1, 2, 3, 4, 5, 6]}\n" + head + "[1, 2, 3, 4, 6, 5]}\n" + head +
                                 "[2, 1, 3, 4, 5, 6]}\n" + head + "[0, 0, 0, 0, 0, 0]}\n",
                             2);
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_EQ(requests[0].prefix_ids[0], requests[1].prefix_ids[0]);
  EXPECT_EQ(requests[0].prefix_ids[1], requests[1].prefix_ids[1]);
  // 3 blocks of row 1, the last of row 2, and all of rows 3 and 4: the same tokens after others are another block.
  std::set<std::uint64_t> distinct;
  for (const TraceRow& request : requests) distinct.insert(request.prefix_ids.begin(), request.prefix_ids.end());
  EXPECT_EQ(distinct.size(), 10U);
}

TEST(LlmServingSimJsonl, TimesMayGoBackByASecond) {
  const auto requests = read(
      "{\"input_toks\": 2, \"output_toks\": 1, \"arrival_time_ns\": 1000000009}\n"
      "{\"input_toks\": 3, \"output_toks\": 1, \"arrival_time_ns\": 9}\n",
      16);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[1].arrival, SimTime(9));
  EXPECT_EQ(requests[1].input, Tokens(3));
}

TEST(LlmServingSimJsonl, EveryBadValueIsTold) {
  EXPECT_EQ(
      problems_in(
          "{\"input_toks\": 2, \"output_toks\": 1, \"arrival_time_ns\": 1000000009, \"input_tok_ids\": [1, 2]}\n"
          "{\"input_toks\": 2, \"output_toks\": 1, \"arrival_time_ns\": 8, \"input_tok_ids\": [1]}\n"
          "{\"input_toks\": -2, \"output_toks\": 0, \"arrival_time_ns\": 1.5, \"input_tok_ids\": [1.5]}\n"
          "{\"input_toks\": 99999999, \"output_toks\": NaN, \"arrival_time_ns\": -1, \"input_tok_ids\": {}}\n"
          "{\"input_toks\": 2}\n"
          "{\"input_toks\": 2, \"output_toks\": 1, \"arriv"),
      "exit 3\n"
      "8 ns is more than 1 s earlier than a previous row | FILE, row 2, key \"arrival_time_ns\" | "
      "sort the rows by arrival_time_ns\n"
      "1 token ids, but input_toks = 2 | FILE, row 2, key \"input_tok_ids\" | correct or delete the row\n"
      "-2 is not a whole number from 1 to 16777216 | FILE, row 3, key \"input_toks\" | correct or delete the row\n"
      "0 is not a whole number from 1 to 16777216 | FILE, row 3, key \"output_toks\" | correct or delete the row\n"
      "1.5 is not a whole number from 0 to 100000000000000000 | FILE, row 3, key \"arrival_time_ns\" | "
      "correct or delete the row\n"
      "1.5 is not a whole number from 0 to 18446744073709551615 | FILE, row 3, key \"input_tok_ids\" | "
      "correct or delete the row\n"
      "99999999 is not a whole number from 1 to 16777216 | FILE, row 4, key \"input_toks\" | "
      "correct or delete the row\n"
      "NaN is not a whole number from 1 to 16777216 | FILE, row 4, key \"output_toks\" | correct or delete the row\n"
      "-1 is not a whole number from 0 to 100000000000000000 | FILE, row 4, key \"arrival_time_ns\" | "
      "correct or delete the row\n"
      "the value must be a list of whole numbers | FILE, row 4, key \"input_tok_ids\" | correct or delete the row\n"
      "key \"output_toks\" is missing | FILE, row 5 | correct or delete the row\n"
      "key \"arrival_time_ns\" is missing | FILE, row 5 | correct or delete the row\n"
      "the line ends where the key's closing quote should be | FILE, row 6, column 43 | complete or delete the row; a "
      "file that was cut off while being copied ends like this");
}

TEST(LlmServingSimJsonl, TheSampleIsReadByDetection) {
  const OpenedTrace trace = open_trace(source_dir() + "/traces/samples/llmservingsim.jsonl", "auto");
  EXPECT_EQ(trace.format, "llmservingsim-jsonl");
  const auto requests = drain(*trace.reader, 16);
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_EQ(requests[0].prefix_ids, requests[1].prefix_ids) << "they part after 32 tokens";
  EXPECT_EQ(requests[0].prefix_ids, requests[3].prefix_ids);
  EXPECT_EQ(requests[2].prefix_ids.size(), 1U);
  EXPECT_NE(requests[2].prefix_ids[0], requests[0].prefix_ids[0]);
}

TEST(LlmServingSimJsonl, TheRealTraceHasItsTotalsAndItsReuse) {
  const std::string path = shared_trace("sharegpt-llama31-8b-300.jsonl.gz");
  if (path.empty()) GTEST_SKIP() << "../shared/data/traces/sharegpt-llama31-8b-300.jsonl.gz is not there";
  const OpenedTrace trace = open_trace(path, "auto");
  EXPECT_EQ(trace.format, "llmservingsim-jsonl");
  // zcat F | python3: len(rows), sum of input_toks and of output_toks
  EXPECT_EQ(totals_of(*trace.reader), (Totals{300, 257'239, 195'753}));
  const auto requests = drain(*open_trace(path, "auto").reader, 16);
  EXPECT_EQ(requests.back().arrival, SimTime(29'183'763'203));
  // python3: of the tuples tuple(ids[:(i + 1) * 16]) for i in range(len(ids) // 16) over all rows, 14,722 of 15,942
  // differ.
  std::int64_t blocks = 0;
  std::set<std::uint64_t> distinct;
  for (const TraceRow& request : requests) {
    blocks += static_cast<std::int64_t>(request.prefix_ids.size());
    distinct.insert(request.prefix_ids.begin(), request.prefix_ids.end());
  }
  EXPECT_EQ(blocks, 15'942);
  EXPECT_EQ(distinct.size(), 14'722U);
}

}  // namespace
}  // namespace spillway::traces
