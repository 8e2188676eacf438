// The cuda_calibrate binary on this machine: its host sections, which every machine can measure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/command.hpp"
#include "tests/support/paths.hpp"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class CudaCalibrate : public CliTest {
 protected:
  [[nodiscard]] pid_t begin(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), cuda_calibrate_binary());
    return start_program(std::move(arguments));
  }
  [[nodiscard]] Output call(std::vector<std::string> arguments) const { return wait_for(begin(std::move(arguments))); }
};

TEST_F(CudaCalibrate, DryRun_PlansForAGpuThatIsNotThere) {
  const Output plan = call({"--dry-run", "--full", "--assume", "h100-80gb-sxm"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("NVIDIA H100 80GB HBM3"));
  EXPECT_THAT(plan.out, HasSubstr("of at most 900 s for a full run"));
  EXPECT_EQ(files_left(), 0);
}

TEST_F(CudaCalibrate, HostSections_AreMeasured) {
  const Output run = call({"--quick", "--sections", "host.attention", "-o", "host.json"});
  EXPECT_EQ(run.code, 0) << run.err;
  const json document = json::parse(read_file(file("host.json")));
  ASSERT_GE(document["measurements"].size(), 5U);
  for (const json& row : document["measurements"]) {
    EXPECT_EQ(row["op"], "cpu_attention");
    EXPECT_GT(row["median"], 0.0);
    EXPECT_LE(row["p10"], row["median"]);
    EXPECT_LE(row["median"], row["p90"]);
    EXPECT_GE(row["samples"], 3);
  }
  EXPECT_GE(document["provenance"]["host"]["threads"], 1);
  EXPECT_EQ(files_left(), 1);
}

TEST_F(CudaCalibrate, Interrupt_KeepsAFileThatIsWhole) {
  const pid_t child = begin({"--full", "--sections", "host", "-o", "host.json"});
  // The file is there before the first section begins.
  for (int i = 0; i < 1000 && !std::filesystem::exists(file("host.json")); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ::kill(child, SIGINT);
  const Output run = wait_for(child);
  EXPECT_EQ(run.code, 130) << run.err;
  EXPECT_THAT(run.err, HasSubstr("interrupted"));
  const json document = json::parse(read_file(file("host.json")));
  EXPECT_EQ(document["sections"][0]["status"], "interrupted");
  EXPECT_TRUE(document["provenance"]["finished"].is_null());
}

}  // namespace
}  // namespace spillway::test
