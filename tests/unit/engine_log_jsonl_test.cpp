#include "traces/readers/engine_log_jsonl.hpp"

#include <gtest/gtest.h>

#include "tests/support/paths.hpp"
#include "tests/unit/trace_test_files.hpp"
#include "traces/engine_log.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

std::string row_of(const std::string& queued, int input, int output) {
  return "{\"request_id\": \"a\", \"queued_ts\": " + queued + ", \"input_toks\": " + std::to_string(input) +
         ", \"output_toks\": " + std::to_string(output) + "}\n";
}

TEST(EngineLogJsonl, RequestsArriveAsTheyWereQueued) {
  const TempFile file(
      row_of("1000.5", 3, 30) + row_of("1000.25", 1, 10) + row_of("1000.5", 4, 0) + row_of("1002", 5, 50), ".jsonl");
  const OpenedTrace trace = open_trace(file.path(), "auto");
  EXPECT_EQ(trace.format, "engine-log");
  const std::vector<TraceRow> rows = drain(*trace.reader);
  ASSERT_EQ(rows.size(), 4U);
  // The earliest stamp, 1000.25 s, is time 0.
  EXPECT_EQ(rows[0].input, Tokens(1));
  EXPECT_EQ(rows[0].arrival, SimTime(0));
  EXPECT_EQ(rows[1].input, Tokens(3)) << "equal stamps stay in the order of the file";
  EXPECT_EQ(rows[1].arrival, SimTime(250'000'000));
  EXPECT_EQ(rows[2].input, Tokens(4));
  EXPECT_EQ(rows[2].output, Tokens(1)) << "0 counts as 1";
  EXPECT_EQ(rows[3].arrival, SimTime(1'750'000'000));
  EXPECT_EQ(trace.reader->zero_outputs(), 1);
}

TEST(EngineLogJsonl, TheSampleIsRecognised) {
  const OpenedTrace trace = open_trace(source_dir() + "/traces/samples/engine-log.jsonl", "auto");
  EXPECT_EQ(trace.format, "engine-log");
  EXPECT_EQ(totals_of(*trace.reader), (Totals{3, 56 + 66 + 97, 33 + 100 + 86}));
}

TEST(EngineLogJsonl, ValidateReplaysTheSameArrivals) {
  const std::string folder = source_dir() + "/experiments/validation/sample-log";
  const std::vector<RequestSpec> replayed = drain(*replay(read_engine_log(folder, {}), {}));
  const std::vector<TraceRow> rows = drain(*open_trace(folder + "/requests.jsonl", "auto").reader);
  ASSERT_EQ(rows.size(), replayed.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].arrival, replayed[i].arrival) << i;
    EXPECT_EQ(rows[i].input, replayed[i].input) << i;
    EXPECT_EQ(rows[i].output, replayed[i].output) << i;
  }
}

TEST(EngineLogJsonl, BadRowsAreTold) {
  const auto problems_in = [](const std::string& content) {
    const TempFile file(content, ".jsonl");
    return problems_of(
        [&] {
          EngineLogReader reader(file.path());
          (void)drain(reader);
        },
        file.path());
  };
  EXPECT_EQ(problems_in(row_of("0", 1, 1) + row_of("100000001", 1, 1)),
            "exit 3\nthe request comes more than three years after the earliest one | FILE, row 2 | take all times "
            "from one clock, in seconds");
  EXPECT_EQ(problems_in("{\"first_token_ts\": 5, \"input_toks\": 0, \"output_toks\": 1}\n"),
            "exit 3\n0 is not a whole number from 1 to 16777216 | FILE, row 1, key \"input_toks\" | correct or delete "
            "the row\nkey \"queued_ts\" is missing | FILE, row 1 | correct or delete the row");
}

}  // namespace
}  // namespace spillway::traces
