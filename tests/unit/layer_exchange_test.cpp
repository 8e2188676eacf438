#include "hwmodels/models/layer_exchange.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "hwmodels/models/fitted_model.hpp"
#include "sim/core/error.hpp"

namespace spillway::hwmodels {
namespace {

/// 2 of 8 experts for a token of 1000 numbers.
LlmModel test_llm(Quantization experts = Quantization::none) {
  LlmModel llm;
  llm.file.name = "test-llm";
  llm.hidden = 1000;
  llm.dtype_bytes = 2;
  llm.experts = Experts{.count = 8, .top_k = 2, .width = 500};
  if (experts != Quantization::none) llm.quantized = QuantizedLinear{.method = "fp8", .kernel = experts};
  return llm;
}

/// All-reduces of 10 us and 100 GB/s.
GpuProfile analytic_gpu() {
  GpuProfile gpu;
  gpu.file.name = "test-gpu";
  gpu.all_reduce = AllReduce{10e-6, BytesPerSecond(100e9)};
  return gpu;
}

FittedExchange fit(ExchangeBackend backend, ExchangeStep step, std::int64_t ranks, ExchangeCopies copies,
                   double launch_us, double token_ns) {
  FittedExchange made;
  made.model = {backend, step, ranks, copies, launch_us * 1e-6, token_ns * 1e-9, 1e-12, 1.0};
  made.record = {"measured", "table.csv", {}, "", {}, {{"bytes", 1.0, 150'000.0}}};
  return made;
}

/// DeepEP on 8 GPUs: 1 ps for each byte.
GpuProfile deepep_gpu() {
  GpuProfile gpu = analytic_gpu();
  const auto small = ExchangeBackend::deepep_low_latency;
  const auto large = ExchangeBackend::deepep_normal;
  gpu.fitted.exchanges = {fit(small, ExchangeStep::dispatch, 8, ExchangeCopies::per_gpu, 10.0, 10.0),
                          fit(small, ExchangeStep::combine, 8, ExchangeCopies::per_expert, 20.0, 0.0),
                          fit(large, ExchangeStep::dispatch, 8, ExchangeCopies::per_gpu, 30.0, 0.0),
                          fit(large, ExchangeStep::combine, 8, ExchangeCopies::per_gpu, 40.0, 0.0)};
  return gpu;
}

double us(const LayerExchange& exchange, std::int64_t tokens, bool prompts = false) {
  return 1e6 * exchange.seconds(tokens, prompts);
}

// 5 tokens of a group of two GPUs: 3 of one of them. To four GPUs: 10 us + 3 * 4 * 3/4 * 2000 B / 100e9 B/s = 10.18,
// there and back; within the group 10 + 3 * 2 * 1/2 * 2000 B / 100e9 B/s = 10.06.
TEST(LayerExchanges, AllGather_WhenNothingIsFitted_ThenByHand) {
  const LayerExchange exchange(analytic_gpu(), test_llm(), {2, 2, 4}, ExchangeChoice::automatic, false);
  EXPECT_NEAR(us(exchange, 5), 10.18 + 10.18 + 10.06, 1e-9);
  EXPECT_NEAR(us(exchange, 5, true), us(exchange, 5), 1e-12);
  const LayerExchange named(analytic_gpu(), test_llm(), {2, 2, 4}, ExchangeChoice::all_gather, true);
  EXPECT_NEAR(us(named, 5), us(exchange, 5), 1e-12);
}

TEST(LayerExchanges, OneGroup_HasNone) {
  EXPECT_EQ(LayerExchange(analytic_gpu(), test_llm(), {8, 1, 8}, ExchangeChoice::automatic, false).seconds(100, false),
            0.0);
}

// A token of 2 random experts reaches 8 (1 - (7/8)^2) = 1.875 of 8 GPUs. Low latency: 100 tokens of 1.03125 bytes a
// number: 10 us + 100 (10 ns + 1.875 * 1031.25 ps) = 11.193359; back 2 copies in 16 bits: 20 + 100 * 4000 ps = 20.4.
// Normal kernels: 30 + 100 * 1.875 * 1031.25 ps = 30.193359, 40 + 100 * 1.875 * 2000 ps = 40.375.
TEST(LayerExchanges, DeepEp_WhenBatchesAreSmallAndWithoutPrompts_ThenTakesItsLowLatencyKernels) {
  const LayerExchange exchange(deepep_gpu(), test_llm(Quantization::fp8_block), {1, 8, 8}, ExchangeChoice::deepep,
                               true);
  EXPECT_NEAR(us(exchange, 100), 11.193359 + 20.4, 1e-5);
  EXPECT_NEAR(us(exchange, 100, true), 30.193359 + 40.375, 1e-5);
  EXPECT_LT(us(exchange, 128), 35.0);
  EXPECT_GT(us(exchange, 129), 70.0);
}

// Four GPUs by the fit of eight: 4 (1 - (3/4)^2) = 1.75 copies. Experts in 16 bits: 2000 bytes.
TEST(LayerExchanges, DeepEp_WhenAnotherNumberOfGpusIsFitted_ThenCopiesAreThoseOfTheRun) {
  const LayerExchange exchange(deepep_gpu(), test_llm(), {1, 4, 4}, ExchangeChoice::deepep, true);
  EXPECT_NEAR(us(exchange, 100), 10.0 + 1.0 + 0.35 + 20.4, 1e-9);
  EXPECT_EQ(
      exchange.text(),
      "DeepEP over 4 GPUs; up to 128 tokens of a GPU without prompts: deepep_low_latency dispatch, "
      "deepep_low_latency combine fitted for 8 GPUs; others: deepep_normal dispatch, deepep_normal combine fitted "
      "for 8 GPUs");
}

// One-sided kernels have no step before. Numbers in fp8 take a byte: 10 us + 100 * 1.875 * 1000 ps = 10.1875.
TEST(LayerExchanges, Nvlink_WhenBothAreFitted_ThenTakesTheOneSidedKernels) {
  GpuProfile gpu = analytic_gpu();
  const auto two = ExchangeBackend::nvlink_two_sided;
  const auto one = ExchangeBackend::nvlink_one_sided;
  gpu.fitted.exchanges = {fit(two, ExchangeStep::prepare, 8, ExchangeCopies::per_gpu, 1.0, 0.0),
                          fit(two, ExchangeStep::dispatch, 8, ExchangeCopies::per_gpu, 2.0, 0.0),
                          fit(two, ExchangeStep::combine, 8, ExchangeCopies::per_gpu, 4.0, 0.0)};
  const auto time = [&] {
    return us(LayerExchange(gpu, test_llm(Quantization::fp8), {1, 8, 8}, ExchangeChoice::nvlink, true), 100);
  };
  EXPECT_NEAR(time(), 1.1875 + 2.1875 + 4.375, 1e-9);
  gpu.fitted.exchanges.push_back(fit(one, ExchangeStep::dispatch, 8, ExchangeCopies::per_gpu, 10.0, 0.0));
  gpu.fitted.exchanges.push_back(fit(one, ExchangeStep::combine, 8, ExchangeCopies::per_gpu, 20.0, 0.0));
  EXPECT_NEAR(time(), 10.1875 + 20.375, 1e-9);
}

TEST(LayerExchanges, Text_WhenStepsComeFromSeveralSources_ThenNamesEach) {
  GpuProfile gpu = analytic_gpu();
  gpu.fitted.exchanges = {fit(ExchangeBackend::nccl, ExchangeStep::dispatch, 8, ExchangeCopies::all_gpus, 1.0, 0.0)};
  gpu.fitted.exchanges[0].record.source_kind = "borrowed";
  gpu.fitted.exchanges[0].record.citation = "other-gpu: the same links";
  EXPECT_EQ(exchange_text(gpu, test_llm(), {}, {1, 8, 8}, ExchangeChoice::automatic, true),
            "all-gather and reduce-scatter over 8 GPUs: nccl dispatch borrowed from other-gpu; nccl combine roofline");
  EXPECT_EQ(exchange_text(gpu, test_llm(), {}, {8, 1, 8}, ExchangeChoice::automatic, true),
            "all-reduce over 8 GPUs after the experts: roofline");
  gpu.fitted.all_reduce.emplace();
  gpu.fitted.all_reduce->record.source_kind = "measured";
  EXPECT_EQ(exchange_text(gpu, test_llm(), {}, {8, 1, 1}, ExchangeChoice::automatic, true),
            "all-reduce over 8 GPUs after the experts: fitted");
  EXPECT_EQ(exchange_text(gpu, test_llm(), {}, 1, ExchangeChoice::automatic, true), "");
  EXPECT_EQ(exchange_text(gpu, {}, {}, 8, ExchangeChoice::automatic, true), "");
}

TEST(LayerExchanges, Choices_WhenImpossible_ThenSayWhy) {
  const auto what = [](const LlmModel& llm, const Parallelism& parallelism, ExchangeChoice choice) {
    const auto problem = exchange_problem(llm, parallelism, choice);
    return problem ? problem->what : std::string();
  };
  EXPECT_EQ(what(test_llm(), {1, 8, 8}, ExchangeChoice::deepep), "");
  EXPECT_EQ(what(test_llm(), {1, 8, 4}, ExchangeChoice::all_gather), "");
  EXPECT_EQ(what({}, 1, ExchangeChoice::automatic), "");
  EXPECT_EQ(what(test_llm(), {1, 8, 4}, ExchangeChoice::nvlink),
            "engine.expert_exchange=nvlink sends tokens to the GPU of their experts, which needs expert_parallel=8, "
            "all GPUs");
  EXPECT_EQ(
      what(test_llm(), {8, 1, 8}, ExchangeChoice::all_gather),
      "engine.expert_exchange=all_gather needs data_parallel > 1: one group sums the outputs of its experts in an "
      "all-reduce");
  LlmModel dense;
  dense.file.name = "dense";
  EXPECT_EQ(what(dense, {1, 8, 1}, ExchangeChoice::deepep),
            "engine.expert_exchange=deepep needs a model with experts, and dense has none");
}

TEST(LayerExchanges, Analytic_WhenTheProfileHasNoFigures_ThenSaysSo) {
  EXPECT_THROW(LayerExchange(GpuProfile{}, test_llm(), {1, 8, 8}, ExchangeChoice::automatic, true), ConfigError);
}

TEST(LayerExchanges, Names_WhenReadAgain_ThenAreTheSame) {
  for (const auto choice :
       {ExchangeChoice::automatic, ExchangeChoice::all_gather, ExchangeChoice::deepep, ExchangeChoice::nvlink}) {
    EXPECT_EQ(exchange_choice_named(exchange_name(choice)), choice);
  }
  EXPECT_FALSE(exchange_choice_named("nccl").has_value());
}

// Tokens of one GPU: 100 of 2000 bytes are beyond the 150,000 that were measured, 50 are not.
TEST(LayerExchanges, Ranges_CountTheCallsOfEachLayer) {
  const LayerExchange exchange(deepep_gpu(), test_llm(), {1, 8, 8}, ExchangeChoice::deepep, true);
  exchange.count(50, false, 3);
  exchange.count(100, false, 4);
  std::vector<RangeUse> uses;
  exchange.append_to(uses);
  ASSERT_EQ(uses.size(), 2U);  // normal kernels were not called
  EXPECT_EQ(uses[0].calls, 7);
  EXPECT_EQ(uses[0].outside, 4);
}

// 100 sequences over 8 groups of one GPU: 13 in the fullest. Heads are not split, so experts alone exchange.
TEST(LayerExchanges, FittedModel_OfGroups_ChargesItInEveryLayer) {
  const GpuProfile gpu = load_gpu("h100-80gb-sxm");
  const LlmModel llm = load_llm("qwen3-30b-a3b");
  const EngineProfile engine;
  for (const auto choice : {ExchangeChoice::all_gather, ExchangeChoice::deepep}) {
    const LayerExchange exchange(gpu, llm, {1, 8, 8}, choice, true);
    const auto model = make_fitted_model(gpu, llm, engine, {1, 8, 8}, 2, {.gemm = 2.0}, {.exchange = choice});
    const auto network = [&](const BatchShape& shape) { return model->iteration(shape).shares.network; };
    BatchShape shape{.decode_sequences = 100, .decode_context = Tokens(10'000), .chunks = {}, .sampled_sequences = 100};
    EXPECT_NEAR(network(shape), 2.0 * 48 * exchange.seconds(13, false), 1e-9);
    const std::array<PrefillChunk, 1> chunks{{{Tokens(64), Tokens(0)}}};
    shape.chunks = chunks;
    EXPECT_NEAR(network(shape), 2.0 * 48 * exchange.seconds(13 + 64, true), 1e-9);
    const std::vector<RangeUse> uses = model->range_uses();
    EXPECT_EQ(std::ranges::count_if(uses, [](const RangeUse& use) { return use.op.starts_with("expert_exchange"); }),
              choice == ExchangeChoice::deepep ? 4 : 2);
  }
}

// Two groups of two GPUs: all-reduces of 2 GPUs after attention, and in place of the second the exchange.
TEST(LayerExchanges, FittedModel_OfGroupsOfSeveralGpus_ReducesAttentionAlone) {
  const GpuProfile gpu = load_gpu("h100-80gb-sxm");
  const LlmModel llm = load_llm("qwen3-30b-a3b");
  const EngineProfile engine;
  const auto model = make_fitted_model(gpu, llm, engine, {2, 2, 4}, 2);
  const BatchShape shape{.decode_sequences = 20, .decode_context = Tokens(2'000), .chunks = {}, .sampled_sequences = 0};
  const LayerExchange exchange(gpu, llm, {2, 2, 4}, ExchangeChoice::automatic, true);
  // The embedding is reduced, too.
  const double reduction = gpu.fitted.all_reduce->model.seconds(2, 10.0 * 2048 * 2);
  EXPECT_NEAR(model->iteration(shape).shares.network, 49 * reduction + 48 * exchange.seconds(10, false), 1e-9);
}

}  // namespace
}  // namespace spillway::hwmodels
