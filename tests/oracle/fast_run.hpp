// The engine under test on a random case, and a request record as text.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/list_source.hpp"
#include "tests/oracle/naive_engine.hpp"

namespace spillway::oracle {

struct FastRun {
  std::vector<RequestRecord> records;  // in order of ending
  SimulationResult result;
};

/// The same choice of experts, for the engine.
inline ExpertChoice choice_of(const PlainChoice& plain) {
  return {.count = plain.count,
          .top_k = plain.top_k,
          .layers = plain.layers,
          .skew = plain.skew,
          .locality = plain.locality,
          .patterns = plain.patterns,
          .lookahead = plain.lookahead,
          .hit_curve = HitCurve(plain.hit_curve),
          .seed = plain.seed};
}

/// The simulation of a case, without a source.
inline SimulationConfig simulation_of(const NaiveConfig& config) {
  SimulationConfig simulation;
  InstanceConfig& instance = simulation.instances.emplace_back();
  instance.model = config.model;
  instance.policy = config.policy;
  instance.settings = config.settings;
  instance.kv = KvLayout{
      config.gpu_blocks,       config.host_blocks,    config.block_tokens,      config.block_bytes,
      config.copies_per_block, config.prefix_caching, config.host_cache_blocks, config.host_cache_copies_per_block};
  instance.kv.host_cache_mechanism = config.host_cache_mechanism;
  instance.kv.cache_is_lent = config.cache_is_lent;
  instance.kv.most_gpu_blocks = config.most_gpu_blocks;
  instance.kv.further = config.further;
  instance.kv.window = config.window;
  instance.deployment = config.deployment;
  instance.deployment.model = config.model;
  if (config.policy->places_experts) instance.experts = choice_of(config.experts);
  instance.max_model_len = config.max_model_len;
  instance.traffic = config.traffic;
  instance.phases = config.phases;
  instance.padding = config.padding;
  instance.schedules_ahead = config.schedules_ahead;
  for (const PlainTotal& total : config.links.totals) {
    for (std::size_t way = 0; way < kWays; ++way) {
      if (total.gpus[way] > 0) instance.route.all()[way]->push_back({simulation.links.size(), total.gpus[way]});
    }
    simulation.links.emplace_back(total.bytes_per_second);
  }
  simulation.front_end = config.front_end;
  simulation.request_timeout = config.request_timeout;
  simulation.until = config.until;
  return simulation;
}

/// Runs `simulation` with the requests of `config`.
inline FastRun run_fast(SimulationConfig simulation, const NaiveConfig& config) {
  FastRun run;
  FollowingSource source(config.requests, config.follows);
  simulation.source = &source;
  for (InstanceConfig& instance : simulation.instances) instance.future = &source;
  simulation.on_request = [&](const RequestRecord& record) { run.records.push_back(record); };
  run.result = simulate(simulation);
  return run;
}

inline FastRun run_fast(const NaiveConfig& config, Duration warmup = Duration(0)) {
  SimulationConfig simulation = simulation_of(config);
  if (warmup > Duration(0)) {
    simulation.metrics.warmup.kind = Span::Kind::time;
    simulation.metrics.warmup.time = warmup;
  }
  return run_fast(std::move(simulation), config);
}

inline std::string text(const RequestRecord& r) {
  std::string line;
  for (const std::int64_t value :
       {static_cast<std::int64_t>(r.index), static_cast<std::int64_t>(r.client), static_cast<std::int64_t>(r.outcome),
        r.arrival.ns(), r.first_scheduled.ns(), r.first_token.ns(), r.end.ns(), r.computing.count(), r.input.count(),
        r.output.count(), r.generated.count(), r.cached.count(), std::int64_t{r.preempted_recompute},
        std::int64_t{r.preempted_swap}, r.traits.conversation}) {
    line += std::to_string(value) + " ";
  }
  return line;
}

}  // namespace spillway::oracle
