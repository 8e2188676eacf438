#include "hwmodels/models/roofline.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

namespace spillway::hwmodels {
namespace {

// Round figures: GEMMs reach 50 TFLOP/s and 500 GB/s, decode attention 250 GB/s, prefill attention 25 TFLOP/s.
GpuProfile test_gpu() {
  GpuProfile gpu;
  gpu.file.name = "test-gpu";
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
  return gpu;
}

LlmModel test_llm() {
  LlmModel llm;
  llm.file.name = "test-llm";
  llm.layers = 2;
  llm.hidden = 1000;
  llm.heads = 4;
  llm.kv_heads = 2;
  llm.head_dim = 250;  // q = 1000, k = 500
  llm.ffn = 2000;
  llm.gated_mlp = true;
  llm.vocabulary = 10'000;
  llm.max_positions = 4096;
  llm.dtype_bytes = 2;
  return llm;
}

EngineProfile no_engine() { return {}; }

BatchShape decode(std::int64_t sequences, std::int64_t context) {
  return {
      .decode_sequences = sequences, .decode_context = Tokens(context), .chunks = {}, .sampled_sequences = sequences};
}

IterationTime time_of(const EngineProfile& engine, const BatchShape& shape, std::int64_t tensor_parallel = 1,
                      std::int64_t kv_dtype_bytes = 2) {
  return make_roofline(test_gpu(), test_llm(), engine, tensor_parallel, kv_dtype_bytes)->iteration(shape);
}

double seconds_of(const IterationTime& time, std::int64_t layers) {
  return to_seconds(time.before + time.layer * layers + time.after);
}
double sum(const TimeShares& shares) { return shares.compute + shares.memory + shares.network + shares.host; }

// One sequence that attends to 100 tokens. GEMMs, all memory bound, E (i o + i + o) / 0.5e12 B/s:
//   QKV 1000 -> 2000: 4,006,000 B = 8.012 us; output 1000 -> 1000: 4.008; up and gate 1000 -> 4000: 16.020;
//   down 2000 -> 1000: 8.012; sum 36.052 us, + 4 us of overhead
// attention: (100 * 2 * 500 * 2 + 2 * 1000 * 2) B / 0.25e12 B/s = 0.816 us, + 2 us of overhead
// elementwise: 2 (8 * 1000 + 2 * 1500 + 3 * 2000 + 4 * 500) B / 0.5e12 B/s = 0.076 us, + 5 us of overhead
// layer 36.052 + 4 + 0.816 + 2 + 0.076 + 5 = 47.944 us
// head 1000 -> 10000: 2 (1e7 + 11000) B / 0.5e12 B/s = 40.044 us, + 1; norm 8000 B / 0.5e12 B/s = 0.016 us, + 1
// embedding 4000 B / 0.5e12 B/s = 0.008 us, + 1
TEST(Roofline, Iteration_WhenOneSequenceDecodes_ThenEqualsTheHandDerivation) {
  const IterationTime time = time_of(no_engine(), decode(1, 100));
  EXPECT_EQ(time.before, Duration(1'008));
  EXPECT_EQ(time.layer, Duration(47'944));
  EXPECT_EQ(time.after, Duration(42'060));
  EXPECT_EQ(time.shares.compute, 0.0);
  EXPECT_NEAR(time.shares.memory, 138.956e-6, 1e-12);
  EXPECT_EQ(time.shares.network, 0.0);
  EXPECT_EQ(time.shares.host, 0.0);
}

// The same by classes: 36.052 + 4 + 0.076 + 5 = 45.128 us of GEMMs and what stands beside them, twice; 2.816 us of
// attention three times; all before and after the layers twice.
TEST(Roofline, Iteration_WhenTimesAreScaled_ThenEachPartIs) {
  const IterationTime time = make_roofline(test_gpu(), test_llm(), no_engine(), 1, 2, {.gemm = 2.0, .attention = 3.0})
                                 ->iteration(decode(1, 100));
  EXPECT_EQ(time.before, Duration(1'008) * 2);
  EXPECT_EQ(time.layer, Duration(45'128) * 2 + Duration(2'816) * 3);
  EXPECT_EQ(time.after, Duration(42'060) * 2);
}

// 1,000 new tokens after 500 computed ones, no token emitted. GEMMs, all compute bound, 2 * 1000 i o / 50e12 FLOP/s:
//   80 + 40 + 160 + 80 = 360 us, + 4 of overhead
// attention: 1000 * 500 + 500 * 1001 = 1,000,500 pairs of 4 * 1000 FLOP / 25e12 FLOP/s = 160.08 us, + 2 of overhead
// elementwise: 1000 tokens of 0.076 us = 76 us, + 5 of overhead; layer 607.08 us
// norm 16 + 1 us, embedding 8 + 1 us
TEST(Roofline, Iteration_WhenAChunkPrefills_ThenEqualsTheHandDerivation) {
  const std::array<PrefillChunk, 1> chunks{{{Tokens(1000), Tokens(500)}}};
  const IterationTime time = time_of(no_engine(), {.chunks = chunks});
  EXPECT_EQ(time.before, Duration(9'000));
  EXPECT_EQ(time.layer, Duration(607'080));
  EXPECT_EQ(time.after, Duration(17'000));
  EXPECT_NEAR(time.shares.compute, 2 * 524.08e-6, 1e-12);
  EXPECT_NEAR(time.shares.memory, 2 * 83e-6 + 26e-6, 1e-12);
}

// One new token after 10,000: (10,001 * 2000 + 4000) B / 0.25e12 B/s = 80.024 us of KV against 1.6 us of arithmetic;
// the rest as for one decoding sequence: 36.052 + 4 + 2 + 0.076 + 5 = 47.128 us.
TEST(Roofline, Iteration_WhenAChunkHasALongContext_ThenReadingItCounts) {
  const std::array<PrefillChunk, 1> chunks{{{Tokens(1), Tokens(10'000)}}};
  EXPECT_EQ(time_of(no_engine(), {.chunks = chunks}).layer, Duration(127'152));
}

/// test_llm() with 8 experts of width 500 in place of the MLP, of which a token passes 2.
LlmModel llm_of_experts() {
  LlmModel llm = test_llm();
  llm.ffn = 0;
  llm.experts = Experts{.count = 8, .top_k = 2, .width = 500};
  return llm;
}

// Four sequences that attend to 400 tokens together. GEMMs, all memory bound:
//   QKV (4,000,000 + 4 * 6000) B / 0.5e12 B/s = 8.048 us; output (2,000,000 + 4 * 4000) B: 4.032;
//   router 1000 -> 8: (16,000 + 4 * 2016) B: 0.048128; sum 12.128128, + 3 of overhead
// experts: 8 rows, one for each expert: 8 * 3,000,000 B / 0.5e12 B/s = 48 us of weights, 8 * 4000 B = 0.064 of rows,
//   against 8 * 3e6 FLOP / 50e12 FLOP/s; + 5 kernels
// attention: (400 * 2000 + 4 * 4000) B / 0.25e12 B/s = 3.264 us, + 2
// elementwise, without an activation: 4 * 2 (8000 + 3000 + 2000) B / 0.5e12 B/s = 0.208 us, + 4 kernels
// layer 15.128128 + 53.064 + 5.264 + 4.208 = 77.664128 us
TEST(Roofline, Iteration_WhenALayerHasExperts_ThenEqualsTheHandDerivation) {
  const auto model = make_roofline(test_gpu(), llm_of_experts(), no_engine(), 1, 2);
  const IterationTime time = model->iteration(decode(4, 400));
  EXPECT_EQ(time.layer, Duration(77'664));
  EXPECT_FALSE(model->layer_kinds().several());
}

// Two groups of one GPU, each with 4 sequences and all heads, and half of the experts: 16 pairs, 8 of them on either
// GPU, on 4 experts of 6 us: 24.064 us instead of 48.064. Tokens of both groups are gathered and the sums scattered: 10
// us + 4 * 2000 B / 100e9 B/s = 10.08 us each. Heads are not split, so there is no other exchange: 77.664128 - 24 +
// 20.16 = 73.824128 us.
TEST(Roofline, Iteration_WhenGroupsShareExperts_ThenEachComputesItsRequests) {
  const auto model = make_roofline(test_gpu(), llm_of_experts(), no_engine(), {1, 2, 2}, 2);
  const IterationTime time = model->iteration(decode(8, 800));
  EXPECT_EQ(time.layer, Duration(73'824));
  EXPECT_NEAR(time.shares.network, 2 * 20.16e-6, 1e-12);
}

// One layer of two over a window of 64 tokens: 256 of 400 tokens, 144 * 2000 B / 0.25e12 B/s = 1.152 us less. The mean
// layer takes half of that less.
TEST(Roofline, Iteration_WhenALayerHasAWindow_ThenItsDecodesReadLess) {
  LlmModel llm = test_llm();
  llm.set_layers(std::vector<LayerKind>{{false, 64}, {false, 0}});
  const auto model = make_roofline(test_gpu(), llm, no_engine(), 1, 2);
  const IterationTime time = model->iteration(decode(4, 400));
  const Duration full = time_of(no_engine(), decode(4, 400)).layer;
  EXPECT_EQ(time.kinds[0], full - Duration(1'152));
  EXPECT_EQ(time.kinds[1], full);
  EXPECT_EQ(time.layer, full - Duration(576));
  EXPECT_EQ(model->all_layers(time), full * 2 - Duration(1'152));
  EXPECT_EQ(model->length(time), time.before + full * 2 - Duration(1'152) + time.after);
}

// Two GPUs, half the heads and half the MLP each:
//   QKV 1000 -> 1000: 4.008 us; output 500 -> 1000: 2.006; up and gate 1000 -> 2000: 8.012; down 1000 -> 1000: 4.008;
//   sum 18.034, + 4; attention (100 * 1000 + 2000) B / 0.25e12 B/s = 0.408, + 2;
//   elementwise 2 (8000 + 1500 + 3000 + 1000) B / 0.5e12 B/s = 0.054, + 5;
//   two all-reduces of 10 us + 2 * (1/2) * 2000 B / 100e9 B/s = 10.02 us; layer 49.536 us
// after: norm 1.016, head 1000 -> 5000: 20.024 + 1, gather 10 + (1/2) * 20000 B / 100e9 B/s = 10.1; 32.14 us
// before: 1.008 + 10.02 us
TEST(Roofline, Iteration_WhenTwoGpusShareTheModel_ThenAllReducesAreAdded) {
  const IterationTime time = time_of(no_engine(), decode(1, 100), 2);
  EXPECT_EQ(time.before, Duration(11'028));
  EXPECT_EQ(time.layer, Duration(49'536));
  EXPECT_EQ(time.after, Duration(32'140));
  EXPECT_NEAR(time.shares.network, (10.02 + 2 * 20.04 + 10.1) * 1e-6, 1e-12);
}

// Four GPUs, two KV heads: each GPU holds one, as with two GPUs. KV of 100,000 tokens: 100,000 * 1000 B / 0.25e12 B/s =
// 400 us in both cases.
TEST(Roofline, Iteration_WhenKvHeadsAreReplicated_ThenKvTrafficStopsShrinking) {
  const auto kv_time = [](std::int64_t tensor_parallel) {
    return time_of(no_engine(), decode(1, 100'000), tensor_parallel).layer -
           time_of(no_engine(), decode(1, 0), tensor_parallel).layer;
  };
  EXPECT_EQ(kv_time(1), Duration(800'000));
  EXPECT_EQ(kv_time(2), Duration(400'000));
  EXPECT_EQ(kv_time(4), Duration(400'000));
}

TEST(Roofline, Iteration_WhenKvIsEightBit_ThenHalfTheBytesAreRead) {
  EXPECT_EQ(time_of(no_engine(), decode(1, 100'000), 1, 1).layer - time_of(no_engine(), decode(1, 0), 1, 1).layer,
            Duration(400'000));
}

// Learned positions and no gate: 4 elementwise kernels, 2 (8000 + 2 * 2000 + 4 * 500) B / 0.5e12 B/s = 0.056 us;
// up 1000 -> 2000: 8.012 instead of 16.020 us: 47.944 - 1 - 0.02 - 8.008 = 38.916 us.
TEST(Roofline, Iteration_WhenTheModelIsOptLike_ThenNoRotationAndNoGate) {
  LlmModel llm = test_llm();
  llm.gated_mlp = false;
  llm.learned_position_rows = 4098;
  EXPECT_EQ(make_roofline(test_gpu(), llm, no_engine(), 1, 2)->iteration(decode(1, 100)).layer, Duration(38'916));
}

// Against 47.944 us: two norms more take 2 us and 2 * 8 * 1000 B / 0.5e12 B/s = 0.032; norms of queries and keys 2 us
// and 2 * 2 * 1500 B = 0.012; half the rotation saves 2 * 1500 B = 0.006, all of it 1 us and 0.012.
TEST(Roofline, Iteration_WhenNormsAndRotationDiffer_ThenElementwiseWorkDoes) {
  const auto layer = [](const LlmModel& llm) {
    return make_roofline(test_gpu(), llm, no_engine(), 1, 2)->iteration(decode(1, 100)).layer;
  };
  LlmModel llm = test_llm();
  llm.layer_norms = 4;
  EXPECT_EQ(layer(llm), Duration(49'976));
  llm = test_llm();
  llm.qk_norm = QkNorm::shared;
  EXPECT_EQ(layer(llm), Duration(49'956));
  llm = test_llm();
  llm.rotary_dim = 125;
  EXPECT_EQ(layer(llm), Duration(47'938));
  llm.rotary_dim = 0;
  EXPECT_EQ(layer(llm), Duration(46'932));
}

// One byte per weight and none for scales: (2 + 1 + 4 + 2) * 1e6 B less in the layer, 18 us at 0.5e12 B/s; the head as
// it is.
TEST(Roofline, Iteration_WhenWeightsAreQuantised_ThenFewerBytesAreRead) {
  LlmModel llm = test_llm();
  llm.quantized = QuantizedLinear{.method = "test", .bits = 8};
  const IterationTime time = make_roofline(test_gpu(), llm, no_engine(), 1, 2)->iteration(decode(1, 100));
  EXPECT_EQ(time.layer, Duration(47'944 - 18'000));
  EXPECT_EQ(time.after, Duration(42'060));
  llm.quantized->head = true;  // 1e7 B less
  EXPECT_EQ(make_roofline(test_gpu(), llm, no_engine(), 1, 2)->iteration(decode(1, 100)).after, Duration(22'060));
}

TEST(Roofline, Iteration_WhenEager_ThenALayerTakesAtLeastTheLaunchFloor) {
  EngineProfile engine;
  engine.launch_floor_seconds = 60e-6;
  const IterationTime eager = time_of(engine, decode(1, 100));
  EXPECT_EQ(eager.layer, Duration(60'000));
  EXPECT_NEAR(eager.shares.host, 2 * 12.056e-6, 1e-12);
  engine.launch_floor_seconds = 40e-6;  // below the GPU's 47.944 us
  EXPECT_EQ(time_of(engine, decode(1, 100)).layer, Duration(47'944));
}

TEST(Roofline, Iteration_WhenAGraphCoversIt_ThenThereIsNoLaunchFloor) {
  EngineProfile engine;
  engine.launch_floor_seconds = 60e-6;
  engine.cuda_graph_max_tokens = 1;
  EXPECT_EQ(time_of(engine, decode(1, 100)).layer, Duration(47'944));
  EXPECT_EQ(time_of(engine, decode(2, 200)).layer, Duration(60'000));  // beyond the captured sizes
  const std::array<PrefillChunk, 1> chunks{{{Tokens(1), Tokens(0)}}};
  EXPECT_EQ(time_of(engine, {.chunks = chunks}).layer, Duration(60'000));
  engine.cuda_graph_prefill = true;
  EXPECT_LT(time_of(engine, {.chunks = chunks}).layer, Duration(60'000));
}

// Host work of 100 us + 10 us per sequence; a chunk is a sequence too. The GPU needs 138.956 us for one of decode.
TEST(Roofline, Iteration_WhenHostWorkIsNotOverlapped_ThenItIsAdded) {
  EngineProfile engine;
  engine.host_fixed_seconds = 100e-6;
  engine.host_per_sequence_seconds = 10e-6;
  EXPECT_EQ(time_of(engine, decode(1, 100)).before, Duration(111'008));
  const std::array<PrefillChunk, 2> chunks{{{Tokens(1), Tokens(0)}, {Tokens(1), Tokens(0)}}};
  const IterationTime mixed = time_of(engine, {.decode_sequences = 1, .decode_context = Tokens(1), .chunks = chunks});
  EXPECT_NEAR(mixed.shares.host, 130e-6, 1e-12);
}

TEST(Roofline, Iteration_WhenHostWorkIsOverlapped_ThenOnlyItsExcessIsSeen) {
  EngineProfile engine;
  engine.host_overlapped = true;
  engine.host_fixed_seconds = 100e-6;
  EXPECT_EQ(time_of(engine, decode(1, 100)).before, Duration(1'008));
  engine.host_fixed_seconds = 200e-6;  // 61.044 us more than the GPU
  EXPECT_EQ(time_of(engine, decode(1, 100)).before, Duration(62'052));
  EXPECT_NEAR(time_of(engine, decode(1, 100)).shares.host, 61.044e-6, 1e-12);
}

TEST(Roofline, Iteration_WhenNothingRuns_ThenTakesNoTime) {
  EngineProfile engine;
  engine.host_fixed_seconds = 1.0;
  const IterationTime time = time_of(engine, {});
  EXPECT_EQ(time.before + time.layer + time.after, Duration(0));
}

TEST(Roofline, Copy_WhenDirectionsDiffer_ThenEachHasItsLaunchAndBandwidth) {
  const auto model = make_roofline(test_gpu(), test_llm(), no_engine(), 1, 2);
  EXPECT_EQ(model->copy(Stream::h2d, 3, Bytes(1'000'000), CopyMechanism::many).launch, Duration(6'000));
  EXPECT_EQ(model->copy(Stream::h2d, 3, Bytes(1'000'000), CopyMechanism::many).transfer, Duration(250'000));
  EXPECT_EQ(model->copy(Stream::d2h, 1, Bytes(1'000'000), CopyMechanism::many).launch, Duration(3'000));
  EXPECT_EQ(model->copy(Stream::d2h, 1, Bytes(1'000'000), CopyMechanism::many).transfer, Duration(1'000'000));
  EXPECT_THROW(static_cast<void>(model->copy(Stream::cpu, 1, Bytes(1), CopyMechanism::many)), InvariantError);
}

TEST(Roofline, Copy_WhenATransferIsNotWholeNanoseconds_ThenRoundsOnceHalvesUp) {
  const auto model = make_roofline(test_gpu(), test_llm(), no_engine(), 1, 2);
  EXPECT_EQ(model->copy(Stream::h2d, 1, Bytes(1), CopyMechanism::many).transfer, Duration(0));  // 0.25 ns
  EXPECT_EQ(model->copy(Stream::h2d, 1, Bytes(2), CopyMechanism::many).transfer, Duration(1));  // 0.5 ns
  EXPECT_EQ(model->copy(Stream::h2d, 1, Bytes(5), CopyMechanism::many).transfer, Duration(1));  // 1.25 ns
}

TEST(Roofline, Make_WhenTensorParallelIsImpossible_ThenSaysWhy) {
  EXPECT_THROW(static_cast<void>(make_roofline(test_gpu(), test_llm(), no_engine(), 3, 2)), ConfigError);
  GpuProfile alone = test_gpu();
  alone.all_reduce.reset();
  EXPECT_THROW(static_cast<void>(make_roofline(alone, test_llm(), no_engine(), 2, 2)), ConfigError);
  EXPECT_EQ(make_roofline(alone, test_llm(), no_engine(), 1, 2)->layers(), 2);
}

/// Calls `check(model, name)` for every bundled GPU, model and engine.
template <class Check>
void for_every_model(Check check) {
  std::vector<LlmModel> llms;
  for (const std::string& llm : llm_names()) llms.push_back(load_llm(llm));
  std::vector<EngineProfile> engines;
  for (const std::string& engine : engine_names()) engines.push_back(load_engine(engine));
  for (const std::string& name : gpu_names()) {
    const GpuProfile gpu = load_gpu(name);
    for (const LlmModel& llm : llms) {
      for (const EngineProfile& engine : engines) {
        check(*make_roofline(gpu, llm, engine, 1, 2), name + " " + llm.file.name + " " + engine.file.name);
      }
    }
  }
}

TEST(Roofline, Shares_WhenSummed_ThenGiveTheIterationUpToRounding) {
  const std::array<PrefillChunk, 2> chunks{{{Tokens(512), Tokens(0)}, {Tokens(100), Tokens(1500)}}};
  for_every_model([&](const ExecutionModel& model, const std::string& name) {
    for (const BatchShape& shape :
         {decode(1, 10), decode(64, 64'000), BatchShape{.chunks = chunks, .sampled_sequences = 1},
          BatchShape{
              .decode_sequences = 32, .decode_context = Tokens(9'999), .chunks = chunks, .sampled_sequences = 33}}) {
      const IterationTime time = model.iteration(shape);
      const double slack = 0.5e-9 * (model.layers() + 2.01);
      EXPECT_LE(std::abs(sum(time.shares) - to_seconds(model.length(time))), slack) << name;
    }
  });
}

TEST(Roofline, Iteration_WhenThereIsMoreWork_ThenNeverTakesLess) {
  for_every_model([](const ExecutionModel& model, const std::string& name) {
    Duration last{};
    for (const std::int64_t sequences : {1, 2, 7, 64, 255, 256, 257, 1024}) {
      const IterationTime time = model.iteration(decode(sequences, 100 * sequences));
      const Duration length = time.before + time.layer * model.layers() + time.after;
      EXPECT_GT(length, last) << name << " sequences=" << sequences;
      last = length;
    }
    last = {};
    for (const std::int64_t tokens : {1, 16, 500, 512, 513, 2048, 8192}) {
      const std::array<PrefillChunk, 1> chunks{{{Tokens(tokens), Tokens(1000)}}};
      const IterationTime time = model.iteration({.chunks = chunks, .sampled_sequences = 1});
      const Duration length = time.before + time.layer * model.layers() + time.after;
      // The CPU time of some engines hides a few tokens; the time per layer is rounded to a nanosecond.
      EXPECT_GT(length + Duration(model.layers()), last) << name << " tokens=" << tokens;
      last = length;
    }
  });
}

// Weights of Llama-3.1-8B less the embedding, 15.01e9 B, cannot be read faster than HBM's datasheet allows: 4.48 ms on
// H100.
TEST(Roofline, Iteration_WhenAnEmbeddedProfileDecodes_ThenStaysAboveTheDatasheetBound) {
  const auto model = make_roofline(load_gpu("h100-80gb-sxm"), load_llm("llama-3.1-8b"), load_engine("vllm-0.19"), 1, 2);
  const double seconds = seconds_of(model->iteration(decode(1, 1)), model->layers());
  EXPECT_GT(seconds, 4.48e-3);
  EXPECT_LT(seconds, 2 * 4.48e-3);
}

}  // namespace
}  // namespace spillway::hwmodels
