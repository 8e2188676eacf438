#include "hwmodels/calibration/consistency.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/paths.hpp"

namespace spillway::hwmodels {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const DeviceLimits kGpu{1e15, 3e12, 50e6, 64e9, "the example"};

Measurements empty() {
  Measurements rows;
  rows.files.push_back({"table.csv", {}, "ops-gemm-csv", 0, {}});
  return rows;
}

Measurements of(const GemmRow& row) {
  Measurements rows = empty();
  rows.gemm.push_back(row);
  return rows;
}

std::vector<std::string> texts(const std::vector<Problem>& problems) {
  std::vector<std::string> all;
  all.reserve(problems.size());
  for (const Problem& problem : problems) all.push_back(problem.what + " | " + problem.where + " | " + problem.fix);
  return all;
}

/// The only problem; empty when there is none.
std::string problem_of(const Measurements& rows, const DeviceLimits& limits = kGpu) {
  const auto all = texts(inconsistencies(rows, limits));
  EXPECT_LE(all.size(), 1U) << fmt::format("{}", all.size() > 1 ? all[1] : "");
  return all.empty() ? std::string() : all[0];
}

TEST(Consistency, RowsOfOneKey) {
  Measurements rows = empty();
  rows.gemm = {{16, 4096, 4096, 2, 20e-6, {0, 2}},
               {16, 4096, 4096, 2, 20e-6 * (1.0 + 5e-7), {0, 3}},
               {16, 4096, 4096, 2, 25e-6, {0, 4}},
               {16, 4096, 4096, 1, 25e-6, {0, 5}}};
  EXPECT_THAT(
      texts(inconsistencies(rows, kGpu)),
      testing::ElementsAre("duplicate: GEMM m=16 n=4096 k=4096: 20 us, as at table.csv line 2 | table.csv line 3 | "
                           "delete one of the rows",
                           "contradictory: GEMM m=16 n=4096 k=4096: 25 us, but 20 us at table.csv line 2 | "
                           "table.csv line 4 | keep the row that was measured as an engine would run it"));
}

TEST(Consistency, EveryKindOfRow_IsComparedByItsKey) {
  Measurements rows = empty();
  for (const double seconds : {1e-3, 2e-3}) {
    rows.attention.push_back({1, 8, 8, 128, 64, 0, seconds, {}});
    rows.mixed.push_back({1, 0, 1, 1, seconds, {}});
    rows.elementwise.push_back({"add", 1, 8.0, seconds, {}});
    rows.all_reduce.push_back({2, 8, seconds, {}});
    rows.copies.push_back({true, CopyMechanism::many, false, 8, 1, seconds, {}});
    rows.cpu_attention.push_back({1, 1, 1, 8.0, seconds, {}});
    rows.host.push_back({1, 1, seconds, {}});
    rows.layers.push_back({"sampler", true, 1, seconds, {}});
    rows.iterations.push_back({1, 1, 0.0, seconds, {}});
    rows.host_gemms.push_back({1, 1, 1, 1, 2, seconds, {}});
    rows.interference.push_back({"gemm", "h2d", 8, true, seconds, {}});
  }
  const auto problems = texts(inconsistencies(rows, kGpu));
  EXPECT_EQ(problems.size(), 10U) << "a log may have two iterations of one size";
  for (const std::string& text : problems) EXPECT_THAT(text, HasSubstr("contradictory: "));
  for (auto* copies : {&rows.copies}) copies->at(1).to_device = false;
  rows.interference[1].by_kernel = true;
  EXPECT_EQ(inconsistencies(rows, kGpu).size(), 8U);
}

TEST(Consistency, Gemm_AboveThePeak) {
  // 2 x 8192^3 FLOPs are 1.0995e12: 1.0995 ms at the peak, 0.99956 ms at 1.1 times the peak.
  EXPECT_EQ(problem_of(of({8192, 8192, 8192, 2, 1.0e-3, {}})), "");
  EXPECT_EQ(problem_of(of({8192, 8192, 8192, 2, 0.8e-3, {0, 7}})),
            "above the peak: GEMM m=8192 n=8192 k=8192: 1.374e+15 FLOP/s in 800 us are above 1e+15 FLOP/s of the "
            "example | table.csv line 7 | check the unit of the time and the shape; delete the row if they are right");
  EXPECT_EQ(problem_of(of({8192, 8192, 8192, 1, 0.6e-3, {}})), "") << "8-bit values: twice the peak";
  EXPECT_THAT(problem_of(of({8192, 8192, 8192, 1, 0.4e-3, {}})), HasSubstr("above twice the 1e+15 FLOP/s"));
  EXPECT_EQ(problem_of(of({8192, 8192, 8192, 2, 0.8e-3, {}}), {}), "");
  EXPECT_THAT(problem_of(of({8192, 8192, 8192, 2, 0.9e-4, {}}), {}),
              HasSubstr("above 1e+16 FLOP/s, more than any machine of 2026 has"));
}

// 4e6 bytes of fp32 weights in 1 us are 4e12 bytes/s, in 2.5 us 1.6e12; 2 x 4096 x 1e6 FLOP in 2.5 us are 3.3e15
// FLOP/s.
TEST(Consistency, HostGemm_FasterThanAnyCpu) {
  const auto problem = [](std::int64_t count, double seconds) {
    Measurements rows = empty();
    rows.host_gemms = {{count, 1000, 1000, 32, 4, seconds, {}}};
    return problem_of(rows);
  };
  EXPECT_EQ(problem(1, 2.5e-6), "");
  EXPECT_THAT(problem(1, 1e-6), HasSubstr("faster than any machine: product of 1 rows on the CPU, 1000 inputs and 1000 "
                                          "outputs: weights of a product at 4e+12 B/s"));
  EXPECT_THAT(problem(4096, 2.5e-6), HasSubstr("above 2e+15 FLOP/s, more than any CPU of 2026 has"));
}

TEST(Consistency, Gemm_WeightsFasterThanTheMemory) {
  // 32 MiB of weights: 11.2 us at 3e12 bytes/s, and within the L2.
  EXPECT_EQ(problem_of(of({1, 4096, 4096, 2, 11.3e-6, {}})), "");
  EXPECT_THAT(problem_of(of({1, 4096, 4096, 2, 8e-6, {}})),
              AllOf(HasSubstr("L2-resident: GEMM m=1 n=4096 k=4096: "), HasSubstr("read from the cache"),
                    HasSubstr("the L2 of 5e+07 bytes"), HasSubstr("an engine reads them from memory")));
  // 512 MiB: 179 us.
  EXPECT_EQ(problem_of(of({1, 16384, 16384, 2, 180e-6, {}})), "");
  EXPECT_THAT(
      problem_of(of({1, 16384, 16384, 2, 170e-6, {}})),
      AllOf(HasSubstr("above the bandwidth: "), HasSubstr("above 3e+12 B/s of memory bandwidth of the example")));
}

TEST(Consistency, Gemm_ActivationsMayComeFromTheL2) {
  // 8192 x 64 x 2 bytes of weights, 1 MiB; of activations 131072 x (64 + 8192) x 2 bytes, 2.16e9: 721 us, or 705 us
  // when 50e6 bytes of them stay in the L2.
  EXPECT_EQ(problem_of(of({131072, 8192, 64, 2, 706e-6, {}})), "");
  EXPECT_THAT(problem_of(of({131072, 8192, 64, 2, 700e-6, {}})),
              AllOf(HasSubstr("above the bandwidth: "), HasSubstr("bytes beyond the L2 of 5e+07 bytes")));
}

TEST(Consistency, DecodeAttention_KvFasterThanTheMemory) {
  Measurements rows = empty();
  // 4 x 64 x 4096 x 8 x 128 bytes: 1.07e9, 358 us.
  rows.attention = {{64, 32, 8, 128, 1, 4096, 360e-6, {}}};
  EXPECT_EQ(problem_of(rows), "");
  rows.attention[0].seconds = 350e-6;
  EXPECT_THAT(problem_of(rows), AllOf(HasSubstr("above the bandwidth: decode attention of 64 x 1 tokens behind 4096 "),
                                      HasSubstr("bytes of KV")));
  rows.attention = {{1, 32, 8, 128, 1, 4096, 4e-6, {}}};
  EXPECT_THAT(problem_of(rows), HasSubstr("L2-resident: "));
}

TEST(Consistency, Gemm_FarTooSlow) {
  // 2 x 8192^3 FLOPs take 1.1 ms at the peak, so that 111 ms are the most; 128 x 128 x 2 bytes take 11 ns, so 1.001 ms.
  EXPECT_EQ(problem_of(of({8192, 8192, 8192, 2, 0.110, {}})), "");
  EXPECT_THAT(
      problem_of(of({8192, 8192, 8192, 2, 0.112, {}})),
      AllOf(HasSubstr("far too slow: GEMM m=8192 n=8192 k=8192: 112000 us where 1e+15 FLOP/s of the example and "
                      "3e+12 B/s of memory bandwidth of the example allow 1099.51 us"),
            HasSubstr("check the unit of the time")));
  EXPECT_EQ(problem_of(of({1, 128, 128, 2, 1.0005e-3, {}})), "");
  EXPECT_THAT(problem_of(of({1, 128, 128, 2, 1.01e-3, {}})), HasSubstr("far too slow"));
  EXPECT_EQ(problem_of(of({1, 128, 128, 2, 10.0, {}}), {}), "") << "no datasheet, no slowest time";
}

TEST(Consistency, LayerTables_AgainstTheDatasheet) {
  const LlmModel llm = load_llm("llama-3.1-8b");
  const auto problem = [&](const LayerRow& row) {
    Measurements rows = empty();
    rows.layers = {row};
    EXPECT_THAT(texts(inconsistencies(rows, kGpu)), testing::IsEmpty()) << "of no known model";
    const auto all = texts(inconsistencies(rows, kGpu, &llm));
    EXPECT_LE(all.size(), 1U);
    return all.empty() ? std::string() : all[0];
  };
  // Up and gate: 28672 x 4096 x 2 bytes are 2.349e8, of which 1.849e8 are beyond the L2: 61.6 us; 78.3 us in all.
  EXPECT_EQ(problem({"gate_up_proj", false, 1, 62e-6, {}}), "");
  EXPECT_THAT(problem({"gate_up_proj", false, 1, 61e-6, {}}),
              AllOf(HasSubstr("above the bandwidth: gate_up_proj of 1 tokens: 1.849e+08 bytes beyond the L2")));
  EXPECT_EQ(problem({"gate_up_proj", false, 1, 8.8e-3, {}}), "");
  EXPECT_THAT(problem({"gate_up_proj", false, 1, 8.9e-3, {}}), HasSubstr("far too slow: gate_up_proj of 1 tokens: "));
  // The output projection's 33.5 MB fit the L2; 2048 tokens are 6.87e10 FLOPs: 62.5 us at 1.1 times the peak.
  EXPECT_EQ(problem({"o_proj", false, 1, 1e-6, {}}), "");
  EXPECT_EQ(problem({"o_proj", false, 2048, 63e-6, {}}), "");
  EXPECT_THAT(problem({"o_proj", false, 2048, 62e-6, {}}), HasSubstr("above the peak: o_proj of 2048 tokens: "));
  // The LM head: 128256 x 4096 x 2 bytes, 1.0507e9, of which 1.0007e9 are beyond the L2: 333.6 us.
  EXPECT_EQ(problem({"lm_head", true, 1, 334e-6, {}}), "");
  EXPECT_THAT(problem({"lm_head", true, 1, 333e-6, {}}), HasSubstr("above the bandwidth: lm_head of 1 sequences: "));
  EXPECT_EQ(problem({"layernorm", false, 2048, 1e-9, {}}), "") << "its bytes depend on how the engine fuses it";
}

TEST(Consistency, MixedTables_AgainstTheDatasheet) {
  const LlmModel llm = load_llm("llama-3.1-8b");
  const auto problem = [&](const MixedRow& row) {
    Measurements rows = empty();
    rows.mixed = {row};
    EXPECT_THAT(texts(inconsistencies(rows, kGpu)), testing::IsEmpty()) << "of no known model";
    const auto all = texts(inconsistencies(rows, kGpu, &llm));
    EXPECT_LE(all.size(), 1U);
    return all.empty() ? std::string() : all[0];
  };
  // 64 x 4096 tokens of 4096 bytes: 1.0737e9, of which 1.0237e9 are beyond the L2: 341 us.
  EXPECT_EQ(problem({1, 0, 64, 4096, 342e-6, {}}), "");
  EXPECT_THAT(problem({1, 0, 64, 4096, 340e-6, {}}),
              HasSubstr("above the bandwidth: mixed attention of 1 tokens behind 0 and 64 decodes behind 4096: "));
  // 4 x 32 x 128 x (8192 x 8192 + 8192 x 8193 / 2) FLOPs are 1.6493e12: 1.4994 ms at 1.1 times the peak.
  EXPECT_EQ(problem({8192, 8192, 1, 1, 1.51e-3, {}}), "");
  EXPECT_THAT(problem({8192, 8192, 1, 1, 1.49e-3, {}}), HasSubstr("above the peak: mixed attention of 8192 tokens "));
}

TEST(Consistency, TheLayerTablesOfARealEngine_AreConsistent) {
  const std::string folder = source_dir() + "/../shared/data/engine-logs/rtx4090-llama31-8b/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "../shared/data/engine-logs is not there";
  const LlmModel llm = load_llm("llama-3.1-8b");
  const DeviceLimits gpu{165.2e12, 1008e9, 72.0 * 1048576.0, {}, "RTX 4090"};
  std::vector<MeasurementInput> inputs;
  for (const char* file : {"dense.csv", "per_sequence.csv", "attention.csv"}) {
    inputs.push_back({folder + file, std::nullopt});
  }
  Measurements rows = read_measurements(inputs);
  EXPECT_THAT(texts(inconsistencies(rows, gpu, &llm)), testing::IsEmpty());
  for (LayerRow& row : rows.layers) row.seconds *= 1e-3;
  EXPECT_THAT(texts(inconsistencies(rows, gpu, &llm)), testing::Contains(HasSubstr("above the bandwidth: ")))
      << "a thousandth: milliseconds read as microseconds";
}

TEST(Consistency, PrefillAttention_AboveThePeak) {
  Measurements rows = empty();
  // 4 x 32 x 128 x (8192 x 8192 + 8192 x 8193 / 2) FLOPs are 1.6493e12: 1.4994 ms at 1.1 times the peak.
  rows.attention = {{1, 32, 8, 128, 8192, 8192, 1.51e-3, {}}};
  EXPECT_EQ(problem_of(rows), "");
  rows.attention[0].seconds = 1.49e-3;
  EXPECT_THAT(problem_of(rows), HasSubstr("above the peak: prefill attention of 1 x 8192 tokens behind 8192 "));
}

TEST(Consistency, CopiesAndCollectives) {
  Measurements rows = empty();
  rows.copies = {{true, CopyMechanism::single, false, 64'000'000, 1, 0.99e-3, {}}};
  EXPECT_THAT(problem_of(rows), AllOf(HasSubstr("above the link's peak: copy_h2d of 1 x 64000000 bytes, single: "),
                                      HasSubstr("above 6.4e+10 B/s of the host link of the example")));
  rows.copies[0].mechanism = CopyMechanism::peer;
  EXPECT_EQ(problem_of(rows), "") << "between GPUs the host's link does not count";
  rows.copies[0].seconds = 20e-6;
  EXPECT_THAT(problem_of(rows), HasSubstr("faster than any machine: "));
  rows.copies.clear();
  rows.all_reduce = {{8, 1'000'000'000, 0.88e-3, {}}};  // 1.75e9 bytes on the bus
  EXPECT_EQ(problem_of(rows), "");
  rows.all_reduce[0].seconds = 0.87e-3;
  EXPECT_THAT(problem_of(rows), HasSubstr("all-reduce at 2.011e+12 B/s is above 2e+12 B/s, more than any machine"));
  rows.all_reduce.clear();
  rows.cpu_attention = {{64, 1, 1, 1e9, 0.4e-3, {}}};
  EXPECT_THAT(problem_of(rows), HasSubstr("CPU attention at 2.5e+12 B/s is above 2e+12 B/s"));
}

TEST(Consistency, Elementwise_OnlyBeyondTheL2) {
  Measurements rows = empty();
  rows.elementwise = {{"add", 64, 40e6, 1e-6, {}}};
  EXPECT_EQ(problem_of(rows), "") << "all of it may be in the L2";
  rows.elementwise = {{"add", 64, 350e6, 99e-6, {}}};
  EXPECT_THAT(problem_of(rows), AllOf(HasSubstr("above the bandwidth: add of 64 tokens, 3.5e+08 bytes: "),
                                      HasSubstr("3e+08 bytes beyond the L2")));
  rows.elementwise[0].seconds = 101e-6;
  EXPECT_EQ(problem_of(rows), "");
}

TEST(Consistency, WithoutALimit_TheMessageSaysSo) {
  Measurements rows = of({1, 4096, 4096, 2, 1.0e-6, {}});
  EXPECT_THAT(problem_of(rows, {}), AllOf(HasSubstr("L2-resident: "), HasSubstr("more L2 than any GPU of 2026 has"),
                                          HasSubstr("2.5e+13 B/s of memory bandwidth, more than any machine of 2026")));
}

TEST(Consistency, TwentyOfAKind_ThenACount) {
  Measurements rows = empty();
  for (std::int64_t i = 0; i < 50; ++i)
    rows.gemm.push_back({16, 64, 64, 2, 1e-5 * static_cast<double>(i + 1), {0, i + 2}});
  rows.host = {{1, 1, 1.0, {}}, {1, 1, 1.0, {}}};
  const auto problems = texts(inconsistencies(rows, kGpu));
  ASSERT_EQ(problems.size(), 22U);
  EXPECT_EQ(problems[20], "contradictory: and 29 more | table.csv line 3 | ");
  EXPECT_THAT(problems[21], HasSubstr("duplicate: "));
}

TEST(Consistency, RealTables_HoldNothingImpossible) {
  const std::string folder = source_dir() + "/../shared/data/ops/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "../shared/data/ops is not there";
  struct Gpu {
    const char* folder;
    DeviceLimits limits;
  };
  const std::optional<double> hopper_l2 = 50.0 * 1048576.0;
  for (const Gpu& gpu : {Gpu{"h100-sxm", {989e12, 3350e9, hopper_l2, {}, "H100 SXM"}},
                         Gpu{"h200-sxm", {989e12, 4800e9, hopper_l2, {}, "H200 SXM"}},
                         Gpu{"a100-sxm", {312e12, 2039e9, 40.0 * 1048576.0, {}, "A100 SXM"}}}) {
    std::vector<MeasurementInput> inputs;
    for (const char* file : {"gemm", "decode_attention", "prefill_attention"}) {
      inputs.push_back({fmt::format("{}{}/{}.csv.gz", folder, gpu.folder, file), std::nullopt});
    }
    EXPECT_THAT(texts(inconsistencies(read_measurements(inputs), gpu.limits)), testing::IsEmpty()) << gpu.folder;
  }
}

TEST(Consistency, RealTablesOfVidur_HoldNoElementwiseKernelBeyondTheMemory) {
  const std::string folder = source_dir() + "/../shared/data/ops/vidur-a100/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "../shared/data/ops is not there";
  for (const char* file : {"Llama-2-7b-hf-mlp.csv.gz", "CodeLlama-34b-Instruct-hf-mlp.csv.gz"}) {
    const std::vector<MeasurementInput> inputs{{folder + file, Op::elementwise}};
    EXPECT_THAT(texts(inconsistencies(read_measurements(inputs), {312e12, 2039e9, 40.0 * 1048576.0, {}, "A100 SXM"})),
                testing::IsEmpty());
  }
}

}  // namespace
}  // namespace spillway::hwmodels
