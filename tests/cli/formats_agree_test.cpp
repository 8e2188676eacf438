// Table, JSON, CSV, the vLLM export and the rows per request agree about one run.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "tests/cli/command.hpp"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class FormatsAgree : public CliTest {
 protected:
  /// Some requests wait, some answers have one token (no TPOT), some requests are too long.
  [[nodiscard]] std::string in(const std::string& format) const {
    const Output run =
        spillway({"run", "--format", format, "workload.rate=30", "workload.requests=400", "engine.max_model_len=4096",
                  "--slo", "ttft_ms<200", "--requests-out", "requests.jsonl"});
    EXPECT_EQ(run.code, 0) << run.err;
    return run.out;
  }
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  if (!text.empty() && text.back() == separator && separator != '\n') parts.emplace_back();
  return parts;
}

TEST_F(FormatsAgree, CsvHasEveryMetricOfTheJson) {
  const json metrics = json::parse(in("json"))["metrics"];
  const auto rows = split(in("csv"), '\n');
  ASSERT_EQ(rows.size(), metrics.size() + 1);
  EXPECT_EQ(rows[0], "name,value,unit,n");
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const auto cells = split(rows[i], ',');
    ASSERT_EQ(cells.size(), 4U) << rows[i];
    const json& metric = metrics.at(cells[0]);
    EXPECT_EQ(cells[2], metric["unit"]);
    EXPECT_EQ(std::stoll(cells[3]), metric["n"]);
    if (metric["value"].is_null()) {
      EXPECT_EQ(cells[1], "");
    } else {
      EXPECT_EQ(std::stod(cells[1]), metric["value"].get<double>()) << cells[0];
    }
  }
}

TEST_F(FormatsAgree, TheVllmExportHasTheSameFigures) {
  const json result = json::parse(in("json"));
  const json& metrics = result["metrics"];
  const json vllm = json::parse(in("vllm"));
  const std::map<std::string, std::string> names{{"duration", "duration_s"},
                                                 {"total_input_tokens", "input_tokens"},
                                                 {"total_output_tokens", "output_tokens"},
                                                 {"request_throughput", "request_throughput_per_s"},
                                                 {"request_goodput", "goodput_requests_per_s"},
                                                 {"output_throughput", "output_throughput_tokens_per_s"},
                                                 {"total_token_throughput", "total_throughput_tokens_per_s"},
                                                 {"mean_ttft_ms", "mean_ttft_ms"},
                                                 {"median_tpot_ms", "median_tpot_ms"},
                                                 {"std_itl_ms", "std_itl_ms"},
                                                 {"p99_itl_ms", "p99_itl_ms"},
                                                 {"p99_e2el_ms", "p99_e2e_ms"}};
  for (const auto& [theirs, ours] : names) EXPECT_EQ(vllm.at(theirs), metrics.at(ours)["value"]) << theirs;
  EXPECT_EQ(vllm["completed"], result["conservation"]["measured"]["finished"]);
  for (const auto& [key, value] : vllm.items()) EXPECT_TRUE(value.is_number()) << key;
  for (const char* count : {"completed", "failed", "total_input_tokens", "total_output_tokens"}) {
    EXPECT_TRUE(vllm.at(count).is_number_integer()) << count;
  }
  EXPECT_TRUE(vllm.at("duration").is_number_float());
}

TEST_F(FormatsAgree, SeveralClientsAddMetricsAndRowsButNoVllmKeys) {
  const auto run = [this](const std::string& format, const std::string& clients) {
    const Output out = spillway({"run", "--format", format, "workload.rate=30", "workload.requests=400",
                                 "workload.clients=" + clients, "--requests-out", "requests.jsonl"});
    EXPECT_EQ(out.code, 0) << out.err;
    return out.out;
  };
  EXPECT_EQ(run("vllm", "1"), run("vllm", "3")) << "the policy does not look at clients";
  EXPECT_FALSE(json::parse(run("json", "1")).contains("clients"));
  const json result = json::parse(run("json", "3"));
  std::map<int, std::pair<double, int>> ttft;  // by client: sum, number
  for (const std::string& line : split(read_file(file("requests.jsonl")), '\n')) {
    const json row = json::parse(line);
    auto& [sum, n] = ttft[row["client"]];
    sum += row["ttft_ms"].get<double>();
    ++n;
  }
  ASSERT_EQ(result["clients"].size(), 3U);
  EXPECT_EQ(ttft.size(), 3U);
  double worst = 0.0;
  for (const json& client : result["clients"]) {
    const auto& [sum, n] = ttft.at(client["client"]);
    EXPECT_EQ(client["finished_requests"], n);
    EXPECT_NEAR(client["mean_ttft_ms"], sum / n, 1e-9);
    worst = std::max(worst, client["mean_ttft_ms"].get<double>());
  }
  EXPECT_EQ(result["metrics"]["worst_client_mean_ttft_ms"]["value"], worst);
  EXPECT_THAT(run("table", "3"), HasSubstr("Fairness     3 clients: Jain's index "));
}

TEST_F(FormatsAgree, TheTableRoundsTheSameFigures) {
  const json result = json::parse(in("json"));
  const std::string table = in("table");
  const std::map<std::string, std::string> rows{{"TTFT (ms)", "ttft_ms"},
                                                {"TPOT (ms)", "tpot_ms"},
                                                {"ITL (ms)", "itl_ms"},
                                                {"E2E (ms)", "e2e_ms"},
                                                {"Normalised (ms/token)", "normalised_ms_per_token"},
                                                {"Queueing (ms/token)", "queueing_ms_per_token"},
                                                {"Compute (ms/token)", "compute_ms_per_token"}};
  std::size_t found = 0;
  for (const std::string& line : split(table, '\n')) {
    const auto row = rows.find(line.substr(0, line.find(')') + 1));
    if (row == rows.end()) continue;
    ++found;
    std::istringstream cells(line.substr(22));
    for (const char* statistic : {"mean", "p50", "p90", "p99", "max"}) {
      double shown = -1.0;
      cells >> shown;
      const double exact = result["metrics"][statistic + ("_" + row->second)]["value"];
      // At least three digits are shown, so rounding changes the third digit by at most 5 in the next place.
      EXPECT_NEAR(shown, exact, 0.005 * std::abs(exact)) << line;
    }
  }
  EXPECT_EQ(found, rows.size());
  const json& counts = result["conservation"]["all"];
  EXPECT_THAT(table, HasSubstr(std::to_string(counts["submitted"].get<int>()) +
                               " submitted = " + std::to_string(counts["finished"].get<int>()) + " finished + " +
                               std::to_string(counts["rejected"].get<int>()) + " rejected"));
}

// The rows per request have integers, so the metrics can be recomputed from the rows.
TEST_F(FormatsAgree, TheRowsPerRequestGiveTheMetricsAgain) {
  const json result = json::parse(in("json"));
  double ttft = 0.0;
  double tpot = 0.0;
  std::int64_t finished = 0;
  std::int64_t rejected = 0;
  std::int64_t with_tpot = 0;
  std::int64_t output = 0;
  std::int64_t good = 0;
  for (const std::string& line : split(read_file(file("requests.jsonl")), '\n')) {
    const json row = json::parse(line);
    rejected += row["outcome"] == "rejected" ? 1 : 0;
    if (row["outcome"] != "finished") continue;
    ++finished;
    const auto at = [&](const char* key) { return row[key].get<std::int64_t>(); };
    const double first_ms = static_cast<double>(at("first_token_ns") - at("arrival_ns")) / 1e6;
    ttft += first_ms;
    good += first_ms < 200.0 ? 1 : 0;
    output += at("generated_tokens");
    EXPECT_EQ(at("generated_tokens"), at("output_tokens"));
    EXPECT_DOUBLE_EQ(row["ttft_ms"].get<double>(), first_ms);
    EXPECT_EQ(row["tpot_ms"].is_null(), at("generated_tokens") == 1);
    if (row["tpot_ms"].is_null()) continue;
    ++with_tpot;
    tpot += static_cast<double>(at("end_ns") - at("first_token_ns")) / 1e6 /
            static_cast<double>(at("generated_tokens") - 1);
  }
  const json& metrics = result["metrics"];
  EXPECT_EQ(finished, result["conservation"]["all"]["finished"]);
  EXPECT_EQ(rejected, result["conservation"]["all"]["rejected"]);
  EXPECT_GT(rejected, 0);
  EXPECT_EQ(finished, metrics["mean_ttft_ms"]["n"]);
  EXPECT_EQ(with_tpot, metrics["mean_tpot_ms"]["n"]);
  EXPECT_NEAR(ttft / static_cast<double>(finished), metrics["mean_ttft_ms"]["value"], 1e-9);
  EXPECT_NEAR(tpot / static_cast<double>(with_tpot), metrics["mean_tpot_ms"]["value"], 1e-9);
  EXPECT_EQ(static_cast<double>(output), metrics["output_tokens"]["value"]);
  const double span = metrics["duration_s"]["value"];
  EXPECT_NEAR(static_cast<double>(good) / span, metrics["goodput_requests_per_s"]["value"], 1e-9);
}

}  // namespace
}  // namespace spillway::test
