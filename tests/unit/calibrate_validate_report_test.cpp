// The measurements of a validation and the report of its errors, on a machine with known times.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda_calibrate/validate/report.hpp"
#include "cuda_calibrate/validate/validate.hpp"
#include "hwmodels/catalog.hpp"
#include "sim/core/error.hpp"
#include "sim/core/text.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/calibrate_schedule_interpreter.hpp"

namespace spillway::calibrate {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

Outcome outcome(const std::string& name, const Experiment& experiment, double predicted, double measured) {
  Outcome one;
  one.setting.name = name;
  one.setting.experiment = experiment;
  one.predicted = predicted;
  one.measured = Spread{measured, measured, measured, 7};
  return one;
}

Outcome not_measured(const std::string& name, const Experiment& experiment, std::optional<double> predicted,
                     const std::string& reason) {
  Outcome one;
  one.setting.name = name;
  one.setting.experiment = experiment;
  one.predicted = predicted;
  one.reason = reason;
  return one;
}

// --- the arithmetic

TEST(ValidateReport, Errors_OfEachExperimentAndOfAll) {
  // (a) +10% and -20%, (d) +2%; a second setting of (d) was not measured.
  std::vector<Outcome> outcomes{outcome("a01", LayerSwapping{}, 1.1, 1.0), outcome("a02", LayerSwapping{}, 0.8, 1.0),
                                outcome("d01", PageOut{}, 2.04, 2.0)};
  outcomes.push_back(not_measured("d02", PageOut{}, 1.0, "no memory"));
  const std::vector<ErrorLine> lines = error_lines(outcomes);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].experiment, "a");
  EXPECT_EQ(lines[0].error.n, 2);
  EXPECT_NEAR(lines[0].error.median, 0.15, 1e-12);  // between 0.1 and 0.2
  EXPECT_NEAR(lines[0].error.p95, 0.195, 1e-12);    // 0.1 + 0.95 (0.2 - 0.1)
  EXPECT_NEAR(lines[0].error.bias, -0.05, 1e-12);
  EXPECT_EQ(lines[0].worst, "a02");
  EXPECT_NEAR(lines[0].worst_error, -0.2, 1e-12);
  EXPECT_EQ(lines[1].experiment, "d");
  EXPECT_EQ(lines[1].error.n, 1);
  EXPECT_EQ(lines[1].settings, 2);
  EXPECT_EQ(lines[1].worst, "d01");
  EXPECT_EQ(lines[2].experiment, "all");
  EXPECT_EQ(lines[2].settings, 4);
  EXPECT_NEAR(lines[2].error.median, 0.1, 1e-12);  // the middle of 0.02, 0.1, 0.2
  EXPECT_NEAR(lines[2].error.p95, 0.19, 1e-12);    // 0.1 + 0.9 (0.2 - 0.1)
}

TEST(ValidateReport, Goal_IsAMedianOf5PercentAndAP95Of15) {
  const auto with = [](double median, double p95, std::int64_t n = 10) {
    return ErrorLine{.experiment = "all", .error = {.n = n, .median = median, .p95 = p95}};
  };
  EXPECT_TRUE(goal_met(with(0.05, 0.15)));
  EXPECT_FALSE(goal_met(with(0.051, 0.15)));
  EXPECT_FALSE(goal_met(with(0.05, 0.151)));
  EXPECT_FALSE(goal_met(with(0.0, 0.0, 0))) << "of nothing";
}

TEST(ValidateReport, Texts_SayPredictedMeasuredAndError) {
  ValidationReport report;
  report.profile = "my-gpu";
  report.profile_sha256 = "0123456789abcdef";
  report.gpu = "GPU X";
  report.notes = {"a note"};
  report.outcomes = {outcome("d01", PageOut{CopyMechanism::gather, 70, 20480, 3}, 0.0102, 0.01)};
  report.outcomes.push_back(not_measured("d02", PageOut{}, 1.0, "no memory"));
  EXPECT_EQ(line_of(report.outcomes[0]), "d01: predicted 10.20 ms, measured 10.00 ms, +2.0%");
  EXPECT_EQ(line_of(report.outcomes[1]), "d02: predicted 1000.00 ms, not measured: no memory");
  EXPECT_EQ(line_of(not_measured("e01", CpuOverlap{}, {}, "no host")), "e01: not predicted: no host");
  const std::string text = text_of(report);
  EXPECT_THAT(text, HasSubstr("profile my-gpu (0123456789ab), on GPU X\nnote: a note\n"));
  EXPECT_THAT(text, HasSubstr("d01      10.20 ms     10.00 ms    +2.0%  70 of 20 KiB by gather, 3 times\n"));
  EXPECT_THAT(text, HasSubstr("[no memory]"));
  EXPECT_THAT(text, HasSubstr("1/2     2.0%     2.0%    +2.0%  +2.0% of d01\n"));
  EXPECT_THAT(text, HasSubstr("goal: median 5%, p95 15%; met\n"));
  const std::string markdown = markdown_of(report);
  EXPECT_THAT(markdown, HasSubstr("| all | 1 of 2 | 2.0% | 2.0% | +2.0% | +2.0% (d01) |\n"));
  EXPECT_THAT(markdown, HasSubstr("| d01 | 70 of 20 KiB by gather, 3 times | 10.20 ms | 10.00 ms | +2.0% |\n"));
  EXPECT_THAT(markdown, HasSubstr("| 1000.00 ms | no memory | - |\n"));
}

TEST(ValidateReport, Json_HasTheSame_AndNullForWhatWasNotMeasured) {
  ValidationReport report;
  report.profile = "my-gpu";
  report.outcomes = {outcome("d01", PageOut{}, 1.5, 2.0)};
  report.outcomes.push_back(not_measured("e01", CpuOverlap{}, {}, "no host"));
  const json document = json::parse(json_of(report).dump());
  EXPECT_EQ(document["kind"], "validation");
  EXPECT_EQ(document["goal"], json({{"median", 0.05}, {"p95", 0.15}, {"met", false}}));
  EXPECT_EQ(document["settings"][0]["error"], -0.25);
  EXPECT_EQ(document["settings"][0]["n"], 7);
  EXPECT_TRUE(document["settings"][1]["predicted_s"].is_null());
  EXPECT_EQ(document["settings"][1]["reason"], "no host");
  ASSERT_EQ(document["errors"].size(), 3U);
  EXPECT_EQ(document["errors"][1]["experiment"], "e");
  EXPECT_TRUE(document["errors"][1]["median"].is_null());
  EXPECT_EQ(document["errors"][2]["worst"], "d01");
  report.outcomes.erase(report.outcomes.begin());
  EXPECT_TRUE(json_of(report)["goal"]["met"].is_null()) << "nothing was measured";
}

// --- a machine whose times are known

GpuFacts h100() {
  GpuFacts gpu;
  gpu.name = "NVIDIA H100 80GB HBM3";
  gpu.memory_bytes = 85'017'493'504;
  gpu.sm_count = 132;
  return gpu;
}

/// Streams that take `factor` times as long as the profile states. Settings whose names start with letters of `fails`
/// throw.
class FakeMachine final : public Machine {
 public:
  struct Behaviour {
    double factor = 1.0;
    std::vector<double> jitter{1.0};                          // factors of consecutive runs
    std::function<void(std::int64_t prepared)> on_prepare{};  // may throw
    GpuFacts gpu = h100();
  };

  FakeMachine(Behaviour behaviour, const Predictor& predictor)
      : behaviour_(std::move(behaviour)),
        sharing_(hwmodels::EngineSide(predictor.gpu(), hwmodels::load_engine("none"), 1).copy_sharing()) {
    // The times of this profile's schedules, by size: a machine does not receive durations.
    for (const Setting& setting : held_out_settings(predictor.scale())) {
      Simulated simulated = predictor.predict(setting.experiment);
      seconds_.emplace(key(simulated.schedule), length_of(simulated.schedule, interpret(simulated, sharing_)) * 1e-9);
    }
  }

  [[nodiscard]] MachineFacts facts() override {
    MachineFacts facts;
    facts.gpus = {behaviour_.gpu};
    facts.driver = "570.1";
    return facts;
  }
  [[nodiscard]] std::int64_t gpu() const override { return 0; }
  [[nodiscard]] std::unique_ptr<Execution> prepare(const Schedule& schedule) override {
    if (behaviour_.on_prepare) behaviour_.on_prepare(prepared_);
    ++prepared_;
    return std::make_unique<Run>(behaviour_, seconds_.at(key(schedule)));
  }

 private:
  class Run final : public Execution {
   public:
    Run(const Behaviour& behaviour, double seconds) : behaviour_(behaviour), seconds_(seconds) {}
    [[nodiscard]] double run() override {
      return seconds_ * behaviour_.factor * behaviour_.jitter[runs_++ % behaviour_.jitter.size()];
    }

   private:
    const Behaviour& behaviour_;
    double seconds_;
    std::size_t runs_ = 0;
  };

  /// All properties that distinguish two schedules.
  static std::string key(const Schedule& schedule) {
    std::string text = fmt::format("{} {} {}:", schedule.slot_bytes, schedule.gpu_slots, schedule.host_slots);
    for (const Operation& operation : schedule.operations) {
      text += fmt::format(" {}/{}", static_cast<int>(operation.stream), operation.layer);
      for (const std::int32_t other : operation.waits) text += fmt::format(",{}", other);
      if (const auto* copy = std::get_if<CopyWork>(&operation.work)) {
        text += fmt::format("c{}x{}", copy->blocks, static_cast<int>(copy->mechanism));
      } else if (const auto* compute = std::get_if<ComputeWork>(&operation.work)) {
        const Multiply& m = compute->multiply;
        text += fmt::format("g{}x{}x{}x{}", m.calls, m.m, m.n, m.k);
      } else {
        const HostAttention& attention = std::get<AttentionWork>(operation.work).attention;
        text += fmt::format("h{}x{}", attention.batch, attention.context);
      }
    }
    return text;
  }

  Behaviour behaviour_;
  CopySharing sharing_;
  std::map<std::string, double> seconds_;
  std::int64_t prepared_ = 0;
};

constexpr std::int64_t kThreads = 112;  // the cores of hgx-h100-host

Predictor h100_predictor() {
  return {hwmodels::load_gpu("h100-80gb-sxm"), hwmodels::load_host("hgx-h100-host"), kThreads};
}

std::vector<Outcome> measured_on(
    FakeMachine::Behaviour behaviour, MeasureOutcome& result, const std::atomic<bool>* stop = nullptr,
    const std::function<void(const Outcome&)>& done = [](const Outcome&) {}) {
  const Predictor predictor = h100_predictor();
  FakeMachine machine(std::move(behaviour), predictor);
  std::vector<Outcome> outcomes = predicted(predictor, held_out_settings(predictor.scale()));
  result = measure(predictor, machine, outcomes, {.repeats = 7, .done = done, .stop = stop});
  return outcomes;
}

TEST(ValidateMeasure, MachineThatIs8PercentSlower_EveryErrorIsThat) {
  // predicted / measured - 1 = 1 / 1.08 - 1; directions that share a link end within some ns of the executor's times.
  MeasureOutcome result;
  const std::vector<Outcome> outcomes = measured_on({.factor = 1.08}, result);
  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_EQ(outcomes.size(), 64U);
  for (const Outcome& one : outcomes) {
    ASSERT_TRUE(one.error()) << one.setting.name << ": " << one.reason;
    EXPECT_NEAR(*one.error(), 1.0 / 1.08 - 1.0, 1e-5) << one.setting.name;
    EXPECT_EQ(one.measured->n, 7);
  }
  const ErrorLine all = error_lines(outcomes).back();
  EXPECT_EQ(all.error.n, 64);
  EXPECT_NEAR(all.error.median, 1.0 - 1.0 / 1.08, 1e-5);
  EXPECT_FALSE(goal_met(all));
}

TEST(ValidateMeasure, MedianOfTheTimedRuns_WarmUpsAreLeftOut) {
  // Two warm-ups of 100 times the length, then 1, 1, 1, 2, 3, 3, 3: the median is 2.
  MeasureOutcome result;
  const std::vector<Outcome> outcomes =
      measured_on({.jitter = {100.0, 100.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 2.0}}, result);
  for (const Outcome& one : outcomes) EXPECT_NEAR(one.measured->median / *one.predicted, 2.0, 1e-4) << one.setting.name;
}

TEST(ValidateMeasure, WhatTheMachineCannotDo_IsSkippedWithItsReason) {
  const auto behaviour = [](std::int64_t prepared) {
    if (prepared == 0) throw OutOfMemory("3 GB of GPU memory");
  };
  // on_prepare throws before it counts, so every setting is refused.
  MeasureOutcome result;
  for (const Outcome& one : measured_on({.on_prepare = behaviour}, result)) {
    EXPECT_FALSE(one.measured);
    EXPECT_EQ(one.reason, "3 GB of GPU memory");
  }
  EXPECT_EQ(result.code, ExitCode::ok);
}

TEST(ValidateMeasure, LostGpu_EndsTheRunAndKeepsWhatIsDone) {
  const auto behaviour = [](std::int64_t prepared) {
    if (prepared == 5) throw DeviceError("an illegal address", true);
  };
  MeasureOutcome result;
  int told = 0;
  const std::vector<Outcome> outcomes =
      measured_on({.on_prepare = behaviour}, result, nullptr, [&](const Outcome&) { ++told; });
  EXPECT_EQ(result.code, ExitCode::data);
  EXPECT_EQ(result.lost, "an illegal address");
  EXPECT_EQ(told, 6);
  EXPECT_TRUE(outcomes[4].measured);
  EXPECT_EQ(outcomes[5].reason, "an illegal address");
  EXPECT_EQ(outcomes[6].reason, "the GPU was lost");
  EXPECT_EQ(outcomes.back().reason, "the GPU was lost");
}

TEST(ValidateMeasure, Interrupt_KeepsWhatIsDone) {
  std::atomic<bool> stop = false;
  MeasureOutcome result;
  const std::vector<Outcome> outcomes =
      measured_on({}, result, &stop, [&](const Outcome& one) { stop = one.setting.name == "a03"; });
  EXPECT_EQ(result.code, ExitCode::interrupted);
  EXPECT_TRUE(outcomes[2].measured);
  EXPECT_FALSE(outcomes[3].measured);
  EXPECT_EQ(outcomes[3].reason, "interrupted");
}

// --- which GPU a profile is of

TEST(ValidateGpu, Differences_InNameSmsAndMemory) {
  const hwmodels::GpuProfile profile = hwmodels::load_gpu("h100-80gb-sxm");
  GpuFacts gpu = h100();
  EXPECT_THAT(gpu_differences(profile, {}, gpu), testing::IsEmpty());
  EXPECT_THAT(gpu_differences(profile, "NVIDIA H100 80GB HBM3", gpu), testing::IsEmpty());
  EXPECT_THAT(gpu_differences(profile, "NVIDIA A100", gpu),
              ElementsAre("h100-80gb-sxm was measured on NVIDIA A100, but this GPU is NVIDIA H100 80GB HBM3"));
  gpu.sm_count = 114;
  gpu.memory_bytes = 80'000'000'000;  // 5.9% less
  EXPECT_THAT(gpu_differences(profile, {}, gpu),
              ElementsAre("h100-80gb-sxm has 132 SMs, but NVIDIA H100 80GB HBM3 has 114",
                          "h100-80gb-sxm has 85.0 GB, but NVIDIA H100 80GB HBM3 has 80.0 GB"));
}

/// A folder with a copy of the H100's profile and the measurement file that the profile names.
class ValidateFiles : public testing::Test {
 protected:
  ValidateFiles() {
    std::filesystem::create_directories(folder_);
    measurements_ = write("run.json", measurements_of("NVIDIA H100 80GB HBM3"));
    std::ifstream bundled(source_dir() + "/hwmodels/profiles/h100-80gb-sxm.json");
    json profile = json::parse(bundled);
    profile["measurements"]["files"] = json::array({{{"name", "run.json"}, {"sha256", sha_of(measurements_)}}});
    profile_ = write("profile.json", profile.dump());
  }
  ~ValidateFiles() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  static std::string measurements_of(const std::string& gpu) {
    return json{{"schema_version", 1},
                {"kind", "measurements"},
                {"provenance", {{"device", {{"name", gpu}}}}},
                {"measurements",
                 json::array({{{"op", "gemm"}, {"m", 1}, {"n", 1}, {"k", 1}, {"unit", "us"}, {"median", 5.0}}})}}
        .dump();
  }
  static std::string sha_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return sha256_hex(std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
  }
  [[nodiscard]] std::string write(const std::string& name, const std::string& text) const {
    std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static ValidateEnvironment with(const FakeMachine::Behaviour& behaviour) {
    static const std::atomic<bool> kNever = false;
    return {
        [behaviour](std::int64_t, std::uint64_t) { return std::make_unique<FakeMachine>(behaviour, h100_predictor()); },
        [] { return std::string("2026-01-31T12:00:00Z"); }, []() -> const std::atomic<bool>& { return kNever; },
        "cuda_calibrate validate"};
  }
  [[nodiscard]] ValidateArguments arguments() const {
    ValidateArguments arguments;
    arguments.profile = profile_;
    arguments.host = "hgx-h100-host";
    arguments.experiments = {"d"};
    arguments.threads = kThreads;
    arguments.out = (folder_ / "out.json").string();
    return arguments;
  }
  [[nodiscard]] json written() const {
    std::ifstream file(folder_ / "out.json");
    return json::parse(file);
  }

  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
  std::string measurements_;
  std::string profile_;
};

TEST_F(ValidateFiles, MeasuredGpu_IsSaidByTheFileThatTheProfileNames) {
  const hwmodels::GpuProfile profile = hwmodels::load_gpu(profile_);
  EXPECT_EQ(measured_gpu(profile, ""), "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(measured_gpu(profile, measurements_), "NVIDIA H100 80GB HBM3");
  const std::string other = write("other.json", measurements_of("NVIDIA A100"));
  EXPECT_THROW(static_cast<void>(measured_gpu(profile, other)), ConfigError);
  static_cast<void>(write("run.json", measurements_of("NVIDIA A100")));
  EXPECT_EQ(measured_gpu(profile, ""), std::nullopt) << "the file is another by now";
  EXPECT_EQ(measured_gpu(hwmodels::load_gpu("h100-80gb-sxm"), ""), std::nullopt);
}

TEST_F(ValidateFiles, Command_MeasuresReportsAndKeepsTheGate) {
  EXPECT_EQ(validate(arguments(), with({.factor = 1.02})), ExitCode::ok);
  json report = written();
  EXPECT_EQ(report["goal"]["met"], true);
  EXPECT_EQ(report["settings"].size(), 8U);
  EXPECT_EQ(report["provenance"]["device"]["name"], "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(report["provenance"]["software"]["driver"], "570.1");
  EXPECT_EQ(report["provenance"]["finished"], "2026-01-31T12:00:00Z");
  EXPECT_EQ(report["profile"]["sha256"], sha_of(profile_));
  EXPECT_EQ(validate(arguments(), with({.factor = 1.2})), ExitCode::gate);
  EXPECT_EQ(written()["goal"]["met"], false);
  ValidateArguments all = arguments();
  all.experiments = {};
  all.markdown = true;
  EXPECT_EQ(validate(all, with({})), ExitCode::ok);
  EXPECT_EQ(written()["settings"].size(), 64U);
}

TEST_F(ValidateFiles, Command_OnAnotherGpu_IsRefusedUnlessAskedFor) {
  FakeMachine::Behaviour behaviour;
  behaviour.gpu.name = "NVIDIA H200";
  ValidateArguments asked = arguments();
  try {
    static_cast<void>(validate(asked, with(behaviour)));
    ADD_FAILURE() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("was measured on NVIDIA H100 80GB HBM3, but this GPU is NVIDIA H200"));
    EXPECT_THAT(error.problems().front().fix, HasSubstr("--any-gpu"));
  }
  asked.any_gpu = true;
  EXPECT_EQ(validate(asked, with(behaviour)), ExitCode::ok);
  EXPECT_THAT(written()["notes"].dump(), HasSubstr("this GPU is NVIDIA H200"));
}

TEST_F(ValidateFiles, Command_DryRunAndSomeExperiments_NeedNoMachine) {
  ValidateEnvironment environment = with({});
  environment.make_machine = [](std::int64_t, std::uint64_t) -> std::unique_ptr<Machine> {
    throw Unsupported("built without CUDA");
  };
  ValidateArguments asked = arguments();
  asked.dry_run = true;
  asked.experiments = {"b", "d"};
  EXPECT_EQ(validate(asked, environment), ExitCode::ok);
  const json report = written();
  EXPECT_EQ(report["settings"].size(), 20U);
  EXPECT_TRUE(report["settings"][0]["measured_s"].is_null());
  EXPECT_TRUE(report["settings"][0]["reason"].is_null());
  EXPECT_TRUE(report["provenance"].is_null());
  asked.dry_run = false;
  EXPECT_THROW(static_cast<void>(validate(asked, environment)), ConfigError) << "no machine";
  asked.experiments = {"f"};
  EXPECT_THROW(static_cast<void>(validate(asked, environment)), ConfigError);
  asked = arguments();
  asked.profile = "h100-80gb-sx";
  try {
    static_cast<void>(validate(asked, environment));
    ADD_FAILURE() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.problems().front().fix, HasSubstr("h100-80gb-sxm"));
  }
}

TEST(ValidateCommandLine, OptionsReachTheCommand) {
  std::int64_t gpu = -1;
  std::uint64_t seed = 0;
  const ValidateEnvironment environment{[&](std::int64_t index, std::uint64_t of) -> std::unique_ptr<Machine> {
                                          gpu = index;
                                          seed = of;
                                          throw Unsupported("no GPU here");
                                        },
                                        {},
                                        {},
                                        {}};
  CLI::App app;
  Command command;
  validate_subcommand(environment)(app, command);
  app.parse("validate h100-80gb-sxm --gpu 3 --seed 9 --experiments a,c --any-gpu --threads 8 --repeats 9", false);
  ASSERT_TRUE(command);
  EXPECT_THROW(static_cast<void>(command()), ConfigError);
  EXPECT_EQ(gpu, 3);
  EXPECT_EQ(seed, 9U);
  CLI::App other;
  validate_subcommand(environment)(other, command);
  EXPECT_THROW(other.parse("validate h100-80gb-sxm --repeats 3", false), CLI::ParseError) << "fewer than 7";
  EXPECT_THROW(other.parse("validate", false), CLI::ParseError) << "no profile";
}

}  // namespace
}  // namespace spillway::calibrate
