// FlexGen's request blocks, padding and placement, nanosecond by nanosecond.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "policies/parts/flexgen_cost_model.hpp"
#include "policies/parts/flexgen_matrices.hpp"
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

using oracle::WholeModel;
using testing::HasSubstr;

Overrides placed(std::int64_t gpu_batch, std::int64_t batches, double weights, double cache, double hidden,
                 std::int64_t pad_input, std::int64_t pad_output, Overrides more = {}) {
  more.insert(more.end(), {{"policy.gpu_batch", gpu_batch},
                           {"policy.batches", batches},
                           {"policy.weights_host", weights},
                           {"policy.cache_host", cache},
                           {"policy.hidden_host", hidden},
                           {"policy.pad_input", pad_input},
                           {"policy.pad_output", pad_output},
                           {"engine.chunked_prefill", false}});
  return more;
}

// Blocks of 2 x 2 requests, everything on the GPU, 100 ns per micro-batch. Four of five requests are computed as 16 + 4
// tokens: 4 iterations of 200 ns. The fifth is a block of its own: 4 iterations of 100 ns.
TEST(Flexgen, Block_RunsToThePaddedLength_AndNobodyJoins) {
  const WatchingModel model(Duration(100));
  const Replay run =
      replay("flexgen", placed(2, 2, 0, 0, 0, 16, 4), layout(100),
             {request(0, 16, 4), request(0, 3, 1), request(0, 1, 2), request(0, 9, 3), request(0, 5, 1)}, model);
  const auto& seen = model.seen();
  ASSERT_EQ(seen.size(), 12U);
  const SeenIteration prompts{0, 0, {{16, 0}, {16, 0}}};
  EXPECT_EQ(seen[0], prompts);
  EXPECT_EQ(seen[1], prompts);
  EXPECT_EQ(seen[2], (SeenIteration{2, 34, {}}));
  EXPECT_EQ(seen[7], (SeenIteration{2, 38, {}}));
  EXPECT_EQ(seen[8], (SeenIteration{0, 0, {{16, 0}}}));
  EXPECT_EQ(seen[11], (SeenIteration{1, 19, {}}));
  for (const std::uint64_t index : {0U, 1U, 2U, 3U}) {
    EXPECT_EQ(run.of(index).first_token, SimTime(200));
    EXPECT_EQ(run.of(index).end, SimTime(800));
    EXPECT_EQ(run.of(index).computing, Duration(800));
  }
  EXPECT_EQ(run.of(4).first_scheduled, SimTime(800));
  EXPECT_EQ(run.of(4).first_token, SimTime(900));
  EXPECT_EQ(run.of(4).end, SimTime(1200));
}

// As above: of 5 * 4 tokens that are computed 4 + 1 + 2 + 3 + 1 are output, and 3 + 0 + 1 + 2 + 0 have a gap before
// them.
TEST(Flexgen, Padding_IsNeitherOutputNorAGap) {
  const WatchingModel model(Duration(100));
  std::vector<RequestSpec> requests{request(0, 16, 4), request(0, 3, 1), request(0, 1, 2), request(0, 9, 3),
                                    request(0, 5, 1)};
  requests[3].client = 1;
  const Replay run = replay("flexgen", placed(2, 2, 0, 0, 0, 16, 4), layout(100), requests, model);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(run.of(i).input, requests[i].input);
    EXPECT_EQ(run.of(i).output, requests[i].output);
    EXPECT_EQ(run.of(i).generated, requests[i].output);
  }
  const RunStatistics& statistics = run.result.statistics;
  EXPECT_EQ(statistics.find("mean_itl_ms")->n, 6);
  EXPECT_DOUBLE_EQ(*statistics.find("max_itl_ms")->value, 200e-6);
  ASSERT_EQ(statistics.clients.size(), 2U);
  EXPECT_EQ(statistics.clients[0].service_tokens, 25 + 2.0 * 8);
  EXPECT_EQ(statistics.clients[1].service_tokens, 9 + 2.0 * 3);
}

TEST(Flexgen, Requests_LongerThanThePadding_AreRejected) {
  const WatchingModel model(Duration(100));
  RequestSpec asks_much = request(0, 5, 2);
  asks_much.max_new_tokens = Tokens(5);
  const Replay run = replay("flexgen", placed(4, 1, 0, 0, 0, 16, 4), layout(100),
                            {request(0, 17, 1), request(0, 1, 5), asks_much, request(0, 16, 4)}, model);
  for (const std::uint64_t index : {0U, 1U, 2U}) EXPECT_EQ(run.of(index).outcome, Outcome::rejected);
  EXPECT_EQ(run.of(3).outcome, Outcome::finished);
  EXPECT_EQ(run.of(3).end, SimTime(400));
}

// 500 of a layer's 1,000 bytes, three matrices, come over in 3 * 1 + 2 * 500 / 64 = 18 ns; prompts take 5 + 2 * 45 + 3
// ns, decodes 6 + 2 * 24 + 3. Only the first layer of the block is waited for; an iteration's last layer loads for the
// next.
TEST(Flexgen, Weights_AreLoadedALayerAhead) {
  const WholeModel model(1, 0, {}, 2);
  const Replay run = replay("flexgen", placed(1, 1, 0.5, 0, 1, 8, 3), layout(10), {request(0, 8, 3)}, model);
  EXPECT_EQ(run.of(0).first_token, SimTime(5 + 18 + 90 + 3));
  EXPECT_EQ(run.of(0).end, SimTime(116 + 57 + 57));
  EXPECT_EQ(run.result.statistics.engine.moved_h2d, Bytes(3000));
  // A single micro-batch does not move its hidden states.
  EXPECT_EQ(run.result.statistics.engine.moved_d2h, Bytes(0));
}

// 62.5 bytes of KV per token, 1 ns per byte for copies and for what the CPU moves, five bytes for each of KV. The first
// prompt's KV leaves from 100 to 1100, and the first decode step waits for it: 100 + 5 * 1063 = 5415 each (17 * 62.5
// bytes, rounded up), then 100 + 5 * 18 * 62.5 = 5725: 1100 + 2 * 5415 + 2 * 5725. The last iteration stores nothing.
TEST(Flexgen, Cache_OnTheHost_IsAttendedToByTheCpu) {
  const WatchingModel model(Duration(100));
  const Replay run =
      replay("flexgen", placed(1, 2, 0, 1, 0, 16, 3), layout(100), {request(0, 16, 3), request(0, 16, 3)}, model);
  EXPECT_EQ(run.of(0).first_token, SimTime(200));
  EXPECT_EQ(run.of(0).end, SimTime(23'380));
  EXPECT_EQ(run.result.statistics.engine.moved_d2h, Bytes(2 * 1000 + 2 * 63));
  EXPECT_EQ(run.result.statistics.engine.moved_h2d, Bytes(0));
  // The GPU attends only to each sequence's newest token.
  EXPECT_EQ(model.seen()[2], (SeenIteration{1, 1, {}}));
}

// As above with one request and half of a layer's 1,000 bytes of weights on the host, 500 ns a copy. They are there at
// 500, and loaded again beside the prompt, until 1000. The first decode step loads those of the next iteration alone,
// until 1500, and then stores the prompt's KV and attends for 5415 ns. The last step loads nothing: 6915 + 5725.
TEST(Flexgen, Weights_WhenTheCpuAttends_AreLoadedBeforeIt) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("flexgen", placed(1, 1, 0.5, 1, 0, 16, 3), layout(100), {request(0, 16, 3)}, model);
  EXPECT_EQ(run.of(0).first_token, SimTime(600));
  EXPECT_EQ(run.of(0).end, SimTime(12'640));
  EXPECT_EQ(run.result.statistics.engine.moved_h2d, Bytes(1500));
}

// The first decode step's 16 tokens are loaded from 100 to 1100 beside the last prompt, the second's up to 2100; then
// 17 tokens, 1063 ns each.
TEST(Flexgen, Cache_OnTheHost_WithoutCpuAttention_IsLoadedAtEveryStep) {
  const WatchingModel model(Duration(100));
  const Replay run = replay("flexgen", placed(1, 2, 0, 1, 0, 16, 3, {{"policy.cpu_attention", false}}), layout(100),
                            {request(0, 16, 3), request(0, 16, 3)}, model);
  EXPECT_EQ(run.of(0).first_token, SimTime(200));
  EXPECT_EQ(run.of(0).end, SimTime(2100 + 2 * 1063 + 100));
  EXPECT_EQ(run.result.statistics.engine.moved_h2d, Bytes(2 * 1000 + 2 * 1063));
  EXPECT_EQ(model.seen()[2], (SeenIteration{1, 17, {}}));
}

/// layout(100), and blocks of 1,000 bytes that another GPU lends.
KvLayout lent_layout(std::int64_t blocks) {
  KvLayout kv = layout(100);
  kv.further = {{{kPeerTier, Blocks(blocks), Blocks(blocks)}}, {}};
  return kv;
}

// The case before with the KV of another GPU: the same times. 2 requests of 19 tokens have 2,375 bytes of KV, which 3
// blocks hold and 2 do not; then all of it is on the host. Half of the request block fits these, and takes a half: the
// 16 tokens of the prompt are stored and loaded, then 62.5 bytes are stored and 17 tokens loaded.
TEST(Flexgen, Cache_InLentMemory_CrossesTheLinksBetweenGpus) {
  const Overrides settings =
      placed(1, 2, 0, 1, 0, 16, 3, {{"policy.cpu_attention", false}, {"policy.swap_tier", std::string("peer")}});
  const std::vector<RequestSpec> requests{request(0, 16, 3), request(0, 16, 3)};
  for (const std::int64_t blocks : {3, 2}) {
    SCOPED_TRACE(blocks);
    const WatchingModel model(Duration(100));
    const Replay run = replay("flexgen", settings, lent_layout(blocks), requests, model);
    EXPECT_EQ(run.of(0).end, SimTime(2100 + 2 * 1063 + 100));
    const EngineTotals& totals = run.result.statistics.engine;
    const Bytes loaded(2 * 1000 + 2 * 1063);
    const Bytes stored(2 * 1000 + 2 * 63);
    EXPECT_EQ(totals.moved_peer_in, blocks == 3 ? loaded : Bytes(0));
    EXPECT_EQ(totals.moved_peer_out, blocks == 3 ? stored : Bytes(0));
    EXPECT_EQ(totals.moved_h2d, blocks == 3 ? Bytes(0) : loaded);
    EXPECT_EQ(totals.moved_d2h, blocks == 3 ? Bytes(0) : stored);
    const auto waited = [&totals](Resource link) { return totals.resource_time[static_cast<std::size_t>(link)]; };
    EXPECT_EQ(waited(Resource::peer) > 0.0, blocks == 3);
    EXPECT_EQ(waited(Resource::h2d) > 0.0, blocks == 2);
  }
  const WatchingModel model(Duration(100));
  const Replay half = replay("flexgen", settings, lent_layout(2), {request(0, 16, 3)}, model);
  EXPECT_EQ(half.result.statistics.engine.moved_peer_in, Bytes(1000 + 1063));
  EXPECT_EQ(half.result.statistics.engine.moved_h2d, Bytes(0));
}

TEST(Flexgen, LentMemory_NeedsAPlacementAndTheGpusAttention) {
  const auto problems = [](Overrides settings) {
    settings.emplace_back("policy.swap_tier", std::string("peer"));
    settings.emplace_back("engine.chunked_prefill", false);
    std::string all;
    const PolicyInfo& policy = *PolicyRegistry::instance().find("flexgen");
    for (const Problem& problem : policy.check(oracle::policy_settings(policy, settings))) all += problem.what + "; ";
    return all;
  };
  EXPECT_THAT(problems({}), AllOf(HasSubstr("places KV by the speed of the host"), HasSubstr("cannot attend")));
  EXPECT_THAT(problems({{"policy.slo_margin", 0.5}, {"policy.gpu_batch", std::int64_t{1}}}),
              HasSubstr("leaves all KV on the GPU"));
  EXPECT_EQ(problems(placed(1, 2, 0, 1, 0, 16, 3, {{"policy.cpu_attention", false}})), "");
}

// KV that stays lent needs no host memory. 19 tokens of 62.5 bytes are 1,187.5; the host has 1,000.
TEST(Flexgen, Layout_OfLentMemory) {
  const PolicyInfo& policy = *PolicyRegistry::instance().find("flexgen");
  const Settings settings = oracle::policy_settings(policy, placed(1, 1, 0, 1, 0, 16, 3,
                                                                   {{"policy.cpu_attention", false},
                                                                    {"policy.swap_tier", std::string("peer")},
                                                                    {"policy.host_memory", Bytes(1'000)}}));
  const WatchingModel model(Duration(100));
  Deployment deployment = oracle::snug_deployment(model, Blocks(100), Bytes(1'000), Tokens(16), Bytes(1'000));
  deployment.lent = Bytes(1'188);
  deployment.lent_for_good = true;
  EXPECT_THAT(policy.layout(deployment, settings).terms, HasSubstr("in memory that another GPU lends) and"));
  EXPECT_EQ(policy.layout(deployment, settings).host, Bytes(0));
  deployment.lent_for_good = false;
  EXPECT_THROW(static_cast<void>(policy.layout(deployment, settings)), ConfigError);
  deployment.host_memory.reset();
  deployment.lent = Bytes(1'187);
  deployment.lent_for_good = true;
  EXPECT_THROW(static_cast<void>(policy.layout(deployment, settings)), ConfigError);
}

// Hidden states of 64 numbers: a prompt of 4 tokens takes 512 bytes in and out, a decode 128. Prompts: the first step
// waits 512 for its input; the second starts once its own is there, at 1024, and ends at 1124. The third iteration's
// first step has been loaded by 1024 + 128.
TEST(Flexgen, HiddenStates_PassThroughTheHost) {
  const WatchingModel model(Duration(100));
  const Replay run =
      replay("flexgen", placed(1, 2, 0, 0, 1, 4, 2), layout(100), {request(0, 4, 2), request(0, 4, 2)}, model);
  EXPECT_EQ(run.of(0).first_token, SimTime(1124));
  // Step 2 stores the first one's output from 1024 to 1536. Then the second one's leaves, up to 2048.
  EXPECT_EQ(run.of(0).end, SimTime(2148));
  EXPECT_EQ(run.result.statistics.engine.moved_h2d, Bytes(2 * 512 + 2 * 128));
  EXPECT_EQ(run.result.statistics.engine.moved_d2h, Bytes(2 * 512 + 128));
}

// --- layout
// --------------------------------------------------------------------------------------------------------------------

const PolicyInfo& flexgen() { return *PolicyRegistry::instance().find("flexgen"); }

/// OPT-30B on a T4 with 16 GB of its own and 208 GB of a host.
Deployment opt_30b(const ExecutionModel& model) {
  Deployment deployment;
  deployment.model = &model;
  deployment.layers = 48;
  deployment.layer_weights = Bytes(1'233'125'376);
  deployment.attention_matrices.assign(4, Bytes(102'760'448));  // 7168^2 numbers
  deployment.mlp_matrices.assign(2, Bytes(411'041'792));        // 7168 * 28672
  deployment.weights = Bytes(48 * std::int64_t{1'233'125'376} + 750'000'000);
  deployment.memory = Bytes(16'000'000'000);
  deployment.block_tokens = Tokens(16);
  deployment.block_bytes = Bytes(22'020'096);
  deployment.gpu_kv = deployment.memory - deployment.weights;
  deployment.hidden = deployment.query_width = deployment.kv_width = 7168;
  deployment.ffn = 28'672;
  deployment.heads = 56;
  deployment.host_memory = Bytes(208'000'000'000);
  deployment.cpu_attention_bandwidth = 150e9;  // a fifth of it for KV: FlexGen's attention moves five times as much
  deployment.peak_flops = 65e12;
  deployment.positions = Tokens(2048);
  return deployment;
}

std::string refusal(const Deployment& deployment, const Overrides& overrides) {
  try {
    static_cast<void>(flexgen().layout(deployment, oracle::policy_settings(flexgen(), overrides)));
  } catch (const ConfigError& error) {
    const Problem& problem = error.problems().front();
    return problem.where + ": " + problem.what + " -> " + problem.fix;
  }
  return "accepted";
}

// 80% of the weights are w_q, w_k, w_v and both matrices of the MLP: 11/12 of 1,233,125,376 bytes in each of 48 layers.
// 144 requests of 544 tokens: 144 * 544 * 1,376,256 B of KV, 144 * 512 * 2 * 7168 B of hidden states.
TEST(Flexgen, Layout_OfThePublishedPolicy) {
  const WatchingModel model;
  const Layout layout =
      flexgen().layout(opt_30b(model), oracle::policy_settings(flexgen(), placed(48, 3, 0.8, 1, 1, 512, 32)));
  EXPECT_EQ(layout.blocks, Blocks(4896));
  EXPECT_EQ(layout.most, layout.blocks);
  EXPECT_NEAR(static_cast<double>(layout.host.count()), 54'257'516'544.0 + 107'810'390'016.0 + 1'056'964'608.0, 100.0);
  EXPECT_THAT(layout.terms,
              HasSubstr("48 x 3 requests of 512 + 32 tokens, 91.67% of the weights, 100% of the KV (the CPU "
                        "attends to it) and 100% of the hidden states on the host, as given"));
}

TEST(Flexgen, Layout_WhenItDoesNotFit_ThenTheArithmeticIsInTheError) {
  const WatchingModel model;
  Deployment deployment = opt_30b(model);
  EXPECT_EQ(refusal(deployment, placed(48, 3, 0.8, 1, 1, 512, 32)), "accepted");
  const auto too_much = HasSubstr(
      "policy.host_memory: weights 54.258 GB + KV 107.810 GB + hidden states 1.057 GB = 163.125 GB do not fit the "
      "68.719 GB of the host");
  const Bytes limit{68'719'476'736};
  EXPECT_THAT(refusal(deployment, placed(48, 3, 0.8, 1, 1, 512, 32, {{"policy.host_memory", limit}})), too_much);
  deployment.host_memory = limit;
  EXPECT_THAT(refusal(deployment, placed(48, 3, 0.8, 1, 1, 512, 32)), too_much);
  // policy.host_memory lets the user assume a larger host: then the placement fits.
  EXPECT_EQ(refusal(deployment, placed(48, 3, 0.8, 1, 1, 512, 32, {{"policy.host_memory", Bytes(208'000'000'000)}})),
            "accepted");
  // 59.190 + 0.75 - 29.595, 2 * 0.616562688, half of 107.810, and 1.057 with a single micro-batch's share of nothing.
  EXPECT_THAT(refusal(deployment, placed(48, 3, 0.5, 0.5, 0, 512, 32)),
              HasSubstr("hardware: weights 30.345 GB + two layers' weights from the host 1.233 GB + KV 53.905 GB + KV "
                        "from the host 0.000 GB + hidden states 1.057 GB = 86.540 GB do not fit the 16.000 GB"));
  // Two buffers of 48 * 544 tokens of one layer, 28,672 bytes each.
  EXPECT_THAT(refusal(deployment, placed(48, 3, 0.5, 1, 0, 512, 32, {{"policy.cpu_attention", false}})),
              HasSubstr("KV from the host 1.497 GB"));
  EXPECT_THAT(refusal(deployment, placed(1, 1, 1, 0, 0, 2048, 1)), HasSubstr("= 2049 tokens are more than the 2048"));
  EXPECT_EQ(refusal(deployment, placed(1, 1, 1, 0, 0, 2047, 1)), "accepted");
  // memory.gpu_kv limits the whole layout.
  deployment.gpu_kv_given = true;
  deployment.gpu_kv = Bytes(0) - deployment.weights + Bytes(1'000'000'000);
  EXPECT_THAT(refusal(deployment, placed(1, 1, 1, 1, 0, 512, 32)),
              testing::AllOf(HasSubstr("memory.gpu_kv: "), HasSubstr("do not fit the 1.000 GB")));
}

TEST(Flexgen, Layout_WhenSomethingIsUnknown_ThenSaysWhat) {
  const WatchingModel model;
  Deployment deployment = opt_30b(model);
  deployment.cpu_attention_bandwidth.reset();
  EXPECT_THAT(refusal(deployment, placed(1, 1, 1, 0.5, 0, 512, 32)), HasSubstr("the CPU is to attend"));
  EXPECT_THAT(refusal(deployment, {}), HasSubstr("how fast the CPU attends"));
  EXPECT_EQ(refusal(deployment, placed(1, 1, 1, 0, 0, 512, 32)), "accepted");
  deployment.host_memory.reset();
  EXPECT_THAT(refusal(deployment, {}), HasSubstr("must know the host's memory"));
  deployment = opt_30b(model);
  deployment.peak_flops = 0.0;
  const Overrides slo{{"policy.slo_margin", 0.5}, {"policy.gpu_batch", std::int64_t{1}}};
  EXPECT_THAT(refusal(deployment, slo), HasSubstr("peak FLOP/s"));
  deployment.peak_flops = 65e12;
  Overrides roofline = slo;
  roofline.emplace_back("policy.slo_estimate", std::string("roofline"));
  EXPECT_THAT(refusal(deployment, roofline), HasSubstr("memory bandwidth"));
}

TEST(Flexgen, Search_WhenNotOneRequestFits_ThenSaysWhatItTakes) {
  const WatchingModel model;
  Deployment deployment = opt_30b(model);
  deployment.memory = Bytes(3'000'000'000);
  EXPECT_THAT(refusal(deployment, {}), testing::AllOf(HasSubstr("hardware: no placement of even one request of 1024 + "
                                                                "512 tokens fits"),
                                                      HasSubstr("which has 2.250 GB beside the weights")));
  deployment = opt_30b(model);
  deployment.host_memory = Bytes(10'000'000'000);
  EXPECT_THAT(refusal(deployment, {}), HasSubstr("policy.host_memory: no placement of even one request"));
}

// The default model has grouped queries; the search places it like any other model.
TEST(Flexgen, Search_WhenQueriesAreGrouped_ThenTheCacheIsSmaller) {
  // 28 heads of 256 for queries and 4 for keys: a seventh of the cache, and 2 * 2 * 7168 * 6144 numbers less in a
  // layer.
  const WatchingModel model;
  Deployment deployment = opt_30b(model);
  const auto block = [&] {
    const Layout layout = flexgen().layout(deployment, oracle::policy_settings(flexgen(), {}));
    return layout.chosen.get<std::int64_t>("policy.gpu_batch") * layout.chosen.get<std::int64_t>("policy.batches");
  };
  const std::int64_t all_heads = block();
  deployment.kv_width = 1024;
  deployment.block_bytes = Bytes(22'020'096 / 7);
  const Bytes fewer{std::int64_t{2} * 2 * 7168 * 6144};
  deployment.layer_weights -= fewer;
  deployment.weights -= 48 * fewer;
  EXPECT_GT(block(), 4 * all_heads);
}

// Shares of a layer that whole matrices of OPT make up: attention has 4 of a twelfth, the MLP 2 of a third, in the
// order of their middles 1/8, 1/4, 3/8, 5/8, 3/4 and 7/8.
constexpr std::array<double, 7> kOptShares{0.0, 1.0 / 12, 5.0 / 12, 6.0 / 12, 7.0 / 12, 11.0 / 12, 1.0};
double opt_share(double asked) {
  constexpr std::array<double, 6> kMiddles{0.125, 0.25, 0.375, 0.625, 0.75, 0.875};
  return kOptShares.at(static_cast<std::size_t>(
      std::count_if(kMiddles.begin(), kMiddles.end(), [&](double middle) { return middle < asked; })));
}

TEST(FlexgenMatrices, AShareOfTheWeights_IsWholeMatrices) {
  const WatchingModel model;
  const FlexgenMatrices matrices(opt_30b(model));
  // 45%, 50% and 60%: w_q, w_k and the first matrix of the MLP. 80%: w_v and the second one too, 11 of 12 parts.
  for (const auto& [asked, share, count] : std::vector<std::tuple<double, double, int>>{{0.0, 0.0, 0},
                                                                                        {0.125, 0.0, 0},
                                                                                        {0.1251, 1.0 / 12, 1},
                                                                                        {0.25, 1.0 / 12, 1},
                                                                                        {0.3, 5.0 / 12, 2},
                                                                                        {0.45, 0.5, 3},
                                                                                        {0.5, 0.5, 3},
                                                                                        {0.6, 0.5, 3},
                                                                                        {0.7, 7.0 / 12, 4},
                                                                                        {0.75, 7.0 / 12, 4},
                                                                                        {0.8, 11.0 / 12, 5},
                                                                                        {0.9, 1.0, 6},
                                                                                        {1.0, 1.0, 6}}) {
    EXPECT_DOUBLE_EQ(matrices.of(asked).on_host, share) << asked;
    EXPECT_EQ(matrices.of(asked).matrices, count) << asked;
  }
  ASSERT_EQ(matrices.rungs().size(), kOptShares.size());
  for (std::size_t i = 0; i < kOptShares.size(); ++i) {
    EXPECT_DOUBLE_EQ(matrices.rungs()[i].on_host, kOptShares.at(i));
    // Whoever asks for what a rung states gets this rung.
    EXPECT_EQ(&matrices.of(matrices.rungs()[i].asked), &matrices.rungs()[i]);
  }
}

// Grouped queries: q, k, v and output of 8, 1, 1 and 8 parts have their middles at 4/18, 8.5/18, 9.5/18 and 14/18;
// gate, up and down of 10 parts each at 1/6, 1/2 and 5/6. Half of the weights: q, k and gate, 19 of 48 parts.
TEST(FlexgenMatrices, MatricesOfDifferentSizes_ArePlacedByTheirMiddles) {
  Deployment deployment;
  deployment.attention_matrices = {Bytes(8), Bytes(1), Bytes(1), Bytes(8)};
  deployment.mlp_matrices.assign(3, Bytes(10));
  const FlexgenMatrices matrices(deployment);
  EXPECT_DOUBLE_EQ(matrices.of(0.5).on_host, 19.0 / 48);
  EXPECT_EQ(matrices.of(0.5).matrices, 3);
  EXPECT_DOUBLE_EQ(matrices.of(0.51).on_host, 29.0 / 48);
  EXPECT_DOUBLE_EQ(matrices.of(0.2).on_host, 10.0 / 48);
}

// With the published constants the search is the published one over this GPU's and host's memory.
TEST(Flexgen, Search_WithPublishedConstants) {
  const WatchingModel model;
  const Layout layout = flexgen().layout(
      opt_30b(model), oracle::policy_settings(flexgen(), {{"policy.constants", std::string("published")},
                                                          {"policy.pad_input", std::int64_t{512}},
                                                          {"policy.pad_output", std::int64_t{32}}}));
  FlexgenHardware hardware = t4_constants();
  hardware.gpu_memory = 15.25e9;
  hardware.cpu_memory = 208e9;
  hardware.disk_memory = 0.0;
  const auto found = flexgen_search(
      {.layers = 48, .hidden = 7168, .ffn = 28'672, .heads = 56, .query = 7168, .kv = 7168},
      {.prompt = 512, .generated = 32}, [&](std::int64_t) { return hardware; }, kOptShares);
  ASSERT_TRUE(found);
  EXPECT_EQ(layout.chosen.get<std::int64_t>("policy.gpu_batch"), found->policy.gpu_batch);
  EXPECT_EQ(layout.chosen.get<std::int64_t>("policy.batches"), found->policy.batches);
  EXPECT_DOUBLE_EQ(opt_share(layout.chosen.get<double>("policy.weights_host")), found->policy.weights.cpu);
  EXPECT_DOUBLE_EQ(layout.chosen.get<double>("policy.cache_host"), found->policy.cache.cpu);
  EXPECT_DOUBLE_EQ(layout.chosen.get<double>("policy.hidden_host"), found->policy.hidden.cpu);
}

/// A layer takes 1,000 ns, and for prompts 16 ns per token and 1 ns per token and token of its sequence, for decodes
/// 400 ns per sequence and 3 ns per token attended to. Copies at 2 GB/s in and 1 GB/s out.
class LinearModel final : public ExecutionModel {
 public:
  [[nodiscard]] std::int32_t layers() const override { return 2; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    std::int64_t time = 1000 + 400 * shape.decode_sequences + 3 * shape.decode_context.count();
    for (const PrefillChunk& chunk : shape.chunks) {
      time += chunk.new_tokens.count() * (16 + chunk.new_tokens.count());
    }
    return {.layer = Duration(time)};
  }
  [[nodiscard]] CopyTime copy(Stream direction, std::int64_t, Bytes bytes, CopyMechanism) const override {
    return {Duration(0), Duration(direction == Stream::h2d ? bytes.count() / 2 : bytes.count())};
  }
};

// A layer of 8 * 64^2 + 4 * 64 * 256 = 98,304 bytes, so as many operations per token; 256 per token attended to.
// A GPU batch of b prompts of 32: 1,000 + 48 * 32 b ns, in pieces of 16 tokens 1,000 + 32 * 32 b. Decodes: 1,000 + 403
// b with a context of 1, and 3 b for each of 36 - 1 more.
TEST(Flexgen, Search_ReckonsWithTheProfilesSpeeds) {
  const LinearModel model;
  Deployment deployment;
  deployment.model = &model;
  deployment.layers = 2;
  deployment.layer_weights = Bytes(98'304);
  deployment.attention_matrices.assign(4, Bytes(8192));
  deployment.mlp_matrices.assign(2, Bytes(32'768));
  deployment.weights = Bytes(2 * 98'304 + 1000);
  deployment.memory = Bytes(1'000'000);
  deployment.block_bytes = Bytes(8192);
  deployment.hidden = deployment.query_width = deployment.kv_width = 64;
  deployment.ffn = 256;
  deployment.heads = 4;
  deployment.host_memory = Bytes(3'000'000);
  FlexgenHardware hardware{.h2d = 2e9,
                           .d2h_cache = 1e9,
                           .d2h_hidden = 1e9,
                           .disk_read = 1.0,
                           .disk_write_cache_prefill = 1.0,
                           .disk_write_hidden_prefill = 1.0,
                           .disk_write_decode = 1.0,
                           .attention_prefill = 256.0 * 32 / 16e-9,
                           .attention_decode = 256.0 * 36 / (3 * 35e-9),
                           .gpu_memory = 999'000.0,
                           .cpu_memory = 3e6,
                           .usable = 1.0};
  const auto expect = [&](const Overrides& more) {
    Overrides settings{{"policy.pad_input", std::int64_t{32}}, {"policy.pad_output", std::int64_t{8}}};
    settings.insert(settings.end(), more.begin(), more.end());
    const Layout layout = flexgen().layout(deployment, oracle::policy_settings(flexgen(), settings));
    const auto of = [&](std::int64_t gpu_batch) {
      const auto b = static_cast<double>(gpu_batch);
      hardware.gemm_prefill = 32 * b * 98'304.0 / ((1000 + 32 * 32 * b) * 1e-9);
      hardware.gemm_decode = b * 98'304.0 / ((1000 + 403 * b) * 1e-9);
      return hardware;
    };
    const auto found = flexgen_search({.layers = 2, .hidden = 64, .ffn = 256, .heads = 4, .query = 64, .kv = 64},
                                      {.prompt = 32, .generated = 8}, of, kOptShares);
    ASSERT_TRUE(found);
    EXPECT_EQ(layout.chosen.get<std::int64_t>("policy.gpu_batch"), found->policy.gpu_batch);
    EXPECT_EQ(layout.chosen.get<std::int64_t>("policy.batches"), found->policy.batches);
    EXPECT_NEAR(opt_share(layout.chosen.get<double>("policy.weights_host")), found->policy.weights.cpu, 1e-9);
    EXPECT_NEAR(layout.chosen.get<double>("policy.cache_host"), found->policy.cache.cpu, 1e-9);
    EXPECT_NEAR(layout.chosen.get<double>("policy.hidden_host"), found->policy.hidden.cpu, 1e-9);
  };
  deployment.cpu_attention_bandwidth = 150e9;  // a fifth of it for KV: FlexGen's attention moves five times as much
  hardware.cpu_attention = 30e9;
  expect({});
  // Loaded KV is attended to at the speed of the link.
  deployment.cpu_attention_bandwidth.reset();
  hardware.cpu_attention = 2e9;
  expect({{"policy.cpu_attention", false}});
}

// Prefill of 2 x 16 tokens: 32 * (1000 + 256 * 16) = 163,072 operations, 163.072 ns at 1 TFLOP/s. Twice that at half of
// 1 GB/s moves 163.072 bytes of 1,000: a share that leads to one matrix of attention, a twelfth. Decode: 2 * (1000 +
// 256 * (16 + 4 / 2)) = 11,216 operations, so no matrix. By the roofline at 6.25 GB/s, with 62.5 bytes of KV per token:
// prefill reads 1000 + 2 * 16 * 62.5 bytes in 480 ns, and a decode step 1000 + 2 * 18 * 62.5 in 520 ns: half of the
// layer each.
TEST(Flexgen, SloMargin_LeavesTheShareThatKeepsALayersObjective) {
  const WatchingModel model;
  Deployment deployment = oracle::snug_deployment(model, Blocks(100), Bytes(1000), Tokens(16), Bytes(1000));
  deployment.memory_bandwidth = 6.25e9;
  Bytes host{};
  const auto share = [&](const std::string& phase, const std::string& estimate) {
    const Layout layout =
        flexgen().layout(deployment, oracle::policy_settings(flexgen(), {{"policy.slo_margin", 1.0},
                                                                         {"policy.slo_estimate", estimate},
                                                                         {"policy.slo_phase", phase},
                                                                         {"policy.gpu_batch", std::int64_t{2}},
                                                                         {"policy.pad_input", std::int64_t{16}},
                                                                         {"policy.pad_output", std::int64_t{4}}}));
    EXPECT_EQ(layout.blocks, Blocks(4));
    EXPECT_EQ(layout.chosen.get<std::int64_t>("policy.batches"), 1);
    EXPECT_EQ(layout.chosen.get<double>("policy.cache_host"), 0.0);
    host = layout.host;
    return layout.chosen.get<double>("policy.weights_host");
  };
  EXPECT_NEAR(share("prefill", "peak_flops"), 0.163072, 1e-12);
  EXPECT_EQ(host, Bytes(83));
  EXPECT_NEAR(share("decode", "peak_flops"), 0.011216, 1e-12);
  EXPECT_EQ(host, Bytes(0));
  EXPECT_NEAR(share("prefill", "roofline"), 0.48, 1e-12);
  EXPECT_NEAR(share("decode", "roofline"), 0.52, 1e-12);
  EXPECT_EQ(host, Bytes(500));
  deployment.memory_bandwidth = 1e12;  // compute decides
  EXPECT_NEAR(share("prefill", "roofline"), 0.163072, 1e-12);
}

std::vector<std::string> refused(const Overrides& overrides) {
  std::vector<std::string> texts;
  for (const Problem& problem : flexgen().check(oracle::policy_settings(flexgen(), overrides))) {
    texts.push_back(problem.where + ": " + problem.what);
  }
  return texts;
}

TEST(Flexgen, Placement_IsGivenWholeOrSearchedFor) {
  const auto with = [](Overrides more) {
    more.emplace_back("engine.chunked_prefill", false);
    return refused(more);
  };
  const std::int64_t two = 2;
  EXPECT_THAT(with({}), testing::IsEmpty());
  EXPECT_THAT(refused(placed(1, 1, 0, 0, 0, 8, 8)), testing::IsEmpty());
  EXPECT_THAT(with({{"policy.gpu_batch", two}, {"policy.cache_host", 0.5}}),
              testing::ElementsAre("policy.gpu_batch: policy.gpu_batch, policy.cache_host given, but policy.batches, "
                                   "policy.weights_host, policy.hidden_host missing: give the whole placement or none "
                                   "of it"));
  EXPECT_THAT(with({{"policy.slo_margin", 0.1}, {"policy.gpu_batch", two}}), testing::IsEmpty());
  EXPECT_THAT(with({{"policy.slo_margin", 0.1}, {"policy.weights_host", 0.5}}),
              testing::ElementsAre(HasSubstr("policy.gpu_batch, which is missing"),
                                   HasSubstr("policy.slo_margin already sets policy.weights_host")));
}

TEST(Flexgen, Settings_ThatItCannotHave) {
  EXPECT_THAT(refused({{"engine.preemption", std::string("swap")},
                       {"engine.prefix_caching", std::string("true")},
                       {"memory.host_cache", Bytes(1)},
                       {"tensor_parallel", std::int64_t{2}}}),
              testing::UnorderedElementsAre(HasSubstr("engine.preemption"), HasSubstr("engine.prefix_caching"),
                                            HasSubstr("memory.host_cache"), HasSubstr("tensor_parallel"),
                                            HasSubstr("engine.chunked_prefill")));
}

}  // namespace
}  // namespace spillway
