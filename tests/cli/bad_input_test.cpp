// Every kind of bad input: exit code, message, and no files left behind.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/cli/command.hpp"

namespace spillway::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class BadInput : public CliTest {
 protected:
  /// Expects that `run ARGUMENTS` ends with `code`, prints each of `parts` on stderr and nothing on stdout, and leaves
  /// the folder unchanged.
  void refused(int code, const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
    const std::ptrdiff_t before = files_left();
    std::vector<std::string> all{"run", "-o", "out", "--requests-out", "requests.jsonl"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Output run = spillway(all);
    EXPECT_EQ(run.code, code) << run.err;
    EXPECT_THAT(run.out, IsEmpty());
    for (const std::string& part : parts) EXPECT_THAT(run.err, HasSubstr(part));
    EXPECT_THAT(run.err, HasSubstr("error: "));
    EXPECT_THAT(run.err, HasSubstr("\n  at "));
    EXPECT_EQ(files_left(), before) << "something was left behind";
  }
  void trace(const std::string& name, const std::string& text) { write_text(file(name), text); }
};

constexpr const char* kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

TEST_F(BadInput, UnknownKeyNamesTheNearest) {
  refused(2, {"memory.block_token=16"},
          {"unknown key \"memory.block_token\"", "argument memory.block_token=16",
           "did you mean \"memory.block_tokens\"?", "1 error; nothing was run."});
  trace("my.json", "{\n \"memory\": {\n  \"kv_blok\": 1\n }\n}");
  refused(2, {"my.json"},
          {"unknown key \"memory.kv_blok\"", "at my.json:3 (/memory/kv_blok)", "allowed: memory.gpu_kv"});
}

TEST_F(BadInput, UnknownNamesNameTheNearest) {
  refused(2, {"policy=vlm"}, {"policy: \"vlm\" is not known", "did you mean \"vllm\"?"});
  refused(2, {"model=llama-3.1-8c"}, {"unknown model \"llama-3.1-8c\"", "did you mean \"llama-3.1-8b\"?", "known: "});
  refused(2, {"hardware=hgx"}, {"hardware: \"hgx\" can mean hgx-b200-8, hgx-h100-8, ", "write one of these names"});
  refused(2, {"hardware=h10"}, {"unknown hardware \"h10\"", "did you mean \"h100-80gb-sxm\"?"});
  refused(2, {"hardware=l40s"}, {"unknown hardware \"l40s\"", "no profile of the NVIDIA L40S is bundled", "known: "});
  refused(3, {"model=Qwen/Qwen3-31B"}, {"cannot read the file Qwen/Qwen3-31B", "the nearest one is Qwen/Qwen3-32B"});
  refused(3, {"model=models/one/two"}, {"cannot read the file models/one/two", "check its name and its permissions\n"});
  refused(2, {"workload.trace=azure-con"}, {"did you mean \"azure-conv\"?"});
  refused(2, {"engine=vllm-0.9"}, {"unknown engine", "vllm-0.19"});
}

TEST_F(BadInput, WrongUnitsAndValues) {
  refused(2, {"memory.gpu_kv=40"}, {"\"40\" has no unit", "40GB"});
  refused(2, {"memory.gpu_kv=40s"}, {"the unit \"s\""});
  refused(2, {"memory.gpu_kv=-40GB"}, {"is negative"});
  refused(2, {"until=10"}, {"has no unit", "100ms"});
  refused(2, {"workload.rate=-3"}, {"workload.rate: -3 is out of range", "more than 0"});
  refused(2, {"workload.rate=nan"}, {"is not a finite number"});
  refused(2, {"seed=1.5"}, {"is not a whole number"});
  refused(2, {"engine.chunked_prefill=perhaps"}, {"neither true nor false"});
  refused(2, {"seed=1", "seed=2"}, {"seed is given twice"});
}

TEST_F(BadInput, ArrivalsThatCannotBe) {
  refused(2, {"workload.arrival=gama"}, {"workload.arrival: \"gama\" is not known", "did you mean \"gamma\"?"});
  refused(2, {"workload.arrival=gamma"}, {"workload.arrival=gamma needs", "set workload.cv"});
  refused(2, {"workload.arrival=gamma", "workload.cv=0"}, {"workload.cv: 0 is out of range", "at least 0.01"});
  refused(2, {"workload.arrival=gamma", "workload.cv=-1"}, {"workload.cv: -1 is out of range"});
  refused(2, {"workload.cv=2"}, {"workload.cv is for workload.arrival=gamma", "leave workload.cv out"});
  refused(2, {"workload.arrival=burst"},
          {"needs workload.burst_after, the number of the prompt that starts the burst", "workload.burst_after=25"});
  refused(2, {"workload.arrival=burst", "workload.burst_after=0"}, {"workload.burst_after: 0 is out of range"});
  refused(2, {"workload.arrival=burst", "workload.burst_after=5", "workload.burst_time=60"}, {"has no unit"});
  refused(2, {"workload.arrival=burst", "workload.burst_after=5", "workload.burst_factor=0"}, {"more than 0"});
}

TEST_F(BadInput, ZeroRequestsAndZeroRate) {
  refused(2, {"workload.rate=0"}, {"workload.rate: 0 is out of range"});
  refused(2, {"workload.requests=0"}, {"workload.requests: 0 is out of range", "at least 1"});
  trace("empty.csv", kHeader);
  refused(3, {"workload.trace=empty.csv"}, {"empty.csv", "holds no request"});
  trace("late.jsonl", "{\"arrival_s\": 9, \"input_tokens\": 4, \"output_tokens\": 2}\n");
  refused(2, {"workload.trace=late.jsonl", "until=1s"}, {"no request arrives before the run ends", "raise until"});
}

TEST_F(BadInput, AllProblemsAtOnce) {
  refused(2, {"polcy=vllm", "seed=x", "memory.gpu_kv=1", "workload.trace=none.csv"},
          {"unknown key \"polcy\"", "seed: \"x\"", "memory.gpu_kv: \"1\"", "cannot read the file none.csv",
           "4 errors; nothing was run."});
  // Problems found only while reading the files are reported together too.
  trace("bad.csv", std::string(kHeader) + "2023-11-16 18:00:00.0,512,oops\n");
  refused(2, {"engine.max_model_len=200000", "workload.trace=bad.csv"},
          {"engine.max_model_len=200000 is more than the 131072 positions", "bad.csv, row 2", "2 errors"});
}

TEST_F(BadInput, UnreadableAndTruncatedFiles) {
  refused(3, {"workload.trace=missing.csv"},
          {"cannot read the file missing.csv", "argument workload.trace=missing.csv"});
  trace("cut.csv", std::string(kHeader) + "2023-11-16 18:00:00.0,512,64\n2023-11-16 18:00:01.0,51");
  refused(3, {"workload.trace=cut.csv"}, {"at cut.csv, row 3"});
  trace("cut.jsonl", "{\"input_tokens\": 4, \"output_tokens\": 2}\n{\"input_tokens\": 4, \"outp");
  refused(3, {"workload.trace=cut.jsonl", "workload.rate=1"}, {"at cut.jsonl, row 2"});
  trace("cut.json", "{\n\"seed\": 1,\n");
  refused(2, {"cut.json"}, {"not valid JSON", "at cut.json:3"});
  refused(2, {"missing.json"}, {"cannot read the configuration file missing.json"});
  trace("gpu.json", "{\"schema_version\": 1, \"kind\": \"gpu\"");
  refused(3, {"hardware=./gpu.json"}, {"gpu.json"});
}

/// A topology of four GPUs on two switches; `gpus` are its paths.
std::string topology_file(const std::string& gpus) {
  return R"({"schema_version": 1, "kind": "topology", "name": "mine", "stands_for": "a test", "error": "none",
 "source": {"kind": "assumed", "cite": "a test"},
 "topology": {
  "links": [
   {"names": ["switch-0", "switch-1"], "kind": "pcie-switch", "in": {"value": 24e9, "unit": "bytes/s"}},
   {"names": ["bridge-0", "bridge-1"], "kind": "nvlink"}],
  "gpus": )" +
         gpus + "}}";
}

TEST_F(BadInput, ATopologyThatDoesNotFitItsServer) {
  trace("mine.json", topology_file(R"([{"host": ["swich-0"]}, {"host": ["switch-0", "switch-0"]}, {"peer": []}])"));
  refused(3, {"hardware=a10-pcie-4", "topology=mine.json"},
          {"there is no link \"swich-0\"", "at mine.json at /topology/gpus/0/host/0", "did you mean \"switch-0\"?",
           "crosses link \"switch-0\" twice", "/topology/gpus/2/host", "missing", "states 3 GPUs, and the server has 4",
           "4 errors; nothing was run."});
  refused(3, {"hardware=a10-pcie-4", "topology=none.json"}, {"topology: cannot read the file none.json"});
  refused(2, {"topology=mine.json"},
          {"topology=mine.json, and h100-80gb-sxm is no server", "leave topology out, or name a server"});
}

TEST_F(BadInput, TensorParallelismAcrossGpusThatATopologyDoesNotConnect) {
  trace("mine.json", topology_file(R"([
   {"host": ["switch-0"], "peer": ["bridge-0"]}, {"host": ["switch-0"], "peer": ["bridge-0"]},
   {"host": ["switch-1"], "peer": ["bridge-1"]}, {"host": ["switch-1"], "peer": ["bridge-1"]}])"));
  const std::vector<std::string> base{"hardware=nc96ads-a100-v4", "topology=mine.json", "model=opt-6.7b", "--dry-run"};
  const auto with = [&](const std::string& more) {
    std::vector<std::string> all = base;
    all.push_back(more);
    return all;
  };
  refused(2, with("tensor_parallel=4"),
          {"tensor_parallel=4 needs GPUs that are connected, and no peer link of mine joins GPUs 0, 1 and GPUs 2, 3",
           "use tensor_parallel=2, or a topology in which these GPUs list a common link as \"peer\""});
  std::vector<std::string> two = with("tensor_parallel=2");
  two.insert(two.begin(), "run");
  EXPECT_EQ(spillway(two).code, 0);
  // By the server's own topology all four copy to each other over PCIe.
  EXPECT_EQ(spillway({"run", "hardware=nc96ads-a100-v4", "model=opt-6.7b", "tensor_parallel=4", "--dry-run"}).code, 0);
}

TEST_F(BadInput, MoreServersThanThereAre) {
  refused(2, {"hardware=hgx-h100-8-pair", "replicas=17"},
          {"17 replicas on 1 GPU each need 3 servers of 8 GPUs",
           "give at most 16 replicas, or hardware=hgx-h100-8-node, of which a run takes as many as it needs"});
  refused(2, {"hardware=hgx-h100-8-pair", "servers=3"},
          {"hgx-h100-8-pair has 2 servers, not 3", "use at most 2, or hardware=hgx-h100-8-node"});
  refused(2, {"hardware=hgx-h100-8-pair", "replicas=9", "servers=1"},
          {"9 replicas on 1 GPU each need 2 servers of 8 GPUs", "give servers=2, or at most 8 replicas"});
}

TEST_F(BadInput, AModelThatDoesNotFit) {
  // 70.55 billion parameters of 2 bytes = 141.1 GB; 0.9 of an H100's 85.0 GB are 76.5 GB, so about 66 GB are missing.
  refused(
      2, {"model=llama-3.1-70b"},
      {"llama-3.1-70b does not fit h100-80gb-sxm with tensor_parallel=1: 66.", " GB short", "tensor_parallel=2 fits"});
  // The advice must not exceed the server's number of GPUs.
  refused(2, {"model=llama-2-13b", "hardware=g5.4xlarge"},
          {"llama-2-13b does not fit a10g-24gb", "no tensor_parallel above 1 fits within the 1 GPU of the server"});
  refused(2, {"hardware=g5.4xlarge", "tensor_parallel=2"},
          {"tensor_parallel=2 is more than the 1 GPU of g5.4xlarge", "use at most 1, or hardware=a10g-24gb"});
  refused(2, {"hardware=hgx-h100-8", "tensor_parallel=16"},
          {"tensor_parallel=16 is more than the 8 GPUs of hgx-h100-8", "use at most 8"});
  refused(2, {"memory.gpu_kv=80GB"}, {"memory.gpu_kv=80GB does not fit h100-80gb-sxm", "more than its 8"});
  refused(2, {"memory.gpu_kv=1MB"}, {"less than one KV block of 2097152 bytes"});
}

TEST_F(BadInput, ATensorParallelThatDoesNotSuitTheModel) {
  refused(2, {"tensor_parallel=3"}, {"tensor_parallel", "3"});
  refused(2, {"tensor_parallel=0"}, {"tensor_parallel: 0 is out of range"});
}

TEST_F(BadInput, ARequestLargerThanTheKvCache) {
  // 100 MB have space for floor(100,000,000 / 2,097,152) = 47 blocks = 752 tokens.
  refused(2, {"memory.gpu_kv=100MB", "engine.max_model_len=800"}, {"the KV cache holds 752 tokens", "use at most 752"});
  trace("large.csv", std::string(kHeader) + "2023-11-16 18:00:00.0,900,64\n2023-11-16 18:00:01.0,700,60\n");
  refused(
      3, {"memory.gpu_kv=100MB", "workload.trace=large.csv"},
      {"all 2 requests were rejected for their size", "the first is request 1 of large.csv with 900 prompt + 64 output",
       "the KV cache holds 752 tokens", "raise memory.gpu_kv", "nothing was written"});
  // One of two requests fits: a warning, not an error.
  trace("mixed.csv", std::string(kHeader) + "2023-11-16 18:00:00.0,90,6\n2023-11-16 18:00:01.0,700,60\n");
  const Output run = spillway({"run", "--json", "memory.gpu_kv=100MB", "workload.trace=mixed.csv"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("1 of 2 requests were rejected for their size: the first is request 2 of mixed.csv"));
}

TEST_F(BadInput, APromptThatThePolicyNeverAdmits) {
  // Without chunks a prompt must fit the token budget, although the KV cache could store it.
  refused(3, {"policy=vllm-v0", "engine.max_num_batched_tokens=512", "workload.input_tokens=600"},
          {"all 2000 requests were rejected", "raise engine.max_num_batched_tokens"});
}

TEST_F(BadInput, TracesWithoutTimesNeedARate) {
  trace("plain.jsonl", "{\"input_tokens\": 4, \"output_tokens\": 2}\n");
  refused(2, {"workload.trace=plain.jsonl"}, {"has no arrival times", "workload.rate"});
}

TEST_F(BadInput, ConditionsThatMakeNoSense) {
  refused(2, {"--slo", "ttft<500"}, {"unknown metric \"ttft\"", "--slo ttft<500"});
  refused(2, {"--slo", "ttft_ms>500"}, {"an SLO on single requests has the form METRIC<LIMIT", "write ttft_ms<500"});
  refused(2, {"--slo", "ttft_ms<=500"}, {"an SLO on single requests has the form METRIC<LIMIT", "write ttft_ms<500"});
  refused(2, {"--fail-if", "p99_ttft_ms=800"}, {"is not a condition", "--fail-if p99_ttft_ms=800"});
  refused(2, {"--fail-if", "ttft_ms>800"}, {"has no statistic", "p99_ttft_ms"});
  refused(2, {"slo.run=p99_tft_ms<1"}, {"p99_ttft_ms", "argument slo.run=p99_tft_ms<1"});
}

TEST_F(BadInput, Usage) {
  refused(2, {"--fromat", "json"}, {"--fromat", "did you mean \"--format\"?", "spillway run --help"});
  refused(2, {"--format", "yaml"}, {"yaml"});
  refused(2, {"one.json", "two.json"}, {"2 configuration files are given"});
  refused(2, {"-j", "0"}, {"--jobs"});
  EXPECT_EQ(spillway({}).code, 2);
  const Output list = spillway({"list", "polices"});
  EXPECT_EQ(list.code, 2);
  EXPECT_THAT(list.err, HasSubstr("did you mean \"policies\"?"));
}

TEST_F(BadInput, UnwritablePlacesAreKnownBeforeTheRun) {
  trace("taken", "a file");
  // A hundred million requests take minutes: the exit is immediate only if the location is checked first.
  const std::string endless = "workload.requests=100000000";
  for (const std::vector<std::string>& place :
       std::vector<std::vector<std::string>>{{"-o", "taken"},
                                             {"-o", "taken/out"},
                                             {"--requests-out", "no/such/folder/r.jsonl"},
                                             {"--requests-out", "."}}) {
    const Output run = spillway({"run", endless, place[0], place[1]});
    EXPECT_EQ(run.code, 2) << place[1];
    EXPECT_THAT(run.err, HasSubstr("nothing was run"));
  }
  // The folder made for the first file is removed when the second file fails.
  EXPECT_EQ(spillway({"run", endless, "-o", "new", "--requests-out", "no/r.jsonl"}).code, 2);
  EXPECT_EQ(files_left(), 1);
}

// bash counts in blocks of 1024 bytes; a result.json has about 24 kB.
TEST_F(BadInput, AFileSizeLimitIsNoSilentEnd) {
  const Output run = wait_for(
      start_program({"bash", "-c", "ulimit -f 8; exec \"$0\" run workload.requests=30 -o out", spillway_binary()}));
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("File too large"));
  EXPECT_THAT(run.err, HasSubstr("1 error; nothing was written."));
  EXPECT_EQ(files_left(), 0);
}

// A run writes its three files before it prints. Without -o it writes no file. A list runs nothing.
TEST_F(BadInput, TheLastLineSaysWhatWasWritten) {
  const Output full = wait_for(start({"run", "workload.requests=5", "-o", "out"}, "/dev/full"));
  EXPECT_EQ(full.code, 2);
  EXPECT_THAT(full.err, HasSubstr("cannot write the result"));
  EXPECT_THAT(full.err, HasSubstr("1 error; 3 files were written, the first is out/charts.json."));
  const Output sweep = wait_for(start({"sweep", "seed=1,2", "workload.requests=5"}, "/dev/full"));
  EXPECT_THAT(sweep.err, HasSubstr("1 error; nothing was written."));
  const Output list = wait_for(start({"list", "policies"}, "/dev/full"));
  EXPECT_THAT(list.err, HasSubstr("1 error; nothing was run."));
}

TEST_F(BadInput, FilesThatCannotBeConfigurations) {
  ASSERT_EQ(::mkfifo(file("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("loop", file("loop"));
  std::filesystem::create_directory(file("folder"));
  for (const auto& [name, why] :
       std::vector<std::pair<std::string, std::string>>{{"/dev/zero", "it is not a regular file"},
                                                        {"pipe", "it is not a regular file"},
                                                        {"folder", "it is a folder"},
                                                        {"loop", "Too many levels of symbolic links"},
                                                        {"/proc/self/mem", "Input/output error"},
                                                        {std::string(5000, 'x'), "File name too long"}}) {
    refused(2, {name}, {"cannot read the configuration file " + name.substr(0, 100), why});
  }
  for (const char* key : {"model", "hardware", "engine", "workload.trace", "workload.tokenizer"}) {
    for (const char* name : {"./pipe", "/dev/zero", "/proc/self/mem"}) {
      const std::string value = std::string(key) == "workload.tokenizer" ? std::string(name) + ".model" : name;
      if (value != name) {
        std::error_code ignored;
        std::filesystem::remove(file("t.model"), ignored);
        std::filesystem::create_symlink(name, file("t.model"));
        write_text(file("text.json"), R"([{"instruction": "a", "input": "", "output": "b"}])");
        refused(3, {"workload.trace=text.json", "workload.rate=1", "workload.tokenizer=./t.model"}, {"t.model"});
      } else {
        refused(3, {std::string(key) + "=" + value}, {value});
      }
    }
  }
}

TEST_F(BadInput, EmptyValuesAreMistakes) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"run", "-o", ""}, {"run", "--requests-out", ""}, {"compare", "policy=vllm,sarathi", "--baseline", ""}}) {
    const Output run = spillway(arguments);
    EXPECT_EQ(run.code, 2) << arguments.back();
    EXPECT_THAT(run.err, HasSubstr("has an empty value"));
  }
  trace("my.json", "{\"foo\": {}}");
  refused(2, {"my.json"}, {"unknown key \"foo\"", "at my.json:1 (/foo)"});
}

TEST_F(BadInput, ALongValueIsCutInTheMessage) {
  const std::string value(100'000, '7');
  for (const std::string& key :
       {std::string("seed="), std::string("model="), std::string("workload.trace="), std::string()}) {
    EXPECT_LT(spillway({"run", key + value}).err.size(), 5000U) << key;
  }
  EXPECT_LT(spillway({"run", "--format", value}).err.size(), 5000U);
  EXPECT_LT(spillway({"run", "--slo", value}).err.size(), 5000U);
}

TEST_F(BadInput, SeveralValuesAreForASweep) {
  refused(2, {"workload.rate=1,2"}, {"workload.rate: \"1,2\" is more than one value", "spillway sweep takes several"});
}

TEST_F(BadInput, KvMemoryInBlocksIsTheSameRun) {
  // One block of llama-3.1-8b: 16 tokens x 32 layers x K and V x 8 heads x 128 x 2 bytes = 2,097,152 bytes.
  const auto shown = [&](const std::string& gpu, const std::string& host) {
    const Output run =
        spillway({"run", "workload.requests=20", "memory.gpu_kv=" + gpu, "memory.host_kv=" + host, "--format", "csv"});
    EXPECT_EQ(run.code, 0) << run.err;
    return run.out;
  };
  EXPECT_EQ(shown("2588 blocks", "100 blocks"), shown("5427429376B", "209715200B"));
  const Output first = spillway({"run", "workload.requests=20", "memory.gpu_kv=2588 blocks", "--json", "-o", "out"});
  EXPECT_THAT(first.out, HasSubstr("\"memory.gpu_kv\": \"2588 blocks\""));
  EXPECT_THAT(first.out, HasSubstr("\"gpu_kv_blocks\": 2588"));
  EXPECT_EQ(spillway({"run", "out/config.resolved.json", "--json"}).out, first.out);
  refused(2, {"memory.gpu_kv=0 blocks"}, {"memory.gpu_kv=0 blocks is less than one KV block"});
  refused(2, {"memory.gpu_kv=900000000 blocks"}, {"are more than 1000TB", "argument memory.gpu_kv=900000000 blocks"});
}

TEST_F(BadInput, RejectedRequestsAndUnusedGpusAreSaid) {
  trace("mixed.csv", std::string(kHeader) + "2023-11-16 18:00:00.0,90,6\n2023-11-16 18:00:01.0,700,60\n");
  const Output run = spillway({"run", "memory.gpu_kv=100MB", "workload.trace=mixed.csv"});
  EXPECT_THAT(run.out,
              HasSubstr("Bottleneck   1 of 2 requests were rejected, so the figures are those of the others."));
  const Output server = spillway({"run", "--dry-run", "--json", "hardware=hgx-h100-8"});
  EXPECT_THAT(server.out, HasSubstr("7 of the 8 GPUs of hgx-h100-8 are not used, because tensor_parallel=1"));
  EXPECT_THAT(spillway({"run", "--dry-run", "--json", "hardware=hgx-h100-8", "tensor_parallel=8"}).out,
              testing::Not(HasSubstr("not used")));
}

TEST_F(BadInput, AFullDiskIsNoSilentLoss) {
  const Output run = spillway({"run", "-o", "out", "--requests-out", "/dev/full"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("No space left on device"));
  EXPECT_EQ(files_left(), 0);
  const Output standard = wait_for(start({"run", "--json"}, "/dev/full"));
  EXPECT_EQ(standard.code, 2);
  EXPECT_THAT(standard.err, HasSubstr("cannot write the result"));
}

}  // namespace
}  // namespace spillway::test
