// trace info, convert and synth as a user calls them.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/cli/command.hpp"
#include "tests/support/paths.hpp"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

class TraceCommand : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    write_text(file("trace.csv"), kTrace);
  }
  /// Expects that the command ends with `code`, prints each of `parts` on stderr, and leaves no new file.
  void refused(int code, const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
    const std::ptrdiff_t before = files_left();
    std::vector<std::string> all{"trace"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Output run = spillway(all);
    EXPECT_EQ(run.code, code) << run.err;
    EXPECT_THAT(run.out, IsEmpty());
    for (const std::string& part : parts) EXPECT_THAT(run.err, HasSubstr(part));
    EXPECT_EQ(files_left(), before) << "something was left behind";
  }
  [[nodiscard]] std::string trace_text() const { return read_file(file("trace.csv")); }
  /// Metrics and warnings of a run. They do not name the run's trace.
  [[nodiscard]] json outcome(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"run", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const Output run = spillway(all);
    EXPECT_EQ(run.code, 0) << run.err;
    const json result = json::parse(run.out);
    return {result["metrics"], result["conservation"]};
  }

  static constexpr const char* kTrace =
      "arrival_s,input_tokens,output_tokens,client,class,conversation,turn\n"
      "0,100,10,a,chat,x,1\n0.5,200,20,b,batch,,\n2,300,30,a,chat,x,2\n4,400,40,c,,y,1\n";
};

TEST_F(TraceCommand, InfoTellsWhatATraceHolds) {
  const Output info = spillway({"trace", "info", "trace.csv"});
  ASSERT_EQ(info.code, 0) << info.err;
  EXPECT_THAT(info.err, IsEmpty());
  for (const char* part :
       {"native-csv", "Requests       4", "0 s to 4 s, mean rate 0.75 requests/s", "2 of 3 requests", "mean 1.5",
        "none: 1, chat: 2, batch: 1", "Clients        3", "  input                 250", "64-127", "#"}) {
    EXPECT_THAT(info.out, HasSubstr(part));
  }
  std::istringstream lines(info.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

TEST_F(TraceCommand, InfoGivesEveryNumberAsJson) {
  const Output info = spillway({"trace", "info", "trace.csv", "--json"});
  ASSERT_EQ(info.code, 0) << info.err;
  const json all = json::parse(info.out);
  EXPECT_EQ(all["format"], "native-csv");
  EXPECT_EQ(all["requests"], 4);
  EXPECT_EQ(all["arrivals"]["span_s"], 4.0);
  EXPECT_EQ(all["arrivals"]["mean_rate_per_s"], 0.75);
  EXPECT_EQ(all["conversations"]["count"], 2);
  EXPECT_EQ(all["conversations"]["turns"]["max"], 2);
  // The second turn of x repeats the 100 + 10 tokens before it, of 100 + 200 + 300 + 400 prompt tokens in all.
  EXPECT_EQ(all["conversations"]["repeated_share_of_input"], 0.11);
  EXPECT_EQ(all["think_s"], nullptr);
  EXPECT_EQ(all["clients"]["count"], 3);
  EXPECT_EQ(all["classes"][1]["name"], "chat");
  EXPECT_EQ(all["prefix_reuse"], nullptr);
  EXPECT_EQ(all["input_tokens"]["mean"], 250.0);
  EXPECT_EQ(all["input_tokens"]["p50"], 250.0);
  EXPECT_EQ(all["output_tokens"]["max"], 40);
  EXPECT_EQ(all["output_tokens"]["histogram"][0], json({{"least", 8}, {"most", 15}, {"requests", 1}}));
}

TEST_F(TraceCommand, InfoOfABundledWorkloadTakesSettings) {
  const Output info = spillway({"trace", "info", "sharegpt", "--json", "workload.requests=50", "workload.rate=2"});
  ASSERT_EQ(info.code, 0) << info.err;
  const json all = json::parse(info.out);
  EXPECT_EQ(all["name"], "sharegpt");
  EXPECT_EQ(all["format"], "quantile-table");
  EXPECT_EQ(all["requests"], 50);
}

TEST_F(TraceCommand, InfoCountsBadRowsWhenItMaySkipThem) {
  write_text(file("bad.csv"), std::string(kTrace) + "5,0,1,,,,\n6,7,8,,,,\n");
  refused(3, {"info", "bad.csv"}, {"0 tokens: from 1 to 16777216", "bad.csv, row 6"});
  const Output info = spillway({"trace", "info", "bad.csv", "--skip-bad-rows", "--json"});
  ASSERT_EQ(info.code, 0) << info.err;
  const json all = json::parse(info.out);
  EXPECT_EQ(all["requests"], 5);
  EXPECT_EQ(all["skipped_rows"], 1);
  EXPECT_THAT(all["first_skipped"], HasSubstr("row 6"));
}

TEST_F(TraceCommand, ConvertedThereAndBackItIsTheSame) {
  for (const char* name : {"a.bin", "a.jsonl", "a.csv"}) {
    const Output convert = spillway({"trace", "convert", "trace.csv", "-o", name});
    ASSERT_EQ(convert.code, 0) << convert.err;
    EXPECT_THAT(convert.out, IsEmpty());
    EXPECT_THAT(convert.err, HasSubstr(std::string("4 requests are in ") + name));
    const Output back = spillway({"trace", "convert", name, "-o", "back.csv"});
    ASSERT_EQ(back.code, 0) << back.err;
    const auto numbers = [&](const std::string& trace) {
      json all = json::parse(spillway({"trace", "info", trace, "--json"}).out);
      for (const char* key : {"name", "format", "sha256", "source"}) all.erase(key);
      return all;
    };
    EXPECT_EQ(numbers(name), numbers("trace.csv"));
    EXPECT_EQ(numbers("back.csv"), numbers("trace.csv"));
  }
  const json source = json::parse(spillway({"trace", "info", "a.bin", "--json"}).out)["source"];
  EXPECT_EQ(source["name"], "trace.csv");
  EXPECT_EQ(source["format"], "native-csv");
  ASSERT_EQ(spillway({"trace", "convert", "a.bin", "-o", "b.bin"}).code, 0);
  EXPECT_EQ(read_file(file("a.bin")), read_file(file("b.bin"))) << "a copy names the same source";
}

TEST_F(TraceCommand, ConvertTakesTheFormatFromTheNameUnlessTold) {
  ASSERT_EQ(spillway({"trace", "convert", "trace.csv", "-o", "x", "--format", "native-jsonl"}).code, 0);
  EXPECT_THAT(read_file(file("x")), testing::StartsWith("{\"arrival_s\": 0, "));
  ASSERT_EQ(spillway({"trace", "convert", "trace.csv", "-o", "x.csv", "--format", "native-binary"}).code, 0);
  EXPECT_THAT(read_file(file("x.csv")), testing::StartsWith("\x89SWT"));
  refused(2, {"convert", "trace.csv", "-o", "x.txt"}, {"so the format is unknown", "--format native-binary|"});
  refused(2, {"convert", "trace.csv", "-o", "x.csv.gz"}, {"so the format is unknown"});
}

TEST_F(TraceCommand, ConvertToStandardOutput) {
  const Output convert = spillway({"trace", "convert", "trace.csv", "-o", "/dev/stdout", "--format", "native-csv"});
  EXPECT_EQ(convert.code, 0) << convert.err;
  EXPECT_THAT(convert.out,
              testing::StartsWith("arrival_s,input_tokens,output_tokens,client,conversation,turn,class\n"));
}

TEST_F(TraceCommand, ConvertSaysWhatItChanged) {
  write_text(file("azure.csv"),
             "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,100,0\n2023-11-16 18:00:01,0,5\n");
  const Output convert = spillway({"trace", "convert", "azure.csv", "-o", "a.bin", "--skip-bad-rows"});
  EXPECT_EQ(convert.code, 0) << convert.err;
  EXPECT_THAT(convert.err, HasSubstr("1 of 1 requests generated 0 tokens"));
  EXPECT_THAT(convert.err, HasSubstr("1 bad rows were skipped; the first: azure.csv, row 3"));
}

TEST_F(TraceCommand, SynthWritesTheRequestsOfTheRun) {
  const std::vector<std::string> settings{"workload.trace=sharegpt", "workload.rate=20", "workload.requests=200",
                                          "seed=3", "workload.clients=3"};
  const json expected = outcome(settings);
  for (const char* name : {"s.bin", "s.jsonl", "s.csv"}) {
    std::vector<std::string> synth{"trace", "synth", "-o", name};
    synth.insert(synth.end(), settings.begin(), settings.end());
    const Output run = spillway(synth);
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(outcome({std::string("workload.trace=./") + name}), expected) << name;
  }
}

TEST_F(TraceCommand, SynthKeepsPrefixes) {
  const std::string trace = std::string("workload.trace=") + source_dir() + "/traces/samples/mooncake.jsonl";
  ASSERT_EQ(spillway({"trace", "synth", trace, "-o", "s.bin"}).code, 0);
  EXPECT_EQ(outcome({"workload.trace=./s.bin"}), outcome({trace}));
  refused(3, {"synth", trace, "-o", "s.csv"}, {"native-csv cannot hold the prefix ids", "nothing was written"});
}

TEST_F(TraceCommand, BadInputIsTold) {
  write_text(file("empty.csv"), "");
  write_text(file("header.csv"), "input_tokens,output_tokens\n");
  refused(3, {"info", "nope.csv"}, {"there is no such file", "nope.csv"});
  refused(3, {"convert", "nope.csv", "-o", "a.bin"}, {"there is no such file"});
  refused(2, {"info", "sharegp"}, {"neither a file nor a bundled workload", "did you mean \"sharegpt\"?"});
  refused(3, {"info", "empty.csv"}, {"the file is empty"});
  refused(3, {"convert", "empty.csv", "-o", "a.bin"}, {"the file is empty", "nothing was written"});
  refused(3, {"info", "header.csv"}, {"the trace holds no request"});
  refused(3, {"convert", "header.csv", "-o", "a.bin"}, {"the trace holds no request"});
  refused(2, {"info", "trace.csv", "--jsn"}, {"--jsn", "did you mean \"--json\"?"});
  refused(2, {"info", "trace.csv", "workload.format=azure-cvs"}, {"did you mean \"azure-csv\"?"});
  refused(2, {"info", "trace.csv", "workload.rate=3"}, {"has no effect on the rows of a file", "workload.rate=3"});
  refused(2, {"convert", "trace.csv", "-o", "a.bin", "--format", "parquet"}, {"parquet", "native-binary"});
  refused(2, {"convert", "trace.csv"}, {"--out is required"});
  refused(2, {"synth", "workload.trace=sharegp", "-o", "a.bin"}, {"did you mean \"sharegpt\"?"});
  refused(2, {"synth", "workload.trace=./trace.csv", "workload.cv=2", "-o", "a.bin"},
          {"workload.cv is for workload.arrival=gamma", "argument workload.cv=2"});
  refused(2, {"inof", "trace.csv"}, {"unknown command \"inof\"", "did you mean \"info\"?"});
  refused(2, {}, {"commands: info, convert, synth"});
}

TEST_F(TraceCommand, TheRequestsOfARunAreATrace) {
  for (const char* name : {"requests.jsonl", "requests.csv"}) {
    const std::vector<std::string> settings{"workload.trace=sharegpt", "workload.rate=20", "workload.requests=200",
                                            "workload.clients=3", "seed=3"};
    std::vector<std::string> more = settings;
    more.insert(more.end(), {"--requests-out", name});
    const json expected = outcome(more);
    EXPECT_EQ(outcome({std::string("workload.trace=./") + name}), expected) << name;
    const Output info = spillway({"trace", "info", name, "--json"});
    ASSERT_EQ(info.code, 0) << info.err;
    const json all = json::parse(info.out);
    EXPECT_EQ(all["format"], std::string("requests-") + (std::string(name).substr(9)));
    EXPECT_EQ(all["requests"], 200);
    EXPECT_EQ(all["clients"]["count"], 3);
  }
}

TEST_F(TraceCommand, ARunOfConversationsRepeatsFromItsRequests) {
  // A replay with equal settings gives answers at the same times, so no turn waits beyond its time.
  const std::vector<std::string> chat{"workload.trace=sharegpt-chat", "workload.rate=5", "workload.requests=60",
                                      "--requests-out", "requests.jsonl"};
  const json first = outcome(chat);
  const json again = outcome({"workload.trace=./requests.jsonl"});
  EXPECT_EQ(again[0]["input_tokens"], first[0]["input_tokens"]);
  EXPECT_EQ(again[0]["output_tokens"], first[0]["output_tokens"]);
  EXPECT_EQ(again[1]["all"]["finished"], 60);
  const json info = json::parse(spillway({"trace", "info", "requests.jsonl", "--json"}).out);
  EXPECT_EQ(info["conversations"]["requests"], 60);
}

TEST_F(TraceCommand, TheRequestsOfAnEngineAreATrace) {
  const std::string log = source_dir() + "/experiments/validation/sample-log/requests.jsonl";
  const json info = json::parse(spillway({"trace", "info", log, "--json"}).out);
  EXPECT_EQ(info["format"], "engine-log");
  EXPECT_EQ(info["requests"], 60);
  EXPECT_EQ(info["arrivals"]["first_s"], 0.0);
  EXPECT_EQ(outcome({"workload.trace=" + log})[1]["all"]["finished"], 60);
}

// A log may note a request before an earlier one; time 0 is the earliest arrival.
TEST_F(TraceCommand, ALogWhoseFirstRowIsNotItsEarliestStartsAtItsEarliest) {
  write_text(file("azure.csv"),
             "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00.5,10,20\n2023-11-16 18:00:00.25,11,21\n"
             "2023-11-16 18:00:02.5,12,22\n");
  const Output converted = spillway({"trace", "convert", "azure.csv", "-o", "out.csv"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  const json info = json::parse(spillway({"trace", "info", "out.csv", "--json"}).out);
  EXPECT_EQ(info["arrivals"]["first_s"], 0.0);
  EXPECT_EQ(info["arrivals"]["last_s"], 2.25);
}

TEST_F(TraceCommand, WhatIsNoRegularFileIsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(file("fifo").c_str(), 0600), 0);
  std::filesystem::create_directory(file("folder"));
  std::filesystem::create_symlink("loop", file("loop"));
  struct Case {
    const char* name;
    const char* what;
  };
  for (const auto& [name, what] :
       {Case{"/dev/zero", "not a regular file"}, Case{"./fifo", "not a regular file"}, Case{"./folder", "folder"},
        Case{"./loop", "symbolic links"}, Case{"/proc/self/mem", "the file is empty"}}) {
    refused(3, {"info", name}, {what, name});
    refused(3, {"convert", name, "-o", "a.bin"}, {what, name, "nothing was written"});
    const Output run = spillway({"run", std::string("workload.trace=") + name});
    EXPECT_EQ(run.code, 3) << name;
    EXPECT_THAT(run.err, testing::AllOf(testing::StartsWith("error: "), HasSubstr(name)));
  }
}

TEST_F(TraceCommand, OutputsThatCannotBeWrittenAreTold) {
  refused(2, {"convert", "trace.csv", "-o", "no-folder/a.bin"}, {"cannot create the file no-folder/a.bin"});
  refused(2, {"synth", "-o", "no-folder/a.bin"}, {"cannot create the file no-folder/a.bin"});
  refused(2, {"convert", "trace.csv", "-o", "trace.csv"},
          {"the output would replace the trace that it is converted from"});
  EXPECT_EQ(trace_text(), kTrace);
  if (std::filesystem::exists("/dev/full")) {
    refused(2, {"convert", "trace.csv", "-o", "/dev/full", "--format", "native-csv"}, {"No space left on device"});
  }
  ASSERT_EQ(spillway({"trace", "convert", "trace.csv", "-o", "a.bin"}).code, 0);
  const std::string before = read_file(file("a.bin"));
  write_text(file("bad.csv"), "input_tokens,output_tokens\n1,1\n0,1\n");
  refused(3, {"convert", "bad.csv", "-o", "a.bin"}, {"bad.csv, row 3", "nothing was written"});
  EXPECT_EQ(read_file(file("a.bin")), before) << "a failure leaves the file that was there";
}

TEST_F(TraceCommand, AnInterruptLeavesNothingBehind) {
  const pid_t child = start({"trace", "synth", "workload.requests=200000000", "-o", "big.bin"});
  // The file's temporary name shows that the command has begun.
  for (int i = 0; i < 1000 && files_left() == 1; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ::kill(child, SIGINT);
  const Output synth = wait_for(child);
  EXPECT_EQ(synth.code, 130) << synth.err;
  EXPECT_THAT(synth.err, HasSubstr("interrupted; nothing was written"));
  EXPECT_EQ(files_left(), 1) << "trace.csv";
}

TEST_F(TraceCommand, ACutBinaryTraceIsTold) {
  ASSERT_EQ(spillway({"trace", "convert", "trace.csv", "-o", "a.bin"}).code, 0);
  const std::string whole = read_file(file("a.bin"));
  write_text(file("cut.bin"), whole.substr(0, whole.size() - 5));
  refused(3, {"info", "cut.bin"}, {"the file ends in the middle", "cut.bin, byte " + std::to_string(whole.size() - 5)});
}

TEST_F(TraceCommand, HelpShowsExamples) {
  for (const char* name : {"info", "convert", "synth"}) {
    const Output help = spillway({"trace", name, "--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_THAT(help.out, HasSubstr(std::string("Example: spillway trace ") + name));
    EXPECT_THAT(help.out, HasSubstr("Exit codes: 0 ok"));
  }
}

TEST_F(TraceCommand, ColumnsMayHaveAnyNames) {
  write_text(file("mine.csv"), "ts,in,out\n1000,100,10\n2000,200,5\n");
  const std::string map = "workload.columns=input_tokens=in,output_tokens=out,arrival_s=ts/1000";
  EXPECT_EQ(outcome({"workload.trace=./mine.csv", map})[1]["all"]["finished"], 2);
  const json info = json::parse(spillway({"trace", "info", "mine.csv", map, "--json"}).out);
  EXPECT_EQ(info["format"], "mapped");
  EXPECT_EQ(info["arrivals"]["last_s"], 1.0);
  const Output bundled = spillway({"run", map});
  EXPECT_EQ(bundled.code, 2);
  EXPECT_THAT(bundled.err, HasSubstr("workload.columns is for trace files"));
  const Output twice = spillway({"run", "workload.trace=./mine.csv", map, "workload.format=azure-csv"});
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, HasSubstr("workload.columns says what the columns of the file mean"));
}

TEST_F(TraceCommand, SessionsAreConversations) {
  write_text(file("mine.jsonl"),
             "{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 50, \"hash_ids\": [1, 2]}\n"
             "{\"timestamp\": 1000, \"input_length\": 700, \"output_length\": 5, \"hash_ids\": [8, 9]}\n"
             "{\"timestamp\": 2000, \"input_length\": 1100, \"output_length\": 80, \"hash_ids\": [1, 3, 4]}\n");
  const std::string sessions = "workload.sessions=prefix";
  const json plain = json::parse(spillway({"trace", "info", "mine.jsonl", "--json"}).out);
  EXPECT_TRUE(plain["conversations"].is_null());
  const json info = json::parse(spillway({"trace", "info", "mine.jsonl", sessions, "--json"}).out);
  EXPECT_EQ(info["conversations"]["count"], 2);
  EXPECT_EQ(spillway({"trace", "convert", "mine.jsonl", "-o", "turns.jsonl", sessions}).code, 0);
  const json converted = json::parse(spillway({"trace", "info", "turns.jsonl", "--json"}).out);
  EXPECT_EQ(converted["conversations"], info["conversations"]);
  const auto whole = outcome({"workload.trace=./mine.jsonl", sessions});
  EXPECT_EQ(whole[1]["all"]["finished"], 3);
  const Output refused = spillway({"trace", "info", "turns.jsonl", sessions});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("turns.jsonl names its conversations itself"));
}

}  // namespace
}  // namespace spillway::test
