// SPILLWAY_* variables as a user sets them.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/cli/command.hpp"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Environment : public CliTest {
 protected:
  [[nodiscard]] json shown(std::vector<std::string> arguments = {}) const {
    arguments.insert(arguments.begin(), {"config", "show", "--json"});
    const Output show = spillway(arguments);
    EXPECT_EQ(show.code, 0) << show.err;
    return json::parse(show.out);
  }
};

TEST_F(Environment, SetsAKeyAndIsItsOrigin) {
  set_variable("SPILLWAY_WORKLOAD_RATE", "8");
  EXPECT_EQ(shown()["workload.rate"], (json{{"value", 8.0}, {"origin", "environment SPILLWAY_WORKLOAD_RATE=8"}}));
  EXPECT_THAT(spillway({"config", "show"}).out, HasSubstr("environment SPILLWAY_WORKLOAD_RATE=8\n"));
  const Output run = spillway({"run", "--dry-run"});
  EXPECT_THAT(run.out, HasSubstr("at 8 requests/s"));
}

TEST_F(Environment, StandsBetweenArgumentAndFile) {
  write_text(file("my.json"), R"({"seed": 1, "workload.rate": 2, "policy": "vllm"})");
  set_variable("SPILLWAY_SEED", "10");
  set_variable("SPILLWAY_WORKLOAD_RATE", "20");
  set_variable("SPILLWAY_POLICY", "vllm-v0");
  set_variable("SPILLWAY_POLICY_VERSION", "0.5.3");
  const json keys = shown({"my.json", "seed=100"});
  EXPECT_EQ(keys["seed"], (json{{"value", 100}, {"origin", "argument seed=100"}}));
  EXPECT_EQ(keys["workload.rate"]["value"], 20.0);
  EXPECT_EQ(keys["policy"]["value"], "vllm-v0");
  EXPECT_EQ(keys["policy.version"]["value"], "0.5.3");
  EXPECT_EQ(keys["engine"], (json{{"value", "vllm-0.5.3"}, {"origin", "policy default"}}));
}

TEST_F(Environment, MistakesAreErrorsWithTheirPlaceAllAtOnce) {
  set_variable("SPILLWAY_WORKLOAD_RAT", "8");
  set_variable("SPILLWAY_MEMORY_GPU_KV", "40");
  set_variable("SPILLWAY_PROGRESS", "of");
  set_variable("SPILLWAY_JOBS", "0");
  const Output run = spillway({"run", "seed=x"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.out, IsEmpty());
  for (const char* part :
       {"unknown environment variable \"SPILLWAY_WORKLOAD_RAT\"\n  at environment SPILLWAY_WORKLOAD_RAT=8\n",
        "did you mean \"SPILLWAY_WORKLOAD_RATE\"?", "\"40\" has no unit\n  at environment SPILLWAY_MEMORY_GPU_KV=40\n",
        "at environment SPILLWAY_PROGRESS=of\n", "at environment SPILLWAY_JOBS=0\n", "at argument seed=x\n",
        "5 errors; nothing was run."}) {
    EXPECT_THAT(run.err, HasSubstr(part));
  }
}

TEST_F(Environment, AnArgumentCannotHideABadVariable) {
  set_variable("SPILLWAY_SEDE", "8");
  EXPECT_EQ(spillway({"config", "check", "seed=8"}).code, 2);
  EXPECT_EQ(spillway({"list", "policies"}).code, 0);  // commands without a configuration ignore the variable
}

TEST_F(Environment, EmptyIsNotSet) {
  set_variable("SPILLWAY_SEED", "");
  set_variable("SPILLWAY_SEDE", "");
  set_variable("SPILLWAY_FORMAT", "");
  set_variable("SPILLWAY_JOBS", "");
  EXPECT_EQ(shown()["seed"]["origin"], "default");
  const Output run = spillway({"run", "workload.requests=5"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("Set-up "));
}

TEST_F(Environment, FlagsHaveVariablesAndWinOverThem) {
  set_variable("SPILLWAY_FORMAT", "csv");
  set_variable("SPILLWAY_JOBS", "2");
  set_variable("SPILLWAY_PROGRESS", "off");
  const auto out = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"run", "workload.requests=5", "replications=2"});
    const Output run = spillway(arguments);
    EXPECT_EQ(run.code, 0) << run.err;
    return run.out;
  };
  EXPECT_THAT(out({}), testing::StartsWith("name,value,unit,n"));
  EXPECT_THAT(out({"--json"}), testing::StartsWith("{"));
  EXPECT_THAT(out({"--format", "vllm"}), HasSubstr("\"completed\""));
  EXPECT_THAT(out({"-j", "1"}), testing::StartsWith("name,value,unit,n"));
  // A flag on the command line overrides a bad value of its variable.
  set_variable("SPILLWAY_FORMAT", "tabel");
  EXPECT_THAT(out({"--format", "table"}), HasSubstr("Set-up "));
  EXPECT_EQ(spillway({"run", "workload.requests=5"}).code, 2);
}

TEST_F(Environment, IsInTheHelp) {
  const Output help = spillway({"run", "--help"});
  for (const char* name : {"SPILLWAY_WORKLOAD_RATE", "SPILLWAY_FORMAT", "SPILLWAY_JOBS", "SPILLWAY_PROGRESS"}) {
    EXPECT_THAT(help.out, HasSubstr(name));
  }
  EXPECT_THAT(help.out, Not(HasSubstr("complete ")));
}

}  // namespace
}  // namespace spillway::test
