// `explain` for everything that has a name.
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "hwmodels/catalog.hpp"
#include "sim/cli/about/list.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/parameter_table.hpp"
#include "tests/cli/command.hpp"
#include "tests/support/paths.hpp"

namespace spillway::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Expects text after `label` on every line that begins with it.
void expect_field(const std::string& text, const std::string& label) {
  EXPECT_THAT(text, testing::ContainsRegex("\n  " + label + " +[^ \n]")) << "no " << label;
}

void expect_key(const std::string& text, const Parameter& key) {
  SCOPED_TRACE(key.name);
  for (const char* label : {"what", "takes", "unit", "default", "source", "variable"}) expect_field(text, label);
  EXPECT_THAT(text, HasSubstr(key.doc));
  EXPECT_THAT(text, HasSubstr(key.unit));
  EXPECT_THAT(text, HasSubstr(key.source));
  EXPECT_THAT(text, HasSubstr(environment_variable(key.name) + "\n"));
  if (!describe_range(key).empty()) {
    EXPECT_THAT(text, HasSubstr("  range     " + describe_range(key) + "\n"));
  }
}

TEST(Explain, EveryListedNameHasTheFieldsOfItsKind) {
  const std::map<std::string, std::vector<std::string>> fields{
      {"policies", {"what", "source", "limits", "engine", "defaults"}},
      {"routers", {"what", "source"}},
      {"hardware", {"what", "error", "file", "sha256"}},
      {"models", {"what", "error", "file", "sha256"}},
      {"engines", {"what", "error", "file", "sha256"}},
      {"workloads", {"what", "source", "licence", "input", "output", "both", "published", "assumed", "file", "sha256"}},
      {"metrics", {"what", "unit", "names"}},
      {"experiments", {"what", "source", "claims", "run sets", "file"}},
      {"keys", {"what", "takes", "unit", "default", "source", "variable"}}};
  for (const std::string& kind : cli::list_kinds()) {
    const auto labels = fields.find(kind);
    ASSERT_NE(labels, fields.end()) << "which fields does " << kind << " need?";
    for (const cli::Listed& one : cli::listed(kind)) {
      SCOPED_TRACE(kind + " " + one.name);
      EXPECT_FALSE(one.summary.empty());
      const std::string text = cli::explanation(one.name);
      EXPECT_THAT(text, HasSubstr(one.summary));
      for (const std::string& label : labels->second) expect_field(text, label);
    }
  }
}

TEST(Explain, AWorkloadOfConversationsTellsItsTurnsAndThinkTime) {
  const std::string text = cli::explanation("ultrachat-chat");
  EXPECT_THAT(text,
              HasSubstr("  turns     geometric, mean 3.86 per conversation; the lengths above are of one turn\n"));
  EXPECT_THAT(text, HasSubstr("  think     exponential(60s)\n"));
  EXPECT_THAT(cli::explanation("sharegpt-real"), Not(HasSubstr("  turns ")));
}

TEST(Explain, EveryKeyHasUnitRangeDefaultSourceAndVariable) {
  for (const Parameter& key : parameter_table()) expect_key(cli::explanation(key.name), key);
}

TEST(Explain, APolicyTellsItsKeysAndAKeyItsPolicies) {
  for (const PolicyInfo* info : PolicyRegistry::instance().all()) {
    const std::string text = cli::explanation(info->name);
    EXPECT_THAT(text, HasSubstr(info->source));
    EXPECT_THAT(text, HasSubstr(info->limits));
    for (const Parameter& key : info->parameters) {
      expect_key(text, key);
      const std::string alone = cli::explanation(key.name);
      expect_key(alone, key);
      EXPECT_THAT(alone, HasSubstr(key.name + " (key of policy " + info->name + ")\n"));
    }
  }
}

TEST(Explain, TheKeysOfWeightsNameTheirOwner) {
  for (const PolicyInfo* info : PolicyRegistry::instance().weights()) {
    for (const Parameter& key : info->parameters) {
      const std::string text = cli::explanation(key.name);
      expect_key(text, key);
      EXPECT_THAT(text, HasSubstr(key.name + " (key of policy.weights " + info->name + ")\n"));
    }
  }
  EXPECT_THAT(cli::explanation("policy.weights"),
              HasSubstr("one of none, deepspeed, expert-cache, fiddler, ktransformers, llama-cpp-moe, "
                        "mixtral-offloading, moe-infinity, "
                        "select-n, vllm-prefetch, vllm-uva"));
  EXPECT_THAT(cli::explanation("flexgen"),
              HasSubstr("  refuses   policy.weights=select-n: policy flexgen streams the"));
}

TEST(Explain, EveryDefaultOfAPolicyIsShown) {
  for (const PolicyInfo* info : PolicyRegistry::instance().all()) {
    const ResolvedConfig config =
        resolve_config(parameter_table(), {{"policy", info->name, Origin::argument, "policy"}}, {});
    const std::string text = cli::explanation(info->name);
    for (const ResolvedKey& key : config.keys) {
      if (key.origin != Origin::policy || key.text == key.parameter.default_value) continue;
      const bool engine = key.parameter.name == "engine";
      EXPECT_THAT(text, HasSubstr(engine ? "  engine    " + key.text + "\n" : key.parameter.name + "=" + key.text))
          << info->name;
    }
  }
}

// vllm-v0 has one default per release, and one combination that it refuses; vllm refuses to swap.
TEST(Explain, APolicyTellsWhatItsChoicesChangeAndWhatItRefuses) {
  const std::string v0 = cli::explanation("vllm-v0");
  EXPECT_THAT(v0, HasSubstr("with policy.version=0.2.0: engine=vllm-0.2.0, engine.max_num_batched_tokens=2560, "
                            "engine.prefix_caching=false\n"));
  EXPECT_THAT(v0, HasSubstr("  refuses   engine.chunked_prefill=true with policy.version=0.2.0: vLLM 0.2.0 has no"));
  EXPECT_THAT(cli::explanation("vllm"), HasSubstr("  refuses   engine.preemption=swap: policy vllm cannot swap"));
}

TEST(Explain, EveryValueOfAFileShowsItsSource) {
  const auto check = [](const hwmodels::DataFile& file) {
    const std::string text = cli::explanation(file.name);
    for (const hwmodels::Entry& entry : file.entries) {
      EXPECT_THAT(text, HasSubstr("  " + entry.key + " = " + entry.value)) << file.name;
      EXPECT_THAT(text, HasSubstr("      " + entry.source_kind + ": " + entry.citation + "\n")) << file.name;
    }
  };
  for (const std::string& name : hwmodels::gpu_names()) check(hwmodels::load_gpu(name).file);
  for (const std::string& name : hwmodels::server_names()) check(hwmodels::load_server(name).file);
  for (const std::string& name : hwmodels::host_names()) check(hwmodels::load_host(name).file);
  for (const std::string& name : hwmodels::llm_names()) check(hwmodels::load_llm(name).file);
  for (const std::string& name : hwmodels::engine_names()) check(hwmodels::load_engine(name).file);
}

TEST(Explain, AServerDrawsItsTopology) {
  const std::string pair = cli::explanation("hgx-h100-8-pair");
  EXPECT_THAT(pair, HasSubstr("hgx-h100-8-pair (server)\n"));
  EXPECT_THAT(pair, HasSubstr("hgx-h100-8-node (server, 2 of which make hgx-h100-8-pair)\n"));
  EXPECT_THAT(pair,
              HasSubstr("  topology  in: towards the GPUs, out: from them\n"
                        "    host hgx-h100-host, in each of 2 servers\n"
                        "    |- numa-node-0: 245.8 GB/s both ways together (borrowed)\n"
                        "    |  |- pcie-switch-0: 51.7 GB/s in, 49.8 GB/s out, 90 GB/s both ways together (borrowed)\n"
                        "    |  |  |- GPU 0\n"
                        "    |  |  |- GPU 1\n"
                        "    |  |  |- nic-0 of GPU 0: 50 GB/s each way (datasheet)\n"
                        "    |  |  `- nic-1 of GPU 1: 50 GB/s each way (datasheet)\n"));
  EXPECT_THAT(pair, HasSubstr("    between GPUs\n"
                              "    `- nvswitch: no limit known\n"
                              "       |- nvlink-0 of GPU 0: 450 GB/s each way (datasheet)\n"));
}

TEST(Explain, AGpuTellsTheErrorOfEveryKernelThatWasFitted) {
  for (const std::string& name : hwmodels::gpu_names()) {
    const hwmodels::GpuProfile gpu = hwmodels::load_gpu(name);
    const std::string text = cli::explanation(name);
    ASSERT_FALSE(gpu.fitted.empty()) << name;
    for (const hwmodels::FitLine& line : hwmodels::fit_lines(gpu.fitted)) {
      EXPECT_THAT(text, HasSubstr("\n  " + line.op + ": ")) << name;
      EXPECT_THAT(text, HasSubstr("\n      " + line.record->source_kind + ": " + line.record->citation)) << name;
    }
    const std::string lent =
        "scaled from " + gpu.fitted_from + " to this GPU; the errors were measured on " + gpu.fitted_from + ":";
    EXPECT_THAT(text, HasSubstr("  kernels   " + (gpu.fitted_from.empty() ? "fitted to measurements" : lent))) << name;
  }
}

// By the sections "fitted" of the two files: H200's MoE kernels and DeepEP are H100's, and neither GPU has MoE kernels
// in every format.
TEST(Explain, AGpuTellsWhatIsMeasuredBorrowedAndMissing) {
  const auto field = [](const std::string& gpu, const std::string& label) {
    const std::string text = cli::explanation(gpu);
    const std::size_t at = text.find("\n  " + label + "  ");
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at + 1) - at);
  };
  EXPECT_THAT(field("h200-141gb", "measured"),
              AllOf(HasSubstr("gemm, gemm fp8, "), HasSubstr("exchange nccl"), Not(HasSubstr("MoE"))));
  EXPECT_THAT(field("h200-141gb", "borrowed"),
              AllOf(HasSubstr("MoE bf16, MoE fp8, MoE fp8_block, MoE mxfp4, MoE int4, exchange deepep_low_latency, "
                              "exchange deepep_normal"),
                    Not(HasSubstr("nccl"))));
  EXPECT_THAT(
      field("h200-141gb", "missing"),
      AllOf(HasSubstr("MoE kernels in nvfp4 (refused), exchanges by nvlink_one_sided, nvlink_two_sided (a roofline "
                      "of the all-reduce's bandwidth)"),
            HasSubstr("attention over a window"), HasSubstr("latent attention (a roofline)")));
  EXPECT_THAT(field("b200-180gb", "measured"), AllOf(HasSubstr("MoE nvfp4"), HasSubstr("exchange nccl")));
  EXPECT_THAT(field("b200-180gb", "borrowed"), HasSubstr("exchange nvlink_two_sided"));
}

// A file states its kind. Except for the path, it is explained like the profile of that name.
TEST(Explain, AFileIsExplainedAsTheKindThatItStates) {
  const std::string root = source_dir() + "/hwmodels/";
  for (const std::string one :
       {"profiles/a100-80gb-sxm", "servers/hgx-h100-8", "hosts/hgx-h100-host", "engines/vllm-0.19", "llms/opt-13b"}) {
    std::string text = cli::explanation(root + one + ".json");
    EXPECT_THAT(text, HasSubstr("  file      " + root + one + ".json\n"));
    text.replace(text.find(root), root.size(), "hwmodels/");
    EXPECT_EQ(text, cli::explanation(one.substr(one.find('/') + 1)));
  }
}

TEST(Explain, AMetricTellsUnitDefinitionAndNames) {
  for (const MetricDefinition& metric : metric_definitions()) {
    const std::string text = cli::explanation(metric.name);
    EXPECT_THAT(text, HasSubstr("  unit      " + metric.unit + "\n"));
    EXPECT_THAT(text, HasSubstr(metric.definition));
    if (!metric.distribution) continue;
    EXPECT_THAT(text, HasSubstr("p99_" + metric.name));
    EXPECT_EQ(cli::explanation("p99_" + metric.name), text);
  }
}

TEST(Explain, UnknownNamesAndGroupsSuggest) {
  const auto fix = [](const std::string& name) -> std::string {
    try {
      return cli::explanation(name);
    } catch (const ConfigError& error) {
      return error.problems().at(0).fix;
    }
  };
  EXPECT_THAT(fix("vlm"), HasSubstr("did you mean \"vllm\"?"));
  EXPECT_THAT(fix("worklod.rate"), HasSubstr("did you mean \"workload.rate\"?"));
  EXPECT_THAT(fix("h10"), HasSubstr("did you mean \"h100-80gb-sxm\"?"));
  EXPECT_THAT(fix("g5.4xlrage"), HasSubstr("did you mean \"g5.4xlarge\"?"));
  EXPECT_THAT(fix("grac"), HasSubstr("did you mean \"grace-480gb\"?"));
  EXPECT_THAT(fix("RTX PRO 6000"), HasSubstr("no profile of the NVIDIA RTX PRO 6000 is bundled. Measure with "));
  EXPECT_EQ(fix("a100"), "write one of these names");
  EXPECT_THAT(fix("g5"), HasSubstr("explain one of the GPUs and servers g5.16xlarge, g5.2xlarge, "));
  for (const char* group : {"memory", "memory.", "memory.*"}) EXPECT_THAT(fix(group), HasSubstr("memory.gpu_kv, "));
  for (const char* group : {"policy.", "engine."}) EXPECT_THAT(fix(group), HasSubstr("explain one of the keys "));
  EXPECT_THAT(fix("policy."), HasSubstr("policy.version"));
  EXPECT_THAT(fix("engine"), HasSubstr("engine (key)\n"));
  EXPECT_THAT(fix(""), HasSubstr("spillway list "));
}

class ExplainCommand : public CliTest {};
TEST(Explain, GpusByTheNamesOfTheirDrivers) {
  EXPECT_EQ(cli::explanation("NVIDIA H100 80GB HBM3"), cli::explanation("h100-80gb-sxm"));
  EXPECT_THAT(cli::explanation("NVIDIA B200"), testing::StartsWith("b200-180gb (GPU)\n"));
}

TEST_F(ExplainCommand, PrintsTheExplanationAndFailsForUnknownNames) {
  EXPECT_EQ(spillway({"explain", "vllm"}).out, cli::explanation("vllm"));
  const Output unknown = spillway({"explain", "vlm"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean \"vllm\"?"));
}

}  // namespace
}  // namespace spillway::test
