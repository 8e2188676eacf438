// A user's own model: a Hugging Face config.json, from the command line.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "tests/cli/command.hpp"
#include "tests/support/paths.hpp"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// An invented Llama: 2 * 1000 * 512 + 4 (4 * 512^2 + 3 * 512 * 1408 + 2 * 512) + 512 = 13,873,664 parameters.
class ModelFile : public CliTest {
 protected:
  static json tiny() {
    return {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", "llama"},
            {"hidden_size", 512},
            {"intermediate_size", 1408},
            {"num_attention_heads", 8},
            {"num_hidden_layers", 4},
            {"max_position_embeddings", 2048},
            {"vocab_size", 1000},
            {"torch_dtype", "bfloat16"}};
  }
  /// The same with 8 experts, of which a token passes 2.
  static json tiny_mixture() {
    json config = tiny();
    config["architectures"] = {"MixtralForCausalLM"};
    config["num_local_experts"] = 8;
    config["num_experts_per_tok"] = 2;
    return config;
  }
  void write_config(const json& config) const {
    std::filesystem::create_directories(file("tiny-llama"));
    write_text(file("tiny-llama/config.json"), config.dump(1));
  }
};

TEST_F(ModelFile, RunsFromAnIdOfTheHubUnlessAFolderHasItsName) {
  const Output run = spillway({"run", "--json", "--dry-run", "model=qwen/qwen3-30b-a3b-FP8"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(json::parse(run.out)["setup"]["model"], "qwen/qwen3-30b-a3b-FP8");
  EXPECT_THAT(run.out, HasSubstr("the linear layers are in fp8_block"));
  const std::string resolved = "qwen/qwen3-30b-a3b-FP8 is qwen3-30b-a3b with weights in fp8_block";
  EXPECT_EQ(json::parse(run.out)["setup"]["resolved_model"], resolved);
  EXPECT_THAT(spillway({"run", "--dry-run", "model=qwen/qwen3-30b-a3b-FP8"}).out,
              HasSubstr("Model        " + resolved + "\n"));
  const Output plain = spillway({"run", "--json", "--dry-run", "model=meta-llama/Llama-3.1-8B-Instruct"});
  EXPECT_EQ(json::parse(plain.out)["setup"]["resolved_model"],
            "meta-llama/Llama-3.1-8B-Instruct is llama-3.1-8b with weights in 16 bits");
  EXPECT_FALSE(json::parse(spillway({"run", "--json", "--dry-run", "model=gpt-oss-20b"}).out)["setup"].contains(
      "resolved_model"));
  const Output text = spillway({"explain", "Qwen/Qwen3-30B-A3B-FP8"});
  ASSERT_EQ(text.code, 0) << text.err;
  // 128 experts of which 8 work: HfExperts.Qwen3Moe_WhenRead_ThenParametersAreThePublishedOnes.
  EXPECT_THAT(text.out, AllOf(HasSubstr("active    3353032704 parameters per token: 8 of 128 experts in 48 of 48"),
                              HasSubstr("modelled  routed experts"), HasSubstr("left out  pipeline parallelism")));
  const Output dense = spillway({"explain", "meta-llama/Llama-3.1-8B-Instruct"});
  EXPECT_THAT(dense.out, AllOf(HasSubstr("llama-3.1-8b (model)"), Not(HasSubstr("modelled"))));
  const Output none = spillway({"explain", "Qwen/Qwen3-31B"});
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.err, HasSubstr("the nearest one is Qwen/Qwen3-32B"));
  std::filesystem::create_directories(file("Qwen/Qwen3-30B-A3B"));
  write_text(file("Qwen/Qwen3-30B-A3B/config.json"), tiny().dump());
  const Output own = spillway({"run", "--json", "--dry-run", "model=Qwen/Qwen3-30B-A3B"});
  ASSERT_EQ(own.code, 0) << own.err;
  EXPECT_EQ(json::parse(own.out)["setup"]["max_model_len_tokens"], 2048);
  EXPECT_FALSE(json::parse(own.out)["setup"].contains("resolved_model"));
}

// 24 layers, every second over 128 tokens: 1,024 tokens hold 24 * 1024 / (12 * 1024 + 12 * 128) = 1.78 times what
// engines keep, 4,096 and 16,384 tokens 1.94 and 1.98 times.
TEST_F(ModelFile, ExplainSaysWhatIsModelled) {
  EXPECT_THAT(spillway({"explain", "gpt-oss-20b"}).out,
              AllOf(HasSubstr("  windows   full attention over the tokens of the window, not measured."),
                    HasSubstr("1.78 times with 1024 tokens, 1.94 times with 4096 tokens, 1.98 times with 16384"),
                    HasSubstr("  exchange  with one"),
                    HasSubstr("  refused   a config.json with sparse attention over an index, linear attention")));
  EXPECT_THAT(spillway({"explain", "deepseek-v3"}).out,
              AllOf(HasSubstr("  attention latent: KV bytes and FLOPs are exact"), Not(HasSubstr("windows"))));
  const std::string dense = spillway({"explain", "llama-3.1-8b"}).out;
  EXPECT_THAT(dense, AllOf(Not(HasSubstr("windows")), Not(HasSubstr("refused"))));
}

// The first warning, as a screen may not have room for all. gpt-oss-20b: HfMixtures.Windows_...
TEST_F(ModelFile, WindowsThatKeepAllKvAreTheFirstWarning) {
  for (const char* const keeps : {"engine.hybrid_kv_cache=false", "policy=sarathi", "engine.prefix_caching=true"}) {
    const Output run = spillway({"run", "--json", "--dry-run", "model=gpt-oss-20b", keeps});
    ASSERT_EQ(run.code, 0) << run.err;
    const json result = json::parse(run.out);
    EXPECT_FALSE(result["setup"].contains("kv_window")) << keeps;
    const json& warnings = result["warnings"];
    ASSERT_FALSE(warnings.empty());
    EXPECT_THAT(warnings[0].get<std::string>(), HasSubstr("up to 2.00 times as many requests of 131072 tokens"))
        << keeps;
    EXPECT_EQ(std::ranges::count(warnings, warnings[0]), 1);
  }
}

// A token of gpt-oss-20b has 24 layers x 2 x 8 heads x 64 x 2 bytes of KV, so 1 GB holds 1,271 blocks of 16 tokens. The
// last of k blocks is taken when all tokens but the last 2,048 have been computed: then (16 (k - 1) + 1 - 2,048 - 127)
// / 16, rounded down k - 137, blocks have been passed in half of the layers. k - (k - 137) / 2 is at most 1,271 up to k
// = 2,405.
TEST_F(ModelFile, WindowsThatFreeKvLetLongerRequestsFit) {
  const auto longest = [&](const std::string& frees) {
    const Output run = spillway(
        {"run", "--json", "--dry-run", "model=gpt-oss-20b", "memory.gpu_kv=1GB", "engine.hybrid_kv_cache=" + frees});
    EXPECT_EQ(run.code, 0) << run.err;
    return json::parse(run.out)["setup"]["max_model_len_tokens"].get<std::int64_t>();
  };
  EXPECT_EQ(longest("auto"), 2405 * 16);
  EXPECT_EQ(longest("false"), 1271 * 16);
  const Output table = spillway({"run", "--dry-run", "model=gpt-oss-20b"});
  EXPECT_THAT(table.out, HasSubstr("12 of 24 layers free KV beyond 128 tokens"));
  EXPECT_THAT(table.out, Not(HasSubstr("times as many requests")));
}

TEST_F(ModelFile, WindowsCannotFreeKvThatOthersHold) {
  const auto refused = [&](const std::vector<std::string>& settings, const std::string& why) {
    std::vector<std::string> arguments{"run", "engine.hybrid_kv_cache=true"};
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    const Output run = spillway(arguments);
    EXPECT_EQ(run.code, 2);
    EXPECT_THAT(run.err, HasSubstr("engine.hybrid_kv_cache=true cannot free KV: " + why));
  };
  refused({"model=llama-3.1-8b"}, "llama-3.1-8b has no layers with a sliding window");
  refused({"model=gpt-oss-20b", "policy=sarathi"}, "policy sarathi keeps all KV of its requests");
  refused({"model=gpt-oss-20b", "policy=pie"}, "policy pie keeps all KV of its requests");
  refused({"model=gpt-oss-20b", "engine.prefix_caching=true"}, "the prefix cache shares whole blocks of all layers");
  refused({"model=gpt-oss-20b", "hardware=hgx-h100-8", "prefill_replicas=1", "decode_replicas=1"},
          "KV is handed over between instances as a whole");
}

TEST_F(ModelFile, RunsFromAFileAndFromItsFolder) {
  write_config(tiny());
  const Output file = spillway({"run", "--json", "--dry-run", "model=tiny-llama/config.json"});
  ASSERT_EQ(file.code, 0) << file.err;
  const json result = json::parse(file.out);
  EXPECT_EQ(result["setup"]["model"], "tiny-llama");
  EXPECT_EQ(result["setup"]["max_model_len_tokens"], 2048);
  const Output folder = spillway({"run", "--json", "--dry-run", "model=tiny-llama"});
  ASSERT_EQ(folder.code, 0) << folder.err;
  EXPECT_EQ(json::parse(folder.out)["setup"], result["setup"]);
  const Output run = spillway({"run", "--json", "model=tiny-llama", "workload.requests=20"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(json::parse(run.out)["complete"], true);
}

TEST_F(ModelFile, WarningsReachTheResult) {
  json config = tiny();
  config["torch_dtype"] = "float32";
  config["new_feature"] = 3;
  write_config(config);
  const Output run = spillway({"run", "--json", "--dry-run", "model=tiny-llama"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(json::parse(run.out)["warnings"].dump(),
              AllOf(HasSubstr("tiny-llama/config.json at /new_feature is not understood and was ignored"),
                    HasSubstr("float32 weights are taken as 2 bytes each")));
}

// The checkpoint requests fp8 KV: blocks have half the size, unless the user chooses otherwise.
TEST_F(ModelFile, KvCacheTakesTheCheckpointsType) {
  json config = tiny();
  const auto capacity = [&](const std::string& kv_dtype) {
    write_config(config);
    const Output run = spillway({"run", "--json", "--dry-run", "model=tiny-llama", "memory.gpu_kv=1GB", kv_dtype});
    EXPECT_EQ(run.code, 0) << run.err;
    return json::parse(run.out)["setup"]["gpu_kv_blocks"].get<std::int64_t>();
  };
  // 2 * 4 layers * 8 heads * 64 * 2 bytes * 16 tokens = 131,072 bytes per block.
  EXPECT_EQ(capacity("memory.kv_dtype=auto"), 7629);
  config["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"ignore", {"lm_head"}},
      {"kv_cache_scheme", {{"num_bits", 8}}},
      {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", {{"num_bits", 8}}}}}}}};
  EXPECT_EQ(capacity("memory.kv_dtype=auto"), 15'258);
  EXPECT_EQ(capacity("memory.kv_dtype=fp16"), 7629);
}

TEST_F(ModelFile, ExpertsOfAnotherArchitectureAreRefusedByTheirField) {
  json config = tiny();
  config["num_local_experts"] = 8;
  config["index_topk"] = 2048;
  write_config(config);
  const Output run = spillway({"run", "model=tiny-llama/config.json"});
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.out, IsEmpty());
  EXPECT_THAT(run.err, AllOf(HasSubstr("is not known, and its name suggests that it changes what the model computes"),
                             HasSubstr("at tiny-llama/config.json at /num_local_experts"),
                             HasSubstr("sparse attention over tokens that an index selects is not modelled"),
                             HasSubstr("2 errors; nothing was run.")));
}

TEST_F(ModelFile, AMixtureOfExpertsRuns) {
  write_config(tiny_mixture());
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"run", "model=tiny-llama", "hardware=hgx-h100-8", "latency_model=roofline",
                                       "workload.requests=20"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return spillway(arguments);
  };
  EXPECT_EQ(run({}).code, 0) << run({}).err;
  EXPECT_THAT(run({"--json"}).out, HasSubstr("(expert_load=balanced)"));
  const Output spread = run({"tensor_parallel=2", "data_parallel=4", "expert_parallel=8"});
  EXPECT_EQ(spread.code, 0) << spread.err;
  EXPECT_THAT(spread.out, HasSubstr("tiny-llama on 8 x h100-80gb-sxm"));
  EXPECT_EQ(run({"expert_load=power_law:1.2"}).code, 0);
  write_text(file("shares.json"), "[0.3, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]");
  EXPECT_EQ(run({"expert_load=shares.json"}).code, 0);
}

TEST_F(ModelFile, BadParallelismAndLoadsOfExpertsAreRefused) {
  write_config(tiny_mixture());
  const auto refused = [&](std::vector<std::string> more, const char* expected) {
    std::vector<std::string> arguments{"run", "hardware=hgx-h100-8", "latency_model=roofline"};
    if (!more.front().starts_with("model=")) more.emplace_back("model=tiny-llama");
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Output run = spillway(arguments);
    EXPECT_EQ(run.code, 2) << expected;
    EXPECT_THAT(run.err, HasSubstr(expected));
  };
  refused({"expert_parallel=2"}, "it must divide the 1 GPU of a replica");
  refused({"data_parallel=3", "expert_parallel=3"}, "it must divide the 8 experts of a layer");
  refused({"tensor_parallel=4", "data_parallel=4"}, "tensor_parallel=4 times data_parallel=4 is more than the 8 GPUs");
  refused({"expert_load=even"}, "unknown expert_load \"even\"");
  refused({"expert_load=power_law:9"}, "power_law:9 has no exponent from 0 to 4");
  write_text(file("short.json"), "[0.5, 0.5]");
  refused({"expert_load=short.json"}, "has 2 shares, and a layer of the model has 8 experts");
  write_text(file("half.json"), "[0.5, 0, 0, 0, 0, 0, 0, 0]");
  refused({"expert_load=half.json"}, "sum to 0.5, not to 1");
  refused({"model=llama-3.1-8b", "expert_load=power_law:1"}, "llama-3.1-8b has no experts");
  refused({"model=llama-3.1-8b", "tensor_parallel=2", "expert_parallel=2"}, "it has no experts");
  refused({"model=deepseek-v3", "tensor_parallel=8", "policy=select-n"},
          "it plans with layers of equal size, and the model has 3 layers with a dense MLP and 58 with experts");
  refused({"model=gpt-oss-20b", "policy=neo"}, "it plans with layers that take equal time");
  refused({"data_parallel=2", "prefill_replicas=1", "decode_replicas=1"},
          "data_parallel above 1 is not modelled beside prefill and decode pools");
}

TEST_F(ModelFile, ExplainPrintsEveryValueWithItsSource) {
  json config = tiny();
  config["sliding_window"] = 1024;
  write_config(config);
  for (const char* name : {"tiny-llama", "tiny-llama/config.json"}) {
    const Output explained = spillway({"explain", name});
    ASSERT_EQ(explained.code, 0) << explained.err;
    EXPECT_THAT(explained.out, AllOf(HasSubstr("tiny-llama (model)"), HasSubstr("hidden = 512\n"),
                                     HasSubstr("config.json: hidden_size"), HasSubstr("parameters = 13873664"),
                                     HasSubstr("max_positions = 2048 tokens"), HasSubstr("window = 1024 tokens"),
                                     HasSubstr("layer_kinds = 4 dense, window 1024")));
  }
}

TEST_F(ModelFile, ExplainTakesOurOwnFormAndPrefersNames) {
  std::filesystem::copy_file(std::filesystem::path(source_dir()) / "hwmodels/llms/opt-13b.json", file("mine.json"));
  EXPECT_THAT(spillway({"explain", "mine.json"}).out, HasSubstr("opt-13b (model)"));
  std::filesystem::create_directories(file("vllm"));  // a folder with the name of a policy
  EXPECT_THAT(spillway({"explain", "vllm"}).out, AllOf(HasSubstr("vllm (policy)"), Not(HasSubstr("(model)"))));
  write_text(file("notes.txt"), "no model");
  const Output refused = spillway({"explain", "notes.txt"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err, HasSubstr("not a JSON document"));
}

TEST_F(ModelFile, ExplainReportsAFileAsRunDoes) {
  for (const char* name : {"nosuch.json", "./loop/config.json", "no/folder"}) {
    const Output refused = spillway({"explain", name});
    EXPECT_EQ(refused.code, 3) << name;
    EXPECT_THAT(refused.err, AllOf(HasSubstr(std::string("cannot read the file ") + name),
                                   HasSubstr("check its name and its permissions"), Not(HasSubstr("unknown name"))));
  }
  std::filesystem::create_directory(file("loop"));
  std::filesystem::create_symlink("config.json", file("loop/config.json"));
  EXPECT_THAT(spillway({"explain", "./loop/config.json"}).err, HasSubstr("cannot read the file ./loop/config.json"));
  const Output models = spillway({"explain", "llama-3"});
  EXPECT_EQ(models.code, 2);
  EXPECT_THAT(models.err, AllOf(HasSubstr("explain one of the models llama-3.1-70b, llama-3.1-8b; spillway list"),
                                Not(HasSubstr("keys llama"))));
}

// The model has the folder's name, also when the command runs inside the folder. Paths are shown as the user wrote
// them.
TEST_F(ModelFile, IsNamedByItsFolderFromWithin) {
  write_text(file("config.json"), tiny().dump());
  const std::string name = folder().filename().string();
  for (const char* model : {".", "./", "config.json", "./config.json"}) {
    const Output run = spillway({"run", "--json", "--dry-run", std::string("model=") + model});
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(json::parse(run.out)["setup"]["model"], name) << model;
    EXPECT_THAT(run.out, Not(HasSubstr("././"))) << model;
    const Output explained = spillway({"explain", model});
    EXPECT_THAT(explained.out, AllOf(HasSubstr(name + " (model)"), Not(HasSubstr("././")))) << explained.err;
  }
}

TEST_F(ModelFile, ControlCharactersDoNotReachTheTerminal) {
  const std::string escape = "\x1b";
  const auto has_none = AllOf(Not(HasSubstr(escape)), Not(HasSubstr("\x07")), Not(HasSubstr("\xc2\x9b")));
  json config = tiny();
  config["new" + escape + "[31m\xc2\x9b" + "1m"] = 1;
  config["_name_or_path"] = "";
  write_config(config);
  const Output check = spillway({"config", "check", "model=tiny-llama"});
  EXPECT_EQ(check.code, 0);
  EXPECT_THAT(check.err, AllOf(HasSubstr("/new\\x1b[31m\\u009b1m is not understood"), has_none));
  EXPECT_THAT(spillway({"run", "--dry-run", "model=tiny-llama"}).out, AllOf(HasSubstr("\\x1b[31m"), has_none));
  EXPECT_THAT(spillway({"explain", "tiny-llama"}).out, AllOf(HasSubstr("\\x1b[31m"), has_none));
  // JSON escapes them in its own way.
  const Output run = spillway({"run", "--json", "--dry-run", "model=tiny-llama"});
  EXPECT_THAT(run.out, Not(HasSubstr(escape)));
  bool found = false;
  const json warnings = json::parse(run.out)["warnings"];
  for (const json& warning : warnings) {
    found = found || warning.get<std::string>().find("/new" + escape + "[31m") != std::string::npos;
  }
  EXPECT_TRUE(found);
  config["torch_dtype"] = escape + "]0;title\x07";
  write_config(config);
  EXPECT_THAT(spillway({"run", "model=tiny-llama"}).err, AllOf(HasSubstr("\"\\x1b]0;title\\x07\""), has_none));
  set_variable("SPILLWAY_WORKLOAD_FORMAT", escape + "[2J\n");
  const Output refused = spillway({"config", "show"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("\\x1b[2J\\n"), has_none));
}

TEST_F(ModelFile, WhatIsNoPlainFileIsRefused) {
  ASSERT_EQ(::mkfifo(file("pipe.json").c_str(), 0600), 0);
  for (const char* model : {"pipe.json", "/dev/zero", "/dev/null"}) {
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"run", std::string("model=") + model}, std::vector<std::string>{"explain", model}}) {
      const Output refused = spillway(command);
      EXPECT_EQ(refused.code, 3) << model;
      EXPECT_THAT(refused.err, AllOf(HasSubstr("is not a regular file"), HasSubstr(model)));
    }
  }
  std::string large;
  large.resize(16'000'001, ' ');
  write_text(file("large.json"), large);
  const Output refused = spillway({"run", "model=large.json"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err, HasSubstr("is larger than 16 MB"));
}

}  // namespace
}  // namespace spillway::test
