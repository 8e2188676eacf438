// Calls of an execution model outside the measured range, counted by hand from lists of batches.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hwmodels/models/execution_models.hpp"
#include "hwmodels/models/range_tally.hpp"

namespace spillway::hwmodels {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// "op quantity outside/calls reached" of each.
std::vector<std::string> lines(const std::vector<RangeUse>& uses) {
  std::vector<std::string> all;
  all.reserve(uses.size());
  for (const RangeUse& use : uses) {
    all.push_back(fmt::format("{} {} {}/{} {}", use.op, use.quantity, use.outside, use.calls, use.reached));
  }
  return all;
}

FitRecord record(std::vector<MeasuredRange> ranges) {
  FitRecord about;
  about.source_kind = "measured";
  about.ranges = std::move(ranges);
  return about;
}

/// Three layers; multiplications of (outputs, inputs) (2048, 1024), (1024, 1024), (6144, 1024), (1024, 3072), and the
/// LM head's (30001, 1024).
LlmModel llm() {
  LlmModel llm;
  llm.file.name = "test-llm";
  llm.layers = 3;
  llm.hidden = 1024;
  llm.heads = 8;
  llm.kv_heads = 4;
  llm.head_dim = 128;
  llm.ffn = 3072;
  llm.gated_mlp = true;
  llm.vocabulary = 30'001;
  llm.max_positions = 4096;
  llm.dtype_bytes = 2;
  return llm;
}

GpuProfile bare_gpu() {
  GpuProfile gpu;
  gpu.file.name = "test-gpu";
  gpu.peak_flops = 1e14;
  gpu.memory_bandwidth = BytesPerSecond(1e12);
  gpu.gemm_compute_efficiency = gpu.gemm_memory_efficiency = 0.5;
  gpu.decode_attention_efficiency = gpu.prefill_attention_efficiency = 0.5;
  gpu.kernel_overhead_seconds = gpu.attention_overhead_seconds = 1e-6;
  gpu.h2d = gpu.d2h = {BytesPerSecond(1e9), 1e-6};
  return gpu;
}

GpuProfile fitted_gpu() {
  GpuProfile gpu = bare_gpu();
  gpu.fitted.gemm = {{2,
                      {108, 4e-6, 2e14, 1e12, 0.1, 60.0, 0.5, 4.0, {}},
                      record({{"m", 2, 100}, {"n", 1024, 8192}, {"k", 1024, 2048}})}};
  gpu.fitted.decode_attention = Fitted<DecodeAttentionModel>{
      {108, 8e-6, 1e-10, 1.5e12, 1e-6, 3e-9, 0.05, 2e-6, 2.0, false, {}},
      record({{"batch", 2, 8}, {"new_tokens", 1, 1}, {"context", 99, 250}, {"q_heads", 8, 8}, {"kv_heads", 8, 16}})};
  gpu.fitted.prefill_attention =
      Fitted<PrefillAttentionModel>{{108, 9e-6, 1.2e12, 2e-6, 1e-6, 1.0, 4.0, false, {}},
                                    record({{"batch", 1, 1}, {"new_tokens", 30, 80}, {"context", 0, 0}})};
  return gpu;
}

BatchShape decode(std::int64_t sequences, std::int64_t context, std::int64_t longest = 0) {
  return {.decode_sequences = sequences,
          .decode_context = Tokens(context),
          .decode_longest = Tokens(longest),
          .chunks = {},
          .sampled_sequences = sequences};
}

const std::vector<PrefillChunk> kTwoChunks{{Tokens(90), Tokens(0)}, {Tokens(20), Tokens(50)}};
const std::vector<PrefillChunk> kOneChunk{{Tokens(60), Tokens(400)}};

/// Five iterations: one decode behind 99 tokens; twice ten, the longest behind 299; 90 + 20 = 110 tokens of prompts, of
/// which one emits a token; five decodes behind 99 tokens each with 60 tokens of a prompt behind 400.
std::vector<BatchShape> batches() {
  BatchShape prompts{.chunks = kTwoChunks, .sampled_sequences = 1};
  BatchShape both = decode(5, 500);
  both.chunks = kOneChunk;
  return {decode(1, 100), decode(10, 1000, 300), decode(10, 1000, 300), prompts, both};
}

std::vector<std::string> uses_of(const GpuProfile& gpu, const std::string& name, const std::vector<BatchShape>& asked,
                                 std::int64_t tensor_parallel = 1) {
  const auto model = make_execution_model(gpu, llm(), {}, {name, tensor_parallel, 2});
  for (const BatchShape& shape : asked) static_cast<void>(model->iteration(shape));
  return lines(model->range_uses());
}

// Multiplications: 4 in each of 3 layers and the head, 13 in each of 5 iterations.
//   m: 12 of 1 and 12 of 110 tokens are outside [2, 100], and the heads of 1 sample beside each; 110 is further out.
//   n: the five heads. k: the down projection's 3072 in each layer.
// Decodes: 4 iterations of 3 layers. Batches of 1 and twice 10 leave [2, 8]; contexts are 99, 299, 299 and 99; 4 KV
// heads are fewer than 8.
// Prompts: 2 iterations of 3 layers. Two chunks are more than the one measured; 20 and 90 leave [30, 80] by 10 each;
// both have a context, which was not measured.
TEST(RangeUses, Fitted_WhenBatchesAreCountedByHand_ThenTellsTheSame) {
  EXPECT_THAT(
      uses_of(fitted_gpu(), "fitted", batches()),
      ElementsAre("gemm m 26/65 110", "gemm n 5/65 30001", "gemm k 15/65 3072", "decode_attention batch 9/12 10",
                  "decode_attention context 6/12 299", "decode_attention q_heads 0/12 8",
                  "decode_attention kv_heads 12/12 4", "prefill_attention batch 3/6 2",
                  "prefill_attention new_tokens 3/6 90", "prefill_attention context 6/6 400"));
}

// The one iteration with both: a chunk of 60, and decodes that attend to 100 tokens, the new one included.
TEST(RangeUses, Fitted_WhenMixedCallsWereMeasured_ThenHoldsThemAgainstThat) {
  GpuProfile gpu = fitted_gpu();
  for (const double share : {0.0, 0.5, 1.0}) {
    gpu.fitted.mixed_attention = Fitted<MixedAttentionModel>{
        {share, {}}, record({{"chunk", 16, 50}, {"decodes", 1, 128}, {"context", 101, 200}})};
    const std::vector<std::string> all = uses_of(gpu, "fitted", batches());
    ASSERT_EQ(all.size(), 13U) << share;
    EXPECT_THAT(std::vector(all.begin() + 10, all.end()),
                ElementsAre("mixed_attention chunk 3/3 60", "mixed_attention decodes 0/3 1",
                            "mixed_attention context 3/3 100"));
  }
}

// Bytes of one kernel: 5 kernels of a layer move 2 (4 * 2 * 1024 + 2 (1024 + 512) + 3 * 3072 + 4 * 512) = 45,056 bytes
// a token, 9011.2 each; embedding 4096 and final norm 8192 a token; sampling 12 * 30,001 in 3 kernels, 120,004 a
// sample.
//   1 token:  9011.2 inside [5000, 700000], 4096 outside (1 call), 8192; 120,004 inside
//   10, twice: inside; 1,200,040 outside (3 calls each)
//   110:      991,232 outside (15 calls), 450,560, 901,120 outside (1 call); 120,004
//   65:       585,728, 266,240, 532,480; 600,020
// 23 of 5 * (15 + 1 + 1 + 3) calls.
TEST(RangeUses, Fitted_WhenElementwiseKernelsWereMeasured_ThenHoldsTheirBytesAgainstThat) {
  GpuProfile gpu = fitted_gpu();
  gpu.fitted.elementwise = Fitted<ElementwiseModel>{{2e-6, 1e12}, record({{"bytes", 5000, 700'000}})};
  EXPECT_EQ(uses_of(gpu, "fitted", batches()).back(), "elementwise bytes 23/100 1200040");
}

// A token's state has 2048 bytes, a sample's logits 60,002. Of 1 token: 2 * 3 + 1 sums of 2048 bytes, below [3000,
// 100000], and a gather of 60,002; of 10: 7 of 20,480 and one of 600,020. All over 2 GPUs, fewer than were measured.
TEST(RangeUses, Fitted_WhenAllReducesWereMeasured_ThenHoldsTheirBytesAgainstThat) {
  GpuProfile gpu = fitted_gpu();
  gpu.fitted.all_reduce = Fitted<AllReduceModel>{{{{4, {{{1e3, 20e-6}, {1e6, 40e-6}}}}}},
                                                 record({{"bytes", 3000, 100'000}, {"ranks", 4, 8}})};
  const std::vector<std::string> all = uses_of(gpu, "fitted", {decode(1, 100), decode(10, 1000)}, 2);
  EXPECT_EQ(all[all.size() - 2], "all_reduce ranks 16/16 2");
  EXPECT_EQ(all.back(), "all_reduce bytes 8/16 600020");
  EXPECT_EQ(uses_of(gpu, "fitted", {decode(1, 100)}).back(), "decode_attention kv_heads 3/3 4") << "one GPU sums none";
}

// Numbers of tokens that are looked up in a tree: 12 multiplications each time, and no head.
TEST(RangeUses, Fitted_WhenIterationsAreHuge_ThenAreCountedToo) {
  const std::array<PrefillChunk, 1> chunk{{{Tokens(70'000), Tokens(0)}}};
  const BatchShape huge{.chunks = chunk};
  EXPECT_EQ(uses_of(fitted_gpu(), "fitted", {huge, decode(10, 1000), huge}).front(), "gemm m 24/37 70000");
}

TEST(RangeUses, WhenNothingWasAskedOrMeasured_ThenAreEmpty) {
  EXPECT_THAT(uses_of(fitted_gpu(), "fitted", {}), IsEmpty());
  EXPECT_THAT(uses_of(fitted_gpu(), "fitted", {BatchShape{}}), IsEmpty());
  EXPECT_THAT(uses_of(fitted_gpu(), "roofline", batches()), IsEmpty());
  GpuProfile gpu = fitted_gpu();
  gpu.fitted.gemm.front().record.ranges.clear();
  gpu.fitted.decode_attention->record.ranges.clear();
  gpu.fitted.prefill_attention->record.ranges.clear();
  EXPECT_THAT(uses_of(gpu, "fitted", batches()), IsEmpty());
}

// Borrowed kernels keep the lender's measured ranges.
TEST(RangeUses, Fitted_WhenKernelsAreBorrowed_ThenTheLendersRangesCount) {
  GpuProfile gpu = fitted_gpu();
  gpu.fitted = borrowed(gpu.fitted, "lender", {108, 1.0, 1.0, 1.0, 1.0, 1.0}, {54, 0.5, 0.5, 0.5, 0.5, 0.5});
  EXPECT_EQ(uses_of(gpu, "fitted", batches()), uses_of(fitted_gpu(), "fitted", batches()));
}

// What single tokens say is in the residual, which another number of SMs does not keep.
TEST(RangeUses, Borrowed_WhenTheResidualIsDropped_ThenSingleTokensAreNotCarriedOver) {
  FittedKernels lender = fitted_gpu().fitted;
  lender.decode_attention->record.ranges.push_back({"single_token_kv_heads", 12.0, 64.0});
  const auto carried = [&](std::int64_t sms) {
    const FitRecord record = borrowed(lender, "lender", {108, 1.0, 1.0, 1.0, 1.0, 1.0}, {sms, 0.5, 0.5, 0.5, 0.5, 0.5})
                                 .decode_attention->record;
    return !known_beyond("decode_attention", {"kv_heads", 1.0, 8.0}, record).empty();
  };
  EXPECT_TRUE(carried(108));
  EXPECT_FALSE(carried(54));
}

// A GPU with half the bandwidth, of which its GEMM reaches 3/4 as large a share as the lender's, and its decodes 3/2.
TEST(RangeUses, Borrowed_WhenKernelsReachOtherSharesOfTheBandwidth_ThenTheirTrafficScalesWithIt) {
  FittedKernels lender = fitted_gpu().fitted;
  lender.decode_attention->model.token_seconds = 12e-9;
  const ScalingFacts from{108, 1.0, 1.0, 1000.0, 800.0, 600.0};
  const ScalingFacts to{108, 1.0, 1.0, 500.0, 300.0, 450.0};
  const FittedKernels kernels = borrowed(lender, "lender", from, to);
  EXPECT_DOUBLE_EQ(kernels.gemm.front().model.bandwidth, lender.gemm.front().model.bandwidth * 300.0 / 800.0);
  EXPECT_DOUBLE_EQ(kernels.decode_attention->model.bandwidth, lender.decode_attention->model.bandwidth * 0.75);
  EXPECT_DOUBLE_EQ(kernels.decode_attention->model.token_seconds, 16e-9);
  EXPECT_DOUBLE_EQ(kernels.prefill_attention->model.bandwidth, lender.prefill_attention->model.bandwidth * 0.5);
}

// The profiles state: A100 SXM 2,039 GB/s, of which GEMM reaches 0.75 and decode attention 0.635; RTX 4090 1,008 GB/s,
// 0.91 and 0.86.
TEST(RangeUses, Borrowed_WhenAProfileBorrows_ThenItsStatedSharesScaleTheTraffic) {
  const FittedKernels lender = load_gpu("a100-80gb-sxm").fitted;
  const FittedKernels kernels = load_gpu("rtx4090-24gb").fitted;
  EXPECT_NEAR(kernels.gemm.front().model.bandwidth / lender.gemm.front().model.bandwidth,
              1008.0 * 0.91 / (2039.0 * 0.75), 1e-9);
  EXPECT_NEAR(kernels.decode_attention->model.bandwidth / lender.decode_attention->model.bandwidth,
              1008.0 * 0.86 / (2039.0 * 0.635), 1e-9);
}

// 54 of 108 SMs hold half of the threads, so that the write of a token takes twice as long.
TEST(RangeUses, Borrowed_WhenTheGpuHasHalfTheSms_ThenTheCacheWriteTakesTwice) {
  FittedKernels lender = fitted_gpu().fitted;
  EXPECT_FALSE(borrowed(lender, "lender", {108, 1.0, 1.0, 1.0, 1.0, 1.0}, {54, 1.0, 1.0, 1.0, 1.0, 1.0})
                   .prefill_attention->model.write_token_seconds);
  lender.prefill_attention->model.write_token_seconds = 3e-9;
  EXPECT_DOUBLE_EQ(*borrowed(lender, "lender", {108, 1.0, 1.0, 1.0, 1.0, 1.0}, {54, 0.7, 0.7, 0.7, 0.7, 0.7})
                        .prefill_attention->model.write_token_seconds,
                   6e-9);
}

// Twelve decodes with a mean of 200 tokens (the tables know no longest): 3 layers at 12 tokens and the rest at 12
// samples. Chunks of 60 and 70 behind 0 and 2000 tokens: looked up alone and as 130; 3 layers at 130 tokens, the rest
// at 1 sample.
TEST(RangeUses, Tables_WhenLookedUpBeyondTheirPoints_ThenTellsIt) {
  GpuProfile gpu = bare_gpu();
  LayerTables tables;
  tables.model = "test-llm";
  for (const char* kernel : {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}) {
    tables.per_token[kernel] = {{{1.0, 1e-6}}};
  }
  tables.chunk_axis = {0.0, 100.0};
  tables.chunk_context_axis = {0.0};
  tables.decodes_axis = {0.0, 10.0};
  tables.decode_context_axis = {100.0};
  tables.attention_seconds = {-1.0, 1e-6, 1e-6, 2e-6};
  gpu.fitted.layers = Fitted<LayerTables>{
      tables, record({{"chunk", 0, 100}, {"decodes", 0, 10}, {"context", 0, 1000}, {"tokens", 1, 64}})};
  const std::vector<PrefillChunk> chunks{{Tokens(60), Tokens(0)}, {Tokens(70), Tokens(2000)}};
  EXPECT_THAT(
      uses_of(gpu, "tables", {decode(12, 2400, 5000), {.chunks = chunks, .sampled_sequences = 1}}),
      ElementsAre("layer chunk 3/3 130", "layer decodes 3/3 12", "layer context 3/6 2000", "layer tokens 3/8 130"));
}

// 3 tokens that attend to 600; 113 that attend to 600 + 150 + 10; 1 that attends to 5.
TEST(RangeUses, Iterations_WhenBeyondTheLog_ThenTellsIt) {
  GpuProfile gpu = bare_gpu();
  gpu.fitted.iteration.emplace();
  gpu.fitted.iteration->record = record({{"tokens", 1, 100}, {"context", 10, 1000}});
  const std::array<PrefillChunk, 2> chunks{{{Tokens(100), Tokens(50)}, {Tokens(10), Tokens(0)}}};
  BatchShape both = decode(3, 600);
  both.chunks = chunks;
  EXPECT_THAT(uses_of(gpu, "iterations", {decode(3, 600), both, decode(1, 5)}),
              ElementsAre("iteration tokens 1/3 113", "iteration context 1/3 5"));
}

// Ten copies of 1 KiB and three of 8 KiB to the device; the other way nothing was measured.
TEST(RangeUses, Copies_WhenSmallerThanMeasured_ThenEveryModelTellsIt) {
  GpuProfile gpu = fitted_gpu();
  gpu.fitted.copies.push_back({{true, CopyMechanism::many, 5e-6, 2e9, {}}, record({{"block_bytes", 4096, 65'536}})});
  for (const char* name : {"fitted", "roofline"}) {
    const auto model = make_execution_model(gpu, llm(), {}, {name});
    static_cast<void>(model->copy(Stream::h2d, 10, Bytes(10'240), CopyMechanism::many));
    static_cast<void>(model->copy(Stream::h2d, 3, Bytes(24'576), CopyMechanism::many));
    static_cast<void>(model->copy(Stream::h2d, 0, Bytes(0), CopyMechanism::many));
    static_cast<void>(model->copy(Stream::d2h, 4, Bytes(4), CopyMechanism::many));
    EXPECT_THAT(lines(model->range_uses()), ElementsAre("copy_h2d many block_bytes 10/13 1024")) << name;
  }
}

TEST(RangeUse, Add_SumsCallsAndKeepsWhatIsFurthestOutsideInAnyOrder) {
  const auto use = [](double reached, std::int64_t outside, std::int64_t calls) {
    return RangeUse{"gemm", "m", 10.0, 20.0, reached, outside, calls};
  };
  const std::vector<RangeUse> parts{use(10.0, 0, 5), use(25.0, 2, 4), use(5.0, 3, 3), use(23.0, 1, 8)};
  RangeUse forward = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) forward.add(parts[i]);
  RangeUse backward = parts.back();
  for (std::size_t i = parts.size() - 1; i-- > 0;) backward.add(parts[i]);
  for (const RangeUse& sum : {forward, backward}) {
    EXPECT_EQ(sum.reached, 25.0) << "5 and 25 are as far outside";
    EXPECT_EQ(sum.outside, 6);
    EXPECT_EQ(sum.calls, 20);
    EXPECT_EQ(sum.fraction_outside(), 0.3);
  }
  EXPECT_EQ(RangeUse{}.fraction_outside(), 0.0);
}

}  // namespace
}  // namespace spillway::hwmodels
