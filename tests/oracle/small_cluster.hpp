// Replicas with iterations, copies and routers that are easy to follow by hand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/list_source.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/oracle/replay.hpp"
#include "tests/oracle/route_by.hpp"

namespace spillway::oracle {

/// Every iteration takes 2,000 ns.
class EqualLayers final : public ExecutionModel {
 public:
  explicit EqualLayers(std::int32_t layers) : layers_(layers) {}
  [[nodiscard]] std::int32_t layers() const override { return layers_; }
  [[nodiscard]] IterationTime iteration(const BatchShape&) const override {
    return {.layer = Duration(2'000 / layers_)};
  }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes bytes, CopyMechanism) const override {
    return {.transfer = Duration(bytes.count())};
  }

 private:
  std::int32_t layers_;
};

/// Blocks hold 16 tokens and 1,000 bytes; KV moves at 1 byte/ns after a launch of 100 ns. Routers choose as told.
class SmallCluster {
 public:
  explicit SmallCluster(std::size_t replicas, std::int32_t layers = 2, bool prefix_caching = false,
                        const std::string& policy = "vllm",
                        const std::vector<std::pair<std::string, Value>>& overrides = {})
      : model_(layers),
        policy_(*PolicyRegistry::instance().find(policy)),
        settings_(policy_settings(policy_, overrides)) {
    InstanceConfig& instance = config.instances.emplace_back();
    instance.model = &model_;
    instance.policy = &policy_;
    instance.settings = &settings_;
    instance.kv = {.gpu_blocks = Blocks(100), .block_bytes = Bytes(1'000), .prefix_caching = prefix_caching};
    instance.max_model_len = Tokens(1'000);
    config.instances.resize(replicas, instance);
    config.router = route_by([this](const RequestSpec&) { return take(prefill_choices); });
  }
  SmallCluster(const SmallCluster&) = delete;
  SmallCluster& operator=(const SmallCluster&) = delete;

  /// The first `prefill` replicas compute prompts. Each has a way out of its own, each other one a way in.
  SmallCluster& split(std::size_t prefill, bool by_layers = false, bool first_token_at_prefill = false) {
    Handover& handover = config.handover.emplace();
    handover.prefill = prefill;
    handover.by_layers = by_layers;
    handover.first_token_at_prefill = first_token_at_prefill;
    handover.decode_router = route_by([this](const RequestSpec&) { return take(decode_choices); });
    handover.links.assign(config.instances.size(), BytesPerSecond(1e9));
    handover.path = [prefill](std::size_t from, std::size_t to) {
      return HandoverPath{Duration(100), BytesPerSecond(1e9), {{from}, {prefill + to}}};
    };
    for (std::size_t i = 0; i < config.instances.size(); ++i) {
      config.instances[i].phases = i < prefill ? Phases::prefill : Phases::decode;
      config.instances[i].hands_over = true;
    }
    return *this;
  }

  void run(const std::vector<RequestSpec>& requests) {
    ListSource source(requests);
    config.source = &source;
    config.on_request = [this](const RequestRecord& record) { records.push_back(record); };
    result = simulate(config);
    EXPECT_EQ(result.statistics.all.ended(), std::ssize(requests));
    EXPECT_EQ(std::ssize(records), std::ssize(requests));
  }
  [[nodiscard]] const RequestRecord& of(std::uint64_t index) const {
    return *std::ranges::find(records, index, &RequestRecord::index);
  }

  SimulationConfig config;
  std::vector<std::size_t> prefill_choices{};  // the last one for all that follow
  std::vector<std::size_t> decode_choices{};
  std::vector<RequestRecord> records{};
  SimulationResult result{};

 private:
  static std::size_t take(std::vector<std::size_t>& choices) {
    if (choices.empty()) return 0;
    const std::size_t first = choices.front();
    if (choices.size() > 1) choices.erase(choices.begin());
    return first;
  }
  EqualLayers model_;
  const PolicyInfo& policy_;
  const Settings settings_;
};

}  // namespace spillway::oracle
