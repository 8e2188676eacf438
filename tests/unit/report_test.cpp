#include "sim/report/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "sim/io/atomic_file.hpp"
#include "sim/report/requests.hpp"
#include "sim/study/trust.hpp"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// A new folder; the destructor removes it.
class Folder {
 public:
  Folder() : path_(fs::path(testing::TempDir()) / unique()) { fs::create_directories(path_); }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(path_), fs::directory_iterator());
  }

 private:
  static std::string unique() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    return std::string("spillway_") + test->name() + "_" + std::to_string(::getpid());
  }
  fs::path path_;
};

/// Two of three requests finished; goodput is zero, TPOT has no value: zero and null must stay apart.
Result example() {
  Result result;
  result.tool_version = "1.2.3";
  result.config = resolve_config(config_parameters({{"llama-3.1-8b"}, {"h100-80gb-sxm"}, {"vllm-0.23"}}, {}), {}, {});
  result.setup.model = "llama-3.1-8b";
  result.setup.hardware = "h100-80gb-sxm";
  result.setup.gpu = "h100-80gb-sxm";
  result.setup.engine = "vllm-0.23";
  result.setup.policy = "vllm";
  result.setup.expected_error = "expect TPOT within 8%";
  result.setup.workload = "azure-conv, poisson at 4 requests/s";
  result.setup.requests = 3;
  result.setup.kv.gpu_blocks = Blocks(100);
  result.setup.kv.block_bytes = Bytes(2'097'152);
  result.inputs = {{"gpu", "hwmodels/profiles/h.json", "ab12", "H100", "GEMM 7%"},
                   {"engine", "hwmodels/engines/v.json", "cd34", "vLLM", "no host time"},
                   {"workload", "azure-conv", "ef56", "conversations", ""}};
  RunStatistics& run = result.statistics;
  run.all = run.measured = {.submitted = 3, .finished = 2, .rejected = 1, .timed_out = 0, .unfinished = 0};
  run.span = Duration(2'000'000'000);
  run.engine.resource_time[static_cast<std::size_t>(Resource::memory)] = 1.5;
  run.metrics = {{"mean_ttft_ms", "ms", 0.1, 2},
                 {"max_ttft_ms", "ms", 12.345678901234567, 2},
                 {"mean_tpot_ms", "ms", std::nullopt, 0},
                 {"p99_itl_ms", "ms", 50.0, 9, 0.001},
                 {"mean_e2e_ms", "ms", 1234.5, 2, 0.0, 17.25},
                 {"duration_s", "s", 2.0, 2},
                 {"request_throughput_per_s", "requests/s", 1.0, 2},
                 {"goodput_requests_per_s", "requests/s", 0.0, 2}};
  return result;
}

/// `count` clients; client c waits c ms for its first token, and client 0 finishes no request.
Result with_clients(std::uint32_t count) {
  Result result = example();
  for (std::uint32_t c = 0; c < count; ++c) {
    ClientStatistics client{.client = c, .submitted = 2.0, .finished = c == 0 ? 0.0 : 1.0, .service_tokens = 7.0};
    if (c > 0) client.mean_ttft_ms = client.p99_ttft_ms = static_cast<double>(c);
    result.statistics.clients.push_back(client);
  }
  result.statistics.metrics.push_back({"jain_index", "fraction", 0.75, 2});
  result.statistics.metrics.push_back({"worst_client_p99_ttft_ms", "ms", 3.0, 2});
  return result;
}

// One of its three requests was rejected; all three were measured.
TEST(Report, TableSpeaksOfWarmUpOnlyWhereRequestsWereLeftOut) {
  Result result = example();
  EXPECT_THAT(to_table(result), testing::Not(HasSubstr("measured after")));
  result.statistics.measured.submitted = 2;
  EXPECT_THAT(to_table(result), HasSubstr("; 2 measured after"));
}

TEST(Report, JsonKeepsZeroAndNullApart) {
  const auto json = nlohmann::json::parse(to_json(example()));
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["tool_version"], "1.2.3");
  EXPECT_EQ(json["complete"], true);
  EXPECT_EQ(json["config"]["seed"], 1);
  EXPECT_EQ(json["metrics"]["goodput_requests_per_s"]["value"], 0.0);
  EXPECT_TRUE(json["metrics"]["mean_tpot_ms"]["value"].is_null());
  EXPECT_EQ(json["metrics"]["mean_tpot_ms"]["n"], 0);
  EXPECT_EQ(json["metrics"]["mean_tpot_ms"]["unit"], "ms");
  EXPECT_EQ(json["metrics"]["max_ttft_ms"]["value"].get<double>(), 12.345678901234567);
  EXPECT_EQ(json["metrics"]["p99_itl_ms"]["relative_error"], 0.001);
  EXPECT_EQ(json["metrics"]["mean_e2e_ms"]["half_width"], 17.25);
  EXPECT_FALSE(json["metrics"]["mean_ttft_ms"].contains("half_width"));
  EXPECT_EQ(json["conservation"]["all"]["rejected"], 1);
  EXPECT_EQ(json["bottleneck"]["resource"], "memory");
  EXPECT_EQ(json["bottleneck"]["share"], 0.75);     // 1.5 s of 2 s
  EXPECT_EQ(json["setup"]["gpu_kv_tokens"], 1600);  // 100 blocks of 16
  EXPECT_EQ(json["inputs"][0]["sha256"], "ab12");
  EXPECT_EQ(json["validity"].size(), 2U);
  EXPECT_THAT(json["definitions"]["ttft_ms"]["definition"].get<std::string>(), HasSubstr("queueing included"));
}

TEST(Report, WhatLeftTheMeasuredRangeIsTold) {
  Result result = example();
  EXPECT_THAT(to_table(result), testing::Not(HasSubstr("extrapolated")));
  EXPECT_EQ(nlohmann::json::parse(to_json(result))["outside_measured_range"], nlohmann::json::array());
  result.outside_range = {{"gemm", "n", 32.0, 65536.0, 128256.0, 1, 10'000},
                          {"decode_attention", "context", 2.0, 32768.0, 98304.0, 123, 1000},
                          {"copy_h2d many", "block_bytes", 4096.0, 65536.0, 1024.0, 1, 2}};
  const auto rows = nlohmann::json::parse(to_json(result))["outside_measured_range"];
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[1]["op"], "decode_attention");
  EXPECT_EQ(rows[1]["quantity"], "context");
  EXPECT_EQ(rows[1]["measured"], nlohmann::json::array({2.0, 32768.0}));
  EXPECT_EQ(rows[1]["reached"], 98304.0);
  EXPECT_EQ(rows[1]["fraction"], 0.123);
  EXPECT_FALSE(rows[1].contains("beyond"));
  // The largest share is that of the copies.
  EXPECT_THAT(to_table(result),
              HasSubstr("\nValidity     expect TPOT within 8%; 50% extrapolated: explain validity\n"));
  result.outside_range[0].beyond = "by a law";
  EXPECT_EQ(nlohmann::json::parse(to_json(result))["outside_measured_range"][0]["beyond"], "by a law");
  result.outside_range.pop_back();
  result.outside_range.pop_back();
  EXPECT_THAT(to_table(result), testing::Not(HasSubstr("extrapolated"))) << "0.01% is not shown";
  EXPECT_EQ(range_text({{"copy_h2d many", "block_bytes", 4096.0, 65536.0, 1024.0, 1, 2},
                        {"gemm", "n", 32.0, 65536.0, 128256.0, 1, 10'000, "by a law"}}),
            "copy h2d many: block bytes measured 4096 to 65536, reached 1024 (50.0% of calls); gemm: n measured 32 to "
            "65536, reached 128256 (<0.1% of calls, by a law)");
}

/// GEMM changes every figure by its own scale, and no other class changes any; 5% and its pair change one figure most.
Result perturbed() {
  Result result = example();
  result.perturbation = Robustness{0.05, {}};
  for (Perturbation& one : perturbations(0.05)) {
    const double change = 10.0 * (one.scales.gemm - 1.0) / 5.0 * (one.scales.attention < 1.0 ? 2.0 : 1.0);
    std::vector<PerturbedMetric> metrics;
    metrics.reserve(kComparedMetrics.size());
    for (const std::string_view name : kComparedMetrics) metrics.push_back({std::string(name), 1.0 + change, change});
    metrics.back() = {metrics.back().name, std::nullopt, std::nullopt};
    result.perturbation->runs.push_back({std::move(one), std::move(metrics)});
  }
  return result;
}

// 10 * 0.05 / 5 = 10% alone, 20% with attention at -5%; throughput has no value anywhere.
TEST(Report, PerturbedRunsAreTold) {
  const auto json = nlohmann::json::parse(to_json(perturbed()))["perturbation"];
  EXPECT_EQ(json["fraction"], 0.05);
  ASSERT_EQ(json["runs"].size(), 30U);
  EXPECT_EQ(json["runs"][10]["label"], "GEMM +5%, attention -5%");
  EXPECT_EQ(json["runs"][10]["scales"],
            (nlohmann::json{{"gemm", 1.05}, {"attention", 0.95}, {"copies", 1.0}, {"host", 1.0}, {"cpu", 1.0}}));
  EXPECT_NEAR(json["runs"][10]["metrics"]["mean_ttft_ms"]["change"], 0.2, 1e-12);
  EXPECT_NEAR(json["runs"][10]["metrics"]["mean_ttft_ms"]["value"], 1.2, 1e-12);
  EXPECT_TRUE(json["runs"][10]["metrics"]["request_throughput_per_s"]["change"].is_null());
  EXPECT_FALSE(nlohmann::json::parse(to_json(example())).contains("perturbation"));
  EXPECT_THAT(
      to_table(perturbed()),
      HasSubstr("\nTimes +-5%           mean TTFT        mean TPOT         p99 TTFT          p99 ITL       requests/s"
                "\nGEMM           +10.0% / -10.0%  +10.0% / -10.0%  +10.0% / -10.0%  +10.0% / -10.0%            - / -"
                "\nno change    attention, copies, host, CPU\n"));
  EXPECT_THAT(to_table(perturbed()),
              HasSubstr("\nlargest      mean TTFT +20.0%: GEMM +5%, attention -5% (of 30 runs)\n"));
  EXPECT_EQ(planned_runs(example()), 1);
  EXPECT_EQ(planned_runs(perturbed()), 31);
  EXPECT_THAT(to_setup_table(perturbed()), HasSubstr("\nWith --perturb, there would be 31 runs.\n"));
  EXPECT_EQ(nlohmann::json::parse(to_setup_json(perturbed()))["planned_runs"], 31);
  EXPECT_FALSE(nlohmann::json::parse(to_setup_json(example())).contains("planned_runs"));
}

TEST(Report, LostRequestsAreABrokenInvariant) {
  Result result = example();
  result.statistics.all.submitted = 4;
  EXPECT_THROW(static_cast<void>(to_json(result)), InvariantError);
}

TEST(Report, CsvHasARowPerMetricEmptyForNull) {
  EXPECT_EQ(to_csv(example()),
            "name,value,unit,n\n"
            "mean_ttft_ms,0.1,ms,2\n"
            "max_ttft_ms,12.345678901234567,ms,2\n"
            "mean_tpot_ms,,ms,0\n"
            "p99_itl_ms,50,ms,9\n"
            "mean_e2e_ms,1234.5,ms,2\n"
            "duration_s,2,s,2\n"
            "request_throughput_per_s,1,requests/s,2\n"
            "goodput_requests_per_s,0,requests/s,2\n");
}

TEST(Report, VllmNamesAndNumbersOnly) {
  EXPECT_EQ(to_vllm(example()),
            "{\"completed\":2,\"failed\":1,\"duration\":2.0,\"request_throughput\":1.0,\"request_goodput\":0.0,"
            "\"mean_ttft_ms\":0.1,\"p99_itl_ms\":50.0,\"mean_e2el_ms\":1234.5}\n");
}

TEST(Report, TheTableIsOneScreenHoweverMuchThereIsToSay) {
  Result result = with_clients(8);
  result.request_slos = {{Condition::Op::less, "ttft_ms", 500.0, "ttft_ms<500"}};
  result.run_slos = {judge({Condition::Op::less, "mean_ttft_ms", 9.0, "mean_ttft_ms<9"}, result.statistics)};
  const std::string long_text(300, 'w');
  for (int i = 0; i < 30; ++i)
    result.warnings.push_back("warning " + std::to_string(i) + " about many things " + long_text);
  for (InputFile& input : result.inputs) {
    for (int i = 0; i < 90; ++i) input.error += " and so on";
  }
  for (int i = 0; i < 30; ++i) result.warnings.emplace_back("short");
  for (int i = 0; i < 30; ++i) result.outside_range.push_back({"gemm", "m", 1.0, 2.0, 3.0, 1, 2});
  for (const bool with_perturbation : {true, false}) {
    result.perturbation = with_perturbation ? perturbed().perturbation : std::nullopt;
    std::istringstream lines(to_table(result));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      if (line.find(long_text) == std::string::npos) {
        EXPECT_LE(line.size(), 100U) << line;
      }
    }
    EXPECT_LE(count, 40);
  }
  EXPECT_THAT(to_table(result), HasSubstr(" more: use --json to see all"));
  // What is estimated is not on the screen, so the others have more room.
  result.setup.accuracy.assign(result.warnings.begin(), result.warnings.begin() + 30);
  EXPECT_THAT(to_table(result),
              testing::AllOf(HasSubstr("Warning      short"), testing::Not(HasSubstr("about many things"))));
}

TEST(Report, TheTableShowsWhatIsThere) {
  Result result = example();
  result.complete = false;
  result.warnings = {"look here"};
  result.request_slos = {{Condition::Op::less, "ttft_ms", 500.0, "ttft_ms<500"}};
  result.run_slos = {judge({Condition::Op::less, "mean_tpot_ms", 9.0, "mean_tpot_ms<9"}, result.statistics),
                     judge({Condition::Op::less, "mean_ttft_ms", 9.0, "mean_ttft_ms<9"}, result.statistics)};
  const std::string table = to_table(result);
  EXPECT_THAT(table, HasSubstr("3 submitted = 2 finished + 1 rejected + 0 timed out + 0 unfinished"));
  EXPECT_THAT(table, HasSubstr("INCOMPLETE"));
  EXPECT_THAT(table, HasSubstr("0 requests/s; - of the requests met ttft_ms<500"));
  EXPECT_THAT(table, HasSubstr("mean_tpot_ms<9: not met (no value)"));
  EXPECT_THAT(table, HasSubstr("mean_ttft_ms<9: met (0.1)"));
  EXPECT_THAT(table, HasSubstr("pNN +-0.1%"));
  EXPECT_THAT(table, HasSubstr("Warning      look here"));
}

TEST(Report, ClientsAreListedWorstFirst) {
  const auto json = nlohmann::json::parse(to_json(with_clients(4)));
  ASSERT_EQ(json["clients"].size(), 4U);
  EXPECT_EQ(json["clients_omitted"], 0);
  EXPECT_EQ(json["clients"][0]["client"], 3);
  EXPECT_EQ(json["clients"][0]["mean_ttft_ms"], 3.0);
  EXPECT_EQ(json["clients"][0]["submitted_requests"], 2.0);
  EXPECT_EQ(json["clients"][0]["service_tokens"], 7.0);
  EXPECT_EQ(json["clients"][0]["replications"], 1);
  EXPECT_EQ(json["clients"][3]["client"], 0) << "without a mean: last";
  EXPECT_TRUE(json["clients"][3]["mean_ttft_ms"].is_null());
  EXPECT_FALSE(nlohmann::json::parse(to_json(example())).contains("clients"));
  EXPECT_FALSE(nlohmann::json::parse(to_json(example())).contains("clients_omitted"));
}

TEST(Report, ManyClientsAreCutAndCounted) {
  const auto json = nlohmann::json::parse(to_json(with_clients(1203)));
  EXPECT_EQ(json["clients"].size(), 1000U);
  EXPECT_EQ(json["clients_omitted"], 203);
  EXPECT_EQ(json["clients"][999]["client"], 203);
}

TEST(Report, TheTableNamesTheWorstClients) {
  const std::string table = to_table(with_clients(8));
  EXPECT_THAT(table, HasSubstr("Fairness     8 clients: Jain's index 0.75, largest service difference - weighted"));
  EXPECT_THAT(table, HasSubstr("7: 7, 6: 6, 5: 5, 4: 4, 3: 3\n"));
  EXPECT_THAT(to_table(example()), testing::Not(HasSubstr("Fairness")));
}

TEST(Report, TheVllmExportHasNothingOfSingleClients) { EXPECT_EQ(to_vllm(with_clients(3)), to_vllm(example())); }

TEST(Report, ReplicationsShowTheirInterval) {
  Result result = example();
  result.config.settings.set("replications", std::int64_t{3});
  const std::string table = to_table(result);
  EXPECT_THAT(table, HasSubstr("3 replications"));
  EXPECT_THAT(table, HasSubstr("max   mean +-\n"));
  EXPECT_THAT(table,
              HasSubstr("E2E (ms)                     1234          -          -          -          -     17.25\n"));
}

RequestRecord finished() {
  RequestRecord record;
  record.index = 7;
  record.client = 3;
  record.outcome = Outcome::finished;
  record.arrival = SimTime(1'000'000);
  record.first_scheduled = SimTime(2'000'000);
  record.first_token = SimTime(6'000'000);
  record.end = SimTime(13'000'000);
  record.computing = Duration(9'000'000);
  record.input = Tokens(10);
  record.output = Tokens(3);
  record.generated = Tokens(3);
  return record;
}

// TTFT 6 - 1 = 5 ms, E2E 13 - 1 = 12 ms, TPOT (12 - 5) / 2 = 3.5 ms; per token: 12 / 3, (12 - 9) / 3 and 9 / 3.
TEST(Requests, JsonLines) {
  const Folder folder;
  RequestsFile file(folder / "r.jsonl");
  file.write(0, finished());
  RequestRecord rejected;
  rejected.outcome = Outcome::rejected;
  rejected.end = SimTime(5);
  file.write(0, rejected);
  file.finish(0);
  file.commit();
  EXPECT_EQ(content(folder / "r.jsonl"),
            R"({"replication":0,"index":7,"client":3,"outcome":"finished","arrival_ns":1000000,)"
            R"("first_scheduled_ns":2000000,"first_token_ns":6000000,"end_ns":13000000,"ttft_ms":5,"tpot_ms":3.5,)"
            R"("e2e_ms":12,"normalised_ms_per_token":4,"queueing_ms_per_token":1,"compute_ms_per_token":3,)"
            R"("input_tokens":10,"output_tokens":3,"generated_tokens":3,"cached_tokens":0,"preempted_recompute":0,)"
            R"("preempted_swap":0,"conversation":null,"turn":null,"class":null,"replica":0,"decode_replica":null})"
            "\n"
            R"({"replication":0,"index":0,"client":0,"outcome":"rejected","arrival_ns":0,"first_scheduled_ns":null,)"
            R"("first_token_ns":null,"end_ns":5,"ttft_ms":null,"tpot_ms":null,"e2e_ms":null,)"
            R"("normalised_ms_per_token":null,"queueing_ms_per_token":null,"compute_ms_per_token":null,)"
            R"("input_tokens":0,"output_tokens":0,"generated_tokens":0,"cached_tokens":0,"preempted_recompute":0,)"
            R"("preempted_swap":0,"conversation":null,"turn":null,"class":null,"replica":0,"decode_replica":null})"
            "\n");
}

TEST(Requests, CsvHasTheSameColumnsEmptyForNull) {
  const Folder folder;
  RequestsFile file(folder / "r.csv");
  file.write(0, finished());
  RequestRecord rejected;
  rejected.outcome = Outcome::rejected;
  file.write(0, rejected);
  file.commit();
  const std::string csv = content(folder / "r.csv");
  EXPECT_THAT(csv, HasSubstr("replication,index,client,outcome,arrival_ns,first_scheduled_ns,first_token_ns,end_ns,"));
  EXPECT_THAT(csv, HasSubstr("\n0,7,3,finished,1000000,2000000,6000000,13000000,5,3.5,12,4,1,3,10,3,3,0,0,0,,,,0,\n"));
  EXPECT_THAT(csv, HasSubstr("\n0,0,0,rejected,0,,,,,,,,,,0,0,0,0,0,0,,,,0,\n"));
}

TEST(Requests, ReplicationsAppearInOrderWhicheverEndsFirst) {
  const Folder folder;
  RequestsFile file(folder / "r.csv");
  for (const std::int64_t replication : {2, 0, 1, 2, 0}) file.write(replication, finished());
  for (const std::int64_t replication : {2, 0, 1}) file.finish(replication);
  file.commit();
  std::istringstream lines(content(folder / "r.csv"));
  std::string order;
  for (std::string line; std::getline(lines, line);) order += line.front();
  EXPECT_EQ(order, "r00122");
}

TEST(AtomicFile, ShowsNothingBeforeItIsComplete) {
  const Folder folder;
  {
    AtomicFile file(folder / "a");
    file.write("half");
    EXPECT_FALSE(fs::exists(folder / "a"));
  }
  EXPECT_EQ(folder.entries(), 0);
  write_file(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.write("half");
  }
  EXPECT_EQ(content(folder / "a"), "old");
  write_file(folder / "a", "new");
  EXPECT_EQ(content(folder / "a"), "new");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFile, FollowsLinksAndLeavesDevicesAlone) {
  const Folder folder;
  write_file(folder / "target", "old");
  fs::create_symlink(folder / "target", folder / "link");
  write_file(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(content(folder / "target"), "new");
  write_file("/dev/null", "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(AtomicFile, AFullDiskAndAMissingFolderAreErrors) {
  try {
    write_file("/dev/full", std::string(1 << 16, 'x'));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.problems().at(0).what, HasSubstr("/dev/full: No space left on device"));
  }
  const Folder folder;
  EXPECT_THROW(AtomicFile(folder / "no/such/file"), ConfigError);
  EXPECT_THROW(AtomicFile(folder / ""), ConfigError);
}

}  // namespace
}  // namespace spillway
