// Execution models as sums of their kernels: fitted, tables, logged iterations, and the choice of the model for a run.
#include "hwmodels/models/execution_models.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hwmodels/models/attending_model.hpp"
#include "hwmodels/models/elementwise_bytes.hpp"
#include "hwmodels/models/fitted_model.hpp"
#include "hwmodels/models/logged_models.hpp"
#include "hwmodels/models/roofline.hpp"

namespace spillway::hwmodels {
namespace {

using testing::HasSubstr;

double sum(const TimeShares& shares) { return shares.compute + shares.memory + shares.network + shares.host; }

/// Half a nanosecond of rounding, plus the effect of the order of a sum.
constexpr double kRounding = 0.501e-9;

void expect_seconds(Duration time, double seconds, const std::string& what = {}) {
  EXPECT_NEAR(to_seconds(time), seconds, kRounding) << what;
}

void expect_same(const IterationTime& a, const IterationTime& b, const std::string& what = {}) {
  EXPECT_EQ(a.before, b.before) << what;
  EXPECT_EQ(a.layer, b.layer) << what;
  EXPECT_EQ(a.after, b.after) << what;
  EXPECT_EQ(a.shares.compute, b.shares.compute) << what;
  EXPECT_EQ(a.shares.memory, b.shares.memory) << what;
  EXPECT_EQ(a.shares.network, b.shares.network) << what;
  EXPECT_EQ(a.shares.host, b.shares.host) << what;
}

/// The first problem that `call` throws as a ConfigError: "where: what (fix)".
std::string config_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    const Problem& problem = error.problems().front();
    return fmt::format("{}: {} ({})", problem.where, problem.what, problem.fix);
  }
  return "no ConfigError";
}

GpuProfile plain_gpu() {
  GpuProfile gpu;
  gpu.file.name = "test-gpu";
  gpu.file.error = "as its file says";
  gpu.memory = Bytes(80'000'000'000);
  gpu.peak_flops = 100e12;
  gpu.memory_bandwidth = BytesPerSecond(1e12);
  gpu.gemm_compute_efficiency = 0.5;
  gpu.gemm_memory_efficiency = 0.5;
  gpu.decode_attention_efficiency = 0.25;
  gpu.prefill_attention_efficiency = 0.25;
  gpu.kernel_overhead_seconds = 1e-6;
  gpu.attention_overhead_seconds = 2e-6;
  gpu.h2d = {BytesPerSecond(4e9), 2e-6};
  gpu.d2h = {BytesPerSecond(1e9), 3e-6};
  gpu.host_link_peak = BytesPerSecond(5e9);
  gpu.all_reduce = AllReduce{10e-6, BytesPerSecond(100e9)};
  gpu.sm_count = 108;
  return gpu;
}

GemmModel gemm_model() { return {108, 4e-6, 2.3e14, 1.6e12, 0.1, 60.0, 0.5, 4.0, {}}; }

/// Kernels of a layer, with residuals that change every time.
GpuProfile fitted_gpu() {
  GpuProfile gpu = plain_gpu();
  GemmModel gemm = gemm_model();
  gemm.residual = {{1.5, 1.0}, {1.5, 1.5}, {gemm_point(64, 1024, 1024), gemm_point(900, 2048, 512)}, {0.2, -0.15}};
  gpu.fitted.gemm = {{2, gemm, {}}};
  gpu.fitted.decode_attention =
      Fitted<DecodeAttentionModel>{{108,
                                    8e-6,
                                    1e-10,
                                    1.5e12,
                                    1e-6,
                                    3e-9,
                                    0.05,
                                    2e-6,
                                    2.0,
                                    false,
                                    {{4.0, 4.0}, {4.0, 4.0}, {decode_point(16.0, 512.0, 8, 4)}, {0.1}}},
                                   {}};
  gpu.fitted.prefill_attention = Fitted<PrefillAttentionModel>{
      {108, 9e-6, 1.2e12, 2e-6, 1e-6, 1.0, 4.0, false, {{4.0, 4.0}, {4.0, 4.0}, {{}}, {-0.2}}}, {}};
  return gpu;
}

LlmModel test_llm() {
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

const std::vector<PrefillChunk> kChunks{{Tokens(300), Tokens(0)}, {Tokens(37), Tokens(900)}};

BatchShape decode(std::int64_t sequences, std::int64_t context, std::int64_t longest = 0) {
  return {.decode_sequences = sequences,
          .decode_context = Tokens(context),
          .decode_longest = Tokens(longest),
          .chunks = {},
          .sampled_sequences = sequences};
}
BatchShape prefill() { return {.chunks = kChunks, .sampled_sequences = 1}; }
BatchShape mixed() {
  BatchShape shape = decode(20, 8000, 2000);
  shape.chunks = kChunks;
  shape.sampled_sequences = 21;
  return shape;
}

std::vector<BatchShape> shapes() {
  return {decode(1, 100), decode(64, 49'728), decode(64, 49'728, 9000),
          decode(21, 21), prefill(),          BatchShape{.chunks = kChunks},
          mixed()};
}

// Fitted kernels

/// fitted_model.hpp's sums from kernels evaluated one by one, without caching shapes.
struct PlainTimes {
  double before = 0.0;
  double layer = 0.0;
  double after = 0.0;
};

PlainTimes plain_fitted(const GpuProfile& gpu, const LlmModel& llm, std::int64_t tensor_parallel, double kv_bytes,
                        const BatchShape& shape, const OpScales& scales = {}) {
  const FittedKernels& fitted = gpu.fitted;
  const double bytes = real(llm.dtype_bytes);
  std::int64_t n = shape.decode_sequences;
  for (const PrefillChunk& chunk : shape.chunks) n += chunk.new_tokens.count();
  const auto gemm = [&](std::int64_t m, const Matrix& matrix, Bytes weights) {
    return GemmTime(fitted.gemm.front().model, matrix.outputs, matrix.inputs, real(weights.count()), bytes)
        .at(m)
        .seconds;
  };
  const auto moving = [&](double kernels, double moved) {
    const double launch = fitted.elementwise ? fitted.elementwise->model.launch_seconds : gpu.kernel_overhead_seconds;
    const double bandwidth =
        fitted.elementwise ? fitted.elementwise->model.bandwidth : fitted.gemm.front().model.bandwidth;
    return kernels * launch + moved / bandwidth;
  };
  const auto reduced = [&](double moved) {
    if (tensor_parallel == 1) return 0.0;
    if (fitted.all_reduce) return fitted.all_reduce->model.seconds(tensor_parallel, moved);
    const double p = real(tensor_parallel);
    return gpu.all_reduce->latency_seconds + 2.0 * (p - 1.0) / p * moved / gpu.all_reduce->bus_bandwidth.value();
  };
  const AttentionShape heads{llm.heads / tensor_parallel, std::max<std::int64_t>(1, llm.kv_heads / tensor_parallel),
                             llm.head_dim, bytes, kv_bytes};
  const DecodeAttentionTime decode_time(fitted.decode_attention->model, heads);
  const PrefillAttentionTime prefill_time(fitted.prefill_attention->model, heads,
                                          {fitted.decode_attention->model.bandwidth, real(gpu.l2_cache.count())});
  const double sequences = real(shape.decode_sequences);
  const double context = real(shape.decode_context.count());
  double longest = real(shape.decode_longest.count());
  if (longest == 0.0 && sequences > 0.0) longest = context / sequences;

  PlainTimes times;
  for (const Matrix& matrix : llm.layer_matrices(tensor_parallel)) {
    times.layer += gemm(n, matrix, llm.linear_bytes(matrix));
  }
  double attention = 0.0;
  if (sequences > 0.0) attention += decode_time.at(sequences, context, longest).seconds;
  if (!shape.chunks.empty()) attention += prefill_time.at(shape.chunks).seconds;
  if (fitted.mixed_attention && sequences > 0.0 && !shape.chunks.empty()) {
    const double share = fitted.mixed_attention->model.fused_share;
    const double fused =
        prefill_time.fused(shape.chunks, sequences, context, longest, fitted.mixed_attention->model.decodes).seconds;
    attention = (1.0 - share) * attention + share * fused;
  }
  const ElementwiseWork work = elementwise_work(llm, tensor_parallel, llm.ffn);
  const double hidden = real(n * llm.hidden) * bytes;
  times.layer += moving(work.kernels, real(n) * work.bytes_per_token) + 2.0 * reduced(hidden);
  times.before = moving(1.0, 2.0 * hidden) + reduced(hidden);
  times.after = moving(1.0, 4.0 * hidden);
  const std::int64_t s = shape.sampled_sequences;
  if (s > 0) {
    const Matrix head = llm.head_matrix(tensor_parallel);
    times.after += gemm(s, head, llm.head_bytes(head)) + moving(3.0, 12.0 * real(s * head.outputs)) +
                   0.5 * reduced(real(s * llm.vocabulary) * bytes);
  }
  times.before *= scales.gemm;
  times.layer = scales.gemm * times.layer + scales.attention * attention;
  times.after *= scales.gemm;
  return times;
}

void expect_plain_sum(const GpuProfile& gpu, const LlmModel& llm, std::int64_t tensor_parallel, std::int64_t kv_bytes,
                      const OpScales& scales = {}) {
  const auto model = make_fitted_model(gpu, llm, {}, tensor_parallel, kv_bytes, scales);
  EXPECT_EQ(model->layers(), llm.layers);
  for (const BatchShape& shape : shapes()) {
    const IterationTime time = model->iteration(shape);
    const PlainTimes plain = plain_fitted(gpu, llm, tensor_parallel, real(kv_bytes), shape, scales);
    const std::string what =
        fmt::format("{} decodes, {} chunks, {} GPUs", shape.decode_sequences, shape.chunks.size(), tensor_parallel);
    expect_seconds(time.before, plain.before, what);
    expect_seconds(time.layer, plain.layer, what);
    expect_seconds(time.after, plain.after, what);
    EXPECT_NEAR(sum(time.shares), plain.before + real(llm.layers) * plain.layer + plain.after, 1e-15) << what;
    EXPECT_EQ(time.shares.host, 0.0) << what;
    EXPECT_EQ(time.shares.network > 0.0, tensor_parallel > 1) << what;
  }
}

TEST(FittedModel, Iteration_WhenSummedKernelByKernel_ThenIsEqual) {
  for (const std::int64_t tensor_parallel : {1, 2, 8}) {
    for (const std::int64_t kv_bytes : {1, 2}) {
      expect_plain_sum(fitted_gpu(), test_llm(), tensor_parallel, kv_bytes);
    }
  }
}

TEST(FittedModel, Iteration_WhenElementwiseAndAllReduceAreFitted_ThenTakesThem) {
  GpuProfile gpu = fitted_gpu();
  gpu.fitted.elementwise = Fitted<ElementwiseModel>{{2.5e-6, 1.1e12}, {}};
  gpu.fitted.all_reduce = Fitted<AllReduceModel>{{{{2, {{{1e3, 20e-6}, {1e6, 40e-6}}}}}}, {}};
  gpu.all_reduce.reset();
  gpu.unknown = {"kernel_overhead"};
  gpu.kernel_overhead_seconds = 0.0;
  for (const std::int64_t tensor_parallel : {1, 2, 4}) expect_plain_sum(gpu, test_llm(), tensor_parallel, 2);
}

// Attention in one launch, in two, and in some of each; all-reduces and elementwise kernels belong to `gemm`.
TEST(FittedModel, Iteration_WhenTimesAreScaled_ThenEachPartIs) {
  GpuProfile gpu = fitted_gpu();
  gpu.fitted.elementwise = Fitted<ElementwiseModel>{{2.5e-6, 1.1e12}, {}};
  for (const double share : {0.0, 0.3, 1.0}) {
    gpu.fitted.mixed_attention = Fitted<MixedAttentionModel>{{share, {3e-6, 5e-7}}, {}};
    for (const OpScales& scales : {OpScales{.gemm = 1.05}, OpScales{.attention = 0.85},
                                   OpScales{.gemm = 0.95, .attention = 1.05, .copies = 3.0, .cpu = 7.0}}) {
      for (const std::int64_t tensor_parallel : {1, 2}) expect_plain_sum(gpu, test_llm(), tensor_parallel, 2, scales);
    }
  }
}

// 40 us of launch floor and 5 ms of CPU time, plus 8 sequences of 1 ms; CPU time is scaled by 1.5.
TEST(FittedModel, Iteration_WhenTheHostIsScaled_ThenItsSideTakesLonger) {
  const auto bare = make_fitted_model(fitted_gpu(), test_llm(), {}, 1, 2)->iteration(decode(8, 800));
  EngineProfile engine;
  engine.host_fixed_seconds = 5e-3;
  engine.host_per_sequence_seconds = 1e-3;
  engine.launch_floor_seconds = 100.0;
  const auto time = make_fitted_model(fitted_gpu(), test_llm(), engine, 1, 2, {.host = 1.5})->iteration(decode(8, 800));
  EXPECT_EQ(time.before, bare.before + Duration(7'500'000 + 12'000'000));
  EXPECT_EQ(time.layer, Duration(150'000'000'000));
  EXPECT_EQ(time.after, bare.after);
}

TEST(FittedModel, Iteration_WhenWeightsAreQuantised_ThenFewerBytesAreRead) {
  LlmModel llm = test_llm();
  llm.quantized = QuantizedLinear{.method = "test", .bits = 4};
  expect_plain_sum(fitted_gpu(), llm, 1, 2);
  const auto layer = [](const LlmModel& of) {
    return make_fitted_model(fitted_gpu(), of, {}, 1, 2)->iteration(decode(1, 100)).layer;
  };
  EXPECT_LT(layer(llm), layer(test_llm()));
}

TEST(FittedModel, Iteration_WhenCallsAreFused_ThenOneLaunchTakesBoth) {
  GpuProfile gpu = fitted_gpu();
  const Duration apart = make_fitted_model(gpu, test_llm(), {}, 1, 2)->iteration(mixed()).layer;
  gpu.fitted.mixed_attention = Fitted<MixedAttentionModel>{{0.0, {3e-6, 5e-7}}, {}};
  expect_plain_sum(gpu, test_llm(), 1, 2);
  EXPECT_EQ(make_fitted_model(gpu, test_llm(), {}, 1, 2)->iteration(mixed()).layer, apart);
  for (const double share : {0.3, 1.0}) {
    gpu.fitted.mixed_attention->model.fused_share = share;
    expect_plain_sum(gpu, test_llm(), 1, 2);
  }
  const auto fused = make_fitted_model(gpu, test_llm(), {}, 1, 2);
  EXPECT_NE(fused->iteration(mixed()).layer, apart);
  const auto two = make_fitted_model(fitted_gpu(), test_llm(), {}, 1, 2);
  expect_same(fused->iteration(prefill()), two->iteration(prefill()), "prefill alone");
  expect_same(fused->iteration(decode(64, 6400)), two->iteration(decode(64, 6400)), "decode alone");
}

// The longest of 64 sequences attends to 9000 tokens, twelve times the mean.
TEST(FittedModel, Iteration_WhenOneSequenceIsLong_ThenTakesLonger) {
  const auto model = make_fitted_model(fitted_gpu(), test_llm(), {}, 1, 2);
  const Duration even = model->iteration(decode(64, 48'000)).layer;
  EXPECT_EQ(model->iteration(decode(64, 48'000, 750)).layer, even) << "unknown: taken as the mean";
  EXPECT_EQ(model->iteration(decode(64, 48'000, 10)).layer, even) << "no less than the mean";
  EXPECT_GT(model->iteration(decode(64, 48'000, 9000)).layer, even);
}

TEST(FittedModel, Iteration_WhenRepeatedInAnyOrder_ThenTakesTheSameTime) {
  std::vector<BatchShape> all = shapes();
  // Beyond 65536 tokens nothing is cached, so alternate between two sizes.
  const std::array<PrefillChunk, 1> large{{{Tokens(70'000), Tokens(0)}}};
  const std::array<PrefillChunk, 1> larger{{{Tokens(80'000), Tokens(0)}}};
  const std::array<PrefillChunk, 1> edge{{{Tokens(65'536), Tokens(0)}}};
  for (const auto& chunks : {std::span(large), std::span(larger), std::span(edge)}) {
    all.push_back({.chunks = chunks, .sampled_sequences = 1});
  }
  all.push_back(decode(65'535, 65'535));
  all.push_back(decode(66'000, 66'000));
  std::vector<IterationTime> alone;
  alone.reserve(all.size());
  for (const BatchShape& shape : all) {
    alone.push_back(make_fitted_model(fitted_gpu(), test_llm(), {}, 2, 2)->iteration(shape));
  }
  const auto model = make_fitted_model(fitted_gpu(), test_llm(), {}, 2, 2);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < all.size(); ++i) order.insert(order.end(), {i, i});
  for (std::size_t i = all.size(); i-- > 0;) order.push_back(i);
  for (std::size_t i = 0; i < all.size(); ++i) order.push_back(i * 5 % all.size());
  for (const std::size_t i : order) expect_same(model->iteration(all[i]), alone[i], fmt::format("shape {}", i));
  EXPECT_NE(alone[7].layer, alone[8].layer);
}

TEST(FittedModel, Iteration_WhenNothingRuns_ThenTakesNoTime) {
  EngineProfile engine;
  engine.host_fixed_seconds = 1.0;
  const IterationTime time = make_fitted_model(fitted_gpu(), test_llm(), engine, 1, 2)->iteration({});
  EXPECT_EQ(time.before + time.layer + time.after, Duration(0));
}

// An engine with two launches takes the times of a profile without mixed calls, and compares none with their ranges.
TEST(FittedModel, Iteration_WhenTheEngineSplitsMixedAttention_ThenTheCallsAddUp) {
  GpuProfile gpu = fitted_gpu();
  gpu.fitted.mixed_attention = Fitted<MixedAttentionModel>{{1.0, {3e-6, 5e-7}}, {}};
  EngineProfile engine;
  const Duration fused = make_fitted_model(gpu, test_llm(), engine, 1, 2)->iteration(mixed()).layer;
  engine.splits_mixed_attention = true;
  const Duration apart = make_fitted_model(gpu, test_llm(), engine, 1, 2)->iteration(mixed()).layer;
  gpu.fitted.mixed_attention.reset();
  EXPECT_EQ(apart, make_fitted_model(gpu, test_llm(), {}, 1, 2)->iteration(mixed()).layer);
  EXPECT_NE(apart, fused);
}

// Attention alone keeps its time when all else takes half as long.
TEST(FittedModel, Iteration_WhenTheEngineCompiles_ThenAllButAttentionIsFaster) {
  EngineProfile engine;
  engine.non_attention_factor = 0.5;
  const auto times = [&](const EngineProfile& with, const OpScales& scales) {
    return make_fitted_model(fitted_gpu(), test_llm(), with, 1, 2, scales)->iteration(decode(8, 800));
  };
  const IterationTime compiled = times(engine, {});
  OpScales half;
  half.gemm = 0.5;
  const IterationTime scaled = times({}, half);
  EXPECT_EQ(compiled.layer, scaled.layer);
  EXPECT_EQ(compiled.after, scaled.after);
  EXPECT_LT(compiled.layer, times({}, {}).layer);
}

// 40 us of launch floor more than the layer; 5 ms of CPU time that nothing overlaps.
TEST(FittedModel, Iteration_WhenTheEngineHasAHostSide_ThenItIsAdded) {
  const auto bare = make_fitted_model(fitted_gpu(), test_llm(), {}, 1, 2)->iteration(decode(8, 800));
  EngineProfile engine;
  engine.host_fixed_seconds = 5e-3;
  engine.launch_floor_seconds = to_seconds(bare.layer) + 40e-6;
  const auto time = make_fitted_model(fitted_gpu(), test_llm(), engine, 1, 2)->iteration(decode(8, 800));
  EXPECT_EQ(time.before, bare.before + Duration(5'000'000));
  EXPECT_EQ(time.layer, bare.layer + Duration(40'000));
  EXPECT_EQ(time.after, bare.after);
}

/// A profile in which the launch of a multiplication takes as many milliseconds as its format has bytes per number.
GpuProfile with_formats(const std::vector<std::int64_t>& formats) {
  GpuProfile gpu = fitted_gpu();
  gpu.fitted.gemm.clear();
  for (const std::int64_t format : formats) {
    GemmModel model = gemm_model();
    model.launch_seconds = 1e-3 * real(format);
    gpu.fitted.gemm.push_back({format, model, {}});
  }
  return gpu;
}

// Four multiplications in a layer.
TEST(FittedModel, Iteration_WhenNumberFormatsDiffer_ThenTakesTheModelsOwnElseTwoBytes) {
  LlmModel llm = test_llm();
  const auto launches = [&](const std::vector<std::int64_t>& formats, std::int64_t dtype_bytes) {
    llm.dtype_bytes = dtype_bytes;
    const Duration layer = make_fitted_model(with_formats(formats), llm, {}, 1, 2)->iteration(decode(1, 1)).layer;
    return std::round(to_seconds(layer) * 1e3) / 4.0;
  };
  EXPECT_EQ(launches({1, 2, 4}, 2), 2.0);
  EXPECT_EQ(launches({1, 2, 4}, 4), 4.0);
  EXPECT_EQ(launches({1, 2}, 4), 2.0);
  EXPECT_EQ(launches({1, 2}, 1), 1.0);
  llm.dtype_bytes = 2;
  EXPECT_THAT(config_error([&] {
                static_cast<void>(make_fitted_model(with_formats({1, 4}), llm, {}, 1, 2));
              }),
              HasSubstr("needs fitted gemm in 2-byte numbers"));
}

/// with_formats({2}), and fp8 multiplications with a launch of 5 ms, of which 1 ms quantises x.
GpuProfile with_fp8() {
  GpuProfile gpu = with_formats({2});
  GemmModel model = gemm_model();
  model.launch_seconds = 4e-3;
  model.quantise = QuantiseModel{1e-3, 0.0, 0.0};
  gpu.fitted.gemm.push_back({2, model, {}, Quantization::fp8});
  return gpu;
}

// Four multiplications in a layer and the LM head after them. With fusing, only the output projection's x is quantised.
TEST(FittedModel, Iteration_WhenLinearLayersAreQuantised_ThenTheirKernelsMultiply) {
  LlmModel llm = test_llm();
  llm.quantized = QuantizedLinear{.method = "fp8", .kernel = Quantization::fp8, .bits = 8};
  EngineProfile engine;
  const auto milliseconds = [&](const GpuProfile& gpu, bool head) {
    const IterationTime time = make_fitted_model(gpu, llm, engine, 1, 2)->iteration(decode(1, 1));
    return std::round(to_seconds(head ? time.after : time.layer) * 1e3);
  };
  EXPECT_EQ(milliseconds(with_fp8(), false), 4 * 5.0);
  EXPECT_EQ(milliseconds(with_fp8(), true), 2.0) << "the head stays in 16 bits";
  EXPECT_EQ(milliseconds(with_formats({2}), false), 4 * 2.0) << "without such kernels";
  llm.quantized->kernel = Quantization::fp8_block;
  EXPECT_EQ(milliseconds(with_fp8(), false), 4 * 2.0) << "of another format";
  llm.quantized->kernel = Quantization::fp8;
  llm.quantized->head = true;
  EXPECT_EQ(milliseconds(with_fp8(), true), 5.0);
  engine.fuses_quantisation = true;
  EXPECT_EQ(milliseconds(with_fp8(), false), 4 * 4.0 + 1.0);
  EXPECT_EQ(milliseconds(with_fp8(), true), 5.0) << "nothing before the head writes fp8";
}

// One launch of attention in each layer.
TEST(FittedModel, Iteration_WhenKvIsInOneByte_ThenItsAttentionIsTaken) {
  GpuProfile gpu = fitted_gpu();
  gpu.fitted.decode_attention_fp8_kv = gpu.fitted.decode_attention;
  gpu.fitted.decode_attention_fp8_kv->model.launch_seconds += 3e-3;
  gpu.fitted.prefill_attention_fp8_kv = gpu.fitted.prefill_attention;
  gpu.fitted.prefill_attention_fp8_kv->model.launch_seconds += 7e-3;
  const auto layer = [&](std::int64_t kv_bytes, const BatchShape& shape) {
    return to_seconds(make_fitted_model(gpu, test_llm(), {}, 1, kv_bytes)->iteration(shape).layer) * 1e3;
  };
  EXPECT_EQ(std::round(layer(1, decode(8, 800)) - layer(2, decode(8, 800))), 3.0);
  EXPECT_EQ(std::round(layer(1, prefill()) - layer(2, prefill())), 7.0);
}

// Two all-reduces in a layer.
TEST(FittedModel, Iteration_WhenTheEngineHasItsOwnAllReduce_ThenItsTableIsTaken) {
  GpuProfile gpu = fitted_gpu();
  gpu.fitted.all_reduce = Fitted<AllReduceModel>{{{{2, {{{1.0, 9e-3}, {1e9, 9e-3}}}}}}, {}};
  EngineProfile engine;
  engine.custom_all_reduce = true;
  const auto layer = [&] {
    return std::round(to_seconds(make_fitted_model(gpu, test_llm(), engine, 2, 2)->iteration(decode(8, 800)).layer) *
                      1e3);
  };
  EXPECT_EQ(layer(), 2 * 9.0) << "NCCL's, where the GPU has no other table";
  gpu.fitted.all_reduce_custom = Fitted<AllReduceModel>{{{{2, {{{1.0, 4e-3}, {1e9, 4e-3}}}}}}, {}};
  EXPECT_EQ(layer(), 2 * 4.0);
  engine.custom_all_reduce = false;
  EXPECT_EQ(layer(), 2 * 9.0);
}

TEST(FittedModel, Make_WhenAKernelIsMissing_ThenNamesIt) {
  const auto error = [](const GpuProfile& gpu, std::int64_t tensor_parallel = 1) {
    return config_error([&] { static_cast<void>(make_fitted_model(gpu, test_llm(), {}, tensor_parallel, 2)); });
  };
  EXPECT_EQ(error(fitted_gpu()), "no ConfigError");
  GpuProfile gpu = fitted_gpu();
  gpu.fitted.gemm.clear();
  EXPECT_EQ(error(gpu),
            "latency_model: latency_model=fitted needs fitted gemm in 2-byte numbers; test-gpu has none (use "
            "latency_model=auto, or fit the missing kernels with calibrate fit)");
  gpu = fitted_gpu();
  gpu.fitted.decode_attention.reset();
  EXPECT_THAT(error(gpu), HasSubstr("needs fitted decode_attention;"));
  gpu = fitted_gpu();
  gpu.fitted.prefill_attention.reset();
  EXPECT_THAT(error(gpu), HasSubstr("needs fitted prefill_attention;"));
  gpu = fitted_gpu();
  gpu.unknown = {"kernel_overhead"};
  EXPECT_THAT(error(gpu),
              HasSubstr("test-gpu does not state kernel_overhead, which the time of elementwise kernels requires"));
  gpu = fitted_gpu();
  gpu.all_reduce.reset();
  EXPECT_EQ(error(gpu), "no ConfigError");
  EXPECT_THAT(error(gpu, 2), HasSubstr("test-gpu has no figures for all-reduce, which several GPUs need"));
  EXPECT_THAT(error(gpu, 3), HasSubstr("tensor_parallel=3 does not split test-llm"));
}

// Layer tables

/// Attention in seconds: linear in each of its four arguments, so interpolation and extrapolation are exact.
double attention_seconds(double chunk, double chunk_context, double decodes, double decode_context) {
  return 1e-6 * (5.0 + chunk * (0.1 + chunk_context / 10'000.0) + decodes * decode_context / 100.0);
}

LayerTables tables() {
  LayerTables tables;
  tables.model = "test-llm";
  // Through (1, 10), (101, 20) and (201, 50) us.
  tables.per_token["qkv_proj"] = {{{1.0, 10e-6}, {101.0, 20e-6}, {201.0, 50e-6}}};
  tables.per_token["o_proj"] = {{{1.0, 1e-6}, {1001.0, 1001e-6}}};  // 1 us a token
  tables.per_token["gate_up_proj"] = {{{1.0, 30e-6}}};
  tables.per_token["down_proj"] = {{{1.0, 15e-6}}};
  tables.per_token["act_fn"] = {{{1.0, 3e-6}}};
  tables.per_token["rotary_emb"] = {{{1.0, 4e-6}}};
  tables.per_token["layernorm"] = {{{1.0, 2e-6}}};
  tables.per_token["embedding"] = {{{1.0, 6e-6}, {1001.0, 1006e-6}}};  // 5 us and 1 us a token
  tables.per_token["final_layernorm"] = {{{1.0, 7e-6}}};
  tables.per_sequence["lm_head"] = {{{1.0, 100e-6}, {11.0, 200e-6}}};  // 90 us and 10 us a sequence
  tables.per_sequence["sampler"] = {{{1.0, 40e-6}}};
  tables.chunk_axis = {0.0, 100.0, 200.0};
  tables.chunk_context_axis = {0.0, 1000.0};
  tables.decodes_axis = {0.0, 1.0, 11.0};
  tables.decode_context_axis = {100.0, 200.0};
  for (const double chunk : tables.chunk_axis) {
    for (const double chunk_context : tables.chunk_context_axis) {
      for (const double decodes : tables.decodes_axis) {
        for (const double context : tables.decode_context_axis) {
          const bool nothing = chunk == 0.0 && decodes == 0.0;
          tables.attention_seconds.push_back(nothing ? -1.0
                                                     : attention_seconds(chunk, chunk_context, decodes, context));
        }
      }
    }
  }
  return tables;
}

GpuProfile table_gpu() {
  GpuProfile gpu = plain_gpu();
  gpu.fitted.layers = Fitted<LayerTables>{tables(), {}};
  return gpu;
}

IterationTime table_time(const BatchShape& shape, const LlmModel& llm = test_llm()) {
  return make_table_model(table_gpu(), llm, {}, 1)->iteration(shape);
}

// Five decodes that attend on the CPU: the GPU computes as many tokens as for any five, and attends to nothing.
TEST(CpuAttention, LeavesTheGpuItsLinearLayers) {
  const BatchShape on_cpu{.cpu_sequences = 5, .cpu_context = Tokens(5'000), .sampled_sequences = 5};
  const BatchShape on_gpu = decode(5, 5'000);
  const auto check = [&](const ExecutionModel& model) {
    const IterationTime cpu = model.iteration(on_cpu);
    const IterationTime gpu = model.iteration(on_gpu);
    EXPECT_EQ(cpu.attention, Duration(0));
    EXPECT_GT(gpu.attention, Duration(0));
    EXPECT_NEAR(to_seconds(cpu.layer), to_seconds(gpu.layer - gpu.attention), 2e-9) << "rounded once each";
  };
  check(*make_fitted_model(fitted_gpu(), test_llm(), {}, 1, 2));
  check(*make_table_model(table_gpu(), test_llm(), {}, 1));
}

// 1,000 tokens are 63 blocks of 16: 16 for each of 4 threads, 1,024 tokens in all. A token has 2 x 100 x 2 = 400 bytes:
// 409.6 us at 1 GB/s. Launch 77 + 600 us. 3 sequences: (300 + 200) x 2 bytes of queries, keys and values each, and
// 4 x 300 bytes of outputs. An OpScales::cpu of 2 doubles the attention and the 77 us, not the 600 us of kernels.
TEST(CpuAttention, ByHand) {
  const CpuAttention attention{.bandwidth = 1e9,
                               .call_seconds = 77e-6,
                               .kernel_launch_seconds = 600e-6,
                               .threads = 4,
                               .query_width = 300,
                               .kv_width = 100,
                               .element_bytes = 2,
                               .block_tokens = Tokens(16)};
  const auto model = [&](const OpScales& scales) {
    return make_attending_model(make_fitted_model(fitted_gpu(), test_llm(), {}, 1, 2), attention, scales)
        ->cpu_attention(3, Tokens(1000));
  };
  EXPECT_EQ(model({}).attention, Duration(409'600));
  EXPECT_EQ(model({}).launch, Duration(677'000));
  EXPECT_EQ(model({}).kv, Bytes(400'000));
  EXPECT_EQ(model({}).queries, Bytes(3'000));
  EXPECT_EQ(model({}).outputs, Bytes(3'600));
  EXPECT_EQ(model({.cpu = 2.0}).attention, Duration(819'200));
  EXPECT_EQ(model({.cpu = 2.0}).launch, Duration(754'000));
  EXPECT_EQ(model({.host = 2.0}).launch, Duration(1'277'000));
}

// 51 sequences of 150 tokens: qkv 10 + 50 / 10 = 15 us, o 51, the others 30 + 15 + 3 + 4, two norms 4; attention
// 5 + 51 * 1.5 = 81.5 us: 203.5. Before: 56. After: 7 + 90 + 510 + 40.
TEST(TableModel, Iteration_WhenBetweenMeasuredPoints_ThenInterpolates) {
  const IterationTime time = table_time(decode(51, 7650));
  EXPECT_EQ(time.before, Duration(56'000));
  EXPECT_EQ(time.layer, Duration(203'500));
  EXPECT_EQ(time.after, Duration(647'000));
}

// 301 tokens: qkv goes on at 0.3 us a token, 80 us; o 301; 52 and 4 as before. Attention of 301 tokens behind 2000,
// beyond both axes: 5 + 301 * 0.3 = 95.3 us. Nothing is sampled.
TEST(TableModel, Iteration_WhenBeyondMeasuredPoints_ThenTheLastLinesGoOn) {
  const std::array<PrefillChunk, 1> chunks{{{Tokens(301), Tokens(2000)}}};
  const IterationTime time = table_time({.chunks = chunks});
  EXPECT_EQ(time.layer, Duration(80'000 + 301'000 + 52'000 + 4'000 + 95'300));
  EXPECT_EQ(time.before, Duration(306'000));
  EXPECT_EQ(time.after, Duration(7'000));
}

// The shortest call of the grid, one decode of 100, takes 6 us. Chunks of 50 tokens, which counts as the smallest
// measured 100, behind 0 and of 150 behind 1000 take 15 and 35 us alone: 6 + 9 + 29 = 44. The decodes add 6 * 120 / 100
// = 7.2 to one chunk of 200 behind (150 * 1000) / 200 = 750. qkv of 206 tokens 51.5, o 206.
TEST(TableModel, Iteration_WhenSeveralChunksAndDecodesMix_ThenEachChunkTakesItsTimeAndTheDecodesAddTheirs) {
  const std::array<PrefillChunk, 2> chunks{{{Tokens(50), Tokens(0)}, {Tokens(150), Tokens(1000)}}};
  BatchShape shape = decode(6, 720);
  shape.chunks = chunks;
  const IterationTime time = table_time(shape);
  EXPECT_EQ(time.layer, Duration(51'500 + 206'000 + 52'000 + 4'000 + 51'200));
  shape.decode_longest = Tokens(500);
  EXPECT_EQ(table_time(shape).layer, time.layer) << "the tables have equal contexts";
}

// Four norms instead of two: 4 us more.
TEST(TableModel, Iteration_WhenTheModelHasMoreNorms_ThenEachCounts) {
  LlmModel llm = test_llm();
  llm.layer_norms = 4;
  EXPECT_EQ(table_time(decode(51, 7650), llm).layer, Duration(207'500));
}

// Of 51 tokens o doubles with the tokens (compute); qkv grows from 15 to 20.3, gate_up and down not at all (memory).
TEST(TableModel, Shares_WhenAMultiplicationGrowsWithItsTokens_ThenItIsArithmetic) {
  const IterationTime time = table_time(decode(51, 7650));
  EXPECT_NEAR(time.shares.compute, 3 * 51e-6, 1e-15);
  EXPECT_NEAR(time.shares.memory, 3 * 152.5e-6 + 56e-6 + 647e-6, 1e-15);
}

TEST(TableModel, Iteration_WhenRepeatedInAnyOrder_ThenTakesTheSameTime) {
  const auto model = make_table_model(table_gpu(), test_llm(), {}, 1);
  for (const BatchShape& shape : {decode(5, 500), prefill(), decode(5, 500), decode(5, 900), mixed(), prefill()}) {
    expect_same(model->iteration(shape), table_time(shape));
  }
}

// The kernels that may be missing take 2 * 2 + 4 + 3 us of a layer.
TEST(TableModel, Iteration_WhenAKernelHasNoTable_ThenItTakesNoTime) {
  GpuProfile gpu = table_gpu();
  for (const char* kernel : {"act_fn", "rotary_emb", "layernorm", "embedding", "final_layernorm"}) {
    gpu.fitted.layers->model.per_token.erase(kernel);
  }
  gpu.fitted.layers->model.per_sequence.clear();
  const IterationTime time = make_table_model(gpu, test_llm(), {}, 1)->iteration(decode(51, 7650));
  EXPECT_EQ(time.before, Duration(0));
  EXPECT_EQ(time.layer, Duration(203'500 - 11'000));
  EXPECT_EQ(time.after, Duration(0));
}

// The first of these by parts: 122 us of kernels and 81.5 of attention in a layer, 56 us before, 647 after.
TEST(TableModel, Iteration_WhenTimesAreScaled_ThenEachPartIs) {
  const OpScales scales{.gemm = 2.0, .attention = 3.0, .copies = 5.0, .host = 7.0};
  const IterationTime time = make_table_model(table_gpu(), test_llm(), {}, 1, scales)->iteration(decode(51, 7650));
  EXPECT_EQ(time.before, Duration(2LL * 56'000));
  EXPECT_EQ(time.layer, Duration(2 * 122'000 + 3 * 81'500));
  EXPECT_EQ(time.after, Duration(2LL * 647'000));
}

TEST(TableModel, Make_WhenATableIsMissing_ThenSaysWhich) {
  const auto error = [](const GpuProfile& gpu, const LlmModel& llm = test_llm(), std::int64_t tensor_parallel = 1) {
    return config_error([&] { static_cast<void>(make_table_model(gpu, llm, {}, tensor_parallel)); });
  };
  EXPECT_EQ(error(table_gpu()), "no ConfigError");
  EXPECT_THAT(error(plain_gpu()), HasSubstr("latency_model=tables needs layer tables; test-gpu has none"));
  for (const char* kernel : {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}) {
    GpuProfile gpu = table_gpu();
    gpu.fitted.layers->model.per_token.erase(kernel);
    EXPECT_THAT(error(gpu), HasSubstr(fmt::format("the layer tables of test-gpu lack {} ", kernel)));
  }
  GpuProfile gpu = table_gpu();
  gpu.fitted.layers->model.attention_seconds.clear();
  EXPECT_THAT(error(gpu), HasSubstr("the layer tables of test-gpu lack attention "));
  EXPECT_THAT(error(table_gpu(), test_llm(), 2), HasSubstr("are of one GPU, not of tensor_parallel=2"));
  LlmModel other = test_llm();
  other.file.name = "other-llm";
  EXPECT_THAT(error(table_gpu(), other), HasSubstr("were measured on test-llm, not on other-llm (use model=test-llm"));
  gpu = table_gpu();
  gpu.fitted.layers->model.model.clear();
  EXPECT_EQ(error(gpu, other), "no ConfigError") << "nobody knows whose they are";
}

// Logged iterations

GpuProfile logged_gpu() {
  GpuProfile gpu = plain_gpu();
  gpu.fitted.iteration = Fitted<IterationModel>{{1e-3, 1e-6, 10e-9, 1e-9}, {}};
  return gpu;
}

// 3 decodes of 600 tokens in all, chunks of 100 behind 50 and of 10: 113 tokens that attend to 600 + 150 + 10 = 760;
// 100 (50 + 50) + 10 * 5 = 10,050 pairs. 1000 + 113 + 7.6 + 10.05 = 1130.65 us over three layers.
TEST(IterationModel, Iteration_WhenByHand_ThenIsOnTheLine) {
  const std::array<PrefillChunk, 2> chunks{{{Tokens(100), Tokens(50)}, {Tokens(10), Tokens(0)}}};
  BatchShape shape = decode(3, 600);
  shape.chunks = chunks;
  const auto model = make_iteration_model(logged_gpu(), test_llm(), {});
  EXPECT_EQ(model->layers(), 3);
  const IterationTime time = model->iteration(shape);
  EXPECT_EQ(time.before, Duration(0));
  EXPECT_EQ(time.layer, Duration(376'883));
  EXPECT_EQ(time.after, Duration(0));
  EXPECT_NEAR(time.shares.compute, 10.05e-6, 1e-15);
  EXPECT_NEAR(time.shares.memory, 1120.6e-6, 1e-15);
  EXPECT_EQ(model->iteration({}).layer, Duration(0));
}

// The fixed 1000 us and the 113 of tokens twice, the 7.6 and 10.05 of context and pairs ten times: 2402.5 us over three
// layers.
TEST(IterationModel, Iteration_WhenTimesAreScaled_ThenEachTermIs) {
  const std::array<PrefillChunk, 2> chunks{{{Tokens(100), Tokens(50)}, {Tokens(10), Tokens(0)}}};
  BatchShape shape = decode(3, 600);
  shape.chunks = chunks;
  const OpScales scales{.gemm = 2.0, .attention = 10.0, .host = 7.0};
  const IterationTime time = make_iteration_model(logged_gpu(), test_llm(), {}, scales)->iteration(shape);
  EXPECT_EQ(time.layer, Duration(800'833));
}

// The log already includes the CPU time.
TEST(IterationModel, Iteration_WhenTheEngineHasAHostSide_ThenNothingIsAdded) {
  EngineProfile engine;
  engine.host_fixed_seconds = 1.0;
  engine.host_per_sequence_seconds = 1.0;
  engine.launch_floor_seconds = 1.0;
  for (const BatchShape& shape : shapes()) {
    expect_same(make_iteration_model(logged_gpu(), test_llm(), engine)->iteration(shape),
                make_iteration_model(logged_gpu(), test_llm(), {})->iteration(shape));
  }
}

TEST(IterationModel, Make_WhenNoLogWasFitted_ThenSaysSo) {
  EXPECT_THAT(config_error([] { static_cast<void>(make_iteration_model(plain_gpu(), test_llm(), {})); }),
              HasSubstr("latency_model=iterations needs a fit of logged iterations; test-gpu has none"));
}

// Which model

/// Everything together: tables of test-llm, kernels and logged iterations.
GpuProfile whole_gpu() {
  GpuProfile gpu = fitted_gpu();
  gpu.fitted.layers = table_gpu().fitted.layers;
  gpu.fitted.iteration = logged_gpu().fitted.iteration;
  return gpu;
}

LlmModel other_llm() {
  LlmModel llm = test_llm();
  llm.file.name = "other-llm";
  return llm;
}

TEST(ExecutionModels, Auto_WhenTablesAreOfThisModelAndOneGpu_ThenTakesThem) {
  EXPECT_EQ(resolved_latency_model(whole_gpu(), test_llm(), {}), "tables");
  EXPECT_EQ(resolved_latency_model(whole_gpu(), other_llm(), {}), "fitted");
  EXPECT_EQ(resolved_latency_model(whole_gpu(), test_llm(), {.parallelism = 2}), "fitted");
  GpuProfile gpu = whole_gpu();
  gpu.fitted.layers->model.model.clear();
  EXPECT_EQ(resolved_latency_model(gpu, other_llm(), {}), "fitted") << "nobody knows whose they are";
  EXPECT_EQ(resolved_latency_model(gpu, other_llm(), {"tables"}), "tables");
}

TEST(ExecutionModels, Auto_WhenTablesLackAKernel_ThenTakesWhatWorks) {
  for (const char* kernel : {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}) {
    GpuProfile gpu = whole_gpu();
    gpu.fitted.layers->model.per_token.erase(kernel);
    EXPECT_EQ(resolved_latency_model(gpu, test_llm(), {}), "fitted") << kernel;
  }
  GpuProfile gpu = whole_gpu();
  gpu.fitted.layers->model.attention_seconds.clear();
  EXPECT_EQ(resolved_latency_model(gpu, test_llm(), {}), "fitted");
}

TEST(ExecutionModels, Auto_WhenKernelsAreMissing_ThenTakesLoggedIterationsElseTheRoofline) {
  GpuProfile gpu = whole_gpu();
  gpu.fitted.layers.reset();
  EXPECT_EQ(resolved_latency_model(gpu, test_llm(), {}), "fitted");
  gpu.fitted.prefill_attention.reset();
  EXPECT_EQ(resolved_latency_model(gpu, test_llm(), {}), "roofline") << "nobody knows whose iterations were logged";
  gpu.fitted.iteration->model.model = "test-llm";
  EXPECT_EQ(resolved_latency_model(gpu, test_llm(), {}), "iterations");
  EXPECT_EQ(resolved_latency_model(gpu, other_llm(), {}), "roofline");
  EXPECT_EQ(resolved_latency_model(gpu, test_llm(), {.parallelism = 2}), "roofline");
  gpu.fitted.iteration.reset();
  EXPECT_EQ(resolved_latency_model(gpu, test_llm(), {}), "roofline");
  EXPECT_EQ(resolved_latency_model(plain_gpu(), test_llm(), {}), "roofline");
}

TEST(ExecutionModels, Make_WhenNamed_ThenIsThatModel) {
  const GpuProfile gpu = whole_gpu();
  const EngineProfile engine;
  const auto time = [&](const char* name, std::int64_t tensor_parallel = 1, std::int64_t kv_dtype_bytes = 2) {
    EXPECT_TRUE(std::string(name) == "auto" || resolved_latency_model(gpu, test_llm(), {name}) == name);
    return make_execution_model(gpu, test_llm(), engine, {name, tensor_parallel, kv_dtype_bytes})->iteration(mixed());
  };
  expect_same(time("fitted"), make_fitted_model(gpu, test_llm(), engine, 1, 2)->iteration(mixed()));
  expect_same(time("fitted", 2, 1), make_fitted_model(gpu, test_llm(), engine, 2, 1)->iteration(mixed()));
  expect_same(time("tables"), make_table_model(gpu, test_llm(), engine, 1)->iteration(mixed()));
  expect_same(time("auto"), time("tables"));
  expect_same(time("iterations"), make_iteration_model(gpu, test_llm(), engine)->iteration(mixed()));
  expect_same(time("roofline"), make_roofline(gpu, test_llm(), engine, 1, 2)->iteration(mixed()));
  expect_same(time("roofline", 2, 1), make_roofline(gpu, test_llm(), engine, 2, 1)->iteration(mixed()));
  // The analytic model does not use the fits.
  expect_same(time("roofline"), make_roofline(plain_gpu(), test_llm(), engine, 1, 2)->iteration(mixed()));
  std::vector<Duration> layers;
  for (const char* name : {"fitted", "tables", "iterations", "roofline"}) layers.push_back(time(name).layer);
  std::sort(layers.begin(), layers.end());
  EXPECT_EQ(std::adjacent_find(layers.begin(), layers.end()), layers.end()) << "four different models";
}

TEST(ExecutionModels, Make_WhenNamedWithoutData_ThenIsRefused) {
  const auto error = [](const GpuProfile& gpu, const char* name) {
    return config_error([&] { static_cast<void>(make_execution_model(gpu, test_llm(), {}, {name})); });
  };
  EXPECT_THAT(error(plain_gpu(), "fitted"), HasSubstr("latency_model=fitted needs"));
  EXPECT_THAT(error(plain_gpu(), "tables"), HasSubstr("latency_model=tables needs"));
  EXPECT_THAT(error(plain_gpu(), "iterations"), HasSubstr("latency_model=iterations needs"));
  GpuProfile gpu = plain_gpu();
  for (const char* fact :
       {"peak_flops", "memory_bandwidth", "gemm_compute_efficiency", "gemm_memory_efficiency",
        "decode_attention_efficiency", "prefill_attention_efficiency", "kernel_overhead", "attention_overhead"}) {
    gpu.unknown = {fact};
    for (const char* name : {"roofline", "auto"}) {
      EXPECT_THAT(error(gpu, name), HasSubstr(fmt::format("does not state {}, which latency_model=roofline", fact)));
    }
  }
  gpu.unknown = {"l2_cache"};
  EXPECT_EQ(error(gpu, "auto"), "no ConfigError");
}

TEST(ExecutionModels, Validity_WhenAModelWasJudged_ThenTellsItsError) {
  GpuProfile gpu = whole_gpu();
  gpu.fitted.layers->record.held_out = {12, 0.0123, 0.0456, 0.0};
  gpu.fitted.iteration->record.held_out = {34, 0.02, 0.05, 0.0};
  gpu.fitted.gemm[0].record.held_out = {56, 0.03, 0.06, 0.0};
  gpu.fitted.gemm[0].record.roofline = ErrorSummary{78, 0.3, 0.6, 0.0};
  gpu.fitted.layers->record.held_out_by = "every second size";
  EXPECT_EQ(validity_text(gpu, "tables"), "layer tables of test-llm: 1.2% / 4.6% (n = 12) (every second size)");
  EXPECT_EQ(validity_text(gpu, "iterations"), "logged iterations of an unstated model: 2.0% / 5.0% (n = 34)");
  gpu.fitted.iteration->record.held_out = {};
  gpu.fitted.iteration->model.model = "test-llm";
  EXPECT_EQ(validity_text(gpu, "iterations"), "logged iterations of test-llm: no row was held out");
  EXPECT_THAT(validity_text(gpu, "fitted"), HasSubstr("gemm 3.0% / 6.0% (n = 56)"));
  EXPECT_EQ(validity_text(gpu, "roofline"),
            "analytic model, median / p95 of |simulated/measured - 1|: gemm 30.0% / 60.0% (n = 78)");
  gpu.fitted.gemm[0].record.source_kind = "borrowed";
  const std::string unjudged = "analytic model, uncalibrated, +-30%: not compared with any kernel of this GPU";
  EXPECT_EQ(validity_text(gpu, "roofline"), unjudged) << "the lender's rows judge the lender";
  gpu.fitted_from = "lender";
  EXPECT_EQ(validity_text(gpu, "fitted"), "as its file says");
  EXPECT_EQ(validity_text(plain_gpu(), "roofline"), "as its file says");
}

// Copies

// A loop of copies to the device: 5 us and 2e9 bytes/s; below 4096 bytes as measured. One batched call from it.
GpuProfile copy_gpu() {
  GpuProfile gpu = whole_gpu();
  CopyModel many{true, CopyMechanism::many, 5e-6, 2e9, {{{1024.0, 4e-6}, {4096.0, 0.5e-6}}}};
  gpu.fitted.copies.push_back({std::move(many), {}});
  gpu.fitted.copies.push_back({{false, CopyMechanism::batched, 1e-6, 8e9, {}}, {}});
  return gpu;
}

// The links of plain_gpu(): 2 us and 4e9 bytes/s to the device, 3 us and 1e9 back.
TEST(FittedCopies, Copy_WhenTheMechanismIsFitted_ThenTakesItElseTheLink) {
  struct Case {
    Stream direction;
    CopyMechanism mechanism;
    std::int64_t copies;
    std::int64_t bytes;
    std::int64_t launch;  // ns
    std::int64_t transfer;
    std::int64_t start;  // of the thread that starts the copies
  };
  const std::vector<Case> cases{
      // 3 copies of 1e6 bytes: 3 * 5 us, 3e6 bytes at 2e9.
      {Stream::h2d, CopyMechanism::many, 3, 3'000'000, 15'000, 1'500'000, 15'000},
      // 10 of 1024 bytes take 4 us each, 5.12 us of which are the bytes'.
      {Stream::h2d, CopyMechanism::many, 10, 10'240, 40'000 - 5'120, 5'120, 40'000},
      // 10 of 4096 bytes take 0.5 us each: less than their bytes at 2e9.
      {Stream::h2d, CopyMechanism::many, 10, 40'960, 0, 5'000, 5'000},
      {Stream::d2h, CopyMechanism::batched, 3, 3'000'000, 3'000, 375'000, 3'000},
      // No fit of the direction, or of the mechanism.
      {Stream::d2h, CopyMechanism::many, 3, 3'000'000, 9'000, 3'000'000, 9'000},
      {Stream::h2d, CopyMechanism::batched, 3, 3'000'000, 6'000, 750'000, 6'000},
      {Stream::h2d, CopyMechanism::kernel, 3, 3'000'000, 6'000, 750'000, 0},
      {Stream::h2d, CopyMechanism::many, 0, 0, 0, 0, 0},
  };
  for (const char* name : {"fitted", "tables", "iterations", "roofline"}) {
    const auto model = make_execution_model(copy_gpu(), test_llm(), {}, {name});
    for (const Case& one : cases) {
      const CopyTime time = model->copy(one.direction, one.copies, Bytes(one.bytes), one.mechanism);
      EXPECT_EQ(time.launch, Duration(one.launch)) << name << " " << one.copies << " x " << one.bytes;
      EXPECT_EQ(time.transfer, Duration(one.transfer)) << name << " " << one.copies << " x " << one.bytes;
      EXPECT_EQ(model->copy_start(one.direction, one.copies, Bytes(one.bytes), one.mechanism), Duration(one.start))
          << name << " " << one.copies << " x " << one.bytes;
    }
    EXPECT_THROW(static_cast<void>(model->copy(Stream::compute, 1, Bytes(1), CopyMechanism::many)), InvariantError);
    // Scales of other classes do not change copies.
    const auto slow = make_execution_model(copy_gpu(), test_llm(), {}, {name, 1, 2, {2.0, 2.0, 3.0, 2.0, 2.0}});
    for (const Case& one : cases) {
      const CopyTime time = slow->copy(one.direction, one.copies, Bytes(one.bytes), one.mechanism);
      EXPECT_EQ(time.launch, Duration(3 * one.launch)) << name << " " << one.copies << " x " << one.bytes;
      EXPECT_EQ(time.transfer, Duration(3 * one.transfer)) << name << " " << one.copies << " x " << one.bytes;
    }
  }
}

// The setting's scales must have the same effect as the models' own factories.
TEST(ExecutionModels, Make_WhenTimesAreScaled_ThenEveryModelDoes) {
  const OpScales scales{.gemm = 1.05, .attention = 0.95};
  const auto time = [&](const char* name) {
    return make_execution_model(whole_gpu(), test_llm(), {}, {.latency_model = name, .scales = scales})
        ->iteration(mixed());
  };
  expect_same(time("fitted"), make_fitted_model(whole_gpu(), test_llm(), {}, 1, 2, scales)->iteration(mixed()));
  expect_same(time("tables"), make_table_model(whole_gpu(), test_llm(), {}, 1, scales)->iteration(mixed()));
  expect_same(time("iterations"), make_iteration_model(whole_gpu(), test_llm(), {}, scales)->iteration(mixed()));
  expect_same(time("roofline"), make_roofline(whole_gpu(), test_llm(), {}, 1, 2, scales)->iteration(mixed()));
  for (const char* name : {"fitted", "tables", "iterations", "roofline"}) {
    EXPECT_NE(time(name).layer, make_execution_model(whole_gpu(), test_llm(), {}, {name})->iteration(mixed()).layer);
  }
}

}  // namespace
}  // namespace spillway::hwmodels
