// KV that stays after its request, moves between tiers, and is dropped: instants and rules by hand.
#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/engine/instance.hpp"
#include "tests/oracle/toy_policies.hpp"
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Runs = std::vector<KvRun>;

/// An offload policy whose calls are functions. It keeps every conversation.
class ScriptedSpace final : public oracle::CountingSpace {
 public:
  struct Script {
    std::function<void(const View&, const RequestView&, Placement&)> leaves{}, returns{};
    std::function<void(const View&, Placement&)> places{};
    std::function<void(const View&, TierId)> shrank{};
    std::function<void(const View&, const Move&)> moved{};
  };
  ScriptedSpace(const View& view, const Script& script) : CountingSpace(view), script_(script) {}
  void leaves(const View& view, const RequestView& request, Placement& placement) override {
    script_.leaves ? script_.leaves(view, request, placement) : OffloadPolicy::leaves(view, request, placement);
  }
  void returns(const View& view, const RequestView& request, Placement& placement) override {
    script_.returns ? script_.returns(view, request, placement) : OffloadPolicy::returns(view, request, placement);
  }
  void places(const View& view, Placement& placement) override {
    if (script_.places) script_.places(view, placement);
  }
  void shrank(const View& view, TierId tier, Placement&) override {
    if (script_.shrank) script_.shrank(view, tier);
  }
  void moved(const View& view, const Move& move) override {
    if (script_.moved) script_.moved(view, move);
  }
  [[nodiscard]] bool keeps(const View&, const RequestView&, Outcome) override { return true; }

 private:
  const Script& script_;
};

/// Layers of equal time; a byte is copied in a nanosecond, without launch. Notes the work of each iteration.
class LayeredModel final : public ExecutionModel {
 public:
  struct Seen {
    std::vector<std::pair<std::int64_t, std::int64_t>> chunks;  // (new tokens, context)
    std::int64_t sequences = 0;
  };
  LayeredModel(std::int32_t layers, std::int64_t layer) : layers_(layers), layer_(layer) {}
  [[nodiscard]] std::int32_t layers() const override { return layers_; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    Seen& seen = seen_.emplace_back();
    for (const PrefillChunk& chunk : shape.chunks) {
      seen.chunks.emplace_back(chunk.new_tokens.count(), chunk.context.count());
    }
    seen.sequences = shape.sequences();
    return {.layer = Duration(layer_)};
  }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes bytes, CopyMechanism) const override {
    return {Duration(0), Duration(bytes.count())};
  }
  [[nodiscard]] const std::vector<Seen>& seen() const { return seen_; }

 private:
  std::int32_t layers_;
  std::int64_t layer_;
  mutable std::vector<Seen> seen_;
};

/// A turn of conversation 0.
RequestSpec turn(std::int64_t arrival, std::int64_t input, std::int64_t output) {
  RequestSpec spec = request(arrival, input, output);
  spec.traits.conversation = 0;
  return spec;
}

PolicyInfo scripted(const ScriptedSpace::Script& script) {
  PolicyInfo info;
  info.name = "toy";
  info.make = [&script](const PolicyContext& context) {
    return Policy{std::make_unique<oracle::ToyFcfs>(), std::make_unique<ScriptedSpace>(context.view, script)};
  };
  return info;
}

Replay run(const ScriptedSpace::Script& script, const KvLayout& kv, const std::vector<RequestSpec>& requests,
           const ExecutionModel& model) {
  const PolicyInfo policy = scripted(script);
  const Settings settings = oracle::policy_settings(policy, {});
  oracle::ListSource source(requests);
  Replay replay;
  SimulationConfig config;
  config.source = &source;
  config.instances.push_back({.model = &model,
                              .policy = &policy,
                              .settings = &settings,
                              .kv = kv,
                              .max_model_len = kv.block_tokens * kv.gpu_blocks.count()});
  config.on_request = [&](const RequestRecord& record) { replay.records.push_back(record); };
  replay.result = simulate(config);
  return replay;
}

/// Why the engine refuses what the script does.
std::string refused(const ScriptedSpace::Script& script, const KvLayout& kv, const std::vector<RequestSpec>& requests) {
  try {
    static_cast<void>(run(script, kv, requests, LayeredModel(1, 100)));
  } catch (const BrokenPromise& error) {
    return error.what();
  }
  return "nothing was refused";
}

Runs runs(const View& view, const Holder& holder) {
  const auto shown = view.runs(holder);
  return {shown.begin(), shown.end()};
}

const Holder kTalk = holder_of_conversation(0);
Move whole(TierId from, TierId to, Waits waits, bool keep = false) {
  return {kTalk, {Blocks(0), Blocks(1)}, from, to, keep, CopyMechanism::gather, waits};
}

/// Copies the conversation's only block to the host once it rests there.
ScriptedSpace::Script out_then_layer_by_layer(std::vector<std::int64_t>& moved_at) {
  return {.returns =
              [](const View& view, const RequestView& request, Placement& placement) {
                if (view.runs(holder(request.id)).empty()) return;
                placement.move({holder(request.id),
                                {Blocks(0), Blocks(1)},
                                kHostTier,
                                kGpuTier,
                                false,
                                CopyMechanism::gather,
                                Waits::layers});
              },
          .places =
              [](const View& view, Placement& placement) {
                if (runs(view, kTalk) == Runs{{Blocks(1), kGpuTier}}) {
                  placement.move(whole(kGpuTier, kHostTier, Waits::nobody));
                }
              },
          .moved = [&](const View& view, const Move&) { moved_at.push_back(view.now().ns()); }};
}

// Pensieve's pipelined swap-in: 4 layers of 1 ms, a layer's KV arrives in 1.5 ms. Layers start at 1.5, 3.0, 4.5, 6.0;
// the iteration ends at 7.0 ms. With 0.5 ms the layers start at 0.5, 1.5, 2.5, 3.5 and it ends at 4.5. The first turn
// of 16
// + 1 tokens leaves 16 tokens of KV, one block, at 4 ms; it goes to the host while nothing computes, in 4 x 1.5 or 4 x
// 0.5 ms.
// The layers wait 1.5 ms for the first share and, after 1 ms of computing, 0.5 ms for each of the other three: 3.0 of
// the 6 ms that the copies take are exposed. With 0.5 ms only the first layer waits, 0.5 of 2 ms.
TEST(Moves, ThatLayersWaitFor_AreHiddenLayerByLayer) {
  for (const auto& [per_layer, ends_after, exposed] :
       {std::tuple(1'500'000L, 7'000'000L, 3'000'000L), std::tuple(500'000L, 4'500'000L, 500'000L)}) {
    std::vector<std::int64_t> moved_at;
    KvLayout kv = layout(4, 4);
    kv.block_bytes = Bytes(4 * per_layer);
    const LayeredModel model(4, 1'000'000);
    const Replay seen = run(out_then_layer_by_layer(moved_at), kv, {turn(0, 16, 1), turn(50'000'000, 17, 1)}, model);
    EXPECT_THAT(moved_at, ElementsAre(4'000'000 + 4 * per_layer)) << "the move ends as an event of its own";
    EXPECT_EQ(seen.of(1).end.ns(), 50'000'000 + ends_after);
    EXPECT_EQ(model.seen().back().chunks, (std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 16}}));
    const EngineTotals& totals = seen.result.statistics.engine;
    EXPECT_EQ(totals.moved_h2d, Bytes(4 * per_layer));
    EXPECT_EQ(totals.kv_copied_idle, Duration(4 * per_layer)) << "the way out";
    EXPECT_EQ(totals.kv_copied_beside, Duration(4 * per_layer)) << "the way in";
    EXPECT_EQ(totals.kv_waited_for, Duration(exposed));
    const auto metric = [&](const char* name) { return seen.result.statistics.find(name)->value.value_or(-1.0); };
    EXPECT_DOUBLE_EQ(metric("kv_copy_s"), 8e-9 * static_cast<double>(per_layer));
    EXPECT_DOUBLE_EQ(metric("idle_kv_copy_s"), 4e-9 * static_cast<double>(per_layer));
    EXPECT_DOUBLE_EQ(metric("exposed_kv_copy_s"), 1e-9 * static_cast<double>(exposed));
    EXPECT_DOUBLE_EQ(metric("hidden_kv_copy_s"), 1e-9 * static_cast<double>(4 * per_layer - exposed));
  }
}

// The first turn leaves 40 + 9 - 1 = 48 tokens, 3 blocks of 16. Its first block is dropped. The next turn of 60 tokens
// computes tokens 0 to 15, which attend to nothing before them, and tokens 48 to 59, which attend to 48: 28 tokens of
// one sequence.
TEST(Moves, DroppedBlocks_AreComputedAgainAsARangeOfTheSameSequence) {
  bool dropped = false;
  const ScriptedSpace::Script script{.places = [&](const View& view, Placement& placement) {
    if (std::exchange(dropped, dropped || view.kept(0) > Tokens(0)) || view.kept(0) == Tokens(0)) return;
    EXPECT_EQ(view.kept(0), Tokens(48));
    placement.drop(kTalk, {Blocks(0), Blocks(1)}, kNoTier);
    EXPECT_EQ(runs(view, kTalk), (Runs{{Blocks(1)}, {Blocks(2), kGpuTier}}));
  }};
  const LayeredModel model(1, 100);
  const Replay seen = run(script, layout(5), {turn(0, 40, 9), turn(5000, 60, 1)}, model);
  EXPECT_EQ(model.seen().back().chunks, (std::vector<std::pair<std::int64_t, std::int64_t>>{{16, 0}, {12, 48}}));
  EXPECT_EQ(model.seen().back().sequences, 1);
  EXPECT_EQ(seen.of(1).generated, Tokens(1));
}

// 20 + 3 - 1 = 22 tokens: the second block is not full. Both blocks are copied to the host and stay on the GPU. The
// next turn appends to the second block, so its copy is out of date and the host gets the place back.
TEST(Moves, ACopyOfABlockThatChanges_IsDropped) {
  std::vector<Blocks> free_on_host;
  Runs while_running;
  const ScriptedSpace::Script script{.places = [&](const View& view, Placement& placement) {
    free_on_host.push_back(view.tier(kHostTier).free);
    if (runs(view, kTalk) == Runs{{Blocks(2), kGpuTier}}) {
      placement.move({kTalk, {Blocks(0), Blocks(2)}, kGpuTier, kHostTier, true});
    }
    if (view.batch().running > 0) while_running = runs(view, holder(view.last_joined()));
  }};
  static_cast<void>(run(script, layout(5, 5), {turn(0, 20, 3), turn(9000, 30, 2)}, LayeredModel(1, 100)));
  EXPECT_EQ(while_running, (Runs{{Blocks(1), kGpuTier, kHostTier}, {Blocks(1), kGpuTier}}));
  EXPECT_EQ(free_on_host.back(), Blocks(4));
}

// A request of 32 + 9 tokens: its first two blocks are copied out while it runs. When it is preempted at 33 computed
// tokens or later, only its third block moves: 1,000 of 3,000 bytes. All three come back.
TEST(Moves, FullBlocksOfARunningRequest_CanBeCopiedAhead) {
  int decision = 0;
  const ScriptedSpace::Script script{
      .leaves =
          [](const View&, const RequestView& request, Placement& placement) {
            placement.drop(holder(request.id), {Blocks(0), Blocks(2)}, kGpuTier);
            placement.move({holder(request.id),
                            {Blocks(2), Blocks(3)},
                            kGpuTier,
                            kHostTier,
                            false,
                            CopyMechanism::many,
                            Waits::iteration});
          },
      .places =
          [&](const View& view, Placement& placement) {
            if (++decision != 2) return;
            placement.move({holder(view.last_joined()), {Blocks(0), Blocks(2)}, kGpuTier, kHostTier, true});
          }};
  // The older request of 15 + 12 tokens needs its second block, the fifth of the GPU's 4, at its 17th token: then the
  // younger one leaves.
  const Replay seen = run(script, layout(4, 5), {request(0, 15, 12), request(0, 32, 9)}, LayeredModel(1, 10'000));
  EXPECT_EQ(seen.result.statistics.engine.preempted_swap, 1);
  EXPECT_EQ(seen.result.statistics.engine.moved_d2h, Bytes(3000));
  EXPECT_EQ(seen.result.statistics.engine.moved_h2d, Bytes(3000));
  EXPECT_EQ(seen.of(1).generated, Tokens(9));
  // The copy ahead takes 2,000 ns beside an iteration of 10,000. Iterations wait 1,000 ns for the rest to leave and
  // 3,000 ns for all to return.
  EXPECT_EQ(seen.result.statistics.engine.kv_copied_beside, Duration(6000));
  EXPECT_EQ(seen.result.statistics.engine.kv_waited_for, Duration(4000));
  EXPECT_EQ(seen.result.statistics.engine.kv_copied_idle, Duration(0));
}

/// Two turns of conversation 0 with 9 s between them, and one of conversation 1, each of 1 s.
class TwoConversations final : public RequestSource {
 public:
  [[nodiscard]] SimTime next_arrival() override {
    if (sent_ == 0) return SimTime(0);
    if (sent_ == 1) return SimTime(5'000'000'000);
    return sent_ == 2 ? next_turn(0) : kNever;
  }
  bool next(RequestSpec& spec) override {
    spec = turn(next_arrival().ns(), sent_ == 2 ? 20 : 16, 1);
    spec.traits.conversation = sent_++ == 1 ? 1 : 0;
    return true;
  }
  void ended(const RequestRecord& record) override {
    if (record.traits.conversation != 0) return;
    second_ = second_ == kNever ? record.end + Duration(9'000'000'000) : kNever;
  }
  [[nodiscard]] SimTime next_turn(std::int64_t conversation) const override {
    return conversation == 0 ? second_ : kNever;
  }

 private:
  int sent_ = 0;
  SimTime second_ = kNever;
};

// Conversation 0 computes from 0 to 1 s and from 10 to 11 s, conversation 1 from 5 to 6 s; the run ends at 11 s. Live:
// 0 for 11 s, 1 for 1 s. Between turns with KV kept: 0 from 1 to 10 s, 1 from 6 s on, together 9 + 5 s. KV of
// conversation 0 is copied to the host at 1 s and stays on the GPU, too; that of conversation 1 is on the GPU alone.
TEST(Conversations, AreCountedOverTime) {
  ScriptedSpace::Script script{.places = [](const View& view, Placement& placement) {
    if (runs(view, kTalk) == Runs{{Blocks(1), kGpuTier}}) {
      placement.move(whole(kGpuTier, kHostTier, Waits::nobody, /*keep=*/true));
    }
  }};
  const LayeredModel model(1, 1'000'000'000);
  TwoConversations source;
  const PolicyInfo policy = scripted(script);
  const Settings settings = oracle::policy_settings(policy, {});
  SimulationConfig config;
  config.source = &source;
  config.instances.push_back(
      {.model = &model, .policy = &policy, .settings = &settings, .kv = layout(4, 4), .max_model_len = Tokens(64)});
  const RunStatistics statistics = simulate(config).statistics;
  const auto metric = [&](const char* name) { return statistics.find(name)->value.value_or(-1.0); };
  EXPECT_DOUBLE_EQ(metric("mean_live_conversations"), 12.0 / 11.0);
  EXPECT_EQ(metric("peak_live_conversations"), 2.0);
  EXPECT_DOUBLE_EQ(metric("mean_cached_conversations"), 14.0 / 11.0);
  EXPECT_EQ(metric("peak_cached_conversations"), 2.0);
  ASSERT_EQ(statistics.conversations.size(), 111U) << "from 0 to 11 s";
  const auto seen = [&](std::size_t tenth) {
    const ConversationCounts& counts = statistics.conversations.at(tenth).counts;
    return std::vector<std::int64_t>{counts.live, counts.cached, counts.cached_on_gpu, counts.cached_on_host};
  };
  EXPECT_THAT(seen(0), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(seen(20), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(seen(55), ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(seen(60), ElementsAre(1, 2, 2, 1)) << "a sample shows the end of its instant";
  EXPECT_THAT(seen(105), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(seen(110), ElementsAre(0, 2, 2, 1)) << "the first block of conversation 0 was full";
}

// No request belongs to a conversation.
TEST(Conversations, WithoutAny_HaveNoMeans) {
  const RunStatistics statistics = run({}, layout(4), {request(0, 16, 1)}, LayeredModel(1, 100)).result.statistics;
  for (const char* name : {"mean_live_conversations", "peak_live_conversations", "mean_cached_conversations",
                           "peak_cached_conversations"}) {
    EXPECT_EQ(statistics.find(name)->value, std::nullopt) << name;
  }
  EXPECT_TRUE(statistics.conversations.empty());
}

/// Nobody listens.
class Deaf final : public InstanceSink {
 public:
  void token_gap(Duration, std::int64_t, SimTime) override {}
  void ended(const RequestRecord&) override {}
};

TEST(Moves, ATierThatShrinksBelowItsUse_IsReportedInEachDecision) {
  std::vector<std::pair<TierId, Blocks>> shrunk;
  const ScriptedSpace::Script script{
      .places =
          [](const View& view, Placement& placement) {
            if (runs(view, kTalk) == Runs{{Blocks(1), kGpuTier}}) {
              placement.move(whole(kGpuTier, kHostTier, Waits::iteration));
            }
          },
      .shrank = [&](const View& view, TierId tier) { shrunk.emplace_back(tier, view.tier(tier).free); }};
  const PolicyInfo policy = scripted(script);
  const Settings settings = oracle::policy_settings(policy, {});
  const LayeredModel model(1, 100);
  Deaf sink;
  Instance instance(
      {.model = &model, .policy = &policy, .settings = &settings, .kv = layout(4, 4), .max_model_len = Tokens(64)},
      sink);
  static_cast<void>(instance.submit(turn(0, 16, 1), 0, 0, SimTime(0), SimTime(0)));
  instance.start(SimTime(0));
  EXPECT_EQ(instance.advance(SimTime(100)), Instance::Advanced::iteration);
  instance.start(SimTime(100));
  EXPECT_EQ(runs(instance, kTalk), (Runs{{Blocks(1), kHostTier}}));
  instance.resize(kHostTier, Blocks(0), SimTime(200));
  instance.start(SimTime(300));
  instance.start(SimTime(400));
  EXPECT_THAT(shrunk, ElementsAre(std::pair(kHostTier, Blocks(-1)), std::pair(kHostTier, Blocks(-1))));
  instance.resize(kHostTier, Blocks(1), SimTime(500));
  instance.start(SimTime(500));
  EXPECT_EQ(shrunk.size(), 2U);
}

/// Does something once conversation 0 is kept.
ScriptedSpace::Script once_kept(const std::function<void(Placement&)>& deed) {
  return {.places = [deed, done = false](const View& view, Placement& placement) mutable {
    if (view.kept(0) > Tokens(0) && !std::exchange(done, true)) deed(placement);
  }};
}

/// The run goes on after the first turn.
std::vector<RequestSpec> one_turn() { return {turn(0, 16, 1), request(5000, 16, 1)}; }

// 16 + 1 tokens leave one block of conversation 0.
TEST(BrokenPromise, Move_ThatIsImpossible) {
  const auto why = [](const Move& move, const KvLayout& kv = layout(4, 4)) {
    return refused(once_kept([move](Placement& placement) { placement.move(move); }), kv, one_turn());
  };
  EXPECT_THAT(why(whole(kGpuTier, kGpuTier, Waits::nobody)),
              HasSubstr("policy toy decided to move blocks 0 to 1 of conversation 0 from gpu to gpu at 100 ns, but no "
                        "route joins the two tiers. Rule of sim/api/residency.hpp: a Move"));
  EXPECT_THAT(why(whole(kHostTier, kGpuTier, Waits::nobody)),
              HasSubstr("but blocks 0 to 1 are not on the tier that they leave."));
  EXPECT_THAT(why({kTalk, {Blocks(0), Blocks(2)}, kGpuTier, kHostTier}),
              HasSubstr("but it has 1 block, and blocks 0 to 2 are asked for."));
  EXPECT_THAT(why({holder_of_conversation(7), {Blocks(0), Blocks(1)}, kGpuTier, kHostTier}),
              HasSubstr("of conversation 7 from gpu to host at 100 ns, but it holds nothing."));
  EXPECT_THAT(why(whole(kGpuTier, kHostTier, Waits::nobody), layout(4)),
              HasSubstr("but they need 1 block and the tier has 0 free."));
  EXPECT_EQ(why(whole(kGpuTier, kHostTier, Waits::iteration)), "nothing was refused");
}

TEST(BrokenPromise, Drop_OfWhatIsNotThere) {
  const auto why = [](TierId tier) {
    return refused(once_kept([tier](Placement& placement) {
                     placement.drop(kTalk, {Blocks(0), Blocks(1)}, tier);
                   }),
                   layout(4, 4), one_turn());
  };
  EXPECT_THAT(why(kHostTier),
              HasSubstr("policy toy decided to drop blocks 0 to 1 of conversation 0 at 100 ns, but "
                        "blocks 0 to 1 are not on the tier that they leave. Rule of sim/api/decision.hpp"));
  EXPECT_EQ(why(kNoTier), "nothing was refused");
}

TEST(BrokenPromise, Moves_OfARequestInTheBatch) {
  const auto why = [](const std::function<void(const Holder&, Placement&)>& deed) {
    const ScriptedSpace::Script script{.places = [deed](const View& view, Placement& placement) {
      if (view.batch().decoding > 0) deed(holder(view.last_joined()), placement);
    }};
    return refused(script, layout(4, 4), {request(0, 20, 3)});
  };
  const std::string rule = "but it is in the batch, so only full blocks can be copied from the GPU.";
  EXPECT_THAT(why([](const Holder& who, Placement& placement) {
                placement.move({who, {Blocks(0), Blocks(1)}, kGpuTier, kHostTier});
              }),
              HasSubstr(rule));
  EXPECT_THAT(why([](const Holder& who, Placement& placement) {
                placement.move({who, {Blocks(0), Blocks(2)}, kGpuTier, kHostTier, true});
              }),
              HasSubstr(rule));
  EXPECT_THAT(why([](const Holder& who, Placement& placement) {
                placement.move({who, {Blocks(0), Blocks(1)}, kGpuTier, kHostTier, true});
                placement.drop(who, {Blocks(0), Blocks(1)}, kHostTier);
              }),
              HasSubstr("but it is in the batch."));
  EXPECT_THAT(why([](const Holder& who, Placement& placement) {
                placement.drop(who, {Blocks(0), Blocks(1)}, kGpuTier);
              }),
              HasSubstr("but it holds nothing, or runs with all of it on the GPU."));
}

TEST(BrokenPromise, Return_ThatLeavesBlocksBehind) {
  ScriptedSpace::Script script =
      once_kept([](Placement& placement) { placement.move(whole(kGpuTier, kHostTier, Waits::iteration)); });
  script.returns = [](const View&, const RequestView&, Placement&) {};
  EXPECT_THAT(refused(script, layout(4, 4), {turn(0, 16, 1), turn(5000, 17, 1)}),
              HasSubstr("policy toy decided to let request 1 return at 5000 ns, but 1 block of it stays on host. Rule "
                        "of sim/api/scheduler.hpp: returns()"));
}

TEST(BrokenPromise, MovesBesideAPrefixCache_AreOfWholeRequestsThatTheIterationWaitsFor) {
  const ScriptedSpace::Script script{.leaves = [](const View&, const RequestView& request, Placement& placement) {
    placement.move({holder(request.id), {Blocks(0), request.held}, kGpuTier, kHostTier});
  }};
  KvLayout kv = layout(4, 5);
  kv.prefix_caching = true;
  EXPECT_THAT(refused(script, kv, {request(0, 15, 12), request(0, 32, 9)}),
              HasSubstr("but beside a prefix cache whole requests move, and the iteration waits."));
}

}  // namespace
}  // namespace spillway
