// The timeline: a run by hand, event by event; what a window and a limit leave out; what a stop cuts.
#include "sim/report/timeline.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "sim/engine/iteration_runner.hpp"
#include "tests/support/trace_events.hpp"
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
/// (name, ph, start, length) in ns. Of an asynchronous event the length is 0.
using Seen = std::tuple<std::string, std::string, std::int64_t, std::int64_t>;

std::int64_t ns(const json& us) { return std::llround(us.get<double>() * 1e3); }

/// The events of a thread, or of all requests, in the order of the file.
std::vector<Seen> events(const json& trace, const std::string& thread) {
  std::vector<Seen> seen;
  std::map<std::int64_t, std::string> names;
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
    const bool request = event.contains("cat");
    if (event["ph"] == "M" || (request ? thread != "requests" : names[event["tid"]] != thread)) continue;
    seen.emplace_back(event["name"], event["ph"], ns(event["ts"]), event.contains("dur") ? ns(event["dur"]) : 0);
  }
  return seen;
}

/// R1 and R2 of VllmV0.Swap_WhenTheHostHasRoom_ThenKvMovesThereAndBack, where the times are derived: R2 leaves in
/// iteration 2 and returns in iteration 18; 5 blocks of 1,000 bytes take 5,000 ns each way, and the forward pass waits.
void swap(InstanceObserver& observer) {
  const WatchingModel model(Duration(100));
  const Overrides overrides{{"engine.preemption", std::string("swap")}, {"engine.chunked_prefill", false}};
  static_cast<void>(
      replay("vllm-v0", overrides, layout(10, 5), {request(0, 64, 17), request(0, 80, 3)}, model, &observer));
}

TEST(Timeline, OfASwap_ByHand) {
  Timeline timeline({});
  swap(*timeline.observer(0));
  timeline.finish();
  EXPECT_EQ(timeline.end(), SimTime(11900));
  EXPECT_EQ(timeline.left_out(), 0);
  const json trace = json::parse(timeline.json({"replica \"0\""}));
  EXPECT_THAT(test::trace_problems(trace), IsEmpty());
  EXPECT_EQ(trace["traceEvents"][0]["args"]["name"], "replica \"0\"");

  const std::vector<Seen> iterations = events(trace, "iterations");
  ASSERT_EQ(iterations.size(), 19U);
  EXPECT_EQ(iterations[0], Seen("iteration", "X", 0, 100));
  EXPECT_EQ(iterations[1], Seen("iteration", "X", 100, 5100));
  for (std::int64_t i = 2; i < 17; ++i) {
    EXPECT_EQ(iterations[static_cast<std::size_t>(i)], Seen("iteration", "X", 5200 + 100 * (i - 2), 100));
  }
  EXPECT_EQ(iterations[17], Seen("iteration", "X", 6700, 5100));
  EXPECT_EQ(iterations[18], Seen("iteration", "X", 11800, 100));
  EXPECT_THAT(events(trace, "GPU to host"), ElementsAre(Seen("KV", "X", 100, 5000)));
  EXPECT_THAT(events(trace, "host to GPU"), ElementsAre(Seen("KV", "X", 6700, 5000)));
  EXPECT_THAT(events(trace, "stalls"),
              ElementsAre(Seen("waits for KV", "X", 100, 5000), Seen("waits for KV", "X", 6700, 5000)));
  EXPECT_THAT(
      events(trace, "requests"),
      ElementsAre(Seen("request 0", "b", 0, 0), Seen("running", "b", 0, 0), Seen("running", "e", 6700, 0),
                  Seen("first token", "n", 100, 0), Seen("request 0", "e", 6700, 0), Seen("request 1", "b", 0, 0),
                  Seen("running", "b", 0, 0), Seen("running", "e", 100, 0), Seen("preempted: swap", "b", 100, 0),
                  Seen("preempted: swap", "e", 6700, 0), Seen("running", "b", 6700, 0), Seen("running", "e", 11900, 0),
                  Seen("first token", "n", 100, 0), Seen("request 1", "e", 11900, 0)));

  // What the first two iterations compute, the bytes of a copy, and what a request was.
  const auto find = [&](const std::string& name, std::int64_t at) {
    for (const json& event : trace["traceEvents"]) {
      if (event["name"] == name && ns(event["ts"]) == at) return event["args"];
    }
    return json();
  };
  EXPECT_EQ(find("iteration", 0), json::parse(R"({"decodes":0,"prompt_tokens":144,"context_tokens":0})"));
  EXPECT_EQ(find("iteration", 100), json::parse(R"({"decodes":1,"prompt_tokens":0,"context_tokens":65})"));
  EXPECT_EQ(find("KV", 100), json::parse(R"({"bytes":5000})"));
  EXPECT_EQ(
      find("request 1", 0),
      json::parse(R"({"index":1,"outcome":"finished","input_tokens":80,"generated_tokens":3,"cached_tokens":0})"));
}

// Of [5200 ns, 5400 ns) two iterations, and both requests, the second of which waits on the host.
TEST(Timeline, Window_KeepsWhatOverlapsIt) {
  Timeline timeline({.window = TimeWindow{SimTime(5200), SimTime(5400)}});
  swap(*timeline.observer(0));
  timeline.finish();
  const json trace = json::parse(timeline.json({}));
  EXPECT_THAT(test::trace_problems(trace), IsEmpty());
  EXPECT_THAT(events(trace, "iterations"),
              ElementsAre(Seen("iteration", "X", 5200, 100), Seen("iteration", "X", 5300, 100)));
  EXPECT_THAT(events(trace, "stalls"), IsEmpty());
  EXPECT_THAT(
      events(trace, "requests"),
      ElementsAre(Seen("request 0", "b", 0, 0), Seen("running", "b", 0, 0), Seen("running", "e", 6700, 0),
                  Seen("request 0", "e", 6700, 0), Seen("request 1", "b", 0, 0), Seen("preempted: swap", "b", 100, 0),
                  Seen("preempted: swap", "e", 6700, 0), Seen("request 1", "e", 11900, 0)));
  EXPECT_EQ(timeline.left_out(), 0);
}

// In all: 19 iterations, 2 copies, 2 stalls, 2 requests of 2 events, 4 phases of 2, 2 first tokens: 37. At 0 start
// iteration 1, both requests and their first phases: 9 events. At 100: iteration 2, a copy, a stall, a phase and two
// first tokens: 7. Then the iterations at 5200, 5300, ...
TEST(Timeline, Limit_KeepsWhatStartsFirst) {
  for (const auto& [limit, kept, cutoff] :
       {std::tuple(37, 37, kNever), std::tuple(20, 20, SimTime(5600)), std::tuple(16, 16, SimTime(5200)),
        std::tuple(15, 9, SimTime(100)), std::tuple(8, 0, SimTime(0))}) {
    Timeline timeline({.window = {}, .most_events = limit});
    swap(*timeline.observer(0));
    timeline.finish();
    const json trace = json::parse(timeline.json({}));
    EXPECT_THAT(test::trace_problems(trace), IsEmpty());
    std::int64_t events = 0;
    for (const json& event : trace["traceEvents"]) events += event["ph"] != "M" ? 1 : 0;
    EXPECT_EQ(events, kept) << limit;
    EXPECT_EQ(timeline.left_out(), 37 - kept) << limit;
    EXPECT_EQ(timeline.complete_until(), cutoff) << limit;
  }
}

// Two sub-batches of which the GPU takes 30 ns and 20 ns before their layers: they start at 1000 and 1030.
TEST(Timeline, SubBatches_StartInTurnAndEndTogether) {
  Timeline timeline({});
  InstanceObserver& observer = *timeline.observer(2);
  observer.sub_batch({.decodes = 3, .context = Tokens(300), .before = Duration(30)});
  observer.sub_batch({.decodes = 1, .prompt = Tokens(50), .context = Tokens(70), .before = Duration(20)});
  observer.executed(ExecutedIteration{.start = SimTime(1000), .end = SimTime(2000)});
  timeline.finish();
  const std::string text = timeline.json({});
  const json trace = json::parse(text);
  EXPECT_THAT(test::trace_problems(trace), IsEmpty());
  EXPECT_THAT(events(trace, "sub-batch 1"), ElementsAre(Seen("sub-batch", "X", 1000, 1000)));
  EXPECT_THAT(events(trace, "sub-batch 2"), ElementsAre(Seen("sub-batch", "X", 1030, 970)));
  EXPECT_THAT(text, HasSubstr(R"("args":{"decodes":4,"prompt_tokens":50,"context_tokens":370})"));
  EXPECT_THAT(text, HasSubstr(R"("pid":3)"));
}

// A wait that comes in parts is one event; another cause, or a gap, begins another one.
TEST(Timeline, Waits_AreJoined) {
  Timeline timeline({});
  InstanceObserver& observer = *timeline.observer(0);
  observer.waited(Wait::layers, SimTime(10), SimTime(20));
  observer.waited(Wait::layers, SimTime(20), SimTime(25));
  observer.waited(Wait::requests, SimTime(25), SimTime(30));
  observer.waited(Wait::requests, SimTime(31), SimTime(32));
  timeline.finish();
  EXPECT_THAT(events(json::parse(timeline.json({})), "stalls"),
              ElementsAre(Seen("waits for layers", "X", 10, 15), Seen("waits for KV", "X", 25, 5),
                          Seen("waits for KV", "X", 31, 1)));
}

// An iteration that was executed ahead, and copies beyond the stop, before and after it is known.
TEST(Timeline, Stop_CutsWhatLiesBeyond) {
  Timeline timeline({});
  InstanceObserver& observer = *timeline.observer(0);
  const Copy copy{.stream = Stream::d2h, .bytes = Bytes(7), .owner = kRequestCopies};
  observer.copied(copy, SimTime(0), SimTime(10));
  observer.copied(copy, SimTime(60), SimTime(70));
  observer.sub_batch({.decodes = 1});
  observer.executed(ExecutedIteration{.start = SimTime(10), .end = SimTime(90)});
  observer.stopped(SimTime(50));
  observer.copied(copy, SimTime(40), SimTime(60));
  observer.copied(copy, SimTime(70), SimTime(80));
  timeline.finish();
  const json trace = json::parse(timeline.json({}));
  EXPECT_THAT(events(trace, "iterations"), ElementsAre(Seen("iteration", "X", 10, 40)));
  EXPECT_THAT(events(trace, "GPU to host"), ElementsAre(Seen("KV", "X", 0, 10), Seen("KV", "X", 40, 10)));
  EXPECT_EQ(timeline.end(), SimTime(50));
}

}  // namespace
}  // namespace spillway
