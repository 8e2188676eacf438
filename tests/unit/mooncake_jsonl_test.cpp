#include "traces/readers/mooncake_jsonl.hpp"

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

std::vector<TraceRow> read(const std::string& content, std::int64_t block_tokens) {
  const TempFile file(content, ".jsonl");
  MooncakeJsonlReader reader(file.path());
  return drain(reader, block_tokens);
}

std::string problems_in(const std::string& content) {
  const TempFile file(content, ".jsonl");
  return problems_of(
      [&] {
        MooncakeJsonlReader reader(file.path());
        (void)drain(reader);
      },
      file.path());
}

/// Blocks of all requests, and the number that an earlier request (or an earlier position) already had.
struct Reuse {
  std::int64_t blocks = 0;
  std::int64_t repeated = 0;
  bool operator==(const Reuse&) const = default;
};

class ReuseCounter {
 public:
  void add(const std::vector<std::uint64_t>& ids) { all_.insert(all_.end(), ids.begin(), ids.end()); }
  [[nodiscard]] Reuse reuse() {
    std::sort(all_.begin(), all_.end());
    const auto distinct = std::unique(all_.begin(), all_.end()) - all_.begin();
    const auto blocks = static_cast<std::int64_t>(all_.size());
    return {blocks, blocks - distinct};
  }

 private:
  std::vector<std::uint64_t> all_;
};

TEST(MooncakeJsonl, ReadsLengthsTimesAndBlocks) {
  const auto requests = read(
      "{\"timestamp\": 27482, \"input_length\": 1100, \"output_length\": 52, \"hash_ids\": [46, 47, 2353]}\n\r\n"
      "{\"hash_ids\":[46],\"output_length\":0,\"input_length\":512,\"timestamp\":27482.5,\"model\":{\"a\":[1]}}\n",
      512);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].arrival, SimTime(27'482'000'000)) << "ms since the start of the trace";
  EXPECT_EQ(requests[0].input, Tokens(1100));
  EXPECT_EQ(requests[0].output, Tokens(52));
  EXPECT_EQ(requests[0].max_new_tokens, Tokens(52));
  EXPECT_EQ(requests[0].client, 0U);
  EXPECT_EQ(requests[0].prefix_ids, (std::vector<std::uint64_t>{46, 47})) << "the third block is not whole";
  EXPECT_EQ(requests[1].arrival, SimTime(27'482'500'000));
  EXPECT_EQ(requests[1].output, Tokens(1)) << "0 counts as 1";
  EXPECT_EQ(requests[1].prefix_ids, (std::vector<std::uint64_t>{46}));
}

TEST(MooncakeJsonl, AnIdBecomesTheRunsBlocks) {
  // 1,100 tokens are 68 whole blocks of 16: 32 + 32 of the first two ids and 4 of the third.
  const auto requests = read(
      "{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 1, \"hash_ids\": [5, 6, 7]}\n"
      "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": [5, 8]}\n"
      "{\"timestamp\": 0, \"input_length\": 2000, \"output_length\": 1, \"hash_ids\": [5]}\n",
      16);
  ASSERT_EQ(requests.size(), 3U);
  const auto& ids = requests[0].prefix_ids;
  ASSERT_EQ(ids.size(), 68U);
  EXPECT_EQ(std::set<std::uint64_t>(ids.begin(), ids.end()).size(), 68U) << "all different";
  ASSERT_EQ(requests[1].prefix_ids.size(), 37U);
  EXPECT_TRUE(std::equal(ids.begin(), ids.begin() + 32, requests[1].prefix_ids.begin()));
  EXPECT_NE(ids[32], requests[1].prefix_ids[32]);
  EXPECT_EQ(requests[2].prefix_ids.size(), 32U) << "what no id names is not shared";
}

TEST(MooncakeJsonl, BlocksOfAnySizeAreNamed) {
  const std::string rows =
      "{\"timestamp\": 0, \"input_length\": 1536, \"output_length\": 1, \"hash_ids\": [5, 6, 7]}\n"
      "{\"timestamp\": 0, \"input_length\": 1536, \"output_length\": 1, \"hash_ids\": [5, 6, 8]}\n";
  // Both share 1,024 tokens: 42 of the 64 whole blocks of 24 tokens, and 1 of the 1 whole block of 1,024.
  const auto small = read(rows, 24);
  ASSERT_EQ(small[0].prefix_ids.size(), 64U);
  for (std::size_t b = 0; b < 64; ++b) {
    EXPECT_EQ(small[0].prefix_ids[b] == small[1].prefix_ids[b], b < 42) << "block " << b;
  }
  const auto large = read(rows, 1024);
  ASSERT_EQ(large[0].prefix_ids.size(), 1U);
  EXPECT_EQ(large[0].prefix_ids, large[1].prefix_ids);
}

TEST(MooncakeJsonl, TimesMayGoBackByASecond) {
  const auto requests = read(
      "{\"timestamp\": 1005, \"input_length\": 8, \"output_length\": 1, \"hash_ids\": [1]}\n"
      "{\"timestamp\": 5, \"input_length\": 9, \"output_length\": 1, \"hash_ids\": [1]}\n",
      512);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[1].arrival, SimTime(5'000'000));
  EXPECT_EQ(requests[1].input, Tokens(9));
}

TEST(MooncakeJsonl, BadRowsAreSkippedAndCounted) {
  std::string content;
  for (int i = 0; i < 30; ++i) {
    content +=
        "{\"timestamp\": 5, \"input_length\": 8, \"output_length\": 3, \"hash_ids\": [1]}\n"
        "{\"timestamp\": 5, \"input_length\": -8, \"output_length\": \"3\", \"hash_ids\": [1]}\n";
  }
  const TempFile file(content + "{\"timestamp\": 5, \"input_le", ".jsonl");
  MooncakeJsonlReader reader(file.path(), {.skip_bad_rows = true});
  EXPECT_EQ(totals_of(reader), (Totals{30, 240, 90}));
  EXPECT_EQ(reader.skipped(), 31) << "rows, not what is wrong with them";
  EXPECT_EQ(reader.first_skipped(),
            file.path() + ", row 2, key \"input_length\": -8 is not a whole number from 1 to 16777216");
}

TEST(MooncakeJsonl, APromptHasAtMostOneIdPerBlockBegun) {
  const auto row = [](int tokens, int ids) {
    nlohmann::json list = nlohmann::json::array();
    for (int i = 0; i < ids; ++i) list.push_back(i);
    return nlohmann::json{{"timestamp", 0}, {"input_length", tokens}, {"output_length", 1}, {"hash_ids", list}}.dump() +
           "\n";
  };
  // Tokens of a prompt, and ceil(tokens / 512).
  const std::vector<std::pair<int, int>> cases{{1, 1}, {511, 1}, {512, 1}, {513, 2}, {1024, 2}, {1025, 3}};
  for (const auto& [tokens, blocks] : cases) {
    EXPECT_EQ(problems_in(row(tokens, 0)), "") << tokens;
    EXPECT_EQ(problems_in(row(tokens, blocks)), "") << tokens;
    const std::string expected = std::to_string(blocks + 1) + " ids, but a prompt of " + std::to_string(tokens) +
                                 " tokens has " + std::to_string(blocks) + " blocks of 512";
    EXPECT_NE(problems_in(row(tokens, blocks + 1)).find(expected), std::string::npos)
        << problems_in(row(tokens, blocks + 1));
  }
}

TEST(MooncakeJsonl, EveryBadValueIsTold) {
  EXPECT_EQ(
      problems_in("{\"timestamp\": 1005, \"input_length\": 8, \"output_length\": 1, \"hash_ids\": [1]}\n"
                  "{\"timestamp\": 4, \"input_length\": 8, \"output_length\": 1, \"hash_ids\": [1, 2]}\n"
                  "{\"timestamp\": NaN, \"input_length\": -8, \"output_length\": 16777217, \"hash_ids\": [1, -2]}\n"
                  "{\"timestamp\": -1, \"input_length\": 0, \"output_length\": \"9\", \"hash_ids\": null}\n"
                  "{\"input_length\": 8, \"input_length\": 8}\n"
                  "{\"timestamp\": 5, \"input_length\": 8, \"output_length\": 1, \"hash_ids\": [1"),
      "exit 3\n"
      "4 ms is more than 1 s earlier than a previous row | FILE, row 2, key \"timestamp\" | sort the rows by "
      "timestamp\n"
      "2 ids, but a prompt of 8 tokens has 1 blocks of 512 | FILE, row 2, key \"hash_ids\" | ids must be of 512-token "
      "blocks; convert other sizes to native-jsonl with prefix_block_tokens\n"
      "NaN is not a number from 0 to 100000000000 | FILE, row 3, key \"timestamp\" | correct or delete the row\n"
      "-8 is not a whole number from 1 to 16777216 | FILE, row 3, key \"input_length\" | correct or delete the row\n"
      "16777217 is not a whole number from 0 to 16777216 | FILE, row 3, key \"output_length\" | "
      "correct or delete the row\n"
      "-2 is not a whole number from 0 to 18446744073709551615 | FILE, row 3, key \"hash_ids\" | "
      "correct or delete the row\n"
      "-1 is not a number from 0 to 100000000000 | FILE, row 4, key \"timestamp\" | correct or delete the row\n"
      "0 is not a whole number from 1 to 16777216 | FILE, row 4, key \"input_length\" | correct or delete the row\n"
      "the value must be a number | FILE, row 4, key \"output_length\" | correct or delete the row\n"
      "null is not a list of whole numbers | FILE, row 4, key \"hash_ids\" | correct or delete the row\n"
      "the key appears twice | FILE, row 5, key \"input_length\" | correct or delete the row\n"
      "key \"timestamp\" is missing | FILE, row 5 | correct or delete the row\n"
      "key \"output_length\" is missing | FILE, row 5 | correct or delete the row\n"
      "key \"hash_ids\" is missing | FILE, row 5 | correct or delete the row\n"
      "the line ends where ',' or ']' should be | FILE, row 6, column 71 | complete or delete the row; a file that was "
      "cut off while being copied ends like this");
}

TEST(MooncakeJsonl, NestedRubbishNeitherCrashesNorPasses) {
  const std::string good =
      "{\"timestamp\": 5, \"input_length\": 8, \"output_length\": 1, \"hash_ids\": [1], \"a\": {}}";
  for (std::size_t length = 1; length < good.size(); ++length) {
    EXPECT_NE(problems_in(good.substr(0, length) + "\n"), "") << length;
    std::string changed = good;
    changed[length] = '\\';
    (void)problems_in(changed + "\n");
  }
}

TEST(MooncakeJsonl, TheSampleIsReadByDetection) {
  const OpenedTrace trace = open_trace(source_dir() + "/traces/samples/mooncake.jsonl", "auto");
  EXPECT_EQ(trace.format, "mooncake-jsonl");
  const auto requests = drain(*trace.reader, 256);
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_EQ(requests[1].arrival, SimTime(150'000'000));
  // 1,300 / 1,100 / 500 / 1,800 tokens are 5 / 4 / 1 / 7 whole blocks of 256; rows 2 and 4 repeat 4 and 5 of row 1.
  ReuseCounter counter;
  for (const TraceRow& request : requests) counter.add(request.prefix_ids);
  EXPECT_EQ(counter.reuse(), (Reuse{17, 9}));
}

TEST(MooncakeJsonl, TheRealTraceHasItsTotalsAndItsReuse) {
  const std::string path = shared_trace("mooncake-synthetic.jsonl");
  if (path.empty()) GTEST_SKIP() << "../shared/data/traces/mooncake-synthetic.jsonl is not there";
  // python3: rows = [json.loads(l) for l in open(f)]; len(rows), sum(r['input_length'] ...), sum(r['output_length']
  // ...)
  const OpenedTrace trace = open_trace(path, "auto");
  EXPECT_EQ(trace.format, "mooncake-jsonl");
  EXPECT_EQ(totals_of(*trace.reader), (Totals{3993, 61'194'628, 595'432}));
  // Upper bound of reuse: all 121,877 hash ids of the file, counted without the reader, are 64.0% repetitions.
  ReuseCounter file_ids;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    file_ids.add(nlohmann::json::parse(line)["hash_ids"].get<std::vector<std::uint64_t>>());
  }
  EXPECT_EQ(file_ids.reuse(), (Reuse{121'877, 77'953}));
  // python3, with n = input_length // B, r = 512 // B: the blocks (hash_ids[i // r], i % r) for i in range(n), of which
  // 77,740 of 117,888 are repetitions at B = 512 (partial last blocks are not shared) and 2,490,686 of 3,822,794 at B
  // = 16.
  const auto reuse_of = [&](std::int64_t block_tokens) {
    ReuseCounter counter;
    for (const TraceRow& request : drain(*open_trace(path, "auto").reader, block_tokens)) {
      counter.add(request.prefix_ids);
    }
    return counter.reuse();
  };
  EXPECT_EQ(reuse_of(512), (Reuse{117'888, 77'740}));
  EXPECT_EQ(reuse_of(16), (Reuse{3'822'794, 2'490'686}));
}

}  // namespace
}  // namespace spillway::traces
