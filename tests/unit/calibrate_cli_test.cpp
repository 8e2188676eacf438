// The command line of cuda_calibrate on a machine whose times the test sets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cuda_calibrate/measure/cli.hpp"
#include "tests/unit/calibrate_fakes.hpp"
#include "tests/unit/calibrate_schema.hpp"

namespace spillway::calibrate {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// Lends a backend that the test owns.
class Borrowed : public Backend {
 public:
  explicit Borrowed(FakeBackend& lender) : lender_(lender) {}
  [[nodiscard]] MachineFacts facts() override {
    if (lender_.kernel.empty()) throw DeviceError("the driver does not answer", true);
    return lender_.facts();
  }
  [[nodiscard]] std::unique_ptr<Case> prepare(const Point& point) override { return lender_.prepare(point); }

 private:
  FakeBackend& lender_;
};

struct Said {
  int code = -1;
  std::string out;
  std::string err;
};

class CalibrateCli : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              fmt::format("calibrate_cli_{}", testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string file(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] static json read(const std::string& path) {
    std::ifstream in(path);
    return json::parse(in);
  }

  Said call(const std::vector<std::string>& arguments) {
    std::vector<const char*> argv{"build/cuda/cuda_calibrate"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    const Environment environment{[this](std::int64_t gpu, std::uint64_t /*seed*/) -> std::unique_ptr<Backend> {
                                    if (gpu > 1) throw DeviceError("there is no GPU 7", false);
                                    return std::make_unique<Borrowed>(backend_);
                                  },
                                  [this] { return backend_.now; }, [] { return std::string("2026-01-31T12:00:00Z"); },
                                  [this]() -> const std::atomic<bool>& { return stop_; }};
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    Said said;
    said.code = tool_main(static_cast<int>(argv.size()), argv.data(), environment, subcommands_);
    said.out = testing::internal::GetCapturedStdout();
    said.err = testing::internal::GetCapturedStderr();
    return said;
  }

  FakeBackend backend_{fake_machine(1), millisecond_each};
  std::atomic<bool> stop_{false};
  std::vector<Subcommand> subcommands_{};

 private:
  std::filesystem::path folder_;
};

TEST_F(CalibrateCli, DryRun_ExplainsItself) {
  const Said said = call({"--dry-run", "--quick"});
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.out, HasSubstr("GPU 0 of 1: Fake GPU, 85.9 GB, 132 SMs, 50 MiB of L2, sm_90"));
  EXPECT_THAT(said.out, HasSubstr("copy.contig            48"));
  EXPECT_THAT(said.out, HasSubstr("skipped: not part of a quick run"));
  EXPECT_THAT(said.out, HasSubstr("of at most 60 s for a quick run"));
  EXPECT_EQ(said.err, "");
  EXPECT_EQ(backend_.prepared, 0);
}

TEST_F(CalibrateCli, DryRunJson_HasEveryPoint) {
  const Said said = call({"--dry-run", "--json", "--quick", "--sections", "gemm,launch"});
  ASSERT_EQ(said.code, 0);
  const json plan = json::parse(said.out);
  EXPECT_EQ(plan["level"], "quick");
  EXPECT_EQ(plan["device"]["name"], "Fake GPU");
  ASSERT_EQ(plan["sections"].size(), 2U);
  EXPECT_EQ(plan["sections"][0]["points"].size(), 48U);
  EXPECT_EQ(plan["sections"][0]["points"][0][0]["op"], "gemm");
  EXPECT_GT(plan["sections"][1]["estimated_seconds"], 0.0);
}

TEST_F(CalibrateCli, AssumedGpu_IsPlannedFor) {
  const Said t4 = call({"--dry-run", "--json", "--assume", "t4-16gb"});
  ASSERT_EQ(t4.code, 0) << t4.err;
  EXPECT_EQ(json::parse(t4.out)["device"]["name"], "Tesla T4");
  EXPECT_EQ(t4.out.find("bf16\": true"), std::string::npos);
  EXPECT_EQ(call({"--dry-run", "--assume", "t5"}).code, 2);
  EXPECT_EQ(call({"--assume", "t4-16gb", "-o", file("x.json")}).code, 2);
}

// The fake machine has "Test CPU"s; a server brings its own host.
TEST_F(CalibrateCli, AssumedHardware_SaysWhoseHostItIs) {
  const Said gpu = call({"--dry-run", "--assume", "h100-80gb-sxm"});
  EXPECT_THAT(gpu.out, HasSubstr("GPU 0 of 1, assumed: NVIDIA H100"));
  EXPECT_THAT(gpu.out, HasSubstr("\nhost (this machine): "));
  const Said server = call({"--dry-run", "--assume", "hgx-h100-8"});
  EXPECT_THAT(server.out, HasSubstr("\nhost (assumed): hgx-h100-host, "));
  EXPECT_THAT(call({"--dry-run"}).out, HasSubstr("\nhost: "));
  const auto assumed = [&](const std::vector<std::string>& arguments) {
    return json::parse(call(arguments).out)["assumed"];
  };
  EXPECT_EQ(assumed({"--dry-run", "--json"}), (json{{"device", false}, {"host", false}}));
  EXPECT_EQ(assumed({"--dry-run", "--json", "--assume", "t4-16gb"}), (json{{"device", true}, {"host", false}}));
  EXPECT_EQ(assumed({"--dry-run", "--json", "--assume", "hgx-h100-8"}), (json{{"device", true}, {"host", true}}));
}

TEST_F(CalibrateCli, AFileOfAnEarlierRun_IsReplacedOnlyByForce) {
  const std::vector<std::string> arguments{"--quick", "--sections", "launch", "-o", file("gpu.json")};
  ASSERT_EQ(call(arguments).code, 0);
  const json first = read(file("gpu.json"));
  const Said again = call(arguments);
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("gpu.json exists"));
  EXPECT_THAT(again.err, HasSubstr("add --resume to measure what it lacks, or --force to replace it"));
  EXPECT_EQ(read(file("gpu.json")), first);
  std::vector<std::string> forced = arguments;
  forced.emplace_back("--force");
  EXPECT_EQ(call(forced).code, 0);
  EXPECT_NE(read(file("gpu.json"))["provenance"]["command"], first["provenance"]["command"]);
  forced.emplace_back("--resume");
  const Said both = call(forced);
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("--resume keeps the file that --force replaces"));
}

TEST_F(CalibrateCli, List_NamesEverySection) {
  const Said said = call({"--list"});
  EXPECT_EQ(said.code, 0);
  EXPECT_EQ(std::count(said.out.begin(), said.out.end(), '\n'), 17);
  EXPECT_THAT(said.out, HasSubstr("attention.decode   Paged decode attention"));
}

TEST_F(CalibrateCli, Run_WritesTheFileAndSumsItUp) {
  const Said said = call({"--quick", "--sections", "copy.contig,gemm", "--raw", "-o", file("gpu.json")});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, HasSubstr("gemm               done             48/48"));
  EXPECT_THAT(said.out, HasSubstr("host to GPU, largest pinned copy               1073.7 GB/s"));  // 1 GiB in 1 ms
  EXPECT_THAT(said.err, HasSubstr("copy.contig: done, 48 of 48 points in "));
  const json document = read(file("gpu.json"));
  const auto problems = schema_problems(measurements_schema(), document, "");
  EXPECT_TRUE(problems.empty()) << problems.front();
  EXPECT_THAT(document["provenance"]["command"].get<std::string>(),
              testing::StartsWith("cuda_calibrate --quick --sections"));
  EXPECT_EQ(document["measurements"].size(), 80U + 8U + 48U);
  EXPECT_EQ(document["raw"].size(), 80U + 8U + 48U);
}

TEST_F(CalibrateCli, InterruptedRun_IsResumed) {
  const std::vector<std::string> arguments{"--quick", "--sections", "copy.duplex,launch", "-o", file("gpu.json")};
  backend_.on_sample = [this] { stop_ = backend_.prepared >= 6; };
  const Said stopped = call(arguments);
  EXPECT_EQ(stopped.code, 130);
  EXPECT_THAT(stopped.err, HasSubstr("run the same command with --resume to continue"));
  EXPECT_EQ(read(file("gpu.json"))["sections"][1]["status"], "interrupted");
  backend_.on_sample = {};
  stop_ = false;
  std::vector<std::string> again = arguments;
  again.emplace_back("--resume");
  backend_.prepared = 0;
  const Said resumed = call(again);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("sections kept from an earlier run: 1, in"));
  EXPECT_EQ(backend_.prepared, 6);
  EXPECT_EQ(read(file("gpu.json"))["measurements"].size(), 8U + 6U);
  // No section remains to measure.
  backend_.prepared = 0;
  EXPECT_EQ(call(again).code, 0);
  EXPECT_EQ(backend_.prepared, 0);
  again.insert(again.end(), {"--seed", "2"});
  const Said other = call(again);
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("seed: 1 in the file, 2 now"));
  EXPECT_EQ(read(file("gpu.json"))["measurements"].size(), 8U + 6U);
}

TEST_F(CalibrateCli, ResumedPlan_IsThatOfTheFile_WhateverMemoryIsFree) {
  const std::vector<std::string> arguments{"--quick", "--resume", "--sections", "copy", "-o", file("gpu.json")};
  EXPECT_EQ(call(arguments).code, 0);
  json document = read(file("gpu.json"));
  // With 1 GiB less than the 4 GiB that copies of 1 GiB need, a new run would have different points.
  document["provenance"]["host"]["available_bytes"] = std::int64_t{3} << 30U;
  std::ofstream(file("gpu.json")) << document.dump();
  const Said other = call(arguments);
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("section copy.contig has other points in the file"));
}

TEST_F(CalibrateCli, LostGpu_IsTold) {
  FakeBackend lost(fake_machine(1), [](const Point& point) {
    if (std::holds_alternative<Launch>(point)) throw DeviceError("an illegal memory access was encountered", true);
    return millisecond_each(point);
  });
  const Environment environment{[&](std::int64_t, std::uint64_t) { return std::make_unique<Borrowed>(lost); },
                                [&] { return lost.now; }, [] { return std::string("2026-01-31T12:00:00Z"); },
                                [this]() -> const std::atomic<bool>& { return stop_; }};
  Arguments arguments;
  arguments.quick = true;
  arguments.sections = {"copy.duplex", "launch"};
  arguments.out = file("gpu.json");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const ExitCode code = calibrate(arguments, environment);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("error: an illegal memory access was encountered"));
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("launch             failed"));
  EXPECT_EQ(code, ExitCode::data);
  EXPECT_EQ(read(arguments.out)["measurements"].size(), 8U);
}

TEST_F(CalibrateCli, GpuThatDoesNotAnswer_IsTold) {
  backend_.kernel.clear();
  const Said said = call({"--quick", "-o", file("gpu.json")});
  EXPECT_EQ(said.code, 3);
  EXPECT_THAT(said.err, HasSubstr("error: the driver does not answer\n  at the GPU\n"));
  EXPECT_FALSE(std::filesystem::exists(file("gpu.json")));
}

TEST_F(CalibrateCli, Model_AddsItsShapes) {
  const Said said = call(
      {"--dry-run", "--json", "--quick", "--sections", "gemm", "--model", "llama-3.1-8b", "--tensor-parallel", "2"});
  ASSERT_EQ(said.code, 0) << said.err;
  // QKV, output, up with gate, down and the head: 4096 wide, 32 and 8 heads of 128, 14336, 128256 words, over two GPUs.
  std::vector<std::pair<std::int64_t, std::int64_t>> shapes;
  const json sections = json::parse(said.out)["sections"];
  for (const json& point : sections[0]["points"]) {
    const std::pair shape(point[0]["n"].get<std::int64_t>(), point[0]["k"].get<std::int64_t>());
    if (shapes.empty() || shapes.back() != shape) shapes.push_back(shape);
  }
  shapes.resize(5);
  EXPECT_EQ(shapes, (std::vector<std::pair<std::int64_t, std::int64_t>>{
                        {3072, 4096}, {4096, 2048}, {14336, 4096}, {4096, 7168}, {64128, 4096}}));
  EXPECT_EQ(call({"--dry-run", "--model", "no-such-model"}).code, 2);
  EXPECT_EQ(call({"--dry-run", "--model", "llama-3.1-8b", "--tensor-parallel", "3"}).code, 2);
}

TEST_F(CalibrateCli, WrongUse_IsExplained) {
  const auto told = [&](const std::vector<std::string>& arguments, const std::string& text) {
    const Said said = call(arguments);
    EXPECT_EQ(said.code, 2) << text;
    EXPECT_THAT(said.err, HasSubstr(text));
    EXPECT_EQ(said.out, "");
  };
  told({}, "no file was named for the measurements");
  told({"--quick", "--full", "-o", "x"}, "--quick excludes --full");
  told({"--dry-run", "--sections", "gem"}, "did you mean \"gemm\"?");
  told({"--qick", "-o", "x"}, "did you mean --quick?");
  told({"--json", "-o", "x"}, "add --dry-run");
  told({"--dry-run", "--gpu", "1"}, "there is no GPU 1: the machine has 1");
  told({"--dry-run", "--gpu", "7"}, "there is no GPU 7");
  told({"--dry-run", "--gpu", "-1"}, "--gpu");
  told({"--dry-run", "--tensor-parallel", "2"}, "--tensor-parallel needs a model to split");
  told({"--quick", "-o", file("no-such-folder/x.json")}, "cannot write the file");
  EXPECT_EQ(backend_.prepared, 0);
}

TEST_F(CalibrateCli, HelpAndVersion) {
  const Said help = call({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("Example: cuda_calibrate --dry-run"));
  EXPECT_THAT(help.out, HasSubstr("130 interrupted"));
  EXPECT_THAT(call({"--version"}).out, HasSubstr("cuda_calibrate "));
}

TEST_F(CalibrateCli, SubcommandRunsInPlaceOfMeasuring) {
  subcommands_.emplace_back([](CLI::App& app, Command& command) {
    app.add_subcommand("judge", "For this test")->callback([&command] { command = [] { return ExitCode::gate; }; });
  });
  EXPECT_EQ(call({"judge"}).code, 5);
  EXPECT_EQ(backend_.prepared, 0);
}

}  // namespace
}  // namespace spillway::calibrate
