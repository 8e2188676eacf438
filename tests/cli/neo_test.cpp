// Policies that attend on the CPU, from the command line: memory on the host, figures, refused settings.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/cli/command.hpp"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Neo : public CliTest {
 protected:
  static std::int64_t host_blocks(const Output& run) {
    return json::parse(run.out)["setup"]["host_kv_blocks"].get<std::int64_t>();
  }
};

// Half of 256 GiB are 65,536 blocks of 16 tokens, 32 layers, 2 x 8 heads of 128 elements of 2 bytes: 2 MiB. Of 512 GiB
// for two GPUs, one of which runs, half are 131,072 blocks.
TEST_F(Neo, WithoutAWord_KvTakesHalfOfTheHost) {
  for (const auto& [hardware, blocks] :
       {std::pair{"hardware=g5.16xlarge", 65'536}, {"hardware=a100-nvlink-2", 131'072}}) {
    const auto run = spillway({"run", "policy=neo", hardware, "workload.requests=20", "--json"});
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(host_blocks(run), blocks) << hardware;
  }
  const auto given =
      spillway({"run", "policy=neo", "hardware=g5.16xlarge", "memory.host_kv=10GiB", "workload.requests=20", "--json"});
  EXPECT_EQ(host_blocks(given), 5'120) << given.err;
}

TEST_F(Neo, ARunSaysWhatTheCpuDoes) {
  const std::vector<std::string> arguments{"run",
                                           "policy=neo",
                                           "hardware=g4dn.4xlarge",
                                           "model=llama-2-7b",
                                           "memory.gpu_kv=54 blocks",
                                           "engine.max_model_len=832",
                                           "workload.trace=osc",
                                           "workload.rate=2",
                                           "workload.requests=200"};
  const auto table = spillway(arguments);
  EXPECT_THAT(table.out,
              AllOf(HasSubstr("On the CPU"), HasSubstr("of iterations pipelined"), Not(HasSubstr("Streaming"))));
  auto with_json = arguments;
  with_json.emplace_back("--json");
  const json metrics = json::parse(spillway(with_json).out)["metrics"];
  const auto value = [&](const char* name) { return metrics[name]["value"].get<double>(); };
  EXPECT_GT(value("cpu_busy_fraction"), 0.1);
  EXPECT_GT(value("gpu_busy_fraction"), value("cpu_busy_fraction"));
  EXPECT_LT(value("gpu_busy_fraction"), 1.0);
  EXPECT_GT(value("layers_fraction"), 0.9);
  EXPECT_LT(value("layers_fraction"), 1.0);
  EXPECT_GT(value("second_bubble_fraction"), 0.0);
  const json others = json::parse(spillway({"run", "workload.requests=20", "--json"}).out)["metrics"];
  EXPECT_TRUE(others.contains("gpu_busy_fraction"));
  EXPECT_FALSE(others.contains("cpu_busy_fraction"));
}

// A T4 with 864 tokens of KV for Llama-2-7B. vLLM keeps them full while the others wait. NEO fills the CPU's time and
// no more, so the GPU is never idle and reads the weights for each sub-batch. FastDecode attends on the CPU for every
// decode, whatever the GPU does: with long contexts the GPU waits. With short ones (osc) it does not, and the weights
// limit.
TEST_F(Neo, ACompareNamesWhatLimitsEach) {
  const auto limits = [&](std::vector<std::string> traffic) {
    std::vector<std::string> arguments{"compare",
                                       "--json",
                                       "policy=vllm-v0,neo,fastdecode",
                                       "hardware=g4dn.4xlarge",
                                       "model=llama-2-7b",
                                       "memory.gpu_kv=54 blocks",
                                       "engine.max_model_len=832",
                                       "workload.requests=100"};
    arguments.insert(arguments.end(), traffic.begin(), traffic.end());
    const auto compared = spillway(arguments);
    EXPECT_EQ(compared.code, 0) << compared.err;
    const json result = json::parse(compared.out);
    std::vector<std::string> sentences;
    for (const json& run : result["runs"]) sentences.push_back(run["bottleneck"]);
    return sentences;
  };
  const auto starts = [](const char* text) { return testing::StartsWith(text); };
  const auto short_of_kv = testing::AllOf(starts("KV capacity limits"),
                                          testing::HasSubstr("% of that time went to the GPU's memory bandwidth."));
  EXPECT_THAT(limits({"workload.trace=uniform", "workload.input_tokens=300", "workload.output_tokens=300",
                      "workload.arrival=all-at-once"}),
              testing::ElementsAre(short_of_kv, starts("The GPU's memory bandwidth limits"),
                                   starts("Attention on the CPU limits")));
  EXPECT_THAT(limits({"workload.trace=osc", "workload.rate=2", "replications=1"}),
              testing::ElementsAre(short_of_kv, starts("The GPU's memory bandwidth limits"),
                                   starts("The GPU's memory bandwidth limits")));
}

// Blocks of llama-3.1-8b hold 16 tokens. The second prompt begins with 8 of the first one's: half of its 256 tokens.
// FastDecode has them in memory.host_cache only.
TEST_F(Neo, SharesPrefixes) {
  std::string ids;
  for (int id = 0; id < 8; ++id) ids += (id == 0 ? "" : ", ") + std::to_string(id);
  std::string trace;
  for (const int arrival : {0, 9}) {
    trace += "{\"arrival_s\": " + std::to_string(arrival) +
             ", \"input_tokens\": 256, \"output_tokens\": 2, \"prefix_ids\": [" + ids + "]}\n";
  }
  write_text(file("shared.jsonl"), trace);
  const auto metrics = [&](std::vector<std::string> settings) {
    settings.insert(settings.begin(), {"run", "--json", "hardware=g5.16xlarge", "workload.trace=./shared.jsonl"});
    const auto run = spillway(settings);
    EXPECT_EQ(run.code, 0) << run.err;
    return json::parse(run.out)["metrics"];
  };
  const auto hits = [&](std::vector<std::string> settings) {
    return metrics(std::move(settings))["prefix_cache_hit_fraction"]["value"];
  };
  EXPECT_EQ(hits({"policy=neo"}), 0.25) << "128 of 512";
  EXPECT_TRUE(hits({"policy=neo", "engine.prefix_caching=false"}).is_null());
  EXPECT_EQ(hits({"policy=fastdecode"}), 0.0);
  EXPECT_EQ(hits({"policy=fastdecode", "memory.host_cache=1GiB"}), 0.25);
}

// Other tiers of the prefix cache need what attention on the CPU does not offer, and the message says what.
TEST_F(Neo, SaysWhichNeedOfAPrefixCacheIsNotOffered) {
  const auto refused = [&](const char* setting, const char* text) {
    const auto run = spillway({"run", "policy=neo", "hardware=g5.16xlarge", "memory.host_cache=1GiB", setting});
    EXPECT_EQ(run.code, 2) << setting;
    EXPECT_THAT(run.err, HasSubstr(text));
  };
  refused("engine.kv_connector=vllm-offloading",
          "policy neo has no vllm-offloading: it is a connector of vLLM's V1 engine");
  refused("memory.disk_cache=1GiB", "memory.disk_cache needs engine.kv_connector=vllm-offloading");
}

TEST_F(Neo, RefusesWhatCannotRun) {
  const auto refused = [&](std::vector<std::string> settings, const char* text) {
    settings.insert(settings.begin(), "run");
    const auto run = spillway(settings);
    EXPECT_EQ(run.code, 2) << text;
    EXPECT_THAT(run.err, HasSubstr(text));
  };
  refused({"policy=neo"}, "attends on the CPU, and h100-80gb-sxm states no host");
  refused({"policy=neo", "hardware=g5.4xlarge", "policy.cpu_threads=9"}, "more than the 8 cores");
  refused({"policy=neo", "hardware=g5.4xlarge", "memory.host_kv=1GB"}, "no prompt fits");
  refused({"policy=fastdecode", "hardware=g5.4xlarge", "memory.host_kv=1MB"}, "no prompt fits");
  for (const char* const policy : {"policy=neo", "policy=fastdecode"}) {
    refused({policy, "hardware=g5.4xlarge", "memory.gpu_kv=0 blocks"}, "at argument memory.gpu_kv=0 blocks");
  }
  refused({"policy=neo", "hardware=g5.4xlarge", "memory.gpu_kv=1 blocks"}, "has no whole KV block on the GPU");
  refused({"policy=neo", "hardware=g4dn.4xlarge"}, "the weights leave no GPU memory for KV");
}

}  // namespace
}  // namespace spillway::test
