// What fits a screen: names as people write them, one line of validity, tables of 100 columns, short help, prices.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.hpp"

namespace spillway::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class ScreenTest : public CliTest {};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string line_with(const std::string& text, const std::string& start) {
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with(start)) return line;
  }
  return "";
}

std::size_t widest(const std::string& text) {
  std::size_t width = 0;
  for (const std::string& line : lines_of(text)) width = std::max(width, line.size());
  return width;
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  return cells;
}

TEST_F(ScreenTest, NamesResolveAndTheResultShowsThem) {
  const Output run = spillway(
      {"run", "hardware=H100", "model=Llama-3.1-8B", "policy=VLLM", "workload.trace=ShareGPT", "workload.requests=20"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("llama-3.1-8b on 1 x h100-80gb-sxm, policy vllm, "));
  const Output server = spillway({"run", "hardware=HGX_H100_8", "--dry-run"});
  EXPECT_EQ(server.code, 0) << server.err;
  EXPECT_THAT(server.out, HasSubstr("1 x h100-80gb-sxm of hgx-h100-8, "));
  const Output compared = spillway({"compare", "policy=VLLM,Sarathi", "--baseline", "SARATHI", "--dry-run"});
  EXPECT_THAT(compared.out, HasSubstr("  policy=vllm\n  policy=sarathi (baseline)\n"));
  EXPECT_EQ(spillway({"explain", "A10G"}).out, spillway({"explain", "a10g-24gb"}).out);
  EXPECT_EQ(spillway({"explain", "FlexGen"}).out, spillway({"explain", "flexgen"}).out);
}

TEST_F(ScreenTest, AmbiguousAndRepeatedNamesAreAnswered) {
  const Output ambiguous = spillway({"run", "hardware=GH200"});
  EXPECT_EQ(ambiguous.code, 2);
  EXPECT_THAT(ambiguous.err, HasSubstr("\"GH200\" can mean gh200-120gb, gh200-96gb or gh200-server"));
  const Output twice = spillway({"compare", "policy=pie,PIE"});
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, HasSubstr("policy: the value pie is given twice"));
}

TEST_F(ScreenTest, ARunSaysInOneLineHowFarToTrustIt) {
  const Output run = spillway({"run", "workload.requests=100"});
  const std::string line = line_with(run.out, "Validity");
  // The profile's p95 of decode iterations is 7.2%, of GEMM 17.8%, of prefill attention 20.04%: rounded up.
  EXPECT_THAT(line, AllOf(StartsWith("Validity     expect TPOT within 8%, TTFT 21%; CPU time assumed; "),
                          testing::EndsWith("% extrapolated: explain validity")));
  EXPECT_LE(line.size(), 100U);
  EXPECT_THAT(run.out, Not(HasSubstr("KV blocks per GPU are an estimate")));
  const auto json = nlohmann::json::parse(spillway({"run", "workload.requests=100", "--json"}).out);
  EXPECT_THAT(json.at("warnings").dump(), HasSubstr("KV blocks per GPU are an estimate"));
  EXPECT_EQ(json.at("setup").at("expected_error"), "expect TPOT within 8%, TTFT 21%");
  const std::string explained = spillway({"explain", "validity"}).out;
  EXPECT_THAT(explained, HasSubstr("2.6% / 7.2%"));
  EXPECT_THAT(line_with(explained, "  h100-80gb-sxm"), HasSubstr("itself"));
  EXPECT_THAT(line_with(explained, "  a10-24gb"), HasSubstr("a100-80gb-sxm"));
}

TEST_F(ScreenTest, BorrowedKernelsAndWarningsThatChangeTheAnswerAreSaid) {
  const Output run = spillway({"run", "hardware=a10-24gb", "workload.requests=500", "workload.rate=30"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("uncalibrated: at best TPOT within 12%, TTFT 17%, the error on a100-80gb-sxm, whose"));
  EXPECT_THAT(run.out, HasSubstr("Warning      saturated: "));
  EXPECT_LE(widest(run.out), 100U);
}

TEST_F(ScreenTest, ComparisonsAndSearchesFitTheScreen) {
  const Output compared =
      spillway({"compare", "policy=vllm,tensorrt-llm,orca", "workload.rate=8", "workload.requests=60", "--slo",
                "ttft_ms<500,p99_itl_ms<100", "hardware.price_per_hour=2", "--progress", "off"});
  EXPECT_EQ(compared.code, 0) << compared.err;
  EXPECT_LE(widest(compared.out), 100U);
  EXPECT_THAT(compared.out, AllOf(HasSubstr("req/s"), HasSubstr("mean TTFT"), HasSubstr("cost per"),
                                  Not(HasSubstr("throughput_\n"))));
  const Output searched =
      spillway({"search", "policy=vllm,sarathi", "--max", "workload.rate", "--slo", "p99_ttft_ms<1000", "--tolerance",
                "20%", "workload.requests=60", "replications=1"});
  EXPECT_LE(widest(searched.out), 100U);
  EXPECT_THAT(searched.out, HasSubstr("Misses at    policy=vllm: "));
}

TEST_F(ScreenTest, TheRowsOfASearchNameAxesIntervalsAndTheWinner) {
  const Output searched =
      spillway({"search", "policy=vllm,sarathi", "--max", "workload.rate", "--slo", "p99_ttft_ms<1000", "--tolerance",
                "20%", "workload.requests=60", "replications=2", "--format", "csv"});
  const std::vector<std::string> lines = lines_of(searched.out);
  ASSERT_GT(lines.size(), 3U) << searched.err;
  EXPECT_THAT(lines[0], StartsWith("configuration,policy,workload.rate,requests,holds,found,winner,reason,mean_ttft_ms,"
                                   "half_width_mean_ttft_ms,"));
  std::map<std::string, int> found;
  std::vector<std::string> winners;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> cells = cells_of(lines[i]);
    EXPECT_EQ(cells[0], "policy=" + cells[1]);
    if (cells[5] == "true") {
      EXPECT_EQ(cells[4], "true");
      ++found[cells[1]];
    }
    if (cells[6] == "true") winners.push_back(cells[1]);
    EXPECT_FALSE(cells[9].empty()) << "the half-width of two replications";
  }
  EXPECT_EQ(found, (std::map<std::string, int>{{"sarathi", 1}, {"vllm", 1}}));
  EXPECT_EQ(winners, std::vector<std::string>{"vllm"}) << "sarathi's engine spends more time on the CPU";
}

TEST_F(ScreenTest, HelpIsOneScreenAndTheKeysAreAList) {
  EXPECT_LE(lines_of(spillway({"run", "--help"}).out).size(), 40U);
  for (const char* command : {"run", "sweep", "compare", "search"}) {
    EXPECT_THAT(spillway({command, "--help"}).out, HasSubstr("spillway list keys"));
  }
  const std::string keys = spillway({"list", "keys"}).out;
  EXPECT_THAT(line_with(keys, "workload.rate "), HasSubstr("Mean offered rate"));
  EXPECT_THAT(line_with(keys, "hardware "), HasSubstr("Default: h100-80gb-sxm"));
  EXPECT_THAT(line_with(keys, "policy.scheduler "), Not(HasSubstr(" any ")));
}

TEST_F(ScreenTest, AFlagThatIsAKeyIsAnsweredWithTheKey) {
  const auto answer = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), "run");
    const Output run = spillway(flags);
    EXPECT_EQ(run.code, 2);
    return run.err;
  };
  EXPECT_THAT(answer({"--rate", "8"}), HasSubstr("did you mean workload.rate=8?"));
  EXPECT_THAT(answer({"--rate=8"}), HasSubstr("did you mean workload.rate=8?"));
  EXPECT_THAT(answer({"--seed", "3", "policy=pie"}), HasSubstr("did you mean seed=3?"));
  EXPECT_THAT(answer({"--max-num-seqs", "64"}), HasSubstr("did you mean engine.max_num_seqs=64?"));
  EXPECT_THAT(answer({"--rate"}), HasSubstr("did you mean workload.rate=VALUE?"));
  EXPECT_THAT(answer({"--rate", "policy=pie"}), HasSubstr("did you mean workload.rate=VALUE?"));
  EXPECT_THAT(answer({"--formt", "csv"}), HasSubstr("did you mean \"--format\"?"));
}

TEST_F(ScreenTest, APriceGivesCostAndAPowerGivesEnergy) {
  const auto json_of = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"run", "workload.requests=50", "--json"});
    return nlohmann::json::parse(spillway(more).out);
  };
  const auto plain = json_of({});
  EXPECT_FALSE(plain.at("metrics").contains("cost_per_million_output_tokens"));
  EXPECT_FALSE(plain.at("config").contains("hardware.price_per_hour"));
  const auto priced = json_of({"hardware.price_per_hour=2.5", "hardware.power_watts=700", "replicas=2"});
  // Two GPUs at 2.5 per hour, and of 700 W, over the tokens of an hour.
  const double per_hour = priced.at("metrics").at("output_throughput_tokens_per_s").at("value").get<double>() * 3600.0;
  EXPECT_DOUBLE_EQ(priced.at("metrics").at("cost_per_million_output_tokens").at("value").get<double>(),
                   5.0 / per_hour * 1e6);
  EXPECT_DOUBLE_EQ(priced.at("metrics").at("energy_kwh_per_million_output_tokens").at("value").get<double>(),
                   1.4 / per_hour * 1e6);
  const Output table = spillway({"run", "workload.requests=50", "hardware.price_per_hour=2.5"});
  EXPECT_THAT(line_with(table.out, "Cost"), HasSubstr("per million output tokens; 2.5 per GPU and hour, 1 GPU"));
}

TEST_F(ScreenTest, AFileOfPricesIsAnInputOfTheRun) {
  write_text(file("prices.json"),
             R"({"prices": [{"hardware": "H100", "price_per_hour": 2.5, "date": "2026-01-02", "source": "list"}]})");
  const Output run = spillway({"run", "workload.requests=50", "hardware.price_per_hour=prices.json", "--json"});
  EXPECT_EQ(run.code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json.at("setup").at("price"), "2.5 per GPU and hour, 1 GPU (list, 2026-01-02)");
  EXPECT_THAT(json.at("inputs").dump(), HasSubstr("prices.json"));
  const Output other = spillway({"run", "hardware=a10g", "hardware.price_per_hour=prices.json"});
  EXPECT_EQ(other.code, 3);
  EXPECT_THAT(other.err, HasSubstr("no price of a10g-24gb"));
  EXPECT_THAT(other.err, HasSubstr("the file has prices of h100-80gb-sxm"));
  for (const char* bad : {"hardware.price_per_hour=free", "hardware.price_per_hour=0", "hardware.power_watts=0",
                          "hardware.power_watts=many"}) {
    EXPECT_EQ(spillway({"run", bad}).code, 2) << bad;
  }
  EXPECT_EQ(spillway({"run", "hardware.price_per_hour=./none.json"}).code, 3);
}

TEST_F(ScreenTest, SweepsShowTheCost) {
  const Output swept = spillway(
      {"sweep", "policy=vllm,sarathi", "workload.requests=50", "hardware.price_per_hour=2", "--format", "csv"});
  EXPECT_THAT(lines_of(swept.out).at(0), HasSubstr("cost_per_million_output_tokens"));
  const Output found = spillway({"run", "workload.requests=50", "hardware.price_per_hour=2", "--fail-if",
                                 "cost_per_million_output_tokens>0.0001"});
  EXPECT_EQ(found.code, 5);
}

}  // namespace
}  // namespace spillway::test
