#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cuda_calibrate/measure/document.hpp"
#include "cuda_calibrate/measure/plan.hpp"
#include "cuda_calibrate/measure/runner.hpp"
#include "cuda_calibrate/measure/summary.hpp"
#include "tests/unit/calibrate_fakes.hpp"
#include "tests/unit/calibrate_schema.hpp"

namespace spillway::calibrate {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// An unused file path; the destructor removes the file.
class OwnFile {
 public:
  OwnFile() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ =
        (std::filesystem::path(testing::TempDir()) / fmt::format("{}.{}.json", test->test_suite_name(), test->name()))
            .string();
    std::filesystem::remove(path_);
  }
  ~OwnFile() { std::filesystem::remove(path_); }
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  [[nodiscard]] std::string text() const {
    std::ifstream file(path_);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  }

 private:
  std::string path_;
};

Plan plan_of(const MachineFacts& facts, std::vector<std::string> sections) {
  PlanOptions options;
  options.level = Level::quick;
  options.sections = std::move(sections);
  return make_plan(options, facts);
}

const RunLabels kLabels{"cuda_calibrate --quick -o gpu.json", "2026-01-31T11:59:00Z", 1, 0};

/// A run of a quick plan of these sections against a backend.
struct OneRun {
  OneRun(FakeBackend& backend, const std::vector<std::string>& sections, bool raw = false)
      : plan(plan_of(backend.facts(), sections)),
        document(new_document(plan, backend.facts(), kLabels, raw)),
        outside(backend),
        backend_(backend) {}
  void go() { outcome = run_plan(plan, backend_, 0, document, outside.hooks); }
  [[nodiscard]] const SectionResult& section(std::size_t i) const { return document.sections.at(i); }

  Plan plan;
  Document document;
  FakeOutside outside;
  RunOutcome outcome{};

 private:
  FakeBackend& backend_;
};

bool is_copy_of(const Point& point, HostMemory memory) {
  const auto* copy = std::get_if<ContiguousCopy>(&point);
  return copy != nullptr && copy->memory == memory;
}

TEST(CalibrateRun, EverySection_GivesADocumentOfTheSchema) {
  FakeBackend backend(fake_machine(2), millisecond_each);
  OneRun run(backend, {}, true);
  run.go();
  EXPECT_EQ(run.outcome.code, ExitCode::ok);
  for (const SectionResult& section : run.document.sections) {
    EXPECT_EQ(section.status, section.points_planned > 0 ? SectionStatus::done : SectionStatus::skipped) << section.id;
    EXPECT_EQ(section.points_done, section.points_planned);
  }
  const json document = json::parse(run.document.text());
  const auto problems = schema_problems(measurements_schema(), document, "");
  EXPECT_TRUE(problems.empty()) << problems.front();
  EXPECT_EQ(run.outside.saved, run.document.text());
  EXPECT_EQ(document["provenance"]["device"]["name"], "Fake GPU");
  EXPECT_EQ(document["provenance"]["device"]["uuid"], "GPU-1");
  EXPECT_EQ(document["provenance"]["gpus"].size(), 2U);
  EXPECT_EQ(document["provenance"]["started"], "2026-01-31T11:59:00Z");
  EXPECT_EQ(document["provenance"]["finished"], "2026-01-31T12:00:00Z");
  EXPECT_EQ(document["sections"][0]["gpu_start"]["temperature_c"], 41);
  // Timings of a millisecond: 10 of them are 10 ms.
  const json& first = document["measurements"][0];
  EXPECT_EQ(first["unit"], "us");
  EXPECT_EQ(first["median"], 1000.0);
  EXPECT_EQ(first["p90"], 1000.0);
  EXPECT_EQ(first["samples"], 10);
  EXPECT_EQ(first["kernel"], "fake");
  EXPECT_EQ(first["section"], "copy.contig");
  ASSERT_EQ(document["raw"].size(), document["measurements"].size());
  EXPECT_EQ(document["raw"][0], json(std::vector<double>(10, 1000.0)));
}

// 2 s of calls of 1 ms: 100 calls make an interval of 0.1 s, and 20 intervals make the run. Two calls find the time
// before, and the first reading finds the sensors, so that the n-th interval has the reading n + 1.
TEST(CalibrateRun, SustainedWork_GivesARowForEachIntervalWithItsReading) {
  FakeBackend backend(fake_machine(1), [](const Point&) { return std::vector<double>{1e-3}; });
  backend.readings = {{}, {1980, 500.0, 50, "none"}, {1500, 400.25, 60, "sw_power_cap"}, {{}, {}, 61, {}}};
  OneRun run(backend, {"sustained"}, true);
  run.go();
  EXPECT_EQ(run.outcome.code, ExitCode::ok);
  const SectionResult& section = run.section(0);
  EXPECT_EQ(section.points_done, 2);
  ASSERT_EQ(section.measurements.size(), 40U);
  ASSERT_EQ(section.raw.size(), 40U);
  const auto& first = section.measurements[0];
  EXPECT_EQ(first.at("compute").at("op"), "gemm");
  EXPECT_EQ(first.at("run_s"), 2.0);
  EXPECT_EQ(first.at("time_s"), 0.1);
  EXPECT_EQ(first.at("sm_clock_mhz"), 1980);
  EXPECT_EQ(first.at("power_w"), 500.0);
  EXPECT_EQ(first.at("throttle_reasons"), "none");
  EXPECT_EQ(first.at("median"), 1000.0);
  EXPECT_EQ(first.at("calls"), 100);
  const auto& second = section.measurements[1];
  EXPECT_EQ(second.at("time_s"), 0.2);
  EXPECT_EQ(second.at("sm_clock_mhz"), 1500);
  EXPECT_EQ(second.at("throttle_reasons"), "sw_power_cap");
  // What the sensors do not state is left out.
  EXPECT_FALSE(section.measurements[2].contains("sm_clock_mhz"));
  EXPECT_EQ(section.measurements[2].at("temperature_c"), 61);
  EXPECT_EQ(section.measurements[19].at("time_s"), 2.0);
  EXPECT_EQ(section.measurements[20].at("compute").at("op"), "decode_attention");
  EXPECT_EQ(section.measurements[20].at("time_s"), 0.1);
  const auto problems = schema_problems(measurements_schema(), json::parse(run.document.text()), "");
  EXPECT_TRUE(problems.empty()) << problems.front();
}

TEST(CalibrateRun, SustainedWorkWithoutSensors_IsSkippedWithTheReason) {
  FakeBackend backend(fake_machine(1), millisecond_each);
  backend.readings.clear();
  OneRun run(backend, {"sustained"});
  run.go();
  EXPECT_EQ(run.outcome.code, ExitCode::ok);
  EXPECT_EQ(run.section(0).status, SectionStatus::skipped);
  EXPECT_THAT(run.section(0).reason, testing::HasSubstr("NVML (libnvidia-ml.so.1, a part of the driver) is not there"));
  EXPECT_EQ(run.section(0).skipped.size(), 2U);
}

TEST(CalibrateRun, SustainedWorkThatIsInterrupted_GivesNoRows) {
  FakeBackend backend(fake_machine(1), millisecond_each);
  OneRun run(backend, {"sustained"});
  std::int64_t samples = 0;
  backend.on_sample = [&] {
    if (++samples == 5) run.outside.stop = true;
  };
  run.go();
  EXPECT_EQ(run.outcome.code, ExitCode::interrupted);
  EXPECT_TRUE(run.section(0).measurements.empty());
  EXPECT_EQ(samples, 5);
}

TEST(CalibrateRun, FiguresAreThoseOfTheTimings) {
  SectionResult section;
  section.id = "gemm";
  Timings timings;
  timings.calls = 7;
  timings.series = {{3e-6, 1e-6, 2e-6, 5e-6, 4e-6}};
  add_measurements(section, Gemm{1, 2, 3}, timings, "cublaslt", false);
  ASSERT_EQ(section.measurements.size(), 1U);
  const auto& row = section.measurements[0];
  EXPECT_EQ(row.at("median"), 3.0);
  EXPECT_EQ(row.at("p10"), 1.4);
  EXPECT_EQ(row.at("p90"), 4.6);
  EXPECT_EQ(row.at("samples"), 5);
  EXPECT_EQ(row.at("calls"), 7);
  EXPECT_EQ(row.at("kernel"), "cublaslt");
  EXPECT_TRUE(section.raw.empty());
  // An elementwise row names its kernel itself.
  add_measurements(section, Elementwise{ElementwiseKind::rope, 1, 2}, timings, "spillway", false);
  EXPECT_EQ(section.measurements[1].at("kernel"), "rope");
}

TEST(CalibrateRun, WithoutAGpu_HostSectionsAreMeasured) {
  FakeBackend backend(fake_machine(0), millisecond_each);
  OneRun run(backend, {});
  run.go();
  EXPECT_EQ(run.outcome.code, ExitCode::ok);
  for (const SectionResult& section : run.document.sections) {
    const bool host = section.id.starts_with("host.");
    EXPECT_EQ(section.status, host ? SectionStatus::done : SectionStatus::skipped) << section.id;
    EXPECT_EQ(section.reason, host ? "" : "no CUDA device was found") << section.id;
  }
  const json document = json::parse(run.document.text());
  const auto problems = schema_problems(measurements_schema(), document, "");
  EXPECT_TRUE(problems.empty()) << problems.front();
  EXPECT_TRUE(document["provenance"]["device"]["name"].is_null());
  EXPECT_TRUE(document["sections"].back()["gpu_start"].is_null());
}

TEST(CalibrateRun, PointsThatCannotBe_AreSkippedWithTheirReason) {
  FakeBackend backend(fake_machine(1), [](const Point& point) {
    if (is_copy_of(point, HostMemory::pageable)) throw Unsupported("no pageable memory here");
    const auto* copy = std::get_if<ContiguousCopy>(&point);
    if (copy != nullptr && copy->bytes == std::int64_t{1} << 30U) throw OutOfMemory("1073741824 bytes are not there");
    if (copy != nullptr && copy->bytes == 4096) throw std::bad_alloc();
    if (std::holds_alternative<Launch>(point)) throw Unsupported("no graphs");
    return millisecond_each(point);
  });
  OneRun run(backend, {"copy.contig", "launch"});
  run.go();
  EXPECT_EQ(run.outcome.code, ExitCode::ok);
  // Of 40 points 20 are pageable, 2 of the pinned ones are of 1 GiB and 2 of 4 KiB. The 8 relays are measured.
  const SectionResult& copies = run.section(0);
  EXPECT_EQ(copies.status, SectionStatus::done);
  EXPECT_EQ(copies.points_done, 24);
  ASSERT_EQ(copies.skipped.size(), 24U);
  EXPECT_EQ(copies.skipped[0].at("reason"), "the host has too little free memory");
  EXPECT_EQ(copies.skipped[1].at("reason"), "1073741824 bytes are not there");
  EXPECT_EQ(copies.skipped[1].at("point").at("block_bytes"), std::int64_t{1} << 30U);
  EXPECT_EQ(copies.skipped[2].at("reason"), "no pageable memory here");
  EXPECT_EQ(copies.measurements.size(), 40U);
  EXPECT_EQ(run.section(1).status, SectionStatus::skipped);
  EXPECT_EQ(run.section(1).reason, "no point could be measured: no graphs");
}

TEST(CalibrateRun, DeviceError_GivesTheSectionUp) {
  FakeBackend backend(fake_machine(1), [](const Point& point) {
    if (is_copy_of(point, HostMemory::pageable)) throw DeviceError("misaligned address", false);
    return millisecond_each(point);
  });
  OneRun run(backend, {"copy.contig", "gemm"});
  run.go();
  EXPECT_EQ(run.outcome.code, ExitCode::partial);
  EXPECT_EQ(run.section(0).status, SectionStatus::failed);
  EXPECT_EQ(run.section(0).reason, "misaligned address");
  EXPECT_EQ(run.section(0).points_done, 10);  // the pinned ones of the first direction
  EXPECT_EQ(run.section(0).measurements.size(), 20U);
  EXPECT_EQ(run.section(1).status, SectionStatus::done);
  EXPECT_FALSE(run.document.provenance.at("finished").is_null());
}

TEST(CalibrateRun, StickyError_EndsTheRun) {
  FakeBackend backend(fake_machine(1), [](const Point& point) {
    if (std::holds_alternative<Gemm>(point)) throw DeviceError("an illegal memory access", true);
    return millisecond_each(point);
  });
  OneRun run(backend, {"copy.duplex", "gemm", "host"});
  run.go();
  EXPECT_EQ(run.outcome.code, ExitCode::data);
  EXPECT_EQ(run.outcome.lost, "an illegal memory access");
  EXPECT_EQ(run.section(0).status, SectionStatus::done);
  EXPECT_EQ(run.section(1).status, SectionStatus::failed);
  EXPECT_EQ(run.section(2).status, SectionStatus::pending);
  const json saved = json::parse(run.outside.saved);
  EXPECT_EQ(saved["measurements"].size(), 8U);  // 4 points, two rows each
  EXPECT_TRUE(saved["provenance"]["finished"].is_null());
  EXPECT_EQ(saved["sections"][1]["status"], "failed");
}

TEST(CalibrateRun, Interrupt_KeepsWhatIsDone_AndAnotherRunGoesOn) {
  const OwnFile file;
  FakeBackend backend(fake_machine(1), millisecond_each);
  std::string uninterrupted;
  {
    OneRun run(backend, {"copy.duplex", "launch", "gemm"});
    run.go();
    uninterrupted = json::parse(run.document.text())["measurements"].dump();
  }
  backend.prepared = 0;
  {
    OneRun run(backend, {"copy.duplex", "launch", "gemm"});
    // 4 points of the first section, then in the third point of the second.
    backend.on_sample = [&] { run.outside.stop = backend.prepared >= 7; };
    run.go();
    backend.on_sample = {};
    EXPECT_EQ(run.outcome.code, ExitCode::interrupted);
    EXPECT_EQ(run.section(0).status, SectionStatus::done);
    EXPECT_EQ(run.section(1).status, SectionStatus::interrupted);
    EXPECT_EQ(run.section(1).points_done, 2);
    EXPECT_EQ(run.section(2).status, SectionStatus::pending);
    EXPECT_EQ(json::parse(run.outside.saved)["measurements"].size(), 8U + 2U);
    write_document(file.path(), run.document);
  }
  backend.prepared = 0;
  OneRun run(backend, {"copy.duplex", "launch", "gemm"});
  EXPECT_EQ(resume_from(file.path(), run.document), 1);
  run.go();
  EXPECT_EQ(run.outcome.code, ExitCode::ok);
  EXPECT_EQ(backend.prepared, 6 + 48);  // not the copies
  EXPECT_EQ(json::parse(run.document.text())["measurements"].dump(), uninterrupted);
}

TEST(CalibrateRun, SectionEndsWhenItsTimeIsOver) {
  // Half a second a call: 4 to warm up and the fewest timings of 2 s, two series, so 7 s a point of the first 40.
  FakeBackend backend(fake_machine(1),
                      [](const Point& point) { return std::vector<double>(rows_of(point).size(), 0.5); });
  OneRun run(backend, {"copy.contig", "launch"});
  run.go();
  const SectionResult& copies = run.section(0);
  EXPECT_EQ(copies.status, SectionStatus::done);
  EXPECT_GT(copies.points_done, 0);
  EXPECT_EQ(copies.points_done + static_cast<std::int64_t>(copies.skipped.size()), 48);
  EXPECT_THAT(copies.skipped.back().at("reason").get<std::string>(), HasSubstr("s were used up"));
  // The current point is finished.
  EXPECT_LE(copies.seconds, run.plan.sections[0].most_seconds + 7.0);
  EXPECT_GE(copies.seconds, run.plan.sections[0].most_seconds);
}

TEST(CalibrateRun, ProgressCountsDown) {
  FakeBackend backend(fake_machine(1), millisecond_each);
  OneRun run(backend, {"copy.duplex", "launch"});
  std::vector<double> left;
  std::vector<std::string> texts;
  run.outside.hooks.progress = [&](const RunProgress& progress) {
    left.push_back(progress.seconds_left);
    texts.push_back(progress.section_ended ? section_text(*progress.result) : progress_text(progress));
  };
  run.go();
  ASSERT_EQ(left.size(), 4U + 1U + 6U + 1U);
  EXPECT_DOUBLE_EQ(left.front(), run.plan.estimated_seconds());
  for (std::size_t i = 1; i < 4; ++i) EXPECT_LT(left[i], left[i - 1]);
  EXPECT_NEAR(left.back(), 0.0, 1e-9);
  EXPECT_THAT(texts[1], HasSubstr("copy.duplex 1/4 points, about "));
  EXPECT_THAT(texts[4], HasSubstr("copy.duplex: done, 4 of 4 points in "));
  EXPECT_EQ(run.outside.saves, 3);  // after each section, and at the end
}

// Documents

TEST(CalibrateDocument, ResumeRefusesAnotherRun) {
  const OwnFile file;
  FakeBackend backend(fake_machine(1), millisecond_each);
  OneRun before(backend, {"copy.duplex", "launch"});
  before.go();
  write_document(file.path(), before.document);
  EXPECT_EQ(memory_of_plan(file.path()), std::int64_t{256} << 30U);

  OneRun same(backend, {"copy.duplex", "launch"});
  EXPECT_EQ(resume_from(file.path(), same.document), 2);
  EXPECT_EQ(json::parse(same.document.text())["measurements"], json::parse(before.document.text())["measurements"]);

  const auto whats = [&](Document document) {
    std::vector<std::string> all;
    try {
      (void)resume_from(file.path(), document);
    } catch (const ConfigError& error) {
      for (const Problem& problem : error.problems()) all.push_back(problem.what);
    }
    return all;
  };
  Document other_seed = same.document;
  other_seed.provenance["seed"] = 2;
  EXPECT_THAT(whats(other_seed), testing::ElementsAre("seed: 1 in the file, 2 now"));
  Document other_gpu = same.document;
  other_gpu.provenance["device"]["name"] = "Another GPU";
  EXPECT_THAT(whats(other_gpu), testing::ElementsAre("GPU: \"Fake GPU\" in the file, \"Another GPU\" now"));
  EXPECT_THAT(whats(OneRun(backend, {"copy.duplex", "launch"}, true).document),
              testing::ElementsAre("raw timings: not kept in the file, kept now"));
  EXPECT_THAT(
      whats(OneRun(backend, {"copy.duplex", "gemm"}).document),
      testing::ElementsAre("section gemm is not in the file", "section launch is in the file, but not chosen now"));
  Document other_points = same.document;
  other_points.sections[0].plan = "0";
  EXPECT_THAT(whats(other_points), testing::ElementsAre("section copy.duplex has other points in the file"));
}

TEST(CalibrateDocument, NotesOfASection_EachOnce_AndKeptByAResume) {
  const OwnFile file;
  FakeBackend backend(fake_machine(1), millisecond_each);
  backend.note = [](const Point& point) {
    const auto* decode = std::get_if<DecodeAttention>(&point);
    return decode == nullptr ? "" : fmt::format("{} KV heads are not cuDNN's", decode->heads.kv);
  };
  OneRun run(backend, {"attention.decode", "launch"});
  run.go();
  // A quick plan has heads 32/8, 64/8, 8/1 and 32/32.
  const std::vector<std::string> notes{"8 KV heads are not cuDNN's", "1 KV heads are not cuDNN's",
                                       "32 KV heads are not cuDNN's"};
  EXPECT_EQ(run.section(0).notes, notes);
  EXPECT_THAT(section_text(run.section(0)), HasSubstr("\n  8 KV heads are not cuDNN's\n  1 KV heads"));
  const json document = json::parse(run.document.text());
  EXPECT_EQ(document["sections"][0]["notes"], json(notes));
  EXPECT_EQ(document["sections"][1]["notes"], json::array());
  EXPECT_TRUE(schema_problems(measurements_schema(), document, "").empty());
  write_document(file.path(), run.document);
  OneRun again(backend, {"attention.decode", "launch"});
  ASSERT_EQ(resume_from(file.path(), again.document), 2);
  EXPECT_EQ(again.section(0).notes, notes);
}

TEST(CalibrateDocument, ResumeOfNoDocument) {
  const OwnFile file;
  FakeBackend backend(fake_machine(1), millisecond_each);
  OneRun run(backend, {"launch"});
  EXPECT_EQ(resume_from(file.path(), run.document), 0);
  EXPECT_EQ(memory_of_plan(file.path()), std::nullopt);
  for (const char* text : {"{\"kind\": ", "[]", "{}", "{\"provenance\": {}, \"sections\": 3}"}) {
    file.write(text);
    EXPECT_THROW((void)resume_from(file.path(), run.document), DataError) << text;
    EXPECT_EQ(memory_of_plan(file.path()), std::nullopt);
  }
}

TEST(CalibrateDocument, WrittenWholeOrNotAtAll) {
  const OwnFile file;
  FakeBackend backend(fake_machine(1), millisecond_each);
  OneRun run(backend, {"launch"});
  write_document(file.path(), run.document);
  EXPECT_EQ(file.text(), run.document.text());
  EXPECT_FALSE(std::filesystem::exists(file.path() + ".part"));
  EXPECT_THROW(write_document(testing::TempDir() + "no-such-folder/x.json", run.document), ConfigError);
  // A folder has the file's name.
  const std::string folder = file.path() + ".d";
  std::filesystem::create_directories(folder + "/x");
  EXPECT_THROW(write_document(folder, run.document), ConfigError);
  EXPECT_FALSE(std::filesystem::exists(folder + ".part"));
  std::filesystem::remove_all(folder);
}

TEST(CalibrateSummary, Headlines) {
  // 1 GiB either way in 0.05 s and 0.1 s; beside each other 256 MiB in 0.02 s each; 2 m n k of a GEMM in 1 ms; KV of a
  // decode in 1 ms; one pass over host memory in 0.01 s; KV on the CPU in 0.1 s.
  FakeBackend backend(fake_machine(1), [](const Point& point) -> std::vector<double> {
    if (const auto* copy = std::get_if<ContiguousCopy>(&point)) {
      return std::vector<double>(2, copy->direction == Direction::h2d ? 0.05 : 0.1);
    }
    if (std::holds_alternative<DuplexCopy>(point)) return {0.02, 0.02};
    if (std::holds_alternative<HostAttention>(point)) return {0.1};
    if (std::holds_alternative<HostStream>(point)) return std::vector<double>(rows_of(point).size(), 0.01);
    return millisecond_each(point);
  });
  OneRun run(backend, {"copy.contig", "copy.duplex", "gemm", "attention.decode", "host"});
  run.plan.sections[0].most_seconds = 1e6;
  run.go();
  const Headlines found = headlines_of(run.document);
  const double gib = std::exp2(30);
  EXPECT_DOUBLE_EQ(found.h2d.value(), gib / 0.05);
  EXPECT_DOUBLE_EQ(found.d2h.value(), gib / 0.1);
  EXPECT_DOUBLE_EQ(found.duplex.value(), 2 * gib / 4 / 0.02);
  double flops = 0.0;
  for (const Point& point : run.plan.sections[2].points) {
    const Gemm gemm = std::get<Gemm>(point);
    flops = std::max(flops, 2e3 * static_cast<double>(gemm.m * gemm.n * gemm.k));
  }
  EXPECT_DOUBLE_EQ(found.gemm.value(), flops);
  // The most KV is that of 32 KV heads and 8 x 8192 or 64 x 1024 tokens: 4 bytes each of keys and values.
  EXPECT_DOUBLE_EQ(found.decode.value(), 4.0 * 65536 * 32 * 128 / 1e-3);
  // 768 MiB: three arrays of 256 MiB.
  EXPECT_DOUBLE_EQ(found.host.value(), 768 * std::exp2(20) / 0.01);
  EXPECT_DOUBLE_EQ(found.cpu_decode.value(), 4.0 * 16 * 4096 * 8 * 128 / 0.1);
  // The most arithmetic is that of 4096 rows of the largest expert in the plan, in 1 ms.
  double products = 0.0;
  for (const Point& point : run.plan.sections.back().points) {
    const HostGemm gemm = std::get<HostGemm>(point);
    products = std::max(products, 2e3 * static_cast<double>(gemm.rows * gemm.inputs * gemm.outputs));
  }
  EXPECT_GE(products, 2e3 * 4096 * 2048 * 768);
  EXPECT_DOUBLE_EQ(found.cpu_gemm.value(), products);
  const std::string text = summary_text(run.document);
  EXPECT_THAT(text, HasSubstr("host to GPU, largest pinned copy                 21.5 GB/s"));
  EXPECT_THAT(text, HasSubstr("copy.contig        done             48/48"));
  EXPECT_EQ(headlines_of(new_document(run.plan, backend.facts(), kLabels, false)).h2d, std::nullopt);
}

}  // namespace
}  // namespace spillway::calibrate
