#include "hwmodels/catalog.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "sim/text.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

std::string embedded(const std::string& path) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.path == path) return std::string(file.content);
  }
  return {};
}

/// A file of the running test's own; its path.
std::string temporary_file(const std::string& content) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string path = testing::TempDir() + "spillway_catalog_" + test->name() + ".json";
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

json h100() { return json::parse(embedded("hwmodels/profiles/h100-80gb-sxm.json")); }

template <class Load>
std::vector<Problem> data_problems(Load load, const std::string& content) {
  try {
    static_cast<void>(load(temporary_file(content)));
  } catch (const DataError& error) {
    return error.problems();
  }
  return {};
}

bool mentions(const std::vector<Problem>& problems, const std::string& pointer, const std::string& what = {}) {
  return std::any_of(problems.begin(), problems.end(), [&](const Problem& p) {
    return p.where.ends_with(".json at " + pointer) && p.what.find(what) != std::string::npos;
  });
}

void expect_complete(const DataFile& file, const std::string& name) {
  EXPECT_EQ(file.name, name);
  EXPECT_FALSE(file.stands_for.empty()) << name;
  EXPECT_FALSE(file.error.empty()) << name;
  EXPECT_EQ(file.sha256, sha256_hex(embedded(file.path))) << name;
  EXPECT_GE(file.entries.size(), 10U) << name;
  for (const Entry& entry : file.entries) {
    EXPECT_FALSE(entry.value.empty() || entry.unit.empty() || entry.source_kind.empty() || entry.citation.empty())
        << name << " " << entry.key;
  }
}

TEST(Catalog, EmbeddedFiles_WhenLoaded_ThenAreCompleteAndNamedAsTheirFile) {
  for (const std::string& name : gpu_names()) expect_complete(load_gpu(name).file, name);
  for (const std::string& name : engine_names()) expect_complete(load_engine(name).file, name);
  for (const std::string& name : llm_names()) expect_complete(load_llm(name).file, name);
}

TEST(Catalog, Names_WhenListed_ThenHoldThePromisedOnes) {
  const auto gpus = gpu_names();
  for (const char* name : {"gh200-96gb", "h100-80gb-sxm", "h200-141gb", "a100-80gb-sxm", "a100-80gb-pcie", "a10-24gb",
                           "a10g-24gb", "t4-16gb", "rtx4090-24gb"}) {
    EXPECT_NE(std::find(gpus.begin(), gpus.end(), name), gpus.end()) << name;
  }
  const auto llms = llm_names();
  for (const char* name :
       {"opt-6.7b", "opt-13b", "opt-30b", "opt-66b", "llama-13b", "llama-2-7b", "llama-2-13b", "llama-2-70b",
        "llama-2-13b-kv10", "llama-3.1-8b", "llama-3.1-70b", "qwen1.5-7b", "yi-34b-200k"}) {
    EXPECT_NE(std::find(llms.begin(), llms.end(), name), llms.end()) << name;
  }
  const auto engines = engine_names();
  for (const char* name : {"none", "vllm-0.19", "vllm-0.2.0", "vllm-0.5.3", "vllm-0.6.3"}) {
    EXPECT_NE(std::find(engines.begin(), engines.end(), name), engines.end()) << name;
  }
}

TEST(Catalog, Engines_WhenLoaded_ThenEagerAndGraphEnginesDiffer) {
  EXPECT_EQ(load_engine("vllm-0.19").launch_floor_seconds, 0.0);
  EXPECT_TRUE(load_engine("vllm-0.19").host_overlapped);
  EXPECT_EQ(load_engine("vllm-0.2.0").cuda_graph_max_tokens, 0);
  EXPECT_GT(load_engine("vllm-0.2.0").launch_floor_seconds, 0.0);
  EXPECT_FALSE(load_engine("vllm-0.6.3").cuda_graph_prefill);
}

// 2 * layers * kv_heads * head_dim * 2 bytes, the figures that the papers print.
TEST(LlmModel, KvBytesPerToken_WhenSixteenBit_ThenMatchThePublishedFigures) {
  EXPECT_EQ(load_llm("opt-13b").kv_bytes_per_token(2), Bytes(819'200));           // 2 * 40 * 40 * 128 * 2
  EXPECT_EQ(load_llm("opt-30b").kv_bytes_per_token(2), Bytes(1'376'256));         // 2 * 48 * 56 * 128 * 2
  EXPECT_EQ(load_llm("llama-2-7b").kv_bytes_per_token(2), Bytes(524'288));        // 2 * 32 * 32 * 128 * 2
  EXPECT_EQ(load_llm("llama-2-13b").kv_bytes_per_token(2), Bytes(819'200));       // 2 * 40 * 40 * 128 * 2
  EXPECT_EQ(load_llm("llama-2-70b").kv_bytes_per_token(2), Bytes(327'680));       // 2 * 80 * 8 * 128 * 2
  EXPECT_EQ(load_llm("llama-3.1-8b").kv_bytes_per_token(2), Bytes(131'072));      // 2 * 32 * 8 * 128 * 2
  EXPECT_EQ(load_llm("llama-3.1-70b").kv_bytes_per_token(2), Bytes(327'680));     // 2 * 80 * 8 * 128 * 2
  EXPECT_EQ(load_llm("llama-3.1-8b").kv_bytes_per_token(1), Bytes(65'536));       // fp8
  EXPECT_EQ(load_llm("opt-66b").kv_bytes_per_token(2), Bytes(2'359'296));         // 2 * 64 * 72 * 128 * 2
  EXPECT_EQ(load_llm("llama-13b").kv_bytes_per_token(2), Bytes(819'200));         // 2 * 40 * 40 * 128 * 2
  EXPECT_EQ(load_llm("llama-2-13b-kv10").kv_bytes_per_token(2), Bytes(204'800));  // 2 * 40 * 10 * 128 * 2
  EXPECT_EQ(load_llm("yi-34b-200k").kv_bytes_per_token(2), Bytes(245'760));       // 2 * 60 * 8 * 128 * 2
  EXPECT_EQ(load_llm("opt-6.7b").kv_bytes_per_token(2), Bytes(524'288));          // 2 * 32 * 32 * 128 * 2
  EXPECT_EQ(load_llm("qwen1.5-7b").kv_bytes_per_token(2), Bytes(524'288));        // 2 * 32 * 32 * 128 * 2
  EXPECT_EQ(load_llm("llama-2-70b").kv_bytes_per_token_per_gpu(4, 2), Bytes(81'920));
}

// Llama: 2 V h + L (h (q + 2 k) + q h + 3 h f + 2 h) + h.
// OPT: V h + 2050 h + L (4 (h^2 + h) + 2 h f + f + h + 4 h) + 2 h; head and embedding are one matrix.
TEST(LlmModel, Parameters_WhenCountedByHand_ThenAreExact) {
  EXPECT_EQ(load_llm("opt-13b").parameters(), 12'853'473'280);
  EXPECT_EQ(load_llm("opt-30b").parameters(), 29'974'540'288);
  EXPECT_EQ(load_llm("llama-2-7b").parameters(), 6'738'415'616);
  EXPECT_EQ(load_llm("llama-2-13b").parameters(), 13'015'864'320);
  EXPECT_EQ(load_llm("llama-2-70b").parameters(), 68'976'648'192);
  // 2 * 128256 * 4096 + 32 (4096 * 6144 + 4096^2 + 3 * 4096 * 14336 + 8192) + 4096
  EXPECT_EQ(load_llm("llama-3.1-8b").parameters(), 8'030'261'248);
  EXPECT_EQ(load_llm("llama-3.1-70b").parameters(), 70'553'706'496);
  EXPECT_EQ(load_llm("opt-6.7b").parameters(), 6'658'473'984);
  EXPECT_EQ(load_llm("opt-66b").parameters(), 65'719'701'504);
  EXPECT_EQ(load_llm("llama-13b").parameters(), 13'015'864'320);
  // Llama-2-13B without 30 of the 40 heads of K and V: 13,015,864,320 - 40 * 2 * 30 * 128 * 5120.
  EXPECT_EQ(load_llm("llama-2-13b-kv10").parameters(), 11'443'000'320);
  // 2 * 151936 * 4096 + 32 (4 * 4096^2 + 3 * 4096 * 11008 + 3 * 4096 + 2 * 4096) + 4096: QKV alone has biases.
  EXPECT_EQ(load_llm("qwen1.5-7b").parameters(), 7'721'324'544);
  // 2 * 64000 * 7168 + 60 (7168 * (7168 + 2 * 1024) + 7168^2 + 3 * 7168 * 20480 + 2 * 7168) + 7168
  EXPECT_EQ(load_llm("yi-34b-200k").parameters(), 34'388'917'248);
}

TEST(LlmModel, WeightsPerGpu_WhenSplitInTwo_ThenOnlyNormsAreReplicated) {
  const LlmModel llm = load_llm("llama-3.1-8b");
  EXPECT_EQ(llm.weights_per_gpu(1), Bytes(16'060'522'496));
  // Norms: (32 * 2 + 1) * 4096 = 266,240 parameters; half of the others: (8,030,261,248 - 266,240) / 2 = 4,014,997,504.
  EXPECT_EQ(llm.weights_per_gpu(2), Bytes(2 * (4'014'997'504 + 266'240)));
}

TEST(LlmModel, TensorParallel_WhenMoreGpusThanKvHeads_ThenHeadsAreReplicated) {
  const LlmModel llm = load_llm("llama-3.1-70b");  // 64 heads, 8 KV heads
  EXPECT_EQ(llm.kv_heads_per_gpu(8), 1);
  EXPECT_EQ(llm.kv_heads_per_gpu(16), 1);
  EXPECT_EQ(llm.kv_bytes_per_token_per_gpu(16, 2), llm.kv_bytes_per_token_per_gpu(8, 2));
  EXPECT_FALSE(llm.tensor_parallel_problem(16).has_value());
}

TEST(LlmModel, TensorParallel_WhenItDoesNotSplitTheModel_ThenSaysWhy) {
  EXPECT_FALSE(load_llm("llama-3.1-8b").tensor_parallel_problem(1).has_value());
  EXPECT_NE(load_llm("llama-3.1-8b").tensor_parallel_problem(3)->what.find("32 attention heads"), std::string::npos);
  EXPECT_NE(load_llm("opt-30b").tensor_parallel_problem(16)->what.find("56 attention heads"), std::string::npos);
  EXPECT_TRUE(load_llm("opt-30b").tensor_parallel_problem(0).has_value());
  LlmModel llm = load_llm("llama-3.1-8b");
  llm.kv_heads = 6;
  EXPECT_NE(llm.tensor_parallel_problem(4)->what.find("6 KV heads"), std::string::npos);
  llm.ffn = 14'337;
  EXPECT_NE(llm.tensor_parallel_problem(2)->what.find("MLP width"), std::string::npos);
}

TEST(Catalog, LoadGpu_WhenNameIsNearlyRight_ThenSuggestsTheNearestAndListsAll) {
  try {
    static_cast<void>(load_gpu("h100-80gb-smx"));
    FAIL();
  } catch (const ConfigError& error) {
    ASSERT_EQ(error.problems().size(), 1U);
    EXPECT_EQ(error.problems()[0].what, "unknown hardware \"h100-80gb-smx\"");
    EXPECT_EQ(error.problems()[0].where, "hardware");
    EXPECT_EQ(error.problems()[0].fix.find("did you mean \"h100-80gb-sxm\"? allowed: a10"), 0U);
  }
  EXPECT_THROW(static_cast<void>(load_llm("gpt-5")), ConfigError);
  EXPECT_THROW(static_cast<void>(load_engine("")), ConfigError);
}

TEST(Catalog, LoadGpu_WhenGivenAFile_ThenReadsItAndHashesItsBytes) {
  json document = h100();
  document["name"] = "my-gpu";
  document["values"]["memory_bandwidth"]["value"] = 5e12;
  const std::string content = document.dump();
  const GpuProfile gpu = load_gpu(temporary_file(content));
  EXPECT_EQ(gpu.file.name, "my-gpu");
  EXPECT_EQ(gpu.memory_bandwidth, BytesPerSecond(5e12));
  EXPECT_EQ(gpu.file.sha256, sha256_hex(content));
  EXPECT_TRUE(gpu.file.path.ends_with(".json"));
  const auto& entries = gpu.file.entries;
  const auto row =
      std::find_if(entries.begin(), entries.end(), [](const Entry& e) { return e.key == "memory_bandwidth"; });
  ASSERT_NE(row, entries.end());
  EXPECT_EQ(row->value, "5e+12");
  EXPECT_EQ(row->unit, "bytes/s");
  EXPECT_EQ(row->source_kind, "datasheet");
}

TEST(Catalog, LoadGpu_WhenFileCannotBeParsed_ThenDataErrorNamesIt) {
  const std::string content = h100().dump();
  for (const std::string& broken : {std::string(), content.substr(0, content.size() / 2), std::string("[1, 2]"),
                                    std::string("{\"schema_version\": 1e999}"), std::string("\xff\xfe{}")}) {
    const auto problems = data_problems(load_gpu, broken);
    ASSERT_EQ(problems.size(), 1U) << broken;
    EXPECT_TRUE(problems[0].where.ends_with(".json")) << problems[0].where;
  }
  EXPECT_THROW(static_cast<void>(load_gpu("/nonexistent/gpu.json")), DataError);
  EXPECT_THROW(static_cast<void>(load_gpu(testing::TempDir())), DataError);
}

TEST(Catalog, LoadGpu_WhenSchemaVersionDiffers_ThenOnlyThatIsReported) {
  json document = h100();
  document["schema_version"] = 2;
  document.erase("values");
  const auto problems = data_problems(load_gpu, document.dump());
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_TRUE(mentions(problems, "/schema_version", "must be 1, not 2"));
  document.erase("schema_version");
  EXPECT_TRUE(mentions(data_problems(load_gpu, document.dump()), "/schema_version", "not null"));
}

TEST(Catalog, LoadGpu_WhenManyFieldsAreWrong_ThenAllAreReportedAtOnce) {
  json document = h100();
  json& values = document["values"];
  document.erase("error");
  document["colour"] = "green";
  values.erase("peak_flops");
  values["memroy"] = 1;
  values["memory"]["value"] = "80GB";
  values["memory"]["unit"] = "GB";
  values["memory_bandwidth"]["value"] = 0;
  values["gemm_compute_efficiency"]["value"] = 1.2;
  values["decode_attention_efficiency"] = 0.9;
  values["kernel_overhead"]["source"]["kind"] = "guessed";
  values["attention_overhead"].erase("source");
  values["h2d_launch"]["source"].erase("cite");
  values["d2h_launch"]["note"] = "x";
  values["host_link_peak"].erase("value");
  const auto problems = data_problems(load_gpu, document.dump());
  EXPECT_TRUE(mentions(problems, "/error", "missing"));
  EXPECT_TRUE(mentions(problems, "/colour", "unknown field"));
  EXPECT_TRUE(mentions(problems, "/values/peak_flops", "missing"));
  EXPECT_TRUE(mentions(problems, "/values/memroy", "unknown field"));
  EXPECT_TRUE(mentions(problems, "/values/memory/value", "not \"80GB\""));
  EXPECT_TRUE(mentions(problems, "/values/memory/unit", "must be \"bytes\""));
  EXPECT_TRUE(mentions(problems, "/values/memory_bandwidth/value", "not 0"));
  EXPECT_TRUE(mentions(problems, "/values/gemm_compute_efficiency/value", "at most 1, not 1.2"));
  EXPECT_TRUE(mentions(problems, "/values/decode_attention_efficiency", "must be an object"));
  EXPECT_TRUE(mentions(problems, "/values/kernel_overhead/source/kind", "guessed"));
  EXPECT_TRUE(mentions(problems, "/values/attention_overhead/source", "missing"));
  EXPECT_TRUE(mentions(problems, "/values/h2d_launch/source/cite", "missing"));
  EXPECT_TRUE(mentions(problems, "/values/d2h_launch/note", "unknown field"));
  EXPECT_TRUE(mentions(problems, "/values/host_link_peak/value", "missing"));
  EXPECT_EQ(problems.size(), 14U);
  const auto typo = std::find_if(problems.begin(), problems.end(),
                                 [](const Problem& p) { return p.where.ends_with("/values/memroy"); });
  EXPECT_EQ(typo->fix.find("did you mean \"memory\"?"), 0U);
}

TEST(Catalog, LoadGpu_WhenAchievedExceedsPeak_ThenRefuses) {
  json document = h100();
  document["values"]["h2d_bandwidth"]["value"] = 64e9;  // PCIe 5.0 x16 carries 63
  EXPECT_TRUE(
      mentions(data_problems(load_gpu, document.dump()), "/values/h2d_bandwidth/value", "exceeds host_link_peak"));
}

TEST(Catalog, LoadGpu_WhenADuplexFigureExceedsItsDirection_ThenRefuses) {
  json document = h100();
  document["values"]["h2d_bandwidth_duplex"]["value"] = 53e9;  // alone 52.4
  EXPECT_TRUE(mentions(data_problems(load_gpu, document.dump()), "/values/h2d_bandwidth_duplex/value",
                       "exceeds h2d_bandwidth"));
  document["values"]["h2d_bandwidth_duplex"]["value"] = nullptr;
  document["values"]["d2h_bandwidth_duplex"]["value"] = 51e9;  // alone 50.9
  EXPECT_TRUE(mentions(data_problems(load_gpu, document.dump()), "/values/d2h_bandwidth_duplex/value",
                       "exceeds d2h_bandwidth"));
  document["values"]["d2h_bandwidth_duplex"]["value"] = nullptr;
  const GpuProfile gpu = load_gpu(temporary_file(document.dump()));
  EXPECT_FALSE(gpu.h2d_bandwidth_duplex.has_value());
  EXPECT_FALSE(gpu.d2h_bandwidth_duplex.has_value());
}

// Both directions together never carry much less than the faster one alone: even the GH200, whose LPDDR5X they share.
TEST(Catalog, Gpus_WhenLoaded_ThenHoldSmsCacheAndDuplexFigures) {
  for (const std::string& name : gpu_names()) {
    const GpuProfile gpu = load_gpu(name);
    EXPECT_GE(gpu.sm_count, 40) << name;
    EXPECT_GE(gpu.l2_cache, Bytes(4 << 20)) << name;
    ASSERT_TRUE(gpu.h2d_bandwidth_duplex && gpu.d2h_bandwidth_duplex) << name;
    EXPECT_GT(gpu.h2d_bandwidth_duplex->value() + gpu.d2h_bandwidth_duplex->value(),
              0.9 * std::max(gpu.h2d.bandwidth, gpu.d2h.bandwidth).value())
        << name;
  }
  EXPECT_EQ(load_gpu("gh200-96gb").h2d_bandwidth_duplex, BytesPerSecond(176.9e9));
  EXPECT_EQ(load_gpu("gh200-96gb").d2h_bandwidth_duplex, BytesPerSecond(187.3e9));
  EXPECT_EQ(load_gpu("h200-141gb").sm_count, 132);
  EXPECT_EQ(load_gpu("rtx4090-24gb").l2_cache, Bytes(72 * 1024 * 1024));
}

TEST(Catalog, LoadGpu_WhenOnlyHalfOfTheAllReduceIsKnown_ThenRefuses) {
  json document = h100();
  document["values"]["all_reduce_latency"]["value"] = nullptr;
  EXPECT_TRUE(mentions(data_problems(load_gpu, document.dump()), "/values/all_reduce_bandwidth/value", "null exactly"));
  document["values"]["all_reduce_bandwidth"]["value"] = nullptr;
  EXPECT_FALSE(load_gpu(temporary_file(document.dump())).all_reduce.has_value());
}

TEST(Catalog, LoadGpu_WhenFileIsOfAnotherKind_ThenSaysSo) {
  const std::string content = embedded("hwmodels/llms/opt-13b.json");
  const auto problems = data_problems(load_gpu, content);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_TRUE(mentions(problems, "/kind", "must be \"gpu\", not \"llm\""));
}

TEST(Catalog, LoadLlm_WhenShapesAreImpossible_ThenRefuses) {
  json document = json::parse(embedded("hwmodels/llms/llama-3.1-8b.json"));
  document["values"]["ffn"]["value"] = 11008;  // Llama-2's width: 6.77e9 parameters, not 8.03e9
  EXPECT_TRUE(mentions(data_problems(load_llm, document.dump()), "/values/parameters/value", "more than 1%"));
  document["values"]["kv_heads"]["value"] = 7;
  EXPECT_TRUE(mentions(data_problems(load_llm, document.dump()), "/values/kv_heads/value", "32 heads"));
  document["values"]["layers"]["value"] = 0;
  document["values"]["hidden"]["value"] = 4096.5;
  document["values"]["heads"]["value"] = 18446744073709551615ULL;
  document["values"]["gated_mlp"]["value"] = 1;
  const auto problems = data_problems(load_llm, document.dump());
  EXPECT_TRUE(mentions(problems, "/values/layers/value", "between 1 and 1000, not 0"));
  EXPECT_TRUE(mentions(problems, "/values/hidden/value", "must be an integer"));
  EXPECT_TRUE(mentions(problems, "/values/heads/value"));
  EXPECT_TRUE(mentions(problems, "/values/gated_mlp/value", "true or false"));
  EXPECT_EQ(problems.size(), 4U);
}

TEST(Catalog, LoadLlm_WhenFileHasOneSource_ThenItHoldsForEveryField) {
  for (const Entry& entry : load_llm("llama-2-7b").file.entries) EXPECT_EQ(entry.source_kind, "datasheet");
  json document = json::parse(embedded("hwmodels/llms/llama-2-7b.json"));
  document.erase("source");
  EXPECT_TRUE(mentions(data_problems(load_llm, document.dump()), "/values/layers/source", "missing"));
}

}  // namespace
}  // namespace spillway::hwmodels
