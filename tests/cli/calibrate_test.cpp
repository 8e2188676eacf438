// calibrate fit, check and errors as a user calls them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "hwmodels/catalog.hpp"
#include "tests/cli/calibrate_files.hpp"
#include "tests/cli/command.hpp"
#include "tests/support/paths.hpp"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr double kExact = 1e-9;

class Calibrate : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    write_text(file("base.json"), bare_profile());
    write_text(file("gemm.csv"), gemm_table());
    write_text(file("attention.csv"), attention_table());
    write_text(file("elementwise.csv"), elementwise_table());
  }
  [[nodiscard]] Output calibrate(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "calibrate");
    return spillway(arguments);
  }
  [[nodiscard]] json profile(const std::string& name) const { return json::parse(read_file(file(name))); }
  /// The `--json` output of a successful command, by op.
  [[nodiscard]] std::map<std::string, json> errors_of(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const Output run = calibrate(arguments);
    EXPECT_EQ(run.code, 0) << run.err;
    std::map<std::string, json> lines;
    if (run.code == 0) {
      const json result = json::parse(run.out);
      for (const json& line : result["ops"]) lines[line["op"]] = line;
    }
    return lines;
  }
  static void expect_error(const json& line, int n, double median, double p95, double bias) {
    EXPECT_EQ(line["n"], n) << line;
    EXPECT_NEAR(line["median"].get<double>(), median, kExact) << line;
    EXPECT_NEAR(line["p95"].get<double>(), p95, kExact) << line;
    EXPECT_NEAR(line["bias"].get<double>(), bias, kExact) << line;
  }
};

TEST_F(Calibrate, FitWritesAProfileThatRunUses) {
  const Output fit =
      calibrate({"fit", "gemm.csv", "attention.csv", "elementwise.csv", "--base", "h100-80gb-sxm", "-o", "my.json"});
  ASSERT_EQ(fit.code, 0) << fit.err;
  EXPECT_EQ(fit.err, "wrote my.json\n");
  EXPECT_THAT(fit.out, ContainsRegex("^op +n +median +p95 +bias +held out\n"));
  for (const char* line : {"\ngemm +30 +[0-9.]+% +[0-9.]+% +[+-][0-9.]+% +whole \\(n, k\\) series\n",
                           "\ndecode_attention +27 ", "\nprefill_attention +24 ", "\nelementwise +8 +0.0% +0.0% ",
                           "\n  analytic model +30 ", "\ndecode_iteration +15 "}) {
    EXPECT_THAT(fit.out, ContainsRegex(line));
  }
  const json written = profile("my.json");
  const json base = json::parse(read_file(source_dir() + "/hwmodels/profiles/h100-80gb-sxm.json"));
  EXPECT_EQ(written["name"], "my");
  EXPECT_EQ(written["values"], base["values"]);
  EXPECT_THAT(written["stands_for"], HasSubstr("NVIDIA H100"));
  EXPECT_EQ(written["measurements"]["files"].size(), 3U);
  EXPECT_EQ(written["measurements"]["rows"]["gemm"]["rows"].size(), 30U);
  EXPECT_EQ(written["measurements"]["rows"]["attention"]["rows"].size(), 51U);
  EXPECT_LT(written["fitted"]["gemm"][0]["held_out"]["median"], 0.05);

  const std::vector<std::string> run{"run", "--json", "workload.requests=20", "workload.rate=2"};
  auto on = [&](std::vector<std::string> more) {
    more.insert(more.begin(), run.begin(), run.end());
    const Output output = spillway(more);
    EXPECT_EQ(output.code, 0) << output.err;
    return json::parse(output.out);
  };
  const json fitted = on({"hardware=my.json"});
  EXPECT_EQ(fitted["setup"]["latency_model"], "fitted");
  EXPECT_EQ(fitted["inputs"][0]["name"], "my.json");
  const json& held_out = written["fitted"]["gemm"][0]["held_out"];
  EXPECT_THAT(fitted.dump(),
              HasSubstr(fmt::format(", gemm {:.1f}% / {:.1f}% (n = 30)", 100.0 * held_out["median"].get<double>(),
                                    100.0 * held_out["p95"].get<double>())));
  EXPECT_THAT(fitted.dump(), HasSubstr("elementwise 0.0% / 0.0% (n = 8)"));
  const json analytic = on({"hardware=my.json", "latency_model=roofline"});
  EXPECT_EQ(analytic["metrics"], on({"hardware=base.json"})["metrics"]);
  EXPECT_NE(analytic["metrics"]["mean_tpot_ms"], fitted["metrics"]["mean_tpot_ms"]);
}

// Kernels are held out one by one, and silu takes twice as long for its bytes as rmsnorm: one fit of the other is half
// or double the time.
TEST_F(Calibrate, AFitThatSaysLittleIsNamed) {
  std::string rows = "kernel,tokens,bytes,latency_us\n";
  for (const int tokens : {1, 10, 100, 1000}) {
    rows += fmt::format("rmsnorm,{0},{1},{2}\nsilu,{0},{1},{3}\n", tokens, tokens * 2'000'000, 2 + tokens,
                        2 * (2 + tokens));
  }
  write_text(file("two.csv"), rows);
  const Output fit = calibrate({"fit", "elementwise=two.csv", "--base", "h100-80gb-sxm", "-o", "two.json"});
  EXPECT_EQ(fit.code, 0) << fit.err;
  EXPECT_THAT(fit.err,
              HasSubstr("warning: the fit of elementwise is off by 75% on held-out rows (median; more than 20%)"));
  EXPECT_THAT(fit.err, HasSubstr("Measure more sizes"));
  // Two of 24 rows are slow: the p95 is above 20%, the median is not.
  rows = "kernel,tokens,bytes,latency_us\n";
  for (const char* kernel : {"rmsnorm", "silu", "add"}) {
    for (const int tokens : {1, 2, 5, 10, 50, 100, 500, 1000}) {
      const int slow = tokens == 50 && *kernel != 'a' ? 2 : 1;
      rows += fmt::format("{},{},{},{}\n", kernel, tokens, tokens * 2'000'000, slow * (2 + tokens));
    }
  }
  write_text(file("slow.csv"), rows);
  EXPECT_EQ(calibrate({"fit", "elementwise=slow.csv", "--base", "h100-80gb-sxm", "-o", "slow.json"}).err,
            "wrote slow.json\n");
  EXPECT_GT(profile("slow.json")["fitted"]["elementwise"]["held_out"]["p95"], 0.2);
}

TEST_F(Calibrate, FitGivesTheSameBytesAgain) {
  for (const char* out : {"a/one.json", "b/one.json"}) {
    std::filesystem::create_directory(file(out).parent_path());
    EXPECT_EQ(calibrate({"fit", "gemm.csv", "attention.csv", "--base", "h100-80gb-sxm", "-o", out}).code, 0);
  }
  EXPECT_EQ(read_file(file("a/one.json")), read_file(file("b/one.json")));
  EXPECT_THAT(read_file(file("a/one.json")), HasSubstr("\"fitted\""));
}

TEST_F(Calibrate, JsonHoldsWhatTheProfileStates) {
  const auto lines = errors_of({"fit", "gemm.csv", "elementwise.csv", "--base", "h100-80gb-sxm", "-o", "my.json"});
  ASSERT_EQ(lines.size(), 2U);
  const json fitted = profile("my.json")["fitted"];
  json gemm = fitted["gemm"][0]["held_out"];
  gemm["op"] = "gemm";
  json roofline = fitted["gemm"][0]["roofline"];
  roofline["op"] = "gemm";
  gemm["roofline"] = roofline;
  EXPECT_EQ(lines.at("gemm"), gemm);
  EXPECT_GT(roofline["median"], 0.01);  // the table belongs to another model
  EXPECT_EQ(lines.at("elementwise")["n"], 8);
}

TEST_F(Calibrate, AnExistingProfileIsReplacedAndMayBeTheBase) {
  write_text(file("my.json"), "something else");
  ASSERT_EQ(calibrate({"fit", "gemm.csv", "--base", "base.json", "-o", "my.json"}).code, 0);
  const json first = profile("my.json");
  EXPECT_FALSE(first["fitted"].contains("elementwise"));
  ASSERT_EQ(calibrate({"fit", "elementwise.csv", "--base", "./my.json", "-o", "my.json"}).code, 0);
  const json second = profile("my.json");
  EXPECT_EQ(second["fitted"]["gemm"], first["fitted"]["gemm"]);
  EXPECT_TRUE(second["fitted"].contains("elementwise"));
  EXPECT_EQ(second["values"], first["values"]);
  EXPECT_EQ(files_left(), 5);  // the tables, the base and the profile
}

TEST_F(Calibrate, NamesAndRowsAsAskedFor) {
  ASSERT_EQ(calibrate({"fit", "elementwise.csv", "--base", "h100-80gb-sxm", "-o", "my.json", "--name", "our-h100",
                       "--stands-for", "our H100, our kernels", "--omit-measurements"})
                .code,
            0);
  const json written = profile("my.json");
  EXPECT_EQ(written["name"], "our-h100");
  EXPECT_EQ(written["stands_for"], "our H100, our kernels");
  EXPECT_FALSE(written["measurements"].contains("rows"));
  EXPECT_EQ(written["measurements"]["files"][0]["rows"], 8);
}

TEST_F(Calibrate, OneOpOfAFile) {
  const Output fit = calibrate({"fit", "decode_attention=attention.csv", "-o", "my.json"});
  ASSERT_EQ(fit.code, 0) << fit.err;
  EXPECT_THAT(fit.err,
              HasSubstr("attention.csv: only decode_attention was asked for; left out: 24 of prefill_attention"));
  EXPECT_THAT(fit.out, HasSubstr("decode_attention"));
  EXPECT_THAT(fit.out, Not(HasSubstr("prefill_attention")));
  // A file name may contain an equals sign.
  write_text(file("x=y.csv"), elementwise_table());
  EXPECT_EQ(calibrate({"fit", "x=y.csv", "-o", "my.json"}).code, 0);
}

TEST_F(Calibrate, WithoutABaseTheFactsAreNullAndARunNamesTheFirst) {
  const Output fit = calibrate({"fit", "gemm.csv", "attention.csv", "-o", "my.json"});
  ASSERT_EQ(fit.code, 0) << fit.err;
  EXPECT_THAT(fit.err, HasSubstr("null; use --base NAME to copy them from a profile"));
  EXPECT_THAT(fit.out, Not(HasSubstr("analytic model")));
  const json values = profile("my.json")["values"];
  for (const auto& [key, entry] : values.items()) EXPECT_EQ(entry["value"], nullptr) << key;
  const Output run = spillway({"run", "hardware=my.json", "-o", "out"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("my does not state memory, which the size of the KV cache requires"));
  EXPECT_THAT(run.err, HasSubstr("set memory in my.json, or fit the profile again with --base NAME"));
  EXPECT_FALSE(std::filesystem::exists(file("out")));
}

TEST_F(Calibrate, ARunThatCopiesOverALinkThatNoFileStatesNamesIt) {
  ASSERT_EQ(calibrate({"fit", "gemm.csv", "attention.csv", "elementwise.csv", "-o", "my.json"}).code, 0);
  json written = profile("my.json");
  written["values"]["memory"]["value"] = 80'000'000'000;
  write_text(file("my.json"), written.dump());
  const std::vector<std::string> small{
      "run", "hardware=my.json", "memory.gpu_kv=1GB", "workload.rate=50", "policy=vllm-v0", "workload.requests=100"};
  EXPECT_EQ(spillway(small).code, 0);  // nothing is copied
  std::vector<std::string> swaps = small;
  swaps.insert(swaps.end(), {"engine.preemption=swap", "memory.host_kv=10GB"});
  const Output run = spillway(swaps);
  EXPECT_EQ(run.code, 2) << run.err;
  EXPECT_THAT(run.err, HasSubstr("my does not state d2h_bandwidth, which this run's copies require"));
}

TEST_F(Calibrate, CheckOfRowsOnTheFittedLineFindsNoError) {
  ASSERT_EQ(calibrate({"fit", "elementwise.csv", "-o", "my.json"}).code, 0);
  // The line is 2 us + bytes / 2 TB/s; 4e9 bytes lie beyond the 2e9 that were measured.
  write_text(file("line.csv"), "kernel,tokens,bytes,latency_us\nother,1,6000000,5\nother,2,4000000000,2002\n");
  const auto exact = errors_of({"check", "my.json", "line.csv"});
  ASSERT_EQ(exact.size(), 1U);
  expect_error(exact.at("elementwise"), 2, 0.0, 0.0, 0.0);
  EXPECT_EQ(exact.at("elementwise")["outside"], 1);
  const Output table = calibrate({"check", "my.json", "line.csv"});
  EXPECT_THAT(table.out, ContainsRegex("^op +n +median +p95 +bias\nelementwise +2 +0.0% +0.0% +[+-]0.0%   1 outside"));
  EXPECT_THAT(table.out, HasSubstr("line.csv line 2: measured 5 us, predicted 5 us"));
}

// Predicted / measured - 1 for 5 / 5, 5 / 10 and 5 / 2.5: 0, -0.5 and 1. The 95th percentile of 0, 0.5, 1 is at rank
// 1.9.
TEST_F(Calibrate, CheckIsTheArithmeticOfItsRows) {
  ASSERT_EQ(calibrate({"fit", "elementwise.csv", "-o", "my.json"}).code, 0);
  write_text(file("off.csv"), "kernel,tokens,bytes,latency_us\na,1,6000000,5\nb,1,6000000,10\nc,1,6000000,2.5\n");
  const auto lines = errors_of({"check", "my.json", "off.csv"});
  expect_error(lines.at("elementwise"), 3, 0.5, 0.95, 0.5 / 3.0);
  EXPECT_EQ(lines.at("elementwise")["outside"], 0);
  EXPECT_THAT(lines.at("elementwise")["worst"][2], HasSubstr("off.csv line 2: measured 5 us"));
}

TEST_F(Calibrate, CheckOfTheAnalyticModelIsItsFormula) {
  const json values = json::parse(read_file(source_dir() + "/hwmodels/profiles/h100-80gb-sxm.json"))["values"];
  const auto value = [&](const char* key) { return values[key]["value"].get<double>(); };
  const double bandwidth = value("gemm_memory_efficiency") * value("memory_bandwidth");
  const double launch = value("kernel_overhead");
  // One token through 8192 x 8192 is bound by memory, 8192 tokens are bound by arithmetic.
  const double bytes_1 = 2.0 * (8192.0 * 8192.0 + 8192.0 + 8192.0);
  const double flops_8192 = 2.0 * 8192.0 * 8192.0 * 8192.0;
  write_text(file("gemm.csv"),
             fmt::format("m,n,k,latency_s\n1,8192,8192,{:.17g}\n8192,8192,8192,{:.17g}\n", launch + bytes_1 / bandwidth,
                         launch + flops_8192 / (value("gemm_compute_efficiency") * value("peak_flops"))));
  write_text(file("norm.csv"),
             fmt::format("kernel,tokens,bytes,latency_s\nnorm,1,1e9,{:.17g}\n", 2.0 * (launch + 1e9 / bandwidth)));
  write_text(file("copies.csv"),
             fmt::format("direction,mechanism,block_bytes,copies,latency_s\nh2d,many,1000000,7,{:.17g}\n",
                         7.0 * (value("h2d_launch") + 1e6 / value("h2d_bandwidth"))));
  const double kv = 4.0 * 8.0 * 128.0 * 4097.0;
  const double query = 4.0 * 32.0 * 128.0;
  write_text(file("decode.csv"),
             fmt::format("batch,q_heads,kv_heads,head_dim,new_tokens,context,latency_s\n16,32,8,128,1,4096,{:.17g}\n",
                         value("attention_overhead") +
                             16.0 * (kv + query) / (value("decode_attention_efficiency") * value("memory_bandwidth"))));
  const auto lines =
      errors_of({"check", "h100-80gb-sxm", "gemm.csv", "norm.csv", "copies.csv", "decode.csv", "--roofline"});
  ASSERT_EQ(lines.size(), 4U);
  expect_error(lines.at("gemm"), 2, 0.0, 0.0, 0.0);
  expect_error(lines.at("elementwise"), 1, 0.5, 0.5, -0.5);
  expect_error(lines.at("copy_h2d"), 1, 0.0, 0.0, 0.0);
  expect_error(lines.at("decode_attention"), 1, 0.0, 0.0, 0.0);
}

/// Rows that each model can predict exactly, in the format of cuda_calibrate.
constexpr const char* kExactRows = R"({
  "schema_version": 1, "kind": "measurements",
  "provenance": {"device": {"name": "Example GPU", "memory_bytes": 80000000000, "sm_count": 100, "l2_bytes": 40000000}},
  "measurements": [
    {"op": "all_reduce", "ranks": 2, "bytes": 1024, "unit": "us", "median": 10},
    {"op": "all_reduce", "ranks": 2, "bytes": 1048576, "unit": "us", "median": 21},
    {"op": "all_reduce", "ranks": 8, "bytes": 1048576, "unit": "us", "median": 33},
    {"op": "copy_h2d", "mechanism": "many", "block_bytes": 1000000, "copies": 10, "unit": "us", "median": 220},
    {"op": "copy_h2d", "mechanism": "many", "block_bytes": 3000000, "copies": 1, "unit": "us", "median": 62},
    {"op": "copy_d2h", "mechanism": "gather", "block_bytes": 100000, "copies": 1, "unit": "us", "median": 7},
    {"op": "copy_d2h", "mechanism": "gather", "block_bytes": 500000, "copies": 2, "unit": "us", "median": 30},
    {"op": "cpu_attention", "threads": 1, "batch": 1, "context": 100, "kv_bytes": 1e7, "unit": "us", "median": 1010},
    {"op": "cpu_attention", "threads": 1, "batch": 2, "context": 100, "kv_bytes": 2e7, "unit": "us", "median": 2010},
    {"op": "cpu_attention", "threads": 2, "batch": 1, "context": 100, "kv_bytes": 1e7, "unit": "us", "median": 510},
    {"op": "cpu_attention", "threads": 8, "batch": 1, "context": 100, "kv_bytes": 1e7, "unit": "us", "median": 260},
    {"op": "cpu_attention", "threads": 8, "batch": 4, "context": 100, "kv_bytes": 4e7, "unit": "us", "median": 1010},
    {"op": "host", "sequences": 1, "unit": "ms", "median": 1.1},
    {"op": "host", "sequences": 10, "unit": "ms", "median": 2.0, "p10": 1.9, "p90": 2.5},
    {"op": "host", "sequences": 100, "tensor_parallel": 2, "unit": "us", "median": 11000},
    {"op": "layer", "kernel": "sampler", "per_sequence": true, "count": 1, "unit": "us", "median": 50},
    {"op": "layer", "kernel": "sampler", "per_sequence": true, "count": 64, "unit": "us", "median": 90},
    {"op": "layer", "kernel": "o_proj", "count": 64, "unit": "us", "median": 30},
    {"op": "mixed_attention", "chunk": 512, "chunk_context": 0, "decodes": 0, "decode_context": 0, "unit": "us", "median": 50},
    {"op": "mixed_attention", "chunk": 512, "chunk_context": 0, "decodes": 4, "decode_context": 100, "unit": "us", "median": 60},
    {"op": "mixed_attention", "chunk": 0, "chunk_context": 0, "decodes": 4, "decode_context": 100, "unit": "us", "median": 20},
    {"op": "iteration", "tokens": 10, "context": 0, "unit": "ms", "median": 6},
    {"op": "iteration", "tokens": 20, "context": 0, "unit": "ms", "median": 7},
    {"op": "iteration", "tokens": 10, "context": 1000, "unit": "ms", "median": 8},
    {"op": "iteration", "tokens": 30, "context": 500, "unit": "ms", "median": 9}
  ]
})";

TEST_F(Calibrate, RowsThatAModelTellsExactlyHaveNoError) {
  write_text(file("rows.json"), kExactRows);
  const Output fit = calibrate({"fit", "rows.json", "-o", "my.json"});
  ASSERT_EQ(fit.code, 0) << fit.err;
  const auto lines = errors_of({"check", "my.json", "rows.json"});
  const std::map<std::string, int> rows{{"all_reduce", 3},      {"copy_h2d", 2}, {"copy_d2h", 2},
                                        {"cpu_attention", 5},   {"host", 3},     {"layer", 3},
                                        {"mixed_attention", 3}, {"iteration", 4}};
  EXPECT_EQ(lines.size(), rows.size());
  for (const auto& [op, n] : rows) {
    ASSERT_TRUE(lines.contains(op)) << op;
    expect_error(lines.at(op), n, 0.0, 0.0, 0.0);
  }
  // The exact values: 2 us + 50 GB/s, 2.5 us per 200 kB, and the tool's facts about the device.
  const json written = profile("my.json");
  EXPECT_NEAR(written["values"]["h2d_bandwidth"]["value"].get<double>(), 50e9, 1.0);
  EXPECT_NEAR(written["values"]["h2d_launch"]["value"].get<double>(), 2e-6, 1e-12);
  EXPECT_EQ(written["values"]["d2h_bandwidth"]["value"], nullptr);  // measured only with a gathering kernel
  EXPECT_EQ(written["values"]["memory"]["value"], 80'000'000'000);
  EXPECT_EQ(written["values"]["sm_count"]["value"], 100);
  EXPECT_EQ(written["values"]["l2_cache"]["value"], 40'000'000);
  EXPECT_THAT(written["stands_for"], HasSubstr("Example GPU"));
  EXPECT_NEAR(written["fitted"]["host"]["fixed_s"].get<double>(), 1e-3, 1e-12);
  EXPECT_NEAR(written["fitted"]["host"]["per_sequence_s"].get<double>(), 1e-4, 1e-13);
}

TEST_F(Calibrate, CheckSaysWhatTheProfileHasNoFitFor) {
  write_text(file("rows.json"), kExactRows);
  write_text(file("dense.csv"), "layer,tokens,time_us\no_proj,64,15\nqkv_proj,64,15\n");
  write_text(file("mixed.csv"), "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,4,100,20\n");
  ASSERT_EQ(calibrate({"fit", "rows.json", "-o", "my.json"}).code, 0);
  const Output check = calibrate({"check", "my.json", "dense.csv", "gemm.csv", "--json"});
  ASSERT_EQ(check.code, 0) << check.err;
  EXPECT_THAT(check.err,
              HasSubstr("not checked: 30 rows of gemm in 2-byte numbers: the profile has no fit for them\n"));
  EXPECT_THAT(check.err, HasSubstr("not checked: 1 rows of layer: the profile has no fit for them\n"));
  const json ops = json::parse(check.out)["ops"];
  ASSERT_EQ(ops.size(), 1U);
  expect_error(ops[0], 1, 1.0, 1.0, 1.0);  // 30 us of 15 us
  // Tables with decodes alone do not determine the time of a chunk.
  ASSERT_EQ(calibrate({"fit", "mixed.csv", "-o", "decodes.json"}).code, 0);
  const Output chunks = calibrate({"check", "decodes.json", "rows.json"});
  EXPECT_EQ(chunks.code, 0) << chunks.err;
  EXPECT_THAT(chunks.err, HasSubstr("not checked: 2 rows of mixed_attention: the profile has no fit for them\n"));
  EXPECT_THAT(chunks.out, ContainsRegex("mixed_attention +1 +0.0% "));
}

TEST_F(Calibrate, EngineTablesAndLogsTellARunsTime) {
  write_text(file("dense.csv"), dense_table());
  write_text(file("heads.csv"), "layer,sequences,time_us\nlm_head,1,400\nlm_head,256,600\n");
  write_text(file("calls.csv"), engine_attention_table());
  write_text(file("log.csv"), iteration_table());
  const auto result = [&](const std::string& hardware, const std::string& setting) {
    const Output run = spillway({"run", "--json", "hardware=" + hardware, "workload.requests=20", setting});
    EXPECT_EQ(run.code, 0) << run.err;
    return run.code == 0 ? json::parse(run.out) : json();
  };
  ASSERT_EQ(calibrate({"fit", "dense.csv", "heads.csv", "calls.csv", "--base", "base.json", "--model", "llama-3.1-8b",
                       "-o", "tables.json"})
                .code,
            0);
  EXPECT_EQ(errors_of({"check", "tables.json", "calls.csv"}).at("mixed_attention")["p95"], 0.0);
  const json tables = result("tables.json", "seed=1");
  EXPECT_EQ(tables["setup"]["latency_model"], "tables");
  EXPECT_THAT(tables.dump(),
              HasSubstr("layer tables of llama-3.1-8b: 0.0% / 0.0% (n = 4)"));  // second size of the four layers
  // One token at a time after the prompt, 32 layers: 4 x 80.25 us + attention of at least 20 us, and 400 us for the
  // head.
  const json one = result("tables.json", "workload.arrival=constant");
  EXPECT_GT(one["metrics"]["p50_itl_ms"]["value"], 32 * (0.321 + 0.020) + 0.4);
  const json other = result("tables.json", "model=llama-2-7b");
  EXPECT_EQ(other["setup"]["latency_model"], "roofline");
  EXPECT_THAT(other["warnings"].dump(), HasSubstr("the layer tables of tables were measured on llama-3.1-8b, not on "
                                                  "llama-2-7b, so the run uses latency_model=roofline"));
  EXPECT_THAT(tables["warnings"].dump(), testing::Not(HasSubstr("so the run uses")));

  const Output unnamed = calibrate({"fit", "log.csv", "--base", "base.json", "-o", "log.json"});
  ASSERT_EQ(unnamed.code, 0);
  EXPECT_THAT(unnamed.err, HasSubstr("latency_model=auto does not use them"));
  EXPECT_EQ(result("log.json", "seed=1")["setup"]["latency_model"], "roofline");
  EXPECT_THAT(result("log.json", "latency_model=iterations").dump(),
              HasSubstr("logged iterations of an unstated model: "));
  ASSERT_EQ(calibrate({"fit", "log.csv", "--base", "base.json", "--model", "llama-3.1-8b", "-o", "log.json"}).code, 0);
  const json log = result("log.json", "seed=1");
  EXPECT_EQ(log["setup"]["latency_model"], "iterations");
  EXPECT_THAT(log.dump(), HasSubstr("logged iterations of llama-3.1-8b: 0.0% / 0.0% (n = 10)"));
  EXPECT_GT(log["metrics"]["p50_itl_ms"]["value"], 5.0);  // 5 ms for any work
}

TEST_F(Calibrate, VidurTablesAreFitted) {
  // Half of the table of a model with 2048 hidden, 8192 in its MLP, on 2 GPUs.
  std::string mlp =
      "time_stats.attn_pre_proj.median,time_stats.attn_post_proj.median,time_stats.mlp_up_proj.median,"
      "time_stats.mlp_down_proj.median,n_head,n_kv_head,n_embd,n_expanded_embd,use_gated_mlp,num_tokens,"
      "num_tensor_parallel_workers\n";
  for (const int tokens : {1, 8, 64, 256, 1024, 4096, 8192}) {
    mlp += fmt::format("{0},{0},{0},{0},16,4,2048,8192,True,{1},2\n", 0.05 + tokens * 1e-3, tokens);
  }
  write_text(file("mlp.csv"), mlp);
  const Output fit = calibrate({"fit", "mlp.csv", "--base", "a100-80gb-sxm", "-o", "my.json"});
  ASSERT_EQ(fit.code, 0) << fit.err;
  EXPECT_THAT(fit.out, ContainsRegex("\n  analytic model +28 "));  // 7 sizes of 4 matrices
  EXPECT_EQ(profile("my.json")["measurements"]["files"][0]["format"], "vidur-mlp-csv");
}

TEST_F(Calibrate, RowsThatCannotBeTrueAreLeftOutWhenAsked) {
  // 4e12 bytes/s and 2 us against 3 us for the same row.
  write_text(file("wrong.csv"), elementwise_table() + "fast,1,4000000000,1000\nsilu,1,2000000,4\n");
  const Output fit =
      calibrate({"fit", "wrong.csv", "--base", "h100-80gb-sxm", "--drop-inconsistent", "-o", "my.json", "--json"});
  ASSERT_EQ(fit.code, 0) << fit.err;
  EXPECT_THAT(fit.err, HasSubstr("left out: 3 impossible rows; the first: contradictory: silu of 1 tokens"));
  EXPECT_EQ(json::parse(fit.out)["ops"][0]["n"],
            3);  // three rows of silu remain after the four of rmsnorm are left out
  EXPECT_EQ(profile("my.json")["measurements"]["rows"]["elementwise"]["rows"].size(), 7U);
}

TEST_F(Calibrate, RunsThatWereRepeatedAreMergedToTheirMedian) {
  std::string again = elementwise_table();
  again.replace(again.find("rmsnorm,1,2000000,3"), std::string("rmsnorm,1,2000000,3").size(), "rmsnorm,1,2000000,3.2");
  write_text(file("again.csv"), again);
  const Output fit = calibrate({"fit", "elementwise.csv", "again.csv", "-o", "my.json"});
  ASSERT_EQ(fit.code, 0) << fit.err;
  EXPECT_THAT(fit.err, HasSubstr("again.csv: 8 rows repeat those of another file within 20%"));
  const json rows = profile("my.json")["measurements"]["rows"]["elementwise"]["rows"];
  ASSERT_EQ(rows.size(), 8U);
  EXPECT_NEAR(rows[0][3].get<double>(), 3.1e-6, 1e-15);
}

// Read as a list of prompts, the first row would need 16 TB.
TEST_F(Calibrate, ABatchOfAnySizeIsOneRow) {
  std::string rows = "batch,q_heads,kv_heads,head_dim,new_tokens,context,latency_s\n1000000000000,1,1,1,1,0,900\n";
  for (int i = 1; i <= 16; ++i) rows += fmt::format("1,1,1,128,{},0,{}\n", 100 * i, 1e-5 * i);
  write_text(file("batch.csv"), rows);
  const Output fit = calibrate({"fit", "batch.csv", "-o", "my.json"});
  EXPECT_EQ(fit.code, 0) << fit.err;
  EXPECT_EQ(errors_of({"check", "my.json", "batch.csv"}).at("prefill_attention")["n"], 17);
}

TEST_F(Calibrate, AFoldThatLeavesAParameterOpenIsNotHeldOut) {
  // Without the last row nothing determines the time per sequence.
  write_text(file("host.json"), R"({"schema_version": 1, "kind": "measurements", "provenance": {}, "measurements": [
    {"op": "host", "sequences": 1, "tensor_parallel": 1, "unit": "ms", "median": 1},
    {"op": "host", "sequences": 1, "tensor_parallel": 2, "unit": "ms", "median": 1},
    {"op": "host", "sequences": 1, "tensor_parallel": 4, "unit": "ms", "median": 1},
    {"op": "host", "sequences": 9, "tensor_parallel": 1, "unit": "ms", "median": 2}]})");
  const auto lines = errors_of({"fit", "host.json", "-o", "my.json"});
  expect_error(lines.at("host"), 3, 0.0, 0.0, 0.0);
}

TEST_F(Calibrate, ASlowerLinkThanTheBasesKeepsItsShareWhileBothDirectionsAreBusy) {
  write_text(file("copies.csv"),
             "direction,mechanism,block_bytes,copies,latency_us\nh2d,many,1000000,1,102\nh2d,many,3000000,1,302\n");
  ASSERT_EQ(calibrate({"fit", "copies.csv", "--base", "h100-80gb-sxm", "-o", "my.json"}).code, 0);
  const json base = json::parse(read_file(source_dir() + "/hwmodels/profiles/h100-80gb-sxm.json"))["values"];
  const json values = profile("my.json")["values"];
  const auto ratio = [](const json& of) {
    return of["h2d_bandwidth_duplex"]["value"].get<double>() / of["h2d_bandwidth"]["value"].get<double>();
  };
  EXPECT_NEAR(values["h2d_bandwidth"]["value"].get<double>(), 10e9, 1.0);
  EXPECT_NEAR(ratio(values), ratio(base), kExact);
  EXPECT_EQ(values["d2h_bandwidth_duplex"], base["d2h_bandwidth_duplex"]);
  EXPECT_EQ(spillway({"run", "hardware=my.json", "--dry-run"}).code, 0);
}

/// Copies of 1 to 64 MiB at 20e9 bytes/s after 10 us to the GPU, and at 15e9 while the other direction is busy; one
/// copy is from pageable memory. Compute of 100 us that takes 103 us beside copies. A host of 4 threads that reads 50e9
/// bytes/s and attends at 40e9.
std::string microbenchmarks() {
  json rows = json::array();
  for (const std::int64_t bytes : {1 << 20, 1 << 22, 1 << 24, 1 << 26}) {
    for (const bool duplex : {false, true}) {
      rows.push_back({{"op", "copy_h2d"},
                      {"mechanism", "single"},
                      {"block_bytes", bytes},
                      {"copies", 1},
                      {"duplex", duplex},
                      {"unit", "us"},
                      {"median", 10.0 + 1e6 * static_cast<double>(bytes) / (duplex ? 15e9 : 20e9)}});
    }
  }
  rows.push_back(rows[0]);
  rows.back()["memory"] = "pageable";
  for (const bool beside : {false, true}) {
    rows.push_back({{"op", "interference"},
                    {"part", "compute"},
                    {"beside", beside},
                    {"compute", {{"op", "gemm"}, {"m", 1}, {"n", 64}, {"k", 64}}},
                    {"traffic", "h2d"},
                    {"mechanism", "single"},
                    {"copy_bytes", 1 << 20},
                    {"unit", "us"},
                    {"median", beside ? 103 : 100}});
  }
  rows.push_back({{"op", "host_stream"},
                  {"part", "stream"},
                  {"kind", "read"},
                  {"threads", 4},
                  {"bytes", 1'000'000'000},
                  {"memory", "pageable"},
                  {"traffic", "none"},
                  {"unit", "ms"},
                  {"median", 20}});
  for (const double threads : {1.0, 4.0}) {
    for (const double bytes : {1e7, 1e8, 1e9}) {
      rows.push_back({{"op", "cpu_attention"},
                      {"threads", static_cast<int>(threads)},
                      {"batch", 1},
                      {"context", static_cast<std::int64_t>(bytes)},
                      {"kv_bytes", bytes},
                      {"unit", "us"},
                      {"median", 5.0 + 1e6 * bytes / (10e9 * threads)}});
    }
  }
  return json{
      {"schema_version", 1},
      {"kind", "measurements"},
      {"provenance",
       {{"device", nullptr},
        {"host", {{"cpu_model", "Example CPU"}, {"physical_cores", 4}, {"threads", 4}, {"memory_bytes", 64000}}}}},
      {"measurements", std::move(rows)}}
      .dump();
}

/// A GEMM and attention of `seconds` each, in intervals of half a second. The GEMM takes 1 ms at 900 W for 1 s, then
/// `slow` ms at 700 W; the attention draws 400 W.
std::string sustained_rows(double seconds, double slow) {
  json rows = json::array();
  for (const bool gemm : {true, false}) {
    for (int i = 1; 0.5 * i <= seconds; ++i) {
      const bool full = i <= 2;
      rows.push_back({{"op", "sustained"},
                      {"compute", {{"op", gemm ? "gemm" : "decode_attention"}, {"k", 1}}},
                      {"run_s", seconds},
                      {"time_s", 0.5 * i},
                      {"sm_clock_mhz", full ? 1980 : 1500},
                      {"power_w", gemm ? (full ? 900 : 700) : 400},
                      {"unit", "ms"},
                      {"median", gemm && !full ? slow : 1.0}});
    }
  }
  return json{{"schema_version", 1},
              {"kind", "measurements"},
              {"provenance", {{"device", {{"name", "NVIDIA H100 80GB HBM3"}}}}},
              {"measurements", std::move(rows)}}
      .dump();
}

// 1.2 times as long; 300 of the 500 W above attention fit, so 0.6; 1 s / -ln 0.4.
TEST_F(Calibrate, SustainedRowsGiveTheClock) {
  write_text(file("long.json"), sustained_rows(20.0, 1.2));
  const Output fit = calibrate({"fit", "long.json", "--base", "h100-80gb-sxm", "-o", "my.json"});
  ASSERT_EQ(fit.code, 0) << fit.err;
  EXPECT_THAT(fit.out, HasSubstr("\nsustained_share 0.6\nsustained_slowdown 1.2\nsustained_window 1.091\n"));
  const json values = profile("my.json")["values"];
  EXPECT_NEAR(values["sustained_share"]["value"].get<double>(), 0.6, kExact);
  EXPECT_NEAR(values["sustained_slowdown"]["value"].get<double>(), 1.2, kExact);
  EXPECT_NEAR(values["sustained_window"]["value"].get<double>(), -1.0 / std::log(0.4), kExact);
  EXPECT_THAT(values["sustained_share"]["source"]["cite"], testing::StartsWith("GEMM and attention of 20 s: 900 W"));
  EXPECT_EQ(values["sustained_window"]["unit"], "s");
  EXPECT_EQ(profile("my.json")["measurements"]["rows"]["sustained"]["rows"].size(), 80U);
  EXPECT_EQ(spillway({"run", "hardware=my.json", "--dry-run"}).code, 0);
  // A clock that stays removes the base's; rows that do not tell leave it.
  write_text(file("stays.json"), sustained_rows(20.0, 1.0));
  const Output stays = calibrate({"fit", "stays.json", "gemm.csv", "--base", "h100-80gb-sxm", "-o", "my.json"});
  ASSERT_EQ(stays.code, 0) << stays.err;
  EXPECT_THAT(stays.err, HasSubstr("no sustained clock was fitted: the GEMM kept its rate for 20 s\n"));
  EXPECT_FALSE(profile("my.json")["values"].contains("sustained_share"));
  write_text(file("short.json"), sustained_rows(2.0, 1.2));
  const Output shorter = calibrate({"fit", "short.json", "gemm.csv", "--base", "h100-80gb-sxm", "-o", "my.json"});
  ASSERT_EQ(shorter.code, 0) << shorter.err;
  EXPECT_THAT(shorter.err, HasSubstr("the GEMM ran for 2 s, and its clock needs 5 s: measure without --quick\n"));
  EXPECT_EQ(profile("my.json")["values"]["sustained_share"]["value"], 0.4);
  EXPECT_THAT(calibrate({"check", "h100-80gb-sxm", "long.json", "gemm.csv"}).err,
              HasSubstr("they give a profile its sustained clock, not a fit"));
}

TEST_F(Calibrate, MicrobenchmarksGiveAProfileAndAHost) {
  write_text(file("cal.json"), microbenchmarks());
  const std::vector<std::string> fit{"fit", "cal.json", "attention.csv", "--base",      "h100-80gb-sxm",
                                     "-o",  "my.json",  "--host-out",    "my-host.json"};
  const Output out = calibrate(fit);
  ASSERT_EQ(out.code, 0) << out.err;
  EXPECT_EQ(out.err,
            "cal.json: 1 copies from and to pageable memory were left out: engines copy from and to pinned memory\n"
            "wrote my.json\nwrote my-host.json\n");
  EXPECT_THAT(out.out, HasSubstr("\ncopy_compute_slowdown 1.03\nh2d_bandwidth_duplex 1.5e+10\n"));
  const json written = profile("my.json");
  EXPECT_NEAR(written["values"]["h2d_bandwidth_duplex"]["value"].get<double>() / 15e9, 1.0, kExact);
  EXPECT_NEAR(written["values"]["copy_compute_slowdown"]["value"].get<double>(), 1.03, kExact);
  EXPECT_THAT(written["fitted"]["decode_attention"]["source"]["cite"], testing::StartsWith("attention.csv (27 rows"));
  EXPECT_THAT(written["fitted"]["cpu_attention"]["source"]["cite"], testing::StartsWith("cal.json (6 rows"));
  EXPECT_EQ(written["measurements"]["files"][0]["notes"].size(), 1U);
  EXPECT_EQ(spillway({"run", "hardware=my.json", "--dry-run"}).code, 0);
  const hwmodels::HostProfile host = hwmodels::load_host(file("my-host.json").string());
  EXPECT_EQ(host.file.name, "my-host");
  EXPECT_EQ(host.dram_bandwidth, BytesPerSecond(50e9));
  EXPECT_NEAR(host.cpu_attention_efficiency, 0.8, 1e-6);

  std::vector<std::string> as_json = fit;
  as_json.emplace_back("--json");
  const json result = json::parse(calibrate(as_json).out);
  EXPECT_EQ(result["host"], "my-host.json");
  EXPECT_EQ(result["sharing"].size(), 2U);
  EXPECT_EQ(result["sharing"]["copy_compute_slowdown"], written["values"]["copy_compute_slowdown"]["value"]);

  // The message names facts of the host that the files lack, and nothing is written.
  const Output refused = calibrate({"fit", "attention.csv", "-o", "new.json", "--host-out", "new-host.json"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err,
              HasSubstr("a host's file needs host_stream rows of reading, but the measurements have none"));
  EXPECT_FALSE(std::filesystem::exists(file("new.json")));
  const Output unnamed = calibrate({"fit", "cal.json", "-o", "new.json", "--host-out", "host"});
  EXPECT_EQ(unnamed.code, 2);
  EXPECT_THAT(unnamed.err, HasSubstr("the host's name must end in .json, but it is host"));
}

// 2 x 64 x 1000 x 1000 FLOP in 128 us.
TEST_F(Calibrate, ProductsOnTheCpuGiveValuesOfAHost) {
  write_text(file("cpu.csv"), "kind,batch,m,n,k,latency_us\nbmm,96,1,1024,128,122\ngemm,1,64,1000,1000,128\n");
  const Output out = calibrate({"fit", "cpu.csv", "--base", "h100-80gb-sxm", "-o", "my.json"});
  ASSERT_EQ(out.code, 0) << out.err;
  EXPECT_THAT(out.err, HasSubstr("cpu.csv: 1 rows were left out: they are batched products\n"));
  EXPECT_THAT(out.out, HasSubstr("\ngemm_flops_64_rows 1e+12 FLOP/s\n"));
  const json values = json::parse(
      calibrate({"fit", "cpu.csv", "--base", "h100-80gb-sxm", "-o", "my.json", "--json"}).out)["host_values"];
  EXPECT_NEAR(values["gemm_flops_64_rows"]["value"].get<double>() / 1e12, 1.0, kExact);
  EXPECT_EQ(values["gemm_flops_64_rows"]["unit"], "FLOP/s");
  EXPECT_THAT(calibrate({"check", "h100-80gb-sxm", "cpu.csv"}).err,
              HasSubstr("1 rows of host_gemm: they describe a host, not a GPU"));
  // With the other rows of a host, they are a part of its file.
  write_text(file("cal.json"), microbenchmarks());
  ASSERT_EQ(
      calibrate({"fit", "cal.json", "cpu.csv", "--base", "h100-80gb-sxm", "-o", "my.json", "--host-out", "h.json"})
          .code,
      0);
  const hwmodels::HostProfile host = hwmodels::load_host(file("h.json").string());
  ASSERT_EQ(host.gemm_flops.size(), 1U);
  EXPECT_EQ(host.gemm_flops[0].rows, 64);
  EXPECT_NEAR(host.gemm_flops[0].flops / 1e12, 1.0, kExact);
}

TEST_F(Calibrate, DuplexRowsAloneAreTakenBesideABase) {
  json document = json::parse(microbenchmarks());
  json duplex = json::array();
  for (const json& row : document["measurements"]) {
    if (row.value("duplex", false)) duplex.push_back(row);
  }
  document["measurements"] = duplex;
  write_text(file("duplex.json"), document.dump());
  EXPECT_EQ(calibrate({"fit", "duplex.json", "-o", "my.json"}).code, 3);
  ASSERT_EQ(calibrate({"fit", "duplex.json", "--base", "h100-80gb-sxm", "-o", "my.json"}).code, 0);
  EXPECT_EQ(profile("my.json")["values"]["h2d_bandwidth_duplex"]["source"]["kind"], "measured");
}

TEST_F(Calibrate, NamesInAnotherEncodingAreKeptReadable) {
  write_text(file("latin.csv"),
             "kernel,tokens,bytes,latency_us\nl\xe4nge,1,1000,2\nl\xe4nge,2,2000,3\n"
             "b,3,3000,4\nb,4,4000,5\n");
  std::filesystem::rename(file("latin.csv"), file("l\xe4tin.csv"));
  // Two literals, because "\xdfe" would be one character.
  const std::string name = std::string("gr\xf6\xdf") + "er";
  const auto lines = errors_of({"fit", "l\xe4tin.csv", "-o", "my.json", "--name", name});
  EXPECT_TRUE(lines.contains("elementwise"));
  EXPECT_EQ(profile("my.json")["name"],
            "gr\xef\xbf\xbd\xef\xbf\xbd"
            "er");
  EXPECT_EQ(calibrate({"check", "my.json", "l\xe4tin.csv", "--json"}).code, 0);
}

TEST_F(Calibrate, ErrorsIsTheTableOfEveryBundledProfile) {
  const Output errors = calibrate({"errors"});
  ASSERT_EQ(errors.code, 0) << errors.err;
  EXPECT_THAT(errors.err, IsEmpty());
  std::string expected =
      "| profile | op | held-out rows | median / p95 | bias | analytic model, all rows |\n|---|---|---|---|---|---|\n";
  const auto percent = [](double fraction) { return fmt::format("{:.1f}%", 100.0 * fraction); };
  for (const std::string& name : hwmodels::gpu_names()) {
    const hwmodels::GpuProfile gpu = hwmodels::load_gpu(name);
    if (gpu.fitted.empty() || !gpu.fitted_from.empty()) {
      const std::string kernels =
          gpu.fitted.empty() ? "analytic model only" : "kernels of `" + gpu.fitted_from + "`, scaled";
      expected += fmt::format("| `{}` | {} | none | uncalibrated | | |\n", name, kernels);
      continue;
    }
    for (const auto& [op, record] : hwmodels::fit_lines(gpu.fitted)) {
      const auto& [n, median, p95, bias] = record->held_out;
      const std::string analytic =
          record->roofline ? percent(record->roofline->median) + " / " + percent(record->roofline->p95) : "";
      const std::string held_out =
          n == 0 ? "none | |" : fmt::format("{} | {} / {} | {:+.1f}%", n, percent(median), percent(p95), 100.0 * bias);
      const std::string lent = record->source_kind == "borrowed" ? ", of the lender" : "";
      expected += fmt::format("| `{}` | {}{} | {} | {} |\n", name, op, lent, held_out, analytic);
    }
  }
  EXPECT_EQ(errors.out, expected);
}

TEST_F(Calibrate, ErrorsIsTheTableOfThePage) {
  const Output errors = calibrate({"errors"});
  ASSERT_EQ(errors.code, 0) << errors.err;
  std::ifstream trust(source_dir() + "/docs/trust.md");
  const std::string page{std::istreambuf_iterator<char>(trust), {}};
  EXPECT_NE(page.find("\n" + errors.out), std::string::npos) << errors.out;
}

TEST_F(Calibrate, ErrorsOfAFileAreThoseThatItStates) {
  ASSERT_EQ(calibrate({"fit", "elementwise.csv", "--base", "h100-80gb-sxm", "-o", "my.json"}).code, 0);
  json written = profile("my.json");
  written["fitted"]["elementwise"]["held_out"] = {{"n", 12}, {"median", 0.0444}, {"p95", 0.2}, {"bias", -0.0155}};
  written["fitted"]["elementwise"]["roofline"] = {{"n", 12}, {"median", 0.3}, {"p95", 1.5}, {"bias", 0.1}};
  write_text(file("my.json"), written.dump());
  const Output errors = calibrate({"errors", "my.json"});
  ASSERT_EQ(errors.code, 0) << errors.err;
  EXPECT_THAT(errors.out, HasSubstr("\n| `my` | elementwise | 12 | 4.4% / 20.0% | -1.6% | 30.0% / 150.0% |\n"));
}

// An H100's GEMMs on an A100's profile. The A100 lends attention, collectives and links, but neither its errors nor its
// memory.
TEST_F(Calibrate, ABaseOfAnotherGpuLendsWithoutItsError) {
  const Output fit = calibrate({"fit", "gemm.csv", "--base", "a100-80gb-sxm", "--gpu", "NVIDIA H100", "-o", "my.json"});
  ASSERT_EQ(fit.code, 0) << fit.err;
  EXPECT_EQ(
      fit.err,
      "a100-80gb-sxm is another GPU than the measured one: --gpu names NVIDIA H100. What it supplies is borrowed, "
      "not calibrated\nwrote my.json\nmemory and memory_bandwidth are null: give --memory and --bandwidth\n");
  EXPECT_THAT(fit.out, Not(HasSubstr("analytic model")));
  const json written = profile("my.json");
  const std::string cite = "borrowed from a100-80gb-sxm, not calibrated";
  EXPECT_THAT(written["stands_for"], testing::StartsWith("NVIDIA H100; "));
  EXPECT_EQ(written["borrowed"]["from"], "a100-80gb-sxm");
  EXPECT_EQ(written["borrowed"]["parts"],
            json({"attention", "elementwise", "collectives", "links", "datasheet figures"}));
  EXPECT_EQ(written["values"]["memory"]["value"], nullptr);
  EXPECT_EQ(written["values"]["memory_bandwidth"]["value"], nullptr);
  EXPECT_EQ(written["values"]["h2d_bandwidth"]["value"], 25e9);
  EXPECT_EQ(written["values"]["h2d_bandwidth"]["source"]["cite"], cite);
  EXPECT_EQ(written["fitted"]["gemm"][0]["source"]["kind"], "measured");
  for (const char* op : {"decode_attention", "prefill_attention", "elementwise", "all_reduce"}) {
    EXPECT_EQ(written["fitted"][op]["source"]["cite"], cite) << op;
    EXPECT_EQ(written["fitted"][op]["held_out"]["n"], 0) << op;
  }
  const Output without = spillway({"run", "hardware=my.json", "workload.requests=20"});
  EXPECT_EQ(without.code, 2);
  EXPECT_THAT(without.err, testing::AllOf(HasSubstr("my does not state memory"), HasSubstr("--memory SIZE")));
  const Output roofline = spillway({"run", "hardware=my.json", "latency_model=roofline", "memory.gpu_kv=20GB"});
  EXPECT_EQ(roofline.code, 2);
  EXPECT_THAT(roofline.err, HasSubstr("my does not state memory_bandwidth, which latency_model=roofline requires"));
  EXPECT_THAT(roofline.err, HasSubstr("--bandwidth RATE"));

  ASSERT_EQ(
      calibrate({"fit", "gemm.csv", "--base", "a100-80gb-sxm", "--gpu", "NVIDIA H100", "--memory", "85 GB",
                 "--bandwidth", "3350 GB/s", "-o", "my.json"})
          .err,
      "a100-80gb-sxm is another GPU than the measured one: --gpu names NVIDIA H100. What it supplies is borrowed, "
      "not calibrated\nwrote my.json\n");
  const json given = profile("my.json");
  EXPECT_EQ(given["values"]["memory"]["value"], 85'000'000'000);
  EXPECT_EQ(given["values"]["memory_bandwidth"]["value"], 3350e9);
  EXPECT_EQ(given["values"]["memory"]["source"]["cite"], "given by --memory");
  // Decode attention is bound by memory: its bandwidth goes with the memory's.
  EXPECT_NEAR(given["fitted"]["decode_attention"]["bandwidth_bytes_per_s"].get<double>() /
                  written["fitted"]["decode_attention"]["bandwidth_bytes_per_s"].get<double>(),
              3350.0 / 2039.0, 1e-6);
  const Output run = spillway({"run", "hardware=my.json", "workload.requests=20", "-o", "out"});
  ASSERT_EQ(run.code, 0) << run.err;
  const std::string borrowed = cite + ": attention, elementwise, collectives, links, datasheet figures; ";
  const json result = json::parse(read_file(file("out/result.json")));
  EXPECT_THAT(result["validity"][0]["error"],
              testing::AllOf(testing::StartsWith(borrowed), HasSubstr("held-out rows: gemm "),
                             Not(HasSubstr("decode_attention")), Not(HasSubstr("lender"))));
  EXPECT_THAT(run.out, HasSubstr("Validity     borrowed from a100-80gb-sxm, not calibrated: attention,"));
  const std::string explained = spillway({"explain", "./my.json"}).out;
  EXPECT_THAT(explained, HasSubstr("\n  decode_attention: " + cite + "\n"));
  EXPECT_THAT(explained, HasSubstr(borrowed));
  EXPECT_THAT(calibrate({"errors", "./my.json"}).out,
              HasSubstr("| `my` | decode_attention, borrowed | none | | |  |\n"));

  // As the base of its own GPU, the profile still says what it has borrowed, less what is measured now.
  ASSERT_EQ(calibrate({"fit", "attention.csv", "--base", "./my.json", "--gpu", "NVIDIA H100", "-o", "again.json"}).code,
            0);
  const json again = profile("again.json");
  EXPECT_EQ(again["borrowed"]["from"], "a100-80gb-sxm");
  EXPECT_EQ(again["borrowed"]["parts"],
            json({"mixed_attention", "elementwise", "collectives", "links", "datasheet figures"}));
  EXPECT_EQ(again["values"]["memory"]["value"], 85'000'000'000);
  EXPECT_EQ(again["fitted"]["gemm"][0]["source"]["kind"], "measured");
}

// The RTX 4090's profile has no kernels of its own: it borrows the A100's. A fit on it keeps them without an error.
TEST_F(Calibrate, KernelsThatABaseOfTheSameGpuBorrowsHaveNoError) {
  write_text(file("slow.csv"),
             "kernel,tokens,bytes,latency_us\na,1,1e9,2010\na,2,2e9,4010\nb,1,1e9,2010\nb,2,2e9,4010\n");
  const Output fit = calibrate({"fit", "slow.csv", "--base", "rtx4090-24gb", "-o", "my.json"});
  ASSERT_EQ(fit.code, 0) << fit.err;
  EXPECT_THAT(fit.err, Not(HasSubstr("another GPU")));
  const json written = profile("my.json");
  EXPECT_EQ(written["borrowed"], json({{"from", "a100-80gb-sxm"}, {"parts", {"gemm", "attention"}}}));
  EXPECT_EQ(written["values"]["memory"]["value"], 25'250'627'584);
  EXPECT_EQ(written["fitted"]["decode_attention"]["held_out"]["n"], 0);
  EXPECT_THAT(written["error"], Not(HasSubstr("lender")));
}

TEST_F(Calibrate, FactsOfTheGpuNeedUnits) {
  const Output refused = calibrate({"fit", "gemm.csv", "--memory", "48", "--bandwidth", "fast", "-o", "my.json"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, testing::AllOf(HasSubstr("\"48\" is not the size of a GPU's memory, at least 1 GB"),
                                          HasSubstr("such as \"48 GB\""),
                                          HasSubstr("\"fast\" is not the bandwidth of a GPU's memory, at least 1 GB/s"),
                                          HasSubstr("such as \"864 GB/s\"")));
  EXPECT_EQ(calibrate({"fit", "gemm.csv", "--memory", "1kB", "-o", "my.json"}).code, 2);
  EXPECT_FALSE(std::filesystem::exists(file("my.json")));
  // Without a base, they are all that is known.
  ASSERT_EQ(
      calibrate({"fit", "gemm.csv", "attention.csv", "--memory", "48 GB", "--bandwidth", "3.35TB/s", "-o", "my.json"})
          .code,
      0);
  const json values = profile("my.json")["values"];
  EXPECT_EQ(values["memory"]["value"], 48'000'000'000);
  EXPECT_EQ(values["memory_bandwidth"]["value"], 3.35e12);
  EXPECT_EQ(values["peak_flops"]["value"], nullptr);
}

TEST_F(Calibrate, HelpNamesCommandsAndFlags) {
  EXPECT_THAT(spillway({"calibrate", "--help"}).out,
              testing::AllOf(HasSubstr("fit"), HasSubstr("check"), HasSubstr("errors")));
  const std::string fit = spillway({"calibrate", "fit", "--help"}).out;
  for (const char* flag :
       {"--base", "--gpu", "--memory", "--bandwidth", "--out", "--drop-inconsistent", "--model", "--name",
        "--stands-for", "--host-out", "--omit-measurements", "--json", "Example: spillway calibrate fit"}) {
    EXPECT_THAT(fit, HasSubstr(flag));
  }
}

}  // namespace
}  // namespace spillway::test
