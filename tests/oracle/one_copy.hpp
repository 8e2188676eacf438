// Instances whose every iteration is one copy from the host, over links that they may share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/oracle/route_by.hpp"

namespace spillway::oracle {

/// 10 GB/s for every copy.
class TenGigabytes final : public ExecutionModel {
 public:
  explicit TenGigabytes(std::int32_t layers = 1, Duration layer = Duration(1)) : layers_(layers), layer_(layer) {}
  [[nodiscard]] std::int32_t layers() const override { return layers_; }
  [[nodiscard]] IterationTime iteration(const BatchShape&) const override { return {.layer = layer_}; }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes bytes, CopyMechanism) const override {
    return {.transfer = Duration(bytes.count() / 10)};
  }

 private:
  std::int32_t layers_;
  Duration layer_;
};

inline constexpr Bytes kOneCopy{100'000'000};  // 10 ms alone

/// The last layer of each iteration waits for one copy in.
class OneCopy final : public LayerPolicy, private LayerRule {
 public:
  OneCopy(const ExecutionModel& model, Blocks blocks) : model_(model), blocks_(blocks) {}
  [[nodiscard]] Blocks capacity() const override { return blocks_; }
  [[nodiscard]] LayerRule* begin(const BatchShape&, const LayerCompute&) override {
    there_ = false;
    return this;
  }

 private:
  void at_layer_start(std::int32_t layer, std::int32_t, CopySink& sink) override {
    if (quiet(layer) > 0) return;
    const CopyTime time = model_.copy(Stream::h2d, 1, kOneCopy, CopyMechanism::single);
    sink.issue({.stream = Stream::h2d, .bytes = kOneCopy, .launch = time.launch, .transfer = time.transfer});
  }
  void at_copy_done(const Copy&, CopySink&) override { there_ = true; }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t) const override { return there_ || quiet(layer) > 0; }
  [[nodiscard]] std::int32_t quiet(std::int32_t layer) const override { return model_.layers() - 1 - layer; }

  const ExecutionModel& model_;
  const Blocks blocks_;
  bool there_ = false;
};

struct CopiedOnce {
  std::vector<std::int64_t> ends;  // ns: when each instance's request has its one token
  Bytes moved{};                   // by all of them
};

/// Instance i serves one request, which arrives at `arrivals[i]` ns; its copy crosses `routes[i]`. A replica that goes
/// down at an event loses its request.
inline CopiedOnce copy_once(const std::vector<std::int64_t>& arrivals, const std::vector<CopyRoute>& routes,
                            const std::vector<BytesPerSecond>& links, std::optional<SimTime> until = std::nullopt,
                            const TenGigabytes& model = TenGigabytes(), const std::vector<ReplicaEvent>& events = {}) {
  PolicyInfo policy = *PolicyRegistry::instance().find("vllm-v0");
  policy.make = [&model, make = policy.make](const PolicyContext& context) {
    Policy made = make(context);
    made.layers = std::make_unique<OneCopy>(model, Blocks(10));
    return made;
  };
  const Settings settings = policy_settings(policy, {});
  NaiveConfig config;
  config.model = &model;
  config.policy = &policy;
  config.settings = &settings;
  config.gpu_blocks = Blocks(10);
  config.block_bytes = Bytes(1);
  config.max_model_len = Tokens(100);
  for (const std::int64_t arrival : arrivals) {
    RequestSpec request;
    request.arrival = SimTime(arrival);
    request.input = Tokens(8);
    request.output = request.max_new_tokens = Tokens(1);
    request.traits.conversation = std::ssize(config.requests);
    config.requests.push_back(request);
  }
  config.follows.resize(config.requests.size());
  SimulationConfig simulation = simulation_of(config);
  simulation.instances.resize(arrivals.size(), simulation.instances.front());
  for (std::size_t i = 0; i < routes.size(); ++i) simulation.instances[i].route = routes[i];
  simulation.links = links;
  simulation.until = until;
  simulation.events = events;
  simulation.retry = false;
  simulation.router =
      route_by([](const RequestSpec& request) { return static_cast<std::size_t>(request.traits.conversation); });
  const FastRun ran = run_fast(std::move(simulation), config);
  CopiedOnce copied{.ends = std::vector<std::int64_t>(arrivals.size())};
  for (const RequestRecord& record : ran.records) {
    copied.ends[static_cast<std::size_t>(record.traits.conversation)] = record.end.ns();
  }
  for (const EngineTotals& totals : ran.result.instances) copied.moved += totals.moved_h2d;
  return copied;
}

}  // namespace spillway::oracle
