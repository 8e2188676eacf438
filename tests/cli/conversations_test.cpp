// Conversations, texts and faulty traces through the whole program.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.hpp"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class Conversations : public CliTest {
 protected:
  [[nodiscard]] json run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"run", "--json"});
    const Output output = spillway(arguments);
    EXPECT_EQ(output.code, 0) << output.err;
    return output.code == 0 ? json::parse(output.out) : json();
  }
  [[nodiscard]] std::vector<json> rows(const std::string& name) const {
    std::vector<json> all;
    std::istringstream lines(read_file(file(name)));
    for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
    return all;
  }
};

// Under load, answers are late. A turn comes after the previous answer, never earlier, and its prompt repeats the
// conversation unless that would be too long.
TEST_F(Conversations, NoTurnComesBeforeTheAnswerUnderAnyPolicy) {
  for (const char* policy : {"vllm", "vllm-v0", "sarathi", "orca", "tensorrt-llm", "swiftllm", "vtc"}) {
    const json result = run({std::string("policy=") + policy, "workload.trace=sharegpt-chat", "workload.rate=60",
                             "workload.requests=600", "workload.think_time=2s", "workload.max_context=3000",
                             "workload.start=empty", "--requests-out", "r.jsonl"});
    EXPECT_EQ(result["conservation"]["all"]["submitted"], 600) << policy;
    EXPECT_EQ(result["conservation"]["all"]["finished"], 600) << policy;
    struct Turn {
      std::int64_t arrival = 0;
      std::int64_t end = 0;
      std::int64_t input = 0;
      std::int64_t output = 0;
    };
    std::map<std::int64_t, std::map<std::int64_t, Turn>> conversations;
    for (const json& row : rows("r.jsonl")) {
      conversations[row["conversation"]][row["turn"]] = {row["arrival_ns"], row["end_ns"], row["input_tokens"],
                                                         row["output_tokens"]};
    }
    std::int64_t later = 0;
    std::int64_t cut = 0;
    for (const auto& [number, turns] : conversations) {
      const Turn* before = nullptr;
      std::int64_t expected = 1;
      for (const auto& [turn, now] : turns) {
        ASSERT_EQ(turn, expected++) << policy << ", conversation " << number;
        ASSERT_LE(now.input + now.output, 3000);
        if (before != nullptr) {
          ASSERT_GT(now.arrival, before->end) << policy << ", conversation " << number << ", turn " << turn;
          const bool whole = now.input > before->input + before->output;
          ASSERT_TRUE(whole || now.input + now.output == 3000) << policy << ", turn " << turn;
          ++later;
          cut += whole ? 0 : 1;
        }
        before = &now;
      }
    }
    EXPECT_GT(later, 400);
    EXPECT_GT(cut, 0);
  }
}

TEST_F(Conversations, TurnsAfterATimeOutAreNeverSentAndThatIsSaid) {
  const json result =
      run({"workload.trace=sharegpt-chat", "workload.rate=400", "workload.requests=2000", "workload.think_time=1s",
           "workload.start=empty", "engine.request_timeout=2s", "memory.gpu_kv=2GB"});
  const std::int64_t submitted = result["conservation"]["all"]["submitted"];
  const std::int64_t unsent = result["conservation"]["unsent"];
  EXPECT_GT(result["conservation"]["all"]["timed_out"], 0);
  EXPECT_GT(unsent, 0);
  EXPECT_EQ(submitted + unsent, 2000);
  EXPECT_THAT(result["warnings"].dump(), HasSubstr(std::to_string(unsent) + " later turns were never sent"));
}

TEST_F(Conversations, PrefixCachingFindsWhatATurnRepeats) {
  const std::vector<std::string> chats{"workload.trace=sharegpt-chat", "workload.requests=500", "workload.start=empty"};
  const json cached = run(chats);
  std::vector<std::string> arguments = chats;
  arguments.emplace_back("engine.prefix_caching=false");
  const json uncached = run(arguments);
  EXPECT_EQ(cached["setup"]["prefix_caching"], true);
  EXPECT_GT(cached["metrics"]["prefix_cache_hit_fraction"]["value"], 0.8);
  EXPECT_LT(cached["metrics"]["mean_ttft_ms"]["value"], uncached["metrics"]["mean_ttft_ms"]["value"]);
}

// No request meets limits of 1 ns, and all meet limits of an hour. The third request has no limits, so it meets them.
TEST_F(Conversations, GoodputHoldsARequestToItsOwnLimits) {
  write_text(
      file("slo.csv"),
      "arrival_s,input_tokens,output_tokens,slo_ttft_ms,slo_e2e_ms\n0,100,10,0.000001,\n1,100,10,3600000,3600000\n"
      "2,100,10,,\n3,100,10,,0.000001\n");
  const json own = run({"workload.trace=./slo.csv"});
  EXPECT_DOUBLE_EQ(own["metrics"]["slo_met_fraction"]["value"], 0.5);
  const json both = run({"workload.trace=./slo.csv", "slo.ttft_ms=0.000001"});
  EXPECT_DOUBLE_EQ(both["metrics"]["slo_met_fraction"]["value"], 0.25) << "only the second has a limit of its own";
}

TEST_F(Conversations, BadRowsAreSkippedOnRequestAndCounted) {
  write_text(file("bad.csv"), "arrival_s,input_tokens,output_tokens\n0,100,10\n1,-5,10\n2,100,10\n");
  const Output refused = spillway({"run", "workload.trace=./bad.csv"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err, HasSubstr("-5 tokens: from 1 to 16777216 are possible"));
  EXPECT_THAT(refused.err, HasSubstr("./bad.csv, row 3, column input_tokens"));
  const json result = run({"workload.trace=./bad.csv", "--skip-bad-rows"});
  EXPECT_EQ(result["setup"]["skipped_rows"], 1);
  EXPECT_EQ(result["conservation"]["all"]["submitted"], 2);
  EXPECT_THAT(result["warnings"].dump(), HasSubstr("1 of 3 rows of ./bad.csv were skipped"));
  const Output table = spillway({"run", "workload.trace=./bad.csv", "--skip-bad-rows"});
  EXPECT_THAT(table.out, HasSubstr("1 of 3 rows of ./bad.csv were skipped"));
}

TEST_F(Conversations, ATokenizerThatIsMissingOrNoneIsAnError) {
  write_text(file("chat.json"), R"([{"conversations": [{"from": "human", "value": "Hello there, you."},)"
                                R"({"from": "gpt", "value": "Good day"}]}])");
  const auto with = [&](const std::string& tokenizer) {
    return spillway({"run", "--json", "workload.trace=./chat.json", "workload.rate=1",
                     "workload.tokenizer=" + tokenizer, "--requests-out", "r.jsonl"});
  };
  const Output estimated = with("estimate");
  ASSERT_EQ(estimated.code, 0) << estimated.err;
  const json result = json::parse(estimated.out);
  EXPECT_THAT(result["warnings"].dump(), HasSubstr("4 characters per token"));
  // 17 and 8 characters: 5 and 2 tokens.
  const std::vector<json> counted = rows("r.jsonl");
  ASSERT_EQ(counted.size(), 1U);
  EXPECT_EQ(counted[0]["input_tokens"], 5);
  EXPECT_EQ(counted[0]["output_tokens"], 2);
  const Output missing = with("nowhere.model");
  EXPECT_EQ(missing.code, 3);
  EXPECT_THAT(missing.err, HasSubstr("nowhere.model"));
  write_text(file("text.model"), "this is no model");
  EXPECT_EQ(with("text.model").code, 3);
  EXPECT_EQ(with("gpt2:nowhere").code, 3);
  const Output unknown = with("tiktoken");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("unknown tokenizer \"tiktoken\""));
}

// 500 turns at 8 requests/s last 62.5 s; their deviation is at most that of a Poisson process, 1 / sqrt(500) = 4.5%.
// From empty, conversations start every 0.695 s, and their later turns come minutes later.
TEST_F(Conversations, StartInBalance) {
  const auto offered = [&](const std::vector<std::string>& extra) {
    std::vector<std::string> arguments{"workload.trace=sharegpt-chat", "workload.rate=8", "workload.requests=500",
                                       "--requests-out", "r.jsonl"};
    arguments.insert(arguments.end(), extra.begin(), extra.end());
    const json result = run(arguments);
    EXPECT_EQ(result["conservation"]["all"]["finished"], 500);
    const double seconds = rows("r.jsonl").back()["arrival_ns"].get<double>() / 1e9;
    return std::pair(500.0 / seconds, result["setup"]["workload"].get<std::string>());
  };
  const auto [balanced, said] = offered({});
  EXPECT_NEAR(balanced, 8.0, 3 * 0.045 * 8.0);
  EXPECT_THAT(said, HasSubstr("in balance from 0 (caches are empty)"));
  const auto [from_empty, not_said] = offered({"workload.start=empty"});
  EXPECT_LT(from_empty, 2.0);
  EXPECT_THAT(not_said, testing::Not(HasSubstr("balance")));
  // A file without times: 60 conversations of 3 turns.
  std::string file_rows = "input_tokens,output_tokens,conversation,turn\n";
  for (int c = 0; c < 60; ++c) {
    for (int t = 1; t <= 3; ++t) file_rows += fmt::format("{},20,{},{}\n", 120 * t, c, t);
  }
  write_text(file("turns.csv"), file_rows);
  const json of_file =
      run({"workload.trace=./turns.csv", "workload.rate=2", "workload.requests=100", "--requests-out", "r.jsonl"});
  EXPECT_NEAR(100.0 / (rows("r.jsonl").back()["arrival_ns"].get<double>() / 1e9), 2.0, 3 * 0.1 * 2.0);
  EXPECT_THAT(of_file["setup"]["workload"].get<std::string>(), HasSubstr("in balance"));
}

TEST_F(Conversations, ABalanceNeedsAMeanRateOfConversations) {
  const auto refused = [this](const std::vector<std::string>& arguments, const char* what) {
    std::vector<std::string> all{"run", "workload.start=stationary"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Output output = spillway(all);
    EXPECT_EQ(output.code, 2);
    EXPECT_THAT(output.err, HasSubstr(what));
  };
  refused({"workload.trace=sharegpt"}, "the workload has no conversations, so workload.start changes nothing");
  refused({"workload.trace=sharegpt-chat", "workload.concurrency=8"},
          "needs a mean rate at which conversations start, and workload.arrival=all-at-once has none");
  refused({"workload.trace=sharegpt-chat", "workload.rate=1e6"}, "conversations would be in progress at time 0");
  write_text(file("log.csv"), "arrival_s,input_tokens,output_tokens,conversation,turn\n0,9,5,a,1\n1,20,5,a,2\n");
  refused({"workload.trace=./log.csv"},
          "needs a mean rate at which conversations start, and workload.arrival=trace has none");
}

class ClosedLoop : public CliTest {};

TEST_F(ClosedLoop, ARateOrTimesMakeItALimit) {
  const auto workload = [this](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "run");
    arguments.insert(arguments.end(), {"workload.requests=50", "--json"});
    const Output run = spillway(arguments);
    EXPECT_EQ(run.code, 0) << run.err;
    const json result = json::parse(run.out);
    return std::pair(result["setup"]["workload"].get<std::string>(), result["warnings"].dump());
  };
  EXPECT_EQ(workload({"workload.trace=sharegpt", "workload.concurrency=8"}).first,
            "sharegpt, closed loop of 8 requests");
  const auto [limited, late] = workload({"workload.trace=sharegpt", "workload.concurrency=8", "workload.rate=50"});
  EXPECT_EQ(limited, "sharegpt, poisson at 50 requests/s, at most 8 in flight");
  EXPECT_THAT(late, HasSubstr("of 50 requests were sent later than they were due"));
  const auto [seldom, on_time] = workload({"workload.trace=sharegpt", "workload.concurrency=40", "workload.rate=2"});
  EXPECT_THAT(on_time, testing::Not(HasSubstr("later than they were due")));
  write_text(file("timed.csv"), "arrival_s,input_tokens,output_tokens\n0,100,5\n9,100,5\n");
  EXPECT_THAT(workload({"workload.trace=./timed.csv", "workload.concurrency=1"}).first, HasSubstr("trace"));
  write_text(file("lengths.csv"), "input_tokens,output_tokens\n100,5\n100,5\n");
  EXPECT_THAT(workload({"workload.trace=./lengths.csv", "workload.concurrency=1"}).first,
              HasSubstr("closed loop of 1"));
}

TEST_F(ClosedLoop, BadInputIsAnswered) {
  for (const auto& [argument, message] :
       {std::pair("workload.concurrency=0", "workload.concurrency: 0 is out of range"),
        {"workload.ramp=5s", "workload.ramp is the start of workload.concurrency, which is not set"}}) {
    const Output run = spillway({"run", argument});
    EXPECT_EQ(run.code, 2);
    EXPECT_THAT(run.err, HasSubstr(message));
  }
  EXPECT_THAT(spillway({"explain", "workload.clients"}).out, HasSubstr("workload.concurrency"));
}

}  // namespace
}  // namespace spillway::test
