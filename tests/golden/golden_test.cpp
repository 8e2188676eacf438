// Tiny traces replayed under every policy; every instant of every request, in whole nanoseconds, against a file.
//
// A difference means that a rule changed. If that was intended, run with SPILLWAY_UPDATE_GOLDEN=1, and say in the
// commit which rule changed and why.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/oracle/replay.hpp"
#include "tests/support/paths.hpp"

namespace spillway {
namespace {

struct Trace {
  std::string name;
  KvLayout kv;
  std::vector<std::pair<std::string, Value>> settings;
  std::vector<RequestSpec> requests;
};

/// Four situations that every policy meets: plenty of room, memory for about two of five requests, shared prefixes, and
/// prefixes that only the host still holds.
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

/// A policy that pads: to lengths that all but the longest prompt have, with a placement that the GPU holds.
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

std::string instant(SimTime t) { return t == kNever ? "-" : std::to_string(t.ns()); }

std::string run(const PolicyInfo& policy, bool swap) {
  const char* const outcomes[] = {"finished", "rejected", "timed_out", "unfinished"};
  std::string text =
      "trace request outcome arrival scheduled first_token end computing generated cached recomputed swapped\n";
  for (Trace& trace : traces()) {
    pad(policy, trace);
    if (swap) trace.settings.emplace_back("engine.preemption", std::string("swap"));
    const auto model = oracle::WholeModel::of(policy, 1, 0);  // the longest decode takes no time of its own
    const oracle::Replay replay = oracle::replay(policy.name, trace.settings, trace.kv, trace.requests, model);
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

void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = source_dir() + "/tests/golden/" + name + ".txt";
  if (std::getenv("SPILLWAY_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " is missing; SPILLWAY_UPDATE_GOLDEN=1 writes it";
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str());
}

TEST(Golden, EveryPolicy) {
  for (const PolicyInfo* policy : PolicyRegistry::instance().all()) {
    SCOPED_TRACE(policy->name);
    if (oracle::accepts_preemption(*policy, "recompute")) expect_golden(policy->name, run(*policy, false));
    if (oracle::accepts_preemption(*policy, "swap")) expect_golden(policy->name + ".swap", run(*policy, true));
  }
}

}  // namespace
}  // namespace spillway
