// Sweeps give equal bytes however they were run, killed and merged.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "sim/core/random.hpp"
#include "tests/cli/command.hpp"
#include "tests/support/paths.hpp"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::read_file;
using test::write_text;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Contents of all files below a folder, by relative path, except files of the process alone.
std::map<std::string, std::string> tree(const fs::path& folder) {
  std::map<std::string, std::string> files;
  if (!fs::exists(folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).string();
    if (entry.is_regular_file() && name != ".lock") files[name] = read_file(entry.path());
  }
  return files;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all(1);
  for (const char c : text) {
    if (c == '\n') {
      all.emplace_back();
    } else {
      all.back() += c;
    }
  }
  if (all.back().empty()) all.pop_back();
  return all;
}

class Sweep : public test::CliTest {
 protected:
  /// Each point takes a few milliseconds.
  static std::vector<std::string> arguments(const std::vector<std::string>& more) {
    std::vector<std::string> all{"sweep", "workload.requests=30"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  [[nodiscard]] test::Output sweep(const std::vector<std::string>& more) const { return spillway(arguments(more)); }
};

TEST_F(Sweep, ResultsStandInPointOrderWhateverTheNumberOfThreads) {
  const std::vector<std::string> axes{"policy=vllm,sarathi", "workload.rate=2:8:x2", "workload.requests=20,60"};
  std::vector<std::string> one{"sweep"};
  one.insert(one.end(), axes.begin(), axes.end());
  std::vector<std::string> four = one;
  one.insert(one.end(), {"-o", "one", "--format", "csv"});
  four.insert(four.end(), {"-o", "four", "--format", "csv", "-j", "4"});
  const auto single = spillway(one);
  const auto several = spillway(four);
  ASSERT_EQ(single.code, 0) << single.err;
  EXPECT_EQ(single.out, several.out);
  EXPECT_EQ(tree(file("one")), tree(file("four")));
  EXPECT_EQ(read_file(file("one") / "sweep.csv"), single.out);
  const auto rows = lines(single.out);
  ASSERT_EQ(rows.size(), 13U);  // the head and 2 x 3 x 2 points
  EXPECT_THAT(rows[0], testing::StartsWith(
                           "point,policy,workload.rate,workload.requests,bottleneck,steady_state,mean_ttft_ms,"));
  EXPECT_THAT(rows[1], testing::StartsWith("0,vllm,2,20,"));
  EXPECT_THAT(rows[2], testing::StartsWith("1,vllm,2,60,"));
  EXPECT_THAT(rows[12], testing::StartsWith("11,sarathi,8,60,"));
}

TEST_F(Sweep, APointIsWhatARunOfItsConfigurationGives) {
  ASSERT_EQ(sweep({"workload.rate=2,4", "replications=2", "-o", "out"}).code, 0);
  const json manifest = json::parse(read_file(file("out/sweep.json")));
  ASSERT_EQ(manifest["points"].size(), 2U);
  const std::string id = manifest["points"][1]["id"];
  const std::string point = read_file(file("out/points/" + id + ".json"));
  write_text(file("config.json"), json::parse(point)["config"].dump());
  EXPECT_EQ(spillway({"run", "config.json", "--json"}).out, point);
}

TEST_F(Sweep, WhatIsThereIsNotRunAgain) {
  ASSERT_EQ(sweep({"workload.rate=2,4", "-o", "out"}).code, 0);
  const auto more = sweep({"workload.rate=2,3,4", "-o", "out"});
  EXPECT_THAT(more.err, HasSubstr("3 points in out, 2 of them reused"));
  // A trace with other contents makes another point, even under the same name.
  write_text(file("trace.csv"), "arrival_s,input_tokens,output_tokens\n0,100,5\n1,200,6\n");
  EXPECT_THAT(spillway({"sweep", "workload.trace=./trace.csv", "seed=1,2", "-o", "out"}).err, HasSubstr("2 points in"));
  write_text(file("trace.csv"), "arrival_s,input_tokens,output_tokens\n0,100,5\n1,200,7\n");
  EXPECT_THAT(spillway({"sweep", "workload.trace=./trace.csv", "seed=1,2", "-o", "out"}).err, HasSubstr("2 points in"));
}

TEST_F(Sweep, AFileThatIsNoWholeResultIsRunAgain) {
  ASSERT_EQ(sweep({"workload.rate=2,4,6", "-o", "out"}).code, 0);
  const auto whole = tree(file("out"));
  const json manifest = json::parse(whole.at("sweep.json"));
  const auto path = [&](std::size_t point) {
    return file("out/points/" + manifest["points"][point]["id"].get<std::string>() + ".json");
  };
  write_text(path(0), whole.at("points/" + path(0).filename().string()).substr(0, 1000));
  write_text(path(1), read_file(path(2)));  // the text of another point
  write_text(file("out/points/") / (path(2).filename().string() + ".part123"), "half of a file that a kill left");
  EXPECT_THAT(sweep({"workload.rate=2,4,6", "-o", "out"}).err, HasSubstr("1 of them reused"));
  EXPECT_EQ(tree(file("out")), whole);
}

// A result with one changed digit is still valid JSON of the right point: only its checksum reveals the change.
TEST_F(Sweep, AChangedPointIsSaidAndRunAgain) {
  ASSERT_EQ(sweep({"workload.rate=2,4", "-o", "out"}).code, 0);
  const auto whole = tree(file("out"));
  const fs::path point = fs::directory_iterator(file("out/points"))->path();
  std::string text = read_file(point);
  const std::size_t digit = text.find("\"value\": ") + std::string("\"value\": ").size();
  text[digit] = text[digit] == '9' ? '8' : '9';
  write_text(point, text);
  const auto again = sweep({"workload.rate=2,4", "-o", "out"});
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.err, HasSubstr("warning: out/points/" + point.filename().string() +
                                   " was changed after it was written; its point runs again"));
  EXPECT_THAT(again.err, HasSubstr("2 points in out, 1 of them reused"));
  EXPECT_EQ(tree(file("out")), whole);
}

TEST_F(Sweep, AnArgumentOfAnyLengthIsNoFileName) {
  std::string rates = "workload.rate=0.25";
  for (int i = 2; i <= 69; ++i) rates += "," + std::to_string(i / 4.0);
  ASSERT_GT(rates.size(), 255U);  // the longest file name of most systems
  const auto plan = sweep({rates, "--dry-run"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("69 points"));
}

TEST_F(Sweep, AnEmptyNameIsNoMetric) {
  for (const std::string metrics : {"", "mean_ttft_ms,"}) {
    const auto refused = sweep({"seed=1,2", "--metrics", metrics});
    EXPECT_EQ(refused.code, 2) << metrics;
    EXPECT_THAT(refused.err, HasSubstr("--metrics"));
  }
}

TEST_F(Sweep, ShardsAreForAScript) {
  const auto refused = sweep({"seed=1,2", "--shards", "7"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--shards"));
  EXPECT_THAT(refused.err, HasSubstr("--emit"));
}

TEST_F(Sweep, AKillAtAnyMomentLosesNothing) {
  using Clock = std::chrono::steady_clock;
  const std::vector<std::string> grid{"workload.rate=1:30:1", "replications=3", "-j", "2", "-o"};
  const auto run_in = [&](const std::string& folder) {
    std::vector<std::string> all = arguments(grid);
    all.push_back(folder);
    return all;
  };
  const auto begin = Clock::now();
  ASSERT_EQ(spillway(run_in("whole")).code, 0);
  const std::chrono::duration<double> undisturbed = Clock::now() - begin;
  const auto whole = tree(file("whole"));
  ASSERT_EQ(whole.size(), 63U) << "30 points and their checksums, store.json, sweep.csv and sweep.json";

  const char* wanted = std::getenv("KILL_MOMENTS");  // 50 were tried by hand
  const int moments = wanted == nullptr ? 10 : std::atoi(wanted);
  RandomStream random(7, 0, "kill moments");
  int interrupted = 0;
  for (int i = 0; i < moments; ++i) {
    const std::string folder = "killed" + std::to_string(i);
    // Up to two kills per sweep: at this number of points, and up to the time of another point later.
    for (int kill = 0; kill <= i % 2; ++kill) {
      const pid_t child = start(run_in(folder));
      const auto points = static_cast<std::size_t>(random.uniform() * 29.0);
      while (tree(file(folder + "/points")).size() < points) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(random.uniform() * undisturbed / 30.0);
      ::kill(child, SIGKILL);
      interrupted += wait_for(child).code == 128 + SIGKILL ? 1 : 0;
    }
    const auto resumed = spillway(run_in(folder));
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    ASSERT_EQ(tree(file(folder)), whole) << "killed at moment " << i;
  }
  EXPECT_GT(interrupted, moments / 2) << "the kills came too late to say anything";
}

TEST_F(Sweep, CtrlCKeepsWhatIsDone) {
  const std::vector<std::string> slow{"sweep", "workload.rate=4:11:1", "workload.requests=20000", "-o", "out"};
  const pid_t child = start(slow);
  while (tree(file("out/points")).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(child, SIGINT);
  const auto stopped = wait_for(child);
  EXPECT_EQ(stopped.code, 130);
  EXPECT_THAT(stopped.out, IsEmpty());
  EXPECT_THAT(stopped.err, HasSubstr("of 8 points are in out; the same command continues from there"));
  EXPECT_FALSE(json::parse(read_file(file("out/sweep.json")))["complete"].get<bool>());
}

TEST_F(Sweep, APointThatFailsDoesNotStopTheOthers) {
  // 40 GB of weights and KV on an 80 GB GPU fit, 90 GB do not.
  const auto failed = sweep({"memory.gpu_kv=20GB,90GB,30GB", "-o", "out", "--format", "csv"});
  EXPECT_EQ(failed.code, 4);
  EXPECT_THAT(failed.err, HasSubstr("3 points in out, 1 failed\n"));
  const auto rows = lines(failed.out);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_THAT(rows[2], HasSubstr("1,90GB,,,"));
  EXPECT_THAT(rows[2], HasSubstr("does not fit h100-80gb-sxm"));
  EXPECT_THAT(rows[3], testing::StartsWith("2,30GB,"));
  const json manifest = json::parse(read_file(file("out/sweep.json")));
  EXPECT_THAT(manifest["points"][1]["error"].get<std::string>(), HasSubstr("does not fit"));
  EXPECT_FALSE(manifest["points"][1].contains("id"));
  const auto again = sweep({"memory.gpu_kv=20GB,90GB,30GB", "-o", "out", "--json"});
  EXPECT_EQ(again.code, 4);
  const json result = json::parse(again.out);
  EXPECT_EQ(result["failed_points"], 1);
  EXPECT_GT(result["points"][0]["metrics"]["mean_ttft_ms"]["value"].get<double>(), 0.0);
}

TEST_F(Sweep, KeysOfOnePolicyFailForTheOthersOnly) {
  const auto mixed = sweep({"policy=vllm,vllm-v0", "policy.version=0.2.0,0.6.3", "--json"});
  EXPECT_EQ(mixed.code, 4);
  const json points = json::parse(mixed.out)["points"];
  EXPECT_THAT(points[0]["error"].get<std::string>(), HasSubstr("unknown key \"policy.version\""));
  EXPECT_FALSE(points[3].contains("error"));
}

TEST_F(Sweep, ListsInAFileAreAxesAndArgumentsWin) {
  write_text(file("grid.json"),
             R"({"workload": {"rate": [2, 4]}, "policy": {"name": ["vllm", "sarathi"]}, "seed": [1, 2]})");
  const auto result = sweep({"grid.json", "seed=5", "--format", "csv"});
  const auto rows = lines(result.out);
  ASSERT_EQ(rows.size(), 5U) << result.err;
  EXPECT_THAT(rows[0], testing::StartsWith("point,workload.rate,policy,bottleneck,steady_state,"));
  EXPECT_THAT(rows[2], testing::StartsWith("1,2,sarathi,"));
  const auto run = spillway({"run", "grid.json"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("workload.rate is a list; one value is needed"));
}

TEST_F(Sweep, ZippedKeysGoTogether) {
  const auto zipped = sweep({"policy=vllm,vllm-v0", "engine.max_num_seqs=64,32", "seed=1,2", "--zip",
                             "policy,engine.max_num_seqs", "--format", "csv"});
  const auto rows = lines(zipped.out);
  ASSERT_EQ(rows.size(), 5U) << zipped.err;
  EXPECT_THAT(rows[1], testing::StartsWith("0,vllm,64,1,"));
  EXPECT_THAT(rows[4], testing::StartsWith("3,vllm-v0,32,2,"));
}

TEST_F(Sweep, SaysHowFarItCanBeTrusted) {
  const std::vector<std::string> grid{"workload.rate=2,4", "workload.trace=arxiv"};
  const auto table = sweep(grid);
  EXPECT_THAT(table.out, HasSubstr("Validity     expect TPOT within 8%, TTFT 21%: explain validity\n"));
  EXPECT_THAT(table.out, HasSubstr("Range        2 of 2 runs left the measured range; the first: "));
  const json points = json::parse(sweep({grid[0], grid[1], "--json"}).out)["points"];
  EXPECT_THAT(points[0]["trust"]["outside_measured_range"].get<std::string>(),
              testing::AllOf(HasSubstr("prefill attention: "),
                             HasSubstr(" of calls, extrapolated with a median / p95 error of ")));
  EXPECT_THAT(points[0]["trust"]["validity"][0].get<std::string>(), testing::StartsWith("gpu: "));
  // The text of a run about itself.
  const json run =
      json::parse(spillway({"run", "workload.requests=30", "workload.rate=2", "workload.trace=arxiv", "--json"}).out);
  EXPECT_EQ(points[0]["trust"]["validity"][0], "gpu: " + run["validity"][0]["error"].get<std::string>());
}

TEST_F(Sweep, ReplicationsHaveIntervalsAndZeroIsNotEmpty) {
  const auto rows = lines(sweep({"seed=1,2", "replications=3", "--format", "csv"}).out);
  EXPECT_THAT(rows.at(0), HasSubstr(",mean_ttft_ms,half_width_mean_ttft_ms,"));
  const auto table = sweep({"seed=1,2", "--metrics", "swap_preemptions,prefix_cache_hit_fraction"});
  EXPECT_THAT(table.out, testing::ContainsRegex("0  1 +0 +-  ")) << "none happened; no prefix could have hit";
}

TEST_F(Sweep, BadInputIsAnsweredBeforeAnythingIsRun) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& what) {
    const auto result = sweep(more);
    EXPECT_EQ(result.code, 2) << what;
    EXPECT_THAT(result.err, HasSubstr(what));
    EXPECT_THAT(result.out, IsEmpty());
  };
  refused({"workload.rat=2,4"}, "did you mean \"workload.rate\"?");
  refused({"workload.rate=8:4:1"}, "it holds no value");
  refused({"workload.rate="}, "workload.rate");
  refused({"workload.rate=1,x"}, "\"x\" is not a number");
  refused({"seed=1:1000000:1"}, "the grid has 1000000 points: 1000000 of seed");
  refused({"seed=1:100000:1", "workload.rate=1:100000:1", "--yes"},
          "the grid has 10000000000 points: 100000 of seed x 100000 of workload.rate");
  refused({"seed=1,2", "seed=3,4"}, "seed is given twice");
  refused({"seed=1,2", "--zip", "seed,policy"}, "does not have several values");
  refused({"seed=1,2", "--shard", "3/2"}, "\"3/2\" is not a shard");
  refused({"seed=1,2", "--metrics", "p99_tfft_ms"}, "did you mean \"p99_ttft_ms\"?");
  refused({"seed=1,2", "--emit", "slurm"}, "--emit slurm needs a folder");
  refused({"seed=1,2", "-o", "/dev/null/x"}, "cannot create the folder");
  write_text(file("empty.json"), R"({"seed": []})");
  refused({"empty.json"}, "seed has an empty list");
  write_text(file("nested.json"), R"({"seed": [[1], 2]})");
  refused({"nested.json"}, "seed holds more than plain values");
  EXPECT_EQ(spillway({"sweep", "--zhip", "a,b"}).code, 2);
}

TEST_F(Sweep, AFolderOfAnotherVersionOrBuildIsRefused) {
  ASSERT_EQ(sweep({"seed=1,2", "-o", "out"}).code, 0);
  write_text(file("out/store.json"), "{\n  \"tool_version\": \"0.0.9\",\n  \"tool_build\": \"00\"\n}\n");
  const auto other = sweep({"seed=1,2", "-o", "out"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err,
              HasSubstr("out contains results of spillway 0.0.9, build 00, but this is spillway 0.1.0, build "));
  fs::remove(file("out/store.json"));
  EXPECT_THAT(sweep({"seed=1,2", "-o", "out"}).err, HasSubstr("so their version is unknown"));
}

TEST_F(Sweep, TwoProcessesDoNotShareAFolder) {
  const pid_t child = start({"sweep", "workload.requests=20000", "workload.rate=4:11:1", "-o", "out"});
  while (!fs::exists(file("out/store.json"))) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const auto second = test::CliTest::spillway({"sweep", "seed=1,2", "-o", "out"});
  EXPECT_EQ(second.code, 2);
  EXPECT_THAT(second.err, HasSubstr("another spillway process is writing to out"));
  ::kill(child, SIGKILL);
  EXPECT_EQ(wait_for(child).code, 128 + SIGKILL);
  EXPECT_EQ(sweep({"seed=1,2", "-o", "out"}).code, 0) << "the lock of a killed process is gone";
}

TEST_F(Sweep, AFullDiskLosesAndCorruptsNothing) {
  // 20 points of about 24 kB on a file system of 256 kB, which then grows.
  const std::string command = spillway_binary() + " sweep workload.requests=30 workload.rate=1:20:1 -j 2 -o ";
  write_text(file("full.sh"),
             "mkdir disk\n"
             "mount -t tmpfs -o size=256k none disk || exit 77\n" +
                 command + "disk/out; echo code $?\n" +
                 "find disk/out -name '*.part*'\n"
                 "cp -r disk/out full\n"
                 "mount -o remount,size=64m disk || exit 77\n" +
                 command + "disk/out > again.txt || exit 3\n" + "cp -r disk/out after\n");
  const auto run = wait_for(start_program({"unshare", "--mount", "--map-root-user", "bash", "full.sh"}));
  const bool unshared = run.err.find("unshare: ") == std::string::npos;
  if (run.code == 77 || !unshared) GTEST_SKIP() << "no file system can be mounted here: " << run.err;
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("code 2")) << run.err;
  EXPECT_THAT(run.err, HasSubstr("No space left on device"));
  EXPECT_THAT(run.err, HasSubstr("of 20 points are in disk/out; the same command continues from there"));
  EXPECT_THAT(run.out, Not(HasSubstr(".part"))) << "what could not be written is gone";
  const auto full = tree(file("full/points"));
  EXPECT_GT(full.size(), 2U);
  EXPECT_LT(full.size(), 20U);
  for (const auto& [name, content] : full) EXPECT_TRUE(json::accept(content)) << name;
  EXPECT_THAT(run.err, HasSubstr(std::to_string(full.size()) + " of them reused"));
  ASSERT_EQ(sweep({"workload.rate=1:20:1", "-o", "whole"}).code, 0);
  EXPECT_EQ(tree(file("after")), tree(file("whole")));
}

TEST_F(Sweep, ShardsMergeToTheSameBytes) {
  const std::vector<std::string> grid{"workload.rate=1:7:1", "memory.gpu_kv=20GB,90GB", "-o"};
  const auto with = [&](const std::string& folder, const std::string& shard) {
    std::vector<std::string> all = grid;
    all.insert(all.end(), {folder, "--shard", shard});
    return sweep(all);
  };
  ASSERT_EQ(with("whole", "1/1").code, 4);  // 90 GB do not fit
  for (const char* i : {"1", "2", "3"}) {
    EXPECT_EQ(with(std::string("part") + i, std::string(i) + "/3").code, 4);
  }
  const auto merged = spillway({"merge", "part3", "part1", "part2", "-o", "merged", "--format", "csv"});
  EXPECT_EQ(merged.code, 4) << merged.err;
  EXPECT_EQ(merged.out, read_file(file("whole/sweep.csv")));
  EXPECT_EQ(tree(file("merged")), tree(file("whole")));
}

class Merge : public Sweep {
 protected:
  void SetUp() override {
    Sweep::SetUp();
    write_text(file("trace.csv"), "arrival_s,input_tokens,output_tokens\n0,100,5\n1,200,6\n");
    ASSERT_EQ(shard("1/2", "a").code, 0);
    ASSERT_EQ(shard("2/2", "b").code, 0);
  }
  [[nodiscard]] test::Output shard(const std::string& which, const std::string& folder,
                                   const std::string& seeds = "1:6:1") const {
    return spillway({"sweep", "workload.trace=./trace.csv", "seed=" + seeds, "--shard", which, "-o", folder});
  }
  /// The message against merging these folders. Checks that nothing is written.
  [[nodiscard]] std::string refusal(std::vector<std::string> folders) const {
    folders.insert(folders.begin(), "merge");
    folders.insert(folders.end(), {"-o", "merged"});
    const auto result = spillway(folders);
    EXPECT_EQ(result.code, 3);
    EXPECT_FALSE(fs::exists(file("merged")));
    return result.err;
  }
};

TEST_F(Merge, AnInterruptedShardIsFound) {
  const pid_t child = start({"sweep", "workload.trace=./trace.csv", "workload.requests=2", "replications=2000",
                             "seed=1:6:1", "--shard", "2/2", "-o", "c"});
  while (!fs::exists(file("c/sweep.json"))) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  ::kill(child, SIGKILL);
  ASSERT_EQ(wait_for(child).code, 128 + SIGKILL);
  const json manifest = json::parse(read_file(file("c/sweep.json")));
  EXPECT_FALSE(manifest["complete"].get<bool>());
  // As if the second half of the sweep had been killed.
  json text = json::parse(read_file(file("b/sweep.json")));
  text["complete"] = false;
  text["points"] = json::array();
  write_text(file("b/sweep.json"), text.dump());
  fs::remove(fs::directory_iterator(file("b/points"))->path());
  EXPECT_THAT(refusal({"a", "b"}), HasSubstr("shard 2/2 was interrupted: 2 of its 3 points are in b"));
  ASSERT_EQ(shard("2/2", "b").code, 0);
  EXPECT_EQ(spillway({"merge", "a", "b", "-o", "merged"}).code, 0);
}

TEST_F(Merge, SaysEverythingThatIsWrong) {
  EXPECT_THAT(refusal({"a"}), HasSubstr("these shards are missing: 2/2"));
  EXPECT_THAT(refusal({"a", "a"}), HasSubstr("shard 1/2 is given twice"));
  EXPECT_THAT(refusal({"a", "nowhere"}), HasSubstr("nowhere does not contain a sweep"));
  ASSERT_EQ(shard("2/2", "other", "1:8:1").code, 0);
  EXPECT_THAT(refusal({"a", "other"}), HasSubstr("other and a are of different sweeps"));
  ASSERT_EQ(shard("1/1", "whole").code, 0);
  EXPECT_THAT(refusal({"a", "whole"}), HasSubstr("whole is not a shard"));
  ASSERT_EQ(shard("3/3", "third").code, 0);
  EXPECT_THAT(refusal({"a", "third"}), HasSubstr("third is one of 3 shards, but a is one of 2"));
  write_text(file("trace.csv"), "arrival_s,input_tokens,output_tokens\n0,100,5\n1,200,7\n");
  ASSERT_EQ(shard("2/2", "changed").code, 0);
  EXPECT_THAT(refusal({"a", "changed"}), HasSubstr("workload ./trace.csv was not the same file for all shards"));
}

TEST_F(Merge, LostAndChangedPointsAreFound) {
  const fs::path point = fs::directory_iterator(file("b/points"))->path();
  const std::string text = read_file(point);
  write_text(point, text + " ");
  EXPECT_THAT(refusal({"a", "b"}), HasSubstr("was changed after the run"));
  fs::remove(point);
  EXPECT_THAT(refusal({"a", "b"}), HasSubstr("is missing: there is no"));
  json manifest = json::parse(read_file(file("b/sweep.json")));
  manifest["tool_version"] = "0.0.9";
  write_text(file("b/sweep.json"), manifest.dump());
  EXPECT_THAT(refusal({"a", "b"}), HasSubstr("b was written by spillway 0.0.9"));
  write_text(file("b/sweep.json"), "{\"tool_version\": 3}");
  EXPECT_THAT(refusal({"a", "b"}), HasSubstr("not a file of a sweep"));
}

TEST_F(Sweep, SlurmsVariablesSayWhichShard) {
  set_variable("SLURM_ARRAY_TASK_ID", "14");
  set_variable("SLURM_ARRAY_TASK_MIN", "10");
  set_variable("SLURM_ARRAY_TASK_STEP", "2");
  set_variable("SLURM_ARRAY_TASK_COUNT", "4");  // tasks 10, 12, 14 and 16
  const auto third = sweep({"seed=1:8:1", "--format", "csv"});
  EXPECT_THAT(third.err, HasSubstr("shard 3/4, from SLURM_ARRAY_TASK_ID"));
  const auto rows = lines(third.out);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_THAT(rows[1], testing::StartsWith("2,3,"));
  EXPECT_THAT(rows[2], testing::StartsWith("6,7,"));
  EXPECT_EQ(lines(sweep({"seed=1:8:1", "--format", "csv", "--shard", "1/1"}).out).size(), 9U);
  set_variable("SLURM_ARRAY_TASK_ID", "13");  // between two tasks of the array
  EXPECT_EQ(lines(sweep({"seed=1:8:1", "--format", "csv"}).out).size(), 9U);
}

TEST_F(Sweep, TheSlurmScriptIsAsItStandsHere) {
  const auto emitted = sweep({"policy=vllm,sarathi", "workload.input_tokens=lognormal(1500,0.8)", "--slo",
                              "p99_ttft_ms<1000", "-o", "my results", "--emit", "slurm", "--shards", "2", "-j", "4"});
  ASSERT_EQ(emitted.code, 0) << emitted.err;
  std::string script = emitted.out;
  const std::string program = fs::canonical(spillway_binary()).string();
  for (std::size_t at = script.find(program); at != std::string::npos; at = script.find(program)) {
    script.replace(at, program.size(), "SPILLWAY");
  }
  EXPECT_EQ(script, R"script(#!/usr/bin/env bash
# Runs a sweep of 2 points as 2 tasks of a Slurm job array; a last job merges their results into the folder.
#
#   bash THIS_FILE [SBATCH OPTION ...]     such as --partition=cpu --time=2:00:00; they apply to both jobs
#
# Each task stores every point as soon as the point ends. A killed task continues with its next point when this script
# is submitted again, or when Slurm requeues the task.
set -euo pipefail

folder='my results'
mkdir -p "$folder/shards"

array=$(sbatch --parsable --job-name=spillway-sweep --array=1-2 --cpus-per-task=4 --requeue \
  --output="$folder/shards/%a.log" "$@" <<'JOB'
#!/usr/bin/env bash
exec SPILLWAY sweep \
  workload.requests=30 \
  policy=vllm,sarathi \
  'workload.input_tokens=lognormal(1500,0.8)' \
  --slo \
  'p99_ttft_ms<1000' \
  --shard "$SLURM_ARRAY_TASK_ID/2" -o 'my results'/shards/"$SLURM_ARRAY_TASK_ID" -j 4
JOB
)
array=${array%%;*}
echo "array job $array: 2 tasks of the sweep"

# afterany: a task with failed points has run all its points and exits with 4. merge reports missing points.
merge=$(sbatch --parsable --job-name=spillway-merge --dependency="afterany:$array" --cpus-per-task=1 \
  --output="$folder/merge.log" "$@" <<'JOB'
#!/usr/bin/env bash
exec SPILLWAY merge 'my results'/shards/{1..2} -o 'my results'
JOB
)
merge=${merge%%;*}
echo "merge job $merge: results in $folder"
)script");
}

TEST_F(Sweep, AFullStdoutIsNoSilentLoss) {
  const auto full = wait_for(start(arguments({"seed=1,2"}), "/dev/full"));
  EXPECT_EQ(full.code, 2);
  EXPECT_THAT(full.err, HasSubstr("cannot write the result"));
}

TEST_F(Sweep, ADryRunSaysWhatWouldBeRun) {
  const auto plan = sweep({"workload.rate=2,4", "replications=1,9", "--dry-run", "-o", "out"});
  EXPECT_EQ(plan.code, 0);
  EXPECT_THAT(plan.out, HasSubstr("4 points. In this order:\n  1: workload.rate=2 replications=9\n"
                                  "  3: workload.rate=4 replications=9\n  0: workload.rate=2 replications=1\n"));
  EXPECT_FALSE(fs::exists(file("out")));
}

}  // namespace
}  // namespace spillway
