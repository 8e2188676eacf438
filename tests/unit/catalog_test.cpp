#include "hwmodels/catalog.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "sim/core/text.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

std::string embedded(const std::string& path) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.path == path) return std::string(file.content);
  }
  return {};
}

/// Writes a temporary file for the running test; returns its path.
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

void expect_complete(const DataFile& file, const std::string& name, std::size_t entries = 10) {
  EXPECT_EQ(file.name, name);
  EXPECT_FALSE(file.stands_for.empty()) << name;
  EXPECT_FALSE(file.error.empty()) << name;
  EXPECT_EQ(file.sha256, sha256_hex(embedded(file.path))) << name;
  EXPECT_GE(file.entries.size(), entries) << name;
  for (const Entry& entry : file.entries) {
    EXPECT_FALSE(entry.value.empty() || entry.unit.empty() || entry.source_kind.empty() || entry.citation.empty())
        << name << " " << entry.key;
  }
}

TEST(Catalog, EmbeddedFiles_WhenLoaded_ThenAreCompleteAndNamedAsTheirFile) {
  for (const std::string& name : gpu_names()) expect_complete(load_gpu(name).file, name);
  for (const std::string& name : server_names()) {
    const ServerProfile server = load_server(name);
    expect_complete(server.file, name, server.of ? 2 : 8);
  }
  for (const std::string& name : host_names()) expect_complete(load_host(name).file, name, 7);
  for (const std::string& name : engine_names()) expect_complete(load_engine(name).file, name);
  for (const std::string& name : llm_names()) expect_complete(load_llm(name).file, name);
}

TEST(Catalog, Names_WhenListed_ThenHoldThePromisedOnes) {
  const auto gpus = gpu_names();
  for (const char* name : {"gh200-96gb", "gh200-120gb", "h100-80gb-sxm", "h200-141gb", "a100-80gb-sxm",
                           "a100-80gb-pcie", "a10-24gb", "a10g-24gb", "t4-16gb", "rtx4090-24gb"}) {
    EXPECT_NE(std::find(gpus.begin(), gpus.end(), name), gpus.end()) << name;
  }
  const auto servers = server_names();
  for (const char* name : {"g4dn.4xlarge", "g5.2xlarge", "g5.4xlarge", "g5.8xlarge", "g5.16xlarge", "hgx-h100-8",
                           "a100-nvlink-2", "a10-pcie-4", "gcp-t4", "nc96ads-a100-v4"}) {
    EXPECT_NE(std::find(servers.begin(), servers.end(), name), servers.end()) << name;
  }
  const auto llms = llm_names();
  for (const char* name :
       {"opt-6.7b", "opt-13b", "opt-30b", "opt-66b", "llama-13b", "llama-2-7b", "llama-2-13b", "llama-2-70b",
        "llama-2-13b-kv10", "llama-3.1-8b", "llama-3.1-70b", "qwen1.5-7b", "yi-34b-200k"}) {
    EXPECT_NE(std::find(llms.begin(), llms.end(), name), llms.end()) << name;
  }
  const auto engines = engine_names();
  for (const char* name : {"none", "vllm-0.19", "vllm-0.2.0", "vllm-0.23", "vllm-0.5.3", "vllm-0.6.3"}) {
    EXPECT_NE(std::find(engines.begin(), engines.end(), name), engines.end()) << name;
  }
}

TEST(Catalog, Engines_WhenLoaded_ThenEagerAndGraphEnginesDiffer) {
  EXPECT_TRUE(load_engine("vllm-0.2.0").splits_mixed_attention);
  EXPECT_FALSE(load_engine("vllm-0.23").splits_mixed_attention);
  EXPECT_EQ(load_engine("vllm-0.19").launch_floor_seconds, 0.0);
  EXPECT_TRUE(load_engine("vllm-0.19").host_overlapped);
  EXPECT_EQ(load_engine("vllm-0.2.0").cuda_graph_max_tokens, 0);
  EXPECT_GT(load_engine("vllm-0.2.0").launch_floor_seconds, 0.0);
  EXPECT_FALSE(load_engine("vllm-0.6.3").cuda_graph_prefill);
  // What a file leaves out is off.
  EXPECT_TRUE(load_engine("vllm-0.23").schedules_ahead);
  EXPECT_GT(load_engine("vllm-0.23").front_end_seconds, 0.0);
  EXPECT_FALSE(load_engine("vllm-0.19").schedules_ahead);
  EXPECT_EQ(load_engine("vllm-0.19").front_end_seconds, 0.0);
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
  // Llama-2-13B with 10 instead of 40 heads of K and V: 13,015,864,320 - 40 * 2 * 30 * 128 * 5120.
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

TEST(Catalog, LoadGpu_WhenADuplexFigureIsAThousandTimesTooSmall_ThenRefuses) {
  json document = h100();
  document["values"]["h2d_bandwidth_duplex"]["value"] = 44.8e6;  // alone 52.4e9
  EXPECT_TRUE(mentions(data_problems(load_gpu, document.dump()), "/values/h2d_bandwidth_duplex/value",
                       "less than a thousandth"));
}

TEST(Catalog, LoadGpu_WhenCopiesSlowComputeDown_ThenByOneToTen) {
  json document = h100();
  json& field = document["values"]["copy_compute_slowdown"];
  for (const double value : {0.94, 10.5}) {
    field["value"] = value;
    EXPECT_TRUE(
        mentions(data_problems(load_gpu, document.dump()), "/values/copy_compute_slowdown/value", "between 1 and 10"))
        << value;
  }
  field["value"] = 1.06;
  EXPECT_EQ(load_gpu(temporary_file(document.dump())).copy_compute_slowdown, 1.06);
  document["values"].erase("copy_compute_slowdown");
  EXPECT_TRUE(mentions(data_problems(load_gpu, document.dump()), "/values/copy_compute_slowdown", "missing"));
  for (const std::string& name : gpu_names()) {
    EXPECT_EQ(load_gpu(name).copy_compute_slowdown.has_value(), name == "h200-141gb") << name;
  }
}

// The copies of SMs are optional figures, which obey the rules of the copy engine's.
TEST(Catalog, LoadGpu_WhenItStatesCopiesBySms_ThenTheyAreAsSoundAsTheEngines) {
  json document = h100();
  json& values = document["values"];
  const auto state = [&](const char* key, const json& value) {
    values[key] = {{"value", value}, {"unit", "bytes/s"}, {"source", {{"kind", "assumed"}, {"cite", "a test"}}}};
  };
  const auto refused = [&](const char* key, double value, const std::string& why) {
    state(key, value);
    EXPECT_TRUE(mentions(data_problems(load_gpu, document.dump()), std::string("/values/") + key + "/value", why))
        << key;
    values.erase(key);
  };
  refused("h2d_bandwidth_kernel", 64e9, "exceeds host_link_peak");
  refused("d2h_bandwidth_kernel", 64e9, "exceeds host_link_peak");
  refused("d2h_bandwidth_kernel", 4e9, "fitted.copies");  // which says 49.0
  refused("h2d_bandwidth_duplex_kernel", 53e9, "exceeds h2d_bandwidth_kernel");
  refused("d2h_bandwidth_duplex_kernel", 1e6, "less than a thousandth");
  values["copy_compute_slowdown_kernel"] = {
      {"value", 0.9}, {"unit", "1"}, {"source", {{"kind", "assumed"}, {"cite", "a test"}}}};
  EXPECT_TRUE(mentions(data_problems(load_gpu, document.dump()), "/values/copy_compute_slowdown_kernel/value",
                       "between 1 and 10"));
  values["copy_compute_slowdown_kernel"]["value"] = 1.06;
  state("h2d_bandwidth_kernel", nullptr);
  const GpuProfile gpu = load_gpu(temporary_file(document.dump()));
  EXPECT_EQ(gpu.kernel_copies.compute_slowdown, 1.06);
  EXPECT_FALSE(gpu.kernel_copies.h2d || gpu.kernel_copies.d2h_duplex);
  EXPECT_EQ(gpu.copy_figures(CopyMechanism::kernel).h2d.bandwidth, gpu.h2d.bandwidth);
}

TEST(Catalog, Gpus_WhenLoaded_ThenThoseWithFiguresOfSmCopiesSaySo) {
  for (const std::string& name : gpu_names()) {
    const bool has = name == "gh200-96gb" || name == "gh200-120gb" || name == "h100-80gb-sxm" || name == "h200-141gb";
    EXPECT_EQ(load_gpu(name).has_kernel_copies(), has) << name;
    // Copies by SMs of the H200 slow computation down 2.88 times, those by its copy engine 1.08 times.
    EXPECT_EQ(load_gpu(name).prefers_kernel_copies(), has && name != "h200-141gb") << name;
  }
  GpuProfile gpu = load_gpu("gh200-120gb");
  EXPECT_EQ(layer_copies_text(gpu),
            "copy engines: 422.1 GB/s in and 170.3 out alone, 340.9 and 149.7 together "
            "(gh200-120gb)");
  gpu.layer_copies = CopyMechanism::kernel;
  EXPECT_EQ(layer_copies_text(gpu), "SMs: 410 GB/s in and 380.1 out alone, 290.3 and 289 together (gh200-120gb)");
  gpu.kernel_copies = {};
  EXPECT_EQ(
      layer_copies_text(gpu),
      "SMs: 422.1* GB/s in and 170.3* out alone, 340.9* and 149.7* together (gh200-120gb; *: of its copy engines)");
}

// Both directions together never carry much less than the faster direction alone, even on the GH200, whose directions
// share the LPDDR5X.
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
  EXPECT_EQ(load_gpu("rtx4090-24gb").l2_cache, Bytes(std::int64_t{72} * 1024 * 1024));
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

// hardware= must distinguish GPUs and servers by name.
TEST(Catalog, HardwareNames_WhenListed_ThenAreGpusAndServersOnce) {
  const auto names = hardware_names();
  EXPECT_EQ(names.size(), gpu_names().size() + server_names().size());
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  for (const std::string& name : names) EXPECT_EQ(load_hardware(name).file().name, name);
}

TEST(Catalog, LoadHardware_WhenGivenAGpu_ThenKnowsNoServer) {
  const Hardware hardware = load_hardware("h100-80gb-sxm");
  EXPECT_EQ(hardware.gpu.file.name, "h100-80gb-sxm");
  EXPECT_FALSE(hardware.server.has_value());
  EXPECT_FALSE(hardware.host.has_value());
}

TEST(Catalog, LoadHardware_WhenGivenAServer_ThenBringsGpuHostAndLinks) {
  const Hardware hgx = load_hardware("hgx-h100-8");
  EXPECT_EQ(hgx.gpu.file.name, "h100-80gb-sxm");
  ASSERT_TRUE(hgx.server && hgx.host && hgx.server->peer);
  EXPECT_EQ(hgx.server->gpus, 8);
  // Eight links of 52.4 GB/s would be 419.2.
  EXPECT_EQ(hgx.server->topology.links.front().in.rate, BytesPerSecond(278e9));
  EXPECT_EQ(hgx.server->peer->bandwidth, BytesPerSecond(342e9));
  EXPECT_EQ(load_server("a10-pcie-4").topology.links.front().in.rate, BytesPerSecond(24e9));
  EXPECT_EQ(load_server("a10-pcie-4").gpus, 4);
  EXPECT_FALSE(load_server("a10-pcie-4").peer.has_value());
  EXPECT_EQ(load_server("g4dn.4xlarge").gpu, "t4-16gb");
  EXPECT_EQ(load_server("a100-nvlink-2").gpus, 2);
}

// Pensieve's machine has 220 GB and 24 cores per GPU.
TEST(Catalog, Nc96adsA100V4_WhenLoaded_ThenIsTheMachineOfPensievesPaper) {
  const Hardware azure = load_hardware("nc96ads-a100-v4");
  EXPECT_EQ(azure.gpu.file.name, "a100-80gb-pcie");
  EXPECT_EQ(azure.server->gpus, 4);
  EXPECT_EQ(azure.host->dram, Bytes(4 * 220'000'000'000));
  EXPECT_EQ(azure.host->cores, 4 * 24);
}

// FlexGen's machine has 208 GB. 16 of 28 cores of a socket that reads 0.85 * 128 GB/s.
TEST(Catalog, GcpT4_WhenLoaded_ThenIsTheMachineOfFlexgensPaper) {
  const Hardware gcp = load_hardware("gcp-t4");
  EXPECT_EQ(gcp.gpu.file.name, "t4-16gb");
  EXPECT_EQ(gcp.host->dram, Bytes(208'000'000'000));
  EXPECT_NEAR(gcp.host->dram_bandwidth.value(), 0.85 * 128e9 * 16 / 28, 1e7);
  EXPECT_EQ(gcp.host->sockets, 1);
  EXPECT_EQ(load_hardware("hgx-h100-8").host->sockets, 2);
}

TEST(Catalog, MatricesOfALayer_AreTheSameWeightsOneByOne) {
  for (const std::string& name : llm_names()) {
    const LlmModel llm = load_llm(name);
    if (llm.experts) continue;
    const auto numbers = [](const auto& matrices) {
      std::int64_t sum = 0;
      for (const Matrix& matrix : matrices) sum += matrix.inputs * matrix.outputs;
      return sum;
    };
    EXPECT_EQ(numbers(llm.attention_matrices(1)) + numbers(llm.mlp_matrices(1)), numbers(llm.layer_matrices(1)))
        << name;
    EXPECT_EQ(llm.attention_matrices(1).size(), 4U);
    EXPECT_EQ(llm.mlp_matrices(1).size(), llm.gated_mlp ? 3U : 2U) << name;
  }
  // 8 experts of gate, up and down.
  EXPECT_EQ(load_llm("mixtral-8x7b").mlp_matrices(1).size(), 24U);
  EXPECT_EQ(load_llm("mixtral-8x7b").mlp_matrices({2, 1, 2}).size(), 12U);
  // 32 heads of 128 and 8 for keys, of a hidden size of 4096.
  const std::vector<Matrix> attention = load_llm("llama-3.1-8b").attention_matrices(2);
  EXPECT_EQ(attention[0].outputs, 2048);
  EXPECT_EQ(attention[1].outputs, 512);
  EXPECT_EQ(attention[3].inputs, 2048);
}

// NEO's README: g5.nxlarge has 2n cores and 16n GiB. Its 48-core socket reads 0.85 * 204.8 = 174.08 GB/s, of which 2n
// cores are given 174.08 * 2n / 48.
// NEO, section 5.4: 2xlarge reads nearly as fast as 4xlarge, each larger one twice as fast as the one before it.
// 16xlarge reads 80% of 204.8 GB/s.
TEST(Catalog, G5Hosts_WhenLoaded_ThenGrowWithTheInstance) {
  for (const auto& [n, gb_per_s] : {std::pair{2, 41.0}, {4, 41.0}, {8, 82.0}, {16, 164.0}}) {
    const Hardware g5 = load_hardware("g5." + std::to_string(n) + "xlarge");
    EXPECT_EQ(g5.gpu.file.name, "a10g-24gb");
    ASSERT_TRUE(g5.host.has_value());
    EXPECT_EQ(g5.host->cores, 2 * n);
    EXPECT_EQ(g5.host->threads, 4 * n);
    EXPECT_EQ(g5.host->dram, Bytes(std::int64_t{16} * n * 1024 * 1024 * 1024));
    EXPECT_EQ(static_cast<double>(g5.host->dram_bandwidth.value()), gb_per_s * 1e9);
  }
}

json g5_server() { return json::parse(embedded("hwmodels/servers/g5.4xlarge.json")); }
json grace_host() { return json::parse(embedded("hwmodels/hosts/grace-480gb.json")); }

TEST(Catalog, LoadServer_WhenGpuOrHostDoNotExist_ThenNamesTheFieldsAndTheNearest) {
  json document = g5_server();
  document["values"]["gpu"]["value"] = "a10g-42gb";
  document["values"]["host"]["value"] = "./nowhere.json";
  document["values"]["gpus"]["value"] = 0;
  const auto problems = data_problems(load_server, document.dump());
  EXPECT_TRUE(mentions(problems, "/values/gpu/value", "there is no gpu \"a10g-42gb\""));
  EXPECT_EQ(problems.at(0).fix.find("did you mean \"a10g-24gb\"? allowed: a10-24gb"), 0U);
  EXPECT_TRUE(mentions(problems, "/values/host/value", "there is no file"));
  EXPECT_TRUE(mentions(problems, "/values/gpus/value", "between 1 and 1000, not 0"));
  EXPECT_EQ(problems.size(), 3U);
  document = g5_server();
  document["values"]["gpu"]["value"] = 4;
  document["values"]["host"]["unit"] = "1";
  const auto types = data_problems(load_server, document.dump());
  EXPECT_TRUE(mentions(types, "/values/gpu/value", "must be a name, not 4"));
  EXPECT_TRUE(mentions(types, "/values/host/unit", "must be \"name\", not \"1\""));
  EXPECT_EQ(types.size(), 2U);
}

TEST(Catalog, LoadServer_WhenValuesAreImpossible_ThenRefuses) {
  json document = g5_server();
  document["topology"]["links"][0]["in"]["value"] = 25;  // 25 GB/s without its unit
  document["values"]["peer_launch"]["value"] = -1e-6;
  const auto problems = data_problems(load_server, document.dump());
  EXPECT_TRUE(mentions(problems, "/topology/links/0/in/value", "not 25"));
  EXPECT_TRUE(mentions(problems, "/values/peer_launch/value", "between 0 and 10 s"));
  EXPECT_EQ(problems.size(), 2U);
  document = g5_server();
  document["values"]["peer_launch"]["value"] = 1e-5;
  EXPECT_TRUE(mentions(data_problems(load_server, document.dump()), "/values/peer_launch/value", "null exactly"));
  document["values"]["peer_bandwidth"]["value"] = 25e9;
  EXPECT_TRUE(mentions(data_problems(load_server, document.dump()), "/values/peer_bandwidth/value", "one GPU"));
  document["schema_version"] = 2;
  EXPECT_TRUE(mentions(data_problems(load_server, document.dump()), "/schema_version", "must be 1, not 2"));
}

// A server's file from before topologies: three totals of all GPUs, here of two.
json totals_server() {
  json document = g5_server();
  document.erase("topology");
  json& values = document["values"];
  values["gpus"]["value"] = 2;
  for (const char* key : {"h2d_aggregate", "d2h_aggregate", "host_shared_bandwidth"}) {
    values[key] = values["peer_bandwidth"];
  }
  values["h2d_aggregate"]["value"] = 24e9;
  values["host_shared_bandwidth"]["value"] = 30e9;
  values["peer_bandwidth"]["value"] = 20e9;
  values["peer_launch"]["value"] = 1e-5;
  return document;
}

TEST(Catalog, LoadServer_WhenItStatesTotals_ThenTheyAreOneLinkOfAllGpus) {
  json document = totals_server();
  const ServerProfile server = load_server(temporary_file(document.dump()));
  ASSERT_EQ(server.topology.links.size(), 2U);
  EXPECT_EQ(server.topology.links[0].in.rate, BytesPerSecond(24e9));
  EXPECT_FALSE(server.topology.links[0].out.rate.has_value());
  EXPECT_EQ(server.topology.links[0].both.rate, BytesPerSecond(30e9));
  ASSERT_EQ(server.topology.gpus.size(), 2U);
  EXPECT_EQ(server.topology.gpus[1].host, std::vector<std::size_t>{0});
  EXPECT_TRUE(directly_connected(server.topology, 0, 1));
  document["values"].erase("host_shared_bandwidth");
  EXPECT_TRUE(mentions(data_problems(load_server, document.dump()), "/values/host_shared_bandwidth", "missing"));
  document["values"].erase("h2d_aggregate");
  EXPECT_TRUE(mentions(data_problems(load_server, document.dump()), "/topology", "missing"));
  document = totals_server();
  document["topology"] = g5_server()["topology"];
  const auto both = data_problems(load_server, document.dump());
  EXPECT_TRUE(mentions(both, "/values/h2d_aggregate", "unknown field")) << "the topology says it all";
  EXPECT_TRUE(mentions(both, "/topology/gpus", "states 1 GPU, and the server has 2"));
}

TEST(Catalog, LoadServer_WhenItIsSeveralOfAServer_ThenTakesItsParts) {
  json document = json::parse(embedded("hwmodels/servers/hgx-h100-8-pair.json"));
  document["values"]["servers"]["value"] = 4;
  const ServerProfile four = load_server(temporary_file(document.dump()));
  EXPECT_EQ(four.servers, 4);
  EXPECT_EQ(four.file.name, "hgx-h100-8-pair");
  EXPECT_EQ(four.gpu, "h100-80gb-sxm");
  EXPECT_EQ(four.topology.gpus.size(), 8U);
  document["values"]["server"]["value"] = "hgx-h100-8-pair";
  try {
    static_cast<void>(load_server(temporary_file(document.dump())));
    ADD_FAILURE() << "several of several servers";
  } catch (const DataError& error) {
    EXPECT_EQ(error.problems().at(0).where, "hwmodels/servers/hgx-h100-8-pair.json at /values/server/value");
  }
  document["values"]["server"]["value"] = "hgx-h100-9";
  document["values"]["servers"]["value"] = 0;
  const auto problems = data_problems(load_server, document.dump());
  EXPECT_TRUE(mentions(problems, "/values/server/value", "there is no server \"hgx-h100-9\""));
  EXPECT_TRUE(mentions(problems, "/values/servers/value", "between 1 and 100000, not 0"));
}

TEST(Catalog, LoadHost_WhenValuesAreImpossible_ThenRefuses) {
  json document = grace_host();
  document["values"]["cores"]["value"] = 0;
  document["values"]["dram"]["unit"] = "GB";
  document["values"]["cpu_attention_efficiency"]["value"] = 1.5;
  const auto problems = data_problems(load_host, document.dump());
  EXPECT_TRUE(mentions(problems, "/values/cores/value", "not 0"));
  EXPECT_TRUE(mentions(problems, "/values/dram/unit", "must be \"bytes\", not \"GB\""));
  EXPECT_TRUE(mentions(problems, "/values/cpu_attention_efficiency/value", "at most 1, not 1.5"));
  EXPECT_EQ(problems.size(), 3U);
  const auto with = [](const char* key, const json& value) {
    json changed = grace_host();
    changed["values"][key]["value"] = value;
    return data_problems(load_host, changed.dump());
  };
  EXPECT_TRUE(mentions(with("threads", 71), "/values/threads/value", "at least the 72 cores"));
  EXPECT_TRUE(mentions(with("dram_bandwidth", 385e9), "/values/dram_bandwidth/value", "exceeds dram_peak"));
  EXPECT_TRUE(mentions(with("dram_bandwidth_per_thread", 349e9), "/values/dram_bandwidth_per_thread/value",
                       "exceeds dram_bandwidth"));
  EXPECT_TRUE(with("dram_bandwidth_per_thread", 30e9).empty());
}

TEST(Catalog, LoadHardware_WhenGivenAFile_ThenItsKindDecides) {
  EXPECT_FALSE(load_hardware(temporary_file(h100().dump())).server.has_value());
  const Hardware server = load_hardware(temporary_file(g5_server().dump()));
  ASSERT_TRUE(server.server.has_value());
  EXPECT_EQ(server.host->file.name, "g5.4xlarge-host");
  EXPECT_TRUE(mentions(data_problems(load_hardware, grace_host().dump()), "/kind",
                       "must be \"gpu\" or \"server\", not \"host\""));
  EXPECT_EQ(data_problems(load_hardware, "[1").size(), 1U);
  EXPECT_THROW(static_cast<void>(load_hardware("/nonexistent/server.json")), DataError);
}

// A user's server beside the user's own GPU and host.
TEST(Catalog, LoadServer_WhenItNamesFiles_ThenTheyLieBesideIt) {
  json gpu = h100();
  gpu["name"] = "my-gpu";
  std::ofstream(testing::TempDir() + "spillway_my_gpu.json") << gpu;
  json host = grace_host();
  host["name"] = "my-host";
  std::ofstream(testing::TempDir() + "spillway_my_host.json") << host;
  json document = g5_server();
  document["values"]["gpu"]["value"] = "spillway_my_gpu.json";
  document["values"]["host"]["value"] = "./spillway_my_host.json";
  const Hardware hardware = load_hardware(temporary_file(document.dump()));
  EXPECT_EQ(hardware.gpu.file.name, "my-gpu");
  EXPECT_EQ(hardware.host->file.name, "my-host");
  // Problems of both files are reported together.
  gpu["schema_version"] = 2;
  std::ofstream(testing::TempDir() + "spillway_my_gpu.json") << gpu;
  host["kind"] = "gpu";
  std::ofstream(testing::TempDir() + "spillway_my_host.json") << host;
  const auto problems = data_problems(load_hardware, document.dump());
  EXPECT_TRUE(mentions(problems, "/schema_version", "must be 1, not 2"));
  EXPECT_TRUE(mentions(problems, "/kind", "must be \"host\""));
  EXPECT_EQ(problems.size(), 2U);
}

TEST(Catalog, LoadHardware_WhenNameIsNearlyRight_ThenSuggestsGpusAndServers) {
  for (const auto& [wrong, right] : {std::pair{"hgx-h100", "hgx-h100-8"}, std::pair{"t4-61gb", "t4-16gb"}}) {
    try {
      static_cast<void>(load_hardware(wrong));
      FAIL();
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.problems().at(0).where, "hardware");
      EXPECT_EQ(error.problems().at(0).fix.find(std::string("did you mean \"") + right), 0U)
          << error.problems().at(0).fix;
    }
  }
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

TEST(Catalog, LoadLlm_WhenWeightsAreQuantised_ThenTheFormOfTheFileSaysWhere) {
  const json stored{{"quant_method", "gptq"}, {"bits", 5}};
  json own = json::parse(embedded("hwmodels/llms/llama-3.1-8b.json"));
  own["quantization_config"] = stored;
  EXPECT_TRUE(mentions(data_problems(load_llm, own.dump()), "/quantization_config/bits", "5 bits are not modelled"));
  json configured = json::parse(embedded("hwmodels/llms/qwen3-14b.json"));
  configured["quantization_config"] = stored;
  EXPECT_TRUE(mentions(data_problems(load_llm, configured.dump()), "/quantization_config", "belongs in config"));
}

TEST(Catalog, LoadLlm_WhenFileHasOneSource_ThenItHoldsForEveryField) {
  for (const Entry& entry : load_llm("llama-2-7b").file.entries) EXPECT_EQ(entry.source_kind, "datasheet");
  json document = json::parse(embedded("hwmodels/llms/llama-2-7b.json"));
  document.erase("source");
  EXPECT_TRUE(mentions(data_problems(load_llm, document.dump()), "/values/layers/source", "missing"));
}

}  // namespace
}  // namespace spillway::hwmodels
