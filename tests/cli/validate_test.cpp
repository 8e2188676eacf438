// `spillway validate`: real and invented request logs against their simulation.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.hpp"
#include "tests/support/paths.hpp"

namespace spillway::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;

using Texts = std::vector<std::string>;

class Validate : public CliTest {
 protected:
  /// The metadata of vLLM on an H100 with 5,000 blocks of 16 tokens.
  static json meta() {
    return {{"model", "meta-llama/Llama-3.1-8B-Instruct"},
            {"vllm_version", "0.19.0"},
            {"engine_kwargs",
             {{"max_num_seqs", 64},
              {"max_num_batched_tokens", 1024},
              {"max_model_len", 8192},
              {"tensor_parallel_size", 1}}},
            {"kv_cache", {{"num_gpu_blocks", 5000}, {"block_size", 16}, {"enable_prefix_caching", false}}},
            {"hardware", {{"device_name", "NVIDIA H100 80GB HBM3"}}}};
  }
  static json row(int number, double queued, double first, double last, int output = 3) {
    return {{"request_id", "bench-" + std::to_string(number)},
            {"input_toks", 100},
            {"output_toks", output},
            {"queued_ts", queued},
            {"scheduled_ts", queued},
            {"first_token_ts", first},
            {"last_token_ts", last}};
  }
  void write_log(const json& about, const std::vector<json>& rows) {
    fs::create_directories(file("log"));
    write_text(file("log/meta.json"), about.dump());
    std::string text;
    for (const json& one : rows) text += one.dump() + "\n";
    write_text(file("log/requests.jsonl"), text);
  }
  /// Expects exit code 3 for the log, each of `parts` on stderr, and no files left behind.
  void refused(const Texts& parts, const Texts& more = {}) {
    Texts arguments{"validate", "log", "--html", "page.html"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Output run = spillway(arguments);
    EXPECT_EQ(run.code, 3) << run.err;
    EXPECT_THAT(run.out, IsEmpty());
    for (const std::string& part : parts) EXPECT_THAT(run.err, HasSubstr(part));
    EXPECT_FALSE(fs::exists(file("page.html")));
  }
};

TEST_F(Validate, ALogThatTheSimulatorWrote_IsReplayedExactly) {
  // 5,000 blocks of 16 tokens of 131,072 bytes.
  const Output run = spillway({"run", "engine.max_num_seqs=64", "engine.max_num_batched_tokens=1024",
                               "engine.max_model_len=8192", "memory.gpu_kv=10485760000B", "workload.trace=sharegpt",
                               "workload.rate=30", "workload.requests=200", "--requests-out", "rows.jsonl"});
  ASSERT_EQ(run.code, 0) << run.err;
  std::istringstream lines(read_file(file("rows.jsonl")));
  std::vector<json> rows;
  for (std::string line; std::getline(lines, line);) {
    const json simulated = json::parse(line);
    const auto stamp = [&](const char* name) { return 5000.0 + simulated[name].get<double>() * 1e-9; };
    // An engine stamps a request once it has passed the front end: 6.3 ms after the send (vllm-0.23.json).
    json logged = row(simulated["index"], stamp("arrival_ns") + 0.0063, stamp("first_token_ns"), stamp("end_ns"),
                      simulated["output_tokens"]);
    logged["input_toks"] = simulated["input_tokens"];
    logged["scheduled_ts"] = stamp("first_scheduled_ns");
    logged["arrival_time"] = 1.7e9 + simulated["arrival_ns"].get<double>() * 1e-9;
    rows.push_back(logged);
  }
  ASSERT_EQ(rows.size(), 200U);
  json about = meta();
  about["vllm_version"] = "0.23.0";  // the default engine
  write_log(about, rows);
  const Output output = spillway({"validate", "log", "--json", "--html", "page.html"});
  ASSERT_EQ(output.code, 0) << output.err;
  const json result = json::parse(output.out);
  EXPECT_EQ(result["metrics"].size(), 15U);
  for (const auto& [name, figure] : result["metrics"].items()) {
    EXPECT_NEAR(figure["error"].get<double>(), 0.0, 1e-6) << name;
    EXPECT_GT(figure["measured"].get<double>(), 0.0) << name;
  }
  for (const char* metric : {"ttft_ms", "tpot_ms", "e2e_ms"}) {
    EXPECT_LT(result["per_request"][metric]["largest"].get<double>(), 1e-4) << metric;
  }
  EXPECT_EQ(result["log"]["stamps"], "engine") << "so the front end does not count";
  EXPECT_EQ(result["load"]["measured_from"], "stamps");
  for (const auto& [name, figure] : result["load"]["figures"].items()) {
    EXPECT_EQ(figure["measured"], figure["simulated"]) << name;
  }
  EXPECT_EQ(result["run"]["setup"]["gpu_kv_blocks"], 5000);
  EXPECT_EQ(result["run"]["setup"]["model"], "llama-3.1-8b");
  EXPECT_EQ(result["run"]["setup"]["gpu"], "h100-80gb-sxm");
  EXPECT_EQ(result["run"]["config"]["engine.max_num_batched_tokens"], 1024);
  const std::string page = read_file(file("page.html"));
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
  EXPECT_THAT(page, HasSubstr("\"kind\":\"validate\""));
  // Both sides are the same, so are their distributions, here in whole percentiles.
  for (const char* metric : {"ttft_ms", "tpot_ms", "e2e_ms"}) {
    const json& curve = result["curves"][metric];
    ASSERT_EQ(curve["measured"].size(), 101U);
    for (std::size_t i = 0; i <= 100; ++i) {
      EXPECT_NEAR(curve["measured"][i][1].get<double>(), curve["simulated"][i][1].get<double>(), 1e-2) << metric;
    }
  }
  EXPECT_EQ(result["e2e_errors"].size(), 200U);
  EXPECT_EQ(spillway({"validate", "log", "--json"}).out, output.out) << "the same bytes again";
}

TEST_F(Validate, Eng1_ARealEngineOnAnRtx4090) {
  const std::string data = source_dir() + "/../shared/data/";
  const std::string log = data + "engine-logs/rtx4090-llama31-8b";
  if (!fs::exists(log)) GTEST_SKIP() << "../shared/data/engine-logs is not there";
  // The claim's set-up: a profile from the three layer tables alone, settings and blocks from meta.json, token ids from
  // the trace. Bounds: mean TTFT and E2E 1%, mean TPOT 0.5%, every percentile 2%.
  const Output fit =
      spillway({"calibrate", "fit", log + "/dense.csv", log + "/attention.csv", log + "/per_sequence.csv", "--base",
                "rtx4090-24gb", "--model", "llama-3.1-8b", "-o", "engine.json"});
  ASSERT_EQ(fit.code, 0) << fit.err;
  const Output output = spillway({"validate", log, "hardware=./engine.json",
                                  "workload.trace=" + data + "traces/sharegpt-llama31-8b-300.jsonl.gz", "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  const json result = json::parse(output.out);
  EXPECT_EQ(result["run"]["setup"]["gpu_kv_blocks"], 2588);
  EXPECT_EQ(result["run"]["conservation"]["all"]["finished"], 300);
  // The measured figures in the log's summary.txt.
  EXPECT_NEAR(result["metrics"]["mean_ttft_ms"]["measured"].get<double>(), 65456.6, 0.05);
  EXPECT_NEAR(result["metrics"]["p99_tpot_ms"]["measured"].get<double>(), 56.0, 0.05);
  EXPECT_NEAR(result["metrics"]["p90_e2e_ms"]["measured"].get<double>(), 141600.9, 0.05);
  for (const auto& [name, figure] : result["metrics"].items()) {
    const double bound = !name.starts_with("mean_") ? 0.02 : name == "mean_tpot_ms" ? 0.005 : 0.01;
    EXPECT_LE(std::abs(figure["error"].get<double>()), bound) << name << " " << figure.dump();
  }
  EXPECT_EQ(result["load"]["measured_from"], "timeseries.csv");
  // Without the prompts' token ids there are no prefix hits, and the result says so.
  const Output blind = spillway({"validate", log, "hardware=./engine.json"});
  ASSERT_EQ(blind.code, 0) << blind.err;
  EXPECT_THAT(blind.out, HasSubstr("the engine ran with prefix caching, but no token ids are given"));
}

TEST_F(Validate, TheTableShowsBothSides) {
  write_log(meta(), {row(0, 10.0, 10.5, 10.7), row(1, 10.25, 10.5, 10.7), row(2, 12.0, 12.5, 12.5, 1)});
  const Output output = spillway({"validate", "log"});
  ASSERT_EQ(output.code, 0) << output.err;
  // TTFT 500, 250 and 500 ms: mean 416.7; TPOT (10.7 - 10.5) / 2 = 100 ms; the answer of one token has none.
  EXPECT_THAT(output.out, ContainsRegex("TTFT measured +416\\.7 +500 "));
  EXPECT_THAT(output.out, ContainsRegex("TPOT measured +100\\.00 +100\\.00 "));
  EXPECT_THAT(output.out, AllOf(HasSubstr("Log          log: 3 requests of vLLM 0.19.0"), HasSubstr("on NVIDIA H100"),
                                HasSubstr("llama-3.1-8b on 1 x h100-80gb-sxm (fitted), policy vllm, engine vllm-0.19"),
                                HasSubstr("80000 tokens in 5000 blocks of 16 tokens; prefix caching off"),
                                HasSubstr("tpot_ms: off by"), HasSubstr("n = 2"), HasSubstr("Running")));
}

TEST_F(Validate, WhatTheUserSaysCounts) {
  write_log(meta(), {row(0, 10.0, 10.5, 10.7), row(1, 10.25, 10.5, 10.7)});
  const Output output = spillway({"validate", "log", "--json", "engine.max_num_seqs=7", "memory.gpu_kv=2GiB",
                                  "hardware=h200-141gb", "policy=sarathi"});
  ASSERT_EQ(output.code, 0) << output.err;
  const json run = json::parse(output.out)["run"];
  EXPECT_EQ(run["config"]["engine.max_num_seqs"], 7);
  EXPECT_EQ(run["setup"]["gpu_kv_blocks"], 1024);  // 2 GiB of 2 MiB
  EXPECT_EQ(run["setup"]["gpu"], "h200-141gb");
  EXPECT_EQ(run["setup"]["policy"], "sarathi");
  EXPECT_EQ(run["setup"]["engine"], "sarathi-serve");
  const Output rate = spillway({"validate", "log", "workload.rate=3", "replications=2"});
  EXPECT_EQ(rate.code, 2);
  EXPECT_THAT(rate.err, AllOf(HasSubstr("workload.rate cannot be set: the log's requests are replayed unchanged"),
                              HasSubstr("replications cannot be set"), HasSubstr("argument workload.rate=3")));
}

TEST_F(Validate, DevicesAndModelsWithoutAProfile) {
  json about = meta();
  about["hardware"]["device_name"] = "NVIDIA RTX PRO 6000";
  about["model"] = "mistralai/Mixtral-9x7B";
  write_log(about, {row(0, 10.0, 10.5, 10.7)});
  const Output unknown = spillway({"validate", "log"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("no bundled hardware matches \"NVIDIA RTX PRO 6000\""),
                                 HasSubstr("give hardware=NAME or hardware=FILE"), HasSubstr("log/meta.json"),
                                 HasSubstr("\"mistralai/Mixtral-9x7B\""), HasSubstr("give model=FILE")));
  EXPECT_EQ(spillway({"validate", "log", "hardware=h100-80gb-sxm", "model=qwen1.5-7b"}).code, 0);
  about.erase("hardware");
  about.erase("model");
  write_log(about, {row(0, 10.0, 10.5, 10.7)});
  EXPECT_THAT(spillway({"validate", "log"}).err,
              AllOf(HasSubstr("the log does not name its hardware"), HasSubstr("the log does not name its model")));
}

/// The four multiplications of a layer at 500 us each, and more rows.
std::string layers_with(const std::string& more) {
  std::string text = "layer,tokens,time_us\n";
  for (const char* layer : {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}) {
    for (const int tokens : {1, 64, 512, 2048}) text += std::string(layer) + "," + std::to_string(tokens) + ",500\n";
  }
  return text + more;
}

TEST_F(Validate, AProfileOfTablesAlone_NeedsNothingElse) {
  // Neither --base nor --model: memory and links are null, and the tables belong to the logged model. Attention takes
  // 100 us.
  write_log(meta(), {row(0, 10.0, 10.5, 10.7), row(1, 40.0, 40.5, 40.7)});
  std::string calls = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n";
  for (const char* chunk : {"0,0", "512,0", "512,1024", "2048,0", "2048,1024"}) {
    for (const char* decodes : {"0,0", "1,128", "1,4096", "64,128", "64,4096"}) {
      if (std::string(chunk) + decodes != "0,00,0") calls += std::string(chunk) + "," + decodes + ",100\n";
    }
  }
  write_text(file("calls.csv"), calls);
  write_text(file("dense.csv"), layers_with(""));
  ASSERT_EQ(spillway({"calibrate", "fit", "dense.csv", "calls.csv", "-o", "tables.json"}).code, 0);
  const Output output = spillway({"validate", "log", "hardware=./tables.json", "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  const json result = json::parse(output.out);
  EXPECT_EQ(result["run"]["setup"]["latency_model"], "tables");
  EXPECT_THAT(result["run"]["warnings"].dump(),
              HasSubstr("tables does not name the model of its layers: llama-3.1-8b is assumed"));
  // 32 layers of 4 x 500 + 100 us, every iteration.
  EXPECT_NEAR(result["metrics"]["mean_ttft_ms"]["simulated"].get<double>(), 67.2, 1e-6);
  EXPECT_NEAR(result["metrics"]["mean_tpot_ms"]["simulated"].get<double>(), 67.2, 1e-6);
  // An engine-specific kernel counts once in every layer: 32 x 10 us more. A misspelled known name is refused.
  write_text(file("dense.csv"), layers_with("qk_norm,1,10\nqk_norm,64,10\nqk_norm,2048,10\n"));
  const Output fit = spillway({"calibrate", "fit", "dense.csv", "calls.csv", "-o", "tables.json"});
  ASSERT_EQ(fit.code, 0) << fit.err;
  EXPECT_THAT(fit.err, HasSubstr("unknown operations, assumed to run once in every layer: qk_norm"));
  const Output more = spillway({"validate", "log", "hardware=./tables.json", "--json"});
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_NEAR(json::parse(more.out)["metrics"]["mean_tpot_ms"]["simulated"].get<double>(), 67.52, 1e-6);
  write_text(file("dense.csv"), layers_with("act_fm,1,10\n"));
  const Output slip = spillway({"calibrate", "fit", "dense.csv", "calls.csv", "-o", "tables.json"});
  EXPECT_EQ(slip.code, 3);
  EXPECT_THAT(slip.err, HasSubstr("did you mean \"act_fn\"?"));
}

TEST_F(Validate, RequestsThatDidNotFinish) {
  json aborted = row(1, 10.1, 10.5, 10.7);
  aborted["finish_reason"] = "abort";
  json cut = row(2, 10.2, 10.5, 10.7);
  cut["last_token_ts"] = nullptr;
  json silent = row(3, 10.3, 10.5, 10.7, 0);
  write_log(meta(), {row(0, 10.0, 10.5, 10.7), aborted, cut, silent});
  refused({"request bench-1 did not finish: its finish_reason is \"abort\"", "at log/requests.jsonl line 2",
           "request bench-2 did not finish, or was cut off: it has no last_token_ts", "line 3",
           "request bench-3 did not finish: it has no output token", "--drop-unfinished leaves the others out"});
  const Output dropped = spillway({"validate", "log", "--drop-unfinished"});
  ASSERT_EQ(dropped.code, 0) << dropped.err;
  EXPECT_THAT(dropped.out,
              AllOf(HasSubstr("log: 1 requests of"), HasSubstr("3 requests that did not finish are left out")));
  write_log(meta(), {aborted, cut});
  refused({"no request finished"}, {"--drop-unfinished"});
}

TEST_F(Validate, StampsThatAreMissingOrOfTwoClocks) {
  json missing = row(0, 10.0, 10.5, 10.7);
  missing.erase("queued_ts");
  json text = row(1, 10.0, 10.5, 10.7);
  text["scheduled_ts"] = "10.0";
  write_log(meta(), {missing, text, row(2, 1.7e9, 10.5, 10.7), row(3, 10.0, 10.7, 10.7)});
  refused({"has no queued_ts", "requests.jsonl line 1", "scheduled_ts is not a number of seconds: \"10.0\"", "line 2",
           "first_token_ts 10.500000 is before scheduled_ts 1700000000.000000", "from one clock", "line 3",
           "the first and the last of 3 output tokens have the same time", "line 4"});
  // Arrivals in milliseconds, stamps in seconds.
  std::vector<json> rows;
  for (int i = 0; i < 3; ++i) {
    rows.push_back(row(i, 10.0 * i, 10.0 * i + 1.0, 10.0 * i + 2.0));
    rows.back()["arrival_time"] = 10'000.0 * i;
  }
  write_log(meta(), rows);
  refused({"the clocks disagree: the requests span 20000 s by arrival_time, 20 s by queued_ts"});
}

TEST_F(Validate, LogsThatAreBroken) {
  refused({"\"log\" is neither a folder nor a file", "at log"});
  fs::create_directories(file("log"));
  refused({"log/meta.json", "log/requests.jsonl"});
  write_log(meta(), {row(0, 10.0, 10.5, 10.7)});
  write_text(file("log/requests.jsonl"), "");
  refused({"log/requests.jsonl"});
  write_text(file("log/requests.jsonl"), "{\"request_id\": \"a\", \n");
  refused({"is not a JSON object", "requests.jsonl line 1"});
  json wide = meta();
  wide["engine_kwargs"]["data_parallel_size"] = 2;
  wide["engine_kwargs"]["max_num_seqs"] = "many";
  write_log(wide, {row(0, 10.0, 10.5, 10.7)});
  refused({"2 is not modelled", "/engine_kwargs/data_parallel_size", "must be a whole number above 0, not \"many\"",
           "/engine_kwargs/max_num_seqs"});
  write_log(meta(), {row(0, 10.0, 10.5, 10.7)});
  write_text(file("log/timeseries.csv"), "t,running,waiting\n1,2,3\n2,x,0\n");
  refused({"\"2,x,0\" is not a sample", "timeseries.csv line 3"});
  write_text(file("log/timeseries.csv"), "t,busy\n1,2\n");
  refused({"needs the columns t, running and waiting"});
}

TEST_F(Validate, TheRequestsOfARunAreALog) {
  // Equal settings replay the run: every latency must be unchanged.
  fs::create_directories(file("log"));
  const Texts settings{"model=llama-3.1-8b", "hardware=h100-80gb-sxm", "engine.max_num_seqs=16"};
  Texts run{"run",
            "workload.trace=sharegpt",
            "workload.requests=60",
            "workload.rate=20",
            "--requests-out",
            "log/requests.jsonl"};
  run.insert(run.end(), settings.begin(), settings.end());
  ASSERT_EQ(spillway(run).code, 0);
  Texts validate{"validate", "log", "--json"};
  validate.insert(validate.end(), settings.begin(), settings.end());
  const Output output = spillway(validate);
  ASSERT_EQ(output.code, 0) << output.err;
  const json result = json::parse(output.out);
  EXPECT_EQ(result["log"]["engine"], "Spillway");
  EXPECT_EQ(result["log"]["stamps"], "client") << "so the front end counts";
  EXPECT_EQ(result["per_request"]["ttft_ms"]["n"], 60);
  for (const auto& [name, figure] : result["metrics"].items()) {
    EXPECT_NEAR(figure["error"].get<double>(), 0.0, 1e-6) << name;
  }
  EXPECT_THAT(result["run"]["warnings"].dump(), HasSubstr("log/meta.json is not there: give model, hardware, policy"));
  // Without meta.json the message names the keys that the log does not answer.
  const Output bare = spillway({"validate", "log"});
  EXPECT_EQ(bare.code, 2);
  EXPECT_THAT(bare.err, AllOf(HasSubstr("the log does not name its hardware"), HasSubstr("give hardware=NAME"),
                              HasSubstr("the log does not name its model"), HasSubstr("give model=FILE")));
}

TEST_F(Validate, RequestsOfARunThatDidNotFinishOrLackKeys) {
  const auto run_row = [](int index, const char* outcome) {
    return json{{"replication", 0},
                {"index", index},
                {"outcome", outcome},
                {"arrival_ns", 1'000'000'000 * index},
                {"input_tokens", 10},
                {"first_scheduled_ns", 1'000'000'000 * index},
                {"output_tokens", 2},
                {"first_token_ns", 1'000'000'000 * index + 10'000'000},
                {"end_ns", 1'000'000'000 * index + 20'000'000},
                {"generated_tokens", 2}};
  };
  json lacking = run_row(1, "finished");
  lacking.erase("first_scheduled_ns");
  write_log(meta(), {run_row(0, "finished"), lacking, run_row(2, "rejected")});
  refused({"the request has no first_scheduled_ns", "requests.jsonl line 2", "spillway run --requests-out",
           "request 2 did not finish: its outcome is \"rejected\"", "line 3"});
  json other = run_row(1, "finished");
  other["replication"] = 1;
  write_log(meta(), {run_row(0, "finished"), other});
  const Output output = spillway({"validate", "log", "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  const json result = json::parse(output.out);
  EXPECT_EQ(result["per_request"]["e2e_ms"]["n"], 1);
  EXPECT_THAT(result["run"]["warnings"].dump(), HasSubstr("1 requests of other replications than 0 are left out"));
  // Requests without stamps, such as rows of a trace: one problem names the keys.
  write_log(meta(), {json{{"input_toks", 5}, {"output_toks", 2}, {"arrival_time_ns", 0}}});
  refused({"the requests have no time stamps: queued_ts, scheduled_ts, first_token_ts, last_token_ts are missing",
           "log/requests.jsonl line 1", "1 error"});
}

TEST_F(Validate, TokenIdsMustBeThoseOfTheLog) {
  json caching = meta();
  caching["kv_cache"]["enable_prefix_caching"] = true;
  write_log(caching, {row(0, 10.0, 10.5, 10.7), row(1, 11.0, 11.5, 11.7)});
  const auto trace = [&](int first, int second) {
    std::string text;
    for (const int tokens : {first, second}) {
      json ids = json::array();
      for (int i = 0; i < tokens; ++i) ids.push_back(i);
      text += json{{"input_toks", tokens}, {"output_toks", 3}, {"arrival_time_ns", 0}, {"input_tok_ids", ids}}.dump() +
              "\n";
    }
    write_text(file("ids.jsonl"), text);
  };
  const Texts ids{"workload.trace=./ids.jsonl"};
  trace(100, 100);
  const Output shared = spillway({"validate", "log", "--json", ids[0]});
  ASSERT_EQ(shared.code, 0) << shared.err;
  // The second prompt equals the first: of its 100 tokens, all whole blocks except the last token's hit, 6 x 16 of 200.
  const json run = json::parse(shared.out)["run"];
  EXPECT_TRUE(run["setup"]["prefix_caching"]);
  EXPECT_NEAR(run["metrics"]["prefix_cache_hit_fraction"]["value"].get<double>(), 96.0 / 200.0, 1e-12);
  trace(100, 99);
  refused({"request bench-1 has 100 input tokens, row 1 of ./ids.jsonl has 99"}, ids);
  write_log(caching, {row(7, 10.0, 10.5, 10.7)});
  refused({"request bench-7 would be row 7 of ./ids.jsonl, which has 2"}, ids);
  write_text(file("ids.jsonl"), "{\"input_toks\": 100, \"output_toks\": 3, \"arrival_time_ns\": 0}\n");
  refused({"names no token ids and no prefixes"}, ids);
  refused({"nowhere.jsonl"}, {"workload.trace=./nowhere.jsonl"});
}

TEST_F(Validate, WhatTheEngineDidThatIsNotModelledIsSaid) {
  json about = meta();
  about["vllm_version"] = "0.14.1";
  about["resolved_config"] = {{"speculative_config", {{"method", "ngram"}}},
                              {"scheduler_config", {{"policy", "priority"}}},
                              {"model_config", {{"enforce_eager", true}}}};
  about["kv_cache"].erase("num_gpu_blocks");
  write_log(about, {row(0, 10.0, 10.5, 10.7)});
  const Output output = spillway({"validate", "log", "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  const std::string warnings = json::parse(output.out)["run"]["warnings"].dump();
  EXPECT_THAT(warnings, AllOf(HasSubstr("the log is of vLLM 0.14.1"), HasSubstr("speculative decoding"),
                              HasSubstr("scheduled by \\\"priority\\\""), HasSubstr("ran in eager mode"),
                              HasSubstr("KV blocks per GPU are an estimate")));
  for (const auto& [version, engine] : {std::pair("0.21.0", "vllm-0.19"), {"0.22.1", "vllm-0.23"}}) {
    about["vllm_version"] = version;
    write_log(about, {row(0, 10.0, 10.5, 10.7)});
    EXPECT_THAT(spillway({"validate", "log"}).out, HasSubstr(std::string("policy vllm, engine ") + engine));
  }
  about["vllm_version"] = "0.6.3";
  write_log(about, {row(0, 10.0, 10.5, 10.7)});
  EXPECT_THAT(spillway({"validate", "log"}).out, HasSubstr("policy vllm-v0, engine vllm-0.6.3"));
}

// A file says nothing of the engine: what is missing is asked for by name, and a key gives the KV blocks.
TEST_F(Validate, AFileOfMeasuredRequestsIsALog) {
  write_text(file("mine.csv"), "ts,in,out,first,last\n1000,100,10,1050,1500\n2000,200,5,2080,2300\n");
  const Texts map{
      "workload.columns=input_tokens=in,output_tokens=out,arrival_s=ts/1000,first_token_s=first/1000,"
      "end_s=last/1000"};
  Texts arguments{"validate", "mine.csv", "--json"};
  arguments.insert(arguments.end(), map.begin(), map.end());
  const Output asked = spillway(arguments);
  EXPECT_EQ(asked.code, 2);
  EXPECT_THAT(asked.err,
              AllOf(HasSubstr("the log does not name its hardware"), HasSubstr("the log does not name its model")));
  arguments.insert(arguments.end(), {"hardware=h100-80gb-sxm", "model=llama-3.1-8b", "memory.gpu_kv=5000 blocks"});
  const Output run = spillway(arguments);
  ASSERT_EQ(run.code, 0) << run.err;
  const json page = json::parse(run.out);
  EXPECT_EQ(page["log"]["stamps"], "client");
  EXPECT_EQ(page["run"]["setup"]["gpu_kv_blocks"], 5000);
  EXPECT_NEAR(page["metrics"]["mean_ttft_ms"]["measured"].get<double>(), 65.0, 1e-9);  // 50 and 80 ms
  const Output folder = spillway({"validate", source_dir() + "/experiments/validation/sample-log", map.front()});
  EXPECT_EQ(folder.code, 2);
  EXPECT_THAT(folder.err, HasSubstr("workload.columns is for a file"));
}

}  // namespace
}  // namespace spillway::test
