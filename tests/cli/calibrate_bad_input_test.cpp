// Bad measurements and bad profiles: exit code, message, and no files written.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/cli/calibrate_files.hpp"
#include "tests/cli/command.hpp"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using Texts = std::vector<std::string>;

class BadCalibration : public CliTest {
 protected:
  /// Expects that `calibrate ARGUMENTS` ends with `code`, prints each of `parts` on stderr and nothing on stdout, and
  /// leaves the folder unchanged.
  void refused(int code, Texts arguments, const Texts& parts) {
    const std::ptrdiff_t before = files_left();
    arguments.insert(arguments.begin(), "calibrate");
    const Output run = spillway(arguments);
    EXPECT_EQ(run.code, code) << run.err;
    EXPECT_THAT(run.out, IsEmpty());
    for (const std::string& part : parts) EXPECT_THAT(run.err, HasSubstr(part));
    EXPECT_THAT(run.err, HasSubstr("error: "));
    EXPECT_THAT(run.err, HasSubstr("\n  at "));
    EXPECT_EQ(files_left(), before) << "something was left behind";
  }
  /// `fit FILES` must fail, without an existing profile and with one that must stay unchanged. `check` must fail too,
  /// unless only the base profile (`base` given) shows the problem.
  void fit_refused(int code, const Texts& files, const Texts& parts, const Texts& more = {}) {
    Texts arguments{"fit"};
    arguments.insert(arguments.end(), files.begin(), files.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.end(), {"-o", "new.json"});
    refused(code, arguments, parts);
    write_text(file("new.json"), "what was there");
    refused(code, arguments, parts);
    EXPECT_EQ(read_file(file("new.json")), "what was there");
    std::filesystem::remove(file("new.json"));
  }
  /// fit and check must refuse a file with this text.
  void bad_file(const std::string& name, const std::string& text, const Texts& parts, const Texts& more = {}) {
    write_text(file(name), text);
    fit_refused(3, {name}, parts, more);
    refused(3, {"check", "h100-80gb-sxm", name}, parts);
  }
  /// The only measurement of a JSON file.
  static std::string entry(const std::string& text) {
    return R"({"schema_version": 1, "kind": "measurements", "provenance": {}, "measurements": [)" + text + "]}";
  }
  /// A profile with fits of elementwise kernels, copies and all-reduces.
  [[nodiscard]] json good_profile() {
    write_text(file("base.json"), bare_profile());
    write_text(file("elementwise.csv"), elementwise_table());
    write_text(file("copies.csv"),
               "direction,mechanism,block_bytes,copies,latency_us\nh2d,many,4096,1,3\nh2d,many,1000000,1,102\n"
               "h2d,many,3000000,1,302\n");
    write_text(file("reductions.csv"), "ranks,bytes,latency_us\n2,1024,10\n2,1048576,20\n");
    const Output fit = spillway({"calibrate", "fit", "elementwise.csv", "copies.csv", "reductions.csv", "--base",
                                 "base.json", "-o", "good.json"});
    EXPECT_EQ(fit.code, 0) << fit.err;
    return json::parse(read_file(file("good.json")));
  }
  /// Every command that reads a profile must refuse this one.
  void bad_profile(const json& profile, const Texts& parts) {
    write_text(file("bad.json"), profile.dump());
    write_text(file("rows.csv"), elementwise_table());
    refused(3, {"check", "bad.json", "rows.csv"}, parts);
    refused(3, {"errors", "bad.json"}, parts);
    fit_refused(3, {"rows.csv"}, parts, {"--base", "bad.json"});
    const std::ptrdiff_t before = files_left();
    const Output run = spillway({"run", "hardware=bad.json", "-o", "out"});
    EXPECT_EQ(run.code, 3) << run.err;
    for (const std::string& part : parts) EXPECT_THAT(run.err, HasSubstr(part));
    EXPECT_EQ(files_left(), before) << "something was left behind";
  }
  /// The good profile with one value replaced.
  void bad_value(json profile, const char* pointer, const json& value, const Texts& parts) {
    profile[json::json_pointer(pointer)] = value;
    Texts all = parts;
    all.push_back("bad.json at " + std::string(pointer));
    bad_profile(profile, all);
  }
};

TEST_F(BadCalibration, RowsThatAreNoMeasurements) {
  bad_file("gemm.csv", "m,n,k,latency_us\n16,4096,4096,15\n16,4096,4096,nan\n",
           {"\"nan\" is not a number", "at gemm.csv line 3, column latency_us", "1 error; nothing was run."});
  bad_file("gemm.csv", "m,n,k,latency_us\n16,4096,4096,inf\n",
           {"\"inf\" is not a number", "at gemm.csv line 2, column latency_us"});
  bad_file("gemm.csv", "m,n,k,latency_us\n16,4096,4096,-5\n",
           {"a time must be above 0, not -5e-06 s", "at gemm.csv line 2, column latency_us"});
  bad_file("gemm.csv", "m,n,k,latency_us\n16,4096,4096,0\n", {"a time must be above 0, not 0 s", "gemm.csv line 2"});
  bad_file("gemm.csv", "m,n,k,latency_us\n0,4096,4096,5\n", {"0 is not from 1 to", "at gemm.csv line 2, column m"});
  bad_file("gemm.csv", "m,n,k,latency_us\n1.5,4096,4096,5\n",
           {"\"1.5\" is not a whole number", "at gemm.csv line 2, column m"});
  bad_file("gemm.csv", "m,n,k,latency_s\n16,4096,4096,1500\n",
           {"1500 s is longer than any measured time", "the unit is probably wrong", "gemm.csv line 2"});
  bad_file("gemm.csv", "m,n,k,latency_us\n16,4096,4096,15\n16,40",
           {"the row has 2 columns where the header has 4", "at gemm.csv line 3", "complete or delete the row"});
  bad_file("gemm.csv", "m,n,k,latency_us,dtype\n16,4096,4096,15,bf61\n",
           {"unknown type \"bf61\"", "at gemm.csv line 2, column dtype", "did you mean \"bf16\"?"});
  bad_file("heads.csv", "batch,q_heads,kv_heads,head_dim,new_tokens,context,latency_us\n1,30,8,128,1,100,9\n",
           {"30 query heads are not a multiple of 8 KV heads", "at heads.csv line 2, column q_heads"});
  bad_file("copies.csv", "direction,mechanism,block_bytes,copies,latency_us\nh2g,many,4096,1,3\n",
           {"unknown direction \"h2g\"", "at copies.csv line 2, column direction", "allowed: h2d, d2h"});
  bad_file("dense.csv", "layer,tokens,time_us\nqkv_prj,4,3\n",
           {"qkv_prj", "at dense.csv line 2, column layer", "did you mean \"qkv_proj\"?"});
}

TEST_F(BadCalibration, AllProblemsOfAllFilesAtOnce) {
  write_text(file("a.csv"), "m,n,k,latency_us\n16,4096,4096,nan\n16,4096,x,5\n");
  write_text(file("b.csv"), "ranks,bytes,latency_us\n1,4096,5\n");
  fit_refused(3, {"a.csv", "b.csv", "none.csv"},
              {"at a.csv line 2, column latency_us", "at a.csv line 3, column k", "at b.csv line 2, column ranks",
               "there is no such file\n  at none.csv", "4 errors; nothing was run."});
}

TEST_F(BadCalibration, FilesOfNoKnownLayout) {
  bad_file("gemm.csv", "m,n,latency_us\n16,4096,5\n",
           {"column k is missing", "at gemm.csv line 1", "ops-gemm-csv needs the columns m, n, k, latency_us"});
  bad_file("gemm.csv", "m,n,k,latency\n16,4096,4096,5\n",
           {"one of the columns latency_us, latency_ms, latency_s is missing; there is a column \"latency\""});
  bad_file("gemm.csv", "m,n,k,latency_us,latency_ms\n16,4096,4096,5,5\n",
           {"columns latency_us and latency_ms all give the time of a row", "keep one of them"});
  bad_file("other.csv", "a,b\n1,2\n",
           {"the first line, \"a,b\", is not the header of a known table of measurements", "at other.csv line 1",
            "known: m, n, k"});
  bad_file("vidur.csv", "time_stats.attn_pre_proj.median,n_head,n_kv_head\n1,2,3\n", {"vidur", "at vidur.csv line 1"});
  bad_file("empty.csv", "", {"the file is empty", "at empty.csv"});
  bad_file("header.csv", "m,n,k,latency_us\n", {"the file holds no measurement", "at header.csv"});
  fit_refused(3, {"none.csv"}, {"there is no such file", "at none.csv"});
  std::filesystem::create_directory(file("folder"));
  fit_refused(3, {"folder"}, {"this is a folder, not a measurement file", "at folder"});
  bad_file("cut.gz", "\x1f\x8b\x08", {"at cut.gz"});
}

TEST_F(BadCalibration, JsonThatIsNoMeasurements) {
  bad_file("rows.json", entry(R"({"op": "host", "sequences": 1, "median": 1})"),
           {"unit is missing", "at rows.json at /measurements/0/unit"});
  bad_file("rows.json", entry(R"({"op": "host", "sequences": 1, "unit": "sec", "median": 1})"),
           {"unknown unit \"sec\"", "at /measurements/0/unit", "allowed: us, ms, s"});
  bad_file("rows.json", entry(R"({"op": "host", "sequences": 1, "unit": "ms", "median": "1"})"),
           {"\"1\" is not a number", "at /measurements/0/median"});
  bad_file("rows.json", entry(R"({"op": "host", "sequences": 1, "unit": "ms", "median": -1})"),
           {"a time must be above 0, not -0.001 s", "at /measurements/0/median"});
  bad_file("rows.json", entry(R"({"op": "host", "sequences": 1, "unit": "ms", "median": 2, "p10": 3})"),
           {"3 is above the median, 2", "at /measurements/0/p10"});
  bad_file("rows.json", entry(R"({"op": "hots", "sequences": 1, "unit": "ms", "median": 1})"),
           {"hots", "at /measurements/0/op", "did you mean \"host\"?"});
  bad_file("rows.json", entry(""), {"the file holds no measurement", "at rows.json"});
  bad_file("rows.json", R"({"schema_version": 2, "kind": "measurements"})",
           {"must be 1, not 2", "at rows.json at /schema_version"});
  bad_file("rows.json", R"({"schema_version": 1, "kind": "gpu"})",
           {"must be \"measurements\", not \"gpu\"", "at rows.json at /kind"});
  bad_file("rows.json", "{\"schema_version\": 1,", {"not a JSON document", "at rows.json"});
}

// An H100 reads 3.35 TB/s and has an L2 of 52 MB. Weights of 4096 x 4096 (34 MB) read in 5 us were in the L2; weights
// of 8192 x 8192 cannot have been.
TEST_F(BadCalibration, RowsThatBeatTheDatasheetOrEachOther) {
  const Texts base{"--base", "h100-80gb-sxm"};
  const Texts drop{"use --drop-inconsistent to leave out such rows"};
  bad_file("gemm.csv", "m,n,k,latency_us\n1,8192,8192,6\n",
           {"above the bandwidth: GEMM m=1 n=8192 k=8192", "1.342e+08 bytes of weights in 6 us",
            "3.35e+12 B/s of memory bandwidth of h100-80gb-sxm", "at gemm.csv line 2"},
           base);
  bad_file("gemm.csv", "m,n,k,latency_us\n1,4096,4096,5\n",
           {"L2-resident: GEMM m=1 n=4096 k=4096", "at gemm.csv line 2", "measure with a cold cache"}, base);
  bad_file("gemm.csv", "m,n,k,latency_us\n8192,8192,8192,1000\n",
           {"above the peak: GEMM", "9.89e+14 FLOP/s of h100-80gb-sxm", "at gemm.csv line 2"}, base);
  bad_file("copies.csv", "direction,mechanism,block_bytes,copies,latency_us\nh2d,many,1000000000,1,1000\n",
           {"above the link's peak: copy_h2d", "at copies.csv line 2"}, base);
  write_text(file("gemm.csv"), "m,n,k,latency_us\n16,4096,4096,20\n\n16,4096,4096,20\n");
  fit_refused(3, {"gemm.csv"},
              {"duplicate: GEMM m=16 n=4096 k=4096: 20 us, as at gemm.csv line 2", "at gemm.csv line 4",
               "delete one of the rows; use --drop-inconsistent to leave out such rows"});
  // check judges the profile by the other rows, and reports the omitted rows.
  const Output once = spillway({"calibrate", "check", "h100-80gb-sxm", "gemm.csv"});
  EXPECT_EQ(once.code, 0);
  EXPECT_THAT(once.err, HasSubstr("left out: 1 impossible rows; the first: duplicate: GEMM m=16 n=4096"));
  EXPECT_THAT(once.out, testing::ContainsRegex("gemm +1 "));
  bad_file("gemm.csv", "m,n,k,latency_us\n16,4096,4096,20\n16,4096,4096,30\n",
           {"contradictory: GEMM m=16 n=4096 k=4096: 30 us, but 20 us at gemm.csv line 2", "at gemm.csv line 3"});
  // Giving one file twice does not add a measurement.
  write_text(file("twice.csv"), "ranks,bytes,latency_us\n2,1024,10\n2,1048576,20\n");
  fit_refused(3, {"twice.csv", "twice.csv"}, {"duplicate: all-reduce of 1024 bytes, 2 ranks", "at twice.csv line 2"});
  // Without a base, only figures that no machine reaches are refused.
  write_text(file("fast.csv"), "kernel,tokens,bytes,latency_us\na,1,1e12,1\n");
  fit_refused(3, {"fast.csv"}, {"2.5e+13 B/s of memory bandwidth, more than any machine of 2026 has"});
}

TEST_F(BadCalibration, TooFewRowsForAModel) {
  write_text(file("gemm.csv"), "m,n,k,latency_us\n16,4096,4096,20\n");
  fit_refused(3, {"gemm.csv"}, {"1 rows of gemm are too few to fit: at least 24 are required", "at gemm.csv line 2"});
  write_text(file("flat.csv"), "kernel,tokens,bytes,latency_us\na,1,1000,2\na,2,1000,2\na,3,1000,2\na,4,1000,2\n");
  fit_refused(3, {"flat.csv"}, {"launch time and bandwidth need rows of at least 2 sizes", "at flat.csv: "});
  write_text(file("one.csv"), "direction,mechanism,block_bytes,copies,latency_us\nd2h,many,1000000,1,102\n");
  fit_refused(3, {"one.csv"}, {"at least 2 sizes, not 1 of one", "at one.csv: "});
  write_text(file("hole.csv"), "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n512,0,4,100,20\n0,0,4,100,9\n");
  fit_refused(3, {"hole.csv"},
              {"2 rows of attention are too few to interpolate a chunk of 512 tokens after 0, 0 decodes of 0 tokens, "
               "which is not measured: at least 16 are required",
               "at hole.csv: "});
  write_text(file("both.csv"),
             "direction,mechanism,block_bytes,copies,latency_us,duplex\nh2d,many,1000000,1,102,true\n");
  fit_refused(3, {"both.csv"}, {"no row is left to fit", "at both.csv"});
  write_text(file("fast.csv"), "kernel,tokens,bytes,latency_us\na,1,1e12,1\n");
  const Output dropped = spillway({"calibrate", "fit", "fast.csv", "--drop-inconsistent", "-o", "new.json"});
  EXPECT_EQ(dropped.code, 3);
  EXPECT_THAT(dropped.err, HasSubstr("left out: 1 impossible rows"));
  EXPECT_THAT(dropped.err, HasSubstr("2.5e+13 B/s of memory bandwidth"));
  EXPECT_THAT(dropped.err, HasSubstr("no row is left to fit"));
  EXPECT_FALSE(std::filesystem::exists(file("new.json")));
}

TEST_F(BadCalibration, AProfileThatNoRunWouldTakeIsNotWritten) {
  std::string rows;
  for (const int sequences : {1, 2, 9}) {
    rows += (rows.empty() ? "" : ", ") + std::string(R"({"op": "host", "unit": "ms", "median": 1, "sequences": )") +
            std::to_string(sequences) + "}";
  }
  std::string text = entry(rows);
  const std::string provenance = R"("provenance": {)";
  text.insert(text.find(provenance) + provenance.size(), R"("device": {"sm_count": 200000})");
  write_text(file("rows.json"), text);
  fit_refused(3, {"rows.json"},
              {"a run would refuse the profile: must be an integer between 1 and 100000, not 200000",
               "at new.json at /values/sm_count/value", "the facts of the device"});
}

TEST_F(BadCalibration, ArgumentsThatCannotBe) {
  write_text(file("rows.csv"), elementwise_table());
  fit_refused(2, {"rows.csv"},
              {"unknown hardware \"h100-80gb-sx\"", "at --base h100-80gb-sx", "did you mean \"h100-80gb-sxm\"?"},
              {"--base", "h100-80gb-sx"});
  fit_refused(3, {"rows.csv"}, {"cannot be read", "at ./none.json"}, {"--base", "./none.json"});
  fit_refused(2, {"rows.csv"}, {"unknown model \"llama-3.1-8c\"", "did you mean \"llama-3.1-8b\"?"},
              {"--model", "llama-3.1-8c"});
  fit_refused(
      2, {"elementwize=rows.csv"},
      {"\"elementwize\" is not an op", "at elementwize=rows.csv", "did you mean \"elementwise\"?", "ops: gemm, "});
  fit_refused(3, {"gemm=rows.csv"}, {"the file holds no row of gemm", "at rows.csv", "it holds 8 of elementwise"});
  refused(2, {"check", "h100-80gb-sx", "rows.csv"},
          {"unknown hardware", "at calibrate check h100-80gb-sx", "did you mean \"h100-80gb-sxm\"?"});
  refused(2, {"errors", "h100-80gb-sx"}, {"unknown hardware", "at calibrate errors", "did you mean"});
  refused(3, {"check", "./none.json", "rows.csv"}, {"cannot be read", "at ./none.json"});
  refused(3, {"check", "h100-80gb-sxm", "rows.csv", "--roofline", "none.csv"}, {"there is no such file"});
  refused(2, {"fit", "-o", "new.json"}, {"files is required", "calibrate fit --help"});
  refused(2, {"fit", "rows.csv"}, {"--out is required"});
  refused(2, {"fit", "rows.csv", "-o", "new.json", "--bass", "x"}, {"--bass", "did you mean \"--base\"?"});
  refused(2, {"fti"}, {"unknown command \"fti\"", "did you mean \"fit\"?", "commands: fit, check, errors"});
  refused(2, {}, {"A subcommand is required", "commands: fit, check, errors"});
}

TEST_F(BadCalibration, PlacesThatCannotBeWritten) {
  write_text(file("rows.csv"), elementwise_table());
  refused(2, {"fit", "rows.csv", "-o", "none/new.json"},
          {"cannot create the file none/new.json: No such file or directory", "choose a folder that exists"});
  std::filesystem::create_directory(file("folder.json"));
  refused(2, {"fit", "rows.csv", "-o", "folder.json"}, {"folder.json is a folder", "give the name of a file"});
  refused(2, {"fit", "rows.csv", "-o", "rows"}, {"must end in .json, but it is rows", "at -o rows"});
  if (::geteuid() != 0) {
    std::filesystem::create_directory(file("locked"));
    std::filesystem::permissions(file("locked"), std::filesystem::perms::owner_read);
    refused(2, {"fit", "rows.csv", "-o", "locked/new.json"}, {"cannot create the file locked/new.json"});
    std::filesystem::permissions(file("locked"), std::filesystem::perms::owner_all);
  }
  // The problem is reported before the fit: there are too few rows.
  write_text(file("few.csv"), "m,n,k,latency_us\n16,4096,4096,20\n");
  const Output few = spillway({"calibrate", "fit", "few.csv", "-o", "none/new.json"});
  EXPECT_EQ(few.code, 2);
  EXPECT_THAT(few.err, Not(HasSubstr("too few")));
}

TEST_F(BadCalibration, ThingsThatAProfileCannotTell) {
  write_text(file("rows.csv"), elementwise_table());
  write_text(file("log.csv"), iteration_table());
  json profile = good_profile();
  refused(3, {"check", "good.json", "log.csv"}, {"nothing to check: 10 rows of iteration", "at good.json"});
  refused(3, {"check", "base.json", "rows.csv"},
          {"the profile has no fits; use --roofline to check its analytic model"});
  refused(3, {"check", "good.json", "log.csv", "--roofline"}, {"the analytic model has no term for them"});
  profile["values"]["h2d_bandwidth"]["value"] = nullptr;
  profile["values"]["h2d_bandwidth_duplex"]["value"] = nullptr;
  write_text(file("open.json"), profile.dump());
  refused(2, {"check", "open.json", "copies.csv", "--roofline"},
          {"good does not state h2d_bandwidth, which the analytic model of copies requires"});
  profile["values"]["peak_flops"]["value"] = nullptr;
  write_text(file("open.json"), profile.dump());
  refused(2, {"check", "open.json", "rows.csv", "--roofline"},
          {"good does not state peak_flops, which calibrate check --roofline requires", "set peak_flops in open.json"});
}

TEST_F(BadCalibration, ProfilesOfAnotherForm) {
  const json good = good_profile();
  json profile = good;
  profile["schema_version"] = 2;
  bad_profile(profile, {"must be 1, not 2", "at bad.json at /schema_version"});
  profile = good;
  profile["kind"] = "grpu";
  write_text(file("bad.json"), profile.dump());
  refused(3, {"check", "bad.json", "copies.csv"}, {"must be \"gpu\", not \"grpu\"", "at bad.json at /kind"});
  profile = good;
  profile.erase("values");
  bad_profile(profile, {"must be an object that holds the fields", "at bad.json at /values"});
  profile = good;
  profile["values"].erase("sm_count");
  bad_profile(profile, {"missing", "at bad.json at /values/sm_count"});
  profile = good;
  profile["fited"] = profile["fitted"];
  bad_profile(profile, {"unknown field", "at bad.json at /fited", "did you mean \"fitted\"?"});
  write_text(file("cut.json"), good.dump().substr(0, 500));
  refused(3, {"check", "cut.json", "copies.csv"}, {"not a JSON document", "at cut.json"});
}

TEST_F(BadCalibration, ProfilesOfImpossibleValues) {
  const json good = good_profile();
  bad_value(good, "/values/gemm_compute_efficiency/value", 1.2, {"must be a number above 0 and at most 1, not 1.2"});
  bad_value(good, "/values/kernel_overhead/value", -1e-6, {"must be a number between 0 and 10 s, not -1e-06"});
  bad_value(good, "/values/memory/value", 0, {"must be an integer between 1 and"});
  bad_value(good, "/values/memory_bandwidth/value", 3350, {"must be a number between 1 MB/s and"});
  bad_value(good, "/values/h2d_bandwidth_duplex/value", 2e10, {"exceeds h2d_bandwidth"});
  bad_value(good, "/fitted/elementwise/launch_s", -1e-6, {"must be a time of 0 to 10 s, not -1e-06"});
  bad_value(good, "/fitted/elementwise/bandwidth_bytes_per_s", 1e15, {"(no memory of today is faster), not 1"});
  bad_value(good, "/fitted/copies/0/bandwidth_bytes_per_s", "fast", {"(no memory of today is faster), not \"fast\""});
  bad_value(good, "/fitted/all_reduce/seconds_by_bytes_by_ranks/2/1/1", "x", {"not \"x\""});
  json profile = good;
  profile["fitted"]["all_reduce"]["seconds_by_bytes_by_ranks"]["2"][0][0] = 2e6;
  bad_profile(profile, {"sizes must ascend", "at bad.json at /fitted/all_reduce/seconds_by_bytes_by_ranks/2"});
  bad_value(good, "/fitted/elementwise/held_out/n", -1, {"must be an integer between 0 and"});
}

// Every figure is within its bounds, but 10 s apply to each of 1 + 1000 tokens + 1000 of context + 500,000 pairs.
TEST_F(BadCalibration, AProfileWhoseIterationsTakeDays) {
  json profile = good_profile();
  profile["fitted"]["iteration"] = profile["fitted"]["elementwise"];
  for (const char* key : {"launch_s", "bandwidth_bytes_per_s"}) profile["fitted"]["iteration"].erase(key);
  for (const char* key : {"fixed_s", "token_s", "context_s", "pair_s"}) profile["fitted"]["iteration"][key] = 10.0;
  profile["fitted"]["iteration"]["model"] = "llama-3.1-8b";
  write_text(file("slow.json"), profile.dump());
  const std::ptrdiff_t before = files_left();
  const Output run = spillway({"run", "hardware=slow.json", "workload.input_tokens=1000", "-o", "out"});
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_THAT(run.err, HasSubstr("an iteration takes 5.02e+06 s with this profile: more than a day"));
  EXPECT_THAT(run.err, HasSubstr("at good\n"));
  EXPECT_EQ(files_left(), before);
}

TEST_F(BadCalibration, ProfilesThatBorrowFromNobody) {
  json profile = good_profile();
  const auto lender = [&](const json& name, const Texts& parts) {
    profile["fitted"] = {{"borrowed_from", name}};
    Texts all = parts;
    all.emplace_back("at bad.json at /fitted/borrowed_from");
    bad_profile(profile, all);
  };
  lender("h100-80gb-sx", {"must be the name of a GPU, not \"h100-80gb-sx\"", "did you mean \"h100-80gb-sxm\"?"});
  lender("./bad.json", {"must be the name of a GPU, not \"./bad.json\""});  // the profile itself
  lender("hgx-h100-8", {"must be the name of a GPU"});
  lender(7, {"must be the name of a GPU, not 7"});
  profile["fitted"] = {{"borrowed_from", "h100-80gb-sxm"}, {"host", json::object()}};
  bad_profile(profile, {"must be the only field: kernels are either fitted or borrowed",
                        "at bad.json at /fitted/borrowed_from"});
  profile["fitted"] = {{"borrowed_from", "t4-16gb"}};  // a profile without measured tables
  bad_profile(profile, {"t4-16gb has no fitted kernels of its own to lend"});
}

TEST_F(BadCalibration, LatencyModelsWithoutTheirData) {
  const auto run_refused = [&](const Texts& arguments, const Texts& parts) {
    Texts all{"run", "-o", "out"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const std::ptrdiff_t before = files_left();
    const Output run = spillway(all);
    EXPECT_EQ(run.code, 2) << run.err;
    for (const std::string& part : parts) EXPECT_THAT(run.err, HasSubstr(part));
    EXPECT_EQ(files_left(), before);
  };
  static_cast<void>(good_profile());
  const std::string hardware = "hardware=good.json";
  run_refused(
      {hardware, "latency_model=fitted"},
      {"latency_model=fitted needs fitted gemm in 2-byte numbers; good has none", "argument latency_model=fitted"});
  run_refused({hardware, "latency_model=tables"},
              {"latency_model=tables needs layer tables; good has none", "argument latency_model=tables"});
  run_refused({hardware, "latency_model=iterations"},
              {"latency_model=iterations needs a fit of logged iterations; good has none",
               "argument latency_model=iterations"});
  run_refused({"latency_model=fited"}, {"latency_model: \"fited\" is not known", "did you mean \"fitted\"?"});
  write_text(file("gemm.csv"), gemm_table());
  ASSERT_EQ(spillway({"calibrate", "fit", "gemm.csv", "--base", "./good.json", "-o", "gemm.json"}).code, 0);
  run_refused({"hardware=gemm.json", "latency_model=fitted"},
              {"latency_model=fitted needs fitted decode_attention; gemm has none"});
  // Tables with a missing part: auto skips them.
  write_text(file("dense.csv"), dense_table());
  write_text(file("decodes.csv"), "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,1,100,20\n0,0,8,100,30\n");
  ASSERT_EQ(spillway({"calibrate", "fit", "dense.csv", "--base", "./good.json", "-o", "dense.json"}).code, 0);
  run_refused({"hardware=dense.json", "latency_model=tables"},
              {"the layer tables of dense lack attention", "fit the engine's attention.csv as well"});
  ASSERT_EQ(
      spillway({"calibrate", "fit", "dense.csv", "decodes.csv", "--base", "./good.json", "-o", "decodes.json"}).code,
      0);
  run_refused({"hardware=decodes.json", "latency_model=tables"},
              {"the layer tables of decodes lack attention of chunks"});
  const Output automatic = spillway({"run", "--json", "hardware=decodes.json", "workload.requests=10"});
  ASSERT_EQ(automatic.code, 0) << automatic.err;
  EXPECT_EQ(json::parse(automatic.out)["setup"]["latency_model"], "roofline");
  // Tables of another model, and of several GPUs.
  write_text(file("calls.csv"), engine_attention_table());
  ASSERT_EQ(spillway({"calibrate", "fit", "dense.csv", "calls.csv", "--base", "./good.json", "--model", "llama-3.1-8b",
                      "-o", "tables.json"})
                .code,
            0);
  run_refused({"hardware=tables.json", "latency_model=tables", "model=llama-2-7b"},
              {"the layer tables of tables were measured on llama-3.1-8b, not on llama-2-7b"});
  run_refused({"hardware=tables.json", "latency_model=tables", "tensor_parallel=2"},
              {"are of one GPU, not of tensor_parallel=2"});
}

TEST_F(BadCalibration, LayerTablesInAWrongUnit) {
  static_cast<void>(good_profile());
  // Up and gate of Llama-3.1-8B, 235 MB of weights, take about 80 us: 80 ms under one column name, 80 ns under the
  // other.
  for (const auto& [header, rule] :
       {std::pair("layer,tokens,time_ms\n", "far too slow: gate_up_proj of 1 tokens: 80000 us"),
        std::pair("layer,tokens,time_us\n", "above the bandwidth: gate_up_proj of 1 tokens")}) {
    const bool milli = std::string(header).ends_with("ms\n");
    write_text(file("dense.csv"), std::string(header) + (milli ? "gate_up_proj,1,80\n" : "gate_up_proj,1,0.08\n"));
    refused(3, {"fit", "dense.csv", "--base", "./good.json", "--model", "llama-3.1-8b", "-o", "tables.json"},
            {rule, "of good", "dense.csv line 2", "check the unit of the time and the shape"});
    EXPECT_FALSE(std::filesystem::exists(file("tables.json")));
  }
}

}  // namespace
}  // namespace spillway::test
