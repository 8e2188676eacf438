// Short traces replayed under every policy: every instant of every request, in whole nanoseconds, against a file.
//
// A difference means that a rule changed. If the change was intended, run `test_golden --update POLICY` and say in the
// commit which rule changed and why. A new policy needs the same command once.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "sim/report/timeline.hpp"
#include "tests/oracle/replay.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/trace_events.hpp"

namespace spillway {
namespace {

struct Trace {
  std::string name;
  KvLayout kv;
  std::vector<std::pair<std::string, Value>> settings;
  std::vector<RequestSpec> requests;
};

/// Four situations that every policy meets: ample memory, memory for about two of five requests, shared prefixes, and
/// prefixes that only the host still has.
std::vector<Trace> traces() {
  using oracle::request;
  const auto layout = [](std::int64_t gpu, std::int64_t host, bool caching, std::int64_t host_cache = 0) {
    return KvLayout{Blocks(gpu), Blocks(host), Tokens(16), Bytes(640), 2, caching, Blocks(host_cache)};
  };
  const std::vector<std::pair<std::string, Value>> budget{{"engine.max_num_batched_tokens", std::int64_t{128}},
                                                          {"engine.max_num_seqs", std::int64_t{4}}};
  std::vector<Trace> list{
      {"room",
       layout(100, 0, false),
       budget,
       {request(0, 100, 5), request(300, 20, 8), request(310, 300, 3), request(900, 1, 1), request(5000, 40, 2)}},
      {"shortage",
       layout(12, 12, false),
       budget,
       {request(0, 64, 40), request(0, 80, 30), request(10, 30, 60), request(2000, 90, 20), request(2000, 16, 16)}},
      {"prefixes",
       layout(40, 0, true),
       budget,
       {request(0, 100, 5), request(2500, 100, 5), request(2600, 64, 4), request(6000, 120, 3)}},
      {"host-cache",
       layout(8, 0, true, 20),
       budget,
       {request(0, 100, 5), request(20000, 100, 5), request(40000, 100, 5), request(60000, 64, 4)}}};
  for (RequestSpec& spec : list[2].requests) spec.prefix_ids = {1, 2, 3, 4};
  list[2].requests[2].prefix_ids = {1, 2, 9};
  for (RequestSpec& spec : list[3].requests) spec.prefix_ids = {1, 2, 3, 4};
  list[3].requests[1].prefix_ids = {5, 6, 7, 8};
  return list;
}

/// For a policy that pads: lengths that only the longest prompt exceeds, and a placement that fits the GPU.
void pad(const PolicyInfo& policy, Trace& trace) {
  const auto pads = [](const Parameter& parameter) { return parameter.name == "policy.pad_input"; };
  if (std::none_of(policy.parameters.begin(), policy.parameters.end(), pads)) return;
  trace.kv.gpu_blocks = Blocks(200);
  trace.settings.insert(trace.settings.end(), {{"policy.pad_input", std::int64_t{128}},
                                               {"policy.pad_output", std::int64_t{64}},
                                               {"policy.gpu_batch", std::int64_t{2}},
                                               {"policy.batches", std::int64_t{2}},
                                               {"policy.weights_host", 0.5},
                                               {"policy.cache_host", 0.75},
                                               {"policy.hidden_host", 1.0}});
}

/// For a policy that attends on the CPU: a host that holds all KV beside what the GPU's requests may need there, and a
/// launch in proportion to the model's times.
void attend_on_cpu(const PolicyInfo& policy, Trace& trace) {
  if (!policy.cpu_attention) return;
  trace.kv.host_blocks = trace.kv.gpu_blocks + Blocks(40);
  trace.settings.emplace_back("policy.launch", Duration(10));
}

std::string instant(SimTime t) { return t == kNever ? "-" : std::to_string(t.ns()); }

using Observe = std::function<InstanceObserver*()>;        // the observer of a trace
using Check = std::function<void(const oracle::Replay&)>;  // what was observed

std::string run(const PolicyInfo& policy, bool swap, const Observe& observe = {}, const Check& check = {}) {
  const char* const outcomes[] = {"finished", "rejected", "timed_out", "unfinished"};
  std::string text =
      "trace request outcome arrival scheduled first_token end computing generated cached recomputed swapped\n";
  for (Trace& trace : traces()) {
    pad(policy, trace);
    attend_on_cpu(policy, trace);
    if (swap) trace.settings.emplace_back("engine.preemption", std::string("swap"));
    const auto model = oracle::WholeModel::of(policy, 1, 0);  // the longest decode takes no time of its own
    const oracle::Replay replay =
        oracle::replay(policy.name, trace.settings, trace.kv, trace.requests, model, observe ? observe() : nullptr);
    if (check) check(replay);
    for (std::size_t i = 0; i < trace.requests.size(); ++i) {
      const RequestRecord& r = replay.of(i);
      text += fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}\n", trace.name, r.index,
                          outcomes[static_cast<std::size_t>(r.outcome)], r.arrival.ns(), instant(r.first_scheduled),
                          instant(r.first_token), instant(r.end), r.computing.count(), r.generated.count(),
                          r.cached.count(), r.preempted_recompute, r.preempted_swap);
    }
  }
  return text;
}

/// A policy with recomputation or with swapping, as far as it declares to have them: each has a file.
struct Mode {
  const PolicyInfo* policy = nullptr;
  bool swap = false;
  [[nodiscard]] std::string name() const { return policy->name + (swap ? ".swap" : ""); }
  [[nodiscard]] std::string path() const { return source_dir() + "/tests/golden/" + name() + ".txt"; }
};

void PrintTo(const Mode& mode, std::ostream* out) { *out << mode.name(); }

std::vector<Mode> modes() {
  std::vector<Mode> list;
  for (const PolicyInfo* policy : PolicyRegistry::instance().all()) {
    if (oracle::accepts_preemption(*policy, "recompute")) list.push_back({policy, false});
    if (oracle::swaps(*policy)) list.push_back({policy, true});
  }
  return list;
}

std::string binary = "test_golden";  // as it was called

class Golden : public testing::TestWithParam<Mode> {};

/// The length of all events of that name, in ns.
std::int64_t sum_of(const nlohmann::json& trace, const std::string& name) {
  std::int64_t sum = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["name"] == name) sum += std::llround(event["dur"].get<double>() * 1e3);
  }
  return sum;
}

// A run that is followed is the same run, and its timeline is a valid trace with the stalls and the bytes of the books.
TEST_P(Golden, Followed_IsTheSameRun) {
  const Mode& mode = GetParam();
  std::unique_ptr<Timeline> timeline;
  const auto observe = [&] {
    timeline = std::make_unique<Timeline>(TimelineLimits{});
    return timeline->observer(0);
  };
  const auto check = [&](const oracle::Replay& replay) {
    timeline->finish();
    const auto trace = nlohmann::json::parse(timeline->json({}));
    EXPECT_THAT(test::trace_problems(trace), testing::IsEmpty());
    const EngineTotals& engine = replay.result.instances.front();
    EXPECT_NEAR(1e-9 * static_cast<double>(sum_of(trace, "iteration")), engine.busy_time, 1e-12);
    EXPECT_EQ(Duration(sum_of(trace, "waits for KV")), engine.kv_waited_for);
    if (engine.layers) {
      const std::int64_t waits = sum_of(trace, "waits for layers") + sum_of(trace, "waits for weights");
      EXPECT_NEAR(1e-9 * static_cast<double>(waits), engine.layers->stall_time, 1e-12);
    }
    Bytes bytes;
    for (const auto& event : trace["traceEvents"]) {
      if (event["ph"] == "X" && event["args"].contains("bytes")) bytes += Bytes(event["args"]["bytes"]);
    }
    const Bytes moved =
        engine.moved_h2d + engine.moved_d2h + engine.moved_peer_in + engine.moved_peer_out + engine.read_by_cpu;
    EXPECT_GE(bytes, moved) << "the books leave out copies that no iteration is charged with";
  };
  EXPECT_EQ(run(*mode.policy, mode.swap, observe, check), run(*mode.policy, mode.swap));
}

TEST_P(Golden, Replay_IsThatOfTheFile) {
  const Mode& mode = GetParam();
  const std::string command = fmt::format("{} --update {}", binary, mode.policy->name);
  std::ifstream file(mode.path());
  ASSERT_TRUE(file) << "policy " << mode.policy->name << " has no golden file yet. This command writes it:\n  "
                    << command;
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(run(*mode.policy, mode.swap), golden.str()) << "If the change was intended:\n  " << command;
}

INSTANTIATE_TEST_SUITE_P(Registry, Golden, testing::ValuesIn(modes()), [](const auto& mode) {
  std::string name = mode.param.name();
  for (const char other : {'-', '.'}) std::replace(name.begin(), name.end(), other, '_');
  return name;
});

TEST(GoldenFiles, BelongToPolicies) {
  std::set<std::string> known;
  for (const Mode& mode : modes()) known.insert(mode.name());
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/tests/golden")) {
    if (entry.path().extension() != ".txt") continue;
    EXPECT_TRUE(known.contains(entry.path().stem().string())) << entry.path() << " belongs to no policy: delete it";
  }
}

/// Writes the files of the named policies anew. Returns the exit code.
int update(const std::vector<std::string>& policies) {
  for (const std::string& policy : policies) {
    bool any = false;
    for (const Mode& mode : modes()) {
      if (mode.policy->name != policy) continue;
      std::ofstream file(mode.path());
      file << run(*mode.policy, mode.swap);
      if (!file.flush()) {
        fmt::print(stderr, "cannot write {}\n", mode.path());
        return 1;
      }
      fmt::print("{}\n", mode.path());
      any = true;
    }
    if (!any) {
      std::set<std::string> names;
      for (const Mode& mode : modes()) names.insert(mode.policy->name);
      fmt::print(stderr, "no policy is called {}; there are {}\n", policy, fmt::join(names, ", "));
      return 2;
    }
  }
  return 0;
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  spillway::binary = argv[0];
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) return RUN_ALL_TESTS();
  if (arguments.size() > 1 && arguments[0] == "--update") {
    return spillway::update({arguments.begin() + 1, arguments.end()});
  }
  fmt::print(stderr, "usage: {} [--update POLICY...]\n", argv[0]);
  return 2;
}
