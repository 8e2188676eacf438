// Files of measured requests: results of benchmarks, and any columns that the user names.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/unit/trace_test_files.hpp"
#include "traces/engine_log.hpp"
#include "traces/readers/column_map.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Input, output, arrival, TTFT and E2E in microseconds; -1: not stated.
using Facts = std::vector<std::int64_t>;

std::int64_t micros(const std::optional<Duration>& duration) {
  return duration ? (duration->count() + 500) / 1000 : -1;
}

struct ReadFile {
  std::string format;
  std::vector<Facts> rows;
  std::vector<std::string> warnings;
  bool has_times = true;
};

ReadFile read(const std::string& path, const ReaderOptions& options = {}) {
  const OpenedTrace trace = open_trace(path, "auto", options);
  ReadFile result{trace.format, {}, {}, trace.reader->has_times()};
  for (const TraceRow& row : drain(*trace.reader)) {
    const std::int64_t arrival = row.arrival == kNever ? -1 : row.arrival.ns() / 1000;
    result.rows.push_back({row.input.count(), row.output.count(), arrival, micros(row.ttft), micros(row.e2e)});
  }
  result.warnings = trace.reader->warnings();
  return result;
}
ReadFile read_text(const std::string& content, const ReaderOptions& options = {}, const char* suffix = ".json") {
  const TempFile file(content, suffix);
  return read(file.path(), options);
}
std::string problems_in(const std::string& content, const ReaderOptions& options = {}) {
  const TempFile file(content, ".json");
  return problems_of([&] { (void)read(file.path(), options); }, file.path());
}
std::string sample(const char* name) { return source_dir() + "/traces/samples/" + name; }

json vllm() {
  std::ifstream file(sample("vllm-bench.json"));
  return json::parse(file);
}

// 50 ms + 10 + 12 ms; 120 + 11; 70 + 10 + 10 + 11. Request 4 has an error.
TEST(VllmBench, ReadsLengthsSendsAndTimes) {
  const ReadFile file = read(sample("vllm-bench.json"));
  EXPECT_EQ(file.format, "vllm-bench-json");
  EXPECT_THAT(file.rows, ElementsAre(Facts{100, 3, 0, 50'000, 72'000}, Facts{400, 2, 500'000, 120'000, 131'000},
                                     Facts{200, 4, 1'250'000, 70'000, 101'000}));
  EXPECT_THAT(file.warnings, ElementsAre(HasSubstr("1 of 4 requests of")));
}

TEST(VllmBench, RequestsAreInOrderOfTheirSend) {
  json later_first = vllm();
  later_first["start_times"] = {6000.0, 5000.5, 5001.25, 5001.5};
  const ReadFile file = read_text(later_first.dump());
  EXPECT_THAT(file.rows, ElementsAre(Facts{400, 2, 0, 120'000, 131'000}, Facts{200, 4, 750'000, 70'000, 101'000},
                                     Facts{100, 3, 999'500'000, 50'000, 72'000}));
}

// An answer of no token failed; one of a single token is as good as any.
TEST(VllmBench, AnAnswerWithoutTokensFailed) {
  json few = vllm();
  few["output_lens"] = {1, 0, 4, 5};
  few["itls"] = {json::array(), json::array(), {0.01, 0.01, 0.011}, {0.01}};
  const ReadFile file = read_text(few.dump());
  EXPECT_THAT(file.rows, ElementsAre(Facts{100, 1, 0, 50'000, 50'000}, Facts{200, 4, 1'250'000, 70'000, 101'000}));
  EXPECT_THAT(file.warnings, ElementsAre(HasSubstr("2 of 4 requests of")));
}

TEST(VllmBench, OlderFilesStateNoSends) {
  json old = vllm();
  old.erase("start_times");
  const ReadFile file = read_text(old.dump());
  EXPECT_FALSE(file.has_times);
  EXPECT_EQ(file.rows.front(), (Facts{100, 3, -1, 50'000, 72'000}));
}

TEST(VllmBench, WhatIsNotRecognisedIsNamed) {
  const auto without = [](const char* name) {
    json file = vllm();
    file.erase(name);
    return problems_in(file.dump());
  };
  for (const char* list : {"input_lens", "output_lens", "ttfts", "itls"}) {
    EXPECT_EQ(without(list), fmt::format("exit 3\nhas no list {} | FILE | save it with vllm bench serve --save-result "
                                         "--save-detailed",
                                         list));
  }
  const auto with = [](const char* name, const json& value) {
    json file = vllm();
    file[name] = value;
    return problems_in(file.dump());
  };
  EXPECT_THAT(with("ttfts", {0.1}), HasSubstr("ttfts has 1 elements, input_lens 4"));
  EXPECT_THAT(with("itls", 7), HasSubstr("itls is not a list"));
  EXPECT_THAT(with("ttfts", {0.05, nullptr, 0.07, 0.0}),
              HasSubstr("its element of ttfts is not a number | FILE, request 2"));
  EXPECT_THAT(with("start_times", {1.0, "x", 2.0, 3.0}), HasSubstr("its element of start_times is not a number"));
  EXPECT_THAT(with("input_lens", {100, 4.5, 200, 50}), HasSubstr("input_lens is not a whole number from 1 to"));
  EXPECT_THAT(with("ttfts", {-0.05, 0.1, 0.07, 0.0}), HasSubstr("ttfts is negative: -0.05 s"));
  EXPECT_THAT(with("errors", {"a", "b", "c", "d"}), HasSubstr("all 4 requests failed"));
  EXPECT_THAT(problems_in("{\"model_id\": 1, \"num_prompts\": 2, \"request_rate\": 3"),
              HasSubstr("is not a JSON object"));
}

TEST(GuideLlm, ReadsSuccessfulRequests) {
  const ReadFile file = read(sample("guidellm.json"));
  EXPECT_EQ(file.format, "guidellm-json");
  EXPECT_THAT(file.rows, ElementsAre(Facts{100, 3, 0, 50'000, 72'000}, Facts{400, 2, 500'000, 120'000, 131'000}));
  EXPECT_THAT(file.warnings, ElementsAre(HasSubstr("1 of 3 requests of")));
  json one = {{"prompt_tokens", 5},
              {"output_tokens", 2},
              {"request_start_time", 1.0},
              {"time_to_first_token_ms", 20.0},
              {"request_end_time", 1.5}};
  const auto of = [](const json& request) {
    return json{{"benchmarks", {{{"requests", {{"successful", {request}}}}}}}}.dump();
  };
  EXPECT_THAT(read_text(of(one)).rows, ElementsAre(Facts{5, 2, 0, 20'000, 500'000})) << "names of newer versions";
  one.erase("request_start_time");
  EXPECT_THAT(problems_in(of(one)),
              HasSubstr("has neither start_time nor request_start_time | FILE, successful request 1"));
}

TEST(GuideLlm, WhatIsNotOneRunIsRefused) {
  EXPECT_THAT(problems_in(R"({"benchmarks": []})"), HasSubstr("has no list benchmarks"));
  EXPECT_THAT(problems_in(R"({"benchmarks": [{}, {}]})"), HasSubstr("has 2 benchmarks, and a trace holds one run"));
  EXPECT_THAT(problems_in(R"({"benchmarks": [{"requests": {}}]})"), HasSubstr("has no list requests.successful"));
}

TEST(AiPerf, ReadsItsProfilingPhase) {
  const ReadFile file = read(sample("aiperf.jsonl"));
  EXPECT_EQ(file.format, "aiperf-jsonl");
  EXPECT_THAT(file.rows, ElementsAre(Facts{100, 3, 0, 50'000, 72'000}, Facts{400, 2, 500'000, 120'000, 131'000}));
  EXPECT_THAT(file.warnings, ElementsAre(HasSubstr("1 of 3 requests of")));
}

TEST(AiPerf, UnitsAreReadAndUnknownOnesRefused) {
  const auto with = [](const json& ttft) {
    return json{{"metadata", {{"request_start_ns", 5}}},
                {"metrics",
                 {{"input_sequence_length", {{"value", 9}, {"unit", "tokens"}}},
                  {"output_sequence_length", {{"value", 2}, {"unit", "tokens"}}},
                  {"time_to_first_token", ttft},
                  {"request_latency", {{"value", 2}, {"unit", "s"}}}}}}
        .dump();
  };
  EXPECT_THAT(read_text(with({{"value", 30}, {"unit", "us"}})).rows, ElementsAre(Facts{9, 2, 0, 30, 2'000'000}));
  EXPECT_THAT(problems_in(with({{"value", 30}, {"unit", "min"}})),
              HasSubstr("time_to_first_token is in \"min\", an unknown unit"));
  EXPECT_THAT(problems_in(with({{"value", 30}})), HasSubstr("metrics.time_to_first_token has no value and unit"));
  EXPECT_THAT(problems_in(with({{"value", 3}, {"unit", "s"}})), HasSubstr("metrics.request_latency is before"));
}

ReaderOptions columns(const char* text) { return {.columns = text}; }

// Milliseconds since some zero; the earliest send is time 0. Rows stand in the order in which requests ended.
TEST(MappedColumns, CsvInAnyNamesAndUnits) {
  const ReadFile file = read_text(
      "ts,who,in,out,first,last\n2500,b,200,5,2580,2800\n1000,a,100,10,1050,1500\n",
      columns("input_tokens=in,output_tokens=out,arrival_s=ts/1000,first_token_s=first/1000,end_s = last * 0.001"),
      ".csv");
  EXPECT_EQ(file.format, "mapped");
  EXPECT_THAT(file.rows, ElementsAre(Facts{100, 10, 0, 50'000, 500'000}, Facts{200, 5, 1'500'000, 80'000, 300'000}));
}

TEST(MappedColumns, JsonLinesWithNestedKeys) {
  const ReadFile file = read_text(
      "{\"t\": {\"sent\": 1}, \"a.b\": 7, \"out\": \"3\"}\n\n{\"t\": {\"sent\": 2.5}, \"a.b\": 8, \"out\": 0}\n",
      columns("input_tokens=a.b,output_tokens=out,arrival_s=t.sent"));
  EXPECT_THAT(file.rows, ElementsAre(Facts{7, 3, 0, -1, -1}, Facts{8, 1, 1'500'000, -1, -1}));
}

TEST(MappedColumns, ConversationsAndClientsAreKept) {
  const TempFile file("c,n,i,o,u\nx,1,10,5,ann\nx,2,20,5,ann\ny,1,7,5,bob\n", ".csv");
  const OpenedTrace trace =
      open_trace(file.path(), "auto", columns("input_tokens=i,output_tokens=o,conversation=c,turn=n,client=u"));
  const std::vector<TraceRow> rows = drain(*trace.reader);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].conversation, rows[1].conversation);
  EXPECT_NE(rows[0].conversation, rows[2].conversation);
  EXPECT_EQ(rows[1].turn, 2);
  EXPECT_EQ(rows[0].client, rows[1].client);
  EXPECT_NE(rows[0].client, rows[2].client);
  EXPECT_FALSE(trace.reader->has_times());
}

TEST(MappedColumns, AMappingThatCannotBeIsRefused) {
  const auto problem = [](const char* text) {
    std::vector<Problem> problems;
    (void)parse_columns(text, problems);
    return problems.empty() ? std::string() : problems.front().what + " | " + problems.front().fix;
  };
  EXPECT_THAT(problem("input_tokens=a,output_tokens=b/c"), IsEmpty()) << "a name may hold a slash";
  EXPECT_THAT(problem("input_tokens=a"), HasSubstr("output_tokens is missing"));
  EXPECT_THAT(problem("input_tokens"), HasSubstr("\"input_tokens\" is not target=source"));
  EXPECT_THAT(problem("input_token=a"), HasSubstr("did you mean \"input_tokens\"?"));
  EXPECT_THAT(problem("input_tokens=a,output_tokens=b,xyz=c"), HasSubstr("targets: input_tokens, output_tokens"));
  EXPECT_THAT(problem("input_tokens=a/0,output_tokens=b"), HasSubstr("no number above 0 as its factor"));
  EXPECT_THAT(problem("input_tokens=a,input_tokens=b"), HasSubstr("input_tokens is given twice"));
  EXPECT_THAT(problem("input_tokens=a,output_tokens=b,client=c/2"),
              HasSubstr("client and conversation are texts: leave the factor out"));
  EXPECT_THAT(problem("input_tokens=a,output_tokens=b,end_s=c"), HasSubstr("give arrival_s, or e2e_s"));
  EXPECT_THAT(problem("input_tokens=a,output_tokens=b,arrival_s=t,end_s=c,e2e_s=d"),
              HasSubstr("end_s and e2e_s say the same"));
  EXPECT_THAT(problem("input_tokens=a,output_tokens=b,turn=c"), HasSubstr("turn needs conversation"));
}

TEST(MappedColumns, WhatTheFileDoesNotHaveIsNamed) {
  EXPECT_EQ(problems_in("in,out\n1,2\n", columns("input_tokens=inn,output_tokens=out")),
            "exit 3\ncolumn inn is missing; there is a column \"in\" | FILE, row 1 | name columns of the file in "
            "workload.columns");
  EXPECT_EQ(problems_in("{\"in\": 1, \"m\": {\"out\": 2}}", columns("input_tokens=in,output_tokens=m.ou")),
            "exit 2\nthe first object of FILE has no \"m.ou\" | workload.columns | did you mean \"m.out\"?");
  EXPECT_THAT(problems_in("in,out\n1,x\n", columns("input_tokens=in,output_tokens=out")),
              HasSubstr("\"x\" is not a number"));
  EXPECT_THAT(problems_in("in,out,t\n1,2,\n", columns("input_tokens=in,output_tokens=out,arrival_s=t")),
              HasSubstr("the request has no t"));
  EXPECT_THAT(problems_in("in,out,t\n1.5,2,0\n", columns("input_tokens=in,output_tokens=out,arrival_s=t")),
              HasSubstr("in is not a whole number from 1"));
}

TEST(MappedColumns, TwoClocksAreRefused) {
  const auto of = [](const char* row) {
    return problems_in(std::string("in,out,sent,first,end\n") + row,
                       columns("input_tokens=in,output_tokens=out,arrival_s=sent,first_token_s=first,end_s=end"));
  };
  EXPECT_THAT(of("1,2,1760000000,12.5,13\n"),
              HasSubstr("first 12.500000 is before sent 1760000000.000000: the two are of different clocks"));
  EXPECT_THAT(of("1,2,5,1760000000,1760000001\n"),
              HasSubstr("is more than a year after sent 5.000000: the two are of different clocks"));
  EXPECT_THAT(of("1,2,5,4.5,6\n"), HasSubstr("first 4.500000 is before sent 5.000000"));
  EXPECT_THAT(of("1,2,5,7,6\n"), HasSubstr("end is before first"));
}

TEST(EngineLogOfAFile, IsWhatTheClientMeasured) {
  const EngineLog log = read_engine_log(sample("vllm-bench.json"), {});
  ASSERT_EQ(log.requests.size(), 3U);
  EXPECT_TRUE(log.client_stamps);
  EXPECT_FALSE(log.waits_known);
  EXPECT_EQ(log.requests[1].input, Tokens(400));
  EXPECT_DOUBLE_EQ(log.requests[1].queued, 0.5);
  EXPECT_DOUBLE_EQ(log.requests[1].first_token, 0.62);
  EXPECT_DOUBLE_EQ(log.requests[1].last_token, 0.631);
  EXPECT_THAT(log.warnings,
              testing::Contains(HasSubstr("the file does not say how the engine ran: give memory.gpu_kv")));
  EXPECT_THAT(log.settings, IsEmpty());
}

TEST(EngineLogOfAFile, NeedsSendsAndBothTimes) {
  const auto problem = [](const std::string& content, const char* map = "") {
    const TempFile file(content, ".csv");
    return problems_of([&] { (void)read_engine_log(file.path(), {.columns = map}); }, file.path());
  };
  EXPECT_THAT(problem("input_tokens,output_tokens\n1,2\n"), HasSubstr("state no time at which they were sent"));
  EXPECT_THAT(problem("input_tokens,output_tokens,arrival_s\n1,2,0\n"), HasSubstr("states no time of its first token"));
  EXPECT_THAT(problem("i,o,t,f\n1,2,0,1\n", "input_tokens=i,output_tokens=o,arrival_s=t,first_token_s=f"),
              HasSubstr("states no time of its last token"));
  EXPECT_THAT(problem("i,o,t,f\n1,2,0,1\n", "input_tokens=i,output_tokens=o,arrival_s=t,ttft_s=f,e2e_s=f"),
              HasSubstr("the first and the last of 2 output tokens have the same time"));
  EXPECT_THAT(problems_of([] { (void)read_engine_log("/nowhere", {}); }), HasSubstr("neither a folder nor a file"));
}

TEST(EngineLogOfAFile, RequestsOfAFolderStandAlone) {
  const std::string path = source_dir() + "/experiments/validation/sample-log/requests.jsonl";
  const EngineLog log = read_engine_log(path, {});
  EXPECT_EQ(log.requests.size(), 60U);
  EXPECT_TRUE(log.waits_known);
}

}  // namespace
}  // namespace spillway::traces
