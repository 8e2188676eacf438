// Lets tests replay a list of requests through the simulator and watch every iteration.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/random_case.hpp"

namespace spillway::oracle {

/// The work of one iteration, as the execution model sees it.
struct SeenIteration {
  std::int64_t decodes = 0;
  std::int64_t decode_context = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> chunks;  // (new tokens, context)
  bool operator==(const SeenIteration&) const = default;
};

/// Records every iteration. Each iteration takes `length` nanoseconds for any work. Copies take one nanosecond per byte
/// and no launch time.
class WatchingModel final : public ExecutionModel {
 public:
  explicit WatchingModel(Duration length = Duration(100)) : length_(length) {}
  [[nodiscard]] std::int32_t layers() const override { return 1; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    SeenIteration seen{shape.decode_sequences, shape.decode_context.count(), {}};
    for (const PrefillChunk& chunk : shape.chunks) {
      seen.chunks.emplace_back(chunk.new_tokens.count(), chunk.context.count());
    }
    seen_.push_back(seen);
    return IterationTime{Duration(0), length_, Duration(0), TimeShares{to_seconds(length_), 0.0, 0.0, 0.0}};
  }
  [[nodiscard]] CopyTime copy(Stream, std::int64_t, Bytes bytes, CopyMechanism) const override {
    return CopyTime{Duration(0), Duration(bytes.count())};
  }
  [[nodiscard]] const std::vector<SeenIteration>& seen() const { return seen_; }

 private:
  Duration length_;
  mutable std::vector<SeenIteration> seen_;
};

struct Replay {
  std::vector<RequestRecord> records;  // in order of ending
  SimulationResult result;
  [[nodiscard]] const RequestRecord& of(std::uint64_t index) const {
    for (const RequestRecord& record : records) {
      if (record.index == index) return record;
    }
    throw std::out_of_range("no such request");
  }
};

inline RequestSpec request(std::int64_t arrival_ns, std::int64_t input, std::int64_t output) {
  RequestSpec spec;
  spec.arrival = SimTime(arrival_ns);
  spec.input = Tokens(input);
  spec.output = Tokens(output);
  spec.max_new_tokens = Tokens(output);
  return spec;
}

/// Replays `requests` under `policy` with the given memory. max_model_len is the capacity of the GPU blocks. `observer`
/// follows the instance, if given.
inline Replay replay(const PolicyInfo& policy, const std::vector<std::pair<std::string, Value>>& overrides,
                     const KvLayout& kv, const std::vector<RequestSpec>& requests, const ExecutionModel& model,
                     InstanceObserver* observer = nullptr) {
  const Settings settings = policy_settings(policy, overrides);
  ListSource source(requests);
  Replay replay;
  SimulationConfig config;
  InstanceConfig& instance = config.instances.emplace_back();
  instance.model = &model;
  instance.policy = &policy;
  instance.settings = &settings;
  read_surroundings(settings, instance);
  config.source = &source;
  instance.kv = kv;
  instance.kv.prefix_caching = kv.prefix_caching && policy.shares_prefixes;
  if (policy.layout || policy.make_space) {
    instance.deployment = snug_deployment(model, kv.gpu_blocks, kv.block_bytes, kv.block_tokens, Bytes(1000));
  }
  if (policy.layout) {
    const Layout layout = policy.layout(instance.deployment, settings);
    instance.kv.gpu_blocks = layout.blocks;
    instance.kv.most_gpu_blocks = layout.most;
    // Beside layers, caches are replayed with swaps. Without swaps the links are the layers' own, as in their papers.
    if (settings.get<std::string>("engine.preemption") != "swap" && !policy.suspends) {
      instance.kv.host_blocks = instance.kv.host_cache_blocks = Blocks(0);
      instance.kv.prefix_caching = instance.kv.prefix_caching && layout.most == layout.blocks;
    }
    instance.deployment.chosen = layout.chosen;
    if (policy.places_experts) {
      const ExpertDeployment& experts = *instance.deployment.experts;
      instance.experts = {.count = experts.count,
                          .top_k = experts.top_k,
                          .layers = experts.expert_layers(),
                          .skew = 0.65,
                          .locality = 0.4,
                          .seed = 1};
    }
  }
  instance.max_model_len = Tokens(instance.kv.most().count() * kv.block_tokens.count());
  config.on_request = [&](const RequestRecord& record) { replay.records.push_back(record); };
  config.observer = [observer](std::size_t) { return observer; };
  replay.result = simulate(config);
  return replay;
}

inline Replay replay(const std::string& policy, const std::vector<std::pair<std::string, Value>>& overrides,
                     const KvLayout& kv, const std::vector<RequestSpec>& requests, const ExecutionModel& model,
                     InstanceObserver* observer = nullptr) {
  return replay(*PolicyRegistry::instance().find(policy), overrides, kv, requests, model, observer);
}

}  // namespace spillway::oracle
