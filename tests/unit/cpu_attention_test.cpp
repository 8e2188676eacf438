// Requests that attend on the CPU, and sub-batches: instants, memory and rules by hand.
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/oracle/toy_policies.hpp"
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Two layers of 10 ns, then 5 ns. A copy takes 1 ns and 2 ns per byte. Attention takes 1 ns and 1 ns per token. Notes
/// the sub-batches: sequences on the GPU, sequences on the CPU, chunks.
class TwoLayers final : public ExecutionModel {
 public:
  [[nodiscard]] std::int32_t layers() const override { return 2; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    seen_.push_back({shape.decode_sequences, shape.cpu_sequences, std::ssize(shape.chunks)});
    return {.layer = Duration(10), .after = Duration(5)};
  }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t copies, Bytes bytes, CopyMechanism) const override {
    return {Duration(copies), Duration(2 * bytes.count())};
  }
  [[nodiscard]] CpuAttentionTime cpu_attention(std::int64_t sequences, Tokens context) const override {
    return {Duration(1), Duration(context.count()), Bytes(context.count()), Bytes(2 * sequences), Bytes(3 * sequences)};
  }
  using Seen = std::vector<std::vector<std::int64_t>>;
  [[nodiscard]] const Seen& seen() const { return seen_; }

 private:
  mutable Seen seen_;
};

struct Script {
  std::function<TierId(const RequestView&)> attends = [](const RequestView&) { return kHostTier; };
  std::function<std::int32_t(RequestId)> sub_batch = [](RequestId) { return 0; };  // of a prompt
  /// Called once all requests are in the batch and no prompt is left.
  std::function<void(const View&, const std::vector<RequestId>&, Decision&)> decide{};
};

class ScriptedSpace final : public oracle::CountingSpace {
 public:
  ScriptedSpace(const View& view, const Script& script) : CountingSpace(view), script_(script) {}
  [[nodiscard]] TierId attends(const View&, const RequestView& request) const override {
    return script_.attends(request);
  }

 private:
  const Script& script_;
};

/// All requests join when they arrive, with their whole prompts.
class ScriptedScheduler final : public Scheduler {
 public:
  explicit ScriptedScheduler(const Script& script) : script_(script) {}
  void arrived(const RequestView& request) override { all_.push_back(request.id); }
  void ended(RequestId id, Outcome) override { std::erase(all_, id); }
  void decide(const View& view, const KvSpace&, Decision& decision) override {
    bool prompts = false;
    for (const RequestId id : all_) {
      if (view.request(id).phase != Phase::waiting) continue;
      prompts = true;
      decision.join(id);
      decision.sub_batch(id, script_.sub_batch(id));
      decision.chunk(id, view.request(id).remaining());
    }
    if (!prompts && script_.decide) script_.decide(view, all_, decision);
    if (all_.empty()) decision.idle();
  }

 private:
  const Script& script_;
  std::vector<RequestId> all_;
};

/// Blocks of 4 tokens and 8 bytes, two copies each.
KvLayout tiers(std::int64_t gpu, std::int64_t host) {
  return {.gpu_blocks = Blocks(gpu),
          .host_blocks = Blocks(host),
          .block_tokens = Tokens(4),
          .block_bytes = Bytes(8),
          .copies_per_block = 2};
}

Replay run(const Script& script, const KvLayout& kv, const std::vector<RequestSpec>& requests, const TwoLayers& model) {
  PolicyInfo policy;
  policy.name = "toy";
  policy.cpu_attention = true;
  policy.make = [&script](const PolicyContext& context) {
    return Policy{std::make_unique<ScriptedScheduler>(script), std::make_unique<ScriptedSpace>(context.view, script)};
  };
  return oracle::replay(policy, {}, kv, requests, model);
}

std::string refused(const Script& script, const KvLayout& kv, const std::vector<RequestSpec>& requests) {
  try {
    static_cast<void>(run(script, kv, requests, TwoLayers()));
  } catch (const BrokenPromise& error) {
    return error.what();
  }
  return "nothing was refused";
}

std::int64_t ns(double seconds) { return std::llround(seconds * 1e9); }

TEST(AttentionOnCpu, OneRequest_ByHand) {
  // Prompt: layers 0..10 and 10..20, after 20..25: the first token. Its block's KV leaves in two halves of 4 bytes and
  // one copy each: 10..19, and 20..29, for which the next iteration waits until 29.
  // Second token, 5 tokens attended to: layer 29..39; 2 bytes of queries 39..44, attention 44..50, 3 bytes of outputs
  // 50..57; layer 57..67; 72, 78, 85; after 85..90. Third, 6 tokens: 90..100; 105, 112, 119; 119..129; 134, 141, 148;
  // 148..153.
  const TwoLayers model;
  const Replay seen = run({}, tiers(40, 3), {request(0, 4, 3)}, model);
  EXPECT_EQ(seen.of(0).first_token, SimTime(25));
  EXPECT_EQ(seen.of(0).end, SimTime(153));
  EXPECT_EQ(model.seen(), (TwoLayers::Seen{{0, 0, 1}, {0, 1, 0}, {0, 1, 0}}));
  const RunStatistics& run = seen.result.statistics;
  EXPECT_EQ(run.engine.moved_d2h, Bytes(8 + 8)) << "the prompt's KV, and queries";
  EXPECT_EQ(run.engine.moved_h2d, Bytes(12));
  EXPECT_EQ(run.engine.peak_kv, Blocks(0));
  EXPECT_EQ(run.engine.peak_host_kv, Blocks(2)) << "6 tokens";
  const auto spent = [&](Resource resource) {
    return ns(run.engine.resource_time[static_cast<std::size_t>(resource)]);
  };
  EXPECT_EQ(spent(Resource::d2h), 4 + 20) << "25..29, and queries";
  EXPECT_EQ(spent(Resource::cpu_attention), 2 * (6 + 7));
  EXPECT_EQ(spent(Resource::h2d), 28);
}

TEST(AttentionOnCpu, TwoSubBatches_OverlapAndKeepTheirOrder) {
  // Requests 0, on the CPU, and 1, on the GPU, of 4 tokens. Together: their prompts take 25 ns, KV is there at 29.
  // Then request 1 is in sub-batch 0 and request 0 in sub-batch 1: layer 0 at 29..39 and 39..49; queries of request 0
  // 49..54, attention of 5 tokens 54..60, outputs 60..67; layer 1 of request 1 49..59, of request 0 67..77; 77..82, 88,
  // 95; after of request 1 at 77..82, of request 0 at 95..100.
  const Script script{
      .attends = [](const RequestView& one) { return one.id.serial == 0 ? kHostTier : kGpuTier; },
      .decide =
          [](const View& view, const std::vector<RequestId>& all, Decision& decision) {
            decision.sub_batch(all[0], 1);
            EXPECT_EQ(view.request(all[0]).sub_batch, 1);
            EXPECT_EQ(view.request(all[0]).tier, kHostTier);
            EXPECT_EQ(view.request(all[1]).tier, kGpuTier);
            EXPECT_EQ(view.batch().decode_growth, Blocks(1));
            EXPECT_EQ(view.batch().host_growth, Blocks(1));
            EXPECT_EQ(view.decode_growth(1), Blocks(0)) << "the first is on the host";
          },
  };
  const TwoLayers model;
  const Replay seen = run(script, tiers(40, 3), {request(0, 4, 2), request(0, 4, 2)}, model);
  EXPECT_EQ(seen.of(0).end, SimTime(100));
  EXPECT_EQ(seen.of(1).end, SimTime(100));
  EXPECT_EQ(model.seen(), (TwoLayers::Seen{{0, 0, 2}, {1, 0, 0}, {0, 1, 0}}));
  EXPECT_EQ(seen.result.statistics.engine.peak_kv, Blocks(2));
  EXPECT_EQ(seen.result.statistics.engine.peak_host_kv, Blocks(2));
}

TEST(AttentionOnCpu, PromptsInTwoSubBatches_AreComputedInTurn) {
  // Both on the GPU: layer 0 of request 0 to 10, of request 1 to 20, layer 1 to 30 and 40, after to 45 and 50.
  const Script script{.attends = [](const RequestView&) { return kGpuTier; },
                      .sub_batch = [](RequestId id) { return static_cast<std::int32_t>(id.serial); }};
  const TwoLayers model;
  const Replay seen = run(script, tiers(40, 0), {request(0, 4, 1), request(0, 4, 1)}, model);
  EXPECT_EQ(seen.of(0).end, SimTime(50));
  EXPECT_EQ(seen.of(1).end, SimTime(50));
  EXPECT_EQ(model.seen(), (TwoLayers::Seen{{0, 0, 1}, {0, 0, 1}}));
}

TEST(AttentionOnCpu, Suspended_IsNoPreemption_AndMayReturnToTheOtherTier) {
  // After its first token the request is suspended and resumes on the GPU at once: its block comes back in two copies
  // of 4 ns launch and transfer: 25..29 the prompt's KV, 29..47 the way back (2 copies, 8 bytes), then 20 + 5.
  bool first = true;
  bool on_gpu = false;
  const Script script{.attends = [&](const RequestView&) { return on_gpu ? kGpuTier : kHostTier; },
                      .decide =
                          [&](const View& view, const std::vector<RequestId>& all, Decision& decision) {
                            if (!std::exchange(first, false)) return;
                            decision.leave(all[0], Leave::suspend);
                            const auto runs = view.runs(holder(all[0]));
                            EXPECT_THAT(runs, ElementsAre(KvRun{Blocks(1), kHostTier}));
                            on_gpu = true;
                            decision.resume(all[0]);
                          }};
  const TwoLayers model;
  const Replay seen = run(script, tiers(40, 3), {request(0, 4, 2)}, model);
  EXPECT_EQ(seen.of(0).end, SimTime(47 + 25));
  EXPECT_EQ(seen.of(0).preempted_swap, 0);
  EXPECT_EQ(seen.result.statistics.engine.preempted_swap, 0);
  EXPECT_EQ(model.seen().back(), (std::vector<std::int64_t>{1, 0, 0}));
}

TEST(AttentionOnCpu, BrokenRules_AreNamed) {
  const std::vector<RequestSpec> one{request(0, 4, 3)};
  const auto decides = [](auto what) {
    return Script{.decide = [what](const View&, const std::vector<RequestId>& all, Decision& d) { what(all[0], d); }};
  };
  EXPECT_THAT(refused({.attends = [](const RequestView&) { return TierId(7); }}, tiers(4, 3), one),
              HasSubstr("attend for request 0 at 0 ns, but an unknown tier has no processor"));
  EXPECT_THAT(refused({}, tiers(40, 0), one), HasSubstr("it needs 1 block and the host has 0 free"));
  EXPECT_THAT(refused({}, tiers(40, 1), one), HasSubstr("their next tokens need 1 block and the host has 0 free"));
  EXPECT_THAT(refused(decides([](RequestId id, Decision& d) { d.sub_batch(id, kMostSubBatches); }), tiers(40, 3), one),
              HasSubstr("choose a sub-batch for request 0 at 25 ns, but sub-batch 8 is none"));
  EXPECT_THAT(refused(decides([](RequestId id, Decision& d) {
                        d.decodes(1);
                        d.sub_batch(id, 1);
                      }),
                      tiers(40, 3), one),
              HasSubstr("its tokens are staged"));
  EXPECT_THAT(refused(decides([](RequestId id, Decision& d) {
                        d.leave(id, Leave::preempt_recompute);
                        d.join(id);
                        d.chunk(id, Tokens(2));
                      }),
                      tiers(40, 3), one),
              HasSubstr("its prompt is computed in one chunk"));
  EXPECT_THAT(refused(decides([](RequestId id, Decision& d) {
                        d.move({holder(id), {Blocks(0), Blocks(1)}, kGpuTier, kHostTier, true});
                      }),
                      tiers(40, 3), one),
              HasSubstr("the CPU attends for it"));
}

}  // namespace
}  // namespace spillway
