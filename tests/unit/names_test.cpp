// Names as people write them (sim/config/names.hpp).
#include "sim/config/names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "hwmodels/catalog.hpp"
#include "sim/config/config.hpp"
#include "sim/study/parameter_table.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<std::string> kNames{"a100-80gb-pcie", "a100-80gb-sxm", "a10g-24gb",  "h100-80gb-sxm",
                                      "llama-2-7b",     "llama-3.1-8b",  "vllm",       "vllm-v0",
                                      "vllm-prefetch",  "vllm-0.2.0",    "yi-34b-200k"};

std::string one(const std::string& written) { return match_name(written, kNames, Abbreviations::allowed).name; }
std::vector<std::string> several(const std::string& written) {
  return match_name(written, kNames, Abbreviations::allowed).several;
}

TEST(Names, CaseAndSeparatorsDoNotCount) {
  EXPECT_EQ(one("vllm"), "vllm") << "a name itself, although others begin with it";
  EXPECT_EQ(one("vLLM"), "vllm");
  EXPECT_EQ(one("VLLM_v0"), "vllm-v0");
  EXPECT_EQ(one("Llama 3.1 8B"), "llama-3.1-8b");
  EXPECT_EQ(one("Llama3.1-8B"), "llama-3.1-8b");
  EXPECT_EQ(match_name("VLLM_V0", kNames, Abbreviations::refused).name, "vllm-v0");
}

TEST(Names, TheFirstWordsStandForTheNameIfNoOtherBeginsSo) {
  EXPECT_EQ(one("H100"), "h100-80gb-sxm");
  EXPECT_EQ(one("A10G"), "a10g-24gb") << "a10g is one word";
  EXPECT_EQ(one("H100 80GB"), "h100-80gb-sxm");
  EXPECT_EQ(one("H100-SXM"), "h100-80gb-sxm") << "sizes of memory may be left out";
  EXPECT_EQ(one("Yi-34B"), "yi-34b-200k");
  EXPECT_EQ(match_name("h100", kNames, Abbreviations::refused).name, "");
}

TEST(Names, NothingElseMayBeLeftOut) {
  EXPECT_EQ(one("llama-3-8b"), "") << "another model than Llama 3.1";
  EXPECT_EQ(one("llama-8b"), "");
  EXPECT_EQ(one("llama-7b"), "") << "another model than Llama 2";
  EXPECT_EQ(one("vllm-2.0"), "") << "another version than 0.2.0";
  EXPECT_EQ(one("100"), "");
  EXPECT_EQ(one("80gb"), "") << "no name begins so";
  EXPECT_EQ(one("80gb-sxm"), "");
  EXPECT_EQ(one("h10"), "") << "a word is whole";
  for (const char* nothing : {"", " ", "-", "--", "_"}) {
    EXPECT_EQ(one(nothing), "");
    EXPECT_THAT(several(nothing), IsEmpty());
  }
  EXPECT_EQ(one(std::string(1'000'000, 'a')), "");
}

TEST(Names, SeveralNamesAreTold) {
  EXPECT_EQ(one("a100"), "");
  EXPECT_THAT(several("A100"), ElementsAre("a100-80gb-pcie", "a100-80gb-sxm"));
  EXPECT_EQ(one("A100 PCIe"), "a100-80gb-pcie");
  EXPECT_THAT(several("llama"), ElementsAre("llama-2-7b", "llama-3.1-8b"));
  EXPECT_THAT(several("h100"), IsEmpty());
  EXPECT_THAT(match_name("a100", kNames, Abbreviations::refused).several, IsEmpty());
}

TEST(Names, EveryBundledNameIsItsOwn) {
  for (const auto& names : {hwmodels::hardware_names(), hwmodels::llm_names(), hwmodels::engine_names()}) {
    for (const std::string& name : names) {
      std::string upper = name;
      std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
      EXPECT_EQ(match_name(upper, names, Abbreviations::allowed).name, name);
    }
  }
}

std::vector<Assignment> given(const std::vector<std::string>& arguments) {
  std::vector<Problem> problems;
  auto assignments = parse_arguments(arguments, problems);
  EXPECT_THAT(problems, IsEmpty());
  return assignments;
}

TEST(Names, AConfigurationHasTheFullNames) {
  const ResolvedConfig config = resolve_config(
      parameter_table(),
      given({"hardware=H100", "model=LLAMA-3.1-8B", "policy=Select_N", "engine=VLLM-0.6.3", "policy.scheduler=Sarathi",
             "workload.trace=ShareGPT", "memory.kv_dtype=FP8", "router=Least_Outstanding"}),
      {});
  EXPECT_EQ(config.settings.get<std::string>("hardware"), "h100-80gb-sxm");
  EXPECT_EQ(config.settings.get<std::string>("model"), "llama-3.1-8b");
  EXPECT_EQ(config.settings.get<std::string>("policy"), "select-n");
  EXPECT_EQ(config.policy->name, "select-n");
  EXPECT_EQ(config.policy->scheduled_by, "sarathi");
  EXPECT_EQ(config.settings.get<std::string>("engine"), "vllm-0.6.3");
  EXPECT_EQ(config.settings.get<std::string>("workload.trace"), "sharegpt");
  EXPECT_EQ(config.settings.get<std::string>("memory.kv_dtype"), "fp8");
  EXPECT_EQ(config.settings.get<std::string>("router"), "least-outstanding");
  EXPECT_EQ(config.key("hardware").text, "h100-80gb-sxm") << "and so has the result";
}

TEST(Names, AGpuMayHaveTheNameThatItsDriverPrints) {
  const auto hardware = [](const std::string& name) {
    return resolve_config(parameter_table(), given({"hardware=" + name}), {}).settings.get<std::string>("hardware");
  };
  EXPECT_EQ(hardware("NVIDIA H100 80GB HBM3"), "h100-80gb-sxm");
  EXPECT_EQ(hardware("NVIDIA B200"), "b200-180gb");
  EXPECT_THROW(hardware("NVIDIA H100 NVL"), ConfigError) << "another board";
}

Problem problem_of(const std::string& argument) {
  try {
    static_cast<void>(resolve_config(parameter_table(), given({argument}), {}));
  } catch (const ConfigError& error) {
    return error.problems().at(0);
  }
  return {};
}

TEST(Names, AnAmbiguousNameIsAnsweredWithTheCandidates) {
  EXPECT_EQ(problem_of("hardware=A100").what,
            "hardware: \"A100\" can mean a100-80gb-pcie, a100-80gb-sxm or a100-nvlink-2");
  EXPECT_EQ(problem_of("hardware=A100").fix, "write one of these names");
  EXPECT_THAT(problem_of("model=qwen3").what, HasSubstr("can mean qwen3-14b, "));
  // Settings are not names: no part of one stands for it.
  EXPECT_THAT(problem_of("memory.kv_dtype=fp").what, HasSubstr("is not known"));
}

}  // namespace
}  // namespace spillway
