// Random servers, routers, failures and pools through the whole program: nothing is lost without a count, and links
// carry what crosses them and no more than they can.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/cli/arguments.hpp"
#include "sim/study/replicated_run.hpp"
#include "sim/study/what_if.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using nlohmann::json;
using oracle::Dice;

constexpr std::int64_t kGpus = 8;  // of hgx-h100-8

/// DRAM of one or two sockets, and switches with consecutive GPUs, each with limits of its own or none.
json draw_topology(Dice& dice) {
  json links = json::array();
  const auto limit = [&dice](int percent) {
    return dice.chance(percent) ? json{{"value", 1e9 * static_cast<double>(dice.between(4, 60))}, {"unit", "bytes/s"}}
                                : json{{"value", nullptr}, {"unit", "bytes/s"}};
  };
  const std::int64_t sockets = dice.between(1, 2);
  for (std::int64_t i = 0; i < sockets; ++i) {
    links.push_back({{"names", {fmt::format("numa-{}", i)}}, {"kind", "numa-node"}, {"both", limit(70)}});
  }
  const std::int64_t switches = dice.between(1, 4);
  for (std::int64_t i = 0; i < switches; ++i) {
    links.push_back({{"names", {fmt::format("switch-{}", i)}},
                     {"kind", "pcie-switch"},
                     {"in", limit(80)},
                     {"out", limit(80)},
                     {"both", limit(50)}});
  }
  links.push_back({{"names", {"nvswitch"}}, {"kind", "nvswitch"}, {"both", limit(30)}});
  json gpus = json::array();
  for (std::int64_t gpu = 0; gpu < kGpus; ++gpu) {
    const std::int64_t at = gpu * switches / kGpus;
    gpus.push_back({{"host", {fmt::format("switch-{}", at), fmt::format("numa-{}", at * sockets / switches)}},
                    {"peer", {"nvswitch"}}});
  }
  return {{"schema_version", 1},
          {"kind", "topology"},
          {"name", "drawn"},
          {"stands_for", "a drawn server"},
          {"error", "-"},
          {"source", {{"kind", "assumed"}, {"cite", "drawn at random"}}},
          {"topology", {{"links", links}, {"gpus", gpus}}}};
}

struct Drawn {
  json topology;
  std::vector<std::string> arguments;
  std::int64_t replicas = 0;
  std::int64_t per_server = 0;
  std::int64_t gpus = 1;  // of each replica
  bool comes_up = true;   // some replica of each pool is up in the end
  bool retry = true;
};

Drawn draw(std::uint64_t seed, const std::string& file) {
  Dice dice(seed);
  Drawn drawn;
  drawn.topology = draw_topology(dice);
  drawn.gpus = dice.chance(50) ? 1 : 2;
  const std::int64_t fit = kGpus / drawn.gpus;
  const std::int64_t servers = dice.between(1, 2);
  drawn.replicas = dice.between(2, fit * servers);
  drawn.per_server = std::min(drawn.replicas, fit);
  std::vector<std::string>& arguments = drawn.arguments;
  arguments = {"model=llama-3.1-8b",
               "hardware=hgx-h100-8",
               "topology=" + file,
               fmt::format("tensor_parallel={}", drawn.gpus),
               fmt::format("seed={}", seed),
               fmt::format("workload.requests={}", dice.between(20, 80)),
               fmt::format("workload.rate={}", dice.between(2, 60))};
  const auto& routers = RouterRegistry::instance().all();
  const auto router = [&] { return routers[static_cast<std::size_t>(dice.between(0, std::ssize(routers) - 1))]->name; };
  arguments.push_back("router=" + router());
  std::int64_t prefill = 0;
  std::string trace = dice.chance(50) ? "sharegpt" : "alpaca";
  const std::string gpu_kv = fmt::format("memory.gpu_kv={}MB", 200 * dice.between(1, 8));
  switch (dice.between(0, 5)) {
    case 0:
      prefill = dice.between(1, drawn.replicas - 1);
      arguments.insert(arguments.end(),
                       {fmt::format("prefill_replicas={}", prefill),
                        fmt::format("decode_replicas={}", drawn.replicas - prefill), "decode_router=" + router(),
                        "policy=vllm", std::string("handover.mode=") + (dice.chance(50) ? "layers" : "whole"),
                        std::string("handover.link=") + (dice.chance(50) || servers > 1 ? "auto" : "pcie"), gpu_kv});
      break;
    case 1:
      arguments.insert(arguments.end(), {"policy=vllm-v0", "engine.preemption=swap", gpu_kv});
      break;
    case 2:
      arguments.insert(arguments.end(), {"policy=select-n", "policy.interval=4"});
      break;
    case 3:
      arguments.insert(arguments.end(), {"policy=pie", gpu_kv});
      break;
    case 4:
      trace = "sharegpt-chat";
      arguments.insert(arguments.end(), {"policy=pensieve", gpu_kv, "workload.think_time=1s"});
      break;
    default:
      arguments.insert(arguments.end(), {"policy=vllm", "memory.host_cache=8GB", "engine.prefix_caching=true", gpu_kv});
      break;
  }
  arguments.push_back("workload.trace=" + trace);
  if (prefill == 0) arguments.push_back(fmt::format("replicas={}", drawn.replicas));
  if (servers == 2) arguments.emplace_back("servers=2");
  if (dice.chance(60)) {
    json events = json::array();
    std::int64_t down[] = {0, 0};  // for good, by pool
    for (std::int64_t i = 0; i < drawn.replicas; ++i) {
      if (dice.chance(50)) continue;
      const std::int64_t at = dice.between(0, 10'000);
      events.push_back({{"at", fmt::format("{}ms", at)}, {"replica", i}, {"event", "down"}});
      if (dice.chance(30)) {
        ++down[i < prefill ? 0 : 1];
        continue;
      }
      events.push_back({{"at", fmt::format("{}ms", at + dice.between(1, 10'000))}, {"replica", i}, {"event", "up"}});
    }
    drawn.comes_up = down[1] < drawn.replicas - prefill && (prefill == 0 || down[0] < prefill);
    drawn.retry = dice.chance(60);
    arguments.push_back("events=" + events.dump());
    if (!drawn.retry) arguments.emplace_back("router.retry=false");
  }
  return drawn;
}

/// What each link carried, from what the replicas copied and the links that the file says their GPUs cross.
std::map<std::string, double> carried(const Drawn& drawn, const RunStatistics& run) {
  std::map<std::string, double> bytes;
  for (std::int64_t i = 0; i < drawn.replicas; ++i) {
    const EngineTotals& engine = run.replicas.at(static_cast<std::size_t>(i)).engine;
    const auto in = static_cast<double>(engine.moved_h2d.count());
    const auto out = static_cast<double>(engine.moved_d2h.count());
    const bool several = drawn.replicas > drawn.per_server;
    const std::string server = several ? fmt::format("server {}: ", i / drawn.per_server) : "";
    for (std::int64_t gpu = 0; gpu < drawn.gpus; ++gpu) {
      const auto at = static_cast<std::size_t>(i % drawn.per_server * drawn.gpus + gpu);
      for (const json& link : drawn.topology["topology"]["gpus"][at]["host"]) {
        const std::string name = server + link.get<std::string>();
        bytes[name + " in"] += in;
        bytes[name + " out"] += out;
        bytes[name] += in + out;
      }
    }
  }
  return bytes;
}

TEST(RandomTopologies, LoseNothingAndCarryNoMoreThanTheyCan) {
  const std::string file =
      (std::filesystem::path(testing::TempDir()) / fmt::format("spillway_topology_{}.json", ::getpid())).string();
  std::int64_t lost = 0;
  double busiest = 0.0;
  for (std::uint64_t seed = 1; seed <= random_cases(150); ++seed) {
    const Drawn drawn = draw(seed, file);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, fmt::join(drawn.arguments, " ")));
    std::ofstream(file) << drawn.topology.dump();
    Assembly assembly = assemble(cli::resolve_arguments(drawn.arguments, {}, {}));
    const Result result = run_result(assembly, run_replications(assembly, 1, 1, {}, {}));
    const RunStatistics& run = result.statistics;
    ASSERT_EQ(run.all.submitted, run.all.ended());
    ASSERT_GT(run.all.submitted, 0);
    ASSERT_EQ(run.all.unfinished, 0);
    if (drawn.retry && drawn.comes_up) {
      ASSERT_EQ(run.all.lost, 0);
    }
    lost += run.all.lost;
    ASSERT_EQ(std::ssize(run.replicas), drawn.replicas);
    std::map<std::string, double> expected = carried(drawn, run);
    ASSERT_EQ(result.links.size(), run.links.size());
    for (std::size_t i = 0; i < run.links.size(); ++i) {
      const std::string& name = result.links[i];
      const LinkUse& link = run.links[i];
      // Copies count when they are issued, and some end after the last answer.
      const double used = link.bytes / link.capacity / to_seconds(run.span);
      ASSERT_LE(used, 1.02) << name;
      busiest = std::max(busiest, used);
      if (!run.handover) {
        ASSERT_DOUBLE_EQ(link.bytes, expected[name]) << name;
      }
    }
  }
  std::filesystem::remove(file);
  EXPECT_GT(lost, more_than(0));
  EXPECT_GT(busiest, 0.5);
}

}  // namespace
}  // namespace spillway
