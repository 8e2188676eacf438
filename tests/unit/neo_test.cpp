// NEO: the choice of an iteration with made-up tables, the predictor's tables, what is charged, and its queues.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "policies/parts/neo_choice.hpp"
#include "policies/parts/neo_predictor.hpp"
#include "policies/parts/neo_scheduler.hpp"
#include "sim/engine/iteration_runner.hpp"
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kMs = 1e6;  // ns
constexpr std::int64_t kLayers = 32;

/// In ns: linear 1 ms + 0.01 ms per token, a prompt 1e-6 ms per pair of tokens, decodes on the GPU 2e-5 ms and on the
/// CPU 1e-4 ms per token that they attend to. All results are whole numbers, so sums are exact.
class PlainPredictor final : public NeoPredictor {
 public:
  [[nodiscard]] double linear(Tokens tokens) const override {
    return tokens > Tokens(0) ? 1e6 + 1e4 * static_cast<double>(tokens.count()) : 0.0;
  }
  [[nodiscard]] double prompt(Tokens length) const override {
    return static_cast<double>(length.count() * length.count());
  }
  [[nodiscard]] double gpu_decodes(Tokens context) const override {
    return 20.0 * static_cast<double>(context.count());
  }
  [[nodiscard]] double cpu_decodes(std::int64_t, Tokens context) const override {
    return 100.0 * static_cast<double>(context.count());
  }
};

/// A queue as the tests state it.
struct Queue {
  std::vector<NeoPrompt> gpu_prompts{};
  std::vector<NeoPrompt> cpu_prompts{};
  std::int64_t gpu_decodes = 0;
  Tokens gpu_context{};
  std::vector<Tokens> cpu_decodes{};
  std::int64_t budget = 1000;

  [[nodiscard]] NeoChoice choose(NeoRules rules = NeoRules::code, double launch = 0.8 * kMs) const {
    NeoChoice choice;
    neo_choose({.gpu_prompts = gpu_prompts,
                .cpu_prompts = cpu_prompts,
                .gpu_decodes = gpu_decodes,
                .gpu_context = gpu_context,
                .cpu_decodes = cpu_decodes,
                .budget = budget},
               rules, PlainPredictor(), launch, choice);
    return choice;
  }
};

std::int64_t in(const NeoChoice& choice, std::int8_t sub_batch) {
  return std::ranges::count(choice.sub_batch, sub_batch);
}
double in_ms(double layer) { return kLayers * layer / kMs; }

std::vector<Tokens> tokens(std::size_t count, std::int64_t each) { return {count, Tokens(each)}; }

Queue queue_a() {
  return {.gpu_prompts = {{Tokens(1000)}},
          .gpu_decodes = 20,
          .gpu_context = Tokens(10'000),
          .cpu_decodes = tokens(60, 400)};
}

// A. A prompt of 1,000 and 20 decodes of 500 on the GPU, 60 decodes of 400 on the CPU.
// Batch 0: 1,020 tokens, linear 11.2, pref 1, gdec 0.2. The first decode goes to batch 1, whose slack is then
// 11.2 - 0.04 - 0.8 = 10.36, that of batch 0 1.01 + 1 + 0.2 - 0.8 = 1.41. After n decodes in batch 1 the slacks are
// 10.4 - 0.04 n and 1.4 + 0.01 n: batch 1 has more up to 60. There: 8.0 and 2.0.
// The GPU alone: 21 requests in 32 (11.2 + 1 + 0.2) = 396.8 ms. Both: 81 in 32 (11.2 + 1.6 + 1.2) = 448.0 ms.
TEST(NeoChoice, A_AllDecodesJoinTheSecondSubBatch) {
  const NeoChoice choice = queue_a().choose();
  EXPECT_TRUE(choice.pipelined);
  EXPECT_EQ(in(choice, 1), 60);
  EXPECT_DOUBLE_EQ(choice.slack[0] / kMs, 2.0);
  EXPECT_DOUBLE_EQ(choice.slack[1] / kMs, 8.0);
  EXPECT_EQ(choice.gpu_only.sequences, 21);
  EXPECT_DOUBLE_EQ(in_ms(choice.gpu_only.time), 396.8);
  EXPECT_EQ(choice.both.sequences, 81);
  EXPECT_DOUBLE_EQ(in_ms(choice.both.time), 448.0);
  EXPECT_DOUBLE_EQ(in_ms(choice.predicted), 448.0);
}

// As printed, the formula lacks pref: 32 (11.2 + 1.6 + 0.2) = 416.0 ms. The slacks have neither pref nor the launch:
// 1.6 + 0.2 = 1.8 and 11.2 - 2.4 = 8.8.
TEST(NeoChoice, A_ByThePapersFormulas) {
  const NeoChoice choice = queue_a().choose(NeoRules::paper);
  EXPECT_TRUE(choice.pipelined);
  EXPECT_EQ(in(choice, 1), 60);
  EXPECT_DOUBLE_EQ(in_ms(choice.predicted), 416.0);
  EXPECT_DOUBLE_EQ(choice.slack[0] / kMs, 1.8);
  EXPECT_DOUBLE_EQ(choice.slack[1] / kMs, 8.8);
}

Queue queue_b() { return {.gpu_decodes = 20, .gpu_context = Tokens(10'000), .cpu_decodes = tokens(60, 400)}; }

// B. The same decodes without a prompt. With n decodes in each sub-batch, slack_0 = 1 + 0.01 n + 0.2 - 0.04 n - 0.8 and
// slack_1 = 1.2 + 0.01 n - 0.04 n - 0.8, both 0.4 - 0.03 n: 0.01 at 13. The 27th would take slack_0 to
// 0.01 - 0.04 < 0: it is refused, and so are the 33 behind it, which are as long. 20 of 32 (1.2 + 0.2) = 44.8 ms
// against 46 of 32 (1.33 + 1.13 + 0.2) = 85.12 ms: 0.44643 < 0.54041.
TEST(NeoChoice, B_DecodesAlternateUntilOneIsRefused) {
  const NeoChoice choice = queue_b().choose();
  EXPECT_TRUE(choice.pipelined);
  EXPECT_EQ(in(choice, 0), 13);
  EXPECT_EQ(in(choice, 1), 13);
  EXPECT_EQ(in(choice, NeoChoice::kRests), 34);
  EXPECT_DOUBLE_EQ(choice.slack[0] / kMs, 0.01);
  EXPECT_DOUBLE_EQ(choice.slack[1] / kMs, 0.01);
  EXPECT_EQ(choice.gpu_only.sequences, 20);
  EXPECT_DOUBLE_EQ(in_ms(choice.gpu_only.time), 44.8);
  EXPECT_EQ(choice.both.sequences, 46);
  EXPECT_DOUBLE_EQ(in_ms(choice.both.time), 85.12);
  // The first two: batch 1, then batch 0, which has 0.41 of slack against 0.36. Then both have 0.37: batch 0.
  EXPECT_THAT(std::vector(choice.sub_batch.begin(), choice.sub_batch.begin() + 3), ElementsAre(1, 0, 0));
}

// The code skips what is at least as long as a refused decode, the paper's rule tries each. With a shorter one behind:
// 27 decodes of 400, then one of 100, one of 400 and one of 50. After 13 and 13 with slacks of 0.01, the one of 100
// takes 0.01 of time that its sub-batch 0 does not lack: slack_0 = 0.01 - 0.01 = 0. Then slack_1 = 0.02: the one of 50
// takes 0.005 there.
TEST(NeoChoice, OnlyShorterDecodesAreTriedAfterARefusal) {
  Queue queue = queue_b();
  queue.cpu_decodes = tokens(27, 400);
  for (const std::int64_t length : {100, 400, 50}) queue.cpu_decodes.emplace_back(length);
  const NeoChoice choice = queue.choose();
  EXPECT_THAT(std::vector(choice.sub_batch.begin() + 26, choice.sub_batch.end()), ElementsAre(-1, 0, -1, 1));
}

// Ten decodes of 1 token behind the refused one take 0.0001 each and lengthen the linear layers of their sub-batch by
// 0.01: five in each leave slacks of 0.01 + 0.05 - 0.0005, enough for another of 400. It is skipped all the same.
TEST(NeoChoice, OneAsLongAsARefusedDecodeIsSkippedEvenWhereItWouldFit) {
  Queue queue = queue_b();
  queue.cpu_decodes = tokens(27, 400);
  for (int i = 0; i < 10; ++i) queue.cpu_decodes.emplace_back(1);
  queue.cpu_decodes.emplace_back(400);
  const NeoChoice choice = queue.choose();
  EXPECT_EQ(in(choice, 0) + in(choice, 1), 36);
  EXPECT_DOUBLE_EQ(choice.slack[0] / kMs, 0.0595);
  EXPECT_EQ(choice.sub_batch.back(), NeoChoice::kRests);
}

// Without launch and pref the paper's inequalities are ca1 <= l0 and ca0 <= l1 + ga0. Batch 1 comes first: with n
// there, 0.04 n <= 1.2 holds up to n = 30, where 1.2 = 1.2. Each of the other 30 lengthens l0 in batch 0 by 0.01 ms,
// and ca0 by 0.04 up to 1.3 + 0.2 = 1.5 at 37. So every fourth that joins batch 0 makes place for one more in batch 1.
// After k in batch 0: 30 + floor(k / 4) in batch 1, 60 together: k = 24, 36 in batch 1; ca0 = 0.96 <= 1.36 + 0.2.
TEST(NeoChoice, ThePaperFillsTheSecondSubBatchFirst) {
  const NeoChoice choice = queue_b().choose(NeoRules::paper);
  EXPECT_TRUE(choice.pipelined);
  EXPECT_EQ(in(choice, 1), 36);
  EXPECT_EQ(in(choice, 0), 24);
  EXPECT_EQ(choice.sub_batch[29], 1);
  EXPECT_EQ(choice.sub_batch[30], 0);
  EXPECT_EQ(choice.sub_batch[34], 1);
}

// C. As A, with prompts of 800 and 600 for the host: without them the batch still has 1,020 tokens, and the slacks stay
// positive. So it is A.
TEST(NeoChoice, C_PromptsForTheHostWaitWhereTheBatchIsLargeWithoutThem) {
  Queue queue = queue_a();
  queue.cpu_prompts = {{Tokens(800)}, {Tokens(600)}};
  const NeoChoice choice = queue.choose();
  EXPECT_EQ(choice.cpu_prompts, 0U);
  EXPECT_TRUE(choice.pipelined);
  EXPECT_EQ(in(choice, 1), 60);
  EXPECT_DOUBLE_EQ(in_ms(choice.predicted), 448.0);
  EXPECT_DOUBLE_EQ(choice.slack[0] / kMs, 2.0);
  EXPECT_DOUBLE_EQ(choice.slack[1] / kMs, 8.0);
}

// 127 decodes and prompts of 1 and 100 for the host: without the last the batch has 128 tokens, without both 127.
TEST(NeoChoice, PromptsForTheHostStayWhereTheBatchWouldHaveLessThan128Tokens) {
  const Queue queue{.cpu_prompts = {{Tokens(1)}, {Tokens(100)}}, .gpu_decodes = 127, .gpu_context = Tokens(127)};
  EXPECT_EQ(queue.choose().cpu_prompts, 1U);
  EXPECT_FALSE(queue.choose().pipelined);
  Queue more = queue;
  more.gpu_decodes = 128;
  EXPECT_EQ(more.choose().cpu_prompts, 0U);
}

// A prompt also stays where the CPU lacks time without it: 130 decodes of 1 token on the GPU, linear 2.3, a prompt of
// 100 for the host: 3.3 with it. One decode of 24,000 on the CPU, cdec 2.4: slack_1 = 3.3 - 3.2 = 0.1 with the prompt,
// 2.3 - 3.2 < 0 without it. The GPU alone drops the prompt: 130 in 2.3026, 56.5 per ms. Both: 132 in 3.3 + 1.01 +
// 0.0126, 30.5 per ms. So the GPU runs alone, and the prompt waits.
TEST(NeoChoice, PromptsOfThePipelineStayForTheCpusTime) {
  Queue queue{
      .cpu_prompts = {{Tokens(100)}}, .gpu_decodes = 130, .gpu_context = Tokens(130), .cpu_decodes = {Tokens(24'000)}};
  const NeoChoice choice = queue.choose();
  EXPECT_DOUBLE_EQ(choice.slack[1] / kMs, 0.1);
  EXPECT_EQ(choice.both.sequences, 132) << "with the prompt";
  EXPECT_EQ(choice.gpu_only.sequences, 130) << "without it";
  EXPECT_FALSE(choice.pipelined);
  EXPECT_EQ(choice.cpu_prompts, 0U);
  EXPECT_EQ(in(choice, NeoChoice::kRests), 1);
}

// 101 decodes of no context on the GPU, linear 2.01, and one of 1 token in batch 1: 102 in 3.02 is slower. Equal rates,
// by the paper's formulas: 2 decodes in 1.02, or 4 in 1.02 + 1.02 with two of no context in batch 1. The GPU runs
// alone.
TEST(NeoChoice, TheGpuRunsAloneUnlessThePipelineIsFaster) {
  const Queue queue{.gpu_decodes = 101, .cpu_decodes = {Tokens(1)}};
  const NeoChoice choice = queue.choose();
  EXPECT_EQ(choice.both.sequences, 102);
  EXPECT_DOUBLE_EQ(choice.both.time / kMs, 3.02);
  EXPECT_FALSE(choice.pipelined);
  const Queue equal{.gpu_decodes = 2, .cpu_decodes = tokens(2, 0)};
  const NeoChoice tie = equal.choose(NeoRules::paper);
  EXPECT_EQ(tie.both.sequences, 4);
  EXPECT_DOUBLE_EQ(tie.both.time, 2 * tie.gpu_only.time);
  EXPECT_FALSE(tie.pipelined);
}

// The budget counts decodes that run: of 60, 5.
TEST(NeoChoice, TheBudgetLimitsDecodesOnTheCpu) {
  Queue queue = queue_a();
  queue.budget = 5;
  EXPECT_EQ(in(queue.choose(), 1), 5);
  queue.budget = 0;
  EXPECT_FALSE(queue.choose().pipelined);
}

// FastDecode+ runs everything. 4 decodes of 30,000 (3 ms each): batch 1, then where more slack is. After the first:
// slack_0 = 1.01 - 0.8 = 0.21, slack_1 = -3.8: batch 0; then slack_0 = 1.01 - 3.8 = slack_1: batch 0; then
// slack_0 = 1.01 - 6.8, slack_1 = 1.02 - 3.8: batch 1. Layer: max(1.02, 6.8) + max(1.02, 6.8) = 13.6.
TEST(NeoChoice, FastDecodeRunsEveryDecode) {
  const Queue queue{.cpu_decodes = tokens(4, 30'000)};
  const NeoChoice choice = queue.choose(NeoRules::fastdecode);
  EXPECT_TRUE(choice.pipelined);
  EXPECT_THAT(choice.sub_batch, ElementsAre(1, 0, 0, 1));
  EXPECT_DOUBLE_EQ(choice.predicted / kMs, 13.6);
}

// Symmetric halves: 50 to batch 1, then 10 and 30 to batch 0, whose 40 are fewer, then 20 there, too, then 5 to
// batch 1.
TEST(NeoChoice, FastDecodesHalvesHaveEqualContext) {
  const Queue queue{.cpu_decodes = {Tokens(50), Tokens(10), Tokens(30), Tokens(20), Tokens(5)}};
  EXPECT_THAT(queue.choose(NeoRules::symmetric).sub_batch, ElementsAre(1, 0, 0, 0, 1));
}

// Without overlap one batch: linear of 20 + 60 tokens 1.8, gdec 0.2, cdec 2.4 and the launch 0.8.
TEST(NeoChoice, WithoutOverlapTheTimesAddUp) {
  const NeoChoice choice = queue_b().choose(NeoRules::no_overlap);
  EXPECT_EQ(in(choice, 0), 60);
  EXPECT_DOUBLE_EQ(choice.predicted / kMs, 5.2);
}

// A, whose prompt has 600 of its 1,000 tokens in the prefix cache: batch 0 has 400 + 20 tokens, linear 5.2, and the
// prompt's attention is 1 - 0.36 = 0.64. The GPU alone: 5.2 + 0.64 + 0.2.
TEST(NeoChoice, APromptCountsAsWhatIsNotCached) {
  Queue queue = queue_a();
  queue.gpu_prompts = {{Tokens(1000), Tokens(600)}};
  EXPECT_DOUBLE_EQ(queue.choose().gpu_only.time / kMs, 6.04);
  // 100 decodes and a prompt of 500 for the host, 472 of them cached: 128 tokens with it, fewer without it.
  const Queue host{.cpu_prompts = {{Tokens(500), Tokens(472)}, {Tokens(500), Tokens(472)}}, .gpu_decodes = 100};
  EXPECT_EQ(host.choose().cpu_prompts, 1U);
}

/// The times of PlainPredictor as an execution model of 32 layers.
class PlainModel : public ExecutionModel {
 public:
  [[nodiscard]] std::int32_t layers() const override { return kLayers; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    const PlainPredictor plain;
    std::int64_t tokens = shape.decodes();
    double attention = plain.gpu_decodes(shape.decode_context);
    for (const PrefillChunk& chunk : shape.chunks) {
      tokens += chunk.new_tokens.count();
      attention += plain.prompt(chunk.new_tokens);
    }
    IterationTime time;
    time.attention = Duration(std::llround(attention));
    time.layer = Duration(std::llround(plain.linear(Tokens(tokens)))) + time.attention;
    return time;
  }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes bytes, CopyMechanism) const override {
    return {Duration(0), Duration(bytes.count())};
  }
  [[nodiscard]] CpuAttentionTime cpu_attention(std::int64_t, Tokens context) const override {
    return {.launch = Duration(800'000), .attention = Duration(100 * context.count()), .kv = Bytes(context.count())};
  }
};

struct Charged {
  double ms = 0.0;
  double cpu_busy_ms = 0.0;
  std::array<double, 2> bubbles_ms{};
};

Charged charged(const std::vector<BatchShape>& shapes) {
  const PlainModel model;
  const KvLayout kv = layout(100, 100);
  const TierGraph graph = kv.graph();
  IterationRunner runner(model, kv, graph, {});
  const ExecutedIteration& iteration = runner.run(shapes, SimTime(0), Blocks(0));
  const auto ms = [](Duration time) { return to_seconds(time) * 1e3; };
  return {ms(iteration.end - iteration.start),
          ms(iteration.cpu_busy),
          {ms(iteration.bubbles[0]), ms(iteration.bubbles[1])}};
}

double charged_ms(const std::vector<BatchShape>& shapes) { return charged(shapes).ms; }

// A, charged. Stage of batch 0: linear, 11.2 ms; of batch 1: its linear layers and the attention of batch 0,
// 1.6 + 1.2 = 2.8 ms. A layer of the GPU takes 14 ms. Batch 1 attends on the CPU for 0.8 + 2.4 = 3.2 ms beside the next
// 11.2 ms, except after the last layer: 32 x 14 + 3.2 = 451.2 ms. That is the GPU's only wait, for sub-batch 1. The CPU
// works for 32 x 3.2 = 102.4 ms.
TEST(NeoCharged, A_FillsAndDrainsThePipeline) {
  const std::array<PrefillChunk, 1> prompt{{{Tokens(1000), Tokens(0)}}};
  const Charged a = charged({{.decode_sequences = 20, .decode_context = Tokens(10'000), .chunks = prompt},
                             {.cpu_sequences = 60, .cpu_context = Tokens(24'000)}});
  EXPECT_DOUBLE_EQ(a.ms, 451.2);
  EXPECT_DOUBLE_EQ(a.cpu_busy_ms, 102.4);
  EXPECT_EQ(a.bubbles_ms[0], 0.0);
  EXPECT_DOUBLE_EQ(a.bubbles_ms[1], 3.2);
}

// B, charged. Stages: 1.33 ms of linear layers of batch 0, then 1.13 + 0.2 = 1.33 ms. Each sub-batch attends on the CPU
// for 0.52 + 0.8 = 1.32 ms, which the other stage hides: 32 x 2.66 = 85.12 ms, and 1.32 ms at the end. Were the GPU to
// attend for batch 0 before its CPU starts, 1.32 ms would not fit beside 1.13.
TEST(NeoCharged, B_TheGpuAttendsBesideTheCpu) {
  EXPECT_DOUBLE_EQ(charged_ms({{.decode_sequences = 20,
                                .decode_context = Tokens(10'000),
                                .cpu_sequences = 13,
                                .cpu_context = Tokens(5'200)},
                               {.cpu_sequences = 13, .cpu_context = Tokens(5'200)}}),
                   85.12 + 1.32);
}

// One batch: 32 (1.33 + 0.2 + 1.32). The GPU waits while the CPU attends.
TEST(NeoCharged, OneSubBatchWaitsForTheCpu) {
  const Charged one = charged(
      {{.decode_sequences = 20, .decode_context = Tokens(10'000), .cpu_sequences = 13, .cpu_context = Tokens(5'200)}});
  EXPECT_DOUBLE_EQ(one.ms, 32 * 2.85);
  EXPECT_DOUBLE_EQ(one.cpu_busy_ms, 32 * 1.32);
  EXPECT_DOUBLE_EQ(one.bubbles_ms[0], 32 * 1.32);
  EXPECT_EQ(one.bubbles_ms[1], 0.0);
}

// 1 to 3, then 4, 8, 16: between 8 and 16 a straight line.
TEST(NeoAxis, IsDenseAndThenDoubles) {
  const NeoAxis axis(3, 9);
  EXPECT_THAT(axis.numbers(), ElementsAre(0, 1, 2, 3, 4, 8, 16));
  EXPECT_EQ(axis.find(2).lower, 2U);
  EXPECT_EQ(axis.find(4).lower, 4U);
  EXPECT_EQ(axis.find(10).lower, 5U);
  EXPECT_DOUBLE_EQ(axis.find(10).way, 0.25);
  EXPECT_EQ(axis.find(16).lower, 6U);
  EXPECT_THROW(static_cast<void>(axis.find(17)), InvariantError);
  EXPECT_THAT(NeoAxis(511, 2).numbers(), ElementsAre(0, 1, 2));
  EXPECT_EQ(NeoAxis(511, 20'480).numbers()[512], 512);
  EXPECT_EQ(NeoAxis(511, 20'480).find(700).lower, 512U);
  EXPECT_THAT(NeoAxis(1, 5).numbers(), ElementsAre(0, 1, 2, 4, 8));
}

// Linear functions are exact everywhere. prompt(1000) lies between 512^2 and 1024^2:
// 262,144 + 488 / 512 x 786,432 = 1,011,712 instead of 1,000,000. A predictor with an error of 0.5 adds half of the
// CPU's time, and nothing else.
TEST(NeoTables, InterpolateAsTheOriginal) {
  const NeoRanges ranges{Tokens(2048), Tokens(2048), Tokens(20'000), 64, Tokens(30'000)};
  const NeoTables tables(PlainModel(), ranges, 0.0);
  const PlainPredictor plain;
  for (const std::int64_t x : {0, 1, 300, 511, 700, 1020})
    EXPECT_DOUBLE_EQ(tables.linear(Tokens(x)), plain.linear(Tokens(x)));
  EXPECT_DOUBLE_EQ(tables.prompt(Tokens(1024)), 1024.0 * 1024.0);
  EXPECT_DOUBLE_EQ(tables.prompt(Tokens(1000)), 1'011'712.0);
  EXPECT_DOUBLE_EQ(tables.gpu_decodes(Tokens(10'000)), 200'000.0);
  EXPECT_DOUBLE_EQ(tables.cpu_decodes(60, Tokens(24'000)), 2'400'000.0) << "the launch is apart";
  EXPECT_DOUBLE_EQ(tables.cpu_decodes(0, Tokens(0)), 0.0);
  const NeoTables wrong(PlainModel(), ranges, 0.5);
  EXPECT_DOUBLE_EQ(wrong.cpu_decodes(60, Tokens(24'000)), 3'600'000.0);
  EXPECT_DOUBLE_EQ(wrong.linear(Tokens(100)), plain.linear(Tokens(100)));
}

// 28.5, 66.5 and 104.5 are rounded to the even neighbour.
TEST(NeoSwapIn, RoundsHalfToEven) {
  EXPECT_EQ(neo_swap_in_limit(Blocks(30)), Blocks(28));
  EXPECT_EQ(neo_swap_in_limit(Blocks(70)), Blocks(66));
  EXPECT_EQ(neo_swap_in_limit(Blocks(110)), Blocks(104));
  EXPECT_EQ(neo_swap_in_limit(Blocks(50)), Blocks(48)) << "47.5";
  EXPECT_EQ(neo_swap_in_limit(Blocks(52)), Blocks(49)) << "49.4";
}

Layout laid_out(const char* policy, std::int64_t blocks, std::int64_t host_blocks, bool given = true) {
  const PolicyInfo& info = *PolicyRegistry::instance().find(policy);
  Deployment deployment;
  deployment.layers = 32;
  deployment.block_bytes = Bytes(1000);
  deployment.gpu_kv = Bytes(1000 * blocks);
  deployment.gpu_kv_given = given;
  return info.layout(deployment, oracle::policy_settings(info, {{"memory.host_kv", Bytes(1000 * host_blocks)}}));
}

std::string refusal(const char* policy, std::int64_t blocks, std::int64_t host_blocks, bool given = true) {
  try {
    static_cast<void>(laid_out(policy, blocks, host_blocks, given));
  } catch (const ConfigError& error) {
    return error.problems().front().what + "; " + error.problems().front().fix;
  }
  return "nothing was refused";
}

// The staging layer: 54 x 32 / 33 = 52.4, 1650 x 32 / 33 = 1600.
TEST(NeoLayout, TheStagingLayerCostsBlocks) {
  EXPECT_EQ(laid_out("neo", 54, 5000).blocks, Blocks(52));
  EXPECT_EQ(laid_out("neo", 1650, 5000).blocks, Blocks(1600));
}

// Of one block, 1 x 32 / 33 are none, whether or not requests stay there.
TEST(NeoLayout, NamesWhatDoesNotFit) {
  for (const char* const policy : {"neo", "fastdecode"}) {
    EXPECT_THAT(
        refusal(policy, 1, 5000),
        HasSubstr(
            "memory for 1 blocks is divided among 33 layers, one of which stages prompts for the host; raise it"));
    EXPECT_THAT(refusal(policy, 0, 5000), HasSubstr("memory.gpu_kv is less than a KV block"));
    EXPECT_THAT(refusal(policy, 0, 5000, false), HasSubstr("the weights leave no GPU memory for KV"));
  }
  EXPECT_THAT(refusal("neo", 54, 52), HasSubstr("memory.host_kv holds 52 KV blocks, and policy neo keeps 52 free"));
  EXPECT_EQ(laid_out("fastdecode", 54, 1).blocks, Blocks(52)) << "it keeps nothing on the GPU";
  EXPECT_THAT(refusal("fastdecode", 54, 0), HasSubstr("no prompt fits"));
}

double figure(const Replay& run, const std::string& name) {
  for (const PolicyFigure& one : run.result.statistics.engine.figures) {
    if (one.definition.name == name) return one.value.value_or(-1.0);
  }
  return -2.0;
}

/// neo with other options.
template <class Change>
PolicyInfo neo_with(Change change) {
  PolicyInfo info = *PolicyRegistry::instance().find("neo");
  info.make = [change](const PolicyContext& context) {
    NeoOptions options;
    options.tokens = Tokens(context.settings.get<std::int64_t>("engine.max_num_batched_tokens"));
    options.sequences = context.settings.get<std::int64_t>("engine.max_num_seqs");
    options.launch = 0.8 * kMs;
    change(options);
    auto space = std::make_unique<NeoSpace>(context.view, CopyMechanism::many);
    auto scheduler = std::make_unique<NeoScheduler>(context.view, *space, *context.deployment.model, options);
    return Policy{std::move(scheduler), std::move(space)};
  };
  return info;
}

const Overrides kSwaps{{"engine.preemption", std::string("swap")}, {"engine.chunked_prefill", false}};

// 10 of 11 blocks are left for KV: 33 layers stage, so 11 x 32 / 33 = 10.67. R0 of 100 tokens takes 7 blocks. R1 of 60
// needs 4 and goes to the host: the batch has 100 tokens without it, less than 128, so it runs. While R0 decodes, R1
// attends on the CPU or rests. R0 ends, and R1 comes to the GPU: its 4 blocks are within the 10 x 0.95 that may.
TEST(NeoScheduler, APromptWithoutBlocksOnTheGpuGoesToTheHostAndComesBack) {
  const PlainModel model;
  const Replay run = replay("neo", kSwaps, layout(11, 40), {request(0, 100, 3), request(0, 60, 6)}, model);
  EXPECT_EQ(run.of(0).outcome, Outcome::finished);
  EXPECT_EQ(run.of(1).outcome, Outcome::finished);
  EXPECT_EQ(run.of(0).first_token, run.of(1).first_token) << "both prompts run in the first iteration";
  EXPECT_EQ(run.result.statistics.engine.peak_kv, Blocks(7));
  EXPECT_EQ(run.result.statistics.engine.peak_host_kv, Blocks(4));
  EXPECT_EQ(figure(run, "swap_ins"), 1.0);
  EXPECT_EQ(figure(run, "swap_outs"), 0.0);
  EXPECT_EQ(run.of(1).preempted_swap, 0) << "rest and return are no preemption";
}

// 10 blocks. R0 and R1 of 72 tokens take 5 each, up to their 80th token: 8 decodes. Then both need a sixth: R1, the
// last, moves to the host whole.
TEST(NeoScheduler, OnShortageTheLastOfTheGpuMovesToTheHost) {
  const PlainModel model;
  const Replay run = replay("neo", kSwaps, layout(11, 40), {request(0, 72, 20), request(0, 72, 20)}, model);
  EXPECT_EQ(figure(run, "swap_outs"), 1.0);
  EXPECT_EQ(run.of(1).preempted_swap, 1);
  EXPECT_EQ(run.of(0).preempted_swap, 0);
  EXPECT_EQ(run.of(1).outcome, Outcome::finished);
}

// Of 20 blocks, 19 come back at most: a request of 19 x 16 + 1 tokens or more needs 20 and stays on the host. It is
// alone, so nothing fills batch 0: the public code runs nothing for ever. Here the CPU attends for it.
TEST(NeoScheduler, ARequestTooLargeToComeBack_StopsThePublicCode_AndRunsOnTheCpuHere) {
  const PlainModel model;
  const std::vector<RequestSpec> requests{request(0, 10, 2), request(0, 309, 5)};
  const auto run_with = [&](bool resolves) {
    const PolicyInfo policy = neo_with([resolves](NeoOptions& options) { options.resolves_livelock = resolves; });
    return replay(policy, kSwaps, layout(21, 100), requests, model);
  };
  const Replay run = run_with(true);
  EXPECT_EQ(run.of(1).outcome, Outcome::finished);
  EXPECT_EQ(figure(run, "cpu_only_iterations"), 3.0) << "after R0 has ended with the second token";
  try {
    static_cast<void>(run_with(false));
    FAIL() << "the livelock was not noticed";
  } catch (const BrokenPromise& error) {
    EXPECT_THAT(error.what(), HasSubstr("no event is to come and request 1 is unfinished"));
  }
}

// C - G = 30 - 20 = 10 blocks for prompts, wherever they go: 160 tokens fit, 161 never do.
TEST(NeoScheduler, RejectsWhatCanNeverRun) {
  const PlainModel model;
  const Replay run = replay("neo", kSwaps, layout(21, 30), {request(0, 161, 2), request(0, 160, 2)}, model);
  EXPECT_EQ(run.of(0).outcome, Outcome::rejected);
  EXPECT_EQ(run.of(1).outcome, Outcome::finished);
  // An iteration of 159 tokens never computes 160.
  Overrides overrides = kSwaps;
  overrides.emplace_back("engine.max_num_batched_tokens", std::int64_t{159});
  const Replay shorter = replay("neo", overrides, layout(21, 30), {request(0, 160, 2), request(0, 150, 2)}, model);
  EXPECT_EQ(shorter.of(0).outcome, Outcome::rejected);
  EXPECT_EQ(shorter.of(1).outcome, Outcome::finished);
}

/// Notes the chunks that run: new tokens and context. Shapes that only fill tables have no samples.
class ChunkModel final : public PlainModel {
 public:
  using Chunks = std::vector<std::pair<std::int64_t, std::int64_t>>;
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    for (const PrefillChunk& chunk : shape.chunks) {
      if (shape.sampled_sequences > 0) seen_.emplace_back(chunk.new_tokens.count(), chunk.context.count());
    }
    return PlainModel::iteration(shape);
  }
  [[nodiscard]] const Chunks& seen() const { return seen_; }

 private:
  mutable Chunks seen_;
};

/// Arrives `second` seconds after the start, with these blocks of 16 as its prefix.
RequestSpec prompt(std::int64_t second, std::int64_t input, std::int64_t output, std::vector<std::uint64_t> prefix) {
  RequestSpec spec = request(second * 1'000'000'000, input, output);
  spec.prefix_ids = std::move(prefix);
  return spec;
}

KvLayout caching(std::int64_t gpu, std::int64_t host, std::int64_t host_cache = 0) {
  KvLayout kv = layout(gpu, host);
  kv.prefix_caching = true;
  kv.host_cache_blocks = Blocks(host_cache);
  return kv;
}

// Five blocks of R0's 100 tokens are R1's, too: it computes 20 tokens, which attend to 80.
TEST(NeoPrefix, APromptForTheGpuComputesTheRest) {
  const ChunkModel model;
  const std::vector<std::uint64_t> prefix{1, 2, 3, 4, 5};
  const Replay run =
      replay("neo", kSwaps, caching(34, 100), {prompt(0, 100, 2, prefix), prompt(9, 100, 2, prefix)}, model);
  EXPECT_THAT(model.seen(), ElementsAre(std::pair(100, 0), std::pair(20, 80)));
  EXPECT_EQ(run.of(1).cached, Tokens(80));
  EXPECT_EQ(run.result.statistics.engine.prefix_hit, Tokens(80));
  EXPECT_EQ(run.result.statistics.engine.moved_d2h, Bytes(0));
}

// 10 blocks on the GPU. R0 leaves 4 blocks of its 64 tokens in the cache. R1 takes 6 of the others, and R2, whose 80
// tokens begin with those 4 blocks, would take 5: it goes to the host. While it computes 16 tokens, which attend to 64,
// it uses the 4 on the GPU: 10 in all. Then its whole KV is on the host, 5 blocks of 1,000 bytes. (Without R2 the batch
// has 96 tokens, fewer than 128, so it is not dropped.)
TEST(NeoPrefix, APromptForTheHostUsesThePrefixOnTheGpu) {
  const ChunkModel model;
  const std::vector<std::uint64_t> prefix{1, 2, 3, 4};
  const Replay run = replay("neo", kSwaps, caching(11, 40),
                            {prompt(0, 64, 2, prefix), prompt(9, 96, 2, {}), prompt(9, 80, 2, prefix)}, model);
  EXPECT_THAT(model.seen(), ElementsAre(std::pair(64, 0), std::pair(96, 0), std::pair(16, 64)));
  EXPECT_EQ(run.of(2).cached, Tokens(64));
  EXPECT_EQ(run.result.statistics.engine.peak_kv, Blocks(10));
  EXPECT_EQ(run.result.statistics.engine.moved_d2h, Bytes(5000));
  for (const std::uint32_t i : {0U, 1U, 2U}) EXPECT_EQ(run.of(i).outcome, Outcome::finished);
}

// As above, but R1's 112 tokens take 7 blocks: with the 4 of the prefix 11 would be in use. So R2 computes all of its
// 80 tokens.
TEST(NeoPrefix, APromptForTheHostIsComputedWholeWhereItsPrefixDoesNotFitBesideTheOthers) {
  const ChunkModel model;
  const std::vector<std::uint64_t> prefix{1, 2, 3, 4};
  const Replay run = replay("neo", kSwaps, caching(11, 40),
                            {prompt(0, 64, 2, prefix), prompt(9, 112, 2, {}), prompt(9, 80, 2, prefix)}, model);
  EXPECT_THAT(model.seen(), ElementsAre(std::pair(64, 0), std::pair(112, 0), std::pair(80, 0)));
  EXPECT_EQ(run.of(2).cached, Tokens(0));
  EXPECT_EQ(run.result.statistics.engine.moved_d2h, Bytes(5000));
}

// Two prompts of the same 64 tokens and 16 of their own: the second one shares what the first one computes beside it.
TEST(NeoPrefix, PromptsOfAnIterationShare) {
  const ChunkModel model;
  const std::vector<std::uint64_t> prefix{1, 2, 3, 4};
  static_cast<void>(
      replay("neo", kSwaps, caching(34, 100), {prompt(0, 80, 2, prefix), prompt(0, 80, 2, prefix)}, model));
  EXPECT_THAT(model.seen(), ElementsAre(std::pair(80, 0), std::pair(16, 64)));
}

// 10 blocks: those that R0 fills come first in the order of reuse once R1 has used the others. R2 needs 5 blocks and
// takes 4 of R0's. R3 has 5, 4 of them with R0's prefix, which R2 takes before it. So it waits for the next iteration,
// whose prompt is 80 tokens long.
TEST(NeoPrefix, APromptWhosePrefixGoesWaits) {
  const ChunkModel model;
  const std::vector<std::uint64_t> prefix{1, 2, 3, 4};
  const Replay run = replay("neo", kSwaps, caching(11, 40),
                            {prompt(0, 64, 1, prefix), prompt(3, 96, 1, {6, 7, 8, 9, 10, 11}), prompt(9, 80, 1, {}),
                             prompt(9, 80, 1, prefix)},
                            model);
  EXPECT_THAT(model.seen(), ElementsAre(std::pair(64, 0), std::pair(96, 0), std::pair(80, 0), std::pair(80, 0)));
  EXPECT_EQ(run.of(3).cached, Tokens(0));
  EXPECT_GT(run.of(3).first_token, run.of(2).first_token);
}

// FastDecode computes R0's 64 tokens for the host: 4 blocks of 1,000 bytes leave the GPU, which keeps none. They are in
// memory.host_cache. R1 begins with them: they come back, it computes 16 tokens, and 5 blocks leave. Now the GPU has
// the 4 in its cache, so for R2 none comes.
TEST(NeoPrefix, TheHostsCacheReturnsPrefixes) {
  const ChunkModel model;
  const std::vector<std::uint64_t> prefix{1, 2, 3, 4};
  const Replay run = replay("fastdecode", {{"engine.chunked_prefill", false}}, caching(11, 40, 20),
                            {prompt(0, 64, 2, prefix), prompt(9, 80, 2, prefix), prompt(18, 80, 2, prefix)}, model);
  EXPECT_THAT(model.seen(), ElementsAre(std::pair(64, 0), std::pair(16, 64), std::pair(16, 64)));
  const EngineTotals& totals = run.result.statistics.engine;
  EXPECT_EQ(totals.prefix_asked, Tokens(64 + 80 + 80)) << "R0 takes no prefix, but was looked up";
  EXPECT_EQ(totals.prefix_hit, Tokens(128));
  EXPECT_EQ(totals.prefix_hit_host, Tokens(64));
  EXPECT_EQ(totals.moved_h2d, Bytes(4000));
  EXPECT_EQ(totals.moved_d2h, Bytes(4000 + 5000 + 5000));
  EXPECT_EQ(totals.peak_kv, Blocks(4)) << "only while a prompt is computed";
}

// Without memory.host_cache nothing of FastDecode's prompts is in a cache.
TEST(NeoPrefix, WhatIsComputedForTheHostFillsNoBlockOfTheGpu) {
  const ChunkModel model;
  const std::vector<std::uint64_t> prefix{1, 2, 3, 4};
  static_cast<void>(replay("fastdecode", {{"engine.chunked_prefill", false}}, caching(11, 40),
                           {prompt(0, 64, 2, prefix), prompt(9, 80, 2, prefix)}, model));
  EXPECT_THAT(model.seen(), ElementsAre(std::pair(64, 0), std::pair(80, 0)));
}

// Decodes on the host fill blocks, too. R0 has 30 tokens and generates 20: at the end the KV of 49 exists, 3 blocks.
// R1 repeats them: of its 49 tokens 48 are cached.
TEST(NeoPrefix, DecodesOnTheHostFillBlocksOfTheHostsCache) {
  const ChunkModel model;
  const std::vector<std::uint64_t> prefix{1, 2, 3};
  static_cast<void>(replay("fastdecode", {{"engine.chunked_prefill", false}}, caching(11, 40, 20),
                           {prompt(0, 30, 20, prefix), prompt(9, 49, 1, prefix)}, model));
  EXPECT_THAT(model.seen(), ElementsAre(std::pair(30, 0), std::pair(1, 48)));
}

// FastDecode keeps nothing on the GPU.
TEST(FastDecode, KeepsAllKvOnTheHost) {
  const PlainModel model;
  const Overrides recomputes{{"engine.chunked_prefill", false}};
  const Replay run = replay("fastdecode", recomputes, layout(11, 40), {request(0, 40, 9), request(0, 40, 9)}, model);
  EXPECT_EQ(run.result.statistics.engine.peak_kv, Blocks(0));
  EXPECT_EQ(run.result.statistics.engine.peak_host_kv, Blocks(6)) << "48 tokens each";
  EXPECT_EQ(figure(run, "cpu_attention_tokens"), 16.0);
  EXPECT_EQ(run.of(0).outcome, Outcome::finished);
  EXPECT_EQ(run.of(1).outcome, Outcome::finished);
}

// Every decode runs in every iteration, in one batch. R0 keeps 7 of 10 blocks, R1 goes to the host: prompts, then two
// iterations of both; R0 ends, and R1 comes to the GPU for its last three tokens.
TEST(SimpleOffload, RunsEveryDecodeAndWaitsForTheCpu) {
  const PlainModel model;
  const Replay run = replay("simple-offload", kSwaps, layout(11, 40), {request(0, 100, 3), request(0, 60, 6)}, model);
  EXPECT_EQ(figure(run, "cpu_attention_tokens"), 2.0);
  EXPECT_EQ(figure(run, "swap_ins"), 1.0);
  EXPECT_EQ(figure(run, "cpu_rests"), 0.0);
}

}  // namespace
}  // namespace spillway
