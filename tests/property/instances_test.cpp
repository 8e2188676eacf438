// Several instances on one clock: each does what it would do alone, except on a link that they share.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/one_copy.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/oracle/route_by.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using oracle::NaiveConfig;
using oracle::WholeModel;

constexpr std::size_t kInstances = 3;

std::size_t instance_of(std::int64_t position) { return static_cast<std::size_t>(position) % kInstances; }

/// The records of one instance in order of ending, each without its position in the whole workload.
std::vector<std::string> records_of(const std::vector<RequestRecord>& records, std::size_t instance) {
  std::vector<std::string> texts;
  for (RequestRecord record : records) {
    if (instance_of(record.traits.conversation) != instance) continue;
    record.index = 0;
    texts.push_back(oracle::text(record));
  }
  return texts;
}

/// `links`: capacities of links in and out that all instances cross; empty: none.
oracle::FastRun run(const NaiveConfig& config, std::size_t instances, const std::vector<BytesPerSecond>& links = {}) {
  SimulationConfig simulation = oracle::simulation_of(config);
  if (!links.empty()) simulation.instances.front().route = {.h2d = {{0}}, .d2h = {{1}}};
  simulation.links = links;
  simulation.instances.resize(instances, simulation.instances.front());
  if (instances > 1) {
    simulation.router =
        oracle::route_by([](const RequestSpec& request) { return instance_of(request.traits.conversation); });
  }
  return oracle::run_fast(std::move(simulation), config);
}

// The instances share the clock and nothing else, so three of them are three runs, to the nanosecond.
TEST(Instances, ThatShareNothing_RunAsIfAlone) {
  for (const PolicyInfo* policy : PolicyRegistry::instance().all()) {
    const PolicyInfo& info = *PolicyRegistry::instance().find(policy->name);
    const WholeModel model = WholeModel::of(info);
    for (std::uint64_t seed = 1; seed <= random_cases(40); ++seed) {
      SCOPED_TRACE(policy->name + " seed " + std::to_string(seed));
      Settings settings;
      NaiveConfig config;
      oracle::draw_case(seed, info, model, 1, settings, config);
      // A request that follows one of another instance would tie them together.
      std::fill(config.follows.begin(), config.follows.end(), oracle::Follows{});
      std::stable_sort(config.requests.begin(), config.requests.end(),
                       [](const RequestSpec& a, const RequestSpec& b) { return a.arrival < b.arrival; });
      // Stepped in half of the cases: links that they share, but that are wider than all of them.
      const bool stepped = seed % 2 == 0;
      const std::vector<BytesPerSecond> wide(stepped ? 2U : 0U, BytesPerSecond(1e15));
      const oracle::FastRun together = run(config, kInstances, wide);
      std::int64_t iterations = 0;
      for (std::size_t i = 0; i < kInstances; ++i) {
        NaiveConfig part = config;
        std::erase_if(part.requests,
                      [&](const RequestSpec& request) { return instance_of(request.traits.conversation) != i; });
        part.follows.resize(part.requests.size());
        const oracle::FastRun alone = run(part, 1);
        ASSERT_EQ(records_of(together.records, i), records_of(alone.records, i));
        const EngineTotals& a = together.result.instances[i];
        const EngineTotals& b = alone.result.instances[0];
        ASSERT_EQ(a.iterations, b.iterations);
        // Of an iteration that the horizon cuts, a stepped instance knows what was issued; else it counts in
        // proportion.
        if (!stepped || !config.until) {
          ASSERT_EQ(a.moved_h2d, b.moved_h2d);
          ASSERT_EQ(a.moved_d2h, b.moved_d2h);
        }
        ASSERT_EQ(a.peak_kv, b.peak_kv);
        ASSERT_EQ(a.preempted_recompute, b.preempted_recompute);
        ASSERT_EQ(a.prefix_hit, b.prefix_hit);
        iterations += a.iterations;
      }
      ASSERT_EQ(together.result.statistics.engine.iterations, iterations);
      ASSERT_EQ(together.result.statistics.all.submitted, std::ssize(together.records));
    }
  }
}

// --- a link that two instances share

/// When requests that arrive at `arrivals`, each at an instance of its own, have their one token. The instances share a
/// link of 10 GB/s.
std::vector<std::int64_t> ends_on_one_link(const std::vector<std::int64_t>& arrivals,
                                           std::optional<SimTime> until = std::nullopt) {
  const std::vector<CopyRoute> routes(arrivals.size(), CopyRoute{.h2d = {{0}}});
  const oracle::CopiedOnce copied = oracle::copy_once(arrivals, routes, {BytesPerSecond(10e9)}, until);
  // Every byte was carried once.
  if (!until) {
    EXPECT_EQ(copied.moved, oracle::kOneCopy * std::ssize(arrivals));
  }
  return copied.ends;
}

constexpr std::int64_t kMs = 1'000'000;

TEST(Instances, ThatShareALink_DivideItWhileBothCopy) {
  using Ends = std::vector<std::int64_t>;
  EXPECT_EQ(ends_on_one_link({0}), Ends{10 * kMs + 1});
  // A copies 40 MB alone by 4 ms. 60 MB are left, at 5 GB/s until 16 ms. B has 40 MB left then: 20 ms.
  EXPECT_EQ(ends_on_one_link({0, 4 * kMs}), (Ends{16 * kMs + 1, 20 * kMs + 1}));
  EXPECT_EQ(ends_on_one_link({0, 10 * kMs}), (Ends{10 * kMs + 1, 20 * kMs + 1}));
  // A third each from 8 ms on. A: 40 MB by 4 ms, 20 by 8 ms, its last 40 by 20 ms. B: 20 and 40 by 20 ms, its last 40
  // by 28 ms at 5 GB/s. C: 40 by 20 ms, 40 by 28 ms, its last 20 alone by 30 ms.
  EXPECT_EQ(ends_on_one_link({0, 4 * kMs, 8 * kMs}), (Ends{20 * kMs + 1, 28 * kMs + 1, 30 * kMs + 1}));
  // A third instance that comes when the first two have gone finds the link free.
  EXPECT_EQ(ends_on_one_link({0, 4 * kMs, 30 * kMs}), (Ends{16 * kMs + 1, 20 * kMs + 1, 40 * kMs + 1}));
  // The horizon cuts both.
  EXPECT_EQ(ends_on_one_link({0, 4 * kMs}, SimTime(12 * kMs)), (Ends{12 * kMs, 12 * kMs}));
}

const std::vector<CopyRoute> kTwoOnOneLink(2, CopyRoute{.h2d = {{0}}});

TEST(Instances, ThatShareALink_StartTheirCopiesInTime) {
  // Five layers of 1 ms; the copy starts with the last one and has arrived before it computes. A copies 80 MB alone
  // from 4 ms to 12 ms, when B begins to copy. 20 MB are left, at 5 GB/s until 16 ms. B has 80 MB left then: 24 ms.
  const oracle::CopiedOnce copied = oracle::copy_once({0, 8 * kMs}, kTwoOnOneLink, {BytesPerSecond(10e9)}, std::nullopt,
                                                      oracle::TenGigabytes(5, Duration(kMs)));
  EXPECT_EQ(copied.ends, (std::vector<std::int64_t>{17 * kMs, 25 * kMs}));
}

TEST(Instances, ThatShareALink_HaveItAlone_WhenTheOthersGoDown) {
  // Both copy at 5 GB/s. At 4 ms, when B goes down, A has copied 20 MB; it copies 80 MB alone until 12 ms.
  const oracle::CopiedOnce copied =
      oracle::copy_once({0, 0}, kTwoOnOneLink, {BytesPerSecond(10e9)}, std::nullopt, oracle::TenGigabytes(),
                        {{.at = SimTime(4 * kMs), .replica = 1, .up = false}});
  EXPECT_EQ(copied.ends, (std::vector<std::int64_t>{12 * kMs + 1, 4 * kMs}));
}

}  // namespace
}  // namespace spillway
