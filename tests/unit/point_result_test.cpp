// Which stored results stand for a point: those of a finished run with the same identity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/cli/arguments.hpp"
#include "sim/core/error.hpp"
#include "sim/report/report.hpp"
#include "sim/study/points.hpp"

namespace spillway {
namespace {

TEST(PointId, IsOfConfigurationAndScales) {
  const auto config = [](const std::string& rate) { return cli::resolve_arguments({"workload.rate=" + rate}, {}, {}); };
  const std::string id = point_id(config("1"), {}, {});
  EXPECT_EQ(id.size(), 32U);
  EXPECT_EQ(point_id(config("1"), {}, {}), id);
  EXPECT_NE(point_id(config("2"), {}, {}), id);
  EXPECT_NE(point_id(config("1"), {}, {.gemm = 1.05}), id);
  EXPECT_NE(point_id(config("1"), {}, {}, true), id);
  EXPECT_NE(point_id(config("1"), {}, {.gemm = 1.05}), point_id(config("1"), {}, {.copies = 1.05}));
}

TEST(PointOutcome, OfAnotherSchemaVersion_IsRefused) {
  Result result;
  result.config = cli::resolve_arguments({}, {}, {});
  auto json = nlohmann::ordered_json::parse(to_json(result));
  const auto refusal = [&json] {
    try {
      (void)outcome_from_json(json.dump(), "points/a.json");
    } catch (const DataError& error) {
      EXPECT_EQ(error.problems().front().where, "points/a.json");
      return error.problems().front().what;
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal(), "accepted");
  json["schema_version"] = 0;
  EXPECT_EQ(refusal(), "the result has schema version 0, and this program reads version 1");
  json.erase("schema_version");
  EXPECT_EQ(refusal(), "the result has schema version none, and this program reads version 1");
}

TEST(PointOutcome, OfAnInterruptedRun_IsRefused) {
  Result result;
  result.config = cli::resolve_arguments({}, {}, {});
  auto json = nlohmann::ordered_json::parse(to_json(result));
  ASSERT_EQ(json["complete"], true);
  EXPECT_NO_THROW((void)outcome_from_json(json.dump(), "points/a.json"));
  json["complete"] = false;
  try {
    (void)outcome_from_json(json.dump(), "points/a.json");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("not a complete result of a run"));
  }
}

}  // namespace
}  // namespace spillway
