// Policies that stream layers against their plain models, beyond the cases of models_test.cpp: every scheduler, any
// number of layers, links of any speed, memory at its limits, and the search for a placement.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "tests/models/deepspeed.hpp"
#include "tests/models/flexgen.hpp"
#include "tests/models/plain_policy.hpp"
#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/naive_engine.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using oracle::Dice;
using oracle::FlexgenPlacement;
using oracle::NaiveConfig;
using oracle::WholeModel;

/// WholeModel with links so many times as slow, where a relay takes a nanosecond more for each byte.
class SlowLinks final : public ExecutionModel {
 public:
  SlowLinks(std::int32_t layers, std::int64_t slower) : model_(1, 1, {}, layers), slower_(slower) {}
  [[nodiscard]] std::int32_t layers() const override { return model_.layers(); }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override { return model_.iteration(shape); }
  [[nodiscard]] CopyTime copy(Stream direction, std::int64_t copies, Bytes bytes,
                              CopyMechanism mechanism) const override {
    const CopyTime time = model_.copy(direction, copies, bytes, mechanism);
    const std::int64_t by_cpu = mechanism == CopyMechanism::relay ? bytes.count() : 0;
    return {time.launch * slower_ * copies + Duration(by_cpu), time.transfer * slower_};
  }

 private:
  WholeModel model_;
  std::int64_t slower_;
};

/// What differs between the policy in the engine and the model in the naive engine; empty: nothing.
std::string difference(NaiveConfig config, const PolicyInfo& real, const PolicyInfo& plain) {
  config.policy = &plain;
  const oracle::NaiveResult left = oracle::run_naive(config);
  config.policy = &real;
  const oracle::FastRun right = oracle::run_fast(config);
  const EngineTotals& totals = right.result.statistics.engine;
  if (left.iterations != totals.iterations) return "numbers of iterations";
  if (left.moved_h2d != totals.moved_h2d) return "bytes moved to the GPU";
  if (left.moved_d2h != totals.moved_d2h) return "bytes moved to the host";
  if (left.records.size() != right.records.size()) return "numbers of records";
  for (std::size_t i = 0; i < left.records.size(); ++i) {
    const std::string a = oracle::text(left.records[i]);
    const std::string b = oracle::text(right.records[i]);
    if (a != b) return "plain " + a + "\nreal  " + b;
  }
  return {};
}

/// A layout, or the key that its refusal names.
struct Answer {
  std::optional<Layout> layout;
  std::string refused;
};

template <class LayOut>
Answer answer(const LayOut& lay_out, const Deployment& deployment, const Settings& settings) {
  try {
    return {lay_out(deployment, settings), {}};
  } catch (const ConfigError& error) {
    return {std::nullopt, error.problems().front().where};
  }
}

void expect_same_sizes(const Answer& plain, const Answer& real) {
  ASSERT_EQ(plain.refused, real.refused);
  ASSERT_EQ(plain.layout.has_value(), real.layout.has_value());
  if (!plain.layout) return;
  ASSERT_EQ(plain.layout->blocks, real.layout->blocks);
  ASSERT_EQ(plain.layout->most, real.layout->most);
  ASSERT_EQ(plain.layout->host, real.layout->host);
}

// --- DeepSpeed
// --------------------------------------------------------------------------------------------------------------------

/// The policy over another one's scheduler, as it is and as its plain model.
struct Composed {
  PolicyInfo real;
  PolicyInfo plain;
};

std::optional<Composed> over(const std::string& scheduler) {
  const PolicyInfo* const real = PolicyRegistry::instance().find("deepspeed", scheduler);
  const PolicyInfo* const host = PolicyRegistry::instance().find(scheduler);
  if (real == nullptr || !oracle::accepts_preemption(*host, "recompute")) return std::nullopt;
  Composed pair{*real, *real};
  pair.plain.make = [model = oracle::find_plain(scheduler)](const PolicyContext& context) {
    Policy policy = model->make(context);
    policy.layers = oracle::plain_deepspeed_layers(context);
    return policy;
  };
  pair.plain.layout = oracle::plain_deepspeed_layout;
  return pair;
}

/// Of few bytes a small share is none, however long they take.
double prefetch_fraction(Dice& dice) {
  if (dice.chance(20))
    return 0.001 * static_cast<double>(dice.chance(50) ? dice.between(1, 9) : dice.between(991, 999));
  if (dice.chance(40)) return dice.chance(50) ? 0.0 : 1.0;
  return 0.001 * static_cast<double>(dice.between(0, 1000));
}

/// Memory at its limits: a byte more or less than something, or as drawn.
void tighten(Dice& dice, Deployment& deployment, Settings& settings) {
  if (dice.chance(30)) {
    const Bytes small(dice.between(1, 64));
    deployment.weights -= (deployment.layer_weights - small) * deployment.layers;
    deployment.layer_weights = small;
  }
  const Bytes layer = deployment.layer_weights;
  const Bytes outside = deployment.weights - layer * deployment.layers;
  const auto about = [&](Bytes bytes) { return bytes + Bytes(dice.between(-1, 1)); };
  if (dice.chance(50)) deployment.memory = about(outside + layer * 2 + deployment.block_bytes * dice.between(0, 30));
  if (dice.chance(30)) {
    deployment.gpu_kv_given = true;
    deployment.gpu_kv = std::max(about(deployment.block_bytes * dice.between(1, 30)), deployment.block_bytes);
  }
  if (dice.chance(50)) settings.set("policy.host_memory", about(layer * (deployment.layers + dice.between(0, 1))));
  if (dice.chance(20)) deployment.host_memory = about(layer * deployment.layers);
}

TEST(PlainDeepSpeed, StreamsAsThePolicy_UnderEveryScheduler) {
  std::int64_t schedulers = 0;
  std::int64_t ran = 0;
  std::int64_t refused = 0;
  for (const std::string& scheduler : oracle::plain_names()) {
    const std::optional<Composed> pair = over(scheduler);
    if (!pair) continue;
    ++schedulers;
    for (std::uint64_t seed = 1; seed <= 600; ++seed) {
      SCOPED_TRACE("over " + scheduler + " seed " + std::to_string(seed));
      Dice dice(seed ^ 0xD5);
      const std::int64_t slower = dice.chance(30) ? dice.between(100, 2000) : dice.between(0, 2) * dice.between(0, 8);
      const SlowLinks model(static_cast<std::int32_t>(dice.between(1, 8)), slower);
      Settings settings;
      NaiveConfig config;
      oracle::draw_case(seed, pair->real, model, 1, settings, config, [](Dice& own, Settings& drawn) {
        drawn.set("policy.prefetch_fraction", prefetch_fraction(own));
        drawn.set("policy.fetch_overhead", Duration(own.chance(30) ? 0 : own.between(1, 3000)));
      });
      tighten(dice, config.deployment, settings);
      const Answer real = answer(pair->real.layout, config.deployment, settings);
      expect_same_sizes(answer(pair->plain.layout, config.deployment, settings), real);
      if (HasFatalFailure()) return;
      if (!real.layout) {
        ++refused;
        continue;
      }
      config.gpu_blocks = config.most_gpu_blocks = real.layout->blocks;
      config.max_model_len = Tokens(config.gpu_blocks.count() * config.block_tokens.count());
      const std::string differs = difference(config, pair->real, pair->plain);
      ASSERT_EQ(differs, "");
      ++ran;
    }
  }
  EXPECT_GE(schedulers, 5);
  EXPECT_GT(ran, more_than(2000));
  EXPECT_GT(refused, more_than(500));
}

// --- FlexGen
// --------------------------------------------------------------------------------------------------------------------

const PolicyInfo& flexgen() { return *PolicyRegistry::instance().find("flexgen"); }

double any_share(Dice& dice) {
  if (dice.chance(40)) return dice.chance(50) ? 0.0 : 1.0;
  return 0.01 * static_cast<double>(dice.between(0, 100));
}

void give_placement(Dice& dice, Settings& settings) {
  settings.set("policy.slo_margin", std::monostate{});
  settings.set("policy.gpu_batch", dice.between(1, 6));
  settings.set("policy.batches", dice.between(1, 4));
  for (const char* const key : {"policy.weights_host", "policy.cache_host", "policy.hidden_host"}) {
    settings.set(key, any_share(dice));
  }
}

TEST(PlainFlexgen, RunsAsThePolicy_WhateverTheLinks) {
  PolicyInfo plain = flexgen();
  plain.make = oracle::find_plain("flexgen")->make;
  plain.layout = oracle::find_plain("flexgen")->layout;
  for (std::uint64_t seed = 1; seed <= random_cases(3000); ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed ^ 0xF1);
    const SlowLinks model(static_cast<std::int32_t>(dice.between(1, 5)), dice.between(0, 3) * dice.between(0, 12));
    Settings settings;
    NaiveConfig config;
    oracle::draw_case(seed, plain, model, 1, settings, config, [](Dice& own, Settings& drawn) {
      give_placement(own, drawn);
      if (own.chance(20)) drawn.set("policy.pad_output", own.between(1, 2));
      if (own.chance(10)) drawn.set("policy.pad_input", std::int64_t{1});
      drawn.set("policy.pin_weights", own.chance(50));
    });
    if (dice.chance(50)) config.deployment.cpu_attention_launch = 1e-9 * static_cast<double>(dice.between(1, 500));
    const std::string differs = difference(config, flexgen(), plain);
    ASSERT_EQ(differs, "");
  }
}

/// Some model on some machine, neither of them large.
Deployment draw_deployment(Dice& dice, const ExecutionModel& model) {
  const std::int64_t tokens = dice.between(1, 16);
  Deployment deployment = oracle::snug_deployment(model, Blocks(dice.between(1, 200)), Bytes(tokens), Tokens(tokens),
                                                  Bytes(1000 * dice.between(1, 60)));
  for (auto* const block : {&deployment.attention_matrices, &deployment.mlp_matrices}) {
    block->clear();
    for (std::int64_t matrices = dice.between(1, 4); matrices > 0; --matrices) {
      block->emplace_back(dice.between(1, dice.chance(50) ? 2 : 100));
    }
  }
  if (dice.chance(50)) deployment.cpu_attention_launch = 1e-6 * static_cast<double>(dice.between(1, 1000));
  deployment.memory_bandwidth = dice.chance(5) ? 0.0 : 1e6 * static_cast<double>(dice.between(1, 100'000));
  deployment.hidden = 8 * dice.between(1, 16);
  deployment.query_width = dice.chance(50) ? deployment.hidden : 8 * dice.between(1, 16);
  deployment.kv_width = dice.chance(50) ? deployment.query_width : 8 * dice.between(1, 8);
  deployment.block_bytes = Bytes(4 * deployment.kv_width * tokens * model.layers());
  deployment.heads = dice.between(1, 8);
  deployment.gpu_kv = deployment.block_bytes * dice.between(1, 40);
  deployment.gpu_kv_given = dice.chance(30);
  deployment.memory = deployment.weights / Bytes(100) * Bytes(dice.between(10, 150)) + Bytes(dice.between(0, 100'000));
  deployment.host_memory = deployment.weights + deployment.block_bytes * dice.between(0, 60);
  if (dice.chance(5)) deployment.host_memory.reset();
  deployment.cpu_attention_bandwidth = 1e6 * static_cast<double>(dice.between(1, 100'000));
  if (dice.chance(5)) deployment.cpu_attention_bandwidth.reset();
  deployment.peak_flops = dice.chance(5) ? 0.0 : 1e9 * static_cast<double>(dice.between(1, 100'000));
  deployment.gpus = dice.between(1, 4);
  if (dice.chance(20)) deployment.positions = Tokens(dice.between(2, 100));
  return deployment;
}

Settings draw_settings(Dice& dice) {
  Settings settings = oracle::policy_settings(flexgen(), {{"engine.chunked_prefill", false}});
  settings.set("policy.pad_input", dice.between(1, 48));
  settings.set("policy.pad_output", dice.between(1, 24));
  settings.set("policy.cpu_attention", dice.chance(60));
  settings.set("policy.constants", std::string(dice.chance(70) ? "profile" : "published"));
  if (dice.chance(30)) settings.set("policy.host_memory", Bytes(dice.between(1, 400'000)));
  return settings;
}

TEST(PlainFlexgen, LaysOutAsThePolicy) {
  std::int64_t given = 0;
  std::int64_t kept = 0;
  std::int64_t refused = 0;
  for (std::uint64_t seed = 1; seed <= 5000; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed);
    const SlowLinks model(static_cast<std::int32_t>(dice.between(1, 6)), dice.between(1, 20));
    const Deployment deployment = draw_deployment(dice, model);
    Settings settings = draw_settings(dice);
    const bool slo = dice.chance(50);
    if (slo) {
      settings.set("policy.gpu_batch", dice.between(1, 6));
      settings.set("policy.slo_margin", 0.01 * static_cast<double>(dice.between(0, 300)));
      settings.set("policy.slo_phase", std::string(dice.chance(50) ? "prefill" : "decode"));
      settings.set("policy.slo_estimate", std::string(dice.chance(50) ? "peak_flops" : "roofline"));
    } else {
      give_placement(dice, settings);
    }
    ASSERT_TRUE(flexgen().check(settings).empty());
    const Answer real = answer(flexgen().layout, deployment, settings);
    const Answer plain = answer(oracle::find_plain("flexgen")->layout, deployment, settings);
    expect_same_sizes(plain, real);
    if (HasFatalFailure()) return;
    if (!real.layout) {
      ++refused;
      continue;
    }
    ++(slo ? kept : given);
    const FlexgenPlacement a = oracle::flexgen_placement(plain.layout->chosen);
    const FlexgenPlacement b = oracle::flexgen_placement(real.layout->chosen);
    ASSERT_EQ(a.gpu_batch, b.gpu_batch);
    ASSERT_EQ(a.batches, b.batches);
    ASSERT_NEAR(a.weights_host, b.weights_host, 1e-12);
    ASSERT_EQ(a.cache_host, b.cache_host);
    ASSERT_EQ(a.hidden_host, b.hidden_host);
  }
  EXPECT_GT(given, more_than(500));
  EXPECT_GT(kept, more_than(500));
  EXPECT_GT(refused, more_than(500));
}

// Shares are real numbers. The policy's solver takes every coefficient of its linear program to one part in 10^9 only,
// so that its shares, and with them the throughput, may be off by some such parts.
TEST(PlainFlexgen, SearchesAsThePolicy) {
  std::int64_t found = 0;
  std::int64_t spread = 0;  // over GPU and host
  std::int64_t several = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed ^ 0x5EA);
    const SlowLinks model(static_cast<std::int32_t>(dice.between(1, 6)), dice.between(1, 20));
    const Deployment deployment = draw_deployment(dice, model);
    const Settings settings = draw_settings(dice);
    const Answer real = answer(flexgen().layout, deployment, settings);
    const Answer plain = answer(oracle::find_plain("flexgen")->layout, deployment, settings);
    ASSERT_EQ(plain.layout.has_value(), real.layout.has_value()) << plain.refused << " / " << real.refused;
    if (!real.layout) continue;
    ++found;
    const FlexgenPlacement a = oracle::flexgen_placement(plain.layout->chosen);
    const FlexgenPlacement b = oracle::flexgen_placement(real.layout->chosen);
    ASSERT_EQ(a.gpu_batch, b.gpu_batch);
    ASSERT_EQ(a.batches, b.batches);
    ASSERT_EQ(plain.layout->blocks, real.layout->blocks);
    const oracle::FlexgenRating rating = oracle::rate_placement(deployment, settings, b);
    const double best = oracle::rate_placement(deployment, settings, a).throughput;
    ASSERT_TRUE(rating.fits);
    ASSERT_NEAR(rating.throughput, best, 1e-7 * best);
    // The policy states what it expects, in four digits.
    const std::string& terms = real.layout->terms;
    const std::size_t expects = terms.find("expects ");
    ASSERT_NE(expects, std::string::npos) << terms;
    ASSERT_NEAR(std::stod(terms.substr(expects + 8)), best, 5.1e-4 * best);
    const auto away = [](const FlexgenPlacement& p) { return p.weights_host + p.cache_host + p.hidden_host; };
    ASSERT_NEAR(away(a), away(b), 1e-6);
    spread += away(a) > 0.0 && away(a) < 3.0 ? 1 : 0;
    several += a.batches > 1 ? 1 : 0;
    // No placement of this block in steps of a tenth is faster.
    for (int i = 0; i < 11 * 11 * 11; ++i) {
      const int hidden = i / 121;
      FlexgenPlacement point = a;
      point.weights_host = 0.1 * (i % 11);
      point.cache_host = 0.1 * (i / 11 % 11);
      point.hidden_host = 0.1 * hidden;
      const oracle::FlexgenRating other = oracle::rate_placement(deployment, settings, point);
      ASSERT_TRUE(!other.fits || other.throughput <= best * (1.0 + 1e-6));
    }
  }
  EXPECT_GT(found, more_than(100));
  EXPECT_GT(spread, more_than(50));
  EXPECT_GT(several, more_than(50));
}

}  // namespace
}  // namespace spillway
