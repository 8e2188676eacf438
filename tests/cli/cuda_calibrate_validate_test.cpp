// `cuda_calibrate validate` on a machine without a GPU: what it predicts, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/command.hpp"
#include "tests/support/paths.hpp"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

class CudaCalibrateValidate : public CliTest {
 protected:
  [[nodiscard]] Output call(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {cuda_calibrate_binary(), "validate"});
    return wait_for(start_program(std::move(arguments)));
  }
};

TEST_F(CudaCalibrateValidate, DryRun_PredictsEverySetting) {
  const Output run = call({"h100-80gb-sxm", "--host", "hgx-h100-host", "--dry-run", "-o", "out.json"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("KV of layers swapped in FIFO order (Pie)"));
  EXPECT_THAT(run.out, HasSubstr("CPU attention beside GPU work (NEO)"));
  const json report = json::parse(read_file(file("out.json")));
  EXPECT_EQ(report["kind"], "validation");
  ASSERT_GE(report["settings"].size(), 60U);
  for (const json& setting : report["settings"]) EXPECT_GT(setting["predicted_s"], 0.0) << setting["name"];
  EXPECT_EQ(files_left(), 1);
}

TEST_F(CudaCalibrateValidate, ListAndMarkdown_NeedNoGpu) {
  const Output list = call({"t4-16gb", "--list", "--experiments", "d"});
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_THAT(list.out, testing::StartsWith("d01  300 of 20 KiB by many"));
  const Output markdown = call({"t4-16gb", "--dry-run", "--markdown", "--experiments", "d,e", "--threads", "4"});
  EXPECT_EQ(markdown.code, 0) << markdown.err;
  EXPECT_THAT(markdown.out, HasSubstr("| d01 | 300 of 20 KiB by many"));
  EXPECT_THAT(markdown.out, HasSubstr("t4-16gb has no fitted cpu_attention, and no host is given")) << "of (e)";
}

TEST_F(CudaCalibrateValidate, WhatCannotBeRun_IsRefusedWithWhatToDo) {
  Output run = call({"h100-80gb-sx", "--dry-run"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("did you mean \"h100-80gb-sxm\"?"));
  run = call({"h100-80gb-sxm", "--dry-run", "--experiments", "a,x"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("unknown experiment \"x\""));
  run = call({"h100-80gb-sxm", "--dry-run", "-o", "missing/out.json"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.out, IsEmpty());
  run = call({});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("profile"));
}

}  // namespace
}  // namespace spillway::test
