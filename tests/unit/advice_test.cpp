// Parts of `advise` and `plan` that need no simulation: knobs, costs, and the Pareto front.
#include "sim/study/advice.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "sim/core/random.hpp"
#include "sim/study/serve_flags.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Metric metric(const std::string& name, double value) { return {.name = name, .unit = "", .value = value}; }

Fleet fleet(std::int64_t gpus, double ttft, double tpot, std::optional<double> cost_per_million = {}) {
  Fleet one{.replicas = gpus, .gpus = gpus, .holds = true};
  one.metrics = {metric("p99_ttft_ms", ttft), metric("mean_tpot_ms", tpot),
                 metric("output_throughput_tokens_per_s", 1000.0)};
  if (cost_per_million) one.metrics.push_back(metric("cost_per_million_output_tokens", *cost_per_million));
  return one;
}

std::vector<std::string> keys(const std::vector<Knob>& knobs) {
  std::vector<std::string> all;
  all.reserve(knobs.size());
  for (const Knob& knob : knobs) all.push_back(knob.values.front().front().first);
  return all;
}

TEST(Knobs, LeaveOutWhatIsGiven) {
  EXPECT_THAT(keys(knobs_for({}, true)),
              ElementsAre("engine.max_num_batched_tokens", "engine.max_num_seqs", "engine.preemption",
                          "engine.prefix_caching", "memory.host_cache"));
  EXPECT_THAT(
      keys(knobs_for({"memory.host_cache", "engine.max_num_seqs", "model"}, false)),
      ElementsAre("engine.max_num_batched_tokens", "engine.preemption", "engine.prefix_caching", "memory.kv_dtype"));
}

TEST(Knobs, SayWhichChangeTheAnswers) {
  for (const Knob& knob : knobs_for({}, false)) {
    EXPECT_EQ(knob.changes_answers, knob.values.front().front().first == "memory.kv_dtype");
  }
}

// 2 dollars for a million tokens, at 1,000 tokens/s: 3.6 million tokens an hour, so 7.2 dollars.
TEST(FleetCost, IsThatOfItsTokens) {
  EXPECT_DOUBLE_EQ(*figures_of(fleet(4, 100, 10, 2.0)).cost_per_hour, 7.2);
  EXPECT_FALSE(figures_of(fleet(4, 100, 10)).cost_per_hour.has_value());
}

// The second is beaten by the first in everything. The third costs more and answers sooner, the fourth has a better
// TPOT alone. The fifth would be best and misses the SLOs.
TEST(ParetoFront, HasWhatNothingBeats) {
  std::vector<Fleet> fleets{fleet(2, 100, 10), fleet(3, 120, 11), fleet(4, 50, 10), fleet(5, 200, 5), fleet(1, 1, 1)};
  fleets.back().holds = false;
  EXPECT_THAT(pareto_front(fleets), ElementsAre(0, 2, 3));
}

TEST(ParetoFront, KeepsEquals) { EXPECT_THAT(pareto_front({fleet(2, 100, 10), fleet(2, 100, 10)}), ElementsAre(0, 1)); }

// By prices, 8 cheap GPUs beat 2 dear ones. When one price is missing, GPUs decide.
TEST(ParetoFront, CountsMoneyWhereEveryPriceIsKnown) {
  EXPECT_THAT(pareto_front({fleet(8, 90, 10, 1.0), fleet(2, 100, 10, 3.0)}), ElementsAre(0));
  EXPECT_THAT(pareto_front({fleet(8, 100, 10, 1.0), fleet(2, 90, 10)}), ElementsAre(1));
}

TEST(ParetoFront, WithoutAFleetIsEmpty) { EXPECT_THAT(pareto_front({}), IsEmpty()); }

// By trial of every pair, and of every point below a front.
TEST(ParetoFront, OfRandomFleets) {
  std::uint64_t state = 7;
  const auto draw = [&](std::uint64_t below) { return static_cast<double>(split_mix(state) % below); };
  for (int round = 0; round < 200; ++round) {
    std::vector<Fleet> fleets;
    fleets.reserve(12);
    for (int i = 0; i < 12; ++i) {
      fleets.push_back(fleet(1 + static_cast<std::int64_t>(draw(5)), draw(5), draw(5)));
    }
    const std::vector<std::size_t> front = pareto_front(fleets);
    const auto figures = [&](std::size_t i) {
      return std::array<double, 3>{static_cast<double>(fleets[i].gpus), *fleets[i].metrics[0].value,
                                   *fleets[i].metrics[1].value};
    };
    for (std::size_t i = 0; i < fleets.size(); ++i) {
      bool beaten = false;
      for (std::size_t j = 0; j < fleets.size(); ++j) {
        const auto a = figures(j);
        const auto b = figures(i);
        beaten = beaten || (a != b && a[0] <= b[0] && a[1] <= b[1] && a[2] <= b[2]);
      }
      EXPECT_EQ(std::ranges::find(front, i) == front.end(), beaten);
    }
  }
}

nlohmann::json result(const std::string& policy, const std::string& engine) {
  return {{"config",
           {{"tensor_parallel", 2},
            {"data_parallel", 1},
            {"expert_parallel", 1},
            {"engine.max_num_batched_tokens", 8192},
            {"engine.max_num_seqs", 256},
            {"engine.max_model_len", nullptr},
            {"engine.gpu_memory_utilization", 0.9},
            {"engine.quantization", "auto"},
            {"memory.block_tokens", 16},
            {"memory.kv_dtype", "auto"}}},
          {"setup",
           {{"policy", policy},
            {"engine", engine},
            {"prefix_caching", true},
            {"host_cache_blocks", 0},
            {"block_bytes_per_gpu", 1048576},
            {"tensor_parallel_gpus", 2}}}};
}

TEST(ServeFlags, NameWhatTheEngineWouldNotDoByItself) {
  EXPECT_EQ(serve_flags(result("vllm", "vllm-0.23"))->command,
            "vllm serve MODEL --tensor-parallel-size 2 --max-num-batched-tokens 8192 --max-num-seqs 256");
  EXPECT_EQ(serve_flags(result("tensorrt-llm", "tensorrt-llm-0.9"))->command,
            "trtllm-serve MODEL --tp_size 2 --max_num_tokens 8192 --max_batch_size 256");
}

// 16,384 blocks of 1 MiB on each of two ranks are 32 GiB.
TEST(ServeFlags, SumTheHostTierOverTheRanks) {
  nlohmann::json one = result("vllm", "vllm-0.23");
  one["setup"]["host_cache_blocks"] = 16384;
  EXPECT_THAT(serve_flags(one)->command, HasSubstr("--kv-offloading-backend native --kv-offloading-size 32"));
  one["setup"]["prefix_caching"] = false;
  EXPECT_THAT(serve_flags(one)->command, HasSubstr("--no-enable-prefix-caching"));
  one["config"]["memory.kv_dtype"] = "fp8";
  EXPECT_THAT(serve_flags(one)->command, HasSubstr("--kv-cache-dtype fp8"));
}

TEST(ServeFlags, OfPoliciesThatPlaceWeightsAreTheirOwn) {
  nlohmann::json one = result("llama-cpp-moe", "none");
  one["setup"]["engine_flags"] = {{"engine", "llama.cpp"}, {"version", "b1"}, {"flags", "-ngl 99"}};
  EXPECT_EQ(serve_flags(one)->command, "-ngl 99");
  EXPECT_EQ(serve_flags(one)->engine, "llama.cpp");
  nlohmann::json uva = result("vllm-uva", "vllm-0.23");
  uva["setup"]["engine_flags"] = {{"engine", "vLLM"}, {"version", "uva.py"}, {"flags", "--cpu-offload-gb 4"}};
  EXPECT_THAT(serve_flags(uva)->command, HasSubstr("--max-num-seqs 256 --cpu-offload-gb 4"));
}

TEST(ServeFlags, OfAPolicyThatNoEngineHasAreNone) {
  EXPECT_FALSE(serve_flags(result("pie", "vllm-0.23")).has_value());
  EXPECT_FALSE(serve_flags(result("vllm", "sglang-0.5")).has_value());
}

}  // namespace
}  // namespace spillway
