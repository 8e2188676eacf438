// Policies that break a rule of sim/api: the message names the policy, its decision, the time and the rule.
#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "policies/parts/paged_space.hpp"
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

using Decide = std::function<void(const View&, const std::vector<RequestId>&, Decision&)>;

/// Decides as a function says. The function also gets the requests that have arrived so far.
class ScriptedScheduler final : public Scheduler {
 public:
  explicit ScriptedScheduler(Decide decide) : decide_(std::move(decide)) {}
  void arrived(const RequestView& request) override { arrived_.push_back(request.id); }
  void ended(RequestId, Outcome) override {}
  void decide(const View& view, const KvSpace&, Decision& decision) override { decide_(view, arrived_, decision); }

 private:
  Decide decide_;
  std::vector<RequestId> arrived_;
};

PolicyInfo scripted(Decide decide) {
  PolicyInfo info;
  info.name = "toy";
  info.make = [decide = std::move(decide)](const PolicyContext& context) {
    return Policy{std::make_unique<ScriptedScheduler>(decide),
                  std::make_unique<PagedSpace>(context.view, PagedSpaceOptions{})};
  };
  return info;
}

/// Runs one request of 40 + 4 tokens that arrives at 700 ns, in iterations of 100 ns; returns the message.
std::string message(const PolicyInfo& policy, const KvLayout& kv = layout(10), std::int64_t output = 4) {
  const WatchingModel model(Duration(100));
  const Settings settings = oracle::policy_settings(policy, {});
  const std::vector<RequestSpec> requests{request(700, 40, output)};
  oracle::ListSource source(requests);
  SimulationConfig config;
  InstanceConfig& instance = config.instances.emplace_back();
  instance.model = &model;
  instance.policy = &policy;
  instance.settings = &settings;
  config.source = &source;
  instance.kv = kv;
  instance.max_model_len = Tokens(1000);
  try {
    static_cast<void>(simulate(config));
  } catch (const BrokenPromise& error) {
    return error.what();
  }
  return "no rule was broken";
}

std::string message(Decide decide) { return message(scripted(std::move(decide))); }

/// Computes the prompt in the first decision and decodes in later decisions.
void run_first(const View& view, const std::vector<RequestId>& arrived, Decision& decision) {
  if (view.batch().running > 0) return;
  decision.join(arrived[0]);
  decision.chunk(arrived[0], Tokens(40));
}

/// Computes its only request and reports a figure.
class Reporting final : public Scheduler {
 public:
  void arrived(const RequestView& request) override { id_ = request.id; }
  void ended(RequestId, Outcome) override {}
  void decide(const View& view, const KvSpace&, Decision& decision) override { run_first(view, {id_}, decision); }
  [[nodiscard]] Figures figures() const override { return {{"naps", 3.0}}; }

 private:
  RequestId id_{};
};

TEST(BrokenPromise, Figure_ThatIsNotDeclared) {
  PolicyInfo policy = scripted(run_first);
  policy.make = [](const PolicyContext& context) {
    return Policy{std::make_unique<Reporting>(), std::make_unique<PagedSpace>(context.view, PagedSpaceOptions{})};
  };
  EXPECT_THAT(message(policy), HasSubstr("policy toy decided to report naps at 1100 ns, but it does not declare this "
                                         "figure. Rule of sim/api/registry.hpp: PolicyInfo::figures"));
  policy.figures = {{"naps", "naps", "Naps."}};
  EXPECT_EQ(message(policy), "no rule was broken");
}

// 40 + 4 tokens fill two blocks of 16. The request ends at 700 + 4 * 100 ns.
TEST(BrokenPromise, Retention_ThatIsNotANumber) {
  PolicyInfo policy = scripted(run_first);
  policy.make = [](const PolicyContext& context) {
    const auto nan = [](const View&, const FreedBlock&) { return std::numeric_limits<double>::quiet_NaN(); };
    return Policy{std::make_unique<ScriptedScheduler>(run_first),
                  std::make_unique<PagedSpace>(context.view, PagedSpaceOptions{.retention = nan})};
  };
  KvLayout kv = layout(10);
  EXPECT_EQ(message(policy, kv), "no rule was broken");
  kv.prefix_caching = true;
  EXPECT_EQ(message(policy, kv),
            "policy toy decided to value blocks of request 0 at 1100 ns, but their value is not a number. Rule of "
            "sim/api/scheduler.hpp: a Retention gives numbers");
}

TEST(BrokenPromise, Nothing_IsReportedOfAPolicyThatKeepsTheRules) {
  EXPECT_EQ(message(run_first), "no rule was broken");
}

TEST(BrokenPromise, Join_OfARequestInTheBatch) {
  EXPECT_EQ(
      message([](const View&, const std::vector<RequestId>& arrived, Decision& decision) {
        decision.join(arrived[0]);
        decision.join(arrived[0]);
      }),
      "policy toy decided to join request 0 at 700 ns, but request 0 is prefilling. Rule of sim/api/decision.hpp: "
      "join() takes a waiting request");
}

TEST(BrokenPromise, Join_OfARequestThatHasEnded) {
  EXPECT_THAT(message([](const View&, const std::vector<RequestId>& arrived, Decision& decision) {
                decision.reject(arrived[0]);
                decision.join(arrived[0]);
              }),
              StartsWith("policy toy decided to join request 0 at 700 ns, but request 0 has ended."));
}

// 40 + 4 tokens take 3 blocks of 16. They are promised to a request while it is in the batch.
TEST(View, Promised_IsWhatTheRequestsInTheBatchMayNeed) {
  std::vector<Blocks> promised;
  EXPECT_EQ(message([&](const View& view, const std::vector<RequestId>& arrived, Decision& decision) {
              promised.push_back(view.batch().promised);
              if (promised.size() == 2) {
                decision.leave(arrived[0], Leave::preempt_recompute);
                promised.push_back(view.batch().promised);
              }
              if (view.batch().running > 0) return;
              decision.join(arrived[0]);
              decision.chunk(arrived[0], view.request(arrived[0]).remaining());
            }),
            "no rule was broken");
  ASSERT_GE(promised.size(), 4U);
  EXPECT_EQ(promised[0], Blocks(0));
  EXPECT_EQ(promised[1], Blocks(3));
  EXPECT_EQ(promised[2], Blocks(0));
  EXPECT_EQ(promised[3], Blocks(3));
}

// The prompt's iteration lasts from 700 to 800 ns.
TEST(BrokenPromise, Reject_OfARequestThatRuns) {
  EXPECT_THAT(message([](const View& view, const std::vector<RequestId>& arrived, Decision& decision) {
                if (view.batch().running > 0) decision.reject(arrived[0]);
                run_first(view, arrived, decision);
              }),
              StartsWith("policy toy decided to reject request 0 at 800 ns, but request 0 is decoding."));
}

TEST(BrokenPromise, Chunk_BeyondTheKnownTokens) {
  for (const std::int64_t tokens : {0, 41}) {
    EXPECT_EQ(
        message([&](const View&, const std::vector<RequestId>& arrived, Decision& decision) {
          decision.join(arrived[0]);
          decision.chunk(arrived[0], Tokens(tokens));
        }),
        "policy toy decided to compute " + std::to_string(tokens) +
            " tokens of request 0 at 700 ns, but it has 40 known tokens left. Rule of sim/api/decision.hpp: chunk() "
            "computes 1 to all remaining known tokens of a prefilling request, once, in free blocks");
  }
}

TEST(BrokenPromise, Chunk_OfAWaitingRequestOrTwice) {
  EXPECT_THAT(message([](const View&, const std::vector<RequestId>& arrived, Decision& decision) {
                decision.chunk(arrived[0], Tokens(40));
              }),
              StartsWith("policy toy decided to compute a chunk of request 0 at 700 ns, but request 0 is waiting."));
  EXPECT_THAT(message([](const View&, const std::vector<RequestId>& arrived, Decision& decision) {
                decision.join(arrived[0]);
                decision.chunk(arrived[0], Tokens(10));
                decision.chunk(arrived[0], Tokens(10));
              }),
              StartsWith("policy toy decided to compute a chunk of request 0 at 700 ns, but a chunk of it is staged."));
}

// 40 tokens take 3 blocks of 16.
TEST(BrokenPromise, Chunk_AndReserve_BeyondTheFreeBlocks) {
  EXPECT_THAT(
      message(scripted(run_first), layout(2)),
      StartsWith(
          "policy toy decided to compute a chunk of request 0 at 700 ns, but it needs 3 blocks and the GPU has 2 "
          "free."));
  const PolicyInfo reserves = scripted([](const View&, const std::vector<RequestId>& arrived, Decision& decision) {
    decision.join(arrived[0]);
    decision.reserve(arrived[0], Tokens(17));
  });
  EXPECT_THAT(
      message(reserves, layout(1)),
      StartsWith(
          "policy toy decided to reserve blocks for request 0 at 700 ns, but it needs 2 blocks and the GPU has 1 "
          "free."));
}

// 40 + 40 tokens need ceil(79 / 16) = 5 blocks; 4 cover neither the prompt alone (3) nor the whole answer.
TEST(BrokenPromise, Reserve_OfPartOfTheAnswer) {
  const PolicyInfo policy = scripted([](const View& view, const std::vector<RequestId>& arrived, Decision& decision) {
    if (view.batch().running > 0) return;
    decision.join(arrived[0]);
    decision.reserve(arrived[0], Tokens(64));
    decision.chunk(arrived[0], Tokens(40));
  });
  EXPECT_THAT(
      message(policy, layout(10), 40),
      HasSubstr(
          "decided to reserve blocks for request 0 at 800 ns, but it covers some tokens of the answer, but not all. "
          "Rule of sim/api/decision.hpp: reserve()"));
}

TEST(BrokenPromise, Leave_OfAWaitingRequest) {
  EXPECT_THAT(message([](const View&, const std::vector<RequestId>& arrived, Decision& decision) {
                decision.leave(arrived[0], Leave::preempt_recompute);
              }),
              StartsWith("policy toy decided to take out request 0 at 700 ns, but request 0 is waiting. Rule of "
                         "sim/api/decision.hpp: leave() takes a request out of the batch"));
}

TEST(BrokenPromise, Leave_AfterWhatItWouldUndo) {
  EXPECT_THAT(message([](const View& view, const std::vector<RequestId>& arrived, Decision& decision) {
                run_first(view, arrived, decision);
                decision.leave(arrived[0], Leave::preempt_recompute);
              }),
              HasSubstr("but a chunk of it is staged."));
  EXPECT_THAT(message([](const View& view, const std::vector<RequestId>& arrived, Decision& decision) {
                run_first(view, arrived, decision);
                if (view.batch().decoding == 0) return;
                decision.decodes(1);
                decision.leave(arrived[0], Leave::preempt_recompute);
              }),
              StartsWith("policy toy decided to take out request 0 at 800 ns, but the decodes are staged."));
}

TEST(BrokenPromise, Leave_ToAHostThatIsFull) {
  const PolicyInfo policy = scripted([](const View& view, const std::vector<RequestId>& arrived, Decision& decision) {
    run_first(view, arrived, decision);
    if (view.batch().decoding > 0) decision.leave(arrived[0], Leave::preempt_swap);
  });
  EXPECT_THAT(message(policy, layout(10, 2)),
              StartsWith("policy toy decided to move blocks 0 to 3 of request 0 from gpu to host at 800 ns, but they "
                         "need 3 blocks and the tier has 2 free."));
}

TEST(BrokenPromise, Resume_OfARequestThatIsNotSwapped) {
  EXPECT_THAT(message([](const View&, const std::vector<RequestId>& arrived, Decision& decision) {
                decision.resume(arrived[0]);
              }),
              StartsWith("policy toy decided to resume request 0 at 700 ns, but request 0 is waiting."));
}

TEST(BrokenPromise, Decodes_OfMoreRequestsThanDecodeOrTwice) {
  EXPECT_THAT(message([](const View&, const std::vector<RequestId>&, Decision& decision) { decision.decodes(3); }),
              StartsWith("policy toy decided to let 3 requests decode at 700 ns, but 0 are decoding."));
  EXPECT_THAT(message([](const View&, const std::vector<RequestId>&, Decision& decision) {
                decision.decodes(0);
                decision.decodes(0);
              }),
              StartsWith("policy toy decided to let 0 requests decode at 700 ns, but the decodes are staged."));
}

// 48 tokens fill all 3 blocks of 16; the first answer token needs a fourth.
TEST(BrokenPromise, Decodes_BeyondTheFreeBlocks) {
  const PolicyInfo policy = scripted([](const View& view, const std::vector<RequestId>& arrived, Decision& decision) {
    if (view.batch().running == 0) decision.join(arrived[0]);
    if (view.batch().decoding == 0) decision.chunk(arrived[0], view.request(arrived[0]).remaining());
  });
  // 40 + 9 tokens: of 49 known tokens 48 are computed; the tenth token brings the KV of the 49th.
  EXPECT_THAT(message(policy, layout(3), 12),
              StartsWith("policy toy decided to let 1 request decode at 1600 ns, but their next tokens need 1 block "
                         "and the GPU has 0 free."));
}

TEST(BrokenPromise, Nothing_IsDoneWhileARequestWaits) {
  EXPECT_EQ(message([](const View&, const std::vector<RequestId>&, Decision&) {}),
            "policy toy decided to run nothing at 700 ns, but request 0 is unfinished and idle() was not called. Rule "
            "of sim/api/decision.hpp: a decision that runs nothing while requests are unfinished calls idle(), and an "
            "event must be to come");
}

TEST(BrokenPromise, Idle_WithNothingToWaitFor) {
  EXPECT_THAT(message([](const View&, const std::vector<RequestId>&, Decision& decision) { decision.idle(); }),
              StartsWith("policy toy decided to idle at 700 ns, but no event is to come and request 0 is unfinished. "
                         "Rule of sim/api/decision.hpp: a decision that runs nothing"));
}

TEST(BrokenPromise, Preemption_WithoutEnd) {
  EXPECT_THAT(message([](const View&, const std::vector<RequestId>& arrived, Decision& decision) {
                decision.join(arrived[0]);
                decision.leave(arrived[0], Leave::preempt_recompute);
              }),
              StartsWith("policy toy decided to take requests out again and again at 700 ns, but nothing ran "
                         "and request 0 is stuck."));
}

/// Offers `blocks(view)` at every decision.
class ScriptedLayers final : public LayerPolicy {
 public:
  ScriptedLayers(const View& view, std::function<Blocks(const View&)> blocks)
      : view_(view), blocks_(std::move(blocks)) {}
  [[nodiscard]] Blocks capacity() const override { return blocks_(view_); }
  [[nodiscard]] LayerRule* begin(const BatchShape&, const LayerCompute&) override { return nullptr; }

 private:
  const View& view_;
  std::function<Blocks(const View&)> blocks_;
};

PolicyInfo layered(Decide decide, std::function<Blocks(const View&)> blocks) {
  PolicyInfo info = scripted(std::move(decide));
  info.make = [make = info.make, blocks = std::move(blocks)](const PolicyContext& context) {
    Policy policy = make(context);
    policy.layers = std::make_unique<ScriptedLayers>(context.view, blocks);
    return policy;
  };
  return info;
}

TEST(BrokenPromise, Capacity_BeyondTheLayout) {
  EXPECT_EQ(message(layered(run_first, [](const View&) { return Blocks(11); })),
            "policy toy decided to offer 11 KV blocks at 700 ns, but its layout announced 10 KV blocks. Rule of "
            "sim/api/layer_policy.hpp: capacity() is at most Layout::most");
}

// The contract of LayerPolicy: capacity() is called before every decision over a current View, also for repeated
// decisions of one instant. The prompt runs from 700 to 800 ns with 8 blocks. At 800 ns the first decision sees the
// same 8 blocks and removes the request. The second sees an empty batch, so 10 blocks, and starts the request again.
TEST(LayerCapacity, IsAskedBeforeEveryDecision) {
  std::vector<std::pair<std::int64_t, std::int64_t>> seen;  // ns, GPU blocks
  const Decide decide = [&](const View& view, const std::vector<RequestId>& arrived, Decision& decision) {
    seen.emplace_back(view.now().ns(), view.tier(kGpuTier).total.count());
    if (seen.size() == 2) return decision.leave(arrived[0], Leave::preempt_recompute);
    if (view.batch().running > 0) return;
    decision.join(arrived[0]);
    decision.chunk(arrived[0], view.request(arrived[0]).remaining());
  };
  const auto blocks = [](const View& view) { return Blocks(view.batch().running == 0 ? 10 : 8); };
  EXPECT_EQ(message(layered(decide, blocks), layout(10), 3), "no rule was broken");
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected{{700, 10}, {800, 8}, {800, 10}, {900, 8}};
  EXPECT_EQ(seen, expected);
}

}  // namespace
}  // namespace spillway
